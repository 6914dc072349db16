//! consensus.md 7: Jepsen's workloads and models. What was done is recorded, and judged afterwards: [`judge::linearizable`].
use super::prelude::*;
use judge::{Act, Lock, Op, Permits, linearizable};
use std::{
    fmt::Debug,
    fs::{self, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

cases! {
    "jepsen/lock" => lock_under_kills_and_pauses, needs: [Crash], limit: 60;
    "jepsen/lock-set" => set_under_pauses;
    "jepsen/owner-aware-mutex" => owner_aware;
    "jepsen/reentrant-mutex" => reentrant;
    "jepsen/fenced-mutex" => fenced;
    "jepsen/reentrant-fenced-mutex" => reentrant_fenced;
    "jepsen/acquired-permits" => acquired_permits, needs: [Permits];
    "jepsen/no-blind-retry" => no_blind_retry;
}
roles! {
    "jepsen-lock" => worker;
    "jepsen-set" => slow_writer;
}

fn now() -> u64 {
    BootClock.now().as_nanos()
}
/// What was done in this process.
#[derive(Debug)]
struct Record<A>(Arc<Mutex<Vec<Op<A>>>>);
impl<A> Clone for Record<A> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}
impl<A: Debug> Record<A> {
    fn new() -> Self {
        Self(Arc::default())
    }
    fn put(&self, who: usize, what: A, called: u64, answered: Option<u64>) {
        self.0.lock().unwrap().push(Op { who, what, called, answered });
    }
    fn judge<M: judge::Model<Act = A>>(&self, model: M, least: usize) {
        let ops = self.0.lock().unwrap();
        assert!(ops.len() >= least, "{} operations show nothing", ops.len());
        linearizable(model, &ops).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}

/// Some tasks, two with each client, each with what it needs to be a nuisance.
struct Player {
    who: usize,
    client: Client,
    chaos: Arc<Chaos>,
    name: String,
}
async fn play<F: Future<Output = ()> + Send + 'static>(cx: &Context, tasks: usize, go: impl Fn(Player) -> F) {
    let (mut clients, mut running) = (Vec::new(), Vec::new());
    for _ in 0..tasks.div_ceil(2) {
        clients.push(cx.chaos(60 * SEC).await);
    }
    for who in 0..tasks {
        let (client, chaos) = clients[who / 2].clone();
        running.push(tokio::spawn(go(Player { who, client, chaos, name: cx.name("m") })));
    }
    for task in running {
        task.await.unwrap();
    }
}
async fn moment() {
    match fastrand::u8(0..3) {
        0 => {}
        1 => tokio::task::yield_now().await,
        _ => tokio::time::sleep(Duration::from_micros(fastrand::u64(0..1500))).await,
    }
}
fn rounds() -> usize {
    if full() { 60 } else { 12 }
}
async fn release(record: &Record<Act>, who: usize, guard: Guard) {
    let called = now();
    guard.release().await.unwrap();
    record.put(who, Act::Leave, called, Some(now()));
}
/// Somebody who has no hold of it says that he has: he is refused, or he has freed it.
async fn meddle(record: &Record<Act>, who: usize, client: &Client, engine: &dyn Engine, name: &str) {
    let Some(holder) = client.inspect(name).await.unwrap().holders.pop() else { return };
    let forged = Grant {
        name: Name::new(name).unwrap(),
        claim: Claim::Mutex,
        hold: HoldId::from_bytes(fastrand::u128(..).to_be_bytes()),
        token: holder.token,
        ttl: client.ttl(),
        lease: Lease::Own { sent_at: BootClock.now() },
        server_micros: 0,
        place: None,
    };
    let called = now();
    let what = match engine.release(&forged).await.unwrap() {
        Released::NotHeld { .. } => Act::Refused,
        Released::Released => Act::Leave,
    };
    record.put(who, what, called, Some(now()));
}

async fn owner_aware(cx: Context) {
    let record = Record::new();
    play(&cx, 6, |Player { who, client, chaos, name }| {
        let record = record.clone();
        async move {
            for _ in 0..rounds() {
                if who % 2 == 1 {
                    meddle(&record, who, &client, &*chaos, &name).await;
                }
                let called = now();
                let guard = client.mutex(&name).lock().await.unwrap();
                record.put(who, Act::Enter(None), called, Some(now()));
                moment().await;
                release(&record, who, guard).await;
                moment().await;
            }
        }
    })
    .await;
    record.judge(Lock::new(1, false), 12 * rounds());
}

async fn twice(record: Record<Act>, Player { who, client, name, .. }: Player) {
    let me = client.owner();
    let mutex = client.mutex(&name).reentrant(&me);
    for _ in 0..rounds() {
        let mut guards = Vec::new();
        for _ in 0..2 {
            let called = now();
            let guard = mutex.lock().await.unwrap();
            record.put(who, Act::Enter(Some(guard.token().get())), called, Some(now()));
            guards.push(guard);
            moment().await;
        }
        assert_eq!(me.entries(&name), 2);
        for _ in 0..2 {
            release(&record, who, guards.swap_remove(fastrand::usize(0..guards.len()))).await;
            moment().await;
        }
    }
}
async fn reentrant(cx: Context) {
    let record = Record::new();
    play(&cx, 4, |player| twice(record.clone(), player)).await;
    record.judge(Lock::new(2, false), 16 * rounds());
}
async fn reentrant_fenced(cx: Context) {
    let record = Record::new();
    play(&cx, 4, |player| twice(record.clone(), player)).await;
    record.judge(Lock::new(2, true), 16 * rounds());
}

/// Replies are lost: what nobody knows may have happened, and is taken back at some time.
async fn fenced(cx: Context) {
    let (record, strangers) = (Record::new(), Arc::new(AtomicUsize::new(100)));
    play(&cx, 4, |Player { who, client, chaos, name }| {
        let (record, strangers) = (record.clone(), strangers.clone());
        async move {
            for round in 0..rounds() {
                if fastrand::u8(0..4) == 0 {
                    let of = [Operation::Acquire, Operation::Release, Operation::Withdraw][round % 3];
                    chaos.next(of, 1, Trouble::LoseReply);
                }
                let called = now();
                match client.mutex(&name).lock().await {
                    Ok(guard) => {
                        record.put(who, Act::Enter(Some(guard.token().get())), called, Some(now()));
                        moment().await;
                        release(&record, who, guard).await;
                    }
                    Err(e) => {
                        assert!(e.is_temporary(), "{e}");
                        let stranger = strangers.fetch_add(1, SeqCst);
                        record.put(stranger, Act::Enter(None), called, None);
                        record.put(stranger, Act::Lapse, called, None);
                    }
                }
                moment().await;
            }
        }
    })
    .await;
    record.judge(Lock::new(1, true), 8 * rounds());
}

async fn acquired_permits(cx: Context) {
    let record = Record::new();
    play(&cx, 5, |Player { who, client, name, .. }| {
        let record = record.clone();
        async move {
            for _ in 0..rounds() {
                let (take, called) = (fastrand::u32(1..=2), now());
                let guard = client.semaphore(&name, 2).acquire(take).await.unwrap();
                record.put(who, i64::from(take), called, Some(now()));
                moment().await;
                let called = now();
                guard.release().await.unwrap();
                record.put(who, -i64::from(take), called, Some(now()));
            }
        }
    })
    .await;
    record.judge(Permits::new(2), 10 * rounds());
}

/// A line of a file for several processes, written at once.
fn append(file: &Path, line: &str) {
    let mut file = OpenOptions::new().create(true).append(true).open(file).unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}
/// `jepsen-lock NAME FILE WHO ROUNDS`
async fn worker(me: RoleContext) {
    let (name, file, who) = (&me.words[0], PathBuf::from(&me.words[1]), &me.words[2]);
    for _ in 0..me.number(3) {
        append(&file, &format!("calls {who} {}", now()));
        let guard = me.client.mutex(name).lock().await.unwrap();
        append(&file, &format!("entered {who} {}", now()));
        // Good at the moment that was read before the look.
        for _ in 0..fastrand::u8(1..6) {
            let at = now();
            if guard.check().is_ok() {
                append(&file, &format!("good {who} {at}"));
            }
            tokio::time::sleep(MS).await;
        }
        let called = now();
        append(&file, &format!("leaves {who} {called}"));
        let end = if guard.release().await.is_ok() { "left" } else { "lapsed" };
        append(&file, &format!("{end} {who} {}", now()));
    }
}
/// Whoever was killed in between may have got it, or lost it, at any time from the last good look on.
fn history(text: &str) -> Vec<Op<Act>> {
    let (mut ops, mut open) = (Vec::new(), std::collections::BTreeMap::<usize, (String, u64, u64)>::new());
    for line in text.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let (who, at): (usize, u64) = (words[1].parse().unwrap(), words[2].parse().unwrap());
        let (stage, called, good) = open.remove(&who).unwrap_or_default();
        let mut done = |what, called| ops.push(Op { who, what, called, answered: Some(at) });
        let next = match words[0] {
            "calls" => (at, 0),
            "entered" => {
                done(Act::Enter(None), called);
                (at, at)
            }
            "good" => (called, at),
            "leaves" => (at, good),
            "left" => {
                done(Act::Leave, called);
                continue;
            }
            "lapsed" => {
                done(Act::Lapse, good);
                continue;
            }
            other => panic!("{other} after {stage}"),
        };
        open.insert(who, (words[0].to_owned(), next.0, next.1));
    }
    for (who, (stage, called, good)) in open {
        if stage == "calls" {
            ops.push(Op { who, what: Act::Enter(None), called, answered: None });
        }
        ops.push(Op { who, what: Act::Lapse, called: if good > 0 { good } else { called }, answered: None });
    }
    ops
}
async fn lock_under_kills_and_pauses(cx: Context) {
    let (name, judge, ttl) = (cx.name("m"), cx.judge("m"), 1_500 * MS);
    let (file, rounds) = (judge.place().join("ops"), if full() { "80" } else { "12" });
    let mut peers = Vec::new();
    for who in 0..5 {
        let words = [&name, file.to_str().unwrap(), &who.to_string(), rounds];
        peers.push(cx.peer_with(ttl, "jepsen-lock", &words).await);
    }
    let lines = || fs::read_to_string(&file).unwrap_or_default();
    let inside = |who: usize| lines().lines().filter(|line| line.starts_with(&format!("entered {who} "))).count();
    eventually("all were in", || async { (0..5).all(|who| inside(who) >= 2) }).await;
    // One is killed, one is stopped for longer than its lease lasts, where it can be.
    peers[0].crash().await;
    if peers[1].pid().is_some() {
        super::known_bugs::stop(&cx, &cx.client().await, &peers[1]).await;
        let (seen, began) = (inside(2), Instant::now());
        let on = || async { inside(2) > seen && began.elapsed() > ttl || inside(2) == rounds.parse().unwrap() };
        eventually("others go on", on).await;
        peers[1].go_on();
    }
    for (who, peer) in peers.into_iter().enumerate() {
        if who > 0 {
            peer.finish().await;
        }
    }
    let ops = history(&lines());
    assert!(ops.len() > 8 * rounds.parse::<usize>().unwrap() - 8);
    linearizable(Lock::new(1, false), &ops).unwrap_or_else(|wrong| panic!("{wrong}"));
}

