//! What can be asked about a lock.
use super::{Claim, HoldId, Kind, Name, Token, claim::Human};
use std::{fmt, sync::Arc, time::Duration};

/// Who is in the way of a lock that was not got. It prints itself for people, and `?` makes an error of it.
///
/// ```
/// use fencelock_core::{Busy, Error, ErrorKind};
/// let error = Error::from(Busy::new(None, Some(2)));
/// assert_eq!(error.kind(), ErrorKind::Busy);
/// assert!(error.to_string().ends_with("2 ahead of you"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Busy {
    /// Which lock. Core says it, engines need not.
    pub name: Option<Name>,
    /// The holder, where the engine told.
    pub holder: Option<Box<Holder>>,
    /// How many wait before us, where the engine told.
    pub ahead: Option<u32>,
    /// On which of its nodes somebody else has it, of a quorum.
    pub nodes: Vec<Arc<str>>,
    /// It is what was known before an outage: the engine does not answer now, and it is waited over that (SAFETY E8).
    pub stale: bool,
}
impl Busy {
    /// What an engine knows.
    pub fn new(holder: Option<Holder>, ahead: Option<u32>) -> Self {
        Self { holder: holder.map(Box::new), ahead, ..Self::default() }
    }
    /// As it is told of the whole quorum, by one of its nodes, to whom this is: what he has got there himself, and is giving back, is
    /// nobody's who is in his way.
    pub(crate) fn in_whole(mut self, to: HoldId) -> Self {
        self.holder = self.holder.filter(|holder| holder.hold.whole() != to.whole());
        if let Some(holder) = &mut self.holder {
            holder.hold = holder.hold.whole();
        }
        self
    }
    #[must_use]
    pub(crate) fn of(mut self, name: &Name) -> Self {
        self.name = Some(name.clone());
        self
    }
}
impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.holder {
            Some(h) => write!(
                f,
                "held {} by {} pid {} {:?} (token {}, lease {} left)",
                Human(h.held_for),
                h.host,
                h.pid,
                h.note,
                h.token,
                Human(h.left)
            )?,
            None => f.write_str("somebody else is next")?,
        }
        if let Some(n) = self.ahead.filter(|n| *n > 0) {
            write!(f, ", {n} ahead of you")?;
        }
        for (n, node) in self.nodes.iter().enumerate() {
            write!(f, "{}{node}", if n == 0 { ", on " } else { ", " })?;
        }
        f.write_str(if self.stale { ", and the engine does not answer now" } else { "" })
    }
}
impl std::error::Error for Busy {}

/// Somebody who holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Which attempt.
    pub hold: HoldId,
    /// How.
    pub claim: Claim,
    /// Its fencing token.
    pub token: Token,
    /// On which host. Text of another machine: strip control characters before a terminal sees it.
    pub host: Arc<str>,
    /// By which process.
    pub pid: u32,
    /// What it says of itself. Text of another machine, too.
    pub note: Arc<str>,
    /// For how long.
    pub held_for: Duration,
    /// How long its lease still runs without a renewal.
    pub left: Duration,
}

/// Somebody who waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// Which attempt.
    pub hold: HoldId,
    /// For what.
    pub claim: Claim,
    /// On which host.
    pub host: Arc<str>,
    /// Which process.
    pub pid: u32,
    /// What it says of itself.
    pub note: Arc<str>,
    /// For how long.
    pub waiting_for: Duration,
}

/// One lock, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Which.
    pub name: Name,
    /// Its kind, while somebody holds it or waits for it, or while a cell of this name has a value.
    pub kind: Option<Kind>,
    /// The size of a semaphore, where one is stored.
    pub capacity: Option<u32>,
    /// Those who hold it.
    pub holders: Vec<Holder>,
    /// Those who wait, first come first.
    pub waiters: Vec<Waiter>,
    /// The last token that was granted, where the record is still there.
    pub last_token: Option<Token>,
}
impl Status {
    /// Nobody holds it and nobody waits.
    pub fn free(name: Name) -> Self {
        Self { name, kind: None, capacity: None, holders: Vec::new(), waiters: Vec::new(), last_token: None }
    }
    /// Somebody holds it.
    pub fn is_held(&self) -> bool {
        !self.holders.is_empty()
    }
    /// The one who holds it alone, if that is so: its token is the newest there is.
    pub fn exclusive(&self) -> Option<&Holder> {
        self.holders.first().filter(|holder| holder.claim.is_exclusive())
    }
    /// The permits that are taken.
    pub fn taken(&self) -> u64 {
        self.holders.iter().map(|holder| u64::from(holder.claim.take())).sum()
    }
    /// The permits that are free, of a semaphore whose size is stored.
    pub fn free_permits(&self) -> Option<u64> {
        self.capacity.map(|size| u64::from(size).saturating_sub(self.taken()))
    }
}

/// Which part of a listing is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The cursor of the page before ([`Listing::next`]); `None` for the first one.
    pub after: Option<String>,
    /// At most so many locks.
    pub limit: usize,
}
impl Default for Page {
    fn default() -> Self {
        Self { after: None, limit: 256 }
    }
}

/// A page of locks that are held or waited for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Every live name appears at least once over all pages; order and repeats are the engine's.
    pub items: Vec<Status>,
    /// Cursor of the next page; `None` after the last one.
    pub next: Option<String>,
}
