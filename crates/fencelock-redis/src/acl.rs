//! What the engine's user needs of the servers' access list: what is sent to them, and nothing more.
//!
//! *Invariant:* every command here is sent, or called by a script, and every one that is stands here: `tests/acl.rs` has the server count
//! them. A key that a script is given has to be writable as a whole, so there is none that may only be read.
use crate::{
    config::{Config, Layout, Templates, Topology},
    wire::key::Keys,
};
use fencelock_core::{Error, ErrorKind, Result, config::invalid};
use std::fmt;

/// Everybody needs these.
const COMMANDS: [&str; 8] = ["eval", "evalsha", "get", "pexpire", "pttl", "scan", "set", "time"];
/// And for the hashes of the layout `native`.
const HASHES: [&str; 8] = ["hdel", "hexists", "hget", "hgetall", "hmget", "hscan", "hset", "persist"];
/// Or for the strings of the layout `plain`.
const STRINGS: [&str; 3] = ["del", "exists", "getrange"];
/// Or for the hashes of Redisson, and what stands beside them.
const REDISSON: [&str; 13] = [
    "del", "exists", "hdel", "hexists", "hget", "hgetall", "hkeys", "hlen", "hmget", "hscan", "hset", "lindex", "ping",
];
/// Who waits in a queue is told by these.
const CHANNELS: [&str; 3] = ["publish", "pubsub|numsub", "subscribe"];
/// Or, in a cluster, by those that stay on the key's server.
const SHARDED: [&str; 4] = ["pubsub|shardnumsub", "spublish", "ssubscribe", "sunsubscribe"];
/// Keys are found in a cluster by these.
const CLUSTER: [&str; 2] = ["asking", "cluster|nodes"];

/// The rules of a user: what stands behind its name in `ACL SETUSER`, and in a line `user` of the server's configuration. It is written as
/// both read it. They begin by taking away whatever keys, channels and commands the user had; its passwords, and whether it is `on`, stay.
///
/// ```
/// use fencelock_redis::Config;
/// let acl = Config::new("db", 6379).acl("7.0")?;
/// assert!(acl.to_string().starts_with("resetkeys resetchannels clearselectors -@all ~fl:* &fl:%* +client|tracking +eval"));
/// assert_eq!(acl.words()[0], "resetkeys");
/// # Ok::<(), fencelock_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl(Vec<String>);
impl Acl {
    /// Each rule, as it is sent: not quoted.
    #[must_use]
    pub fn words(&self) -> &[String] {
        &self.0
    }
    fn new(version: Version, keys: &[String], channels: &[String], commands: &[&str]) -> Self {
        let (all, no_channels, no_selectors) = ("~*".to_owned(), Version(6, 2), Version(7, 0));
        let mut words = vec!["resetkeys".to_owned()];
        words.extend((version >= no_channels).then(|| "resetchannels".to_owned()));
        words.extend((version >= no_selectors).then(|| "clearselectors".to_owned()));
        words.push("-@all".to_owned());
        // Beside all keys the server takes no others.
        let keys: Vec<_> = keys.iter().map(|key| format!("~{}", blanked(key))).collect();
        words.extend(if keys.contains(&all) { vec![all] } else { keys });
        if version >= no_channels {
            words.extend(channels.iter().map(|channel| format!("&{}", blanked(channel))));
        }
        let mut commands = commands.to_vec();
        commands.sort_unstable();
        words.extend(commands.iter().map(|command| format!("+{command}")));
        Self(words)
    }
}
impl fmt::Display for Acl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.0.iter().map(|word| quoted(word)).collect();
        f.write_str(&words.join(" "))
    }
}

