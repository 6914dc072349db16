//! A case: what is shown of every engine that it applies to.
use crate::{Family, catalogue::known, context::Context, fixture::Fixture, peer::RoleContext};
use fencelock_core::Capabilities;
use std::{fmt, future::Future, pin::Pin, time::Duration};

pub(crate) type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A case: one line of `cases.txt`, and the code that shows it.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its `source/id`.
    pub id: &'static str,
    pub(crate) path: &'static str,
    /// What an engine must have for it.
    pub needs: &'static [Need],
    /// After this time it is stuck.
    pub limit: Duration,
    pub(crate) run: fn(Context) -> Running,
}
impl Case {
    /// `module::function`, below `src/cases`.
    pub fn function(&self) -> &'static str {
        self.path.split_once("cases::").map_or(self.path, |(_, function)| function)
    }
    /// Where it applies, as `cases.txt` says.
    pub fn scope(&self) -> Option<&'static str> {
        known(self.id).map(|known| known.scope)
    }
    /// Why it cannot be shown on this engine.
    pub(crate) fn missing(&self, ground: &Ground<'_>) -> Option<&'static str> {
        self.needs.iter().find_map(|need| need.missing(ground))
    }
    /// Whoever stops a server, ends its sessions, or does something else that others would notice, has a store of his own.
    pub(crate) fn own_store(&self, cut: bool) -> bool {
        self.needs.iter().any(|need| match need {
            Need::Deletions | Need::Records | Need::Server | Need::Sessions | Need::Store | Need::WakeUps => true,
            Need::Silence => !cut,
            _ => false,
        })
    }
    /// Whether it measures times when it runs in full.
    pub(crate) fn measures(&self) -> bool {
        self.needs.contains(&Need::Alone)
    }
}
impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Case({} = {})", self.id, self.function())
    }
}

/// What a family has, as far as cases need it.
pub(crate) struct Ground<'a> {
    pub(crate) family: &'a dyn Family,
    pub(crate) can: &'a Capabilities,
    pub(crate) fixture: &'a dyn Fixture,
    pub(crate) cut: bool,
    pub(crate) sessions: bool,
}

