//! Every script of every layout comes twice, each time that it is sent, and loses its answer once: the result is the same as if it had come
//! once (SAFETY A, G1). A script that nobody sends here fails the test of its layout.
//!
//! Planted to see them go red: a downgrade whose repeat does not find its reader; a repeat of a claim that does not know its own value; a
//! resize that takes its own repeat for somebody else's.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::{
    redisson::{ONE, Theirs},
    *,
};
use fencelock_conformance::proxy::{Proxy, Trouble};
use fencelock_core::{Claim, Client, ErrorKind, HoldId, Released, Token, Version};
use fencelock_redis::raw::scripts;
use fencelock_testkit::Redis;
use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicU32, Ordering::SeqCst},
};

/// All of a layout; each of them remembers which store it is.
fn of(layout: &str) -> BTreeSet<&'static str> {
    let others = ["plain_", "redisson_"];
    let is_it = |name: &str| match layout {
        "native" => !others.iter().any(|other| name.starts_with(other)),
        _ => name == "remember" || name.starts_with(&format!("{layout}_")),
    };
    scripts().into_iter().map(|(name, ..)| name).filter(|name| is_it(name)).collect()
}
/// One layout: a server, what is in front of it, who goes that way and who does not.
struct Scene {
    server: Redis,
    proxy: Proxy,
    url: String,
    query: &'static str,
    c: Client,
    other: Client,
    seen: BTreeSet<&'static str>,
}
impl Scene {
    async fn new(query: &'static str) -> Self {
        let server = Redis::start();
        let (proxy, url) = proxied(&server);
        // What is lost is no word of a script that the server does not know yet.
        for (_, _, text) in scripts() {
            server.ask(&["SCRIPT", "LOAD", text]).unwrap();
        }
        let url = url + query;
        let (c, other) = (client(&url).await, client(&(server.url() + query)).await);
        Self { server, proxy, url, query, c, other, seen: BTreeSet::new() }
    }
    /// This is done to it from here on.
    fn trouble(&self, script: &'static str, trouble: Trouble) -> std::sync::Arc<AtomicU32> {
        first(&self.proxy, script, if trouble == Trouble::Twice { u32::MAX } else { 1 }, trouble)
    }
    fn was_sent(&mut self, script: &'static str, met: &AtomicU32, what: &str) {
        assert!(met.load(SeqCst) >= 1, "{what}");
        self.seen.insert(script);
        self.proxy.calm();
    }
    /// There is this hold and no other one, as everybody sees it: its token.
    async fn is_held(&self, name: &str, claim: Claim, hold: HoldId, what: &str) -> Token {
        let status = self.other.inspect(name).await.unwrap();
        let holders: Vec<_> = status.holders.iter().map(|holder| (holder.claim, holder.hold)).collect();
        assert_eq!(holders, [(claim, hold)], "{what}: {status:?}");
        assert!(status.waiters.is_empty(), "{what}: {status:?}");
        if self.query.contains("redisson") {
            let count = "return table.concat(redis.call('HVALS',KEYS[1]),' ')";
            let counted = self.server.ask(&["EVAL", count, "1", name]).unwrap();
            assert!(["1", "read 1", "write 1"].contains(&&*counted), "{what}: {counted}");
        }
        status.holders[0].token
    }
    /// Nobody has it, and the next one has a greater token.
    async fn is_free(&self, name: &str, after: Token, what: &str) {
        let status = self.other.inspect(name).await.unwrap();
        assert!(!status.is_held() && status.waiters.is_empty(), "{what}: {status:?}");
        let next = self.other.mutex(name).try_lock().await.unwrap().unwrap();
        assert!(next.token() > after, "{what}");
        next.release().await.unwrap();
    }

