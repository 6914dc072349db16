//! What outlives its writer for a while and goes then: sizes of semaphores, and what is remembered of cells.
//!
//! It is bound to a lease that nobody keeps alive. All clients use the same one in the same hour, by its number, so there are never more
//! than a few; what is used is bound to the next one.
use crate::{
    claims::{KINDS, parse},
    error::Fault,
    link::Conn,
    shared::{Shared, lock},
    wire::{
        pb::{Compare, KeyValue, LeaseGrant, LeaseGranted},
        record::wall_micros,
        txn::{any_under, choose, created, get, modified, put},
    },
};
use fencelock_core::{Kind, Name};
use std::{
    hash::{BuildHasher, Hasher},
    time::Duration,
};
use tokio::time::sleep;

/// One lease serves so long, in µs.
const HOUR: u64 = 3_600_000_000;
/// And lasts so long, in seconds: what was put on it stays for an hour and a half at least.
const LASTS: i64 = 3 * 3_600;
/// One that ends sooner is not used.
const ENOUGH: Duration = Duration::from_secs(5_400);
/// The hour is in the number's last bits; the others say whose shelf it is.
const BITS: u32 = 24;

/// What became of a resize.
#[derive(Debug)]
pub(crate) enum Resized {
    Done,
    OtherKind(Kind),
    OtherSize(u32),
}
/// A lease that is known to be there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shelf {
    /// For whom the clock shows this hour.
    hour: i64,
    lease: i64,
}

impl Shared {
    fn shelf_now(&self) -> i64 {
        let mut whose = foldhash::fast::FixedState::default().build_hasher();
        whose.write(self.keys.all().as_bytes());
        let hour = (wall_micros() / HOUR) & ((1 << BITS) - 1);
        // Never negative, and never 0, which would ask the server for a number.
        let number = (whose.finish() >> 1 >> BITS << BITS | 1 << BITS) | hour;
        i64::try_from(number).unwrap_or(i64::MAX)
    }
    /// The lease of this hour.
    pub(crate) async fn shelf(&self, conn: &Conn) -> Result<i64, Fault> {
        let now = self.shelf_now();
        if let Some(Shelf { hour, lease }) = *lock(&self.shelf)
            && hour == now
        {
            return Ok(lease);
        }
        let mut lease = now;
        loop {
            let ask = LeaseGrant { ttl: LASTS, id: lease };
            let granted: Result<LeaseGranted, _> = self.link.call(conn, "/etcdserverpb.Lease/LeaseGrant", ask).await;
            match granted {
                Err(fault) if !fault.is_there_already() => return Err(fault),
                // By a clock that is behind it is an old one.
                Err(_) if self.left(conn, lease).await?.is_some_and(|left| left < ENOUGH) => lease += 1,
                _ => break,
            }
        }
        *lock(&self.shelf) = Some(Shelf { hour: now, lease });
        Ok(lease)
    }
    /// It was ended by somebody.
    pub(crate) fn shelf_is_gone(&self) {
        *lock(&self.shelf) = None;
    }
    /// The size is used: it stays. What cannot be written now is written by the next one.
    pub(crate) async fn keep_size(&self, conn: &Conn, name: &Name, size: &KeyValue) {
        let hour = |lease: i64| lease & ((1 << BITS) - 1);
        // One that is ahead of our clock does not last for longer, but for long enough perhaps: two clocks would go on for ever.
        match hour(size.lease) - hour(self.shelf_now()) {
            0 => return,
            1.. if self.left(conn, size.lease).await.ok().flatten().is_none_or(|left| left >= ENOUGH) => return,
            _ => {}
        }
        if let Ok(shelf) = self.shelf(conn).await {
            let key = self.keys.size(name);
            let same = put(&key, size.value.clone(), shelf);
            let kept = self.link.txn(conn, choose(vec![modified(&key, size.modified)], vec![same], Vec::new())).await;
            if kept.is_err_and(|fault| fault.is_no_lease()) {
                self.shelf_is_gone();
            }
        }
    }
    /// While a semaphore is held or waited for by us, its size is used, too. Never returns.
    pub(crate) async fn keep_sizes(&self) {
        loop {
            sleep(Duration::from_secs(1_200)).await;
            for name in self.semaphores() {
                let key = self.keys.size(&name);
                let Ok(conn) = self.link.here().await else { break };
                let look = choose(Vec::new(), vec![get(&key)], Vec::new());
                if let Ok(answer) = self.link.txn(&conn, look).await
                    && let Some(size) = answer.one(0).flatten()
                {
                    self.keep_size(&conn, &name, size).await;
                }
            }
        }
    }
    /// It was forgotten while the semaphore was in use.
    pub(crate) async fn store_size(&self, conn: &Conn, name: &Name, size: u32) -> Result<(), Fault> {
        self.put_size(conn, name, created(&self.keys.size(name), 0), size).await.map(drop)
    }
    async fn put_size(&self, conn: &Conn, name: &Name, same: Compare, size: u32) -> Result<bool, Fault> {
        let stored = put(&self.keys.size(name), size.to_string().into_bytes(), self.shelf(conn).await?);
        match self.link.txn(conn, choose(vec![same], vec![stored], Vec::new())).await {
            Err(fault) if fault.is_no_lease() => {
                self.shelf_is_gone();
                Ok(false)
            }
            answer => Ok(answer?.succeeded),
        }
    }
    /// *Invariant:* it is written only over what was read, so a copy that arrives late undoes no later one.
    pub(crate) async fn resize(&self, conn: &Conn, name: &Name, from: u32, to: u32) -> Result<Resized, Fault> {
        let key = self.keys.size(name);
        let others = KINDS.into_iter().filter(|kind| *kind != Kind::Semaphore);
        loop {
            let mut look = vec![get(&key)];
            look.extend(others.clone().map(|kind| any_under(&self.keys.room(kind, name))));
            let answer = self.link.txn(conn, choose(Vec::new(), look, Vec::new())).await?;
            let mut kinds = others.clone().enumerate();
            let other = kinds.find(|(n, _)| answer.ranged(1 + n).is_some_and(|there| !there.keys.is_empty()));
            if let Some((_, kind)) = other {
                return Ok(Resized::OtherKind(kind));
            }
            let same = match answer.one(0).ok_or(Fault::Answer)? {
                None => created(&key, 0),
                Some(size) => match parse(&size.value).ok_or(Fault::Answer)? {
                    now if now == to => return Ok(Resized::Done),
                    now if now != from => return Ok(Resized::OtherSize(now)),
                    _ => modified(&key, size.modified),
                },
            };
            if self.put_size(conn, name, same, to).await? {
                return Ok(Resized::Done);
            }
        }
    }
}
