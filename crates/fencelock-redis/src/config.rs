//! What a `redis:` URL says.
use crate::link::slot;
pub use fencelock_core::config::Tls;
use fencelock_core::{
    Result,
    config::{Written, check_hosts, check_retention, check_ttl, host_ports, invalid},
    url::Url,
};
use std::{fmt, time::Duration};

/// The keys of a URL.
const KEYS: [&str; 15] = [
    "ca",
    "cert",
    "channel",
    "key",
    "layout",
    "namespace",
    "protocol",
    "replicas",
    "retention",
    "sentinel_password",
    "sentinel_user",
    "signal",
    "template",
    "ttl",
    "wait",
];
/// The shortest ttl.
pub(crate) const MIN_TTL: Duration = Duration::from_millis(200);
/// The same of a Redlock: as [`Quorum`](fencelock_core::Quorum) has it.
const REDLOCK_MIN_TTL: Duration = Duration::from_millis(300);
/// The longest.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(86_400);
const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26_379;
/// How each is written.
const ALONE: &str = "write redis://HOST:6379";
const CLUSTER: &str = "write redis+cluster://HOST:6379,HOST";
const REDLOCK: &str = "write redlock://HOST:6379,HOST,HOST";
const SENTINEL: &str = "write redis+sentinel://HOST:26379,HOST,HOST/NAME";

/// How the hosts belong together.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Topology {
    /// One server that stands alone.
    Alone,
    /// The hosts are sentinels: they tell which server is the primary, and when another one is.
    Sentinel {
        /// What they call those servers.
        master: String,
        /// User of the sentinels' own access list; `None`: the default one.
        user: Option<String>,
        /// The sentinels' own password. It is never shown.
        password: Option<String>,
    },
    /// The hosts are some of a cluster's servers: they tell which one has which key.
    Cluster,
    /// The hosts know nothing of each other, and a lock is held while a majority of them has it.
    Redlock,
}

/// How somebody waits for a lock that another one has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wait {
    /// The server wakes him.
    #[default]
    Push,
    /// He looks by himself, less and less often, and never at the same times as the others: needs no channels, and keeps no order.
    Spin,
}

/// How locks are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Layout {
    /// A hash for each lock, of all kinds, with a queue: for our clients alone.
    #[default]
    Native,
    /// A string for each lock, as many other libraries have it, who exclude us and are excluded. Mutexes alone.
    Plain(Templates),
    /// A hash for each lock, as Redisson has it, whose clients exclude us and are excluded: mutexes and read-write locks. What its `NameMapper`
    /// makes of a name: `{}`, once, stands for that.
    Redisson(String),
}
/// What others make of the name of a lock: `{}` stands for it, once in each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Templates {
    /// The key: `{}`, `lock:{}`, `redlock:{}`.
    pub key: String,
    /// A list to which a release pushes something, for waiters who look there: `lock-signal:{}` is python-redis-lock's.
    pub signal: Option<String>,
    /// A channel on which a release says the key: `REGISTRY-channel:REGISTRY:{}` is Spring's.
    pub channel: Option<String>,
}
impl Default for Templates {
    fn default() -> Self {
        Self { key: NAME.to_owned(), signal: None, channel: None }
    }
}
/// Stands for a name.
const NAME: &str = "{}";
/// What is made of this name by this template.
pub(crate) fn filled(template: &str, name: &str) -> String {
    let (before, after) = template.split_once(NAME).unwrap_or((template, ""));
    [before, name, after].concat()
}

/// How the engine is reached.
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    /// Name or address, and port.
    pub hosts: Vec<(String, u16)>,
    /// What they are.
    pub topology: Topology,
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
    /// How locks are written.
    pub layout: Layout,
    /// The ttl of holds that do not say their own.
    pub ttl: Duration,
    /// How long the record of a lock that nobody uses is kept, half of it at least. Its tokens go on rising afterwards, by the server's clock.
    pub retention: Duration,
    /// So many replicas must have a grant before it counts; 0: it is not waited for any.
    pub replicas: u32,
    /// How somebody waits for a lock that another one has.
    pub wait: Wait,
    /// Speak the newer protocol, by which the server tells that a lock was taken away. Off: for servers before 6.0 and proxies.
    pub resp3: bool,
}

