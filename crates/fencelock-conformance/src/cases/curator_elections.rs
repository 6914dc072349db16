//! consensus.md 6: Curator, leader election.
use super::prelude::*;
use crate::context::{renewed_in_time, void};
use fencelock_core::{TakenAway, Term};
use tokio::task::JoinHandle;

cases! {
    "curator/uncreated-path-get-leader" => uncreated_path_get_leader;
    "curator/session-interruption-no-brain-split" => session_interruption, needs: [Crash];
    "curator/session-error-policy" => session_error_policy, needs: [Crash, Left];
    "curator/error-policies" => error_policies, needs: [Silence];
    "curator/close-without-connection" => close_without_connection, needs: [Silence];
    "curator/lost-connection" => lost_connection, needs: [Server, Waiters];
    "curator/latch-waiting" => latch_waiting;
    "curator/latch-basic" => latch_basic, needs: [Waiters];
    "curator/callback-sanity" => callback_sanity;
    "curator/callback-notify-leader" => callback_notify_leader;
    "curator/no-server-at-start" => no_server_at_start, needs: [NoServer, Server];
    "curator/selector-interruption" => selector_interruption, needs: [Waiters];
    "curator/interrupt-leadership" => interrupt_leadership, needs: [Waiters];
    "curator/race-at-state-changed" => race_at_state_changed, needs: [Sessions];
    "curator/auto-requeue" => auto_requeue;
    "curator/server-dying" => server_dying, needs: [Server];
    "curator/kill-session-then-close" => kill_session_then_close, needs: [Sessions];
    "curator/kill-server-then-close" => kill_server_then_close, needs: [Server];
    "curator/selector-closing" => selector_closing, needs: [Waiters];
    "curator/rotating-leadership" => rotating_leadership, needs: [Waiters];
    "curator/participants-id" => participants_id, needs: [Waiters];
    "curator/participants-basic" => participants_basic, needs: [Waiters];
    "curator/spurious-wakeup" => spurious_wakeup, needs: [Waiters];
}
roles! {
    "candidate" => candidate;
}

/// Somebody in the queue, with a client of his own.
struct Candidate {
    client: Client,
    hold: HoldId,
    task: JoinHandle<Result<Term, Error>>,
}
/// Campaigns, behind all who are there: when this returns the engine tells of it.
async fn campaign(cx: &Context, client: &Client, name: &str, who: &str) -> Candidate {
    let before = client.inspect(name).await.unwrap().waiters.len();
    let task = tokio::spawn(client.election(name).campaign(who));
    let status = cx.queued(client, name, before + 1).await;
    assert_eq!(&*status.waiters[before].note, who, "he is the last");
    Candidate { client: client.clone(), hold: status.waiters[before].hold, task }
}
async fn leader(client: &Client, name: &str) -> Option<(String, Token)> {
    let leader = client.election(name).leader().await.unwrap()?;
    Some((leader.candidate.to_string(), leader.term))
}
/// One whose hold is to be taken away: what his engine does not push he hears with a renewal.
async fn victim(cx: &Context) -> Client {
    let client = cx.client().await;
    match client.info().capabilities.taken_away {
        TakenAway::Pushed => client,
        _ => cx.client_with(2 * cx.short()).await,
    }
}
async fn term_of(candidate: Candidate) -> Term {
    within("he leads", candidate.task).await.unwrap().unwrap()
}

async fn uncreated_path_get_leader(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("e"));
    for client in [&a, &b] {
        assert_eq!(client.election(&name).leader().await.unwrap(), None);
        assert_eq!(within("at once", client.election(&name).observe().changed()).await.unwrap(), None);
    }
    assert!(a.list(cx.prefix(), &Page::default()).await.unwrap().items.is_empty(), "asking makes nothing");
    a.election(&name).try_campaign("first").await.unwrap().expect("nobody leads").resign().await.unwrap();
    assert_eq!(b.election(&name).leader().await.unwrap(), None);
}

