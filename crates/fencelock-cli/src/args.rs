//! The command line.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::duration;
use crate::mode::{self, Mode, Permits};

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
    #[command(after_help = RUN_HELP)]
    Run(Box<Run>),
    /// Show who holds NAME, and who waits
    Status(Status),
    /// Show every lock that is held or waited for
    List(List),
    /// Break a lock: its holder is told that it has lost it
    Release(Release),
    /// Measure throughput and hand-over of an engine, beside its bare driver
    #[command(after_help = BENCH_HELP)]
    Bench(Bench),
    /// Print what PostgreSQL, MariaDB or MySQL need before the first lock, or make it
    #[command(after_help = MIGRATE_HELP)]
    Migrate(Migrate),
    /// Print the rights that an engine's user needs, and no more
    #[command(subcommand)]
    Acl(Acl),
}

#[derive(Clone, Debug, Args)]
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

/// What an option's line has no room for.
const RUN_HELP: &str = "\
Examples:
  fencelock run backup -- pg_dump -f db.sql app      one at a time, the others wait
  fencelock run -n --skip-ok nightly -- ./report     the same cron job on many hosts: one runs it
  fencelock run -s config -- ./serve                 readers of `config`, beside each other
  fencelock run --write config -- ./deploy           its writer: waits for the readers, and keeps new ones out
  fencelock run --permits 1/3 partner-api -- ./sync  at most three at once
  fencelock run --permits 3/3 partner-api -- ./move  all of it

A name is one kind of lock at a time: a mutex (neither -s, --write nor --permits), a read-write lock (-s and --write) or
a semaphore (--permits, and all say the same N). Another kind or size than the one in use ends with 78.

The job finds FENCELOCK_NAME, FENCELOCK_HOLD, FENCELOCK_ENGINE, FENCELOCK_TTL_MS and FENCELOCK_MODE (mutex, read, write or
permits). FENCELOCK_TOKEN, for fenced writes, is there in the modes mutex and write only: the number of a hold that has
others beside it orders nothing. FENCELOCK_OUTER names the holds of the runs around it. On etcd there are ETCD_LOCK_KEY
and ETCD_LOCK_REV, too.

With --reentrant a script can be called by itself and from a script that holds NAME already: below that run it joins, in
the same or a lesser mode (-s below --write), and its job ends with the lock of the outer run, at the latest. A run with
--on-loss warn stops nobody: its job finds FENCELOCK_ON_LOSS=warn, and what it holds is not joined.

Exit codes: the job's own, 128+n when a signal ended it; 75 not got in time, 76 lost and the job stopped, 69 engine
unreachable, 78 configuration, 64 usage, 126/127 command not executable / not found. A release that nobody answers is told,
and the job's own code counts; a signal ends the wait for it.";

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The lock
    #[arg(value_parser = text())]
    pub(crate) name: String,
    /// Hold it to read, beside other readers; without -s or --write, NAME is a mutex
    #[arg(short, long, conflicts_with_all = ["write", "permits"])]
    pub(crate) shared: bool,
    /// Hold it to write, beside nobody: what keeps the runs with -s out
    #[arg(long, conflicts_with = "permits")]
    pub(crate) write: bool,
    /// Hold K of the N permits of a semaphore
    #[arg(long, value_name = "K/N", value_parser = mode::permits)]
    pub(crate) permits: Option<Permits>,
    /// Below a run that holds NAME already, join it: nothing is acquired or released
    #[arg(long)]
    pub(crate) reentrant: bool,
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

