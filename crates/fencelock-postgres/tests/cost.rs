//! What each operation costs the server: statements, bytes of its log, numbers of transactions, pages, words to those who listen.
//!
//! Which fault was planted to see one go red stands at it.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_core::Claim;
use fencelock_testkit::{
    PgBouncer, Postgres,
    processes::{bar, tenth},
};

/// So many bytes of the log, and transactions with a number, until now.
fn written(server: &Postgres) -> (i64, i64) {
    let said = server.ask("SELECT pg_current_wal_insert_lsn() - '0/0', txid_snapshot_xmax(txid_current_snapshot())");
    let (log, number) = said.split_once('\t').unwrap();
    (log.parse().unwrap(), number.parse().unwrap())
}

/// Nobody else wants it: one statement takes it, one gives it back, and there is no other. (Red: a look before each claim.)
async fn one_statement_each(what: &str, query: &str, claims: &[(&str, Claim, Claim)], calls: [&str; 2]) {
    let server = logging();
    one_statement_each_by(what, &server, &(server.url() + query), claims, calls).await;
}
fn logging() -> Postgres {
    Postgres::with(&["log_statement=all", "log_line_prefix=%a|", "autovacuum=off"])
}
async fn one_statement_each_by(
    what: &str,
    server: &Postgres,
    url: &str,
    claims: &[(&str, Claim, Claim)],
    calls: [&str; 2],
) {
    let log = || std::fs::read_to_string(server.folder().path().join("log")).unwrap();
    let a = client(url).await;
    a.mutex("first").lock().await.unwrap().release().await.unwrap();
    // By whoever renews, who has begun now; not where the function is made. Rows of others' are cleaned up by nobody.
    let cleans = || {
        url.contains("shedlock")
            || log().lines().any(|line| line.contains(" AS call FROM ") && line.contains(".fencelock_clean("))
    };
    eventually("its first clean-up is done", || std::future::ready(cleans())).await;
    for &(name, claim, _) in claims {
        // The connection is there.
        Any::lock(&a, name, claim, 60 * SEC).await.unwrap().release().await.unwrap();
        let (before, pairs) = (log().len(), tenth(1_000));
        for n in 0..pairs {
            Any::lock(&a, &format!("{name}{n}"), claim, 60 * SEC).await.unwrap().release().await.unwrap();
        }
        let log = log()[before..].to_owned();
        let statements: Vec<&str> = log.lines().filter(|line| line.starts_with("fencelock|")).collect();
        let calls = calls.map(|call| format!(".fencelock_{call}("));
        let [took, gave] = calls.each_ref().map(|call| statements.iter().filter(|line| line.contains(call)).count());
        let others: Vec<_> = statements.iter().filter(|line| !calls.iter().any(|call| line.contains(call))).collect();
        assert_eq!((took, gave, statements.len()), (pairs, pairs, 2 * pairs), "{claim:?} {others:?}");
        let what = format!("{what}: {claim:?}: statements of a free lock's acquire and release");
        bar(&what, format!("2 ({pairs} pairs)"), "2", true);
    }
}
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_statement_each_of_a_lease() {
    one_statement_each("PostgreSQL", "", &CLAIMS, ["acquire", "release"]).await;
}
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_statement_each_behind_a_pooler() {
    let server = logging();
    let pooler = PgBouncer::start(&server, "transaction");
    let url = server.url_through(&pooler);
    one_statement_each_by("PostgreSQL, pgbouncer", &server, &url, &CLAIMS, ["acquire", "release"]).await;
}
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_statement_each_of_a_session() {
    one_statement_each("PostgreSQL, sessions", "?strategy=session", &CLAIMS[..3], ["bear", "let_go"]).await;
}
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_statement_each_of_a_shared_row() {
    let calls = ["shed_acquire", "shed_release"];
    one_statement_each("PostgreSQL, ShedLock's table", "?strategy=shedlock", &CLAIMS[..1], calls).await;
}
/// A try that fails writes nothing, and neither does a look of somebody who waits. (Red: the row locked before it was looked at.)
async fn failed_tries_write_nothing(what: &str, query: &str, claims: &[(&str, Claim, Claim)]) {
    // Nothing else writes: no clean-up, no statistics.
    let server = Postgres::with(&["autovacuum=off"]);
    let url = server.url() + query;
    let (a, b) = (client(&url).await, client(&url).await);
    for &(name, claim, other) in claims {
        let held = Any::lock(&a, name, claim, 600 * SEC).await.unwrap();
        assert!(Any::is_busy(&b, name, other).await);
        server.ask("CHECKPOINT");
        let tries = tenth(1_000);
        // The server writes now and then by itself.
        eventually("nothing is written meanwhile", || async {
            let before = written(&server);
            for _ in 0..tries {
                assert!(Any::is_busy(&b, name, other).await);
            }
            written(&server) == before
        })
        .await;
        let what = format!("{what}: a try beside {claim:?} that fails: bytes of the log, numbers of transactions");
        bar(&what, format!("0, 0 ({tries} tries)"), "0, 0", true);
        held.release().await.unwrap();
    }
}
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_try_writes_nothing() {
    failed_tries_write_nothing("PostgreSQL", "", &CLAIMS).await;
}
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_try_of_a_session_writes_nothing() {
    failed_tries_write_nothing("PostgreSQL, sessions", "?strategy=session", &CLAIMS[..3]).await;
}
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_try_of_a_shared_row_writes_nothing() {
    failed_tries_write_nothing("PostgreSQL, ShedLock's table", "?strategy=shedlock", &CLAIMS[..1]).await;
}
/// A renewal touches no index, and stays within its page. (Red: an index on the end.)
async fn renewals_stay(what: &str, query: &str, claims: &[(&str, Claim, Claim)], tables: &str, beside: i64) {
    let server = Postgres::start();
    let a = client(&(server.url() + query)).await;
    let count = format!(
        "SELECT coalesce(sum(n_tup_upd), 0), coalesce(sum(n_tup_hot_upd), 0) FROM pg_stat_user_tables \
         WHERE relname IN ({tables})"
    );
    let numbers = || {
        let said = server.ask(&count);
        said.split('\t').map(|n| n.parse::<i64>().unwrap()).collect::<Vec<_>>()
    };
    let mut held = Vec::new();
    for &(name, claim, _) in claims {
        for n in 0..3 {
            held.push(Any::lock(&a, &format!("{name}{n}"), claim, 2 * SEC).await.unwrap());
        }
    }
    // The grants themselves change a token, and are no renewals. A process of the server that has nothing to do tells what it did ten
    // seconds later.
    eventually("the grants are told", || std::future::ready(numbers()[0] - numbers()[1] >= beside)).await;
    let (first, many) = (numbers(), i64::try_from(tenth(1_000)).unwrap());
    let enough = || std::future::ready(numbers()[0] >= first[0] + many);
    let deadline = std::time::Instant::now() + 300 * SEC;
    while !enough().await {
        assert!(std::time::Instant::now() < deadline, "no renewals");
        tokio::time::sleep(100 * MS).await;
    }
    let last = numbers();
    let [all, hot] = [last[0] - first[0], last[1] - first[1]];
    assert_eq!(all, hot, "each of them within its page");
    bar(&format!("{what}: renewals that stay within their page"), format!("{hot} of {all}"), "all", hot == all);
    for guard in held {
        // A machine that stood still for a moment has lost one.
        let _ = guard.release().await;
    }
}
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_touch_no_index() {
    renewals_stay("PostgreSQL", "", &CLAIMS, "'fencelock_lock', 'fencelock_holder'", 12).await;
}
/// Its rows are made by the first who takes each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_of_a_shared_row_touch_no_index() {
    renewals_stay("PostgreSQL, ShedLock's table", "?strategy=shedlock", &CLAIMS[..1], "'shedlock'", 0).await;
}
/// A release that nobody waits for tells nobody: a word costs all who commit at that moment. (Red: a word with each release.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_told_of_a_release_that_nobody_waits_for() {
    for (what, query, claims) in [
        ("PostgreSQL", "", &CLAIMS[..]),
        ("PostgreSQL, sessions", "?strategy=session", &CLAIMS[..3]),
        ("PostgreSQL, ShedLock's table", "?strategy=shedlock", &[("m", Claim::Mutex, Claim::Mutex)]),
    ] {
        let server = Postgres::start();
        let a = client(&(server.url() + query)).await;
        // Somebody who listens, and does not read on: whatever is told stays in the server's queue.
        let mut session = Session::new(&server);
        session.ask("LISTEN something");
        session.ask("BEGIN");
        for &(name, claim, _) in claims {
            for _ in 0..tenth(4_000) {
                Any::lock(&a, name, claim, 60 * SEC).await.unwrap().release().await.unwrap();
            }
        }
        assert_eq!(server.ask("SELECT pg_notification_queue_usage()"), "0", "{what}");
        let listens = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%pid()'";
        assert_eq!(server.ask(listens), "0", "{what}: nor listens");
        bar(&format!("{what}: words of releases that nobody waits for"), "0", "0", true);
    }
}
