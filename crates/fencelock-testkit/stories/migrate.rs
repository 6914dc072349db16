//! An account that may use the tables and not make them: the same on every database, for the tests that bring `connect`, `Config`, `ROLE`,
//! `NOBODY`, `LEFT`, `PAGE`, `start`, `app` and `drop_by`.
use super::*;
use fencelock_core::{Client, Error, Guard, Released, Result, Version};

pub(super) async fn everything(url: &str) {
    let (a, b) = (client(url).await, client(url).await);
    let held = a.mutex("m").ttl(6 * SEC).lock().await.unwrap();
    // Some engines tell a loss with the next renewal, and some have no queue.
    let waiting = tokio::spawn(b.mutex("m").ttl(6 * SEC).lock());
    if !url.contains("strategy=shedlock") {
        queued(&a, "m", 1).await;
    }
    assert_eq!(a.list("", &Default::default()).await.unwrap().items.len(), 1);
    held.release().await.unwrap();
    let held = soon(waiting).await.unwrap().unwrap();
    assert_eq!(soon(a.force_release("m", held.token())).await.unwrap(), Released::Released);
    soon(held.lost()).await;
    soon(a.election("e").campaign("ann")).await.unwrap().resign().await.unwrap();
    let can = a.info().capabilities.clone();
    if can.read_write {
        let writer = a.rw_lock("rw").write().await.unwrap();
        writer.downgrade().await.unwrap().release().await.unwrap();
    }
    if can.permits {
        a.semaphore("s", 2).acquire(2).await.unwrap().release().await.unwrap();
        a.semaphore("s", 2).resize(2, 3).await.unwrap();
        a.semaphore("s", 3).resize(3, 2).await.unwrap();
    }
    if can.cells {
        a.cell("c").update(|_| b"v".to_vec()).await.unwrap();
        assert_eq!(a.cell("c").load().await.unwrap().value.as_deref(), Some(&b"v"[..]));
    }
    if can.tickets {
        let ticket = a.mutex("t").lock().await.unwrap().into_ticket().await.unwrap();
        b.adopt(&ticket).await.unwrap().release().await.unwrap();
    }
}