impl Run {
    pub(crate) fn mode(&self) -> Mode {
        match self.permits {
            Some(permits) => Mode::Permits(permits),
            None if self.shared => Mode::Read,
            None if self.write => Mode::Write,
            None => Mode::Mutex,
        }
    }
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

const BENCH_HELP: &str = "\
It works on the engine itself: names begin with bench/, and the others who use it feel the load. Cases:
  uncontended  each task locks and releases a name of its own; beside it the bare driver sends the same statements
  contended    so many clients want one lock and hold it for a millisecond; hand: from the release to the next one's grant;
               commands: what the clients send for each grant, signs of life and all
  renew        so many locks are held and kept alive
cpu is percent of a core, of this process with all its clients.";

#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// The engine, as with --url
    #[arg(value_name = "URL", conflicts_with_all = ["url", "url_file"], value_parser = text())]
    pub(crate) engine: Option<String>,
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a page with the figures and bars, too
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// For so long each case runs
    #[arg(long, value_name = "N", default_value_t = 3.0, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// Tasks of the uncontended case
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [1, 16], value_parser = some)]
    pub(crate) tasks: Vec<usize>,
    /// Clients of the contended case
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [2, 16, 64], value_parser = some)]
    pub(crate) waiters: Vec<usize>,
    /// Locks of the renew case; 0: without it
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    pub(crate) holders: usize,
}

const MIGRATE_HELP: &str = "\
Whoever may create tables needs none of this: the first connection makes them. For the others, whose role may not:
  fencelock migrate --role app > schema.sql          to be read, and run by psql or mariadb
  fencelock migrate --role app --run                 as a role that may, once; app needs to create nothing
Other engines have no schema.";

#[derive(Debug, Args)]
pub(crate) struct Migrate {
    /// Make it, instead of printing it
    #[arg(long)]
    pub(crate) run: bool,
    /// And let ROLE use it; on MariaDB and MySQL USER or USER@HOST
    #[arg(long, value_name = "ROLE", value_parser = text())]
    pub(crate) role: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Acl {
    /// Print the line that gives a user of Redis the rights it needs, and no more
    #[command(after_help = ACL_REDIS_HELP)]
    Redis(AclRedis),
}

const ACL_REDIS_HELP: &str = "\
Examples:
  fencelock acl redis --user app --namespace shop | redis-cli          its keys, its channels, the commands that are sent
  fencelock acl redis --url 'redis://db?layout=plain&template=lock:{}' --version 6.2
  fencelock acl redis --layout plain --prefix lock: --topology cluster

Nobody is asked: what is printed goes by --url or FENCELOCK_URL, where there is one of Redis, and by these options, which win.
It replaces keys, channels and commands of the user, and leaves its passwords. A new one has none, and is off:
  ACL SETUSER app on >PASSWORD
Keys are those of every database. `list` needs SCAN, which shows the names of all keys: -scan takes that away.";

#[derive(Debug, Args)]
pub(crate) struct AclRedis {
    /// The server's version, as `redis-cli INFO server` says it
    #[arg(long, value_name = "V", default_value = "7.0", value_parser = text())]
    pub(crate) version: String,
    /// What its keys begin with: fl: or fl.NAMESPACE: of native ones, whatever the others say of plain ones
    #[arg(long, value_name = "P", conflicts_with = "namespace", value_parser = text())]
    pub(crate) prefix: Option<String>,
    /// How locks are written [default: native, or the URL's]
    #[arg(long, value_enum)]
    pub(crate) layout: Option<Layout>,
    /// How the servers belong together [default: alone, or the URL's]
    #[arg(long, value_enum)]
    pub(crate) topology: Option<Topology>,
    /// The user [default: the URL's, or fencelock]
    #[arg(long, value_name = "NAME", value_parser = text())]
    pub(crate) user: Option<String>,
    /// Print the line for the sentinels' own access list
    #[arg(long)]
    pub(crate) sentinels: bool,
}

/// How locks are written in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Layout {
    /// A hash for each lock, for our clients alone
    Native,
    /// A string for each lock, as many other libraries have it
    Plain,
    /// A hash for each lock, as Redisson has it
    Redisson,
}

/// How several Redis servers belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Topology {
    /// One server
    Alone,
    /// A primary and its replicas, watched by sentinels
    Sentinel,
    /// A cluster
    Cluster,
}

fn some(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if (1..=10_000).contains(&n) => Ok(n),
        _ => Err("give a number from 1 to 10000".to_owned()),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(n) if (0.1..=3_600.0).contains(&n) => Ok(n),
        _ => Err("give seconds from 0.1 to 3600".to_owned()),
    }
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
