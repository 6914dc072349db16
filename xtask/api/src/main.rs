//! `fencelock-api compare|write FOLDER RECORD CRATE…`: what rustdoc says in FOLDER of the public items of each crate, beside the file
//! of its name in RECORD. `cargo xtask lint` and `cargo xtask api` call it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use public_api::{Builder, MINIMUM_NIGHTLY_RUST_VERSION};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [what, folder, record, crates @ ..] = words.as_slice() else {
        eprintln!("fencelock-api compare|write FOLDER RECORD CRATE…");
        return ExitCode::FAILURE;
    };
    let mut changed = 0;
    for name in crates {
        let file = Path::new(record).join(format!("{name}.txt"));
        match told(&Path::new(folder).join(format!("{}.json", name.replace('-', "_")))) {
            Ok(Some(now)) if what == "write" => {
                if let Err(e) = fs::create_dir_all(record).and_then(|()| fs::write(&file, now)) {
                    eprintln!("{}: {e}", file.display());
                    return ExitCode::FAILURE;
                }
            }
            Ok(Some(now)) => changed += compare(name, &fs::read_to_string(&file).unwrap_or_default(), &now),
            Ok(None) => println!("   {name}: not compared, {UNREADABLE}{MINIMUM_NIGHTLY_RUST_VERSION} write"),
            Err(e) => {
                eprintln!("{name}: {e}");
                return ExitCode::FAILURE;
            }
        }
    }
    if changed > 0 {
        eprintln!("{changed} lines of the public API are not as recorded: `cargo xtask api` records them anew");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

const UNREADABLE: &str = "this rustdoc writes another format than those since ";

/// One line for each item; nothing where the toolchain's rustdoc writes what cannot be read here.
fn told(json: &Path) -> Result<Option<String>, String> {
    let api = Builder::from_rustdoc_json(json)
        .omit_auto_derived_impls(true)
        .omit_auto_trait_impls(true)
        .omit_blanket_impls(true)
        .build();
    match api {
        Ok(api) => Ok(Some(api.to_string())),
        Err(_) if is_json(json) => Ok(None),
        Err(e) => Err(format!("{}: {e}", json.display())),
    }
}
fn is_json(file: &Path) -> bool {
    fs::read(file).is_ok_and(|text| serde_json::from_slice::<serde_json::Value>(&text).is_ok())
}

/// How many lines have come or gone.
fn compare(name: &str, before: &str, now: &str) -> usize {
    let (before, now): (BTreeSet<_>, BTreeSet<_>) = (before.lines().collect(), now.lines().collect());
    before.difference(&now).for_each(|line| println!("   {name}: - {line}"));
    now.difference(&before).for_each(|line| println!("   {name}: + {line}"));
    before.symmetric_difference(&now).count()
}
