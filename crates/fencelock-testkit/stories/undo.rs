//! Attempts that are given up while their commands are lost, late or doubled, their connections cut and the server stalled: the same on
//! every database, for the tests that bring `Server`, `NAME`, `LEASES` and `SESSIONS`, which count what is left.
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
    let batches = if full() { 40 } else { 1 };
    // A session's command over another connection would be another session's.
    let (server, is_session) = (Arc::new(Server::start()), left == SESSIONS);
    let seed = Arc::new(AtomicU64::new(1));
    let (proxy, url) = proxied(&server);
    let (proxy, c) = (Arc::new(proxy), client(&format!("{url}{query}")).await);
    let (mut longest, mut granted, met) = (Duration::ZERO, 0, Arc::<AtomicU32>::default());
    // On a machine that does a lot else nobody may be in time.
    let mut batch = 0;
    while batch < batches || (granted == 0 && batch < 5 * batches) {
        let (dices, many) = (seed.clone(), met.clone());
        proxy.rule(move |command| {
            if !command.windows(10).any(|part| part == b"fencelock_") {
                return Trouble::None;
            }
            let trouble = match dice(&dices) % 100 {
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
