//! Whose process group the job joins.

use rustix::fs::{Mode, OFlags, open};
use rustix::process::getpgrp;

/// The group for the job. With a controlling terminal that is the wrapper's own, which the shell has made the foreground
/// one, so that pipelines, Ctrl-C, Ctrl-Z and `fg` work as without us; `None`, a group of its own, without a terminal.
pub(super) fn group_for_job() -> Option<i32> {
    // Only a process that has a controlling terminal can open this name.
    let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    open("/dev/tty", flags, Mode::empty()).is_ok().then(|| getpgrp().as_raw_pid())
}
