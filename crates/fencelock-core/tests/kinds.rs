//! Story: what does not fit together is told by one clear error, on every engine in the same words, and leaves nothing held.
//!
//! Planted to see it red: the size of a semaphore that is not compared; a cell's value that does not keep its name alive; a
//! resize that leaves in the queue what can never be granted; an adoption that does not look at the ticket's engine; an
//! extension that shortens; `at_least` without the delay; `Owner::check` left out; a multilock that takes one lock twice.
#![allow(clippy::unwrap_used)] // helpers of tests

mod common;
use common::*;
use fencelock_core::{Client, Error, ErrorKind, MultiLock, Released, Ticket, Version};
use std::time::Duration;

fn pair() -> (std::sync::Arc<fencelock_core::memory::MemoryServer>, Client, Client) {
    let server = server();
    let (a, b) = (client(lease(&server)), client(lease(&server)));
    (server, a, b)
}
#[track_caller]
fn says(error: Error, kind: ErrorKind, words: &[&str]) {
    assert_eq!(error.kind(), kind, "{error}");
    assert!(!error.is_temporary());
    for word in words {
        assert!(error.to_string().contains(word), "{word:?} is not in: {error}");
    }
}

#[test]
fn a_name_has_one_kind_while_it_is_alive() {
    let (server, a, b) = pair();
    runtime().block_on(async {
        let held = a.mutex("x").lock().await.unwrap();
        for error in [
            b.rw_lock("x").read().await.unwrap_err(),
            b.rw_lock("x").try_write().await.unwrap_err(),
            b.semaphore("x", 3).try_acquire_for(1, SEC).await.unwrap_err(),
            b.cell("x").load().await.unwrap_err(),
            b.cell("x").compare_exchange(Version::NONE, "v").await.unwrap_err(),
            b.semaphore("x", 3).resize(3, 4).await.unwrap_err(),
        ] {
            says(error, ErrorKind::KindMismatch, &["it is a mutex now", "x", "use another name"]);
        }
        held.release().await.unwrap();
        // A value is alive, too; removed it is not.
        let version = b.cell("x").compare_exchange(Version::NONE, "v").await.unwrap().unwrap();
        says(a.mutex("x").lock().await.unwrap_err(), ErrorKind::KindMismatch, &["it is a cell now, not a mutex"]);
        let version = b.cell("x").remove(version).await.unwrap().unwrap();
        let held = a.rw_lock("x").write().await.unwrap();
        assert!(held.token().get() > version.get());
        held.release().await.unwrap();
        assert_eq!(server.census(), (0, 0));
    });
}

#[test]
fn a_semaphore_has_one_size_and_permits_are_counted_from_one() {
    let (server, a, b) = pair();
    runtime().block_on(async {
        let held = a.semaphore("x", 3).acquire(1).await.unwrap();
        let words = ["the semaphore has 3 permits, not 5", "a resize from 3"];
        says(b.semaphore("x", 5).acquire(1).await.unwrap_err(), ErrorKind::CapacityMismatch, &words);
        held.release().await.unwrap();
        // The size is stored: nobody has to be there.
        says(b.semaphore("x", 5).try_acquire(1).await.unwrap_err(), ErrorKind::CapacityMismatch, &words);
        for (take, of, word) in
            [(0, 3, "take 1 to 3"), (4, 3, "4 of 3 permits"), (1, 0, "at least one"), (0, 0, "at least one")]
        {
            says(b.semaphore("y", of).acquire(take).await.unwrap_err(), ErrorKind::InvalidConfig, &[word]);
        }
        for (from, to) in [(0, 3), (3, 0)] {
            let error = b.semaphore("x", 3).resize(from, to).await.unwrap_err();
            says(error, ErrorKind::InvalidConfig, &["at least one permit"]);
        }
        says(
            b.semaphore("x", 3).resize(4, 6).await.unwrap_err(),
            ErrorKind::CapacityMismatch,
            &["has 3 permits, not 4"],
        );
        b.semaphore("x", 3).resize(3, u32::MAX).await.unwrap();
        b.semaphore("x", 3).resize(3, u32::MAX).await.unwrap(); // a repeat
        let all = b.semaphore("x", u32::MAX).acquire(u32::MAX).await.unwrap();
        assert!(b.semaphore("x", u32::MAX).try_acquire(1).await.unwrap().is_err());
        all.release().await.unwrap();
        assert_eq!(server.census(), (0, 0));
    });
}