impl Config {
    /// A server that stands alone, and the defaults.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self {
            hosts: vec![(host.into(), port)],
            topology: Topology::Alone,
            tls: None,
            user: None,
            password: None,
            database: 0,
            namespace: String::new(),
            layout: Layout::Native,
            ttl: Duration::from_secs(30),
            retention: Duration::from_secs(3_600),
            replicas: 0,
            wait: Wait::Push,
            resp3: true,
        }
    }
    /// Servers of which sentinels know the primary, under the name `master`.
    pub fn sentinel(sentinels: Vec<(String, u16)>, master: impl Into<String>) -> Self {
        let topology = Topology::Sentinel { master: master.into(), user: None, password: None };
        Self { hosts: sentinels, topology, ..Self::new("", 0) }
    }
    /// A cluster, of which these servers are some.
    pub fn cluster(hosts: Vec<(String, u16)>) -> Self {
        Self { hosts, topology: Topology::Cluster, ..Self::new("", 0) }
    }
    /// Servers that know nothing of each other: three of them may miss one, five may miss two.
    pub fn redlock(hosts: Vec<(String, u16)>) -> Self {
        Self { hosts, topology: Topology::Redlock, ..Self::new("", 0) }
    }
    /// Reads a URL: `redis://user:password@host:6379/0`, `redis+sentinel://h1:26379,h2,h3/mymaster/0`,
    /// `redis+cluster://h1:6379,h2`, `redlock://h1:6379,h2,h3/0`; `rediss…` and `redlocks` for TLS.
    ///
    /// # Errors
    /// `InvalidConfig` with the value, the place and the way out.
    pub fn from_url(text: &str) -> Result<Self> {
        let mut url = Url::parse(text)?;
        let (encrypted, example) = match url.scheme() {
            "redis" => (false, ALONE),
            "rediss" => (true, ALONE),
            "redis+sentinel" => (false, SENTINEL),
            "rediss+sentinel" => (true, SENTINEL),
            "redis+cluster" => (false, CLUSTER),
            "rediss+cluster" => (true, CLUSTER),
            "redlock" => (false, REDLOCK),
            "redlocks" => (true, REDLOCK),
            _ => return Err(url.refuse_scheme(ALONE)),
        };
        let path = url.path().trim_start_matches('/').to_owned();
        let (mut config, database) = if example == SENTINEL {
            let (master, database) = path.split_once('/').unwrap_or((&path, ""));
            let mut config = Self::sentinel(url.hosts_or(SENTINEL_PORT), master);
            config.topology = Topology::Sentinel {
                master: master.to_owned(),
                user: url.take("sentinel_user"),
                password: url.take("sentinel_password"),
            };
            (config, database)
        } else if example == CLUSTER {
            (Self::cluster(url.hosts_or(PORT)), &*path)
        } else if example == REDLOCK {
            (Self::redlock(url.hosts_or(PORT)), &*path)
        } else {
            (Self { hosts: url.hosts_or(PORT), ..Self::new("", 0) }, &*path)
        };
        config.user = url.user().map(str::to_owned);
        config.password = url.password().map(str::to_owned);
        config.database = match database {
            "" => 0,
            path => path
                .parse()
                .map_err(|_| invalid(format!("{path:?} is no number of a database")).hint(format!("{example}/0")))?,
        };
        if let Some(namespace) = url.take("namespace") {
            if namespace.len() > 512 || namespace.contains('\0') {
                return Err(invalid("the namespace is too long, or holds a NUL").hint("use at most 512 bytes"));
            }
            config.namespace = namespace;
        }
        let (key, signal, channel) = (url.take("template"), url.take("signal"), url.take("channel"));
        config.layout = match url.take("layout").as_deref() {
            None | Some("native") => match (key, signal, channel) {
                (None, None, None) => Layout::Native,
                _ => {
                    let plain = invalid("template, signal and channel are for layout=plain");
                    return Err(plain.hint("add layout=plain, or leave them out"));
                }
            },
            Some("redisson") if signal.is_some() || channel.is_some() => {
                let plain = invalid("signal and channel are for layout=plain");
                return Err(plain.hint("leave them out: Redisson's channels follow from the name"));
            }
            Some("redisson") => Layout::Redisson(key.unwrap_or_else(|| NAME.to_owned())),
            Some("plain") => Layout::Plain(Templates { key: key.unwrap_or_else(|| NAME.to_owned()), signal, channel }),
            Some(other) => {
                return Err(invalid(format!("layout={other} is not known"))
                    .hint("write layout=native, layout=plain or layout=redisson"));
            }
        };
        config.ttl = url.take_duration("ttl")?.unwrap_or(config.ttl);
        config.retention = url.take_duration("retention")?.unwrap_or(config.retention);
        if let Some(replicas) = url.take("replicas") {
            config.replicas = replicas.parse().map_err(|_| {
                invalid(format!("replicas={replicas} is no number"))
                    .hint("write replicas=1, or more where all of them must have it")
            })?;
        }
        config.wait = match url.take("wait").as_deref() {
            None | Some("push") => Wait::Push,
            Some("spin") => Wait::Spin,
            Some(other) => {
                return Err(invalid(format!("wait={other} is not known")).hint("write wait=push or wait=spin"));
            }
        };
        config.resp3 = match url.take("protocol").as_deref() {
            None | Some("resp3") => true,
            Some("resp2") => false,
            Some(other) => {
                return Err(
                    invalid(format!("protocol={other} is not known")).hint("write protocol=resp3 or protocol=resp2")
                );
            }
        };
        let tls = if example == REDLOCK { "write redlocks://" } else { "write rediss://" };
        config.tls = url.take_tls(encrypted, tls)?;
        url.finish(&KEYS)?;
        config.check()?;
        Ok(config)
    }
    /// It leads somewhere, and its times are such that the scripts can keep what they promise.
    pub(crate) fn check(&self) -> Result<()> {
        let alone = |user: &Option<String>, password: &Option<String>| user.is_some() && password.is_none();
        let example = match &self.topology {
            Topology::Alone => ALONE,
            Topology::Sentinel { .. } => SENTINEL,
            Topology::Cluster => CLUSTER,
            Topology::Redlock => REDLOCK,
        };
        check_hosts(&self.hosts, example)?;
        match &self.topology {
            Topology::Alone if self.hosts.len() > 1 => {
                let several = invalid("there are several hosts");
                return Err(several.hint(
                    "give one; several that know nothing of each other: redlock://, sentinels: redis+sentinel://",
                ));
            }
            Topology::Sentinel { master, .. } if master.is_empty() => {
                return Err(invalid("the name that the sentinels know is missing").hint(SENTINEL));
            }
            // As sentinels have it.
            Topology::Sentinel { master, .. }
                if master.contains(|c: char| !c.is_ascii_alphanumeric() && !".-_".contains(c)) =>
            {
                return Err(invalid(format!("{master:?} is no name that sentinels know")).hint(SENTINEL));
            }
            Topology::Sentinel { user, password, .. } if alone(user, password) => {
                return Err(invalid("there is a sentinel_user without a sentinel_password").hint("give both"));
            }
            Topology::Cluster if self.database != 0 => {
                return Err(invalid("a cluster has no databases but 0").hint(CLUSTER));
            }
            Topology::Cluster if !self.resp3 => {
                let old = invalid("waiting in a cluster needs the newer protocol");
                return Err(old.hint("leave protocol=resp2 out: clusters of 7.0 and later speak both"));
            }
            Topology::Redlock => self.check_redlock()?,
            Topology::Alone | Topology::Sentinel { .. } | Topology::Cluster => {}
        }
        if alone(&self.user, &self.password) {
            return Err(invalid("there is a user without a password").hint("write redis://USER:PASSWORD@HOST"));
        }
        match &self.layout {
            Layout::Native => {}
            Layout::Plain(templates) => self.check_templates("plain", templates)?,
            Layout::Redisson(key) => {
                self.check_templates("redisson", &Templates { key: key.clone(), ..Templates::default() })?;
            }
        }
        let (of, least) = match self.topology {
            Topology::Redlock => ("a Redlock", REDLOCK_MIN_TTL),
            Topology::Alone | Topology::Sentinel { .. } | Topology::Cluster => ("redis", MIN_TTL),
        };
        check_ttl(self.ttl, least..=MAX_TTL, format!("{of} takes {least:?} to {MAX_TTL:?}"))?;
        check_retention(self.retention)
    }
    fn check_templates(&self, layout: &str, Templates { key, signal, channel }: &Templates) -> Result<()> {
        let all = [("template", Some(key)), ("signal", signal.as_ref()), ("channel", channel.as_ref())];
        for (what, text) in all.into_iter().filter_map(|(what, text)| Some((what, text?))) {
            if text.matches(NAME).count() != 1 || text.len() > 512 || text.contains('\0') {
                let wrong = invalid(format!("{what}={text} does not say where the name goes"));
                return Err(wrong.hint("write {} for it, once, and at most 512 bytes"));
            }
        }
        if !self.namespace.is_empty() {
            let space = invalid(format!("layout={layout} has no namespaces"));
            return Err(space.hint("write it into the template, as those have it whom the locks are shared with"));
        }
        if let Some(signal) = signal {
            if signal == key {
                return Err(invalid("template and signal are the same").hint("lock:{} has lock-signal:{}"));
            }
            let apart = |name: &&str| slot(&filled(key, name)) != slot(&filled(signal, name));
            if matches!(self.topology, Topology::Cluster) && ["a", "b", "c"].iter().any(apart) {
                let apart = invalid("key and signal of a name lie on different servers of the cluster");
                return Err(apart.hint("put the name into braces in both: lock:{{}} and lock-signal:{{}}"));
            }
        }
        Ok(())
    }
    /// As a URL has it.
    pub(crate) fn scheme(&self) -> &'static str {
        match (&self.topology, self.tls.is_some()) {
            (Topology::Alone, false) => "redis",
            (Topology::Alone, true) => "rediss",
            (Topology::Sentinel { .. }, false) => "redis+sentinel",
            (Topology::Sentinel { .. }, true) => "rediss+sentinel",
            (Topology::Cluster, false) => "redis+cluster",
            (Topology::Cluster, true) => "rediss+cluster",
            (Topology::Redlock, false) => "redlock",
            (Topology::Redlock, true) => "redlocks",
        }
    }
    /// For people; without secrets.
    pub(crate) fn endpoint(&self) -> String {
        let master = match &self.topology {
            Topology::Alone | Topology::Cluster | Topology::Redlock => String::new(),
            Topology::Sentinel { master, .. } => format!("/{master}"),
        };
        format!("{}://{}{master}/{}", self.scheme(), host_ports(&self.hosts), self.database)
    }
    /// The URL that leads to the same locks; `None` when it would show a password.
    pub(crate) fn url(&self) -> Option<String> {
        let secret = matches!(&self.topology, Topology::Sentinel { password: Some(_), .. });
        if self.password.is_some() || secret {
            return None;
        }
        let mut url = Written::new(self.endpoint(), "/");
        url.add_some("namespace", &self.namespace);
        match &self.layout {
            Layout::Native => {}
            Layout::Plain(Templates { key, signal, channel }) => {
                url.add("layout", "plain");
                url.add("template", key);
                url.add_some("signal", signal.as_deref().unwrap_or_default());
                url.add_some("channel", channel.as_deref().unwrap_or_default());
            }
            Layout::Redisson(key) => {
                url.add("layout", "redisson");
                url.add("template", key);
            }
        }
        if self.replicas > 0 {
            url.add("replicas", &self.replicas.to_string());
        }
        if self.wait == Wait::Spin {
            url.add("wait", "spin");
        }
        if !self.resp3 {
            url.add("protocol", "resp2");
        }
        if let Some(tls) = &self.tls {
            url.add_tls(tls)?;
        }
        Some(url.end())
    }
}
impl fmt::Debug for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alone => f.write_str("Alone"),
            Self::Sentinel { master, .. } => write!(f, "Sentinel({master})"),
            Self::Cluster => f.write_str("Cluster"),
            Self::Redlock => f.write_str("Redlock"),
        }
    }
}
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Config({})", self.endpoint())
    }
}

