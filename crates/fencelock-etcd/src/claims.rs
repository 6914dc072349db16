//! The transactions of one attempt: it comes, its turn comes, it goes, it is taken back.
use crate::{
    error::Fault,
    leases::Place,
    link::Conn,
    shared::{Shared, session},
    watch::Target,
    wire::{
        key::{Keys, id, take},
        pb::{Compare, KeyValue, Step, Txn, TxnDone},
        record::Record,
        txn::{
            any_under, begins, choose, created, delete, exists, first_under, get, has_value, last_before, last_under,
            modified, names_before, names_under, nested, none_before, none_under, put,
        },
    },
};
use fencelock_core::{BootClock, Busy, Claim, Clock, Grant, Holder, Kind, Lease as Validity, Request, Token};
use std::{collections::HashMap, time::Duration};

/// A hold that is still there after so long is watched, so that short ones cost nothing (SAFETY G6).
const SETTLED: Duration = Duration::from_millis(800);
/// The kinds whose keys are told apart; who takes a name looks that no other one has it (SAFETY K1).
pub(crate) const KINDS: [Kind; 4] = [Kind::Mutex, Kind::RwLock, Kind::Semaphore, Kind::Cell];

/// What became of a claim.
#[derive(Clone, Debug)]
pub(crate) enum Entered {
    /// It holds.
    Granted {
        token: i64,
        created: i64,
    },
    /// Its key is there, behind others, or beside them.
    Queued(Front),
    /// It is taken, and nothing was written.
    Busy(Busy),
    /// It fits in beside those who are there, and nothing was written: that it does is for the queue to say.
    Fits,
    /// The lease was over: nothing is left of it.
    NoLease,
    /// An undo of another attempt of this lease came between: once more, and it says what the epoch is.
    Epoch(i64),
    /// Another attempt's key lies where this one's would.
    Occupied,
    OtherKind(Kind),
    OtherCapacity(u32),
    /// A semaphore in use has lost its size, which was this one.
    Forgotten(u32),
}
/// What a waiter knows of those in front.
#[derive(Clone, Debug)]
pub(crate) struct Front {
    pub(crate) created: i64,
    /// What we wait for. None: it is to be looked.
    pub(crate) before: Vec<Target>,
    /// Of a semaphore: all that is before us.
    pub(crate) line: Option<Line>,
    /// As of this revision.
    pub(crate) revision: i64,
    /// Boxed: it would make every answer as large.
    pub(crate) busy: Box<Busy>,
}
impl Front {
    /// These keys have changed, and this one is ours. True: our turn may have come, or somebody has to look.
    ///
    /// *Invariant:* what a semaphore's waiter hears of is complete from `revision` on, so nothing is missed that it does not look for.
    pub(crate) fn is_news(&mut self, keys: &[Vec<u8>], own: &[u8]) -> bool {
        let Some(line) = self.line.as_mut().filter(|line| line.hears_all) else { return true };
        let known = keys.iter().all(|key| key.starts_with(line.room.as_bytes()) && key != own);
        for key in keys {
            line.before.remove(key);
        }
        !known || line.fits()
    }
    /// There is something to wait for.
    pub(crate) fn waits(&self) -> bool {
        !self.before.is_empty() && !self.line.as_ref().is_some_and(Line::fits)
    }
}
/// Who came before a semaphore's waiter, holders and waiters alike. Nobody comes before who is here, so it only gets shorter.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    room: String,
    claim: Claim,
    /// What they take. One that nobody can read takes all there are.
    before: HashMap<Vec<u8>, u32>,
    /// The size, as it is stored, and as we understand it.
    size: Option<Vec<u8>>,
    /// The last one before us.
    last: Option<Vec<u8>>,
    /// We are told of everybody who goes.
    pub(crate) hears_all: bool,
}
impl Line {
    fn new(room: &str, claim: Claim, before: &[KeyValue], size: Option<Vec<u8>>) -> Self {
        let of = claim.capacity().unwrap_or(0);
        let last = before.last().map(|key| key.key.clone());
        let before = before.iter().map(|key| (key.key.clone(), take(room, &key.key).unwrap_or(of))).collect();
        Self { room: room.to_owned(), claim, before, size, last, hears_all: false }
    }
    fn fits(&self) -> bool {
        let of = self.claim.capacity().unwrap_or(0);
        self.claim.fits(self.before.values().map(|take| Claim::Permits { take: *take, of }))
    }
    /// So much has to be given back before we fit in that we need not hear of each.
    fn is_far(&self) -> bool {
        /// So many permits: those who are nearer are told of everybody who goes, and ask the server nothing.
        const NEAR: u64 = 8;
        let taken: u64 = self.before.values().map(|take| u64::from(*take)).sum();
        let (take, of) = (u64::from(self.claim.take()), u64::from(self.claim.capacity().unwrap_or(0)));
        (taken + take).saturating_sub(of) > NEAR.max(take)
    }
}
/// What became of a waiter's claim that its turn has come.
#[derive(Clone, Debug)]
pub(crate) enum Confirmed {
    Granted {
        token: i64,
    },
    Waits(Front),
    /// Its key is gone, or its lease; or it wants more than there is.
    Gone,
    /// So, and its key is there.
    TooLarge,
}

