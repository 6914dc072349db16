//! The project's own commands: `cargo xtask test|lint|api|prove|simulate`.
//!
//! Std only, so that a fresh machine has it in seconds and no dependency of ours can break the tool that checks them.

#![forbid(unsafe_code)]

mod api;
mod cargo;
mod engines;
mod lanes;
mod lint;
mod machine;
mod manifest;
mod measured;
mod oldest;
mod packages;
mod prove;
mod rules;
mod simulate;
mod sources;
mod steps;
mod tee;
mod test;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask test [--quick]    install what the tests need, build, run every test
                                     --quick: fewer seeds, and without the oldest rusqlite
       cargo xtask lint              format, clippy in every feature set, docs, licences, the rules of the workspace
       cargo xtask api               records what users of the libraries can call: docs/api, which lint compares
       cargo xtask prove [NAME]      the long bars in full, into docs/MEASURED.md; NAME: only targets whose name has it
       cargo xtask table             what was measured of each engine into the guide: prove does it, too
       cargo xtask prove simulate [--from N] [--seeds M]
                                     M seeds (1000000) from N (0), added to those of the same code in docs/MEASURED.md
       cargo xtask simulate [--seed N] [--from N] [--seeds M] [--mutants] [--mutant NAME --seed N]
                                     seeded histories of the core, judged; --seed: tells one; --mutants: each rule left
                                     out must be caught";

fn main() -> ExitCode {
    // What cargo calls for each test program.
    let words: Vec<std::ffi::OsString> = env::args_os().skip(1).collect();
    if words.first().is_some_and(|word| word == "claim") {
        return lanes::claim(&words[1..]);
    }
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let root = match root() {
        Ok(root) => root,
        Err(problem) => {
            eprintln!("xtask: {problem}");
            return ExitCode::from(2);
        }
    };
    match arguments[..] {
        ["test"] => test::run(&root, test::Extent::Full),
        ["test", "--quick"] => test::run(&root, test::Extent::Quick),
        ["lint"] => lint::run(&root),
        ["api"] => api::write(&root),
        ["table"] => one(|| engines::write(&root)),
        ["prove"] => prove::run(&root, ""),
        ["prove", "simulate", ref rest @ ..] => match simulate::seeds(rest) {
            Some((from, seeds)) => prove::seeds(&root, from, seeds),
            None => {
                eprintln!("{USAGE}");
                ExitCode::from(2)
            }
        },
        ["simulate", ref rest @ ..] => simulate::run(&root, rest),
        ["prove", name] if !name.starts_with('-') => prove::run(&root, name),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn one(work: impl FnOnce() -> Result<(), String>) -> ExitCode {
    let mut steps = steps::Steps::new();
    steps.step("table of engines", work);
    steps.finish()
}

/// The workspace. Asked at run time: a binary that was built before the tree was moved would look in the old place.
fn root() -> Result<PathBuf, String> {
    let here = env::var_os("CARGO_MANIFEST_DIR").ok_or("start it as `cargo xtask`")?;
    let here = PathBuf::from(here);
    here.parent().map(PathBuf::from).ok_or_else(|| format!("{} has no parent", here.display()))
}
