//! A newcomer's path, as README leads it: the first lock, the first loss, the first fenced write. With `cargo xtask prove` from a fresh
//! clone, which is built; else with the binary that is here.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Place, binary, code_of, end_of, finish, finish_within, start};
use fencelock_testkit::processes::{bar, full};

/// README's first command in a clone of its own; the binary that it has built.
fn cloned(place: &Place) -> PathBuf {
    let (root, clone) = (Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), place.path("fencelock"));
    let began = Instant::now();
    let (code, _, err) = finish(Command::new("git").arg("clone").arg("--quiet").arg(root).arg(&clone));
    assert_eq!(code, 0, "{err}");
    let mut first = Command::new("cargo");
    first.args(["run", "--release", "--quiet", "--", "run", "nightly-report", "--", "./examples/report.sh"]);
    first.env("FENCELOCK_URL", place.url()).env_remove("CARGO_TARGET_DIR").current_dir(&clone).stdin(Stdio::null());
    let (code, out, err) = finish_within(&mut first, Duration::from_secs(1800));
    assert_eq!(code, 0, "{err}");
    assert!(out.ends_with("report: written\n"), "{out}");
    let took = began.elapsed();
    bar("a newcomer: clone, build, first lock", format!("{took:.0?}"), "reported", true);
    clone.join("target/release/fencelock")
}

/// A table of orders, in a database of the newcomer's own.
const SHOP: &str =
    "CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT, fence INTEGER); INSERT INTO orders VALUES (42, 'new', 0)";
/// As README has it: the token goes with the write, and the number of rows says whether it counted.
const WRITE: &str = r#"sqlite3 shop.db "UPDATE orders SET state='$STATE', fence=$TOKEN WHERE id=42 AND fence<=$TOKEN; SELECT changes()""#;

// Planted: a write without its fence, which the stale one gets through; `release` that tells the holder nothing.
#[test]
fn the_first_lock_the_first_loss_the_first_fenced_write() {
    let place = Place::on_disk();
    let program = if full() { cloned(&place) } else { binary().to_owned() };
    let fencelock = |words: &[&str]| {
        let mut command = Command::new(&program);
        command.args(words).env("FENCELOCK_URL", place.url()).current_dir(place.path(".")).stdin(Stdio::null());
        command
    };
    let told = |what: &str, began: Instant| bar(what, format!("{:.1?}", began.elapsed()), "reported", true);

    let began = Instant::now();
    let (code, out, err) = finish(&mut fencelock(&["run", "hello", "--", "sh", "-c", "echo $FENCELOCK_TOKEN"]));
    assert_eq!(code, 0, "{err}");
    let first: u64 = out.trim().parse().expect("a token");
    told("a newcomer: a lock, once it is built", began);

    let began = Instant::now();
    let mut job =
        start(fencelock(&["run", "x", "--", "sh", "-c", "echo held > held; exec sleep 600"]).stderr(Stdio::null()));
    place.line("held");
    let token = place.token();
    assert!(token.parse::<u64>().expect("a token") > 0 && first > 0);
    assert_eq!(finish(&mut fencelock(&["release", "x", "--force", "--token", &token])).0, 0);
    assert_eq!(code_of(end_of(&mut job)), 76, "lost, and the job stopped");
    told("a newcomer: a lock that is taken away, and its job stopped", began);

    let began = Instant::now();
    let shop = place.path("shop.db");
    assert_eq!(finish(Command::new("sqlite3").arg(shop).arg(SHOP)).0, 0);
    let write = |state: &str, token: &str| {
        let script = format!("STATE={state}; TOKEN={token}; {WRITE}");
        let (code, out, err) = finish(&mut fencelock(&["run", "orders", "--", "sh", "-c", &script]));
        assert_eq!(code, 0, "{err}");
        out.trim().to_owned()
    };
    assert_eq!(write("paid", "$FENCELOCK_TOKEN"), "1");
    // Somebody who had the lock before, and was paused since.
    assert_eq!(write("cancelled", &token), "0", "stale");
    assert_eq!(write("shipped", "$FENCELOCK_TOKEN"), "1");
    let (_, state, _) = finish(Command::new("sqlite3").arg(place.path("shop.db")).arg("SELECT state FROM orders"));
    assert_eq!(state.trim(), "shipped");
    told("a newcomer: fenced writes, and a stale one refused", began);
}
