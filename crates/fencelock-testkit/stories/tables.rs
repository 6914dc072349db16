//! Somebody locks a table of ours, for the tests that bring `Server`, `claims`, `writes`, `bears`, what makes of a try one that
//! waits, and `share_table`.
use super::*;

/// The end of a claim is judged after the last thing that it waits for (SAFETY A2). Of locks that were never there, and of some that were. (Red:
/// the lock's row is taken first.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_waited_for_a_table() {
    let server = Server::start();
    // Nothing of it cleans up meanwhile.
    client(&server.url()).await.shutdown(SEC).await.unwrap();
    let mut session = Session::new(&server);
    let asks = [
        ("lock", 0, true),
        ("holder", 1, true),
        ("holder", 3, false),
        ("waiter", 0, false),
        ("waiter", 2, true),
        ("client", 3, false),
        ("cell", 0, false),
    ];
    for (n, (table, at, shares)) in asks.into_iter().enumerate() {
        let (name, claim, _) = CLAIMS[at];
        for (end, answer) in [(200_000, "past"), (20_000_000, "done")].into_iter().take(1 + usize::from(n < 2)) {
            let name = format!("{name} {n} {end}");
            if n % 2 == 0 {
                server.ask(&claims(&name, claim, 1, 20_000_000));
            }
            let claims = claims(&name, claim, 900_000, end).replace(TRIES, WAITS);
            let table = format!("fencelock_{table}");
            let locks = if shares { share_table(&table) } else { lock_table(&table) };
            let said = stories::that_waited_for(&locks, &server, &mut session, &claims).await;
            assert!(said.starts_with(answer), "{table} {name}: {said}");
        }
    }
}
/// While it waits for the table it keeps no row (SAFETY E2): whoever else comes is not held up by it, and nothing that it has read grows old. (Red: a write
/// or a session's claim takes the row first.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_waits_for_a_table_keeps_no_row() {
    let server = Server::start();
    client(&server.url()).await.shutdown(SEC).await.unwrap();
    let mut session = Session::new(&server);
    let (name, claim, _) = CLAIMS[0];
    ["session", name].iter().for_each(|name| drop(server.ask(&claims(name, claim, 1, 20_000_000))));
    for statement in [claims(name, claim, 1, 20_000_000).replace(TRIES, WAITS), bears("session"), writes(name)] {
        session.ask(&lock_table("fencelock_client"));
        let waits = terminal(&server, &statement).stdout(Stdio::piped()).spawn().unwrap();
        eventually("it waits", || std::future::ready(server.ask(BLOCKED) == "1")).await;
        let free = "SELECT COUNT(*) FROM (SELECT name FROM fencelock_lock FOR UPDATE SKIP LOCKED) AS them";
        assert_eq!(server.ask(free), "2", "{statement}");
        session.ask(UNLOCK_TABLE);
        let said = block_in_place(|| waits.wait_with_output()).unwrap();
        assert!(said.stdout.starts_with(b"done"), "{statement}: {}", String::from_utf8_lossy(&said.stdout));
    }
}
