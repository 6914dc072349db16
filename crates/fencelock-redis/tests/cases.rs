//! What the suites of the peers ask of Redis alone, and what nobody asks (the conformance suite's catalogue names them).
//!
//! Planted to see it go red: LOADING told at once.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_core::ErrorKind;
use fencelock_redis::{Config, raw::scripts};
use fencelock_testkit::{Redis, RedisOptions, on_a_steady_machine};
use std::{
    pin::Pin,
    time::{Duration, Instant},
};

/// How many connections of this kind there are.
fn connections(server: &Redis, kind: &str) -> usize {
    let listing = server.ask(&["EVAL", "return redis.call('CLIENT','LIST','TYPE',ARGV[1])", "0", kind]);
    listing.unwrap().lines().filter(|line| line.contains("addr=")).count()
}

#[test]
fn a_script_s_hash_is_the_server_s() {
    let server = Redis::start();
    for (name, sha, text) in scripts() {
        assert_eq!(server.ask(&["SCRIPT", "LOAD", text]).unwrap(), sha, "{name}");
    }
}

/// The key outlasts what it tells of, and is not told so by every grant: that would be half of what a grant writes to the log of the
/// server and to its copies.
#[test]
fn a_record_stays_for_long_enough() {
    let server = Redis::start();
    runtime().block_on(async {
        let mut config = Config::new("127.0.0.1", server.port());
        config.retention = 2_000 * MS;
        let lock = client_with(config).await.mutex("x").ttl(1_000 * MS);
        let text = "return string.match(redis.call('INFO','commandstats'),'cmdstat_pexpire:calls=(%d+)') or '0'";
        let expiries = || server.ask(&["EVAL", text, "0"]).unwrap().parse::<u32>().unwrap();
        let (began, before, mut grants) = (Instant::now(), expiries(), 0);
        while began.elapsed() < 3_000 * MS || grants < 100 {
            match grants % 50 {
                // Others' hands.
                20 => assert_eq!(server.ask(&["PEXPIRE", "fl:x", "300"]).unwrap(), ":1"),
                40 => assert_eq!(server.ask(&["PERSIST", "fl:x"]).unwrap(), ":1"),
                _ => {}
            }
            let guard = lock.lock().await.unwrap();
            let left: u64 = server.ask(&["PTTL", "fl:x"]).unwrap()[1..].parse().unwrap();
            let least = guard.remaining() + 998 * MS;
            assert!(Duration::from_millis(left) >= least, "{left} ms left of {:?}", guard.remaining());
            guard.release().await.unwrap();
            grants += 1;
            tokio::time::sleep(5 * MS).await;
        }
        let expiries = expiries() - before;
        // By time, and after those hands; on a slow machine there are fewer grants to it.
        let seconds = u32::try_from(began.elapsed().as_secs()).unwrap();
        assert!(expiries <= 2 * seconds + 3 * (grants / 50 + 1) + 2, "{expiries} of {grants} grants in {seconds} s");
    });
}

/// Those who are killed while they wait behind a long hold are gone with the next who comes, many at once.
#[test]
fn dead_waiters_do_not_stay() {
    let server = Redis::start();
    runtime().block_on(async {
        let c = client(&server.url()).await;
        let guard = c.mutex("x").lock().await.unwrap();
        let queue = "for n=1,tonumber(ARGV[2]) do
              local id=string.format('%032x',n)
              redis.call('HSET',KEYS[1],'w'..n,id..' m 1 30000000 0 0 fl:%none host 1 ','x'..n,ARGV[1],'j'..id,n)
            end
            redis.call('HSET',KEYS[1],'q',ARGV[2],'b',1,'t',ARGV[2]+1)";
        server.ask(&["EVAL", queue, "1", "fl:x", "1", "1000"]).unwrap();
        assert_eq!(c.inspect("x").await.unwrap().waiters.len(), 0, "they are dead");
        assert_eq!(server.ask(&["HGET", "fl:x", "q"]).unwrap(), "1000");
        let next = tokio::spawn(c.mutex("x").lock());
        queued(&c, "x", 1).await;
        assert_eq!(server.ask(&["HGET", "fl:x", "q"]).unwrap(), "1");
        let fields: u32 = server.ask(&["HLEN", "fl:x"]).unwrap()[1..].parse().unwrap();
        assert!(fields < 20, "{fields}");
        guard.release().await.unwrap();
        soon(next).await.unwrap().unwrap().release().await.unwrap();
    });
}

