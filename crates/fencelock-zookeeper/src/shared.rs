//! What callers and the engine's own background share: where each attempt is written.
use crate::{
    config::Config,
    error::Fault,
    link::{Asked, Link, PATIENCE, Session},
    wire::{
        node::{Paths, Role},
        op::{Acl, Mode, Op, code},
        record::{Record, wall_millis},
    },
};
use fencelock_core::{BootClock, Claim, Clock, EngineId, Event, Grant, HoldId, Lease, Moment, Name, Request, Token};
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};
use tokio::sync::Notify;

/// So long a hold is left alone before it is watched: most are given back before.
const SETTLED: Duration = Duration::from_millis(900);

/// Where an attempt is, or will be, written.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) hold: HoldId,
    pub(crate) name: Name,
    pub(crate) claim: Claim,
    /// What came of it; a stop of it ends all that it may send.
    request: Request,
    /// Its nodes go with it.
    pub(crate) session: Session,
    /// Of the name.
    pub(crate) path: String,
    /// What it lies in: the name's own node, or its semaphore's room for those who wait.
    pub(crate) room: String,
    pub(crate) record: Record,
    /// Its place in the queue, or what it holds; a permit's has left the queue. `None`: none, as far as is known.
    pub(crate) node: Option<String>,
    /// What it holds, of a semaphore.
    pub(crate) permits: Vec<String>,
    /// A command that makes a node was sent, and nobody knows what became of it.
    pub(crate) open: bool,
    /// The transaction that made it.
    pub(crate) made: i64,
    /// 0: not granted.
    pub(crate) token: i64,
    pub(crate) since: Moment,
    /// It is given back.
    pub(crate) leaving: bool,
    /// That was sent, and not answered.
    pub(crate) unsure: bool,
    /// So long after its grant it is not held any more, whatever its holder does (SAFETY G5).
    pub(crate) most: Option<Duration>,
    /// So long it is not free.
    pub(crate) at_least: Duration,
}
impl Place {
    pub(crate) fn role(&self) -> Role {
        Role::of(self.claim)
    }
    /// When it was granted, by the wall clock, in ms.
    pub(crate) fn held_since(&self) -> u64 {
        let held = self.since.until(BootClock.now()).as_millis();
        wall_millis().saturating_sub(u64::try_from(held).unwrap_or(0))
    }
    /// All that it has.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &String> {
        self.node.iter().chain(&self.permits)
    }
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) paths: Paths,
    pub(crate) link: Arc<Link>,
    acl: Arc<[Acl]>,
    pub(crate) id: OnceLock<EngineId>,
    /// Somebody's word in a hold's node is heeded.
    pub(crate) revocable: bool,
    places: Mutex<HashMap<HoldId, Place>>,
    /// Writes of cells that were sent, and the session that says whether they had their effect.
    pub(crate) writes: Mutex<HashMap<HoldId, Session>>,
    /// Not watched yet, in the order of their grants.
    new: Mutex<VecDeque<(Moment, HoldId)>>,
    /// There is a hold to be watched.
    pub(crate) settles: Notify,
}
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn new(config: &Config, link: Arc<Link>) -> fencelock_core::Result<Self> {
        let (paths, acl) = (Paths::new(config.base(), config.dialect), config.acls()?.into());
        let (places, writes, new) = Default::default();
        let (id, revocable, settles) = (OnceLock::new(), config.revocable, Notify::new());
        Ok(Self { paths, link, acl, id, revocable, places, writes, new, settles })
    }
    /// *Invariant (SAFETY A3):* before its first command is sent, so a withdrawal finds it.
    pub(crate) fn place(&self, request: &Request, session: Session) -> Place {
        let path = self.paths.of(request.name());
        let room = match request.claim() {
            Claim::Permits { .. } => self.paths.queue(&path),
            _ => path.clone(),
        };
        let place = Place {
            hold: request.hold(),
            name: request.name().clone(),
            claim: request.claim(),
            request: request.clone(),
            session,
            path,
            room,
            record: Record::new(request.claim(), request.note(), request.ttl()),
            node: None,
            permits: Vec::new(),
            open: false,
            made: 0,
            token: 0,
            since: BootClock.now(),
            leaving: false,
            unsure: false,
            most: request.max_hold().map(|most| most + request.ttl()),
            at_least: request.at_least(),
        };
        let mut places = lock(&self.places);
        places.insert(place.hold, place.clone());
        self.link.set_places(places.len());
        drop(places);
        place
    }
    /// Sends what makes a node of it, and what is asked with it. `None`: nobody wants it any more, and it is not sent.
    ///
    /// *Invariant (SAFETY A2, A3):* whoever takes it back looks into the table first, and does so after the stop. Under the table's mutex
    /// either he finds it `open`, and the command is on its way before his own; or the stop is seen here.
    pub(crate) fn send<const N: usize>(&self, place: &mut Place, ops: [Op; N]) -> Option<[Asked; N]> {
        let mut places = lock(&self.places);
        let known = places.get_mut(&place.hold)?;
        place.request.open(BootClock.now(), PATIENCE)?;
        place.open = true;
        known.clone_from(place);
        Some(self.link.ask_all(place.session, ops))
    }
    /// Sends what changes the node of a hold. `None`: it is being given back, and it is not sent.
    ///
    /// *Invariant (SAFETY A3):* until it is answered nobody knows which node is there, so whoever gives it back looks. Under the table's
    /// mutex either he finds it `open`, or we find it `leaving`.
    pub(crate) fn send_of(&self, place: &Place, op: Op) -> Option<Asked> {
        let mut places = lock(&self.places);
        let known = places.get_mut(&place.hold).filter(|known| !known.leaving)?;
        known.open = true;
        Some(self.link.ask(place.session, op))
    }
    /// It is given back from now on: what it has, as far as is known.
    pub(crate) fn leaving(&self, hold: HoldId) -> Option<Place> {
        let mut places = lock(&self.places);
        let known = places.get_mut(&hold)?;
        known.leaving = true;
        Some(known.clone())
    }
    pub(crate) fn found(&self, hold: HoldId) -> Option<Place> {
        lock(&self.places).get(&hold).cloned()
    }
    /// Where this hold is written, if it is ours and has this token.
    pub(crate) fn held(&self, grant: &Grant) -> Option<Place> {
        self.found(grant.hold).filter(|place| place.token == grant.token.get())
    }
    pub(crate) fn change(&self, hold: HoldId, change: impl FnOnce(&mut Place)) {
        if let Some(place) = lock(&self.places).get_mut(&hold) {
            change(place);
        }
    }
    /// What is known of it, for those who come after us.
    pub(crate) fn keep(&self, place: &Place) {
        self.change(place.hold, |known| known.clone_from(place));
    }
    /// Its nodes are known to be gone.
    pub(crate) fn forget(&self, hold: HoldId) {
        let mut places = lock(&self.places);
        places.remove(&hold);
        self.link.set_places(places.len());
    }
    /// All other sessions are over, and what lay there by them.
    pub(crate) fn only(&self, session: Session) {
        let mut places = lock(&self.places);
        places.retain(|_, place| place.session == session);
        self.link.set_places(places.len());
    }
    /// Somebody has asked that his lock be not free before its time.
    pub(crate) fn holds_on(&self) -> bool {
        let now = BootClock.now();
        lock(&self.places).values().any(|place| place.token != 0 && place.since + place.at_least > now)
    }
    /// It holds, with this token.
    pub(crate) fn granted(&self, place: &mut Place, token: i64) -> Result<Grant, Fault> {
        (place.token, place.since) = (token, BootClock.now());
        self.keep(place);
        let mut new = lock(&self.new);
        new.push_back((place.since + SETTLED, place.hold));
        if new.len() == 1 {
            self.settles.notify_one();
        }
        drop(new);
        let node = place.nodes().next().map(|node| node.as_str().into());
        Ok(Grant {
            name: place.name.clone(),
            claim: place.claim,
            hold: place.hold,
            token: Token::new(token).ok_or(Fault::Answer)?,
            ttl: place.record.ttl,
            // Heartbeats of the session are reported before anybody can be granted anything in it (SAFETY G1).
            lease: Lease::Session(place.session.id()),
            server_micros: 0,
            place: node,
        })
    }
    /// When the next holds are old enough to be watched: those of a moment together.
    pub(crate) fn next_settled(&self) -> Option<Moment> {
        const TOGETHER: Duration = Duration::from_millis(50);
        lock(&self.new).front().map(|(at, _)| *at + TOGETHER)
    }
    /// Those that are held still.
    pub(crate) fn settled(&self, now: Moment) -> Vec<Place> {
        let mut new = lock(&self.new);
        let due = new.iter().take_while(|(at, _)| *at <= now).count();
        new.drain(..due).filter_map(|(_, hold)| self.found(hold)).collect()
    }
    pub(crate) fn report(&self, event: Event) {
        self.link.report(event);
    }

    pub(crate) fn create(&self, path: String, data: Vec<u8>, mode: Mode) -> Op {
        Op::Create { path, data, mode, acl: self.acl.clone() }
    }
    /// A node that goes when it has been used and is not any more, and those above it. kazoo takes them for granted: for its dialect
    /// they stay.
    pub(crate) async fn make_parent(&self, path: &str, lasting: bool) -> Result<(), Fault> {
        let mut mode = if lasting { Mode::Persistent } else { Mode::Container };
        let mut at = path;
        let mut above = Vec::new();
        let mut made;
        loop {
            match self.link.look(self.create(at.to_owned(), Vec::new(), mode)).created().await {
                Ok(_) => made = true,
                Err(fault) if fault.is(code::NODE_EXISTS) => made = false,
                // Before 3.5.
                Err(fault) if fault.is(code::UNIMPLEMENTED) && mode == Mode::Container => {
                    mode = Mode::Persistent;
                    continue;
                }
                Err(fault) if fault.is_no_node() => match at.rsplit_once('/') {
                    Some((parent, _)) if !parent.is_empty() => {
                        above.push(at);
                        at = parent;
                        continue;
                    }
                    _ => return Err(fault),
                },
                Err(fault) => return Err(fault),
            }
            match above.pop() {
                Some(next) => at = next,
                None => break,
            }
        }
        if made && mode == Mode::Container {
            // One that never had a child is never removed.
            let used = format!("{path}/%");
            let ops =
                vec![self.create(used.clone(), Vec::new(), Mode::Ephemeral), Op::Delete { path: used, version: -1 }];
            let _ = self.link.look(Op::Multi(ops)).all().await?;
        }
        Ok(())
    }
    pub(crate) async fn make_room(&self, path: &str) -> Result<(), Fault> {
        self.make_parent(path, self.paths.queues_apart()).await
    }
}
