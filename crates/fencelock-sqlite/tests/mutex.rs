//! One process, several clients: each client is a session, so they exclude each other as processes do.
//! Planted to see them go red: `freed` without its ring; `bury` at close left out; HOLDER_DELETE without the token; an owner's first
//! guard that leaves releases.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_core::{Client, ErrorKind, LossReason, MultiLock, Page, Released, Token, memory::MemoryEngine};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

#[test]
fn lock_release_and_what_is_told() {
    let folder = Folder::new();
    let (a, b) = (folder.client(), folder.client());
    runtime().block_on(async {
        let guard = a.mutex("orders/42").note("first").lock().await.unwrap();
        assert!(guard.is_valid() && guard.remaining() > Duration::from_secs(20));
        let busy = b.mutex("orders/42").try_lock().await.unwrap().unwrap_err();
        let holder = busy.holder.unwrap();
        assert_eq!((&*holder.note, holder.pid, holder.token), ("first", std::process::id(), guard.token()));
        let status = b.inspect("orders/42").await.unwrap();
        assert_eq!((status.holders.len(), status.waiters.len(), status.last_token), (1, 0, Some(guard.token())));
        let first = guard.token();
        guard.release().await.unwrap();
        assert!(!b.inspect("orders/42").await.unwrap().is_held());
        let again = b.mutex("orders/42").lock().await.unwrap();
        assert!(again.token() > first);
    });
}

#[test]
fn a_waiter_is_woken_by_the_release_and_by_the_drop() {
    let folder = Folder::new();
    let (a, b) = (folder.client(), folder.client());
    runtime().block_on(async {
        // By the look once a second none of them is in at once; by the ring all are, where the machine lets them.
        let mut fastest = [Duration::MAX; 2];
        for (round, dropped) in [false, true].into_iter().cycle().enumerate().take(10) {
            if fastest[round % 2] < 900 * MS {
                continue;
            }
            let guard = a.mutex("x").lock().await.unwrap();
            let token = guard.token();
            let waiting = tokio::spawn({
                let b = b.clone();
                async move { b.mutex("x").lock().await.unwrap() }
            });
            while a.inspect("x").await.unwrap().waiters.is_empty() {
                tokio::task::yield_now().await;
            }
            let freed = Instant::now();
            if dropped {
                drop(guard);
            } else {
                guard.release().await.unwrap();
            }
            let next = tokio::time::timeout(Duration::from_secs(10), waiting).await.unwrap().unwrap();
            let took = freed.elapsed();
            println!("dropped {dropped}: handed over after {took:?}");
            fastest[round % 2] = took.min(fastest[round % 2]);
            assert!(next.token() > token);
            next.release().await.unwrap();
        }
        assert!(fastest.into_iter().all(|took| took < 900 * MS), "by the look once a second: {fastest:?}");
    });
}

/// Whoever sleeps for a quarter of a second when it is his turn is passed.
#[test]
fn waiters_are_served_in_the_order_they_came() {
    on_a_steady_machine(50 * MS, in_order);
}
fn in_order() {
    let folder = Folder::new();
    let clients: Vec<_> = (0..6).map(|_| folder.client()).collect();
    runtime().block_on(async {
        let first = clients[0].mutex("x").lock().await.unwrap();
        let (tx, mut rx) = tokio::sync::mpsc::unbounded_channel();
        for (i, client) in clients.iter().enumerate().skip(1) {
            let (client, tx) = (client.clone(), tx.clone());
            tokio::spawn(async move {
                let guard = client.mutex("x").lock().await.unwrap();
                tx.send((i, guard.token())).unwrap();
                guard.release().await.unwrap();
            });
            while clients[0].inspect("x").await.unwrap().waiters.len() < i {
                tokio::task::yield_now().await;
            }
        }
        let mut last = first.token();
        first.release().await.unwrap();
        for i in 1..6 {
            let (who, token) = rx.recv().await.unwrap();
            assert_eq!(who, i);
            assert!(token > last);
            last = token;
        }
    });
}

