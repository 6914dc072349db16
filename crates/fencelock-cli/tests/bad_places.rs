//! Places that cannot be used: one clear line, 78, and nothing held. As an unprivileged user when the tests are root's.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use common::spaces::elsewhere;
use common::{Place, finish};

/// The user `nobody`.
const NOBODY: u32 = 65534;

/// The binary, where and as an unprivileged user can run it.
fn unprivileged(place: &Place) -> Command {
    let copy = place.path("fencelock");
    if !copy.exists() {
        // By another process: a descriptor of ours, open for writing, could be in a child of a neighbouring test, and the
        // copy would be busy.
        let copied = Command::new("cp").arg(common::binary()).arg(&copy).status().expect("cp");
        assert!(copied.success());
        fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o777)).expect("permissions");
    }
    let mut command = Command::new(copy);
    command.current_dir(place.path("")).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

fn refused(command: &mut Command, said: &[&str]) {
    let (code, out, err) = finish(command.args(["run", "x", "--", "touch", "ran"]));
    assert_eq!((code, out.as_str()), (78, ""), "{err}");
    assert_eq!(err.lines().count(), 1, "{err}");
    for text in said {
        assert!(err.contains(text), "no {text:?} in {err}");
    }
}

// Planted: the current directory for a HOME that is not there.
#[test]
fn no_home() {
    let place = Place::on_disk();
    refused(&mut unprivileged(&place), &["HOME", "--url"]);
    refused(unprivileged(&place).env("HOME", "/nonexistent"), &["/nonexistent", "--url"]);
    assert!(!place.path("ran").exists());
}

/// Whatever its HOME is: cron, a login and `sudo` have different ones, and root's jobs exclude each other.
// Planted: the place of a user for root, too; a folder that everybody may read.
#[test]
fn root_has_the_place_of_the_system() {
    let place = Place::on_disk();
    let alone = "mount -t tmpfs none /var/lib";
    if finish(&mut elsewhere(&place, "-m", alone)).0 != 0 {
        return common::cannot_run("there are no mounts of its own to be had");
    }
    let inner = "HOME=/nonexistent \"$F\" run -n x -- true; echo $?";
    let script = format!(
        "{alone} && unset FENCELOCK_URL XDG_STATE_HOME && HOME=$D \"$F\" run -v x -- env -u FENCELOCK_URL -u FENCELOCK_ENGINE bash -c '{inner}'; \
         stat -c %a /var/lib/fencelock"
    );
    let (code, out, err) = finish(&mut elsewhere(&place, "-m", &script));
    assert_eq!((code, out.as_str()), (0, "75\n700\n"), "{err}");
    assert!(err.starts_with("fencelock: engine /var/lib/fencelock/locks.db\n"), "{err}");
    assert!(!place.path(".local").exists(), "nothing of it is in a home");
}

// Planted: 69 for what the system denies.
#[test]
fn a_place_that_cannot_be_written() {
    let place = Place::on_disk();
    fs::create_dir(place.path("closed")).expect("a directory");
    fs::set_permissions(place.path("closed"), fs::Permissions::from_mode(0o555)).expect("permissions");
    let file = place.path("closed/locks.db").display().to_string();
    refused(unprivileged(&place).args(["--url", &format!("sqlite:{file}")]), &[&file]);
    let deep = place.path("closed/deep/locks.db").display().to_string();
    refused(unprivileged(&place).args(["--url", &format!("sqlite:{deep}")]), &[&deep]);
    assert!(!place.path("ran").exists());
}

// Planted: a file of another kind overwritten.
#[test]
fn what_is_no_database() {
    let place = Place::on_disk();
    let text = "this is a letter to my aunt, and no database at all ".repeat(40);
    fs::write(place.path("letter"), &text).expect("a file");
    fs::set_permissions(place.path("letter"), fs::Permissions::from_mode(0o666)).expect("permissions");
    let file = place.path("letter").display().to_string();
    refused(unprivileged(&place).args(["--url", &format!("sqlite:{file}")]), &[&file]);
    assert_eq!(place.read("letter"), text);
    let dir = place.path("").display().to_string();
    refused(unprivileged(&place).args(["--url", &format!("sqlite:{dir}")]), &[dir.trim_end_matches('/')]);
    assert!(!place.path("ran").exists());
}

// Planted: without the look at the mount both have the lock.
#[test]
fn a_database_that_is_mounted_by_itself() {
    let place = Place::on_disk();
    let apart = |script: &str| finish(elsewhere(&place, "-m", script).env_remove("FENCELOCK_URL"));
    fs::create_dir_all(place.path("data")).expect("a directory");
    if apart("mount --bind . data").0 != 0 {
        return common::cannot_run("there are no mounts of its own to be had");
    }
    let holder = common::start(&mut place.run(&[], "touch $D/held; sleep 600"));
    common::until("a holder", || place.path("held").exists().then_some(()));
    let (code, _, err) = apart("mount --bind . data && \"$F\" --url sqlite:data/locks.db run -n x -- touch ran");
    assert_eq!(code, 75, "the folder is mounted: {err}");
    fs::write(place.path("data/locks.db"), "").expect("a file");
    for url in ["data/locks.db", "link"] {
        let mounted = format!(
            "mount --bind locks.db data/locks.db && ln -sfn data/locks.db link && \
             \"$F\" --url sqlite:{url} run -n x -- touch ran"
        );
        let (code, _, err) = apart(&mounted);
        assert_eq!((code, err.lines().count()), (78, 1), "{err}");
        assert!(err.contains("mount the folder"), "{err}");
    }
    assert!(!place.path("ran").exists());
    drop(holder);
}

// Planted: unknown keys passed over.
#[test]
fn a_url_that_is_wrong() {
    let place = Place::on_disk();
    for (query, said) in [("colour=red", "colour"), ("ttl=soon", "soon"), ("ttl=0s", "ttl")] {
        let url = format!("sqlite:{}?{query}", place.path("locks.db").display());
        refused(unprivileged(&place).args(["--url", &url]), &[said]);
    }
    refused(unprivileged(&place).env("FENCELOCK_URL", "carrier:x"), &["carrier"]);
    assert!(!place.path("ran").exists());
}
