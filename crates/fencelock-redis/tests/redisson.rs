//! Layout `redisson`: a hash for each lock, as Redisson's RLock has it. What it sends is sent here by hand (`common/redisson.rs`); a peer is
//! asked in `interop.rs`, readers and writers are in `redisson_rw.rs`, waits in `redisson_waits.rs`.
//!
//! Planted to see them go red: a refusal without its reason; a repeat that counts once more; a repeat that keeps the ttl that is left; a claim that does not look at its end;
//! a kind that is not looked at; RFencedLock's token given an end; a hash that is written before its end may be;
//! a release that does not look at the token's end; an observer for whom every token counts.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::{
    redisson::{ONE, TWO, Theirs, redisson},
    *,
};
use fencelock_conformance::proxy::Trouble;
use fencelock_core::{ErrorKind, Fencing, LossReason, Ordering, Released, TakenAway, Token, Waiting};
use fencelock_redis::Config;
use fencelock_testkit::Redis;
use std::{
    sync::atomic::Ordering::SeqCst,
    time::{Duration, Instant},
};

const TOKEN: &str = "redisson_lock_token:{x}";

#[test]
fn what_it_can_and_what_it_writes() {
    let server = Redis::start();
    runtime().block_on(async {
        let (c, other) = (redisson(&server.url()).await, redisson(&server.url()).await);
        let can = &c.info().capabilities;
        assert_eq!((c.info().layout, can.fencing, can.ordering), ("redisson", Fencing::OursOnly, Ordering::Any));
        assert_eq!((can.waiting, can.taken_away), (Waiting::Push, TakenAway::Pushed));
        assert!(can.read_write && can.downgrade && !can.permits && !can.cells && !can.tickets);
        let url = c.info().url.clone().unwrap();
        assert_eq!(client(&url).await.info().id, c.info().id, "{url}");
        for not in [server.url(), format!("{}?layout=plain", server.url())] {
            assert_ne!(client(&not).await.info().id, c.info().id);
        }
        let ticket = c.mutex("t").lock().await.unwrap().into_ticket().await.unwrap_err();
        let older = redisson(&(server.url() + "?protocol=resp2")).await;
        let writer = older.rw_lock("d").write().await.unwrap();
        for (refused, why) in [
            (c.semaphore("x", 2).acquire(1).await.unwrap_err(), "by the clocks of its clients"),
            (c.semaphore("x", 2).try_acquire(1).await.unwrap_err(), "does not know its holders"),
            (c.semaphore("x", 2).resize(2, 3).await.unwrap_err(), "by the clocks of its clients"),
            (c.cell("x").load().await.unwrap_err(), "no value with a version"),
            (ticket, "cannot pass to another"),
            (writer.downgrade().await.map(drop).unwrap_err(), "watchdog has cut"),
        ] {
            assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
            assert!(refused.to_string().contains(why), "{refused}");
        }
        assert_eq!(server.ask(&["EXISTS", "x"]).unwrap(), ":0", "nothing was sent");
        let guard = c.mutex("x").note("ann's. job").ttl(60 * SEC).lock().await.unwrap();
        let id = guard.id().to_string();
        let uuid = format!("{}-{}-{}-{}-{}", &id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]);
        assert_eq!(server.ask(&["HGET", "x", &format!("{uuid}:0")]).unwrap(), "1");
        assert_eq!(server.ask(&["HLEN", "x"]).unwrap(), ":1");
        assert!((55_000..=60_000).contains(&pttl(&server, "x")));
        let beside = format!("{{x}}:{uuid}:0:rwlock_timeout:1");
        assert!((55_000..=60_000).contains(&pttl(&server, &beside)));
        assert_eq!(server.ask(&["GET", TOKEN]).unwrap(), guard.token().to_string());
        let status = other.inspect("x").await.unwrap();
        let holder = &status.holders[0];
        assert_eq!((holder.hold, holder.token, &*holder.note), (guard.id(), guard.token(), "ann's. job"));
        assert_eq!((holder.pid, status.last_token), (std::process::id(), Some(guard.token())));
        assert!(holder.left > 50 * SEC && holder.held_for < 30 * SEC, "{holder:?}");
        // Those that were refused give back what they had by themselves.
        let free = async |name| !other.inspect(name).await.unwrap().is_held();
        eventually("given back", async || free("t").await && free("d").await).await;
        // What is no lock is none of them, nor what stands beside one.
        server.ask(&["HSET", "profile", "name", "ann"]).unwrap();
        let listed = other.list("", &Default::default()).await.unwrap().items;
        assert_eq!((listed.len(), listed[0].holders[0].token), (1, guard.token()));
        let busy = other.mutex("x").try_lock().await.unwrap().unwrap_err();
        assert_eq!(busy.holder.unwrap().token, guard.token());
        renew(&server, &guard).await;
        assert_eq!(server.ask(&["HGET", "x", &format!("{uuid}:0")]).unwrap(), "1");
        guard.release().await.unwrap();
        assert_eq!(
            (server.ask(&["EXISTS", "x"]).unwrap(), server.ask(&["EXISTS", &beside]).unwrap()),
            (":0".into(), ":0".into())
        );
    });
}

