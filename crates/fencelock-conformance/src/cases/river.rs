//! sql.md 12.6: River, its elections.
use super::{
    madelson::{grant_of, is_refused},
    prelude::*,
    spring::Tap,
};
use fencelock_core::memory::{MemoryEngine, MemoryServer};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use tokio::sync::Notify;

cases! {
    "river/resigns-after-errors-exhaust-trust" => errors_exhaust_trust;
    "river/slow-reelect-does-not-extend-trust" => slow_renewals_count_from_their_sending;
    "river/local-deadline-uses-own-clock" => local_deadlines_by_the_own_clock;
    "river/slow-subscribers" => slow_subscribers;
    "river/coalesces-resigned-wakeups" => one_try_for_many_wake_ups;
    "river/same-leader-id-term-replaced" => same_candidate_replaced;
    "river/request-resign" => request_resign, needs: [Waiters];
    "river/request-resign-immediately" => request_resign_immediately;
    "river/cannot-elect-twice-in-a-row" => cannot_elect_twice;
    "river/does-not-reelect-mismatched-term" => renewals_of_an_older_term;
    "river/does-not-resign-newer-term" => releases_of_an_older_term;
}
roles! {}

/// Renewals come to nothing from now on: the loss is told right before the validity ends that was there, and the next one is
/// granted after it.
pub(super) async fn trust_runs_out(cx: Context, trouble: Trouble) {
    let (ttl, name) = (cx.short(), cx.name("m"));
    let ((a, chaos), b) = (cx.chaos(ttl).await, cx.client().await);
    let asked = BootClock.now();
    let term = a.election(&name).campaign("node-1").await.unwrap();
    chaos.next(Operation::Renew, u32::MAX, trouble);
    let granted = BootClock.now();
    let until = term.valid_until();
    let trusted = ttl.mul_f64(1.0 - a.info().capabilities.drift) - 2 * MS;
    assert!(until >= asked + trusted && until <= granted + trusted, "sent + ttl - margin");
    let next = tokio::spawn(b.election(&name).campaign("node-2"));
    cx.queued(&b, &name, 1).await;
    within("it is doubtful first", term.suspect()).await;
    let suspected = BootClock.now();
    let reason = within("told", term.lost()).await;
    let told = BootClock.now();
    // Who slept through it all does not know why.
    assert!(reason == LossReason::Unreachable || told > until, "{reason:?}");
    assert_eq!(term.valid_until(), until, "nothing was added to it");
    // Told a fiftieth of the ttl early, so that whoever listens hears it in time.
    assert!(suspected <= told && told >= until - ttl / 50 - 10 * MS, "not before: {:?}", told.until(until));
    assert!(chaos.calls(Operation::Renew) > 1, "they were tried");
    let next = within("another is elected", next).await.unwrap().unwrap();
    assert!(BootClock.now() >= until && next.token() > term.token());
    chaos.next(Operation::Renew, 0, trouble);
    next.resign().await.unwrap();
}
async fn errors_exhaust_trust(cx: Context) {
    trust_runs_out(cx, Trouble::Fail).await;
}

async fn slow_renewals_count_from_their_sending(cx: Context) {
    let (ttl, late, name) = (3 * SEC, 300 * MS, cx.name("m"));
    let tap = Tap::new(cx.connect(ttl).await.1.engine);
    tap.answer_late(late);
    let client = Client::builder(tap.clone()).build().unwrap();
    let term = client.election(&name).campaign("node-1").await.unwrap();
    let first = term.valid_until();
    within("renewed", term.renewed()).await;
    let (until, now) = (term.valid_until(), BootClock.now());
    let answered = tap.times(Operation::Renew, &name).into_iter().filter(|at| *at + late <= now).max();
    let answered = answered.expect("it was answered so late");
    assert!(until > first);
    assert!(until < answered + ttl, "not from the answer, which came {late:?} later");
    term.resign().await.unwrap();
}

/// A server whose clock is somewhere else, and jumps.
#[derive(Debug, Default)]
struct Shifted(AtomicU64);
impl Clock for Shifted {
    fn now(&self) -> Moment {
        BootClock.now() + SEC * u32::try_from(self.0.load(SeqCst)).unwrap()
    }
}
async fn local_deadlines_by_the_own_clock(cx: Context) {
    let (clock, ttl) = (Arc::new(Shifted(AtomicU64::new(3600))), 60 * SEC);
    let server = MemoryServer::new(clock.clone());
    let engine = MemoryEngine::on(server.clone()).clock(Arc::new(BootClock)).default_ttl(ttl);
    let client = Client::builder(Arc::new(engine)).build().unwrap();
    let asked = BootClock.now();
    let term = client.election(cx.name("m")).campaign("node-1").await.unwrap();
    let until = term.valid_until();
    assert!(until > asked + ttl / 2 && until <= BootClock.now() + ttl, "whatever the server's clock says");
    clock.0.store(36_000, SeqCst);
    assert!(term.is_valid() && term.valid_until() == until && term.remaining() <= ttl);
    assert!(once(&mut Box::pin(term.lost())).await.is_none());
    drop(term);
}

