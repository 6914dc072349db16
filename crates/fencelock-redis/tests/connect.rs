//! How connections come about: encrypted, late, denied, and waited for by somebody who is not polled.
//!
//! Planted to see it go red: a node of a Redlock that is reached without what its URL says of certificates.
//! Seen red before the client was mended: connecting in the caller's own future; certificates not looked at; a refused subscription
//! tried for ever; an identity that the last one to connect shortens.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_core::ErrorKind;
use fencelock_redis::{Config, RedisEngine, Tls};
use fencelock_testkit::{Folder, Pki, Port, Redis, RedisOptions};
use std::time::Instant;

/// One that speaks TLS here, and wants a certificate of its clients.
fn encrypted(pki: &Pki, port: &Port, more: &[&str]) -> Redis {
    let arguments = ["--tls-port", &port.to_string(), "--tls-auth-clients", "yes"].map(str::to_owned).into_iter();
    let files = [
        ("--tls-cert-file", "ours.server.crt"),
        ("--tls-key-file", "ours.server.key"),
        ("--tls-ca-cert-file", "ours.ca"),
    ];
    let files = files.into_iter().flat_map(|(flag, name)| [flag.to_owned(), pki.file(name).display().to_string()]);
    let more = more.iter().map(|&word| word.to_owned());
    Redis::with(RedisOptions { arguments: arguments.chain(files).chain(more).collect(), ..RedisOptions::default() })
}

