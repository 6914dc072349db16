//! What callers and the engine's own background share: who waits for word.
use crate::{
    error::Fault,
    leaving::Leaving,
    link::{Conn, Link},
    wire::reply::{Reply, status},
};
use fencelock_core::{BootClock, Clock, HoldId, Identity, Moment, Name, Request, Status, Token};
use fencelock_database::{Haunted, LEAVE, PATIENCE, end_of_look, micros};
use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    sync::{Notify, Semaphore, SemaphorePermit},
    time::sleep,
};
use tokio_postgres::SimpleQueryRow;

/// A row that was kept for so many looks is kept by more than a statement: from then on a look does not wait at the server, where the
/// other locks of this client stand behind it.
pub(crate) const STUBBORN: u32 = 4;
/// So often the places of this client are looked for in which nobody waits any more.
const PLACES: Duration = Duration::from_millis(4_500);
/// Nothing has said for so long that this client lives: whoever has waited for long looks every 1.4 to 1.75 s.
const SILENT: Duration = Duration::from_millis(1_800);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) link: Link,
    pub(crate) space: String,
    /// Who we are to those who tell us that our turn has come.
    pub(crate) client: HoldId,
    /// Host and process, and a blank.
    here: String,
    waits: Mutex<Waits>,
    pub(crate) leaving: Leaving,
    /// Somebody listens now, or listens no more.
    pub(crate) turned: Notify,
    /// Of those who wait so many look at once, and one of them waits for its row at the server: renewals go over the same connection.
    looks: Semaphore,
    stubborn: Semaphore,
    pub(crate) haunted: Haunted,
}
#[derive(Debug, Default)]
struct Waits {
    places: HashMap<HoldId, (Name, Arc<Wake>)>,
    /// Somebody listens, or is about to.
    listening: bool,
    /// The server's process that listens for us.
    ears: Option<i64>,
    /// When it was said that we live, which was answered since; and when it was asked where we wait.
    said: Option<Moment>,
    asked: Option<Moment>,
    /// Those who have stopped while they waited, and nothing that they had sent was not answered: they have a place, and no hold.
    stopped: HashSet<HoldId>,
}
/// A place in `waits`, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Expected {
    shared: Arc<Shared>,
    hold: HoldId,
    pub(crate) wake: Arc<Wake>,
}
/// How a waiter is woken.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    notify: Notify,
    told: AtomicBool,
}
impl Wake {
    /// What was said before may have been missed.
    fn look(&self) {
        self.notify.notify_one();
    }
    /// Its turn has come, by what was said.
    fn tell(&self) {
        self.told.store(true, Relaxed);
        self.notify.notify_one();
    }
    /// Until it is; whether it was told. If dropped nothing is missed.
    pub(crate) async fn woken(&self) -> bool {
        self.notify.notified().await;
        self.told.swap(false, Relaxed)
    }
}
/// A sign of life, and who waited here before it was sent.
pub(crate) struct Beat {
    pub(crate) call: String,
    here: HashSet<HoldId>,
}
impl Beat {
    /// *Invariant:* an attempt is expected before its first command is sent and until it has its turn, so whoever is found there, was not
    /// here before it was asked and is not here now has gone. Those who are being taken back are left to that.
    pub(crate) fn left_behind(&self, shared: &Shared, rows: &[SimpleQueryRow]) -> Vec<(Name, HoldId)> {
        let waits = shared.waits();
        let known = |hold: &HoldId| waits.places.contains_key(hold) || shared.leaving.has(*hold);
        let is_here = |hold: &HoldId| self.here.contains(hold) || known(hold);
        let place = |row: &SimpleQueryRow| {
            let hold: HoldId = row.try_get("hold").ok()??.replace('-', "").parse().ok()?;
            Some((Name::new(row.try_get("name").ok()??).ok()?, hold)).filter(|_| !is_here(&hold))
        };
        rows.iter().filter_map(place).collect()
    }
}
impl Drop for Expected {
    fn drop(&mut self) {
        let mut waits = self.shared.waits();
        // It may be expected anew already.
        if waits.places.get(&self.hold).is_some_and(|(_, wake)| Arc::ptr_eq(wake, &self.wake)) {
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
            leaving: Leaving::default(),
            turned: Notify::new(),
            looks: Semaphore::new(8),
            stubborn: Semaphore::new(1),
            haunted: Haunted::default(),
        }
    }
    fn waits(&self) -> MutexGuard<'_, Waits> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// What its record says of a holder. A text of PostgreSQL holds no NUL.
    pub(crate) fn identity(&self, note: &str) -> String {
        format!("{}{}", self.here, note.replace('\0', "\u{fffd}"))
    }
    pub(crate) fn channel(&self) -> String {
        // As the functions make it of the client's number.
        let id = self.client.to_string();
        let parts = [&id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]];
        format!("fencelock_{}", parts.join("-"))
    }

    /// Word for this attempt wakes it from here on.
    pub(crate) fn expect(self: &Arc<Self>, name: &Name, hold: HoldId) -> Expected {
        let wake = Arc::<Wake>::default();
        self.waits().places.insert(hold, (name.clone(), wake.clone()));
        Expected { shared: self.clone(), hold, wake }
    }
    /// Somebody has to listen, and this caller is the one.
    pub(crate) fn must_listen(&self) -> bool {
        !std::mem::replace(&mut self.waits().listening, true)
    }
    /// Nobody waits: the listener may go. Whoever waits next starts another one.
    pub(crate) fn may_rest(&self) -> bool {
        let mut waits = self.waits();
        if waits.places.is_empty() {
            waits.listening = false;
        }
        !waits.listening
    }
    /// The listener is gone, whatever the reason.
    pub(crate) fn nobody_listens(&self) {
        self.waits().listening = false;
    }
    pub(crate) fn ears(&self) -> Option<i64> {
        self.waits().ears
    }
    pub(crate) fn set_ears(&self, pid: Option<i64>) {
        let mut waits = self.waits();
        (waits.ears, waits.said) = (pid, None);
        self.turned.notify_one();
    }
    /// Says that this client lives, over a connection like any other's; places that nobody here waits in any more.
    pub(crate) async fn beat(&self, limit: Duration) -> Result<Vec<(Name, HoldId)>, Fault> {
        let (ears, sent_at) = (self.ears(), BootClock.now());
        let beat = self.next_beat(ears);
        let conn = self.link.here().await?;
        let rows = self.link.rows(&conn, limit, &beat.call).await?;
        self.said(ears, sent_at);
        Ok(beat.left_behind(self, &rows))
    }
    /// By whom it is heard, or by none, and that may have changed since.
    fn said(&self, ears: Option<i64>, sent_at: Moment) {
        let mut waits = self.waits();
        if waits.ears == ears {
            waits.said = Some(sent_at);
        }
    }
    /// Until a sign of life has to be sent: where nobody listens looks have mostly said that we live. And now and then it is asked where
    /// we wait. `None`: somebody listens, and says so.
    pub(crate) fn silent_in(&self) -> Option<Duration> {
        let (waits, now) = (self.waits(), BootClock.now());
        let left = |since: Option<Moment>, of: Duration| {
            since.map_or(Duration::ZERO, |since| of.saturating_sub(since.until(now)))
        };
        waits.ears.is_none().then(|| left(waits.said, SILENT).min(left(waits.asked, PLACES)))
    }
    /// The next sign of life, by whom it is heard.
    pub(crate) fn next_beat(&self, ears: Option<i64>) -> Beat {
        let (mut waits, now) = (self.waits(), BootClock.now());
        let asks = waits.asked.is_none_or(|asked| asked.until(now) >= PLACES);
        if asks {
            waits.asked = Some(now);
        }
        let call = self.link.call("beat").id(self.client).or_null(ears).text(&self.space).flag(asks).end();
        Beat { call, here: waits.places.keys().copied().collect() }
    }
    pub(crate) fn somebody_waits(&self) -> bool {
        !self.waits().places.is_empty()
    }
    /// What was told while nobody listened was told to nobody.
    pub(crate) fn wake_all(&self) {
        self.waits().places.values().for_each(|(_, wake)| wake.look());
    }
    /// This client has given it back: where nobody can listen, those of its own need not wait for their next look.
    pub(crate) fn freed(&self, name: &Name) {
        let waits = self.waits();
        if waits.ears.is_none() {
            waits.places.values().filter(|(waited, _)| waited == name).for_each(|(_, wake)| wake.tell());
        }
    }
    /// The turn of one of ours may have come. Which lock it is, and of whom, where nobody here waits for it any more.
    pub(crate) fn heard(&self, word: &str) -> Option<(Name, HoldId)> {
        let (hold, rest) = word.split_once(' ')?;
        let (length, names) = rest.split_once(' ')?;
        let hold: HoldId = hold.replace('-', "").parse().ok()?;
        if let Some((_, wake)) = self.waits().places.get(&hold) {
            wake.tell();
            return None;
        }
        let (space, name) = names.split_at_checked(length.parse().ok()?)?;
        if space == self.space { Some((Name::new(name).ok()?, hold)) } else { None }
    }
    /// Whoever waits, and has nothing open, stops.
    pub(crate) fn stops(&self, hold: HoldId) {
        self.waits().stopped.insert(hold);
    }
    pub(crate) fn was_only_waiting(&self, hold: HoldId) -> bool {
        self.waits().stopped.contains(&hold)
    }
    pub(crate) fn has_left(&self, hold: HoldId) {
        self.waits().stopped.remove(&hold);
    }
    /// Ends a place in the queue, and no hold.
    pub(crate) async fn quit(&self, name: &Name, hold: HoldId) -> Result<(), Fault> {
        let call = |_| self.link.call("quit").text(&self.space).text(name.as_str()).id(hold).end();
        self.insist(call).await.map(drop)
    }
    /// For as long as a look lasts. Whoever waits for this has sent nothing.
    pub(crate) async fn may_look(&self) -> Option<SemaphorePermit<'_>> {
        self.looks.acquire().await.ok()
    }
    /// A queued attempt's look. `told`: word has come that its turn has; who looks by himself is told so, and asks for it.
    pub(crate) async fn refresh(&self, request: &Request, told: bool, locked: u32) -> Result<(Reply, Moment), Fault> {
        match self.look(request, told, locked).await? {
            (Reply::Turn, _) => self.look(request, true, locked).await,
            seen => Ok(seen),
        }
    }
    async fn look(&self, request: &Request, told: bool, locked: u32) -> Result<(Reply, Moment), Fault> {
        let stubborn = if locked > STUBBORN { None } else { self.stubborn.try_acquire().ok() };
        let conn = self.link.here().await?;
        let sent_at = BootClock.now();
        let call = self.link.call("refresh").text(&self.space).text(request.name().as_str());
        let call = call.id(request.hold()).number(micros(request.ttl())).number(end_of_look(&self.link.time, sent_at));
        let (ears, call) = (self.ears(), call.or_null(self.ears()).flag(told).flag(stubborn.is_none()));
        // Where nobody listens it also says that this client lives.
        let says = ears.is_none() && !told;
        let call = if says { call.id(self.client).end() } else { call.end() };
        let reply = self.link.run(&conn, PATIENCE, &call).await?;
        if says && matches!(reply, Reply::Queued { .. }) {
            self.said(ears, sent_at);
        }
        Ok((reply, sent_at))
    }
    /// Ends a hold.
    pub(crate) async fn release(&self, name: &Name, hold: HoldId, token: Token) -> Result<Reply, Fault> {
        let call = |once| {
            let call = self.link.call("release").text(&self.space).text(name.as_str()).id(hold);
            call.number(token.get()).flag(once).end()
        };
        self.insist(call).await
    }
    /// One that is locked is tried again for as long as core waits.
    async fn insist(&self, call: impl Fn(bool) -> String) -> Result<Reply, Fault> {
        let limit = BootClock.now() + LEAVE;
        let (mut pause, mut tries) = (1, 0);
        loop {
            let conn = self.link.here().await?;
            let left = BootClock.now().until(limit).max(Duration::from_millis(10));
            match self.link.run(&conn, left, &call(tries > STUBBORN)).await {
                Ok(Reply::Locked) if BootClock.now() < limit => tries += 1,
                Ok(Reply::Locked) => return Err(Fault::Locked),
                end => return end,
            }
            sleep(Duration::from_millis(fastrand::u64(pause..2 * pause + 1))).await;
            pause = (pause * 2).min(50);
        }
    }
    /// One lock, as it is now. It makes no record.
    pub(crate) async fn status(&self, conn: &Conn, name: &Name) -> Result<Status, Fault> {
        let call = self.link.call("inspect").text(&self.space).text(name.as_str()).end();
        let rows = self.link.rows(conn, PATIENCE, &call).await?;
        let fields =
            |row: &SimpleQueryRow| (0..row.len()).map(|n| row.get(n).unwrap_or("").to_owned()).collect::<Vec<_>>();
        let odd =
            || Fault::Odd(format!("{:?}", rows.iter().map(fields).collect::<Vec<_>>()).chars().take(400).collect());
        status(name, &rows).ok_or_else(odd)
    }
}
