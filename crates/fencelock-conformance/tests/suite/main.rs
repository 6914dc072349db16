//! Every engine of this workspace × every case. `cargo test -p fencelock-conformance --test suite -- PART-OF-A-NAME`
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod catalogue;
mod etcd;
mod memory;
mod mysql;
mod postgres;
mod quorum;
mod redis;
mod sqlite;
mod ways;
mod zookeeper;

use fencelock_zookeeper::Dialect;
use libtest_mimic::Trial;
use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::var_os("FENCELOCK_BLESS").is_some() {
        return catalogue::bless();
    }
    let complete = Trial::test("cases.toml is complete", || catalogue::check(FAMILIES));
    fencelock_conformance::run(FAMILIES, vec![complete])
}
const FAMILIES: &[&dyn fencelock_conformance::Family] = &[
    &memory::Leases,
    &memory::Sessions,
    &quorum::Five,
    &sqlite::Sqlite,
    &redis::Servers::Alone,
    &redis::Servers::Sentinels,
    &redis::Servers::Cluster,
    &redis::Servers::Plain,
    &redis::Servers::Redisson,
    &redis::Servers::Redlock,
    &postgres::Lease::AsItComes,
    &postgres::Lease::Serializable,
    &postgres::Lease::Pooled,
    &postgres::Lease::Session,
    &postgres::Lease::ShedLock,
    &mysql::Lease::AsItComes,
    &mysql::Lease::Doorbell,
    &mysql::Lease::Session,
    &mysql::Lease::ShedLock,
    &etcd::One,
    &zookeeper::One(Dialect::Curator),
    &zookeeper::One(Dialect::Kazoo),
];