/// A cluster of one server, which tells where it is reached over TLS.
#[test]
fn encrypted_to_a_cluster() {
    let (pki, folder) = (Pki::new(&["localhost", "127.0.0.1"]), Folder::new("encrypted"));
    let (port, bus) = (Port::free(), Port::free().to_string());
    let file = folder.path().join("nodes.conf").display().to_string();
    let cluster = ["--cluster-enabled", "yes", "--cluster-port", &bus, "--cluster-config-file", &file];
    let announced = ["--tls-cluster", "yes", "--cluster-announce-ip", "127.0.0.1"];
    let server = encrypted(&pki, &port, &[&cluster[..], &announced[..]].concat());
    assert_eq!(server.ask(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).unwrap(), "+OK");
    let word = |name: &str| pki.file(name).display().to_string();
    let pair = format!("cert={}&key={}", word("ours.client.crt"), word("ours.client.key"));
    let url = |ca: &str| format!("rediss+cluster://localhost:{port}?ca={}&{pair}", word(ca));
    runtime().block_on(async {
        let up = || async { server.ask(&["EVAL", "return redis.call('EXISTS',KEYS[1])", "1", "x"]).unwrap() == ":0" };
        eventually("the cluster is up", up).await;
        let (a, b) = (client(&url("ours.ca")).await, client(&url("ours.ca")).await);
        assert_eq!(a.info().scheme, "rediss+cluster");
        let guard = a.mutex("x").lock().await.unwrap();
        let lock = b.mutex("x");
        let next = tokio::spawn(async move { lock.lock().await.unwrap() });
        queued(&a, "x", 1).await;
        guard.release().await.unwrap();
        soon(next).await.unwrap().release().await.unwrap();
        let error = fencelock_redis::connect(Config::from_url(&url("others.ca")).unwrap()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        assert!(error.to_string().contains("certificate"), "{error}");
    });
}

/// Each node of a Redlock; one that shows a certificate of somebody else makes it none.
#[test]
fn encrypted_to_each_node_of_a_redlock() {
    let pki = Pki::new(&["localhost"]);
    let ports = [Port::free(), Port::free(), Port::free()];
    let nodes: Vec<_> = ports.iter().map(|port| encrypted(&pki, port, &[])).collect();
    let hosts: Vec<_> = ports.iter().map(|port| format!("localhost:{port}")).collect();
    let word = |name: &str| pki.file(name).display().to_string();
    let pair = format!("cert={}&key={}", word("ours.client.crt"), word("ours.client.key"));
    let url = |ca: &str| format!("redlocks://{}?ca={}&{pair}", hosts.join(","), word(ca));
    runtime().block_on(async {
        let (a, b) = (client(&url("ours.ca")).await, client(&url("ours.ca")).await);
        assert_eq!(a.info().scheme, "redlocks");
        let guard = a.mutex("x").lock().await.unwrap();
        assert!(b.mutex("x").try_lock().await.unwrap().is_err());
        let have = nodes.iter().filter(|node| node.ask(&["HEXISTS", "fl:x", "o"]).unwrap() == ":1").count();
        assert!(have >= 2, "{have} of 3");
        guard.release().await.unwrap();
        soon(b.mutex("x").lock()).await.unwrap().release().await.unwrap();
        let error = fencelock_redis::connect(Config::from_url(&url("others.ca")).unwrap()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        assert!(error.to_string().contains("certificate"), "{error}");
    });
}
#[test]
fn encrypted_with_certificates_of_both_sides() {
    let pki = Pki::new(&["localhost"]);
    let tls_port = Port::free();
    let word = |name: &str| pki.file(name).display().to_string();
    let _server = encrypted(&pki, &tls_port, &[]);
    let config = |host: &str, ca: Option<&str>, client: Option<&str>| {
        let mut config = Config::new(host, tls_port.number());
        let pair = |who: &str| (pki.file(&format!("{who}.client.crt")), pki.file(&format!("{who}.client.key")));
        config.tls = Some(Tls { ca: ca.map(|name| pki.file(name)), client: client.map(pair) });
        config
    };
    runtime().block_on(async {
        let (a, b) = (
            client_with(config("localhost", Some("ours.ca"), Some("ours"))).await,
            client(&format!(
                "rediss://localhost:{tls_port}?ca={}&cert={}&key={}",
                word("ours.ca"),
                word("ours.client.crt"),
                word("ours.client.key")
            ))
            .await,
        );
        let guard = a.mutex("x").lock().await.unwrap();
        let lock = b.mutex("x");
        let next = tokio::spawn(async move { lock.lock().await.unwrap() });
        queued(&a, "x", 1).await;
        guard.release().await.unwrap();
        soon(next).await.unwrap().release().await.unwrap();
        // Signed by nobody whom we trust; another name; a client that shows none, or one that the server does not trust.
        for wrong in [
            config("localhost", Some("others.ca"), Some("ours")),
            config("localhost", None, Some("ours")),
            config("127.0.0.1", Some("ours.ca"), Some("ours")),
            config("localhost", Some("ours.ca"), None),
            config("localhost", Some("ours.ca"), Some("others")),
        ] {
            let error = RedisEngine::connect(wrong.clone()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unreachable, "{wrong:?}: {error}");
            assert!(error.to_string().contains("certificate"), "{error}");
        }
        // Files that are none.
        for (ca, cert, key) in [
            ("missing", "ours.client.crt", "ours.client.key"),
            ("nothing", "ours.client.crt", "ours.client.key"),
            ("ours.ca", "nothing", "ours.client.key"),
            ("ours.ca", "ours.client.crt", "nothing"),
            ("ours.ca", "ours.client.crt", "ours.client.crt"),
        ] {
            let mut wrong = config("localhost", Some(ca), None);
            wrong.tls = Some(Tls { ca: Some(pki.file(ca)), client: Some((pki.file(cert), pki.file(key))) });
            let error = RedisEngine::connect(wrong).await.unwrap_err();
            let said = error.to_string();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{said}");
            assert!(["missing", "nothing", "ours.client.crt"].iter().any(|name| said.contains(name)), "{said}");
        }
    });
}

/// One future of a task waits for the connection, and is not polled while the task does something else.
#[test]
fn a_caller_who_is_not_polled_keeps_nobody_from_connecting() {
    let server = Redis::start();
    let (proxy, url) = proxied(&server);
    let current = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    current.block_on(async {
        let c = client(&url).await;
        let held = soon(c.mutex("held").lock()).await.unwrap();
        // The next command has to connect anew, which takes its time.
        proxy.delay(300 * MS);
        proxy.cut();
        let mut wait = std::pin::pin!(c.mutex("x").lock());
        assert!(tokio::time::timeout(200 * MS, &mut wait).await.is_err());
        soon(held.release()).await.unwrap();
        soon(c.mutex("y").lock()).await.unwrap().release().await.unwrap();
        assert!(!soon(c.inspect("held")).await.unwrap().is_held());
        soon(wait).await.unwrap().release().await.unwrap();
    });
}

/// Each of them gives up before a connection has come about.
#[test]
fn who_is_always_in_a_hurry_is_connected_in_the_end() {
    let server = Redis::start();
    let (proxy, url) = proxied(&server);
    runtime().block_on(async {
        let c = client(&url).await;
        // One way: a lock takes two of them, and a connection more than four.
        proxy.delay(40 * MS);
        proxy.cut();
        let started = Instant::now();
        while !matches!(c.mutex("x").try_lock_for(120 * MS).await, Ok(Ok(_))) {
            assert!(started.elapsed() < LONG, "never connected");
        }
    });
}

/// A host that takes connections and says nothing: everybody is told within the time for one, not one after the other.
#[test]
fn many_who_wait_for_a_silent_server_are_told_together() {
    let server = Redis::start();
    let (proxy, url) = proxied(&server);
    runtime().block_on(async {
        let c = client(&url).await;
        proxy.silent(true);
        proxy.cut();
        let started = Instant::now();
        let all: Vec<_> = (0..8).map(|i| tokio::spawn(c.mutex(format!("x{i}")).lock())).collect();
        for one in all {
            let error = one.await.unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        }
        assert!(started.elapsed() < 3 * LONG / 2, "{:?}", started.elapsed());
        proxy.silent(false);
        eventually("again", || async { c.mutex("x").try_lock().await.is_ok() }).await;
    });
}

#[test]
fn who_may_not_hear_is_told_so_when_he_has_to_wait() {
    let server = Redis::start();
    let words = ["ACL", "SETUSER", "deaf", "reset", "on", ">pw", "~fl:*", "resetchannels", "&other", "+@all"];
    assert_eq!(server.ask(&words).unwrap(), "+OK");
    runtime().block_on(async {
        let (a, b) =
            (client(&server.url()).await, client(&format!("redis://deaf:pw@127.0.0.1:{}", server.port())).await);
        soon(b.mutex("x").lock()).await.unwrap().release().await.unwrap();
        let guard = a.mutex("x").lock().await.unwrap();
        for _ in 0..2 {
            let error = soon(b.mutex("x").lock()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
            eventually("nobody waits", || async { a.inspect("x").await.unwrap().waiters.is_empty() }).await;
        }
        // The right is given.
        assert_eq!(server.ask(&["ACL", "SETUSER", "deaf", "&fl:*"]).unwrap(), "+OK");
        let next = tokio::spawn(b.mutex("x").lock());
        queued(&a, "x", 1).await;
        guard.release().await.unwrap();
        soon(next).await.unwrap().unwrap().release().await.unwrap();
    });
}

/// He waits for nobody, and what he gives back is free: who waits for it finds it with the next sign of life.
#[test]
fn who_may_not_publish_gives_back_all_the_same() {
    let server = Redis::start();
    let words = ["ACL", "SETUSER", "mute", "reset", "on", ">pw", "~fl:*", "resetchannels", "+@all"];
    assert_eq!(server.ask(&words).unwrap(), "+OK");
    runtime().block_on(async {
        let (a, b) =
            (client(&server.url()).await, client(&format!("redis://mute:pw@127.0.0.1:{}", server.port())).await);
        let guard = b.mutex("x").lock().await.unwrap();
        let next = tokio::spawn(a.mutex("x").lock());
        queued(&a, "x", 1).await;
        guard.release().await.unwrap();
        let taken = soon(b.mutex("x").try_lock()).await.unwrap();
        assert!(taken.is_err(), "who waits is first");
        soon(next).await.unwrap().unwrap().release().await.unwrap();
        soon(b.mutex("x").lock()).await.unwrap().release().await.unwrap();
    });
}

/// A client that keeps little keeps it for itself.
#[test]
fn the_identity_of_the_store_is_shortened_by_nobody() {
    let server = Redis::start();
    runtime().block_on(async {
        let long = client(&server.url()).await;
        let mut config = Config::new("127.0.0.1", server.port());
        config.retention = 1_000 * MS;
        let short = client_with(config).await;
        assert_eq!(long.info().id, short.info().id);
        let keys = server.ask(&["DBSIZE"]).unwrap();
        assert_eq!(keys, ":1", "the identity is all that there is");
        tokio::time::sleep(1_500 * MS).await;
        assert_eq!(server.ask(&["DBSIZE"]).unwrap(), keys);
        assert_eq!(client(&server.url()).await.info().id, long.info().id);
    });
}
