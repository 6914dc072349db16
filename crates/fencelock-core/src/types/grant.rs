//! Facts that engines report. Core alone turns them into a validity.
use super::{Busy, Claim, HoldId, Holder, Name};
use crate::clock::Moment;
use std::{fmt, sync::Arc, time::Duration};

/// The fencing token of an exclusive grant: positive, and strictly greater than that of every earlier grant of the name.
///
/// Write it with the data and refuse smaller ones: `UPDATE … SET …, fence = $1 WHERE … AND fence <= $1`, and check that a row
/// was changed.
///
/// ```
/// use fencelock_core::Token;
/// assert_eq!(Token::new(7).map(Token::get), Some(7));
/// assert_eq!(Token::new(0), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(i64);
impl Token {
    /// A token of this number; `None` unless it is positive.
    pub const fn new(number: i64) -> Option<Self> {
        if number > 0 { Some(Self(number)) } else { None }
    }
    /// The number: what every SQL driver takes.
    pub const fn get(self) -> i64 {
        self.0
    }
}
impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A granted claim, as the engine tells it.
#[derive(Clone, Debug)]
pub struct Grant {
    /// What is locked.
    pub name: Name,
    /// How.
    pub claim: Claim,
    /// By which attempt.
    pub hold: HoldId,
    /// Its token: for exclusive claims it orders writes, for the others it only tells grants apart.
    pub token: Token,
    /// How long it is good without a renewal.
    pub ttl: Duration,
    /// From when `ttl` counts.
    pub lease: Lease,
    /// The server's wall clock in µs at the grant; 0 where the engine does not tell. For the floor of tokens (SAFETY T1).
    pub server_micros: i64,
    /// The engine's own name of the record (key, znode, row), for peers and people.
    pub place: Option<Arc<str>>,
}

/// From which moment the time to live counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// It ends by itself: core renews it, unless its request was for a fixed lease.
    Own {
        /// Read before the winning message left this process.
        sent_at: Moment,
    },
    /// It lives with its session: the ttl counts from the last reported [`Event::SessionAlive`]. The engine gives no time
    /// here, so it cannot give a wrong one (SAFETY G1).
    Session(SessionId),
}

/// A session of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u64);

/// What became of an attempt.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// It holds.
    Granted(Grant),
    /// For a request that does not wait: nothing is held and nothing is queued. After a stop nothing is promised, core withdraws.
    Busy(Busy),
    /// Its place in the queue is gone with a session or with the server's memory: core tries again under a fresh hold id, at
    /// the back of the queue (SAFETY E8, H5).
    Displaced,
}

/// What became of several attempts that were asked for in one step.
#[derive(Clone, Debug)]
pub enum Together {
    /// All hold, in the order of their requests.
    Granted(Vec<Grant>),
    /// Somebody is in the way of the n-th. Nothing is held.
    Busy(usize, Busy),
    /// This engine cannot, or not these. Nothing is held: one after the other.
    Apart,
}

/// Answer to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// Its full ttl counts again.
    Extended {
        /// Read before the renewal left this process.
        sent_at: Moment,
    },
    /// It is gone.
    Lost(LossReason),
    /// Nobody knows: it is asked again until the hold's validity ends.
    Unknown,
}

/// Answer to a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Released {
    /// It was held and is free.
    Released,
    /// That hold was not there.
    NotHeld {
        /// Who has the lock now.
        holder: Option<Holder>,
    },
}

/// Why a hold is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// Its lease ran out without a renewal.
    Expired,
    /// It was held for as long as it was allowed to be.
    MaxHold,
    /// The engine ended the session that it lived in.
    SessionEnded,
    /// Somebody took it away: a forced release, a deleted record, a takeover.
    TakenOver,
    /// The engine could not be reached until the lease ran out.
    Unreachable,
}
impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its lease ran out",
            Self::MaxHold => "it was held for as long as it may be",
            Self::SessionEnded => "its session ended",
            Self::TakenOver => "it was taken away",
            Self::Unreachable => "the engine could not be reached until its lease ran out",
        })
    }
}

/// What an engine's `run` reports.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// One hold of ours is gone: force-released, deleted, evicted.
    Lost {
        /// Which.
        hold: HoldId,
        /// Why.
        reason: LossReason,
    },
    /// Something happened that may have cost holds (failover, reconnect, restart): renew everything now.
    Recheck,
    /// The session's heartbeat was answered: every ttl of its holds counts from `sent_at`.
    SessionAlive {
        /// Which.
        session: SessionId,
        /// Read before the heartbeat left this process.
        sent_at: Moment,
    },
    /// The session is over, and every hold of it.
    SessionEnded {
        /// Which.
        session: SessionId,
    },
}
