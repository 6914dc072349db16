//! What `Config::acl` gives is what the engine asks for, in all layouts on one server and behind sentinels and in a cluster: the servers count what they are asked, and
//! keep a list of what they refuse.
//!
//! Planted to see them go red: `hscan` and `asking` left out; a template's blank left as it is. Red by themselves: rights that nobody had
//! asked for, and commands that were not among them, since it was not the primaries alone that were looked at.
#![allow(clippy::unwrap_used, clippy::significant_drop_tightening, reason = "a test fails where it unwraps")]
mod common;
use common::{
    failovers::{FAILOVER, connect_to, many_threads},
    *,
};
use fencelock_core::{Client, ErrorKind, LossReason, Page, TakenAway, Version};
use fencelock_redis::{Acl, Config};
use fencelock_testkit::{Redis, RedisCluster, RedisClusterOptions, RedisOptions, Sentinels, SentinelsOptions};
use std::collections::BTreeSet;

const VERSION: &str = "7.0";
fn acl(url: &str) -> Acl {
    Config::from_url(url).unwrap().acl(VERSION).unwrap()
}
/// A user who has these rights without those, and the URL by which it connects.
fn user(server: &Redis, name: &str, url: &str, without: &[&str]) -> String {
    let acl = acl(url);
    let rights = acl.words().iter().map(String::as_str).filter(|word| !without.contains(word));
    let words: Vec<&str> = ["ACL", "SETUSER", name, "on", ">pw"].into_iter().chain(rights).collect();
    assert_eq!(server.ask(&words).unwrap(), "+OK", "{words:?}");
    url.replace("redis://", &format!("redis://{name}:pw@"))
}
/// As a line of a configuration.
fn line(acl: &Acl) -> String {
    format!("user app on >pw {acl}")
}
/// Without what operators, replicas and those who connect say.
fn called(stats: &str) -> BTreeSet<String> {
    const OTHERS: [&str; 9] =
        ["acl|log", "auth", "config|resetstat", "hello", "info", "ping", "psync", "pubsub|shardchannels", "replconf"];
    let called = stats.split_whitespace().filter_map(|word| word.strip_prefix("cmdstat_")?.split(':').next());
    called.filter(|word| !OTHERS.contains(word)).map(str::to_owned).collect()
}
fn given(acl: &Acl) -> BTreeSet<String> {
    acl.words().iter().filter_map(|word| word.strip_prefix('+').map(str::to_owned)).collect()
}
/// What the server was asked since it counts.
fn asked(server: &Redis) -> BTreeSet<String> {
    const STATS: &str = "return (string.gsub(redis.call('INFO','commandstats'),'%s+',' '))";
    called(&server.ask(&["EVAL", STATS, "0"]).unwrap())
}
fn count_anew(server: &Redis) {
    assert_eq!(server.ask(&["CONFIG", "RESETSTAT"]).unwrap(), "+OK");
}
/// Whether this user may: the server's word, without doing it.
fn may(server: &Redis, name: &str, words: &[&str]) -> bool {
    server.ask(&[&["ACL", "DRYRUN", name], words].concat()).unwrap() == "+OK"
}

/// Held, waited for, handed over, seen, and taken away.
async fn met(a: &Client, b: &Client, name: &str) {
    let guard = a.mutex(name).lock().await.unwrap();
    let next = tokio::spawn(b.mutex(name).lock());
    if a.info().layout == "native" {
        queued(a, name, 1).await;
    } else {
        tokio::time::sleep(100 * MS).await;
    }
    guard.release().await.unwrap();
    let next = soon(next).await.unwrap().unwrap();
    soon(next.renewed()).await;
    assert_eq!(a.list("", &Page::default()).await.unwrap().items.len(), 1);
    let lost = next.lost();
    tokio::time::sleep(250 * MS).await;
    a.force_release(name, next.token()).await.unwrap();
    assert_eq!(soon(lost).await, LossReason::TakenOver);
}
/// All else that there is.
async fn every_kind(a: &Client, b: &Client) {
    let reader = a.rw_lock("r").write().await.unwrap().downgrade().await.unwrap();
    let last = b.rw_lock("r").read().await.unwrap();
    last.release().await.unwrap();
    // Who came last has gone, so another one is looked for.
    assert!(b.rw_lock("r").try_write().await.unwrap().unwrap_err().holder.is_some());
    reader.release().await.unwrap();
    a.semaphore("s", 3).acquire(2).await.unwrap().release().await.unwrap();
    a.semaphore("s", 3).resize(3, 4).await.unwrap();
    let version = a.cell("v").compare_exchange(Version::NONE, b"1".as_slice()).await.unwrap().unwrap();
    assert_eq!(b.cell("v").load().await.unwrap().version, version);
}