impl Config {
    /// The rights that the user of this configuration needs on a server of this version (`7.0`; what `INFO server` says will do), in every
    /// database: an access list knows of none.
    ///
    /// # Errors
    /// `InvalidConfig` for what is no version, and for this configuration; `Unsupported` for a version without access lists (before
    /// 6.0), and for one that cannot do what is wanted (waiting in a cluster, before 7.0).
    ///
    /// ```
    /// use fencelock_redis::Config;
    /// let config = Config::from_url("redis://db?layout=plain&template=lock:{}")?;
    /// let acl = config.acl("6.0")?;
    /// assert_eq!(acl.to_string().split(" +").next(), Some("resetkeys -@all ~fl:%id ~lock:*"));
    /// assert!(config.acl("banana").is_err());
    /// # Ok::<(), fencelock_core::Error>(())
    /// ```
    pub fn acl(&self, version: &str) -> Result<Acl> {
        self.check()?;
        let version = Version::parse(version)?;
        let is_cluster = matches!(self.topology, Topology::Cluster);
        let mut commands = COMMANDS.to_vec();
        let (keys, channels) = match &self.layout {
            Layout::Native => {
                let space = Keys::new(&self.namespace);
                commands.extend(HASHES);
                if is_cluster && version < Version(7, 0) {
                    return Err(Error::new(
                        ErrorKind::Unsupported,
                        "acl",
                        "waiting in a cluster needs sharded channels",
                    )
                    .hint("they are in 7.0 and later; layout=plain needs none"));
                }
                commands.extend(if is_cluster { &SHARDED[..] } else { &CHANNELS });
                (vec![space.pattern("")], vec![space.channels(is_cluster)])
            }
            Layout::Plain(Templates { key, signal, channel }) => {
                let made = |template: &String| Keys::plain(template).pattern("");
                commands.extend(STRINGS);
                commands.extend(signal.as_ref().map(|_| "lpush"));
                commands.extend(channel.as_ref().map(|_| "publish"));
                let keys = [Some(key), signal.as_ref()].into_iter().flatten().map(made);
                // Which store this is stands there, whatever the template is.
                let id = Keys::plain(key).id();
                ([id].into_iter().chain(keys).collect(), channel.iter().map(made).collect())
            }
            Layout::Redisson(template) => {
                let keys = Keys::plain(template);
                commands.extend(REDISSON);
                if is_cluster && version < Version(7, 0) {
                    let none = "their waiters are told by sharded channels in a cluster";
                    return Err(Error::new(ErrorKind::Unsupported, "acl", none).hint("they are in 7.0 and later"));
                }
                commands.push(if is_cluster { "spublish" } else { "publish" });
                commands.extend(self.resp3.then_some("client|caching"));
                // Redisson puts a name without braces between braces.
                let all = ["{*", "redisson_lock_queue:*", "redisson_lock_token:*"].map(str::to_owned);
                let channels = ["redisson_lock__channel:*", "redisson_rwlock:*"].map(str::to_owned);
                ([keys.id(), keys.pattern("")].into_iter().chain(all).collect(), channels.to_vec())
            }
        };
        match self.topology {
            Topology::Alone | Topology::Redlock => {}
            Topology::Sentinel { .. } => commands.push("role"),
            Topology::Cluster => commands.extend(CLUSTER),
        }
        commands.extend(self.resp3.then_some("client|tracking"));
        commands.extend((self.database != 0).then_some("select"));
        commands.extend((self.replicas != 0).then_some("wait"));
        Ok(Acl::new(version, &keys, &channels, &commands))
    }
    /// The rights that the sentinels' own user needs; `None`: there are no sentinels.
    ///
    /// # Errors
    /// As [`acl`](Self::acl); sentinels have access lists in 6.2 and later.
    ///
    /// ```
    /// use fencelock_redis::Config;
    /// let acl = Config::from_url("redis+sentinel://h1,h2,h3/mymaster")?.acl_of_sentinels("7.0")?.unwrap();
    /// assert!(acl.to_string().ends_with(" -@all &+switch-master +sentinel|master +subscribe"));
    /// assert_eq!(Config::new("db", 6379).acl_of_sentinels("7.0")?, None);
    /// # Ok::<(), fencelock_core::Error>(())
    /// ```
    pub fn acl_of_sentinels(&self, version: &str) -> Result<Option<Acl>> {
        self.check()?;
        let version = Version::parse(version)?;
        if !matches!(self.topology, Topology::Sentinel { .. }) {
            return Ok(None);
        }
        if version < Version(6, 2) {
            return Err(Error::new(ErrorKind::Unsupported, "acl", "sentinels of this version have no access list")
                .hint("those of 6.2 and later have one"));
        }
        Ok(Some(Acl::new(version, &[], &["+switch-master".to_owned()], &["sentinel|master", "subscribe"])))
    }
}

/// A server's, as far as access lists go by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version(u32, u32);
impl Version {
    fn parse(text: &str) -> Result<Self> {
        let numbers: Option<Vec<u32>> = text.split('.').map(|part| part.parse().ok()).collect();
        let version = match numbers.as_deref() {
            Some([major]) => Self(*major, 0),
            Some([major, minor, ..]) => Self(*major, *minor),
            Some([]) | None => {
                return Err(
                    invalid(format!("{text:?} is no version of a server")).hint("write it as the server does: 7.0")
                );
            }
        };
        if version < Self(6, 0) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "acl",
                format!("a server of version {text} has no access list"),
            )
            .hint("those of 6.0 and later have one"));
        }
        Ok(version)
    }
}

