//! `cargo xtask simulate`: seeded histories of the real core, judged. Built in a profile of its own, and alone with the feature
//! `mutants`: no other build may get it.

use crate::cargo::cargo;
use crate::steps::run as run_command;
use std::path::Path;
use std::process::{Command, ExitCode};

pub(crate) const PROGRAM: [&str; 9] =
    ["run", "--quiet", "--package", "fencelock-simulation", "--features", "mutants", "--profile", "simulation", "--"];

/// What `cargo xtask prove` adds up over its runs.
pub(crate) const TITLE: &str = "fencelock-simulation seeds";
/// What a seed runs: the same seed of the same code is the same history.
pub(crate) const CODE: [&str; 2] = ["crates/fencelock-core/src", "crates/fencelock-simulation/src"];
/// How many seeds a recorded run has.
pub(crate) const RECORDED: u64 = 1_000_000;

/// What the simulator itself is asked for.
pub(crate) fn command(root: &Path, arguments: &[&str]) -> Command {
    cargo(root, PROGRAM.iter().chain(arguments).copied())
}
pub(crate) fn run(root: &Path, arguments: &[&str]) -> ExitCode {
    match run_command(&mut command(root, arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("xtask: {problem}");
            ExitCode::FAILURE
        }
    }
}

/// The seeds that a run of `prove` is asked for: `--from N` and `--seeds M`.
pub(crate) fn seeds(arguments: &[&str]) -> Option<(u64, u64)> {
    let number = |text: &str| text.replace('_', "").parse::<u64>().ok();
    let (mut from, mut seeds) = (0, RECORDED);
    let mut rest = arguments;
    while let [name, value, more @ ..] = rest {
        match *name {
            "--from" => from = number(value)?,
            "--seeds" => seeds = number(value)?,
            _ => return None,
        }
        rest = more;
    }
    rest.is_empty().then_some((from, seeds))
}

/// The ranges of seeds that were run of the same code, joined where they touch: `0..20000 60000..80000`.
pub(crate) fn joined(before: &str, more: Option<(u64, u64)>) -> Vec<(u64, u64)> {
    let parse = |range: &str| {
        let (from, to) = range.split_once("..")?;
        Some((from.parse().ok()?, to.parse().ok()?))
    };
    let mut all: Vec<(u64, u64)> = before.split_whitespace().filter_map(parse).collect();
    all.extend(more.map(|(from, seeds)| (from, from + seeds)));
    all.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (from, to) in all {
        match joined.last_mut() {
            Some((_, end)) if from <= *end => *end = to.max(*end),
            _ => joined.push((from, to)),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_join_and_none_counts_twice() {
        assert_eq!(joined("", Some((0, 10))), [(0, 10)]);
        assert_eq!(joined("0..10", Some((10, 10))), [(0, 20)]);
        assert_eq!(joined("0..10 30..40", Some((5, 10))), [(0, 15), (30, 40)]);
        assert_eq!(joined("0..10 what", None), [(0, 10)]);
    }

    #[test]
    fn the_seeds_of_a_run_are_given_or_a_million() {
        assert_eq!(seeds(&[]), Some((0, 1_000_000)));
        assert_eq!(seeds(&["--from", "5", "--seeds", "20_000"]), Some((5, 20_000)));
        assert_eq!(seeds(&["--from"]), None);
        assert_eq!(seeds(&["--mutants", "x"]), None);
    }
}
