//! Layout `plain`: a string for each lock, as redis-py, redsync, node-redlock, rslock, python-redis-lock, pottery and Spring have it. What
//! they send is sent here by hand; they themselves are asked in `interop.rs`, what the server can in `plain_commands.rs`,
//! processes in `processes`, broken attempts in `undo.rs`.
//!
//! Planted to see them go red: a refusal without its reason; a repeat that does not look for its own value; a message without the key; a repeat that keeps the ttl that is left; a release that
//! compares nothing; a claim that does not look at its end; a key that does not end taken for one that has ended; a value without its
//! token; no tracking; a wait that does not hear of changes; a signal that is pushed without deleting the list first, or that does not
//! end.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_conformance::proxy::Trouble;
use fencelock_core::{Client, ErrorKind, Fencing, LossReason, Ordering, Released, TakenAway, Token, Waiting};
use fencelock_redis::Config;
use fencelock_testkit::Redis;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

/// As every other library asks: the key with a value of its own, if nobody has it.
fn take(server: &Redis, key: &str, value: &str, ms: Option<&str>) -> bool {
    let mut words = vec!["SET", key, value, "NX"];
    words.extend(ms.into_iter().flat_map(|ms| ["PX", ms]));
    server.ask(&words).unwrap() == "+OK"
}
/// And gives it back.
fn give(server: &Redis, key: &str, value: &str) -> bool {
    let script = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
    number(&server.ask(&["EVAL", script, "1", key, value]).unwrap()) == 1
}

#[test]
fn what_it_can_and_what_it_writes() {
    let server = Redis::start();
    runtime().block_on(async {
        let (c, other) = (plain(&server.url()).await, plain(&server.url()).await);
        let can = &c.info().capabilities;
        assert_eq!((c.info().layout, can.fencing, can.ordering), ("plain", Fencing::OursOnly, Ordering::Any));
        assert_eq!((can.waiting, can.taken_away), (Waiting::Push, TakenAway::Pushed));
        let url = c.info().url.clone().unwrap();
        assert_eq!(client(&url).await.info().id, c.info().id, "{url}");
        assert_ne!(client(&server.url()).await.info().id, c.info().id);
        for (refused, why) in [
            (c.rw_lock("x").read().await.unwrap_err(), "has one holder"),
            (c.rw_lock("x").write().await.unwrap_err(), "has one holder"),
            (c.semaphore("x", 2).acquire(1).await.unwrap_err(), "by their clients' clocks"),
            (c.semaphore("x", 2).resize(2, 3).await.unwrap_err(), "by their clients' clocks"),
            (c.cell("x").load().await.unwrap_err(), "keeps no version"),
            (c.mutex("t").lock().await.unwrap().into_ticket().await.unwrap_err(), "its holder's"),
        ] {
            assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
            assert!(refused.to_string().contains(why), "{refused}");
        }
        let guard = c.mutex("a:{b} %").note("ann's. job").ttl(60 * SEC).lock().await.unwrap();
        let value = server.ask(&["GET", "lock:a:{b} %"]).unwrap();
        assert!(value.bytes().all(|byte| byte.is_ascii_graphic()), "{value}");
        assert!(value.starts_with(&format!("{}.fl1.{}.", guard.id(), guard.token())), "{value}");
        let left = pttl(&server, "lock:a:{b} %");
        assert!((55_000..=60_000).contains(&left), "{left}");
        let status = other.inspect("a:{b} %").await.unwrap();
        let holder = &status.holders[0];
        assert_eq!((holder.hold, holder.token, &*holder.note), (guard.id(), guard.token(), "ann's. job"));
        assert_eq!((holder.pid, status.last_token), (std::process::id(), Some(guard.token())));
        assert!(holder.left > 50 * SEC && holder.held_for < 30 * SEC, "{holder:?}");
        let listed = other.list("a:", &Default::default()).await.unwrap().items;
        assert_eq!((listed.len(), listed[0].holders[0].token), (1, guard.token()));
        assert!(other.list("b", &Default::default()).await.unwrap().items.is_empty());
        let busy = other.mutex("a:{b} %").try_lock().await.unwrap().unwrap_err();
        assert_eq!(busy.holder.unwrap().token, guard.token());
        // The same value for as long as it is held.
        renew(&server, &guard).await;
        assert_eq!(server.ask(&["GET", "lock:a:{b} %"]).unwrap(), value);
        guard.release().await.unwrap();
        assert_eq!(server.ask(&["EXISTS", "lock:a:{b} %"]).unwrap(), ":0");
    });
}

