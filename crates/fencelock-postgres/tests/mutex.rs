//! What PostgreSQL's own ways bring with them: how transactions are isolated, rights, schemas, who comes first.
//!
//! Which fault was planted to see one go red stands at it.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_conformance::{
    proxy::{Proxy, Trouble, bytes},
    within,
};
use fencelock_core::{Admin as _, Claim, Client, ErrorKind};
use fencelock_postgres::{Config, PostgresEngine};
use fencelock_testkit::{Pki, Postgres};
use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::Instant,
};

/// Whatever the database begins its transactions with: nobody is beside one who is to be alone, and nothing of it is in the log. (Red: without
/// saying so.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_ways_to_isolate() {
    const ROW: [(&str, Claim, Claim); 1] = [("m", Claim::Mutex, Claim::Mutex)];
    for level in ["serializable", "repeatable read"] {
        let server = Postgres::start();
        server.ask(&format!("ALTER SYSTEM SET default_transaction_isolation = '{level}'"));
        server.ask("SELECT pg_reload_conf()");
        for (query, claims) in [("", &CLAIMS[..]), ("?strategy=session", &CLAIMS[..3]), ("?strategy=shedlock", &ROW)] {
            let url = server.url() + query;
            let (a, b) = (client(&url).await, client(&url).await);
            let alone = Arc::new(Mutex::new(HashSet::new()));
            let work = |client: Client| {
                let alone = alone.clone();
                async move {
                    for _ in 0..25 {
                        for &(name, claim, _) in claims {
                            let held = Any::lock(&client, &format!("{name}{query}"), claim, 30 * SEC).await.unwrap();
                            if matches!(claim, Claim::Mutex | Claim::Write) {
                                assert!(alone.lock().unwrap().insert(name), "{level}{query}: two in {name}");
                                tokio::task::yield_now().await;
                                alone.lock().unwrap().remove(name);
                            }
                            held.release().await.unwrap();
                        }
                    }
                }
            };
            let both = (tokio::spawn(work(a)), tokio::spawn(work(b)));
            within("both", async { (both.0.await.unwrap(), both.1.await.unwrap()) }).await;
        }
        let logged = std::fs::read_to_string(server.folder().path().join("log")).unwrap();
        let errors: Vec<&str> = logged.lines().filter(|line| line.contains("ERROR")).collect();
        assert!(errors.is_empty(), "{level}: {errors:?}");
    }
}
/// The tables are made by whoever may; the others need rights on them and no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights() {
    let server = Postgres::start();
    server.ask("CREATE ROLE app LOGIN");
    let url = server.url().replace("postgres@", "app@");
    let open = || async { PostgresEngine::from_url(&url).await };
    let error = open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    client(&server.url()).await;
    server.ask("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO app");
    let app = client(&url).await;
    let held = app.mutex("x").lock().await.unwrap();
    let wait = tokio::spawn(app.semaphore("s", 2).acquire(2));
    within("two", wait).await.unwrap().unwrap().release().await.unwrap();
    held.release().await.unwrap();
    server.ask("REVOKE INSERT ON fencelock_lock FROM app");
    let error = app.mutex("new").lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
}
/// Two that come first make one set of tables.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_that_come_first() {
    let server = Postgres::start();
    let all: Vec<_> = (0..8)
        .map(|_| {
            let url = server.url();
            tokio::spawn(async move { PostgresEngine::from_url(&url).await.map(|engine| format!("{engine:?}")) })
        })
        .collect();
    for one in all {
        one.await.unwrap().unwrap();
    }
    assert_eq!(server.ask("SELECT count(*) FROM fencelock_meta"), "1");
}
/// A schema of its own, with an odd name; and a store of another one is another store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schemas() {
    let server = Postgres::start();
    server.ask("CREATE SCHEMA \"My \"\"locks\"");
    let mut config = Config::from_url(&server.url()).unwrap();
    config.schema = Some("My \"locks".to_owned());
    let (a, b) = (client_with(config).await, client(&server.url()).await);
    let held = a.mutex("x").lock().await.unwrap();
    b.mutex("x").try_lock().await.unwrap().unwrap().release().await.unwrap();
    held.release().await.unwrap();
    let mut config = Config::from_url(&server.url()).unwrap();
    // A dollar sign would end a function's body. (Red: nobody looks.)
    server.ask("CREATE SCHEMA \"x$$;y\"");
    for (schema, says) in [("nowhere", "nowhere"), ("x$$;y", "dollar sign")] {
        config.schema = Some(schema.to_owned());
        let error = PostgresEngine::connect(config.clone()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
    // Nor is it printed what would not run. (Red: the URL's name taken as it is.)
    let error = config.schema(None).await.unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidConfig && error.to_string().contains("dollar sign"), "{error}");
}
/// What cannot be used is told at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_used() {
    let server = Postgres::start();
    server.ask("CREATE DATABASE old ENCODING 'LATIN1' TEMPLATE template0");
    let error = PostgresEngine::from_url(&server.url().replace("/postgres", "/old").replace("/old@", "/postgres@"))
        .await
        .unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidConfig && error.to_string().contains("LATIN1"), "{error}");
    let error = PostgresEngine::from_url(&(server.url() + "x")).await.unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidConfig && error.to_string().contains("no such database"), "{error}");
    server.kill();
    let error = PostgresEngine::from_url(&server.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
}
/// Who waits is told of the release; who waits behind a dead client is not held up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_waits_is_told() {
    let server = Postgres::start();
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    let mut held = a.mutex("x").lock().await.unwrap();
    for round in 0..20 {
        let other = if round % 2 == 0 { &b } else { &a };
        let wait = tokio::spawn(other.mutex("x").lock());
        eventually("it waits", || async { a.inspect("x").await.unwrap().waiters.len() == 1 }).await;
        // Somebody listens by then.
        tokio::time::sleep(50 * MS).await;
        let began = Instant::now();
        held.release().await.unwrap();
        held = within("its turn", wait).await.unwrap().unwrap();
        println!("handed over in {:?}", began.elapsed());
    }
}
/// Encrypted, and whoever is spoken to is known; what is given up is cancelled so, too. (Red: what is not known is trusted; a cancel request in
/// the clear.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls() {
    let pki = Pki::new(&["127.0.0.1"]);
    let server = Postgres::with_tls(&pki);
    // What is said in the clear begins with its own length.
    let (proxy, clear) =
        (Proxy::start(([127, 0, 0, 1], server.port()).into(), bytes), Arc::new(Mutex::new(Vec::<Vec<u8>>::new())));
    let seen = clear.clone();
    proxy.rule(move |said| {
        if said.starts_with(&u32::try_from(said.len()).unwrap().to_be_bytes()) {
            seen.lock().unwrap().push(said.to_vec());
        }
        Trouble::None
    });
    let url = server.url().replace(&format!("127.0.0.1:{}", server.port()), &proxy.address().to_string());
    let ca = pki.file("ours.ca").display().to_string();
    let encrypted = format!("{url}?sslmode=verify-full&ca={ca}");
    let (a, b) = (client(&encrypted).await, client(&format!("{encrypted}&strategy=session")).await);
    for one in [&a, &b] {
        one.mutex("x").lock().await.unwrap().release().await.unwrap();
    }
    let ours = "SELECT count(*) > 2 AND bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'fencelock'";
    assert_eq!(server.ask(ours), "t");
    // Nobody here has signed it.
    let error = PostgresEngine::from_url(&format!("{url}?sslmode=verify-full")).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unreachable && error.to_string().contains("UnknownIssuer"), "{error}");
    let mut session = Session::new(&server);
    session.ask("BEGIN; LOCK TABLE fencelock_lock IN ACCESS EXCLUSIVE MODE");
    let error = a.mutex("x").ttl(SEC).try_lock().await.unwrap_err();
    assert!(error.is_temporary(), "{error}");
    let log = || std::fs::read_to_string(server.folder().path().join("log")).unwrap();
    eventually("it is cancelled", || std::future::ready(log().contains("canceling statement due to user request")))
        .await;
    session.ask("COMMIT");
    // Nothing but the wish to go on encrypted.
    let clear = clear.lock().unwrap();
    assert!(!clear.is_empty() && clear.iter().all(|said| said[..] == [0, 0, 0, 8, 4, 210, 22, 47]), "{clear:?}");
}