/// A set in a file, which is read and written as a whole: `fence element element …`.
fn read_set(file: &Path) -> (i64, Vec<String>) {
    let text = fs::read_to_string(file).unwrap_or_default();
    let mut words = text.split_whitespace();
    (words.next().map_or(0, |fence| fence.parse().unwrap()), words.map(str::to_owned).collect())
}
/// With a token it is refused when the set has seen a newer one.
fn write_set(file: &Path, token: Option<Token>, set: &[String]) -> bool {
    let (fence, _) = read_set(file);
    let new = token.map_or(fence, Token::get);
    if token.is_some() && new < fence {
        return false;
    }
    fs::write(file, format!("{new} {}", set.join(" "))).unwrap();
    true
}
/// `jepsen-set NAME FILE fenced|bare`: reads under the lock, and writes when it is told, whatever has become of the lock.
async fn slow_writer(mut me: RoleContext) {
    let (file, fenced) = (PathBuf::from(&me.words[1]), me.words[2] == "fenced");
    let guard = me.client.mutex(&me.words[0]).lock().await.unwrap();
    let (_, mut set) = read_set(&file);
    set.push("slow".to_owned());
    me.say(format!("read {}", guard.token()));
    me.hear().await.unwrap();
    let written = write_set(&file, fenced.then(|| guard.token()), &set);
    me.say(format!("written {written}"));
    let _ = guard.release().await;
}
async fn set_with(cx: Context, mode: &str) -> Vec<String> {
    let (client, name, judge) = (cx.client().await, cx.name(mode), cx.judge(mode));
    let file = judge.place().join("set");
    let mut slow = cx.peer("jepsen-set", &[&name, file.to_str().unwrap(), mode]).await;
    let token = Token::new(slow.hear("read").await.parse().unwrap()).unwrap();
    // It sleeps in between: stopped until its lease is over, or so that it does not see that it was taken away.
    if slow.pid().is_some() {
        super::known_bugs::stop(&cx, &client, &slow).await;
    } else {
        client.force_release(&name, token).await.unwrap();
    }
    let mut tasks = Vec::new();
    for i in 0..4 {
        let (client, name, file, fenced) = (cx.client().await, name.clone(), file.clone(), mode == "fenced");
        tasks.push(tokio::spawn(async move {
            for round in 0..3 {
                let guard = client.mutex(&name).lock().await.unwrap();
                let (_, mut set) = read_set(&file);
                moment().await;
                set.push(format!("{i}-{round}"));
                assert!(write_set(&file, fenced.then(|| guard.token()), &set), "its token is the newest");
                guard.check().unwrap();
                guard.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        within("they get in", task).await.unwrap();
    }
    assert_eq!(read_set(&file).1.len(), 12, "nobody disturbs them");
    if slow.pid().is_some() {
        slow.go_on();
    }
    slow.tell("write");
    assert_eq!(slow.hear("written").await, (mode == "bare").to_string());
    slow.finish().await;
    read_set(&file).1
}
async fn set_under_pauses(cx: Context) {
    let (bare, fenced) = tokio::join!(set_with(cx.clone(), "bare"), set_with(cx, "fenced"));
    assert_eq!(bare, ["slow"], "without the token updates are lost: else this shows nothing");
    assert_eq!(fenced.len(), 12, "with the token none is: {fenced:?}");
    assert!(!fenced.contains(&"slow".to_owned()));
}

async fn no_blind_retry(cx: Context) {
    let ((client, chaos), other, name) = (cx.chaos(60 * SEC).await, cx.client().await, cx.name("m"));
    for round in 0..5 {
        let asked = chaos.calls(Operation::Acquire);
        chaos.next(Operation::Acquire, 1, Trouble::LoseReply);
        let answer = within("an answer", client.mutex(&name).lock()).await;
        let sent = chaos.calls(Operation::Acquire) - asked;
        match answer {
            // Looked up under its own hold id: it is the one that was granted.
            Ok(guard) => {
                let status = other.inspect(&name).await.unwrap();
                assert_eq!((status.holders.len(), status.holders[0].hold), (1, guard.id()));
                guard.release().await.unwrap();
            }
            Err(e) => assert_eq!((e.kind(), sent), (ErrorKind::Ambiguous, 1), "told, and not simply sent again: {e}"),
        }
        // Whatever it was, it is taken back by its own hold id, and who comes next is left alone.
        let next = within("free", other.mutex(&name).lock()).await.unwrap();
        let taken_back = chaos.calls(Operation::Withdraw);
        eventually("the undo is over", || async { chaos.calls(Operation::Withdraw) >= taken_back.max(round + 1) }).await;
        next.check().unwrap();
        assert_eq!(client.inspect(&name).await.unwrap().holders[0].hold, next.id());
        next.release().await.unwrap();
        // The same of a release.
        let guard = client.mutex(&name).lock().await.unwrap();
        let wait = tokio::spawn(other.mutex(&name).lock());
        cx.queued(&other, &name, 1).await;
        chaos.next(Operation::Release, 1, Trouble::LoseReply);
        guard.release().await.unwrap();
        let next = within("free", wait).await.unwrap().unwrap();
        next.check().unwrap();
        next.release().await.unwrap();
    }
    if client.info().capabilities.cells {
        let cell = client.cell(cx.name("cell"));
        let mut version = cell.load().await.unwrap().version;
        for value in ["a", "b", "c"] {
            chaos.next(Operation::CompareExchange, 1, Trouble::LoseReply);
            let written = within("written", cell.compare_exchange(version, value)).await.unwrap();
            let now = other.cell(cx.name("cell")).load().await.unwrap();
            assert_eq!(now.value.as_deref(), Some(value.as_bytes()));
            version = written.expect("it was written once, and that is known");
            assert_eq!(now.version, version);
        }
        cell.remove(version).await.unwrap().unwrap();
    }
}
