//! Fence checks.
use super::{
    storm::{Storm, Writer},
    *,
};
use fencelock_core::{Client as Locks, ErrorKind, Token};
use fencelock_mysql::{Config, MysqlEngine};
use fencelock_sql::{
    Dialect, Hold, Lock, Refused, Row, advisory,
    fence::{self, Resource, Stamp},
    keys::Key,
};
use std::sync::Arc;

fn stamp(token: i64, owner: &str) -> Stamp {
    Stamp::new(Token::new(token).unwrap(), owner)
}
fn resources() -> [Resource; 2] {
    [Row::of("orders").key("id", 42).into(), "orders/42".into()]
}
async fn orders() -> MariaDb {
    let server = MariaDb::start();
    server.ask("CREATE TABLE orders (id int PRIMARY KEY, state varchar(99), fence_token bigint, fence_owner varbinary(99)) ENGINE=InnoDB; INSERT INTO orders (id, state) VALUES (42, 'new')");
    let (mut b, mut c) = (connect(&server).await, connect(&server).await);
    let made = tokio::join!(fence::create_table(&mut b), fence::create_table(&mut c));
    [made.0, made.1].into_iter().for_each(|made| made.unwrap());
    server
}

/// Without its table a name is no fence: that is told, with the way out. (Red: told as any name that is wrong.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_is_missing() {
    let server = MariaDb::start();
    let mut db = connect(&server).await;
    let mut tx = begin(&mut db).await;
    let error = fence::check(&mut tx, "orders/42", stamp(5, "a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    assert!(["fencelock_fence", "fence::create_table"].iter().all(|word| error.to_string().contains(word)), "{error}");
    assert_eq!(tx.commit().await.unwrap_err().kind(), ErrorKind::InvalidConfig);
}
/// Lower tokens and the same one of somebody else are refused, and leave nothing that could be committed (SAFETY T5), however the driver
/// counts rows, under both isolation levels. (Red: `<=` without the owner; the owner assigned after the token; affected rows
/// of the upsert; the state left alive.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_newest_writes() {
    let server = orders().await;
    let (mut plain, mut found) = (connect(&server).await, found_rows(&server).await);
    for (db, level, base) in [(0, 0, 0), (0, 1, 10), (1, 0, 20), (1, 1, 30)] {
        for resource in resources() {
            for (token, owner, stale) in [
                (5, "a", None),
                (5, "a", None),
                (5, "b", Some(5)),
                (4, "a", Some(5)),
                (7, "b", None),
                (6, "z", Some(7)),
            ] {
                let token = base + token;
                let mut tx = at(if db == 0 { &mut plain } else { &mut found }, LEVELS[level]).await;
                let got = fence::check(&mut tx, resource.clone(), stamp(token, owner)).await.unwrap();
                tx.exec_drop("UPDATE orders SET state = concat(?, ?) WHERE id = 42", (owner, token)).await.unwrap();
                match stale {
                    None => {
                        assert_eq!(got, Ok(()), "{token} {owner}");
                        tx.commit().await.unwrap();
                    }
                    Some(newer) => {
                        let is = matches!(got, Err(Refused::Stale { token, .. }) if token == base + newer);
                        assert!(is, "{token} {owner}: {got:?}");
                        let again = fence::check(&mut tx, resource.clone(), stamp(99, owner)).await.unwrap_err();
                        assert_eq!(again.kind(), ErrorKind::Lost);
                        assert_eq!(tx.commit().await.unwrap_err().kind(), ErrorKind::Lost);
                    }
                }
            }
            assert_eq!(server.ask("SELECT state FROM orders"), format!("b{}", base + 7));
        }
    }
    let mut tx = begin(&mut plain).await;
    let missing = fence::check(&mut tx, Row::of("orders").key("id", 43), stamp(5, "a")).await.unwrap();
    assert_eq!(missing, Err(Refused::Absent));
    // As elsewhere: names are told apart by their bytes.
    for (n, name) in ["a", "A", "a ", " a", "\u{e1}", "a\u{301}", "\u{1f512}", "it's; --", &"\u{fffd}".repeat(170)]
        .iter()
        .enumerate()
    {
        let token = i64::try_from(90 - n).unwrap();
        fence::check(&mut tx, *name, stamp(token, "o")).await.unwrap().unwrap();
    }
    // What MySQL has not.
    let hold = Hold::new("x", fencelock_core::HoldId::from_bytes([7; 16]), fencelock_core::Claim::Mutex).unwrap();
    assert_eq!(fence::guard(&mut tx, hold).await.unwrap_err().kind(), ErrorKind::Unsupported);
    let advisory = advisory::lock(&mut tx, Key::Int8(1), Lock::exclusive()).await;
    assert_eq!(advisory.unwrap_err().kind(), ErrorKind::Unsupported);
    tx.commit().await.unwrap();
    assert_eq!(server.ask("SELECT count(*) FROM fencelock_fence"), "10");
}
/// A storm of stale and fresh writers: no stale write is accepted, every fresh one is. The tokens of a counter first, then those of a lock of
/// the engine. (Red: the check left out; every seventh refused for a token that nobody has written.)
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_storm_of_writers() {
    let server = orders().await;
    server.ask("CREATE TABLE log (n bigint AUTO_INCREMENT PRIMARY KEY, resource int, token bigint) ENGINE=InnoDB");
    let (a, b) = (locks(&server.url()).await, locks(&server.url()).await);
    let storms = resources().into_iter().chain(["a lock's".into()]).zip([vec![], vec![], vec![a, b]]);
    for (r, (resource, locks)) in (0..).zip(storms) {
        let storm = Arc::new(Storm::of(locks));
        let tasks: Vec<_> =
            (0..8).map(|n| tokio::spawn(writes((n, r), server.url(), resource.clone(), storm.clone()))).collect();
        for task in tasks {
            tokio::time::timeout(6 * LONG, task).await.unwrap().unwrap();
        }
        let back = format!(
            "SELECT count(*) FROM (SELECT token < lag(token) OVER (ORDER BY n) AS back FROM log WHERE resource = {r}) s WHERE back"
        );
        assert_eq!(server.ask(&back), "0", "a stale write was accepted");
        let (written, refused, newest) = storm.end();
        assert_eq!(written + refused, 8 * storm.rounds());
        let there = server.ask(&format!("SELECT count(*), max(token) FROM log WHERE resource = {r}"));
        assert_eq!(there, format!("{written}\t{newest}"));
    }
}
async fn locks(url: &str) -> Locks {
    let engine = MysqlEngine::connect(Config::from_url(url).unwrap()).await.unwrap();
    Locks::builder(Arc::new(engine)).build().unwrap()
}
async fn writes((n, r): (usize, usize), url: String, resource: Resource, storm: Arc<Storm>) {
    let mut db = Conn::from_url(url).await.unwrap();
    for i in 0..storm.rounds() {
        let writer = storm.next(n, i % 3 == 0).await;
        // Who meets the first insert of a name may be the victim of a deadlock: it is run again.
        let mut retry = fencelock_sql::Retry::default();
        loop {
            let done = write(&mut db, LEVELS[n % 2], r, &resource, &writer).await;
            if retry.again(&done).await {
                continue;
            }
            match done.unwrap() {
                None => storm.written(writer).await,
                Some(newer) => storm.refused(writer, newer),
            }
            break;
        }
    }
}
/// The newer one, if there is one.
async fn write(
    db: &mut Conn,
    level: IsolationLevel,
    r: usize,
    resource: &Resource,
    writer: &Writer,
) -> fencelock_core::Result<Option<i64>> {
    let mut tx = at(db, level).await;
    let log = "INSERT INTO log (resource, token) VALUES (?, ?)";
    // Twice: the same holder writes again.
    for _ in 0..2 {
        if let Err(Refused::Stale { token: newer, .. }) = fence::check(&mut tx, resource.clone(), &writer.stamp).await?
        {
            tx.exec_drop(log, (r, writer.token)).await.unwrap();
            assert_eq!(tx.commit().await.unwrap_err().kind(), ErrorKind::Lost);
            return Ok(Some(newer));
        }
    }
    let done = tx.exec_drop(log, (r, writer.token)).await;
    tx.seen(done)?;
    tx.commit().await?;
    Ok(None)
}
/// The trigger refuses who forgets to compare. (Red: without it.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn triggers_refuse_who_forgets() {
    let server = orders().await;
    let mut db = connect(&server).await;
    for sql in fence::triggers(Dialect::MariaDb, "test.orders", "fence_token", "fence_owner").unwrap() {
        db.query_drop(sql).await.unwrap();
    }
    let mut tx = begin(&mut db).await;
    fence::check(&mut tx, Row::of("orders").key("id", 42), stamp(5, "a")).await.unwrap().unwrap();
    tx.commit().await.unwrap();
    for (token, owner, goes) in
        [("4", "'a'", false), ("NULL", "'a'", false), ("5", "'b'", false), ("5", "'a'", true), ("6", "'b'", true)]
    {
        let forgot = format!("UPDATE orders SET fence_token = {token}, fence_owner = {owner}");
        assert_eq!(db.query_drop(&forgot).await.is_ok(), goes, "{forgot}");
    }
    db.query_drop("UPDATE orders SET state = 'paid'").await.unwrap();
    let mut tx = begin(&mut db).await;
    let late = tx.query_drop("UPDATE orders SET fence_token = 4").await;
    assert_eq!(tx.seen(late).unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(tx.commit().await.unwrap_err().kind(), ErrorKind::Lost);
}
/// Owners are told apart by their bytes, whatever the column's collation takes for the same, by the check and by the triggers. (Red: as the column
/// compares: `A` writes with the token of `a`.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_are_told_apart() {
    let server = orders().await;
    server.ask("ALTER TABLE orders MODIFY fence_owner varchar(99) CHARACTER SET latin1 COLLATE latin1_swedish_ci");
    let mut db = connect(&server).await;
    for (owner, stale) in [("\u{fc}a", false), ("\u{fc}a", false), ("\u{fc}A", true), ("\u{fc}a ", true), ("ua", true)]
    {
        let mut tx = begin(&mut db).await;
        let got = fence::check(&mut tx, Row::of("orders").key("id", 42), stamp(5, owner)).await.unwrap();
        assert_eq!(got.is_err(), stale, "{owner:?}: {got:?}");
        assert_eq!(tx.commit().await.is_err(), stale);
    }
    for sql in fence::triggers(Dialect::MariaDb, "orders", "fence_token", "fence_owner").unwrap() {
        db.query_drop(sql).await.unwrap();
    }
    for (owner, goes) in [("\u{fc}A", false), ("\u{fc}a ", false), ("\u{fc}a", true)] {
        let forgot = format!("UPDATE orders SET fence_owner = '{owner}', state = 'x'");
        assert_eq!(db.query_drop(&forgot).await.is_ok(), goes, "{forgot}");
    }
}
/// A column that does not keep what is written, where the server only warns of it, is told, and nothing is committed. (Red: the number of affected
/// rows taken for an answer: every token is the same there, and the oldest holder writes.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_column_that_is_too_small() {
    let server = orders().await;
    for (small, column) in [("int", "fence_token"), ("float", "fence_token"), ("varchar(2)", "fence_owner")] {
        server.ask(&format!(
            "SET sql_mode = ''; DROP TABLE orders; CREATE TABLE orders (id int PRIMARY KEY, fence_token bigint, fence_owner varchar(64)) \
             ENGINE=InnoDB; INSERT INTO orders (id) VALUES (42); ALTER TABLE orders MODIFY {column} {small}"
        ));
        for (mut db, strict) in
            [(connect(&server).await, false), (found_rows(&server).await, false), (connect(&server).await, true)]
        {
            db.query_drop(format!("SET sql_mode = '{}'", if strict { "STRICT_ALL_TABLES" } else { "" })).await.unwrap();
            let mut tx = begin(&mut db).await;
            let row = Row::of("orders").key("id", 42);
            let error = fence::check(&mut tx, row, stamp(1_700_000_000_000_001, "web-3")).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{small}: {error}");
            assert!(
                error.to_string().contains(if strict && small != "float" { "columns take" } else { "bigint" }),
                "{error}"
            );
            assert_eq!(tx.commit().await.unwrap_err().kind(), ErrorKind::InvalidConfig);
            assert_eq!(server.ask("SELECT fence_token FROM orders"), "NULL");
        }
    }
}
/// A row that its own condition does not find any more is told, and nothing is committed. (Red: told as one that is not there, and committed.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_not_found_once_it_is_written() {
    let server = orders().await;
    for mut db in [connect(&server).await, found_rows(&server).await] {
        let mut tx = begin(&mut db).await;
        let row = Row::of("orders").key("id", 42).filter("fence_token IS NULL", [0_i64; 0]);
        let error = fence::check(&mut tx, row, stamp(7, "a")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
        assert_eq!(tx.commit().await.unwrap_err().kind(), ErrorKind::InvalidConfig);
        assert_eq!(server.ask("SELECT fence_token FROM orders"), "NULL");
    }
}
/// A token that is kept as a text is compared as a whole number. (Red: as it stands: the triggers compare letters.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_is_kept_as_a_text() {
    let server = orders().await;
    server.ask("ALTER TABLE orders MODIFY fence_token varchar(30)");
    let mut db = connect(&server).await;
    let high = 9_007_199_254_740_993;
    for (token, stale) in [(9, false), (10, false), (9, true), (high, false), (high - 1, true)] {
        let mut tx = begin(&mut db).await;
        let got = fence::check(&mut tx, Row::of("orders").key("id", 42), stamp(token, "a")).await.unwrap();
        assert_eq!(got.is_err(), stale, "{token}: {got:?}");
        assert_eq!(tx.commit().await.is_err(), stale);
    }
    for sql in fence::triggers(Dialect::MariaDb, "orders", "fence_token", "fence_owner").unwrap() {
        db.query_drop(sql).await.unwrap();
    }
    for (token, goes) in [("9", false), ("9007199254740992", false), ("10007199254740993", true)] {
        let forgot = format!("UPDATE orders SET fence_token = '{token}'");
        assert_eq!(db.query_drop(&forgot).await.is_ok(), goes, "{forgot}");
    }
}
/// What was not written, and is not newer, was changed in that moment: a conflict, and no loss. Here a trigger keeps the write out.
/// (Red: whatever is there told as a newer one.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_changes_in_between() {
    let server = orders().await;
    let mut db = connect(&server).await;
    for (token, owner, newer) in [("NULL", "NULL", false), ("4", "'b'", false), ("5", "'b'", true), ("6", "'a'", true)]
    {
        server.ask(&format!(
            "DROP TRIGGER IF EXISTS nothing; UPDATE orders SET fence_token = {token}, fence_owner = {owner}; \
             CREATE TRIGGER nothing BEFORE UPDATE ON orders FOR EACH ROW \
             SET NEW.fence_token = OLD.fence_token, NEW.fence_owner = OLD.fence_owner"
        ));
        let mut tx = begin(&mut db).await;
        let got = fence::check(&mut tx, Row::of("orders").key("id", 42), stamp(5, "a")).await;
        let kind = if newer {
            assert!(matches!(got, Ok(Err(Refused::Stale { .. }))), "{token} {owner}: {got:?}");
            ErrorKind::Lost
        } else {
            assert_eq!(got.unwrap_err().kind(), ErrorKind::Conflict, "{token} {owner}");
            ErrorKind::Conflict
        };
        assert_eq!(tx.commit().await.unwrap_err().kind(), kind);
    }
}
