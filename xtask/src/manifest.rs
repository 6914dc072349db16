//! As much of TOML as our own manifests use: enough to read features and dependencies without a crate for it.

use std::fs;
use std::path::{Path, PathBuf};

pub(crate) struct Manifest {
    entries: Vec<Entry>,
}

struct Entry {
    table: String,
    key: String,
    value: String,
}

/// Key and value, the value as it is written.
pub(crate) type Fields = Vec<(String, String)>;

pub(crate) struct Dependency {
    pub(crate) table: String,
    /// The crate's own name, not the name that it was given here.
    pub(crate) name: String,
    pub(crate) key: String,
    pub(crate) fields: Fields,
}

/// The manifests of a workspace's members, by name.
pub(crate) fn members(root: &Path) -> Result<Vec<(String, PathBuf, Manifest)>, String> {
    let workspace = Manifest::read(&root.join("Cargo.toml"))?;
    let mut directories = Vec::new();
    for pattern in strings(workspace.value("workspace", "members").ok_or("no members in Cargo.toml")?) {
        if let Some(parent) = pattern.strip_suffix("/*") {
            let found = fs::read_dir(root.join(parent)).map_err(|error| format!("{parent}: {error}"))?;
            directories.extend(found.flatten().map(|entry| entry.path()));
        } else {
            directories.push(root.join(pattern));
        }
    }
    let mut members = Vec::new();
    for directory in directories.into_iter().filter(|directory| directory.join("Cargo.toml").is_file()) {
        let manifest = Manifest::read(&directory.join("Cargo.toml"))?;
        let name = manifest.value("package", "name").map(plain);
        let name = name.ok_or_else(|| format!("{}: no package name", directory.display()))?;
        members.push((name, directory, manifest));
    }
    members.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(members)
}

impl Manifest {
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self::parse(&text))
    }

    pub(crate) fn parse(text: &str) -> Self {
        let mut entries = Vec::new();
        let mut table = String::new();
        let mut open: Option<(String, String)> = None;
        for line in text.lines() {
            let line = without_comment(line);
            let (key, value) = match open.take() {
                Some((key, value)) => (key, format!("{value} {line}")),
                None if line.starts_with('[') => {
                    table = line.trim_matches(['[', ']']).to_owned();
                    continue;
                }
                None => match line.split_once('=') {
                    Some((key, value)) => (key.trim().replace('"', ""), value.trim().to_owned()),
                    None => continue,
                },
            };
            if depth(&value) > 0 {
                open = Some((key, value));
            } else {
                entries.push(Entry { table: table.clone(), key, value });
            }
        }
        Self { entries }
    }

    pub(crate) fn value(&self, table: &str, key: &str) -> Option<&str> {
        let found = self.entries.iter().find(|entry| entry.table == table && entry.key == key);
        found.map(|entry| entry.value.as_str())
    }

    pub(crate) fn table(&self, table: &str) -> impl Iterator<Item = (&str, &str)> {
        self.entries.iter().filter(move |entry| entry.table == table).map(|e| (e.key.as_str(), e.value.as_str()))
    }

    /// Every feature but `default`, those that an optional dependency makes by itself included.
    pub(crate) fn features(&self) -> Vec<String> {
        let mut features: Vec<String> =
            self.table("features").map(|(name, _)| name.to_owned()).filter(|name| name != "default").collect();
        let named: Vec<String> = self.table("features").flat_map(|(_, value)| strings(value)).collect();
        for dependency in self.dependencies() {
            let optional = field(&dependency.fields, "optional") == Some("true");
            if optional && !named.contains(&format!("dep:{}", dependency.key)) {
                features.push(dependency.key);
            }
        }
        features
    }

    pub(crate) fn dependencies(&self) -> Vec<Dependency> {
        let mut found: Vec<Dependency> = Vec::new();
        for entry in &self.entries {
            let (table, key, fields) = if entry.table.ends_with("dependencies") {
                match entry.key.split_once('.') {
                    Some((key, sub)) => (&*entry.table, key, vec![(sub.to_owned(), entry.value.clone())]),
                    None => (&*entry.table, &*entry.key, inline(&entry.value)),
                }
            } else if let Some((table, key)) = entry.table.rsplit_once("dependencies.") {
                let table = &entry.table[..table.len() + "dependencies".len()];
                (table, key, vec![(entry.key.clone(), entry.value.clone())])
            } else {
                continue;
            };
            match found.iter_mut().find(|dependency| dependency.table == table && dependency.key == key) {
                Some(known) => known.fields.extend(fields),
                None => {
                    found.push(Dependency { table: table.to_owned(), name: String::new(), key: key.to_owned(), fields })
                }
            }
        }
        for dependency in &mut found {
            dependency.name = field(&dependency.fields, "package").map_or_else(|| dependency.key.clone(), plain);
        }
        found
    }
}

