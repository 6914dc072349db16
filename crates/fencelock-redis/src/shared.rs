//! What callers and the engine's own background share: who waits for a push, and what is held.
use crate::{
    config::MAX_TTL,
    error::Fault,
    link::{Conn, Link, clock},
    plain::Plain,
    redisson,
    renew::Kept,
    turns::Seen,
    wire::{
        key::Keys,
        record::{Held, status},
        reply::{Reply, number, text},
        scripts::{REFRESH, RELEASE},
    },
};
use fencelock_core::{BootClock, Claim, Clock, Grant, HoldId, Identity, Lease, Moment, Name, Request, Status, Token};
use redis::Value;
use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::sync::{Notify, watch};

/// A hold that is still there after so long is watched, so that short ones cost nothing (SAFETY G6).
const SETTLED: Duration = Duration::from_millis(100);

/// Core waits for a second: on a connection that does not answer this gives up before.
pub(crate) const LEAVE: Duration = Duration::from_millis(800);
/// No push comes later than this.
const LATE_PUSH: Duration = Duration::from_secs(10);

/// How locks are written.
#[derive(Debug)]
pub(crate) enum Records {
    Native,
    /// As strings, for others too.
    Plain(Plain),
    /// As Redisson has them.
    Redisson,
}
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) keys: Keys,
    pub(crate) link: Arc<Link>,
    pub(crate) records: Records,
    client: u128,
    /// The server tells of changes of keys.
    pub(crate) pushed: bool,
    /// Whoever waits looks by himself, whatever the server tells.
    pub(crate) spins: bool,
    /// Host and process, and a blank.
    here: String,
    waits: Mutex<Waits>,
    held: Mutex<Holds>,
    observed: Mutex<HashMap<String, Arc<Notify>>>,
    /// `run` has something to do earlier than it thought.
    pub(crate) fresh: Notify,
}
#[derive(Debug, Default)]
struct Waits {
    places: HashMap<HoldId, Arc<Place>>,
    /// Channels on which somebody listens, or is about to.
    listening: HashMap<Arc<str>, Arc<Ears>>,
    /// The server does not let us: those who wait are told so.
    denied: Option<Fault>,
    /// Granted, and the push for it may still come: until when it is waited for.
    granted: VecDeque<(Moment, HoldId)>,
}
impl Waits {
    fn is_idle(&self, channel: &str) -> bool {
        !self.places.values().any(|place| &*place.channel == channel)
    }
}
/// Somebody who listens on a channel.
#[derive(Debug, Default)]
pub(crate) struct Ears {
    /// Told when the subscription is to be made anew.
    pub(crate) anew: Notify,
    /// The subscription is there.
    pub(crate) hears: watch::Sender<bool>,
}
/// One attempt that may be in a queue.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) key: Arc<str>,
    /// Where it hears that its turn has come.
    pub(crate) channel: Arc<str>,
    pub(crate) wake: Notify,
    pub(crate) pushed: AtomicBool,
}
/// An earlier command of an attempt may still arrive until then; what it grants is over by itself by then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Haunt {
    pub(crate) until: Moment,
    pub(crate) over: Moment,
}
#[derive(Debug, Default)]
struct Holds {
    all: HashMap<HoldId, Own>,
    /// Not looked at yet, in the order of their grants.
    new: VecDeque<(Moment, HoldId)>,
    /// A command of its attempt broke off and may arrive until then.
    haunted: HashMap<HoldId, Haunt>,
    /// So many, and it is looked whose time is over: a hold that went away as a ticket is given back by somebody else.
    crowd: usize,
}
impl Holds {
    fn put(&mut self, hold: HoldId, own: Own) {
        self.all.insert(hold, own);
        if self.all.len() > self.crowd {
            let now = BootClock.now();
            self.all.retain(|_, own| own.until > now);
            self.haunted.retain(|_, haunt| haunt.until > now);
            self.crowd = (2 * self.all.len()).max(1_024);
        }
    }
}
/// One hold of ours.
#[derive(Clone, Debug)]
pub(crate) struct Own {
    pub(crate) name: Name,
    pub(crate) token: Token,
    pub(crate) claim: Claim,
    /// What its key says, where others have locks, too.
    pub(crate) value: Option<Arc<str>>,
    /// Nobody has it any more after that, unless it is renewed.
    pub(crate) until: Moment,
}
/// A place in `waits`, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Expected {
    shared: Arc<Shared>,
    hold: HoldId,
    pub(crate) place: Arc<Place>,
}
impl Drop for Expected {
    fn drop(&mut self) {
        let mut waits = lock(&self.shared.waits);
        // It may be expected anew already.
        if waits.places.get(&self.hold).is_some_and(|place| Arc::ptr_eq(place, &self.place)) {
            waits.places.remove(&self.hold);
        }
    }
}
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn new(keys: Keys, records: Records, link: Arc<Link>, client: u128, pushed: bool, spins: bool) -> Self {
        let Identity { host, pid } = Identity::here();
        let host: String = host.chars().map(|c| if c.is_whitespace() { '_' } else { c }).collect();
        let host = if host.is_empty() { "-".to_owned() } else { host };
        let (waits, held, observed) = Default::default();
        let (here, fresh) = (format!("{host} {pid} "), Notify::new());
        Self { keys, link, records, client, pushed, spins, here, waits, held, observed, fresh }
    }
    /// The keys are those of others, too: there is no queue.
    pub(crate) fn are_shared(&self) -> bool {
        !matches!(self.records, Records::Native)
    }
    /// Where this client hears of this lock: all of one server on one channel; in a cluster on one that lies with the key (SAFETY H1).
    fn channel(&self, key: &str) -> String {
        if self.link.is_cluster() { Keys::sharded(key, self.client) } else { self.keys.channel(self.client) }
    }
    /// The same as its record has it: the script knows its key.
    pub(crate) fn told_channel(&self) -> String {
        if self.link.is_cluster() { Keys::sharded("", self.client) } else { self.keys.channel(self.client) }
    }
    /// What its record says of a holder.
    pub(crate) fn identity(&self, note: &str) -> String {
        format!("{}{note}", self.here)
    }

    /// A push for this attempt is not given back from here on. *Invariant:* before its first command is sent, for the push may
    /// overtake the answer.
    pub(crate) fn expect(self: &Arc<Self>, hold: HoldId, key: &str) -> Expected {
        let (wake, pushed) = Default::default();
        let place = Arc::new(Place { key: key.into(), channel: self.channel(key).into(), wake, pushed });
        lock(&self.waits).places.insert(hold, place.clone());
        Expected { shared: self.clone(), hold, place }
    }
    /// Who listens on this channel; true: nobody did, and this caller has to.
    pub(crate) fn ears(&self, channel: &Arc<str>) -> (Arc<Ears>, bool) {
        let mut waits = lock(&self.waits);
        if let Some(ears) = waits.listening.get(channel) {
            return (ears.clone(), false);
        }
        waits.denied = None;
        let ears = Arc::<Ears>::default();
        waits.listening.insert(channel.clone(), ears.clone());
        (ears, true)
    }
    /// What is told there is heard.
    pub(crate) fn hears(&self, channel: &str) -> bool {
        lock(&self.waits).listening.get(channel).is_some_and(|ears| *ears.hears.borrow())
    }
    /// A push did not come that should have.
    pub(crate) fn deaf(&self, channel: &str) {
        if let Some(ears) = lock(&self.waits).listening.get(channel) {
            ears.anew.notify_one();
        }
    }
    /// A connection broke on which some may have listened.
    pub(crate) fn all_deaf(&self) {
        lock(&self.waits).listening.values().for_each(|ears| ears.anew.notify_one());
    }
    /// We may not listen. Waiting without it would be a secret to those who wonder why it takes so long.
    pub(crate) fn deny(&self, fault: Fault) {
        let mut waits = lock(&self.waits);
        // Whoever waits for it waits no longer.
        for (_, ears) in waits.listening.drain() {
            ears.hears.send_replace(true);
        }
        waits.denied = Some(fault);
        waits.places.values().for_each(|place| place.wake.notify_one());
    }
    pub(crate) fn denied(&self) -> Option<Fault> {
        lock(&self.waits).denied.clone()
    }
    /// Nobody waits now.
    pub(crate) fn is_idle(&self, channel: &str) -> bool {
        lock(&self.waits).is_idle(channel)
    }
    /// Nobody waits: the listener may go. Whoever waits next starts another one.
    pub(crate) fn may_rest(&self, channel: &str) -> bool {
        let mut waits = lock(&self.waits);
        if waits.is_idle(channel) {
            waits.listening.remove(channel);
        }
        !waits.listening.contains_key(channel)
    }
    /// The listeners are gone, whatever the reason.
    pub(crate) fn nobody_listens(&self) {
        lock(&self.waits).listening.clear();
    }
    /// What was told while nobody listened was told to nobody (SAFETY H1).
    pub(crate) fn wake(&self, channel: &str) {
        let waits = lock(&self.waits);
        waits.places.values().filter(|place| &*place.channel == channel).for_each(|place| place.wake.notify_one());
    }
    /// Another answer told of a grant before the push did. *Invariant:* called before the attempt is not expected any more. Given back
    /// it would take the record from a release that is on its way, which would be told that nothing was held.
    pub(crate) fn granted_before_its_push(&self, hold: HoldId) {
        let (mut waits, now) = (lock(&self.waits), BootClock.now());
        while waits.granted.front().is_some_and(|(until, _)| *until <= now) {
            waits.granted.pop_front();
        }
        waits.granted.push_back((now + LATE_PUSH, hold));
    }
    /// A push. `Some`: it is for an attempt that nobody has any more, and is to be given back (SAFETY G2).
    pub(crate) fn heard(&self, message: &str) -> Option<(HoldId, String)> {
        let (hold, key) = message.split_once(' ')?;
        let hold: HoldId = hold.parse().ok()?;
        let mut waits = lock(&self.waits);
        if let Some(place) = waits.places.get(&hold) {
            place.pushed.store(true, Relaxed);
            place.wake.notify_one();
            return None;
        }
        if let Some(at) = waits.granted.iter().position(|(_, granted)| *granted == hold) {
            waits.granted.remove(at);
            return None;
        }
        drop(waits);
        (!lock(&self.held).all.contains_key(&hold)).then(|| (hold, key.to_owned()))
    }

    /// *Invariant:* called before the attempt is not expected any more, or a late push would give the hold back.
    pub(crate) fn granted(&self, request: &Request, token: Token, sent_at: Moment, now: i64) -> Grant {
        self.keep(request, token, sent_at, now, None)
    }
    /// The same, of a key that says this; `None`: that is no token.
    pub(crate) fn granted_as(
        &self,
        request: &Request,
        number: i64,
        sent_at: Moment,
        now: i64,
        value: Arc<str>,
    ) -> Option<Grant> {
        Some(self.keep(request, Token::new(number)?, sent_at, now, Some(value)))
    }
    fn keep(&self, request: &Request, token: Token, sent_at: Moment, now: i64, value: Option<Arc<str>>) -> Grant {
        let (name, hold) = (request.name().clone(), request.hold());
        let mut held = lock(&self.held);
        let ttl = if matches!(self.records, Records::Redisson) { redisson::lease(request) } else { request.ttl() };
        let (claim, until) = (request.claim(), sent_at + ttl);
        held.put(hold, Own { name: name.clone(), token, claim, value, until });
        if self.pushed {
            held.new.push_back((BootClock.now() + SETTLED, hold));
        }
        let first = held.new.len() == 1;
        drop(held);
        if first {
            self.fresh.notify_one();
        }
        let lease = Lease::Own { sent_at };
        Grant { name, claim, hold, token, ttl, lease, server_micros: now, place: None }
    }
    /// These have their full length again.
    pub(crate) fn renewed<'a>(&self, grants: impl Iterator<Item = &'a Grant>, sent_at: Moment) {
        let mut held = lock(&self.held);
        for grant in grants {
            if let Some(own) = held.all.get_mut(&grant.hold) {
                own.until = own.until.max(sent_at + grant.ttl);
            }
        }
    }
    /// A command of the attempt broke off.
    pub(crate) fn haunt(&self, hold: HoldId, by: Haunt) {
        let mut held = lock(&self.held);
        let known = held.haunted.entry(hold).or_insert(by);
        *known = Haunt { until: by.until.max(known.until), over: by.over.max(known.over) };
    }
    /// What may still come of it.
    pub(crate) fn drop_hold(&self, hold: HoldId) -> Option<Haunt> {
        let mut held = lock(&self.held);
        held.all.remove(&hold);
        if held.haunted.is_empty() { None } else { held.haunted.remove(&hold) }
    }
    pub(crate) fn own(&self, hold: HoldId) -> Option<Own> {
        lock(&self.held).all.get(&hold).cloned()
    }
    pub(crate) fn holds_any(&self) -> bool {
        !lock(&self.held).all.is_empty()
    }
    /// When the next new hold is to be looked at.
    pub(crate) fn next_new(&self) -> Option<Moment> {
        lock(&self.held).new.front().map(|(at, _)| *at)
    }
    /// Those whose time has come and who are still held; at most so many.
    pub(crate) fn settled(&self, now: Moment, most: usize) -> Vec<(HoldId, Own)> {
        let mut held = lock(&self.held);
        let mut due = Vec::new();
        while due.len() < most && held.new.front().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, hold)) = held.new.pop_front()
                && let Some(own) = held.all.get(&hold)
            {
                due.push((hold, own.clone()));
            }
        }
        due
    }

    /// Could not be looked at: again, a little later.
    pub(crate) fn unsettle(&self, due: &[(HoldId, Own)]) {
        let (mut held, at) = (lock(&self.held), BootClock.now() + SETTLED);
        let known: HashSet<HoldId> = held.new.iter().map(|(_, hold)| *hold).collect();
        held.new.extend(due.iter().filter(|(hold, _)| !known.contains(hold)).map(|(hold, _)| (at, *hold)));
        drop(held);
        self.fresh.notify_one();
    }

    /// Somebody wants to hear of changes of this key.
    pub(crate) fn observe(&self, key: &str) -> Arc<Notify> {
        lock(&self.observed).entry(key.to_owned()).or_default().clone()
    }
    /// And does not any more.
    pub(crate) fn forget(&self, key: &str, changed: Arc<Notify>) {
        let mut observed = lock(&self.observed);
        drop(changed);
        if observed.get(key).is_some_and(|changed| Arc::strong_count(changed) == 1) {
            observed.remove(key);
        }
    }
    /// This key has changed; `None`: perhaps all have.
    pub(crate) fn changed(&self, key: Option<&str>) {
        let observed = lock(&self.observed);
        match key {
            Some(key) => observed.get(key).into_iter().for_each(|changed| changed.notify_waiters()),
            None => observed.values().for_each(|changed| changed.notify_waiters()),
        }
    }

    /// A queued attempt's sign of life, and the confirm of a hand-over.
    pub(crate) async fn refresh(&self, request: &Request, seen: Seen) -> Result<(Reply, Moment), Fault> {
        let conn = self.link.at(&self.keys.key(request.name())).await?;
        self.link.turned(conn, |conn| async move { self.confirm(&conn, request, seen).await }).await
    }
    async fn confirm(&self, conn: &Conn, request: &Request, seen: Seen) -> Result<(Reply, Moment), Fault> {
        if self.are_shared() {
            return self.put_off(conn, request).await;
        }
        let sent_at = BootClock.now();
        let (hold, ttl) = (request.hold().to_string(), micros(request.ttl()).to_string());
        let (end, rest, floor) = (seen.end.to_string(), micros(seen.rest()).to_string(), self.link.floor(None));
        let args = [&*hold, &ttl, &end, &rest, &floor].map(str::as_bytes);
        Ok((self.link.run(conn, &REFRESH, &self.keys.key(request.name()), &args).await?, sent_at))
    }
    /// A grant counts when as many replicas have it as were asked for; it has its full ttl again from then on. `sent_at`: of the grant.
    ///
    /// By a task: it ends whether or not its caller is polled, so its connection is not kept from others (SAFETY E5).
    pub(crate) async fn acknowledged(self: &Arc<Self>, request: &Request, sent_at: Moment) -> Result<Moment, Fault> {
        if self.link.replicas.is_none() {
            return Ok(sent_at);
        }
        let (shared, request) = (self.clone(), request.clone());
        let task = tokio::spawn(async move {
            let Some(replicas) = &shared.link.replicas else { return Ok(sent_at) };
            let key = shared.keys.key(request.name());
            let ask = |conn: Conn| {
                let (shared, request) = (&shared, &request);
                async move { shared.confirm(&conn, request, Seen::now(0, Duration::ZERO)).await }
            };
            match shared.link.acknowledged(replicas, &key, request.ttl(), ask).await? {
                (Reply::Done { .. }, sent_at) => Ok(sent_at),
                // It was taken away meanwhile, or went with a server.
                _ => Err(Fault::TooFew { had: 0, wanted: replicas.wanted }),
            }
        });
        task.await.unwrap_or(Err(Fault::Closed))
    }
    /// Ends a hold, or with `token: None` a place in the queue, too.
    pub(crate) async fn leave(&self, key: &str, hold: HoldId, token: Option<Token>) -> Result<Reply, Fault> {
        if self.are_shared() {
            let left = Box::pin(self.give_back(key, hold, token, None)).await?;
            return Ok(match left {
                Ok(()) => Reply::Done { number: 0, now: 0, ago: Duration::ZERO },
                Err(holder) => Reply::Unknown { holder: holder.map(Box::new) },
            });
        }
        let (hold, token) = (&*hold.to_string(), &*token.map_or_else(String::new, |token| token.to_string()));
        let ask = |conn: Conn| async move {
            let limit = conn.server.patience().min(LEAVE);
            let floor = self.link.floor(None);
            let args = [hold, token, &floor].map(str::as_bytes);
            self.link.run_within(&conn, limit, &RELEASE, key, &args).await
        };
        self.link.turned(self.link.at(key).await?, ask).await
    }
    /// One lock, as it is now. It makes no record.
    pub(crate) async fn look(&self, name: &Name) -> Result<Status, Fault> {
        let key = &*self.keys.key(name);
        self.link.again(key, |conn| async move { self.status(&conn, name, key).await }).await
    }
    /// The same, of a server that is there now.
    pub(crate) async fn glance(&self, name: &Name) -> Result<Status, Fault> {
        let key = &*self.keys.key(name);
        self.link.turned(self.link.at(key).await?, |conn| async move { self.status(&conn, name, key).await }).await
    }
    async fn status(&self, conn: &Conn, name: &Name, key: &str) -> Result<Status, Fault> {
        match self.records {
            Records::Native => {}
            Records::Plain(_) => return self.sight(conn, name, key).await,
            Records::Redisson => return self.holders(conn, name, key).await,
        }
        let mut all = redis::pipe();
        all.cmd("HGETALL").arg(key).cmd("TIME");
        let answers = self.link.commands(conn, &all).await?;
        let [fields, time] = answers.as_slice() else { return Err(Fault::Answer) };
        if let Value::ServerError(e) = fields {
            return Err(Fault::Redis(e.clone().into()));
        }
        status(name, fields, clock(time).ok_or(Fault::Answer)?).ok_or(Fault::Answer)
    }
    /// Which of these are not written any more, or not as ours; and those of which nothing is known. It ends with a read of each key,
    /// so a connection that tracks keys goes on to hear of them. A record that somebody lets end too early is put right (SAFETY H3).
    pub(crate) async fn missing(&self, holds: &[(HoldId, Own)]) -> (Vec<HoldId>, Vec<(HoldId, Own)>) {
        match self.records {
            Records::Native => {}
            Records::Plain(_) => return self.gone(holds).await,
            Records::Redisson => return self.without_field(holds).await,
        }
        let keys: Vec<String> = holds.iter().map(|(_, own)| self.keys.key(&own.name)).collect();
        let key = |at: usize| keys.get(at).map_or("", String::as_str);
        let ends = self.link.scattered(MAX_TTL, &keys, |at| redis::cmd("PTTL").arg(key(at)).to_owned()).await;
        let early = |end: &Result<Value, Fault>| {
            end.as_ref().is_ok_and(|end| number(end).is_some_and(|ms| (0..self.link.least_kept()).contains(&ms)))
        };
        let early = holds.iter().zip(&ends).filter(|(_, end)| early(end)).map(|((hold, own), _)| Kept {
            name: &own.name,
            hold: *hold,
            token: own.token,
            claim: own.claim,
            ttl: Duration::ZERO,
        });
        let early: Vec<_> = early.collect();
        if !early.is_empty() {
            // Where it fails the reads fail, too.
            drop(self.renew(MAX_TTL, &early).await);
        }
        let read = |at: usize| {
            let hold = holds.get(at).map_or_else(String::new, |(hold, _)| format!("h{hold}"));
            redis::cmd("HMGET").arg(key(at)).arg("o").arg(hold).to_owned()
        };
        let answers = self.link.scattered(MAX_TTL, &keys, read).await;
        let is_ours = |field: &Value, hold: HoldId, own: &Own| {
            text(field).and_then(Held::parse).is_some_and(|held| {
                held.hold.parse().is_ok_and(|known: HoldId| known == hold) && held.token.parse() == Ok(own.token.get())
            })
        };
        let (mut missing, mut unknown) = (Vec::new(), Vec::new());
        for ((hold, own), answer) in holds.iter().zip(&answers) {
            match answer {
                Ok(Value::Array(fields)) if fields.iter().any(|field| is_ours(field, *hold, own)) => {}
                Ok(Value::Array(_)) => missing.push(*hold),
                // A key of another type is not ours any more. Any other refusal says nothing of the hold.
                Err(Fault::Redis(e)) if e.code() == Some("WRONGTYPE") => missing.push(*hold),
                Ok(_) | Err(_) => unknown.push((*hold, own.clone())),
            }
        }
        (missing, unknown)
    }
}
/// As the scripts count.
pub(crate) fn micros(d: Duration) -> i64 {
    i64::try_from(d.as_micros()).unwrap_or(i64::MAX / 4)
}

