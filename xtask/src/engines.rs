//! The table of engines in the guide: figures of `docs/MEASURED.md`, side by side. `cargo xtask prove` writes it, `cargo xtask lint` compares.

use crate::measured::kept;
use std::fs;
use std::path::Path;

const PAGE: &str = "docs/guide/choosing-an-engine.md";
/// The table stands between these lines.
const BEGIN: &str = "<!-- what `cargo xtask prove` measured: written by it -->";
const END: &str = "<!-- until here -->";

/// An engine, and for each column the section and how its bar begins.
struct Row {
    engine: &'static str,
    cells: [(&'static str, &'static str); 4],
}
const HEAD: &str = "\
| engine | pairs a second, 16 tasks (to its bare driver) | hand-over between processes, p50 | `kill -9` of the holder to the next grant, p99 | paused past its lease: `lost()` after it goes on, p99 |
|---|---|---|---|---|
";
const NOT_MEASURED: &str = "—";
const ROWS: &[Row] = &[
    Row {
        engine: "SQLite",
        cells: [
            ("fencelock-sqlite bench pairs", "SQLite pairs, 16 tasks, tmpfs, to the bare driver"),
            ("fencelock-sqlite test processes", "hand-over between processes, p50"),
            ("fencelock-sqlite test processes", "takeover after kill -9 of the holder, p99"),
            ("fencelock-sqlite test processes", "lost() after SIGCONT, p99"),
        ],
    },
    Row {
        engine: "Redis",
        cells: [
            ("fencelock-redis bench pairs", "Redis pairs, 16 tasks, one connection"),
            ("fencelock-redis bench handoff", "hand-over between 16 processes on Redis, p50"),
            ("fencelock-redis test processes", "Redis: grant after kill -9 of a holder"),
            ("fencelock-redis test processes", "Redis: lost() after SIGCONT, p99"),
        ],
    },
    Row {
        engine: "Redlock, five servers",
        cells: [
            ("fencelock-redis bench quorum", "pairs on a quorum of five Redis, 16 tasks"),
            ("fencelock-redis bench quorum", "hand-over between 16 clients of a quorum of five Redis, p50"),
            ("fencelock-redis test processes", "Redlock: grant after kill -9 of a holder"),
            ("fencelock-redis test processes", "Redlock: lost() after SIGCONT, p99"),
        ],
    },
    Row {
        engine: "PostgreSQL",
        cells: [
            ("fencelock-postgres bench pairs", "PostgreSQL pairs, 16 tasks"),
            ("fencelock-postgres bench handoff", "hand-over between 16 processes on PostgreSQL, p50"),
            ("fencelock-postgres test processes", "PostgreSQL: grant after kill -9 of a holder"),
            ("fencelock-postgres test processes", "PostgreSQL: lost() after SIGCONT, p99"),
        ],
    },
    Row {
        engine: "PostgreSQL, `strategy=session`",
        cells: [
            ("fencelock-postgres bench pairs", "PostgreSQL, sessions pairs, 16 tasks"),
            ("fencelock-postgres bench handoff", "hand-over between 16 processes on PostgreSQL, sessions, p50"),
            ("fencelock-postgres test processes", "PostgreSQL, sessions: grant after kill -9 of a holder"),
            ("fencelock-postgres test processes", "PostgreSQL, sessions: lost() after SIGCONT, p99"),
        ],
    },
    Row {
        engine: "MariaDB",
        cells: [
            ("fencelock-mysql bench pairs", "MariaDB pairs, 16 tasks"),
            ("fencelock-mysql bench handoff", "hand-over between 16 processes on MariaDB, polling, p50"),
            ("fencelock-mysql test processes", "MariaDB: grant after kill -9 of a holder"),
            ("fencelock-mysql test processes", "MariaDB: lost() after SIGCONT, p99"),
        ],
    },
    Row {
        engine: "MariaDB, `strategy=session`",
        cells: [
            ("fencelock-mysql bench pairs", "MariaDB, sessions pairs, 16 tasks"),
            ("fencelock-mysql bench handoff", "hand-over between 16 processes on MariaDB, sessions, p50"),
            ("fencelock-mysql test processes", "MariaDB, sessions: grant after kill -9 of a holder"),
            ("fencelock-mysql test processes", "MariaDB, sessions: lost() after SIGCONT, p99"),
        ],
    },
    Row {
        engine: "etcd",
        cells: [
            ("fencelock-etcd bench pairs", "etcd pairs, 16 tasks"),
            ("fencelock-etcd bench handoff", "hand-over between 16 processes on etcd, p50"),
            ("fencelock-etcd test processes", "etcd: grant after kill -9 of a holder"),
            ("fencelock-etcd test processes", "etcd: lost() after SIGCONT, p99"),
        ],
    },
    Row {
        engine: "ZooKeeper",
        cells: [
            ("fencelock-zookeeper bench pairs", "zookeeper pairs, 16 tasks"),
            ("fencelock-zookeeper bench handoff", "hand-over between 16 processes on zookeeper, p50"),
            ("fencelock-zookeeper test processes", "zookeeper: grant after kill -9 of a holder"),
            ("fencelock-zookeeper test processes", "zookeeper: lost() after SIGCONT, p99"),
        ],
    },
];

