//! Faults that the simulator and the suite have to catch: each is a rule of SAFETY left out at one place, chosen at run time in
//! one build. Without the feature `mutants` none of them is compiled in.
#[cfg(feature = "mutants")]
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

macro_rules! mutants {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// A rule left out.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Mutant { $($(#[$doc])* $name),* }
        impl Mutant {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];
        }
    };
}
mutants! {
    /// `at_least` delays nothing.
    AtLeastIgnored,
    /// A semaphore's stored size is overwritten by the next request (K4).
    CapacityOverwritten,
    /// A release ends whatever hold there is (A1).
    DeleteWithoutCompare,
    /// A downgrade gives the lock away and goes on reading.
    DowngradeByRelease,
    /// The drift of two clocks is trusted away (G3).
    DriftIgnored,
    /// A fixed lease is renewed.
    FixedIsRenewed,
    /// A heartbeat that finds no place makes one (A2).
    HeartbeatThatCreates,
    /// A waiter looks more seldom than a grant waits for its confirm (H2).
    HeartbeatTooSeldom,
    /// A renewal that comes after the loss revives the hold (G4).
    LateRenewalRevives,
    /// The loss is told when the lease is over, and not before (G3).
    LossToldLate,
    /// After a loss by the clock nothing is released (G4).
    NoReleaseAfterLapse,
    /// A waiter is neither woken nor looks by itself.
    NoWakeUp,
    /// A repeated write of a cell is another write (A6).
    NonceIgnored,
    /// One permit more than there are.
    PermitsOffByOne,
    /// Readers do not queue behind a writer.
    ReaderOvertakes,
    /// An owner enters a hold again that is lost (A4).
    ReentersLost,
    /// Tokens jump by a constant when data is lost (T1).
    RelativeTokenJump,
    /// A release ends any hold of the same client, without its id and token (A1).
    ReleaseByOwner,
    /// A renewal extends whatever hold there is (A1).
    RenewWithoutCompare,
    /// A repeated acquire finds its grant, and does not start its lease anew (G1).
    ReplayWithoutRebase,
    /// A session's grant counts from its own reply, and not from the last heartbeat (G1).
    SessionFromAcquire,
    /// A command is sent after the stop (A3).
    StopNotOrdered,
    /// A ticket is adopted without a look whether it is still there (A5).
    TicketTwice,
    /// A token is made by the client, outside the granting step (T1).
    TokenOutsideTheStep,
    /// The ttl counts from the reply (G1).
    TtlFromReply,
    /// A withdrawal is sent once, and not again after the attempt's end (A3).
    UndoBeforeAttempt,
}

#[cfg(feature = "mutants")]
static CHOSEN: AtomicU8 = AtomicU8::new(u8::MAX);

/// From now on this one is alive, in all clients of the process; `None`: none is.
#[cfg(feature = "mutants")]
pub fn choose(mutant: Option<Mutant>) {
    CHOSEN.store(mutant.map_or(u8::MAX, |mutant| mutant as u8), Relaxed);
}
#[cfg(feature = "mutants")]
pub(crate) fn lives(mutant: Mutant) -> bool {
    CHOSEN.load(Relaxed) == mutant as u8
}
#[cfg(not(feature = "mutants"))]
pub(crate) const fn lives(_: Mutant) -> bool {
    false
}
