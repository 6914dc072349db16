//! What a `redis:` URL says.
pub use fencelock_core::config::Tls;
use fencelock_core::{
    Result,
    config::{Written, check_retention, check_ttl, host_port, invalid},
    url::Url,
};
use std::{fmt, time::Duration};

/// The keys of a URL.
const KEYS: [&str; 7] = ["ca", "cert", "key", "namespace", "protocol", "retention", "ttl"];
/// The shortest ttl.
pub(crate) const MIN_TTL: Duration = Duration::from_millis(200);
/// The longest.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(86_400);
const PORT: u16 = 6379;

/// How the engine is reached.
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    /// Name or address.
    pub host: String,
    /// 6379 unless said otherwise.
    pub port: u16,
    /// Encrypted, and how the other side is known.
    pub tls: Option<Tls>,
    /// User of the access list; `None`: the default one.
    pub user: Option<String>,
    /// Its password. It is never shown.
    pub password: Option<String>,
    /// Number of the database.
    pub database: u32,
    /// Separates the names of applications that share a server.
    pub namespace: String,
    /// The ttl of holds that do not say their own.
    pub ttl: Duration,
    /// How long the record of a lock that nobody uses is kept, half of it at least. Its tokens go on rising afterwards, by the server's clock.
    pub retention: Duration,
    /// Speak the newer protocol, by which the server tells that a lock was taken away. Off: for servers before 6.0 and proxies.
    pub resp3: bool,
}

impl Config {
    /// A server, and the defaults.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self {
            host: host.into(),
            port,
            tls: None,
            user: None,
            password: None,
            database: 0,
            namespace: String::new(),
            ttl: Duration::from_secs(30),
            retention: Duration::from_secs(3_600),
            resp3: true,
        }
    }
    /// Reads a URL: `redis://user:password@host:6379/0`, `rediss://…` for TLS.
    ///
    /// # Errors
    /// `InvalidConfig` with the value, the place and the way out.
    pub fn from_url(text: &str) -> Result<Self> {
        let mut url = Url::parse(text)?;
        let encrypted = match url.scheme() {
            "redis" => false,
            "rediss" => true,
            _ => return Err(url.refuse_scheme("write redis://HOST:6379")),
        };
        let (host, port) = match url.hosts() {
            [(host, port)] if !host.is_empty() => (host.clone(), port.unwrap_or(PORT)),
            [] | [_] => return Err(invalid("a host is missing").hint("write redis://HOST:6379")),
            [..] => {
                return Err(invalid("there are several hosts").hint("give one: a server that stands alone has one"));
            }
        };
        let mut config = Self::new(host, port);
        config.user = url.user().map(str::to_owned);
        config.password = url.password().map(str::to_owned);
        if config.user.is_some() && config.password.is_none() {
            return Err(invalid("there is a user without a password").hint("write redis://USER:PASSWORD@HOST"));
        }
        config.database = match url.path().trim_start_matches('/') {
            "" => 0,
            path => path.parse().map_err(|_| {
                invalid(format!("{path:?} is no number of a database")).hint("write redis://HOST:6379/0")
            })?,
        };
        if let Some(namespace) = url.take("namespace") {
            if namespace.len() > 512 || namespace.contains('\0') {
                return Err(invalid("the namespace is too long, or holds a NUL").hint("use at most 512 bytes"));
            }
            config.namespace = namespace;
        }
        config.ttl = url.take_duration("ttl")?.unwrap_or(config.ttl);
        config.retention = url.take_duration("retention")?.unwrap_or(config.retention);
        config.resp3 = match url.take("protocol").as_deref() {
            None | Some("resp3") => true,
            Some("resp2") => false,
            Some(other) => {
                return Err(
                    invalid(format!("protocol={other} is not known")).hint("write protocol=resp3 or protocol=resp2")
                );
            }
        };
        config.tls = url.take_tls(encrypted, "write rediss://")?;
        url.finish(&KEYS)?;
        config.check()?;
        Ok(config)
    }
    /// The times are such that the scripts can keep what they promise.
    pub(crate) fn check(&self) -> Result<()> {
        check_ttl(self.ttl, MIN_TTL..=MAX_TTL, format!("redis takes {MIN_TTL:?} to {MAX_TTL:?}"))?;
        check_retention(self.retention)
    }
    /// For people; without secrets.
    pub(crate) fn endpoint(&self) -> String {
        let scheme = if self.tls.is_some() { "rediss" } else { "redis" };
        format!("{scheme}://{}/{}", host_port(&self.host, self.port), self.database)
    }
    /// The URL that leads to the same locks; `None` when it would show the password.
    pub(crate) fn url(&self) -> Option<String> {
        if self.password.is_some() {
            return None;
        }
        let mut url = Written::new(self.endpoint(), "/");
        url.add_some("namespace", &self.namespace);
        if !self.resp3 {
            url.add("protocol", "resp2");
        }
        if let Some(tls) = &self.tls {
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
    //! Planted to see them go red: the password in `Debug`; `protocol` that is not looked at.
    use super::*;
    use fencelock_core::ErrorKind;

    #[test]
    fn urls() {
        let config =
            Config::from_url("redis://ann:s%40d@[::1]:7000/3?namespace=n%26&ttl=10s&retention=2h&protocol=resp2")
                .unwrap();
        assert_eq!((config.host.as_str(), config.port, config.database, config.resp3), ("::1", 7000, 3, false));
        assert_eq!((config.user.as_deref(), config.password.as_deref()), (Some("ann"), Some("s@d")));
        assert_eq!((config.ttl.as_secs(), config.retention.as_secs()), (10, 7_200));
        assert!(!format!("{config:?}").contains("s@d") && config.url().is_none());
        let plain = Config::from_url("redis://h?namespace=a%26b").unwrap();
        assert_eq!(plain.url().as_deref(), Some("redis://h:6379/0?namespace=a%26b"));
        assert_eq!(Config::from_url(&plain.url().unwrap()).unwrap(), plain);
        let tls = Config::from_url("rediss://h/?ca=/a&cert=/b&key=/c").unwrap();
        let client = Some(("/b".into(), "/c".into()));
        assert_eq!(tls.tls, Some(Tls { ca: Some("/a".into()), client }));
        assert_eq!(Config::from_url(&tls.url().unwrap()).unwrap(), tls);
    }
    #[test]
    fn times_of_a_configuration_made_by_hand_are_looked_at() {
        let good = Config::new("h", 1);
        assert!(good.check().is_ok());
        let short = Config { retention: Duration::from_millis(1), ..good.clone() };
        let long = Config { ttl: MAX_TTL * 2, ..good };
        for wrong in [short, long] {
            assert_eq!(wrong.check().unwrap_err().kind(), ErrorKind::InvalidConfig);
        }
    }
    #[test]
    fn what_cannot_be_used_is_told() {
        for (url, says) in [
            ("redis:", "a host is missing"),
            ("redis://", "a host is missing"),
            ("redis://a,b", "several hosts"),
            ("redis://h/x", "number of a database"),
            ("redis://h?tll=3s", "did you mean \"ttl\"?"),
            ("redis://h?ttl=1ms", "200ms"),
            ("redis://h?retention=1ms", "1s or longer"),
            ("redis://h?protocol=4", "protocol=resp3"),
            ("redis://h?ca=/x", "rediss://"),
            ("rediss://h?cert=/x", "belong together"),
            ("redis://ann@h", "without a password"),
            ("http://h", "is not this engine's"),
        ] {
            let error = Config::from_url(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{url}");
            assert!(error.to_string().contains(says), "{url}: {error}");
        }
    }
}