async fn session_interruption(cx: Context) {
    let (client, name) = (cx.client().await, cx.name("e"));
    for _ in 0..if full() { 5 } else { 1 } {
        let (mut leader, mut next) = (cx.puppet().await, cx.puppet_with(60 * SEC).await);
        let old = leader.lock(&name).await;
        next.ask_lock(&name);
        cx.queued(&client, &name, 1).await;
        cx.silence(leader.peer()).await;
        let token = next.granted().await;
        assert!(token > old);
        leader.peer().silence(false);
        // As soon as he can say anything, he knows; and the other one leads on.
        assert!(!leader.is_valid(&name).await, "two leaders");
        assert!(!leader.release(&name).await);
        assert!(next.is_valid(&name).await);
        let status = client.inspect(&name).await.unwrap();
        assert_eq!(status.holders.iter().map(|holder| holder.token).collect::<Vec<_>>(), [token]);
        assert!(next.release(&name).await);
    }
}

async fn session_error_policy(cx: Context) {
    let (client, name, other, ttl) = (cx.client().await, cx.name("one"), cx.name("other"), 2 * cx.short());
    let (mut suspended, mut ended) = (cx.puppet_with(ttl).await, cx.puppet().await);
    let (token, old) = (suspended.lock(&name).await, ended.lock(&other).await);
    cx.silence(ended.peer()).await;
    let wait = tokio::spawn(client.mutex(&other).lock());
    let left = || async { client.inspect(&name).await.unwrap().holders.first().map_or(Duration::ZERO, |h| h.left) };
    // Longer than between two of his heartbeats, and not as long as his ttl.
    let began = Instant::now();
    cx.silence(suspended.peer()).await;
    eventually("a heartbeat is missing", || async { left().await < ttl * 3 / 5 }).await;
    suspended.peer().silence(false);
    eventually("they go on, or it is over", || async {
        let left = left().await;
        left.is_zero() || left > ttl * 3 / 5
    })
    .await;
    let (took, good) = (began.elapsed(), suspended.release(&name).await);
    if !good && took >= ttl * 3 / 5 {
        void(format!("he was suspended for {took:?}, which may be his ttl"));
    }
    assert!(good, "a suspended connection ends no term: {token} was lost after {took:?}");
    // As long as that.
    let next = within("his session has ended", wait).await.unwrap().unwrap();
    assert!(next.token() > old);
    ended.peer().silence(false);
    ended.lost(&other).await;
    next.release().await.unwrap();
}

async fn error_policies(cx: Context) {
    let ttl = cx.short();
    let ((one, back), (other, away)) = (cx.silenceable(2 * cx.short()).await, cx.silenceable(ttl).await);
    let recovers = async {
        let term = one.election(cx.name("one")).campaign("one").await.unwrap();
        back.begin().await;
        let mut lost = Box::pin(term.lost());
        within("suspect", term.suspect()).await;
        assert!(once(&mut lost).await.is_none() && term.is_valid(), "suspect is not lost");
        back.end().await;
        renewed_in_time(&term).await;
        term.check().expect("it has recovered");
        assert!(once(&mut lost).await.is_none());
        term.resign().await.unwrap();
    };
    let ends = async {
        let term = other.election(cx.name("other")).campaign("other").await.unwrap();
        away.begin().await;
        let first = tokio::select! {
            biased;
            () = within("suspect", term.suspect()) => "suspect",
            _ = term.lost() => "lost",
        };
        assert_eq!(first, "suspect");
        let reason = within("lost", term.lost()).await;
        assert!(matches!(reason, LossReason::Unreachable | LossReason::Expired), "{reason}");
        // It stays suspect, in the sense that there is time to wind up; and it is over.
        within("suspect", term.suspect()).await;
        assert!(term.check().is_err());
        away.end().await;
    };
    recovers.await;
    ends.await;
}

