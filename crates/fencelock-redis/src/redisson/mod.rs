//! Locks that are shared with Redisson: a hash of the key that it uses, too.
mod look;
mod names;
mod record;

pub(crate) use record::claimed;

use crate::{
    config::{Config, Layout},
    engine::RedisEngine,
    error::Fault,
    link::slot,
    plain::{Claimed, acquire},
};
use async_trait::async_trait;
use fencelock_core::{
    Busy, Claim, Engine, EngineInfo, Error, ErrorKind, Grant, Listing, Missing, Name, Outcome, Page, Released, Renewed,
    Reports, Request, Result, Status, Token, on_tokio,
};
use names::Names;
use std::time::Duration;

/// Redisson's watchdog gives a lock with readers this end, if it is not told otherwise.
const WATCHDOG: Duration = Duration::from_secs(30);
/// How long a hold of this request is good for without a renewal.
///
/// *Invariant (SAFETY G3):* a reader counts on no more than their watchdog leaves him: that it was cut is heard by a push, which is a hint.
/// What lasts longer is renewed the more often.
pub(crate) fn lease(request: &Request) -> Duration {
    if request.claim() == Claim::Read { request.ttl().min(WATCHDOG) } else { request.ttl() }
}

/// Locks in Redis as Redisson has them.
#[derive(Debug)]
pub struct RedisRedissonEngine(RedisEngine);

impl RedisRedissonEngine {
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
    /// use fencelock_redis::RedisRedissonEngine;
    /// let engine = RedisRedissonEngine::from_url("redis://db?layout=redisson").await?;
    /// # Ok(()) }
    /// ```
    pub async fn connect(config: Config) -> Result<Self> {
        if !matches!(config.layout, Layout::Redisson(_)) {
            let other = Error::new(ErrorKind::InvalidConfig, "connect", "this is not the layout of this engine");
            return Err(other.hint("write layout=redisson"));
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

    /// What cannot be kept is refused before anything is sent.
    fn check(&self, request: &Request) -> Result<()> {
        let shared = self.0.shared();
        if request.is_fixed() && lease(request) < request.ttl() {
            let text = format!("a reader's lease of {:?} may be cut to 30s by Redisson's watchdog", request.ttl());
            let long = Error::new(ErrorKind::InvalidConfig, "lock", text).with("name", request.name());
            return Err(long.hint("give 30s or less, or `ttl`, which is renewed"));
        }
        let key = shared.keys.key(request.name());
        let (names, home) = (Names(&key), slot(&key));
        let all = [names.token(), names.beside("x:0"), names.channel(), names.channel_of_both()];
        if shared.link.is_cluster() && all.iter().any(|other| slot(other) != home) {
            let apart = "what Redisson makes of this name lies on different servers of the cluster";
            let apart = Error::new(ErrorKind::InvalidConfig, "lock", apart).with("name", request.name());
            return Err(apart.hint("write braces in pairs around a part of the name, or none"));
        }
        Ok(())
    }
}

#[async_trait]
impl Engine for RedisRedissonEngine {
    fn info(&self) -> &EngineInfo {
        self.0.info()
    }
    fn why_not(&self, missing: Missing) -> Option<&'static str> {
        Some(match missing {
            Missing::Permits => {
                "RSemaphore does not know its holders, so one that crashed keeps its permits, and those of RPermitExpirableSemaphore end by \
                 the clocks of its clients, which may be wrong"
            }
            Missing::Cells => "Redisson has no value with a version that we could share",
            Missing::Tickets => "a field of Redisson's names its holder, and cannot pass to another one",
            Missing::Downgrade => "nobody tells here that Redisson's watchdog has cut a reader's lease",
            _ => return None,
        })
    }
    async fn acquire(&self, request: &Request) -> Result<Outcome> {
        self.check(request)?;
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
        let _after = self.0.drop_hold(&grant.name, grant.hold);
        let key = shared.keys.key(&grant.name);
        shared.released(shared.end_hold(&key, grant.hold, Some(grant.token)).await)
    }
    /// A downgrade alone.
    async fn exchange(&self, grant: &Grant, next: &Request) -> Result<Outcome> {
        if next.hold() != grant.hold {
            let ticket = Error::new(ErrorKind::Unsupported, "exchange", "a hold cannot be passed on in this layout");
            return Err(ticket.with("name", &grant.name));
        }
        if next.claim() != Claim::Read || grant.claim == Claim::Mutex {
            let never = "only a writer's hold can become a reader's";
            return Err(Error::new(ErrorKind::Unsupported, "downgrade", never).with("name", &grant.name));
        }
        self.check(next)?;
        let (shared, told) = (self.0.shared(), self.0.told("exchange"));
        match shared.become_reader(grant, next).await.map_err(&told)? {
            Claimed::Granted { number, now, sent_at, value } => {
                let granted = shared.granted_as(next, number, sent_at, now, value);
                granted.map(Outcome::Granted).ok_or_else(|| told(Fault::Answer))
            }
            Claimed::Busy { busy, .. } => Ok(Outcome::Busy(busy)),
            _ => Ok(Outcome::Busy(Busy::default())),
        }
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
        shared.released(shared.break_field(name, token).await)
    }
    async fn close(&self) -> Result<()> {
        self.0.close().await
    }
}
