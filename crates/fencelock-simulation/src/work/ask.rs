//! From a wish to a guard: waiting, trying, giving up, adopting.
use super::{Errand, Grip, Later, Worker};
use crate::{
    history::{How, Op, Part, Terms, What},
    plan::Sort,
    world::{duration, sleep},
};
use fencelock_core::{Acquire, Claim, Claimed, ErrorKind, Guard, Result, SharedGuard, Try};
use std::{sync::atomic::Ordering::Relaxed, time::Duration};

fn waited<G: Claimed + Into<Grip> + Send + 'static>(wait: Acquire<G>) -> Later<Result<Try<Grip>>> {
    Box::pin(async move { wait.await.map(|guard| Ok(guard.into())) })
}
fn tried<G: Into<Grip> + Send + 'static>(attempt: Acquire<Try<G>>) -> Later<Result<Try<Grip>>>
where
    Try<G>: Claimed,
{
    Box::pin(async move { Ok(attempt.await?.map(Into::into)) })
}
/// The options of every handle.
macro_rules! with {
    ($lock:expr, $terms:expr, $session:expr) => {{
        let (lock, terms) = ($lock, $terms);
        let lock = match () {
            () if $session => lock,
            () if terms.fixed => lock.lease(duration(terms.ttl)),
            () => lock.ttl(duration(terms.ttl)),
        };
        let lock = if terms.at_least > 0 { lock.at_least(duration(terms.at_least)) } else { lock };
        match terms.max_hold {
            Some(d) => lock.max_hold(duration(d)),
            None => lock,
        }
    }};
}