#[test]
fn a_forced_release_is_told_at_once_and_breaks_no_other() {
    let folder = Folder::new();
    let (a, admin) = (folder.client(), folder.client());
    runtime().block_on(async {
        let guard = a.mutex("x").lock().await.unwrap();
        let other = Token::new(guard.token().get() + 1).unwrap();
        assert!(matches!(admin.force_release("x", other).await.unwrap(), Released::NotHeld { holder: Some(_) }));
        assert!(guard.is_valid());
        let lost = guard.lost();
        assert_eq!(admin.force_release("x", guard.token()).await.unwrap(), Released::Released);
        let broken = Instant::now();
        let reason = tokio::time::timeout(Duration::from_secs(10), lost).await.unwrap();
        println!("told after {:?}", broken.elapsed());
        assert_eq!(reason, LossReason::TakenOver);
        assert!(guard.check().is_err());
        assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
        admin.mutex("x").try_lock().await.unwrap().unwrap().release().await.unwrap();
    });
}

#[test]
fn a_row_deleted_behind_our_back_is_a_loss_at_the_next_heartbeat() {
    let folder = Folder::new();
    let a = folder.client();
    runtime().block_on(async {
        let guard = a.mutex("x").ttl(Duration::from_secs(6)).lock().await.unwrap();
        folder.execute("DELETE FROM fencelock_holder");
        let reason = tokio::time::timeout(Duration::from_secs(10), guard.lost()).await.unwrap();
        assert_eq!(reason, LossReason::TakenOver);
        let guard = a.mutex("x").ttl(Duration::from_secs(6)).lock().await.unwrap();
        folder.execute("DELETE FROM fencelock_session");
        let reason = tokio::time::timeout(Duration::from_secs(10), guard.lost()).await.unwrap();
        assert_eq!(reason, LossReason::SessionEnded);
        // And the client goes on with a new session.
        a.mutex("x").lock().await.unwrap().release().await.unwrap();
    });
}

#[test]
fn a_session_whose_row_was_deleted_while_it_held_nothing_is_opened_anew() {
    let folder = Folder::new();
    let a = folder.client();
    runtime().block_on(async {
        a.mutex("x").lock().await.unwrap().release().await.unwrap();
        folder.execute("DELETE FROM fencelock_session");
        let guard = tokio::time::timeout(Duration::from_secs(10), a.mutex("x").lock()).await.unwrap().unwrap();
        guard.release().await.unwrap();
    });
}

#[test]
fn different_ttls_are_renewed_by_one_heartbeat() {
    on_a_steady_machine(100 * MS, different_ttls);
}
fn different_ttls() {
    let folder = Folder::new();
    let (a, b) = (folder.client(), folder.client());
    runtime().block_on(async {
        let short = a.mutex("short").ttl(Duration::from_millis(900)).lock().await.unwrap();
        let long = a.mutex("long").ttl(Duration::from_secs(30)).lock().await.unwrap();
        // Several ttls of the short one pass.
        for _ in 0..8 {
            tokio::time::timeout(Duration::from_secs(10), short.renewed()).await.unwrap();
            short.check().unwrap();
            assert!(b.mutex("short").try_lock().await.unwrap().is_err());
        }
        assert!(long.remaining() > Duration::from_secs(29));
    });
}

#[test]
fn max_hold_is_told_and_the_lease_runs_out_though_the_session_lives() {
    let folder = Folder::new();
    let (a, b) = (folder.client(), folder.client());
    runtime().block_on(async {
        let started = Instant::now();
        let ttl = Duration::from_secs(3);
        let other = a.mutex("other").ttl(ttl).lock().await.unwrap();
        let guard = a.mutex("x").ttl(ttl).max_hold(Duration::from_millis(500)).lock().await.unwrap();
        assert_eq!(guard.lost().await, LossReason::MaxHold);
        assert!(started.elapsed() >= Duration::from_millis(500));
        let next = tokio::time::timeout(Duration::from_secs(10), b.mutex("x").lock()).await.unwrap().unwrap();
        assert!(
            started.elapsed() >= Duration::from_millis(3_480),
            "not released, but run out: {:?}",
            started.elapsed()
        );
        assert!(other.is_valid());
        assert!(next.token() > guard.token());
    });
}

