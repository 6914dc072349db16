//! A server's first files: made once for each version, and kept with what is built. To copy them is ten times as fast.
use crate::process::{Folder, blocking};
use std::{
    os::unix::fs::chown,
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
};

/// Servers that refuse to run as root run as the user of their package, or as nobody.
fn owner(user: &str) -> (u32, u32) {
    let me = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    if me.0 != 0 {
        return me;
    }
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let known = users.lines().find_map(|line| {
        let mut words = line.strip_prefix(user)?.strip_prefix(':')?.split(':').skip(1);
        Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
    });
    known.unwrap_or((65_534, 65_534))
}
/// Arguments of `setpriv`, by which what follows runs as that user; none where this process is not root.
pub(crate) fn as_user(user: &str) -> Vec<String> {
    let (user, group) = owner(user);
    let place = ["--reuid", &user.to_string(), "--regid", &group.to_string(), "--clear-groups"].map(str::to_owned);
    if rustix::process::getuid().is_root() { place.to_vec() } else { Vec::new() }
}
/// Somewhere this server's user may write.
pub(crate) fn give(path: &Path, user: &str) {
    let (user, group) = owner(user);
    if rustix::process::getuid().is_root() {
        chown(path, Some(user), Some(group)).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
}
/// What the command of `make` leaves in the folder that it is given.
pub(crate) fn made(name: &str, user: &str, make: impl FnOnce(&Path) -> Vec<String>) -> PathBuf {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // It need not be where cargo builds, and so need not be there.
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    std::fs::create_dir_all(&target).unwrap_or_else(|e| panic!("{}: {e}", target.display()));
    let made = target.join(format!("{name}-{}", owner(user).0));
    if made.is_dir() {
        return made;
    }
    let folder = Folder::new("template");
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap_or_else(|e| panic!("{}: {e}", data.display()));
    give(&data, user);
    let words = make(&data);
    run(Command::new("setpriv").args(as_user(user)).args(words).current_dir(folder.path()));
    // Whole, or not there: another process may make one at the same time.
    let new = target.join(format!("{name}-{}-{:08x}", std::process::id(), fastrand::u32(..)));
    copy(&data, &new);
    if std::fs::rename(&new, &made).is_err() {
        let _ = std::fs::remove_dir_all(&new);
    }
    made
}
/// Owners and all.
pub(crate) fn copy(from: &Path, to: &Path) {
    run(Command::new("cp").args(["-a", "--"]).arg(from).arg(to));
}
/// It has to succeed.
pub(crate) fn run(command: &mut Command) {
    let done =
        blocking(|| command.output()).unwrap_or_else(|e| panic!("{command:?}: {e}; `cargo xtask test` installs it"));
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}
