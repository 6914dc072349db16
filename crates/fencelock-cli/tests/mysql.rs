//! The program over a real MariaDB, beside an operator at its terminal.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
#[path = "common/server.rs"]
mod server;
use fencelock_testkit::{MariaDb, Port};

#[test]
fn a_job_writes_with_its_token() {
    let server = MariaDb::start();
    let script = format!(
        "mariadb --no-defaults -h 127.0.0.1 -P {} -u root -D test -NBe \"UPDATE orders SET fence = $FENCELOCK_TOKEN \
         WHERE id = 42 AND fence <= $FENCELOCK_TOKEN; SELECT fence FROM orders\"",
        server.port()
    );
    server::a_job_writes_with_its_token(&server.url(), |sql| server.ask(sql), &script);
}

#[test]
fn operators_meet_a_run() {
    let server = MariaDb::start();
    server::operators_meet(&server.url());
}
#[test]
fn operators_meet_a_session() {
    let server = MariaDb::start();
    server::operators_meet(&(server.url() + "?strategy=session"));
}
#[test]
fn who_waits_has_a_doorbell() {
    let server = MariaDb::start();
    let url = server.url() + "?doorbell=on";
    server::all_that_leases_can("MariaDB, doorbells", &url, || server.pause(true));
    server.pause(false);
}
#[test]
fn operators_meet_a_row_of_shedlock_s() {
    let server = MariaDb::start();
    server::operators_meet_a_shared_row(&(server.url() + "?strategy=shedlock"));
}

/// Its lease ends, and a session ends with it, long before its ttl.
#[test]
fn the_next_one_runs_when_a_killed_one_is_over() {
    let server = MariaDb::start();
    server::a_killed_run_is_replaced("MariaDB", &server.url(), "6s");
    server::a_killed_run_is_replaced("MariaDB, sessions", &(server.url() + "?strategy=session"), "10m");
}

#[test]
fn a_job_whose_server_goes_is_stopped() {
    for strategy in ["lease", "session"] {
        let server = MariaDb::start();
        let url = format!("{}?strategy={strategy}", server.url());
        server::a_job_whose_server_goes_is_stopped(&url, || server.pause(true));
        server.pause(false);
    }
}

#[test]
fn what_cannot_be() {
    let server = MariaDb::start();
    let url = server.url();
    server::what_cannot_be(
        &url,
        &[
            (url.replace("/test", "/nowhere"), 78, "no such database"),
            (url.replace("//root@", "//ann@"), 78, "user or password"),
            (url.replace("/test", ""), 78, "a database is missing"),
            (format!("{url}?schema=x"), 78, "unknown key"),
            (format!("mariadb://ann:hunter2@127.0.0.1:{}/x", Port::free()), 69, "no connection"),
        ],
    );
}

#[test]
fn nobody_is_there() {
    server::nobody_is_there(&format!("mysql://ann:hunter2@127.0.0.1:{}/x", Port::free()));
}

// Planted: FROM and TO exchanged; a version that is not compared.
#[test]
fn values_and_sizes() {
    let server = MariaDb::start();
    server::a_value_is_written_by_its_version(&server.url());
    server::a_semaphore_is_resized(&server.url());
    let sessions = server.url() + "?strategy=session&namespace=apart";
    server::a_value_is_written_by_its_version(&sessions);
    server::no_semaphore_is_resized(&sessions);
}
// Planted: renewals and waits with connections of their own, or none: it never ends.
#[test]
fn few_connections_are_measured() {
    let server = MariaDb::with(&["--max-connections=36"]);
    server::few_connections_are_measured(&server.url());
}
