//! What a `zookeeper:` URL says.
use crate::wire::{
    node::{Dialect, escape, is_refused},
    op::Acl,
};
pub use fencelock_core::config::Tls;
use fencelock_core::{
    Error, Result,
    config::{Written, check_hosts, check_ttl, host_ports, invalid},
    url::Url,
};
use std::{fmt, str::FromStr, time::Duration};

/// The keys of a URL.
const KEYS: [&str; 9] = ["acl", "ca", "cert", "dialect", "key", "namespace", "revocable", "root", "ttl"];
const MIN_TTL: Duration = Duration::from_millis(200);
const MAX_TTL: Duration = Duration::from_secs(86_400);
const PORT: u16 = 2181;

/// How the engine is reached.
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    /// The servers: name or address, and port. Any of them will do.
    pub hosts: Vec<(String, u16)>,
    /// Encrypted, and how the other side is known.
    pub tls: Option<Tls>,
    /// What all paths begin with, and peers do not say: the chroot of a connect string. Empty, or `/a/b`.
    pub chroot: String,
    /// User and password, by the scheme `digest`: nodes are ours alone then, and of those whom `acl` names. The password is never
    /// shown.
    pub login: Option<(String, String)>,
    /// Who else may do everything with our nodes: `world` (all), or `digest:USER:HASH`.
    pub acl: Vec<String>,
    /// Where names lie: a peer takes our lock NAME at `ROOT/NAME`.
    pub root: String,
    /// Separates the names of applications that share a store: `/fencelock.SPACE` instead of `/fencelock`.
    pub namespace: String,
    /// In whose words nodes are named.
    pub dialect: Dialect,
    /// Whoever writes `__REVOKE__` (Curator's `Revoker`) or `unlock` into the node of a hold is heeded: the holder is told that it was
    /// taken away, and when he lets go it is free.
    pub revocable: bool,
    /// The session's timeout, as it is asked for. The server grants from 2 to 20 of its ticks, and what it grants counts.
    pub ttl: Duration,
}

impl Config {
    /// The servers, and the defaults.
    pub fn new(hosts: Vec<(String, u16)>) -> Self {
        Self {
            hosts,
            tls: None,
            chroot: String::new(),
            login: None,
            acl: Vec::new(),
            root: "/fencelock".to_owned(),
            namespace: String::new(),
            dialect: Dialect::default(),
            revocable: false,
            ttl: Duration::from_secs(30),
        }
    }
    /// Reads a URL: `zookeeper://user:password@h1:2181,h2:2181/chroot`, `zookeepers://…` for TLS.
    ///
    /// # Errors
    /// `InvalidConfig` with the value, the place and the way out.
    pub fn from_url(text: &str) -> Result<Self> {
        let mut url = Url::parse(text)?;
        let encrypted = match url.scheme() {
            "zookeeper" => false,
            "zookeepers" => true,
            _ => return Err(url.refuse_scheme("write zookeeper://HOST:2181")),
        };
        let mut config = Self::new(url.hosts_or(PORT));
        url.path().trim_end_matches('/').clone_into(&mut config.chroot);
        config.login = url.login("write zookeeper://USER:PASSWORD@HOST")?;
        if let Some(acl) = url.take("acl") {
            config.acl = acl.split(',').map(str::to_owned).collect();
        }
        config.root = url.take("root").unwrap_or(config.root);
        config.namespace = url.take("namespace").unwrap_or_default();
        if let Some(dialect) = url.take("dialect") {
            config.dialect = dialect.parse()?;
        }
        if let Some(revocable) = url.take("revocable") {
            config.revocable = revocable.parse().map_err(|_| {
                invalid(format!("{revocable:?} is neither true nor false"))
                    .with("key", "revocable")
                    .hint("write revocable=true")
            })?;
        }
        config.ttl = url.take_duration("ttl")?.unwrap_or(config.ttl);
        config.tls = url.take_tls(encrypted, "write zookeepers://")?;
        url.finish(&KEYS)?;
        config.check()?;
        Ok(config)
    }
    pub(crate) fn check(&self) -> Result<()> {
        check_hosts(&self.hosts, "write zookeeper://HOST:2181")?;
        for (what, path) in [("chroot", &self.chroot), ("root", &self.root)] {
            let is_path = path.starts_with('/') && path.len() > 1 && path[1..].split('/').all(is_part);
            if !(is_path || (what == "chroot" && path.is_empty())) || path.len() > 512 {
                return Err(invalid(format!("{path:?} is no path"))
                    .with("key", what)
                    .hint("write /a/b, without . and .. and control characters, of at most 512 bytes"));
            }
        }
        if format!("{}{}", self.chroot, self.root).starts_with("/zookeeper") {
            return Err(invalid("the server keeps /zookeeper for itself").hint("take another root"));
        }
        if self.namespace.len() > 512 || self.namespace.contains('\0') {
            return Err(invalid("the namespace is too long, or holds a NUL").hint("use at most 512 bytes"));
        }
        if let Some((user, _)) = &self.login
            && user.contains(':')
        {
            return Err(invalid(format!("the user {user:?} holds a colon")).hint("the scheme digest has none"));
        }
        for acl in &self.acl {
            parse_acl(acl)?;
        }
        check_ttl(
            self.ttl,
            MIN_TTL..=MAX_TTL,
            format!("take {MIN_TTL:?} to {MAX_TTL:?}; the server grants what it allows"),
        )
    }
    /// Whose our nodes are.
    pub(crate) fn acls(&self) -> Result<Vec<Acl>> {
        let mut all = Vec::new();
        for acl in &self.acl {
            all.push(parse_acl(acl)?);
        }
        let of = |scheme: &str, id: &str| Acl { scheme: scheme.to_owned(), id: id.to_owned() };
        match &self.login {
            // Whoever made it.
            Some(_) if !all.iter().any(|acl| acl.scheme == "world") => all.insert(0, of("auth", "")),
            None if all.is_empty() => all.push(of("world", "anyone")),
            _ => {}
        }
        Ok(all)
    }
    /// Where names lie.
    pub(crate) fn base(&self) -> String {
        let mut base = format!("{}{}", self.chroot, self.root);
        if !self.namespace.is_empty() {
            base.push('.');
            escape(&self.namespace, &mut base);
        }
        base
    }
    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "zookeepers" } else { "zookeeper" }
    }
    /// For people; without secrets.
    pub(crate) fn endpoint(&self) -> String {
        format!("{}://{}{}", self.scheme(), host_ports(&self.hosts), self.chroot)
    }
    /// The URL that leads to the same locks; `None` when it would show the password.
    pub(crate) fn url(&self) -> Option<String> {
        if self.login.is_some() {
            return None;
        }
        let mut url = Written::new(self.endpoint(), "/");
        url.add("root", &self.root);
        url.add("dialect", &self.dialect.to_string());
        url.add_some("namespace", &self.namespace);
        if self.revocable {
            url.add("revocable", "true");
        }
        if !self.acl.is_empty() {
            url.add("acl", &self.acl.join(","));
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
impl FromStr for Dialect {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "curator" => Ok(Self::Curator),
            "kazoo" => Ok(Self::Kazoo),
            other => Err(invalid(format!("{other:?} is no dialect")).with("key", "dialect").hint("curator, or kazoo")),
        }
    }
}
fn parse_acl(text: &str) -> Result<Acl> {
    let of = |scheme: &str, id: &str| Ok(Acl { scheme: scheme.to_owned(), id: id.to_owned() });
    match text.split_once(':') {
        None if text == "world" => of("world", "anyone"),
        Some(("digest", id)) if id.contains(':') => of("digest", id),
        // A password may stand in it.
        _ => Err(invalid("an ACL is not understood").with("key", "acl").hint("world, or digest:USER:HASH")),
    }
}
/// What ZooKeeper allows between two slashes.
fn is_part(part: &str) -> bool {
    !part.is_empty() && part != "." && part != ".." && !part.contains(is_refused)
}

