//! Ways to the server: with a certificate of one's own, and past hosts that are silent.
//!
//! Which fault was planted to see one go red stands at it.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_conformance::within;
use fencelock_core::ErrorKind;
use fencelock_mysql::MysqlEngine;
use fencelock_testkit::{MariaDb, Pki};
use std::{net::TcpListener, os::unix::fs::PermissionsExt};

/// An account that needs a certificate: leases, doorbells and sessions show it. (Red: no certificate shown.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_certificate() {
    let pki = Pki::new(&["127.0.0.1"]);
    let word = |name: &str| pki.file(name).display().to_string();
    // The server reads them as somebody else.
    for name in ["", "ours.ca", "ours.server.crt", "ours.server.key"] {
        let mode = if name.is_empty() { 0o755 } else { 0o644 };
        std::fs::set_permissions(pki.file(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let files = [("ca", "ours.ca"), ("cert", "ours.server.crt"), ("key", "ours.server.key")];
    let files = files.map(|(what, name)| format!("--ssl-{what}={}", word(name)));
    let server = MariaDb::with(&files.each_ref().map(String::as_str));
    server.ask("CREATE USER certified@'%' REQUIRE X509; GRANT ALL ON *.* TO certified@'%'");
    let url = |cert: &str, key: &str| {
        let server = server.url().replace("root@", "certified@");
        let with = format!("{server}?ssl-mode=verify-identity&ca={}", word("ours.ca"));
        if cert.is_empty() { with } else { format!("{with}&cert={}&key={}", word(cert), word(key)) }
    };
    let ours = url("ours.client.crt", "ours.client.key");
    for way in ["strategy=lease", "doorbell=on", "strategy=session"] {
        let ours = format!("{ours}&{way}");
        let (a, b) = (client(&ours).await, client(&ours).await);
        let guard = a.mutex(way).lock().await.unwrap();
        let lock = b.mutex(way);
        let next = tokio::spawn(async move { lock.lock().await });
        queued(&a, way, 1).await;
        guard.release().await.unwrap();
        within("its turn", next).await.unwrap().unwrap().release().await.unwrap();
    }
    // None, and one that the server does not trust.
    let error = MysqlEngine::from_url(&url("", "")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    let error = MysqlEngine::from_url(&url("others.client.crt", "others.client.key")).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::PermissionDenied), "{error}");
    // Files that are none are named.
    for (cert, key) in [("nothing", "ours.client.key"), ("ours.client.crt", "nothing"), ("ours.client.crt", "missing")]
    {
        let error = MysqlEngine::from_url(&url(cert, key)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
        let said = error.to_string();
        assert!(["nothing", "missing"].iter().any(|name| said.contains(name)), "{said}");
    }
}
/// The first hosts take connections and say nothing. (Red: two seconds for each of them, of five.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_that_are_silent() {
    let (server, mute) = (MariaDb::start(), TcpListener::bind("127.0.0.1:0").unwrap());
    let mute = mute.local_addr().unwrap();
    for many in [1, 3] {
        let url = format!("mysql://root@{}127.0.0.1:{}/test", format!("{mute},").repeat(many), server.port());
        let engine = fencelock_mysql::connect(fencelock_mysql::Config::from_url(&url).unwrap()).await.unwrap();
        let client = fencelock_core::Client::builder(engine).build().unwrap();
        client.mutex("x").try_lock().await.unwrap().unwrap().release().await.unwrap();
    }
}
