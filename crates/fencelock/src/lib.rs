//! Distributed locks with fencing tokens over the engines you already run.
//!
//! One API, one feature per engine; `default = []`: name the engines that you use. Start at [`connect`] and [`Client::mutex`];
//! [`Held`] says what a guard promises, [`Token`] how to fence writes with it.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), fencelock::Error> {
//! let client = fencelock::connect("memory:").await?;
//! let guard = client.mutex("orders/42").lock().await?;
//! println!("mine, with token {}", guard.token());
//! guard.release().await?;
//! # Ok(()) }
//! ```
use std::sync::Arc;

#[cfg(all(doctest, feature = "sqlite", feature = "sql-rusqlite"))]
#[doc = include_str!("../../../README.md")]
struct Readme;

// Its documentation is its own: a sentence here would stand before its definitions of links, and make a paragraph of them.
#[cfg(any(doc, doctest))]
pub mod guide;

pub use fencelock_core::*;

/// Locks and fence checks inside your own database transaction.
#[cfg(any(
    feature = "sql-mysql_async-0_37",
    feature = "sql-rusqlite",
    feature = "sql-sqlx-0_8",
    feature = "sql-tokio-postgres-0_7"
))]
pub use fencelock_sql as sql;

/// The embedded engine.
#[cfg(feature = "sqlite")]
pub mod sqlite {
    #[cfg(feature = "bench")]
    #[doc(hidden)]
    pub use fencelock_sqlite::raw;
    pub use fencelock_sqlite::{Config, SqliteEngine};
}

/// etcd.
#[cfg(feature = "etcd")]
pub mod etcd {
    #[cfg(feature = "bench")]
    #[doc(hidden)]
    pub use fencelock_etcd::raw;
    pub use fencelock_etcd::{Config, EtcdEngine, Tls};
}

/// MariaDB and MySQL.
#[cfg(feature = "mysql")]
pub mod mysql {
    #[cfg(feature = "bench")]
    #[doc(hidden)]
    pub use fencelock_mysql::raw;
    pub use fencelock_mysql::{Config, Keys, MysqlEngine, MysqlSessionEngine, MysqlShedLockEngine, Strategy, Tls};
}

/// PostgreSQL.
#[cfg(feature = "postgres")]
pub mod postgres {
    #[cfg(feature = "bench")]
    #[doc(hidden)]
    pub use fencelock_postgres::raw;
    pub use fencelock_postgres::{
        Config, Keys, Listen, PostgresEngine, PostgresSessionEngine, PostgresShedLockEngine, Strategy, Tls,
    };
}

/// Redis.
#[cfg(feature = "redis")]
pub mod redis {
    #[cfg(feature = "bench")]
    #[doc(hidden)]
    pub use fencelock_redis::raw;
    pub use fencelock_redis::{
        Acl, Config, Layout, RedisEngine, RedisPlainEngine, RedisRedissonEngine, Templates, Tls, Topology, redlock,
    };
}

/// ZooKeeper.
#[cfg(feature = "zookeeper")]
pub mod zookeeper {
    #[cfg(feature = "bench")]
    #[doc(hidden)]
    pub use fencelock_zookeeper::raw;
    pub use fencelock_zookeeper::{Config, Dialect, Tls, ZooKeeperEngine};
}

/// The schemes that this version knows, the feature that each needs, and whether this build has it.
const KNOWN: [(&str, &str, bool); 18] = [
    ("sqlite", "sqlite", cfg!(feature = "sqlite")),
    ("redis", "redis", cfg!(feature = "redis")),
    ("rediss", "redis", cfg!(feature = "redis")),
    ("redis+sentinel", "redis", cfg!(feature = "redis")),
    ("rediss+sentinel", "redis", cfg!(feature = "redis")),
    ("redis+cluster", "redis", cfg!(feature = "redis")),
    ("rediss+cluster", "redis", cfg!(feature = "redis")),
    ("redlock", "redis", cfg!(feature = "redis")),
    ("redlocks", "redis", cfg!(feature = "redis")),
    ("etcd", "etcd", cfg!(feature = "etcd")),
    ("etcds", "etcd", cfg!(feature = "etcd")),
    ("zookeeper", "zookeeper", cfg!(feature = "zookeeper")),
    ("zookeepers", "zookeeper", cfg!(feature = "zookeeper")),
    ("postgres", "postgres", cfg!(feature = "postgres")),
    ("postgresql", "postgres", cfg!(feature = "postgres")),
    ("mysql", "mysql", cfg!(feature = "mysql")),
    ("mariadb", "mysql", cfg!(feature = "mysql")),
    ("memory", "memory", true),
];

