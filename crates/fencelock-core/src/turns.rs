//! The queue inside the process: of the tasks that want the same thing of the same name one is at the engine at a time
//! (SAFETY K2), first come, first served.
use crate::types::{Claim, Name};
use foldhash::HashMap;
use std::{
    collections::{VecDeque, hash_map::Entry as Place},
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::oneshot;

/// Only equal requests share a turn.
type Key = (Name, Claim, Duration);
type Queue = VecDeque<oneshot::Sender<Turn>>;

#[derive(Clone, Default)]
pub(crate) struct Turns(Arc<Mutex<HashMap<Key, Queue>>>);

/// The right to go to the engine. Dropping it passes it on.
#[must_use]
pub(crate) struct Turn {
    turns: Turns,
    key: Key,
    armed: bool,
}
pub(crate) enum Entry {
    Turn(Turn),
    /// Behind so many.
    Behind(u32, oneshot::Receiver<Turn>),
}

impl Turns {
    pub(crate) fn enter(&self, key: Key) -> Entry {
        match self.all().entry(key) {
            Place::Vacant(place) => {
                let key = place.key().clone();
                place.insert(Queue::new());
                Entry::Turn(Turn { turns: self.clone(), key, armed: true })
            }
            Place::Occupied(mut place) => {
                let queue = place.get_mut();
                let (tx, rx) = oneshot::channel();
                queue.retain(|waiter| !waiter.is_closed());
                queue.push_back(tx);
                Entry::Behind(u32::try_from(queue.len()).unwrap_or(u32::MAX), rx)
            }
        }
    }
    /// How many wait for a turn.
    pub(crate) fn waiting(&self, key: &Key) -> usize {
        self.all().get(key).map_or(0, |queue| queue.iter().filter(|waiter| !waiter.is_closed()).count())
    }
    /// Lets everybody go who waits: what they find then is a closed client.
    pub(crate) fn let_go(&self) {
        let all = std::mem::take(&mut *self.all());
        drop(all); // outside the mutex: it wakes them
    }
    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.all().is_empty()
    }
    fn all(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Queue>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
impl Drop for Turn {
    fn drop(&mut self) {
        while self.armed {
            let next = match self.turns.all().entry(self.key.clone()) {
                Place::Vacant(_) => None,
                Place::Occupied(mut place) => {
                    let next = place.get_mut().pop_front();
                    if next.is_none() {
                        place.remove();
                    }
                    next
                }
            };
            let Some(next) = next else { return };
            // Sent outside the mutex, for it wakes somebody. The turn itself is sent: a receiver that goes away with the turn
            // unread drops it, and it is passed on.
            match next.send(Turn { turns: self.turns.clone(), key: self.key.clone(), armed: true }) {
                Ok(()) => self.armed = false,
                Err(mut unread) => unread.armed = false,
            }
        }
    }
}
impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Turns({})", self.all().len())
    }
}

#[cfg(test)]
mod tests {
    //! Planted to see them go red: the `while` of `Drop` as an `if`, and `remove` left out.
    use super::*;

    fn key(name: &str) -> Key {
        (Name::new(name).unwrap(), Claim::Mutex, Duration::from_secs(1))
    }
    fn turn(entry: Entry) -> Turn {
        match entry {
            Entry::Turn(turn) => turn,
            Entry::Behind(n, _) => panic!("behind {n}"),
        }
    }
    fn wait(entry: Entry) -> oneshot::Receiver<Turn> {
        match entry {
            Entry::Turn(_) => panic!("a turn"),
            Entry::Behind(_, rx) => rx,
        }
    }

    #[test]
    fn turns_go_round_in_order_and_leave_nothing() {
        let turns = Turns::default();
        let first = turn(turns.enter(key("a")));
        let mut second = wait(turns.enter(key("a")));
        let mut third = wait(turns.enter(key("a")));
        drop(turn(turns.enter(key("b"))));
        assert_eq!(turns.waiting(&key("a")), 2);
        drop(first);
        assert!(third.try_recv().is_err());
        drop(second.try_recv().unwrap());
        drop(third.try_recv().unwrap());
        assert!(turns.is_empty());
    }

    #[test]
    fn those_who_left_are_passed_over_even_with_the_turn_unread() {
        let turns = Turns::default();
        let first = turn(turns.enter(key("a")));
        let left = wait(turns.enter(key("a")));
        let unread = wait(turns.enter(key("a")));
        let mut last = wait(turns.enter(key("a")));
        drop(left);
        drop(first);
        assert!(last.try_recv().is_err());
        drop(unread); // it has the turn, and nobody reads it
        drop(last.try_recv().unwrap());
        assert!(turns.is_empty());
    }
}
