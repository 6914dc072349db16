//! What users of the libraries can call, recorded in `docs/api`, so that no change of it goes unseen.

use crate::cargo::{cargo, target_dir};
use crate::manifest::members;
use crate::steps::{Steps, run};
use std::path::Path;
use std::process::ExitCode;

/// Libraries that are not for users.
const OURS: &[&str] = &["fencelock-simulation", "fencelock-testkit"];

/// `cargo xtask api`: writes the record.
pub(crate) fn write(root: &Path) -> ExitCode {
    let mut steps = Steps::new();
    steps.step("public API", || tell(root, "write"));
    steps.finish()
}

pub(crate) fn compare(root: &Path) -> Result<(), String> {
    tell(root, "compare")
}

fn tell(root: &Path, what: &str) -> Result<(), String> {
    let mut crates = members(root)?;
    crates.retain(|(name, directory, _)| directory.join("src/lib.rs").is_file() && !OURS.contains(&name.as_str()));
    let crates: Vec<&str> = crates.iter().map(|(name, ..)| name.as_str()).collect();
    let mut json = cargo(root, ["doc", "--quiet", "--all-features", "--no-deps", "--lib"]);
    json.args(crates.iter().flat_map(|name| ["--package", *name]));
    json.env("RUSTDOC", root.join("xtask/api/rustdoc.sh"));
    json.env("RUSTDOCFLAGS", "-Z unstable-options --output-format json");
    run(&mut json)?;
    let mut tool = cargo(root, ["run", "--quiet", "--package", "fencelock-api", "--", what]);
    tool.arg(target_dir(root).join("doc")).arg(root.join("docs/api")).args(&crates);
    run(&mut tool)
}
