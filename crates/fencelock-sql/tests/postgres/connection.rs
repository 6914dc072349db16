//! A connection that breaks.
use super::{broken::*, guard::locks, *};
use fencelock_conformance::proxy::{Proxy, Trouble};

/// What broke off is not written, and a commit that did so is told as what it is. (Red: a commit whose answer was lost is a failure.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_any_message() {
    let server = accounts();
    server.ask("ALTER TABLE account ADD fence_token bigint, ADD fence_owner text");
    fencelock_sql::fence::create_table(&mut connect(&server).await).await.unwrap();
    let proxy = Proxy::postgres(([127, 0, 0, 1], server.port()).into());
    let url = server.url().replace(&format!("127.0.0.1:{}", server.port()), &proxy.address().to_string());
    let held = locks(&server.url()).await.mutex("x").lock().await.unwrap();
    let version = || server.ask("SELECT version FROM account WHERE id = 1").parse::<i64>().unwrap();
    let mut committed = 0;
    for call in ["lock", "update", "fence", "named fence", "guard", "commit"] {
        for trouble in TROUBLES {
            for n in 0.. {
                proxy.calm();
                let (mut db, before) = (connect_by(&url).await, version());
                let met = breaks(&proxy, begin(&mut db).await, before, (call, Some(&held)), (n, trouble)).await;
                // Whoever is next waits for no one who is gone.
                server.ask("UPDATE account SET owner = 'next'");
                let written = version() > before;
                if !met {
                    assert!(written && n > 0, "{call}, {trouble:?}, {n}");
                    break;
                }
                assert!(!written || (call, trouble) == ("commit", Trouble::LoseReply), "{call}, {trouble:?}, {n}");
                committed += u32::from(written);
            }
        }
    }
    assert_eq!(committed, 1, "a commit whose answer was lost");
    held.release().await.unwrap();
}
