//! Servers that know nothing of each other, as one engine: Redlock.
use crate::{
    config::{Config, Layout, Topology, Wait},
    engine::RedisEngine,
    link::{CONNECT_TIMEOUT, Stores},
    plain::mixed,
};
use fencelock_core::{
    Engine, EngineId, Error, ErrorKind, Quorum, Result,
    config::{host_port, invalid},
    on_tokio,
};
use std::{pin::pin, sync::Arc, time::Duration};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

/// When a majority has answered, the others are waited for so long: what is wrong with one is to be told at once.
const OTHERS: Duration = Duration::from_millis(250);

/// The engine of a `redlock:` URL, with the options that a [`Quorum`] has.
///
/// A minority need not be there: it is connected to when it comes. One that turns out to be another one of them, under a second name, is
/// not used.
///
/// # Errors
/// `Unreachable` within 5 s: so many do not answer that there is no majority; which, and why. What is wrong with one that does:
/// `PermissionDenied`, `InvalidConfig` (also where two of them are one server), `LayoutMismatch`.
///
/// # Cancel safety
/// As [`RedisEngine::connect`].
///
/// ```no_run
/// # async fn example() -> fencelock_core::Result<()> {
/// use fencelock_redis::{Config, redlock};
/// use std::sync::Arc;
///
/// let config = Config::from_url("redlock://h1,h2,h3,h4,h5?namespace=orders")?;
/// let client = fencelock_core::Client::builder(Arc::new(redlock(config).await?.recreate(true))).build()?;
/// # Ok(()) }
/// ```
pub async fn redlock(config: Config) -> Result<Quorum> {
    config.check()?;
    if config.topology != Topology::Redlock {
        return Err(invalid("these hosts are no Redlock").hint("write redlock://HOST,HOST,HOST"));
    }
    let nodes = config.nodes();
    // Two names of one server would count it twice.
    let stores = Stores::new(nodes.iter().map(|node| node.endpoint().into()));
    let met = on_tokio(meet(nodes.clone(), stores.clone())).await?;
    let mut engines: Vec<Arc<dyn Engine>> = Vec::with_capacity(met.len());
    for (n, (node, met)) in nodes.iter().zip(met).enumerate() {
        let engine = met.map_or_else(|| RedisEngine::unmet(node, (stores.clone(), n)), Ok)?;
        engines.push(Arc::new(engine.called(id(node))));
    }
    Ok(Quorum::new(engines)?.called(config.scheme(), config.endpoint(), config.url()))
}
impl Config {
    /// A majority has to be one of servers, and each of them keeps the whole record.
    pub(crate) fn check_redlock(&self) -> Result<()> {
        if self.hosts.len() < 2 {
            let one = invalid("one server is no majority of several");
            return Err(one.hint("name three or five: redlock://HOST,HOST,HOST; of one write redis://HOST"));
        }
        let same = |(a, b): (&(String, u16), &(String, u16))| a.0.eq_ignore_ascii_case(&b.0) && a.1 == b.1;
        for (n, host) in self.hosts.iter().enumerate() {
            if self.hosts.iter().skip(n + 1).any(|other| same((host, other))) {
                let twice = invalid(format!("{} is there twice", host_port(&host.0, host.1)));
                return Err(twice.hint("each node of a Redlock fails by itself: name each once"));
            }
        }
        if self.layout != Layout::Native {
            let plain = invalid("a Redlock has no layout but native: tokens of the others are nobody's");
            return Err(plain.hint(
                "leave layout out; what others lock on one server: redis://HOST?layout=plain, or layout=redisson",
            ));
        }
        if self.wait == Wait::Spin {
            let spin = invalid("whoever waits for a Redlock stands in the queue of a node, which hands over");
            return Err(spin.hint("leave wait=spin out"));
        }
        if self.replicas > 0 {
            let replicas = invalid(format!("replicas={} is for one primary", self.replicas));
            return Err(replicas.hint("leave it out: the nodes of a Redlock are each other's replicas"));
        }
        Ok(())
    }
    /// Each of its servers by itself.
    pub(crate) fn nodes(&self) -> Vec<Self> {
        let alone =
            |host: &(String, u16)| Self { hosts: vec![host.clone()], topology: Topology::Alone, ..self.clone() };
        self.hosts.iter().map(alone).collect()
    }
}
/// *Invariant (SAFETY K3):* all clients of a Redlock number its nodes alike, and know it as the same store, whichever nodes are there when
/// they come. So a node is what the URL calls it, and not what its store says.
fn id(node: &Config) -> EngineId {
    let host = node.hosts.first().map(|(host, port)| host_port(&host.to_ascii_lowercase(), *port)).unwrap_or_default();
    let text = format!("{host}/{} {}", node.database, node.namespace);
    EngineId::from_bytes(mixed(0, &text).to_be_bytes())
}
/// Those who answer, each in its place.
async fn meet(nodes: Vec<Config>, stores: Arc<Stores>) -> Result<Vec<Option<RedisEngine>>> {
    let (of, need) = (nodes.len(), nodes.len() / 2 + 1);
    let silent = || Error::new(ErrorKind::Unreachable, "connect", "no answer in time");
    let mut failed: Vec<_> = nodes.iter().map(|node| (node.endpoint(), Some(silent()))).collect();
    let mut met: Vec<Option<RedisEngine>> = nodes.iter().map(|_| None).collect();
    let mut opening = JoinSet::new();
    for (node, config) in nodes.into_iter().enumerate() {
        let among = Some((stores.clone(), node));
        opening.spawn(async move { (node, RedisEngine::open(config, among).await) });
    }
    let mut late = pin!(sleep(CONNECT_TIMEOUT));
    loop {
        let (node, answer) = tokio::select! {
            biased;
            answer = opening.join_next() => match answer {
                Some(Ok(answer)) => answer,
                Some(Err(_)) => continue,
                None => break,
            },
            () = &mut late => break,
        };
        match answer {
            Ok(engine) => (met[node], failed[node].1) = (Some(engine), None),
            Err(error) if error.is_temporary() => failed[node].1 = Some(error),
            Err(error) => return Err(error),
        }
        if met.iter().flatten().count() == need && met[node].is_some() {
            late.as_mut().reset(Instant::now() + OTHERS);
        }
    }
    let answered = met.iter().flatten().count();
    if answered >= need {
        return Ok(met);
    }
    let few = format!("{} of {of} nodes cannot be used, and {need} have to agree", of - answered);
    let few = Error::new(ErrorKind::Unreachable, "connect", few);
    let why = failed.into_iter().filter_map(|(node, why)| Some(format!("{node}: {}", why?)));
    Err(why.fold(few, |error, why| error.with("node", why)))
}
