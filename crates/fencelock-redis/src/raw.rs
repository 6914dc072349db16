//! The bare driver with our scripts: what a program could have at best, for the benchmark's other side. Not part of the library.
#![allow(missing_docs, clippy::missing_errors_doc, reason = "for our own benchmarks")]
use crate::{
    RedisEngine,
    config::Config,
    error::Fault,
    link::Link,
    wire::{
        key::Keys,
        reply::number,
        scripts::{
            ACQUIRE, CELL_LOAD, CELL_SWAP, EXCHANGE, FORCE, PLAIN_ACQUIRE, PLAIN_RELEASE, PLAIN_RENEW,
            REDISSON_ACQUIRE, REDISSON_DOWNGRADE, REDISSON_RELEASE, REDISSON_RENEW, REFRESH, RELEASE, REMEMBER, RENEW,
            RESIZE, Script,
        },
    },
};
use fencelock_core::{Name, Result};
use futures_util::StreamExt;
use redis::{RedisError, RedisResult, Value, aio::MultiplexedConnection};
use std::sync::Arc;

/// All scripts: name, hash, text.
pub fn scripts() -> Vec<(&'static str, String, &'static str)> {
    let all: [(&str, &Script); 17] = [
        ("acquire", &ACQUIRE),
        ("cell_load", &CELL_LOAD),
        ("cell_swap", &CELL_SWAP),
        ("exchange", &EXCHANGE),
        ("force", &FORCE),
        ("plain_acquire", &PLAIN_ACQUIRE),
        ("plain_release", &PLAIN_RELEASE),
        ("plain_renew", &PLAIN_RENEW),
        ("redisson_acquire", &REDISSON_ACQUIRE),
        ("redisson_downgrade", &REDISSON_DOWNGRADE),
        ("redisson_release", &REDISSON_RELEASE),
        ("redisson_renew", &REDISSON_RENEW),
        ("refresh", &REFRESH),
        ("release", &RELEASE),
        ("remember", &REMEMBER),
        ("renew", &RENEW),
        ("resize", &RESIZE),
    ];
    all.into_iter().map(|(name, script)| (name, script.sha.clone(), script.text)).collect()
}

/// One connection, no library.
#[derive(Clone, Debug)]
pub struct Raw {
    conn: MultiplexedConnection,
    keys: Keys,
    endpoint: Arc<str>,
}
/// How many commands this engine has sent.
pub fn commands(engine: &RedisEngine) -> u64 {
    engine.commands()
}
impl Raw {
    pub async fn connect(url: &str) -> Result<Self> {
        let config = Config::from_url(url)?;
        let link = Link::new(&config, None)?;
        let told = |e: RedisError| link.tell("connect", &Fault::Connect(e));
        let server = link.at("").await.map_err(|fault| link.tell("connect", &fault))?.server.clone();
        let mut conn = server.client.get_multiplexed_async_connection().await.map_err(told)?;
        for (_, _, text) in scripts() {
            let _: String = redis::cmd("SCRIPT").arg("LOAD").arg(text).query_async(&mut conn).await.map_err(told)?;
        }
        Ok(Self { conn, keys: Keys::new(&config.namespace), endpoint: link.endpoint.clone() })
    }
    /// Takes a lock that is free and gives it back: the same bytes as the engine sends.
    pub async fn pair(&mut self, name: &str, hold: &str, identity: &str) -> Result<()> {
        let key = self.keys.key(&Name::new(name)?);
        let pair = self.send(&key, hold, identity).await;
        pair.map_err(|e| Fault::Redis(e).tell("lock", &self.endpoint))
    }
    async fn send(&mut self, key: &str, hold: &str, identity: &str) -> RedisResult<()> {
        let token = self.take(key, hold, identity).await?;
        self.give(key, hold, token).await
    }
    /// The first half of a pair, by the lock's key; its token.
    pub async fn take(&mut self, key: &str, hold: &str, identity: &str) -> RedisResult<i64> {
        let mut acquire = redis::cmd("EVALSHA");
        acquire.arg(&ACQUIRE.sha).arg(1).arg(key).arg("3600000").arg(hold).arg("mutex").arg("m").arg("1").arg("0");
        acquire.arg("30000000").arg("9007199254740991").arg("0").arg("1").arg("fl:%0").arg(identity);
        let answer = self.conn.send_packed_command(&acquire).await?;
        let Value::Array(parts) = &answer else { return Err(refused()) };
        parts.get(1).and_then(number).ok_or_else(refused)
    }
    /// The other half.
    pub async fn give(&mut self, key: &str, hold: &str, token: i64) -> RedisResult<()> {
        let mut release = redis::cmd("EVALSHA");
        release.arg(&RELEASE.sha).arg(1).arg(key).arg("3600000").arg(hold).arg(token);
        self.conn.send_packed_command(&release).await.map(drop)
    }
    /// The key of a name.
    pub fn key(&self, name: &Name) -> String {
        self.keys.key(name)
    }
}
fn refused() -> redis::RedisError {
    (redis::ErrorKind::UnexpectedReturnType, "no answer of this script").into()
}