/// They exclude us and are excluded, however often they enter; nobody gives back what is not his.
#[test]
fn theirs_and_ours_exclude_each_other() {
    let server = Redis::start();
    let theirs = Theirs { server: &server, name: "x" };
    runtime().block_on(async {
        let c = redisson(&server.url()).await;
        assert!(theirs.lock(ONE, "30000") && theirs.lock(ONE, "30000"));
        let busy = c.mutex("x").try_lock().await.unwrap().unwrap_err();
        let holder = *busy.holder.unwrap();
        assert_eq!((&*holder.host, holder.pid, &*holder.note), ("?", 0, &*format!("another program: {ONE}")));
        assert!(holder.left > 20 * SEC && holder.left <= 30 * SEC);
        assert_eq!(theirs.unlock(ONE, "30000"), 0);
        assert!(c.mutex("x").try_lock().await.unwrap().is_err(), "they have it once more");
        assert_eq!(theirs.unlock(ONE, "30000"), 1);

        let guard = c.mutex("x").lock().await.unwrap();
        assert!(guard.token() > holder.token);
        assert!(!theirs.lock(ONE, "30000") && !theirs.lock(TWO, "30000"));
        assert_eq!((theirs.unlock(ONE, "30000"), server.ask(&["HLEN", "x"]).unwrap()), (-1, ":1".to_owned()));
        guard.release().await.unwrap();
        // One of theirs that came after ours was over stays, whatever ours does late.
        let guard = c.mutex("x").ttl(60 * SEC).lock().await.unwrap();
        server.ask(&["DEL", "x"]).unwrap();
        assert!(theirs.lock(ONE, "30000"));
        drop(guard.release().await);
        assert!(theirs.holds(ONE));
        // An operator breaks it by what stands for its token, and nothing else.
        let seen = c.inspect("x").await.unwrap().holders[0].token;
        let wrong = Token::new(seen.get() + 1).unwrap();
        assert!(matches!(c.force_release("x", wrong).await.unwrap(), Released::NotHeld { holder: Some(_) }));
        assert_eq!(c.force_release("x", seen).await.unwrap(), Released::Released);
        assert!(theirs.is_free());
    });
}

