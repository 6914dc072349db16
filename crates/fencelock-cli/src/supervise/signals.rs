//! What wrapper and minder do about signals.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::process::getpid;
use signal_hook::consts::signal::{
    SIGALRM, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2, SIGWINCH,
};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::Cause;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// A signal that the wrapper got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caught {
    pub(crate) signal: i32,
    /// The kernel sent it, so it came from the terminal, and every process of the group has got it.
    pub(crate) from_terminal: bool,
}

impl Caught {
    /// What people and service managers send when they want no more of it.
    pub(crate) fn asks_to_end(self) -> bool {
        matches!(self.signal, SIGTERM | SIGINT | SIGHUP | SIGQUIT)
    }
}

/// The signals that the wrapper passes on. TSTP is not among them: without a handler the wrapper stops as the shell
/// expects, and so does the job, which has got the same signal from the terminal.
const FORWARDED: [i32; 8] = [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT];

/// Begins to collect the wrapper's signals. One that is ignored at the start stays ignored, for the job too (nohup).
pub(crate) fn catch() -> io::Result<UnboundedReceiver<Caught>> {
    let ignored = Ignored::at_start();
    let wanted = FORWARDED.into_iter().filter(|&s| !ignored.has(s));
    let mut signals = SignalsInfo::<WithOrigin>::new(wanted)?;
    do_nothing_on(SIGCHLD)?;
    let (tx, rx) = unbounded_channel();
    std::thread::Builder::new().name("signals".into()).stack_size(128 << 10).spawn(move || {
        for origin in &mut signals {
            let from_terminal = matches!(origin.cause, Cause::Kernel);
            let caught = Caught { signal: origin.signal, from_terminal };
            // Nobody listens any more: all that is left is a message that nobody reads.
            if tx.send(caught).is_err() && caught.asks_to_end() {
                die_of(caught.signal);
            }
        }
    })?;
    Ok(rx)
}

/// Makes the minder deaf to what would end or stop it: it ends with the job. The handlers do nothing instead of the
/// signals being ignored, since an ignored signal would be inherited by the job. Returns what is readable after SIGCHLD.
pub(super) fn be_deaf() -> io::Result<UnixStream> {
    let ignored = Ignored::at_start();
    let deaf = FORWARDED.into_iter().chain([SIGTSTP, SIGTTIN, SIGTTOU, SIGALRM]);
    for signal in deaf.filter(|&s| !ignored.has(s)) {
        do_nothing_on(signal)?;
    }
    // Whether or not it is ignored: the kernel reaps the children of one who ignores SIGCHLD, and a pid of ours
    // could then be somebody else's.
    let (read, write) = UnixStream::pair()?;
    read.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(SIGCHLD, write)?;
    Ok(read)
}

fn do_nothing_on(signal: i32) -> io::Result<()> {
    signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false))).map(drop)
}

/// Ends this process by the signal, so that a shell's loop ends with it; where that is impossible, with 128+n.
pub(crate) fn die_of(signal: i32) -> ! {
    // The first process of a container, say, is not ended by the default action of any.
    let undying = getpid().as_raw_pid() == 1;
    if !undying && !Ignored::at_start().has(signal) {
        // Returns only on failure.
        let _ = signal_hook::low_level::emulate_default_handler(signal);
    }
    std::process::exit(i32::from(crate::exit::by_signal(signal)))
}

/// The signals that this process ignores, as the system tells.
struct Ignored(u64);

impl Ignored {
    fn at_start() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        Self(mask.and_then(|m| u64::from_str_radix(m.trim(), 16).ok()).unwrap_or(0))
    }

    fn has(&self, signal: i32) -> bool {
        u32::try_from(signal - 1).is_ok_and(|bit| self.0.checked_shr(bit).is_some_and(|m| m & 1 == 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Planted: bit n for signal n instead of n-1.
    #[test]
    fn the_mask_counts_from_one() {
        let mask = Ignored(0b1001);
        assert!(mask.has(SIGHUP));
        assert!(mask.has(signal_hook::consts::SIGILL));
        assert!(!mask.has(SIGINT));
        assert!(!mask.has(0));
        assert!(!mask.has(99));
    }
}
