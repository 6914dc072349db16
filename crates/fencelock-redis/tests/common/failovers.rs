//! Primaries are killed while many contend.
use super::{replicated::Replicated, *};
use fencelock_core::{BootClock, Client, Clock, Guard, HoldId, LossReason, Moment, Token};
use fencelock_testkit::processes::{bar, percentile, tenth};
use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

pub const FAILOVER: Duration = Duration::from_secs(30);
/// Of the locks for which many contend.
const TTL: Duration = Duration::from_secs(2);

pub fn many_threads() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap()
}
pub async fn connect_to(url: &str) -> Client {
    patient_client(|| async { connect(Config::from_url(url)?).await }).await
}
/// The key of the lock `x`, whose primary is killed.
const KEY: &str = "fl:x";
/// Names of locks that lie where `x` does.
fn names(servers: &dyn Replicated, what: &'static str) -> impl Iterator<Item = String> {
    (0..).map(move |n| format!("{what}{n}")).filter(|name| servers.lie_together(KEY, &format!("fl:{name}")))
}

/// What the locks protect: it knows the last token and whose it was, and takes no smaller one, nor the same of another one (SAFETY T5).
#[derive(Debug, Default)]
struct Resource(Option<(Token, HoldId)>);
impl Resource {
    fn write(&mut self, guard: &Guard) -> bool {
        let (token, owner) = (guard.token(), guard.id());
        let takes = self.0.is_none_or(|(seen, by)| token > seen || (token, owner) == (seen, by));
        if takes {
            self.0 = Some((token, owner));
        }
        takes
    }
}
#[derive(Clone, Copy, Debug)]
struct Loss {
    told: Moment,
    end: Moment,
}
/// Whoever has had `x`, in the order in which they were told so: the n-th of them.
#[derive(Debug, Default)]
struct Story {
    resource: Resource,
    tokens: Vec<i64>,
    /// And when another one came in beside him.
    inside: BTreeMap<usize, Option<Moment>>,
    overlaps: Vec<Moment>,
    losses: Vec<Loss>,
    /// The last of those who have written.
    newest: usize,
    writes: usize,
    /// Refused, and did not know yet that the lock was lost.
    unaware: usize,
    /// Wrote after the next one had, on purpose: refused, and taken.
    refused: usize,
    taken: usize,
}
impl Story {
    fn enters(&mut self, token: Token) -> usize {
        let now = BootClock.now();
        self.inside.values_mut().for_each(|met| {
            met.get_or_insert(now);
        });
        let n = self.tokens.len();
        self.tokens.push(token.get());
        self.inside.insert(n, None);
        n
    }
    /// He was told that he has it until then.
    fn leaves(&mut self, n: usize, until: Moment) {
        let met = self.inside.remove(&n).flatten();
        self.overlaps.extend(met.filter(|met| *met < until));
    }
    fn write(&mut self, n: usize, guard: &Guard) -> bool {
        let takes = self.resource.write(guard);
        // Whoever had it after him has written: whatever their tokens say, this one is too late.
        self.taken += usize::from(takes && n < self.newest);
        self.newest = self.newest.max(if takes { n } else { 0 });
        self.writes += usize::from(takes);
        takes
    }
}
#[derive(Default)]
struct Scene {
    story: Mutex<Story>,
    /// Whoever has it holds on, and somebody does.
    hold_on: AtomicBool,
    holds_on: AtomicBool,
    stop: AtomicBool,
}
impl Scene {
    fn story(&self) -> MutexGuard<'_, Story> {
        self.story.lock().unwrap()
    }
    fn grants(&self) -> usize {
        self.story().tokens.len()
    }
    async fn more(&self, many: usize) {
        let before = self.grants();
        eventually("they work", || std::future::ready(self.grants() > before + many)).await;
    }
    async fn work(&self, client: Client) {
        while !self.stop.load(SeqCst) {
            let Ok(guard) = client.mutex("x").lock().await else { continue };
            let n = self.story().enters(guard.token());
            let loss = self.hold(n, &guard).await;
            let (now, end) = (BootClock.now(), guard.valid_until());
            self.story().leaves(n, now.min(end));
            if loss.is_some() {
                self.story().losses.push(Loss { told: now, end });
                // He does not care, and writes after the next one has.
                eventually("the next one writes", || std::future::ready(self.story().newest > n)).await;
                let mut story = self.story();
                let refused = !story.write(n, &guard);
                story.refused += usize::from(refused);
            }
            drop(guard.release().await);
        }
    }
    /// Writes once, and again and again while the primary dies; whoever is refused did not know that he has lost it, and goes on until he
    /// is told.
    async fn hold(&self, n: usize, guard: &Guard) -> Option<LossReason> {
        let (mut lost, mut unaware) = (pin!(guard.lost()), false);
        loop {
            tokio::select! {
                biased;
                reason = &mut lost => return Some(reason),
                () = tokio::time::sleep(2 * MS) => {}
            }
            if guard.check().is_err() {
                continue;
            }
            let mut story = self.story();
            if !story.write(n, guard) {
                story.unaware += usize::from(!unaware);
                unaware = true;
            } else if self.hold_on.load(SeqCst) {
                self.holds_on.store(true, SeqCst);
            } else {
                return None;
            }
        }
    }
}

