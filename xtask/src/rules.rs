//! What the manifests and the dependency tree must keep. Crates that must never be in the tree are in `deny.toml`.

use crate::cargo::cargo;
use crate::manifest::{Dependency, Manifest, field, members, plain, strings};
use crate::oldest::range;
use crate::steps::output;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Drivers of engines. Each belongs to the crate of its engine, and to nobody else.
const DRIVERS: &[&str] = &[
    "libsqlite3-sys",
    "mysql_async",
    "prost",
    "redis",
    "rusqlite",
    "sqlx",
    "tokio-postgres",
    "tonic",
    "tonic-prost",
    "zookeeper-client",
];

pub(crate) fn manifests(root: &Path) -> Result<Vec<String>, String> {
    let workspace = Manifest::read(&root.join("Cargo.toml"))?;
    let members = members(root)?;
    let names: Vec<&str> = members.iter().map(|(name, ..)| name.as_str()).collect();
    let lock = fs::read_to_string(root.join("Cargo.lock")).map_err(|error| format!("Cargo.lock: {error}"))?;
    let mut problems = workspace_rules(&workspace, &names);
    problems.extend(newest_rusqlite(&workspace, &lock)?);
    for (name, _, manifest) in &members {
        problems.extend(member_rules(manifest, &names).into_iter().map(|problem| format!("{name}: {problem}")));
    }
    Ok(problems)
}

fn workspace_rules(workspace: &Manifest, names: &[&str]) -> Vec<String> {
    let mut problems = Vec::new();
    let version = workspace.value("workspace.package", "version").map(plain).unwrap_or_default();
    for dependency in workspace.dependencies() {
        let asked = field(&dependency.fields, "version").map(plain);
        if names.contains(&dependency.name.as_str()) && asked.as_deref() != Some(&format!("={version}")) {
            problems.push(format!("{}: internal dependencies are exact: version = \"={version}\"", dependency.name));
        }
        problems.extend(sqlx(&dependency));
    }
    if workspace.value("workspace.lints.rust", "unsafe_code").map(plain).as_deref() != Some("forbid") {
        problems.push("[workspace.lints.rust] must have unsafe_code = \"forbid\"".to_owned());
    }
    problems
}

fn member_rules(manifest: &Manifest, names: &[&str]) -> Vec<String> {
    let mut problems = Vec::new();
    if manifest.value("package", "version.workspace") != Some("true") {
        problems.push("one version for all crates: version.workspace = true".to_owned());
    }
    if manifest.value("lints", "workspace") != Some("true") {
        problems.push("without `[lints] workspace = true` unsafe code is not forbidden".to_owned());
    }
    for dependency in manifest.dependencies() {
        let inherited = field(&dependency.fields, "workspace") == Some("true");
        // A version of a development dependency would matter to nobody but the registry.
        let path_only = dependency.table.ends_with("dev-dependencies")
            && field(&dependency.fields, "path").is_some()
            && field(&dependency.fields, "version").is_none();
        if names.contains(&dependency.name.as_str()) && !inherited && !path_only {
            problems.push(format!("{}: internal dependencies are inherited: workspace = true", dependency.name));
        }
        problems.extend(sqlx(&dependency));
    }
    for (feature, value) in manifest.table("features") {
        for asked in strings(value) {
            let part = asked.split_once('/').filter(|(name, _)| name.trim_end_matches('?') == "sqlx");
            if part.is_some_and(|(_, part)| forbidden_of_sqlx(part)) {
                problems.push(format!("feature {feature} asks for {asked}: {SQLX}"));
            }
        }
    }
    problems
}

const SQLX: &str = "it takes the whole workspace back to an older rusqlite";

fn forbidden_of_sqlx(feature: &str) -> bool {
    ["default", "macros", "migrate"].contains(&feature) || feature.starts_with("sqlite")
}

/// One of these features brings sqlx-sqlite into the resolution, and only one crate of a build may link sqlite3.
fn sqlx(dependency: &Dependency) -> Vec<String> {
    if dependency.name != "sqlx" {
        return Vec::new();
    }
    let asked = strings(field(&dependency.fields, "features").unwrap_or_default());
    let mut problems: Vec<String> = asked
        .iter()
        .filter(|feature| forbidden_of_sqlx(feature))
        .map(|feature| format!("sqlx must not have feature {feature}: {SQLX}"))
        .collect();
    let inherited = field(&dependency.fields, "workspace") == Some("true");
    if !inherited && field(&dependency.fields, "default-features") != Some("false") {
        problems.push(format!("sqlx needs default-features = false: {SQLX}"));
    }
    problems
}

