//! What the page of an engine says, beside what its code has.
use std::time::Duration;

/// That the table under `# URL` of an engine's page has these keys, each once and no other, and that the shortest ttl
/// stands in that section. The keys are in the order of the alphabet.
///
/// ```
/// use std::time::Duration;
/// let page = "Of locks.\n\n# URL\n\n| `ttl` | `200ms` to `24h` | `30s` |\n| `ca`, `cert` | files | none |\n";
/// fencelock_testkit::page_has_keys(page, &["ca", "cert", "ttl"], Duration::from_millis(200));
/// ```
///
/// # Panics
/// It has not: with the key that is missing.
#[track_caller]
pub fn page_has_keys(page: &str, keys: &[&str], shortest: Duration) {
    let url = page.split("\n# ").find(|part| part.starts_with("URL\n")).expect("a section with the title URL");
    let rows = url.lines().filter(|line| line.starts_with("| `")).filter_map(|line| line.split(" | ").next());
    let mut named: Vec<&str> = rows.flat_map(|keys| keys.split('`').skip(1).step_by(2)).collect();
    named.sort_unstable();
    let missing: Vec<&str> = keys.iter().copied().filter(|key| !named.contains(key)).collect();
    assert!(missing.is_empty(), "the page has no row for {missing:?}");
    assert_eq!(named, keys, "the page's keys, and the code's");
    assert!(url.contains(&format!("`{shortest:?}`")), "the page does not tell the shortest ttl, `{shortest:?}`");
}

#[cfg(test)]
mod tests {
    //! Planted to see it go red: rows that are not of any key let through.
    use super::page_has_keys;
    use std::{panic::catch_unwind, time::Duration};

    /// What is told of a page whose section has these rows, beside another with a table.
    fn told(rows: &str) -> String {
        let page = format!("Of locks.\n\n# URL\n\n| key | means |\n|---|---|\n{rows}\n# Other\n\n| `x` | `1ms` |\n");
        let found = catch_unwind(|| page_has_keys(&page, &["ca", "key", "ttl"], Duration::from_millis(200)));
        found.err().map(|panic| *panic.downcast::<String>().expect("a message")).unwrap_or_default()
    }

    #[test]
    fn what_a_page_lacks_is_named() {
        let (ttl, files) = ("| `ttl` | `200ms` at least |\n", "| `ca`, `key` | files |\n");
        assert_eq!(told(&format!("{ttl}{files}")), "");
        for (rows, says) in [
            (ttl.to_owned(), r#"no row for ["ca", "key"]"#),
            (files.to_owned(), r#"no row for ["ttl"]"#),
            (format!("{ttl}{files}| `x` | odd |\n"), r#"["ca", "key", "ttl", "x"]"#),
            (format!("{ttl}{files}{files}"), r#"["ca", "ca", "key", "key", "ttl"]"#),
            (format!("| `ttl` | `1ms` at least |\n{files}"), "the shortest ttl, `200ms`"),
        ] {
            let told = told(&rows);
            assert!(told.contains(says), "{rows}: {told}");
        }
    }
}
