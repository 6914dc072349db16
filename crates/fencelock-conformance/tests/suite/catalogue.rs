//! Story: no case is forgotten. `cases.toml` says of every id of `cases.txt` what became of it: a trial of this crate, a test
//! elsewhere, an engine that it waits for, or the reason why it does not apply to us. Where a trial cannot be shown on one of
//! our engines, it says `not = { engine = "why" }`: a family that can do less than it could is seen here.
//!
//! `FENCELOCK_BLESS=1 cargo test -p fencelock-conformance --test suite` writes it anew, in the order of `cases.txt`: what is
//! registered becomes a trial, what is of an engine that we do not have yet waits for it, the rest is to do. `not` stays as it is:
//! that a case is shown no more is written by hand.
use fencelock_conformance::{Family, Known, all_cases, catalogue, ignored};
use libtest_mimic::Failed;
use serde::Deserialize;
use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

/// A case that is to do is an error. Off only while the suite is being filled.
const TODO_IS_AN_ERROR: bool = true;
/// The scopes for which there is an engine, or a crate, here. All others wait for theirs.
const HERE: [&str; 19] = [
    "any",
    "cli",
    "core",
    "etcd",
    "layout-plain",
    "layout-redisson",
    "lease",
    "mysql",
    "postgres",
    "queue",
    "quorum",
    "redis-cluster",
    "redis-sentinel",
    "redlock",
    "session",
    "sql",
    "sql-tx",
    "sqlite",
    "zookeeper",
];

/// The scopes of what every engine has to show: a test of one engine is none of the next one.
const OF_EVERY_ENGINE: [&str; 4] = ["any", "lease", "queue", "session"];

/// What became of a case: exactly one of these, but `not`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// `module::function` below `src/cases`.
    trial: Option<String>,
    /// The families that it is not shown on, and why.
    #[serde(default)]
    not: BTreeMap<String, String>,
    /// `path/from/the/root.rs::function`.
    test: Option<String>,
    /// The engine that it waits for.
    waits: Option<String>,
    /// Why it does not apply to us.
    reason: Option<String>,
    todo: Option<bool>,
}
type Entries = BTreeMap<String, Entry>;

fn here(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}
fn root() -> PathBuf {
    here("../..")
}
fn entries() -> Result<Entries, String> {
    let text = fs::read_to_string(here("cases.toml")).unwrap_or_default();
    toml::from_str(&text).map_err(|e| format!("cases.toml: {e}"))
}

