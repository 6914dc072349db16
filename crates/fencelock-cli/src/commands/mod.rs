//! The commands, and what they share: which engine, and how to reach it.

pub(crate) mod acl;
pub(crate) mod bench;
pub(crate) mod cell;
pub(crate) mod hold;
mod join;
pub(crate) mod list;
pub(crate) mod manual;
pub(crate) mod migrate;
mod own;
pub(crate) mod release;
pub(crate) mod run;
pub(crate) mod semaphore;
pub(crate) mod status;

use std::env;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use fencelock::Client;

use crate::args::Common;
use crate::exit::Failure;
use crate::render::{complain, tell};

/// How a command ends that did its work.
pub(crate) enum Finish {
    /// With this code.
    Code(u8),
    /// By this signal, as its job did, so that the caller's loop ends too.
    Signal(i32),
}

/// The URL of the engine: option, file, environment, or the default place.
pub(crate) fn url(common: &Common) -> Result<String, Failure> {
    url_or(common, "sqlite:")
}

/// The same, with another default.
pub(crate) fn url_or(common: &Common, default: &str) -> Result<String, Failure> {
    let url = match (&common.url, &common.url_file) {
        (Some(url), _) => {
            if has_password(url) {
                tell("warning: other users can read the password of --url in the process list");
                tell("hint: use --url-file or FENCELOCK_URL");
            }
            url.clone()
        }
        (None, Some(file)) => {
            let wrong = |why: &str| Failure::config(format!("the URL file {} {why}", file.display()));
            let text = whole(file)
                .map_err(|e| Failure::config(format!("cannot read the URL file {}: {e}", file.display())))?;
            match text.trim() {
                "" => return Err(wrong("is empty")),
                text if text.len() > MUCH => return Err(wrong("holds more than a URL")),
                text => text.to_owned(),
            }
        }
        (None, None) => from_environment()?.unwrap_or_else(|| default.to_owned()),
    };
    Ok(match &common.namespace {
        Some(namespace) => with(&url, "namespace", namespace),
        None => url,
    })
}

/// No URL is as long as this.
const MUCH: usize = 64 << 10;

/// A little more than that at most: a device has no end.
fn whole(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    let most = u64::try_from(MUCH).unwrap_or(u64::MAX).saturating_add(1);
    File::open(file)?.take(most).read_to_string(&mut text)?;
    Ok(text)
}

fn from_environment() -> Result<Option<String>, Failure> {
    match env::var("FENCELOCK_URL") {
        Ok(url) if !url.is_empty() => return Ok(Some(url)),
        Err(env::VarError::NotUnicode(_)) => return Err(Failure::config("FENCELOCK_URL is not UTF-8")),
        _ => {}
    }
    // The outer run's URL held a password and was not passed on. Falling back to another engine would exclude nobody.
    match env::var_os("FENCELOCK_ENGINE") {
        Some(outer) if !outer.is_empty() => {
            let outer = crate::render::plain(&outer.to_string_lossy());
            Err(Failure::config(format!("the outer run used {outer}; give --url, or --pass-url there")))
        }
        _ => Ok(None),
    }
}

/// Connects, and says where with `-v`. Where a ttl is the session's, the session is opened with it.
pub(crate) async fn connect(common: &Common, url: &str) -> Result<Client, Failure> {
    let client = match common.ttl {
        Some(ttl) if url.starts_with("zookeeper") => {
            fencelock::connect(&with(url, "ttl", &format!("{}ms", ttl.as_millis()))).await?
        }
        _ => fencelock::connect(url).await?,
    };
    if common.verbose {
        complain(&format!("engine {}", crate::render::plain(&client.info().endpoint)));
    }
    Ok(client)
}

/// For those who look: where there was no database yet nobody has locked anything, or the path is a wrong one. It is made, and that is said.
pub(crate) async fn connect_to_look(common: &Common, url: &str) -> Result<Client, Failure> {
    let new = fencelock::sqlite::Config::from_url(url).ok().map(|config| config.path).filter(|path| !path.exists());
    let client = connect(common, url).await?;
    if let Some(path) = new {
        let path = crate::render::plain(&path.to_string_lossy());
        complain(&format!(
            "there was no database at {path}: nobody has locked anything there yet, or it is another one"
        ));
    }
    Ok(client)
}

/// A runtime of one thread: the library keeps holds alive on threads of its own.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

fn has_password(url: &str) -> bool {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let (authority, further) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let is_secret = |(_, password): (&str, &str)| !password.is_empty();
    let login = authority.rsplit_once('@').and_then(|(user, _)| user.split_once(':'));
    let mut pairs = further.split(['?', '&']).filter_map(|pair| pair.split_once('='));
    login.is_some_and(is_secret) || pairs.any(|pair| pair.0.ends_with("password") && is_secret(pair))
}

/// Replaces or adds a key: the command line wins.
pub(crate) fn with(url: &str, key: &str, value: &str) -> String {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let kept = query.split('&').filter(|pair| !pair.is_empty() && pair.split('=').next() != Some(key));
    let mut pairs: Vec<String> = kept.map(str::to_owned).collect();
    pairs.push(format!("{key}={}", percent(value)));
    format!("{base}?{}", pairs.join("&"))
}

fn percent(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    // Planted: the key appended beside the one that is there.
    #[test]
    fn the_key_of_the_command_line_wins() {
        assert_eq!(with("sqlite:", "namespace", "a"), "sqlite:?namespace=a");
        assert_eq!(with("sqlite:/x?namespace=b&ttl=5s", "namespace", "a b&c"), "sqlite:/x?ttl=5s&namespace=a%20b%26c");
    }

    // Planted: `@` searched in the path too; no look at the keys.
    #[test]
    fn a_password_is_seen_where_it_is() {
        assert!(has_password("redis://me:secret@host/0"));
        assert!(has_password("redis://:secret@host"));
        assert!(has_password("redis://me:sec#ret@host"));
        assert!(has_password("redis+sentinel://a,b/main?ttl=5s&sentinel_password=secret"));
        assert!(!has_password("redis+sentinel://a,b/main?sentinel_user=me&sentinel_password="));
        assert!(!has_password("redis://me@host:6379/a:b@c"));
        assert!(!has_password("sqlite:/a:b@c"));
    }
}