#[test]
fn a_kind_that_this_program_does_not_know_is_respected() {
    let folder = Folder::new();
    let (a, b) = (folder.client(), folder.client());
    runtime().block_on(async {
        let guard = a.mutex("x").lock().await.unwrap();
        folder.execute("UPDATE fencelock_lock SET kind = 'rw_lock'");
        assert_eq!(b.mutex("x").lock().await.unwrap_err().kind(), ErrorKind::KindMismatch);
        guard.release().await.unwrap();
        b.mutex("x").lock().await.unwrap().release().await.unwrap();
    });
}

/// One name in two namespaces is two locks, for which all have one order.
#[test]
fn a_multilock_over_namespaces() {
    let folder = Folder::new();
    let [one, other] = ["", "team"].map(|namespace| [0, 1].map(|_| in_namespace(&folder, namespace)));
    runtime().block_on(async {
        let mut tasks = Vec::new();
        for n in [0, 1] {
            let both = [one[n].mutex("x"), other[n].mutex("x")];
            let members = if n == 0 { [&both[0], &both[1]] } else { [&both[1], &both[0]] };
            let lock = MultiLock::new(members);
            tasks.push(tokio::spawn(async move {
                for _ in 0..200 {
                    let guard = lock.lock().await.unwrap();
                    tokio::task::yield_now().await;
                    guard.release().await.unwrap();
                }
            }));
        }
        for task in tasks {
            tokio::time::timeout(Duration::from_secs(60), task).await.expect("nobody waits for ever").unwrap();
        }
        let twice = MultiLock::new([one[0].mutex("x"), one[1].mutex("x")]).try_lock().await.unwrap_err();
        assert_eq!(twice.kind(), ErrorKind::InvalidConfig, "{twice}");
    });
}
fn in_namespace(folder: &Folder, namespace: &str) -> Client {
    let mut config = fencelock_sqlite::Config::new(folder.database());
    config.namespace = namespace.into();
    Client::builder(Arc::new(fencelock_sqlite::SqliteEngine::open(config).unwrap())).build().unwrap()
}
#[test]
fn names_and_namespaces_do_not_meet() {
    let folder = Folder::new();
    let open = |namespace: &str| in_namespace(&folder, namespace);
    let (plain, team, te) = (open(""), open("team"), open("te"));
    runtime().block_on(async {
        let mut guards = Vec::new();
        for (client, name) in [
            (&plain, "teamx"),
            (&team, "x"),
            (&te, "amx"),
            (&plain, "x"),
            (&plain, "X"),
            (&plain, "x "),
            (&plain, "%"),
            (&plain, "_"),
            (&plain, "ü'\"\n\u{1f}"),
        ] {
            guards.push(client.mutex(name).try_lock().await.unwrap().unwrap());
        }
        let listed =
            |listing: fencelock_core::Listing| listing.items.iter().map(|s| s.name.to_string()).collect::<Vec<_>>();
        assert_eq!(listed(team.list("", &Page::default()).await.unwrap()), ["x"]);
        assert_eq!(listed(plain.list("x", &Page::default()).await.unwrap()), ["x", "x "]);
        assert_eq!(listed(plain.list("%", &Page::default()).await.unwrap()), ["%"]);
        let mut page = Page { after: None, limit: 2 };
        let mut all = Vec::new();
        loop {
            let listing = plain.list("", &page).await.unwrap();
            page.after = listing.next.clone();
            all.extend(listed(listing));
            if page.after.is_none() {
                break;
            }
        }
        assert_eq!(all.len(), 7, "{all:?}");
    });
}

