//! Processes that do not outlive the test, and what they need.
use rustix::process::{Pid, Signal, kill_process};
use std::{
    io,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering::Relaxed},
        mpsc::{Sender, channel},
    },
    thread,
};

/// A folder of its own, gone when this is dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);
impl Folder {
    /// In memory where that is possible.
    ///
    /// # Panics
    /// It cannot be made.
    #[must_use]
    pub fn new(what: &str) -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let base = if Path::new("/dev/shm").is_dir() { PathBuf::from("/dev/shm") } else { std::env::temp_dir() };
        let number = LAST.fetch_add(1, Relaxed);
        let path = base.join(format!("fencelock-{what}-{}-{number}-{:08x}", std::process::id(), fastrand::u32(..)));
        std::fs::create_dir_all(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Self(path)
    }
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}
impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A port of loopback that nobody uses now, below those that the kernel gives to clients.
///
/// # Panics
/// There is none.
#[must_use]
pub fn free_port() -> u16 {
    (0..1_000)
        .map(|_| fastrand::u16(20_000..32_000))
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .unwrap_or_else(|| panic!("no port of loopback between 20000 and 32000 is free"))
}

type Started = io::Result<Child>;
/// Starts a program that dies with this process: its parent, to the kernel, is a thread that lives as long.
pub(crate) fn spawn(
    words: &[String],
    environment: impl IntoIterator<Item = (&'static str, PathBuf)>,
    folder: &Path,
) -> Started {
    static STARTER: OnceLock<Sender<(Command, Sender<Started>)>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (orders, inbox) = channel::<(Command, Sender<Started>)>();
        thread::spawn(move || inbox.iter().for_each(|(mut command, reply)| drop(reply.send(command.spawn()))));
        orders
    });
    let log = std::fs::File::create(folder.join("log"))?;
    let mut command = Command::new("setpriv");
    command.arg("--pdeathsig").arg("KILL").args(words).envs(environment).current_dir(folder);
    command.stdin(std::process::Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let (reply, started) = channel();
    let gone = |_| io::Error::other("the thread that starts programs is gone");
    starter.send((command, reply)).map_err(|_| gone(()))?;
    started.recv().map_err(|_| gone(()))?
}
pub(crate) fn signal(child: &Child, signal: Signal) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        let _ = kill_process(pid, signal);
    }
}