/// Terms may be skipped by who is slow; what is told never goes back, and the last one is told.
async fn slow_subscribers(cx: Context) {
    let (client, other, name) = (cx.client().await, cx.client().await, cx.name("m"));
    let mut slow: Vec<_> = (0..20).map(|_| other.election(&name).observe()).collect();
    for observer in &mut slow {
        assert_eq!(within("at once", observer.changed()).await.unwrap(), None);
    }
    let mut quick = other.election(&name).observe();
    let listens = tokio::spawn(async move {
        let mut terms: Vec<(Token, String)> = Vec::new();
        while terms.last().is_none_or(|(_, who)| who != "last") {
            if let Some(leader) = quick.changed().await.unwrap() {
                terms.push((leader.term, leader.candidate.to_string()));
            }
        }
        terms
    });
    let mut led = Vec::new();
    for i in 0..20 {
        let term = within("nobody is in the way", client.election(&name).campaign(format!("n{i}"))).await.unwrap();
        led.push((term.token(), format!("n{i}")));
        within("nobody is in the way", term.resign()).await.unwrap();
    }
    let last = client.election(&name).campaign("last").await.unwrap();
    led.push((last.token(), "last".to_owned()));
    let heard = within("told", listens).await.unwrap();
    assert!(heard.windows(2).all(|pair| pair[0].0 < pair[1].0), "in order: {heard:?}");
    assert!(heard.iter().all(|term| led.contains(term)), "{heard:?} of {led:?}");
    for observer in &mut slow {
        let leader = within("told", observer.changed()).await.unwrap().expect("somebody leads");
        assert_eq!((leader.term, &*leader.candidate), (last.token(), "last"), "the newest");
    }
    last.resign().await.unwrap();
}

async fn one_try_for_many_wake_ups(cx: Context) {
    let ((client, chaos), other, name) = (cx.chaos(60 * SEC).await, cx.client().await, cx.name("m"));
    let leader = other.election(&name).campaign("leader").await.unwrap();
    let n = 20;
    let terms: Vec<_> = (0..n)
        .map(|i| {
            let campaign = client.election(&name).campaign(format!("n{i}"));
            tokio::spawn(async move { campaign.await.unwrap().resign().await.unwrap() })
        })
        .collect();
    cx.queued(&other, &name, 1).await;
    assert_eq!(chaos.calls(Operation::Acquire), 1, "one waits for all of them");
    // Each resignation is heard by all who are left.
    leader.resign().await.unwrap();
    for term in terms {
        within("all have led", term).await.unwrap();
    }
    assert_eq!(chaos.calls(Operation::Acquire), n, "one try for each term");
}

async fn same_candidate_replaced(cx: Context) {
    let (a, b, name) = (cx.client_with(2 * cx.short()).await, cx.client().await, cx.name("m"));
    let old = a.election(&name).campaign("node-1").await.unwrap();
    let lost = old.lost();
    b.force_release(&name, old.token()).await.unwrap();
    let new = within("free", b.election(&name).campaign("node-1")).await.unwrap();
    assert_eq!(within("told", lost).await, LossReason::TakenOver);
    assert!(new.token() > old.token() && old.check().is_err());
    let leader = a.election(&name).leader().await.unwrap().expect("it leads");
    assert_eq!((&*leader.candidate, leader.term), ("node-1", new.token()));
    assert!(old.resign().await.is_err());
    new.check().unwrap();
    assert!(a.election(&name).try_campaign("node-1").await.unwrap().is_err());
    new.resign().await.unwrap();
}

/// Leads until it is asked to resign.
async fn lead(client: Client, name: String, who: String, asked: Arc<Notify>) -> Token {
    let term = client.election(&name).campaign(who).await.unwrap();
    let token = term.token();
    tokio::select! {
        () = asked.notified() => term.resign().await.unwrap(),
        reason = term.lost() => panic!("{reason}"),
    }
    token
}
async fn request_resign(cx: Context) {
    let (client, name) = (cx.client().await, cx.name("m"));
    let mut observer = client.election(&name).observe();
    let asked = [Arc::new(Notify::new()), Arc::new(Notify::new())];
    let mut terms = Vec::new();
    for (i, asked) in asked.iter().enumerate() {
        let task = lead(cx.client().await, name.clone(), format!("n{i}"), asked.clone());
        terms.push(tokio::spawn(task));
        eventually("it leads or waits", || async {
            let status = client.inspect(&name).await.unwrap();
            status.holders.len() + status.waiters.len() == i + 1
        })
        .await;
    }
    for (i, task) in terms.into_iter().enumerate() {
        let leads = async {
            loop {
                match observer.changed().await.unwrap() {
                    Some(leader) if *leader.candidate == *format!("n{i}") => return leader.term,
                    other => assert!(other.is_none() || i > 0, "{other:?}"),
                }
            }
        };
        let term = within("it is elected", leads).await;
        asked[i].notify_one();
        assert_eq!(within("it resigns", task).await.unwrap(), term);
    }
    assert!(client.election(&name).leader().await.unwrap().is_none());
}

