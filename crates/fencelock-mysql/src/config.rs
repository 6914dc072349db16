//! What a `mysql:` or `mariadb:` URL says.
use crate::wire::call::literal;
pub use fencelock_core::config::Tls;
use fencelock_core::{
    EngineId, Error, ErrorKind, Result,
    config::{Written, check_hosts, check_retention, check_ttl, encode, host_ports, invalid},
    url::Url,
};
use std::{fmt, time::Duration};

/// The keys of a URL.
const KEYS: [&str; 10] =
    ["ca", "cert", "doorbell", "key", "keys", "namespace", "retention", "ssl-mode", "strategy", "ttl"];
/// The shortest ttl.
pub(crate) const MIN_TTL: Duration = Duration::from_millis(200);
/// The longest.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(86_400);
const PORT: u16 = 3306;
const EXAMPLE: &str = "write mysql://USER@HOST/DATABASE";

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
    /// Where our tables lie.
    pub database: String,
    /// What a lock is there.
    pub strategy: Strategy,
    /// The names of named locks, of [`Strategy::Session`].
    pub keys: Keys,
    /// Separates the names of applications that share a database.
    pub namespace: String,
    /// The ttl of holds that do not say their own.
    pub ttl: Duration,
    /// How long the record of a lock that nobody uses is kept. Its tokens go on rising afterwards.
    pub retention: Duration,
    /// Whoever waits near his turn hears at once that the one in front of him has gone. It costs a connection for each who waits so, and for as
    /// long as he then holds the lock; up to eight for each runtime. Not on Galera.
    pub doorbell: bool,
}
/// What a lock is at the server.
///
/// ```
/// use fencelock_mysql::{Config, Strategy};
/// assert_eq!(Config::from_url("mysql://app@db1/shop?strategy=shedlock").unwrap().strategy, Strategy::ShedLock);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// A record with an end, which its holder puts off.
    #[default]
    Lease,
    /// A named lock (`GET_LOCK`), which lives with a session of the server.
    Session,
    /// A row of the table of ShedLock, whose users contend for the same locks.
    ShedLock,
}
/// How a name becomes that of a named lock: whoever uses the same contends for the same lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keys {
    /// Ours: a hash, which is of these tables alone. The server's named locks know no database.
    #[default]
    Fencelock,
    /// The name itself, of up to 64 bytes: what others pass to `GET_LOCK`.
    Raw,
}
/// What sessions of ours show that they live by; nobody's lock.
pub(crate) const PULSES: &str = "fencelock.";
impl Keys {
    /// What the server takes for the name of the lock: an expression.
    pub(crate) fn of(self, store: EngineId, space: &str, name: &str) -> String {
        match self {
            // No name has a NUL: it is one text for each of both.
            Self::Fencelock => {
                let text = format!("fencelock\0{store}\0{space}\0{name}");
                format!("SHA2({},256)", literal(text.as_bytes()))
            }
            Self::Raw => literal(name.as_bytes()),
        }
    }
    /// It can be one.
    pub(crate) fn check(self, name: &str) -> Result<()> {
        let fits = name.len() <= 64 && !name.to_lowercase().starts_with(PULSES);
        if self != Self::Raw || fits {
            return Ok(());
        }
        let error = Error::new(ErrorKind::InvalidName, "lock", "keys=raw takes names that GET_LOCK takes");
        Err(error.with("name", name).hint("use up to 64 bytes, which do not begin with fencelock."))
    }
}

