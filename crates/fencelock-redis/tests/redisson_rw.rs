//! Layout `redisson`: readers and writers, as Redisson's RReadWriteLock has them. States are written as it writes them
//! (`common/redisson.rs`).
//!
//! Planted to see them go red: a reader's lease that is left as their watchdog has cut it; a release that ends a thread's other part too; an end
//! that is cut below a reader's; a count of theirs that is believed without a bound; a repair that failed and counts as done.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::{
    redisson::{ONE, TWO, Theirs, redisson},
    *,
};
use fencelock_core::{BootClock, Claim, Client, Clock, ErrorKind, HoldId, LossReason, Released, Status, Token};
use fencelock_testkit::Redis;
use std::time::Instant;

fn sides(status: &Status) -> Vec<Claim> {
    status.holders.iter().map(|holder| holder.claim).collect()
}
async fn token(client: &Client, hold: HoldId) -> Token {
    let status = client.inspect("x").await.unwrap();
    status.holders.iter().find(|holder| holder.hold == hold).unwrap().token
}

/// Readers beside each other, writers alone, ours and theirs.
#[test]
fn readers_and_writers_of_both_sides() {
    let server = Redis::start();
    let theirs = Theirs { server: &server, name: "x" };
    runtime().block_on(async {
        let (c, other) = (redisson(&server.url()).await, redisson(&server.url()).await);
        let (ours, also) = (c.rw_lock("x").read().await.unwrap(), other.rw_lock("x").read().await.unwrap());
        assert!(token(&c, ours.id()).await < token(&c, also.id()).await);
        assert!(theirs.read(ONE, "30000") && !theirs.write(TWO, "30000"));
        assert!(c.rw_lock("x").try_write().await.unwrap().is_err());
        assert_eq!(sides(&c.inspect("x").await.unwrap()), [Claim::Read; 3]);
        // Theirs leaves: what is left ends with the longest of ours.
        assert_eq!(theirs.end_read(ONE), 0);
        assert!(pttl(&server, "x") > 20_000);
        ours.release().await.unwrap();
        assert_eq!(theirs.mode(), "read");
        also.release().await.unwrap();
        assert!(theirs.is_free());

        let writer = c.rw_lock("x").ttl(60 * SEC).write().await.unwrap();
        assert_eq!(
            (theirs.mode(), sides(&other.inspect("x").await.unwrap())),
            ("write".to_owned(), vec![Claim::Write])
        );
        assert!(!theirs.read(ONE, "30000") && !theirs.write(ONE, "30000"));
        assert!(other.rw_lock("x").try_read().await.unwrap().is_err());
        assert_eq!(other.mutex("x").try_lock().await.unwrap_err().kind(), ErrorKind::KindMismatch);
        writer.release().await.unwrap();
        assert!(theirs.is_free());

        assert!(theirs.write(ONE, "30000") && theirs.write(ONE, "30000"));
        let busy = c.rw_lock("x").try_read().await.unwrap().unwrap_err();
        let holder = busy.holder.unwrap();
        assert_eq!((holder.claim, &*holder.note), (Claim::Write, &*format!("another program: {ONE}:write")));
        assert_eq!((theirs.end_write(ONE, "30000"), theirs.end_write(ONE, "30000")), (0, 1));
        c.rw_lock("x").try_read().await.unwrap().unwrap().release().await.unwrap();
        assert!(theirs.is_free());
    });
}