#[test]
fn closing_leaves_no_row_and_no_file() {
    let folder = Folder::new();
    let a = folder.client();
    let rt = runtime();
    let guard = rt.block_on(a.mutex("x").lock()).unwrap();
    assert_eq!(folder.files().len(), 2);
    drop(guard);
    let began = Instant::now();
    drop(a);
    // The last one out waits for it: no polling here, unless it took longer than he waits.
    if began.elapsed() >= FAREWELL {
        let gone = || folder.files().is_empty() && folder.count("SELECT count(*) FROM fencelock_session") == 0;
        eventually("it is closed", Duration::from_secs(10), gone);
    }
    assert_eq!(folder.count("SELECT count(*) FROM fencelock_holder"), 0);
    assert_eq!(folder.count("SELECT count(*) FROM fencelock_session"), 0);
    assert_eq!(folder.files(), [""; 0]);
}

#[test]
fn shutdown_ends_waits_and_tells_holders() {
    let folder = Folder::new();
    let (a, b) = (folder.client(), folder.client());
    runtime().block_on(async {
        let guard = a.mutex("x").lock().await.unwrap();
        let waiting = tokio::spawn({
            let b = b.clone();
            async move { b.mutex("x").lock().await.map(drop) }
        });
        while a.inspect("x").await.unwrap().waiters.is_empty() {
            tokio::task::yield_now().await;
        }
        b.shutdown(Duration::from_secs(5)).await.unwrap();
        assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(b.mutex("x").try_lock().await.unwrap_err().kind(), ErrorKind::Closed);
        assert!(a.inspect("x").await.unwrap().waiters.is_empty());
        let lost = guard.lost();
        a.shutdown(Duration::from_secs(5)).await.unwrap();
        assert_eq!(tokio::time::timeout(Duration::from_secs(10), lost).await.unwrap(), LossReason::SessionEnded);
    });
}

/// A hold lives with its process here, so nobody can take it along (SAFETY A5).
#[test]
fn tickets_are_refused_and_leave_nothing_held() {
    let folder = Folder::new();
    let a = folder.client();
    runtime().block_on(async {
        let refused = a.mutex("x").lock().await.unwrap().into_ticket().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
        eventually("released", Duration::from_secs(10), || folder.count("SELECT count(*) FROM fencelock_holder") == 0);
        // One of another store, for a lock of this name.
        let memory = Client::builder(Arc::new(MemoryEngine::new())).build().unwrap();
        let ticket = memory.mutex("x").lock().await.unwrap().into_ticket().await.unwrap();
        let refused = a.adopt(&ticket).await.unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::Unsupported | ErrorKind::InvalidConfig), "{refused}");
        assert_eq!((a.held(), folder.count("SELECT count(*) FROM fencelock_lock")), (0, 1));
    });
}

#[test]
fn an_owner_s_count_is_exact_when_its_tasks_are_cancelled() {
    let folder = Folder::new();
    let a = folder.client();
    runtime().block_on(async {
        let me = a.owner();
        for round in 0..60u64 {
            let tasks: Vec<_> = (0..8)
                .map(|i| {
                    let lock = a.mutex("x").reentrant(&me).lock();
                    let patience = Duration::from_micros((round * 37 + i * 411) % 4_000);
                    tokio::spawn(
                        async move { tokio::time::timeout(patience, lock).await.ok().map(|guard| guard.unwrap()) },
                    )
                })
                .collect();
            let mut guards = Vec::new();
            for task in tasks {
                guards.extend(task.await.unwrap());
            }
            // One that was granted as it was cancelled is in until its task has seen that nobody waits for it.
            assert!(me.entries("x") as usize >= guards.len(), "round {round}");
            eventually("exact", Duration::from_secs(10), || me.entries("x") as usize == guards.len());
            let held = folder.count("SELECT count(*) FROM fencelock_holder");
            assert!(guards.is_empty() || held == 1, "round {round}: {} guards on {held} holds", guards.len());
            drop(guards);
        }
        eventually("nothing is left", Duration::from_secs(10), || {
            folder.count("SELECT (SELECT count(*) FROM fencelock_holder) + (SELECT count(*) FROM fencelock_waiter)")
                == 0
        });
        assert_eq!(me.entries("x"), 0);
    });
}
