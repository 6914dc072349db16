//! `cases.txt`: every case that is known, whatever engine it is for.
use std::{collections::HashMap, sync::OnceLock};

/// A line of `cases.txt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its `source/id`.
    pub id: &'static str,
    /// Where it applies.
    pub scope: &'static str,
    /// What it shows.
    pub shows: &'static str,
    /// The part of the file that it stands in.
    pub heading: &'static str,
}

/// All of them, in the order of the file.
///
/// ```
/// let first = fencelock_conformance::catalogue()[0];
/// assert_eq!((first.id, first.scope), ("redisson/lock-unlock", "any"));
/// ```
pub fn catalogue() -> &'static [Known] {
    static ALL: OnceLock<Vec<Known>> = OnceLock::new();
    ALL.get_or_init(|| parse(include_str!("../cases.txt")))
}
pub(crate) fn known(id: &str) -> Option<&'static Known> {
    static BY_ID: OnceLock<HashMap<&str, &'static Known>> = OnceLock::new();
    BY_ID.get_or_init(|| catalogue().iter().map(|known| (known.id, known)).collect()).get(id).copied()
}

fn parse(text: &'static str) -> Vec<Known> {
    let (mut all, mut heading) = (Vec::new(), "");
    for line in text.lines() {
        if let Some(remark) = line.strip_prefix('#') {
            // "redis.md 6.1: Redisson, …" is a heading, other remarks are prose.
            let remark = remark.trim();
            if remark.split(' ').next().is_some_and(|word| word.ends_with(".md")) {
                heading = remark;
            }
            continue;
        }
        let mut columns = line.splitn(3, '\t');
        if let (Some(id), Some(scope), Some(shows)) = (columns.next(), columns.next(), columns.next()) {
            all.push(Known { id, scope, shows, heading });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_case_is_there_once_and_below_a_heading() {
        let lines = include_str!("../cases.txt").lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(catalogue().len(), lines, "a line without three columns");
        let ids: HashSet<_> = catalogue().iter().map(|known| known.id).collect();
        assert_eq!(ids.len(), lines);
        assert!(catalogue().iter().all(|known| known.id.contains('/') && !known.heading.is_empty()));
    }
}
