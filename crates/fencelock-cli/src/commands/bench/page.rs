//! One page with all that was measured: plots, a table of every figure, and what the words mean. It has
//! nothing from elsewhere.
#![allow(clippy::cast_precision_loss, reason = "figures to be read")]

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use time::OffsetDateTime;

use super::plot::{Bar, Group, Line, Plot, bars, escape, lines};
use super::report::{COLUMNS, Row};
use crate::exit::{self, Failure};
use crate::render::plain;

/// Where a page is to be: known before anything is measured for it.
pub(super) enum Place {
    /// What is written beside it takes its place, so that nobody ever reads the half of a page.
    File(PathBuf),
    /// A pipe or a device: nothing may take its place.
    Open(File),
}

impl Place {
    pub(super) fn of(file: &Path) -> Result<Self, Failure> {
        Self::find(file).map_err(|e| cannot(file, &e))
    }

    fn find(file: &Path) -> io::Result<Self> {
        let place = match file.metadata() {
            Ok(there) => {
                let open = OpenOptions::new().write(true).open(file)?;
                if !there.is_file() {
                    return Ok(Self::Open(open));
                }
                // Not the link, but what it leads to.
                file.canonicalize()?
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => file.to_owned(),
            Err(e) => return Err(e),
        };
        // Whether a file can be made there. It does not stay: who interrupts the measurement leaves nothing.
        let draft = draft(&place);
        File::create(&draft)?;
        fs::remove_file(&draft)?;
        Ok(Self::File(place))
    }

    pub(super) fn write(self, page: &str) -> Result<(), Failure> {
        match self {
            Self::Open(mut open) => open.write_all(page.as_bytes()).map_err(|e| cannot(Path::new("the page"), &e)),
            Self::File(place) => {
                let draft = draft(&place);
                fs::write(&draft, page).and_then(|()| fs::rename(&draft, &place)).map_err(|e| {
                    let _ = fs::remove_file(&draft);
                    cannot(&place, &e)
                })
            }
        }
    }
}

fn draft(place: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(place.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    place.with_file_name(name)
}

fn cannot(file: &Path, e: &io::Error) -> Failure {
    Failure::new(exit::OUTPUT, format!("cannot write {}: {e}", file.display()))
}

/// `command`: as it could be given again, without secrets. `failed`: what could not be measured, and why.
pub(super) fn page(command: &str, rows: &[Row], failed: &[String]) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n\
         <meta name=viewport content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>fencelock bench</title>\n<style>\n{}</style>\n<h1>fencelock bench</h1>\n\
         <p>fencelock {}{}, {}; {}.</p>\n<p><code>{}</code></p>\n",
        include_str!("page.css"),
        env!("CARGO_PKG_VERSION"),
        if cfg!(debug_assertions) { ", <strong>built without optimization</strong>" } else { "" },
        now(),
        escape(&machine()),
        escape(&plain(command)),
    );
    for one in failed {
        let _ = writeln!(page, "<p role=alert>Not measured: {}</p>", escape(&plain(one)));
    }
    page += &throughput(rows);
    page += &handoff(rows);
    page += &commands(rows);
    page += &renewals(rows);
    page + &table(rows) + WORDS
}

const WORDS: &str = "\
<h2>What the words mean</h2>
<dl>
<dt>pairs/s, bare/s, ratio
<dd>A pair takes a lock that nobody else wants, and gives it back. The bare driver sends the same statements to the same
server, without the library. Both work in short turns, in one process; pairs/s and bare/s are the medians of their turns,
and the ratio is the median of what ours was to the bare driver's turn beside it. 1: the library costs nothing that can
be seen. Below 1: so much of the driver's speed is left. Above 1: the library puts several calls into one transaction.
Rates of different machines cannot be compared; ratios can.
<dt>p50, p99
<dd>Half of the pairs took no longer; 99 of 100 took no longer. In the contended case that is the whole way: waiting,
holding the lock for a millisecond, and giving it back.
<dt>hand p50, hand p99
<dd>A hand-over: from one client's call of release until another one has the lock.
<dt>commands
<dd>What all the clients sent, for each grant: signs of life and looks at the queue as well. Only counted on Redis.
<dt>renewed/s
<dd>So many renewals a second kept so many locks alive.
<dt>cpu
<dd>Percent of one core, of the process that measured, with all its clients; the server's own are not in it.
</dl>
";