/// One node, by hand: whoever is first has it, and gives back what is his alone (rslock's, redsync's and redis-py's own tests).
#[test]
fn set_nx_takes_a_free_key_only_and_compare_and_delete_its_own() {
    let server = Redis::start();
    runtime().block_on(async {
        let c = plain(&server.url()).await;
        assert!(take(&server, "lock:x", "theirs", Some("60000")));
        let busy = c.mutex("x").try_lock().await.unwrap().unwrap_err();
        let theirs = *busy.holder.unwrap();
        assert_eq!((&*theirs.host, theirs.pid, &*theirs.note), ("?", 0, "another program: theirs"));
        assert!(theirs.left > 30 * SEC);
        let seen = c.inspect("x").await.unwrap();
        assert_eq!((seen.holders[0].token, seen.last_token), (theirs.token, None));
        assert!(give(&server, "lock:x", "theirs"));

        let guard = c.mutex("x").lock().await.unwrap();
        assert!(guard.token() > theirs.token);
        let value = server.ask(&["GET", "lock:x"]).unwrap();
        assert!(!take(&server, "lock:x", "theirs", Some("60000")) && !give(&server, "lock:x", "theirs"));
        guard.release().await.unwrap();
        assert!(!give(&server, "lock:x", &value));
        // One of theirs that came after ours was over stays what it is, whatever ours does late.
        let guard = c.mutex("x").ttl(60 * SEC).lock().await.unwrap();
        server.ask(&["SET", "lock:x", "theirs", "PX", "60000"]).unwrap();
        drop(guard.release().await);
        assert_eq!(server.ask(&["GET", "lock:x"]).unwrap(), "theirs");
        // An operator breaks it by what stands for its token, and nothing else.
        let seen = c.inspect("x").await.unwrap().holders[0].token;
        let wrong = Token::new(seen.get() + 1).unwrap();
        assert!(matches!(c.force_release("x", wrong).await.unwrap(), Released::NotHeld { holder: Some(_) }));
        assert_eq!(c.force_release("x", seen).await.unwrap(), Released::Released);
        assert_eq!(server.ask(&["EXISTS", "lock:x"]).unwrap(), ":0");
        assert_eq!(c.force_release("x", seen).await.unwrap(), Released::NotHeld { holder: None });
    });
}

/// A key that does not end by itself is held, by whatever it says (redis-py's default). No renewal gives it an end.
#[test]
fn a_key_without_a_ttl_is_held() {
    let server = Redis::start();
    runtime().block_on(async {
        let (c, older) = (plain(&server.url()).await, plain(&(server.url() + "?protocol=resp2")).await);
        for (c, value) in [(&c, "theirs"), (&older, "theirs"), (&c, "")] {
            assert!(take(&server, "lock:x", value, None));
            assert!(c.mutex("x").try_lock().await.unwrap().is_err(), "{value:?}");
            let lock = c.mutex("x");
            let wait = tokio::time::timeout(700 * MS, lock.lock()).await;
            assert!(wait.is_err(), "{value:?}");
            let status = c.inspect("x").await.unwrap();
            assert!(status.is_held() && status.holders[0].left > 24 * 3_600 * SEC, "{status:?}");
            let busy = c.mutex("x").try_lock().await.unwrap().unwrap_err();
            assert!(!busy.to_string().is_empty());
            // Ours was there, and they have it now: a renewal is told so, and changes nothing.
            server.ask(&["DEL", "lock:x"]).unwrap();
            let guard = c.mutex("x").ttl(3 * SEC).lock().await.unwrap();
            server.ask(&["SET", "lock:x", value]).unwrap();
            assert_eq!(soon(guard.lost()).await, LossReason::TakenOver);
            drop(guard);
            tokio::time::sleep(500 * MS).await;
            assert_eq!((pttl(&server, "lock:x"), server.ask(&["DEL", "lock:x"]).unwrap()), (-1, ":1".to_owned()));
        }
    });
}

