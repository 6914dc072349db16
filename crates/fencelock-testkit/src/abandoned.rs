//! Attempts whose runtime ends while what they sent is on its way.
use fencelock_core::Client;
use std::{
    panic,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};
use tokio::runtime::Builder;

/// Forty attempts of this client's, on four names of mutexes and four of semaphores, on a runtime that ends so long after it began.
///
/// ```no_run
/// # fn example(client: &fencelock_core::Client) {
/// use std::time::Duration;
/// let panics = fencelock_testkit::panics();
/// fencelock_testkit::abandon(client, Duration::from_millis(5));
/// assert_eq!(panics(), 0);
/// # }
/// ```
///
/// # Panics
/// Without threads.
pub fn abandon(client: &Client, after: Duration) {
    let client = client.clone();
    let all = thread::spawn(move || {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        for i in 0..20 {
            runtime.spawn(client.mutex(format!("undo-gone{}", i % 4)).lock());
            runtime.spawn(client.semaphore(format!("undo-gone{}-s", i % 4), 2).acquire(1));
        }
        thread::sleep(after);
    });
    all.join().expect("it ends");
}
/// From now on panics of all threads are counted; how many there were.
pub fn panics() -> impl Fn() -> usize {
    let (count, before) = (Arc::new(AtomicUsize::new(0)), panic::take_hook());
    let counted = count.clone();
    panic::set_hook(Box::new(move |info| {
        counted.fetch_add(1, SeqCst);
        before(info);
    }));
    move || count.load(SeqCst)
}