async fn close_without_connection(cx: Context) {
    let name = cx.name("e");
    let closed = |error: Error| assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    // Never used; in the dark before it was; and with a campaign under way there.
    for round in 0..3 {
        let (client, silence) = cx.silenceable(60 * SEC).await;
        let mut wait = None;
        if round > 0 {
            silence.begin().await;
            if round == 2 {
                wait = Some(tokio::spawn(client.election(&name).campaign("in the dark")));
                tokio::task::yield_now().await;
            }
        }
        let grace = if wait.is_some() { 300 * MS } else { STUCK };
        let done = within("it ends", client.shutdown(grace)).await;
        assert!(done.is_ok() || wait.is_some(), "{done:?}");
        if let Some(wait) = wait {
            assert!(within("it ends", wait).await.unwrap().is_err());
        }
        within("once more", client.shutdown(300 * MS)).await.ok();
        closed(client.election(&name).campaign("late").await.unwrap_err());
        closed(client.election(&name).leader().await.unwrap_err());
        silence.end().await;
    }
    cx.client().await.election(&name).campaign("next").await.unwrap().resign().await.unwrap();
}

async fn lost_connection(cx: Context) {
    let (a, b, name) = (cx.client_with(cx.short()).await, cx.client().await, cx.name("e"));
    let server = cx.fixture().server().unwrap();
    let term = a.election(&name).campaign("a").await.unwrap();
    let candidate = campaign(&cx, &b, &name, "b").await;
    server.stop().await;
    within("told by the clock", term.lost()).await;
    assert!(!term.is_valid() && !candidate.task.is_finished(), "nobody leads");
    server.start().await;
    let next = term_of(candidate).await;
    assert!(next.token() > term.token() && !term.is_valid());
    assert_eq!(leader(&a, &name).await, Some(("b".into(), next.token())));
    next.check().unwrap();
    next.resign().await.unwrap();
    assert!(term.resign().await.is_err());
}

/// `candidate NAME JUDGE WHO TERMS`
async fn candidate(me: RoleContext) {
    let (name, judge, who) = (&me.words[0], Judge::at(me.words[1].as_ref()), &me.words[2]);
    for _ in 0..me.number(3) {
        let term = me.client.election(name).campaign(who.as_str()).await.unwrap();
        judge.work(who, &term).await;
        term.resign().await.unwrap();
    }
}
/// So many candidates lead so often each; how often each of them did.
async fn all_lead(cx: &Context, candidates: u64, terms: u64) {
    let (client, name, judge) = (cx.client().await, cx.name("e"), cx.judge("e"));
    let first = client.election(&name).campaign("first").await.unwrap();
    let mut peers = Vec::new();
    for i in 0..candidates {
        let words = [&name, judge.place().to_str().unwrap(), &format!("c{i}"), &terms.to_string()];
        peers.push(cx.peer_with(60 * SEC, "candidate", &words).await);
    }
    cx.queued(&client, &name, usize::try_from(candidates).unwrap()).await;
    first.resign().await.unwrap();
    for peer in peers {
        peer.finish().await;
    }
    judge.verdict(candidates * terms);
    let intervals = judge.history.intervals();
    for i in 0..candidates {
        let led = intervals.iter().filter(|interval| interval.holder == format!("c{i}")).count();
        assert_eq!(u64::try_from(led).unwrap(), terms, "c{i}");
    }
}
async fn latch_waiting(cx: Context) {
    all_lead(&cx, 5, 1).await;
}
async fn auto_requeue(cx: Context) {
    all_lead(&cx, 3, if full() { 100 } else { 10 }).await;
}

async fn latch_basic(cx: Context) {
    let (client, name) = (cx.client().await, cx.name("e"));
    let mut term = client.election(&name).campaign("c0").await.unwrap();
    let mut candidates = Vec::new();
    for i in 1..5 {
        candidates.push(campaign(&cx, &cx.client().await, &name, &format!("c{i}")).await);
    }
    let queue: Vec<_> = candidates.iter().map(|candidate| candidate.hold).collect();
    for (i, candidate) in candidates.into_iter().enumerate() {
        assert_eq!(leader(&client, &name).await, Some((format!("c{i}"), term.token())));
        let (before, freed) = (term.token(), BootClock.now());
        term.resign().await.unwrap();
        cx.turn_of(&client, &name, &queue[i..], freed).await;
        term = term_of(candidate).await;
        assert!(term.token() > before && term.id() == queue[i]);
    }
    assert_eq!(leader(&client, &name).await, Some(("c4".into(), term.token())));
    term.resign().await.unwrap();
    assert_eq!(leader(&client, &name).await, None);
}

