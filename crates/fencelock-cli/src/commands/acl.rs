//! `fencelock acl`

use fencelock::redis::{Config, Layout, Templates, Topology};

use super::Finish;
use crate::args::{self, Acl, AclRedis, Common};
use crate::exit::{self, Failure};
use crate::render::{self, plain, tell};

/// Who is meant where nobody is named.
const USER: &str = "fencelock";
/// Where nothing is said of a place.
const SOMEWHERE: &str = "redis://localhost";

pub(crate) fn main(common: &Common, args: &Acl) -> Result<Finish, Failure> {
    match args {
        Acl::Redis(args) => redis(common, args),
    }
}

fn redis(common: &Common, args: &AclRedis) -> Result<Finish, Failure> {
    let config = config(common, args)?;
    let (acl, of_the_url) = if args.sentinels {
        let Some(acl) = config.acl_of_sentinels(&args.version)? else {
            let none = Failure::config("there are no sentinels");
            return Err(none.hint("add --topology sentinel, or leave --sentinels out"));
        };
        let user = match config.topology {
            Topology::Sentinel { user, .. } => user,
            _ => None,
        };
        (acl, user)
    } else {
        (config.acl(&args.version)?, config.user)
    };
    let user = args.user.clone().or(of_the_url).unwrap_or_else(|| USER.to_owned());
    if user.is_empty() || user.contains(|c: char| c.is_whitespace() || c.is_control() || "\"'".contains(c)) {
        return Err(
            Failure::config(format!("{user:?} is no user of Redis")).hint("give a name of letters without blanks")
        );
    }
    if user == "default" {
        tell(
            "warning: default is everybody who gives no name, operators as well: they may do nothing else from here on",
        );
    }
    if acl.words().iter().any(|word| word == "~*") {
        tell("warning: these are the rights to every key of the server");
        tell("hint: give the template a prefix, as the others have it whom the locks are shared with");
    }
    render::print(&format!("ACL SETUSER {user} {acl}\n"))?;
    Ok(Finish::Code(exit::OK))
}

/// That of the URL, and what the command line says.
fn config(common: &Common, args: &AclRedis) -> Result<Config, Failure> {
    // The URL by itself: its layout may be one that has no namespaces, and not the one that is meant.
    let url = super::url_or(&Common { namespace: None, ..common.clone() }, SOMEWHERE)?;
    let mut config = Config::from_url(&url)?;
    if let Some(namespace) = &common.namespace {
        config.namespace = Config::from_url(&super::with(SOMEWHERE, "namespace", namespace))?.namespace;
    }
    match args.topology {
        None => {}
        Some(args::Topology::Alone) => config.topology = Topology::Alone,
        Some(args::Topology::Sentinel) if matches!(config.topology, Topology::Sentinel { .. }) => {}
        Some(args::Topology::Sentinel) => config.topology = Config::sentinel(Vec::new(), "main").topology,
        Some(args::Topology::Cluster) => config.topology = Topology::Cluster,
    }
    match (args.layout, &config.layout) {
        (Some(args::Layout::Native), _) => config.layout = Layout::Native,
        (Some(args::Layout::Plain), Layout::Native) => config.layout = Layout::Plain(Templates::default()),
        (Some(args::Layout::Redisson), Layout::Native | Layout::Plain(_)) => {
            config.layout = Layout::Redisson("{}".to_owned());
        }
        (Some(args::Layout::Plain), Layout::Redisson(_)) => config.layout = Layout::Plain(Templates::default()),
        _ => {}
    }
    let Some(prefix) = &args.prefix else { return Ok(config) };
    match &mut config.layout {
        Layout::Plain(templates) => templates.key = format!("{prefix}{{}}"),
        Layout::Redisson(template) => *template = format!("{prefix}{{}}"),
        _ => config.namespace = namespace(prefix)?,
    }
    Ok(config)
}

/// The one whose keys begin so.
fn namespace(prefix: &str) -> Result<String, Failure> {
    if prefix == "fl:" {
        return Ok(String::new());
    }
    let other = || {
        let other = Failure::config(format!("native keys do not begin with {}", plain(prefix)));
        other.hint(
            "they begin with fl:, or fl.NAMESPACE: in a namespace; for those of other libraries add --layout plain",
        )
    };
    let space = prefix.strip_prefix("fl.").and_then(|rest| rest.strip_suffix(':')).filter(|space| !space.is_empty());
    let written = |c: char| c.is_ascii_alphanumeric() || "-_/%".contains(c);
    let space = space.filter(|space| space.chars().all(written)).ok_or_else(other)?;
    // It is written as a URL has it, but in one way only.
    let config = Config::from_url(&format!("{SOMEWHERE}?namespace={space}")).map_err(|_| other())?;
    let key = format!("~{prefix}*");
    if config.acl("7.0")?.words().contains(&key) { Ok(config.namespace) } else { Err(other()) }
}