#[test]
fn waiters_for_more_than_there_is_are_told_and_the_others_go_on() {
    let (server, a, b) = pair();
    runtime().block_on(async {
        let held = a.semaphore("x", 3).acquire(1).await.unwrap();
        let large = tokio::spawn(b.semaphore("x", 3).acquire(3));
        soon("it waits", 5 * SEC, || server.census() == (1, 1)).await;
        let small = tokio::spawn(b.semaphore("x", 3).acquire(1));
        soon("both wait", 5 * SEC, || server.census() == (1, 2)).await;
        a.semaphore("x", 3).resize(3, 2).await.unwrap();
        let told = within("an answer", 5 * SEC, large).await.unwrap().unwrap_err();
        says(told, ErrorKind::CapacityMismatch, &["has 2 permits, not 3"]);
        drop(within("the small one", 5 * SEC, small).await.unwrap().unwrap());
        held.release().await.unwrap();
        soon("nothing is left", 5 * SEC, || server.census() == (0, 0)).await;
    });
}

#[test]
fn a_ticket_is_good_for_one_adoption_on_its_own_engine() {
    let (server, a, b) = pair();
    let stranger = client(lease(&common::server()));
    let session = client(lease(&server).with_session(SEC));
    runtime().block_on(async {
        let guard = a.mutex("x").lock().await.unwrap();
        let token = guard.token();
        let ticket = guard.into_ticket().await.unwrap();
        assert_eq!(a.held(), 0);
        assert!(b.mutex("x").try_lock().await.unwrap().is_err(), "nobody gets in meanwhile");
        says(stranger.adopt(&ticket).await.unwrap_err(), ErrorKind::InvalidConfig, &["another engine"]);
        says(b.adopt_shared(&ticket).await.unwrap_err(), ErrorKind::InvalidConfig, &["other sort"]);
        let again: Ticket = ticket.to_string().parse().unwrap();
        assert_eq!(again, ticket);
        let (one, other) = tokio::join!(a.adopt(&ticket), b.adopt(&again));
        let (won, lost) = if one.is_ok() { (one, other) } else { (other, one) };
        let won = won.unwrap();
        assert!(won.token() > token);
        says(lost.unwrap_err(), ErrorKind::NotHeld, &["not good any more", "adopted by somebody else"]);
        won.release().await.unwrap();
        says(a.adopt(&ticket).await.unwrap_err(), ErrorKind::NotHeld, &["not good any more"]);

        let guard = session.mutex("y").lock().await.unwrap();
        says(guard.into_ticket().await.unwrap_err(), ErrorKind::Unsupported, &["lives with its process"]);
        soon("it is released", 5 * SEC, || server.census() == (0, 0)).await;
        for text in ["", "fencelock1", "fencelock1:1:2:3:4:mutex:x", "fencelock2:x"] {
            says(text.parse::<Ticket>().unwrap_err(), ErrorKind::InvalidConfig, &["no ticket"]);
        }
    });
}

