//! What all handles have in common.
use super::Owner;
use crate::{
    attempt::Acquire,
    claimed::Claimed,
    client::Core,
    error::{Error, ErrorKind, Result},
    types::{Claim, Name, Request, Wish},
};
use std::{sync::Arc, time::Duration};

#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) core: Arc<Core>,
    /// What is no name is kept as it was given: the first await says what is wrong with it.
    name: Result<Name, String>,
    pub(crate) ttl: Duration,
    /// The ttl was given with `ttl`, or with `lease`.
    said: Option<bool>,
    twice: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) at_least: Duration,
    pub(crate) note: Arc<str>,
    pub(crate) owner: Option<Owner>,
}
impl Options {
    pub(crate) fn new(core: Arc<Core>, name: &str) -> Self {
        let ttl = core.engine().info().default_ttl;
        let name = Name::new(name).map_err(|_| name.to_owned());
        let (max_hold, at_least, note) = (None, Duration::ZERO, "".into());
        Self { core, name, ttl, said: None, twice: false, max_hold, at_least, note, owner: None }
    }
    pub(crate) fn lasts(&mut self, ttl: Duration, fixed: bool) {
        self.twice |= self.said.is_some_and(|before| before != fixed);
        (self.ttl, self.said) = (ttl, Some(fixed));
    }
    pub(crate) fn name(&self) -> Result<Name> {
        self.name.clone().or_else(Name::new)
    }
    pub(crate) fn request(&self, claim: Claim, wait: bool) -> Result<Request> {
        let name = self.name()?;
        if self.twice {
            let both = Error::new(ErrorKind::InvalidConfig, "lock", "it has a ttl and a fixed lease");
            return Err(both.with("name", &name).hint(".ttl(d) is renewed, .lease(d) is not: give one of them"));
        }
        let floor = self.core.floors.of(&name);
        let Self { ttl, max_hold, at_least, .. } = *self;
        let (fixed, note) = (self.said == Some(true), self.note.clone());
        let wish = Wish { name, claim, ttl, fixed, max_hold, at_least, wait, note };
        Ok(Request::new(wish, self.core.minter.mint(), floor))
    }
    /// Waits until it is granted.
    pub(crate) fn wait<A: Claimed>(&self, claim: Claim) -> Acquire<A> {
        Acquire::new(self.core.clone(), self.request(claim, true), None, self.owner.clone())
    }
    /// Waits for at most `patience`; not at all without.
    pub(crate) fn attempt<A: Claimed>(&self, claim: Claim, patience: Option<Duration>) -> Acquire<A> {
        let request = self.request(claim, patience.is_some());
        Acquire::new(self.core.clone(), request, patience, self.owner.clone())
    }
}

/// The options that every handle has, in the same words.
macro_rules! options {
    () => {
        /// How long a hold is good without a renewal; it is renewed for as long as the guard lives. Short: a hung holder is
        /// replaced sooner. Long: longer pauses are survived.
        #[must_use]
        pub fn ttl(mut self, ttl: std::time::Duration) -> Self {
            self.0.lasts(ttl, false);
            self
        }
        /// A lease of a fixed length: it is never renewed, and lost after `d` unless it is
        /// [extended](crate::Held::extend). For work whose length is known, and that nobody may drag out.
        #[must_use]
        pub fn lease(mut self, d: std::time::Duration) -> Self {
            self.0.lasts(d, true);
            self
        }
        /// The longest time it may be held. After it the loss is told and renewals stop; the lock is free when the guard is
        /// dropped, or when its lease has run out: never while the hung holder may still write (SAFETY G5).
        #[must_use]
        pub fn max_hold(mut self, d: std::time::Duration) -> Self {
            self.0.max_hold = Some(d);
            self
        }
        /// It stays taken for so long after the grant, also when it is released before: so that a job of one second does not
        /// run twice on hosts whose clocks differ by two. No longer than its ttl: when the process ends, the lease runs out
        /// by itself instead of being released.
        #[must_use]
        pub fn at_least(mut self, d: std::time::Duration) -> Self {
            self.0.at_least = d;
            self
        }
    };
    (note) => {
        /// What those who wait, and operators, read about this holder. No secrets.
        #[must_use]
        pub fn note(mut self, note: impl Into<std::sync::Arc<str>>) -> Self {
            self.0.note = note.into();
            self
        }
    };
    (owner) => {
        /// Holds of this owner enter each other: no round trip, the same token, counted; the lock is free when the last of
        /// them is gone (SAFETY A4). Others queue as ever. The hold keeps the ttl and the other options of the first.
        #[must_use]
        pub fn reentrant(mut self, owner: &crate::locks::Owner) -> Self {
            self.0.owner = Some(owner.clone());
            self
        }
    };
}
pub(crate) use options;
