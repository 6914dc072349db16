//! Which server has which slot, as the servers tell it.
//!
//! *Invariant:* of two that claim a slot the one of the later configuration is believed (a cluster counts them); a redirect is believed
//! at once, for the server that gives it has given the slot away.
use super::{Address, Link, server::Server};
use crate::error::Fault;
use crc::{CRC_16_XMODEM, Crc};
use fencelock_core::{BootClock, Clock, Connections, Moment};
use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::Value;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::time::timeout;

/// A server answers within this.
const ASK: Duration = Duration::from_secs(1);
/// So many views are laid over each other: one that is cut off knows of no failover.
const VIEWS: usize = 3;
/// One has answered: the others are waited for so long.
const OTHERS: Duration = Duration::from_millis(100);
/// And so long after the last time it is not asked again.
const AGAIN: Duration = Duration::from_millis(100);
const SLOTS: usize = 16_384;
static CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// Where a key lies: what stands between its first `{` and the next `}` says so, if anything does; else all of it.
pub(crate) fn slot(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, after)| after.split_once('}')).map(|(tag, _)| tag);
    CRC.checksum(tag.filter(|tag| !tag.is_empty()).unwrap_or(key).as_bytes()) % 16_384
}

pub(crate) struct Cluster {
    seeds: Vec<Address>,
    /// Who has which slot; empty before anybody was asked.
    map: Mutex<Map>,
    /// That somebody was asked, and nothing has gone wrong since: each runtime asks for itself.
    asked: Arc<Connections<(), Fault>>,
    last: Mutex<Moment>,
}
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Map(Vec<Option<(i64, Arc<Address>)>>);
impl Map {
    fn set(&mut self, slot: u16, epoch: i64, address: &Arc<Address>) {
        self.0.resize(SLOTS, None);
        if let Some(owner) = self.0.get_mut(usize::from(slot))
            && owner.as_ref().is_none_or(|(known, _)| *known < epoch)
        {
            *owner = Some((epoch, address.clone()));
        }
    }
    fn owner(&self, slot: u16) -> Option<Arc<Address>> {
        self.0.get(usize::from(slot))?.as_ref().map(|(_, address)| address.clone())
    }
    /// Those who have lost something by then.
    fn losers(&self, next: &Self) -> Vec<Address> {
        let changed = self.0.iter().zip(&next.0).filter_map(|(was, is)| {
            let (_, was) = was.as_ref()?;
            is.as_ref().is_none_or(|(_, is)| is != was).then(|| ((**was).clone(), ()))
        });
        changed.collect::<BTreeMap<_, _>>().into_keys().collect()
    }
    fn owners(&self) -> Vec<Address> {
        let all = self.0.iter().flatten().map(|(_, address)| ((**address).clone(), ()));
        all.collect::<BTreeMap<_, _>>().into_keys().collect()
    }
}
impl Cluster {
    pub(super) fn new(seeds: Vec<Address>) -> Self {
        Self { seeds, map: Mutex::default(), asked: Connections::new(), last: Mutex::new(Moment::ZERO) }
    }
    fn map(&self) -> MutexGuard<'_, Map> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
    pub(super) fn close(&self) {
        self.asked.close();
    }
    /// Who has this slot, if that is known.
    pub(super) fn known(&self, link: &Link, slot: u16) -> Option<Arc<Server>> {
        self.asked.known()?;
        self.believed(link, slot)
    }
    /// The same, whatever has gone wrong since.
    pub(super) fn believed(&self, link: &Link, slot: u16) -> Option<Arc<Server>> {
        let owner = self.map().owner(slot)?;
        link.server_at(&owner).ok()
    }
    /// Who has this slot.
    pub(super) async fn owner(&self, link: &Link, slot: u16) -> Result<Arc<Server>, Fault> {
        self.ask(link).await?;
        let owner = self.map().owner(slot);
        match owner {
            Some(owner) => link.server_at(&owner),
            None => {
                self.doubt();
                Err(Fault::NoPrimary)
            }
        }
    }
    /// Everybody who has a slot.
    pub(super) async fn owners(&self, link: &Link) -> Result<Vec<Arc<Server>>, Fault> {
        self.ask(link).await?;
        let owners = self.map().owners();
        owners.iter().map(|owner| link.server_at(owner)).collect()
    }
    /// A redirect. Who had it before, if it was another one, is told first.
    pub(super) fn moved(&self, slot: u16, address: &Address, leave: impl FnOnce(&Address)) {
        let before = self.map().owner(slot).filter(|before| **before != *address);
        if let Some(before) = before {
            leave(&before);
        }
        let (mut map, address) = (self.map(), Arc::new(address.clone()));
        let epoch = map.0.get(usize::from(slot)).and_then(Option::as_ref).map_or(0, |(epoch, _)| *epoch);
        map.set(slot, epoch + 1, &address);
    }
    /// What is known may be wrong: the next one asks anew.
    pub(super) fn doubt(&self) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let now = BootClock.now();
        if *last + AGAIN <= now {
            *last = now;
            self.asked.give_up_all();
        }
    }
    async fn ask(&self, link: &Link) -> Result<(), Fault> {
        let me = link.me.clone();
        let look = move || async move {
            let link = me.upgrade().ok_or(Fault::Closed)?;
            match &link.way {
                super::Way::Cluster(cluster) => cluster.look(&link).await,
                super::Way::One(..) => Ok(()),
            }
        };
        self.asked.here(2 * ASK, look).await.map(drop)
    }
    async fn look(&self, link: &Link) -> Result<(), Fault> {
        let mut all = self.map().owners();
        all.extend(self.seeds.iter().filter(|seed| !all.contains(seed)).cloned().collect::<Vec<_>>());
        fastrand::shuffle(&mut all);
        let mut asked: FuturesUnordered<_> = all.iter().map(|address| view(link, address)).collect();
        let (mut map, mut views, mut why) = (Map::default(), 0, Fault::Unreached);
        while views < VIEWS {
            match timeout(if views == 0 { ASK } else { OTHERS }, asked.next()).await {
                Ok(Some(Ok(view))) => {
                    view.iter().for_each(|(epoch, address, slots)| {
                        slots
                            .iter()
                            .for_each(|(from, to)| (*from..=*to).for_each(|slot| map.set(slot, *epoch, address)));
                    });
                    views += 1;
                }
                // Who answers, but refuses, says more than who does not answer.
                Ok(Some(Err(fault))) if matches!(why, Fault::Redis(_)) => drop(fault),
                Ok(Some(Err(fault))) => why = fault,
                Ok(None) | Err(_) => break,
            }
        }
        if views == 0 {
            return Err(why);
        }
        // *Invariant:* before anybody is led to the one that has it now.
        let losers = self.map().losers(&map);
        losers.iter().for_each(|address| link.leave(address));
        *self.map() = map;
        Ok(())
    }
}
type View = Vec<(i64, Arc<Address>, Vec<(u16, u16)>)>;
async fn view(link: &Link, address: &Address) -> Result<View, Fault> {
    let asked = async {
        let conn = link.to(&link.server_at(address)?).await?;
        let answer = link.command(&conn, redis::cmd("CLUSTER").arg("NODES")).await?;
        read(&answer, &address.0)
    };
    timeout(ASK, asked).await.unwrap_or(Err(Fault::Unreached))
}
/// The answer to `CLUSTER NODES`: `ID HOST:PORT@BUS[,NAME] FLAGS PRIMARY PING PONG EPOCH STATE SLOTS…`, a line for each server.
fn read(answer: &Value, asked: &str) -> Result<View, Fault> {
    let text = match answer {
        Value::BulkString(text) => std::str::from_utf8(text).map_err(|_| Fault::Answer)?,
        Value::VerbatimString { text, .. } => text,
        _ => return Err(Fault::Answer),
    };
    let mut view = View::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [_, address, flags, _, _, _, epoch, _, slots @ ..] = words.as_slice() else { return Err(Fault::Answer) };
        let is = |flag: &str| flags.split(',').any(|known| known == flag);
        if !is("master") || is("fail") || is("noaddr") {
            continue;
        }
        let address = address_of(address, asked).ok_or(Fault::Answer)?;
        // One that moves is told in brackets beside: it is where it was.
        let slots = slots.iter().filter(|slots| !slots.starts_with('[')).map(|slots| {
            let (from, to) = slots.split_once('-').unwrap_or((slots, slots));
            Some((from.parse().ok()?, to.parse().ok()?))
        });
        let slots: Option<Vec<(u16, u16)>> = slots.collect();
        view.push((epoch.parse().map_err(|_| Fault::Answer)?, Arc::new(address), slots.ok_or(Fault::Answer)?));
    }
    Ok(view)
}
/// `HOST:PORT`, with more behind it. A server that does not know its own address leaves it out.
pub(super) fn address_of(text: &str, asked: &str) -> Option<Address> {
    let text = text.split([',', '@']).next()?;
    let (host, port) = text.rsplit_once(':')?;
    let host = if host.is_empty() || host == "?" { asked } else { host };
    Some((host.to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    //! Planted to see them go red: another polynomial; an older epoch believed; a slot on its way counted twice; braces that are not
    //! looked at, or with nothing in between.
    use super::*;

    fn seen(text: &str) -> View {
        read(&Value::BulkString(text.as_bytes().to_vec()), "asked").unwrap()
    }

    #[test]
    fn slots_are_those_of_the_servers() {
        assert_eq!((slot("123456789"), slot("foo"), slot("fl:x")), (12_739, 12_182, slot("fl:x")));
    }
    /// As `CLUSTER KEYSLOT` of a server has them.
    #[test]
    fn braces_choose_the_slot() {
        for (key, expect) in [
            ("{user1000}.following", 3_443),
            ("user1000", 3_443),
            ("foo{}{bar}", 8_363),
            ("foo{{bar}}zap", 4_015),
            ("{bar", 4_015),
            ("foo{bar}{zap}", 5_061),
            ("bar", 5_061),
            ("{}x", 10_595),
            ("a{b", 13_340),
            ("a}b{c}d", 7_365),
            ("lock:{a b}", 9_817),
            ("lock:{}", 12_884),
            ("lock-signal:{a b}", 9_817),
            ("fl:x", 1_408),
            ("{}}{", 14_282),
        ] {
            assert_eq!(slot(key), expect, "{key}");
        }
    }
    #[test]
    fn lines() {
        let view = seen(
            "a 10.0.0.1:7000@17000 myself,master - 0 0 3 connected 0-10 12 [12->-b] [13-<-b]\n\
             b :7001@17001,name master - 0 0 4 connected 13-20\n\
             c 10.0.0.3:7002@17002 slave a 0 0 3 connected\n\
             d 10.0.0.4:7003@17003 master,fail - 0 0 9 connected 0-10\n",
        );
        let expect = vec![
            (3, Arc::new(("10.0.0.1".to_owned(), 7_000)), vec![(0, 10), (12, 12)]),
            (4, Arc::new(("asked".to_owned(), 7_001)), vec![(13, 20)]),
        ];
        assert_eq!(view, expect);
        assert!(read(&Value::BulkString(b"a b c\n".to_vec()), "x").is_err() && read(&Value::Nil, "x").is_err());
        assert_eq!(address_of("::1:7000@17000", "x"), Some(("::1".to_owned(), 7_000)));
    }
    #[test]
    fn the_later_configuration_is_believed_and_a_redirect_at_once() {
        let (old, new, next) =
            (Arc::new(("old".to_owned(), 1)), Arc::new(("new".to_owned(), 1)), ("next".to_owned(), 1));
        let cluster = Cluster::new(Vec::new());
        assert_eq!(cluster.map().owner(7), None);
        cluster.map().set(7, 2, &new);
        cluster.map().set(7, 1, &old);
        assert_eq!(cluster.map().owner(7), Some(new));
        let mut left = Vec::new();
        let before = cluster.map().clone();
        (0..2).for_each(|_| cluster.moved(7, &next, |before| left.push(before.clone())));
        assert_eq!(left, [("new".to_owned(), 1)]);
        assert_eq!(before.losers(&cluster.map()), left);
        assert_eq!((before.losers(&before), Map::default().losers(&before)), (Vec::new(), Vec::new()));
        assert_eq!(cluster.map().owner(7), Some(Arc::new(next.clone())));
        assert_eq!(cluster.map().owner(8), None);
        assert_eq!(cluster.map().owners(), [next]);
    }
}
