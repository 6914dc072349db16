//! Every option of every subcommand with values that are none: a clear word, the right exit code, nothing held.

mod common;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

use common::{Place, finish};

/// What else each one needs, so that the option alone is wrong.
const ALL: [(&str, &[&str]); 13] = [
    ("run", &["x", "--", "true"]),
    ("hold", &["x"]),
    ("status", &["x"]),
    ("list", &[]),
    ("release", &["x", "--force"]),
    ("cell get", &["c"]),
    ("cell set", &["c", "1"]),
    ("semaphore resize", &["s", "1", "2"]),
    ("bench", &["--seconds", "0.1", "--tasks", "1", "--waiters", "2", "--holders", "0"]),
    ("migrate", &[]),
    ("acl redis", &["--url", "redis://h"]),
    ("completions", &["bash"]),
    ("man", &[]),
];

/// The options that take a value, as its help names them.
fn options(place: &Place, of: &str) -> Vec<String> {
    let (code, help, _) = finish(place.fencelock().args(of.split(' ')).arg("--help"));
    assert_eq!(code, 0);
    let lines = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    let words = lines.filter_map(|line| line.split(' ').find(|word| word.starts_with("--")).map(|word| (word, line)));
    let valued =
        words.filter(|(word, line)| line.split("  ").next().is_some_and(|usage| usage.contains(&format!("{word} <"))));
    valued.map(|(word, _)| word.to_owned()).collect()
}

fn is_free(place: &Place) -> bool {
    let (code, out, err) = finish(place.fencelock().arg("list"));
    // The first who looks makes the database, and is told so, and nothing else.
    assert!(code == 0 && err.lines().all(|line| line.starts_with("fencelock: there was no database at ")), "{err}");
    out.is_empty()
}

/// Runs it with a standard input that ends at once.
fn say(place: &Place, of: &str, args: &[OsString]) -> (i32, String, String) {
    let mut command = place.fencelock();
    command.args(of.split(' ')).args(args).stdin(Stdio::piped());
    let (code, out, err) = finish(&mut command);
    assert!(!err.contains("panicked") && !err.contains("RUST_BACKTRACE"), "{of} {args:?}: {err}");
    assert!(matches!(code, 0 | 1 | 64 | 69 | 74 | 75 | 76 | 78), "{of} {args:?}: {code} {err}");
    assert!(matches!(code, 0 | 1) || !err.trim().is_empty(), "{of} {args:?}: {code} without a word");
    (code, out, err)
}

/// Options whose value is a number, a duration or one of a few words, and whether zero is one: a lease of nothing is for the engine to refuse.
const JUDGED: [(&str, bool); 16] = [
    ("--ttl", true),
    ("--wait", false),
    ("--max-hold", false),
    ("--at-least", false),
    ("--grace", false),
    ("--permits", false),
    ("--token", true),
    ("--if-version", true),
    ("--busy-exit-code", true),
    ("--seconds", false),
    ("--tasks", false),
    ("--waiters", false),
    ("--holders", true),
    ("--on-loss", false),
    ("--layout", false),
    ("--topology", false),
];
/// Options whose value is a text, and how it ends with each of the values below; 0: as without it.
const FREE: [(&str, [i32; 6]); 10] = [
    ("--url", [78, 78, 78, 78, 78, 64]),
    ("--url-file", [64, 78, 78, 78, 78, 78]),
    ("--namespace", [0, 0, 0, 78, 0, 64]),
    ("--note", [0, 0, 0, 0, 0, 64]),
    // SQLite has none.
    ("--role", [0, 0, 0, 0, 0, 64]),
    ("--version", [78, 78, 78, 78, 78, 64]),
    ("--prefix", [78, 78, 78, 78, 78, 64]),
    ("--user", [78, 0, 0, 0, 78, 64]),
    ("--html", [64, 0, 0, 74, 0, 0]),
    ("--dir", [64, 74, 74, 74, 74, 74]),
];
/// What prints the same wherever the locks are, and what has a namespace of its own.
fn is_used(of: &str, option: &str) -> bool {
    let (asks_nobody, place) =
        (matches!(of, "man" | "completions"), ["--url", "--url-file", "--namespace"].contains(&option));
    !(asks_nobody && place || matches!(of, "bench" | "migrate") && option == "--namespace")
}

