//! Servers that cannot or will not: each is one clear error, or survived; nothing stays held and no secret is shown. What each layout meets
//! by commands of its own is done in each.
//!
//! Planted to see it go red: OOM told as something that no script answers.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_core::{Client, Error, ErrorKind, LossReason};
use fencelock_redis::{Config, RedisEngine};
use fencelock_testkit::{Redis, RedisOptions};
use std::time::Instant;

const SECRET: &str = "hunter2";

fn with(arguments: &[&str]) -> Redis {
    let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
    Redis::with(RedisOptions { arguments, ..RedisOptions::default() })
}
async fn refused(url: &str) -> Error {
    let error = RedisEngine::from_url(url).await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains(SECRET), "{error}");
    error
}
/// What makes a URL one of each layout.
const LAYOUTS: [&str; 3] = ["", "?layout=plain&template=lock:{}", "?layout=redisson"];
/// The way out for whoever may not do something, and the server's own word where it names what.
fn names_the_right(error: &Error, right: &str) {
    let said = error.to_string();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{said}");
    assert!(said.contains("`fencelock acl redis` prints the rights") && said.contains(right), "{right}: {said}");
}
/// Locks and gives back.
async fn works(client: &Client, name: &str) {
    soon(client.mutex(name).lock()).await.unwrap().release().await.unwrap();
}

#[test]
fn no_server() {
    let port = fencelock_testkit::Port::free();
    runtime().block_on(async {
        let started = Instant::now();
        let error = refused(&format!("redis://:{SECRET}@127.0.0.1:{port}")).await;
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        assert!(error.to_string().contains(&port.to_string()), "{error}");
        assert!(started.elapsed() < LONG);
    });
}