/// Whatever is lost or doubled: one hold, the same token, its full ttl, and one release frees it (SAFETY A, G1).
#[test]
fn replies_that_are_lost_and_commands_that_come_twice() {
    let server = Redis::start();
    runtime().block_on(async {
        let (proxy, url) = proxied(&server);
        let (c, other) = (plain(&url).await, plain(&server.url()).await);
        // What is lost is no word of a script that the server does not know yet.
        for (_, _, text) in fencelock_redis::raw::scripts() {
            server.ask(&["SCRIPT", "LOAD", text]).unwrap();
        }
        let mut last = None;
        for trouble in [Trouble::LoseReply, Trouble::Twice] {
            for script in ["plain_acquire", "plain_release", "plain_renew"] {
                let what = format!("{script}, {trouble:?}");
                let met = first(&proxy, script, 1, trouble);
                // No other lease would end in time.
                let ttl = if script == "plain_renew" { 4 * SEC } else { 60 * SEC };
                let guard = soon(c.mutex("x").ttl(ttl).lock()).await.unwrap();
                let value = server.ask(&["GET", "lock:x"]).unwrap();
                assert!(value.starts_with(&format!("{}.fl1.{}.", guard.id(), guard.token())), "{what}: {value}");
                assert!(last.replace(guard.token()) < Some(guard.token()), "{what}");
                if script == "plain_renew" {
                    soon(guard.renewed()).await;
                    assert_eq!(server.ask(&["GET", "lock:x"]).unwrap(), value);
                    guard.check().unwrap();
                }
                guard.release().await.unwrap();
                assert_eq!(met.load(SeqCst), 1, "{what}");
                assert_eq!(server.ask(&["EXISTS", "lock:x"]).unwrap(), ":0", "{what}");
                other.mutex("x").try_lock().await.unwrap().unwrap().release().await.unwrap();
            }
        }
    });
}

/// A repeat of an attempt finds its own grant, and makes it as long as the first one was (SAFETY G1).
#[test]
fn a_repeat_has_the_full_ttl() {
    let server = Redis::start();
    let (_, _, text) = fencelock_redis::raw::scripts().into_iter().find(|(name, ..)| *name == "plain_acquire").unwrap();
    let hold = "00000000000000000000000000000007";
    let claim = |hold: &str, ttl: &str, ends: &str, floor: &str| {
        let all = "return table.concat(f(),' ')";
        let script = format!("local function f() {text} end {all}");
        server.ask(&["EVAL", &script, "1", "lock:x", "0", hold, ttl, ends, floor, ".1..h"]).unwrap()
    };
    let ever = "9007199254740991";
    let first = claim(hold, "60000000", ever, "0");
    server.ask(&["PEXPIRE", "lock:x", "1000"]).unwrap();
    let again = claim(hold, "60000000", "0", "0");
    let token = |answer: &str| answer.split(' ').nth(1).unwrap().parse::<i64>().unwrap();
    assert_eq!(token(&first), token(&again), "{first}, {again}");
    assert!(pttl(&server, "lock:x") > 50_000);
    // A shorter one makes it no shorter.
    claim(hold, "1000000", ever, "0");
    assert!(pttl(&server, "lock:x") > 50_000);
    assert!(claim("00000000000000000000000000000008", "1000000", ever, "0").starts_with("3 "));
    server.ask(&["DEL", "lock:x"]).unwrap();
    // Past its end it does nothing; a floor is minded, unless it is days ahead.
    assert!(claim(hold, "60000000", "7", "0").starts_with("6 "));
    assert_eq!(server.ask(&["EXISTS", "lock:x"]).unwrap(), ":0");
    let floor = token(&first) + 3_600_000_000;
    assert_eq!(token(&claim(hold, "60000000", ever, &floor.to_string())), floor + 1);
    server.ask(&["DEL", "lock:x"]).unwrap();
    assert!(token(&claim(hold, "60000000", ever, "8000000000000000")) < floor);
}

