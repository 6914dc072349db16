//! Somebody locks a table of ours, for the tests that bring `Server`, `claims`, what makes of a try one that waits, and `share_table`.
use super::*;

/// The end of a claim is judged after the last thing that it waits for (SAFETY A2). Of locks that were never there, and of some that were. (Red:
/// the lock's row is taken first.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_waited_for_a_table() {
    let server = Server::start();
    // Nothing of it cleans up meanwhile.
    client(&server.url()).await.shutdown(SEC).await.unwrap();
    let mut session = Session::new(&server);
    let asks: [(_, _, fn(&str) -> String); 7] = [
        ("lock", 0, share_table),
        ("holder", 1, share_table),
        ("holder", 3, lock_table),
        ("waiter", 0, lock_table),
        ("waiter", 2, share_table),
        ("client", 3, lock_table),
        ("cell", 0, lock_table),
    ];
    for (n, (table, at, locks)) in asks.into_iter().enumerate() {
        let (name, claim, _) = CLAIMS[at];
        for (end, answer) in [(200_000, "past"), (20_000_000, "done")].into_iter().take(1 + usize::from(n < 2)) {
            let name = format!("{name} {n} {end}");
            if n % 2 == 0 {
                server.ask(&claims(&name, claim, 1, 20_000_000));
            }
            let claims = claims(&name, claim, 900_000, end).replace(TRIES, WAITS);
            let locks = locks(&format!("fencelock_{table}"));
            let said = stories::that_waited_for(&locks, &server, &mut session, &claims).await;
            assert!(said.starts_with(answer), "{table} {name}: {said}");
        }
    }
}
