//! By sqlx, on a real PostgreSQL and a real MariaDB: what depends on the driver. The rest is written once.
#![cfg(feature = "sqlx-0_8")]
#![allow(clippy::unwrap_used, missing_docs, reason = "a test fails where it unwraps")]
#[path = "common/guarded.rs"]
mod guarded;

use fencelock_core::{ErrorKind, Token};
use fencelock_sql::{
    Lock, Refused, Retry, Row, Transaction, Tx, Value, advisory,
    fence::{self, Resource, Stamp},
    keys, seen,
};
use fencelock_testkit::{MariaDb, Postgres};
use sqlx::{Connection, Executor, MySqlConnection, PgConnection};
use std::time::Duration;

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10), what).await.unwrap()
}
fn stamp(token: i64, owner: &str) -> Stamp {
    Stamp::new(Token::new(token).unwrap(), owner)
}
fn account(id: i32) -> Row {
    Row::of("account").key("id", id)
}
fn postgres() -> Postgres {
    let server = Postgres::start();
    server.ask(
        "CREATE TABLE account (id integer PRIMARY KEY, owner text, balance bigint NOT NULL, version bigint NOT NULL DEFAULT 1, \
         fence_token bigint, fence_owner text); \
         INSERT INTO account SELECT i, 'owner ' || i, 100 FROM generate_series(1, 9) i; \
         CREATE TABLE odd (u uuid PRIMARY KEY, b bytea, s smallint, t varchar(9), y boolean, d date, version bigint); \
         INSERT INTO odd VALUES ('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '\\x00ff', -7, 'x', true, '2026-01-31', 1)",
    );
    server
}
fn mariadb(settings: &[&str]) -> MariaDb {
    let server = MariaDb::with(settings);
    server.ask(
        "CREATE TABLE account (id int PRIMARY KEY, owner varchar(99), balance bigint NOT NULL, version bigint NOT NULL DEFAULT 1, \
         fence_token bigint, fence_owner varbinary(99)) ENGINE=InnoDB; \
         INSERT INTO account (id, owner, balance) SELECT seq, concat('owner ', seq), 100 FROM seq_1_to_9",
    );
    server
}
/// Locks, waits, versions and fences, in two transactions that are open at once.
async fn two_at_once<T: Transaction>(mut first: Tx<T>, mut second: Tx<T>) {
    let locked = account(1).lock(&mut first, Lock::exclusive()).await.unwrap().unwrap();
    assert_eq!((locked.keys[0][0].as_i64(), locked.warning), (Some(1), None));
    assert_eq!(account(1).lock(&mut second, Lock::shared().no_wait()).await.unwrap(), Err(Refused::Busy));
    let limit = Duration::from_millis(100);
    assert_eq!(account(1).lock(&mut second, Lock::no_key().within(limit)).await.unwrap(), Err(Refused::Busy));
    let both = Row::of("account").keys("id", [2, 1]);
    let skipped = both.lock(&mut second, Lock::no_key().skip_locked()).await.unwrap().unwrap();
    assert_eq!((skipped.rows(), skipped.keys[0][0].as_i64()), (1, Some(2)));
    assert_eq!(account(99).lock(&mut second, Lock::exclusive()).await.unwrap(), Err(Refused::Absent));
    assert_eq!(account(2).update(&mut second, 1, [("owner", "it's; me")]).await.unwrap(), Ok(2));
    assert_eq!(account(2).update(&mut second, 1, [("owner", "you")]).await.unwrap(), Err(Refused::Changed));
    first.rollback().await.unwrap();
    let by_owner = Row::of("account").key("owner", "owner 3");
    assert!(by_owner.lock(&mut second, Lock::shared()).await.unwrap().unwrap().warning.is_some());
    second.commit().await.unwrap();
}
async fn fenced<T: Transaction>(mut tx: Tx<T>, resource: &Resource, token: i64, owner: &str, goes: bool) {
    let got = fence::check(&mut tx, resource.clone(), stamp(token, owner)).await.unwrap();
    assert_eq!(got.is_ok(), goes, "{resource:?} {token} {owner}: {got:?}");
    match tx.commit().await {
        Ok(()) => assert!(goes),
        Err(error) => assert_eq!((error.kind(), goes), (ErrorKind::Lost, false)),
    }
}
const STEPS: [(i64, &str, bool); 6] =
    [(5, "a", true), (5, "a", true), (5, "b", false), (4, "a", false), (7, "b", true), (6, "z", false)];
fn resources() -> [Resource; 2] {
    [account(5).into(), "orders/42".into()]
}