/// Connects to the engine of a URL: `sqlite:` (the user's default database), `sqlite:/path/locks.db`, `redis://host:6379`,
/// `redis+sentinel://h1:26379,h2:26379/mymaster`, `redis+cluster://h1:6379,h2:6379`, `redlock://h1:6379,h2:6379,h3:6379`,
/// `etcd://h1:2379,h2:2379`, `zookeeper://h1:2181,h2:2181/chroot`, `postgres://user@h1,h2/database`, `mysql://user@h1,h2/database`
/// (also `mariadb:`), `memory:`.
///
/// # Errors
/// `InvalidConfig` for the URL, `Unsupported` for an engine that is not built in, and what the engine says.
///
/// # Cancel safety
/// If dropped nothing is left but, perhaps, an empty database.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let error = fencelock::connect("sqlit:locks.db").await.unwrap_err();
/// assert!(error.to_string().contains("did you mean sqlite:"));
/// # }
/// ```
pub async fn connect(url: &str) -> Result<Client> {
    let parsed = url::Url::parse(url)?;
    let engine: Arc<dyn Engine> = match parsed.scheme() {
        "memory" => {
            parsed.finish(&[])?;
            Arc::new(memory::MemoryEngine::new())
        }
        #[cfg(feature = "sqlite")]
        "sqlite" => Arc::new(fencelock_sqlite::SqliteEngine::from_url(url)?),
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => fencelock_mysql::connect(fencelock_mysql::Config::from_url(url)?).await?,
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => fencelock_postgres::connect(fencelock_postgres::Config::from_url(url)?).await?,
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "redis+sentinel" | "rediss+sentinel" | "redis+cluster" | "rediss+cluster" | "redlock"
        | "redlocks" => fencelock_redis::connect(fencelock_redis::Config::from_url(url)?).await?,
        #[cfg(feature = "etcd")]
        "etcd" | "etcds" => Arc::new(fencelock_etcd::EtcdEngine::from_url(url).await?),
        #[cfg(feature = "zookeeper")]
        "zookeeper" | "zookeepers" => Arc::new(fencelock_zookeeper::ZooKeeperEngine::from_url(url).await?),
        other => return Err(unknown(other)),
    };
    Client::builder(engine).build()
}
/// What an operator does for the store of a URL, as for [`connect`]; `None`: there is nothing to make.
///
/// # Errors
/// `InvalidConfig` for the URL, `Unsupported` for an engine that is not built in.
///
/// ```
/// assert!(fencelock::admin("memory:").unwrap().is_none());
/// ```
pub fn admin(url: &str) -> Result<Option<Box<dyn Admin>>> {
    let scheme = url::Url::parse(url)?.scheme().to_owned();
    match scheme.as_str() {
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => Ok(Some(Box::new(fencelock_mysql::Config::from_url(url)?))),
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => Ok(Some(Box::new(fencelock_postgres::Config::from_url(url)?))),
        known if KNOWN.iter().any(|(scheme, _, built)| *scheme == known && *built) => Ok(None),
        other => Err(unknown(other)),
    }
}
fn unknown(scheme: &str) -> Error {
    if let Some((known, feature, _)) = KNOWN.iter().find(|(known, ..)| *known == scheme) {
        let missing = Error::new(ErrorKind::Unsupported, "connect", format!("this build has no {known}: engine"));
        return missing.hint(format!("add the feature {feature:?} of the crate fencelock"));
    }
    let here: Vec<&str> = KNOWN.iter().filter(|(.., built)| *built).map(|(known, ..)| *known).collect();
    let all: Vec<&str> = KNOWN.iter().map(|(known, ..)| *known).collect();
    let here = format!("known here: {}:", here.join(":, "));
    let way_out = match url::nearest(scheme, &all) {
        Some(meant) => format!("did you mean {meant}:? {here}"),
        None => here,
    };
    Error::new(ErrorKind::InvalidConfig, "connect", format!("unknown scheme {scheme:?}")).hint(way_out)
}
