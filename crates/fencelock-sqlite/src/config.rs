//! What a `sqlite:` URL says.
use fencelock_core::{
    Result,
    config::{check_ttl, invalid},
    url::Url,
};
use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

/// The keys of a `sqlite:` URL.
const KEYS: [&str; 5] = ["filesystem", "namespace", "retention", "sync", "ttl"];
/// The shortest ttl.
pub(crate) const MIN_TTL: Duration = Duration::from_millis(200);
/// The longest.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(86_400);

/// How the engine is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The database. It and its folder are made when they are not there.
    pub path: PathBuf,
    /// Separates the names of applications that share a database.
    pub namespace: String,
    /// The ttl of holds that do not say their own.
    pub ttl: Duration,
    /// How long the record of a lock that nobody uses is kept. Its tokens go on rising afterwards, too.
    pub retention: Duration,
    /// Every grant is on the disk before it is told. Without it a power cut may lose the last grants; tokens rise all the
    /// same, and after a power cut nobody holds anything.
    pub sync_full: bool,
    /// Use the file system whatever it is.
    pub trust_filesystem: bool,
}

impl Config {
    /// A database at `path`, and the defaults.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            namespace: String::new(),
            ttl: Duration::from_secs(30),
            retention: Duration::from_secs(7 * 86_400),
            sync_full: false,
            trust_filesystem: false,
        }
    }
    /// Reads a URL: `sqlite:` (the default path), `sqlite:relative`, `sqlite:/absolute`.
    ///
    /// # Errors
    /// `InvalidConfig` with the value, the place and the way out.
    pub fn from_url(text: &str) -> Result<Self> {
        let mut url = Url::parse(text)?;
        if url.scheme() != "sqlite" {
            return Err(url.refuse_scheme("write sqlite:PATH"));
        }
        if !url.hosts().is_empty() {
            let host = &url.hosts()[0].0;
            let meant = format!("for a file write sqlite:{host}{0} or sqlite:/{host}{0}", url.path());
            return Err(invalid(format!("a database file has no host, and {host:?} stands where one does")).hint(meant));
        }
        let path = match url.path() {
            "" => default_path(&|key| env::var_os(key), rustix::process::geteuid().is_root())?,
            ":memory:" => {
                let way_out = "write memory: for locks inside one process";
                return Err(invalid("a database in memory is shared with nobody").hint(way_out));
            }
            path if path.contains('\0') => {
                return Err(invalid(format!("the path {path:?} holds a NUL")).hint("leave it out"));
            }
            path => PathBuf::from(path),
        };
        let mut config = Self::new(path);
        if let Some(namespace) = url.take("namespace") {
            if namespace.len() > 512 || namespace.contains('\0') {
                return Err(invalid("the namespace is too long, or holds a NUL").hint("use at most 512 bytes"));
            }
            config.namespace = namespace;
        }
        if let Some(ttl) = url.take_duration("ttl")? {
            check_ttl(ttl, MIN_TTL..=MAX_TTL, format!("sqlite takes {MIN_TTL:?} to {MAX_TTL:?}"))?;
            config.ttl = ttl;
        }
        config.retention = url.take_duration("retention")?.unwrap_or(config.retention);
        config.sync_full = match url.take("sync").as_deref() {
            None | Some("normal") => false,
            Some("full") => true,
            Some(other) => {
                return Err(invalid(format!("sync={other} is not known")).hint("write sync=normal or sync=full"));
            }
        };
        config.trust_filesystem = match url.take("filesystem").as_deref() {
            None => false,
            Some("trust") => true,
            Some(other) => {
                return Err(invalid(format!("filesystem={other} is not known")).hint("write filesystem=trust"));
            }
        };
        url.finish(&KEYS)?;
        Ok(config)
    }
    /// The URL that leads to the same locks.
    pub(crate) fn url(&self, database: &Path) -> Option<String> {
        let mut url = format!("sqlite:{}", encode(database.to_str()?));
        let mut key = '?';
        let mut add = |name: &str, value: &str| {
            url.push(key);
            url.push_str(name);
            url.push('=');
            url.push_str(&encode(value));
            key = '&';
        };
        if !self.namespace.is_empty() {
            add("namespace", &self.namespace);
        }
        if self.trust_filesystem {
            add("filesystem", "trust");
        }
        if self.sync_full {
            add("sync", "full");
        }
        Some(url)
    }
}

