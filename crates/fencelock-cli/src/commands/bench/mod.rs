//! `fencelock bench`: what engines give, each beside its bare driver sending the same statements, in turns in one run.

mod cases;
mod page;
mod plot;
mod report;
mod rival;

use std::time::Duration;

use fencelock::Client;
use tokio::runtime::Runtime;

use super::Finish;
use crate::args::{Bench, Common};
use crate::exit::{self, Failure};
use crate::render;
use cases::Case;
use page::Place;
use report::Row;
use rival::{Counter, Rival};

/// How long the end of a client may take.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// An engine under test.
struct Arena {
    url: String,
    /// What was asked for.
    ttl: Option<Duration>,
    client: Client,
    rival: Option<Rival>,
}

impl Arena {
    async fn open(url: &str, ttl: Option<Duration>) -> Result<Self, Failure> {
        let client = fencelock::connect(url).await?;
        let rival = Rival::open(url, client.info()).await?;
        Ok(Self { url: url.to_owned(), ttl, client, rival })
    }

    /// A client of its own, as another process has one, and how many commands it sends.
    async fn another(&self) -> Result<(Client, Counter), Failure> {
        if self.client.info().scheme == "memory" {
            // Another engine would be another store.
            return Ok((self.client.clone(), None));
        }
        rival::client(&self.url, self.client.info()).await
    }

    /// The start of a row.
    fn row(&self, case: &'static str, tasks: usize) -> Row {
        let info = self.client.info();
        Row {
            engine: info.scheme,
            layout: info.layout,
            endpoint: info.endpoint.to_string(),
            case,
            tasks,
            ..Row::default()
        }
    }
}

pub(crate) fn main(common: &Common, args: &Bench) -> Result<Finish, Failure> {
    render::detach()?;
    let urls = urls(common, args)?;
    // Both told now, not when others have been measured for minutes.
    let place = args.html.as_deref().map(Place::of).transpose()?;
    // As a service has it: the library's own threads are beside these. The other half of the cores is for a server on this machine: who has as
    // many threads as there are cores measures which of them the system happens to put together.
    let half = (std::thread::available_parallelism().map_or(1, usize::from) / 2).max(1);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(half).enable_all().build()?;
    let mut told = Told { several: urls.len() > 1, rows: Vec::new(), failed: Vec::new(), code: exit::OK };
    let mut reach = |url: &String| {
        let reached = runtime.block_on(async { Ok(super::connect(common, url).await?.shutdown(GRACE).await?) });
        reached.map_err(|failure| told.failed(url, &failure)).is_ok()
    };
    let reached: Vec<_> = urls.iter().zip(1..).filter(|(url, _)| reach(url)).collect();
    for (url, nth) in reached {
        match measure(&runtime, (url, nth, common.ttl), args, &mut told) {
            Ok(true) => {}
            Ok(false) => return Ok(Finish::Code(told.code)),
            Err(failure) if failure.code == exit::OUTPUT => return Err(failure),
            Err(failure) => told.failed(url, &failure),
        }
    }
    if let Some(place) = place.filter(|_| !told.rows.is_empty()) {
        place.write(&page::page(&command(&urls, args), &told.rows, &told.failed))?;
    }
    Ok(Finish::Code(told.code))
}

/// What came out so far.
struct Told {
    several: bool,
    rows: Vec<Row>,
    failed: Vec<String>,
    /// Of the first failure.
    code: u8,
}

impl Told {
    /// One that cannot be measured is told, and the others are.
    fn failed(&mut self, url: &str, failure: &Failure) {
        let said = if self.several { format!("{}: {failure}", shown(url)) } else { failure.to_string() };
        render::complain(&said);
        if self.failed.is_empty() {
            self.code = failure.code;
        }
        self.failed.push(said);
    }
}

/// `Ok(false)`: nobody reads any more, and there is no page to be written.
fn measure(
    runtime: &Runtime,
    (url, nth, ttl): (&str, usize, Option<Duration>),
    args: &Bench,
    told: &mut Told,
) -> Result<bool, Failure> {
    let arena = runtime.block_on(Arena::open(url, ttl))?;
    for (n, case) in Case::all(args).into_iter().enumerate() {
        // Who looks at a terminal sees that something goes on.
        render::show(&format!("{}: {} …", arena.client.info().scheme, case.told()));
        let row = runtime.block_on(case.measure(&arena, args.seconds));
        render::show_no_more();
        let row = row?;
        let more = render::print(&if args.json { row.json()? } else { row.line(n == 0) })?;
        told.rows.push(Row { url: nth, ..row });
        if !more && args.html.is_none() {
            return Ok(false);
        }
    }
    runtime.block_on(arena.client.shutdown(GRACE))?;
    Ok(true)
}

/// Those that were given, or that one that every command would use.
fn urls(common: &Common, args: &Bench) -> Result<Vec<String>, Failure> {
    // Each client of a case has it as its default.
    let with_ttl = |url: String| match common.ttl {
        Some(ttl) => super::with(&url, "ttl", &format!("{}ms", ttl.as_millis())),
        None => url,
    };
    if args.engines.is_empty() {
        return Ok(vec![with_ttl(super::url(common)?)]);
    }
    let one = |url: &String| super::url(&Common { url: Some(url.clone()), ..common.clone() }).map(with_ttl);
    args.engines.iter().map(one).collect()
}

/// A URL as anybody may see it, whether or not it can be understood: nothing before the last `@`, no keys.
fn shown(url: &str) -> String {
    let is_scheme = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || c == '+');
    let Some((scheme, rest)) = url.split_once(':').filter(|(scheme, _)| is_scheme(scheme)) else {
        return "…".to_owned();
    };
    let (place, keys) = rest.split_once('?').map_or((rest, ""), |(place, _)| (place, "?…"));
    let place = match rest.rsplit_once('@') {
        // Among the keys: nobody knows where a password with such a mark in it begins.
        Some((before, _)) if before.len() >= place.len() => "…".to_owned(),
        Some((before, _)) => format!("…{}", &place[before.len()..]),
        None => place.to_owned(),
    };
    format!("{scheme}:{place}{keys}")
}

/// The command line, as it could be given again by somebody who knows the passwords.
fn command(urls: &[String], args: &Bench) -> String {
    let numbers = |all: &[usize]| all.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    format!(
        "fencelock bench {} --seconds {} --tasks {} --waiters {} --holders {}",
        urls.iter().map(|url| shown(url)).collect::<Vec<_>>().join(" "),
        args.seconds,
        numbers(&args.tasks),
        numbers(&args.waiters),
        args.holders
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_is_shown() {
        for (url, as_shown) in [
            ("sqlite:/var/lib/app/locks.db", "sqlite:/var/lib/app/locks.db"),
            ("redis://10.0.0.5:6379/0", "redis://10.0.0.5:6379/0"),
            ("redis://me:secret@h/0?ttl=2s", "redis:…@h/0?…"),
            ("redis://me:sec@ret@h", "redis:…@h"),
            ("redis://me:sec/ret@h", "redis:…@h"),
            ("redis://me:sec?ret@h", "redis:…?…"),
            ("redis://h?sentinel_password=sec@ret", "redis:…?…"),
            ("secret@h:80", "…"),
            ("secret", "…"),
        ] {
            assert_eq!(shown(url), as_shown, "{url}");
        }
    }
}
