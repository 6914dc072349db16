//! One parser for the URLs of all engines: several hosts, percent-decoding, unknown keys refused, secrets kept back. (The `url`
//! crate refuses `etcd://h1:2379,h2:2379`.)
use crate::{config::invalid, error::Result};
use std::{fmt, time::Duration};

/// A parsed URL: `scheme:path?key=value` or `scheme://user:password@host:port,host:port/path?key=value`. Engines take out the
/// keys that they know and call [`Url::finish`].
///
/// ```
/// use fencelock_core::url::Url;
/// let mut url = Url::parse("etcd://ann:s%40d@h1:2379,[::1]:2380/x%20y?ttl=10s")?;
/// assert_eq!(url.hosts(), [("h1".to_owned(), Some(2379)), ("::1".to_owned(), Some(2380))]);
/// assert_eq!((url.path(), url.password()), ("/x y", Some("s@d")));
/// assert_eq!(url.to_string(), "etcd://ann:***@h1:2379,[::1]:2380/x y");
/// assert_eq!(url.take_duration("ttl")?, Some(std::time::Duration::from_secs(10)));
/// url.finish(&["ttl"])?;
/// # Ok::<(), fencelock_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    scheme: String,
    user: Option<String>,
    password: Option<String>,
    /// `None`: no `//`.
    hosts: Option<Vec<(String, Option<u16>)>>,
    path: String,
    query: Vec<(String, String)>,
}

impl Url {
    /// Takes a URL apart.
    ///
    /// # Errors
    /// `InvalidConfig`, saying what is wrong; never with a password in it.
    pub fn parse(text: &str) -> Result<Self> {
        let Some((scheme, rest)) = text.split_once(':') else {
            let way_out = "write SCHEME:…, for example sqlite:/var/lib/app/locks.db";
            return Err(invalid(format!("{:?} is no URL", shown(text))).hint(way_out));
        };
        let letters = |c: char| c.is_ascii_alphanumeric() || c == '+' || c == '-' || c == '.';
        if scheme.is_empty() || !scheme.chars().all(letters) {
            return Err(
                invalid(format!("{:?} is no scheme", shown(scheme))).hint("write SCHEME:…, for example sqlite:")
            );
        }
        if let Some(rest) = rest.strip_prefix("//") {
            let (authority, further) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
            // Most likely what ended the hosts is in a password, whose rest would be shown as host, path or key.
            if authority.contains(':') && further.contains('@') {
                let way_out = "write / as %2F and ? as %3F in a password, and @ as %40 after the hosts";
                return Err(invalid("the URL has @ after the / or ? that ends its hosts").hint(way_out));
            }
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = match rest.strip_prefix("//") {
            None => (None, rest),
            Some(rest) => {
                let end = rest.find('/').unwrap_or(rest.len());
                (Some(&rest[..end]), &rest[end..])
            }
        };
        let (mut user, mut password, mut hosts) = (None, None, None);
        if let Some(authority) = authority {
            let (login, list) = authority.rsplit_once('@').map_or((None, authority), |(l, h)| (Some(l), h));
            if let Some(login) = login {
                let (name, secret) = login.split_once(':').map_or((login, None), |(n, s)| (n, Some(s)));
                user = (!name.is_empty()).then(|| decode(name, "user")).transpose()?;
                password = secret.map(|secret| decode(secret, "password")).transpose()?;
            }
            hosts = Some(list.split(',').filter(|host| !host.is_empty()).map(host).collect::<Result<_>>()?);
        }
        let mut pairs: Vec<(String, String)> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (key, value) = (decode(key, "key")?, decode(value, "value")?);
            if pairs.iter().any(|(known, _)| *known == key) {
                return Err(invalid(format!("the key {key:?} is given twice")).hint("leave one out"));
            }
            pairs.push((key, value));
        }
        let scheme = scheme.to_ascii_lowercase();
        Ok(Self { scheme, user, password, hosts, path: decode(path, "path")?, query: pairs })
    }
    /// In lower case.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }
    /// Decoded.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }
    /// Decoded. Never print it.
    pub fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }
    /// In order, with their ports.
    pub fn hosts(&self) -> &[(String, Option<u16>)] {
        self.hosts.as_deref().unwrap_or(&[])
    }
    /// Decoded; with its leading slash.
    pub fn path(&self) -> &str {
        &self.path
    }
    /// Takes a key out.
    pub fn take(&mut self, key: &str) -> Option<String> {
        let at = self.query.iter().position(|(known, _)| known == key)?;
        Some(self.query.remove(at).1)
    }
    /// Takes a duration out: `30s`, `250ms`, `2h`, `7d`.
    ///
    /// # Errors
    /// `InvalidConfig` when it is none.
    pub fn take_duration(&mut self, key: &str) -> Result<Option<Duration>> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let refuse =
            || invalid(format!("{value:?} is no duration")).with("key", key).hint("write 250ms, 30s, 5m, 2h or 7d");
        let split = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
        let number: u64 = value[..split].parse().map_err(|_| refuse())?;
        let factor = match &value[split..] {
            "ms" => 1,
            "s" | "" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(refuse()),
        };
        Ok(Some(Duration::from_millis(number.checked_mul(factor).ok_or_else(refuse)?)))
    }
    /// Every key must have been taken.
    ///
    /// # Errors
    /// `InvalidConfig` with the nearest of the keys that are known.
    pub fn finish(self, known: &[&str]) -> Result<()> {
        let Some((key, _)) = self.query.first() else { return Ok(()) };
        let refused = invalid(format!("unknown key {key:?}")).with("scheme", &self.scheme);
        Err(match nearest(key, known) {
            Some(meant) => refused.hint(format!("did you mean {meant:?}? known: {}", known.join(", "))),
            None => refused.hint(format!("known: {}", known.join(", "))),
        })
    }
}

