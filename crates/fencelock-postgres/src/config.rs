//! What a `postgres:` URL says.
pub use fencelock_core::config::Tls;
use fencelock_core::{
    Error, ErrorKind, Result,
    config::{Written, check_hosts, check_retention, check_ttl, encode, host_ports, invalid},
    url::Url,
};
use fencelock_sql::keys::{self, Key};
use std::{fmt, time::Duration};

/// The keys of a URL.
const KEYS: [&str; 11] =
    ["ca", "cert", "key", "keys", "listen", "namespace", "retention", "schema", "sslmode", "strategy", "ttl"];
/// The shortest ttl.
pub(crate) const MIN_TTL: Duration = Duration::from_millis(200);
/// The longest.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(86_400);
const PORT: u16 = 5432;

/// How the engine is reached.
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    /// The servers: name or address, and port. The one that takes writes is found among them.
    pub hosts: Vec<(String, u16)>,
    /// Encrypted, and how the other side is known.
    pub tls: Option<Tls>,
    /// Who we are there.
    pub user: String,
    /// The password. It is never shown.
    pub password: Option<String>,
    /// Which database.
    pub database: String,
    /// Where our tables lie; `None`: the first schema of this user's search path.
    pub schema: Option<String>,
    /// What a lock is there.
    pub strategy: Strategy,
    /// The numbers of advisory locks, of [`Strategy::Session`].
    pub keys: Keys,
    /// Where those who wait listen for word that their turn has come.
    pub listen: Listen,
    /// Separates the names of applications that share a database.
    pub namespace: String,
    /// The ttl of holds that do not say their own.
    pub ttl: Duration,
    /// How long the record of a lock that nobody uses is kept. Its tokens go on rising afterwards.
    pub retention: Duration,
}
/// What a lock is in the database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// A record with an end, which its holder puts off.
    #[default]
    Lease,
    /// An advisory lock, which lives with a session of the server.
    Session,
    /// A row of the table of ShedLock, whose users contend for the same locks.
    ShedLock,
}
/// How a name becomes the number of an advisory lock: whoever uses the same contends for the same lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keys {
    /// Ours: 64 bits of a hash.
    #[default]
    Fencelock,
    /// As `PgAdvisoryLock::new(name)` of sqlx.
    Sqlx,
    /// As `PostgresAdvisoryLockKey(name, allowHashing: true)` of madelson's DistributedLock.
    Madelson,
    /// As `with_advisory_lock(name)` of the Ruby gem.
    WithAdvisoryLock,
    /// The name is the number: `42`, or `1,2` for one of two.
    Raw,
}
impl Keys {
    /// Of a name that [`check`](Self::check) has let through.
    pub(crate) fn of(self, space: &str, name: &str) -> Key {
        match self {
            // No name has a NUL: it is one number for each of both.
            Self::Fencelock if !space.is_empty() => keys::fencelock(&format!("{space}\0{name}")),
            Self::Fencelock => keys::fencelock(name),
            Self::Sqlx => keys::sqlx(name),
            Self::Madelson => keys::madelson(name),
            Self::WithAdvisoryLock => keys::with_advisory_lock(name, 0),
            Self::Raw => raw(name).unwrap_or(Key::Int8(0)),
        }
    }
    /// It can be a number.
    pub(crate) fn check(self, name: &str) -> Result<()> {
        if self != Self::Raw || raw(name).is_some() {
            return Ok(());
        }
        let error = Error::new(ErrorKind::InvalidName, "lock", "keys=raw takes names that are numbers");
        Err(error.with("name", name).hint("write 42, or 1,2 for the key of two"))
    }
}
fn raw(name: &str) -> Option<Key> {
    match name.split_once(',') {
        None => name.parse().ok().map(Key::Int8),
        Some((first, second)) => Some(Key::Int4s(first.parse().ok()?, second.parse().ok()?)),
    }
}
/// Where those who wait listen. Through a pooler of transactions nobody can: that is noticed, and they look by themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Listen {
    /// On a connection like the others.
    #[default]
    Here,
    /// Nowhere.
    Off,
    /// By another URL, which leads to the same database past the pooler.
    At(String),
}

