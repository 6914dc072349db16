//! What is seen of a lock: who holds it, who waits, and what somebody else may do about it.
use crate::{
    claims::{KINDS, is_of, parse},
    error::Fault,
    leases::Place,
    link::Conn,
    shared::Shared,
    watch::{Ear, Heard, Target, Watches},
    wire::{
        key::{id, take},
        pb::{KeyValue, LeaseId, LeaseLeft},
        record::{Record, ago},
        txn::{any_under, choose, created, delete, every_under, get},
    },
};
use fencelock_core::{Claim, HoldId, Holder, Kind, Name, Status, Token, Waiter};
use std::{collections::HashMap, time::Duration};
use tokio::time::sleep;

/// Of so many holders the server is asked how long they have left; of more their ttl is told.
const ASKED: usize = 16;

/// What is known of a hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Looked {
    pub(crate) there: bool,
    /// Its lease does.
    pub(crate) lives: bool,
    pub(crate) revision: i64,
}
/// Everything that is written of one name.
pub(crate) struct Seen {
    contenders: Vec<Contender>,
    kind: Option<Kind>,
    size: Option<u32>,
    /// As of this revision.
    pub(crate) revision: i64,
}
/// One of them. It has come in this order.
struct Contender {
    /// Of a writer two.
    keys: Vec<KeyValue>,
    who: Option<KeyValue>,
    holder: Holder,
    holds: bool,
}

