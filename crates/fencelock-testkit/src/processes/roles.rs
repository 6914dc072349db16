//! What a worker does, whatever the engine.
use super::{now, say, spans::LOST};
use fencelock_core::{Claim, Client, ErrorKind, Guard, Held, Mutex, Owner, Result, SharedGuard};
use std::{
    fs,
    ops::Deref,
    path::Path,
    time::{Duration, Instant, SystemTime},
};
use tokio::runtime::Builder;

/// The main function of a worker: `FLAVOUR ROLE ADDRESS …`, on a runtime with two threads (`two`), or on the caller's own (`one`). Its
/// clients are made by what comes after the flavour.
///
/// Beside the parts of [`play`]:
///
/// * `apart`, as `spans`: each claim has a client of its own.
/// * `contend ADDRESS NAME COUNTER LOG`: see `contend`.
/// * `wall ADDRESS`: what its wall clock shows, in seconds.
///
/// # Panics
/// There is no such flavour or part; or it fails.
pub fn work<C>(words: &[String], connect: impl Fn(&[String]) -> C + Send + Sync + 'static)
where
    C: Future<Output = Client> + Send,
{
    let runtime = match words[0].as_str() {
        "one" => Builder::new_current_thread().enable_all().build(),
        "two" => Builder::new_multi_thread().worker_threads(2).enable_all().build(),
        other => panic!("no such flavour: {other}"),
    };
    let (runtime, words) = (runtime.unwrap(), words[1..].to_vec());
    // In a task: where there are two threads the main one would be a third.
    let done = runtime.spawn(async move {
        match words[0].as_str() {
            "apart" => {
                let mut claims = Vec::new();
                for what in &words[7..] {
                    claims.push((connect(&words).await, what.as_str()));
                }
                record(claims, &words).await;
            }
            "contend" => contend(connect(&words).await, &words).await,
            "wall" => say(&SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs().to_string()),
            other => assert!(play(connect(&words).await, &words).await, "no such worker: {other}"),
        }
    });
    runtime.block_on(done).unwrap();
}
/// Takes a mutex again and again, whatever becomes of the server meanwhile, until there is a file `LOG.stop`; adds one to the counter as
/// nobody could beside somebody else, and writes down from when to when it was valid.
async fn contend(client: Client, words: &[String]) {
    let [name, counter, log] = [&words[2], &words[3], &words[4]];
    let (mut spans, stop) = (String::new(), format!("{log}.stop"));
    while !Path::new(&stop).exists() {
        let asked = now();
        let Ok(guard) = client.mutex(name).lock().await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let start = now();
        let n: u64 = fs::read_to_string(counter).unwrap_or_default().trim().parse().unwrap_or(0);
        tokio::time::sleep(Duration::from_micros(fastrand::u64(0..2_000))).await;
        fs::write(format!("{log}.new"), (n + 1).to_string()).unwrap();
        fs::rename(format!("{log}.new"), counter).unwrap();
        let end = now();
        guard.check().unwrap();
        spans.push_str(&format!("{start} {end} 1 0 {} {}\n", start - asked, guard.token()));
        // Whether it has arrived is not always known; the end of its lease or session ends it then.
        let _ = guard.release().await;
    }
    fs::write(log, spans).unwrap();
}

/// Plays a part: its name, the store's address, and the rest. False: it is none of these.
///
/// * `hold ADDRESS NAME TTL_MS CLAIM AT_LEAST_MS`: says when it holds and when it loses, and obeys its standard input: `check`,
///   `enter` (again, as the owner that it is), `downgrade`, `release`.
/// * `spans ADDRESS NAME COUNTER LOG ROUNDS END_NS CLAIM…`: see `record`; each claim is a task.
/// * `cancel ADDRESS ROUNDS`: tasks that give up at random moments.
/// * `campaign ADDRESS NAME CANDIDATE TTL_MS`: says when it leads, and leads until it is killed.
/// * `observe ADDRESS NAME`: says which term it sees, and whose, until it is killed.
/// * `add ADDRESS NAME TIMES`: adds one to a cell, so many times.
/// * `loop ADDRESS NAME END_NS`: takes a mutex again and again, once at least; says how often, the longest wait in µs, and the most ahead of it.
pub async fn play(client: Client, words: &[String]) -> bool {
    let word = |i: usize| words[i].as_str();
    let number = |i: usize| word(i).parse::<u64>().unwrap();
    match word(0) {
        "hold" => {
            say("waiting");
            let (ttl, least) = (Duration::from_millis(number(3)), Duration::from_millis(number(5)));
            let owner = client.owner();
            let guard = Any::claim(&client, word(2), claim(word(4)), ttl, least, &owner).await.unwrap();
            say(&format!("held {}", guard.token()));
            let lost = guard.lost();
            tokio::spawn(async move { say(&format!("lost {:?}", lost.await)) });
            let again = client.mutex(word(2)).ttl(ttl).reentrant(&owner);
            obey(guard, again).await;
        }
        "spans" => record(words[7..].iter().map(|what| (client.clone(), what.as_str())), words).await,
        "loop" => {
            let (mut grants, mut longest, mut ahead) = (0u64, Duration::ZERO, 0);
            // Once at least, however long it took to come.
            while grants == 0 || now() < number(3) {
                let asked = Instant::now();
                let mut wait = std::pin::pin!(client.mutex(word(2)).lock());
                let guard = std::future::poll_fn(|cx| {
                    let ready = wait.as_mut().poll(cx);
                    ahead = ahead.max(wait.blocked_by().and_then(|busy| busy.ahead).unwrap_or(0));
                    ready
                });
                let guard = guard.await.unwrap();
                longest = longest.max(asked.elapsed());
                grants += 1;
                guard.release().await.unwrap();
            }
            say(&format!("{grants} {} {ahead}", longest.as_micros()));
        }
        "campaign" => {
            let election = client.election(word(2)).ttl(Duration::from_millis(number(4)));
            let term = election.campaign(word(3)).await.unwrap();
            say(&format!("leads {}", term.token()));
            let lost = term.lost().await;
            say(&format!("lost {lost:?}"));
        }
        "observe" => {
            let mut observer = client.election(word(2)).observe();
            say("observes");
            loop {
                let leader = observer.changed().await.unwrap();
                let (term, who) =
                    leader.as_ref().map_or((0, "nobody"), |leader| (leader.term.get(), &leader.candidate));
                say(&format!("sees {term} {who}"));
            }
        }
        "add" => {
            let cell = client.cell(word(2));
            for _ in 0..number(3) {
                cell.update(added).await.unwrap();
            }
        }
        "cancel" => cancel(client, words[2].parse().unwrap()).await,
        _ => return false,
    }
    true
}
/// One more than a cell's value.
pub fn added(value: Option<&[u8]>) -> String {
    (value.map_or(0, |n| std::str::from_utf8(n).unwrap().parse::<u64>().unwrap()) + 1).to_string()
}
/// Tasks that give up at random moments; says how many got it and how many were dropped. Then it stays, so that nothing is tidied up
/// by its end.
async fn cancel(client: Client, rounds: usize) {
    let tasks: Vec<_> = (0..5).map(|_| tokio::spawn(hasty(client.clone(), rounds))).collect();
    let (mut got, mut dropped) = (0, 0);
    for task in tasks {
        let one = task.await.unwrap();
        (got, dropped) = (got + one.0, dropped + one.1);
    }
    say(&format!("{got} {dropped}"));
    tokio::task::spawn_blocking(|| std::io::stdin().lines().next()).await.unwrap();
    assert_eq!(client.held(), 0);
}
/// How often it got what it wanted, and how often its future was dropped before.
async fn hasty(client: Client, rounds: usize) -> (usize, usize) {
    let (mut got, mut dropped) = (0, 0);
    let (ttl, can) = (Duration::from_secs(60), client.info().capabilities.clone());
    let short = || tokio::time::sleep(Duration::from_micros(fastrand::u64(0..300)));
    for round in 0..rounds {
        // Some wait for as long as it takes: they are not starved by those who come and go.
        let (patient, n) = (round % 8 == 0, fastrand::u8(0..2));
        let patience = if patient { 30_000_000 } else { fastrand::u64(0..60_000) };
        let attempt = async {
            match fastrand::u8(0..if patient { 4 } else { 5 }) {
                0 if can.read_write => {
                    drop((client.rw_lock(format!("rw{n}")).ttl(ttl).read().await.unwrap(), short().await))
                }
                1 if can.read_write => {
                    drop((client.rw_lock(format!("rw{n}")).ttl(ttl).write().await.unwrap(), short().await))
                }
                2 if can.permits => {
                    drop((client.semaphore(format!("s{n}"), 2).ttl(ttl).acquire(1).await.unwrap(), short().await))
                }
                0..=3 => drop((client.mutex(format!("m{n}")).ttl(ttl).lock().await.unwrap(), short().await)),
                // Somebody else has it all the time: nobody's turn comes, and sweeps up who is gone.
                _ => drop(client.mutex("held").ttl(ttl).lock().await.unwrap()),
            }
        };
        match tokio::time::timeout(Duration::from_micros(patience), attempt).await {
            Ok(()) => got += 1,
            Err(_) => dropped += 1,
        }
    }
    (got, dropped)
}
async fn obey(mut guard: Any, again: Mutex) {
    let (tx, mut rx) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || std::io::stdin().lines().map_while(Result::ok).for_each(|line| drop(tx.send(line))));
    while let Some(line) = rx.recv().await {
        match line.as_str() {
            "check" => say(&format!("checked {}", guard.is_valid())),
            "enter" => say(&format!("entered {}", matches!(again.try_lock().await, Ok(Ok(_))))),
            "downgrade" => {
                let Any::Alone(writer) = guard else { panic!("no writer") };
                guard = Any::Shared(writer.downgrade().await.unwrap());
                say("downgraded");
            }
            "release" => {
                let answer = guard.release().await;
                return say(&format!("released {}", answer.is_ok()));
            }
            other => panic!("no such order: {other}"),
        }
    }
}