#[test]
fn native_needs_what_it_is_given() {
    let server = Redis::start();
    // Records that are kept for a second are prolonged with each renewal.
    let url = format!("{}/1?ttl=3s&retention=1s&namespace=a%20*", server.url());
    let login = user(&server, "app", &url, &[]);
    runtime().block_on(async {
        count_anew(&server);
        let (a, b) = (client(&login).await, client(&login).await);
        assert_eq!(a.info().capabilities.taken_away, TakenAway::Pushed);
        met(&a, &b, "x y").await;
        every_kind(&a, &b).await;
        assert_eq!(asked(&server), given(&acl(&url)));
        assert_eq!(server.ask(&["ACL", "LOG"]).unwrap(), "*0");
        // Enough replicas have it, or not: it may ask.
        let login = user(&server, "more", &format!("{}?replicas=1", server.url()), &[]);
        let error = client(&login).await.mutex("x").lock().await.unwrap_err();
        assert!(error.kind() == ErrorKind::Unreachable && error.to_string().contains("0 of 1"), "{error}");
    });
    let key = "fl.a%20%2A:x";
    for (words, so) in [
        (&["GET", key][..], true),
        (&["SUBSCRIBE", "fl.a%20%2A:%0"], true),
        (&["GET", "fl.a:x"], false),
        (&["GET", "fl:x"], false),
        (&["SUBSCRIBE", key], false),
        (&["PUBLISH", "fl:%0", ""], false),
        (&["PSUBSCRIBE", "*"], false),
        (&["DEL", key], false),
        (&["FLUSHALL"], false),
        (&["KEYS", "*"], false),
        (&["CONFIG", "GET", "*"], false),
        (&["ACL", "LIST"], false),
        (&["CLIENT", "LIST"], false),
        (&["SCRIPT", "FLUSH"], false),
    ] {
        assert_eq!(may(&server, "app", words), so, "{words:?}");
    }
}
#[test]
fn plain_needs_what_it_is_given() {
    let server = Redis::start();
    let url =
        format!("{}?ttl=3s&layout=plain&template=[a]*?\\'b c{{}}:x&signal=s:{{}}&channel=said:{{}}", server.url());
    let login = user(&server, "app", &url, &[]);
    runtime().block_on(async {
        count_anew(&server);
        let (a, b) = (client(&login).await, client(&login).await);
        assert_eq!(a.info().capabilities.taken_away, TakenAway::Pushed);
        met(&a, &b, "x").await;
        a.mutex("x").lock().await.unwrap().release().await.unwrap();
        assert_eq!(asked(&server), given(&acl(&url)));
        assert_eq!(server.ask(&["ACL", "LOG"]).unwrap(), "*0");
        assert_eq!(server.ask(&["LLEN", "s:x"]).unwrap(), ":1");
        // Without a signal and a channel it is asked by other commands, where it knows them.
        let less = user(&server, "less", &format!("{}?ttl=3s&layout=plain&template=l:{{}}", server.url()), &[]);
        met(&client(&less).await, &client(&less).await, "x").await;
        assert_eq!(server.ask(&["ACL", "LOG"]).unwrap(), "*0");
        // What one may not is told. Of a command in a script 7.0 does not say which one it was.
        for without in ["+getrange", "+del"] {
            let c = client(&user(&server, "none", &url, &[without])).await;
            let seen = async {
                let guard = c.mutex("y").lock().await?;
                c.inspect("y").await?;
                guard.release().await
            };
            let error = seen.await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{without}: {error}");
            assert!(error.to_string().contains("fencelock acl redis"), "{error}");
            assert!(without == "+del" || error.to_string().contains(&without[1..]), "{without}: {error}");
            server.ask(&["DEL", "[a]*?\\'b cy:x"]).unwrap();
        }
    });
    for (words, so) in [
        (&["GET", "[a]*?\\'b cx:x"][..], true),
        (&["DEL", "s:x"], true),
        (&["GET", "fl:%id"], true),
        (&["PUBLISH", "said:x", ""], true),
        (&["GET", "[a]bb\\'b cx:x"], false),
        (&["GET", "a*?\\'b cx:x"], false),
        (&["GET", "[a]*?\\'b cx:y"], false),
        (&["GET", "fl:x"], false),
        (&["SUBSCRIBE", "said:x"], false),
        (&["FLUSHALL"], false),
    ] {
        assert_eq!(may(&server, "app", words), so, "{words:?}");
    }
}
#[test]
fn redisson_needs_what_it_is_given() {
    let server = Redis::start();
    let url = format!("{}?ttl=3s&layout=redisson&template=app:{{}}", server.url());
    let login = user(&server, "app", &url, &[]);
    runtime().block_on(async {
        count_anew(&server);
        let (a, b) = (client(&login).await, client(&login).await);
        assert_eq!(a.info().capabilities.taken_away, TakenAway::Pushed);
        met(&a, &b, "x").await;
        readers_of_redisson(&a, &b).await;
        let (asked, given) = (asked(&server), given(&acl(&url)));
        assert!(asked.is_subset(&given), "{:?}", asked.difference(&given));
        assert_eq!(server.ask(&["ACL", "LOG"]).unwrap(), "*0");
        // Whoever starts the server says `PING`, too, so that is not counted.
        let left: Vec<_> = given.difference(&asked).filter(|word| *word != "ping").collect();
        assert!(left.is_empty(), "nobody asked for {left:?}");
    });
    for (words, so) in [
        (&["HGET", "app:x", "u:0"][..], true),
        (&["GET", "redisson_lock_token:{app:x}"], true),
        (&["PUBLISH", "redisson_lock__channel:{app:x}", "0"], true),
        (&["HGET", "x", "u:0"], false),
        (&["SUBSCRIBE", "other"], false),
        (&["FLUSHALL"], false),
    ] {
        assert_eq!(may(&server, "app", words), so, "{words:?}");
    }
}
/// What that layout has beside mutexes: readers beside each other, and whoever asks for one who is left.
async fn readers_of_redisson(a: &Client, b: &Client) {
    let reader = a.rw_lock("r").write().await.unwrap().downgrade().await.unwrap();
    let last = b.rw_lock("r").read().await.unwrap();
    soon(last.renewed()).await;
    assert!(b.rw_lock("r").try_write().await.unwrap().unwrap_err().holder.is_some());
    last.release().await.unwrap();
    reader.release().await.unwrap();
}
/// In the layouts that are shared with others, as users of their own, where there are several servers.
async fn other_layouts(url: impl Fn(&str) -> String, many: usize, say: impl Fn(usize, &[&str]) -> String) {
    for (name, layout) in [
        ("plain", "layout=plain&template=p:{{}}&signal=s:{{}}&channel=said:{{}}"),
        ("redisson", "layout=redisson&template=r:{}"),
    ] {
        let acl = acl(&format!("{}?ttl=3s&{layout}", url("")));
        let words: Vec<&str> =
            ["ACL", "SETUSER", name, "on", ">pw"].into_iter().chain(acl.words().iter().map(String::as_str)).collect();
        (0..many).for_each(|n| assert_eq!(say(n, &words), "OK", "{words:?}"));
        let login = format!("{}?ttl=3s&{layout}", url(&format!("{name}:pw@")));
        let (a, b) = (connect_to(&login).await, connect_to(&login).await);
        met(&a, &b, "x").await;
        if name == "redisson" {
            readers_of_redisson(&a, &b).await;
        }
        for n in 0..many {
            assert_eq!(say(n, &["ACL", "LOG"]).trim(), "", "{name}, server {n}");
        }
    }
}
/// As the server itself reads it.
#[test]
fn a_line_of_the_configuration_says_the_same() {
    for template in ["[a]*?\\{}", "a \"b\"'c' {}", "'{}", "%07%1b\u{e9}{}"] {
        let url = format!("redis://h?layout=plain&template={template}");
        let folder = fencelock_testkit::Folder::new("acl");
        let file = folder.path().join("users.conf");
        std::fs::write(&file, line(&acl(&url)) + "\n").unwrap();
        let arguments = vec!["--include".to_owned(), file.to_str().unwrap().to_owned()];
        let server = Redis::with(RedisOptions { arguments, ..RedisOptions::default() });
        runtime().block_on(async {
            let url = format!("redis://app:pw@127.0.0.1:{}?layout=plain&template={template}", server.port());
            met(&client(&url).await, &client(&url).await, "x").await;
            assert_eq!(server.ask(&["ACL", "LOG"]).unwrap(), "*0", "{template}");
        });
    }
}
/// The example of the documentation.
#[test]
fn the_documentation_says_the_same() {
    let (_, text) = include_str!("../src/docs.md").split_once("```text\n").unwrap();
    let (text, _) = text.split_once("```").unwrap();
    let said: Vec<&str> = text.split_whitespace().collect();
    let acl = acl("redis://h").to_string();
    assert_eq!(said, ["ACL", "SETUSER", "app"].into_iter().chain(acl.split(' ')).collect::<Vec<_>>());
}

