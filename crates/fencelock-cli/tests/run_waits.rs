//! What a waiter says at a terminal, over every engine.

mod common;

use common::pty::Shell;
use common::{Place, end_of, finish, start, until};
use fencelock_testkit::{Etcd, MariaDb, Postgres, Redis, ZooKeeper};

/// Its holder, how long it is held, the token, and how many come before; and no control character, whoever wrote it. `hostile`: somebody makes
/// the holder's machine one of such a name; how it is shown then.
fn the_line(engine: &str, url: &str, hostile: Option<&dyn Fn() -> &'static str>) {
    let place = Place::new();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
    let mut shell = Shell::start(&place);
    shell.line(&format!("export FENCELOCK_URL='{url}'"));
    shell.line(
        "$F run x --ttl 60s --note $'night\\x1b[31mly' -- bash -c 'echo $$ $FENCELOCK_TOKEN > $D/job; sleep 600' &",
    );
    let said = place.line("job");
    let (job, token) = said.split_once(' ').expect("two words");
    let mut first = start(place.fencelock().env("FENCELOCK_URL", url).args(["run", "x", "--", "true"]));
    until("one waits", || {
        let (_, out, _) = finish(place.fencelock().env("FENCELOCK_URL", url).args(["status", "x", "--json"]));
        let status: serde_json::Value = serde_json::from_str(&out).ok()?;
        (status["waiters"].as_array()?.len() == 1).then_some(())
    });
    let host = hostile.map_or(host.trim(), |hostile| hostile());
    shell.line("$F run x -- echo $((6*7)):in");
    shell.expect("waiting for x: held ");
    shell.expect(&format!(" by {host} pid "));
    shell.expect("\"night[31mly\" (token ");
    shell.expect(token);
    shell.expect("1 ahead of you");
    assert!(!shell.screen().contains("\x1b[31m"), "{engine}: {}", shell.screen());
    common::kill(job.parse().expect("a number"), rustix::process::Signal::KILL);
    shell.expect("42:in");
    assert!(end_of(&mut first).success(), "{engine}");
}

// Planted: what an engine tells of a holder printed as it is.
#[test]
fn over_postgres() {
    let server = Postgres::start();
    let hostile = || {
        server.ask("UPDATE fencelock_lock SET who = E'evil\\x1b[31mhost ' || substr(who, strpos(who, ' ') + 1)");
        "evil[31mhost"
    };
    the_line("PostgreSQL", &server.url(), Some(&hostile));
    the_line("PostgreSQL, sessions", &(server.url() + "?strategy=session"), None);
}

// Planted: the same.
#[test]
fn over_mariadb() {
    let server = MariaDb::start();
    let hostile = || {
        server.ask(
            "UPDATE fencelock_lock SET who = CONCAT('evil', CHAR(27), '[31mhost ', SUBSTR(who, INSTR(who, ' ') + 1))",
        );
        "evil[31mhost"
    };
    the_line("MariaDB", &server.url(), Some(&hostile));
    the_line("MariaDB, sessions", &(server.url() + "?strategy=session"), None);
}

// Planted: the same.
#[test]
fn over_redis_etcd_and_zookeeper() {
    let (redis, etcd, zookeeper) = (Redis::start(), Etcd::start(), ZooKeeper::start());
    for (engine, url) in [("Redis", redis.url()), ("etcd", etcd.url()), ("ZooKeeper", zookeeper.url())] {
        the_line(engine, &url, None);
    }
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
