//! A case: what is shown of every engine that it applies to.
use crate::{catalogue::known, context::Context, fixture::Fixture, peer::RoleContext};
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
    pub(crate) fn missing(&self, can: &Capabilities, fixture: &dyn Fixture, cut: bool) -> Option<&'static str> {
        self.needs.iter().find_map(|need| need.missing(can, fixture, cut))
    }
}
impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Case({} = {})", self.id, self.function())
    }
}

/// What a case needs that not every engine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Need {
    /// Values with a version.
    Cells,
    /// A client can die without a word: a process that is killed, or a client that is cut off for good.
    Crash,
    /// One client can be cut off, and come back.
    Cut,
    /// A writer becomes a reader.
    Downgrade,
    /// Leases that are never renewed.
    FixedLeases,
    /// Semaphores.
    Permits,
    /// The store is reached by several processes.
    Processes,
    /// Read-write locks.
    ReadWrite,
    /// A server that can be stopped. The trial has a store of its own.
    Server,
    /// Sessions that can be ended from outside. The trial has a store of its own.
    Sessions,
    /// Holds that are handed to another process.
    Tickets,
    /// Each hold has a ttl of its own.
    TtlPerHold,
}
impl Need {
    fn missing(self, can: &Capabilities, fixture: &dyn Fixture, cut: bool) -> Option<&'static str> {
        let processes = fixture.address().is_some();
        let (has, why) = match self {
            Self::Cells => (can.cells, "no cells"),
            Self::Crash => (processes || cut, "its clients can be neither killed nor cut off"),
            Self::Cut => (cut, "its clients cannot be cut off"),
            Self::Downgrade => (can.downgrade, "no downgrade"),
            Self::FixedLeases => (can.fixed_leases, "no fixed leases: holds live with a session"),
            Self::Permits => (can.permits, "no permits"),
            Self::Processes => (processes, "its store lives in one process"),
            Self::ReadWrite => (can.read_write, "no read-write locks"),
            Self::Server => (fixture.server().is_some(), "no server"),
            Self::Sessions => (fixture.sessions().is_some(), "its sessions cannot be ended from outside"),
            Self::Tickets => (can.tickets, "no tickets: SAFETY A5"),
            Self::TtlPerHold => (can.ttl_per_hold, "one ttl for all holds of a session"),
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
