//! What callers and the engine's own background share: who waits for word.
use crate::{
    error::Fault,
    link::{Bell, Conn, Link},
    pool::Lane,
    wire::{
        call::Call,
        reply::{Reply, place, status},
    },
};
use fencelock_core::{BootClock, Clock, HoldId, Identity, Moment, Name, Request, Status, Token};
use fencelock_database::{Haunted, LEAVE, PATIENCE, end_of_look, micros};
use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{sync::Notify, time::sleep};

pub(crate) struct Shared {
    pub(crate) link: Link,
    pub(crate) space: String,
    /// Who we are to those who look whether we live.
    pub(crate) client: HoldId,
    /// Host and process, and a blank.
    here: String,
    waits: Mutex<Waits>,
    /// Those who wait have doorbells, and those of holds.
    doorbell: bool,
    holds: Mutex<HashMap<HoldId, Kept>>,
    /// Something is held where nothing was.
    first: Notify,
    /// The session that shows that we live; 0: none; -1: none yet.
    pulse: AtomicI64,
    /// Whoever shows that we live looks whether that is felt.
    pub(crate) doubted: Notify,
    pub(crate) haunted: Haunted,
}
/// So often the server is looked after while something is held.
const FEEL: Duration = Duration::from_secs(1);
/// A hold of ours, until then; it may have a doorbell.
struct Kept {
    until: Moment,
    bell: Option<Bell>,
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

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shared({:?})", self.link)
    }
}
impl Shared {
    /// `felt`: a session of ours can show others that we live.
    pub(crate) fn new(link: Link, space: String, client: HoldId, doorbell: bool, felt: bool) -> Self {
        let Identity { host, pid } = Identity::here();
        let host: String = host.chars().map(|c| if c.is_whitespace() || c == '\0' { '_' } else { c }).collect();
        let host = if host.is_empty() { "-".to_owned() } else { host };
        Self {
            link,
            space,
            client,
            here: format!("{host} {pid} "),
            waits: Mutex::default(),
            doorbell,
            holds: Mutex::default(),
            first: Notify::new(),
            pulse: AtomicI64::new(if felt { -1 } else { 0 }),
            doubted: Notify::new(),
            haunted: Haunted::default(),
        }
    }
    fn waits(&self) -> MutexGuard<'_, Waits> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn holds(&self) -> MutexGuard<'_, HashMap<HoldId, Kept>> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// It is ours until it is released, or its lease is over, since it may be somebody else's to release by then (a ticket): then its doorbell
    /// rings, if it has one. Who has one keeps it.
    pub(crate) fn keep(&self, hold: HoldId, until: Moment, bell: Option<Bell>) {
        let mut holds = self.holds();
        if holds.is_empty() {
            self.first.notify_one();
        }
        let kept = holds.entry(hold).or_insert(Kept { until, bell: None });
        kept.until = kept.until.max(until);
        if bell.is_some() {
            kept.bell = bell;
        }
    }
    /// Its lease is longer now.
    pub(crate) fn keep_on(&self, hold: HoldId, until: Moment) {
        if let Some(kept) = self.holds().get_mut(&hold) {
            kept.until = kept.until.max(until);
        }
    }
    /// All of them ring.
    pub(crate) fn ring_all(&self) {
        self.holds().clear();
    }
    /// A hold that is over: its doorbell rings, since its session ends.
    pub(crate) fn ring(&self, hold: HoldId) {
        drop(self.holds().remove(&hold));
    }
    /// As long as the hold is not released.
    pub(crate) fn keep_late(&self, hold: HoldId, bell: Option<Bell>) {
        if let Some(kept) = self.holds().get_mut(&hold) {
            kept.bell = bell;
        }
    }
    fn holds_any(&self) -> bool {
        let (mut holds, now) = (self.holds(), BootClock.now());
        holds.retain(|_, kept| kept.until > now);
        !holds.is_empty()
    }
    /// Looks after the server while something is held: where nothing is asked, nothing tells that a connection broke, nor that the server takes
    /// no writes any more. Whoever finds that out has all holds looked at (SAFETY G6), and so has a connection that was not there at the look
    /// before: it may lead to another server. It never returns.
    pub(crate) async fn feel(&self) {
        let (ask, mut known) = (Call::new("ready").end(), Weak::new());
        loop {
            sleep(FEEL).await;
            if !self.holds_any() {
                self.first.notified().await;
            } else if let Ok(conn) = self.link.here().await {
                let _ = self.link.rows(&conn, Lane::Calls, PATIENCE, &ask).await;
                let this = Arc::downgrade(&conn);
                if !this.ptr_eq(&known) {
                    known = this;
                    self.link.broke.notify_one();
                }
            }
        }
    }
    /// What its record says of a holder.
    pub(crate) fn identity(&self, note: &str) -> String {
        format!("{}{note}", self.here)
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
    /// `None`: it is not known yet.
    pub(crate) fn pulse(&self) -> Option<i64> {
        Some(self.pulse.load(Relaxed)).filter(|id| *id >= 0)
    }
    /// Those who wait say so at once.
    pub(crate) fn set_pulse(&self, id: Option<i64>) {
        if self.pulse.swap(id.unwrap_or(0), Relaxed) != id.unwrap_or(0) {
            self.waits().places.values().for_each(|place| place.wake.notify_one());
        }
    }

    /// Until it is felt again nobody looks for it.
    pub(crate) fn doubt_pulse(&self) {
        if self.pulse().is_some() {
            self.set_pulse(None);
        }
        self.doubted.notify_one();
    }
    /// The same, to the server.
    pub(crate) async fn say_that_there_is_no_pulse(&self) -> Result<(), Fault> {
        let call = Call::new("fade").id(self.client).end();
        self.link.again(&call).await.map(drop)
    }
    /// A queued attempt's look. `told`: its turn was seen just now; who looks by himself is told so, and asks for it.
    pub(crate) async fn refresh(&self, request: &Request, told: bool) -> Result<(Reply, Moment), Fault> {
        match self.look(request, told).await? {
            (Reply::Turn, _) => self.look(request, true).await,
            seen => Ok(seen),
        }
    }
    async fn look(&self, request: &Request, told: bool) -> Result<(Reply, Moment), Fault> {
        let conn = self.link.here().await?;
        let sent_at = BootClock.now();
        let call = Call::new("refresh").text(&self.space).text(request.name().as_str());
        let call = call
            .id(request.hold())
            .number(micros(request.ttl()))
            .number(end_of_look(&self.link.time, sent_at))
            .id(self.client)
            .or_null(self.pulse())
            .flag(told)
            .end();
        Ok((self.link.run(&conn, Lane::Calls, PATIENCE, &call).await?, sent_at))
    }
    /// A queued attempt's look that goes on at the server, for so long, with no less and no more than that in between. `None`: there is
    /// no room for it.
    pub(crate) async fn watch(
        &self,
        request: &Request,
        long: Duration,
        pause: [Duration; 2],
        bell: &mut Option<Bell>,
    ) -> Result<Option<Reply>, Fault> {
        if self.doorbell && bell.is_none() {
            *bell = self.link.bell().await?;
        }
        let conn = self.link.here().await?;
        if bell.is_none() && !self.link.may_watch(&conn) {
            return Ok(None);
        }
        let call = Call::new("watch").text(&self.space).text(request.name().as_str()).id(request.hold());
        let call = call
            .id(self.client)
            .or_null(self.pulse())
            .number(micros(long))
            .number(micros(pause[0]))
            .number(micros(pause[1]))
            .flag(bell.is_some())
            .end();
        let limit = long + PATIENCE;
        let Some(mut own) = bell.take() else {
            return self.link.run(&conn, Lane::Watches, limit, &call).await.map(Some);
        };
        let seen = own.run(limit, call).await?;
        *bell = Some(own);
        Ok(Some(seen))
    }
    /// Ends a hold, or with `token: None` a place in the queue, too.
    pub(crate) async fn leave(&self, name: &Name, hold: HoldId, token: Option<Token>) -> Result<Reply, Fault> {
        let call = Call::new("release").text(&self.space).text(name.as_str()).id(hold);
        let (call, bell) =
            (call.or_null(token.map(Token::get)).end(), self.holds().remove(&hold).and_then(|kept| kept.bell));
        let left = match bell {
            Some(mut bell) if bell.is_there() => match bell.run(LEAVE, call.clone()).await {
                Ok(Reply::Done { number, now }) => {
                    bell.rest();
                    Ok(Reply::Done { number, now })
                }
                Ok(Reply::Locked) => self.insist(&call).await,
                Err(fault) if fault.is_conflict() => self.insist(&call).await,
                end => end,
            },
            // It rings when it is closed, after that.
            _bell => self.insist(&call).await,
        };
        if left.is_ok() {
            self.freed(name);
        }
        left
    }
    /// Places of this client that nobody here waits in any more. *Invariant:* an attempt is expected before its first command is sent and
    /// until it has its turn, so whoever is found there, was not here before it was asked and is not here now has gone.
    pub(crate) async fn left_behind(&self) -> Result<Vec<(Name, HoldId)>, Fault> {
        let here: HashSet<HoldId> = self.waits().places.keys().copied().collect();
        let conn = self.link.here().await?;
        let call = Call::new("places").text(&self.space).id(self.client).end();
        let rows = self.link.rows(&conn, Lane::Calls, PATIENCE, &call).await?;
        let waits = self.waits();
        let is_here = |hold: &HoldId| here.contains(hold) || waits.places.contains_key(hold);
        Ok(rows.iter().filter_map(place).filter(|(_, hold)| !is_here(hold)).collect())
    }
    /// Ends a place in the queue, and no hold.
    pub(crate) async fn quit(&self, name: &Name, hold: HoldId) -> Result<(), Fault> {
        let call = Call::new("quit").text(&self.space).text(name.as_str()).id(hold).end();
        self.insist(&call).await?;
        self.freed(name);
        Ok(())
    }
    /// One that is locked is tried again for as long as core waits.
    async fn insist(&self, call: &str) -> Result<Reply, Fault> {
        let limit = BootClock.now() + LEAVE;
        let mut pause = 1;
        loop {
            let conn = self.link.here().await?;
            let left = BootClock.now().until(limit).max(Duration::from_millis(10));
            match self.link.run(&conn, Lane::Calls, left, call).await {
                Ok(Reply::Locked) if BootClock.now() < limit => {}
                Ok(Reply::Locked) => return Err(Fault::Locked),
                Err(fault) if fault.is_conflict() && BootClock.now() < limit => {}
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
