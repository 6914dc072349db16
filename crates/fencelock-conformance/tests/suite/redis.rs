//! Redis: one server, one behind sentinels, a cluster, five that know nothing of each other; one with the keys that others use. Several
//! processes. Leases by the server's own clock. The engines have the rights that `Config::acl` gives, and no others; what the fixtures do
//! themselves the default user does.
use async_trait::async_trait;
use fencelock_conformance::{
    Connection as Link, Deletions, Family, Fixture, Namespaces, Records, Server, WakeUps,
    proxy::{Proxy, resp},
};
use fencelock_core::{Client, Engine, Page, Token};
use fencelock_redis::{Acl, Config, Layout, connect};
use fencelock_testkit::{Redis, RedisCluster, RedisClusterOptions, RedisOptions, SentinelsOptions};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// The servers of a family.
pub(crate) enum Servers {
    Alone,
    Sentinels,
    Cluster,
    /// A string for each lock, and no queue.
    Plain,
    /// A hash for each, as Redisson has it, and no queue.
    Redisson,
    /// Five, of which a lock needs three.
    Redlock,
}
impl Servers {
    /// Its keys are those of others, too.
    fn is_shared(&self) -> bool {
        matches!(self, Self::Plain | Self::Redisson)
    }
    /// Of a client of theirs, wherever they are.
    fn config(&self) -> Config {
        let url = match self {
            Self::Alone => format!("redis://h?namespace={NAMESPACE}"),
            Self::Sentinels => format!("redis+sentinel://h/main?namespace={NAMESPACE}"),
            Self::Cluster => format!("redis+cluster://h?namespace={NAMESPACE}"),
            Self::Plain => format!("redis://h?layout=plain&template={NAMESPACE}:{{}}"),
            Self::Redisson => format!("redis://h?layout=redisson&template={NAMESPACE}:{{}}"),
            Self::Redlock => format!("redlock://a,b,c?namespace={NAMESPACE}"),
        };
        Config::from_url(&url).unwrap()
    }
    fn acl(&self) -> Acl {
        self.config().acl(VERSION).unwrap()
    }
    /// Of a server that knows of no other.
    fn options(&self) -> RedisOptions {
        let mut arguments = ["--maxclients", "4000", "--user", USER, "on", ">pw"].map(str::to_owned).to_vec();
        arguments.extend_from_slice(self.acl().words());
        RedisOptions { append_only: true, arguments, ..RedisOptions::default() }
    }
}
/// The user that they know.
const USER: &str = "app";
/// Of the servers, as far as rights go by it.
const VERSION: &str = "7.0";
/// As a configuration says it.
fn line(acl: &Acl) -> String {
    format!("user {USER} on >pw {acl}")
}
#[async_trait]
impl Family for Servers {
    fn name(&self) -> &'static str {
        match self {
            Self::Alone => "redis",
            Self::Sentinels => "redis-sentinel",
            Self::Cluster => "redis-cluster",
            Self::Plain => "redis-plain",
            Self::Redisson => "redis-redisson",
            Self::Redlock => "redlock",
        }
    }
    fn scopes(&self) -> &'static [&'static str] {
        if self.is_shared() || matches!(self, Self::Redlock) { &["any", "lease"] } else { &["any", "lease", "queue"] }
    }
    fn tells_last_token(&self) -> bool {
        !matches!(self, Self::Plain)
    }
    fn is_variant(&self) -> bool {
        !matches!(self, Self::Alone)
    }
    fn gives_writers_a_turn(&self) -> bool {
        !self.is_shared()
    }
    fn tells_who_waits(&self) -> bool {
        !self.is_shared()
    }
    fn shows_grants_alone(&self) -> bool {
        !matches!(self, Self::Redlock)
    }
    fn keeps_long_notes(&self) -> bool {
        !self.is_shared()
    }
    fn start(&self) -> Box<dyn Fixture> {
        let more = "maxclients 4000".to_owned();
        match self {
            Self::Alone | Self::Plain | Self::Redisson => {
                let server = Redis::with(self.options());
                let proxy = Proxy::start(([127, 0, 0, 1], server.port()).into(), resp);
                let layout = if matches!(self, Self::Plain) { "plain" } else { "redisson" };
                Box::new(if self.is_shared() {
                    Store::Shared(layout, server, proxy)
                } else {
                    Store::Alone(server, proxy)
                })
            }
            // A machine that stands still for a while is no failover.
            Self::Sentinels => Box::new(Store::Sentinels(fencelock_testkit::Sentinels::with(SentinelsOptions {
                append_only: true,
                settings: vec![more, line(&self.acl())],
                sentinel_settings: self.config().acl_of_sentinels(VERSION).unwrap().iter().map(line).collect(),
                down_after: Duration::from_secs(20),
                ..SentinelsOptions::default()
            }))),
            Self::Cluster => Box::new(Store::Cluster(RedisCluster::with(RedisClusterOptions {
                append_only: true,
                settings: vec![more, line(&self.acl())],
                node_timeout: Duration::from_secs(20),
                ..RedisClusterOptions::default()
            }))),
            Self::Redlock => Box::new(Store::Redlock(Redis::several(5, &self.options()))),
        }
    }
    async fn reach(&self, address: &str, ttl: Duration) -> Arc<dyn Engine> {
        open(address, NAMESPACE, ttl).await
    }
}
/// The trials run in one, so that a name that misses it is seen.
const NAMESPACE: &str = "suite";
fn config(address: &str, namespace: &str, ttl: Duration) -> Config {
    let mut config = Config::from_url(address).unwrap();
    config.ttl = ttl;
    if config.layout == Layout::Native {
        namespace.clone_into(&mut config.namespace);
    }
    config
}
async fn open(address: &str, namespace: &str, ttl: Duration) -> Arc<dyn Engine> {
    connect(config(address, namespace, ttl)).await.unwrap()
}