/// Whatever is lost or doubled: one hold, counted once, the same token, its full ttl, and one release frees it (SAFETY A, G1).
#[test]
fn replies_that_are_lost_and_commands_that_come_twice() {
    let server = Redis::start();
    runtime().block_on(async {
        let (proxy, url) = proxied(&server);
        let (c, other) = (redisson(&url).await, redisson(&server.url()).await);
        for (_, _, text) in fencelock_redis::raw::scripts() {
            server.ask(&["SCRIPT", "LOAD", text]).unwrap();
        }
        let mut last = None;
        for trouble in [Trouble::LoseReply, Trouble::Twice] {
            for script in ["redisson_acquire", "redisson_release", "redisson_renew"] {
                let what = format!("{script}, {trouble:?}");
                let met = first(&proxy, script, 1, trouble);
                let ttl = if script == "redisson_renew" { 1_500 * MS } else { 60 * SEC };
                let guard = soon(c.mutex("x").ttl(ttl).lock()).await.unwrap();
                assert_eq!(server.ask(&["HLEN", "x"]).unwrap(), ":1", "{what}");
                assert_eq!(server.ask(&["GET", TOKEN]).unwrap(), guard.token().to_string(), "{what}");
                assert!(last.replace(guard.token()) < Some(guard.token()), "{what}");
                if script == "redisson_renew" {
                    soon(guard.renewed()).await;
                    guard.check().unwrap();
                }
                guard.release().await.unwrap();
                assert_eq!(met.load(SeqCst), 1, "{what}");
                assert_eq!(server.ask(&["EXISTS", "x"]).unwrap(), ":0", "{what}");
                other.mutex("x").try_lock().await.unwrap().unwrap().release().await.unwrap();
            }
        }
    });
}

/// One claim by hand: what it was answered.
fn claim(server: &Redis, n: u8, kind: &str, ttl: &str, ends: &str, floor: &str) -> String {
    let (_, _, text) =
        fencelock_redis::raw::scripts().into_iter().find(|(name, ..)| *name == "redisson_acquire").unwrap();
    let script = format!(
        "local function f() {text} end local all={{}} for n,part in ipairs(f()) do all[n]=tostring(part) end return table.concat(all,' ')"
    );
    let (field, hold) = (format!("00000000-0000-0000-0000-0000000000{n:02}:0"), format!("{n:032}"));
    let beside = format!("{{x}}:{field}:rwlock_timeout:1");
    let mine = format!("{hold}.fl1.");
    let words =
        ["EVAL", &script, "3", "x", TOKEN, &beside, "3600000", "{x}", &field, kind, ttl, ends, floor, &mine, ".1..h"];
    server.ask(&words).unwrap()
}
fn token(answer: &str) -> i64 {
    answer.split(' ').nth(1).and_then(|token| token.parse().ok()).unwrap_or_else(|| panic!("{answer}"))
}
const EVER: &str = "9007199254740991";

/// A repeat of an attempt finds its own grant, counts it once, and makes it as long as the first one was (SAFETY G1, A2, T1).
#[test]
fn a_repeat_has_the_full_ttl_and_counts_once() {
    let server = Redis::start();
    let one = claim(&server, 7, "m", "60000000", EVER, "0");
    server.ask(&["PEXPIRE", "x", "1000"]).unwrap();
    let again = claim(&server, 7, "m", "60000000", "0", "0");
    assert_eq!(token(&one), token(&again), "{one}, {again}");
    assert_eq!(server.ask(&["HGET", "x", "00000000-0000-0000-0000-000000000007:0"]).unwrap(), "1");
    assert!(pttl(&server, "x") > 50_000);
    claim(&server, 7, "m", "1000000", EVER, "0");
    assert!(pttl(&server, "x") > 50_000, "a shorter one makes it no shorter");
    assert!(claim(&server, 8, "m", "1000000", EVER, "0").starts_with("3 "));
    assert!(claim(&server, 8, "r", "1000000", EVER, "0").starts_with("4 mutex"));
    // A lock that they have made of readers, which looks for no mutex, is on top of it: nobody has that alone.
    server.ask(&["HSET", "x", "mode", "read", ONE, "1"]).unwrap();
    assert!(claim(&server, 7, "m", "60000000", EVER, "0").starts_with("4 rw_lock"));
    server.ask(&["DEL", "x"]).unwrap();
    assert!(claim(&server, 9, "m", "60000000", "7", "0").starts_with("6 "), "past its end it does nothing");
    assert_eq!(server.ask(&["EXISTS", "x"]).unwrap(), ":0");
    let floor = token(&one) + 3_600_000_000;
    assert_eq!(token(&claim(&server, 9, "m", "60000000", EVER, &floor.to_string())), floor + 1);
    server.ask(&["DEL", "x"]).unwrap();
    // Days ahead of both it is not minded; what stands there is.
    assert_eq!(token(&claim(&server, 10, "m", "60000000", EVER, "8000000000000000")), floor + 2);
    // A mode that nobody is left of is nobody's lock.
    server.ask(&["DEL", "x"]).unwrap();
    server.ask(&["HSET", "x", "mode", "read"]).unwrap();
    assert!(claim(&server, 11, "m", "60000000", EVER, "0").starts_with("1 "));
    assert_eq!(server.ask(&["HEXISTS", "x", "mode"]).unwrap(), ":0");
    assert!(pttl(&server, "x") > 50_000);
}

