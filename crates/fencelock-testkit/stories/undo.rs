//! Attempts that are given up while their commands are lost, late or doubled, their connections cut and the server stalled: the same on
//! every database, for the tests that bring `Server`, `NAME`, `LEASES`, `SHARED` and `SESSIONS`, which count what is left, and
//! `SESSION_CLAIMS`: how many of the claims sessions have.
use super::*;

/// So long a lease would last.
const TTL: Duration = Duration::from_secs(60);
/// Attempts at a time, on a fifth as many names.
const BATCH: usize = 250;

/// As if by dice, from a counter: the same in each run as far as the order of commands is.
fn dice(seed: &AtomicU64) -> u64 {
    let mut x = seed.fetch_add(0x9e37_79b9_7f4a_7c15, SeqCst);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
/// It stands still for a moment now and then, and now and then all connections are cut, until it is said.
fn stalls(
    server: Arc<Server>,
    proxy: Arc<Proxy>,
    seed: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        for turn in 0.. {
            if ended.load(SeqCst) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20 + dice(&seed) % 100));
            if turn % 4 == 1 {
                proxy.cut();
            }
            server.pause(true);
            std::thread::sleep(Duration::from_millis(dice(&seed) % 120));
            server.pause(false);
        }
    })
}
/// How long it takes until nothing is left.
async fn clean(server: &Server, left: &str) -> Duration {
    let began = Instant::now();
    loop {
        let many = block_in_place(|| server.ask(left));
        if many == "0" {
            return began.elapsed();
        }
        assert!(began.elapsed() < TTL / 4, "{many} are left");
        tokio::time::sleep(10 * MS).await;
    }
}
/// Of those who want them: what is left of each ends with the attempt, long before its lease would (SAFETY A2, A3).
pub(super) async fn no_orphan_outlives_its_attempt(
    what: &str,
    query: &str,
    claims: &'static [(&str, Claim, Claim)],
    left: &str,
) {
    let server = Server::start();
    let (proxy, url) = proxied(&server);
    no_orphan_by(what, (server, proxy), &format!("{url}{query}"), claims, left).await;
}
/// The same by this way.
pub(super) async fn no_orphan_by(
    what: &str,
    (server, proxy): (Server, Proxy),
    url: &str,
    claims: &'static [(&str, Claim, Claim)],
    left: &str,
) {
    let batches = if full() { 40 } else { 1 };
    // A session's command over another connection would be another session's.
    let (server, is_session) = (Arc::new(server), left == SESSIONS);
    // Many readers at once are in one session: what befalls one of them befalls all.
    let of = if is_session && claims.len() > 1 { 400 } else { 100 };
    let seed = Arc::new(AtomicU64::new(1));
    let (proxy, c) = (Arc::new(proxy), client(url).await);
    let (mut longest, mut granted, met) = (Duration::ZERO, 0, Arc::<AtomicU32>::default());
    // On a machine that does a lot else nobody may be in time.
    let mut batch = 0;
    while batch < batches || (granted == 0 && batch < 5 * batches) {
        let (dices, many) = (seed.clone(), met.clone());
        proxy.rule(move |command| {
            if !command.windows(10).any(|part| part == b"fencelock_") {
                return Trouble::None;
            }
            let trouble = match dice(&dices) % of {
                0..3 => Trouble::LoseReply,
                3 => Trouble::Lose,
                4 if !is_session => Trouble::Twice,
                n @ 5..8 if !is_session => Trouble::Late(60 * MS * u32::try_from(n - 4).unwrap()),
                _ => return Trouble::None,
            };
            many.fetch_add(1, SeqCst);
            trouble
        });
        let done = Arc::<AtomicBool>::default();
        let stalls = stalls(server.clone(), proxy.clone(), seed.clone(), done.clone());
        let tasks: Vec<_> = (0..BATCH)
            .map(|i| {
                let (name, claim, _) = claims[i % claims.len()];
                let (c, name) = (c.clone(), format!("{name}{batch}/{}", i % (BATCH / 5)));
                let (patience, gives_back) =
                    (Duration::from_micros(dice(&seed) % 1_000_000), dice(&seed).is_multiple_of(2));
                tokio::spawn(async move {
                    // Dropped in the middle of it, if it is not granted in time.
                    let attempt = Any::lock(&c, &name, claim, TTL);
                    let Ok(Ok(guard)) = tokio::time::timeout(patience, attempt).await else { return 0 };
                    if gives_back {
                        let _ = guard.release().await;
                    }
                    1
                })
            })
            .collect();
        for task in tasks {
            granted += task.await.unwrap();
        }
        done.store(true, SeqCst);
        block_in_place(|| stalls.join().unwrap());
        proxy.calm();
        longest = longest.max(clean(&server, left).await);
        assert_eq!(c.held(), 0);
        batch += 1;
    }
    let (attempts, met) = (batch * BATCH, met.load(SeqCst));
    assert!(granted > 0 && met > 0, "the run must bite: {granted} granted, {met} in trouble");
    let figure = format!("{longest:?} of {attempts} ({granted} granted, {met} commands in trouble)");
    let what = format!("{what}: attempts given up amid troubled commands, cuts and stalls: what is left ends after");
    bar(&what, figure, "<= 6 s", longest <= 6 * SEC);
}
/// (Red: a withdrawal that does nothing.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_orphan_of_a_lease() {
    no_orphan_outlives_its_attempt(NAME, "", &CLAIMS, LEASES).await;
}
/// Without any withdrawal its server ends what nobody confirms: after 1.7 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_orphan_of_a_session() {
    no_orphan_outlives_its_attempt(&format!("{NAME}, sessions"), "?strategy=session", &CLAIMS[..1], SESSIONS).await;
}
/// In rows that are shared with ShedLock. (Red: a withdrawal that does nothing.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_orphan_of_a_shared_row() {
    no_orphan_outlives_its_attempt(&format!("{NAME}, ShedLock's table"), "?strategy=shedlock", &CLAIMS[..1], SHARED)
        .await;
}
/// Polls it so often at most, each time when it was woken, and drops it if it is not ready then.
async fn polled<T>(what: impl Future<Output = T>, many: u32) -> Option<T> {
    let (mut what, mut left) = (std::pin::pin!(what), many);
    std::future::poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match what.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
/// What is dropped at each of its points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drops {
    /// The first call of a client, which connects for it.
    First,
    Free,
    /// What somebody else has, and gives back meanwhile.
    Taken,
    Release,
}
/// A call is dropped after it was polled 0, 1, 2 … times, until it is ready before that: nothing is held then, nobody waits, and the next call
/// of the same client comes through (SAFETY A3).
pub(super) async fn dropped_at_every_point(
    what: &str,
    query: &str,
    claims: &'static [(&str, Claim, Claim)],
    left: &str,
) {
    let server = Server::start();
    let url = server.url() + query;
    let (ours, other) = (client(&url).await, client(&url).await);
    for &(name, claim, beside) in claims {
        for drops in [Drops::First, Drops::Free, Drops::Taken, Drops::Release] {
            let mut points = 0;
            while !is_done_after(points, drops, (name, claim, beside), &url, [&ours, &other], (&server, left)).await {
                points += 1;
                assert!(points < 500, "{drops:?} of {claim:?} is never done");
            }
            println!("{what}: {drops:?} of {claim:?} was dropped at {points} points");
        }
    }
}
async fn is_done_after(
    points: u32,
    drops: Drops,
    (name, claim, beside): (&str, Claim, Claim),
    url: &str,
    [ours, other]: [&Client; 2],
    (server, left): (&Server, &str),
) -> bool {
    let c = if drops == Drops::First { client(url).await } else { ours.clone() };
    let gives = match drops {
        Drops::Taken => {
            let held = Any::lock(other, name, beside, TTL).await.unwrap();
            let soon = Duration::from_micros(fastrand::u64(0..8_000));
            Some(tokio::spawn(async move {
                tokio::time::sleep(soon).await;
                held.release().await
            }))
        }
        _ => None,
    };
    let is_done = if drops == Drops::Release {
        let held = Any::lock(&c, name, claim, TTL).await.unwrap();
        polled(held.release(), points).await.map(Result::unwrap).is_some()
    } else {
        match polled(Any::lock(&c, name, claim, TTL), points).await {
            Some(held) => held.unwrap().release().await.is_ok(),
            None => false,
        }
    };
    if let Some(gives) = gives {
        gives.await.unwrap().unwrap();
    }
    clean(server, left).await;
    assert_eq!(c.held(), 0, "{drops:?} of {claim:?} after {points}");
    let next = soon(Any::lock(&c, name, claim, TTL)).await.unwrap();
    next.release().await.unwrap();
    clean(server, left).await;
    is_done
}
/// (Red: a guard that is dropped in its release is not released again.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_is_dropped_at_every_point() {
    dropped_at_every_point(NAME, "", &CLAIMS, LEASES).await;
}
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_is_dropped_at_every_point() {
    let what = format!("{NAME}, sessions");
    dropped_at_every_point(&what, "?strategy=session", &CLAIMS[..SESSION_CLAIMS], SESSIONS).await;
}
/// (Red: a release of another row.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shared_row_that_is_dropped_at_every_point() {
    dropped_at_every_point(&format!("{NAME}, ShedLock's table"), "?strategy=shedlock", &CLAIMS[..1], SHARED).await;
}
/// The runtime of those who ask is gone while their commands are on the way. What becomes of them is seen to elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_whose_runtime_is_gone_leaves_nothing() {
    let (server, panics) = (Server::start(), panics());
    let (proxy, url) = proxied(&server);
    let c = client(&url).await;
    for round in 0..if full() { 50 } else { 3 } {
        proxy.delay(fastrand::u32(0..40) * MS);
        block_in_place(|| abandon(&c, 20 * MS * (round % 6)));
        proxy.delay(Duration::ZERO);
        clean(&server, LEASES).await;
    }
    assert_eq!(panics(), 0);
}
