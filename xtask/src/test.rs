//! `cargo xtask test`: from a machine with only Rust to every test's result.

use crate::cargo::{cargo, target_dir};
use crate::manifest::members;
use crate::steps::{Steps, output, run as run_command};
use crate::{lanes, oldest, packages, simulate};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    Full,
    Quick,
}

/// In the target folder: what failed tests said, for `.ci/run` to tell once more when the lints have had their say.
const FAILURES: &str = "failures.txt";

pub(crate) fn run(root: &Path, extent: Extent) -> ExitCode {
    let mut steps = Steps::new();
    // Of an earlier run, or of none.
    let failures = target_dir(root).join(FAILURES);
    let _ = fs::remove_file(&failures);
    if !steps.step("commands that the tests call", packages::ensure) {
        return steps.finish();
    }
    let everything = ["test", "--workspace", "--all-features", "--no-fail-fast"];
    let with = |more: &[&'static str]| cargo(root, everything.iter().chain(more).copied());

    // Built first, so that the tests' own times are not those of the compiler.
    steps.command("build", with(&["--no-run"]));
    let all = [&everything[..], &["--lib", "--bins", "--tests", "--examples"]].concat();
    steps.tests_side_by_side("unit, integration and end-to-end tests", lanes::lanes(root, &all));
    steps.tests("documentation tests", with(&["--doc"]));
    steps.step("examples", || examples(root));
    let (seeds, limit) = if extent == Extent::Full { ("20000", "5000") } else { ("2000", "2000") };
    steps.command("simulated histories", simulate::command(root, &["--seeds", seeds]));
    steps.step("a seed is the same history in another process", || replay(root));
    steps.command("mutants are caught", simulate::command(root, &["--mutants", "--limit", limit]));
    // In the workspace build the CLI switches every engine on, so only this sees a program without any.
    let bare = ["test", "--package", "fencelock", "--no-default-features", "--no-fail-fast", "--tests"];
    steps.tests("facade without engines", cargo(root, bare));
    if extent == Extent::Full {
        steps.step("fencelock-sqlite with the oldest rusqlite", || oldest::test(root));
    }
    if !steps.said().is_empty()
        && let Err(error) = fs::write(&failures, steps.said())
    {
        eprintln!("{}: {error}", failures.display());
    }
    steps.finish()
}

/// Some seeds, told twice: each time by a process of its own.
fn replay(root: &Path) -> Result<(), String> {
    for seed in ["3", "17", "4242"] {
        let tell = || output(&mut simulate::command(root, &["--seed", seed]));
        let (first, second) = (tell()?, tell()?);
        if first != second {
            let differ = first.lines().zip(second.lines()).find(|(a, b)| a != b);
            return Err(format!("seed {seed}: {differ:?}"));
        }
        println!("   seed {seed}: {} lines", first.lines().count());
    }
    Ok(())
}

/// `cargo test` only builds them: here each runs to its end, with a default database of its own, scripts with the program that they
/// are for. Built together, with the features of the workspace: `cargo run` would choose those of each package, and build all below it
/// again.
fn examples(root: &Path) -> Result<(), String> {
    let target = target_dir(root);
    let state = target.join("tmp").join("examples");
    fs::create_dir_all(&state).map_err(|error| format!("{}: {error}", state.display()))?;
    run_command(&mut cargo(root, ["build", "--quiet", "--workspace", "--all-features", "--bins", "--examples"]))?;
    let all = all_examples(root)?;
    if let Some(twice) = all.windows(2).find(|two| two[0] == two[1]) {
        return Err(format!("two examples are named {}: one would be built over the other", twice[0]));
    }
    let built = target.join("debug");
    let mut path = vec![built.clone()];
    path.extend(env::var_os("PATH").iter().flat_map(env::split_paths));
    let path = env::join_paths(path).map_err(|error| error.to_string())?;
    let programs = all.iter().map(|name| built.join("examples").join(name)).chain(scripts(root));
    for program in programs {
        let mut example = Command::new(program);
        example.current_dir(root).env("PATH", &path).env("XDG_STATE_HOME", &state).env_remove("FENCELOCK_URL");
        run_command(&mut example)?;
    }
    Ok(())
}
fn scripts(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root.join("examples")).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut all: Vec<_> = entries.filter(|path| path.extension().is_some_and(|extension| extension == "sh")).collect();
    all.sort();
    all
}
/// Those of the root and of each crate.
fn all_examples(root: &Path) -> Result<Vec<String>, String> {
    let mut folders = vec![root.join("examples")];
    folders.extend(members(root)?.into_iter().map(|(_, folder, _)| folder.join("examples")));
    let entries = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    let mut all: Vec<_> = entries.filter_map(|entry| example(&entry.path())).collect();
    all.sort();
    if all.is_empty() { Err("there is no example".to_owned()) } else { Ok(all) }
}
/// `name.rs` or `name/main.rs`, as cargo finds them.
fn example(path: &Path) -> Option<String> {
    let is_one = path.join("main.rs").is_file() || path.extension().is_some_and(|extension| extension == "rs");
    is_one.then(|| Some(path.file_stem()?.to_str()?.to_owned())).flatten()
}