/// Whose tokens rise over what a failover loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rise {
    /// Also for whoever comes for the first time after it.
    ForEverybody,
    /// The clocks are further apart than that: for those who have used the old primary.
    ForWhoWasThere,
}

/// 16 clients contend for `x` while the primary is killed again and again, and somebody has it then; every second time the last grants are
/// lost with it. Tokens rise over every grant, also of those that were lost; whoever has lost it is told so before his time is over or at
/// once when there is a primary again; two have it in a failover alone, and then the resource refuses the first one.
pub fn killed(servers: &dyn Replicated, keys: &str, what: &str, rounds: usize, rise: Rise) {
    let url = &*servers.url(&format!("ttl={}s{keys}", TTL.as_secs()));
    many_threads().block_on(async {
        let scene = Arc::<Scene>::default();
        let mut workers = JoinSet::new();
        for _ in 0..16 {
            let (scene, client) = (scene.clone(), connect_to(url).await);
            workers.spawn(async move { scene.work(client).await });
        }
        let there = connect_to(url).await;
        let (mut failovers, mut times, mut cuts) = (Vec::new(), Vec::new(), 0);
        for (round, name) in (0..rounds).zip(names(servers, "y")) {
            scene.more(50).await;
            let old = servers.primary(KEY);
            let mut cut = Vec::new();
            if round % 2 == 0 {
                cut = servers.cut_off(old);
                scene.more(5).await;
                cuts += 1;
            }
            let seen = soon(there.mutex(name.clone()).lock()).await.unwrap();
            let seen_token = seen.token().get();
            seen.release().await.unwrap();
            scene.holds_on.store(false, SeqCst);
            scene.hold_on.store(true, SeqCst);
            eventually("somebody holds on", || std::future::ready(scene.holds_on.load(SeqCst))).await;
            let killed = BootClock.now();
            servers.kill(old);
            let highest = scene.story().tokens.iter().copied().max().unwrap_or(0);
            servers.go_on(&cut);
            servers.promoted(KEY, old);
            let (promoted, began) = (BootClock.now(), Instant::now());
            failovers.push((killed, promoted));
            scene.hold_on.store(false, SeqCst);
            let next = async {
                scene.more(1).await;
                began.elapsed()
            };
            // The lock that was free, of which the new primary may know nothing.
            let other = async {
                let who = match rise {
                    Rise::ForEverybody => connect_to(url).await,
                    Rise::ForWhoWasThere => there.clone(),
                };
                let guard = soon(who.mutex(name).lock()).await.unwrap();
                let token = guard.token().get();
                let all = seen_token.max(highest);
                assert!(token > all, "{what}, round {round}, {rise:?}: {token} after {all}");
                guard.release().await.unwrap();
            };
            times.push(tokio::join!(next, other).0);
            servers.restart(old);
        }
        scene.more(50).await;
        let tried = || {
            let story = scene.story();
            story.refused + story.taken >= story.losses.len()
        };
        eventually("whoever has lost it has tried to write", || std::future::ready(tried())).await;
        scene.stop.store(true, SeqCst);
        while let Some(worker) = soon(workers.join_next()).await {
            worker.unwrap();
        }
        let story = std::mem::take(&mut *scene.story());
        judge(&story, &failovers, cuts, what);
        let worst = percentile(&mut times, 1.0);
        let what = format!("{what}: the next grant after all agree on another primary, slowest");
        bar(&what, format!("{worst:?} of {rounds}"), "<= 3 s", worst <= 3 * SEC);
    });
}
fn judge(story: &Story, failovers: &[(Moment, Moment)], cuts: usize, what: &str) {
    let rounds = failovers.len();
    let last = |at: Moment| failovers.iter().rfind(|(killed, _)| *killed <= at);
    let in_one = |at: &&Moment| last(**at).is_some_and(|(_, promoted)| **at <= *promoted + TTL);
    let stray = story.overlaps.len() - story.overlaps.iter().filter(in_one).count();
    let figure = format!("{} in failovers, {stray} else", story.overlaps.len() - stray);
    bar(&format!("{what}: two have it at once"), &figure, "in failovers alone", stray == 0);
    assert_eq!(stray, 0, "{what}: {figure}");

    let falling = story.tokens.windows(2).filter(|two| two[0] >= two[1]).count();
    let figure = format!("{} grants, {} writes, {falling} out of order", story.tokens.len(), story.writes);
    bar(&format!("{what}: tokens over {rounds} primaries killed"), &figure, "rise", falling == 0);
    assert_eq!(falling, 0, "{what}: {figure}: {:?}", steps_down(&story.tokens));

    let (losses, refused, taken) = (story.losses.len(), story.refused, story.taken);
    let figure = format!("{refused} of {losses} refused, and {} who did not know", story.unaware);
    let ok = refused == losses && taken == 0;
    bar(&format!("{what}: who has lost it writes after the next one"), &figure, "refused", ok);
    assert!(ok, "{what}: {figure}, {taken} taken");

    assert!(losses >= cuts, "{what}: in each of {cuts} somebody had what no replica had: {losses} lost");
    // In whichever failover: a loss that is none of one's is a late one.
    let back = |told: Moment| last(told).map_or(Moment::ZERO, |(_, promoted)| *promoted);
    let late = |loss: &Loss| loss.end.until(loss.told).min(back(loss.told).until(loss.told));
    let latest = story.losses.iter().map(late).max().unwrap_or_default();
    let ahead = story.losses.iter().filter(|loss| loss.told <= loss.end).count();
    let figure = format!("{ahead} of {losses} before their end, the others {latest:?} after it or after all agree");
    let bound = if full() { SEC } else { 10 * SEC };
    bar(&format!("{what}: who has lost it is told"), &figure, "before its end, or <= 1 s", latest <= SEC);
    assert!(latest <= bound, "{what}: {figure}");
}
fn steps_down(tokens: &[i64]) -> Vec<(usize, i64)> {
    let steps = tokens.windows(2).enumerate().filter(|(_, two)| two[0] >= two[1]);
    steps.map(|(n, two)| (n, two[1] - two[0])).take(20).collect()
}