pub(crate) fn field<'a>(fields: &'a Fields, key: &str) -> Option<&'a str> {
    fields.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
}

/// A string without its quotes.
pub(crate) fn plain(value: &str) -> String {
    value.trim().trim_matches(['"', '\'']).to_owned()
}

/// Every quoted string in a value.
pub(crate) fn strings(value: &str) -> Vec<String> {
    value.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// `{ a = 1, b = [2, 3] }` as pairs; a bare version is `version`.
fn inline(value: &str) -> Fields {
    let Some(inside) = value.trim().strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) else {
        return vec![("version".to_owned(), value.to_owned())];
    };
    let mut parts: Vec<String> = Vec::new();
    for piece in inside.split(',') {
        // A comma inside brackets or quotes separated nothing: the pieces belong together.
        match parts.last_mut() {
            Some(last) if depth(last) > 0 || last.matches('"').count() % 2 == 1 => {
                last.push(',');
                last.push_str(piece);
            }
            _ => parts.push(piece.to_owned()),
        }
    }
    let pairs = parts.iter().filter_map(|part| part.split_once('='));
    pairs.map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned())).collect()
}

fn without_comment(line: &str) -> &str {
    let mut quoted = false;
    for (at, c) in line.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '#' if !quoted => return line[..at].trim(),
            _ => {}
        }
    }
    line.trim()
}

/// Brackets that are still open at the end of a value.
fn depth(value: &str) -> i32 {
    let mut quoted = false;
    let mut depth = 0;
    for c in value.chars() {
        match c {
            '"' => quoted = !quoted,
            '[' | '{' if !quoted => depth += 1,
            ']' | '}' if !quoted => depth -= 1,
            _ => {}
        }
    }
    depth
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
[package] # with a comment
name = "a"
[features]
default = []
one = ["dep:x", "y?/z"]
[dependencies]
x = { version = ">=1, <2", optional = true, features = [
  "p", # why
  "q",
] }
implied = { version = "3", optional = true }
short = "4"
dotted.workspace = true
[dev-dependencies]
renamed = { package = "real", version = "5" }
[target.'cfg(unix)'.dependencies.long]
version = "6"
default-features = false
"#;

    #[test]
    fn features_are_those_written_and_those_implied() {
        assert_eq!(Manifest::parse(TEXT).features(), ["one", "implied"]);
    }

    #[test]
    fn a_dependency_is_found_in_every_spelling() {
        let dependencies = Manifest::parse(TEXT).dependencies();
        let get = |name: &str| dependencies.iter().find(|d| d.name == name).expect("it is in the text");
        assert_eq!(field(&get("x").fields, "version").map(plain).as_deref(), Some(">=1, <2"));
        assert_eq!(strings(field(&get("x").fields, "features").unwrap()), ["p", "q"]);
        assert_eq!(field(&get("short").fields, "version"), Some("\"4\""));
        assert_eq!(field(&get("dotted").fields, "workspace"), Some("true"));
        assert_eq!((get("real").table.as_str(), get("real").key.as_str()), ("dev-dependencies", "renamed"));
        assert_eq!(field(&get("long").fields, "default-features"), Some("false"));
        assert_eq!(get("long").table, "target.'cfg(unix)'.dependencies");
    }
}