/// Each term waits until it has been told that it began. Then as many are told to end as to begin: one after the other, the last
/// one too; and whoever led hears of the end once, by the answer to his resignation or as a loss.
async fn callback_sanity(cx: Context) {
    let (operator, name) = (cx.client().await, cx.name("e"));
    let mut observer = operator.election(&name).observe();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = seen.clone();
    let watch = tokio::spawn(async move {
        while let Ok(change) = observer.changed().await {
            noted.lock().unwrap().push(change.map(|leader| leader.term));
        }
    });
    let mut tasks = Vec::new();
    for i in 0..4 {
        let (client, operator) = (victim(&cx).await, operator.clone());
        let (name, seen) = (name.clone(), seen.clone());
        tasks.push(tokio::spawn(async move {
            let mut ended = Vec::new();
            for round in 0..if full() { 20 } else { 4 } {
                let term = client.election(&name).campaign(format!("c{i}")).await.unwrap();
                let token = term.token();
                eventually("its begin is told", || async { seen.lock().unwrap().contains(&Some(token)) }).await;
                let lost = term.lost();
                if (round + i) % 2 == 0 {
                    term.resign().await.unwrap();
                    assert!(once(&mut Box::pin(lost)).await.is_none(), "told twice");
                } else {
                    assert_eq!(operator.force_release(&name, token).await.unwrap(), Released::Released);
                    assert_eq!(within("told", lost).await, LossReason::TakenOver);
                    assert!(term.resign().await.is_err(), "told twice");
                }
                ended.push(token);
            }
            ended
        }));
    }
    let mut ended = Vec::new();
    for task in tasks {
        ended.extend(task.await.unwrap());
    }
    eventually("the last end is told", || async { matches!(seen.lock().unwrap().last(), Some(None)) }).await;
    watch.abort();
    let mut begun: Vec<_> = seen.lock().unwrap().iter().flatten().copied().collect();
    assert!(begun.windows(2).all(|pair| pair[0] < pair[1]), "a term after a later one, or twice: {begun:?}");
    ended.sort_unstable();
    begun.retain(|term| cx.shows_grants_alone() || ended.contains(term));
    assert_eq!(begun, ended, "told to begin, and ended");
}

async fn callback_notify_leader(cx: Context) {
    let (other, name) = (cx.client().await, cx.name("e"));
    // Who resigns by himself is not told that he has lost.
    let client = cx.client().await;
    let term = client.election(&name).campaign("resigns").await.unwrap();
    let (mut lost, mut dropped) = (Box::pin(term.lost()), None);
    term.resign().await.unwrap();
    for next in [true, false] {
        let term = other.election(&name).campaign("next").await.unwrap();
        if next {
            dropped = Some(Box::pin(term.lost()));
        }
        drop(term);
    }
    cx.free(&other, &name).await;
    assert!(tokio::time::timeout(50 * MS, &mut lost).await.is_err(), "told after it had resigned");
    assert!(tokio::time::timeout(50 * MS, dropped.unwrap()).await.is_err(), "told after it was dropped");
    // Whose client is closed under him is told, before another one leads.
    let client = cx.client_with(cx.short()).await;
    let term = client.election(&name).campaign("closes").await.unwrap();
    let lost = term.lost();
    let told = tokio::spawn(async move { (lost.await, BootClock.now()) });
    client.shutdown(STUCK).await.unwrap();
    let next = within("free", other.election(&name).campaign("next")).await.unwrap();
    let led = BootClock.now();
    let (_, at) = within("told", told).await.unwrap();
    assert!(!term.is_valid() && at <= led + SEC, "{:?} later", led.until(at));
    next.resign().await.unwrap();
}