/// A claim that arrives late grants nothing that stays (SAFETY A2, A3).
#[test]
fn a_claim_that_comes_late() {
    let server = Redis::start();
    runtime().block_on(async {
        let (proxy, url) = proxied(&server);
        let c = redisson(&url).await;
        let met = first(&proxy, "redisson_acquire", 1, Trouble::Late(1_000 * MS));
        c.mutex("x").ttl(30 * SEC).lock().await.unwrap().release().await.unwrap();
        assert_eq!(met.load(SeqCst), 1);
        eventually("it arrives", || async { c.inspect("x").await.unwrap().is_held() }).await;
        eventually("and is swept away", || async { !c.inspect("x").await.unwrap().is_held() }).await;
        let met = first(&proxy, "redisson_acquire", 1, Trouble::Late(4_000 * MS));
        c.mutex("y").ttl(60 * SEC).lock().await.unwrap().release().await.unwrap();
        assert_eq!(met.load(SeqCst), 1);
        for _ in 0..600 {
            assert_eq!(server.ask(&["EXISTS", "y"]).unwrap(), ":0");
            tokio::time::sleep(10 * MS).await;
        }
    });
}

/// One of theirs that does not end by itself is held, whatever time passes; no look, no wait and no renewal gives it an end.
#[test]
fn a_lock_of_theirs_without_a_ttl_is_held() {
    let server = Redis::start();
    let theirs = Theirs { server: &server, name: "x" };
    runtime().block_on(async {
        let (c, older) = (redisson(&server.url()).await, redisson(&(server.url() + "?protocol=resp2")).await);
        for c in [&c, &older] {
            assert!(theirs.lock(ONE, "30000"));
            assert_eq!(server.ask(&["PERSIST", "x"]).unwrap(), ":1");
            assert!(c.mutex("x").try_lock().await.unwrap().is_err());
            assert!(c.mutex("x").try_lock_for(700 * MS).await.unwrap().is_err());
            let status = c.inspect("x").await.unwrap();
            assert!(status.is_held() && status.holders[0].left > 24 * 3_600 * SEC, "{status:?}");
            assert_eq!(pttl(&server, "x"), -1);
            // An operator ends it, by the number that is shown.
            assert_eq!(c.force_release("x", status.holders[0].token).await.unwrap(), Released::Released);
            assert!(theirs.is_free());
            c.mutex("x").try_lock().await.unwrap().unwrap().release().await.unwrap();
        }
    });
}

