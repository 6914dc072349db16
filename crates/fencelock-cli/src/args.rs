//! The command line.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::duration;

/// Like flock(1), across machines, and it really stops the job
#[derive(Debug, Parser)]
#[command(name = "fencelock", version, arg_required_else_help = true, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run CMD while holding NAME
    Run(Box<Run>),
    /// Show who holds NAME, and who waits
    Status(Status),
    /// Show every lock that is held or waited for
    List(List),
    /// Break a lock: its holder is told that it has lost it
    Release(Release),
}

#[derive(Debug, Args)]
pub(crate) struct Common {
    /// The engine, such as sqlite:/var/lib/app/locks.db [env: FENCELOCK_URL; default: SQLite in a place of this user]
    #[arg(long, global = true, value_name = "URL", value_parser = text())]
    pub(crate) url: Option<String>,
    /// A file that holds the URL, which keeps a password out of the process list
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "url")]
    pub(crate) url_file: Option<PathBuf>,
    /// How long the lock outlives a holder that has died or hangs [default: 30s, or the URL's]
    #[arg(long, global = true, value_name = "D", value_parser = duration::any)]
    pub(crate) ttl: Option<Duration>,
    /// Locks of different namespaces never meet
    #[arg(long, global = true, value_name = "N", value_parser = text())]
    pub(crate) namespace: Option<String>,
    /// Say which engine is used and which token was granted
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The lock
    #[arg(value_parser = text())]
    pub(crate) name: String,
    /// Do not wait for the lock
    #[arg(short, long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// Wait at most so long [default: for ever]
    #[arg(short, long, value_name = "D", value_parser = duration::positive)]
    pub(crate) wait: Option<Duration>,
    /// Stop the job after so long
    #[arg(long, value_name = "D", value_parser = duration::positive)]
    pub(crate) max_hold: Option<Duration>,
    /// What happens to the job when the lock is lost
    #[arg(long, value_enum, default_value_t = OnLoss::Term)]
    pub(crate) on_loss: OnLoss,
    /// Between TERM and KILL [default: 5s or a third of the ttl, the shorter one]
    #[arg(long, value_name = "D", value_parser = duration::positive)]
    pub(crate) grace: Option<Duration>,
    /// The exit code when the lock was not got
    #[arg(short = 'E', long, value_name = "N", default_value_t = crate::exit::BUSY)]
    pub(crate) busy_exit_code: u8,
    /// Exit with 0 when the lock was not got
    #[arg(long, conflicts_with = "busy_exit_code")]
    pub(crate) skip_ok: bool,
    /// Shown to those who wait [default: the file name of CMD, never its arguments]
    #[arg(long, value_name = "TEXT", value_parser = text())]
    pub(crate) note: Option<String>,
    /// Let the job have a FENCELOCK_URL that holds a password
    #[arg(long)]
    pub(crate) pass_url: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// The lock
    #[arg(value_parser = text())]
    pub(crate) name: String,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Print nothing: exit with 0 when it is held, with 1 when it is free
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) quiet: bool,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only names that begin so
    #[arg(default_value = "", hide_default_value = true, value_parser = text())]
    pub(crate) prefix: String,
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Go on, and print again whenever something has changed
    #[arg(long)]
    pub(crate) watch: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Release {
    /// The lock
    #[arg(value_parser = text())]
    pub(crate) name: String,
    /// Yes, take it away: the next holder may start before the old job is dead
    #[arg(long)]
    pub(crate) force: bool,
    /// The token of the hold to break, as `status` shows it
    #[arg(long, value_name = "T")]
    pub(crate) token: Option<i64>,
}

/// Text, refused with the argument's name where it is none: clap's own parser says only that something was not UTF-8.
fn text() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new().try_map(|s| s.into_string().map_err(|_| "it is not UTF-8"))
}

/// What happens to the job when the lock is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLoss {
    /// KILL, without a TERM before it
    Kill,
    /// TERM, then KILL before the lease ends
    Term,
    /// A message; the job runs on
    Warn,
}

impl fmt::Display for OnLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kill => "kill",
            Self::Term => "term",
            Self::Warn => "warn",
        })
    }
}

impl FromStr for OnLoss {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        <Self as ValueEnum>::from_str(text, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Planted: two options with the letter `w`.
    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