impl Shared {
    /// One call: the claim of somebody new, or of one whose answer was lost. Whoever finds nobody in the way holds at once; else he
    /// is queued, if `queue`.
    ///
    /// *Invariant (SAFETY A2):* it writes only while the lease's epoch is what it was when the attempt began. Whoever takes an attempt
    /// back changes the epoch first, so a claim that arrives later writes nothing.
    pub(crate) async fn enter(&self, conn: &Conn, place: &Place, queue: bool) -> Result<Entered, Fault> {
        let Place { name, claim, lease, .. } = place;
        // Who is not polled any more leaves it so.
        self.asks(place, true);
        let shelf = if claim.capacity().is_some() { self.shelf(conn).await? } else { 0 };
        let answer = self.link.txn(conn, claim_of(&self.keys, place, queue, shelf)).await?;
        self.asks(place, false);
        let entered = self.entered(place, queue, &answer).ok_or(Fault::Answer)?;
        match &entered {
            Entered::Granted { created, .. } | Entered::Queued(Front { created, .. }) => {
                self.made(place.hold, *created);
            }
            Entered::Epoch(epoch) => self.leases().epoch(lease.id, *epoch),
            _ => {}
        }
        let size = answer.inner(0).filter(|_| claim.capacity().is_some()).and_then(|inner| inner.one(1)).flatten();
        if let Some(size) = size {
            self.keep_size(conn, name, size).await;
        }
        Ok(entered)
    }
    fn entered(&self, place: &Place, queue: bool, answer: &TxnDone) -> Option<Entered> {
        let revision = answer.revision();
        let Place { claim, spot, .. } = place;
        if answer.succeeded {
            let mut inner = answer.inner(0)?;
            if claim.capacity().is_some() {
                let size_is_known = inner.succeeded;
                inner = inner.inner(0)?;
                if !size_is_known && !inner.succeeded {
                    let size = inner.one(2)?.map(|size| parse(&size.value));
                    let used = || self.holder_of(inner.one(0)?, inner.one(1)?)?.claim.capacity();
                    return match size {
                        Some(size) => Some(Entered::OtherCapacity(size?)),
                        None => Some(Entered::Forgotten(used()?)),
                    };
                }
            }
            if inner.succeeded {
                return Some(Entered::Granted { token: revision, created: revision });
            }
            let (first, last) = (inner.ranged(0)?, inner.ranged(2)?);
            let busy = busy(self.holder_of(first.keys.first(), inner.one(1)?), first.count - 1);
            if !queue {
                let fits = claim.capacity().is_some() && Line::new(&spot.room, *claim, &last.keys, None).fits();
                return Some(if fits { Entered::Fits } else { Entered::Busy(busy) });
            }
            let (mut before, mut line) = (Vec::new(), None);
            if claim.capacity().is_some() {
                let size = answer.inner(0)?.one(1)?.map(|size| size.value.clone());
                let mut known = Line::new(&spot.room, *claim, &last.keys, size);
                // Whether the last one waits himself is not known yet.
                if !known.is_far() {
                    (before, known.hears_all) = (self.near(place), true);
                }
                line = Some(known);
            } else {
                before.extend(last.keys.first().map(|key| Target::goes(&key.key)));
            }
            return Some(Entered::Queued(Front { created: revision, before, line, revision, busy: busy.into() }));
        }
        let (epoch, own, who) = (answer.one(0)?, answer.one(1)?, answer.one(2)?);
        let Some(epoch) = epoch else { return Some(Entered::NoLease) };
        if let Some(own) = own {
            // An answer was lost.
            return Some(match who.and_then(|who| Some((who, Record::read(&who.value)?))) {
                Some((who, record)) if record.hold == place.hold => match record.holds {
                    true => Entered::Granted { token: who.modified, created: own.created },
                    false => {
                        let first = answer.ranged(3)?;
                        let busy = busy(self.holder_of(first.keys.first(), answer.one(4)?), first.count - 2);
                        let (created, before, line) = (own.created, Vec::new(), None);
                        Entered::Queued(Front { created, before, line, revision, busy: busy.into() })
                    }
                },
                _ => Entered::Occupied,
            });
        }
        let mut others = KINDS.into_iter().filter(|kind| *kind != claim.kind()).enumerate();
        let other = others.find(|(n, _)| answer.ranged(5 + n).is_some_and(|there| !there.keys.is_empty()));
        Some(other.map_or(Entered::Epoch(epoch.modified), |(_, kind)| Entered::OtherKind(kind)))
    }