/// A claim that arrives late grants nothing that stays: past its end nothing at all, before it what is swept up (SAFETY A2, A3).
#[test]
fn a_claim_that_comes_late() {
    let server = Redis::start();
    runtime().block_on(async {
        let (proxy, url) = proxied(&server);
        let c = plain(&url).await;
        // Within its time, after the release of its repeat.
        let met = first(&proxy, "plain_acquire", 1, Trouble::Late(1_000 * MS));
        c.mutex("x").ttl(30 * SEC).lock().await.unwrap().release().await.unwrap();
        assert_eq!(met.load(SeqCst), 1);
        eventually("it arrives", || async { c.inspect("x").await.unwrap().is_held() }).await;
        eventually("and is swept away", || async { !c.inspect("x").await.unwrap().is_held() }).await;
        // Past it.
        let met = first(&proxy, "plain_acquire", 1, Trouble::Late(4_000 * MS));
        c.mutex("y").ttl(60 * SEC).lock().await.unwrap().release().await.unwrap();
        assert_eq!(met.load(SeqCst), 1);
        for _ in 0..600 {
            assert_eq!(server.ask(&["EXISTS", "lock:y"]).unwrap(), ":0");
            tokio::time::sleep(10 * MS).await;
        }
    });
}

/// Both ways: what is not of this layout is told as what it is, and not touched.
#[test]
fn another_layout_is_a_mismatch() {
    let server = Redis::start();
    runtime().block_on(async {
        let native = client(&server.url()).await;
        let plain = client(&format!("{}?layout=plain&template=fl:{{}}", server.url())).await;
        let guard = native.mutex("x").lock().await.unwrap();
        let string = plain.mutex("y").lock().await.unwrap();
        for error in [
            plain.mutex("x").try_lock().await.unwrap_err(),
            plain.mutex("x").lock().await.unwrap_err(),
            plain.inspect("x").await.unwrap_err(),
            native.mutex("y").try_lock().await.unwrap_err(),
            native.mutex("y").lock().await.unwrap_err(),
            native.inspect("y").await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::LayoutMismatch, "{error}");
        }
        let names = |client: Client| async move {
            let items = client.list("", &Default::default()).await.unwrap().items;
            items.iter().map(|status| status.name.as_str().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!((names(native).await, names(plain).await), (vec!["x".to_owned()], vec!["y".to_owned()]));
        guard.check().unwrap();
        guard.release().await.unwrap();
        // Somebody puts another one there.
        server.ask(&["DEL", "fl:y"]).unwrap();
        server.ask(&["HSET", "fl:y", "a", "b"]).unwrap();
        assert_eq!(soon(string.lost()).await, LossReason::TakenOver);
        drop(string);
        tokio::time::sleep(500 * MS).await;
        assert_eq!(server.ask(&["HGET", "fl:y", "a"]).unwrap(), "b");
    });
}

/// Tokens are made of the server's clock, and of what a client has seen.
#[test]
fn tokens_rise_over_a_restart_without_data() {
    let server = Redis::start();
    runtime().block_on(async {
        let (c, other) = (plain(&server.url()).await, plain(&server.url()).await);
        let mut last = None;
        for round in 0..40 {
            let c = if round % 2 == 0 { &c } else { &other };
            let guard = soon(c.mutex("x").ttl(60 * SEC).lock()).await.unwrap();
            assert!(last.replace(guard.token()) < Some(guard.token()));
            match round {
                10 => drop(server.ask(&["FLUSHALL"]).unwrap()),
                20 => {
                    server.kill();
                    assert!(server.restart());
                }
                _ => {}
            }
            if round % 10 == 0 {
                drop(guard.release().await);
            } else {
                guard.release().await.unwrap();
            }
        }
    });
}

#[test]
fn taken_away_is_told_at_once() {
    let server = Redis::start();
    runtime().block_on(async {
        let (c, operator) = (plain(&server.url()).await, plain(&server.url()).await);
        let hands: [&[&str]; 6] = [
            &["DEL", "lock:x"],
            &["UNLINK", "lock:x"],
            &["SET", "lock:x", "theirs"],
            &["PEXPIRE", "lock:x", "1"],
            &["FLUSHALL"],
            &["RENAME", "lock:x", "lock:y"],
        ];
        let mut longest = Duration::ZERO;
        for hand in hands {
            for renewed in [false, true] {
                let guard = c.mutex("x").ttl(60 * SEC).lock().await.unwrap();
                let (lost, old) = (guard.lost(), guard.token());
                tokio::time::sleep(250 * MS).await;
                if renewed {
                    renew(&server, &guard).await;
                    tokio::time::sleep(100 * MS).await;
                }
                let began = Instant::now();
                server.ask(hand).unwrap();
                assert_eq!(soon(lost).await, LossReason::TakenOver, "{hand:?}");
                longest = longest.max(began.elapsed());
                in_time(began.elapsed(), hand[0]);
                server.ask(&["DEL", "lock:x"]).unwrap();
                let next = operator.mutex("x").lock().await.unwrap();
                assert!(next.token() > old, "tokens rise over {hand:?}");
                next.release().await.unwrap();
            }
        }
        let guard = c.mutex("x").ttl(60 * SEC).lock().await.unwrap();
        let (lost, token) = (guard.lost(), guard.token());
        tokio::time::sleep(250 * MS).await;
        let began = Instant::now();
        assert_eq!(operator.force_release("x", token).await.unwrap(), Released::Released);
        assert_eq!(soon(lost).await, LossReason::TakenOver);
        in_time(began.elapsed(), "a forced release");
        println!("MEASURED | plain: taken away by DEL, SET and others is told after | {longest:?} | <= 250 ms | ok");
    });
}

/// Who waits hears of it: of a release on whichever side, and of a lease that ends. With the older protocol he looks.
#[test]
fn whoever_waits_is_woken() {
    let server = Redis::start();
    runtime().block_on(async {
        let (c, ours) = (plain(&server.url()).await, plain(&server.url()).await);
        let older = plain(&(server.url() + "?protocol=resp2")).await;
        assert_eq!(older.info().capabilities.waiting, Waiting::Poll);
        for (c, name, most) in [(&c, "told", 200 * MS), (&older, "looking", 400 * MS)] {
            let mut all = Vec::new();
            for round in 0..if full() { 50 } else { 10 } {
                let theirs = round % 2 == 0;
                let held = if theirs {
                    assert!(take(&server, "lock:x", "theirs", None));
                    None
                } else {
                    Some(ours.mutex("x").lock().await.unwrap())
                };
                let lock = c.mutex("x");
                let wait = tokio::spawn(async move {
                    let guard = lock.lock().await.unwrap();
                    (Instant::now(), guard)
                });
                tokio::time::sleep(Duration::from_millis(100 + fastrand::u64(0..200))).await;
                let began = Instant::now();
                match held {
                    Some(guard) => guard.release().await.unwrap(),
                    None => assert!(give(&server, "lock:x", "theirs")),
                }
                let (at, guard) = soon(wait).await.unwrap();
                all.push(at.saturating_duration_since(began));
                guard.release().await.unwrap();
            }
            all.sort();
            let (middle, last) = (all[all.len() / 2], all[all.len() - 1]);
            println!("MEASURED | plain: a waiter has it after a release ({name}), median and longest | {middle:?}, {last:?} | <= {most:?} | ok");
            assert!(middle <= most && (!full() || last <= most), "{name}: {middle:?}, {last:?}");
            // By itself.
            assert!(take(&server, "lock:x", "theirs", Some("700")));
            let (began, guard) = (Instant::now(), soon(c.mutex("x").lock()).await.unwrap());
            let took = began.elapsed();
            assert!(took >= 650 * MS && (!full() || took <= 900 * MS), "{name}: {took:?}");
            guard.release().await.unwrap();
        }
    });
}

/// Who waits where changes are told asks seldom; where they are not, within bounds, less often as time goes by, and not all at once.
#[test]
fn who_waits_does_not_ask_too_often() {
    let server = Redis::start();
    runtime().block_on(async {
        assert!(take(&server, "lock:x", "theirs", None));
        for (query, most) in [("", 8), ("?protocol=resp2", 300)] {
            let (proxy, url) = proxied(&server);
            let c = plain(&(url + query)).await;
            let lock = c.mutex("x");
            let wait = tokio::spawn(async move { lock.lock().await });
            let asked = || {
                proxy.commands().get("EVALSHA").copied().unwrap_or(0)
            };
            tokio::time::sleep(SEC).await;
            asked();
            tokio::time::sleep(2 * SEC).await;
            let early = asked();
            tokio::time::sleep(3 * SEC).await;
            asked();
            tokio::time::sleep(2 * SEC).await;
            let late = asked();
            println!("MEASURED | plain{query}: claims of one waiter in 2 s, early and after 6 s | {early}, {late} | <= {most} | ok");
            assert!(early <= most && late <= most.min(40), "{query}: {early}, then {late}");
            assert!(late >= 1, "it looks now and then");
            wait.abort();
        }
    });
}

/// A short wait is not made longer by the time between two looks.
#[test]
fn a_short_wait_is_short() {
    let server = Redis::start();
    runtime().block_on(async {
        assert!(take(&server, "lock:x", "theirs", None));
        for query in ["", "?protocol=resp2"] {
            let c = plain(&(server.url() + query)).await;
            for wait in [0, 50, 300] {
                let began = Instant::now();
                assert!(c.mutex("x").try_lock_for(wait * MS).await.unwrap().is_err());
                let took = began.elapsed();
                assert!(took >= wait * MS && (!full() || took < wait * MS + 150 * MS), "{query} {wait}: {took:?}");
            }
        }
    });
}

/// Somebody who gives up while he waits leaves nothing, and whoever comes next has it.
#[test]
fn a_wait_that_is_given_up_leaves_nothing() {
    let server = Redis::start();
    runtime().block_on(async {
        let (c, other) = (plain(&server.url()).await, plain(&server.url()).await);
        for round in 0..if full() { 200 } else { 30 } {
            let held = other.mutex("x").lock().await.unwrap();
            let lock = c.mutex("x").ttl(60 * SEC);
            let wait = tokio::spawn(async move { lock.lock().await });
            tokio::time::sleep(Duration::from_millis(fastrand::u64(0..20))).await;
            let release = tokio::spawn(held.release());
            // At the same time, or nearly.
            tokio::time::sleep(Duration::from_micros(fastrand::u64(0..2_000) * (round % 2))).await;
            wait.abort();
            drop(wait.await);
            release.await.unwrap().unwrap();
            let began = Instant::now();
            let next = soon(other.mutex("x").lock()).await.unwrap();
            assert!(began.elapsed() < 30 * SEC, "a lease would last for a minute");
            next.release().await.unwrap();
        }
        eventually("nothing is left", || async { c.held() == 0 }).await;
        assert_eq!(server.ask(&["EXISTS", "lock:x"]).unwrap(), ":0");
    });
}

/// A number that nobody increases in one step, between eight clients of two protocols and two who come by hand.
#[test]
fn a_counter_is_exact() {
    let server = Arc::new(Redis::start());
    let rounds = if full() { 500 } else { 50 };
    runtime().block_on(async {
        let (count, mut tasks) = (Arc::new(AtomicU32::new(0)), Vec::new());
        let step = |count: &AtomicU32| {
            let before = count.load(SeqCst);
            std::thread::sleep(Duration::from_micros(200));
            count.store(before + 1, SeqCst);
        };
        let tokens = Arc::new(std::sync::Mutex::new(Vec::new()));
        for n in 0..8 {
            let c = plain(&(server.url() + if n % 4 == 3 { "?protocol=resp2" } else { "" })).await;
            let (count, tokens) = (count.clone(), tokens.clone());
            tasks.push(tokio::spawn(async move {
                for _ in 0..rounds {
                    let guard = c.mutex("x").lock().await.unwrap();
                    tokens.lock().unwrap().push(guard.token());
                    tokio::task::block_in_place(|| step(&count));
                    guard.release().await.unwrap();
                }
            }));
        }
        let theirs: Vec<_> = ["a", "b"]
            .map(|value| {
                let (server, count) = (server.clone(), count.clone());
                std::thread::spawn(move || {
                    for _ in 0..rounds {
                        while !take(&server, "lock:x", value, Some("60000")) {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                        step(&count);
                        assert!(give(&server, "lock:x", value));
                    }
                })
            })
            .into();
        for task in tasks {
            task.await.unwrap();
        }
        tokio::task::block_in_place(|| theirs.into_iter().for_each(|thread| thread.join().unwrap()));
        assert_eq!(count.load(SeqCst), 10 * rounds);
        assert!(tokens.lock().unwrap().is_sorted_by(|a, b| a < b));
        println!("MEASURED | plain: 8 clients and 2 by hand, {rounds} increments each | {} | exact | ok", 10 * rounds);
    });
}

/// What python-redis-lock's waiters look at: one signal for each release, and no more than one that is left, which ends by itself.
#[test]
fn a_signal_is_left_once_and_ends_by_itself() {
    let server = Redis::start();
    runtime().block_on(async {
        let signal = format!("{}?{PLAIN}&signal=lock-signal:{{}}&channel=told:{{}}", server.url());
        let c = client(&signal).await;
        for _ in 0..10 {
            c.mutex("x").try_lock().await.unwrap().unwrap().release().await.unwrap();
            assert_eq!(server.ask(&["LLEN", "lock-signal:x"]).unwrap(), ":1");
        }
        let left = pttl(&server, "lock-signal:x");
        assert!((1..=1_000).contains(&left), "{left}");
        tokio::time::sleep(1_100 * MS).await;
        assert_eq!(server.ask(&["EXISTS", "lock-signal:x"]).unwrap(), ":0");
        // Whoever did not have it signals nothing; a hold that is broken is a release.
        let guard = c.mutex("x").lock().await.unwrap();
        server.ask(&["SET", "lock:x", "theirs"]).unwrap();
        drop(guard.release().await);
        assert_eq!(server.ask(&["EXISTS", "lock-signal:x"]).unwrap(), ":0");
        let token = c.inspect("x").await.unwrap().holders[0].token;
        assert_eq!(c.force_release("x", token).await.unwrap(), Released::Released);
        assert_eq!(server.ask(&["LLEN", "lock-signal:x"]).unwrap(), ":1");
        // A list that is none is in nobody's way.
        server.ask(&["SET", "lock-signal:y", "what"]).unwrap();
        c.mutex("y").lock().await.unwrap().release().await.unwrap();
    });
}

/// What Spring's waiters wait for: one message for each release, on the registry's channel, that says the key.
#[test]
fn a_release_is_told_on_springs_channel() {
    let server = Redis::start();
    let messages = listen(&server, "locks-channel:locks:x");
    let said = || messages.recv_timeout(LONG).unwrap().1;
    runtime().block_on(async {
        let url = format!("{}?layout=plain&template=locks:{{}}&channel=locks-channel:locks:{{}}", server.url());
        let c = client(&url).await;
        for _ in 0..3 {
            c.mutex("x").try_lock().await.unwrap().unwrap().release().await.unwrap();
            assert_eq!(said(), "locks:x");
        }
        // A hold that is broken is a release; one that is somebody else's by now, or nobody's, is none.
        let guard = c.mutex("x").lock().await.unwrap();
        assert_eq!(c.force_release("x", guard.token()).await.unwrap(), Released::Released);
        assert_eq!(said(), "locks:x");
        assert!(take(&server, "locks:x", "theirs", None));
        drop(guard.release().await);
        let seen = c.inspect("x").await.unwrap().holders[0].token;
        assert!(messages.try_recv().is_err(), "nobody gave anything back");
        assert_eq!(c.force_release("x", seen).await.unwrap(), Released::Released);
        assert_eq!(said(), "locks:x");
        assert!(messages.try_recv().is_err(), "each is told once");
    });
}

/// The whole layout over a configuration that is made by hand, and what does not belong together.
#[test]
fn each_engine_has_its_layout() {
    let server = Redis::start();
    runtime().block_on(async {
        let url = format!("{}?{PLAIN}", server.url());
        let (native, plain) = (Config::from_url(&server.url()).unwrap(), Config::from_url(&url).unwrap());
        let wrong = fencelock_redis::RedisEngine::connect(plain).await.unwrap_err();
        let other = fencelock_redis::RedisPlainEngine::connect(native).await.unwrap_err();
        assert_eq!((wrong.kind(), other.kind()), (ErrorKind::InvalidConfig, ErrorKind::InvalidConfig));
    });
}
