//! Help, manual pages, completions and the page in `docs/` come from one definition.

mod common;

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use common::{Place, finish};

/// Every subcommand that people see, in the order of the help.
const ALL: [&str; 17] = [
    "",
    "run",
    "hold",
    "status",
    "list",
    "release",
    "cell",
    "cell get",
    "cell set",
    "semaphore",
    "semaphore resize",
    "bench",
    "migrate",
    "acl",
    "acl redis",
    "completions",
    "man",
];

/// What it says to `--help`.
fn help(place: &Place, of: &str) -> String {
    let (code, out, err) = finish(place.fencelock().args(of.split_whitespace()).arg("--help").env("COLUMNS", "120"));
    assert_eq!((code, err.as_str()), (0, ""), "{of}");
    out
}

// Planted: an option added; `FENCELOCK_BLESS=1 cargo test -p fencelock-cli --test manual` writes the page anew.
#[test]
fn the_page_says_what_the_help_says() {
    let place = Place::new();
    let mut page =
        "# The command line\n\nWhat `--help` says, of every subcommand. Written by a test, which also compares it.\n"
            .to_owned();
    for of in ALL {
        let name = format!("fencelock {of}");
        write!(page, "\n## {}\n\n```text\n{}\n```\n", name.trim(), help(&place, of).trim_end()).expect("written");
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/command-line.md");
    if std::env::var_os("FENCELOCK_BLESS").is_some() {
        std::fs::write(&file, &page).expect("written");
    }
    let known = std::fs::read_to_string(&file).unwrap_or_default();
    let differs = page.lines().zip(known.lines()).find(|(now, then)| now != then);
    assert!(known == page, "docs/command-line.md is not what --help says: {differs:?}");
}

// Planted: a subcommand hidden; the list above cut.
#[test]
fn each_has_a_page_of_the_manual_with_its_options() {
    let place = Place::new();
    let dir = place.path("man1");
    std::fs::create_dir(&dir).expect("a directory");
    assert_eq!(finish(place.fencelock().args(["man", "--dir"]).arg(&dir)), (0, String::new(), String::new()));
    let mut files: Vec<_> = std::fs::read_dir(&dir)
        .expect("pages")
        .flatten()
        .map(|f| f.file_name().to_string_lossy().into_owned())
        .collect();
    let mut names: Vec<_> = ALL.iter().map(|of| format!("fencelock {of}").trim().replace(' ', "-") + ".1").collect();
    files.sort();
    names.sort();
    assert_eq!(files, names);
    for of in ALL {
        let (code, page, _) = finish(place.fencelock().arg("man").args(of.split_whitespace()));
        assert_eq!(code, 0);
        let file = format!("fencelock {of}").trim().replace(' ', "-") + ".1";
        assert_eq!(std::fs::read_to_string(dir.join(file)).expect("a page"), page);
        for option in help(&place, of).split_whitespace().filter(|word| word.starts_with("--")) {
            let option = option.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()).replace('-', "\\-");
            assert!(page.contains(option.split(['=', '[']).next().unwrap_or(&option)), "{of}: {option}");
        }
    }
    let (code, _, err) = finish(place.fencelock().args(["man", "walk"]));
    assert_eq!(code, 64);
    assert!(err.contains("walk") && err.contains("run, hold"), "{err}");
    assert_eq!(finish(place.fencelock().args(["man", "--dir", "/nowhere/at/all"])).0, 74);
}

// Planted: what stands below the options is left out of the pages.
#[test]
fn each_page_of_the_manual_reads_as_the_help_does() {
    let place = Place::new();
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut examples = 0;
    for of in ALL {
        let (_, page, _) = finish(place.fencelock().arg("man").args(of.split_whitespace()));
        std::fs::write(place.path("page"), page).expect("written");
        let mut groff = Command::new("groff");
        groff.args(["-man", "-Tutf8", "-ww", "-rHY=0", "-rLL=200n", "-P-c", "-P-b", "-P-u"]).arg(place.path("page"));
        let (code, read, err) = finish(&mut groff);
        assert_eq!((code, err.as_str()), (0, ""), "{of}");
        let (read, help) = (words(&read), help(&place, of));
        // What comes after the options: examples, and what the exit codes mean.
        let after =
            help.split_once("--help\n").or_else(|| help.split_once("Print help")).map_or("", |(_, after)| after);
        for line in after.lines().map(words).filter(|line| line.len() > 20) {
            examples += usize::from(line.starts_with("fencelock "));
            assert!(read.contains(&line), "{of}: {line:?} is not in {read}");
        }
    }
    assert!(examples >= ALL.len() - 3, "{examples} examples");
}

// Planted: completions of an older definition.
#[test]
fn completions_are_read_by_their_shell_and_know_every_subcommand() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (code, text, err) = finish(place.fencelock().args(["completions", shell]));
        assert_eq!((code, err.as_str()), (0, ""));
        for word in ["resize", "--at-least", "--if-version"].map(|w| w.trim_start_matches('-')) {
            assert!(text.contains(word), "{shell} {word}");
        }
    }
    // What bash offers, asked of bash.
    let script = "source <($F completions bash); COMP_WORDS=(fencelock semaphore re); COMP_CWORD=2; \
                  _fencelock fencelock re semaphore; echo \"${COMPREPLY[@]}\"";
    let (code, out, err) = finish(Command::new("bash").args(["-c", script]).env("F", common::binary()));
    assert_eq!((code, out.as_str()), (0, "resize\n"), "{err}");
    // And of fish; zsh offers only at a terminal, but reads it before.
    let script = "$F completions fish | source; complete -C 'fencelock semaphore re'";
    let mut fish = Command::new("fish");
    let (code, out, err) = finish(fish.args(["--no-config", "-c", script]).env("F", common::binary()));
    assert!(code == 0 && out.starts_with("resize\t") && out.lines().count() == 1, "{code} {out} {err}");
    let script = "autoload -Uz compinit && compinit -D && source <($F completions zsh) && print $_comps[fencelock]";
    let (code, out, err) = finish(Command::new("zsh").args(["-fc", script]).env("F", common::binary()));
    assert_eq!((code, out.as_str(), err.as_str()), (0, "_fencelock\n", ""));
    assert_eq!(finish(place.fencelock().args(["completions", "tcsh"])).0, 64);
}