enum Store {
    /// With a proxy in front of it: everybody goes through.
    Alone(Redis, Proxy),
    /// In this layout, which others have, too.
    Shared(&'static str, Redis, Proxy),
    Sentinels(fencelock_testkit::Sentinels),
    Cluster(RedisCluster),
    Redlock(Vec<Redis>),
}
/// All serve again within this.
const BACK: Duration = Duration::from_secs(60);
impl Store {
    fn url(&self) -> String {
        match self {
            Self::Alone(_, proxy) => format!("redis://{USER}:pw@{}", proxy.address()),
            Self::Shared(layout, _, proxy) => {
                format!("redis://{USER}:pw@{}?layout={layout}&template={NAMESPACE}:{{}}", proxy.address())
            }
            Self::Sentinels(all) => {
                let keys = format!("sentinel_user={USER}&sentinel_password=pw");
                format!("redis+sentinel://{USER}:pw@{}/{}?{keys}", all.endpoints(), all.name())
            }
            Self::Cluster(all) => format!("redis+cluster://{USER}:pw@{}", all.endpoints()),
            Self::Redlock(all) => {
                let hosts: Vec<_> = all.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
                format!("redlock://{USER}:pw@{}", hosts.join(","))
            }
        }
    }
    /// A command, of each server that has a part of the keys.
    fn ask(&self, words: &[&str]) -> Vec<String> {
        match self {
            Self::Alone(server, _) | Self::Shared(_, server, _) => vec![server.ask(words).unwrap()],
            Self::Sentinels(all) => vec![all.ask(all.primary().unwrap(), words).unwrap()],
            Self::Cluster(all) => (0..3).map(|node| all.ask(node, words).unwrap()).collect(),
            Self::Redlock(all) => all.iter().map(|server| server.ask(words).unwrap()).collect(),
        }
    }
    /// A command, of each server.
    fn everywhere(&self, words: &[&str]) {
        match self {
            Self::Alone(server, _) | Self::Shared(_, server, _) => drop(server.ask(words).unwrap()),
            Self::Sentinels(all) => (0..3).for_each(|server| drop(all.ask(server, words).unwrap())),
            Self::Cluster(all) => (0..6).for_each(|server| drop(all.ask(server, words).unwrap())),
            Self::Redlock(all) => all.iter().for_each(|server| drop(server.ask(words).unwrap())),
        }
    }
    /// Something done by the server itself, in Lua, for each key of a name.
    fn each(&self, work: &str) -> Vec<String> {
        let script = format!(
            "local all={{}} for _,key in ipairs(redis.call('KEYS','fl.{NAMESPACE}:*')) do \
               if redis.call('TYPE',key).ok=='hash' then {work} end end return table.concat(all,'\\1')"
        );
        let answers = self.ask(&["EVAL", &script, "0"]);
        assert!(answers.iter().all(|answer| !answer.starts_with('-')), "{answers:?}");
        answers.into_iter().filter(|answer| !answer.is_empty()).collect()
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
        matches!(self, Self::Alone(..)).then_some(self as &dyn WakeUps)
    }
    fn records(&self) -> Option<&dyn Records> {
        // A key that is given back is none.
        if matches!(self, Self::Shared(..)) { None } else { Some(self) }
    }
    fn deletions(&self) -> Option<&dyn Deletions> {
        Some(self)
    }
    fn namespaces(&self) -> Option<&dyn Namespaces> {
        if matches!(self, Self::Shared(..)) { None } else { Some(self) }
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
        match self {
            Self::Alone(server, _) | Self::Shared(_, server, _) => server.kill(),
            Self::Sentinels(all) => (0..3).for_each(|n| all.kill(n)),
            Self::Cluster(all) => (0..6).for_each(|n| all.kill(n)),
            Self::Redlock(all) => all.iter().for_each(Redis::kill),
        }
    }
    async fn start(&self) {
        match self {
            Self::Alone(server, _) | Self::Shared(_, server, _) => {
                assert!(server.restart(), "redis-server did not start again");
            }
            Self::Sentinels(all) => {
                (0..3).for_each(|n| all.restart(n));
                all.settle(BACK);
            }
            Self::Cluster(all) => {
                (0..6).for_each(|n| all.restart(n));
                all.settle(BACK);
            }
            Self::Redlock(all) => assert!(all.iter().all(Redis::restart), "redis-server did not start again"),
        }
    }
    async fn pause(&self, paused: bool) {
        match self {
            Self::Alone(server, _) | Self::Shared(_, server, _) => server.pause(paused),
            Self::Sentinels(all) => (0..3).for_each(|n| all.pause(n, paused)),
            Self::Cluster(all) => (0..6).for_each(|n| all.pause(n, paused)),
            Self::Redlock(all) => all.iter().for_each(|server| server.pause(paused)),
        }
    }
}
/// Their connections are half-open: the server tells, and nobody hears.
#[async_trait]
impl WakeUps for Store {
    async fn lose(&self) {
        if let Self::Alone(_, proxy) = self {
            proxy.mute("SUBSCRIBE");
        }
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
        let all = self.each(&format!("local these={{{these}}} if these[key] then {high} end"));
        Token::new(all.iter().map(|high| high.parse().unwrap()).max().unwrap()).unwrap()
    }
    async fn names(&self) -> Vec<String> {
        let prefix = format!("fl.{NAMESPACE}:");
        let all = self.each("all[#all+1]=key");
        let keys = all.iter().flat_map(|all| all.split('\u{1}'));
        // Several may have the same one.
        let names: BTreeSet<_> = keys.filter_map(|key| key.strip_prefix(&prefix).map(str::to_owned)).collect();
        names.into_iter().collect()
    }
}
#[async_trait]
impl Deletions for Store {
    async fn delete(&self, name: &str) {
        let key = format!("fl.{NAMESPACE}:{name}");
        let gone = "return redis.call('HDEL',ARGV[1],'o')";
        let answers = match self {
            Self::Cluster(all) => {
                let node = all.primary_of(all.slot(&key)).unwrap();
                vec![all.ask(node, &["HDEL", &key, "o"]).unwrap()]
            }
            Self::Alone(..) | Self::Sentinels(_) => self.ask(&["EVAL", gone, "0", &key]),
            Self::Shared(..) => self.ask(&["DEL", &format!("{NAMESPACE}:{name}")]),
            // Whoever has not got it yet has nothing to delete.
            Self::Redlock(_) => {
                let mut answers = self.ask(&["EVAL", gone, "0", &key]);
                answers.retain(|answer| answer == ":1");
                assert!(answers.len() >= 3, "{key} on {} nodes", answers.len());
                answers
            }
        };
        assert!(answers.iter().all(|answer| answer.trim_start_matches(':') == "1"), "{key}: {answers:?}");
    }
}
#[async_trait]
impl Namespaces for Store {
    async fn engine(&self, namespace: &str, ttl: Duration) -> Link {
        // Each has a user of its own.
        let config = Config { user: Some(namespace.to_owned()), ..config(&self.url(), namespace, ttl) };
        let acl = config.acl(VERSION).unwrap();
        let rights = acl.words().iter().map(String::as_str);
        self.everywhere(&["ACL", "SETUSER", namespace, "on", ">pw"].into_iter().chain(rights).collect::<Vec<_>>());
        Link::cuttable(connect(config).await.unwrap())
    }
}
