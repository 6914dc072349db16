//! `cargo xtask test`: from a machine with only Rust to every test's result.

use crate::cargo::cargo;
use crate::manifest::members;
use crate::steps::{Steps, output, run as run_command};
use crate::{oldest, packages, simulate};
use std::fs;
use std::path::Path;
use std::process::ExitCode;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    Full,
    Quick,
}

pub(crate) fn run(root: &Path, extent: Extent) -> ExitCode {
    let mut steps = Steps::new();
    if !steps.step("commands that the tests call", packages::ensure) {
        return steps.finish();
    }
    let everything = ["test", "--workspace", "--all-features", "--no-fail-fast"];
    let with = |more: &[&'static str]| cargo(root, everything.iter().chain(more).copied());

    // Built first, so that the tests' own times are not those of the compiler.
    steps.command("build", with(&["--no-run"]));
    steps.command("unit, integration and end-to-end tests", with(&["--lib", "--bins", "--tests", "--examples"]));
    steps.command("documentation tests", with(&["--doc"]));
    steps.step("examples", || examples(root));
    let (seeds, limit) = if extent == Extent::Full { ("20000", "5000") } else { ("2000", "2000") };
    steps.command("simulated histories", simulate::command(root, &["--seeds", seeds]));
    steps.step("a seed is the same history in another process", || replay(root));
    steps.command("mutants are caught", simulate::command(root, &["--mutants", "--limit", limit]));
    // In the workspace build the CLI switches every engine on, so only this sees a program without any.
    let bare = ["test", "--package", "fencelock", "--no-default-features", "--no-fail-fast", "--tests"];
    steps.command("facade without engines", cargo(root, bare));
    if extent == Extent::Full {
        steps.step("fencelock-sqlite with the oldest rusqlite", || oldest::test(root));
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

/// `cargo test` only builds them: here each runs to its end, with a default database of its own.
fn examples(root: &Path) -> Result<(), String> {
    let state = root.join("target").join("tmp").join("examples");
    fs::create_dir_all(&state).map_err(|error| format!("{}: {error}", state.display()))?;
    for (package, name) in all_examples(root)? {
        let arguments = ["run", "--quiet", "--package", &package, "--all-features", "--example", &name];
        run_command(cargo(root, arguments).env("XDG_STATE_HOME", &state).env_remove("FENCELOCK_URL"))?;
    }
    Ok(())
}
/// Those of the root are the command line's, the others their crate's.
fn all_examples(root: &Path) -> Result<Vec<(String, String)>, String> {
    let mut folders = vec![("fencelock-cli".to_owned(), root.join("examples"))];
    folders.extend(members(root)?.into_iter().map(|(package, folder, _)| (package, folder.join("examples"))));
    let mut all = Vec::new();
    for (package, folder) in folders {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        all.extend(entries.filter_map(|path| Some((package.clone(), example(&path)?))));
    }
    all.sort();
    if all.is_empty() { Err("there is no example".to_owned()) } else { Ok(all) }
}
/// `name.rs` or `name/main.rs`, as cargo finds them.
fn example(path: &Path) -> Option<String> {
    let is_one = path.join("main.rs").is_file() || path.extension().is_some_and(|extension| extension == "rs");
    is_one.then(|| Some(path.file_stem()?.to_str()?.to_owned())).flatten()
}
