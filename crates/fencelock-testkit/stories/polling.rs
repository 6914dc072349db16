//! Waiting where nothing tells that a turn has come: the same on every database, for the tests that bring `Server`, `NAME` and `polling`.
use super::*;

/// So many wait, each of them a client of its own.
const WAITERS: usize = 12;
/// The first hold, while which it is counted what they ask: it is twice as long in full, since some of that is asked every five seconds.
const HOLD: Duration = Duration::from_secs(10);

/// Whoever is in front asks some twenty times a second at most, everybody else once, and yet a lock changes hands soon after a release: by
/// the order in which they came. (Red: everybody looks as often as the first one.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_polls_asks_seldom_and_comes_soon() {
    // Who sleeps when it is his turn is passed: then once more, three times at most.
    for left in (0..3).rev() {
        let order = whoever_polls().await;
        if order.is_sorted() {
            return;
        }
        assert!(left > 0, "{order:?}");
    }
}
/// Many locks that were held for long, each with one who waits: each is handed off soon after its release. (Red at the bar alone: whoever has waited for long looks
/// once in a second.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_long_holds() {
    let server = Server::start();
    let (a, many) = (polling(&server.url()).await, tenth(30));
    let mut all = Vec::new();
    for n in 0..many {
        let (name, b) = (format!("x{n}"), polling(&server.url()).await);
        let held = a.mutex(&name).ttl(60 * SEC).lock().await.unwrap();
        let wait = tokio::spawn(b.mutex(&name).ttl(60 * SEC).lock());
        queued(&a, &name, 1).await;
        all.push((Instant::now(), held, wait));
    }
    let mut times = Vec::new();
    for (since, held, wait) in all {
        tokio::time::sleep(HOLD.saturating_sub(since.elapsed())).await;
        // Not all at the same moment of their looks.
        tokio::time::sleep(MS * fastrand::u32(0..200)).await;
        let freed = Instant::now();
        held.release().await.unwrap();
        let next = within("its turn", wait).await.unwrap().unwrap();
        times.push(freed.elapsed());
        next.release().await.unwrap();
    }
    let [half, slowest] = [0.5, 1.0].map(|p| percentile(&mut times, p));
    let figure = format!("p50 {half:?}, slowest {slowest:?}, of {many}");
    bar(&format!("{NAME}, polling: handed off after holds of {HOLD:?}"), figure, "<= 200 ms", slowest <= 200 * MS);
    // However busy the machine is.
    assert!(slowest < 5 * SEC, "{slowest:?}");
}
/// How many a second there were since then: between the first and the last one, since a second may begin and end with one.
fn rate(looks: &[Instant], since: Instant) -> f64 {
    let looks = &looks[looks.partition_point(|look| *look < since)..];
    let [first, .., last] = looks else { return 0.0 };
    f64::from(u32::try_from(looks.len() - 1).unwrap()) / (*last - *first).as_secs_f64()
}
/// Measures, where they come in their order; which that was.
async fn whoever_polls() -> Vec<usize> {
    let hold = if full() { 2 * HOLD } else { HOLD };
    let server = Server::start();
    let held = client(&server.url()).await.mutex("x").ttl(60 * SEC).lock().await.unwrap();
    let since = Instant::now();
    let freed = Arc::new(Mutex::new((Instant::now(), Vec::new(), Vec::new())));
    let (mut proxies, mut asked, mut waits) = (Vec::new(), Vec::new(), JoinSet::new());
    let other = client(&server.url()).await;
    for n in 0..WAITERS {
        let (proxy, url) = proxied(&server);
        // Looks, and all that it sends: a client also says that it lives, once for all who wait in it.
        let calls = Arc::<Mutex<[Vec<Instant>; 2]>>::default();
        let seen = calls.clone();
        proxy.rule(move |call| {
            let looks = ["refresh(", "watch("];
            let is_look = looks.iter().any(|look| call.windows(look.len()).any(|part| part == look.as_bytes()));
            seen.lock().unwrap()[usize::from(!is_look)..].iter_mut().for_each(|calls| calls.push(Instant::now()));
            Trouble::None
        });
        let (waiter, freed) = (polling(&url).await, freed.clone());
        waits.spawn(async move {
            for round in 0..2 {
                let guard = waiter.mutex("x").ttl(60 * SEC).lock().await.unwrap();
                let came = Instant::now();
                if let Ok(mut seen) = freed.lock() {
                    let took = came.duration_since(seen.0);
                    seen.1.push(took);
                    if round == 0 {
                        seen.2.push(n);
                    }
                }
                // What is done with it.
                tokio::time::sleep(Duration::from_millis(20 + u64::try_from(n * 7 % 20).unwrap())).await;
                freed.lock().unwrap().0 = Instant::now();
                guard.release().await.unwrap();
            }
        });
        queued(&other, "x", n + 1).await;
        proxies.push(proxy);
        asked.push(calls);
    }
    // They have come to rest: whoever has just come looks oftener for a while.
    tokio::time::sleep(4 * SEC).await;
    let began = Instant::now();
    tokio::time::sleep(hold.saturating_sub(since.elapsed())).await;
    let [rates, all] = [0, 1].map(|n| asked.iter().map(|it| rate(&it.lock().unwrap()[n], began)).collect::<Vec<_>>());
    freed.lock().unwrap().0 = Instant::now();
    held.release().await.unwrap();
    while let Some(done) = within("everybody has been in", waits.join_next()).await {
        done.unwrap();
    }
    let (_, mut times, order) = std::mem::replace(&mut *freed.lock().unwrap(), (began, Vec::new(), Vec::new()));
    assert_eq!(order.len(), WAITERS);
    if !order.is_sorted() {
        return order;
    }
    let first = times.remove(0);
    let of = times.len();
    let [half, most, slowest] = [0.5, 0.99, 1.0].map(|p| percentile(&mut times, p));
    let [others, all] = [&rates, &all].map(|it| it[1..].iter().copied().fold(0.0, f64::max));
    let what = format!("{NAME}, polling, {WAITERS} wait");
    println!("looks in each second: {rates:.2?}; all later hand-offs: {times:?}");
    bar(&format!("{what}: looks of the first in each second"), format!("{:.1}", rates[0]), "<= 25", rates[0] <= 25.0);
    bar(&format!("{what}: of each other one, at most"), format!("{others:.2}"), "<= 1", others <= 1.0);
    let figure = format!("{all:.2}");
    bar(
        &format!("{what}: with what says that its client lives, of each other one, at most"),
        figure,
        "<= 1",
        all <= 1.0,
    );
    bar(&format!("{what}: handed off after a hold of {hold:?}"), format!("{first:?}"), "<= 200 ms", first <= 200 * MS);
    let figure = format!("p50 {half:?}, p99 {most:?}, slowest {slowest:?}, of {of}");
    bar(&format!("{what}: handed off after holds of 20 to 40 ms, p50"), figure, "p50 <= 30 ms", half <= 30 * MS);
    order
}
