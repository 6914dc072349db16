//! The program over a real PostgreSQL, beside an operator at its terminal.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
#[path = "common/server.rs"]
mod server;
use fencelock_testkit::{PgBouncer, Port, Postgres};

#[test]
fn a_job_writes_with_its_token() {
    let server = Postgres::start();
    let script = format!(
        "psql -h 127.0.0.1 -p {} -U postgres -XAtc \"UPDATE orders SET fence = $FENCELOCK_TOKEN \
         WHERE id = 42 AND fence <= $FENCELOCK_TOKEN RETURNING fence\"",
        server.port()
    );
    server::a_job_writes_with_its_token(&server.url(), |sql| server.ask(sql), &script);
}

#[test]
fn operators_meet_a_run() {
    let server = Postgres::start();
    server::operators_meet(&server.url());
}
#[test]
fn operators_meet_a_session() {
    let server = Postgres::start();
    server::operators_meet(&(server.url() + "?strategy=session"));
}
/// Nobody is told there when his turn has come, and two commands may be in two sessions.
#[test]
fn a_pooler_is_in_between() {
    let server = Postgres::start();
    let pooler = PgBouncer::start(&server, "transaction");
    let url = server.url_through(&pooler);
    server::all_that_leases_can("PostgreSQL, pgbouncer", &url, || server.pause(true));
    server.pause(false);
}
#[test]
fn operators_meet_a_row_of_shedlock_s() {
    let server = Postgres::start();
    server::operators_meet_a_shared_row(&(server.url() + "?strategy=shedlock"));
}

/// Its lease ends, and a session ends with it, long before its ttl.
#[test]
fn the_next_one_runs_when_a_killed_one_is_over() {
    let server = Postgres::start();
    server::a_killed_run_is_replaced("PostgreSQL", &server.url(), "6s");
    server::a_killed_run_is_replaced("PostgreSQL, sessions", &(server.url() + "?strategy=session"), "10m");
}

#[test]
fn a_job_whose_server_goes_is_stopped() {
    for strategy in ["lease", "session"] {
        let server = Postgres::start();
        let url = format!("{}?strategy={strategy}", server.url());
        server::a_job_whose_server_goes_is_stopped(&url, || server.pause(true));
        server.pause(false);
    }
}

#[test]
fn what_cannot_be() {
    let server = Postgres::start();
    let url = server.url();
    server::what_cannot_be(
        &url,
        &[
            (url.replace("/postgres", "/nowhere").replace("/nowhere@", "/postgres@"), 78, "no such database"),
            (url.replace("//postgres@", "//ann@"), 78, "user or password"),
            (format!("{url}?schema=nowhere"), 78, "schema"),
            (format!("postgres://ann:hunter2@127.0.0.1:{}/x", Port::free()), 69, "no connection"),
        ],
    );
}

#[test]
fn nobody_is_there() {
    server::nobody_is_there(&format!("postgres://ann:hunter2@127.0.0.1:{}/x", Port::free()));
}

// Planted: FROM and TO exchanged; a version that is not compared.
#[test]
fn values_and_sizes() {
    let server = Postgres::start();
    server::a_value_is_written_by_its_version(&server.url());
    server::a_semaphore_is_resized(&server.url());
    let sessions = server.url() + "?strategy=session&namespace=apart";
    server::a_value_is_written_by_its_version(&sessions);
    server::no_semaphore_is_resized(&sessions);
}
// Planted: renewals and waits with connections of their own, or none: it never ends.
#[test]
fn few_connections_are_measured() {
    let server = Postgres::with(&["max_connections=36"]);
    server::few_connections_are_measured(&server.url());
}
