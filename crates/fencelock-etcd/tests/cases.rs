//! Cases of the peers' own suites that are about etcd.
//!
//! Planted to see them go red: a watch whose beginning is forgotten, and nobody is told; leases that stay when their client shuts down.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_conformance::{eventually, within};
use fencelock_core::{Client, Engine, Released};
use fencelock_etcd::{Config, EtcdEngine};
use fencelock_testkit::{Etcd, EtcdOptions, Folder};
use std::{
    io::Write,
    process::{Child, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

async fn waiters(client: &Client, name: &str, n: usize) {
    eventually("they wait", || async { client.inspect(name).await.unwrap().waiters.len() == n }).await;
}
/// The leases of all keys that begin so, in the order of the keys' making.
fn leases(etcd: &Etcd, prefix: &str) -> Vec<i64> {
    let said = etcd.run(&["get", "--prefix", prefix, "--sort-by=CREATE", "-w", "fields"]);
    said.lines().filter_map(|line| line.strip_prefix("\"Lease\" : ")).map(|lease| lease.parse().unwrap()).collect()
}

/// One lease serves one hold after the other, and an owner enters again; another one of the same client waits, by another lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_locks_again() {
    let etcd = Etcd::start();
    let client = client(&etcd, 30 * SEC).await;
    let owner = client.owner();
    let mine = client.mutex("m").reentrant(&owner);
    let first = within("free", mine.lock()).await.unwrap();
    let lease = leases(&etcd, "fencelock/m/");
    let again = within("it is mine", mine.lock()).await.unwrap();
    assert_eq!(first.token(), again.token());
    again.release().await.unwrap();
    first.check().unwrap();
    let other = client.owner();
    let theirs = tokio::spawn(client.mutex("m").reentrant(&other).lock());
    waiters(&client, "m", 1).await;
    let both = leases(&etcd, "fencelock/m/");
    assert!(both.len() == 2 && both[0] == lease[0] && both[1] != lease[0], "{both:?}");
    first.release().await.unwrap();
    within("their turn", theirs).await.unwrap().unwrap().release().await.unwrap();
    within("free", mine.lock()).await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ttl_that_is_asked_for_is_the_leases() {
    let etcd = Etcd::start();
    let client = client(&etcd, 30 * SEC).await;
    for (ttl, seconds) in [(Duration::from_millis(4_500), 5), (7 * SEC, 7), (60 * SEC, 60)] {
        let asked = Instant::now();
        let guard = client.mutex("m").ttl(ttl).lock().await.unwrap();
        let left = client.inspect("m").await.unwrap().holders[0].left;
        // Servers tell whole seconds.
        assert!(
            left <= ttl.max(Duration::from_secs(seconds)) && left + asked.elapsed() + SEC >= ttl,
            "{left:?} of {ttl:?}"
        );
        let lease = format!("{:x}", leases(&etcd, "fencelock/m/")[0]);
        let said = etcd.run(&["lease", "timetolive", &lease]);
        assert!(said.contains(&format!("granted with TTL({seconds}s)")), "{said}");
        guard.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_begins_like_a_key_elects() {
    let etcd = Etcd::start();
    let client = client(&etcd, 30 * SEC).await;
    for key in ["fencelock/job", "fencelock/jobs", "fencelock/job0", "fencelock/job.x/1", "fencelock/job/"] {
        etcd.run(&["put", key, "somebody's"]);
    }
    etcd.run(&["del", "fencelock/job/"]);
    let term = within("it leads", client.election("job").campaign("a")).await.unwrap();
    assert_eq!(client.election("job").leader().await.unwrap().unwrap().term, term.token());
    term.resign().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn observers_go_on_after_a_compaction() {
    let etcd = Etcd::start();
    let client = client(&etcd, 30 * SEC).await;
    let election = client.election("job");
    let mut observer = election.observe();
    assert!(within("nobody", observer.changed()).await.unwrap().is_none());
    for round in 0..5 {
        let who = format!("node-{round}");
        let term = election.campaign(who.clone()).await.unwrap();
        let token = term.token().get();
        // All that was before this is forgotten.
        let compacted =
            tokio::task::block_in_place(|| etcd.etcdctl(&["compact", &token.to_string()]).output().unwrap());
        assert!(compacted.status.success());
        let led = within("it is seen", async {
            loop {
                if let Some(leader) = observer.changed().await.unwrap() {
                    return leader;
                }
            }
        });
        assert_eq!(*led.await.candidate, *who);
        term.resign().await.unwrap();
    }
}

/// Who waits, and who holds, are cut off, and what happens meanwhile is forgotten before they come again: one has his turn, the other is
/// told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_and_holders_go_on_after_a_compaction() {
    let etcd = Etcd::start();
    let (proxy, server) = (in_front_of(&etcd), ([127, 0, 0, 1], etcd.client_port(0)).into());
    let mut config = Config::from_url(&format!("etcd://{}", proxy.address())).unwrap();
    config.ttl = 30 * SEC;
    let (a, b) = (client(&etcd, 30 * SEC).await, built(EtcdEngine::connect(config).await.unwrap()));
    let (kept, taken) = (b.mutex("kept").lock().await.unwrap(), b.mutex("taken").lock().await.unwrap());
    // A hold is watched when it is a second old: all that was before is forgotten by then.
    let early = b.mutex("early").lock().await.unwrap();
    etcd.run(&["del", early.place().unwrap()]);
    let compact = || {
        let said = etcd.run(&["endpoint", "status", "-w", "fields"]);
        let revision = said.lines().find_map(|line| line.strip_prefix("\"Revision\" : ")).unwrap().to_owned();
        etcd.run(&["compact", &revision]);
    };
    etcd.run(&["put", "somebody", "else"]);
    compact();
    assert_eq!(within("told", early.lost()).await, fencelock_core::LossReason::TakenOver);
    for round in 0..3 {
        let first = a.mutex("m").lock().await.unwrap();
        let next = tokio::spawn(b.mutex("m").lock());
        waiters(&a, "m", 1).await;
        let nobody = fencelock_testkit::Port::free();
        proxy.lead_to(([127, 0, 0, 1], nobody.number()).into());
        proxy.cut();
        // In the last round it has given it back before that is forgotten.
        let (held, gone) = if round == 2 { (None, Some(first)) } else { (Some(first), None) };
        if let Some(first) = gone {
            first.release().await.unwrap();
            etcd.run(&["del", taken.place().unwrap()]);
        }
        for _ in 0..3 {
            etcd.run(&["put", "somebody", "else"]);
        }
        compact();
        assert!(!next.is_finished());
        proxy.lead_to(server);
        if let Some(held) = held {
            eventually("it is there again", || async { b.inspect("m").await.is_ok() }).await;
            held.release().await.unwrap();
        }
        within("its turn", next).await.unwrap().unwrap().release().await.unwrap();
    }
    assert_eq!(within("told", taken.lost()).await, fencelock_core::LossReason::TakenOver);
    kept.check().unwrap();
    kept.release().await.unwrap();
}

/// A server that grants no lease as short as that: the hold is good for what was asked for, and its lease lasts as the server says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ttl_that_the_server_finds_too_short() {
    let arguments = ["--heartbeat-interval=500", "--election-timeout=5000"].map(str::to_owned).to_vec();
    let etcd = Etcd::with(EtcdOptions { arguments, ..EtcdOptions::default() });
    let client = client(&etcd, 3 * SEC).await;
    let guard = client.mutex("m").lock().await.unwrap();
    let lease = format!("{:x}", leases(&etcd, "fencelock/m/")[0]);
    let said = etcd.run(&["lease", "timetolive", &lease]);
    // One and a half elections.
    assert!(said.contains("granted with TTL(8s)"), "{said}");
    assert!(guard.ttl() == 3 * SEC && guard.remaining() <= 3 * SEC);
    // That is how long the next one waits if its holder dies.
    let left = client.inspect("m").await.unwrap().holders[0].left;
    assert!(left > 3 * SEC && left <= 8 * SEC, "{left:?}");
    // And it is kept alive as the hold needs it.
    tokio::time::sleep(4 * SEC).await;
    guard.check().unwrap();
    guard.release().await.unwrap();
}

/// Whoever shuts down ends his leases. What stays is who the store is, and what is kept for some hours: it is nobody's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_shuts_down_leaves_no_lease() {
    let etcd = Etcd::start();
    let (a, b) = (client(&etcd, 30 * SEC).await, client(&etcd, 30 * SEC).await);
    let held = a.mutex("m").ttl(7 * SEC).lock().await.unwrap();
    let next = tokio::spawn(b.mutex("m").lock());
    waiters(&a, "m", 1).await;
    held.release().await.unwrap();
    within("its turn", next).await.unwrap().unwrap().release().await.unwrap();
    a.rw_lock("rw").write().await.unwrap().downgrade().await.unwrap().release().await.unwrap();
    a.semaphore("s", 2).acquire(1).await.unwrap().release().await.unwrap();
    let cell = a.cell("c");
    let version = cell.compare_exchange(fencelock_core::Version::NONE, b"1".as_slice()).await.unwrap().unwrap();
    cell.remove(version).await.unwrap().unwrap();
    b.election("e").campaign("b").await.unwrap().resign().await.unwrap();
    let list = || {
        let said = etcd.run(&["lease", "list"]);
        said.lines().skip(1).map(|lease| lease.trim().to_owned()).collect::<Vec<_>>()
    };
    assert!(list().len() > 4, "the run must bite: {:?}", list());
    a.shutdown(10 * SEC).await.unwrap();
    b.shutdown(10 * SEC).await.unwrap();
    let mut kept = Vec::new();
    for lease in list() {
        let about = etcd.run(&["lease", "timetolive", &lease, "--keys"]);
        assert!(about.contains("fencelock/%id") || about.contains("fencelock/%size/s"), "{about}");
        assert!(!about.contains("%live"), "{about}");
        kept.push(about);
    }
    assert!(kept.len() <= 2, "{kept:?}");
}

/// A user who may read and write the prefix alone, and whose login's token expires again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_election_needs_the_rights_of_its_prefix_alone() {
    let arguments = vec!["--auth-token-ttl=1".to_owned()];
    let etcd = Etcd::with(EtcdOptions { arguments, ..EtcdOptions::default() });
    ask_for_passwords(&etcd);
    let at = format!("etcd://app:pass@127.0.0.1:{}?ttl=6s", etcd.client_port(0));
    let (a, b) = (EtcdEngine::from_url(&at).await.unwrap(), EtcdEngine::from_url(&at).await.unwrap());
    let (a, b) = (built(a), built(b));
    let mut observer = b.election("job").observe();
    assert!(within("nobody", observer.changed()).await.unwrap().is_none());
    let term = a.election("job").campaign("a").await.unwrap();
    assert_eq!(&*within("seen", observer.changed()).await.unwrap().unwrap().candidate, "a");
    let next = tokio::spawn(b.election("job").campaign("b"));
    waiters(&a, "job", 1).await;
    // Several logins and several leases long.
    let end = tokio::time::Instant::now() + 14 * SEC;
    while tokio::time::Instant::now() < end {
        term.check().unwrap();
        assert!(a.cell("c").load().await.unwrap().value.is_none());
        tokio::time::sleep(SEC / 10).await;
    }
    term.resign().await.unwrap();
    let next = within("its turn", next).await.unwrap().unwrap();
    assert_eq!(&*b.election("job").leader().await.unwrap().unwrap().candidate, "b");
    next.resign().await.unwrap();
    // The stream of watches was opened by a login that is over: what it refuses is asked for again, by another one.
    let held = a.mutex("late").lock().await.unwrap();
    let wait = tokio::spawn(b.mutex("late").lock());
    waiters(&a, "late", 1).await;
    held.release().await.unwrap();
    within("its turn", wait).await.unwrap().unwrap().release().await.unwrap();
}

/// Who waits with `etcdctl lock`, and tells his revision when he has it; he holds it until he may leave. (What `etcdctl` runs has no input.)
struct Theirs(Child, std::path::PathBuf);
impl Theirs {
    fn wait(etcd: &Etcd, folder: &Folder, n: usize) -> Self {
        let file = folder.path().join(format!("got{n}"));
        let script = "echo $ETCD_LOCK_REV > $0.new; mv $0.new $0; while [ -e $0 ]; do sleep 0.01; done";
        let mut command = etcd.etcdctl(&["lock", "fencelock/m", "--", "sh", "-c", script, file.to_str().unwrap()]);
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap(), file)
    }
    async fn got(&self) -> i64 {
        eventually("they have it", || async { self.1.exists() }).await;
        std::fs::read_to_string(&self.1).unwrap().trim().parse().unwrap()
    }
    fn leave(mut self) {
        std::fs::remove_file(&self.1).unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_in_the_order_of_grants() {
    let (etcd, folder) = (Etcd::start(), Folder::new("order"));
    let client = client(&etcd, 30 * SEC).await;
    let first = client.mutex("m").lock().await.unwrap();
    let one = Theirs::wait(&etcd, &folder, 1);
    waiters(&client, "m", 1).await;
    let ours = tokio::spawn(client.mutex("m").lock());
    waiters(&client, "m", 2).await;
    let two = Theirs::wait(&etcd, &folder, 2);
    waiters(&client, "m", 3).await;
    let mut tokens = vec![first.token().get()];
    first.release().await.unwrap();
    tokens.push(one.got().await);
    // He holds it for as long as he likes.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!ours.is_finished());
    tokio::task::block_in_place(|| one.leave());
    let ours = within("our turn", ours).await.unwrap().unwrap();
    tokens.push(ours.token().get());
    ours.release().await.unwrap();
    tokens.push(two.got().await);
    tokio::task::block_in_place(|| two.leave());
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

/// A release that comes late, of a hold whose client has a newer one by the same lease, so under the same key (etcd#22082).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_release_frees_nothing_newer() {
    let etcd = Etcd::start();
    let config = Config::from_url(&etcd.url()).unwrap();
    let engine = Arc::new(EtcdEngine::connect(config).await.unwrap());
    let client = Client::builder(engine.clone()).build().unwrap();
    let first = client.mutex("m").lock().await.unwrap();
    let (token, key) = (first.token(), first.place().unwrap().to_owned());
    etcd.run(&["del", &key]);
    let second = client.mutex("m").lock().await.unwrap();
    let key_now = second.place().unwrap().to_owned();
    assert!(second.token() > token);
    assert!(first.release().await.is_err(), "it is somebody's hold no more");
    let name = fencelock_core::Name::new("m").unwrap();
    assert!(matches!(engine.force_release(&name, token).await.unwrap(), Released::NotHeld { .. }));
    assert!(!etcd.run(&["get", &key_now]).is_empty(), "{key} {key_now}");
    second.check().unwrap();
    second.release().await.unwrap();
}
/// A set that is written in transactions which compare the token: who was taken for dead writes nothing, and what was told as written
/// is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_that_compare_the_token_are_never_lost() {
    let etcd = Etcd::start();
    let (a, b) = (client(&etcd, 30 * SEC).await, client(&etcd, 30 * SEC).await);
    let add = |place: &str, token: i64, n: usize| {
        let who = place.replacen("fencelock/", "fencelock/%who/", 1);
        let known = etcd.run(&["get", "set", "--print-value-only"]);
        let request = format!("mod(\"{who}\") = \"{token}\"\n\nput set \"{} {n}\"\n\n\n", known.trim());
        let mut txn = etcd.etcdctl(&["txn"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        txn.stdin.take().unwrap().write_all(request.as_bytes()).unwrap();
        let out = txn.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success(), "{said}");
        said.starts_with("SUCCESS")
    };
    let mut written = Vec::new();
    for n in 0..20 {
        let (one, other) = if n % 2 == 0 { (&a, &b) } else { (&b, &a) };
        let guard = one.mutex("m").lock().await.unwrap();
        let place = guard.place().unwrap().to_owned();
        let next = tokio::spawn(other.mutex("m").lock());
        waiters(&a, "m", 1).await;
        assert!(add(&place, guard.token().get(), 10 * n));
        written.push(10 * n);
        if n % 3 == 0 {
            // Taken away, and it does not know: what it writes is refused.
            assert_eq!(other.force_release("m", guard.token()).await.unwrap(), Released::Released);
            let next = within("its turn", next).await.unwrap().unwrap();
            assert!(!add(&place, guard.token().get(), 10 * n + 1));
            assert!(add(next.place().unwrap(), next.token().get(), 10 * n + 2));
            written.push(10 * n + 2);
            next.release().await.unwrap();
            let _ = guard.release().await;
        } else {
            let token = guard.token().get();
            guard.release().await.unwrap();
            assert!(!add(&place, token, 10 * n + 1));
            within("its turn", next).await.unwrap().unwrap().release().await.unwrap();
        }
    }
    let set = etcd.run(&["get", "set", "--print-value-only"]);
    let set: Vec<usize> = set.split_whitespace().map(|n| n.parse().unwrap()).collect();
    assert_eq!(set, written);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_ends_live_leases_is_found() {
    let etcd = Etcd::start();
    let said = etcd.run(&["endpoint", "status", "-w", "fields"]);
    let version = said.lines().find_map(|line| line.strip_prefix("\"Version\" : ")).unwrap().replace('"', "");
    let engine = EtcdEngine::from_url(&etcd.url()).await.unwrap();
    // Whoever asks need not be one of tokio's.
    let asks = std::thread::spawn(move || fencelock_core::blocking::block_on(engine.advice()));
    let advice = tokio::task::block_in_place(|| asks.join().unwrap()).unwrap();
    assert!(advice.iter().all(|line| line.starts_with(&format!("etcd {version}: ")) && line.contains("update to")));
    // Debian's.
    if version.starts_with("3.4.2") {
        assert!(advice.iter().any(|line| line.contains("15247")), "{advice:?}");
    }
}