/// The lock file has the newest end of the range; `cargo xtask test` tests the oldest beside it.
fn newest_rusqlite(workspace: &Manifest, lock: &str) -> Result<Option<String>, String> {
    let (_, end) = range(workspace)?;
    let locked = lock.split("[[package]]").find(|package| package.contains("\nname = \"rusqlite\"\n"));
    let locked = locked.and_then(|package| Manifest::parse(package).value("", "version").map(plain));
    let locked = locked.ok_or("Cargo.lock has no rusqlite")?;
    let minor = |version: &str| version.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok());
    let newest = minor(&locked).map(|minor| minor + 1) == minor(&end);
    Ok((!newest)
        .then(|| format!("Cargo.lock has rusqlite {locked}: not the newest below {end}, which nothing tests now")))
}

pub(crate) fn tree(root: &Path) -> Result<Vec<String>, String> {
    let mut problems = Vec::new();
    let facade = crates(root, &["--package", "fencelock", "--no-default-features", "--edges", "normal,build"])?;
    for driver in DRIVERS.iter().filter(|driver| facade.contains(**driver)) {
        problems.push(format!("fencelock without features pulls in {driver}"));
    }
    let core = crates(root, &["--package", "fencelock-core", "--all-features", "--edges", "normal,build"])?;
    for found in core.iter().filter(|name| DRIVERS.contains(&name.as_str())) {
        problems.push(format!("fencelock-core depends on the driver {found}"));
    }
    for found in core.iter().filter(|name| name.starts_with("fencelock") && *name != "fencelock-core") {
        problems.push(format!("fencelock-core depends on {found}: core is below every engine"));
    }
    Ok(problems)
}

fn crates(root: &Path, arguments: &[&str]) -> Result<BTreeSet<String>, String> {
    let fixed = ["tree", "--quiet", "--prefix", "none", "--format", "{p}"];
    let printed = output(&mut cargo(root, fixed.into_iter().chain(arguments.iter().copied())))?;
    let names: BTreeSet<String> =
        printed.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect();
    // An empty tree would keep every rule.
    if names.is_empty() { Err("cargo tree printed nothing".to_owned()) } else { Ok(names) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[package]\nversion.workspace = true\n[lints]\nworkspace = true\n";

    fn member(more: &str) -> Vec<String> {
        member_rules(&Manifest::parse(&format!("{GOOD}{more}")), &["fencelock-core"])
    }

    #[test]
    fn a_member_inherits() {
        assert_eq!(member("[dependencies]\nfencelock-core.workspace = true\n"), [""; 0]);
        assert_eq!(member("[dev-dependencies]\nfencelock-core = { path = \"../core\" }\n"), [""; 0]);
        assert_eq!(member("[dependencies]\nfencelock-core = { path = \"../core\" }\n").len(), 1);
        assert_eq!(member("[dependencies]\nfencelock-core = \"0.1.0\"\n").len(), 1);
        assert_eq!(member_rules(&Manifest::parse("[package]\nversion = \"0.1.0\""), &[]).len(), 2);
    }

    #[test]
    fn sqlx_keeps_away_from_sqlite() {
        assert_eq!(member("[dependencies]\nsqlx = { version = \"0.8\", default-features = false }\n"), [""; 0]);
        assert_eq!(member("[dependencies]\nsqlx = \"0.8\"\n").len(), 1);
        assert_eq!(member("[dev-dependencies]\nsqlx = { workspace = true, features = [\"macros\"] }\n").len(), 1);
        assert_eq!(member("[features]\na = [\"sqlx?/sqlite\"]\n").len(), 1);
        assert_eq!(member("[features]\na = [\"sqlx/postgres\"]\n"), [""; 0]);
    }

    #[test]
    fn internal_versions_are_exact() {
        let check = |version: &str| {
            let text = format!(
                "[workspace.package]\nversion = \"0.1.0\"\n[workspace.dependencies]\n\
                 fencelock-core = {{ path = \"c\", version = \"{version}\" }}\n\
                 [workspace.lints.rust]\nunsafe_code = \"forbid\"\n"
            );
            workspace_rules(&Manifest::parse(&text), &["fencelock-core"]).len()
        };
        assert_eq!((check("=0.1.0"), check("0.1.0"), check("=0.2.0")), (0, 1, 1));
    }

    #[test]
    fn the_lock_file_has_the_newest_rusqlite() {
        let workspace = Manifest::parse("[workspace.dependencies]\nrusqlite = { version = \">=0.32, <0.42\" }");
        let lock = |version: &str| format!("version = 4\n[[package]]\nname = \"rusqlite\"\nversion = \"{version}\"\n");
        assert_eq!(newest_rusqlite(&workspace, &lock("0.41.1")), Ok(None));
        assert!(newest_rusqlite(&workspace, &lock("0.40.0")).is_ok_and(|problem| problem.is_some()));
    }
}
