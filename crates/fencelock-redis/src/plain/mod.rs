//! Locks that are shared with others: a string of the key that they use, too.
mod record;
mod value;
mod wait;

pub(crate) use record::{Claimed, Plain, Question};
pub(crate) use value::{FOR_EVER, beginning, mixed, ours, tail, theirs};
pub(crate) use wait::wait;

use crate::{
    config::{Config, Layout, Topology},
    engine::{AGAIN, RedisEngine},
    error::Fault,
    keeper::Order,
    link::CONNECT_TIMEOUT,
    redisson::RedisRedissonEngine,
    redlock::redlock,
    turns::Turned,
};
use async_trait::async_trait;
use fencelock_core::{
    BootClock, Busy, Clock, Engine, EngineInfo, Error, ErrorKind, Grant, Listing, Missing, Name, Outcome, Page,
    Released, Renewed, Reports, Request, Result, Status, Token, on_tokio,
};
use std::{sync::Arc, time::Duration};
use tokio::sync::oneshot;

/// Locks in Redis as other libraries have them.
#[derive(Debug)]
pub struct RedisPlainEngine(RedisEngine);

/// The engine of this configuration's layout and topology.
///
/// # Errors
/// As [`RedisEngine::connect`], [`RedisPlainEngine::connect`], [`RedisRedissonEngine::connect`] and [`redlock`].
///
/// # Cancel safety
/// As there.
///
/// ```no_run
/// # async fn example() -> fencelock_core::Result<()> {
/// let config = fencelock_redis::Config::from_url("redis://db?layout=plain&template=lock:{}")?;
/// let client = fencelock_core::Client::builder(fencelock_redis::connect(config).await?).build()?;
/// # Ok(()) }
/// ```
pub async fn connect(config: Config) -> Result<Arc<dyn Engine>> {
    Ok(match config.layout {
        _ if config.topology == Topology::Redlock => Arc::new(redlock(config).await?),
        Layout::Native => Arc::new(RedisEngine::connect(config).await?),
        Layout::Plain(_) => Arc::new(RedisPlainEngine::connect(config).await?),
        Layout::Redisson(_) => Arc::new(RedisRedissonEngine::connect(config).await?),
    })
}

impl RedisPlainEngine {
    /// Connects, and looks at what this user may do.
    ///
    /// # Errors
    /// As [`RedisEngine::connect`]; `InvalidConfig` for a configuration of another layout.
    ///
    /// # Cancel safety
    /// As there.
    ///
    /// ```no_run
    /// # async fn example() -> fencelock_core::Result<()> {
    /// use fencelock_redis::RedisPlainEngine;
    /// let engine = RedisPlainEngine::from_url("redis://db?layout=plain&template=lock:{}").await?;
    /// # Ok(()) }
    /// ```
    pub async fn connect(config: Config) -> Result<Self> {
        if !matches!(config.layout, Layout::Plain(_)) {
            let native = Error::new(ErrorKind::InvalidConfig, "connect", "this is not the layout of this engine");
            return Err(native.hint("write layout=plain"));
        }
        Ok(Self(on_tokio(RedisEngine::open(config, None)).await?))
    }
    /// As [`connect`](Self::connect), by a `redis:` URL.
    ///
    /// # Errors
    /// As there, and `InvalidConfig` for the URL.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn from_url(url: &str) -> Result<Self> {
        Self::connect(Config::from_url(url)?).await
    }
}

