//! A connection that breaks.
use super::{broken::*, *};
use fencelock_conformance::proxy::{Proxy, Trouble};

/// What broke off is not written, and a commit that did so is told as what it is. (Red: a commit whose answer was lost is a failure.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_any_message() {
    let server = accounts(&[]);
    server.ask("ALTER TABLE account ADD fence_token bigint, ADD fence_owner varbinary(99)");
    fencelock_sql::fence::create_table(&mut connect(&server).await).await.unwrap();
    let proxy = Proxy::mysql(([127, 0, 0, 1], server.port()).into());
    let url = server.url().replace(&format!("127.0.0.1:{}", server.port()), &proxy.address().to_string());
    // Not past it, by a socket of the server's.
    let opts = OptsBuilder::from_opts(Opts::from_url(&url).unwrap()).prefer_socket(false);
    let version = || server.ask("SELECT version FROM account WHERE id = 1").parse::<i64>().unwrap();
    let mut committed = 0;
    for call in ["lock", "update", "fence", "named fence", "commit"] {
        for trouble in TROUBLES {
            for n in 0.. {
                proxy.calm();
                let (mut db, before) = (Conn::new(opts.clone()).await.unwrap(), version());
                let met = breaks(&proxy, begin(&mut db).await, before, (call, None), (n, trouble)).await;
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
}
