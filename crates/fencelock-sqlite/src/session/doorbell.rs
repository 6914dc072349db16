//! A doorbell: a FIFO beside the liveness file. A ring is a hint, and says of which lock (SAFETY E4).
use super::liveness;
use rustix::{
    fs::{Mode, OFlags, open},
    io::{Errno, read, write},
};
use std::{os::fd::OwnedFd, path::Path};

/// Instead of a lock's number: look whether your holds are still there.
pub(crate) const CHECK_HOLDS: i64 = -1;

/// A pipe of 64 KiB holds twice as many.
pub(crate) const MANY: usize = 4096;

/// True: its session lives, as far as a FIFO can tell (somebody reads), and will look.
pub(crate) fn ring(folder: &Path, session: i64, lock: i64) -> bool {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    // ENXIO: nobody reads. ENOENT: swept away.
    let Ok(bell) = open(liveness::doorbell(folder, session), flags, Mode::empty()) else { return false };
    match write(&bell, &lock.to_ne_bytes()) {
        // Full: rung so often that it will look at everything ([`MANY`]).
        Ok(_) | Err(Errno::AGAIN) => true,
        Err(_) => false,
    }
}
/// The locks that were rung for.
pub(crate) fn heard(bell: &OwnedFd) -> Vec<i64> {
    let mut rung = Vec::new();
    let mut buffer = [0u8; 512];
    while let Ok(n) = read(bell, &mut buffer)
        && n > 0
    {
        // Writes of eight bytes are atomic, so whole numbers lie in the pipe.
        rung.extend(buffer[..n].chunks_exact(8).filter_map(|c| c.try_into().ok()).map(i64::from_ne_bytes));
    }
    rung
}
