//! The cases, a file for each part of `cases.txt`; each has one `cases!` and one `roles!`, which may be empty.
//!
//! A case is a line in `cases!` and a short `async fn(Context)` that panics when it is not as it should be. It says nothing of
//! engines: what not every engine has stands in `needs`. It waits for conditions ([`eventually`](crate::eventually),
//! [`within`](crate::within), `cx.queued`, `cx.free`), never for a time; it asserts order, overlap, exactness and leftovers, and
//! times only downwards ("not before") or, in full runs, upwards. Afterwards the suite looks whether anything of it is left.
#![allow(clippy::unwrap_used, reason = "a case fails where it unwraps")]

use crate::{
    case::{Case, Role},
    puppet,
};

macro_rules! files {
    ($($file:ident),* $(,)?) => {
        $(mod $file;)*
        pub(crate) const CASES: &[&[Case]] = &[$($file::CASES),*];
        pub(crate) const ROLES: &[&[Role]] = &[puppet::ROLES, $($file::ROLES),*];
    };
}
files! {
    // In the order of cases.txt.
    mutex, queue, rw_lock, redisson, redisson_more, redsync, redis_py, rslock, short_lists, nobody, nobody_more,
    curator_locks,
    curator_elections, kazoo, etcd, consul, client_go, own_runs, madelson, shedlock, spring, tooz, pglock, river,
    dynamo, coditory, sql_new, known_bugs, jepsen,
}

/// What every file of cases begins with: `use super::prelude::*;`
#[allow(unused_imports, dead_code, reason = "each file uses its part")]
mod prelude {
    pub(super) use crate::{
        Context, Puppet, RoleContext, STUCK,
        case::{cases, roles},
        eventually, full,
        judge::{self, Judge},
        listed, once, tenth, within,
    };
    pub(super) use fencelock_core::{
        BootClock, Busy, Chaos, Claim, Client, Clock, Engine, Error, ErrorKind, Grant, Guard, HoldId, Holder, Kind,
        Lease, LossReason, Moment, MultiLock, Name, Operation, Page, Released, Renewed, SharedGuard, Status, Token,
        Trouble,
    };
    pub(super) use std::{
        sync::{Arc, Mutex},
        time::{Duration, Instant},
    };
    pub(super) const MS: Duration = Duration::from_millis(1);
    pub(super) const SEC: Duration = Duration::from_secs(1);

    /// The engine's answer to a renewal, below core. What it could not find out, because somebody keeps a database's row for a moment
    /// (SAFETY E2), is asked again, as the keeper does.
    pub(super) async fn renewed(engine: &dyn Engine, grant: &Grant) -> Renewed {
        let known = async {
            loop {
                let answers = engine.renew(std::slice::from_ref(grant)).await.unwrap();
                assert_eq!(answers.len(), 1);
                match answers[0] {
                    Renewed::Unknown => tokio::time::sleep(3 * MS).await,
                    known => return known,
                }
            }
        };
        within("it is known whether it is renewed", known).await
    }
    /// Somebody has it, and who. A try that finds the record locked for a moment is told that it is taken, but not by
    /// whom: it is made again until the engine tells.
    pub(super) async fn who_has_it<G, F>(mut attempt: impl FnMut() -> F) -> Box<Holder>
    where
        F: Future<Output = Result<Result<G, Busy>, Error>>,
    {
        let told = async {
            loop {
                let Err(busy) = attempt().await.unwrap() else { panic!("nobody has it") };
                if let Some(holder) = busy.holder {
                    return holder;
                }
                tokio::time::sleep(3 * MS).await;
            }
        };
        within("the engine tells", told).await
    }
}
