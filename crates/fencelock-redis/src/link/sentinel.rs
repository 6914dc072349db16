//! Which server is the primary, as the sentinels tell it, and when another one is.
//!
//! *Invariant:* of two answers the one of the later failover is believed (a sentinel counts them, as its configuration's epoch), and
//! one that is older than what was heard before only when most sentinels say so: they may have been set up anew. So a sentinel that
//! is cut off from the others does not lead back to a primary that was replaced. Nor does the one that leads a failover: for up to a
//! second it tells the new epoch with the old address, when the others tell both (seen with 7.0): of two addresses of one epoch the
//! one that was there before is not believed.
use super::{Address, CONNECT_TIMEOUT, Find, Link, Way, server::Login};
use crate::{
    error::Fault,
    wire::reply::{number, text},
};
use futures_util::{StreamExt, future::join_all, stream::FuturesUnordered};
use redis::Value;
use std::{
    cmp::Ordering,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

/// A sentinel answers within this.
const ASK: Duration = Duration::from_secs(1);
/// One has answered: the others are waited for so long.
const OTHERS: Duration = Duration::from_millis(100);
/// So often each is asked anew, should its word have been lost.
const LOOK: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    epoch: i64,
    address: Address,
}
pub(crate) struct Sentinels {
    hosts: Vec<Address>,
    login: Login,
    master: String,
    known: Mutex<Option<Known>>,
}
#[derive(Debug)]
struct Known {
    told: Told,
    /// Whom the primary of this epoch has replaced.
    before: Option<Address>,
}
impl Known {
    /// True: another server is the primary than was known.
    fn learn(&mut self, told: &Told) -> bool {
        let moved = told.address != self.told.address;
        match told.epoch.cmp(&self.told.epoch) {
            Ordering::Less => return false,
            Ordering::Equal if !moved || self.before.as_ref() == Some(&told.address) => return false,
            Ordering::Equal | Ordering::Greater => {}
        }
        self.before = moved.then(|| self.told.address.clone());
        self.told = told.clone();
        moved
    }
}
impl Sentinels {
    pub(super) fn new(hosts: Vec<Address>, login: Login, master: &str) -> Self {
        Self { hosts, login, master: master.to_owned(), known: Mutex::default() }
    }
    fn known(&self) -> MutexGuard<'_, Option<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Asks all of them.
    pub(super) async fn primary(&self) -> Result<Address, Fault> {
        let mut asked: FuturesUnordered<_> = self.hosts.iter().map(|host| self.ask(host)).collect();
        let (mut told, mut why) = (Vec::new(), Fault::Unreached);
        loop {
            let limit = if told.is_empty() { ASK } else { OTHERS };
            match timeout(limit, asked.next()).await {
                Ok(Some(Ok(answer))) => told.push(answer),
                // Who answers, but refuses, says more than who does not answer.
                Ok(Some(Err(fault))) if matches!(why, Fault::Redis(_)) => drop(fault),
                Ok(Some(Err(fault))) => why = fault,
                Ok(None) | Err(_) => break,
            }
        }
        if told.is_empty() {
            return Err(why);
        }
        self.believe(&told)
    }
    fn believe(&self, told: &[Told]) -> Result<Address, Fault> {
        let Some(latest) = told.iter().map(|told| told.epoch).max() else { return Err(Fault::Unreached) };
        // Of one epoch what most say is heard last.
        let count = |one: &Told| told.iter().filter(|other| *other == one).count();
        let mut all: Vec<_> = told.iter().filter(|told| told.epoch == latest).collect();
        all.sort_by_key(|told| count(told));
        let mut known = self.known();
        if known.as_ref().is_some_and(|known| known.told.epoch > latest) {
            if all.last().is_none_or(|most| count(most) * 2 <= self.hosts.len()) {
                return Err(Fault::NoPrimary);
            }
            *known = None;
        }
        for told in all {
            known.get_or_insert_with(|| Known { told: told.clone(), before: None }).learn(told);
        }
        known.as_ref().map(|known| known.told.address.clone()).ok_or(Fault::Unreached)
    }
    /// One sentinel's word. True: another server is the primary than was known.
    fn learn(&self, told: &Told) -> bool {
        self.known().as_mut().is_some_and(|known| known.learn(told))
    }
    async fn ask(&self, host: &Address) -> Result<Told, Fault> {
        let asked = async {
            let client = self.login.client(host)?;
            let config = redis::AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
            let conn = client.get_multiplexed_async_connection_with_config(&config).await;
            let mut conn = conn.map_err(Fault::Connect)?;
            let answer = conn.send_packed_command(redis::cmd("SENTINEL").arg("MASTER").arg(&self.master)).await?;
            told(&answer)
        };
        timeout(ASK, asked).await.unwrap_or(Err(Fault::Unreached))
    }
    /// Hears of failovers, from each of them. Never returns.
    pub(super) async fn follow(&self, link: &Link) {
        join_all(self.hosts.iter().map(|host| self.hear(link, host))).await;
    }
    async fn hear(&self, link: &Link, host: &Address) {
        let mut pause = Duration::from_millis(50);
        loop {
            if let Ok(Ok(mut words)) = timeout(CONNECT_TIMEOUT, self.subscribe(host)).await {
                pause = Duration::from_millis(50);
                let mut look = interval(LOOK);
                look.set_missed_tick_behavior(MissedTickBehavior::Delay);
                loop {
                    // At once, too: what it said before was not heard. A word says less than the answer: it has no epoch.
                    tokio::select! {
                        word = words.next() => match word {
                            Some(word) if word.get_payload::<String>().is_ok_and(|word| self.is_ours(&word)) => {}
                            Some(_) => continue,
                            None => break,
                        },
                        _ = look.tick() => {}
                    }
                    match self.ask(host).await {
                        Ok(told) => {
                            if self.learn(&told) {
                                link.move_on();
                            }
                        }
                        Err(_) => break,
                    }
                }
            }
            sleep(pause + Duration::from_millis(fastrand::u64(0..20))).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }
    /// `NAME OLD-HOST OLD-PORT NEW-HOST NEW-PORT`.
    fn is_ours(&self, word: &str) -> bool {
        word.split(' ').next() == Some(&self.master)
    }
    async fn subscribe(&self, host: &Address) -> Result<redis::aio::PubSubStream, Fault> {
        let (mut sink, stream) = self.login.client(host)?.get_async_pubsub().await.map_err(Fault::Connect)?.split();
        sink.subscribe("+switch-master").await?;
        Ok(stream)
    }
}
/// The answer to `SENTINEL MASTER`: pairs in a row, or a map.
fn told(answer: &Value) -> Result<Told, Fault> {
    let pairs: Vec<(&Value, &Value)> = match answer {
        Value::Array(fields) => fields.iter().step_by(2).zip(fields.iter().skip(1).step_by(2)).collect(),
        Value::Map(fields) => fields.iter().map(|(key, value)| (key, value)).collect(),
        Value::ServerError(e) => return Err(Fault::Redis(e.clone().into())),
        _ => return Err(Fault::Answer),
    };
    let field = |name: &str| pairs.iter().find(|(key, _)| text(key) == Some(name)).map(|(_, value)| *value);
    let host = field("ip").and_then(text).ok_or(Fault::Answer)?.to_owned();
    let port = field("port").and_then(number).and_then(|port| u16::try_from(port).ok()).ok_or(Fault::Answer)?;
    let epoch = field("config-epoch").and_then(number).ok_or(Fault::Answer)?;
    Ok(Told { epoch, address: (host, port) })
}

pub(crate) async fn follow(link: Arc<Link>) {
    if let Way::One(Find::Sentinels(sentinels), _) = &link.way {
        sentinels.follow(&link).await;
    }
}

#[cfg(test)]
mod tests {
    //! Planted to see them go red: an older epoch believed; one that most sentinels tell refused; the first answer believed; of one epoch
    //! whatever is told last believed.
    use super::*;