// Planted: a ttl of nothing taken for one; a value that is no text taken as far as it is; what is below zero turned round, and for
// `--token` refused; no tasks taken for some.
#[test]
fn a_value_that_is_none_is_told() {
    let place = Place::new();
    let huge = "9".repeat(100_000);
    let values: [&OsStr; 6] =
        ["".as_ref(), "-5".as_ref(), "0".as_ref(), huge.as_ref(), "\n".as_ref(), OsStr::from_bytes(b"\xff\xfe")];
    let (mut known, mut judged) = (0, Vec::new());
    for (of, rest) in ALL {
        let options = options(&place, of);
        known += options.len();
        for option in &options {
            // One that it needs itself is given once, and in one way.
            let mut rest: Vec<OsString> = rest.iter().map(Into::into).collect();
            let other = if option == "--url-file" { "--url" } else { option.as_str() };
            if let Some(given) = rest.iter().position(|word| word == other) {
                rest.drain(given..given + 2);
            }
            // What is missing: at the end, or before the command.
            let end = rest.iter().position(|word| word == "--").unwrap_or(rest.len());
            let mut args = rest.clone();
            args.insert(end, option.into());
            let (code, _, err) = say(&place, of, &args);
            assert_eq!(code, 64, "{of} {option}: {err}");
            assert!(err.contains(option.as_str()), "{of}: {err}");
            let known = JUDGED.iter().find(|(known, _)| known == option);
            judged.extend(known.map(|(known, _)| *known));
            let free = FREE.iter().find(|(free, _)| free == option);
            judged.extend(free.map(|(free, _)| *free));
            assert!(known.is_some() || free.is_some(), "{of} {option}: what is one, and what is none?");
            for (n, value) in values.into_iter().enumerate() {
                let mut with: OsString = option.into();
                with.push("=");
                with.push(value);
                let args: Vec<OsString> = [with].into_iter().chain(rest.iter().cloned()).collect();
                let (code, _, err) = say(&place, of, &args);
                assert!(err.len() < 2 * huge.len() + 2_000, "{of} {option}: {} bytes", err.len());
                if let Some((_, ends)) = free.filter(|_| is_used(of, option) || n == 5) {
                    let as_without = [0, 1, 75, 76].contains(&code);
                    let so = if ends[n] == 0 { as_without } else { code == ends[n] };
                    // Where nothing is asked a file is not looked at.
                    assert!(so || !is_used(of, option) && as_without, "{of} {option}, value {n}: {code} {err}");
                }
                let Some((_, zero)) = known else { continue };
                let is_one = value == "0" && *zero || value == "-5" && option == "--token";
                let shown = value.to_string_lossy().get(..20).map(ToOwned::to_owned);
                assert_eq!(code == 64, !is_one, "{of} {option} {shown:?}: {code} {err}");
                assert!(is_one || err.contains(option.as_str()), "{of} {option}: {err}");
            }
        }
    }
    assert!(known > 60, "{known} options: is the help read?");
    let mut all = JUDGED.iter().map(|(option, _)| option).chain(FREE.iter().map(|(option, _)| option));
    assert!(all.all(|option| judged.contains(option)), "one is nowhere: {judged:?}");
    assert!(is_free(&place));
}

// Planted: `-s` and `--permits` together; `bench URL` beside a file that names another.
#[test]
fn two_that_exclude_each_other_are_told() {
    let place = Place::new();
    let pairs: [(&str, &[&str]); 21] = [
        ("run x -s --write", &["--", "true"]),
        ("run x -s --permits 1/2", &["--", "true"]),
        ("run x --write --permits 1/2", &["--", "true"]),
        ("run x -n -w 1s", &["--", "true"]),
        ("run x -E 3 --skip-ok", &["--", "true"]),
        ("run x --url sqlite:a --url-file b", &["--", "true"]),
        ("hold x -s --write", &[]),
        ("hold x -s --permits 1/2", &[]),
        ("hold x --write --permits 1/2", &[]),
        ("hold x -n -w 1s", &[]),
        ("hold x -E 3 --skip-ok", &[]),
        ("status x --url-file a --url sqlite:b", &[]),
        ("status x --json -q", &[]),
        ("cell set c 1 --remove", &[]),
        ("cell set c 1 --stdin", &[]),
        ("cell set c --stdin --remove", &[]),
        ("bench sqlite:a --url sqlite:b", &[]),
        ("bench sqlite:a --url-file b", &[]),
        ("bench --url sqlite:a --url-file b", &[]),
        ("acl redis --prefix a --namespace b", &[]),
        ("man run --dir /tmp", &[]),
    ];
    for (line, rest) in pairs {
        let args: Vec<OsString> = rest.iter().map(Into::into).collect();
        let (code, out, err) = say(&place, line, &args);
        assert_eq!((code, out.as_str()), (64, ""), "{line}: {err}");
        assert!(err.contains("cannot be used with"), "{line}: {err}");
    }
    assert!(is_free(&place));
}