    /// Whoever goes, of those who are before a semaphore's waiter; and that its size changes.
    fn near(&self, place: &Place) -> Vec<Target> {
        vec![Target::any_goes(&place.spot.room), Target::comes(&self.keys.size(&place.name))]
    }
    /// One call: whoever waited, and has nobody in the way any more, writes so; the revision of that is its token. Of a semaphore
    /// another one looks first, if what is known does not say that it fits in.
    ///
    /// *Invariant (SAFETY T3):* it is written while those who were in the way are gone, so its revision is greater than every token
    /// of theirs.
    pub(crate) async fn confirm(&self, conn: &Conn, place: &Place, front: &Front) -> Result<Confirmed, Fault> {
        if place.claim.capacity().is_some() {
            return self.confirm_permits(conn, place, front).await;
        }
        let (spot, made) = (&place.spot, front.created);
        let turned = |nobody: Compare, or_else: Vec<Step>| {
            let mut mine: Vec<_> = spot.keys.iter().map(|key| created(key, made)).collect();
            mine.extend([has_value(&spot.who, place.record(false)), nobody]);
            choose(mine, vec![put(&spot.who, place.turned(), place.lease.id)], or_else)
        };
        let in_time = turned(none_before(&spot.before, made), self.look_of(place, made));
        // Of no key at all that comparison does not hold; a reader's own is not among them.
        let claim = match place.claim {
            Claim::Read => turned(none_under(&spot.before), vec![nested(in_time)]),
            _ => in_time,
        };
        let answer = match self.link.txn(conn, claim).await {
            Err(fault) if fault.is_no_lease() => return Ok(Confirmed::Gone),
            answer => answer?,
        };
        let revision = answer.revision();
        let answer = answer.inner(0).unwrap_or(&answer);
        if answer.succeeded {
            return Ok(Confirmed::Granted { token: revision });
        }
        self.looked(place, front, answer, revision).ok_or(Fault::Answer)
    }
    /// What a waiter reads.
    fn look_of(&self, place: &Place, made: i64) -> Vec<Step> {
        let spot = &place.spot;
        vec![
            get(&spot.keys[0]),
            get(&spot.who),
            last_before(&spot.before, made),
            first_under(&spot.room),
            first_under(&self.keys.whos(&place.name)),
            // Of a writer's two somebody may have deleted one.
            get(spot.keys.last().unwrap_or(&spot.who)),
        ]
    }
    fn looked(&self, place: &Place, front: &Front, answer: &TxnDone, revision: i64) -> Option<Confirmed> {
        let made = front.created;
        if let Some(end) = ended(place, made, answer)? {
            return Some(end);
        }
        if answer.one(5)?.is_none() {
            return Some(Confirmed::Gone);
        }
        let (first, last) = (answer.ranged(3)?, answer.one(2)?.map(|key| key.key.clone()));
        // Those behind are among them.
        let ahead = front.busy.ahead.map_or(i64::MAX, i64::from).min(first.count - 2);
        let busy = busy(self.holder_of(first.keys.first(), answer.one(4)?), ahead);
        let before = last.iter().map(|key| Target::goes(key)).collect();
        Some(Confirmed::Waits(Front { created: made, before, line: None, revision, busy: busy.into() }))
    }
    /// Of a semaphore, behind one who waits himself, and far: that one's turn, or his going.
    fn far(&self, place: &Place, last: &[u8]) -> Vec<Target> {
        let size = Target::comes(&self.keys.size(&place.name));
        vec![Target::goes(last), size, Target::comes(&self.who_of(&place.name, last))]
    }
    /// One call that writes nothing: whether it waits still. Where its turn may have come, one more.
    ///
    /// *Invariant:* whoever is far looks at the one before him alone: a thousand who come together would else read a million keys, and
    /// again whenever a connection is lost.
    pub(crate) async fn stands(&self, conn: &Conn, place: &Place, front: &Front) -> Result<Confirmed, Fault> {
        if let Some(line) = front.line.as_ref().filter(|line| !line.hears_all)
            && let Some(last) = &line.last
        {
            let who = self.who_of(&place.name, last);
            let look = vec![get(&place.spot.keys[0]), get(self.keys.size(&place.name)), get(who), get(last)];
            let answer = self.link.txn(conn, choose(Vec::new(), look, Vec::new())).await?;
            let one = |n| answer.one(n).ok_or(Fault::Answer);
            let waits = one(2)?.and_then(|who| Record::read(&who.value)).is_some_and(|record| !record.holds);
            let same = one(0)?.is_some_and(|own| own.created == front.created)
                && one(1)?.map(|size| &size.value) == line.size.as_ref();
            if same && waits && one(3)?.is_some() {
                let before = self.far(place, last);
                return Ok(Confirmed::Waits(Front { before, revision: answer.revision(), ..front.clone() }));
            }
        }
        if place.claim.capacity().is_none() {
            let look = choose(Vec::new(), self.look_of(place, front.created), Vec::new());
            let answer = self.link.txn(conn, look).await?;
            match self.looked(place, front, &answer, answer.revision()).ok_or(Fault::Answer)? {
                Confirmed::Waits(now) if now.before.is_empty() => {}
                stands => return Ok(stands),
            }
        }
        self.confirm(conn, place, front).await
    }
    /// Of a semaphore: it fits in when those before it, holders and waiters alike, leave enough.
    ///
    /// *Invariant (SAFETY K4):* what those before take only shrinks: who fitted in when it looked does so when it writes, unless the
    /// size has changed in between, which is compared.
    async fn confirm_permits(&self, conn: &Conn, place: &Place, front: &Front) -> Result<Confirmed, Fault> {
        let (spot, made, mut known) = (&place.spot, front.created, front.line.clone());
        let (take, size_key) = (place.claim.take(), self.keys.size(&place.name));
        loop {
            if let Some(line) = known.as_ref().filter(|line| line.fits()) {
                let same = match &line.size {
                    Some(size) => has_value(&size_key, size.clone()),
                    None => created(&size_key, 0),
                };
                let asks = vec![created(&spot.keys[0], made), has_value(&spot.who, place.record(false)), same];
                let turned = vec![put(&spot.who, place.turned(), place.lease.id)];
                let answer = match self.link.txn(conn, choose(asks, turned, Vec::new())).await {
                    Err(fault) if fault.is_no_lease() => return Ok(Confirmed::Gone),
                    answer => answer?,
                };
                if answer.succeeded {
                    return Ok(Confirmed::Granted { token: answer.revision() });
                }
            }
            let last = known.and_then(|line| line.last);
            let mut look = vec![
                get(&spot.keys[0]),
                get(&spot.who),
                names_before(&spot.room, made),
                get(&size_key),
                first_under(&self.keys.whos(&place.name)),
            ];
            look.extend(last.as_deref().map(|key| get(self.who_of(&place.name, key))));
            let answer = self.link.txn(conn, choose(Vec::new(), look, Vec::new())).await?;
            if let Some(end) = ended(place, made, &answer).ok_or(Fault::Answer)? {
                return Ok(end);
            }
            let parts = || Some((answer.ranged(2)?, answer.one(3)?, answer.one(4)?));
            let (before, size, who) = parts().ok_or(Fault::Answer)?;
            let of = match size {
                Some(size) => parse(&size.value).ok_or(Fault::Answer)?,
                // Forgotten: what it was is what we know.
                None => place.claim.capacity().unwrap_or(take),
            };
            if take > of {
                return Ok(Confirmed::TooLarge);
            }
            if let Some(size) = size {
                self.keep_size(conn, &place.name, size).await;
            }
            let size = size.map(|size| size.value.clone());
            let mut line = Line::new(&spot.room, Claim::Permits { take, of }, &before.keys, size);
            line.hears_all = true;
            // Behind one who waits himself, and far, only his turn or his going is news.
            let mut targets = self.near(place);
            if !line.fits() && line.is_far() && line.last.is_some() {
                if line.last != last {
                    known = Some(line);
                    continue;
                }
                let record = answer.one(5).flatten().and_then(|who| Record::read(&who.value));
                if let Some(key) = line.last.as_ref().filter(|_| record.is_some_and(|record| !record.holds)) {
                    targets = self.far(place, key);
                    line.hears_all = false;
                }
            }
            if line.fits() {
                known = Some(line);
                continue;
            }
            let ahead = i64::try_from(before.keys.len()).unwrap_or(i64::MAX) - 1;
            let busy = busy(self.holder_of(before.keys.first(), who), ahead);
            let (before, revision) = (targets, answer.revision());
            return Ok(Confirmed::Waits(Front {
                created: made,
                before,
                line: Some(line),
                revision,
                busy: busy.into(),
            }));
        }
    }
    /// One call: ends this hold, and no other; else who has the lock.
    pub(crate) async fn leave(&self, conn: &Conn, place: &Place) -> Result<Result<(), Option<Holder>>, Fault> {
        let look = vec![first_under(&place.spot.room), first_under(&self.keys.whos(&place.name))];
        // A claim of it that arrives late would write it again (SAFETY A2).
        let epoch = || put(&self.keys.epoch(place.lease.id), place.hold.to_string().into_bytes(), place.lease.id);
        let and = if self.is_haunted(place) { vec![epoch()] } else { Vec::new() };
        let answer = self.link.txn(conn, leave_of(place, look, &and)).await?;
        if answer.succeeded {
            return Ok(Ok(()));
        }
        let (first, who) = (answer.one(0).ok_or(Fault::Answer)?, answer.one(1).ok_or(Fault::Answer)?);
        Ok(Err(self.holder_of(first, who)))
    }
    /// One call: afterwards neither a key of this attempt is there nor can one come, whatever is still on its way.
    pub(crate) async fn undo(&self, conn: &Conn, place: &Place) -> Result<(), Fault> {
        let Place { spot, lease, hold, .. } = place;
        let (epoch, hold) = (self.keys.epoch(lease.id), hold.to_string());
        let mine = nested(choose(begins(&spot.who, &hold).to_vec(), place.gone(), Vec::new()));
        let (mut steps, changed) = (Vec::new(), self.may_come(place));
        // Every claim of this lease that is on its way has to be sent again then.
        if changed {
            steps.push(put(&epoch, hold.into_bytes(), lease.id));
        }
        match place.created {
            // Named by its hold id: nobody else's.
            _ if place.claim != Claim::Mutex => steps.extend(place.gone()),
            0 => steps.push(mine),
            made => steps.push(nested(choose(vec![created(&spot.keys[0], made)], place.gone(), vec![mine]))),
        }
        let answer = match self.link.txn(conn, choose(vec![exists(&epoch)], steps, Vec::new())).await {
            // It ended while the call was on its way.
            Err(fault) if fault.is_no_lease() => return Ok(()),
            answer => answer?,
        };
        if answer.succeeded && changed {
            self.leases().epoch(lease.id, answer.revision());
        }
        Ok(())
    }
    /// One call: a writer becomes a reader, with nobody in between (SAFETY E1): its reader's key has been there from the beginning.
    /// True: it has, or had before.
    pub(crate) async fn downgrade(&self, conn: &Conn, place: &Place) -> Result<Result<(), Option<Holder>>, Fault> {
        let spot = &place.spot;
        let gone = spot.keys.iter().skip(1).map(|key| delete(key)).collect();
        let look = vec![first_under(&spot.room), first_under(&self.keys.whos(&place.name))];
        let answer = self.link.txn(conn, choose(vec![created(&spot.keys[0], place.created)], gone, look)).await?;
        if answer.succeeded {
            return Ok(Ok(()));
        }
        let (first, who) = (answer.one(0).ok_or(Fault::Answer)?, answer.one(1).ok_or(Fault::Answer)?);
        Ok(Err(self.holder_of(first, who)))
    }

