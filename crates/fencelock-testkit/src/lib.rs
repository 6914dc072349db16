//! Servers for the tests: private ones, on loopback, on free ports, in folders of their own, and gone afterwards, also when the
//! test is killed. And [`processes`], for tests between several of them.
mod abandoned;
pub mod bench;
mod clock;
mod etcd;
mod mariadb;
mod network;
pub mod partition;
mod peer;
mod pgbouncer;
mod pki;
mod postgres;
mod process;
pub mod processes;
mod redis;
mod session;
mod steady;
mod template;
mod zookeeper;
mod zookeeper_log;
mod zookeeper_shell;

pub use abandoned::{abandon, panics};
pub use clock::WallClock;
pub use etcd::{Etcd, EtcdOptions, EtcdTls};
pub use mariadb::MariaDb;
pub use network::{Network, in_its_own_network};
pub use peer::Peer;
pub use pgbouncer::PgBouncer;
pub use pki::Pki;
pub use postgres::Postgres;
pub use process::{Folder, Port};
pub use redis::{Redis, RedisOptions};
pub use session::{Session, Terminal};
pub use steady::on_a_steady_machine;
pub use zookeeper::{ZooKeeper, ZooKeeperOptions, ZooKeeperTls};
pub use zookeeper_shell::ZooKeeperShell;
