//! What the configurations of engines have in common: how they are refused, checked, and said again as a URL.
use crate::{
    error::{Error, ErrorKind, Result},
    url::Url,
};
use std::{
    ops::RangeInclusive,
    path::{Path, PathBuf},
    time::Duration,
};

/// Files in PEM.
///
/// ```
/// use fencelock_core::url::Url;
/// let mut url = Url::parse("etcds://h?ca=/etc/ca.pem")?;
/// let tls = url.take_tls(true, "write etcds://")?.unwrap();
/// assert_eq!((tls.ca.unwrap().to_str(), tls.client), (Some("/etc/ca.pem"), None));
/// # Ok::<(), fencelock_core::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Who signed the servers' certificates; `None`: somebody whom this machine trusts.
    pub ca: Option<PathBuf>,
    /// The certificate and the key that we show.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// What cannot be used.
pub fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidConfig, "connect", message)
}
/// There is one at least, and each has a name.
///
/// # Errors
/// `InvalidConfig` with this hint.
pub fn check_hosts(hosts: &[(String, u16)], hint: &str) -> Result<()> {
    if hosts.is_empty() || hosts.iter().any(|(host, _)| host.is_empty()) {
        return Err(invalid("a host is missing").hint(hint));
    }
    Ok(())
}
/// It is within what the engine takes.
///
/// # Errors
/// `InvalidConfig` with this hint.
pub fn check_ttl(ttl: Duration, range: RangeInclusive<Duration>, hint: impl Into<String>) -> Result<()> {
    if range.contains(&ttl) {
        return Ok(());
    }
    Err(invalid(format!("a ttl of {ttl:?} cannot be used")).with("key", "ttl").hint(hint))
}
/// Idle records are kept for a second or longer: clients must not find tokens gone between two of their own steps.
///
/// # Errors
/// `InvalidConfig`.
pub fn check_retention(retention: Duration) -> Result<()> {
    const LEAST: Duration = Duration::from_secs(1);
    if retention >= LEAST {
        return Ok(());
    }
    let hint = format!("keep idle records for {LEAST:?} or longer");
    Err(invalid(format!("a retention of {retention:?} cannot be used")).hint(hint))
}

/// Percent-encoded, but for letters, digits, `-_.` and those of `plain`.
pub fn encode(text: &str, plain: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => out.push(char::from(byte)),
            _ if plain.as_bytes().contains(&byte) => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
/// `HOST:PORT`, or `[ADDRESS]:PORT`.
pub fn host_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
/// Several of them, with commas.
pub fn host_ports(hosts: &[(String, u16)]) -> String {
    hosts.iter().map(|(host, port)| host_port(host, *port)).collect::<Vec<_>>().join(",")
}

/// The URL that leads to the same locks, key by key.
///
/// ```
/// use fencelock_core::config::{Written, host_ports};
/// let mut url = Written::new(format!("x://{}", host_ports(&[("::1".into(), 1), ("h".into(), 2)])), "/");
/// url.add("a", "b/c&");
/// url.add("d", "e");
/// assert_eq!(url.end(), "x://[::1]:1,h:2?a=b/c%26&d=e");
/// ```
#[derive(Debug)]
pub struct Written {
    text: String,
    plain: &'static str,
    mark: char,
}
impl Written {
    /// Up to its keys; which letters of a value stay as they are.
    pub fn new(endpoint: String, plain: &'static str) -> Self {
        Self { text: endpoint, plain, mark: '?' }
    }
    /// The next key.
    pub fn add(&mut self, key: &str, value: &str) {
        self.text.push_str(&format!("{}{key}={}", self.mark, encode(value, self.plain)));
        self.mark = '&';
    }
    /// The same of one that is not there when it is empty.
    pub fn add_some(&mut self, key: &str, value: &str) {
        if !value.is_empty() {
            self.add(key, value);
        }
    }
    /// `ca`, `cert` and `key`. `None`: a path is no text.
    pub fn add_tls(&mut self, tls: &Tls) -> Option<()> {
        let mut file = |key: &str, path: &Path| path.to_str().map(|path| self.add(key, path));
        if let Some(ca) = &tls.ca {
            file("ca", ca)?;
        }
        if let Some((cert, key)) = &tls.client {
            file("cert", cert)?;
            file("key", key)?;
        }
        Some(())
    }
    /// All of it.
    pub fn end(self) -> String {
        self.text
    }
}

impl Url {
    /// It is another engine's.
    pub fn refuse_scheme(&self, hint: &str) -> Error {
        invalid(format!("{:?} is not this engine's", self.scheme())).hint(hint)
    }
    /// In order; where none is given the port is this one.
    pub fn hosts_or(&self, port: u16) -> Vec<(String, u16)> {
        self.hosts().iter().map(|(host, given)| (host.clone(), given.unwrap_or(port))).collect()
    }
    /// User and password: both, or neither.
    ///
    /// # Errors
    /// `InvalidConfig` with this hint.
    pub fn login(&self, hint: &str) -> Result<Option<(String, String)>> {
        match (self.user(), self.password()) {
            (Some(user), Some(password)) => Ok(Some((user.to_owned(), password.to_owned()))),
            (None, None) => Ok(None),
            _ => Err(invalid("user and password belong together").hint(hint)),
        }
    }
    /// Takes `ca`, `cert` and `key` out.
    ///
    /// # Errors
    /// `InvalidConfig` when one of these is given for a connection that is not encrypted, with this hint; when one of two is missing.
    pub fn take_tls(&mut self, encrypted: bool, hint: &str) -> Result<Option<Tls>> {
        let (ca, cert, key) = (self.take("ca"), self.take("cert"), self.take("key"));
        if !encrypted && (ca.is_some() || cert.is_some() || key.is_some()) {
            return Err(invalid("certificates are given for a connection that is not encrypted").hint(hint));
        }
        let client = match (cert, key) {
            (Some(cert), Some(key)) => Some((cert.into(), key.into())),
            (None, None) => None,
            _ => return Err(invalid("cert and key belong together").hint("give both, or neither")),
        };
        Ok(encrypted.then(|| Tls { ca: ca.map(Into::into), client }))
    }
}
