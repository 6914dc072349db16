//! A value and those who wait for it. Not tokio's `watch`: that wakes in random order, and a simulation is to be repeated.
use std::{
    pin::pin,
    sync::{Mutex, PoisonError},
};
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Watched<T> {
    value: Mutex<T>,
    changed: Notify,
}
impl<T: Copy> Watched<T> {
    pub(crate) fn get(&self) -> T {
        *self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// What it was before.
    pub(crate) fn set(&self, value: T) -> T {
        let before = std::mem::replace(&mut *self.value.lock().unwrap_or_else(PoisonError::into_inner), value);
        self.changed.notify_waiters();
        before
    }
    /// Resolves when `wanted` has something to say of it.
    pub(crate) async fn when<U>(&self, wanted: impl Fn(T) -> Option<U>) -> U {
        let mut changed = pin!(self.changed.notified());
        loop {
            changed.as_mut().enable();
            if let Some(found) = wanted(self.get()) {
                return found;
            }
            changed.as_mut().await;
            changed.set(self.changed.notified());
        }
    }
}