impl Config {
    /// Servers, a user, a database, and the defaults.
    ///
    /// ```
    /// use fencelock_mysql::Config;
    /// let config = Config::new(vec![("db1".into(), 3306)], "app", "shop");
    /// assert_eq!(config.ttl.as_secs(), 30);
    /// ```
    pub fn new(hosts: Vec<(String, u16)>, user: impl Into<String>, database: impl Into<String>) -> Self {
        Self {
            hosts,
            tls: None,
            database: database.into(),
            user: user.into(),
            password: None,
            strategy: Strategy::Lease,
            keys: Keys::Fencelock,
            namespace: String::new(),
            ttl: Duration::from_secs(30),
            retention: Duration::from_secs(604_800),
            doorbell: false,
        }
    }
    /// Reads a URL: `mysql://user:password@h1:3306,h2:3306/database`, with `?ssl-mode=verify-identity` for TLS.
    ///
    /// ```
    /// use fencelock_mysql::Config;
    /// let config = Config::from_url("mariadb://app@db1,db2/shop?ttl=10s").unwrap();
    /// assert_eq!((config.database.as_str(), config.hosts.len()), ("shop", 2));
    /// assert!(Config::from_url("mysql://app@db1").unwrap_err().to_string().contains("a database is missing"));
    /// ```
    ///
    /// # Errors
    /// `InvalidConfig` with the value, the place and the way out.
    pub fn from_url(text: &str) -> Result<Self> {
        let mut url = Url::parse(text)?;
        let ("mysql" | "mariadb") = url.scheme() else {
            return Err(url.refuse_scheme(EXAMPLE));
        };
        let Some(user) = url.user().map(str::to_owned) else {
            return Err(invalid("a user is missing").hint(EXAMPLE));
        };
        let mut config = Self::new(url.hosts_or(PORT), user, url.path().trim_start_matches('/'));
        config.password = url.password().map(str::to_owned);
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
            Some("raw") => Keys::Raw,
            Some(other) => {
                return Err(invalid(format!("keys={other} is not known")).hint("write keys=fencelock or keys=raw"));
            }
        };
        config.namespace = url.take("namespace").unwrap_or_default();
        config.ttl = url.take_duration("ttl")?.unwrap_or(config.ttl);
        config.retention = url.take_duration("retention")?.unwrap_or(config.retention);
        config.doorbell = match url.take("doorbell").as_deref() {
            None | Some("off") => false,
            Some("on") => true,
            Some(other) => {
                let error = invalid(format!("doorbell={other} is not known"));
                return Err(error.hint("write doorbell=on or doorbell=off"));
            }
        };
        let mode = url.take("ssl-mode").map(|mode| mode.to_ascii_lowercase().replace('_', "-"));
        let encrypted = match mode.as_deref() {
            None | Some("disabled") => false,
            // Whoever is spoken to is always known: a stricter one is what everybody means.
            Some("required" | "verify-ca" | "verify-identity") => true,
            Some(other) => {
                return Err(invalid(format!("ssl-mode={other} is not known"))
                    .hint("write ssl-mode=verify-identity or ssl-mode=disabled"));
            }
        };
        config.tls = url.take_tls(encrypted, "write ssl-mode=verify-identity")?;
        url.finish(&KEYS)?;
        config.check()?;
        Ok(config)
    }
    pub(crate) fn check(&self) -> Result<()> {
        check_hosts(&self.hosts, EXAMPLE)?;
        if self.database.is_empty() {
            return Err(invalid("a database is missing").hint(EXAMPLE));
        }
        if [&self.user, &self.database].into_iter().any(|name| name.contains('\0')) {
            return Err(invalid("a name holds a NUL").hint("MySQL has none"));
        }
        if self.keys != Keys::Fencelock && (self.strategy != Strategy::Session || !self.namespace.is_empty()) {
            let error = invalid("names that are shared with others are those of named locks, without a namespace");
            return Err(error.hint("write strategy=session, and no namespace"));
        }
        if self.doorbell && self.strategy != Strategy::Lease {
            return Err(invalid("doorbells are for leases").hint("leave out doorbell=on, or the strategy"));
        }
        if self.strategy == Strategy::ShedLock && !self.namespace.is_empty() {
            let error = invalid("ShedLock's table has no namespaces");
            return Err(error.hint("begin the names with it: they are what both sides share"));
        }
        if self.namespace.len() > 512 {
            return Err(invalid("the namespace is too long").hint("use at most 512 bytes"));
        }
        check_ttl(self.ttl, MIN_TTL..=MAX_TTL, format!("mysql takes {MIN_TTL:?} to {MAX_TTL:?}"))?;
        check_retention(self.retention)
    }
    /// For people; without secrets.
    pub(crate) fn endpoint(&self) -> String {
        format!("mysql://{}@{}/{}", encode(&self.user, ""), host_ports(&self.hosts), encode(&self.database, ""))
    }
    /// The URL that leads to the same locks; `None` when it would show the password.
    pub(crate) fn url(&self) -> Option<String> {
        if self.password.is_some() {
            return None;
        }
        let mut url = Written::new(self.endpoint(), "");
        match self.strategy {
            Strategy::Lease => {}
            Strategy::Session => url.add("strategy", "session"),
            Strategy::ShedLock => url.add("strategy", "shedlock"),
        }
        if self.keys == Keys::Raw {
            url.add("keys", "raw");
        }
        url.add_some("namespace", &self.namespace);
        if self.doorbell {
            url.add("doorbell", "on");
        }
        if let Some(tls) = &self.tls {
            url.add("ssl-mode", "verify-identity");
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
    //! Planted to see them go red: the password in `Debug`; an `ssl-mode` that is not looked at.
    use super::*;

    #[test]
    fn urls() {
        let config = Config::from_url(
            "mysql://ann:s%40d@[::1]:7000,h2/shop%2F1?namespace=n%26&ttl=10s&retention=2h&doorbell=on&ssl-mode=VERIFY_IDENTITY",
        )
        .unwrap();
        assert_eq!(config.hosts, [("::1".to_owned(), 7000), ("h2".to_owned(), 3306)]);
        assert_eq!((config.user.as_str(), config.password.as_deref()), ("ann", Some("s@d")));
        assert_eq!((config.database.as_str(), config.namespace.as_str()), ("shop/1", "n&"));
        assert_eq!((config.ttl.as_secs(), config.retention.as_secs()), (10, 7_200));
        assert!(
            !format!("{config:?}").contains("s@d") && config.url().is_none() && config.tls.is_some() && config.doorbell
        );
        for text in [
            "mariadb://u@h/d?namespace=a%26b",
            "mysql://u@h/d?ssl-mode=disabled",
            "mysql://u@h/d?strategy=shedlock",
            "mysql://u@h/d?ssl-mode=required&ca=%2Fa&cert=%2Fb&key=%2Fc",
            "mysql://u@h/d?strategy=session&namespace=n",
            "mysql://u@h/d?strategy=session&keys=raw",
        ] {
            let config = Config::from_url(text).unwrap();
            assert_eq!(Config::from_url(&config.url().unwrap()).unwrap(), config, "{text}");
        }
    }
    #[test]
    fn the_names_of_named_locks() {
        let store = EngineId::from_bytes(7_u128.to_be_bytes());
        assert_eq!(Keys::Raw.of(store, "", "it's"), "X'69742773'");
        let ours = Keys::Fencelock.of(store, "s", "n");
        assert!(ours.starts_with("SHA2(X'66656e63656c6f636b00") && ours.ends_with("0073006e',256)"), "{ours}");
        Keys::Fencelock.check(&"x".repeat(512)).unwrap();
        Keys::Raw.check(&"ä".repeat(32)).unwrap();
        for name in ["x".repeat(65), "FenceLock.x".to_owned()] {
            assert_eq!(Keys::Raw.check(&name).unwrap_err().kind(), ErrorKind::InvalidName, "{name}");
        }
    }
    #[test]
    fn what_cannot_be_used_is_told() {
        for (url, says) in [
            ("mysql:", "a user is missing"),
            ("mysql://h/d", "a user is missing"),
            ("mysql://u@/d", "a host is missing"),
            ("mysql://u@h", "a database is missing"),
            ("mysql://u@h/d?tll=3s", "did you mean \"ttl\"?"),
            ("mysql://u@h/d?sslmode=required", "did you mean \"ssl-mode\"?"),
            ("mysql://u@h/d?ttl=1ms", "200ms"),
            ("mysql://u@h/d?strategy=row", "strategy=shedlock"),
            ("mysql://u@h/d?strategy=shedlock&namespace=a", "no namespaces"),
            ("mysql://u@h/d?retention=1ms", "1s or longer"),
            ("mysql://u@h/d?doorbell=loud", "doorbell=on or doorbell=off"),
            ("mysql://u@h/d?doorbell=on&strategy=session", "leave out doorbell=on"),
            ("mysql://u@h/d?ssl-mode=preferred", "ssl-mode=verify-identity"),
            ("mysql://u@h/d?ca=/x", "ssl-mode=verify-identity"),
            ("mysql://u@h/d?ssl-mode=required&cert=/x", "belong together"),
            ("mysql://u@h/d?strategy=advisory", "strategy=session"),
            ("mysql://u@h/d?strategy=session&keys=md5", "keys=raw"),
            ("mysql://u@h/d?keys=raw", "strategy=session"),
            ("mysql://u@h/d?strategy=session&keys=raw&namespace=n", "no namespace"),
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