    /// Taken, prolonged if need be, and given back.
    async fn hold(&mut self, script: &'static str, claim: Claim, trouble: Trouble) {
        let what = format!("{script} of {claim:?}, {trouble:?}");
        let renews = script.ends_with("renew");
        let met = self.trouble(script, trouble);
        let held = soon(Any::lock(&self.c, "x", claim, if renews { 4 * SEC } else { 20 * SEC })).await.unwrap();
        let (hold, is_renewed) = match &held {
            Any::Alone(guard) => (guard.id(), guard.renewed()),
            Any::Shared(guard) => (guard.id(), guard.renewed()),
        };
        let token = self.is_held("x", claim, hold, &what).await;
        if renews {
            soon(is_renewed).await;
            assert_eq!(self.is_held("x", claim, hold, &what).await, token, "{what}");
        }
        held.release().await.unwrap_or_else(|error| panic!("{what}: {error}"));
        self.was_sent(script, &met, &what);
        self.is_free("x", token, &what).await;
    }
    /// Broken once: whoever comes next has nothing to do with it.
    async fn force(&mut self, script: &'static str, trouble: Trouble) {
        let what = format!("force by {script}, {trouble:?}");
        let held = self.other.mutex("x").ttl(20 * SEC).lock().await.unwrap();
        let next = tokio::spawn(self.other.mutex("x").ttl(20 * SEC).lock());
        let met = self.trouble(script, trouble);
        let answer = soon(self.c.force_release("x", held.token())).await;
        self.was_sent(script, &met, &what);
        let next = soon(next).await.unwrap().unwrap();
        broken_once(&answer, Some(next.token()), trouble, &what);
        soon(held.lost()).await;
        let token = next.token();
        assert_eq!(self.is_held("x", Claim::Mutex, next.id(), &what).await, token, "{what}");
        next.release().await.unwrap();
        self.is_free("x", token, &what).await;
    }
    async fn downgrade(&mut self, script: &'static str, trouble: Trouble) {
        let what = format!("downgrade by {script}, {trouble:?}");
        let writer = self.c.rw_lock("x").ttl(20 * SEC).write().await.unwrap();
        let token = writer.token();
        let met = self.trouble(script, trouble);
        let reader = soon(writer.downgrade()).await.unwrap();
        self.was_sent(script, &met, &what);
        assert_eq!(self.is_held("x", Claim::Read, reader.id(), &what).await, token, "{what}");
        self.other.rw_lock("x").try_read().await.unwrap().unwrap().release().await.unwrap();
        assert!(Any::is_busy(&self.other, "x", Claim::Write).await, "{what}");
        reader.release().await.unwrap();
        self.is_free("x", token, &what).await;
    }
    /// Who comes first gives the store its name, and everybody else finds that one.
    async fn remember(&mut self, trouble: Trouble) {
        self.server.ask(&["DEL", "fl:%id"]).unwrap();
        let met = self.trouble("remember", trouble);
        let first = client(&self.url).await;
        self.was_sent("remember", &met, "remember");
        let second = client(&(self.server.url() + self.query)).await;
        assert_eq!(first.info().id, second.info().id, "{trouble:?}");
    }
}
/// Who asks again finds it broken, or somebody else's.
fn broken_once(answer: &fencelock_core::Result<Released>, next: Option<Token>, trouble: Trouble, what: &str) {
    match answer {
        Ok(Released::Released) => {}
        Ok(Released::NotHeld { holder }) if trouble != Trouble::Twice => {
            assert!(holder.as_ref().is_none_or(|holder| Some(holder.token) == next), "{what}: {holder:?}");
        }
        Err(error) if trouble != Trouble::Twice => assert_eq!(error.kind(), ErrorKind::Ambiguous, "{what}: {error}"),
        other => panic!("{what}: {other:?}"),
    }
}
const TROUBLES: [Trouble; 2] = [Trouble::LoseReply, Trouble::Twice];

#[test]
fn native() {
    runtime().block_on(async {
        let mut scene = Scene::new("").await;
        for trouble in TROUBLES {
            for claim in [Claim::Mutex, Claim::Read, Claim::Write, Claim::Permits { take: 2, of: 3 }] {
                for script in ["acquire", "release", "renew"] {
                    scene.hold(script, claim, trouble).await;
                }
            }
            scene.force("force", trouble).await;
            scene.downgrade("exchange", trouble).await;
            scene.remember(trouble).await;
            adopted(&mut scene, trouble).await;
            waited(&mut scene, trouble).await;
            resized(&mut scene, trouble).await;
            written(&mut scene, trouble).await;
        }
        assert_eq!(scene.seen, of("native"));
    });
}
/// A ticket passes a hold on once.
async fn adopted(scene: &mut Scene, trouble: Trouble) {
    let what = format!("adopt, {trouble:?}");
    let ticket = scene.other.mutex("x").ttl(20 * SEC).lock().await.unwrap().into_ticket().await.unwrap();
    let met = scene.trouble("exchange", trouble);
    let guard = soon(scene.c.adopt(&ticket)).await.unwrap();
    scene.was_sent("exchange", &met, &what);
    let token = guard.token();
    assert_eq!(scene.is_held("x", Claim::Mutex, guard.id(), &what).await, token, "{what}");
    guard.release().await.unwrap();
    scene.is_free("x", token, &what).await;
}
/// One place in the queue, and one hold.
async fn waited(scene: &mut Scene, trouble: Trouble) {
    let what = format!("refresh, {trouble:?}");
    let held = scene.other.mutex("x").ttl(20 * SEC).lock().await.unwrap();
    let met = scene.trouble("refresh", trouble);
    let next = tokio::spawn(scene.c.mutex("x").ttl(20 * SEC).lock());
    queued(&scene.other, "x", 1).await;
    held.release().await.unwrap();
    let guard = soon(next).await.unwrap().unwrap();
    scene.was_sent("refresh", &met, &what);
    let token = guard.token();
    assert_eq!(scene.is_held("x", Claim::Mutex, guard.id(), &what).await, token, "{what}");
    guard.release().await.unwrap();
    scene.is_free("x", token, &what).await;
}
/// The new size, and no error for the repeat, which finds it there.
async fn resized(scene: &mut Scene, trouble: Trouble) {
    scene.other.semaphore("s", 3).acquire(1).await.unwrap().release().await.unwrap();
    let met = scene.trouble("resize", trouble);
    soon(scene.c.semaphore("s", 3).resize(3, 5)).await.unwrap();
    scene.was_sent("resize", &met, "resize");
    scene.other.semaphore("s", 5).try_acquire(5).await.unwrap().unwrap().release().await.unwrap();
    let old = scene.other.semaphore("s", 3).try_acquire(1).await.unwrap_err();
    assert_eq!(old.kind(), ErrorKind::CapacityMismatch, "{trouble:?}: {old}");
    scene.other.semaphore("s", 5).resize(5, 3).await.unwrap();
}
/// Written once: the version that is answered is the one that stands.
async fn written(scene: &mut Scene, trouble: Trouble) {
    let value = format!("{trouble:?}");
    let before = scene.other.cell("v").load().await.unwrap();
    let met = scene.trouble("cell_swap", trouble);
    let written = soon(scene.c.cell("v").compare_exchange(before.version, value.as_bytes())).await.unwrap().unwrap();
    scene.was_sent("cell_swap", &met, "cell_swap");
    let met = scene.trouble("cell_load", trouble);
    let seen = soon(scene.c.cell("v").load()).await.unwrap();
    scene.was_sent("cell_load", &met, "cell_load");
    assert_eq!((seen.version, seen.value.as_deref()), (written, Some(value.as_bytes())));
    assert!(written > before.version && before.version >= Version::NONE);
}

