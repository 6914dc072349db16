//! Processes that do not outlive the test, and what they need.
use rustix::{
    net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt::set_socket_reuseaddr},
    process::{Pid, Signal, kill_process},
};
use std::{
    fmt, io,
    net::{Ipv4Addr, SocketAddrV4},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering::Relaxed},
        mpsc::{Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task::block_in_place,
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

/// A port that is nobody else's for as long as this lives, whether or not somebody listens on it: below those that the kernel gives to
/// clients.
///
/// *Invariant:* whoever looks for a port says to the kernel that he shares it with nobody, and is refused where one of these is kept. A
/// server says that it shares it, and may listen beside this, which does not.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _kept: OwnedFd,
}
impl Port {
    /// Nobody uses it.
    ///
    /// # Panics
    /// There is none.
    #[must_use]
    pub fn free() -> Self {
        (0..1_000)
            .find_map(|_| Self::keep(fastrand::u16(20_000..32_000)).ok())
            .unwrap_or_else(|| panic!("no port between 20000 and 32000 is free"))
    }
    fn keep(number: u16) -> rustix::io::Result<Self> {
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, number))?;
        set_socket_reuseaddr(&socket, true)?;
        Ok(Self { number, _kept: socket })
    }
    /// Which it is.
    pub fn number(&self) -> u16 {
        self.number
    }
}
impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(f)
    }
}

/// Does something that takes a while. *Invariant:* a thread of a runtime that does so gives its other tasks away first: what it has woken
/// last nobody else would take, and a client's connection may be that.
pub(crate) fn blocking<T>(something: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => block_in_place(something),
        _ => something(),
    }
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
/// What it has said; where that cannot be read, why.
pub(crate) fn log_of(folder: &Path) -> String {
    let log = std::fs::read(folder.join("log"));
    log.map_or_else(|e| format!("{}: its log: {e}", folder.display()), |it| String::from_utf8_lossy(&it).into_owned())
}
/// As what it runs, and whether it runs, sleeps or is stopped.
pub(crate) fn state_of(child: Option<&Child>) -> String {
    let Some(id) = child.map(Child::id) else { return "it does not run".to_owned() };
    let file = |name: &str| std::fs::read_to_string(format!("/proc/{id}/{name}")).unwrap_or_default();
    let (words, status) = (file("cmdline").replace('\0', " "), file("status"));
    let state = status.lines().find(|line| line.starts_with("State:")).unwrap_or("gone");
    format!("{state}: {words}")
}
/// Sends it. Whoever is stopped by it has stopped, every thread of his, when this returns: until then he may still answer.
pub(crate) fn signal(child: &Child, signal: Signal) {
    let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { return };
    let sent = kill_process(pid, signal).is_ok();
    let patience = Instant::now() + Duration::from_secs(10);
    while sent && signal == Signal::STOP && !has_stopped(child) && Instant::now() < patience {
        thread::sleep(Duration::from_millis(1));
    }
}
fn has_stopped(child: &Child) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{}/task", child.id())) else { return true };
    threads.flatten().all(|thread| {
        // One that has ended meanwhile does nothing, either.
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['T', 'Z', 'X']))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_port_stays_ours_while_nobody_listens_and_a_server_may() {
        let port = Port::free();
        for _ in 0..2 {
            let server = TcpListener::bind(("127.0.0.1", port.number())).unwrap();
            assert!(Port::keep(port.number()).is_err(), "it is listened on");
            drop(server);
            assert!(Port::keep(port.number()).is_err(), "it is kept");
        }
        let number = port.number();
        drop(port);
        Port::keep(number).unwrap();
    }
}
