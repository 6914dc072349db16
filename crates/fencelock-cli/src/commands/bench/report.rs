//! A line for people, an object for programs.

use std::fmt::Write as _;

use serde::Serialize;

use crate::exit::Failure;
use crate::render;

/// One case. What does not apply is left out. Times are in µs; `client_cpu` is percent of a core, of this whole process.
#[derive(Debug, Default, Serialize)]
pub(super) struct Row {
    pub(super) engine: &'static str,
    pub(super) layout: &'static str,
    /// Where it is: without a password.
    pub(super) endpoint: String,
    /// Which of the command line's it is, from 1.
    #[serde(skip)]
    pub(super) url: usize,
    pub(super) case: &'static str,
    /// Tasks, or clients that want the same lock.
    pub(super) tasks: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pairs_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) raw_pairs_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) p50_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) p99_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) handoff_p50_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) handoff_p99_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) commands_per_grant: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) holders: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) renewals_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) client_cpu: Option<f64>,
}

/// The columns of a table: heading, width, and what stands there.
pub(super) type Column = (&'static str, usize, fn(&Row) -> Option<String>);
pub(super) const COLUMNS: [Column; 12] = [
    ("case", 11, |row| Some(row.case.to_owned())),
    ("tasks", 5, |row| Some(row.tasks.to_string())),
    ("pairs/s", 9, |row| row.pairs_per_s.map(|n| n.to_string())),
    ("bare/s", 9, |row| row.raw_pairs_per_s.map(|n| n.to_string())),
    ("ratio", 5, |row| row.ratio.map(|n| format!("{n:.2}"))),
    ("p50", 8, |row| row.p50_us.map(time)),
    ("p99", 8, |row| row.p99_us.map(time)),
    ("hand p50", 8, |row| row.handoff_p50_us.map(time)),
    ("hand p99", 8, |row| row.handoff_p99_us.map(time)),
    ("commands", 8, |row| row.commands_per_grant.map(|n| format!("{n:.2}"))),
    ("renewed/s", 9, |row| row.renewals_per_s.map(|n| format!("{n} of {}", row.holders.unwrap_or_default()))),
    ("cpu", 6, |row| row.client_cpu.map(|n| format!("{n} %"))),
];

/// `381µs`, `2.3ms`.
pub(super) fn time(us: u64) -> String {
    match us {
        0..1_000 => format!("{us}µs"),
        1_000..100_000 => format!("{}.{}ms", us / 1_000, us % 1_000 / 100),
        _ => format!("{}ms", us / 1_000),
    }
}

impl Row {
    pub(super) fn json(&self) -> Result<String, Failure> {
        render::object(self)
    }

    /// With the headings above the first one of an engine.
    pub(super) fn line(&self, first: bool) -> String {
        let mut text = String::new();
        if first {
            let heading = COLUMNS.iter().map(|(name, width, _)| format!("{name:>width$}")).collect::<Vec<_>>();
            let endpoint = render::plain(&self.endpoint);
            let _ = writeln!(text, "{} {} {endpoint}\n{}", self.engine, self.layout, heading.join("  "));
        }
        let cell = |(_, width, value): &Column| format!("{:>width$}", value(self).unwrap_or_default());
        let line = COLUMNS.iter().map(cell).collect::<Vec<_>>().join("  ");
        let _ = writeln!(text, "{}", line.trim_end());
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_apply_is_left_out() {
        let row = Row {
            engine: "redis",
            layout: "native",
            endpoint: "redis://h:6379/0".to_owned(),
            case: "renew",
            tasks: 1,
            holders: Some(5),
            ..Row::default()
        };
        let json = r#""endpoint":"redis://h:6379/0","case":"renew","tasks":1,"holders":5}"#;
        assert_eq!(row.json().unwrap().trim_end(), r#"{"engine":"redis","layout":"native","#.to_owned() + json);
        assert_eq!([999, 1_234, 250_000].map(time), ["999µs", "1.2ms", "250ms"]);
    }
}