async fn no_server_at_start(cx: Context) {
    let name = cx.name("e");
    let server = cx.fixture().server().unwrap();
    server.stop().await;
    let client = cx.client().await;
    let wait = tokio::spawn(client.election(&name).campaign("early"));
    let answer = tokio::time::timeout(100 * MS, cx.client().await.election(&name).leader()).await;
    assert!(!wait.is_finished(), "there is no server");
    assert!(server.answers_readers() || !matches!(answer, Ok(Ok(_))), "there is no server: {answer:?}");
    server.start().await;
    let term = within("there is one", wait).await.unwrap().unwrap();
    assert_eq!(leader(&cx.client().await, &name).await, Some(("early".into(), term.token())));
    term.resign().await.unwrap();
}

async fn selector_interruption(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("e"));
    let (tx, rx) = tokio::sync::oneshot::channel();
    let election = a.election(&name);
    let leads = tokio::spawn(async move {
        let term = election.campaign("a").await.unwrap();
        tx.send(term.token()).unwrap();
        term.run(std::future::pending::<()>()).await
    });
    let token = within("a leads", rx).await.unwrap();
    let candidate = campaign(&cx, &b, &name, "b").await;
    leads.abort();
    // A lease of a would last for a minute.
    let next = term_of(candidate).await;
    assert!(next.token() > token && leads.await.unwrap_err().is_cancelled());
    assert_eq!(a.held(), 0);
    next.resign().await.unwrap();
}

async fn interrupt_leadership(cx: Context) {
    let (a, b, name) = (victim(&cx).await, cx.client().await, cx.name("e"));
    let term = a.election(&name).campaign("a").await.unwrap();
    let candidate = campaign(&cx, &b, &name, "b").await;
    assert_eq!(b.force_release(&name, term.token()).await.unwrap(), Released::Released);
    let stopped = within("the work is stopped", term.run(std::future::pending::<()>())).await.unwrap_err();
    assert_eq!((stopped.kind(), term.lost().await), (ErrorKind::Lost, LossReason::TakenOver));
    let next = term_of(candidate).await;
    assert!(next.token() > term.token());
    let again = campaign(&cx, &a, &name, "a again").await;
    // What is left of the old term harms neither.
    assert!(term.resign().await.is_err());
    next.check().unwrap();
    cx.queued(&b, &name, 1).await;
    let last = next.token();
    next.resign().await.unwrap();
    let again = term_of(again).await;
    assert!(again.token() > last);
    assert_eq!(leader(&b, &name).await, Some(("a again".into(), again.token())));
    again.resign().await.unwrap();
}

async fn race_at_state_changed(cx: Context) {
    let name = cx.name("e");
    let (a, b) = (cx.client_with(cx.short() * 3 / 2).await, cx.client_with(cx.short() * 3 / 2).await);
    let sessions = cx.fixture().sessions().unwrap();
    for round in 0..if full() { 20 } else { 2 } {
        let term = within("a leads", a.election(&name).campaign("a")).await.unwrap();
        let candidate = campaign(&cx, &b, &name, "b").await;
        // The sessions end as leadership comes.
        let late = async {
            tokio::time::sleep(MS * round).await;
            sessions.end().await;
        };
        let (_, ()) = tokio::join!(term.resign(), late);
        let next = term_of(candidate).await;
        let mut lost = Box::pin(next.lost());
        // He leads, as the store says, or he is told that he does not.
        let (hold, seen) = (next.id(), &a);
        let told = tokio::select! {
            reason = &mut lost => Some(reason),
            _ = eventually("led or lost", || async {
                let left = seen.inspect(&name).await.unwrap().exclusive().filter(|h| h.hold == hold).map(|h| h.left);
                left.is_some_and(|left| !left.is_zero())
            }) => None,
        };
        let mut started = false;
        let work = next.run(async { started = true }).await;
        match told {
            Some(_) => assert!(work.is_err() && !started, "the work has started after the loss"),
            // Lost since then, or not: it has run to its end, or was refused.
            None => assert!(started == work.is_ok(), "{started}, {work:?}"),
        }
        drop(next);
        cx.free(&a, &name).await;
    }
    // And for certain: it has ended before the work begins.
    let term = within("a leads", a.election(&name).campaign("a")).await.unwrap();
    sessions.end().await;
    assert_eq!(within("told", term.lost()).await, LossReason::SessionEnded);
    let mut started = false;
    let refused = term.run(async { started = true }).await.unwrap_err();
    assert!(!started && refused.kind() == ErrorKind::Lost, "{refused}");
}