#[cfg(test)]
mod tests {
    //! Planted to see it go red: a push for what was granted before given back.
    use super::*;
    use crate::config::Config;

    #[tokio::test]
    async fn a_push_is_given_back_by_nobody_but_who_gave_up() {
        let config = Config::new("h", 1);
        let shared =
            Arc::new(Shared::new(Keys::new(""), Records::Native, Link::new(&config, None).unwrap(), 7, true, false));
        let expect = |hold| shared.expect(hold, "fl:a b");
        let hold = |n: u8| HoldId::from_bytes([n; 16]);
        let push = |n: u8| shared.heard(&format!("{} fl:a b", hold(n)));
        let waits = expect(hold(1));
        assert_eq!(push(1), None);
        assert!(waits.place.pushed.load(Relaxed));
        drop(waits);
        assert_eq!(push(1), Some((hold(1), "fl:a b".to_owned())));
        // Its sign of life found it granted, and it was released before the push came.
        let waits = expect(hold(2));
        shared.granted_before_its_push(hold(2));
        drop(waits);
        assert_eq!(push(2), None);
        // Expected anew before the one before has ended.
        let (old, new) = (expect(hold(3)), expect(hold(3)));
        drop(old);
        assert_eq!(push(3), None);
        drop(new);
        assert!(push(3).is_some());
        assert_eq!(shared.heard("nonsense"), None);
    }
}
