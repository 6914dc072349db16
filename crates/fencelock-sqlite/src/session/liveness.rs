//! Who is alive: each session holds a lock (flock, not POSIX: those go with any close) on a small file of its own. The kernel
//! drops it when the last process that has the descriptor is gone, whatever the PID namespace (SAFETY E4).
use rustix::{
    fs::{FlockOperation, Gid, Mode, OFlags, chown, fchmod, flock, fstat, mkfifoat, open, stat, unlink},
    io::{Errno, Result},
};
use std::{
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

/// Mode and group of new files: those of the database, so that a group can share it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rights {
    mode: Mode,
    group: Gid,
}
impl Rights {
    pub(crate) fn of(database: &Path) -> Result<Self> {
        let meta = stat(database)?;
        Ok(Self { mode: Mode::from_raw_mode(meta.st_mode & 0o666), group: Gid::from_raw(meta.st_gid) })
    }
    /// Who may read a folder may enter it.
    pub(crate) fn folder(self) -> Mode {
        let mode = self.mode.bits();
        Mode::from_bits_truncate(mode | ((mode & 0o444) >> 2))
    }
    /// The group is a wish: who is not in it cannot give to it.
    pub(crate) fn give(self, path: &Path) {
        let _ = chown(path, None, Some(self.group));
    }
}

pub(crate) fn liveness(folder: &Path, session: i64) -> PathBuf {
    folder.join(format!("{session:016x}.live"))
}
pub(crate) fn doorbell(folder: &Path, session: i64) -> PathBuf {
    folder.join(format!("{session:016x}.bell"))
}

/// Makes and locks a session's files, before anybody can know of it. `None`: somebody swept the file away between its making
/// and its locking; take another number.
pub(crate) fn make(folder: &Path, session: i64, rights: Rights) -> Result<Option<(OwnedFd, OwnedFd)>> {
    // What could not be finished is not left behind: nobody knows of it, and nobody else has this number.
    make_files(folder, session, rights).inspect_err(|_| remove(folder, session))
}
fn make_files(folder: &Path, session: i64, rights: Rights) -> Result<Option<(OwnedFd, OwnedFd)>> {
    let (live, bell) = (liveness(folder, session), doorbell(folder, session));
    // Open for writing: closing it then raises IN_CLOSE_WRITE, which no tester's look does.
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = open(&live, flags, rights.mode)?;
    fchmod(&file, rights.mode)?;
    rights.give(&live);
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(None);
    }
    let ours = fstat(&file)?;
    if !stat(&live).is_ok_and(|there| (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)) {
        return Ok(None);
    }
    mkfifoat(rustix::fs::CWD, &bell, rights.mode)?;
    rustix::fs::chmod(&bell, rights.mode)?;
    rights.give(&bell);
    // For reading and writing: so it has a writer at all times, and never reports an end.
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(Some((file, open(&bell, flags, Mode::empty())?)))
}

/// What a look at a liveness file says.
#[derive(Debug)]
pub(crate) enum Pulse {
    /// Its lock is held; or nobody can tell (no rights, no descriptors): then the lease alone judges.
    Alive,
    /// There is no such file. As above; but on a snapshot its session may have been buried meanwhile.
    Gone,
    /// Nobody holds its lock. For as long as this descriptor lives nobody can take it either.
    Dead(OwnedFd),
}
pub(crate) fn test(folder: &Path, session: i64) -> Pulse {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = match open(liveness(folder, session), flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Pulse::Gone,
        Err(_) => return Pulse::Alive,
    };
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Pulse::Dead(file),
        Err(_) => Pulse::Alive,
    }
}
/// Only while holding its lock, and after its rows are gone.
pub(crate) fn remove(folder: &Path, session: i64) {
    let _ = unlink(doorbell(folder, session));
    let _ = unlink(liveness(folder, session));
}
/// The sessions that have a file in the folder.
pub(crate) fn in_folder(folder: &Path) -> Vec<i64> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let number = |name: &str| {
        let (stem, _) = name.split_once('.')?;
        i64::from_str_radix(stem, 16).ok()
    };
    let mut all: Vec<i64> = entries.flatten().filter_map(|e| number(e.file_name().to_str()?)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Makes the folder beside the database.
pub(crate) fn make_folder(folder: &Path, rights: Rights) -> Result<()> {
    match rustix::fs::mkdir(folder, rights.folder()) {
        Ok(()) => {
            rustix::fs::chmod(folder, rights.folder())?;
            rights.give(folder);
            Ok(())
        }
        Err(Errno::EXIST) => Ok(()),
        Err(e) => Err(e),
    }
}
