//! What the pages and the helps write is run, as they write it, with other jobs, a database of this place, and less time.

mod common;
use common::*;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

/// What stands there for something that is not here, and what is here.
const INSTEAD: &[(&str, &str)] = &[
    ("…", "true"),
    ("cargo run --release -- run", "fencelock run"),
    ("redis://127.0.0.1", "sqlite:a.db"),
    ("redis://10.0.0.5", "sqlite:a.db"),
    ("postgres://db/app", "sqlite:b.db"),
    ("postgres://deploy@db/ops", "sqlite:ops.db"),
    ("/etc/fencelock.url", "fencelock.url"),
    ("/usr/local/bin/report", "./report"),
    ("/usr/local/share/man/man1", "."),
    ("~/", "./"),
    // Whoever measures, and whoever keeps it for a while.
    ("--at-least 20s", "--at-least 200ms"),
    (" --seconds 10 --tasks 1,64", ""),
    ("fencelock bench", "fencelock bench --seconds 0.1 --tasks 1 --waiters 2 --holders 0"),
    ("sleep 600", "true"),
];
/// What is said to end otherwise than with 0, or goes on until it is ended.
const ENDS: &[(&str, i32)] = &[
    ("fencelock status -q backup", 1),
    ("fencelock list billing/ --watch", 124),
    ("--if-version", 75),
    ("--force", 76),
];

fn place() -> Place {
    let place = Place::on_disk();
    for folder in ["bin", "examples", ".zfunc", ".config/fish/completions", ".local/share/bash-completion/completions"]
    {
        fs::create_dir_all(place.path(folder)).expect("a folder");
    }
    symlink(binary(), place.path("bin/fencelock")).expect("a link");
    let jobs = ["report", "serve", "deploy", "sync", "move", "read", "step", "deploy.sh", "migrate.sh", "switch.sh"];
    let others = ["pg_dump", "ffmpeg", "redis-cli", "man", "jq", "sqlite3"].map(|name| format!("bin/{name}"));
    for name in jobs.map(str::to_owned).into_iter().chain(others).chain(["examples/report.sh".to_owned()]) {
        let path = place.path(&name);
        fs::write(&path, format!("#!/bin/sh\necho {name} \"$@\" >> ran\ntest -t 0 || cat > /dev/null\n"))
            .expect("a job");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("one that can be run");
    }
    fs::write(place.path("page.html"), "<p>").expect("a page");
    fs::write(place.path("fifo"), "").expect("a file");
    fs::write(place.path("fencelock.url"), place.url()).expect("a URL");
    place
}
/// Its end, and what it said.
fn ends(place: &Place, script: &str) -> (i32, String) {
    let search = format!("{}:{}", place.path("bin").display(), std::env::var("PATH").expect("a path"));
    let mut bash = Command::new("timeout");
    fs::write(place.path("script"), script).expect("a script");
    bash.args(["-v", if script.contains("--watch") { "1" } else { "30" }, "bash", "-u", "script"]);
    bash.env("FENCELOCK_URL", place.url()).env("PATH", search).env("HOME", place.path(""));
    bash.env("VERSION", "7").env("USER", "ann").current_dir(place.path("")).stdin(Stdio::null());
    let (code, out, err) = finish(&mut bash);
    (code, out + &err)
}
fn here(text: &str) -> String {
    INSTEAD.iter().fold(text.to_owned(), |text, (there, here)| text.replace(there, here))
}
/// The blocks of a page that a shell reads.
fn blocks(page: &str) -> Vec<String> {
    let blocks = page.split("\n```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
    let shown = blocks.filter(|(language, _)| ["console", "sh", "text"].contains(language));
    shown.map(|(_, block)| block.split("\\\n").map(str::trim).collect::<Vec<_>>().join(" ")).collect()
}
/// Of a help, or a block: what begins with the program's name, without what is said about it.
fn lines(text: &str) -> impl Iterator<Item = String> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("fencelock: "));
    let lines = lines.filter_map(|line| {
        let line = here(line);
        let begin = ["coproc ", "fencelock "].iter().find_map(|word| line.find(word))?;
        line.get(begin..).map(str::to_owned)
    });
    lines.map(|line| line.split("  ").next().unwrap_or(&line).to_owned())
}

