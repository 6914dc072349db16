//! What happened, in order: the one source of the verdict, of the coverage and of what people read.
use crate::clock::{Nanos, Time};
use fencelock_core::{Claim, ErrorKind, HoldId, LossReason};
use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

/// The world itself, where an event has no client.
pub(crate) const WORLD: u8 = u8::MAX;

/// One call for a lock.
pub(crate) type Op = u32;
/// One guard, from the moment that it was in hand.
pub(crate) type Part = u32;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Event {
    pub(crate) at: Nanos,
    pub(crate) client: u8,
    pub(crate) what: What,
}
/// How a lock is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum How {
    Wait,
    Try,
    Timed,
    Adopt,
    /// By an owner that may have it already.
    Again,
    /// As part of several.
    Multi,
}
/// How a guard is let go of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Way {
    Drop,
    Release,
    Ticket,
    Downgrade,
}
/// What was asked for beside the claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Terms {
    pub(crate) ttl: Nanos,
    pub(crate) fixed: bool,
    pub(crate) at_least: Nanos,
    pub(crate) max_hold: Option<Nanos>,
    pub(crate) session: bool,
}
impl Terms {
    /// The longest that an extension asks for.
    pub(crate) fn longest(&self) -> Nanos {
        self.ttl * 3 / 2
    }
}
/// What a write of a cell was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Written {
    Won,
    Conflict {
        /// With this very write.
        own: bool,
    },
    Unknown,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    Pause,
    Cut,
    Deaf,
    Kill,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum What {
    Asked {
        op: Op,
        name: u8,
        claim: Claim,
        how: How,
    },
    Got {
        op: Op,
        part: Part,
        name: u8,
        claim: Claim,
        hold: HoldId,
        token: i64,
        valid: Nanos,
        terms: Terms,
    },
    Refused {
        op: Op,
    },
    Failed {
        op: Op,
        kind: ErrorKind,
    },
    /// `early`: with its first command on the way.
    Cancelled {
        op: Op,
        early: bool,
    },
    Leaves {
        part: Part,
        valid: Nanos,
        way: Way,
    },
    Left {
        part: Part,
        answer: Option<ErrorKind>,
    },
    /// `lost()` has resolved.
    Told {
        part: Part,
        reason: LossReason,
    },
    /// Who held it has heard of the loss, or seen it by the clock, and stops.
    Stops {
        part: Part,
        valid: Nanos,
    },
    /// The clock says that it is lost, and `lost()` says nothing.
    Untold {
        part: Part,
    },
    /// It was lost, and says that it is good again.
    Revived {
        part: Part,
    },
    /// Its guard is gone after the loss.
    Gone {
        part: Part,
    },
    Entries {
        part: Part,
        are: u32,
        should: u32,
    },
    Extended {
        part: Part,
        ok: bool,
    },
    Wrote {
        part: Part,
        accepted: bool,
    },
    /// A write of somebody who has not looked whether he still holds it.
    Blind {
        part: Part,
        accepted: bool,
    },
    CellWrote {
        name: u8,
        written: Written,
    },
    CellIs {
        name: u8,
        value: u64,
    },
    Observes {
        observer: u32,
        name: u8,
    },
    Saw {
        observer: u32,
        name: u8,
        term: i64,
    },
    Began {
        fault: Fault,
        who: u8,
    },
    Ended {
        fault: Fault,
        who: u8,
    },
    Forced {
        name: u8,
        hold: HoldId,
    },
    Wall {
        by: i64,
    },
    /// A semaphore of the wrong size was asked for; what came of it.
    WrongSize {
        name: u8,
        answer: Option<ErrorKind>,
    },
    Resized {
        name: u8,
        to: u32,
    },
    SessionsEnded,
    DataLost,
    Copied,
    FailedOver,
    /// Who holds in the store, and since when.
    Stands {
        name: u8,
        hold: HoldId,
        since: Nanos,
    },
    /// No trouble from here on.
    Calm,
    /// So many tasks have not ended by themselves.
    Stuck {
        tasks: u32,
    },
    Census {
        held: u32,
        queued: u32,
        clients: u32,
        after: Nanos,
    },
}

/// The log, and the numbers that name things in it.
#[derive(Debug)]
pub(crate) struct History {
    time: Time,
    events: Mutex<Vec<Event>>,
    next: AtomicU32,
}
impl History {
    pub(crate) fn new(time: Time) -> Self {
        Self { time, events: Mutex::new(Vec::with_capacity(2_048)), next: AtomicU32::new(0) }
    }
    pub(crate) fn now(&self) -> Nanos {
        self.time.now()
    }
    pub(crate) fn log(&self, client: u8, what: What) {
        let at = self.time.now();
        self.events().push(Event { at, client, what });
    }
    pub(crate) fn number(&self) -> u32 {
        self.next.fetch_add(1, Relaxed)
    }
    pub(crate) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.events())
    }
    fn events(&self) -> MutexGuard<'_, Vec<Event>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The same number for the same history, in this build.
pub(crate) fn fingerprint(events: &[Event]) -> u64 {
    struct Fold(u64);
    impl Hasher for Fold {
        fn finish(&self) -> u64 {
            self.0
        }
        fn write(&mut self, bytes: &[u8]) {
            for byte in bytes {
                self.write_u64(u64::from(*byte));
            }
        }
        fn write_u64(&mut self, word: u64) {
            self.0 = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
        fn write_u32(&mut self, word: u32) {
            self.write_u64(u64::from(word));
        }
        fn write_isize(&mut self, word: isize) {
            self.write_u64(word.cast_unsigned() as u64);
        }
    }
    let mut fold = Fold(0xcbf2_9ce4_8422_2325);
    events.hash(&mut fold);
    fold.finish()
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.at / 1_000_000_000;
        write!(f, "{seconds:>6}.{:06} ", self.at % 1_000_000_000 / 1_000)?;
        match self.client {
            WORLD => f.write_str("  world  ")?,
            client => write!(f, "  client {client} ")?,
        }
        write!(f, "{:?}", self.what)
    }
}