#[test]
fn five_thousand_tasks_on_five_names_share_one_subscription() {
    let server = Redis::start();
    runtime().block_on(async {
        let c = client(&server.url()).await;
        let (mut more, mut worst) = (0_u32, 0_u32);
        let tasks: Vec<_> = (0..if full() { 5_000 } else { 1_000 })
            .map(|i| {
                let lock = c.mutex(format!("x{}", i % 5));
                tokio::spawn(async move { lock.lock().await?.release().await })
            })
            .collect();
        let left = || tasks.iter().filter(|task| !task.is_finished()).count();
        while left() > 0 {
            // One that broke may still be there beside the one that is made instead, but not for long.
            more = if connections(&server, "pubsub") > 1 { more + 1 } else { 0 };
            worst = worst.max(more);
            tokio::time::sleep(5 * MS).await;
        }
        for task in tasks {
            task.await.unwrap().unwrap();
        }
        assert!(worst < 3, "more than one at once, in {worst} looks on end");
        // The subscription rests when nobody has waited for a while.
        let deadline = Instant::now() + 3 * LONG;
        while server.ask(&["PUBSUB", "CHANNELS"]).unwrap() != "*0" {
            assert!(Instant::now() < deadline, "a channel is left");
            tokio::time::sleep(50 * MS).await;
        }
    });
}

#[test]
fn a_short_try_on_either_of_two_names_gets_in() {
    let server = Redis::start();
    runtime().block_on(async {
        let (a, b) = (client(&server.url()).await, client(&server.url()).await);
        for name in ["x", "y"].into_iter().cycle().take(40) {
            let guard = a.mutex(name).lock().await.unwrap();
            let lock = b.mutex(name);
            // A tenth of a second in full; a machine that stalls takes it for longer.
            let patience = if full() { 100 * MS } else { 5_000 * MS };
            let waits = tokio::spawn(async move { lock.try_lock_for(patience).await });
            queued(&a, name, 1).await;
            guard.release().await.unwrap();
            waits.await.unwrap().unwrap().expect("it was free in time").release().await.unwrap();
        }
    });
}

#[test]
fn a_timed_try_while_the_server_pauses_leaves_no_place() {
    let server = Redis::start();
    runtime().block_on(async {
        let (a, b) = (client(&server.url()).await, client(&server.url()).await);
        let guard = a.mutex("x").lock().await.unwrap();
        for pause in ["2100", "2600"] {
            let lock = b.mutex("x");
            let tries = tokio::spawn(async move { lock.try_lock_for(2_000 * MS).await });
            queued(&a, "x", 1).await;
            assert_eq!(server.ask(&["CLIENT", "PAUSE", pause]).unwrap(), "+OK");
            match soon(tries).await.unwrap() {
                Ok(answer) => assert!(answer.is_err(), "somebody holds it"),
                Err(error) => assert!(error.is_temporary(), "{error}"),
            }
            eventually("nobody waits", || async { a.inspect("x").await.is_ok_and(|status| status.waiters.is_empty()) })
                .await;
        }
        guard.release().await.unwrap();
        b.mutex("x").try_lock().await.unwrap().unwrap().release().await.unwrap();
    });
}

