//! A connection that breaks, at each message of each of our calls and of the commit: by any driver, for the tests that bring `LONG`.
use super::*;
use fencelock_conformance::proxy::{Proxy, Trouble};
use fencelock_core::{Error, ErrorKind, Guard, Token};
use fencelock_sql::{Lock, Row, Transaction, Tx, fence};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
};

pub(crate) const TROUBLES: [Trouble; 2] = [Trouble::LoseReply, Trouble::Lose];

/// A transaction that has written to account 1, of this version: at the n-th message of this call its connection breaks; whether it has so many.
/// One of our calls that breaks off is told, and leaves nothing that could be committed; of a commit that breaks off nobody knows.
pub(crate) async fn breaks<T: Transaction>(
    proxy: &Proxy,
    mut tx: Tx<T>,
    version: i64,
    (call, held): (&str, Option<&Guard>),
    (n, trouble): (u32, Trouble),
) -> bool {
    let account = |id: i32| Row::of("account").key("id", id);
    let write = account(1).update(&mut tx, version, [("balance", 7)]).await;
    assert_eq!(write.unwrap(), Ok(version + 1));
    let (met, ours) = (Arc::<AtomicBool>::default(), Arc::<AtomicU32>::default());
    let seen = met.clone();
    proxy.rule(move |_| {
        let is_it = ours.fetch_add(1, SeqCst) == n;
        seen.fetch_or(is_it, SeqCst);
        if is_it { trouble } else { Trouble::None }
    });
    let what = format!("message {n} of {call}, {trouble:?}");
    let is = |error: &Error, kind| assert!(met.load(SeqCst) && error.kind() == kind, "{what}: {error}");
    let token = (Token::new(version + 1).unwrap(), "w");
    let done = match call {
        "commit" => {
            let done = tx.commit().await;
            return done.is_err_and(|error| {
                is(&error, ErrorKind::Ambiguous);
                true
            });
        }
        "lock" => account(2).lock(&mut tx, Lock::exclusive().within(LONG)).await.map(|taken| drop(taken.unwrap())),
        "update" => account(2).update(&mut tx, version, [("balance", 7)]).await.map(drop),
        "fence" => fence::check(&mut tx, account(1), token).await.map(Result::unwrap),
        "named fence" => fence::check(&mut tx, "x", token).await.map(Result::unwrap),
        "guard" => fence::guard(&mut tx, held.unwrap()).await.map(Result::unwrap),
        other => panic!("no such call: {other}"),
    };
    let Err(error) = done else {
        proxy.calm();
        tx.commit().await.unwrap();
        return false;
    };
    is(&error, ErrorKind::Unreachable);
    assert!(tx.unusable().is_some(), "{what}");
    is(&account(3).update(&mut tx, 1, [("balance", 7)]).await.unwrap_err(), ErrorKind::Unreachable);
    is(&tx.commit().await.unwrap_err(), ErrorKind::Unreachable);
    true
}
