//! inotify on the liveness files of those we wait behind: the kernel tells when the last process that has one open is gone.
use super::liveness;
use rustix::{
    fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags},
    io::Errno,
};
use std::{collections::HashMap, mem::MaybeUninit, os::fd::OwnedFd, path::Path};

#[derive(Debug)]
pub(crate) struct Watches {
    /// `None`: no inotify to be had (EMFILE …). Everybody looks once a second anyway.
    pub(crate) fd: Option<OwnedFd>,
    by_session: HashMap<i64, (i32, usize)>,
}
impl Watches {
    pub(crate) fn new() -> Self {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok();
        Self { fd, by_session: HashMap::new() }
    }
    /// Counted: several waits may watch one session.
    pub(crate) fn add(&mut self, folder: &Path, session: i64) {
        if let Some((_, count)) = self.by_session.get_mut(&session) {
            *count += 1;
            return;
        }
        let Some(fd) = &self.fd else { return };
        let flags = WatchFlags::CLOSE_WRITE | WatchFlags::DELETE_SELF;
        if let Ok(wd) = inotify::add_watch(fd, liveness::liveness(folder, session), flags) {
            self.by_session.insert(session, (wd, 1));
        }
    }
    pub(crate) fn remove(&mut self, session: i64) {
        let Some((wd, count)) = self.by_session.get_mut(&session) else { return };
        *count -= 1;
        if *count == 0 {
            let wd = *wd;
            self.by_session.remove(&session);
            if let Some(fd) = &self.fd {
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
