//! Values with a version, in memory.
use super::server::State;
use crate::{
    clock::Moment,
    mutants::{Mutant, lives},
    types::{Conflict, HoldId, Kind, Name, Version, Versioned},
};
use std::{collections::VecDeque, sync::Arc, time::Duration};

/// How long a write is remembered for its repeats (SAFETY A6).
const REMEMBERED: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    pub(super) value: Option<Arc<[u8]>>,
    version: i64,
    writes: VecDeque<(Moment, HoldId, i64)>,
}
impl Cell {
    fn versioned(&self) -> Versioned {
        Versioned { version: Version::new(self.version), value: self.value.clone() }
    }
}

impl State {
    pub(super) fn load(&mut self, name: &Name, now: Moment) -> Result<Versioned, Kind> {
        if !self.records.contains_key(name) {
            return Ok(Versioned::default());
        }
        let (record, _) = self.settled(name, now);
        match record.kind {
            Some(kind) if kind != Kind::Cell => Err(kind),
            _ => Ok(record.cell.versioned()),
        }
    }
    pub(super) fn swap(
        &mut self,
        name: &Name,
        expected: Version,
        value: Option<Arc<[u8]>>,
        nonce: HoldId,
        now: Moment,
    ) -> Result<Result<Version, Conflict>, Kind> {
        let clock = self.wall_micros(now);
        // Asked first: what a repeat is told does not depend on what the name has become since.
        let (record, _) = self.settled(name, now);
        let cell = &mut record.cell;
        while cell.writes.front().is_some_and(|(at, ..)| *at + REMEMBERED <= now) {
            cell.writes.pop_front();
        }
        let known = cell.writes.iter().find(|(_, write, _)| *write == nonce && !lives(Mutant::NonceIgnored));
        if let Some((.., version)) = known {
            return Ok(Ok(Version::new(*version)));
        }
        if let Some(kind) = record.kind.filter(|kind| *kind != Kind::Cell) {
            return Err(kind);
        }
        let cell = &mut record.cell;
        if cell.version != expected.get() {
            return Ok(Err(Conflict { now: cell.versioned() }));
        }
        record.fence = (record.fence + 1).max(clock);
        (cell.version, cell.value) = (record.fence, value);
        cell.writes.push_back((now, nonce, cell.version));
        record.kind = cell.value.is_some().then_some(Kind::Cell);
        Ok(Ok(Version::new(cell.version)))
    }
}
