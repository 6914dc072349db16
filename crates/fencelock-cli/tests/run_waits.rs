//! What a waiter says at a terminal, over every engine.

mod common;

use common::pty::Shell;
use common::{Place, end_of, finish, spaces, start, until};
use fencelock_testkit::{Etcd, MariaDb, Postgres, Redis, RedisOptions, ZooKeeper};

/// The holder's machine has such a name, where this one lets a process have another; how it is shown.
const EVIL: (&str, &str) = ("evil\\033[31mhost", "evil[31mhost");

/// One who waits.
struct Waits<'a> {
    url: &'a str,
    /// How the lock is held, and wanted.
    mode: &'a str,
    /// What is told of that, besides.
    claimed: &'a str,
    /// Whether there is a queue, of which a place is told.
    has_queue: bool,
}
impl<'a> Waits<'a> {
    fn of(url: &'a str) -> Self {
        Self { url, mode: "", claimed: "", has_queue: true }
    }

    /// Its holder, how long it is held, the token, and how many come before; and no control character, whoever wrote it.
    fn sees_the_line(&self) {
        let Self { url, mode, claimed, has_queue } = self;
        let place = Place::new();
        let mut shell = Shell::start(&place);
        shell.line(&format!("export FENCELOCK_URL='{url}' M='{mode}'"));
        shell.line("export N=$'night\\x1b[31mly' J='echo $$ $FENCELOCK_TOKEN > $D/job; sleep 600'");
        let run = "$F run x $M --ttl 60s --note \"$N\" -- bash -c \"$J\"";
        let named = format!("printf '{}' > /proc/sys/kernel/hostname", EVIL.0);
        let host = if spaces::elsewhere(&place, "-u", &named).status().is_ok_and(|status| status.success()) {
            std::fs::write(place.path("holder"), format!("{named}\nexec {run}\n")).expect("a script");
            let user = if spaces::is_root() { "" } else { "-Ur" };
            shell.line(&format!("unshare -u {user} bash $D/holder &"));
            EVIL.1.to_owned()
        } else {
            common::cannot_run("no process can be given another name of its machine");
            shell.line(&format!("{run} &"));
            std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name").trim().to_owned()
        };
        let said = place.line("job");
        let (job, token) = said.split_once(' ').unwrap_or((&said, ""));
        let first = has_queue.then(|| {
            let run = ["run", "x"].into_iter().chain(mode.split_whitespace()).chain(["--", "true"]);
            let first = start(place.fencelock().env("FENCELOCK_URL", url).args(run));
            until("one waits", || {
                let (_, out, _) = finish(place.fencelock().env("FENCELOCK_URL", url).args(["status", "x", "--json"]));
                let status: serde_json::Value = serde_json::from_str(&out).ok()?;
                (status["waiters"].as_array()?.len() == 1).then_some(())
            });
            first
        });
        shell.line("$F run x $M -- echo $((6*7)):in");
        shell.expect("waiting for x: held ");
        shell.expect(&format!(" by {host} pid "));
        shell.expect(&format!("\"night[31mly\" ({claimed}token "));
        // One of several holders has none that a job could fence with.
        if !token.is_empty() {
            shell.expect(token);
        }
        if *has_queue {
            shell.expect("1 ahead of you");
        }
        assert!(!shell.screen().contains("\x1b[31m"), "{url}: {}", shell.screen());
        common::kill(job.parse().expect("a number"), rustix::process::Signal::KILL);
        shell.expect("42:in");
        if let Some(mut first) = first {
            assert!(end_of(&mut first).success(), "{url}");
        }
    }
}

// Planted, for each of them: what an engine tells of a holder printed as it is.
#[test]
fn over_sqlite() {
    let places = [Place::new(), Place::new(), Place::new()];
    let [mutex, permits, write] = places.each_ref().map(Place::url);
    Waits::of(&mutex).sees_the_line();
    Waits { mode: "--permits 2/3", claimed: "2 permits, ", ..Waits::of(&permits) }.sees_the_line();
    Waits { mode: "--write", claimed: "write, ", ..Waits::of(&write) }.sees_the_line();
}

#[test]
fn over_postgres() {
    over_a_database(&Postgres::start().url());
}

#[test]
fn over_mariadb() {
    over_a_database(&MariaDb::start().url());
}

fn over_a_database(url: &str) {
    let with = |query: &str| format!("{url}?{query}");
    for url in [url, &with("strategy=session")] {
        Waits::of(url).sees_the_line();
    }
    Waits { mode: "--write", claimed: "write, ", ..Waits::of(&with("namespace=w")) }.sees_the_line();
    Waits { mode: "--permits 2/3", claimed: "2 permits, ", ..Waits::of(&with("namespace=p")) }.sees_the_line();
    Waits { has_queue: false, ..Waits::of(&with("strategy=shedlock")) }.sees_the_line();
}

#[test]
fn over_redis_etcd_and_zookeeper() {
    let (redis, etcd, zookeeper) = (Redis::start(), Etcd::start(), ZooKeeper::start());
    for url in [redis.url(), etcd.url(), zookeeper.url()] {
        Waits::of(&url).sees_the_line();
    }
}

#[test]
fn over_redis_in_the_layouts_of_others() {
    let redis = Redis::start();
    for layout in ["plain&template=lock:{}", "redisson"] {
        let url = format!("{}?layout={layout}", redis.url());
        Waits { has_queue: false, ..Waits::of(&url) }.sees_the_line();
    }
}

#[test]
fn over_redlock() {
    let nodes = Redis::several(3, &RedisOptions::default());
    let hosts: Vec<_> = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    let url = format!("redlock://{}", hosts.join(","));
    Waits { has_queue: false, ..Waits::of(&url) }.sees_the_line();
}

/// While the store is not there that is said, and no holder of before; and it goes on when it is there again.
// Planted: what was known before goes on to be shown.
#[test]
fn over_an_outage() {
    let (server, place) = (Postgres::start(), Place::new());
    let mut shell = Shell::start(&place);
    shell.line(&format!("export FENCELOCK_URL='{}'", server.url()));
    shell.line("$F run x --ttl 60s -- bash -c 'echo $$ > $D/job; sleep 600' &");
    let job = place.line("job");
    shell.line("$F run x -- echo $((6*7)):in");
    shell.expect("waiting for x: held ");
    server.kill();
    shell.expect("waiting for x: no answer from the engine; before: held ");
    assert!(server.restart());
    shell.expect("waiting for x: held ");
    common::kill(job.parse().expect("a number"), rustix::process::Signal::KILL);
    shell.expect("42:in");
}