#[test]
fn a_ticket_gives_no_more_than_was_held() {
    let (server, a, b) = pair();
    runtime().block_on(async {
        let (one, two) = (a.rw_lock("x").read().await.unwrap(), b.rw_lock("x").read().await.unwrap());
        let text = one.into_ticket().await.unwrap().to_string();
        assert!(text.contains(":read:"));
        let forged: Ticket = text.replace(":read:", ":write:").parse().unwrap();
        says(b.adopt(&forged).await.unwrap_err(), ErrorKind::NotHeld, &["not good any more"]);
        two.check().unwrap();
        // As it comes out of a pipe; and cut short.
        let ticket: Ticket = format!("{text}\n").parse().unwrap();
        assert_eq!(ticket.name().as_str(), "x");
        says(text[..text.len() - 1].parse::<Ticket>().unwrap_err(), ErrorKind::InvalidConfig, &["no ticket"]);
        let one = b.adopt_shared(&ticket).await.unwrap();
        drop((one, two));

        // Who writes and reads: the writer is gone, so a reader travels.
        let me = a.owner();
        let lock = a.rw_lock("x").reentrant(&me);
        let (write, read) = (lock.write().await.unwrap(), lock.read().await.unwrap());
        let refused = read.into_ticket().await.unwrap_err();
        says(refused, ErrorKind::InvalidConfig, &["entered it more than once"]);
        assert!(write.claim().is_exclusive() && b.rw_lock("x").try_read().await.unwrap().is_err(), "it writes still");
        let read = lock.read().await.unwrap();
        drop(write);
        let ticket = read.into_ticket().await.unwrap();
        assert!(!ticket.claim().is_exclusive());
        drop(b.adopt_shared(&ticket).await.unwrap());

        for mutex in [a.mutex("y").lease(SEC), a.mutex("y").max_hold(SEC), a.mutex("y").at_least(MS)] {
            let refused = mutex.lock().await.unwrap().into_ticket().await.unwrap_err();
            says(refused, ErrorKind::InvalidConfig, &["carries no lease"]);
        }
        // A hold that somebody else adopts without being given it is told.
        let guard = a.mutex("z").lock().await.unwrap();
        let status = b.inspect("z").await.unwrap();
        let stolen = guard_ticket(&b, &status);
        let thief = b.adopt(&stolen.parse().unwrap()).await.unwrap();
        within("the loss", 5 * SEC, guard.lost()).await;
        drop(thief);
        soon("nothing is left", 5 * SEC, || server.census() == (0, 0)).await;
    });
}
/// What anybody can make of what is shown to everybody.
fn guard_ticket(client: &Client, status: &fencelock_core::Status) -> String {
    let (engine, holder) = (client.info().id, &status.holders[0]);
    let name = status.name.as_str();
    format!("fencelock1:{engine}:{}:{}:1000000000:mutex:{}:{name}", holder.hold, holder.token, name.len())
}

#[test]
fn a_fixed_lease_ends_unless_it_is_extended_and_never_gets_shorter() {
    let (server, a, b) = pair();
    runtime().block_on(async {
        let guard = a.mutex("x").lease(3 * SEC).lock().await.unwrap();
        guard.extend(LONG).await.unwrap();
        assert!(guard.remaining() > 30 * SEC);
        guard.extend(50 * MS).await.unwrap();
        assert!(guard.remaining() > 30 * SEC, "it does not get shorter");
        says(guard.extend(Duration::MAX).await.unwrap_err(), ErrorKind::InvalidConfig, &["cannot be used"]);
        guard.release().await.unwrap();

        let guard = a.mutex("x").lease(200 * MS).lock().await.unwrap();
        within("the loss", 5 * SEC, guard.lost()).await;
        says(guard.extend(SEC).await.unwrap_err(), ErrorKind::Lost, &["its lease ran out"]);
        let next = within("the next one", 5 * SEC, b.mutex("x").lock()).await.unwrap();
        says(guard.release().await.unwrap_err(), ErrorKind::Lost, &["its lease ran out"]);
        says(next.extend(SEC).await.unwrap_err(), ErrorKind::InvalidConfig, &["renewed by itself", ".lease(d)"]);
        next.release().await.unwrap();
        let both = a.mutex("x").ttl(SEC).lease(SEC).lock().await.unwrap_err();
        says(both, ErrorKind::InvalidConfig, &["a ttl and a fixed lease"]);
        soon("nothing is left", 5 * SEC, || server.census() == (0, 0)).await;
    });
}

#[tokio::test(start_paused = true)]
async fn what_is_held_at_least_stays_taken_and_nobody_waits_for_that() {
    let (clock, server) = paused();
    let [a, b] = [(); 2].map(|()| here(std::sync::Arc::new(paused_lease(&clock, &server)), &clock));
    let began = tokio::time::Instant::now();
    let guard = a.mutex("x").at_least(SEC).lock().await.unwrap();
    guard.release().await.unwrap();
    assert!(began.elapsed() < 900 * MS, "the release returned at once");
    assert!(b.mutex("x").try_lock().await.unwrap().is_err());
    let next = within("the next one", 5 * SEC, b.mutex("x").lock()).await.unwrap();
    assert!(began.elapsed() >= SEC);
    next.release().await.unwrap();
    for mutex in [a.mutex("x").ttl(SEC).at_least(2 * SEC), a.mutex("x").max_hold(SEC).at_least(2 * SEC)] {
        says(mutex.lock().await.unwrap_err(), ErrorKind::InvalidConfig, &["at_least", "2s"]);
    }
    assert_eq!(server.census(), (0, 0));
}