/// The word of `known` that was most likely meant.
///
/// ```
/// use fencelock_core::url::nearest;
/// assert_eq!(nearest("tll", &["ttl", "sync"]), Some("ttl"));
/// assert_eq!(nearest("colour", &["ttl", "sync"]), None);
/// ```
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let best = known.iter().map(|candidate| (distance(word, candidate), *candidate)).min()?;
    (best.0 <= 2.max(word.len() / 3)).then_some(best.1)
}
/// Levenshtein's.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
/// Without what may be a password.
fn shown(text: &str) -> String {
    text.rsplit_once('@').map_or(text.to_owned(), |(_, rest)| format!("***@{rest}"))
}
fn host(text: &str) -> Result<(String, Option<u16>)> {
    let refuse = || invalid(format!("{:?} is no host", shown(text))).hint("write HOST, HOST:PORT or [ADDRESS]:PORT");
    let (name, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (name, port) = rest.split_once(']').ok_or_else(refuse)?;
            (name, (!port.is_empty()).then(|| port.strip_prefix(':').ok_or_else(refuse)).transpose()?)
        }
        None => text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port))),
    };
    let port = port.map(|port| port.parse().map_err(|_| refuse())).transpose()?;
    Ok((decode(name, "host")?, port))
}
fn decode(text: &str, part: &'static str) -> Result<String> {
    // Of a part that may be secret the error shows nothing.
    let value = if matches!(part, "user" | "password" | "value") { String::new() } else { format!(" {text:?}") };
    let refuse = || invalid(format!("the {part}{value} is not percent-encoded UTF-8")).hint("write % as %25");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|b| char::from(b).to_digit(16)).and_then(|d| u8::try_from(d).ok());
        let (high, low) = (digit(rest.next()), digit(rest.next()));
        bytes.push(high.ok_or_else(refuse)? * 16 + low.ok_or_else(refuse)?);
    }
    String::from_utf8(bytes).map_err(|_| refuse())
}
/// The password is never shown, nor are the values of keys.
impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.scheme)?;
        if let Some(hosts) = &self.hosts {
            f.write_str("//")?;
            if self.user.is_some() || self.password.is_some() {
                let hidden = if self.password.is_some() { ":***" } else { "" };
                write!(f, "{}{hidden}@", self.user.as_deref().unwrap_or(""))?;
            }
            for (i, (name, port)) in hosts.iter().enumerate() {
                let comma = if i == 0 { "" } else { "," };
                let (open, close) = if name.contains(':') { ("[", "]") } else { ("", "") };
                write!(f, "{comma}{open}{name}{close}")?;
                if let Some(port) = port {
                    write!(f, ":{port}")?;
                }
            }
        }
        f.write_str(&self.path)
    }
}
impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Url({self})")
    }
}

#[cfg(test)]
mod tests {
    //! Planted to see them go red: the password printed by `Display`; `finish` that returns `Ok`; no look for an `@` after the hosts.
    use super::*;

    #[test]
    fn parts() {
        for (text, scheme, path) in
            [("sqlite:", "sqlite", ""), ("sqlite:a/b", "sqlite", "a/b"), ("SQLite:/a%3Fb", "sqlite", "/a?b")]
        {
            let url = Url::parse(text).unwrap();
            assert_eq!((url.scheme(), url.path(), url.hosts().len()), (scheme, path, 0));
        }
        let url = Url::parse("redis://:p%2Fw@h/3").unwrap();
        assert_eq!((url.user(), url.password(), url.path()), (None, Some("p/w"), "/3"));
    }
    #[test]
    fn secrets_stay_inside() {
        assert_eq!(Url::parse("x://ann:p@h:1/?ttl=1s").unwrap().hosts().len(), 1);
        assert_eq!(Url::parse("x://h/a@b?c=d@e").unwrap().path(), "/a@b");
        let url = Url::parse("redis://u:hunter2@h:1/").unwrap();
        assert!(!format!("{url} {url:?}").contains("hunter2"));
        let whole = ["://u:hunter2@h", "redis://u:hunter2@h:x/", "redis://u:hunter2%@h/", "re dis://u:hunter2@h"];
        let unescaped =
            ["x://u:hunter2/a@h:1/", "x://u:1/hunter2@h", "x://u:hunter2?a@h", "x://u:p@1/hunter2@h?ttl=1s"];
        for bad in whole.into_iter().chain(unescaped) {
            assert!(!Url::parse(bad).unwrap_err().to_string().contains("hunter2"), "{bad}");
        }
    }
    #[test]
    fn what_cannot_be_used_is_told() {
        for (text, says) in [
            ("", "is no URL"),
            (":x", "is no scheme"),
            ("a b:x", "is no scheme"),
            ("x://h:99999", "is no host"),
            ("x:%zz", "percent-encoded"),
            ("x:?a=1&a=2", "given twice"),
        ] {
            assert!(Url::parse(text).unwrap_err().to_string().contains(says), "{text}");
        }
        let url = Url::parse("x:?tll=3s").unwrap();
        assert!(url.finish(&["ttl", "namespace"]).unwrap_err().to_string().contains("did you mean \"ttl\"?"));
        assert!(Url::parse("x:?ttl=3y").unwrap().take_duration("ttl").is_err());
        assert!(Url::parse("x:?ttl=99999999999999999999d").unwrap().take_duration("ttl").is_err());
    }
}
