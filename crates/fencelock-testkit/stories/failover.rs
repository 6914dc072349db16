//! Tokens rise whatever becomes of the server, and those who hold or wait are told the truth over a promotion, with several hosts: the same on
//! every database, for the tests that bring `Server`, `NAME`, `primary`, `replica`, `catch_up`, `client_of`, `SESSION_CLAIMS`, `CLEAN`, `AGE` and
//! `AGE_ROWS`.
use super::*;

/// Over releases, a crash, and a clean-up of what nobody uses, also where the clock was ahead. (Red: a floor that is not kept.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_over_releases_crashes_and_clean_ups() {
    tokens_rise(NAME, "", &CLAIMS).await;
}
/// Of sessions, which write into the same rows. (Red: the same.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_of_sessions_rise_over_releases_crashes_and_clean_ups() {
    tokens_rise(&format!("{NAME}, sessions"), "?strategy=session", &CLAIMS[..SESSION_CLAIMS]).await;
}
async fn tokens_rise(what: &str, query: &str, claims: &[(&str, Claim, Claim)]) {
    let server = primary(0);
    let mut a = client(&(server.url() + query)).await;
    let (mut last, mut many) = ([0_i64; CLAIMS.len()], 0);
    for round in 0..=tenth(30) {
        for (n, &(name, claim, _)) in claims.iter().enumerate() {
            for _ in 0..3 {
                let guard = soon(Any::lock(&a, name, claim, 60 * SEC)).await.unwrap();
                let token =
                    server.ask(&format!("SELECT fence FROM fencelock_lock WHERE name = '{name}'")).parse().unwrap();
                assert!(token > last[n], "{claim:?} {round}: {token} after {}", last[n]);
                (last[n], many) = (token, many + 1);
                guard.release().await.unwrap();
            }
        }
        // The clock that the tokens are made of was an hour ahead.
        if round == 0 {
            server.ask("UPDATE fencelock_lock SET fence = fence + 3600000000");
            last.iter_mut().for_each(|token| *token += 3_600_000_000);
        }
        match round % 3 {
            0 => {
                server.ask(CLEAN);
                assert_eq!(server.ask("SELECT COUNT(*) FROM fencelock_lock"), "0");
            }
            1 => {
                server.kill();
                assert!(server.restart());
            }
            _ => drop(server.ask(AGE)),
        }
        // One that has seen no token yet.
        a = client(&(server.url() + query)).await;
    }
    bar(&format!("{what}: tokens over releases, crashes and clean-ups"), format!("{many} rise"), "rise", true);
}
/// The same of rows that are shared with ShedLock, which nobody of ours cleans up, but somebody may. (Red: a token that is the time of day.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_of_shared_rows_rise_over_releases_crashes_and_clean_ups() {
    let server = primary(0);
    let mut a = client(&(server.url() + SHEDLOCK)).await;
    let (mut last, mut many) = (None, 0);
    for round in 0..=tenth(30) {
        for _ in 0..3 {
            let guard = soon(a.mutex("m").ttl(60 * SEC).lock()).await.unwrap();
            assert!(Some(guard.token()) > last, "{round}: {:?} after {last:?}", guard.token());
            (last, many) = (Some(guard.token()), many + 1);
            guard.release().await.unwrap();
        }
        if round == 0 {
            server.ask("UPDATE fencelock_shed SET fence = fence + 3600000000");
            last = last.and_then(|token| Token::new(token.get() + 3_600_000_000));
        }
        match round % 3 {
            0 => drop(server.ask("DELETE FROM shedlock")),
            1 => {
                server.kill();
                assert!(server.restart());
            }
            _ => drop(server.ask(AGE_ROWS)),
        }
        a = client(&(server.url() + SHEDLOCK)).await;
    }
    let what = format!("{NAME}, ShedLock's table: tokens over releases, crashes and clean-ups");
    bar(&what, format!("{many} rise"), "rise", true);
}
const SHEDLOCK: &str = "?strategy=shedlock";
/// A replica that missed the last grants is promoted: who holds what it has keeps it, who holds what it missed is told so, who waits gets
/// his turn, and tokens rise. (Red: a break is noticed by whoever asks next, 9 s later.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_missed_the_last_grants() {
    replica_that_missed_the_last_grants(NAME, "").await;
}
/// (Red: a token that is one above what is written.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_missed_the_last_grants_of_shared_rows() {
    replica_that_missed_the_last_grants(&format!("{NAME}, ShedLock's table"), SHEDLOCK).await;
}
/// Until it is known who holds it.
async fn waits(client: &Client, name: &str) -> tokio::task::JoinHandle<fencelock_core::Result<fencelock_core::Guard>> {
    let mut wait = client.mutex(name).ttl(30 * SEC).lock();
    blocked(&mut wait).await;
    tokio::spawn(wait)
}
async fn replica_that_missed_the_last_grants(what: &str, query: &str) {
    let (mut told, mut back) = (Vec::new(), Vec::new());
    for round in 0..tenth(10) {
        let primary = primary(round);
        client(&(primary.url() + query)).await;
        let replica = replica(&primary);
        // Whichever comes first in the URL.
        let (a, b) = if round % 2 == 0 {
            (client_of([&primary, &replica], query).await, client_of([&replica, &primary], query).await)
        } else {
            (client_of([&replica, &primary], query).await, client_of([&primary, &replica], query).await)
        };
        // Some rows have neither readers nor a queue.
        let has_more = a.info().capabilities.read_write;
        let kept = a.mutex("kept").ttl(30 * SEC).lock().await.unwrap();
        let reads = match has_more {
            true => Some(a.rw_lock("reads").ttl(30 * SEC).read().await.unwrap()),
            false => None,
        };
        // As far as the replica has it, it is over.
        let early = a.mutex("missed").ttl(30 * SEC).lock().await.unwrap();
        early.release().await.unwrap();
        let known = waits(&b, "kept").await;
        block_in_place(|| catch_up(&replica, &primary));
        replica.follow_nobody();
        // Of one name it has an older grant, of the other it has never heard.
        let mut missed = Vec::new();
        for name in ["missed", "unheard"] {
            let held = a.mutex(name).ttl(30 * SEC).lock().await.unwrap();
            missed.push((held, waits(&b, name).await));
        }
        primary.kill();
        let began = Instant::now();
        block_in_place(|| replica.promote());
        let promoted = began.elapsed();
        let mut both = tokio::task::JoinSet::new();
        for (held, wait) in missed {
            both.spawn(async move {
                let after = || began.elapsed().saturating_sub(promoted);
                let (told, next) = tokio::join!(
                    async {
                        assert_eq!(soon(held.lost()).await, LossReason::TakenOver);
                        after()
                    },
                    async {
                        let next = within("who waits for what was missed", wait).await.unwrap().unwrap();
                        (after(), next)
                    }
                );
                assert!(next.1.token() > held.token());
                next.1.check().unwrap();
                (told, next)
            });
        }
        let mut nexts = Vec::new();
        for (loss, (took, next)) in both.join_all().await {
            told.push(loss);
            back.push(took);
            nexts.push(next);
        }
        kept.check().unwrap();
        if let Some(reads) = &reads {
            reads.check().unwrap();
            assert!(a.inspect("reads").await.unwrap().is_held());
        }
        assert!(!known.is_finished());
        assert_eq!(a.inspect("kept").await.unwrap().holders[0].token, kept.token());
        let first = kept.token();
        kept.release().await.unwrap();
        let known = within("who waits for what was kept", known).await.unwrap().unwrap();
        assert!(known.token() > first);
        known.release().await.unwrap();
        if let Some(reads) = reads {
            reads.release().await.unwrap();
        }
        // Whoever comes now finds it, too, and gets a token above the others, though they were another's.
        let new = client_of([&primary, &replica], query).await;
        for next in nexts {
            let (name, last) = (next.name().to_string(), next.token());
            next.release().await.unwrap();
            let now = new.mutex(&name).try_lock().await.unwrap().unwrap();
            assert!(now.token() > last);
            now.release().await.unwrap();
        }
    }
    let of = told.len();
    let [told, back] = [told, back].map(|mut all| percentile(&mut all, 1.0));
    let what = format!("{what}: a replica that missed the last grants is promoted");
    bar(&format!("{what}: told to who holds one, slowest"), format!("{told:?} of {of}"), "<= 2 s", told <= 2 * SEC);
    bar(&format!("{what}: who waits is in, slowest"), format!("{back:?} of {of}"), "<= 3 s", back <= 3 * SEC);
}
/// Sessions end with their server: whoever holds is told, whoever waits is in at the one that is promoted, and tokens rise, though it missed the
/// last grants. (Red: a token that is one above what is written.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_over_a_promotion() {
    const SESSION: &str = "?strategy=session";
    for round in 0..tenth(5).max(1) {
        let primary = primary(round);
        client(&(primary.url() + SESSION)).await;
        let replica = replica(&primary);
        let a = client_of([&primary, &replica], SESSION).await;
        let b = client_of([&replica, &primary], SESSION).await;
        a.mutex("x").ttl(30 * SEC).lock().await.unwrap().release().await.unwrap();
        block_in_place(|| catch_up(&replica, &primary));
        replica.follow_nobody();
        for _ in 0..5 {
            a.mutex("x").ttl(30 * SEC).lock().await.unwrap().release().await.unwrap();
        }
        let held = a.mutex("x").ttl(30 * SEC).lock().await.unwrap();
        let wait = tokio::spawn(b.mutex("x").ttl(30 * SEC).lock());
        queued(&a, "x", 1).await;
        primary.kill();
        block_in_place(|| replica.promote());
        assert_eq!(soon(held.lost()).await, LossReason::SessionEnded);
        let next = within("who waits", wait).await.unwrap().unwrap();
        assert!(next.token() > held.token(), "{} after {}", next.token(), held.token());
        next.check().unwrap();
        // Whoever comes now and has seen none of them finds it, too.
        let new = client_of([&primary, &replica], SESSION).await;
        assert!(new.mutex("x").try_lock().await.unwrap().is_err());
        let last = next.token();
        next.release().await.unwrap();
        let next = new.mutex("x").try_lock().await.unwrap().unwrap();
        assert!(next.token() > last);
        next.release().await.unwrap();
    }
}
