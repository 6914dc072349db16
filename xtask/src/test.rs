//! `cargo xtask test`: from a machine with only Rust to every test's result.

use crate::cargo::cargo;
use crate::steps::Steps;
use crate::{oldest, packages, simulate};
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
    let (seeds, limit) = if extent == Extent::Full { ("20000", "5000") } else { ("2000", "2000") };
    steps.command("simulated histories", simulate::command(root, &["--seeds", seeds]));
    steps.command("mutants are caught", simulate::command(root, &["--mutants", "--limit", limit]));
    // In the workspace build the CLI switches every engine on, so only this sees a program without any.
    let bare = ["test", "--package", "fencelock", "--no-default-features", "--no-fail-fast", "--tests"];
    steps.command("facade without engines", cargo(root, bare));
    if extent == Extent::Full {
        steps.step("fencelock-sqlite with the oldest rusqlite", || oldest::test(root));
    }
    steps.finish()
}