/// A1: their watchdog gives the whole lock the end that is its own, before 4.4 also what stands beside each of its readers. Ours is put
/// right when it is told, so whoever renews and dies leaves nobody beside a reader of ours.
#[test]
fn a_lease_that_their_watchdog_cuts_is_put_right() {
    let server = Redis::start();
    let theirs = Theirs { server: &server, name: "x" };
    runtime().block_on(async {
        let (c, other) = (redisson(&server.url()).await, redisson(&server.url()).await);
        for all in [false, true] {
            let reader = c.rw_lock("x").ttl(600 * SEC).read().await.unwrap();
            let beside = other.rw_lock("x").ttl(300 * SEC).read().await.unwrap();
            assert!(theirs.read(ONE, "30000"));
            tokio::time::sleep(300 * MS).await;
            for _ in 0..3 {
                assert!(theirs.watchdog(ONE, "3000", all));
                let began = Instant::now();
                eventually("it is as long as before", || async { pttl(&server, "x") > 15_000 }).await;
                in_time(began.elapsed(), "put right");
                // What comes before it is watched again is put right by its renewal alone.
                tokio::time::sleep(SEC).await;
            }
            // They die, and are not there any more when their lease is over.
            tokio::time::sleep(3_500 * MS).await;
            reader.check().unwrap();
            beside.check().unwrap();
            assert!(!theirs.write(TWO, "30000"), "a writer beside a reader");
            assert!(c.rw_lock("x").try_write().await.unwrap().is_err());
            assert_eq!(c.inspect("x").await.unwrap().holders.iter().filter(|it| it.pid > 0).count(), 2);
            reader.release().await.unwrap();
            assert!(pttl(&server, "x") <= 30_000, "it ends with the longest that is left");
            beside.release().await.unwrap();
            assert!(theirs.is_free(), "theirs is over");
        }
    });
}
/// What could not be put right is put right later, and not with the next renewal alone.
#[test]
fn a_repair_that_is_refused_is_done_later() {
    let server = Redis::start();
    runtime().block_on(async {
        let c = redisson(&server.url()).await;
        let reader = c.rw_lock("x").ttl(60 * SEC).read().await.unwrap();
        // It is watched from now on.
        tokio::time::sleep(300 * MS).await;
        assert_eq!(server.ask(&["ACL", "SETUSER", "default", "-pexpire"]).unwrap(), "+OK");
        assert_eq!(server.ask(&["EXPIRE", "x", "9"]).unwrap(), ":1");
        eventually("it was refused", || async { server.ask(&["ACL", "LOG"]).unwrap() != "*0" }).await;
        assert_eq!(server.ask(&["ACL", "SETUSER", "default", "+pexpire"]).unwrap(), "+OK");
        let began = Instant::now();
        eventually("it is as long as before", || async { pttl(&server, "x") > 15_000 }).await;
        in_time(began.elapsed(), "put right");
        reader.check().unwrap();
        reader.release().await.unwrap();
    });
}
/// A reader counts on no more than their watchdog leaves, however long its ttl is, and whether anybody tells of it or not (SAFETY G3).
#[test]
fn readers_have_short_leases() {
    let server = Redis::start();
    runtime().block_on(async {
        let c = redisson(&(server.url() + "?protocol=resp2")).await;
        for c in [&c, &redisson(&server.url()).await] {
            let reader = c.rw_lock("long").ttl(600 * SEC).read().await.unwrap();
            assert!(pttl(&server, "long") <= 30_000 && reader.valid_until() <= BootClock.now() + 30 * SEC);
            reader.release().await.unwrap();
        }
        let error = c.rw_lock("x").lease(31 * SEC).read().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
        assert!(error.to_string().contains("watchdog") && server.ask(&["EXISTS", "x"]).unwrap() == ":0", "{error}");
        c.rw_lock("x").ttl(30 * SEC).read().await.unwrap().release().await.unwrap();
        let writer = c.rw_lock("x").ttl(60 * SEC).write().await.unwrap();
        assert!(!c.info().capabilities.downgrade);
        assert_eq!(writer.downgrade().await.map(drop).unwrap_err().kind(), ErrorKind::Unsupported);
    });
}

/// A2: of a thread that writes and reads one part is broken, and the other one stays.
#[test]
fn one_part_of_a_thread_is_broken_and_the_other_stays() {
    let server = Redis::start();
    let theirs = Theirs { server: &server, name: "x" };
    let write = format!("{ONE}:write");
    runtime().block_on(async {
        let c = redisson(&server.url()).await;
        let broken = |claim: Claim| {
            let c = c.clone();
            async move {
                let status = c.inspect("x").await.unwrap();
                let one = status.holders.iter().find(|holder| holder.claim == claim).unwrap();
                assert_eq!(c.force_release("x", one.token).await.unwrap(), Released::Released);
            }
        };
        // The writer: it goes on as a reader.
        assert!(theirs.write(ONE, "30000") && theirs.read(ONE, "30000") && theirs.read(ONE, "30000"));
        assert_eq!(sides(&c.inspect("x").await.unwrap()), [Claim::Write, Claim::Read]);
        broken(Claim::Write).await;
        assert!(theirs.holds(ONE) && !theirs.holds(&write) && theirs.mode() == "read");
        assert!(pttl(&server, &format!("{}:2", theirs.timeout(ONE))) > 0);
        c.rw_lock("x").try_read().await.unwrap().unwrap().release().await.unwrap();
        assert_eq!((theirs.end_read(ONE), theirs.end_read(ONE)), (0, 1));
        // The reader: it goes on as a writer.
        assert!(theirs.write(ONE, "30000") && theirs.read(ONE, "30000") && theirs.read(ONE, "30000"));
        broken(Claim::Read).await;
        assert!(!theirs.holds(ONE) && theirs.holds(&write) && theirs.mode() == "write");
        assert_eq!(server.ask(&["EXISTS", &format!("{}:2", theirs.timeout(ONE))]).unwrap(), ":0");
        assert!(c.rw_lock("x").try_read().await.unwrap().is_err());
        assert_eq!(theirs.end_write(ONE, "30000"), 1);
        assert!(theirs.is_free());
        // One of ours beside one of theirs.
        let (ours, read) = (c.rw_lock("x").read().await.unwrap(), theirs.read(TWO, "30000"));
        assert!(read);
        assert_eq!(c.force_release("x", token(&c, ours.id()).await).await.unwrap(), Released::Released);
        assert_eq!(soon(ours.lost()).await, LossReason::TakenOver);
        assert!(theirs.holds(TWO));
        assert_eq!(theirs.end_read(TWO), 1);
    });
}