/// A pattern of an access list has no blanks: each is any letter there.
fn blanked(pattern: &str) -> String {
    pattern.replace([' ', '\t', '\n', '\u{b}', '\u{c}', '\r'], "?")
}
/// A word as terminal and configuration of the server read it.
fn quoted(word: &str) -> String {
    if !word.contains(['"', '\'']) && !word.contains(char::is_control) {
        return word.to_owned();
    }
    let mut out = String::from('"');
    for c in word.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| out.push_str(&format!("\\x{byte:02x}")));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    //! Planted to see them go red: a blank left in a pattern; channels, or a list at all, before there are any; `role` left out.
    use super::*;

    fn acl(url: &str, version: &str) -> String {
        Config::from_url(url).unwrap().acl(version).unwrap().to_string()
    }
    /// Without what it begins and ends with.
    fn places(url: &str) -> String {
        let acl = acl(url, "7.0");
        let (_, rest) = acl.split_once("-@all ").unwrap();
        rest.split(" +").next().unwrap().to_owned()
    }

    #[test]
    fn keys_and_channels_are_those_that_are_used() {
        for (url, expect) in [
            ("redis://h", "~fl:* &fl:%*"),
            ("redis://h?namespace=shop", "~fl.shop:* &fl.shop:%*"),
            ("redis://h?namespace=a%20*", "~fl.a%20%2A:* &fl.a%20%2A:%*"),
            ("redis+cluster://h?namespace=shop", "~fl.shop:* &{fl.shop:*}%*"),
            ("redis://h?layout=plain", "~*"),
            ("redis://h?layout=plain&template=lock:{}", "~fl:%id ~lock:*"),
            ("redis://h?layout=plain&template={}:x&signal=s:{}", "~fl:%id ~*:x ~s:*"),
            ("redis://h?layout=plain&template=l:{}&channel=c:l:{}", "~fl:%id ~l:* &c:l:*"),
            ("redis+cluster://h?layout=plain&template=l:{{}}", "~fl:%id ~l:{*}"),
            ("redis://h?layout=plain&template=[a]*?\\{}^", "~fl:%id ~\\[a\\]\\*\\?\\\\*\\^"),
            ("redis://h?layout=plain&template=a%20b%09{}", "~fl:%id ~a?b?*"),
            (
                "redis://h?layout=redisson&template=l:{}",
                "~fl:%id ~l:* ~{* ~redisson_lock_queue:* ~redisson_lock_token:* &redisson_lock__channel:* &redisson_rwlock:*",
            ),
            ("redis://h?layout=plain&template='\\{}", "~fl:%id \"~'\\\\\\\\*\""),
            ("redis://h?layout=plain&template=%1b{}", "~fl:%id \"~\\x1b*\""),
        ] {
            assert_eq!(places(url), expect, "{url}");
        }
    }
    #[test]
    fn what_a_version_does_not_know_is_not_said() {
        let begins = |version| acl("redis://h", version).split(" +").next().unwrap().to_owned();
        assert_eq!(begins("6.0.20"), "resetkeys -@all ~fl:*");
        assert_eq!(begins("6.2"), "resetkeys resetchannels -@all ~fl:* &fl:%*");
        for version in ["7", "7.0.15", "7.4", "8.0", "10.1"] {
            assert_eq!(begins(version), "resetkeys resetchannels clearselectors -@all ~fl:* &fl:%*");
        }
        let config = Config::from_url("redis+cluster://h").unwrap();
        let error = config.acl("6.2").unwrap_err();
        assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("7.0"), "{error}");
        assert!(config.acl("7.0").unwrap().words().contains(&"+spublish".to_owned()));
        assert!(!acl("redis+cluster://h?layout=plain", "6.2").contains("publish"));
        let error = config.acl("5.0.14").unwrap_err();
        assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("5.0.14"), "{error}");
        let sentinels = Config::from_url("redis+sentinel://h/m").unwrap();
        assert_eq!(sentinels.acl_of_sentinels("6.0").unwrap_err().kind(), ErrorKind::Unsupported);
        for none in ["", "banana", "7.", ".7", "7.x", "-7", "7,0", "99999999999"] {
            let error = config.acl(none).unwrap_err();
            assert!(error.kind() == ErrorKind::InvalidConfig && error.to_string().contains(none), "{error}");
        }
    }
    #[test]
    fn what_is_not_used_is_not_given() {
        let plain = "redis://h?layout=plain&template=l:{}";
        for (without, with, command) in [
            ("redis://h", "redis://h/1", "select"),
            ("redis://h", "redis://h?replicas=1", "wait"),
            ("redis://h", "redis+sentinel://h/m", "role"),
            ("redis://h?protocol=resp2", "redis://h", "client|tracking"),
            ("redis://h", "redis+cluster://h", "asking"),
            ("redis+cluster://h", "redis://h", "publish"),
            (plain, "redis://h", "hset"),
            ("redis://h", plain, "del"),
            (plain, &format!("{plain}&signal=s:{{}}"), "lpush"),
            (plain, &format!("{plain}&channel=s:{{}}"), "publish"),
        ] {
            let has = |url| acl(url, "7.0").split(' ').any(|word| word.strip_prefix('+') == Some(command));
            assert!(!has(without) && has(with), "{command}: {without} {with}");
        }
    }
}
