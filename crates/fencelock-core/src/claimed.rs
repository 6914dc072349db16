//! What comes of an attempt, for its caller.
use crate::{
    attempt::{Answer, Try},
    error::Result,
    guard::{Guard, Held},
    shared_guard::SharedGuard,
};

/// What an [`Acquire`](crate::Acquire) resolves to: a guard, or a [`Try`] of one.
pub trait Claimed: sealed::Sealed + Sized {
    #[doc(hidden)]
    fn from_held(held: Result<Try<Held>>) -> Result<Self>;
}
pub(crate) mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Guard {}
    impl Sealed for super::SharedGuard {}
    impl Sealed for super::Held {}
    impl<G: Sealed> Sealed for super::Try<G> {}
}
impl Claimed for Guard {
    fn from_held(held: Answer) -> Result<Self> {
        Ok(Self::new(held??))
    }
}
impl Claimed for Try<Guard> {
    fn from_held(held: Answer) -> Result<Self> {
        held.map(|answer| answer.map(Guard::new))
    }
}
impl Claimed for Held {
    fn from_held(held: Answer) -> Result<Self> {
        Ok(held??)
    }
}
impl Claimed for Try<Held> {
    fn from_held(held: Answer) -> Result<Self> {
        held
    }
}
impl Claimed for SharedGuard {
    fn from_held(held: Answer) -> Result<Self> {
        Ok(Self::new(held??))
    }
}
impl Claimed for Try<SharedGuard> {
    fn from_held(held: Answer) -> Result<Self> {
        held.map(|answer| answer.map(SharedGuard::new))
    }
}