fn throughput(rows: &[Row]) -> String {
    let group = |row: &Row| {
        let ours = Bar { class: "ours", what: "fencelock", value: row.pairs_per_s? };
        let bare = row.raw_pairs_per_s.map(|value| Bar { class: "bare", what: "bare driver", value });
        let ratio = row.ratio.map(|ratio| format!(", ratio {ratio:.2}")).unwrap_or_default();
        let label = format!("{}, {}{ratio}", name(rows, row), some(row.tasks, "task"));
        Some(Group { label, bars: [ours].into_iter().chain(bare).collect() })
    };
    let plot = Plot {
        id: "throughput",
        title: "Uncontended: locks taken and given back, beside the bare driver",
        axis: "pairs a second",
        figure: grouped,
    };
    barred(&plot, of(rows, "uncontended").filter_map(group).collect(), "")
}

fn handoff(rows: &[Row]) -> String {
    let mut steps: Vec<_> = of(rows, "contended").map(|row| row.tasks).collect();
    steps.sort_unstable();
    steps.dedup();
    let mut all = Vec::new();
    for (style, name) in names(rows).into_iter().enumerate() {
        for (what, dashed) in [("p50", false), ("p99", true)] {
            let point = |row: &Row| {
                let us = if dashed { row.handoff_p99_us } else { row.handoff_p50_us }?;
                Some((steps.iter().position(|step| *step == row.tasks)?, us as f64))
            };
            let its = of(rows, "contended").filter(|row| self::name(rows, row) == name);
            let mut points: Vec<_> = its.filter_map(point).collect();
            points.sort_unstable_by_key(|(step, _)| *step);
            if !points.is_empty() {
                all.push(Line { name: format!("{name}, {what}"), style, dashed, points });
            }
        }
    }
    let plot = Plot {
        id: "handoff",
        title: "Contended: from one holder's release to the next one's grant",
        axis: "hand-over",
        figure: time,
    };
    let drawn = lines(&plot, &steps, "clients that want one lock", &all);
    if all.is_empty() { String::new() } else { section(plot.title, &drawn) }
}

fn commands(rows: &[Row]) -> String {
    let group = |row: &Row| {
        let label = format!("{}, {}", name(rows, row), some(row.tasks, "client"));
        let value = row.commands_per_grant?;
        Some(Group { label, bars: vec![Bar { class: "ours", what: "commands", value }] })
    };
    let plot = Plot {
        id: "commands",
        title: "Contended: commands for each grant",
        axis: "commands of all clients, for each grant",
        figure: |value| format!("{}", (value * 100.0).round() / 100.0),
    };
    let none = "No figure here: the commands of Redis alone are counted.";
    barred(&plot, of(rows, "contended").filter_map(group).collect(), none)
}

fn renewals(rows: &[Row]) -> String {
    let group = |row: &Row| {
        let cpu = row.client_cpu.map(|cpu| format!(", {cpu} % of a core")).unwrap_or_default();
        let label = format!("{}, {} held{cpu}", name(rows, row), some(row.holders?, "lock"));
        Some(Group { label, bars: vec![Bar { class: "ours", what: "renewals", value: row.renewals_per_s? }] })
    };
    let plot = Plot {
        id: "renewals",
        title: "Locks that are held and kept alive",
        axis: "renewals a second",
        figure: grouped,
    };
    barred(&plot, of(rows, "renew").filter_map(group).collect(), "")
}

/// `none`: what stands there when there is nothing to be drawn.
fn barred(plot: &Plot<'_>, groups: Vec<Group>, none: &str) -> String {
    match (groups.is_empty(), none.is_empty()) {
        (false, _) => section(plot.title, &bars(plot, &groups)),
        (true, false) => section(plot.title, &format!("<p>{none}</p>\n")),
        (true, true) => String::new(),
    }
}

fn section(title: &str, what: &str) -> String {
    format!("<h2>{title}</h2>\n{what}")
}

fn table(rows: &[Row]) -> String {
    let mut table = "<h2>All figures</h2>\n<div class=table tabindex=0 role=region aria-label=\"All figures\">\
                     <table>\n<tr><th scope=col>engine"
        .to_owned();
    COLUMNS.iter().for_each(|(name, ..)| table += &format!("<th scope=col>{name}"));
    table += "\n";
    for row in rows {
        let _ = write!(table, "<tr><th scope=row>{}", escape(&name(rows, row)));
        COLUMNS.iter().for_each(|(_, _, value)| table += &format!("<td>{}", value(row).unwrap_or_default()));
        table += "\n";
    }
    table + "</table></div>\n"
}