#[test]
fn plain_layout() {
    runtime().block_on(async {
        let mut scene = Scene::new("?layout=plain&template=lock:{}&signal=lock-signal:{}&channel=said:{}").await;
        for trouble in TROUBLES {
            for script in ["plain_acquire", "plain_release", "plain_renew"] {
                scene.hold(script, Claim::Mutex, trouble).await;
                assert_eq!(scene.server.ask(&["LLEN", "lock-signal:x"]).unwrap(), ":1", "{script}, {trouble:?}");
            }
            scene.force("plain_release", trouble).await;
            scene.remember(trouble).await;
            // One of theirs is broken.
            let what = format!("theirs, {trouble:?}");
            scene.server.ask(&["SET", "lock:x", "theirs"]).unwrap();
            let seen = scene.other.inspect("x").await.unwrap().holders[0].token;
            let met = scene.trouble("plain_release", trouble);
            let answer = soon(scene.c.force_release("x", seen)).await;
            scene.was_sent("plain_release", &met, &what);
            broken_once(&answer, None, trouble, &what);
            scene.is_free("x", seen, &what).await;
        }
        assert_eq!(scene.seen, of("plain"));
    });
}

#[test]
fn redisson_layout() {
    runtime().block_on(async {
        let mut scene = Scene::new("?layout=redisson").await;
        for trouble in TROUBLES {
            for claim in [Claim::Mutex, Claim::Read, Claim::Write] {
                for script in ["redisson_acquire", "redisson_release", "redisson_renew"] {
                    scene.hold(script, claim, trouble).await;
                    assert_eq!(scene.server.ask(&["EXISTS", "x"]).unwrap(), ":0", "{script} {claim:?}, {trouble:?}");
                }
            }
            scene.force("redisson_release", trouble).await;
            scene.downgrade("redisson_downgrade", trouble).await;
            scene.remember(trouble).await;
            // Of a thread of theirs that reads twice and writes once one part is broken, once.
            let what = format!("theirs, {trouble:?}");
            let server = &scene.server;
            let theirs = Theirs { server, name: "x" };
            assert!(theirs.write(ONE, "30000") && theirs.read(ONE, "30000") && theirs.read(ONE, "30000"));
            let status = scene.other.inspect("x").await.unwrap();
            let of = |claim| status.holders.iter().find(|holder| holder.claim == claim).unwrap().token;
            let (writer, reader) = (of(Claim::Write), of(Claim::Read));
            let met = scene.trouble("redisson_release", trouble);
            let answer = soon(scene.c.force_release("x", writer)).await;
            assert!(met.load(SeqCst) >= 1, "{what}");
            scene.proxy.calm();
            broken_once(&answer, Some(reader), trouble, &what);
            assert!(theirs.holds(ONE) && theirs.mode() == "read", "{what}");
            assert_eq!((theirs.end_read(ONE), theirs.end_read(ONE)), (0, 1), "{what}");
        }
        assert_eq!(scene.seen, of("redisson"));
    });
}