impl Config {
    /// Servers, a user, a database of the same name, and the defaults.
    pub fn new(hosts: Vec<(String, u16)>, user: impl Into<String>) -> Self {
        let user = user.into();
        Self {
            hosts,
            tls: None,
            database: user.clone(),
            user,
            password: None,
            schema: None,
            strategy: Strategy::Lease,
            keys: Keys::Fencelock,
            listen: Listen::Here,
            namespace: String::new(),
            ttl: Duration::from_secs(30),
            retention: Duration::from_secs(604_800),
        }
    }
    /// Reads a URL: `postgres://user:password@h1:5432,h2:5432/database`, with `?sslmode=verify-full` for TLS.
    ///
    /// # Errors
    /// `InvalidConfig` with the value, the place and the way out.
    pub fn from_url(text: &str) -> Result<Self> {
        let mut url = Url::parse(text)?;
        let ("postgres" | "postgresql") = url.scheme() else {
            return Err(url.refuse_scheme("write postgres://USER@HOST/DATABASE"));
        };
        let Some(user) = url.user().map(str::to_owned) else {
            return Err(invalid("a user is missing").hint("write postgres://USER@HOST/DATABASE"));
        };
        let mut config = Self::new(url.hosts_or(PORT), user);
        config.password = url.password().map(str::to_owned);
        match url.path().trim_start_matches('/') {
            "" => {}
            path => path.clone_into(&mut config.database),
        }
        config.schema = url.take("schema");
        config.strategy = match url.take("strategy").as_deref() {
            None | Some("lease") => Strategy::Lease,
            Some("session") => Strategy::Session,
            Some("shedlock") => Strategy::ShedLock,
            Some(other) => {
                let error = invalid(format!("strategy={other} is not known"));
                return Err(error.hint("write strategy=lease, strategy=session or strategy=shedlock"));
            }
        };
        config.keys = match url.take("keys").as_deref() {
            None | Some("fencelock") => Keys::Fencelock,
            Some("sqlx") => Keys::Sqlx,
            Some("madelson") => Keys::Madelson,
            Some("with_advisory_lock") => Keys::WithAdvisoryLock,
            Some("raw") => Keys::Raw,
            Some(other) => {
                let error = invalid(format!("keys={other} is not known"));
                return Err(error.hint("write keys=fencelock, sqlx, madelson, with_advisory_lock or raw"));
            }
        };
        config.listen = match url.take("listen").as_deref() {
            None | Some("on") => Listen::Here,
            Some("off") => Listen::Off,
            Some(at) => Listen::At(at.to_owned()),
        };
        config.namespace = url.take("namespace").unwrap_or_default();
        config.ttl = url.take_duration("ttl")?.unwrap_or(config.ttl);
        config.retention = url.take_duration("retention")?.unwrap_or(config.retention);
        let encrypted = match url.take("sslmode").as_deref() {
            None => false,
            Some("disable") => false,
            // Whoever is spoken to is always known: a stricter one is what everybody means.
            Some("require" | "verify-ca" | "verify-full") => true,
            Some(other) => {
                return Err(invalid(format!("sslmode={other} is not known"))
                    .hint("write sslmode=verify-full or sslmode=disable"));
            }
        };
        config.tls = url.take_tls(encrypted, "write sslmode=verify-full")?;
        url.finish(&KEYS)?;
        config.check()?;
        Ok(config)
    }
    pub(crate) fn check(&self) -> Result<()> {
        check_hosts(&self.hosts, "write postgres://USER@HOST/DATABASE")?;
        let named = [Some(&self.user), Some(&self.database), self.schema.as_ref(), Some(&self.namespace)];
        if named.into_iter().flatten().any(|name| name.contains('\0')) {
            return Err(invalid("a name holds a NUL").hint("PostgreSQL has none"));
        }
        if let Listen::At(url) = &self.listen
            && Self::from_url(url).map_err(|e| e.with("key", "listen"))?.listen != Listen::Here
        {
            return Err(invalid("listen= in the URL of listen=").hint("write it once"));
        }
        if self.keys != Keys::Fencelock && (self.strategy != Strategy::Session || !self.namespace.is_empty()) {
            let error = invalid("keys that are shared with others are those of advisory locks, without a namespace");
            return Err(error.hint("write strategy=session, and no namespace"));
        }
        if self.strategy == Strategy::ShedLock && !self.namespace.is_empty() {
            let error = invalid("ShedLock's table has no namespaces");
            return Err(error.hint("begin the names with it: they are what both sides share"));
        }
        if self.namespace.len() > 512 {
            return Err(invalid("the namespace is too long").hint("use at most 512 bytes"));
        }
        if self.schema.as_ref().is_some_and(|schema| schema.is_empty() || schema.len() > 63) {
            return Err(invalid("the schema's name is empty or too long").hint("use 1 to 63 bytes"));
        }
        check_ttl(self.ttl, MIN_TTL..=MAX_TTL, format!("postgres takes {MIN_TTL:?} to {MAX_TTL:?}"))?;
        check_retention(self.retention)
    }
    /// For people; without secrets.
    pub(crate) fn endpoint(&self) -> String {
        format!("postgres://{}@{}/{}", encode(&self.user, ""), host_ports(&self.hosts), encode(&self.database, ""))
    }
    /// The URL that leads to the same locks; `None` when it would show the password.
    pub(crate) fn url(&self) -> Option<String> {
        let elsewhere = if let Listen::At(url) = &self.listen { Some(Self::from_url(url).ok()?.url()?) } else { None };
        if self.password.is_some() {
            return None;
        }
        let mut url = Written::new(self.endpoint(), "");
        if let Some(schema) = &self.schema {
            url.add("schema", schema);
        }
        match self.strategy {
            Strategy::Lease => {}
            Strategy::Session => url.add("strategy", "session"),
            Strategy::ShedLock => url.add("strategy", "shedlock"),
        }
        match self.keys {
            Keys::Fencelock => {}
            Keys::Sqlx => url.add("keys", "sqlx"),
            Keys::Madelson => url.add("keys", "madelson"),
            Keys::WithAdvisoryLock => url.add("keys", "with_advisory_lock"),
            Keys::Raw => url.add("keys", "raw"),
        }
        match (&self.listen, &elsewhere) {
            (Listen::Off, _) => url.add("listen", "off"),
            (_, Some(past)) => url.add("listen", past),
            _ => {}
        }
        url.add_some("namespace", &self.namespace);
        if let Some(tls) = &self.tls {
            url.add("sslmode", "verify-full");
            url.add_tls(tls)?;
        }
        Some(url.end())
    }
}
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Config({})", self.endpoint())
    }
}