/// Asks for a key that others use, too; where somebody has it, as often as it changes.
pub(crate) async fn acquire(engine: &RedisEngine, request: &Request) -> Result<Outcome> {
    let (shared, told) = (engine.shared(), engine.told("lock"));
    let key = &*shared.keys.key(request.name());
    let (mut misses, mut late, limit) = (0, false, BootClock.now() + CONNECT_TIMEOUT);
    let busy = loop {
        // Why there is none is told also to those who gave up waiting for it.
        let conn = shared.link.soon(key, request.stopped()).await.map_err(&told)?;
        match shared.claim(conn, request, false).await {
            Ok(Claimed::Granted { number, now, sent_at, value }) => {
                let sent_at = shared.acknowledged(request, sent_at).await.map_err(&told)?;
                let granted = shared.granted_as(request, number, sent_at, now, value);
                return granted.map(Outcome::Granted).ok_or_else(|| told(Fault::Answer));
            }
            Ok(Claimed::Busy { busy, .. }) if request.wait() => break busy,
            Ok(Claimed::Busy { busy, .. }) => {
                // Core takes this for nothing left behind.
                drop(engine.drop_hold(request.name(), request.hold()));
                return Ok(Outcome::Busy(busy));
            }
            Ok(Claimed::OtherKind(kind)) => {
                drop(engine.drop_hold(request.name(), request.hold()));
                return Err(request.other_kind(kind));
            }
            Ok(Claimed::Stopped) => return Ok(Outcome::Busy(Busy::default())),
            Ok(Claimed::Past) if !late => late = true,
            Ok(Claimed::Past) => return Err(shared.too_late()),
            Err(fault) => {
                let error = shared.link.tell("lock", &fault);
                misses += 1;
                let passes = fault.is_soon_over() && BootClock.now() < limit;
                if !error.is_temporary() || !(misses <= AGAIN || passes) || request.is_stopped() {
                    return Err(error);
                }
                tokio::select! {
                    biased;
                    () = request.stopped() => return Err(error),
                    () = tokio::time::sleep(Duration::from_millis(10 << misses.min(5))) => {}
                }
            }
        }
    };
    request.queued(busy.clone());
    loop {
        let (reply, rx) = oneshot::channel();
        let order = Order::Look { request: request.clone(), busy: busy.clone(), reply };
        if engine.orders().send(order).is_err() {
            return Err(told(Fault::Closed));
        }
        match rx.await {
            Ok(Turned::Granted(grant)) => return Ok(Outcome::Granted(grant)),
            Ok(Turned::Stopped(busy)) => return Ok(Outcome::Busy(busy)),
            Ok(Turned::Displaced) => return Ok(Outcome::Displaced),
            Ok(Turned::Failed(fault)) => return Err(told(fault)),
            // `run` was begun anew: it looks again.
            Err(_) => {}
        }
    }
}

#[async_trait]
impl Engine for RedisPlainEngine {
    fn info(&self) -> &EngineInfo {
        self.0.info()
    }
    fn why_not(&self, missing: Missing) -> Option<&'static str> {
        Some(match missing {
            Missing::Permits => {
                "a string of layout=plain has one holder; semaphores of other libraries end by their clients' clocks"
            }
            Missing::Cells => "a string of layout=plain is a lock, and keeps no version",
            Missing::Tickets => "the value of layout=plain is its holder's for as long as he has it",
            _ => "a string of layout=plain has one holder",
        })
    }
    async fn acquire(&self, request: &Request) -> Result<Outcome> {
        acquire(&self.0, request).await
    }
    async fn withdraw(&self, request: &Request) -> Result<()> {
        self.0.withdraw(request).await
    }
    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewed>> {
        self.0.renew(grants).await
    }
    async fn release(&self, grant: &Grant) -> Result<Released> {
        let shared = self.0.shared();
        let value = shared.own(grant.hold).and_then(|own| own.value);
        let _after = self.0.drop_hold(&grant.name, grant.hold);
        let key = shared.keys.key(&grant.name);
        shared.released(shared.give_back(&key, grant.hold, Some(grant.token), value).await)
    }
    async fn run(&self, reports: &Reports) -> Result<()> {
        self.0.run(reports).await
    }
    async fn inspect(&self, name: &Name) -> Result<Status> {
        self.0.inspect(name).await
    }
    async fn list(&self, prefix: &str, page: &Page) -> Result<Listing> {
        self.0.list(prefix, page).await
    }
    async fn observe(&self, name: &Name, seen: Option<Token>) -> Result<Status> {
        self.0.observe(name, seen).await
    }
    async fn force_release(&self, name: &Name, token: Token) -> Result<Released> {
        let shared = self.0.shared();
        shared.released(shared.break_hold(name, token).await)
    }
    async fn close(&self) -> Result<()> {
        self.0.close().await
    }
}