/// Set when it is dropped.
struct Stopped(Arc<Mutex<bool>>);
impl Drop for Stopped {
    fn drop(&mut self) {
        *self.0.lock().unwrap() = true;
    }
}
async fn server_dying(cx: Context) {
    let (client, name) = (cx.client_with(cx.short()).await, cx.name("e"));
    let server = cx.fixture().server().unwrap();
    let term = client.election(&name).campaign("a").await.unwrap();
    let stopped = Arc::new(Mutex::new(false));
    let work = Stopped(stopped.clone());
    server.stop().await;
    let lost = within("the work is stopped", term.run(async move {
        let _work = work;
        std::future::pending::<()>().await;
    }));
    assert_eq!(lost.await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(*stopped.lock().unwrap() && term.check().is_err());
    server.start().await;
    let again = within("it can lead again", client.election(&name).campaign("a")).await.unwrap();
    assert!(again.token() > term.token());
    again.resign().await.unwrap();
}

async fn kill_session_then_close(cx: Context) {
    let (a, b, name) = (cx.client_with(2 * cx.short()).await, cx.client_with(2 * cx.short()).await, cx.name("e"));
    let term = a.election(&name).campaign("a").await.unwrap();
    let candidate = campaign(&cx, &b, &name, "b").await;
    cx.fixture().sessions().unwrap().end().await;
    within("closed", a.shutdown(STUCK)).await.unwrap();
    let next = term_of(candidate).await;
    assert!(next.token() > term.token());
    assert!(within("he knows", term.lost()).await == LossReason::SessionEnded && term.resign().await.is_err());
    assert_eq!(leader(&b, &name).await, Some(("b".into(), next.token())));
    next.resign().await.unwrap();
}

async fn kill_server_then_close(cx: Context) {
    let (a, b, name) = (cx.client_with(cx.short()).await, cx.client().await, cx.name("e"));
    let server = cx.fixture().server().unwrap();
    let term = a.election(&name).campaign("a").await.unwrap();
    let candidate = campaign(&cx, &b, &name, "b").await;
    server.stop().await;
    // Whether it could say goodbye or not.
    let _ = within("closed", a.shutdown(100 * MS)).await;
    assert!(!candidate.task.is_finished());
    server.start().await;
    let next = term_of(candidate).await;
    assert!(next.token() > term.token() && !term.is_valid() && next.resign().await.is_ok());
}

async fn selector_closing(cx: Context) {
    let name = cx.name("e");
    for resigned in [true, false] {
        let ttl = if resigned { 60 * SEC } else { cx.closing_ttl() };
        let client = cx.client_with(ttl).await;
        let term = client.election(&name).campaign("closes").await.unwrap();
        let (token, mut kept) = (term.token(), Some(term));
        let candidate = campaign(&cx, &cx.client().await, &name, "next").await;
        if resigned {
            drop(kept.take());
        }
        within("closed", client.shutdown(STUCK)).await.unwrap();
        let next = term_of(candidate).await;
        assert!(next.token() > token && kept.is_none_or(|term| !term.is_valid()));
        next.resign().await.unwrap();
    }
}

async fn rotating_leadership(cx: Context) {
    let (client, name, judge) = (cx.client().await, cx.name("e"), cx.judge("e"));
    let first = client.election(&name).campaign("first").await.unwrap();
    let mut queue = std::collections::VecDeque::new();
    for i in 0..3 {
        queue.push_back((i, campaign(&cx, &cx.client().await, &name, &format!("c{i}")).await));
    }
    let mut term = first;
    let rounds = tenth(90);
    for _ in 0..rounds {
        let order: Vec<_> = queue.iter().map(|(_, candidate)| candidate.hold).collect();
        let (freed, (i, candidate)) = (BootClock.now(), queue.pop_front().unwrap());
        let his = candidate.client.clone();
        term.resign().await.unwrap();
        cx.turn_of(&client, &name, &order, freed).await;
        term = term_of(candidate).await;
        judge.work(&format!("c{i}"), &term).await;
        queue.push_back((i, campaign(&cx, &his, &name, &format!("c{i}")).await));
    }
    judge.verdict(u64::try_from(rounds).unwrap());
    for (_, candidate) in queue {
        candidate.task.abort();
    }
    cx.queued(&client, &name, 0).await;
    term.resign().await.unwrap();
}

async fn participants_id(cx: Context) {
    let (a, b, name) = (cx.client().await, cx.client().await, cx.name("e"));
    for text in ["node-1", "", "Knoten Süd \"7\" 🐎", &"x".repeat(500)] {
        let term = a.election(&name).campaign(text).await.unwrap();
        let candidate = campaign(&cx, &b, &name, text).await;
        for client in [&a, &b] {
            let leader = client.election(&name).leader().await.unwrap().expect("a leads");
            assert_eq!((&*leader.candidate, leader.term, leader.pid), (text, term.token(), std::process::id()));
        }
        let told = within("told", b.election(&name).observe().changed()).await.unwrap().expect("a leads");
        assert_eq!(&*told.candidate, text);
        term.resign().await.unwrap();
        let next = term_of(candidate).await;
        assert_eq!(leader(&a, &name).await, Some((text.to_owned(), next.token())));
        next.resign().await.unwrap();
    }
}

async fn participants_basic(cx: Context) {
    let (client, name) = (cx.client().await, cx.name("e"));
    let term = client.election(&name).campaign("c0").await.unwrap();
    let mut candidates = Vec::new();
    for i in 1..4 {
        candidates.push(campaign(&cx, &cx.client().await, &name, &format!("c{i}")).await);
    }
    let status = cx.client().await.inspect(&name).await.unwrap();
    let marked = status.exclusive().expect("one leads");
    assert_eq!((&*marked.note, marked.hold, status.holders.len()), ("c0", term.id(), 1));
    let listed: Vec<_> = status.waiters.iter().map(|waiter| (&*waiter.note, waiter.hold)).collect();
    assert_eq!(listed, [("c1", candidates[0].hold), ("c2", candidates[1].hold), ("c3", candidates[2].hold)]);
    candidates.into_iter().for_each(|candidate| candidate.task.abort());
    let status = cx.queued(&client, &name, 0).await;
    assert_eq!(status.exclusive().map(|holder| holder.hold), Some(term.id()));
    term.resign().await.unwrap();
}

async fn spurious_wakeup(cx: Context) {
    let (client, other, name) = (cx.client().await, cx.client().await, cx.name("e"));
    let term = client.election(&name).campaign("leads").await.unwrap();
    let candidate = campaign(&cx, &cx.client().await, &name, "waits").await;
    // Polled without a cause, and woken by others who come and go, and by words that change nothing.
    let mut second = other.election(&name).campaign("second");
    let before = Token::new(term.token().get() - 1).unwrap();
    for _ in 0..20 {
        assert!(once(&mut second).await.is_none());
        assert!(other.mutex(&name).try_lock_for(MS).await.unwrap().is_err());
        let answer = other.force_release(&name, before).await.unwrap();
        assert!(matches!(answer, Released::NotHeld { .. }), "{answer:?}");
        other.mutex(cx.name("another")).lock().await.unwrap().release().await.unwrap();
    }
    cx.queued(&other, &name, 2).await;
    drop(second);
    let status = cx.queued(&other, &name, 1).await;
    assert!(!candidate.task.is_finished() && status.waiters[0].hold == candidate.hold);
    assert_eq!(status.exclusive().map(|holder| holder.hold), Some(term.id()));
    term.check().unwrap();
    term.resign().await.unwrap();
    term_of(candidate).await.resign().await.unwrap();
}