    pub(crate) fn granted(&self, request: &Request, place: &Place, token: i64) -> Option<Grant> {
        self.holds(place.hold, token, BootClock.now() + SETTLED);
        Some(Grant {
            name: request.name().clone(),
            claim: request.claim(),
            hold: request.hold(),
            token: Token::new(token)?,
            ttl: place.lease.term.ttl,
            lease: Validity::Session(session(place.lease.id)),
            server_micros: 0,
            place: Some(place.spot.keys[0].as_str().into()),
        })
    }
}
/// The transaction of somebody new. A semaphore's size is put on this shelf.
pub(crate) fn claim_of(keys: &Keys, place: &Place, queue: bool, shelf: i64) -> Txn {
    let Place { name, claim, spot, lease, .. } = place;
    let (epoch, whos) = (keys.epoch(lease.id), keys.whos(name));
    let look = [first_under(&spot.room), first_under(&whos)];
    let last = match claim {
        Claim::Permits { .. } => names_under(&spot.room),
        _ => last_under(&spot.before),
    };
    // The reads come before the writes, so they tell of others only.
    let queued = if queue { place.written(false) } else { Vec::new() };
    let behind = look.iter().cloned().chain([last]).chain(queued).collect();
    let then = match claim {
        Claim::Permits { of, .. } => {
            let size = keys.size(name);
            let of = of.to_string().into_bytes();
            let held = nested(choose(vec![none_under(&spot.room)], place.written(true), behind));
            // The first one stores it (SAFETY K4).
            let stored = put(&size, of.clone(), shelf);
            let new = choose(
                vec![created(&size, 0), none_under(&spot.room)],
                place.written(true).into_iter().chain([stored]).collect(),
                look.iter().cloned().chain([get(&size)]).collect(),
            );
            nested(choose(vec![has_value(&size, of)], vec![held, get(&size)], vec![nested(new)]))
        }
        _ => nested(choose(vec![none_under(&spot.before)], place.written(true), behind)),
    };
    let others = KINDS.into_iter().filter(|kind| *kind != claim.kind());
    let mut asks = vec![modified(&epoch, lease.epoch), created(&spot.keys[0], 0)];
    asks.extend(others.clone().map(|kind| none_under(&keys.room(kind, name))));
    let mut or_else = vec![get(&epoch), get(&spot.keys[0]), get(&spot.who), look[0].clone(), look[1].clone()];
    or_else.extend(others.map(|kind| any_under(&keys.room(kind, name))));
    choose(asks, vec![then], or_else)
}
/// The transaction of one who goes: these steps belong to it, whether it was there or not.
pub(crate) fn leave_of(place: &Place, look: Vec<Step>, and: &[Step]) -> Txn {
    let gone = place.gone().into_iter().chain(and.iter().cloned()).collect();
    choose(
        vec![created(&place.spot.keys[0], place.created)],
        gone,
        look.into_iter().chain(and.iter().cloned()).collect(),
    )
}
impl Place {
    /// What it writes when it comes.
    pub(crate) fn written(&self, holds: bool) -> Vec<Step> {
        let own = self.spot.keys.iter().map(|key| put(key, self.note.as_bytes().to_vec(), self.lease.id));
        own.chain([put(&self.spot.who, self.record(holds), self.lease.id)]).collect()
    }
    fn record(&self, holds: bool) -> Vec<u8> {
        Record { holds, ..self.who.clone() }.write()
    }
    /// Its turn has come now.
    fn turned(&self) -> Vec<u8> {
        Record { holds: true, since: crate::wire::record::wall_micros(), ..self.who.clone() }.write()
    }
    fn gone(&self) -> Vec<Step> {
        self.spot.keys.iter().chain([&self.spot.who]).map(|key| delete(key)).collect()
    }
}
/// What the first two reads say of a waiter that waits no more; inner `None`: it waits.
fn ended(place: &Place, made: i64, answer: &TxnDone) -> Option<Option<Confirmed>> {
    let (own, who) = (answer.one(0)?, answer.one(1)?);
    let record = who.and_then(|who| Some((who.modified, Record::read(&who.value)?)));
    Some(match record.filter(|(_, record)| record.hold == place.hold) {
        _ if own.is_none_or(|own| own.created != made) => Some(Confirmed::Gone),
        None => Some(Confirmed::Gone),
        // An answer was lost.
        Some((token, record)) if record.holds => Some(Confirmed::Granted { token }),
        Some(_) => None,
    })
}
fn busy(holder: Option<Holder>, ahead: i64) -> Busy {
    Busy::new(holder, u32::try_from(ahead.max(0)).ok())
}
pub(crate) fn parse(size: &[u8]) -> Option<u32> {
    std::str::from_utf8(size).ok()?.parse().ok()
}
/// The two keys are of one contender.
pub(crate) fn is_of(who: &KeyValue, key: &KeyValue) -> bool {
    id(&who.key) == id(&key.key)
}
