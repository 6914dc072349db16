//! The command line.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{EnumValueParser, OsStringValueParser, PossibleValue, TypedValueParser};
use clap::{Arg, Args, Parser, Subcommand, ValueEnum};

use crate::duration;
use crate::help;
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
    #[command(after_help = help::RUN)]
    Run(Box<Run>),
    /// Hold NAME until standard input ends, or a signal comes
    #[command(after_help = help::HOLD)]
    Hold(Box<Hold>),
    /// Show who holds NAME, and who waits
    #[command(after_help = help::STATUS)]
    Status(Status),
    /// Show every lock that is held or waited for
    #[command(after_help = help::LIST)]
    List(List),
    /// Break a lock: its holder is told that it has lost it
    #[command(after_help = help::RELEASE)]
    Release(Release),
    /// Read and write small values with a version
    #[command(subcommand)]
    Cell(Cell),
    /// Change a semaphore
    #[command(subcommand)]
    Semaphore(Semaphore),
    /// Measure throughput and hand-over of an engine, beside its bare driver
    #[command(after_help = help::BENCH)]
    Bench(Bench),
    /// Print what PostgreSQL, MariaDB or MySQL need before the first lock, or make it
    #[command(after_help = help::MIGRATE)]
    Migrate(Migrate),
    /// Print the rights that an engine's user needs, and no more
    #[command(subcommand)]
    Acl(Acl),
    /// Print what completes this command line in a shell
    #[command(after_help = help::COMPLETIONS)]
    Completions(Completions),
    /// Print the manual page
    #[command(after_help = help::MAN)]
    Man(Man),
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
    #[arg(long, global = true, value_name = "D", value_parser = of(duration::any))]
    pub(crate) ttl: Option<Duration>,
    /// Locks of different namespaces never meet
    #[arg(long, global = true, value_name = "N", value_parser = text())]
    pub(crate) namespace: Option<String>,
    /// Say which engine is used and which token was granted
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
}

/// Which hold of which lock, and how long to wait for it: of whatever holds one.
#[derive(Debug, Args)]
pub(crate) struct Wanted {
    /// The lock
    #[arg(value_parser = text())]
    pub(crate) name: String,
    /// Hold it to read, beside other readers; without -s or --write, NAME is a mutex
    #[arg(short, long, conflicts_with_all = ["write", "permits"])]
    pub(crate) shared: bool,
    /// Hold it to write, beside nobody: what keeps those with -s out
    #[arg(long, conflicts_with = "permits")]
    pub(crate) write: bool,
    /// Hold K of the N permits of a semaphore
    #[arg(long, value_name = "K/N", value_parser = of(mode::permits))]
    pub(crate) permits: Option<Permits>,
    /// Do not wait for the lock
    #[arg(short, long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// Wait at most so long [default: for ever]
    #[arg(short, long, value_name = "D", value_parser = of(duration::positive))]
    pub(crate) wait: Option<Duration>,
    /// Keep the lock so long at least, also when it is not needed any more; no longer than the ttl
    #[arg(long, value_name = "D", value_parser = of(duration::positive))]
    pub(crate) at_least: Option<Duration>,
    /// The exit code when the lock was not got
    #[arg(short = 'E', long, value_name = "N", default_value_t = crate::exit::BUSY, value_parser = of(|text| number(text, 0..=u8::MAX)))]
    pub(crate) busy_exit_code: u8,
    /// Exit with 0 when the lock was not got
    #[arg(long, conflicts_with = "busy_exit_code")]
    pub(crate) skip_ok: bool,
    /// Shown to those who wait; no secrets [default: the file name of CMD, never its arguments; `hold`]
    #[arg(long, value_name = "TEXT", value_parser = text())]
    pub(crate) note: Option<String>,
}