/// The four messages of a hand-over and nothing else: release, push, confirm, reply. It gives no sign of life and watches nothing.
#[allow(missing_debug_implementations, reason = "for our own benchmarks")]
pub struct RawQueue {
    raw: Raw,
    pushes: redis::aio::PubSubStream,
    channel: String,
    last: u128,
}
impl RawQueue {
    pub async fn connect(url: &str) -> Result<Self> {
        let config = Config::from_url(url)?;
        let link = Link::new(&config, None)?;
        let told = |e: RedisError| link.tell("connect", &Fault::Connect(e));
        let raw = Raw::connect(url).await?;
        let client = u128::from(std::process::id()) << 64;
        let channel = raw.keys.channel(client);
        let server = link.at("").await.map_err(|fault| link.tell("connect", &fault))?.server.clone();
        let (mut sink, pushes) = server.client.get_async_pubsub().await.map_err(told)?.split();
        sink.subscribe(&channel).await.map_err(told)?;
        Ok(Self { raw, pushes, channel, last: client })
    }
    /// Waits for the lock; the number of the hold, and its token.
    pub async fn lock(&mut self, name: &str) -> RedisResult<(String, i64)> {
        self.last += 1;
        let (hold, key) = (format!("{:032x}", self.last), self.raw.keys.key(&Name::new(name).map_err(|_| refused())?));
        let mut acquire = redis::cmd("EVALSHA");
        acquire.arg(&ACQUIRE.sha).arg(1).arg(&key).arg("3600000").arg(&hold).arg("mutex").arg("m").arg("1").arg("0");
        acquire.arg("30000000").arg("9007199254740991").arg("0").arg("1").arg(&self.channel).arg("host 1 ");
        let mut answer = self.raw.conn.send_packed_command(&acquire).await?;
        loop {
            let Value::Array(parts) = &answer else { return Err(refused()) };
            if parts.first().and_then(number) == Some(1) {
                return parts.get(1).and_then(number).map(|token| (hold, token)).ok_or_else(refused);
            }
            let _ = tokio::time::timeout(std::time::Duration::from_secs(1), self.pushes.next()).await;
            let mut refresh = redis::cmd("EVALSHA");
            refresh.arg(&REFRESH.sha).arg(1).arg(&key).arg("3600000").arg(&hold).arg("30000000").arg("0").arg("0");
            answer = self.raw.conn.send_packed_command(&refresh).await?;
        }
    }
    pub async fn release(&mut self, name: &str, hold: &str, token: i64) -> RedisResult<()> {
        let key = self.raw.keys.key(&Name::new(name).map_err(|_| refused())?);
        let mut release = redis::cmd("EVALSHA");
        release.arg(&RELEASE.sha).arg(1).arg(key).arg("3600000").arg(hold).arg(token);
        self.raw.conn.send_packed_command(&release).await.map(drop)
    }
}
