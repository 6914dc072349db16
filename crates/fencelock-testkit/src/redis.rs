//! A private redis-server.
use crate::{clock::WallClock, process::Folder, redis_process::Process};
use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    sync::Arc,
    time::Duration,
};

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
    process: Process,
    options: RedisOptions,
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
        let server = Self::new(options);
        assert!(server.restart(), "redis-server did not start:\n{}", server.process.log());
        server
    }
    /// So many that know nothing of each other, each as the options say.
    ///
    /// # Panics
    /// One of them does not start.
    #[must_use]
    pub fn several(many: usize, options: &RedisOptions) -> Vec<Self> {
        let all: Vec<_> = (0..many).map(|_| Self::new(options.clone())).collect();
        all.iter().for_each(Self::begin);
        for server in &all {
            assert!(server.wait(), "redis-server did not start:\n{}", server.process.log());
        }
        all
    }
    fn new(options: RedisOptions) -> Self {
        let folder = Folder::new("redis");
        Self { process: Process::new(folder.path().to_owned(), None), options, folder }
    }
    /// On 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.process.port()
    }
    /// Where it is, as the engine is told.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }
    /// Its files, and its log.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }
    /// Starts it, or starts it again where it was. False: it ended at once.
    ///
    /// # Panics
    /// It neither ends nor answers.
    pub fn restart(&self) -> bool {
        self.begin();
        self.wait()
    }
    fn wait(&self) -> bool {
        self.process.wait("redis-server", "Ready to accept connections")
    }
    /// As [`restart`](Self::restart), without waiting until it is ready: it may load its data for a while.
    ///
    /// # Panics
    /// There is no redis-server.
    pub fn begin(&self) {
        let on = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
        let mut words: Vec<String> =
            ["redis-server", "--port", &self.port().to_string(), "--bind", "127.0.0.1", "--save", ""]
                .map(str::to_owned)
                .to_vec();
        words.extend(["--appendonly".to_owned(), on(self.options.append_only), "--appendfsync".to_owned()]);
        words.push("always".to_owned());
        words.extend(self.options.arguments.iter().cloned());
        self.process.begin(&words, self.options.clock.as_deref());
    }
    /// `kill -9`.
    pub fn kill(&self) {
        self.process.kill();
    }
    /// It is stopped, or goes on.
    pub fn pause(&self, paused: bool) {
        self.process.pause(paused);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// (Red: without `append_only`.)
    #[test]
    fn of_five_that_know_nothing_of_each_other_one_that_is_killed_keeps_what_it_has_said() {
        let all = Redis::several(5, &RedisOptions { append_only: true, ..RedisOptions::default() });
        for (n, server) in all.iter().enumerate() {
            assert_eq!(server.ask(&["SET", "n", &n.to_string()]).unwrap(), "+OK");
        }
        all[3].kill();
        assert!(all[3].ask(&["GET", "n"]).is_err());
        assert!(all[3].restart());
        all[2].pause(true);
        for n in [0, 1, 3, 4] {
            assert_eq!(all[n].ask(&["GET", "n"]).unwrap(), n.to_string());
        }
        all[2].pause(false);
        assert_eq!(all[2].ask(&["GET", "n"]).unwrap(), "2");
        let folders: Vec<_> = all.iter().map(|server| server.folder().path().to_owned()).collect();
        drop(all);
        assert!(folders.iter().all(|folder| !folder.exists()));
    }
}
