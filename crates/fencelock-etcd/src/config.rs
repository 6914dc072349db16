//! What an `etcd:` URL says.
pub use fencelock_core::config::Tls;
use fencelock_core::{
    Result,
    config::{Written, check_hosts, check_ttl, host_port, host_ports, invalid},
    url::Url,
};
use std::{fmt, time::Duration};

/// The keys of a URL.
const KEYS: [&str; 6] = ["ca", "cert", "key", "namespace", "prefix", "ttl"];
/// The shortest ttl. The server counts in whole seconds: of a shorter one only our side of the promise is shorter.
pub(crate) const MIN_TTL: Duration = Duration::from_millis(500);
/// The longest.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(86_400);
const PORT: u16 = 2379;

/// How the engine is reached.
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    /// The members: name or address, and port. Any of them will do.
    pub hosts: Vec<(String, u16)>,
    /// Encrypted, and how the other side is known.
    pub tls: Option<Tls>,
    /// User and password, where the server asks for them. The password is never shown.
    pub login: Option<(String, String)>,
    /// What all keys begin with: a peer takes our lock NAME as `etcdctl lock PREFIX NAME`, in one word.
    pub prefix: String,
    /// Separates the names of applications that share a store: `fencelock.SPACE/` instead of `fencelock/`.
    pub namespace: String,
    /// The ttl of holds that do not say their own.
    pub ttl: Duration,
}

impl Config {
    /// The members, and the defaults.
    pub fn new(hosts: Vec<(String, u16)>) -> Self {
        let (prefix, namespace, ttl) = ("fencelock/".to_owned(), String::new(), Duration::from_secs(30));
        Self { hosts, tls: None, login: None, prefix, namespace, ttl }
    }
    /// Reads a URL: `etcd://user:password@h1:2379,h2:2379`, `etcds://…` for TLS.
    ///
    /// # Errors
    /// `InvalidConfig` with the value, the place and the way out.
    pub fn from_url(text: &str) -> Result<Self> {
        let mut url = Url::parse(text)?;
        let encrypted = match url.scheme() {
            "etcd" => false,
            "etcds" => true,
            _ => return Err(url.refuse_scheme("write etcd://HOST:2379")),
        };
        if !matches!(url.path(), "" | "/") {
            return Err(invalid(format!("{:?} is not read: etcd has no databases", url.path()))
                .hint("write etcd://HOST:2379?prefix=…"));
        }
        let mut config = Self::new(url.hosts_or(PORT));
        config.login = url.login("write etcd://USER:PASSWORD@HOST")?;
        config.prefix = url.take("prefix").unwrap_or(config.prefix);
        config.namespace = url.take("namespace").unwrap_or_default();
        config.ttl = url.take_duration("ttl")?.unwrap_or(config.ttl);
        config.tls = url.take_tls(encrypted, "write etcds://")?;
        url.finish(&KEYS)?;
        config.check()?;
        Ok(config)
    }
    pub(crate) fn check(&self) -> Result<()> {
        check_hosts(&self.hosts, "write etcd://HOST:2379")?;
        let odd = |c: char| c == '\0' || c == '%';
        if self.prefix.len() > 512 || self.prefix.contains(odd) {
            return Err(invalid("the prefix is too long, or holds a NUL or a %").hint("use at most 512 bytes"));
        }
        if self.namespace.len() > 512 || self.namespace.contains('\0') {
            return Err(invalid("the namespace is too long, or holds a NUL").hint("use at most 512 bytes"));
        }
        // Its keys would lie among those of a lock of that name.
        if !self.namespace.is_empty() && !self.prefix.ends_with('/') {
            return Err(invalid("a namespace needs a prefix that ends with a /").hint("write ?prefix=locks/"));
        }
        check_ttl(self.ttl, MIN_TTL..=MAX_TTL, format!("etcd takes {MIN_TTL:?} to {MAX_TTL:?}"))
    }
    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "etcds" } else { "etcd" }
    }
    /// Each member as gRPC names it.
    pub(crate) fn members(&self) -> impl Iterator<Item = String> + '_ {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        self.hosts.iter().map(move |(host, port)| format!("{scheme}://{}", host_port(host, *port)))
    }
    /// For people; without secrets.
    pub(crate) fn endpoint(&self) -> String {
        format!("{}://{}", self.scheme(), host_ports(&self.hosts))
    }
    /// The URL that leads to the same locks; `None` when it would show the password.
    pub(crate) fn url(&self) -> Option<String> {
        if self.login.is_some() {
            return None;
        }
        let mut url = Written::new(self.endpoint(), "/");
        url.add("prefix", &self.prefix);
        url.add_some("namespace", &self.namespace);
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
    //! Planted to see them go red: the password in `Debug`.
    use super::*;
    use fencelock_core::ErrorKind;

    #[test]
    fn urls() {
        let config = Config::from_url("etcd://ann:s%40d@h1,[::1]:7000?prefix=shop/&ttl=10s").unwrap();
        assert_eq!(config.hosts, [("h1".to_owned(), 2379), ("::1".to_owned(), 7000)]);
        assert_eq!(config.login, Some(("ann".to_owned(), "s@d".to_owned())));
        assert_eq!((config.prefix.as_str(), config.ttl.as_secs()), ("shop/", 10));
        assert_eq!(config.members().collect::<Vec<_>>(), ["http://h1:2379", "http://[::1]:7000"]);
        assert!(!format!("{config:?}").contains("s@d") && config.url().is_none());
        let tls = Config::from_url("etcds://h?ca=/a&cert=/b&key=/c&namespace=n%26").unwrap();
        assert_eq!(tls.tls, Some(Tls { ca: Some("/a".into()), client: Some(("/b".into(), "/c".into())) }));
        assert_eq!(Config::from_url(&tls.url().unwrap()).unwrap(), tls);
    }
    #[test]
    fn what_cannot_be_used_is_told() {
        for (url, says) in [
            ("etcd:", "a host is missing"),
            ("etcd://h/x", "no databases"),
            ("etcd://h?tll=3s", "did you mean \"ttl\"?"),
            ("etcd://h?ttl=1ms", "500ms"),
            ("etcd://h?ca=/x", "etcds://"),
            ("etcds://h?cert=/x", "belong together"),
            ("etcd://ann@h", "belong together"),
            ("etcd://h?prefix=a%25", "holds a NUL or a %"),
            ("etcd://h?prefix=a&namespace=b", "ends with a /"),
            ("etcd://h?prefix=&namespace=b", "ends with a /"),
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
