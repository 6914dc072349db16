//! `cargo xtask prove`: the bars in full, one target after the other, and the page that tells what came out.

use crate::cargo::{cargo, spell};
use crate::manifest::members;
use crate::measured::{Figure, Origin, figures, kept, replace, section};
use crate::steps::Steps;
use crate::tee::{Ran, tee};
use crate::{engines, machine, packages, simulate};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::ExitCode;

/// Tells a test that it runs in full, not a tenth of it, and asserts times; a benchmark that it writes its figures down.
const FULL: &str = "FENCELOCK_PROVE";

struct Target {
    title: String,
    arguments: Vec<String>,
}

pub(crate) fn run(root: &Path, filter: &str) -> ExitCode {
    let mut steps = Steps::new();
    let mut targets = Vec::new();
    let ready = steps.step("targets", || {
        targets = self::targets(root)?;
        let titles: Vec<String> = targets.iter().map(|target| target.title.clone()).collect();
        targets.retain(|target| target.title.contains(filter));
        if targets.is_empty() {
            println!("   {}", titles.join("\n   "));
            return Err(format!("none of these has {filter:?} in its title"));
        }
        println!("   {} of {}", targets.len(), titles.len());
        Ok(())
    });
    if !ready || !steps.step("commands that the tests call", packages::ensure) {
        return steps.finish();
    }
    for target in &targets {
        steps.step(&target.title, || prove(root, target));
    }
    steps.finish()
}

fn prove(root: &Path, target: &Target) -> Result<(), String> {
    let mut command = cargo(root, target.arguments.iter().map(String::as_str));
    command.env(FULL, "1");
    let spelled = spell(&command);
    // Before the run: who edits meanwhile changes what the next one measures, not this one.
    let commit = machine::commit(root);
    let ran = tee(&mut command)?;
    let (figures, malformed) = figures(&ran.output);
    // Written after each target, so that whoever interrupts a long run keeps what is done. A target that failed before
    // it measured anything leaves its old section, which says of what commit it is.
    let text = (!figures.is_empty()).then(|| told(root, &spelled, &commit, &ran, &figures));
    if text.is_some() || ran.failure.is_none() {
        write(root, &target.title, text)?;
    }
    let missed: Vec<&str> = figures.iter().filter(|figure| figure.missed).map(|figure| figure.bar.as_str()).collect();
    println!("   {} figures, {} missed", figures.len(), missed.len());
    match (ran.failure, missed.is_empty(), malformed.first()) {
        (Some(failure), ..) => Err(failure),
        (None, false, _) => Err(format!("missed: {}", missed.join("; "))),
        (None, true, Some(line)) => Err(format!("not `MEASURED | bar | figure | limit | ok|MISSED`: {line}")),
        (None, true, None) => Ok(()),
    }
}

/// A section: what was run, where and when, and what came out.
fn told(root: &Path, command: &str, commit: &str, ran: &Ran, figures: &[Figure]) -> String {
    let origin = Origin {
        command,
        commit,
        machine: &machine::machine(),
        compiler: &machine::compiler(root),
        date: &machine::now(),
        failure: ran.failure.as_deref(),
    };
    section(&origin, figures)
}