#[cfg(test)]
mod tests {
    //! Planted to see them go red: the password in `Debug`; `protocol` that is not looked at; templates that a URL leaves out; two keys in
    //! two slots.
    use super::*;
    use fencelock_core::ErrorKind;

    #[test]
    fn urls() {
        let config =
            Config::from_url("redis://ann:s%40d@[::1]:7000/3?namespace=n%26&ttl=10s&retention=2h&protocol=resp2")
                .unwrap();
        assert_eq!(
            (config.hosts.as_slice(), config.database, config.resp3),
            ([("::1".to_owned(), 7000)].as_slice(), 3, false)
        );
        assert_eq!((config.user.as_deref(), config.password.as_deref()), (Some("ann"), Some("s@d")));
        assert_eq!((config.ttl.as_secs(), config.retention.as_secs()), (10, 7_200));
        assert!(!format!("{config:?}").contains("s@d") && config.url().is_none());
        let plain = Config::from_url("redis://h?namespace=a%26b&replicas=2").unwrap();
        assert_eq!(plain.url().as_deref(), Some("redis://h:6379/0?namespace=a%26b&replicas=2"));
        assert_eq!(Config::from_url(&plain.url().unwrap()).unwrap(), plain);
        let spin = Config::from_url("redis://h?wait=spin").unwrap();
        assert_eq!((plain.wait, spin.wait), (Wait::Push, Wait::Spin));
        assert_eq!(Config::from_url(&spin.url().unwrap()).unwrap(), spin);
        let tls = Config::from_url("rediss://h/?ca=/a&cert=/b&key=/c").unwrap();
        let client = Some(("/b".into(), "/c".into()));
        assert_eq!(tls.tls, Some(Tls { ca: Some("/a".into()), client }));
        assert_eq!(Config::from_url(&tls.url().unwrap()).unwrap(), tls);
    }
    #[test]
    fn sentinels() {
        let config = Config::from_url("redis+sentinel://h1,h2:7/my.master/2?sentinel_user=u&sentinel_password=s%40d");
        let config = config.unwrap();
        assert_eq!(
            (config.hosts.as_slice(), config.database),
            ([("h1".to_owned(), 26_379), ("h2".to_owned(), 7)].as_slice(), 2)
        );
        let Topology::Sentinel { master, user, password } = &config.topology else { unreachable!("{config:?}") };
        assert_eq!((master.as_str(), user.as_deref(), password.as_deref()), ("my.master", Some("u"), Some("s@d")));
        assert!(!format!("{config:?}").contains("s@d") && config.url().is_none());
        let plain = Config::from_url("rediss+sentinel://h1,h2/my-master").unwrap();
        assert_eq!(plain.url().as_deref(), Some("rediss+sentinel://h1:26379,h2:26379/my-master/0"));
        assert_eq!(Config::from_url(&plain.url().unwrap()).unwrap(), plain);
        let cluster = Config::from_url("redis+cluster://h1,h2:7").unwrap();
        assert_eq!(cluster.url().as_deref(), Some("redis+cluster://h1:6379,h2:7/0"));
        assert_eq!(Config::from_url(&cluster.url().unwrap()).unwrap(), cluster);
    }
    #[test]
    fn redlocks() {
        let config = Config::from_url("redlock://ann:s%40d@h1,h2:7,[::1]/2?namespace=n&ttl=10s").unwrap();
        assert_eq!(config.endpoint(), "redlock://h1:6379,h2:7,[::1]:6379/2");
        assert!(!format!("{config:?}").contains("s@d") && config.url().is_none());
        let nodes: Vec<_> = config.nodes().iter().map(Config::endpoint).collect();
        assert_eq!(nodes, ["redis://h1:6379/2", "redis://h2:7/2", "redis://[::1]:6379/2"]);
        assert!(config.nodes().iter().all(|node| node.password == config.password && node.ttl == config.ttl));
        let tls = Config::from_url("redlocks://h1,h2,h3?ca=/a&namespace=n").unwrap();
        assert_eq!(Config::from_url(&tls.url().unwrap()).unwrap(), tls);
        assert_eq!(tls.nodes()[0].scheme(), "rediss");
    }
    #[test]
    fn layouts() {
        let of = |url: &str| Config::from_url(url).unwrap();
        assert_eq!(of("redis://h").layout, Layout::Native);
        assert_eq!(of("redis://h?layout=native").layout, Layout::Native);
        assert_eq!(of("redis://h?layout=plain").layout, Layout::Plain(Templates::default()));
        let all = of("redis://h?layout=plain&template=lock:{}&signal=lock-signal:%7B%7D&channel=c:{}x");
        let said = |text: &str| Some(text.to_owned());
        let expect = Templates { key: "lock:{}".to_owned(), signal: said("lock-signal:{}"), channel: said("c:{}x") };
        assert_eq!(all.layout, Layout::Plain(expect));
        assert_eq!(Config::from_url(&all.url().unwrap()).unwrap(), all, "{:?}", all.url());
        let hash = of("redis://h?layout=redisson&template=app:{}");
        assert_eq!(hash.layout, Layout::Redisson("app:{}".to_owned()));
        assert_eq!(Config::from_url(&hash.url().unwrap()).unwrap(), hash);
        assert_eq!(of("redis://h?layout=redisson").layout, Layout::Redisson("{}".to_owned()));
        assert_eq!(filled("lock:{{}}:x", "a{}b"), "lock:{a{}b}:x");
        of("redis+cluster://h?layout=plain&template=lock:{}");
        of("redis+cluster://h?layout=plain&template=lock:{{}}&signal=lock-signal:{{}}");
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
            ("redis+sentinel://a,b", "the name that the sentinels know"),
            ("redis+sentinel:///mymaster", "a host is missing"),
            ("redis+sentinel://a/my%20master", "no name that sentinels know"),
            ("redis+sentinel://a/mymaster/x", "number of a database"),
            ("redis+sentinel://a/m?sentinel_user=x", "without a sentinel_password"),
            ("redis://a?sentinel_user=x", "unknown key"),
            ("redis+cluster://a/1", "no databases but 0"),
            ("redis+cluster://", "a host is missing"),
            ("redis+cluster://a?protocol=resp2", "needs the newer protocol"),
            ("redis://h/x", "number of a database"),
            ("redis://h?tll=3s", "did you mean \"ttl\"?"),
            ("redis://h?ttl=1ms", "200ms"),
            ("redis://h?retention=1ms", "1s or longer"),
            ("redis://h?replicas=all", "no number"),
            ("redis://h?protocol=4", "protocol=resp3"),
            ("redis://h?wait=poll", "wait=spin"),
            ("redlock://a,b,c?wait=spin", "leave wait=spin out"),
            ("redis://h?ca=/x", "rediss://"),
            ("rediss://h?cert=/x", "belong together"),
            ("redis://ann@h", "without a password"),
            ("redis://h?layout=hash", "layout=plain"),
            ("redis://h?template=x:{}", "add layout=plain"),
            ("redis://h?layout=redisson&signal=x:{}", "follow from the name"),
            ("redis://h?layout=redisson&template=x", "where the name goes"),
            ("redis://h?layout=redisson&namespace=x", "layout=redisson has no namespaces"),
            ("redis://h?layout=plain&template=x", "where the name goes"),
            ("redis://h?layout=plain&signal=x:{}:{}", "where the name goes"),
            ("redis://h?layout=plain&signal={}", "are the same"),
            ("redis://h?layout=plain&namespace=x", "no namespaces"),
            ("redis+cluster://h?layout=plain&template=lock:{}&signal=lock-signal:{}", "different servers"),
            ("redlock://", "a host is missing"),
            ("redlock://a", "redis://HOST"),
            ("redlock://a,b,A:6379", "a:6379 is there twice"),
            ("redlock://a,b,c?layout=plain", "no layout but native"),
            ("redlock://a,b,c?replicas=1", "is for one primary"),
            ("redlock://a,b,c?ttl=200ms", "300ms"),
            ("redlock://a,b,c?ca=/x", "redlocks://"),
            ("redlock://a,b,c/x", "number of a database"),
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