// Planted: an example that misses its `--`; one with an option that is refused where it stands.
#[test]
fn every_line_does_what_it_says() {
    let place = place();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut texts: Vec<_> = ["README.md", "docs/guide/cron-and-deploys.md", "docs/guide/moving.md"]
        .iter()
        .flat_map(|page| blocks(&fs::read_to_string(root.join(page)).expect("a page")))
        .collect();
    let helps = ["run", "hold", "status", "list", "release", "cell get", "cell set", "semaphore resize", "bench"];
    // What only a server has, tables and rights, is run beside one, by `migrate.rs` and `acl.rs`.
    for of in helps.iter().chain(&["completions", "man"]) {
        let (code, help, _) = finish(place.fencelock().args(of.split(' ')).arg("--help"));
        let examples = ["\nExamples:\n", "\nExample:\n"].iter().find_map(|head| Some(help.split_once(head)?.1));
        let examples = examples.unwrap_or_else(|| panic!("{of} has no examples: {code}"));
        texts.push(examples.split("\n\n").next().unwrap_or_default().to_owned());
    }
    let (mut run, set) = (BTreeSet::new(), ends(&place, "fencelock cell set config/limit 80"));
    assert_eq!(set.0, 0, "{}", set.1);
    for line in texts.iter().flat_map(|text| lines(text)) {
        if !run.insert(line.clone()) {
            continue;
        }
        let (code, told) = ends(&place, &line);
        println!("{code} {line}");
        let right = ENDS.iter().find(|(part, _)| line.contains(part)).map_or(0, |(_, code)| *code);
        assert_eq!(code, right, "{line}: {told}");
    }
    assert!(run.len() > 40, "{run:?}");
    let ran = place.read("ran");
    for job in
        ["pg_dump -f", "report", "serve", "deploy", "sync", "move", "read", "step", "ffmpeg", "redis-cli", "man -l"]
    {
        assert!(ran.contains(job), "{job}: {ran}");
    }
}

// Planted: a script that does not wait for the line.
#[test]
fn the_scripts_of_the_guide_hold_while_they_work() {
    let place = place();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/cron-and-deploys.md");
    let blocks = blocks(&fs::read_to_string(page).expect("the page"));
    let is_held =
        "#!/bin/sh\nfencelock status deploy/shop | tee -a told | grep -q ^held.*by && echo \"$0 $*\" >> held\n";
    for name in ["deploy.sh", "migrate.sh", "switch.sh"] {
        fs::write(place.path(name), is_held).expect("a job");
    }
    let scripts: Vec<_> =
        blocks.iter().filter(|block| block.contains("deploy/shop")).map(|block| here(block)).collect();
    assert_eq!(scripts.len(), 2, "{blocks:?}");
    // Somebody has it when they begin.
    let other = "export FENCELOCK_URL=sqlite:ops.db; rm -f go; \
                 fencelock run --note other deploy/shop -- bash -c 'until test -e go; do sleep 0.01; done; sleep 0.3' & \
                 until fencelock status -q deploy/shop; do sleep 0.01; done; touch go; ";
    for script in &scripts {
        let (code, told) = ends(&place, &format!("{other}{script}"));
        assert_eq!(code, 0, "{script}: {told}");
    }
    let told = place.read("told");
    assert!(!told.contains("other"), "{told}");
    assert_eq!(place.read("held").lines().collect::<Vec<_>>(), ["./deploy.sh 7", "./migrate.sh ", "./switch.sh "]);
    let (code, told) = ends(&place, "fencelock run --url sqlite:ops.db -w 5s deploy/shop -- true");
    assert_eq!(code, 0, "{told}");
}