#[test]
fn who_does_not_belong_here_changes_nothing() {
    let (server, a, b) = pair();
    runtime().block_on(async {
        let stranger = b.owner();
        let error = a.mutex("x").reentrant(&stranger).lock().await.unwrap_err();
        says(error, ErrorKind::InvalidConfig, &["belongs to another client", "client.owner()"]);
        let guard = a.mutex("x").lock().await.unwrap();
        let other = b.mutex("y").lock().await.unwrap();
        let answer = b.force_release("x", other.token()).await.unwrap();
        assert!(matches!(answer, Released::NotHeld { holder: Some(holder) } if holder.token == guard.token()));
        guard.check().unwrap();
        says(guard.downgrade().await.unwrap_err(), ErrorKind::Unsupported, &["a mutex has no readers"]);
        drop(other);
        soon("nothing is left", 5 * SEC, || server.census() == (0, 0)).await;
    });
}

#[test]
fn a_multilock_of_nothing_or_of_one_lock_twice_is_refused() {
    let (server, a, b) = pair();
    runtime().block_on(async {
        let none: [fencelock_core::Mutex; 0] = [];
        says(MultiLock::new(none).lock().await.unwrap_err(), ErrorKind::InvalidConfig, &["nothing to lock"]);
        // Two clients, one store: it is the same lock.
        let twice = MultiLock::new([a.mutex("x"), b.mutex("y"), b.mutex("x")]);
        says(
            within("an answer", 5 * SEC, twice.lock()).await.unwrap_err(),
            ErrorKind::InvalidConfig,
            &["there twice", "x"],
        );
        let kinds = MultiLock::new([a.mutex("x").into(), a.rw_lock("x").reading()]);
        says(
            within("an answer", 5 * SEC, kinds.lock()).await.unwrap_err(),
            ErrorKind::InvalidConfig,
            &["there twice", "x"],
        );
        let bad = MultiLock::new([a.mutex("x"), a.mutex("")]);
        says(bad.try_lock().await.unwrap_err(), ErrorKind::InvalidName, &["empty"]);
        // What the second member says leaves nothing of the first.
        let cell = a.cell("z").compare_exchange(Version::NONE, "v").await.unwrap().unwrap();
        let error = MultiLock::new([a.mutex("x"), a.mutex("z")]).lock().await.unwrap_err();
        says(error, ErrorKind::KindMismatch, &["z", "it is a cell now"]);
        assert_eq!(server.census(), (0, 0));
        let late = a.cell("z").compare_exchange(Version::NONE, "w").await.unwrap().unwrap_err();
        assert_eq!(late.now.version, cell);
        let large = a.cell("z").compare_exchange(cell, vec![0; 256 * 1024 + 1]).await.unwrap_err();
        says(large, ErrorKind::InvalidConfig, &["262145 bytes", "at most 256 KiB"]);
    });
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_attempt_keeps_nobody_out_whatever_it_asked_for() {
    let (client, control) = fencelock_core::testing::memory();
    // Granted, with nobody left to take it: at_least is for those who had it.
    for polls in 0..3 {
        let mut lock = client.mutex("x").at_least(20 * SEC).lock();
        for _ in 0..polls {
            if let Some(guard) = once(&mut lock).await {
                guard.unwrap().release().await.unwrap();
                control.advance(21 * SEC).await;
                break;
            }
        }
        drop(lock);
        control.advance(SEC).await;
        assert_eq!(control.census(), (0, 0), "after {polls} polls");
    }
    let waiting = client.mutex("x").lock().await.unwrap();
    let mut lock = client.mutex("x").at_least(20 * SEC).lock();
    assert!(once(&mut lock).await.is_none());
    control.advance(SEC).await;
    drop(waiting);
    control.advance(SEC).await; // granted to the task, unread
    drop(lock);
    control.advance(SEC).await;
    assert_eq!(control.census(), (0, 0));
}