impl Worker {
    /// What the errand wants, not yet asked for.
    pub(super) fn future(&mut self, errand: &Errand) -> Later<Result<Try<Grip>>> {
        let (client, place) = (&self.process.client, self.place(errand.name));
        let (terms, session) = (errand.terms, self.process.node.session);
        let patience = Duration::from_nanos(errand.patience);
        match (self.sort(errand.name), errand.claim) {
            (Sort::Election, _) => {
                let election = with!(client.election(place), terms, session);
                let election = if errand.owned { election.reentrant(&self.owner) } else { election };
                let candidate = ["a", "b", "c", "d"][usize::from(self.process.id % 4)];
                match errand.how {
                    How::Try => tried(election.try_campaign(candidate)),
                    How::Timed => tried(election.try_campaign_for(candidate, patience)),
                    _ => waited(election.campaign(candidate)),
                }
            }
            (_, claim @ (Claim::Read | Claim::Write)) => {
                let lock = with!(client.rw_lock(place), terms, session);
                let lock = if errand.owned { lock.reentrant(&self.owner) } else { lock };
                match (errand.how, claim) {
                    (How::Try, Claim::Read) => tried(lock.try_read()),
                    (How::Timed, Claim::Read) => tried(lock.try_read_for(patience)),
                    (_, Claim::Read) => waited(lock.read()),
                    (How::Try, _) => tried(lock.try_write()),
                    (How::Timed, _) => tried(lock.try_write_for(patience)),
                    _ => waited(lock.write()),
                }
            }
            (_, Claim::Permits { take, of }) => {
                let semaphore = with!(client.semaphore(place, of), terms, session);
                match errand.how {
                    How::Try => tried(semaphore.try_acquire(take)),
                    How::Timed => tried(semaphore.try_acquire_for(take, patience)),
                    _ => waited(semaphore.acquire(take)),
                }
            }
            _ => {
                let mutex = with!(client.mutex(place), terms, session);
                let mutex = if errand.owned { mutex.reentrant(&self.owner) } else { mutex };
                match errand.how {
                    How::Try => tried(mutex.try_lock()),
                    How::Timed => tried(mutex.try_lock_for(patience)),
                    _ => waited(mutex.lock()),
                }
            }
        }
    }
    /// Asks, and maybe gives up.
    pub(super) async fn ask(&mut self, errand: &Errand) -> Option<(Grip, Part)> {
        let Errand { name, claim, how, gives_up, terms, .. } = errand.clone();
        let (op, mut future) = (self.number(), self.future(errand));
        self.log(What::Asked { op, name, claim, how });
        let answer = match gives_up {
            None if self.shared.plan.gives_up => tokio::select! {
                biased;
                answer = &mut future => answer,
                () = self.shared.closed() => {
                    drop(future);
                    self.log(What::Cancelled { op, early: false });
                    return None;
                }
            },
            None => future.await,
            Some(after) => tokio::select! {
                biased;
                answer = &mut future => answer,
                () = sleep(after) => {
                    drop(future);
                    self.log(What::Cancelled { op, early: after <= 2 * self.shared.plan.delay });
                    return None;
                }
            },
        };
        match answer {
            Ok(Ok(grip)) => {
                let part = self.got(op, name, &grip, terms);
                Some((grip, part))
            }
            Ok(Err(_)) => {
                self.log(What::Refused { op });
                None
            }
            Err(error) => {
                self.log(What::Failed { op, kind: error.kind() });
                None
            }
        }
    }
    /// It is in hand.
    pub(super) fn got(&self, op: Op, name: u8, grip: &Grip, terms: Terms) -> Part {
        self.have(op, name, grip, grip.token().unwrap_or(0), terms)
    }
    pub(super) fn have(&self, op: Op, name: u8, held: &fencelock_core::Held, token: i64, terms: Terms) -> Part {
        let part = self.number();
        self.shared.stays.fetch_max(self.shared.history.now() + terms.at_least * 51 / 50, Relaxed);
        let (claim, hold, valid) = (held.claim(), held.id(), self.valid(held));
        self.log(What::Got { op, part, name, claim, hold, token, valid, terms });
        // A listener of its own hears of the loss at once, whatever the holder does in that moment.
        let (lost, shared, client) = (held.lost(), self.shared.clone(), self.process.id);
        let listen = async move {
            let reason = lost.await;
            shared.log(client, What::Told { part, reason });
        };
        drop(tokio::spawn(self.process.gate.clone().through(listen)));
        part
    }
    /// Somebody's ticket, if there is one; it is left there now and then, so that another one tries too.
    pub(super) async fn adopt(&mut self) -> bool {
        let found = {
            let mut tickets = self.shared.tickets();
            if tickets.is_empty() {
                return false;
            }
            let at = self.rng.usize(0..tickets.len());
            if self.rng.bool() { tickets.swap_remove(at) } else { tickets[at].clone() }
        };
        let (name, ticket) = found;
        let (op, claim) = (self.number(), ticket.claim());
        self.log(What::Asked { op, name, claim, how: How::Adopt });
        let client = self.process.client.clone();
        let grip: Result<Grip> = if claim.is_exclusive() {
            client.adopt(&ticket).await.map(|guard: Guard| guard.into())
        } else {
            client.adopt_shared(&ticket).await.map(|guard: SharedGuard| guard.into())
        };
        match grip {
            Ok(grip) => {
                let terms = Terms { ttl: crate::world::whole(ticket.ttl()), ..Terms::default() };
                let part = self.got(op, name, &grip, terms);
                let hold = self.some(self.shared.plan.hold);
                let (how, patience) = (How::Adopt, 0);
                let errand = Errand { name, claim, how, patience, terms, owned: false, gives_up: None, hold };
                self.hold(grip, part, &errand).await;
            }
            Err(error) => self.log(What::Failed { op, kind: error.kind() }),
        }
        true
    }
    /// A semaphore whose size is another one: the stored one stays (SAFETY K4).
    pub(super) async fn wrong_size(&mut self, name: u8) {
        let of = self.size(name) + 10;
        let semaphore = self.process.client.semaphore(self.place(name), of);
        let answer = match semaphore.try_acquire(1).await {
            Ok(Ok(guard)) => {
                drop(guard);
                None
            }
            Ok(Err(_)) => Some(ErrorKind::Busy),
            Err(error) => Some(error.kind()),
        };
        self.log(What::WrongSize { name, answer });
    }
}