/// Each of these takes its claim again and again and writes down from when to when it held, as lines for
/// [`parse`](super::parse). Who is alone adds one to the counter, a file, as nobody could beside somebody else. Until all rounds
/// are done, the end has come (after one round at least), or there is a file `LOG.stop`. The words are those of `spans`.
async fn record(claims: impl IntoIterator<Item = (Client, &str)>, words: &[String]) {
    // The last of a client's clones to go waits in this thread, which the others need.
    let claims: Vec<_> = claims.into_iter().collect();
    let task = |(client, what): &(Client, &str)| tokio::spawn(spans(client.clone(), words.to_vec(), claim(what)));
    let tasks: Vec<_> = claims.iter().map(task).collect();
    let mut log = String::new();
    for task in tasks {
        log.push_str(&task.await.unwrap());
    }
    fs::write(&words[4], log).unwrap();
}
async fn spans(client: Client, words: Vec<String>, claim: Claim) -> String {
    let number = |i: usize| words[i].parse::<u64>().unwrap();
    let mut log = String::new();
    for round in 0..number(5) {
        let asked = now();
        // Once at least, however long it took to come.
        if round > 0 && asked >= number(6) || Path::new(&format!("{}.stop", words[4])).exists() {
            break;
        }
        let (ttl, owner) = (Duration::from_secs(30), client.owner());
        let guard = Any::claim(&client, &words[2], claim, ttl, Duration::ZERO, &owner).await.unwrap();
        let start = now();
        if claim.is_exclusive() {
            let n: u64 = fs::read_to_string(&words[3]).unwrap_or_default().trim().parse().unwrap_or(0);
            tokio::task::yield_now().await;
            fs::write(&words[3], (n + 1).to_string()).unwrap();
        } else {
            // A grant comes after the one before it, on some engines 2 ms after: permits are kept long enough to be held side by side.
            let most = if claim == Claim::Read { 2_000 } else { 10_000 };
            tokio::time::sleep(Duration::from_micros(fastrand::u64(0..most))).await;
        }
        // Where holders may be cut off he may have lost it, and who judges knows whether he may.
        let checked = guard.check();
        let (end, alone, take) = (now(), u8::from(claim.is_exclusive()), claim.take());
        let span = format!("{start} {end} {alone} {take} {} {}\n", start - asked, guard.token());
        match checked.and(guard.release().await) {
            Ok(()) => log.push_str(&span),
            Err(error) => {
                assert!(error.kind() == ErrorKind::Lost, "{error}");
                log.push_str(LOST);
            }
        }
    }
    log
}
/// `mutex`, `read`, `write`, or `2/5`.
fn claim(what: &str) -> Claim {
    match what {
        "mutex" => Claim::Mutex,
        "read" => Claim::Read,
        "write" => Claim::Write,
        permits => {
            let (take, of) = permits.split_once('/').unwrap();
            Claim::Permits { take: take.parse().unwrap(), of: of.parse().unwrap() }
        }
    }
}
enum Any {
    Alone(Guard),
    Shared(SharedGuard),
}
impl Any {
    /// A mutex is the owner's.
    async fn claim(
        client: &Client,
        name: &str,
        claim: Claim,
        ttl: Duration,
        least: Duration,
        owner: &Owner,
    ) -> Result<Self> {
        let rw_lock = || client.rw_lock(name).ttl(ttl).at_least(least);
        Ok(match claim {
            Claim::Read => Self::Shared(rw_lock().read().await?),
            Claim::Write => Self::Alone(rw_lock().write().await?),
            Claim::Permits { take, of } => {
                Self::Shared(client.semaphore(name, of).ttl(ttl).at_least(least).acquire(take).await?)
            }
            _ => Self::Alone(client.mutex(name).ttl(ttl).at_least(least).reentrant(owner).lock().await?),
        })
    }
    fn token(&self) -> i64 {
        match self {
            Self::Alone(guard) => guard.token().get(),
            Self::Shared(_) => 0,
        }
    }
    async fn release(self) -> Result<()> {
        match self {
            Self::Alone(guard) => guard.release().await,
            Self::Shared(guard) => guard.release().await,
        }
    }
}
impl Deref for Any {
    type Target = Held;
    fn deref(&self) -> &Held {
        match self {
            Self::Alone(guard) => guard,
            Self::Shared(guard) => guard,
        }
    }
}