async fn request_resign_immediately(cx: Context) {
    let (client, name) = (cx.client().await, cx.name("m"));
    let asked = Arc::new(Notify::new());
    asked.notify_one();
    within("it ends", lead(client.clone(), name.clone(), "eager".into(), asked)).await;
    assert!(client.election(&name).leader().await.unwrap().is_none());
    // A storm of requests, some before the election and several at once.
    let mut tasks = Vec::new();
    for i in 0..4 {
        let (client, name) = (cx.client().await, name.clone());
        tasks.push(tokio::spawn(async move {
            let mut terms = Vec::new();
            for round in 0..tenth(50) {
                let asked = Arc::new(Notify::new());
                let storm: Vec<_> = (0..3)
                    .map(|_| {
                        let asked = asked.clone();
                        tokio::spawn(async move {
                            while Arc::strong_count(&asked) > 1 {
                                asked.notify_one();
                                asked.notify_waiters();
                                tokio::time::sleep(2 * MS).await;
                            }
                        })
                    })
                    .collect();
                terms.push(lead(client.clone(), name.clone(), format!("n{i}-{round}"), asked).await);
                storm.iter().for_each(tokio::task::JoinHandle::abort);
            }
            terms
        }));
    }
    let mut all = Vec::new();
    for task in tasks {
        let terms = task.await.unwrap();
        assert!(terms.windows(2).all(|pair| pair[0] < pair[1]));
        all.extend(terms);
    }
    let n = all.len();
    all.sort();
    all.dedup();
    assert_eq!((all.len(), n), (n, 4 * tenth(50)), "no term twice");
    assert!(client.election(&name).leader().await.unwrap().is_none());
}

async fn cannot_elect_twice(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("m"));
    let election = a.election(&name);
    let term = election.campaign("node-1").await.unwrap();
    for client in [&a, &b] {
        let holder = who_has_it(|| client.election(&name).try_campaign("node-1")).await;
        assert_eq!((holder.hold, holder.token), (term.id(), term.token()));
        assert!(client.election(&name).try_campaign_for("node-1", 20 * MS).await.unwrap().is_err());
    }
    assert_eq!(election.leader().await.unwrap().expect("it leads").term, term.token());
    term.check().unwrap();
    term.resign().await.unwrap();
    // An owner enters its own term: no new grant, the same number.
    let me = a.owner();
    let mine = a.election(&name).reentrant(&me);
    let (one, two) = (mine.campaign("node-1").await.unwrap(), mine.campaign("node-1").await.unwrap());
    assert_eq!((one.token(), one.id()), (two.token(), two.id()));
    assert_eq!(b.inspect(&name).await.unwrap().last_token, Some(one.token()));
    one.resign().await.unwrap();
    two.check().unwrap();
    two.resign().await.unwrap();
}

/// What an older term of the same owner, client or host might say now.
async fn terms(cx: &Context, name: &str) -> (fencelock_core::Term, Vec<Grant>, Arc<dyn fencelock_core::Engine>) {
    let (client, below) = cx.connect(60 * SEC).await;
    let other = cx.client().await;
    let me = client.owner();
    let mut old = Vec::new();
    for candidate in [&client, &other, &client] {
        let term = candidate.election(name).campaign("node-1").await.unwrap();
        old.push(grant_of(&term));
        term.resign().await.unwrap();
    }
    let term = client.election(name).reentrant(&me).campaign("node-1").await.unwrap();
    let now = grant_of(&term);
    let mut mixed = vec![];
    for grant in old {
        assert!(grant.token < now.token);
        mixed.push(Grant { hold: now.hold, ..grant.clone() });
        mixed.push(Grant { token: now.token, ..grant.clone() });
        mixed.push(grant);
    }
    (term, mixed, below.engine)
}
async fn renewals_of_an_older_term(cx: Context) {
    let name = cx.name("m");
    let (term, old, engine) = terms(&cx, &name).await;
    for grant in old {
        let answer = renewed(&*engine, &grant).await;
        assert!(matches!(answer, Renewed::Lost(_)), "{answer:?} to {grant:?}");
    }
    let ours = grant_of(&term);
    let answer = engine.renew(std::slice::from_ref(&ours)).await.unwrap();
    assert!(!matches!(answer[..], [Renewed::Lost(_)]), "{answer:?} to its own");
    term.check().unwrap();
    term.resign().await.unwrap();
}
async fn releases_of_an_older_term(cx: Context) {
    let name = cx.name("m");
    let (term, old, engine) = terms(&cx, &name).await;
    for grant in &old {
        is_refused(&engine, grant).await;
    }
    term.check().unwrap();
    let leader = cx.client().await.election(&name).leader().await.unwrap();
    assert_eq!(leader.expect("it leads").term, term.token());
    term.resign().await.unwrap();
}
