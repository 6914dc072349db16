//! Ways to the server: past a pooler for those who listen, and with a certificate of one's own.
//!
//! Which fault was planted to see one go red stands at it.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_conformance::within;
use fencelock_core::ErrorKind;
use fencelock_postgres::PostgresEngine;
use fencelock_testkit::{PgBouncer, Pki, Postgres};

/// Through a pooler of transactions nobody can listen; with `listen=URL` those who wait do it past the pooler, and are woken. (Red: they listen
/// nowhere.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn past_the_pooler() {
    let server = Postgres::start();
    let pooler = PgBouncer::start(&server, "transaction");
    let direct = server.url().replace(':', "%3A").replace('/', "%2F").replace('@', "%40");
    let url = format!("{}?listen={direct}", server.url_through(&pooler));
    let (a, b) = (client(&url).await, client(&url).await);
    let guard = a.mutex("x").lock().await.unwrap();
    let lock = b.mutex("x");
    let mut next = tokio::spawn(async move { lock.lock().await });
    queued(&a, "x", 1).await;
    let listens =
        "SELECT count(*) FROM fencelock_client JOIN pg_stat_activity USING (pid) WHERE application_name = 'fencelock'";
    eventually("he listens, by a connection of his own", || std::future::ready(server.ask(listens) == "1")).await;
    // Told, he is in; and so is the next one, who comes while the first one's listener is there.
    guard.release().await.unwrap();
    for _ in 0..20 {
        let held = within("his turn", &mut next).await.unwrap().unwrap();
        let lock = a.mutex("x");
        next = tokio::spawn(async move { lock.lock().await });
        queued(&b, "x", 1).await;
        held.release().await.unwrap();
    }
    within("the last", next).await.unwrap().unwrap().release().await.unwrap();
    // What is no way there is told, and nothing is held.
    let nowhere =
        format!("{}?listen=postgres%3A%2F%2Fpostgres%40127.0.0.1%3A1%2Fpostgres", server.url_through(&pooler));
    let c = client(&nowhere).await;
    let guard = a.mutex("y").lock().await.unwrap();
    let waits = tokio::spawn(async move { c.mutex("y").lock().await });
    queued(&a, "y", 1).await;
    guard.release().await.unwrap();
    // He looks by himself.
    within("who hears nothing", waits).await.unwrap().unwrap().release().await.unwrap();
}

/// Many come first at once: one makes the tables, and the others wait for it, though whoever looked in a pooler's session before remembers there
/// that they are missing. (Red: the tables asked for by their names, which a session of the server remembers.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_come_first_behind_a_pooler() {
    let server = Postgres::start();
    let pooler = PgBouncer::start(&server, "transaction");
    for round in 0..5 {
        server.ask("DROP SCHEMA public CASCADE; CREATE SCHEMA public");
        let mut all = tokio::task::JoinSet::new();
        for n in 0..24 {
            let url = server.url_through(&pooler) + ["", "?strategy=shedlock"][n % 2];
            all.spawn(async move {
                let client = client(&url).await;
                if let Ok(held) = client.mutex("x").ttl(60 * SEC).try_lock().await? {
                    held.release().await?;
                }
                // Nothing of it is under way when the tables go.
                client.shutdown(LONG).await
            });
        }
        for tried in all.join_all().await {
            tried.unwrap_or_else(|e| panic!("round {round}: {e}"));
        }
    }
}

/// A server that wants a certificate of whoever comes: leases, sessions and those who listen show it. (Red: no certificate shown.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_certificate() {
    let pki = Pki::new(&["127.0.0.1"]);
    let server = Postgres::with_tls(&pki);
    let data = server.folder().path().join("data");
    std::fs::copy(pki.file("ours.ca"), data.join("ours.ca")).unwrap();
    let hosts = "hostssl all all 127.0.0.1/32 trust clientcert=verify-ca\nhostnossl all all 127.0.0.1/32 trust\n";
    std::fs::write(data.join("pg_hba.conf"), hosts).unwrap();
    server.ask("ALTER SYSTEM SET ssl_ca_file = 'ours.ca'");
    server.ask("SELECT pg_reload_conf()");
    let word = |name: &str| pki.file(name).display().to_string();
    let url = |cert: &str, key: &str| {
        let with = format!("{}?sslmode=verify-full&ca={}", server.url(), word("ours.ca"));
        if cert.is_empty() { with } else { format!("{with}&cert={}&key={}", word(cert), word(key)) }
    };
    let ours = url("ours.client.crt", "ours.client.key");
    let refused = || async { PostgresEngine::from_url(&url("", "")).await.is_err() };
    eventually("it wants certificates", refused).await;
    let certified = "SELECT count(*) > 1 AND bool_and(client_dn LIKE '%client%') \
                     FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'fencelock'";
    for strategy in ["lease", "session"] {
        let ours = format!("{ours}&strategy={strategy}");
        let (a, b) = (client(&ours).await, client(&ours).await);
        let guard = a.mutex(strategy).lock().await.unwrap();
        let lock = b.mutex(strategy);
        let next = tokio::spawn(async move { lock.lock().await });
        queued(&a, strategy, 1).await;
        assert_eq!(server.ask(certified), "t");
        guard.release().await.unwrap();
        within("its turn", next).await.unwrap().unwrap().release().await.unwrap();
    }
    // None, and one that the server does not trust.
    for wrong in [url("", ""), url("others.client.crt", "others.client.key")] {
        let error = PostgresEngine::from_url(&wrong).await.unwrap_err();
        assert!(error.to_string().to_lowercase().contains("cert"), "{error}");
        assert!(matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::PermissionDenied), "{error:?}");
    }
    // Files that are none are named.
    for (cert, key) in [("nothing", "ours.client.key"), ("ours.client.crt", "nothing"), ("ours.client.crt", "missing")]
    {
        let error = PostgresEngine::from_url(&url(cert, key)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
        let said = error.to_string();
        assert!(["nothing", "missing"].iter().any(|name| said.contains(name)), "{said}");
    }
}
