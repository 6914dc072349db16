//! Redis: one server, several processes. Leases by its own clock.
use async_trait::async_trait;
use fencelock_conformance::{
    Connection as Link, Deletions, Family, Fixture, Namespaces, Records, Server, WakeUps,
    proxy::{Proxy, resp},
};
use fencelock_core::{Client, Engine, Page, Token};
use fencelock_redis::{Config, RedisEngine};
use fencelock_testkit::{Redis, RedisOptions};
use std::{sync::Arc, time::Duration};

pub(crate) struct Single;
#[async_trait]
impl Family for Single {
    fn name(&self) -> &'static str {
        "redis"
    }
    fn scopes(&self) -> &'static [&'static str] {
        &["any", "lease", "queue"]
    }
    fn start(&self) -> Box<dyn Fixture> {
        let arguments = ["--maxclients", "4000"].map(str::to_owned).to_vec();
        let server = Redis::with(RedisOptions { append_only: true, arguments, ..RedisOptions::default() });
        let proxy = Proxy::start(([127, 0, 0, 1], server.port()).into(), resp);
        Box::new(Store { server, proxy })
    }
    async fn reach(&self, address: &str, ttl: Duration) -> Arc<dyn Engine> {
        open(address, NAMESPACE, ttl).await
    }
}
/// The trials run in one, so that a name that misses it is seen.
const NAMESPACE: &str = "suite";
async fn open(address: &str, namespace: &str, ttl: Duration) -> Arc<dyn Engine> {
    let mut config = Config::from_url(address).unwrap();
    (config.namespace, config.ttl) = (namespace.to_owned(), ttl);
    Arc::new(RedisEngine::connect(config).await.unwrap())
}

struct Store {
    server: Redis,
    /// In front of it: everybody goes through.
    proxy: Proxy,
}
impl Store {
    fn url(&self) -> String {
        format!("redis://{}", self.proxy.address())
    }
    /// Something done by the server itself, in Lua, for each key of a name.
    fn each(&self, work: &str) -> String {
        let script = format!(
            "local all={{}} for _,key in ipairs(redis.call('KEYS','fl.{NAMESPACE}:*')) do \
               if redis.call('TYPE',key).ok=='hash' then {work} end end return table.concat(all,'\\1')"
        );
        let answer = self.server.ask(&["EVAL", &script, "0"]).unwrap();
        assert!(!answer.starts_with('-'), "{answer}");
        answer
    }
}
#[async_trait]
impl Fixture for Store {
    async fn engine(&self, ttl: Duration) -> Link {
        Link::cuttable(open(&self.url(), NAMESPACE, ttl).await)
    }
    fn address(&self) -> Option<String> {
        Some(self.url())
    }
    fn server(&self) -> Option<&dyn Server> {
        Some(self)
    }
    fn wake_ups(&self) -> Option<&dyn WakeUps> {
        Some(self)
    }
    fn records(&self) -> Option<&dyn Records> {
        Some(self)
    }
    fn deletions(&self) -> Option<&dyn Deletions> {
        Some(self)
    }
    fn namespaces(&self) -> Option<&dyn Namespaces> {
        Some(self)
    }
    async fn clean(&self) -> Vec<String> {
        let client = Client::builder(open(&self.url(), NAMESPACE, Duration::from_secs(1)).await).build().unwrap();
        let listing = client.list("", &Page::default()).await.unwrap();
        listing.items.iter().map(|status| format!("{status:?}")).collect()
    }
}
#[async_trait]
impl Server for Store {
    fn is_asked_first(&self) -> bool {
        true
    }
    async fn stop(&self) {
        self.server.kill();
    }
    async fn start(&self) {
        assert!(self.server.restart(), "redis-server did not start again");
    }
    async fn pause(&self, paused: bool) {
        self.server.pause(paused);
    }
}
/// Their connections are half-open: the server tells, and nobody hears.
#[async_trait]
impl WakeUps for Store {
    async fn lose(&self) {
        self.proxy.mute("SUBSCRIBE");
    }
}
/// Keys that nobody uses go when they have not been used for as long as they are kept, and the clock has passed their token.
#[async_trait]
impl Records for Store {
    async fn age(&self) {
        self.each(
            "local v=redis.call('HMGET',key,'o','n','q','v','f') local now=redis.call('TIME') \
             if not v[1] and not v[4] and (v[2] or '0')=='0' and (v[3] or '0')=='0' \
               and (tonumber(v[5]) or 0)<now[1]*1000000+now[2] then redis.call('DEL',key) end",
        );
    }
    async fn raise(&self, names: &[&str]) -> Token {
        let these: String = names.iter().map(|name| format!("['fl.{NAMESPACE}:{name}']=1,")).collect();
        let high = "local now=redis.call('TIME') local high=string.format('%.0f',now[1]*1000000+now[2]+2000000) \
                    redis.call('HSET',key,'f',high) all[1]=high";
        Token::new(self.each(&format!("local these={{{these}}} if these[key] then {high} end")).parse().unwrap())
            .unwrap()
    }
    async fn names(&self) -> Vec<String> {
        let prefix = format!("fl.{NAMESPACE}:");
        let all = self.each("all[#all+1]=key");
        all.split('\u{1}').filter_map(|key| key.strip_prefix(&prefix).map(str::to_owned)).collect()
    }
}
#[async_trait]
impl Deletions for Store {
    async fn delete(&self, name: &str) {
        let key = format!("fl.{NAMESPACE}:{name}");
        assert_eq!(self.server.ask(&["HDEL", &key, "o"]).unwrap(), ":1", "{key}");
    }
}
#[async_trait]
impl Namespaces for Store {
    async fn engine(&self, namespace: &str, ttl: Duration) -> Link {
        Link::cuttable(open(&self.url(), namespace, ttl).await)
    }
}