impl Wanted {
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
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) wanted: Wanted,
    /// Below a run that holds NAME already, join it: nothing is acquired or released
    #[arg(long)]
    pub(crate) reentrant: bool,
    /// Stop the job after so long
    #[arg(long, value_name = "D", value_parser = of(duration::positive))]
    pub(crate) max_hold: Option<Duration>,
    /// What happens to the job when the lock is lost
    #[arg(long, value_parser = word::<OnLoss>(), default_value_t = OnLoss::Term)]
    pub(crate) on_loss: OnLoss,
    /// Between TERM and KILL [default: 5s or a third of the ttl, the shorter one]
    #[arg(long, value_name = "D", value_parser = of(duration::positive))]
    pub(crate) grace: Option<Duration>,
    /// Let the job have a FENCELOCK_URL that holds a password
    #[arg(long)]
    pub(crate) pass_url: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct Hold {
    #[command(flatten)]
    pub(crate) wanted: Wanted,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Cell {
    /// Print the value of NAME; exit with 1 when there is none
    #[command(after_help = help::CELL_GET)]
    Get(CellGet),
    /// Write the value of NAME, and print its new version
    #[command(after_help = help::CELL_SET)]
    Set(CellSet),
}

#[derive(Debug, Args)]
pub(crate) struct CellGet {
    /// The cell
    #[arg(value_parser = text())]
    pub(crate) name: String,
    /// Print one JSON object, with the version
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CellSet {
    /// The cell
    #[arg(value_parser = text())]
    pub(crate) name: String,
    /// What to write
    #[arg(allow_negative_numbers = true, required_unless_present_any = ["stdin", "remove"])]
    pub(crate) value: Option<OsString>,
    /// Write what standard input says, byte for byte
    #[arg(long, conflicts_with = "value")]
    pub(crate) stdin: bool,
    /// Only if its version is still V
    #[arg(long, value_name = "V", value_parser = of(|text| number(text, 0..=i64::MAX)))]
    pub(crate) if_version: Option<i64>,
    /// Remove the value; the next version is greater all the same
    #[arg(long, conflicts_with_all = ["value", "stdin"])]
    pub(crate) remove: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Semaphore {
    /// Change the size of NAME for everybody from FROM to TO; nothing is taken from those who hold
    #[command(after_help = help::RESIZE)]
    Resize(Resize),
}

#[derive(Debug, Args)]
pub(crate) struct Resize {
    /// The semaphore
    #[arg(value_parser = text())]
    pub(crate) name: String,
    /// Its size now
    #[arg(value_parser = of(|text| number(text, 1..=u32::MAX)))]
    pub(crate) from: u32,
    /// Its size from now on
    #[arg(value_parser = of(|text| number(text, 1..=u32::MAX)))]
    pub(crate) to: u32,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// For which shell
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Of which subcommand, such as `run` or `cell get`
    #[arg(value_parser = text(), conflicts_with = "dir")]
    pub(crate) command: Vec<String>,
    /// Write the page of every subcommand there
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
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
    #[arg(long, value_name = "T", value_parser = of(|text| number(text, i64::MIN..=i64::MAX)))]
    pub(crate) token: Option<i64>,
}

#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// The engines, one after the other, each as with --url
    #[arg(value_name = "URL", conflicts_with_all = ["url", "url_file"], value_parser = text())]
    pub(crate) engines: Vec<String>,
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a page with plots and all figures, too; it needs nothing from elsewhere
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// For so long each case runs
    #[arg(long, value_name = "N", default_value_t = 3.0, value_parser = of(seconds))]
    pub(crate) seconds: f64,
    /// Tasks of the uncontended case
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [1, 16], value_parser = of(some))]
    pub(crate) tasks: Vec<usize>,
    /// Clients of the contended case
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [2, 16, 64], value_parser = of(some))]
    pub(crate) waiters: Vec<usize>,
    /// Locks of the renew case; 0: without it
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = of(|text| number(text, 0..=1_000_000_usize)))]
    pub(crate) holders: usize,
}

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
    #[command(after_help = help::ACL_REDIS)]
    Redis(AclRedis),
}

#[derive(Debug, Args)]
pub(crate) struct AclRedis {
    /// The server's version, as `redis-cli INFO server` says it
    #[arg(long, value_name = "V", default_value = "7.0", value_parser = text())]
    pub(crate) version: String,
    /// What its keys begin with: fl: or fl.NAMESPACE: of native ones, whatever the others say of plain ones
    #[arg(long, value_name = "P", conflicts_with = "namespace", value_parser = text())]
    pub(crate) prefix: Option<String>,
    /// How locks are written [default: native, or the URL's]
    #[arg(long, value_parser = word::<Layout>())]
    pub(crate) layout: Option<Layout>,
    /// How the servers belong together [default: alone, or the URL's]
    #[arg(long, value_parser = word::<Topology>())]
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

/// One of these words, and the same of what is no text.
fn word<T: ValueEnum + Clone + Send + Sync + 'static>() -> Word<T> {
    Word(EnumValueParser::new())
}
#[derive(Clone)]
struct Word<T: ValueEnum + Clone + Send + Sync + 'static>(EnumValueParser<T>);
impl<T: ValueEnum + Clone + Send + Sync + 'static> TypedValueParser for Word<T> {
    type Value = T;
    fn parse_ref(&self, cmd: &clap::Command, arg: Option<&Arg>, value: &OsStr) -> Result<T, clap::Error> {
        text().parse_ref(cmd, arg, value)?;
        self.0.parse_ref(cmd, arg, value)
    }
    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        self.0.possible_values()
    }
}

