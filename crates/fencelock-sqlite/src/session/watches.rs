//! inotify on the liveness files of those we wait behind: the kernel tells when the last process that has one open is gone.
use super::liveness;
use rustix::{
    fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags},
    io::Errno,
};
use std::{collections::HashMap, mem::MaybeUninit, os::fd::OwnedFd, path::Path};

/// Instead of a watch's number.
const NONE: i32 = -1;

#[derive(Debug)]
pub(crate) struct Watches {
    /// Made with the first watch: a user has 128 of them. `None` also when there is none to be had: everybody looks once a
    /// second anyway.
    pub(crate) fd: Option<OwnedFd>,
    by_session: HashMap<i64, (i32, usize)>,
}
impl Watches {
    pub(crate) fn new() -> Self {
        Self { fd: None, by_session: HashMap::new() }
    }
    /// Counted: several waits may watch one session.
    pub(crate) fn add(&mut self, folder: &Path, session: i64) {
        if let Some((_, count)) = self.by_session.get_mut(&session) {
            *count += 1;
            return;
        }
        if self.fd.is_none() {
            self.fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok();
        }
        let flags = WatchFlags::CLOSE_WRITE | WatchFlags::DELETE_SELF;
        let watch = |fd| inotify::add_watch(fd, liveness::liveness(folder, session), flags).ok();
        // Counted also where there is none, since it will be removed as often.
        let wd = self.fd.as_ref().and_then(watch).unwrap_or(NONE);
        self.by_session.insert(session, (wd, 1));
    }
    pub(crate) fn remove(&mut self, session: i64) {
        let Some((wd, count)) = self.by_session.get_mut(&session) else { return };
        *count -= 1;
        if *count == 0 {
            let wd = *wd;
            self.by_session.remove(&session);
            if let Some(fd) = self.fd.as_ref().filter(|_| wd != NONE) {
                let _ = inotify::remove_watch(fd, wd);
            }
        }
    }
    /// The sessions whose file was closed or removed. All of them when events were lost.
    pub(crate) fn events(&mut self) -> Vec<i64> {
        let Some(fd) = &self.fd else { return Vec::new() };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(fd, &mut buffer);
        let mut closed = Vec::new();
        loop {
            match reader.next() {
                Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => {
                    closed.extend(self.by_session.keys());
                }
                Ok(event) => closed.extend(self.by_session.iter().filter(|(_, w)| w.0 == event.wd()).map(|(s, _)| s)),
                Err(Errno::INTR) => {}
                Err(_) => return closed,
            }
        }
    }
}