#[cfg(test)]
mod tests {
    //! Planted to see them go red: the password in `Debug`; an `sslmode` that is not looked at.
    use super::*;

    #[test]
    fn urls() {
        let config = Config::from_url(
            "postgres://ann:s%40d@[::1]:7000,h2/shop%2F1?namespace=n%26&ttl=10s&retention=2h&schema=Locks&sslmode=require",
        )
        .unwrap();
        assert_eq!(config.hosts, [("::1".to_owned(), 7000), ("h2".to_owned(), 5432)]);
        assert_eq!((config.user.as_str(), config.password.as_deref()), ("ann", Some("s@d")));
        assert_eq!((config.database.as_str(), config.schema.as_deref()), ("shop/1", Some("Locks")));
        assert_eq!((config.ttl.as_secs(), config.retention.as_secs()), (10, 7_200));
        assert!(!format!("{config:?}").contains("s@d") && config.url().is_none() && config.tls.is_some());
        for text in [
            "postgresql://u@h?namespace=a%26b",
            "postgres://u@h/d?schema=s",
            "postgres://u@h?sslmode=verify-full&ca=%2Fa&cert=%2Fb&key=%2Fc",
            "postgres://u@h?listen=off",
            "postgres://u@h?strategy=shedlock",
            "postgres://u@h?strategy=session&keys=with_advisory_lock",
            "postgres://u@pooler/d?listen=postgres%3A%2F%2Fu%40db%3A5432%2Fd",
        ] {
            let config = Config::from_url(text).unwrap();
            assert_eq!(Config::from_url(&config.url().unwrap()).unwrap(), config, "{text}");
        }
    }
    #[test]
    fn what_cannot_be_used_is_told() {
        for (url, says) in [
            ("postgres:", "a user is missing"),
            ("postgres://h", "a user is missing"),
            ("postgres://u@", "a host is missing"),
            ("postgres://u@h?tll=3s", "did you mean \"ttl\"?"),
            ("postgres://u@h?ttl=1ms", "200ms"),
            ("postgres://u@h?retention=1ms", "1s or longer"),
            ("postgres://u@h?sslmode=prefer", "sslmode=verify-full"),
            ("postgres://u@h?ca=/x", "sslmode=verify-full"),
            ("postgres://u@h?sslmode=require&cert=/x", "belong together"),
            ("postgres://u@h?schema=", "1 to 63 bytes"),
            ("postgres://u@h?listen=no", "listen"),
            ("postgres://u@h?strategy=row", "strategy=session"),
            ("postgres://u@h?strategy=shedlock&namespace=a", "no namespaces"),
            ("postgres://u@h?strategy=session&keys=mine", "madelson"),
            ("postgres://u@h?keys=sqlx", "strategy=session"),
            ("postgres://u@h?listen=postgres%3A%2F%2Fu%40h%3Flisten%3Doff", "write it once"),
            ("http://h", "is not this engine's"),
        ] {
            let error = Config::from_url(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{url}");
            assert!(error.to_string().contains(says), "{url}: {error}");
        }
    }
    // Planted: a key that the page does not have; one that only the page has.
    #[test]
    fn the_page_has_each_key_of_a_url() {
        fencelock_testkit::page_has_keys(include_str!("docs.md"), &KEYS, MIN_TTL);
    }
}
