//! Waiting where nothing tells that a turn has come: how often it is asked, and how soon.
//!
//! Which fault was planted to see one go red stands at it.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
#[path = "../../fencelock-testkit/stories/polling.rs"]
mod stories;
use common::*;
use fencelock_conformance::{proxy::Trouble, within};
use fencelock_core::Client;
use fencelock_testkit::{
    MariaDb as Server,
    processes::{bar, full, percentile, tenth},
};
use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

const NAME: &str = "MariaDB";
async fn polling(url: &str) -> Client {
    client(url).await
}

/// One waits, behind a hold that lasts: what it asks is one packet in more than a second, and what the server does for it meanwhile is counted
/// there, with nobody else at work. (Red: it looks every 4 ms, however long the lock has been held.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_server_does_for_one_who_waits() {
    let server = Server::start();
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    let mut terminal = Session::new(&server);
    let status = |name: &str, terminal: &mut Session| {
        let ask = format!("SELECT variable_value FROM information_schema.global_status WHERE variable_name = '{name}'");
        terminal.ask(&ask).parse::<f64>().unwrap()
    };
    let held = a.mutex("x").ttl(60 * SEC).lock().await.unwrap();
    let seconds = async |terminal: &mut Session| {
        let names = ["QUESTIONS", "QUERIES", "COM_SELECT"];
        let (began, before) = (Instant::now(), names.map(|name| status(name, terminal)));
        tokio::time::sleep(3 * SEC).await;
        let after = names.map(|name| status(name, terminal));
        let took = began.elapsed().as_secs_f64();
        [0, 1, 2].map(|n| (after[n] - before[n]) / took)
    };
    let idle = seconds(&mut terminal).await;
    let wait = tokio::spawn(b.mutex("x").ttl(60 * SEC).lock());
    queued(&a, "x", 1).await;
    // It has come to rest.
    tokio::time::sleep(2 * SEC).await;
    let busy = seconds(&mut terminal).await;
    held.release().await.unwrap();
    within("its turn", wait).await.unwrap().unwrap().release().await.unwrap();
    let [packets, statements, reads] = [0, 1, 2].map(|n| busy[n] - idle[n]);
    let figure = format!("{reads:.0} of {statements:.0}, in {packets:.1} packets");
    bar(
        "MariaDB, polling, one waits: reads by the server in each second, of its statements",
        figure,
        "<= 150",
        reads <= 150.0,
    );
    assert!(packets <= 25.0, "{packets} packets");
}