/// The same, of what such a text means.
fn of<T: Clone + Send + Sync + 'static>(
    read: impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static,
) -> impl TypedValueParser<Value = T> {
    OsStringValueParser::new().try_map(move |s| s.to_str().ok_or_else(|| "it is not UTF-8".to_owned()).and_then(&read))
}

fn number<T: FromStr + PartialOrd + fmt::Display>(text: &str, range: RangeInclusive<T>) -> Result<T, String> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("give a whole number from {} to {}", range.start(), range.end()))
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
    use std::{fs, path::Path};

    // Planted: two options with the letter `w`.
    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    // Planted: an option of an example misspelt; a subcommand without an example.
    #[test]
    fn every_subcommand_has_examples_and_each_is_understood() {
        use clap::CommandFactory;
        fn look(command: &clap::Command) {
            if command.has_subcommands() {
                return command.get_subcommands().for_each(look);
            }
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            // Up to what the shell does with it, or what is said about it.
            let examples = help.lines().filter_map(|line| line.get(line.find("fencelock ")?..));
            let examples = examples.map(|line| line.split("   ").next().unwrap_or(line));
            let examples: Vec<_> = examples.map(|line| line.split(['|', '<', '>']).next().unwrap_or(line)).collect();
            assert!(!examples.is_empty(), "{}", command.get_name());
            for example in examples {
                let words = example.split_whitespace().map(|word| word.trim_matches('\''));
                let parsed = Cli::try_parse_from(words);
                assert!(parsed.is_ok(), "{example}: {}", parsed.expect_err("refused"));
            }
        }
        let mut definition = Cli::command();
        definition.build();
        look(&definition);
    }

    /// A line that only looks like a command line, by how it begins.
    const NO_COMMANDS: &[&str] = &["Usage: "];

    // Planted: an option misspelt in README, and in the guide; blocks that are not found.
    #[test]
    fn what_the_documentation_writes_is_understood() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut pages = vec![root.join("README.md")];
        for folder in ["docs/guide", "docs/guide/engines"] {
            pages.extend(fs::read_dir(root.join(folder)).expect("pages").map(|page| page.expect("a page").path()));
        }
        let mut lines = 0;
        for page in pages.iter().filter(|page| page.extension().is_some_and(|it| it == "md")) {
            for line in command_lines(&fs::read_to_string(page).expect("a page")) {
                let words = shlex::split(&line).unwrap_or_else(|| panic!("{}: {line}", page.display()));
                // The rest is the shell's.
                let words = words.iter().take_while(|word| !word.starts_with(['|', '<', '>', '&', ';']));
                let parsed = Cli::try_parse_from(words);
                assert!(parsed.is_ok(), "{}: {line}: {}", page.display(), parsed.expect_err("refused"));
                lines += 1;
            }
        }
        assert!(lines > 20, "{lines}");
    }
    /// From `fencelock` on, of what a terminal, a script or a table of jobs shows; without what is said about it.
    fn command_lines(page: &str) -> Vec<String> {
        let blocks = page.split("\n```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
        let shown = blocks.filter(|(language, _)| ["console", "sh", "text"].contains(language));
        let text: String = shown.map(|(_, block)| block.replace("\\\n", " ") + "\n").collect();
        let text = text.replace("cargo run --release -- ", "fencelock ");
        let lines = text.lines().filter(|line| !NO_COMMANDS.iter().any(|beginning| line.starts_with(beginning)));
        let lines = lines.filter_map(|line| line.get(line.find("fencelock ")?..));
        lines.map(|line| line.split("   ").next().unwrap_or(line).to_owned()).collect()
    }
}
