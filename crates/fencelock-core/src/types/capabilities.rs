//! What an engine can do, as plain data, computed at connect and checked before any byte is sent.
use super::EngineId;
use std::{sync::Arc, time::Duration};

/// How far a token can be trusted to rise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fencing {
    /// Over everything but what SAFETY T1 names: lost data and a clock far behind.
    BestEffort,
    /// Over crashes of the host too.
    Durable,
    /// As [`BestEffort`](Self::BestEffort), and among our clients alone: others hold the same lock, and write without a token.
    OursOnly,
}
/// In which order waiters get in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ordering {
    /// None: whoever asks when it is free.
    Any,
    /// First come, first served, across processes.
    Fifo,
}
/// How a waiter hears that its turn has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Waiting {
    /// The engine wakes it.
    Push,
    /// It looks now and then: oftener the nearer its turn is.
    Poll,
}
/// When a holder hears that its lock was taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TakenAway {
    /// With its next renewal.
    AtRenewal,
    /// At once.
    Pushed,
}
/// What an engine may have none of ([`Engine::why_not`](crate::Engine::why_not)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Missing {
    /// Cells.
    Cells,
    /// A writer that becomes a reader with nobody in between.
    Downgrade,
    /// Semaphores.
    Permits,
    /// Read-write locks.
    ReadWrite,
    /// Holds that are handed to another process.
    Tickets,
}

/// What an engine can do.
#[derive(Clone, Debug, PartialEq)]
pub struct Capabilities {
    /// Read-write locks.
    pub read_write: bool,
    /// A writer's hold can become a reader's with nobody in between.
    pub downgrade: bool,
    /// Semaphores.
    pub permits: bool,
    /// Cells: [`Engine::cells`](crate::Engine::cells) is there.
    pub cells: bool,
    /// Leases that are never renewed.
    pub fixed_leases: bool,
    /// A hold can be handed to another process (SAFETY A5).
    pub tickets: bool,
    /// Tokens.
    pub fencing: Fencing,
    /// Queue.
    pub ordering: Ordering,
    /// Wake-up of waiters.
    pub waiting: Waiting,
    /// Word of a forced release.
    pub taken_away: TakenAway,
    /// Every hold may have a ttl of its own; else it is the session's, which is `max_ttl` and `min_ttl` at once.
    pub ttl_per_hold: bool,
    /// The most holds of one `renew` call.
    pub renew_batch: usize,
    /// The shortest time to live.
    pub min_ttl: Duration,
    /// The longest.
    pub max_ttl: Duration,
    /// By how much the engine's clock may run faster than ours: this part of a ttl is not trusted (SAFETY G3).
    pub drift: f64,
}

/// An engine that is connected.
#[derive(Clone, Debug)]
pub struct EngineInfo {
    /// Which store this is, whatever URL led to it: minted in the store when it was made.
    pub id: EngineId,
    /// The part of it whose names are its own: one name in two of them is two locks.
    pub namespace: Arc<str>,
    /// `sqlite`, `memory`, …
    pub scheme: &'static str,
    /// Where, for people; without secrets.
    pub endpoint: Arc<str>,
    /// The URL that leads here again; `None` when it would show a secret.
    pub url: Option<Arc<str>>,
    /// How records are written.
    pub layout: &'static str,
    /// What it can do.
    pub capabilities: Capabilities,
    /// The ttl of holds that do not say their own.
    pub default_ttl: Duration,
}