#[test]
fn a_name_with_a_tag() {
    let server = Redis::start();
    runtime().block_on(async {
        let c = client(&server.url()).await;
        let tasks: Vec<_> = (0..10)
            .map(|_| {
                let lock = c.rw_lock("{test}:abc:key");
                tokio::spawn(async move {
                    for _ in 0..10 {
                        lock.read().await.unwrap().release().await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            soon(task).await.unwrap();
        }
        assert!(!c.inspect("{test}:abc:key").await.unwrap().is_held());
    });
}

#[test]
fn after_a_restart_without_data_the_next_hold_is_renewed_as_ever() {
    let server = Redis::start();
    runtime().block_on(async {
        let c = client(&server.url()).await;
        for kind in ["mutex", "read", "write"] {
            let lock = c.rw_lock(kind).ttl(30_000 * MS);
            let release: Pin<Box<dyn Future<Output = fencelock_core::Result<()>>>> = match kind {
                "mutex" => Box::pin(c.mutex(kind).ttl(30_000 * MS).lock().await.unwrap().release()),
                "read" => Box::pin(lock.read().await.unwrap().release()),
                _ => Box::pin(lock.write().await.unwrap().release()),
            };
            server.kill();
            assert!(server.restart());
            // On the broken connection nobody could tell whether it was this release that freed it.
            assert!(!soon(c.inspect(kind)).await.unwrap().is_held());
            let error = soon(release).await.unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::NotHeld | ErrorKind::Lost), "{error}");
            let next = soon(c.mutex(format!("{kind}.next")).ttl(4_000 * MS).lock()).await.unwrap();
            for _ in 0..3 {
                soon(next.renewed()).await;
            }
            next.release().await.unwrap();
        }
    });
}

#[test]
fn a_server_that_loads_its_data_is_waited_for() {
    let slow = ["--key-load-delay", "300", "--loading-process-events-interval-bytes", "1024"];
    let arguments = slow.into_iter().chain(["--enable-debug-command", "yes"]).map(str::to_owned).collect();
    let server = Redis::with(RedisOptions { arguments, ..RedisOptions::default() });
    runtime().block_on(async {
        let (a, b) = (client(&server.url()).await, client(&server.url()).await);
        let guard = a.mutex("held").ttl(30_000 * MS).lock().await.unwrap();
        let lock = b.mutex("held");
        let waits = tokio::spawn(async move { lock.lock().await.unwrap() });
        queued(&a, "held", 1).await;
        assert_eq!(server.ask(&["DEBUG", "POPULATE", "6000", "filler", "100"]).unwrap(), "+OK");
        assert_eq!(server.ask(&["SAVE"]).unwrap(), "+OK");
        server.kill();
        server.begin();
        let said = || server.ask(&["GET", "filler:1"]).unwrap_or_default();
        eventually("it loads", || async { said().contains("LOADING") }).await;
        let fresh = soon(a.mutex("x").lock()).await.unwrap();
        assert!(!said().contains("LOADING"));
        fresh.release().await.unwrap();
        guard.check().unwrap();
        guard.release().await.unwrap();
        soon(waits).await.unwrap().release().await.unwrap();
    });
}

/// Each contended grant: the claim, the confirm of the hand-over, the release. Signs of life come apart, once a second and more.
#[test]
fn no_more_commands_for_each_grant_the_more_there_are_who_wait() {
    let server = Redis::start();
    let current = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    current.block_on(async {
        for waiters in [2_u64, 16, 64] {
            let (proxy, url) = proxied(&server);
            let mut clients = Vec::new();
            for _ in 0..waiters {
                clients.push(client(&url).await);
            }
            let holds = 6;
            let before: u64 = proxy.commands().values().sum();
            assert!(before > 0);
            let began = Instant::now();
            let tasks: Vec<_> = clients
                .iter()
                .map(|c| {
                    let lock = c.mutex(format!("x{waiters}"));
                    tokio::spawn(async move {
                        for _ in 0..holds {
                            let guard = lock.lock().await.unwrap();
                            tokio::time::sleep(MS).await;
                            guard.release().await.unwrap();
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            let took = began.elapsed();
            let seen = proxy.commands();
            let all: u64 = seen.values().sum();
            let grants = waiters * holds;
            // What each client does once: a connection for `run`, a subscription, the text of the scripts.
            let once = 16 * waiters;
            let signs = waiters * (took.as_secs() + 1);
            assert!(all <= 4 * grants + once + signs, "{all} commands for {grants} grants in {took:?}: {seen:?}");
            let scripts = seen.get("EVALSHA").copied().unwrap_or_default();
            assert!(scripts <= 4 * grants + signs, "{scripts} scripts for {grants} grants: {seen:?}");
            println!(
                "MEASURED | commands for each contended grant, {waiters} clients | {:.2} scripts | <= 4 | {}",
                (scripts - signs.min(scripts)) as f64 / grants as f64,
                if scripts <= 4 * grants + signs { "ok" } else { "MISSED" }
            );
        }
    });
}

/// They wait for a lease that is renewed all the time.
#[test]
fn who_waits_idle_says_no_more_than_a_word_a_second() {
    let server = Redis::start();
    runtime().block_on(async {
        let holder = client(&server.url()).await;
        let guard = holder.mutex("x").ttl(30_000 * MS).lock().await.unwrap();
        let (proxy, url) = proxied(&server);
        let mut waits = Vec::new();
        for _ in 0..16 {
            let c = client(&url).await;
            waits.push(tokio::spawn(async move { c.mutex("x").ttl(3_000 * MS).lock().await.unwrap().release().await }));
        }
        queued(&holder, "x", 16).await;
        tokio::time::sleep(500 * MS).await;
        proxy.commands();
        let span = Duration::from_secs(if full() { 20 } else { 5 });
        tokio::time::sleep(span).await;
        let seen: u64 = proxy.commands().values().sum();
        assert!(seen <= 16 * (span.as_secs() + 1), "{seen} commands of 16 waiters in {span:?}");
        guard.release().await.unwrap();
        for wait in waits {
            soon(wait).await.unwrap().unwrap();
        }
    });
}

/// Server time of a script, in µs each, since the last call.
fn cost_of_a_script(server: &Redis) -> f64 {
    let text =
        "return string.match(redis.call('INFO','commandstats'),'cmdstat_evalsha:.-usec_per_call=([%d.]+)') or '0'";
    let cost = server.ask(&["EVAL", text, "0"]).unwrap().parse().unwrap();
    assert_eq!(server.ask(&["CONFIG", "RESETSTAT"]).unwrap(), "+OK");
    cost
}

#[test]
fn a_reader_beside_a_thousand_costs_about_what_one_beside_one_does() {
    let server = Redis::start();
    runtime().block_on(async {
        let c = client(&server.url()).await;
        let lock = c.rw_lock("x").ttl(30_000 * MS);
        let mut held = vec![lock.read().await.unwrap()];
        let mut costs = Vec::new();
        for beside in [1, 1_000] {
            while held.len() < beside {
                held.push(lock.read().await.unwrap());
            }
            cost_of_a_script(&server);
            for _ in 0..300 {
                lock.read().await.unwrap().release().await.unwrap();
            }
            costs.push(cost_of_a_script(&server));
        }
        let ratio = costs[1] / costs[0];
        // Walking all of them would be a hundred times as much.
        assert!(costs[0] > 0.0 && ratio < if full() { 2.0 } else { 10.0 }, "{costs:?}");
        println!(
            "MEASURED | a reader's script beside 1,000 others on Redis, to one beside one | {ratio:.2} ({:.1} to {:.1} µs) | <= 2 | {}",
            costs[1], costs[0],
            if ratio <= 2.0 { "ok" } else { "MISSED" }
        );
    });
}
/// Whoever has a place in the queue listens already: a release passes those who do not (SAFETY H1). (Red: a place that is taken first.)
#[test]
fn who_has_a_place_in_the_queue_listens() {
    // Whoever stands still for too long loses his connection, and his place stays for a moment.
    on_a_steady_machine(300 * MS, places_that_listen);
}
fn places_that_listen() {
    let server = Redis::start();
    let deaf = "return tonumber(redis.call('HGET',KEYS[1],'q') or 0)-#redis.call('PUBSUB','CHANNELS','fl:%*')";
    runtime().block_on(async {
        let holder = client(&server.url()).await;
        let guard = holder.mutex("x").lock().await.unwrap();
        let mut waits = tokio::task::JoinSet::new();
        for n in 1..=20 {
            waits.spawn(client(&server.url()).await.mutex("x").lock());
            eventually("it waits", || async {
                assert!(!server.ask(&["EVAL", deaf, "1", "fl:x"]).unwrap().starts_with(":1"), "{n}: in one step");
                server.ask(&["HGET", "fl:x", "q"]).unwrap() == n.to_string()
            })
            .await;
        }
        guard.release().await.unwrap();
        while let Some(next) = waits.join_next().await {
            next.unwrap().unwrap().release().await.unwrap();
        }
    });
}