/// Writes the table anew.
pub(crate) fn write(root: &Path) -> Result<(), String> {
    let page = read(root, PAGE)?;
    fs::write(root.join(PAGE), with(&page, &table(&read(root, "docs/MEASURED.md")?))?)
        .map_err(|e| format!("{PAGE}: {e}"))
}
/// It says what was measured.
pub(crate) fn compare(root: &Path) -> Result<(), String> {
    let page = read(root, PAGE)?;
    if page == with(&page, &table(&read(root, "docs/MEASURED.md")?))? {
        return Ok(());
    }
    Err(format!("{PAGE}: the table of engines is not what docs/MEASURED.md says; `cargo xtask table` writes it"))
}
fn read(root: &Path, file: &str) -> Result<String, String> {
    fs::read_to_string(root.join(file)).map_err(|error| format!("{file}: {error}"))
}
fn with(page: &str, table: &str) -> Result<String, String> {
    let parts = page.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) =
        parts.ok_or_else(|| format!("{PAGE}: no place for the table of engines ({BEGIN} … {END})"))?;
    Ok(format!("{before}{BEGIN}\n{table}{END}{after}"))
}

fn table(measured: &str) -> String {
    let cell = |(section, bar): &(&str, &str)| {
        figure(measured, section, bar).map_or_else(|| NOT_MEASURED.to_owned(), |text| short(&text))
    };
    let row =
        |row: &Row| format!("| {} | {} |\n", row.engine, row.cells.iter().map(cell).collect::<Vec<_>>().join(" | "));
    ROWS.iter().fold(HEAD.to_owned(), |table, next| table + &row(next))
}
fn figure(measured: &str, section: &str, bar: &str) -> Option<String> {
    let section = kept(measured, section)?;
    let line = section.lines().find_map(|line| line.strip_prefix("| ")?.starts_with(bar).then_some(line))?;
    let figure = line.split(" | ").nth(1)?.to_owned();
    let ttl = line.split_once("with a ttl of ").map(|(_, rest)| rest.split([',', '|']).next().unwrap_or_default());
    Some(ttl.map_or(figure.clone(), |ttl| format!("{figure} ttl {}", ttl.trim())))
}

/// `0.94 (23325 to 24764 pairs/s)`: 23,300 (0.94). `1.19 (1.14ms to …)`, `3.70ms, p99 …`, `912.096µs of 50`: a time.
fn short(figure: &str) -> String {
    let ttl = figure.split_once(" ttl ").map(|(_, ttl)| format!(", of a ttl of {}", time(ttl).unwrap_or_default()));
    let first = figure.split([' ', ',']).next().unwrap_or_default();
    let inner = figure.split_once('(').map(|(_, rest)| rest.split([' ', ',', ')']).next().unwrap_or_default());
    match (time(first), inner) {
        (Some(time), _) => time + &ttl.unwrap_or_default(),
        (None, Some(inner)) => time(inner).unwrap_or_else(|| format!("{} ({first})", rounded(inner))),
        (None, None) => figure.to_owned(),
    }
}
/// Three digits of a time as the tests print it.
fn time(text: &str) -> Option<String> {
    let text = text.replace(' ', "");
    let unit = ["ms", "µs", "ns", "s"].into_iter().find(|unit| text.ends_with(unit))?;
    let number: f64 = text.strip_suffix(unit)?.parse().ok()?;
    let ms = number
        * match unit {
            "s" => 1e3,
            "ms" => 1.0,
            "µs" => 1e-3,
            _ => 1e-6,
        };
    Some(match ms {
        1000.0.. => format!("{:.2} s", ms / 1e3),
        10.0.. => format!("{ms:.0} ms"),
        1.0.. => format!("{ms:.1} ms"),
        _ => format!("{ms:.2} ms"),
    })
}
fn rounded(number: &str) -> String {
    number.parse::<u64>().map_or_else(
        |_| number.to_owned(),
        |n| {
            let unit = 10_u64.pow(n.max(1).ilog10().saturating_sub(2));
            ((n + unit / 2) / unit * unit).to_string()
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        for (long, said) in [
            ("0.94 (23325 to 24764 pairs/s)", "23300 (0.94)"),
            ("1.19 (1.14ms to 962.10µs; p99 2.42ms to 1.75ms)", "1.1 ms"),
            ("3.70ms, p99 6.11ms (bare GET_LOCK 408.95µs)", "3.7 ms"),
            ("2.495046779s of 100 ttl 2.5 s", "2.50 s, of a ttl of 2.50 s"),
            ("912.096µs of 50", "0.91 ms"),
            ("1.795057ms (p99 5.038618ms)", "1.8 ms"),
        ] {
            assert_eq!(short(long), said, "{long}");
        }
    }
    #[test]
    fn a_figure_is_found_by_its_bar() {
        let page = "# Measured\n\n## fencelock-x test processes\n\n| bar | figure | limit | |\n|---|---|---|---|\n\
                    | Redis: grant after kill -9 of a holder with a ttl of 2.5 s, p99 | 2.4s of 100 | <= 3 s | ok |\n";
        let found = figure(page, "fencelock-x test processes", "Redis: grant after kill -9");
        assert_eq!(found.as_deref(), Some("2.4s of 100 ttl 2.5 s"));
        assert_eq!(figure(page, "fencelock-x test processes", "Redis: lost"), None);
        let table = with(&format!("a\n{BEGIN}\nold\n{END}\nb\n"), "new\n").unwrap();
        assert_eq!(table, format!("a\n{BEGIN}\nnew\n{END}\nb\n"));
        assert!(with("a\n", "new\n").is_err());
    }
    // Planted: a line that is left out.
    #[test]
    fn what_has_no_figure_has_a_dash() {
        let table = table("# Measured\n");
        assert!(table.contains("| PostgreSQL, `strategy=session` | — | — | — | — |"), "{table}");
        assert!(table.contains("| Redlock, five servers | — | — | — | — |"), "{table}");
    }
}