impl Shared {
    /// Of whom the key of a contender is.
    pub(crate) fn who_of(&self, name: &Name, key: &[u8]) -> String {
        format!("{}{}", self.keys.whos(name), String::from_utf8_lossy(id(key)))
    }
    /// The first contender, where it is known who that is.
    pub(crate) fn holder_of(&self, key: Option<&KeyValue>, who: Option<&KeyValue>) -> Option<Holder> {
        Some(self.holder(key?, who))
    }
    /// Whoever has this key. One of another program says what its value says, and no more.
    pub(crate) fn holder(&self, key: &KeyValue, who: Option<&KeyValue>) -> Holder {
        let note = String::from_utf8_lossy(&key.value).into_owned();
        let who = who.filter(|who| is_of(who, key)).and_then(|who| Some((who.modified, Record::read(&who.value)?)));
        let (token, record) = who.map_or((key.created, None), |(token, record)| (token, Some(record)));
        let token = Token::new(token).or(Token::new(1)).unwrap_or_else(|| unreachable!("one is positive"));
        if let Some(Record { hold, since, ttl, host, pid, claim, .. }) = record {
            return Holder { hold, claim, token, host, pid, note: note.into(), held_for: ago(since), left: ttl };
        }
        let mut hold = [0; 16];
        hold[8..].copy_from_slice(&key.lease.to_be_bytes());
        let note = if note.is_empty() { "another program".to_owned() } else { note };
        Holder {
            hold: HoldId::from_bytes(hold),
            claim: Claim::Mutex,
            token,
            host: "?".into(),
            pid: 0,
            note: note.into(),
            held_for: Duration::ZERO,
            left: Duration::ZERO,
        }
    }
    /// One call: all of a name. It makes no record.
    pub(crate) async fn see(&self, conn: &Conn, name: &Name) -> Result<Seen, Fault> {
        let mut look = vec![every_under(&self.keys.whos(name)), get(self.keys.size(name))];
        look.extend(KINDS.map(|kind| match kind {
            Kind::Cell => any_under(&self.keys.room(kind, name)),
            kind => every_under(&self.keys.room(kind, name)),
        }));
        let answer = self.link.txn(conn, choose(Vec::new(), look, Vec::new())).await?;
        let seen = || {
            let whos: HashMap<_, _> = answer.ranged(0)?.keys.iter().map(|who| (id(&who.key), who)).collect();
            let size = answer.one(1)?.and_then(|size| parse(&size.value));
            let (mut contenders, mut found) = (Vec::<Contender>::new(), None);
            for (n, kind) in KINDS.into_iter().enumerate() {
                let keys = &answer.ranged(2 + n)?.keys;
                if !keys.is_empty() {
                    found = found.or(Some(kind));
                }
                for key in keys.iter().filter(|_| kind != Kind::Cell) {
                    // The two of a writer were made together.
                    let own = |known: &&mut Contender| kind == Kind::RwLock && is_of(&known.keys[0], key);
                    match contenders.iter_mut().rev().find(own) {
                        Some(known) => known.keys.push(key.clone()),
                        None => contenders.push(self.contender(name, kind, key, whos.get(id(&key.key)).copied())),
                    }
                }
            }
            for one in &mut contenders {
                // Who gave the right to write back reads.
                if one.holder.claim == Claim::Write && one.keys.len() == 1 {
                    one.holder.claim = Claim::Read;
                }
            }
            // Of another program's it is the first who holds.
            if let Some(first) = contenders.first_mut().filter(|first| first.who.is_none()) {
                first.holds = true;
            }
            let used = contenders.iter().find_map(|one| one.holder.claim.capacity());
            Some(Seen { contenders, kind: found, size: size.or(used), revision: answer.revision() })
        };
        seen().ok_or(Fault::Answer)
    }
    fn contender(&self, name: &Name, kind: Kind, key: &KeyValue, who: Option<&KeyValue>) -> Contender {
        let mut holder = self.holder(key, who);
        let record = who.and_then(|who| Record::read(&who.value));
        if record.is_none() && kind == Kind::Semaphore {
            let take = take(&self.keys.room(kind, name), &key.key).unwrap_or(0);
            holder.claim = Claim::Permits { take, of: take };
        }
        let holds = record.as_ref().is_some_and(|record| record.holds);
        Contender { keys: vec![key.clone()], who: who.filter(|_| record.is_some()).cloned(), holder, holds }
    }
    /// One lock, as it is now.
    pub(crate) async fn status(&self, conn: &Conn, name: &Name) -> Result<(Status, Seen), Fault> {
        let mut seen = self.see(conn, name).await?;
        // How long they have left only the server knows.
        let mut known = HashMap::new();
        for one in seen.contenders.iter_mut().filter(|one| one.holds) {
            let lease = one.keys[0].lease;
            if known.len() < ASKED && !known.contains_key(&lease) {
                known.insert(lease, self.left(conn, lease).await?);
            }
            if let Some(left) = known.get(&lease).copied().flatten() {
                one.holder.left = left;
            }
        }
        Ok((seen.told(name), seen))
    }
    /// `None`: this user may not know.
    pub(crate) async fn left(&self, conn: &Conn, lease: i64) -> Result<Option<Duration>, Fault> {
        let ask = LeaseId { id: lease };
        let answer: Result<LeaseLeft, _> = self.link.call(conn, "/etcdserverpb.Lease/LeaseTimeToLive", ask).await;
        Ok(match answer {
            // Another program's lease may have keys that are none of our business.
            Err(fault) if fault.is_denied() => None,
            answer => Some(Duration::from_secs(u64::try_from(answer?.ttl).unwrap_or(0))),
        })
    }
    /// Until another one holds exclusively than whoever has this token, or nobody does.
    pub(crate) async fn observe(&self, watches: &Watches, name: &Name, seen: Option<Token>) -> Result<Status, Fault> {
        let mut ear = Ear::default();
        loop {
            let (status, all) = self.link.again(|conn| async move { self.status(&conn, name).await }).await?;
            if status.exclusive().map(|holder| holder.token) != seen {
                return Ok(status);
            }
            let targets = match all.contenders.iter().find(|one| one.holds) {
                // He goes, or gives the right to write back.
                Some(one) if one.holder.claim.is_exclusive() => {
                    one.keys.iter().map(|key| Target::goes(&key.key)).collect()
                }
                _ => [Kind::Mutex, Kind::RwLock]
                    .map(|kind| Target::any(&self.keys.room(kind, name)))
                    .into_iter()
                    .chain([Target::any(&self.keys.whos(name))])
                    .collect(),
            };
            if ear.at(watches, targets, all.revision).told().await == Heard::Over {
                ear.close();
                sleep(Duration::from_millis(10)).await;
            }
        }
    }
    /// Ends whoever has this token. Somebody of another program shows the revision at which he came.
    pub(crate) async fn force(
        &self,
        conn: &Conn,
        name: &Name,
        token: Token,
    ) -> Result<Result<(), Option<Holder>>, Fault> {
        // What has changed in between is looked at again: he may have become a reader.
        loop {
            let seen = self.see(conn, name).await?;
            let holders = || seen.contenders.iter().filter(|one| one.holds);
            let Some(one) = holders().find(|one| one.holder.token == token) else {
                return Ok(Err(holders().next().map(|one| one.holder.clone())));
            };
            let text = |key: &KeyValue| String::from_utf8_lossy(&key.key).into_owned();
            let asks = one.keys.iter().map(|key| created(&text(key), key.created)).collect();
            let gone = one.keys.iter().chain(&one.who).map(|key| delete(&text(key))).collect();
            if self.link.txn(conn, choose(asks, gone, Vec::new())).await?.succeeded {
                return Ok(Ok(()));
            }
        }
    }
    /// Whether this hold is still written, and by a lease that lives; and as of which revision.
    pub(crate) async fn look(&self, conn: &Conn, place: &Place) -> Result<Looked, Fault> {
        let keys = place.keys();
        let look = [get(self.keys.epoch(place.lease.id))].into_iter().chain(keys.iter().map(get));
        let answer = self.link.txn(conn, choose(Vec::new(), look.collect(), Vec::new())).await?;
        let epoch = answer.one(0).ok_or(Fault::Answer)?;
        let is_there = |n| answer.one(1 + n).flatten().is_some_and(|key| key.created == place.created);
        let there = (0..keys.len()).all(is_there);
        Ok(Looked { there, lives: epoch.is_some(), revision: answer.revision() })
    }
}
impl Seen {
    fn told(&self, name: &Name) -> Status {
        let mut status = Status::free(name.clone());
        (status.kind, status.capacity) = (self.kind, self.size);
        let of = |claim: Claim| self.size.map_or(claim, |size| claim.of_capacity(size));
        for one in &self.contenders {
            let holder = Holder { claim: of(one.holder.claim), ..one.holder.clone() };
            if one.holds {
                status.last_token = status.last_token.max(Some(holder.token));
                status.holders.push(holder);
            } else {
                let Holder { hold, claim, host, pid, note, held_for, .. } = holder;
                status.waiters.push(Waiter { hold, claim, host, pid, note, waiting_for: held_for });
            }
        }
        status
    }
}
