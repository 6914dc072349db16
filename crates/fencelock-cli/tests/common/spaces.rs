//! Namespaces of a test's own: what is mounted or limited there is gone with the last process in it.

use std::process::{Command, Stdio};

use super::{Place, binary};

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Mounts, and processes as a container has them, which end with the first one.
pub(crate) const CONTAINER: &str = "-mpf --mount-proc --kill-child";

/// A shell in namespaces of its own: `$F` is the binary, `$D` the place.
pub(crate) fn elsewhere(place: &Place, kinds: &str, script: &str) -> Command {
    let mut command = Command::new("unshare");
    let user = if is_root() { "" } else { "-Ur" };
    command.args(kinds.split(' ').chain([user]).filter(|word| !word.is_empty())).args(["bash", "-c", script]);
    command.env("F", binary()).env("D", place.path("")).env("FENCELOCK_URL", place.url());
    command.current_dir(place.path("")).stdin(Stdio::null());
    command
}