    fn told(epoch: i64, port: u16) -> Told {
        Told { epoch, address: ("h".to_owned(), port) }
    }
    fn three() -> Sentinels {
        let login = Login::new(&crate::Config::new("h", 1)).unwrap();
        Sentinels::new((1..4).map(|port| ("h".to_owned(), port)).collect(), login, "m")
    }

    #[test]
    fn the_latest_failover_is_believed() {
        let sentinels = three();
        assert_eq!(sentinels.believe(&[told(1, 7), told(2, 8), told(1, 7)]).unwrap().1, 8);
        // Cut off from the others.
        assert!(matches!(sentinels.believe(&[told(1, 7)]), Err(Fault::NoPrimary)));
        assert_eq!(sentinels.believe(&[told(2, 8)]).unwrap().1, 8);
        // They were all set up anew.
        assert_eq!(sentinels.believe(&[told(0, 9), told(0, 9)]).unwrap().1, 9);
        assert!(sentinels.believe(&[]).is_err());
    }
    #[test]
    fn a_word_moves_it_once() {
        let sentinels = three();
        assert!(!sentinels.learn(&told(1, 7)), "nothing is connected yet");
        sentinels.believe(&[told(1, 7)]).unwrap();
        assert!(!sentinels.learn(&told(1, 7)));
        assert!(sentinels.learn(&told(2, 8)));
        assert!(!sentinels.learn(&told(2, 8)), "the second sentinel's");
        assert!(!sentinels.learn(&told(1, 7)), "one that is behind");
        assert!(sentinels.is_ours("m h 7 h 8") && !sentinels.is_ours("mm h 7 h 8"));
    }
    #[test]
    fn whoever_leads_a_failover_tells_its_number_before_its_end() {
        let sentinels = three();
        sentinels.believe(&[told(1, 7), told(1, 7), told(1, 7)]).unwrap();
        assert!(!sentinels.learn(&told(2, 7)), "it has begun");
        assert!(sentinels.learn(&told(2, 8)), "the others have seen its end");
        assert!(!sentinels.learn(&told(2, 7)), "the first one has not");
        assert_eq!(sentinels.believe(&[told(2, 7), told(2, 8), told(2, 8)]).unwrap().1, 8);
        // Back to the one before, by way of the same.
        assert!(!sentinels.learn(&told(3, 8)));
        assert!(sentinels.learn(&told(3, 7)));
        assert_eq!(sentinels.believe(&[told(3, 8), told(3, 7), told(3, 7)]).unwrap().1, 7);
        // Whoever begins in the middle of one.
        for answers in [[told(2, 7), told(2, 8), told(2, 8)], [told(2, 8), told(2, 8), told(2, 7)]] {
            let late = three();
            assert_eq!(late.believe(&answers).unwrap().1, 8);
            assert!(!late.learn(&told(2, 7)));
        }
    }
    #[test]
    fn answers() {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let words = ["name", "m", "ip", "::1", "port", "7", "config-epoch", "3"].map(bulk);
        assert_eq!(
            super::told(&Value::Array(words.to_vec())).unwrap(),
            Told { epoch: 3, address: ("::1".to_owned(), 7) }
        );
        assert!(super::told(&Value::Array(words[..6].to_vec())).is_err());
        assert!(super::told(&Value::Nil).is_err());
    }
}
