//! Fence checks.
use super::{
    storm::{Storm, Writer},
    *,
};
use fencelock_core::{ErrorKind, Token};
use fencelock_sql::{
    Dialect, Refused, Retry, Row,
    fence::{self, Resource, Stamp},
    seen,
};
use fencelock_testkit::PgBouncer;
use std::sync::Arc;
use tokio_postgres::IsolationLevel;

fn stamp(token: i64, owner: &str) -> Stamp {
    Stamp::new(Token::new(token).unwrap(), owner)
}
/// A row of its own, and one of `fencelock_fence`, which is there after the first check.
fn resources() -> [Resource; 2] {
    [Row::of("orders").key("id", 42).into(), "orders/42".into()]
}
async fn orders() -> (Postgres, Client) {
    let server = Postgres::start();
    server.ask("CREATE TABLE orders (id int PRIMARY KEY, state text, fence_token bigint, fence_owner text); INSERT INTO orders VALUES (42, 'new')");
    let mut db = connect(&server).await;
    // By several at once.
    let (mut b, mut c) = (connect(&server).await, connect(&server).await);
    let made = tokio::join!(fence::create_table(&mut db), fence::create_table(&mut b), fence::create_table(&mut c));
    [made.0, made.1, made.2].into_iter().for_each(|made| made.unwrap());
    (server, db)
}

