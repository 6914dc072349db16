//! `cargo xtask lint`: everything that is judged without running the code.

use crate::cargo::cargo;
use crate::manifest::{Manifest, members, strings};
use crate::steps::{Steps, run as run_command};
use crate::{api, engines, rules, sources};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// What is installed when no cargo-deny is there; one that is there is used as it is.
const CARGO_DENY: &str = "0.20.2";

pub(crate) fn run(root: &Path) -> ExitCode {
    let mut steps = Steps::new();
    steps.step("rustfmt and clippy are installed", || components(root));
    steps.command("format", cargo(root, ["fmt", "--all", "--check"]));
    steps.step("rules of the sources", || told(sources::check(root)));
    steps.step("rules of the manifests", || told(rules::manifests(root)));
    steps.step("rules of the dependency tree", || told(rules::tree(root)));
    steps.step("table of engines", || engines::compare(root));
    clippy(root, &mut steps);
    // Twice: only the second sees broken links in private items, only the first sees public pages that link to them.
    let doc = ["doc", "--workspace", "--all-features", "--no-deps"];
    for (name, more) in [("public documentation", None), ("all documentation", Some("--document-private-items"))] {
        let mut command = cargo(root, doc.into_iter().chain(more));
        command.env("RUSTDOCFLAGS", "-D warnings");
        steps.command(name, command);
    }
    steps.step("public API", || api::compare(root));
    if steps.step("cargo-deny is installed", || install_deny(root)) {
        // No advisories: they change by the hour, and would fail a change that did nothing wrong.
        steps.command(
            "licences, bans, sources",
            cargo(root, ["deny", "check", "--hide-inclusion-graph", "licenses", "bans", "sources"]),
        );
    }
    steps.finish()
}

fn told(problems: Result<Vec<String>, String>) -> Result<(), String> {
    let problems = problems?;
    for problem in &problems {
        println!("   {problem}");
    }
    if problems.is_empty() { Ok(()) } else { Err(format!("{} broken", problems.len())) }
}

/// Clippy for every feature set that somebody may build, so that no feature compiles only thanks to its neighbour.
fn clippy(root: &Path, steps: &mut Steps) {
    let mut members_seen = Vec::new();
    if !steps.step("feature sets", || {
        members_seen = members(root)?;
        Ok(())
    }) {
        return;
    }
    for (package, _, manifest) in &members_seen {
        for set in feature_sets(manifest) {
            let name = format!("clippy {package}, {}", set.name);
            steps.step(&name, || {
                // Without tests: what they depend on switches features on that users do not get. Theirs are below.
                let arguments = ["clippy", "--quiet", "--package", package].into_iter();
                let arguments = arguments.chain(set.arguments.iter().map(String::as_str));
                run_command(&mut cargo(root, arguments.chain(["--", "-D", "warnings"])))
            });
        }
    }
    let all = ["clippy", "--quiet", "--workspace", "--all-features", "--all-targets", "--", "-D", "warnings"];
    steps.command("clippy, everything at once", cargo(root, all));
}

struct FeatureSet {
    name: String,
    arguments: Vec<String>,
}

/// Default features, none, and each by itself, read from the manifest: a new feature cannot be forgotten.
fn feature_sets(manifest: &Manifest) -> Vec<FeatureSet> {
    let set = |name: &str, arguments: &[&str]| FeatureSet {
        name: name.to_owned(),
        arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
    };
    let mut sets = vec![set("default features", &[])];
    if manifest.value("features", "default").is_some_and(|default| !strings(default).is_empty()) {
        sets.push(set("no features", &["--no-default-features"]));
    }
    for feature in manifest.features() {
        sets.push(set(&format!("only {feature}"), &["--no-default-features", "--features", &feature]));
    }
    sets
}

/// A minimal toolchain has neither; rustup can add them to it.
fn components(root: &Path) -> Result<(), String> {
    let missing: Vec<&str> = [("fmt", "rustfmt"), ("clippy", "clippy")]
        .into_iter()
        .filter(|(subcommand, _)| !answers(cargo(root, [*subcommand, "--version"])))
        .map(|(_, component)| component)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut add = Command::new("rustup");
    run_command(add.args(["component", "add"]).args(&missing).current_dir(root))
        .map_err(|problem| format!("{problem}; install {} for this toolchain", missing.join(" and ")))
}

fn install_deny(root: &Path) -> Result<(), String> {
    if answers(cargo(root, ["deny", "--version"])) {
        return Ok(());
    }
    println!("   once on a new machine, takes minutes");
    let mut install = cargo(root, ["install", "--quiet", "--locked", "--debug", "cargo-deny", "--version", CARGO_DENY]);
    // In a folder of its own: nobody who builds here waits for it.
    run_command(install.env_remove("CARGO_TARGET_DIR"))
}

fn answers(mut command: Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(manifest: &str) -> Vec<String> {
        feature_sets(&Manifest::parse(manifest)).into_iter().map(|set| set.name).collect()
    }

    #[test]
    fn every_feature_has_a_set_of_its_own() {
        assert_eq!(names("[package]"), ["default features"]);
        assert_eq!(names("[features]\ndefault = []\na = []"), ["default features", "only a"]);
        assert_eq!(names("[features]\ndefault = [\"a\"]\na = []"), ["default features", "no features", "only a"]);
    }
}
