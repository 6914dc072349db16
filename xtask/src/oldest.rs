//! `fencelock-sqlite` and `fencelock-sql` against the oldest rusqlite of its range; everything else runs with the newest, which is in the
//! lock file.
//!
//! Cargo resolves one lock file per workspace, so this needs a copy of the tree: the user's own `Cargo.lock` is never
//! touched, not even for the moment of a test.

use crate::cargo::{cargo, target_dir};
use crate::manifest::{Manifest, field, plain};
use crate::steps::run;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;

/// The first release that the range lets in. Cargo can ask for one version, not for "the lowest".
const OLDEST: &str = "0.32.0";

pub(crate) fn test(root: &Path) -> Result<(), String> {
    let range = range(&Manifest::read(&root.join("Cargo.toml"))?)?;
    check_range(&range)?;
    let room = target_dir(root).join("oldest-rusqlite");
    let tree = room.join("tree");
    mirror(root, &tree, &[".git", "target"]).map_err(|error| format!("cannot copy the workspace: {error}"))?;
    run(&mut cargo(&tree, ["update", "--quiet", "--package", "rusqlite", "--precise", OLDEST]))?;
    // What the engine asks of the driver. Power cuts and processes are the file system's and the engine's.
    let tests = ["attacks", "kinds", "load", "mutex", "places"];
    let mut test = cargo(&tree, ["test", "--package", "fencelock-sqlite", "--no-fail-fast", "--lib"]);
    tests.iter().for_each(|name| {
        test.args(["--test", name]);
    });
    run(test.env("CARGO_TARGET_DIR", room.join("target")))?;
    // The transactions that users bring.
    let mut test = cargo(&tree, ["test", "--package", "fencelock-sql", "--features", "rusqlite", "--test", "sqlite"]);
    run(test.env("CARGO_TARGET_DIR", room.join("target")))
}

/// The range that the workspace asks for, as `(>=, <)`.
pub(crate) fn range(workspace: &Manifest) -> Result<(String, String), String> {
    let dependencies = workspace.dependencies();
    let rusqlite = dependencies.iter().find(|dependency| dependency.name == "rusqlite");
    let version = rusqlite.and_then(|rusqlite| field(&rusqlite.fields, "version")).map(plain);
    let version = version.ok_or("the workspace names no version of rusqlite")?;
    match version.split_once(',') {
        Some((low, high)) if low.starts_with(">=") && high.trim().starts_with('<') => {
            Ok((low[2..].trim().to_owned(), high.trim()[1..].trim().to_owned()))
        }
        _ => Err(format!("rusqlite must be a range (`>=a, <b`): users bring their own version; found {version}")),
    }
}

fn check_range((low, _): &(String, String)) -> Result<(), String> {
    if OLDEST == low || OLDEST.strip_prefix(low.as_str()).is_some_and(|rest| rest.starts_with('.')) {
        Ok(())
    } else {
        Err(format!("the range begins at {low}, but {OLDEST} is tested: change OLDEST in xtask/src/oldest.rs"))
    }
}

/// Makes `to` equal to `from`. Writes only what differs: cargo judges by the time of change, and an untouched file is
/// not compiled again.
fn mirror(from: &Path, to: &Path, without: &[&str]) -> io::Result<()> {
    fs::create_dir_all(to)?;
    let mut kept: BTreeSet<OsString> = BTreeSet::new();
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, copy) = (entry.path(), to.join(entry.file_name()));
        // The target directory may have any name; its own mark gives it away.
        if without.iter().any(|name| entry.file_name() == *name) || source.join("CACHEDIR.TAG").exists() {
            continue;
        }
        // A link to nowhere is nothing to build from.
        let Ok(kind) = fs::metadata(&source) else { continue };
        if kind.is_dir() {
            mirror(&source, &copy, &[])?;
        } else if kind.is_file() {
            let content = fs::read(&source)?;
            if !fs::read(&copy).is_ok_and(|old| old == content) {
                fs::copy(&source, &copy)?;
            }
        } else {
            continue;
        }
        kept.insert(entry.file_name());
    }
    for entry in fs::read_dir(to)? {
        let entry = entry?;
        if !kept.contains(&entry.file_name()) {
            if entry.file_type()?.is_dir() { fs::remove_dir_all(entry.path())? } else { fs::remove_file(entry.path())? }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_has_two_ends() {
        let read = |text: &str| range(&Manifest::parse(text));
        let found = read("[workspace.dependencies]\nrusqlite = { version = \">=0.32, <0.42\", features = [] }\n");
        assert_eq!(found, Ok(("0.32".to_owned(), "0.42".to_owned())));
        assert!(read("[workspace.dependencies]\nrusqlite = \"0.32\"\n").is_err());
        assert!(check_range(&("0.33".to_owned(), "0.42".to_owned())).is_err());
        assert!(check_range(&("0.3".to_owned(), "0.42".to_owned())).is_err());
        assert!(check_range(&("0.32".to_owned(), "0.42".to_owned())).is_ok());
    }

    #[test]
    fn a_mirror_follows_and_leaves_equal_files_alone() {
        let room = std::env::temp_dir().join(format!("fencelock-xtask-mirror-{}", std::process::id()));
        let (from, to) = (room.join("from"), room.join("to"));
        fs::create_dir_all(from.join("inner")).unwrap();
        fs::create_dir_all(from.join("target")).unwrap();
        fs::write(from.join("inner/same"), "1").unwrap();
        fs::write(from.join("gone"), "2").unwrap();
        mirror(&from, &to, &["target"]).unwrap();
        let time = fs::metadata(to.join("inner/same")).unwrap().modified().unwrap();
        fs::remove_file(from.join("gone")).unwrap();
        mirror(&from, &to, &["target"]).unwrap();
        assert_eq!(fs::metadata(to.join("inner/same")).unwrap().modified().unwrap(), time);
        assert!(!to.join("gone").exists() && !to.join("target").exists());
        fs::remove_dir_all(&room).unwrap();
    }
}