fn of<'a>(rows: &'a [Row], case: &'static str) -> impl Iterator<Item = &'a Row> {
    rows.iter().filter(move |row| row.case == case)
}

/// Of a row's engine: with the place where it is, if there is another one of its kind, and with which of the URLs it is, if that looks the same.
fn name(rows: &[Row], row: &Row) -> String {
    let (mut name, place) = (format!("{} {}", row.engine, row.layout), brief(&row.endpoint));
    let is_twin = |other: &&Row| (other.engine, other.layout) == (row.engine, row.layout) && other.url != row.url;
    let mut twins = rows.iter().filter(is_twin).peekable();
    if twins.peek().is_some() {
        let _ = write!(name, " {place}");
    }
    if twins.any(|other| brief(&other.endpoint) == place) {
        let _ = write!(name, ", URL {}", row.url);
    }
    name
}

/// As much of a place as there is room for in a plot: its beginning and its end.
fn brief(endpoint: &str) -> String {
    const HALF: usize = 17;
    let all: Vec<char> = plain(endpoint).chars().collect();
    if all.len() <= 2 * HALF + 1 {
        return all.into_iter().collect();
    }
    let (begin, end) = (all[..HALF].iter(), all[all.len() - HALF..].iter());
    begin.chain(&['…']).chain(end).collect()
}

fn names(rows: &[Row]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for row in rows {
        let name = name(rows, row);
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

/// `1 task`, `16 tasks`.
fn some(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// `12,345`; below ten with a digit behind the point.
fn grouped(value: f64) -> String {
    if value < 10.0 {
        return format!("{}", (value * 10.0).round() / 10.0);
    }
    let digits = format!("{value:.0}");
    let parts: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    parts.join(",")
}

/// Of so many µs: `20 µs`, `1.5 ms`, `2 s`.
fn time(us: f64) -> String {
    let (value, unit) = match us {
        ..1e3 => (us, "µs"),
        ..1e6 => (us / 1e3, "ms"),
        _ => (us / 1e6, "s"),
    };
    format!("{} {unit}", (value * 10.0).round() / 10.0)
}

/// Processor, cores, system; never the host's name.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processors.lines().filter_map(|line| line.split_once(':')).find(|(key, _)| key.trim() == "model name");
    let model = model.map_or(std::env::consts::ARCH, |(_, model)| model.trim());
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{}, {model}, {} {}", some(cores, "core"), std::env::consts::OS, kernel.trim())
}

fn now() -> String {
    date(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

/// `2025-01-31 09:05 UTC`; nothing of a clock that is out of the calendar.
fn date(seconds: u64) -> String {
    let at = i64::try_from(seconds).ok().and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    let told = |at: OffsetDateTime| {
        let (year, month, day) = (at.year(), u8::from(at.month()), at.day());
        format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", at.hour(), at.minute())
    };
    at.map(told).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_know_leap_years() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_399), "2000-02-28 23:59 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_735_689_599), "2024-12-31 23:59 UTC");
        assert_eq!(date(4_107_542_400), "2100-03-01 00:00 UTC");
    }

    #[test]
    fn what_others_have_written_stays_text() {
        let row = |endpoint: &str, url| Row {
            engine: "redis",
            layout: "native",
            endpoint: endpoint.to_owned(),
            url,
            case: "uncontended",
            tasks: 3,
            pairs_per_s: Some(12_345.0),
            ..Row::default()
        };
        let page = page(
            "fencelock bench 'a<b'",
            &[row("redis://a<script>&c", 1), row("redis://d", 2), row("redis://d", 3)],
            &["x<y".to_owned()],
        );
        assert!(
            page.contains("redis://a&lt;script&gt;&amp;c")
                && page.contains("bench 'a&lt;b'")
                && page.contains("x&lt;y")
                && page.contains("redis://d, URL 3, ")
        );
        let long = format!("redis://{}:6379,z", "é".repeat(80));
        assert_eq!(brief(&long), format!("redis://{}…{}:6379,z", "é".repeat(9), "é".repeat(10)));
        assert!(!page.contains("<script") && page.contains(">12,345<"), "{page}");
        assert_eq!([7.25, 120.0, 1_234_567.0].map(grouped), ["7.3", "120", "1,234,567"]);
        assert_eq!([20.0, 1_500.0, 2e6].map(time), ["20 µs", "1.5 ms", "2 s"]);
    }
}