#[test]
fn behind_sentinels() {
    let config = Config::from_url("redis+sentinel://h/main?ttl=3s").unwrap();
    let of_sentinels = config.acl_of_sentinels(VERSION).unwrap().unwrap();
    let servers = Sentinels::with(SentinelsOptions {
        settings: vec![line(&config.acl(VERSION).unwrap())],
        sentinel_settings: vec![line(&of_sentinels)],
        ..SentinelsOptions::default()
    });
    let login = "ttl=3s&sentinel_user=app&sentinel_password=pw";
    let url = format!("redis+sentinel://app:pw@{}/{}?{login}", servers.endpoints(), servers.name());
    many_threads().block_on(async {
        let (a, b) = (connect_to(&url).await, connect_to(&url).await);
        met(&a, &b, "x").await;
        every_kind(&a, &b).await;
        let place = |login: &str| format!("redis+sentinel://{login}{}/{}", servers.endpoints(), servers.name());
        other_layouts(place, 3, |n, words| servers.ask(n, words).unwrap()).await;
        servers.failover(FAILOVER);
        eventually("followed", || async { a.mutex("y").try_lock().await.is_ok_and(|lock| lock.is_ok()) }).await;
        for n in 0..3 {
            assert_eq!(servers.ask(n, &["ACL", "LOG"]).unwrap(), "", "{n}");
            assert_eq!(servers.ask_sentinel(n, &["ACL", "LOG"]).unwrap(), "", "{n}");
            for words in [&["SENTINEL", "FAILOVER", "main"][..], &["SENTINEL", "MASTERS"], &["SUBSCRIBE", "+sdown"]] {
                let words = [&["ACL", "DRYRUN", "app"], words].concat();
                assert_ne!(servers.ask_sentinel(n, &words).unwrap(), "OK", "{words:?}");
            }
        }
    });
}
#[test]
fn in_a_cluster() {
    let acl = acl("redis+cluster://h");
    let servers =
        RedisCluster::with(RedisClusterOptions { settings: vec![line(&acl)], ..RedisClusterOptions::default() });
    let url = format!("redis+cluster://app:pw@{}?ttl=3s&retention=1s", servers.endpoints());
    let each = |words: &[&str]| (0..6).map(|n| servers.ask(n, words).unwrap()).collect::<Vec<_>>().join("\n");
    many_threads().block_on(async {
        each(&["CONFIG", "RESETSTAT"]);
        let (a, b) = (connect_to(&url).await, connect_to(&url).await);
        // What is not there while its slot is on its way is asked for where that is going.
        let slot = servers.slot("fl:moves");
        servers.move_slot(slot, (servers.primary_of(slot).unwrap() + 1) % 3);
        a.mutex("moves").lock().await.unwrap().release().await.unwrap();
        met(&a, &b, "x").await;
        every_kind(&a, &b).await;
        // Who waits for nothing any more hears nothing after a while.
        let given = given(&acl);
        let mut missing = given.clone();
        let all = async {
            loop {
                // Replicas are told in other words what their primary was asked.
                let stats: Vec<_> = (0..3).map(|n| servers.ask(n, &["INFO", "commandstats"]).unwrap()).collect();
                let asked = called(&stats.join("\n"));
                missing = given.difference(&asked).cloned().collect();
                if missing.is_empty() {
                    return asked;
                }
                tokio::time::sleep(100 * MS).await;
            }
        };
        let asked = tokio::time::timeout(3 * LONG, all).await;
        let asked = asked.unwrap_or_else(|_| panic!("nobody asked for {missing:?}"));
        // By who moves slots, too.
        let more: Vec<_> = asked.difference(&given).filter(|word| !word.starts_with("cluster|")).collect();
        assert!(more.is_empty(), "{more:?}");
        assert_eq!(each(&["ACL", "LOG"]).trim(), "");
        let place = |login: &str| format!("redis+cluster://{login}{}", servers.endpoints());
        other_layouts(place, 6, |n, words| servers.ask(n, words).unwrap()).await;
    });
    for (words, so) in [
        (&["HGET", "fl:x", "o"][..], true),
        (&["SPUBLISH", "{fl:x}%0", ""], true),
        (&["SPUBLISH", "{x}%0", ""], false),
        (&["PUBLISH", "{fl:x}%0", ""], false),
        (&["CLUSTER", "RESET"], false),
        (&["HGET", "x", "o"], false),
    ] {
        let words = [&["ACL", "DRYRUN", "app"], words].concat();
        assert_eq!(servers.ask(0, &words).unwrap() == "OK", so, "{words:?}");
    }
}