/// What stands without an option, and what is put in the place of `?`.
const ARGUMENTS: [&str; 14] = [
    "run ? -- true",
    "hold ?",
    "status ?",
    "list ?",
    "release ? --force --token 7",
    "cell get ?",
    "cell set ? 1",
    "cell set c ? --if-version 1",
    "semaphore resize ? 1 2",
    "semaphore resize s ? 2",
    "semaphore resize s 1 ?",
    "bench ? --seconds 0.1 --tasks 1 --waiters 2 --holders 0",
    "completions ?",
    "man ?",
];

// Planted: an empty name taken for one.
#[test]
fn an_argument_that_is_none_is_told() {
    let place = Place::new();
    let huge = "9".repeat(100_000);
    let values: [&OsStr; 5] = ["".as_ref(), "-5".as_ref(), "0".as_ref(), huge.as_ref(), OsStr::from_bytes(b"\xff\xfe")];
    for line in ARGUMENTS {
        for value in values {
            let words = line.split(' ').map(|word| if word == "?" { value.to_owned() } else { word.into() });
            let args: Vec<OsString> = words.collect();
            let (of, rest) = args.split_first().expect("a subcommand");
            let of = of.to_str().expect("its name");
            let shown = value.to_string_lossy().get(..4).map_or_else(|| value.to_owned(), OsString::from);
            let (code, out, err) = say(&place, of, rest);
            // A prefix that no name begins with is none that is wrong; `0` is a name as any other, and a value is what it is.
            let fine = match value.to_str() {
                Some("0") => !line.contains("resize s") && !["bench", "completions", "man"].contains(&of),
                Some("" | "-5") if line.contains("set c ?") => true,
                Some("") => matches!(of, "list" | "man"),
                Some(text) if text.len() > 1_000 => of == "list" || line.contains("set c ?"),
                None => line.contains("set c ?"),
                _ => false,
            };
            // One that holds ends well with its input; nobody has this cell or that hold.
            let may = if fine { matches!(code, 0 | 1 | 75 | 76 | 78) } else { matches!(code, 64 | 78) };
            assert!(may, "{line} {shown:?}: {code} {err}");
            assert!(fine || !err.trim().is_empty() && out.is_empty(), "{line} {shown:?}: {code} {out} {err}");
            assert!(err.len() < 2 * huge.len() + 2_000, "{line}: {} bytes", err.len());
        }
        // And where it is missing.
        let args: Vec<OsString> = line.split(' ').filter(|word| *word != "?").map(OsString::from).collect();
        let (of, rest) = args.split_first().expect("a subcommand");
        let (code, _, err) = say(&place, of.to_str().expect("its name"), rest);
        let optional = line.contains("list") || line.contains("man") || line.contains("bench");
        assert!(if optional { code == 0 } else { code == 64 }, "{line}: {code} {err}");
    }
    assert_eq!(finish(place.fencelock().args(["cell", "set", "c", "--remove"])).0, 0);
    assert!(is_free(&place));
}

// Planted: as much as is read of a device taken for a URL.
#[test]
fn a_place_of_the_url_that_has_none_is_told() {
    let place = Place::new();
    let huge = format!("sqlite:{}", "9".repeat(100_000));
    for (name, text) in [
        ("empty", &b"\n"[..]),
        ("binary", b"sqlite:\xff\xfe"),
        ("huge", huge.as_bytes()),
        ("word", b"-5"),
        ("nul", b"sqlite:a\0b"),
    ] {
        std::fs::write(place.path(name), text).expect("a file");
    }
    for file in ["", "-5", "missing", ".", "empty", "binary", "huge", "word", "nul", "/dev/null", "/dev/zero"] {
        let (code, out, err) = say(&place, "status", &["x".into(), format!("--url-file={file}").into()]);
        assert!(matches!(code, 64 | 78) && out.is_empty() && !err.is_empty(), "{file:?}: {code} {out}");
        assert!(err.len() < 1_000, "{file:?}: {} bytes", err.len());
    }
    let binary = OsStr::from_bytes(b"sqlite:\xff\xfe");
    for url in [OsStr::new("-5"), binary, huge.as_ref(), "\n".as_ref(), "sqlite:".repeat(3).as_ref(), ":".as_ref()] {
        let (code, out, err) = finish(place.fencelock().args(["status", "x"]).env("FENCELOCK_URL", url));
        let shown = url.to_string_lossy().get(..20).map(ToOwned::to_owned);
        if code != 0 {
            assert!(matches!(code, 69 | 78) && out.is_empty() && !err.is_empty(), "{shown:?}: {code} {out} {err}");
            assert!(err.contains("FENCELOCK_URL") || err.contains("connect"), "{shown:?}: {err}");
        }
    }
    assert!(is_free(&place));
}
