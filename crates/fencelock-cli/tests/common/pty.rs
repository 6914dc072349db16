//! A shell in a pseudo-terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::process::Pid;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::{Place, binary, until};

/// An interactive bash that leads the session of a terminal of its own.
pub(crate) struct Shell {
    /// `None` once it has hung up.
    terminal: Option<File>,
    screen: Vec<u8>,
    /// Up to where [`Shell::expect`] has read.
    read: usize,
    shell: Child,
}

impl Shell {
    /// `$D` is the place, `$F` the binary, the prompt `>`.
    pub(crate) fn start(place: &Place) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
        grantpt(&master).expect("a terminal");
        unlockpt(&master).expect("a terminal");
        let name = ptsname(&master, Vec::new()).expect("its name");
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = rustix::fs::open(name.as_c_str(), flags, Mode::empty()).expect("its other side");
        let end = || Stdio::from(slave.try_clone().expect("a descriptor"));
        // A shell that was started with INT ignored could not reset it for its jobs.
        let shell = Command::new("env")
            .args(["--default-signal=INT,QUIT,HUP", "setsid", "-c", "bash", "--norc", "--noprofile", "-i"])
            .env("PS1", "> ")
            .env("TERM", "dumb")
            .env("FENCELOCK_URL", place.url())
            .env("D", place.path(""))
            .env("F", binary())
            .current_dir(place.path(""))
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .expect("a shell");
        rustix::fs::fcntl_setfl(&master, OFlags::RDWR | OFlags::NONBLOCK).expect("a terminal that does not block");
        let mut shell = Self { terminal: Some(File::from(master)), screen: Vec::new(), read: 0, shell };
        shell.expect("> ");
        shell
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.shell)
    }

    /// Types.
    pub(crate) fn keys(&mut self, keys: &str) {
        self.terminal.as_mut().expect("no hang-up").write_all(keys.as_bytes()).expect("the terminal takes keys");
    }

    /// Types a line. What the test expects must not stand in it: the terminal echoes.
    pub(crate) fn line(&mut self, line: &str) {
        self.keys(&format!("{line}\n"));
    }

    /// Waits for a text on the screen after those expected before.
    pub(crate) fn expect(&mut self, text: &str) {
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until(text, || {
                self.look();
                let at = self.screen[self.read..].windows(text.len()).position(|w| w == text.as_bytes())?;
                Some(self.read + at + text.len())
            })
        }));
        match found {
            Ok(end) => self.read = end,
            Err(_) => panic!("no {text:?} on the screen:\n{}", self.screen()),
        }
    }

    /// So many columns from now on.
    pub(crate) fn resize(&self, columns: u16) {
        let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(self.terminal.as_ref().expect("no hang-up"), size).expect("a size");
    }

    /// All that was printed.
    pub(crate) fn screen(&self) -> String {
        String::from_utf8_lossy(&self.screen).into_owned()
    }

    fn look(&mut self) {
        let mut bytes = [0; 4096];
        // EAGAIN: nothing new; EIO: the last process has closed the other side.
        while let Some(Ok(n @ 1..)) = self.terminal.as_mut().map(|t| t.read(&mut bytes)) {
            self.screen.extend_from_slice(&bytes[..n]);
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // A hang-up, of which the shell tells its jobs.
        drop(self.terminal.take());
        for _ in 0..500 {
            if matches!(self.shell.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}