pub(crate) fn check(families: &[&'static dyn Family]) -> Result<(), Failed> {
    let entries = entries()?;
    let mut problems = Vec::new();
    let registered: HashMap<_, _> = all_cases().map(|case| (case.id, case.function())).collect();
    if registered.len() != all_cases().count() {
        problems.push("a case is registered twice".to_owned());
    }
    let known: HashMap<_, _> = catalogue().iter().map(|known| (known.id, known)).collect();
    let unknown = |id: &str, place: &str| format!("{id} is in {place} and not in cases.txt");
    problems.extend(registered.keys().filter(|id| !known.contains_key(*id)).map(|id| unknown(id, "src/cases")));
    problems.extend(entries.keys().filter(|id| !known.contains_key(id.as_str())).map(|id| unknown(id, "cases.toml")));
    let mut todo = 0;
    for known in catalogue() {
        let id = known.id;
        match entries.get(id) {
            None => problems.push(format!("{id} has no entry in cases.toml")),
            Some(entry) => {
                todo += usize::from(entry.todo.is_some());
                let wrong = judge(known, entry, registered.get(id).copied());
                problems.extend(wrong.map(|wrong| format!("{id}: {wrong}")));
            }
        }
    }
    problems.extend(not_shown(&entries, families));
    println!("cases.toml: {todo} of {} cases are to do", catalogue().len());
    if TODO_IS_AN_ERROR && todo > 0 {
        problems.push(format!("{todo} cases are to do"));
    }
    problems.sort();
    if problems.is_empty() { Ok(()) } else { Err(Failed::from(problems.join("\n"))) }
}
/// What is ignored, and what `not` says, are the same.
fn not_shown(entries: &Entries, families: &[&'static dyn Family]) -> Vec<String> {
    let is: BTreeMap<_, _> = ignored(families).into_iter().map(|(family, id, why)| ((id, family), why)).collect();
    let said = entries.iter().flat_map(|(id, entry)| {
        entry.not.iter().map(move |(family, why)| ((id.as_str(), family.as_str()), why.as_str()))
    });
    let said: BTreeMap<_, _> = said.collect();
    let missing = is.iter().filter(|(of, why)| said.get(*of) != Some(*why));
    let missing =
        missing.map(|((id, family), why)| format!("{id} is not shown on {family}: not = {{ {family} = {why:?} }}"));
    let shown = said.keys().filter(|of| !is.contains_key(*of));
    missing.chain(shown.map(|(id, family)| format!("{id} is shown on {family}, and it says not"))).collect()
}
fn judge(known: &Known, entry: &Entry, registered: Option<&str>) -> Option<String> {
    let Entry { trial, test, waits, reason, todo, not } = entry;
    if !not.is_empty() && trial.is_none() {
        return Some("what has no trial is shown nowhere here".to_owned());
    }
    let said = [trial.is_some(), test.is_some(), waits.is_some(), reason.is_some(), todo.is_some()];
    if said.into_iter().filter(|said| *said).count() != 1 {
        return Some("say one of trial, test, waits, reason".to_owned());
    }
    let of_ours = HERE.contains(&known.scope);
    match (trial, test, registered) {
        (Some(trial), _, Some(function)) if trial == function => None,
        (Some(trial), _, None) => Some(format!("nobody has registered {trial}: a line in cases! of src/cases")),
        (_, _, Some(function)) => Some(format!("it is registered as {function}, and here it is not")),
        (None, Some(_), None) if OF_EVERY_ENGINE.contains(&known.scope) => {
            Some(format!("a test of one engine shows nothing of the next: {} wants a trial", known.scope))
        }
        (None, Some(test), None) => missing_test(test),
        (None, None, None) => {
            let empty = |text: &Option<String>| text.as_ref().is_some_and(|text| text.trim().is_empty());
            if empty(waits) || empty(reason) {
                return Some("say which, or why".to_owned());
            }
            (waits.is_some() && of_ours).then(|| format!("{} waits for no engine", known.scope))
        }
    }
}
/// `crates/fencelock-core/tests/loss.rs::name`: the file has such a function: a test, or what a trial runs.
fn missing_test(test: &str) -> Option<String> {
    let Some((file, function)) = test.rsplit_once("::") else {
        return Some(format!("write path/from/the/root.rs::function, not {test:?}"));
    };
    match fs::read_to_string(root().join(file)) {
        Err(e) => Some(format!("{file}: {e}")),
        Ok(text) => {
            let called = format!("fn {function}");
            let there = text.match_indices(&called).any(|(at, _)| {
                let after = text[at + called.len()..].chars().next();
                after.is_some_and(|c| c == '(' || c == '<')
            });
            (!there).then(|| format!("{file} has no fn {function}"))
        }
    }
}

/// Writes `cases.toml` anew.
pub(crate) fn bless() -> ExitCode {
    let entries = match entries() {
        Ok(entries) => entries,
        Err(e) => {
            eprintln!("error: {e}");
            return ExitCode::FAILURE;
        }
    };
    let registered: HashMap<_, _> = all_cases().map(|case| (case.id, case.function())).collect();
    let unknown: Vec<_> = entries.keys().filter(|id| catalogue().iter().all(|known| known.id != *id)).collect();
    if !unknown.is_empty() {
        eprintln!("error: not in cases.txt, and not thrown away either: {unknown:?}");
        return ExitCode::FAILURE;
    }
    let mut text = String::from(
        "# What became of each case of cases.txt, in its order: trial (of this crate), test (elsewhere), waits (for an engine),\n\
         # reason (why not). FENCELOCK_BLESS=1 cargo test -p fencelock-conformance --test suite writes trials, what waits, order.\n",
    );
    let mut heading = "";
    for known in catalogue() {
        if known.heading != heading {
            heading = known.heading;
            let _ = write!(text, "\n# {heading}\n");
        }
        let said = entries.get(known.id).cloned().unwrap_or_default();
        let not: Vec<_> = said.not.iter().map(|(family, why)| format!("{family} = {}", quoted(why))).collect();
        let (key, value) = match (registered.get(known.id), said) {
            (Some(function), _) => ("trial", quoted(function)),
            (None, Entry { test: Some(test), .. }) => ("test", quoted(&test)),
            (None, Entry { reason: Some(reason), .. }) => ("reason", quoted(&reason)),
            (None, _) if !HERE.contains(&known.scope) => ("waits", quoted(known.scope)),
            (None, _) => ("todo", "true".to_owned()),
        };
        let not =
            if key == "trial" && !not.is_empty() { format!(", not = {{ {} }}", not.join(", ")) } else { String::new() };
        let _ = writeln!(text, "{} = {{ {key} = {value}{not} }}", quoted(known.id));
    }
    // Beside it first: whoever reads meanwhile reads all of it.
    let (new, file) = (here("cases.toml.new"), here("cases.toml"));
    fs::write(&new, text).and_then(|()| fs::rename(new, file)).unwrap();
    println!("cases.toml is written");
    ExitCode::SUCCESS
}
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