/// Holds that no replica had got are told as lost as soon as there is a primary again, long before their leases end; those that they
/// had got go on. Who has lost one and writes after the next one is refused.
pub fn lost(servers: &dyn Replicated, what: &str) {
    let url = &*servers.url("ttl=60s");
    many_threads().block_on(async {
        let (mut times, mut kept, mut refused) = (Vec::new(), 0, 0);
        let rounds = tenth(10).max(2);
        for (round, (here, name)) in names(servers, "kept").zip(names(servers, "lost")).take(rounds).enumerate() {
            let (c, other) = (connect_to(url).await, connect_to(url).await);
            let here = c.mutex(here).lock().await.unwrap();
            let primary = servers.primary(KEY);
            let cut = servers.cut_off(primary);
            let gone = c.mutex(name.clone()).lock().await.unwrap();
            let (lost, mut resource) = (gone.lost(), Resource::default());
            assert!(resource.write(&gone));
            // One that is older than this is watched; a younger one is looked at when it gets there.
            tokio::time::sleep(300 * MS * u32::from(round % 2 == 1)).await;
            servers.kill(primary);
            servers.go_on(&cut);
            let next = tokio::spawn(other.mutex(name.clone()).lock());
            servers.promoted(KEY, primary);
            let promoted = Instant::now();
            assert_eq!(soon(lost).await, LossReason::TakenOver);
            times.push(promoted.elapsed());
            assert!(gone.remaining().is_zero() && gone.check().is_err());
            // Whoever waited for a server that was away was told; nobody else has been in between.
            let next = match soon(next).await.unwrap() {
                Ok(next) => next,
                Err(error) => {
                    assert!(error.is_temporary(), "{error}");
                    soon(other.mutex(name).lock()).await.unwrap()
                }
            };
            assert!(next.token() > gone.token());
            assert!(resource.write(&next));
            refused += usize::from(!resource.write(&gone));
            kept += usize::from(here.check().is_ok());
            here.release().await.unwrap();
            next.release().await.unwrap();
            servers.restart(primary);
        }
        assert_eq!(kept, rounds, "what the replicas had goes on");
        assert_eq!(refused, rounds, "who has lost it writes after the next one");
        let worst = percentile(&mut times, 1.0);
        assert!(worst <= 10 * SEC, "{what}: told by the renewal, after {worst:?}");
        let what = format!("{what}: a hold that no replica had, told after all agree on another primary, slowest");
        bar(&what, format!("{worst:?} of {rounds}"), "<= 1 s", worst <= SEC);
    });
}

/// The replicas' clocks are a minute behind: tokens of those who have used the old primary rise, also over what it took along, whoever had that.
pub fn far_behind(servers: &dyn Replicated) {
    let url = &*servers.url("ttl=60s");
    many_threads().block_on(async {
        let (a, b) = (connect_to(url).await, connect_to(url).await);
        let mut all = names(servers, "y");
        let (y, z) = (&*all.next().unwrap(), &*all.next().unwrap());
        let first = b.mutex(y).lock().await.unwrap();
        first.release().await.unwrap();
        let primary = servers.primary(KEY);
        let cut = servers.cut_off(primary);
        let guard = a.mutex("x").lock().await.unwrap();
        let late = a.mutex(z).lock().await.unwrap();
        let last = late.token();
        late.release().await.unwrap();
        servers.kill(primary);
        servers.go_on(&cut);
        servers.promoted(KEY, primary);
        assert_eq!(soon(guard.lost()).await, LossReason::TakenOver);
        // One who was there before that was granted, and has none of these tokens; and the one who had them.
        for (client, name) in [(&b, "x"), (&a, "x"), (&b, y), (&b, z), (&a, z)] {
            let next = soon(client.mutex(name).lock()).await.unwrap();
            assert!(next.token() > last.max(guard.token()), "{name}: {last} {} {}", guard.token(), next.token());
            next.release().await.unwrap();
        }
    });
}