/// String against hash, both ways; and readers and writers against a mutex.
#[test]
fn another_layout_is_a_mismatch() {
    let server = Redis::start();
    runtime().block_on(async {
        let (hash, plain) = (redisson(&server.url()).await, client(&(server.url() + "?layout=plain")).await);
        let string = plain.mutex("s").lock().await.unwrap();
        let guard = hash.mutex("h").lock().await.unwrap();
        for error in [
            hash.mutex("s").try_lock().await.unwrap_err(),
            hash.mutex("s").lock().await.unwrap_err(),
            hash.rw_lock("s").try_read().await.unwrap_err(),
            hash.inspect("s").await.unwrap_err(),
            plain.mutex("h").try_lock().await.unwrap_err(),
            plain.mutex("h").lock().await.unwrap_err(),
            plain.inspect("h").await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::LayoutMismatch, "{error}");
        }
        for error in [hash.rw_lock("h").try_read().await.unwrap_err(), hash.rw_lock("h").write().await.unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::KindMismatch, "{error}");
        }
        string.check().unwrap();
        string.release().await.unwrap();
        // Somebody puts a string there.
        tokio::time::sleep(250 * MS).await;
        server.ask(&["SET", "h", "theirs"]).unwrap();
        assert_eq!(soon(guard.lost()).await, LossReason::TakenOver);
        drop(guard);
        tokio::time::sleep(500 * MS).await;
        assert_eq!(server.ask(&["GET", "h"]).unwrap(), "theirs");
        // What stands for the last token is no number.
        server.ask(&["SET", "redisson_lock_token:{n}", "none"]).unwrap();
        let error = hash.mutex("n").try_lock().await.unwrap_err();
        assert_eq!((error.kind(), server.ask(&["EXISTS", "n"]).unwrap()), (ErrorKind::LayoutMismatch, ":0".to_owned()));
    });
}

/// One counter for RFencedLock and us: each is above the one before, whoever asks; what never ends goes on so.
#[test]
fn tokens_rise_beside_rfencedlock() {
    let server = Redis::start();
    let theirs = Theirs { server: &server, name: "x" };
    runtime().block_on(async {
        let c = redisson(&server.url()).await;
        let mut last = 0;
        for round in 0..20 {
            if round % 2 == 0 {
                let token = theirs.fenced(ONE, "30000").unwrap();
                assert!(token > last, "{token} after {last}");
                last = token;
                assert_eq!(theirs.unlock(ONE, "30000"), 1);
            } else {
                let guard = c.mutex("x").lock().await.unwrap();
                assert!(guard.token().get() > last, "{} after {last}", guard.token());
                last = guard.token().get();
                guard.release().await.unwrap();
            }
            assert_eq!(pttl(&server, TOKEN), -1);
        }
        // Ours alone goes when nobody has used it for as long as it is kept, and tokens go on by the clock.
        let guard = c.mutex("y").lock().await.unwrap();
        let kept = pttl(&server, "redisson_lock_token:{y}");
        assert!((3_600_000..3_700_000).contains(&kept), "{kept}");
        guard.release().await.unwrap();
        let before = c.mutex("y").lock().await.unwrap().token();
        server.ask(&["FLUSHALL"]).unwrap();
        assert!(soon(c.mutex("y").lock()).await.unwrap().token() > before);
    });
}

#[test]
fn taken_away_is_told_at_once() {
    let server = Redis::start();
    runtime().block_on(async {
        let c = redisson(&server.url()).await;
        let hands: [&[&str]; 6] = [
            &["DEL", "x"],
            &["SET", "x", "theirs"],
            &["PEXPIRE", "x", "1"],
            &["FLUSHALL"],
            &["RENAME", "x", "y"],
            &["HSET", "x", "mode", "read", ONE, "1"],
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
                drop(guard);
                server.ask(&["DEL", "x"]).unwrap();
                let next = soon(c.mutex("x").lock()).await.unwrap();
                assert!(next.token() > old, "tokens rise over {hand:?}");
                next.release().await.unwrap();
                server.ask(&["DEL", "x", "y"]).unwrap();
            }
        }
        println!("MEASURED | redis redisson: a lock taken away is told, longest | {longest:?} | <= 250 ms | ok");
    });
}

