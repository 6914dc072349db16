//! Uncontended pairs a second, ours beside the bare driver making the same calls on the same runtime flavour, a connection for each of its
//! tasks, in turns in one run; and hand-overs between clients who hold for 20 to 40 ms.
#![allow(clippy::unwrap_used, clippy::cast_precision_loss, reason = "a benchmark fails where it unwraps")]
use fencelock_core::Client;
use fencelock_mysql::MysqlEngine;
use fencelock_testkit::{MariaDb, processes::percentile};
use mysql_async::{Conn, Opts, Row, prelude::Queryable};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

const TURNS: usize = 5;
const TURN: Duration = Duration::from_millis(600);

fn main() {
    compare(1, &[]);
    compare(16, &[]);
    compare(16, &["--innodb-flush-log-at-trx-commit=1"]);
    handed_over(2);
    handed_over(16);
}
fn runtime(tasks: usize) -> tokio::runtime::Runtime {
    let mut builder = if tasks == 1 {
        tokio::runtime::Builder::new_current_thread()
    } else {
        tokio::runtime::Builder::new_multi_thread()
    };
    builder.enable_all().build().unwrap()
}
async fn client(server: &MariaDb) -> Client {
    Client::builder(Arc::new(MysqlEngine::from_url(&server.url()).await.unwrap())).build().unwrap()
}
fn compare(tasks: usize, settings: &[&str]) {
    let server = MariaDb::with(settings);
    let runtime = runtime(tasks);
    let (client, conns) = runtime.block_on(async {
        let client = client(&server).await;
        let mut conns = Vec::new();
        for _ in 0..tasks {
            let mut conn = Conn::new(Opts::from_url(&(server.url() + "?prefer_socket=false")).unwrap()).await.unwrap();
            conn.query_drop("SET time_zone = '+00:00', innodb_lock_wait_timeout = 1").await.unwrap();
            conns.push(Arc::new(tokio::sync::Mutex::new(conn)));
        }
        (client, conns)
    });
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for turn in 0..=TURNS {
        let b = runtime.block_on(run(tasks, |task| {
            let conn = conns[task].clone();
            let mut n = task as u64 * 1_000_000_000;
            move || {
                n += 1;
                let (conn, hold) = (conn.clone(), format!("{n:032x}"));
                async move { pair(&mut *conn.lock().await, &format!("{:02x}", task + 1), &hold).await }
            }
        }));
        let a = runtime.block_on(run(tasks, |task| {
            let lock = client.mutex(format!("ours{task}"));
            move || {
                let lock = lock.clone();
                async move { lock.lock().await.unwrap().release().await.unwrap() }
            }
        }));
        if turn > 0 {
            ours.push(a);
            bare.push(b);
        }
    }
    let (ours, bare) = (median(ours), median(bare));
    let ratio = ours / bare;
    println!(
        "MEASURED | MariaDB pairs, {tasks} tasks{}, to the bare driver | {ratio:.2} ({ours:.0} to {bare:.0} pairs/s) | >= 0.9 | {}",
        if settings.is_empty() { "" } else { ", flushed at each commit" },
        if ratio >= 0.9 { "ok" } else { "MISSED" }
    );
}
/// What ours sends for `lock` and `release`.
async fn pair(conn: &mut Conn, name: &str, hold: &str) {
    let call = format!(
        "CALL fencelock_acquire(X'',X'{name}',X'{hold}',X'6d75746578',X'6d',1,0,30000000,9000000000000000,0,true,X'{hold}',X'686f737420312000')"
    );
    let row: Row = conn.query_first(call).await.unwrap().unwrap();
    let token: i64 = row.get("number").unwrap();
    let call = format!("CALL fencelock_release(X'',X'{name}',X'{hold}',{token})");
    let row: Row = conn.query_first(call).await.unwrap().unwrap();
    assert_eq!(row.get::<String, _>("code").unwrap(), "done");
}
/// From the call of `release` until another client has it.
fn handed_over(clients: u64) {
    let server = MariaDb::start();
    let runtime = runtime(2);
    let (freed, all) = (Arc::new(Mutex::new(None::<Instant>)), Arc::new(Mutex::new(Vec::new())));
    runtime.block_on(async {
        let mut work = Vec::new();
        for _ in 0..clients {
            let (lock, freed, all) = (client(&server).await.mutex("handoff"), freed.clone(), all.clone());
            work.push(tokio::spawn(async move {
                for _ in 0..(160 / clients).max(10) {
                    let guard = lock.lock().await.unwrap();
                    if let Some(freed) = freed.lock().unwrap().take() {
                        all.lock().unwrap().push(freed.elapsed());
                    }
                    tokio::time::sleep(Duration::from_millis(fastrand::u64(20..40))).await;
                    *freed.lock().unwrap() = Some(Instant::now());
                    guard.release().await.unwrap();
                }
            }));
        }
        for one in work {
            one.await.unwrap();
        }
    });
    let mut all = std::mem::take(&mut *all.lock().unwrap());
    let (p50, p99) = (percentile(&mut all, 0.5), percentile(&mut all, 0.99));
    println!(
        "MEASURED | hand-over between {clients} clients on MariaDB after holds of 20 to 40 ms, p50 | {p50:.2?} (p99 {p99:.2?}) | <= 30 ms | {}",
        if p50 <= Duration::from_millis(30) { "ok" } else { "MISSED" }
    );
}
fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}
/// How many a second all of them do.
async fn run<W, F>(tasks: usize, work: impl Fn(usize) -> W) -> f64
where
    W: FnMut() -> F + Send + 'static,
    F: Future<Output = ()> + Send,
{
    let (done, began) = (Arc::new(AtomicU64::new(0)), Instant::now());
    let all: Vec<_> = (0..tasks)
        .map(|task| {
            let (mut work, done) = (work(task), done.clone());
            tokio::spawn(async move {
                while began.elapsed() < TURN {
                    work().await;
                    done.fetch_add(1, Relaxed);
                }
            })
        })
        .collect();
    for one in all {
        one.await.unwrap();
    }
    done.load(Relaxed) as f64 / began.elapsed().as_secs_f64()
}
