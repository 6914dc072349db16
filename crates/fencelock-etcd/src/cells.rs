//! Values with a version: the revision at which they were written, which rises over everything.
use crate::{
    claims::KINDS,
    error::Fault,
    link::Conn,
    shared::Shared,
    wire::{
        pb::{KeyValue, TxnDone},
        txn::{any_under, choose, created, delete, get, modified, nested, none_under, put},
    },
};
use fencelock_core::{Conflict, HoldId, Kind, Name, Version, Versioned};

fn kinds() -> impl Iterator<Item = Kind> + Clone {
    KINDS.into_iter().filter(|kind| *kind != Kind::Cell)
}
/// What lies there, of the value and of its removal.
fn versioned(value: Option<&KeyValue>, removed: Option<&KeyValue>) -> Versioned {
    match (value, removed) {
        (Some(key), _) => Versioned { version: Version::new(key.modified), value: Some(key.value.as_slice().into()) },
        (None, Some(key)) => Versioned { version: Version::new(key.modified), value: None },
        (None, None) => Versioned::default(),
    }
}
/// The kind of a lock that has this name, read by the steps from `n` on.
fn other(answer: &TxnDone, n: usize) -> Option<Kind> {
    let taken = |(i, kind)| answer.ranged(n + i).is_some_and(|there| !there.keys.is_empty()).then_some(kind);
    kinds().enumerate().find_map(taken)
}

impl Shared {
    pub(crate) async fn load(&self, conn: &Conn, name: &Name) -> Result<Result<Versioned, Kind>, Fault> {
        let mut look = vec![get(self.keys.value(name)), get(self.keys.removed(name))];
        look.extend(kinds().map(|kind| any_under(&self.keys.room(kind, name))));
        let answer = self.link.txn(conn, choose(Vec::new(), look, Vec::new())).await?;
        if let Some(kind) = other(&answer, 2) {
            return Ok(Err(kind));
        }
        let (value, removed) = (answer.one(0).ok_or(Fault::Answer)?, answer.one(1).ok_or(Fault::Answer)?);
        Ok(Ok(versioned(value, removed)))
    }
    /// One call. *Invariant (SAFETY A6):* with a write goes a key of its nonce, which outlives it by two hours: a repeat finds it and
    /// answers its revision.
    pub(crate) async fn swap(
        &self,
        conn: &Conn,
        name: &Name,
        expected: Version,
        value: Option<&[u8]>,
        nonce: HoldId,
    ) -> Result<Result<Result<Version, Conflict>, Kind>, Fault> {
        let (key, gone, written) = (self.keys.value(name), self.keys.removed(name), self.keys.written(nonce));
        loop {
            let shelf = self.shelf(conn).await?;
            let write = || {
                let (to, no) = match value {
                    Some(value) => (put(&key, value.to_vec(), 0), delete(&gone)),
                    None => (put(&gone, Vec::new(), shelf), delete(&key)),
                };
                vec![to, no, put(&written, Vec::new(), shelf)]
            };
            let look = || vec![get(&key), get(&gone)];
            let swap = match expected.get() {
                0 => choose(vec![created(&key, 0), created(&gone, 0)], write(), look()),
                version => {
                    let removed = choose(vec![created(&key, 0), modified(&gone, version)], write(), look());
                    choose(vec![modified(&key, version)], write(), vec![nested(removed)])
                }
            };
            let mut asks = vec![created(&written, 0)];
            asks.extend(kinds().map(|kind| none_under(&self.keys.room(kind, name))));
            let mut or_else = vec![get(&written)];
            or_else.extend(kinds().map(|kind| any_under(&self.keys.room(kind, name))));
            let answer = match self.link.txn(conn, choose(asks, vec![nested(swap)], or_else)).await {
                Err(fault) if fault.is_no_lease() => {
                    self.shelf_is_gone();
                    continue;
                }
                answer => answer?,
            };
            if !answer.succeeded {
                if let Some(known) = answer.one(0).ok_or(Fault::Answer)? {
                    return Ok(Ok(Ok(Version::new(known.created))));
                }
                return other(&answer, 1).map(Err).ok_or(Fault::Answer);
            }
            let mut done = answer.inner(0).ok_or(Fault::Answer)?;
            while !done.succeeded {
                match done.inner(0) {
                    Some(below) => done = below,
                    None => {
                        let (value, removed) = (done.one(0).ok_or(Fault::Answer)?, done.one(1).ok_or(Fault::Answer)?);
                        return Ok(Ok(Err(Conflict { now: versioned(value, removed) })));
                    }
                }
            }
            return Ok(Ok(Ok(Version::new(answer.revision()))));
        }
    }
}