/// What the server remembers for us are locks that we hold or wait for, and nothing beside them.
#[test]
fn nothing_is_left_that_the_server_tells_of() {
    let server = Redis::start();
    let script = "return tonumber(string.match(redis.call('INFO','stats'),'tracking_total_keys:(%d+)'))";
    let remembered = || number(&server.ask(&["EVAL", script, "0"]).unwrap());
    runtime().block_on(async {
        let (c, other) = (redisson(&server.url()).await, redisson(&server.url()).await);
        let mut guards = Vec::new();
        for n in 0..20 {
            guards.push(c.mutex(format!("x{n}")).ttl(60 * SEC).lock().await.unwrap());
        }
        let waits: Vec<_> = (0..20).map(|n| tokio::spawn(other.mutex(format!("x{n}")).lock())).collect();
        eventually("they are watched", || async { remembered() >= 20 }).await;
        tokio::time::sleep(1_500 * MS).await;
        assert_eq!(remembered(), 20);
        for guard in guards {
            guard.release().await.unwrap();
        }
        for wait in waits {
            soon(wait).await.unwrap().unwrap().release().await.unwrap();
        }
        eventually("nothing is left", || async { remembered() == 0 }).await;
    });
}

/// A right that is missing is told, and leaves no lock without an end.
#[test]
fn a_refusal_leaves_no_lock_without_an_end() {
    let server = Redis::start();
    let all = ["ACL", "SETUSER", "ann", "on", ">secret", "~*", "&*", "+@all"];
    server.ask(&all).unwrap();
    runtime().block_on(async {
        let url = server.url().replace("redis://", "redis://ann:secret@");
        let c = redisson(&url).await;
        for right in ["-pexpire", "-hset", "-set", "-pttl", "-get", "-hget"] {
            server.ask(&["ACL", "SETUSER", "ann", right]).unwrap();
            for error in [c.mutex("x").try_lock().await.unwrap_err(), c.rw_lock("x").try_read().await.unwrap_err()] {
                assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{right}: {error}");
            }
            assert_eq!(server.ask(&["EXISTS", "x"]).unwrap(), ":0", "{right}");
            server.ask(&all).unwrap();
        }
        server.ask(&["DEL", TOKEN]).unwrap();
        server.ask(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
        let error = c.mutex("x").try_lock().await.unwrap_err();
        assert!(error.kind() == ErrorKind::Unreachable && error.to_string().contains("maxmemory"), "{error}");
        assert_eq!(
            (server.ask(&["EXISTS", "x"]).unwrap(), server.ask(&["EXISTS", TOKEN]).unwrap()),
            (":0".into(), ":0".into())
        );
        server.ask(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
        soon(c.mutex("x").lock()).await.unwrap().release().await.unwrap();
    });
}

#[test]
fn the_rights_that_are_named_are_enough() {
    let server = Redis::start();
    let acl = Config::from_url("redis://h?layout=redisson").unwrap().acl("7.0").unwrap();
    let user = |name: &str, without: &str| {
        let words = ["ACL", "SETUSER", name, "on", ">pw"].into_iter().chain(acl.words().iter().map(String::as_str));
        let words: Vec<&str> = words.filter(|word| *word != without).collect();
        assert_eq!(server.ask(&words).unwrap(), "+OK", "{words:?}");
        format!("redis://{name}:pw@127.0.0.1:{}", server.port())
    };
    runtime().block_on(async {
        let url = user("least", "");
        let (a, b) = (redisson(&url).await, redisson(&url).await);
        assert_eq!(a.info().capabilities.taken_away, TakenAway::Pushed);
        let guard = a.mutex("x").ttl(60 * SEC).lock().await.unwrap();
        let next = tokio::spawn(b.mutex("x").ttl(6 * SEC).lock());
        tokio::time::sleep(100 * MS).await;
        guard.release().await.unwrap();
        let next = soon(next).await.unwrap().unwrap();
        soon(next.renewed()).await;
        assert_eq!(a.list("x", &fencelock_core::Page::default()).await.unwrap().items.len(), 1);
        a.force_release("x", next.token()).await.unwrap();
        assert_eq!(soon(next.lost()).await, LossReason::TakenOver);
        let reader = a.rw_lock("xy").ttl(6 * SEC).write().await.unwrap().downgrade().await.unwrap();
        let beside = b.rw_lock("xy").read().await.unwrap();
        soon(reader.renewed()).await;
        reader.release().await.unwrap();
        beside.release().await.unwrap();
        assert!(Theirs { server: &server, name: "xy" }.is_free());
        // Nobody is told.
        let deaf = redisson(&user("deaf", "+client|caching")).await;
        assert_eq!(deaf.info().capabilities.taken_away, TakenAway::AtRenewal);
    });
}

/// Another program may lead, too. What stands for its token counts for nothing: ours was higher.
#[test]
fn an_observer_hears_of_a_leader_of_theirs() {
    let server = Redis::start();
    let theirs = Theirs { server: &server, name: "x" };
    runtime().block_on(async {
        let c = redisson(&server.url()).await;
        let election = c.election("x");
        let mut observer = election.observe();
        let term = soon(election.campaign("one of ours")).await.unwrap();
        let seen = soon(observer.changed()).await.unwrap().unwrap();
        assert_eq!((&*seen.candidate, seen.term), ("one of ours", term.token()));
        term.resign().await.unwrap();
        assert!(soon(observer.changed()).await.unwrap().is_none());
        // Its token is new, and lower than each of ours was.
        server.ask(&["DEL", TOKEN]).unwrap();
        assert_eq!(theirs.fenced(ONE, "60000"), Some(1));
        let seen = soon(observer.changed()).await.unwrap().unwrap();
        assert!(seen.candidate.contains(ONE) && seen.pid == 0, "{seen:?}");
        assert_eq!(theirs.unlock(ONE, "60000"), 1);
        assert!(soon(observer.changed()).await.unwrap().is_none());
        let term = soon(election.campaign("again")).await.unwrap();
        assert_eq!(soon(observer.changed()).await.unwrap().unwrap().term, term.token());
    });
}

/// The last token is kept from the last renewal on, and from the release on, not from the grant (SAFETY T1).
#[test]
fn a_token_is_kept_for_as_long_as_it_should_after_a_long_hold() {
    let server = Redis::start();
    let token = "redisson_lock_token:{x}";
    let cut = || assert_eq!(server.ask(&["PEXPIRE", token, "60000"]).unwrap(), ":1");
    runtime().block_on(async {
        let c = redisson(&format!("{}?retention=7201s", server.url())).await;
        let guard = soon(c.mutex("x").ttl(5 * SEC).lock()).await.unwrap();
        cut();
        soon(guard.renewed()).await;
        assert!(pttl(&server, token) > 7_190_000, "{}", pttl(&server, token));
        cut();
        guard.release().await.unwrap();
        assert!(pttl(&server, token) > 7_190_000, "{}", pttl(&server, token));
        // One that was taken away meanwhile is there again.
        let guard = soon(c.mutex("x").ttl(5 * SEC).lock()).await.unwrap();
        assert_eq!(server.ask(&["DEL", token]).unwrap(), ":1");
        soon(guard.renewed()).await;
        assert_eq!(server.ask(&["GET", token]).unwrap(), guard.token().to_string());
        guard.release().await.unwrap();
        // RFencedLock's own ends never.
        server.ask(&["PERSIST", token]).unwrap();
        let guard = soon(c.mutex("x").ttl(5 * SEC).lock()).await.unwrap();
        soon(guard.renewed()).await;
        guard.release().await.unwrap();
        assert_eq!(pttl(&server, token), -1);
    });
}
