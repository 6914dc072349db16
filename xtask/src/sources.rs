//! Rules that are read off the source text.

use std::fs;
use std::path::{Path, PathBuf};

/// A longer file wants to be two.
const MOST_LINES: usize = 600;

const ROOMS: &[&str] = &["crates", "examples", "benches", "interop", "xtask", "fuzz", "README.md"];
/// What is read. A page may be long.
const PAGE: &str = "md";
const RUST: &str = "rs";
const OTHERS: &[&str] = &["java", "js", "lua", "py", "sql"];

pub(crate) fn check(root: &Path) -> Result<Vec<String>, String> {
    let mut files = Vec::new();
    for room in ROOMS {
        collect(&root.join(room), &mut files).map_err(|error| format!("{room}: {error}"))?;
    }
    files.sort();
    let mut problems = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let name = file.strip_prefix(root).unwrap_or(&file).display().to_string();
        problems.extend(judge(&text, extension(&file)).into_iter().map(|problem| format!("{name}{problem}")));
    }
    Ok(problems)
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            if entry.file_name() != "target" {
                collect(&entry.path(), files)?;
            }
        }
    } else if path.is_file() && ([PAGE, RUST].contains(&extension(path)) || OTHERS.contains(&extension(path))) {
        files.push(path.to_owned());
    }
    Ok(())
}

fn extension(file: &Path) -> &str {
    file.extension().and_then(|extension| extension.to_str()).unwrap_or_default()
}

fn judge(text: &str, extension: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let (lines, rust) = (text.lines().count(), extension == RUST);
    if extension != PAGE && lines > MOST_LINES {
        problems.push(format!(": {lines} lines; more than {MOST_LINES} want to be two files"));
    }
    for (number, line) in (1..).zip(text.lines()) {
        let code = line.trim_start();
        let mut say = |what: &str| problems.push(format!(":{number}: {what}"));
        if rust && (code.starts_with("#[ignore") || code.starts_with("#[cfg_attr") && code.contains(", ignore")) {
            say("an ignored test passes whatever it tests");
        }
        if rust && !code.starts_with("//") && UNDONE.iter().any(|macro_name| calls(code, macro_name)) {
            say("unfinished code");
        }
        let fence = code.trim_start_matches(['/', '!', '*']).trim_start().strip_prefix("```");
        if fence.is_some_and(|info| info.split(',').any(|word| word.trim() == "ignore")) {
            say("an ignored snippet rots: make it compile (`no_run`) or say what it is (`text`)");
        }
    }
    problems
}

const UNDONE: &[&str] = &["todo", "unimplemented"];

fn calls(code: &str, macro_name: &str) -> bool {
    code.match_indices(macro_name).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let alone = !before.is_some_and(|c| c.is_alphanumeric() || c == '_');
        alone && code[at + macro_name.len()..].starts_with('!')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_can_be_broken() {
        assert_eq!(judge("    #[ignore = \"slow\"]\n", RUST).len(), 1);
        assert_eq!(judge("#[cfg_attr(miri, ignore)]\n", RUST).len(), 1);
        assert_eq!(judge(concat!("let x = to", "do!();\n"), RUST).len(), 1);
        assert_eq!(judge("//! ```rust,ignore\n", RUST).len(), 1);
        assert_eq!(judge("```ignore\n", PAGE).len(), 1);
        for long in [&[RUST], OTHERS].concat() {
            assert_eq!(judge(&"\n".repeat(MOST_LINES + 1), long).len(), 1, "{long}");
        }
    }

    #[test]
    fn other_languages_are_read() {
        let mut files = Vec::new();
        collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../interop"), &mut files).unwrap();
        collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates"), &mut files).unwrap();
        for other in OTHERS {
            assert!(files.iter().any(|file| extension(file) == *other), "no file of {other} was found");
        }
    }

    #[test]
    fn and_kept() {
        assert_eq!(judge("// nothing to do!\n#[test]\nfn ignore_me() {}\n/// ```\n", RUST), [""; 0]);
        assert_eq!(judge(&"\n".repeat(MOST_LINES), RUST), [""; 0]);
        assert_eq!(judge(&"\n".repeat(MOST_LINES + 1), PAGE), [""; 0], "a page may be long");
    }
}