/// What is there is never cut below anybody's lease, and what they write there stops nobody.
#[test]
fn the_end_is_that_of_whoever_is_left() {
    let server = Redis::start();
    let theirs = Theirs { server: &server, name: "x" };
    runtime().block_on(async {
        let c = redisson(&server.url()).await;
        assert!(theirs.read(ONE, "20000") && theirs.read(ONE, "50000"));
        let ours = c.rw_lock("x").ttl(600 * SEC).read().await.unwrap();
        ours.release().await.unwrap();
        let left = pttl(&server, "x");
        assert!((40_000..=50_000).contains(&left), "{left}");
        // A count that would take for ever.
        for count in ["9000000000000000", "inf", "nan", "-3", "x", "1.5"] {
            server.ask(&["HSET", "x", TWO, count]).unwrap();
            server.ask(&["PEXPIRE", "x", "50000"]).unwrap();
            let began = Instant::now();
            c.rw_lock("x").ttl(600 * SEC).read().await.unwrap().release().await.unwrap();
            assert!(began.elapsed() < 5 * SEC, "{count}");
            assert!(pttl(&server, "x") > 40_000, "{count}");
            assert!(theirs.holds(ONE), "{count}");
        }
        // Two that are none together.
        server.ask(&["HSET", "x", TWO, "-9000000000000000"]).unwrap();
        server.ask(&["HSET", "x", "a:9", "9000000000000000"]).unwrap();
        let began = Instant::now();
        c.rw_lock("x").read().await.unwrap().release().await.unwrap();
        assert!(began.elapsed() < 5 * SEC && theirs.holds(ONE));
        server.ask(&["HDEL", "x", TWO, "a:9"]).unwrap();
        // What does not end is not made to.
        server.ask(&["PERSIST", "x"]).unwrap();
        let ours = c.rw_lock("x").ttl(2 * SEC).read().await.unwrap();
        soon(ours.renewed()).await;
        ours.release().await.unwrap();
        assert_eq!(pttl(&server, "x"), -1);
    });
}

/// A writer becomes a reader, under its token; whoever waits to read hears of it, theirs by their channel.
#[test]
fn a_writer_becomes_a_reader() {
    let server = Redis::start();
    let theirs = Theirs { server: &server, name: "x" };
    runtime().block_on(async {
        let (c, other) = (redisson(&server.url()).await, redisson(&server.url()).await);
        let writer = c.rw_lock("x").ttl(60 * SEC).write().await.unwrap();
        let before = writer.token();
        let wait = tokio::spawn(other.rw_lock("x").read());
        tokio::time::sleep(300 * MS).await;
        let reader = writer.downgrade().await.unwrap();
        assert_eq!((token(&c, reader.id()).await, theirs.mode()), (before, "read".to_owned()));
        let beside = soon(wait).await.unwrap().unwrap();
        assert!(theirs.read(ONE, "30000") && !theirs.write(TWO, "30000"));
        renew_shared(&server, &reader).await;
        assert_eq!(theirs.end_read(ONE), 0);
        beside.release().await.unwrap();
        reader.release().await.unwrap();
        assert!(theirs.is_free());
    });
}
/// Has it renewed, which finds a reader now.
async fn renew_shared(server: &Redis, reader: &fencelock_core::SharedGuard) {
    tokio::time::sleep(250 * MS).await;
    let before = reader.valid_until();
    server.ask(&["CLIENT", "KILL", "TYPE", "normal"]).unwrap();
    eventually("renewed", || async { reader.valid_until() > before }).await;
    reader.check().unwrap();
}