/// Rights are one's own. (Red: an account without a name, and `public` in quotes, which are everybody all the same.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn not_for_everybody() {
    let server = start();
    let admin = Config::from_url(&server.url()).unwrap();
    for role in NOBODY {
        for error in
            [admin.schema(Some(role)).await.map(drop).unwrap_err(), admin.migrate(Some(role)).await.unwrap_err()]
        {
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
        }
    }
    let made = "SELECT count(*) FROM information_schema.tables WHERE table_name LIKE 'fencelock%'";
    assert_eq!(server.ask(made), "0");
}
/// What there is to ask for; the refusals.
async fn refusals(a: &Client) -> Vec<Error> {
    async fn ended(guard: Result<Guard>) -> Option<Error> {
        // What was granted may be refused when it is given back.
        match guard {
            Ok(guard) => guard.release().await.err(),
            Err(error) => Some(error),
        }
    }
    let (mut refused, can) = (Vec::new(), a.info().capabilities.clone());
    refused.extend(ended(soon(a.mutex("tried").ttl(5 * SEC).try_lock()).await.map(std::result::Result::unwrap)).await);
    refused.extend(ended(soon(a.mutex("locked").ttl(5 * SEC).lock()).await).await);
    if can.permits {
        let got = soon(a.semaphore("permits", 2).ttl(5 * SEC).acquire(1)).await;
        refused.extend(match got {
            Ok(guard) => guard.release().await.err(),
            Err(error) => Some(error),
        });
    }
    if can.cells {
        refused.extend(a.cell("cell").compare_exchange(Version::NONE, b"1".as_slice()).await.err());
    }
    refused.extend(a.inspect("tried").await.err());
    refused
}
/// One right after the other is taken away, while something is held and something else is asked for: whoever needs it is told what to do, and
/// loses nothing; when it is given again nothing is held, and everything goes on. (Red: told as anything that the server refuses.)
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rights_that_are_taken_away() {
    for (more, left, rights) in LEFT {
        let server = start();
        let admin = Config::from_url(&(server.url() + more)).unwrap();
        admin.migrate(Some(ROLE)).await.unwrap();
        let (a, mut needed) = (client(&app(&server, more)).await, 0);
        for right in rights {
            let held = soon(a.mutex("held").ttl(60 * SEC).lock()).await.unwrap();
            let given_back = soon(a.mutex("given back").ttl(15 * SEC).lock()).await.unwrap();
            server.ask(&format!("REVOKE {right}"));
            let mut refused = refusals(&a).await;
            // A session that cannot give back one hold ends, and with it that hold: another of its ttl's, not of `held`'s.
            let released = soon(given_back.release()).await.err();
            refused.extend(released.filter(|error| more.is_empty() || error.kind() != ErrorKind::Lost));
            held.check().unwrap();
            needed += usize::from(!refused.is_empty());
            println!("{more} without {right}: {} refusals", refused.len());
            for error in refused {
                assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{more} without {right}: {error}");
                assert!(error.to_string().contains("fencelock migrate"), "{more} without {right}: {error}");
            }
            admin.migrate(Some(ROLE)).await.unwrap();
            soon(held.release()).await.unwrap();
            eventually("nothing is left", || async { server.ask(left) == "0" }).await;
            let again = refusals(&a).await;
            assert!(again.is_empty(), "{more} with {right} again: {again:?}");
            server.ask("DELETE FROM fencelock_cell");
        }
        assert!(needed * 2 > rights.len(), "{more}: only {needed} of {} rights are needed", rights.len());
    }
}
/// Clean-up, too: it comes with the first client when records are to go soon.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_cleans_up() {
    let server = start();
    Config::from_url(&server.url()).unwrap().migrate(Some(ROLE)).await.unwrap();
    let ours = client(&app(&server, "?retention=1s")).await;
    ours.mutex("old").lock().await.unwrap().release().await.unwrap();
    eventually("it has gone", || async { server.ask("SELECT count(*) FROM fencelock_lock") == "0" }).await;
}
/// Many come at once to a database that has nothing. (Red: no turn; whoever has his turn makes them without another look.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_make_it_at_once() {
    let server = start();
    let come = |_| tokio::spawn(connect(Config::from_url(&(server.url() + "?strategy=shedlock")).unwrap()));
    for one in (0..12).map(come).collect::<Vec<_>>() {
        tokio::time::timeout(6 * LONG, one).await.unwrap().unwrap().unwrap();
    }
}
/// Tables of another version are refused, and what the engine's page says drops all that is ours: the next client makes its own, and tokens go on
/// rising. What guards the users' own data stays. (Red: a statement of the page that leaves the procedures, and one that takes the fences.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_version() {
    let server = start();
    connect(Config::from_url(&(server.url() + "?strategy=shedlock")).unwrap()).await.unwrap();
    let before = client(&server.url()).await.mutex("x").lock().await.unwrap().token();
    let version = server.ask("SELECT max(version) FROM fencelock_meta");
    assert!(PAGE.contains(&format!("this one has {version})")), "it has {version}");
    FENCES.iter().for_each(|statement| drop(server.ask(statement)));
    server.ask("UPDATE fencelock_meta SET version = version - 1");
    let error = connect(Config::from_url(&server.url()).unwrap()).await.map(drop).unwrap_err();
    assert!(error.to_string().contains("is another set of locks"), "{error}");
    let (_, says) = PAGE.split_once("**Another version.**").unwrap();
    let (_, says) = says.split_once("```sql\n").unwrap();
    drop_by(&server, says.split_once("```").unwrap().0);
    for (what, left) in [("table", "fencelock_fence"), ("routine", FENCE_ROUTINES)] {
        let ask = format!("SELECT {what}_name FROM information_schema.{what}s WHERE {what}_name LIKE 'fencelock%'");
        assert_eq!(server.ask(&ask), left);
    }
    assert_eq!(server.ask("SELECT token FROM fencelock_fence"), "7");
    assert_eq!(
        server.ask("SELECT count(*) FROM information_schema.triggers WHERE trigger_name LIKE 'fencelock%'"),
        "1"
    );
    let next = client(&server.url()).await.mutex("x").lock().await.unwrap();
    assert!(next.token() > before);
    next.release().await.unwrap();
}
