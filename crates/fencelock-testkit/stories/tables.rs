//! Somebody locks a table beside the lock's own, for the tests that bring `Server`, `claims`, and what makes a try of one one that waits.
use super::*;

/// The end of a claim is judged after the last thing that it waits for (SAFETY A2). Of locks that were never there, and of some that were. (Red:
/// the lock's row is taken first.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_waited_for_other_tables() {
    let server = Server::start();
    let a = client(&server.url()).await;
    let mut session = Session::new(&server);
    let asks = [("holder", 1), ("holder", 3), ("waiter", 0), ("waiter", 2), ("client", 0), ("client", 3)];
    for (n, (table, at)) in asks.into_iter().enumerate() {
        let (name, claim, _) = CLAIMS[at];
        for (end, answer) in [(200_000, "past"), (20_000_000, "done")].into_iter().take(1 + usize::from(n < 2)) {
            let name = format!("{name} {n} {end}");
            if n % 2 == 1 {
                Any::lock(&a, &name, claim, SEC).await.unwrap().release().await.unwrap();
            }
            let claims = claims(&name, claim, 900_000, end).replace(TRIES, WAITS);
            let said = stories::that_waited_for(&format!("fencelock_{table}"), &server, &mut session, &claims).await;
            assert!(said.starts_with(answer), "{table} {name}: {said}");
        }
    }
}