/// Simulated seeds, a part of them at a time: those of the same code add up, for a million take hours.
pub(crate) fn seeds(root: &Path, from: u64, seeds: u64) -> ExitCode {
    let mut steps = Steps::new();
    steps.step(simulate::TITLE, || {
        let commit = machine::commit(root);
        // Code that no commit has is nobody's: its seeds are not added up.
        let code = machine::trees(root, &simulate::CODE);
        let bar = format!(
            "simulation: seeds of the code {} without a breach, all runs",
            code.as_deref().unwrap_or("with changes")
        );
        let page = fs::read_to_string(root.join("docs").join("MEASURED.md")).unwrap_or_default();
        let mut command = simulate::command(root, &["--from", &from.to_string(), "--seeds", &seeds.to_string()]);
        let spelled = spell(&command);
        let ran = tee(&mut command)?;
        let (mut figures, _) = figures(&ran.output);
        let before = code.and_then(|_| ranges(&kept(&page, simulate::TITLE)?, &bar)).unwrap_or_default();
        // What failed is not added to what was right, and takes nothing of it away.
        let all = simulate::joined(&before, (ran.failure.is_none()).then_some((from, seeds)));
        let many: u64 = all.iter().map(|(from, to)| to - from).sum();
        let ranges: Vec<String> = all.iter().map(|(from, to)| format!("{from}..{to}")).collect();
        figures.push(Figure {
            bar,
            figure: format!("{many}: {}", ranges.join(" ")),
            limit: format!("{} in all runs", simulate::RECORDED),
            missed: many < simulate::RECORDED,
        });
        write(root, simulate::TITLE, Some(told(root, &spelled, &commit, &ran, &figures)))?;
        ran.failure.map_or(Ok(()), Err)
    });
    steps.finish()
}
/// The seeds that a section counts under this bar.
fn ranges(section: &str, bar: &str) -> Option<String> {
    let line = section.lines().find(|line| line.contains(bar))?;
    let figure = line.split(" | ").nth(1)?;
    Some(figure.split_once(": ")?.1.to_owned())
}

fn write(root: &Path, title: &str, text: Option<String>) -> Result<(), String> {
    let page = root.join("docs").join("MEASURED.md");
    let old = fs::read_to_string(&page).unwrap_or_default();
    if old.is_empty() && text.is_none() {
        return Ok(());
    }
    let new = replace(&old, &BTreeMap::from([(title.to_owned(), text)]));
    fs::create_dir_all(root.join("docs"))
        .and_then(|()| fs::write(&page, new))
        .map_err(|error| format!("docs/MEASURED.md: {error}"))?;
    engines::write(root)
}

/// Every test target and every benchmark. One cargo call each, so that each has its own section and bars are not
/// measured beside each other.
fn targets(root: &Path) -> Result<Vec<Target>, String> {
    let mut targets = Vec::new();
    for (package, directory, _) in members(root)? {
        if package == "xtask" {
            continue;
        }
        let mut test = |title: String, selection: &[&str]| {
            let fixed = ["test", "--profile", "prove", "--package", &package, "--all-features"];
            // One thread: two bars at once would measure each other. The suite has its own number: its trials wait a lot.
            let run = ["--", "--nocapture", "--test-threads=1"];
            let run = if title == "fencelock-conformance test suite" { &run[..1] } else { &run[..] };
            let arguments = fixed.iter().chain(selection).chain(run).map(|&argument| argument.to_owned()).collect();
            targets.push(Target { title, arguments });
        };
        if directory.join("src/lib.rs").is_file() {
            test(format!("{package} lib"), &["--lib"]);
        }
        if directory.join("src/main.rs").is_file() {
            test(format!("{package} bins"), &["--bins"]);
        }
        for name in names(&directory.join("tests")) {
            test(format!("{package} test {name}"), &["--test", &name]);
        }
        for name in names(&directory.join("benches")) {
            let arguments = ["bench", "--package", &package, "--all-features", "--bench", &name];
            let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
            targets.push(Target { title: format!("{package} bench {name}"), arguments });
        }
    }
    let mutants = simulate::PROGRAM.iter().chain(&["--mutants"]).map(|&argument| argument.to_owned());
    targets.push(Target { title: "fencelock-simulation mutants".to_owned(), arguments: mutants.collect() });
    Ok(targets)
}

/// Targets as cargo finds them: `name.rs` and `name/main.rs`.
fn names(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let targets = entries.filter(|path| {
        path.join("main.rs").is_file() || path.is_file() && path.extension().is_some_and(|extension| extension == "rs")
    });
    targets.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect()
}