/// Those who start together make the table together. (Red: without the second try.)
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_table_is_made_by_several() {
    let server = Postgres::start();
    for _ in 0..10 {
        let meet = Arc::new(tokio::sync::Barrier::new(8));
        let all: Vec<_> = (0..8)
            .map(|_| {
                let (url, meet) = (server.url(), meet.clone());
                tokio::spawn(async move {
                    let (mut db, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
                    tokio::spawn(connection);
                    meet.wait().await;
                    fence::create_table(&mut db).await
                })
            })
            .collect();
        for one in all {
            soon(one).await.unwrap().unwrap();
        }
        server.ask("DROP TABLE fencelock_fence");
    }
}
/// Without its table a name is no fence: that is told, with the way out. (Red: told as any name that is wrong.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_is_missing() {
    let server = Postgres::start();
    let mut db = connect(&server).await;
    let mut tx = begin(&mut db).await;
    let error = fence::check(&mut tx, "orders/42", stamp(5, "a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    assert!(["fencelock_fence", "fence::create_table"].iter().all(|word| error.to_string().contains(word)), "{error}");
    assert_eq!(tx.commit().await.unwrap_err().kind(), ErrorKind::InvalidConfig);
}
/// The condition of `docs/guide/fenced-writes.md`, to the letter: one holder writes more than once, and no older one after it. (Red: `<`.)
#[test]
fn the_condition_that_is_written_by_hand() {
    let server = Postgres::start();
    server.ask("CREATE TABLE orders (id int PRIMARY KEY, state text, fence bigint NOT NULL); INSERT INTO orders VALUES (42, 'new', 0)");
    let guide = include_str!("../../../../docs/guide/fenced-writes.md");
    let blocks: Vec<&str> = guide.split("```sql\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    let [condition] = blocks[..] else { panic!("{blocks:?}") };
    for (token, changed) in [(5, true), (5, true), (4, false), (7, true), (6, false)] {
        server.ask("UPDATE orders SET state = 'new'");
        server.ask(&format!("PREPARE by_hand AS {condition}; EXECUTE by_hand({token})"));
        assert_eq!(server.ask("SELECT state FROM orders") == "paid", changed, "{token}");
    }
    assert_eq!(server.ask("SELECT fence FROM orders"), "7");
}

/// Lower tokens and the same one of somebody else are refused, and leave nothing that could be committed (SAFETY T5). (Red: `<=` without the
/// owner; the state left alive; the row not found taken for a stale one.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_newest_writes() {
    let (server, mut db) = orders().await;
    for resource in resources() {
        for (token, owner, stale) in
            [(5, "a", None), (5, "a", None), (5, "b", Some(5)), (4, "a", Some(5)), (7, "b", None), (6, "z", Some(7))]
        {
            let mut tx = begin(&mut db).await;
            let got = fence::check(&mut tx, resource.clone(), stamp(token, owner)).await.unwrap();
            let written =
                tx.execute("UPDATE orders SET state = $1 || $2::bigint WHERE id = 42", &[&owner, &token]).await;
            match stale {
                None => {
                    assert_eq!((got, written.unwrap()), (Ok(()), 1), "{token} {owner}");
                    tx.commit().await.unwrap();
                }
                Some(newer) => {
                    assert!(
                        matches!(got, Err(Refused::Stale { token, .. }) if token == newer),
                        "{token} {owner}: {got:?}"
                    );
                    let again = fence::check(&mut tx, resource.clone(), stamp(99, owner)).await.unwrap_err();
                    assert_eq!(again.kind(), ErrorKind::Lost);
                    assert_eq!(tx.commit().await.unwrap_err().kind(), ErrorKind::Lost);
                }
            }
        }
        assert_eq!(server.ask("SELECT state FROM orders"), "b7");
    }
    let mut tx = begin(&mut db).await;
    let missing = fence::check(&mut tx, Row::of("orders").key("id", 43), stamp(5, "a")).await.unwrap();
    assert_eq!(missing, Err(Refused::Absent));
    for bad in ["", "a\0b", &"x".repeat(513)] {
        assert_eq!(fence::check(&mut tx, bad, stamp(5, "a")).await.unwrap_err().kind(), ErrorKind::InvalidName);
    }
    for name in ["\u{1f512}\u{10ffff}", "it's; --", &"\u{fffd}".repeat(170)] {
        fence::check(&mut tx, name, stamp(5, "a")).await.unwrap().unwrap();
    }
    tx.commit().await.unwrap();
    let several = Row::of("orders").filter("id > {}", [0]);
    server.ask("INSERT INTO orders VALUES (43, 'new')");
    let mut tx = begin(&mut db).await;
    let error = fence::check(&mut tx, several, stamp(99, "a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
}
/// A storm of stale and fresh writers, some pausing between their token and their write: no stale write is accepted, every fresh one is. The
/// tokens of a counter first, then those of a lock of the engine; under each isolation level side by side. (Red: the check left out: stale writes; `<` for `<=`, with the same owner:
/// fresh ones are refused; every seventh refused for a token that nobody has written.)
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_storm_of_writers() {
    let (server, _db) = orders().await;
    storm_of_writers(&server, &server.url()).await;
}
/// Of writers, and locks, behind a pooler of transactions. (Red: as there.)
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_storm_of_writers_behind_a_pooler() {
    let (server, _db) = orders().await;
    let pooler = PgBouncer::start(&server, "transaction");
    storm_of_writers(&server, &server.url_through(&pooler)).await;
}
async fn storm_of_writers(server: &Postgres, url: &str) {
    server.ask("CREATE TABLE log (n serial, resource int, token bigint)");
    let (a, b) = (guard::locks(url).await, guard::locks(url).await);
    let storms = resources().into_iter().chain(["a lock's".into()]).zip([vec![], vec![], vec![a, b]]);
    for (r, (resource, locks)) in (0..).zip(storms) {
        let storm = Arc::new(Storm::of(locks));
        let tasks: Vec<_> =
            (0..8).map(|n| tokio::spawn(writes((n, r), url.to_owned(), resource.clone(), storm.clone()))).collect();
        for task in tasks {
            tokio::time::timeout(6 * LONG, task).await.unwrap().unwrap();
        }
        // The row lock orders the writes: in the order in which they came, no token is lower than one before.
        let back = format!(
            "SELECT count(*) FROM (SELECT token < lag(token) OVER (ORDER BY n) AS back FROM log WHERE resource = {r}) s WHERE back"
        );
        assert_eq!(server.ask(&back), "0", "a stale write was accepted");
        let (written, refused, newest) = storm.end();
        assert_eq!(written + refused, 8 * storm.rounds());
        let there = server.ask(&format!("SELECT count(*) || ' ' || max(token) FROM log WHERE resource = {r}"));
        assert_eq!(there, format!("{written} {newest}"));
    }
}
async fn writes((n, r): (usize, i32), url: String, resource: Resource, storm: Arc<Storm>) {
    let levels = [IsolationLevel::ReadCommitted, IsolationLevel::RepeatableRead, IsolationLevel::Serializable];
    let mut db = connect_by(&url).await;
    for i in 0..storm.rounds() {
        let (writer, mut retry) = (storm.next(n, i % 3 == 0).await, Retry::default().tries(100));
        loop {
            let done = write(&mut db, levels[n % 3], r, &resource, &writer).await;
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
    db: &mut Client,
    level: IsolationLevel,
    r: i32,
    resource: &Resource,
    writer: &Writer,
) -> fencelock_core::Result<Option<i64>> {
    let mut tx = Tx::new(seen(db.build_transaction().isolation_level(level).start().await)?);
    let log = "INSERT INTO log (resource, token) VALUES ($1, $2)";
    // Twice: the same holder writes again.
    for _ in 0..2 {
        if let Err(Refused::Stale { token: newer, .. }) = fence::check(&mut tx, resource.clone(), &writer.stamp).await?
        {
            // It may be in the way of another one.
            drop(tx.execute(log, &[&r, &writer.token]).await);
            assert_eq!(tx.commit().await.unwrap_err().kind(), ErrorKind::Lost);
            return Ok(Some(newer));
        }
    }
    let done = tx.execute(log, &[&r, &writer.token]).await;
    tx.seen(done)?;
    tx.commit().await?;
    Ok(None)
}
/// The trigger refuses who forgets to compare. (Red: without it.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn triggers_refuse_who_forgets() {
    let (server, mut db) = orders().await;
    for sql in fence::triggers(Dialect::Postgres, "public.orders", "fence_token", "fence_owner").unwrap() {
        db.batch_execute(&sql).await.unwrap();
    }
    let mut tx = begin(&mut db).await;
    fence::check(&mut tx, Row::of("orders").key("id", 42), stamp(5, "a")).await.unwrap().unwrap();
    tx.commit().await.unwrap();
    for (token, owner, goes) in
        [("4", "'a'", false), ("NULL", "'a'", false), ("5", "'b'", false), ("5", "'a'", true), ("6", "'b'", true)]
    {
        let forgot = format!("UPDATE orders SET fence_token = {token}, fence_owner = {owner}");
        assert_eq!(server.psql(&forgot).output().unwrap().status.success(), goes, "{forgot}");
    }
    server.ask("UPDATE orders SET state = 'paid'");
    let mut tx = begin(&mut db).await;
    let late = tx.execute("UPDATE orders SET fence_token = 4", &[]).await;
    assert_eq!(tx.seen(late).unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(tx.commit().await.unwrap_err().kind(), ErrorKind::Lost);
}
/// A key that names a second row, which a newer holder has written, is told, and nothing is committed; so is a column that rounds. (Red: the number
/// of changed rows taken for an answer.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_written_is_read_back() {
    let (server, mut db) = orders().await;
    let row = || Row::of("orders").key("id", 42);
    for spoil in [
        "ALTER TABLE orders ALTER fence_token TYPE real",
        "ALTER TABLE orders ALTER fence_token TYPE bigint, DROP CONSTRAINT orders_pkey; \
         UPDATE orders SET fence_token = 1800000000000000; INSERT INTO orders VALUES (42, 'other', 5, 'a')",
    ] {
        server.ask(spoil);
        let mut tx = begin(&mut db).await;
        let error = fence::check(&mut tx, row(), stamp(1_700_000_000_000_001, "b")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
        assert_eq!(tx.commit().await.unwrap_err().kind(), ErrorKind::InvalidConfig);
        assert_eq!(server.ask("SELECT count(*) FROM orders WHERE fence_owner = 'b'"), "0");
    }
    let mut tx = begin(&mut db).await;
    let several = fence::check(&mut tx, Row::of("orders").keys("id", [42, 43]), stamp(7, "b")).await;
    assert_eq!(several.unwrap_err().kind(), ErrorKind::InvalidConfig);
    assert_eq!(tx.unusable(), None, "nothing was sent");
}
/// Whatever is one name with another here is not one with it there: case, spaces, accents. (Red: a collation that does not mind.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_are_told_apart() {
    let (server, mut db) = orders().await;
    let names = ["a", "A", "a ", " a", "\u{e1}", "a\u{301}"];
    let mut tx = begin(&mut db).await;
    for (n, name) in names.iter().enumerate() {
        let token = i64::try_from(9 - n).unwrap();
        fence::check(&mut tx, *name, stamp(token, "o")).await.unwrap().unwrap();
    }
    tx.commit().await.unwrap();
    assert_eq!(server.ask("SELECT count(*) FROM fencelock_fence"), names.len().to_string());
}
/// A token that is kept as a text is compared as a number, by the check and by the triggers: 10 is newer than 9. (Red: as it stands.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_is_kept_as_a_text() {
    let (server, mut db) = orders().await;
    server.ask("ALTER TABLE orders ALTER fence_token TYPE text");
    for (token, stale) in [(9, false), (10, false), (9, true)] {
        let mut tx = begin(&mut db).await;
        let got = fence::check(&mut tx, Row::of("orders").key("id", 42), stamp(token, "a")).await.unwrap();
        assert_eq!(got.is_err(), stale, "{token}: {got:?}");
        assert_eq!(tx.commit().await.is_err(), stale);
    }
    for sql in fence::triggers(Dialect::Postgres, "orders", "fence_token", "fence_owner").unwrap() {
        db.batch_execute(&sql).await.unwrap();
    }
    for (token, goes) in [("9", false), ("11", true), ("100", true), ("99", false)] {
        let forgot = format!("UPDATE orders SET fence_token = {token}");
        assert_eq!(server.psql(&forgot).output().unwrap().status.success(), goes, "{forgot}");
    }
}
/// Names are only names in a function's text, and two pairs of columns of one table have triggers of their own. (Red: a fixed quote around the
/// text; the triggers' name from the table alone: the second pair takes the first one's function.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn triggers_of_odd_names() {
    let (server, db) = orders().await;
    server.ask("ALTER TABLE orders ADD \"t$f$ 't\" bigint, ADD \"o$f0$\"\"o\" text; UPDATE orders SET fence_token = 5, \"t$f$ 't\" = 5");
    for (token, owner) in [("fence_token", "fence_owner"), ("t$f$ 't", "o$f0$\"o")] {
        for sql in fence::triggers(Dialect::Postgres, "orders", token, owner).unwrap() {
            db.batch_execute(&sql).await.unwrap();
        }
    }
    for (column, token, goes) in
        [("fence_token", 4, false), ("\"t$f$ 't\"", 4, false), ("fence_token", 6, true), ("\"t$f$ 't\"", 6, true)]
    {
        let forgot = format!("UPDATE orders SET {column} = {token}");
        assert_eq!(server.psql(&forgot).output().unwrap().status.success(), goes, "{forgot}");
    }
}
/// What was not written, and is not newer, was changed in that moment: a conflict, and no loss. Here a trigger keeps the write out.
/// (Red: whatever is there told as a newer one.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_changes_in_between() {
    let (server, mut db) = orders().await;
    server.ask(
        "CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; \
         CREATE TRIGGER nothing BEFORE INSERT OR UPDATE ON fencelock_fence FOR EACH ROW EXECUTE FUNCTION nothing()",
    );
    for (token, owner, newer) in
        [("NULL", "NULL", false), ("4", "'b'", false), ("5", "'a'", false), ("5", "'b'", true), ("6", "'a'", true)]
    {
        server.ask(&format!(
            "DROP TRIGGER IF EXISTS nothing ON orders; UPDATE orders SET fence_token = {token}, fence_owner = {owner}; \
             CREATE TRIGGER nothing BEFORE UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION nothing()"
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
    let mut tx = begin(&mut db).await;
    let gone = fence::check(&mut tx, "orders/42", stamp(5, "a")).await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::Conflict);
    assert_eq!(tx.commit().await.unwrap_err().kind(), ErrorKind::Conflict);
}