/// What a case needs that not every engine has; or how it wants to be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Need {
    /// Nothing else runs beside it in full, where it judges times: [`Context::in_time`].
    Alone,
    /// Values with a version.
    Cells,
    /// Clients whose clock is not the store's.
    Clocks,
    /// A client can die without a word: a process that is killed, or a client that is cut off for good.
    Crash,
    /// One client can be cut off, and come back.
    Cut,
    /// Records of holds that can be deleted from outside. The trial has a store of its own.
    Deletions,
    /// A writer becomes a reader.
    Downgrade,
    /// Leases that are never renewed.
    FixedLeases,
    /// How long a lease has left is told by the store.
    Left,
    /// Notes of any length.
    LongNotes,
    /// As many permits at once as a number can say.
    ManyPermits,
    /// Several applications in one store.
    Namespaces,
    /// Clients can be made while there is no server.
    NoServer,
    /// Leases of their own, which core renews one by one.
    OwnLeases,
    /// Names that differ are of locks that differ.
    OddNames,
    /// Semaphores.
    Permits,
    /// The store is reached by several processes.
    Processes,
    /// Read-write locks.
    ReadWrite,
    /// Records of names that nobody uses, which go after a time. The trial has a store of its own.
    Records,
    /// A server that can be stopped. The trial has a store of its own.
    Server,
    /// Sessions that can be ended from outside. The trial has a store of its own.
    Sessions,
    /// The engine can fall silent: for one client, which is cut off, or for all at once. In the latter case the trial has a
    /// store of its own.
    Silence,
    /// A store of its own.
    Store,
    /// Holds that are handed to another process.
    Tickets,
    /// Each hold has a ttl of its own.
    TtlPerHold,
    /// Whoever waits is told by the store.
    Waiters,
    /// Wake-ups that can be lost. The trial has a store of its own.
    WakeUps,
    /// Readers do not pass a writer who waits.
    WritersTurn,
}
impl Need {
    fn missing(self, ground: &Ground<'_>) -> Option<&'static str> {
        let Ground { family, can, fixture, cut, sessions } = *ground;
        let processes = fixture.address().is_some();
        let (has, why) = match self {
            Self::Alone | Self::Store => (true, ""),
            Self::Cells => (can.cells, "no cells"),
            Self::Clocks => (fixture.clocks().is_some(), "its clients have no other clock than its store"),
            Self::Crash => (processes || cut, "its clients can be neither killed nor cut off"),
            Self::Cut => (cut, "its clients cannot be cut off"),
            Self::Deletions => (fixture.deletions().is_some(), "its records cannot be deleted from outside"),
            Self::Downgrade => (can.downgrade, "no downgrade"),
            Self::FixedLeases => (can.fixed_leases, "no fixed leases: holds live with a session"),
            Self::Left => (
                family.tells_what_is_left(),
                "nobody can ask how long another's session has left: a_term_outlives_a_cut_and_not_its_session of its own tests",
            ),
            Self::LongNotes => (family.keeps_long_notes(), "a long note is not kept: others read the value, too"),
            Self::ManyPermits => (family.takes_any_number(), "each permit is a record of its own"),
            Self::Namespaces => (fixture.namespaces().is_some(), "no namespaces"),
            Self::NoServer => {
                let needed = fixture.server().is_some_and(|server| server.is_asked_first());
                (!needed, "it asks its server first: no client can be made while there is none")
            }
            Self::OwnLeases => (!sessions, "core renews no hold: they live with a session"),
            Self::OddNames => {
                (family.compares_bytes(), "its column compares names as it likes: columns_of_others of its own tests")
            }
            Self::Permits => (can.permits, "no permits"),
            Self::Processes => (processes, "its store lives in one process"),
            Self::ReadWrite => (can.read_write, "no read-write locks"),
            Self::Records => (fixture.records().is_some(), "its unused records cannot be aged from outside"),
            Self::Server => (fixture.server().is_some(), "no server"),
            Self::Sessions => (fixture.sessions().is_some(), "its sessions cannot be ended from outside"),
            Self::Silence => (cut || fixture.server().is_some(), "it cannot be made silent"),
            Self::Tickets => (can.tickets, "no tickets: SAFETY A5"),
            Self::TtlPerHold => (can.ttl_per_hold, "one ttl for all holds of a session"),
            Self::Waiters => (family.tells_who_waits(), "it does not tell who waits"),
            Self::WakeUps => (
                fixture.wake_ups().is_some(),
                "its wake-ups are not lost but with a connection, if at all: the engine's own tests cut those",
            ),
            Self::WritersTurn => (family.gives_writers_a_turn(), "its readers pass writers who wait"),
        };
        (!has).then_some(why)
    }
}

/// What a peer does: a process of its own where the engine has them, else a client of its own in this one.
#[derive(Clone, Copy)]
pub struct Role {
    /// How cases call it.
    pub name: &'static str,
    pub(crate) run: fn(RoleContext) -> Running,
}
impl fmt::Debug for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Role({})", self.name)
    }
}

/// All cases of this crate.
pub fn all_cases() -> impl Iterator<Item = &'static Case> {
    crate::cases::CASES.iter().flat_map(|file| file.iter())
}
pub(crate) fn role(name: &str) -> Option<&'static Role> {
    crate::cases::ROLES.iter().flat_map(|file| file.iter()).find(|role| role.name == name)
}

/// The cases of a file, a line each; it makes the constant `CASES`.
///
/// `"source/id" => function, needs: [Permits], limit: 60;` where `needs` and `limit` (seconds) may be left out.
macro_rules! cases {
    ($($id:literal => $function:ident $(, needs: [$($need:ident),* $(,)?])? $(, limit: $limit:literal)?;)*) => {
        pub(crate) const CASES: &[$crate::case::Case] = &[$(
            $crate::case::Case {
                id: $id,
                path: concat!(module_path!(), "::", stringify!($function)),
                needs: &[$($($crate::case::Need::$need),*)?],
                limit: $crate::case::limit(&[$($limit)?]),
                run: |context| Box::pin($function(context)),
            },
        )*];
    };
}
/// The roles of a file, a line each; it makes the constant `ROLES`.
macro_rules! roles {
    ($($name:literal => $function:ident;)*) => {
        pub(crate) const ROLES: &[$crate::case::Role] = &[$(
            $crate::case::Role { name: $name, run: |context| Box::pin($function(context)) },
        )*];
    };
}
pub(crate) use {cases, roles};

/// The limit that was given, or 30 s.
pub(crate) const fn limit(given: &[u64]) -> Duration {
    Duration::from_secs(if given.is_empty() { 30 } else { given[0] })
}
