//! Layout `plain`: whether the server compares and writes in one command.
//!
//! Planted to see them go red: the fallback that does not fall back; a renewal in one command that does not read what it wrote; what
//! somebody else wrote deleted all the same.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_core::LossReason;
use fencelock_testkit::Redis;
use std::{
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::Instant,
};

/// This server has no `DELEX`, no `DELIFEQ` and no `SET … IFEQ`: it is asked once for each, and then by scripts.
#[test]
fn a_server_that_cannot_compare_is_asked_by_scripts() {
    let server = Redis::start();
    runtime().block_on(async {
        let (proxy, url) = proxied(&server);
        let c = plain(&url).await;
        let mut all = std::collections::BTreeMap::<String, u64>::new();
        for _ in 0..3 {
            let guard = c.mutex("x").ttl(4 * SEC).lock().await.unwrap();
            soon(guard.renewed()).await;
            guard.check().unwrap();
            guard.release().await.unwrap();
            assert_eq!(server.ask(&["EXISTS", "lock:x"]).unwrap(), ":0");
        }
        for (word, n) in proxy.commands() {
            *all.entry(word).or_default() += n;
        }
        let of = |word: &str| all.get(word).copied().unwrap_or(0);
        assert_eq!((of("DELEX"), of("DELIFEQ"), of("SET")), (1, 1, 1), "{all:?}");
    });
}

/// Commands of newer servers, which the one here does not have, made of scripts on the way: `DELEX key IFEQ value`, or `DELIFEQ key value`,
/// and `SET key value IFEQ value PX ms`. What stands there is from their manuals.
fn newer(server: &Redis, valkey: bool) -> String {
    const DELETE: &str = "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0";
    const SET: &str = "if redis.call('GET',KEYS[1])~=ARGV[1] then return false end
        return redis.call('SET',KEYS[1],ARGV[1],'PX',ARGV[2])";
    let (listener, port) = (TcpListener::bind("127.0.0.1:0").unwrap(), server.port());
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let upstream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let (mut from, mut to) = (upstream.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || {
                drop(std::io::copy(&mut from, &mut to));
                drop(to.shutdown(std::net::Shutdown::Both));
            });
            thread::spawn(move || {
                let (mut input, mut output) = (BufReader::new(client), upstream);
                while let Some(words) = command(&mut input) {
                    let text: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word)).collect();
                    let text: Vec<&str> = text.iter().map(|word| &**word).collect();
                    let sent = match text.as_slice() {
                        ["DELEX", key, "IFEQ", value] if !valkey => encoded(&["EVAL", DELETE, "1", key, value]),
                        ["DELIFEQ", key, value] if valkey => encoded(&["EVAL", DELETE, "1", key, value]),
                        ["SET", key, _, "IFEQ", value, "PX", ms] => encoded(&["EVAL", SET, "1", key, value, ms]),
                        _ => encoded(&words),
                    };
                    if output.write_all(&sent).is_err() {
                        break;
                    }
                }
            });
        }
    });
    format!("redis://{address}")
}
fn command(input: &mut impl BufRead) -> Option<Vec<Vec<u8>>> {
    let line = |input: &mut dyn BufRead| {
        let mut line = String::new();
        input.read_line(&mut line).ok().filter(|n| *n > 0)?;
        line.trim_end()[1..].parse::<usize>().ok()
    };
    let mut words = Vec::new();
    for _ in 0..line(input)? {
        let mut word = vec![0; line(input)? + 2];
        input.read_exact(&mut word).ok()?;
        word.truncate(word.len() - 2);
        words.push(word);
    }
    Some(words)
}
fn encoded(words: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words.iter().map(AsRef::as_ref) {
        out.extend(format!("${}\r\n", word.len()).into_bytes());
        out.extend(word);
        out.extend(b"\r\n");
    }
    out
}
#[test]
fn a_server_that_compares_is_asked_without_scripts() {
    let server = Redis::start();
    runtime().block_on(async {
        for valkey in [false, true] {
            let c = plain(&newer(&server, valkey)).await;
            server.ask(&["SCRIPT", "FLUSH"]).unwrap();
            let calls = |script: &str| {
                let (_, sha, _) =
                    fencelock_redis::raw::scripts().into_iter().find(|(name, ..)| *name == script).unwrap();
                // Called without keys it fails, if it is there.
                i32::from(!server.ask(&["EVALSHA", &sha, "0"]).unwrap().starts_with("-NOSCRIPT"))
            };
            let guard = c.mutex("x").ttl(60 * SEC).lock().await.unwrap();
            let value = server.ask(&["GET", "lock:x"]).unwrap();
            server.ask(&["PEXPIRE", "lock:x", "30000"]).unwrap();
            renew(&server, &guard).await;
            assert!(pttl(&server, "lock:x") > 50_000);
            assert_eq!(server.ask(&["GET", "lock:x"]).unwrap(), value);
            // On a connection that is there: what breaks is asked again by the script.
            assert!(c.inspect("x").await.unwrap().is_held());
            guard.release().await.unwrap();
            assert_eq!(server.ask(&["EXISTS", "lock:x"]).unwrap(), ":0");
            assert_eq!((calls("plain_acquire"), calls("plain_release"), calls("plain_renew")), (1, 0, 0));
            // Told at once also after a renewal, and nothing that is not ours is touched.
            for theirs in [&["SET", "lock:x", "theirs"][..], &["HSET", "lock:x", "a", "b"]] {
                let guard = c.mutex("x").ttl(60 * SEC).lock().await.unwrap();
                renew(&server, &guard).await;
                tokio::time::sleep(100 * MS).await;
                let (lost, began) = (guard.lost(), Instant::now());
                server.ask(&["DEL", "lock:x"]).unwrap();
                server.ask(theirs).unwrap();
                assert_eq!(soon(lost).await, LossReason::TakenOver);
                in_time(began.elapsed(), "after a renewal");
                drop(guard.release().await);
                assert_eq!(server.ask(&["DEL", "lock:x"]).unwrap(), ":1", "{theirs:?}");
            }
            let guard = c.mutex("x").ttl(SEC).lock().await.unwrap();
            server.ask(&["SET", "lock:x", "theirs"]).unwrap();
            drop(guard.release().await);
            assert_eq!((server.ask(&["GET", "lock:x"]).unwrap(), pttl(&server, "lock:x")), ("theirs".to_owned(), -1));
            server.ask(&["DEL", "lock:x"]).unwrap();
            assert_eq!(calls("plain_renew"), 0);
        }
    });
}