#[test]
fn no_such_database() {
    let server = Redis::start();
    let error = runtime().block_on(RedisEngine::from_url(&format!("{}/99", server.url()))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    assert!(error.to_string().contains("/99"), "{error}");
}

#[test]
fn a_server_that_goes_away_and_comes_back() {
    let server = Redis::with(RedisOptions { append_only: true, ..RedisOptions::default() });
    runtime().block_on(async {
        let c = client(&server.url()).await;
        let guard = c.mutex("held").ttl(30_000 * MS).lock().await.unwrap();
        server.kill();
        let error = soon(c.mutex("x").lock()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        assert!(server.restart());
        works(&c, "x").await;
        assert!(guard.is_valid());
        guard.release().await.unwrap();
    });
}

#[test]
fn a_wait_survives_a_restart_and_a_hold_that_was_forgotten_is_told() {
    let server = Redis::start();
    runtime().block_on(async {
        let (a, b) = (client(&server.url()).await, client(&server.url()).await);
        let guard = a.mutex("x").ttl(30_000 * MS).lock().await.unwrap();
        let (lost, old) = (guard.lost(), guard.token());
        let lock = b.mutex("x");
        let next = tokio::spawn(async move { lock.lock().await.unwrap() });
        queued(&a, "x", 1).await;
        server.kill();
        assert!(server.restart());
        let next = soon(next).await.unwrap();
        assert!(next.token() > old);
        assert_eq!(soon(lost).await, LossReason::TakenOver);
        next.release().await.unwrap();
    });
}

#[test]
fn passwords_and_rights() {
    let server = with(&["--requirepass", SECRET]);
    let url = |login: &str| format!("redis://{login}127.0.0.1:{}", server.port());
    runtime().block_on(async {
        for login in ["", ":wrong@", "nobody:wrong@"] {
            let error = refused(&url(login)).await;
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{login} {error}");
        }
        let good = client(&url(&format!(":{SECRET}@"))).await;
        works(&good, "x").await;
        assert!(good.info().url.is_none());
        assert!(!format!("{good:?} {:?}", good.info()).contains(SECRET));
    });
    let server = Redis::start();
    let user = |name: &str, rights: &[&str]| {
        let mut words = vec!["ACL", "SETUSER", name, "reset", "on", ">pw"];
        words.extend(rights);
        assert_eq!(server.ask(&words).unwrap(), "+OK");
        format!("redis://{name}:pw@127.0.0.1:{}", server.port())
    };
    runtime().block_on(async {
        names_the_right(&refused(&user("keys", &["+@all", "&*", "~other:*"])).await, "NOPERM");
        names_the_right(&refused(&user("time", &["+@all", "-time", "&*", "~fl:*"])).await, "time");
        names_the_right(&refused(&user("script", &["+@all", "-eval", "-evalsha", "&*", "~fl:*"])).await, "eval");
        // What a script may not do is told by the lock. 7.0 does not say which command of it that was: the hint leads to all of them.
        for (layout, without) in LAYOUTS.into_iter().zip(["-hset", "-set", "-hset"]) {
            let url = user("few", &["+@all", without, "&*", "~*"]) + layout;
            // The identity of the store is written with `SET`.
            works(&client(&(server.url() + layout)).await, "x").await;
            names_the_right(&client(&url).await.mutex("x").lock().await.unwrap_err(), "can't run this command");
            assert!(!client(&(server.url() + layout)).await.inspect("x").await.unwrap().is_held(), "{layout}");
        }
    });
}

#[test]
fn a_key_of_another_type() {
    let server = Redis::start();
    runtime().block_on(async {
        let c = client(&server.url()).await;
        assert_eq!(server.ask(&["SET", "fl:x", "theirs"]).unwrap(), "+OK");
        for error in [
            c.mutex("x").lock().await.map(drop).unwrap_err(),
            c.mutex("x").try_lock().await.map(drop).unwrap_err(),
            c.inspect("x").await.map(drop).unwrap_err(),
            c.cell("x").load().await.map(drop).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::LayoutMismatch, "{error}");
        }
        assert!(c.list("", &fencelock_core::Page::default()).await.unwrap().items.is_empty());
        assert_eq!(server.ask(&["GET", "fl:x"]).unwrap(), "theirs");
        // Overwritten while it is held.
        let guard = c.mutex("y").ttl(30_000 * MS).lock().await.unwrap();
        tokio::time::sleep(300 * MS).await;
        assert_eq!(server.ask(&["SET", "fl:y", "theirs"]).unwrap(), "+OK");
        assert_eq!(soon(guard.lost()).await, LossReason::TakenOver);
    });
}

#[test]
fn no_memory_left() {
    let server = Redis::start();
    runtime().block_on(async {
        for layout in LAYOUTS {
            let c = client(&(server.url() + layout)).await;
            let guard = c.mutex("held").lock().await.unwrap();
            assert_eq!(server.ask(&["CONFIG", "SET", "maxmemory", "1"]).unwrap(), "+OK");
            let error = c.mutex("x").lock().await.unwrap_err();
            assert!(
                error.kind() == ErrorKind::Unreachable && error.to_string().contains("memory"),
                "{layout}: {error}"
            );
            assert!(error.to_string().contains("raise maxmemory"), "{layout}: {error}");
            // What frees memory is allowed.
            guard.release().await.unwrap_or_else(|error| panic!("{layout}: {error}"));
            assert_eq!(server.ask(&["CONFIG", "SET", "maxmemory", "0"]).unwrap(), "+OK");
            works(&c, "x").await;
            works(&c, "held").await;
        }
    });
}

#[test]
fn scripts_that_are_forgotten_and_connections_that_are_killed() {
    let server = Redis::start();
    runtime().block_on(async {
        for layout in LAYOUTS {
            let c = client(&(server.url() + layout)).await;
            let guard = c.mutex("held").ttl(5_000 * MS).lock().await.unwrap();
            for _ in 0..if layout.is_empty() { 5 } else { 2 } {
                assert_eq!(server.ask(&["SCRIPT", "FLUSH"]).unwrap(), "+OK");
                works(&c, "x").await;
                // The renewal and the release, too, find nothing that they know.
                assert_eq!(server.ask(&["SCRIPT", "FLUSH"]).unwrap(), "+OK");
                soon(guard.renewed()).await;
                for kind in ["normal", "pubsub"] {
                    server.ask(&["CLIENT", "KILL", "TYPE", kind]).unwrap();
                    works(&c, "x").await;
                }
            }
            guard.check().unwrap();
            assert_eq!(server.ask(&["SCRIPT", "FLUSH"]).unwrap(), "+OK");
            guard.release().await.unwrap();
            assert!(!c.inspect("held").await.unwrap().is_held(), "{layout}");
        }
    });
}

/// It reads its data: whoever asks meanwhile waits for it, and what is held is held.
#[test]
fn a_server_that_loads() {
    let server = std::sync::Arc::new(with(&["--enable-debug-command", "yes"]));
    runtime().block_on(async {
        let c = client(&server.url()).await;
        let guard = c.mutex("held").ttl(30_000 * MS).lock().await.unwrap();
        for n in 0..1_000 {
            server.ask(&["SET", &format!("k{n}"), &"x".repeat(100)]).unwrap();
        }
        for setting in [["key-load-delay", "1500"], ["loading-process-events-interval-bytes", "1024"]] {
            assert_eq!(server.ask(&[&["CONFIG", "SET"], &setting[..]].concat()).unwrap(), "+OK");
        }
        let reloads = tokio::task::spawn_blocking({
            let server = server.clone();
            move || server.ask(&["DEBUG", "RELOAD"])
        });
        let loads = || async { server.ask(&["GET", "k0"]).unwrap().starts_with("-LOADING") };
        eventually("it loads", loads).await;
        works(&c, "x").await;
        assert!(!loads().await);
        assert_eq!(reloads.await.unwrap().unwrap(), "+OK");
        guard.check().unwrap();
        guard.release().await.unwrap();
    });
}

/// It became a replica, and the server that it follows is not there.
#[test]
fn a_replica_of_nobody() {
    let server = with(&["--replica-serve-stale-data", "no"]);
    let nobody = fencelock_testkit::Port::free();
    runtime().block_on(async {
        let c = client(&server.url()).await;
        let guard = c.mutex("held").ttl(30_000 * MS).lock().await.unwrap();
        assert_eq!(server.ask(&["REPLICAOF", "127.0.0.1", &nobody.to_string()]).unwrap(), "+OK");
        assert!(server.ask(&["GET", "x"]).unwrap().starts_with("-MASTERDOWN"));
        let error = soon(c.mutex("x").lock()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        assert_eq!(server.ask(&["REPLICAOF", "NO", "ONE"]).unwrap(), "+OK");
        works(&c, "x").await;
        guard.check().unwrap();
        guard.release().await.unwrap();
    });
}

#[test]
fn too_many_clients() {
    let server = with(&["--maxclients", "3"]);
    runtime().block_on(async {
        let mut some = Vec::new();
        let error = loop {
            match RedisEngine::connect(Config::new("127.0.0.1", server.port())).await {
                Ok(engine) => some.push(engine),
                Err(error) => break error,
            }
            assert!(some.len() < 4);
        };
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        assert!(error.to_string().contains("clients"), "{error}");
    });
}

/// Whoever waits over an outage is told that what is known of the holder is from before it (SAFETY E8). (Red: nothing is said of it.)
#[test]
fn whoever_waits_over_an_outage_knows() {
    let server = with(&[]);
    runtime().block_on(async {
        for query in ["", "?wait=spin", &format!("?{PLAIN}")] {
            let (proxy, url) = proxied(&server);
            let (a, b, name) =
                (client(&(server.url() + query)).await, client(&(url + query)).await, query.len().to_string());
            let held = a.mutex(&*name).ttl(60_000 * MS).lock().await.unwrap();
            let mut wait = b.mutex(&*name).lock();
            soon(async {
                while wait.blocked_by().is_none_or(|busy| busy.stale) {
                    assert!(tokio::time::timeout(20 * MS, &mut wait).await.is_err());
                }
            })
            .await;
            proxy.lead_to(([127, 0, 0, 1], fencelock_testkit::Port::free().number()).into());
            proxy.cut();
            eventually("it is told", || async { wait.blocked_by().is_some_and(|busy| busy.stale) }).await;
            proxy.lead_to(([127, 0, 0, 1], server.port()).into());
            eventually("it is known", || async { wait.blocked_by().is_some_and(|busy| !busy.stale) }).await;
            held.release().await.unwrap();
            soon(wait).await.unwrap().release().await.unwrap();
        }
    });
}

/// Each client has its first connection, and gets no other one: by that it takes, keeps, waits, and gives back (SAFETY E8). (Red: those who
/// renew and wait have one of their own, or none.)
#[test]
fn one_connection_does_for_all() {
    let server = with(&["--maxclients", "2"]);
    runtime().block_on(async {
        let (a, b) = (client(&server.url()).await, client(&server.url()).await);
        let held = soon(a.mutex("x").ttl(6_000 * MS).lock()).await.unwrap();
        let wait = tokio::spawn(b.mutex("x").lock());
        let until = held.valid_until() + 2_000 * MS;
        eventually("it was renewed", || async { held.valid_until() > until || !held.is_valid() }).await;
        held.check().unwrap();
        let first = held.token();
        held.release().await.unwrap();
        let next = soon(wait).await.unwrap().unwrap();
        assert!(next.token() > first);
        next.release().await.unwrap();
    });
}

/// The address leads to another server now, and the one before follows it: its connections stay open.
#[test]
fn a_primary_that_steps_down_is_left_with_the_next_renewal() {
    let at_once = ["--repl-diskless-sync-delay", "0"];
    let (old, new) = (with(&at_once), with(&at_once));
    let port = |server: &Redis| server.port().to_string();
    assert_eq!(new.ask(&["REPLICAOF", "127.0.0.1", &port(&old)]).unwrap(), "+OK");
    let (proxy, url) = proxied(&old);
    runtime().block_on(async {
        // By the newer protocol and by the older one, which tells of nothing.
        let both = [client(&url).await, client(&(url + "?protocol=resp2")).await];
        let mut guards = Vec::new();
        for (c, name) in both.iter().zip(["x", "y"]) {
            guards.push(c.mutex(name).ttl(6_000 * MS).lock().await.unwrap());
        }
        eventually("replicated", || async { new.ask(&["HEXISTS", "fl:y", "o"]).unwrap() == ":1" }).await;
        assert_eq!(new.ask(&["REPLICAOF", "NO", "ONE"]).unwrap(), "+OK");
        assert_eq!(old.ask(&["REPLICAOF", "127.0.0.1", &port(&new)]).unwrap(), "+OK");
        proxy.lead_to(([127, 0, 0, 1], new.port()).into());
        tokio::time::sleep(7_000 * MS).await;
        for guard in guards {
            assert!(guard.is_valid(), "it is renewed where the record is");
            guard.release().await.unwrap();
        }
    });
}

#[test]
fn a_replica() {
    let primary = with(&["--repl-diskless-sync-delay", "0"]);
    let port = primary.port().to_string();
    let replica = with(&["--replicaof", "127.0.0.1", &port]);
    runtime().block_on(async {
        works(&client(&primary.url()).await, "x").await;
        eventually("replicated", || async { replica.ask(&["EXISTS", "fl:x"]).unwrap() == ":1" }).await;
        let error = match RedisEngine::from_url(&replica.url()).await {
            Err(error) => error,
            Ok(_) => panic!("a replica takes no writes"),
        };
        assert!(error.kind() == ErrorKind::Unreachable && error.to_string().contains("replica"), "{error}");
    });
}

#[test]
fn names_of_every_kind() {
    let server = Redis::start();
    runtime().block_on(async {
        let c = client(&server.url()).await;
        let mut names: Vec<String> = ["{", "}", "{a}b", "a b", "%", "%7B", "\t", "*", "[a]", "\\", "'\"", ":"]
            .into_iter()
            .chain(["\u{e9}", "\u{4e2d}\u{6587}", "\u{1F512}", "\u{2F800}", "\u{E0041}", "\u{F0000}", "\u{10FFFD}"])
            .map(str::to_owned)
            .collect();
        names.push("x".repeat(512));
        for name in &names {
            let guard = c.mutex(name).lock().await.unwrap();
            let waiter = client(&server.url()).await;
            let lock = waiter.mutex(name);
            let next = tokio::spawn(async move { lock.lock().await.unwrap() });
            queued(&c, name, 1).await;
            let found = c.list(name, &fencelock_core::Page::default()).await.unwrap();
            assert!(found.items.iter().any(|status| status.name.as_str() == name), "{name:?}");
            guard.release().await.unwrap();
            soon(next).await.unwrap().release().await.unwrap();
        }
        let listing = c.list("", &fencelock_core::Page::default()).await.unwrap();
        assert!(listing.items.is_empty(), "{listing:?}");
    });
}
