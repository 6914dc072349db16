//! What the other processes do.
use crate::common::client;
use fencelock_core::{Chaos, Client, ErrorKind, Operation};
use fencelock_sqlite::{Config, SqliteEngine};
pub(crate) use fencelock_testkit::processes::{Worker, first_in, now, say};
use fencelock_testkit::processes::{added, play};
use std::{path::Path, sync::Arc, time::Duration};

pub(crate) fn main(words: &[String]) {
    let word = |i: usize| words[i].as_str();
    let database = Path::new(word(1)).to_owned();
    let number = |i: usize| word(i).parse::<u64>().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match word(0) {
        // add DB NAME ROUNDS SEED: each round adds one to a cell, over a link that loses every fifth reply; says how many it lost.
        "add" => runtime.block_on(async {
            let engine = SqliteEngine::open(Config::new(&database)).unwrap();
            let chaos = Arc::new(Chaos::new(Arc::new(engine)).seed(number(4)).lose_replies(0.2));
            let client = Client::builder(chaos.clone()).build().unwrap();
            let cell = client.cell(word(2));
            let mut answered = 0;
            for _ in 0..number(3) {
                let mut add = |value: Option<&[u8]>| {
                    answered += 1;
                    added(value)
                };
                while let Err(e) = cell.update(&mut add).await {
                    // A look whose reply was lost: nothing was written.
                    assert_eq!((e.kind(), e.operation()), (ErrorKind::Unreachable, "call"));
                }
            }
            say(&format!("lost {}", chaos.calls(Operation::CompareExchange) - answered));
        }),
        // dine DB DB COUNTERS LOG END_NS
        "dine" => runtime.block_on(crate::philosophers::dine(words)),
        // campaign DB CANDIDATE, observe DB: until killed.
        "campaign" => runtime.block_on(crate::election::campaign(words)),
        "observe" => runtime.block_on(crate::election::observe(words)),
        // exit DB NAME: says that it leaves, the guard is dropped, and main ends.
        "exit" => {
            let client = client(&database);
            let guard = runtime.block_on(client.mutex(word(2)).lock()).unwrap();
            say("leaves");
            drop(guard);
        }
        // stuck DB: inside a write transaction, until killed.
        "stuck" => {
            let conn = rusqlite::Connection::open(&database).unwrap();
            conn.busy_timeout(Duration::from_secs(5)).unwrap();
            conn.execute_batch("BEGIN IMMEDIATE").unwrap();
            say("inside");
            let _ = std::io::stdin().lines().next();
        }
        other => assert!(runtime.block_on(play(client(&database), words)), "no such worker: {other}"),
    }
}
/// Until this many wait for the lock.
pub(crate) fn queued(folder: &crate::common::Folder, n: i64) {
    crate::common::eventually("queued", Duration::from_secs(10), || {
        folder.count("SELECT count(*) FROM fencelock_waiter") == n
    });
}
