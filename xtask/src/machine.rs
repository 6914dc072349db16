//! Where and when something was measured.

use crate::cargo::cargo;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::available_parallelism;
use std::time::{SystemTime, UNIX_EPOCH};

/// Processor, cores, memory, kernel; never the host's name.
pub(crate) fn machine() -> String {
    let processor = line("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let cores = available_parallelism().map_or(0, usize::from);
    let memory = line("/proc/meminfo", "MemTotal").and_then(|memory| gibibytes(&memory));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let system = line_of("/etc/os-release", "PRETTY_NAME", '=').map(|name| name.replace('"', ""));
    let mut parts = vec![processor, format!("{cores} cores")];
    parts.extend(memory.map(|memory| format!("{memory} GiB memory")));
    parts.push(format!("{} {}", std::env::consts::OS, kernel.trim()));
    parts.extend(system);
    parts.join(", ")
}

fn line(file: &str, key: &str) -> Option<String> {
    line_of(file, key, ':')
}

fn line_of(file: &str, key: &str, separator: char) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let pairs = text.lines().filter_map(|line| line.split_once(separator));
    pairs.filter(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_owned()).next()
}

fn gibibytes(kibibytes: &str) -> Option<u64> {
    let number: u64 = kibibytes.split_whitespace().next()?.parse().ok()?;
    Some((number + 512 * 1024) / (1024 * 1024))
}

fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    command.args(arguments).current_dir(root).stdin(Stdio::null()).stderr(Stdio::null());
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The commit, and whether the tree had changes that it does not have.
pub(crate) fn commit(root: &Path) -> String {
    let Some(commit) = git(root, &["rev-parse", "--short=12", "HEAD"]) else { return "none".to_owned() };
    // What we write ourselves is no change to what was measured.
    let changes = git(root, &["status", "--porcelain", "--", ".", ":!docs/MEASURED.md"]);
    if changes.is_some_and(|changes| changes.is_empty()) { commit } else { format!("{commit} with changes") }
}

/// What these folders hold, as git names it: the same in every commit that did not touch them. `None`: they have changes.
pub(crate) fn trees(root: &Path, folders: &[&str]) -> Option<String> {
    let mut status = vec!["status", "--porcelain", "--"];
    status.extend(folders);
    git(root, &status).filter(|changes| changes.is_empty())?;
    let names = folders.iter().map(|folder| git(root, &["rev-parse", "--short=12", &format!("HEAD:{folder}")]));
    Some(names.collect::<Option<Vec<_>>>()?.join("+"))
}

pub(crate) fn compiler(root: &Path) -> String {
    let version = cargo(root, ["--version"]).output().ok();
    version.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

/// Now, as `2025-01-31 09:05 UTC`.
pub(crate) fn now() -> String {
    date(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

fn date(seconds: u64) -> String {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let (mut days, rest) = (seconds / 86_400, seconds % 86_400);
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let mut month = 1;
    for length in [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02} {:02}:{:02} UTC", days + 1, rest / 3_600, rest % 3_600 / 60)
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
        assert_eq!(date(1_735_689_600), "2025-01-01 00:00 UTC");
    }

    #[test]
    fn memory_is_rounded() {
        assert_eq!(gibibytes("16384000 kB"), Some(16));
        assert_eq!(gibibytes(""), None);
    }
}