/// Where the locks of a user lie when nothing is said (SAFETY R3).
fn default_path(var: &dyn Fn(&str) -> Option<OsString>, root: bool) -> Result<PathBuf> {
    // The base directory specification: what is not absolute is to be ignored.
    let folder = |key: &str| var(key).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(state) = folder("XDG_STATE_HOME") {
        return Ok(state.join("fencelock/locks.db"));
    }
    if root {
        return Ok("/var/lib/fencelock/locks.db".into());
    }
    match folder("HOME") {
        Some(home) => Ok(home.join(".local/state/fencelock/locks.db")),
        None => Err(invalid("there is no HOME, so there is no default place for the locks")
            .hint("say where: --url sqlite:/path/locks.db, or FENCELOCK_URL")),
    }
}
fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'%' | b'?' | b'#' | b'&' | b'=' | b'+' | 0..=b' ' | 127 => out.push_str(&format!("%{byte:02X}")),
            _ => out.push(char::from(byte)),
        }
    }
    // Bytes above 127 were pushed as Latin-1; put the text's own characters back.
    if text.is_ascii() { out } else { text.chars().map(encode_char).collect() }
}
fn encode_char(c: char) -> String {
    if c.is_ascii() { encode(c.encode_utf8(&mut [0; 4])) } else { c.to_string() }
}

#[cfg(test)]
mod tests {
    //! Planted to see them go red: HOME asked before XDG_STATE_HOME; `encode` that leaves `?` alone.
    use super::*;
    use fencelock_core::ErrorKind;

    fn place(vars: &[(&str, &str)], root: bool) -> Result<PathBuf> {
        default_path(&|key| vars.iter().find(|(k, _)| *k == key).map(|(_, v)| v.into()), root)
    }

    #[test]
    fn the_default_place() {
        let (xdg, home) = (("XDG_STATE_HOME", "/x"), ("HOME", "/h"));
        assert_eq!(place(&[xdg, home], true).unwrap(), Path::new("/x/fencelock/locks.db"));
        assert_eq!(place(&[home], true).unwrap(), Path::new("/var/lib/fencelock/locks.db"));
        assert_eq!(place(&[home], false).unwrap(), Path::new("/h/.local/state/fencelock/locks.db"));
        assert_eq!(
            place(&[("XDG_STATE_HOME", "x"), home], false).unwrap(),
            Path::new("/h/.local/state/fencelock/locks.db")
        );
        let error = place(&[], false).unwrap_err();
        assert!(error.to_string().contains("--url"), "{error}");
    }
    #[test]
    fn what_a_url_says_it_says_again() {
        let path = "/tmp/a b?ü%/l.db";
        let url = format!("sqlite:{}?namespace=n%26&sync=full", encode(path));
        let config = Config::from_url(&url).unwrap();
        assert_eq!((config.path.as_path(), config.namespace.as_str(), config.sync_full), (Path::new(path), "n&", true));
        assert_eq!(Config::from_url(&config.url(&config.path).unwrap()).unwrap(), config);
    }
    #[test]
    fn what_cannot_be_used_is_told() {
        for (url, says) in [
            ("sqlite::memory:", "write memory:"),
            ("sqlite:/a%00b", "holds a NUL"),
            ("sqlite:%zz", "%zz"),
            ("sqlite://host/x", "has no host"),
            ("sqlite:x?tll=3s", "did you mean \"ttl\"?"),
            ("sqlite:x?ttl=0s", "200ms to 86400s"),
            ("sqlite:x?ttl=9999h", "200ms to 86400s"),
            ("sqlite:x?sync=maybe", "sync=normal or sync=full"),
            ("sqlite:x?filesystem=nfs", "filesystem=trust"),
        ] {
            let error = Config::from_url(url).unwrap_err();
            assert!(error.to_string().contains(says), "{url}: {error}");
            assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        }
    }
    // Planted: a key that the page does not have; one that only the page has.
    #[test]
    fn the_page_has_each_key_of_a_url() {
        fencelock_testkit::page_has_keys(include_str!("docs.md"), &KEYS, MIN_TTL);
    }
}