/// PostgreSQL. (Red: a number sent as another width than its column's; the code of an error not read.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgres() {
    let server = postgres();
    let (mut a, mut b) =
        (PgConnection::connect(&server.url()).await.unwrap(), PgConnection::connect(&server.url()).await.unwrap());
    two_at_once(Tx::new(a.begin().await.unwrap()), Tx::new(b.begin().await.unwrap())).await;
    assert_eq!(server.ask("SELECT owner, version FROM account WHERE id = 2"), "it's; me\t2");
    fence::create_table(&mut a).await.unwrap();
    for resource in resources() {
        for (token, owner, goes) in STEPS {
            fenced(Tx::new(a.begin().await.unwrap()), &resource, token, owner, goes).await;
        }
    }
    // Each value in the form of its column.
    let mut tx = Tx::new(a.begin().await.unwrap());
    let uuid = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
    let odd = Row::of("odd").key("u", uuid).key("b", vec![0_u8, 255]).key("s", -7).key("t", "x").key("y", true);
    let odd = odd.filter("d = {}::text::date", ["2026-01-31"]);
    let locked = odd.lock(&mut tx, Lock::no_key()).await.unwrap().unwrap();
    let keys: [Value; 5] = [uuid.into(), "\\x00ff".into(), "-7".into(), "x".into(), "true".into()];
    assert_eq!(locked.keys, [keys]);
    assert_eq!(odd.update(&mut tx, 1, [("t", None::<&str>)]).await.unwrap(), Ok(2));
    advisory::lock(&mut tx, keys::sqlx("nightly"), Lock::exclusive().no_wait()).await.unwrap().unwrap();
    // Sqlx itself means the same number.
    let theirs = sqlx::postgres::PgAdvisoryLock::new("nightly");
    assert!(theirs.try_acquire(&mut b).await.unwrap().right().is_some());
    tx.commit().await.unwrap();
    let mut tx = Tx::new(a.begin().await.unwrap());
    let error = Row::of("odd").key("d", "2026-01-31").lock(&mut tx, Lock::shared()).await.unwrap_err();
    assert!(error.to_string().contains("::text::DATE"), "{error}");
    assert!(tx.commit().await.is_err());
    // What nobody has looked at.
    let mut tx = Tx::new(a.begin().await.unwrap());
    assert_eq!(account(3).update(&mut tx, 1, [("balance", 7)]).await.unwrap(), Ok(2));
    (&mut **tx).execute("INSERT INTO account VALUES (2)").await.unwrap_err();
    tx.commit().await.unwrap_err();
    assert_eq!(server.ask("SELECT balance FROM account WHERE id = 3"), "100");
}
/// The lock is kept in the same PostgreSQL. (Red: the SELECT without its clause.)
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn guarded_on_postgres() {
    let server = postgres();
    let locks = async || {
        let engine = fencelock_postgres::connect(fencelock_postgres::Config::from_url(&server.url()).unwrap()).await;
        fencelock_core::Client::builder(engine.unwrap()).build().unwrap()
    };
    let (mut one, mut other) =
        (PgConnection::connect(&server.url()).await.unwrap(), PgConnection::connect(&server.url()).await.unwrap());
    let (first, later) = (Tx::new(one.begin().await.unwrap()), Tx::new(other.begin().await.unwrap()));
    guarded::outlives_its_lease([locks().await, locks().await], first, later).await;
    assert_eq!(server.ask("SELECT count(*) FROM account WHERE balance = 7"), "1");
}
/// MariaDB, where sqlx counts rows that match. (Red: 1205 not remembered; affected rows of the upsert taken for an answer.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_mariadb() {
    let server = mariadb(&["--innodb-lock-wait-timeout=1"]);
    let (mut a, mut b) = (
        MySqlConnection::connect(&server.url()).await.unwrap(),
        MySqlConnection::connect(&server.url()).await.unwrap(),
    );
    two_at_once(Tx::new(a.begin().await.unwrap()), Tx::new(b.begin().await.unwrap())).await;
    assert_eq!(server.ask("SELECT owner, version FROM account WHERE id = 2"), "it's; me\t2");
    fence::create_table(&mut a).await.unwrap();
    for resource in resources() {
        for (token, owner, goes) in STEPS {
            fenced(Tx::new(a.begin().await.unwrap()), &resource, token, owner, goes).await;
        }
    }
    let mut first = Tx::new(a.begin().await.unwrap());
    account(1).lock(&mut first, Lock::exclusive()).await.unwrap().unwrap();
    let mut second = Tx::new(b.begin().await.unwrap());
    (&mut **second).execute("UPDATE account SET balance = 7 WHERE id = 4").await.unwrap();
    assert_eq!(account(1).lock(&mut second, Lock::no_key()).await.unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(second.commit().await.unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(server.ask("SELECT balance FROM account WHERE id = 4"), "100");
}
async fn increment(db: &mut PgConnection, retry: Retry) -> fencelock_core::Result<()> {
    let mut tx = Tx::new(seen(db.begin().await)?);
    retry.lock(&mut tx, &account(1)).await??;
    let read = sqlx::query_as("SELECT balance, version FROM account WHERE id = 1").fetch_one(&mut **tx).await;
    let (balance, version): (i64, i64) = tx.seen(read)?;
    account(1).update(&mut tx, version, [("balance", balance + 1)]).await??;
    tx.commit().await
}
/// What is spawned: the futures of sqlx are `Send`, and so are ours. (Red: a write without the version.)
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn increments_are_exact() {
    let server = postgres();
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let url = server.url();
            tokio::spawn(async move {
                let mut db = PgConnection::connect(&url).await.unwrap();
                for _ in 0..10 {
                    let mut retry = Retry::default().tries(100);
                    loop {
                        let done = increment(&mut db, retry).await;
                        if !retry.again(&done).await {
                            done.unwrap();
                            break;
                        }
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        tokio::time::timeout(Duration::from_secs(60), task).await.unwrap().unwrap();
    }
    assert_eq!(server.ask("SELECT balance FROM account WHERE id = 1"), "180");
}
