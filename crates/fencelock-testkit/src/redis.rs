//! A private redis-server.
use crate::{
    clock::WallClock,
    process::{Folder, Port, blocking, log_of, signal, spawn, state_of},
};
use rustix::process::Signal;
use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    process::Child,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

const READY: Duration = Duration::from_secs(20);

/// How it is started.
#[derive(Clone, Debug, Default)]
pub struct RedisOptions {
    /// Every write is on the disk before it is answered; otherwise a restart forgets everything.
    pub append_only: bool,
    /// More arguments, as on its command line.
    pub arguments: Vec<String>,
    /// Its wall clock, if that is not the machine's.
    pub clock: Option<Arc<WallClock>>,
}

/// One server; it is killed, and its folder removed, when this is dropped.
#[derive(Debug)]
pub struct Redis {
    port: Port,
    options: RedisOptions,
    child: Mutex<Option<Child>>,
    folder: Folder,
}
impl Redis {
    /// Without persistence.
    #[must_use]
    pub fn start() -> Self {
        Self::with(RedisOptions::default())
    }
    /// As the options say.
    ///
    /// # Panics
    /// It does not start.
    #[must_use]
    pub fn with(options: RedisOptions) -> Self {
        let folder = Folder::new("redis");
        let server = Self { port: Port::free(), options, child: Mutex::default(), folder };
        assert!(server.restart(), "redis-server did not start:\n{}", log_of(server.folder.path()));
        server
    }
    /// On 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number()
    }
    /// Where it is, as the engine is told.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
    /// Its files, and its log.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }
    fn child(&self) -> std::sync::MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Starts it, or starts it again where it was. False: it ended at once.
    ///
    /// # Panics
    /// It neither ends nor answers.
    pub fn restart(&self) -> bool {
        blocking(|| {
            self.begin();
            let deadline = Instant::now() + READY;
            loop {
                if !self.runs() {
                    return false;
                }
                let log = log_of(self.folder.path());
                if log.contains("Ready to accept connections") {
                    return true;
                }
                let doing = || state_of(self.child().as_ref());
                assert!(Instant::now() < deadline, "redis-server is not ready within {READY:?}: {}\n{log}", doing());
                thread::sleep(Duration::from_millis(2));
            }
        })
    }
    fn runs(&self) -> bool {
        self.child().as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }
    /// As [`restart`](Self::restart), without waiting until it is ready: it may load its data for a while.
    ///
    /// # Panics
    /// There is no redis-server.
    pub fn begin(&self) {
        let mut child = self.child();
        kill(&mut child);
        let on = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
        let mut words: Vec<String> =
            ["redis-server", "--port", &self.port.to_string(), "--bind", "127.0.0.1", "--save", ""]
                .map(str::to_owned)
                .to_vec();
        words.extend(["--appendonly".to_owned(), on(self.options.append_only), "--appendfsync".to_owned()]);
        words.push("always".to_owned());
        words.extend(self.options.arguments.iter().cloned());
        let clock = self.options.clock.iter().flat_map(|clock| clock.environment());
        let started = spawn(&words, clock, self.folder.path())
            .unwrap_or_else(|e| panic!("redis-server: {e}; `cargo xtask test` installs it"));
        *child = Some(started);
    }
    /// `kill -9`.
    pub fn kill(&self) {
        blocking(|| {
            kill(&mut self.child());
        })
    }
    /// It is stopped, or goes on.
    pub fn pause(&self, paused: bool) {
        if let Some(child) = &*self.child() {
            signal(child, if paused { Signal::STOP } else { Signal::CONT });
        }
    }
    /// One command of an operator; the first line of the answer.
    ///
    /// # Errors
    /// It does not answer within 5 s.
    pub fn ask(&self, words: &[&str]) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port()))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut text = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| text.push_str(&format!("${}\r\n{word}\r\n", word.len())));
        stream.write_all(text.as_bytes())?;
        let mut lines = BufReader::new(stream).lines();
        let first = lines.next().unwrap_or_else(|| Ok(String::new()))?;
        match first.strip_prefix('$') {
            Some("-1") => Ok(String::new()),
            Some(_) => lines.next().unwrap_or_else(|| Ok(String::new())),
            None => Ok(first),
        }
    }
}
fn kill(child: &mut Option<Child>) {
    if let Some(mut child) = child.take() {
        signal(&child, Signal::KILL);
        let _ = child.wait();
    }
}
impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}