#[cfg(test)]
mod tests {
    //! Planted to see them go red: the password in `Debug`.
    use super::*;
    use fencelock_core::ErrorKind;

    #[test]
    fn urls() {
        let config =
            Config::from_url("zookeeper://ann:s%40d@h1,[::1]:7000/apps/a?root=/x&ttl=10s&dialect=kazoo").unwrap();
        assert_eq!(config.hosts, [("h1".to_owned(), 2181), ("::1".to_owned(), 7000)]);
        assert_eq!(config.login, Some(("ann".to_owned(), "s@d".to_owned())));
        assert_eq!((config.base().as_str(), config.ttl.as_secs(), config.dialect), ("/apps/a/x", 10, Dialect::Kazoo));
        assert!(!format!("{config:?}").contains("s@d") && config.url().is_none());
        assert_eq!(config.acls().unwrap()[0].scheme, "auth");
        let plain = Config::from_url("zookeeper://h?namespace=n%26/x&acl=digest:a:b&revocable=true").unwrap();
        assert_eq!(plain.base(), "/fencelock.n&%2Fx");
        assert_eq!(Config::from_url(&plain.url().unwrap()).unwrap(), plain);
        let tls = Config::from_url("zookeepers://h?ca=/a&cert=/b&key=/c").unwrap();
        assert_eq!(tls.tls, Some(Tls { ca: Some("/a".into()), client: Some(("/b".into(), "/c".into())) }));
        assert_eq!(Config::from_url(&tls.url().unwrap()).unwrap(), tls);
        assert_eq!(Config::from_url("zookeeper://h").unwrap().acls().unwrap()[0].scheme, "world");
    }
    #[test]
    fn what_cannot_be_used_is_told() {
        for (url, says) in [
            ("zookeeper:", "a host is missing"),
            ("zookeeper://h/a//b", "is no path"),
            ("zookeeper://h/a/../b", "is no path"),
            ("zookeeper://h?root=", "is no path"),
            ("zookeeper://h?root=x", "is no path"),
            ("zookeeper://h?root=/zookeeper", "for itself"),
            ("zookeeper://h?tll=3s", "did you mean \"ttl\"?"),
            ("zookeeper://h?ttl=1ms", "200ms"),
            ("zookeeper://h?ca=/x", "zookeepers://"),
            ("zookeepers://h?cert=/x", "belong together"),
            ("zookeeper://h?dialect=java", "curator, or kazoo"),
            ("zookeeper://h?revocable=1", "true nor false"),
            ("zookeeper://h?acl=ip:1.2.3.4", "world, or digest"),
            ("zookeeper://ann@h", "belong together"),
            ("zookeeper://a%3Ab:c@h", "holds a colon"),
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
