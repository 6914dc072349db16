//! What callers and the engine's own background share: who waits for word.
use crate::{
    error::Fault,
    link::{Conn, Lane, Link, PATIENCE},
    wire::{
        call::Call,
        reply::{Reply, status},
    },
};
use fencelock_core::{BootClock, Clock, HoldId, Identity, Moment, Name, Request, Status, Token};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{sync::Notify, time::sleep};

/// Core waits for a second.
const LEAVE: Duration = Duration::from_millis(800);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) link: Link,
    pub(crate) space: String,
    /// Who we are to those who look whether we live.
    pub(crate) client: HoldId,
    /// Host and process, and a blank.
    here: String,
    waits: Mutex<Waits>,
    /// The session that shows that we live; 0: none; -1: none yet.
    pulse: AtomicI64,
    /// A command of its attempt broke off and may arrive until then.
    haunted: Mutex<HashMap<HoldId, Moment>>,
}
#[derive(Debug, Default)]
struct Waits {
    places: HashMap<HoldId, Place>,
}
#[derive(Debug)]
struct Place {
    name: Name,
    wake: Arc<Notify>,
}
/// A place in `waits`, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Expected {
    shared: Arc<Shared>,
    hold: HoldId,
    pub(crate) wake: Arc<Notify>,
}
impl Drop for Expected {
    fn drop(&mut self) {
        let mut waits = self.shared.waits();
        // It may be expected anew already.
        if waits.places.get(&self.hold).is_some_and(|place| Arc::ptr_eq(&place.wake, &self.wake)) {
            waits.places.remove(&self.hold);
        }
    }
}

impl Shared {
    pub(crate) fn new(link: Link, space: String, client: HoldId) -> Self {
        let Identity { host, pid } = Identity::here();
        let host: String = host.chars().map(|c| if c.is_whitespace() || c == '\0' { '_' } else { c }).collect();
        let host = if host.is_empty() { "-".to_owned() } else { host };
        Self {
            link,
            space,
            client,
            here: format!("{host} {pid} "),
            waits: Mutex::default(),
            pulse: AtomicI64::new(-1),
            haunted: Mutex::default(),
        }
    }
    fn waits(&self) -> MutexGuard<'_, Waits> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// What its record says of a holder.
    pub(crate) fn identity(&self, note: &str) -> String {
        format!("{}{note}", self.here)
    }
    /// A command of this attempt broke off, and may take effect until then.
    pub(crate) fn haunt(&self, hold: HoldId, until: Moment) {
        let (mut haunted, now) = (self.haunted.lock().unwrap_or_else(PoisonError::into_inner), BootClock.now());
        haunted.retain(|_, until| *until > now);
        let known = haunted.entry(hold).or_insert(until);
        *known = until.max(*known);
    }
    /// Nobody has it any more: until when something of it may still come.
    pub(crate) fn haunts(&self, hold: HoldId) -> Option<Moment> {
        let mut haunted = self.haunted.lock().unwrap_or_else(PoisonError::into_inner);
        if haunted.is_empty() { None } else { haunted.remove(&hold) }.filter(|until| *until > BootClock.now())
    }

    /// A release in this process wakes it from here on.
    pub(crate) fn expect(self: &Arc<Self>, request: &Request) -> Expected {
        let (hold, wake) = (request.hold(), Arc::<Notify>::default());
        self.waits().places.insert(hold, Place { name: request.name().clone(), wake: wake.clone() });
        Expected { shared: self.clone(), hold, wake }
    }
    /// Nothing tells those who wait elsewhere; those who wait here may look at once.
    pub(crate) fn freed(&self, name: &Name) {
        self.waits().places.values().filter(|place| place.name == *name).for_each(|place| place.wake.notify_one());
    }
    pub(crate) fn somebody_waits(&self) -> bool {
        !self.waits().places.is_empty()
    }
    pub(crate) fn pulse(&self) -> Option<i64> {
        Some(self.pulse.load(Relaxed)).filter(|id| *id >= 0)
    }
    /// Those who wait say so at once.
    pub(crate) fn set_pulse(&self, id: Option<i64>) {
        if self.pulse.swap(id.unwrap_or(0), Relaxed) != id.unwrap_or(0) {
            self.waits().places.values().for_each(|place| place.wake.notify_one());
        }
    }

    /// A queued attempt's look.
    pub(crate) async fn refresh(&self, request: &Request) -> Result<(Reply, Moment), Fault> {
        let conn = self.link.here().await?;
        let call = Call::new("refresh").text(&self.space).text(request.name().as_str());
        let call = call.id(request.hold()).number(micros(request.ttl())).id(self.client).or_null(self.pulse()).end();
        let sent_at = BootClock.now();
        Ok((self.link.run(&conn, Lane::Calls, PATIENCE, &call).await?, sent_at))
    }
    /// A queued attempt's look that goes on at the server, for so long, with no less and no more than that in between. `None`: there is
    /// no room for it.
    pub(crate) async fn watch(
        &self,
        request: &Request,
        long: Duration,
        pause: [Duration; 2],
    ) -> Result<Option<Reply>, Fault> {
        let conn = self.link.here().await?;
        if !self.link.may_watch(&conn) {
            return Ok(None);
        }
        let call = Call::new("watch").text(&self.space).text(request.name().as_str()).id(request.hold());
        let call = call
            .id(self.client)
            .or_null(self.pulse())
            .number(micros(long))
            .number(micros(pause[0]))
            .number(micros(pause[1]))
            .end();
        // Long enough that nobody wakes up in between to see how long it has been.
        self.link.run(&conn, Lane::Watches, 3 * PATIENCE, &call).await.map(Some)
    }
    /// Ends a hold, or with `token: None` a place in the queue, too.
    pub(crate) async fn leave(&self, name: &Name, hold: HoldId, token: Option<Token>) -> Result<Reply, Fault> {
        let call = Call::new("release").text(&self.space).text(name.as_str()).id(hold);
        let call = call.or_null(token.map(Token::get)).end();
        let limit = BootClock.now() + LEAVE;
        let mut pause = 1;
        loop {
            let conn = self.link.here().await?;
            let left = BootClock.now().until(limit).max(Duration::from_millis(10));
            match self.link.run(&conn, Lane::Calls, left, &call).await {
                Ok(Reply::Locked) if BootClock.now() < limit => {}
                Ok(Reply::Locked) => return Err(Fault::Locked),
                Err(fault) if fault.is_conflict() && BootClock.now() < limit => {}
                Ok(end) => {
                    self.freed(name);
                    return Ok(end);
                }
                end => return end,
            }
            sleep(Duration::from_millis(fastrand::u64(pause..2 * pause + 1))).await;
            pause = (pause * 2).min(50);
        }
    }
    /// One lock, as it is now. It makes no record.
    pub(crate) async fn status(&self, conn: &Conn, name: &Name) -> Result<Status, Fault> {
        let call = Call::new("inspect").text(&self.space).text(name.as_str()).end();
        status(name, &self.link.rows(conn, Lane::Calls, PATIENCE, &call).await?).ok_or(Fault::Answer)
    }
}
/// As the procedures count.
pub(crate) fn micros(d: Duration) -> i64 {
    i64::try_from(d.as_micros()).unwrap_or(i64::MAX / 4)
}
