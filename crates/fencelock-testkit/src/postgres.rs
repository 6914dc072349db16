//! A private PostgreSQL.
use crate::{
    clock::WallClock,
    pgbouncer::PgBouncer,
    pki::Pki,
    process::{Folder, Port, blocking, log_of, signal, spawn, state_of},
    template,
};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs::Permissions,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

const READY: Duration = Duration::from_secs(30);
/// As whom it runs, where this is root.
const USER: &str = "postgres";

/// One server, with a superuser `postgres` who needs no password; it is killed, and its folder removed, when this is dropped.
#[derive(Debug)]
pub struct Postgres {
    port: Port,
    arguments: Vec<String>,
    child: Mutex<Option<Child>>,
    folder: Folder,
    /// By which clock it goes, where that is not this machine's.
    clock: Vec<(&'static str, PathBuf)>,
}
impl Postgres {
    /// As it comes, but for what makes tests slow.
    #[must_use]
    pub fn start() -> Self {
        Self::with(&[])
    }
    /// With more settings: `NAME=VALUE`.
    ///
    /// # Panics
    /// It does not start.
    #[must_use]
    pub fn with(settings: &[&str]) -> Self {
        Self::new(Folder::new("postgres"), settings.iter().map(|setting| (*setting).to_owned()))
    }
    /// That takes encrypted connections, too, with the certificate `ours.server` of these.
    ///
    /// # Panics
    /// As there.
    #[must_use]
    pub fn with_tls(pki: &Pki) -> Self {
        let folder = Folder::new("postgres");
        let file = |(setting, name): (&str, &str)| {
            let path = folder.path().join(name);
            std::fs::copy(pki.file(name), &path).unwrap_or_else(|e| panic!("{name}: {e}"));
            // Nobody else may read a key.
            std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap_or_else(|e| panic!("{name}: {e}"));
            template::give(&path, USER);
            format!("{setting}={}", path.display())
        };
        let files = [("ssl_cert_file", "ours.server.crt"), ("ssl_key_file", "ours.server.key")].map(file);
        Self::new(folder, files.into_iter().chain(["ssl=on".to_owned()]))
    }
    /// That goes by this clock.
    ///
    /// # Panics
    /// As there.
    #[must_use]
    pub fn by(clock: &WallClock) -> Self {
        let folder = Folder::new("postgres");
        template::copy(&template(), &folder.path().join("data"));
        Self::begin(folder, Vec::new(), clock.environment().into())
    }
    fn new(folder: Folder, settings: impl Iterator<Item = String>) -> Self {
        // Made once, and copied: that is ten times as fast.
        template::copy(&template(), &folder.path().join("data"));
        Self::begin(folder, settings.flat_map(|setting| ["-c".to_owned(), setting]).collect(), Vec::new())
    }
    fn begin(folder: Folder, arguments: Vec<String>, clock: Vec<(&'static str, PathBuf)>) -> Self {
        blocking(|| {
            let server = Self { port: Port::free(), arguments, child: Mutex::default(), folder, clock };
            assert!(server.restart(), "postgres did not start:\n{}", log_of(server.folder.path()));
            server
        })
    }
    /// A standby that follows this one, as it is now.
    ///
    /// # Panics
    /// It does not start.
    #[must_use]
    pub fn standby(&self) -> Self {
        blocking(|| {
            let folder = Folder::new("standby");
            template::give(folder.path(), USER);
            let data = folder.path().join("data");
            let mut copy = Command::new("setpriv");
            copy.args(template::as_user(USER)).arg(program("pg_basebackup"));
            copy.args([
                "-h",
                "127.0.0.1",
                "-p",
                &self.port.to_string(),
                "-U",
                "postgres",
                "-X",
                "stream",
                "-R",
                "-c",
                "fast",
            ]);
            template::run(copy.arg("-D").arg(&data).current_dir(folder.path()));
            Self::begin(folder, self.arguments.clone(), self.clock.clone())
        })
    }
    /// A standby that hears nothing any more of what it follows: what is written there from now on it will never have.
    ///
    /// # Panics
    /// It follows on.
    pub fn follow_nobody(&self) {
        blocking(|| {
            self.ask("ALTER SYSTEM SET primary_conninfo = ''");
            self.ask("SELECT pg_reload_conf()");
            let deadline = Instant::now() + READY;
            while self.ask("SELECT count(*) FROM pg_stat_wal_receiver") != "0" {
                assert!(Instant::now() < deadline, "it follows on");
                thread::sleep(Duration::from_millis(10));
            }
        })
    }
    /// A standby becomes a primary.
    ///
    /// # Panics
    /// It does not.
    pub fn promote(&self) {
        assert_eq!(self.ask("SELECT pg_promote()"), "t");
    }
    /// On 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number()
    }
    /// Where it is, as the engine is told.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }
    /// Through this, as the engine is told.
    pub fn url_through(&self, pooler: &PgBouncer) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", pooler.port())
    }
    /// Its files, and its log.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }
    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Starts it, or starts it again where it was. False: it ended at once.
    ///
    /// # Panics
    /// It neither ends nor answers.
    pub fn restart(&self) -> bool {
        blocking(|| {
            kill(&mut self.child());
            let mut words = template::as_user(USER);
            words.push(program("postgres").display().to_string());
            words.extend(["-D".to_owned(), self.folder.path().join("data").display().to_string()]);
            words.extend(["-p".to_owned(), self.port.to_string()]);
            let common = [
                "listen_addresses=127.0.0.1",
                "unix_socket_directories=",
                // In its folder, and gone with it.
                "dynamic_shared_memory_type=mmap",
                "fsync=off",
                "max_connections=600",
                "shared_buffers=32MB",
                "max_wal_size=128MB",
                "min_wal_size=32MB",
                "autovacuum_naptime=10s",
            ];
            words.extend(common.iter().flat_map(|setting| ["-c".to_owned(), (*setting).to_owned()]));
            words.extend(self.arguments.iter().cloned());
            let started = spawn(&words, self.clock.clone(), self.folder.path());
            *self.child() = Some(started.unwrap_or_else(|e| panic!("setpriv: {e}; `cargo xtask test` installs it")));
            let deadline = Instant::now() + READY;
            loop {
                if !self.child().as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None))) {
                    return false;
                }
                let log = log_of(self.folder.path());
                // Also one that follows another: it accepts those who only read.
                if log.contains("database system is ready to accept") {
                    return true;
                }
                let doing = || state_of(self.child().as_ref());
                assert!(Instant::now() < deadline, "postgres is not ready within {READY:?}: {}\n{log}", doing());
                thread::sleep(Duration::from_millis(5));
            }
        })
    }
    /// `kill -9`, of all its processes.
    pub fn kill(&self) {
        blocking(|| {
            kill(&mut self.child());
        })
    }
    /// All its processes are stopped, or go on.
    pub fn pause(&self, paused: bool) {
        let what = if paused { Signal::STOP } else { Signal::CONT };
        if let Some(child) = &*self.child() {
            signal(child, what);
            // What it had started until then.
            for pid in children(child) {
                let _ = kill_process(pid, what);
            }
        }
    }
    /// The process of one session is stopped: its connection stays open, and nothing comes of it any more.
    pub fn stop_session(&self, pid: i32) {
        let ours = self.child().as_ref().map(children).unwrap_or_default();
        for pid in ours.into_iter().filter(|ours| ours.as_raw_pid() == pid) {
            let _ = kill_process(pid, Signal::STOP);
        }
    }
    /// Something that an operator says, by `psql`; what it answers, in lines, a tab between two columns.
    ///
    /// # Panics
    /// The server refuses it.
    pub fn ask(&self, sql: &str) -> String {
        let done = blocking(|| self.psql(sql).output())
            .unwrap_or_else(|e| panic!("psql: {e}; `cargo xtask test` installs it"));
        assert!(done.status.success(), "{sql}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).trim_end().to_owned()
    }
    /// `psql`, ready to be started.
    pub fn psql(&self, sql: &str) -> Command {
        let mut psql = Command::new("psql");
        psql.args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", "postgres", "-X", "-q", "-A", "-t"]);
        psql.args(["-F", "\t", "-v", "ON_ERROR_STOP=1", "-c", sql]);
        psql
    }
}
impl Drop for Postgres {
    /// One that was killed leaves its segment of shared memory, by which it would know those of its processes that live on; the kernel has
    /// room for 4,096 of them.
    fn drop(&mut self) {
        self.kill();
        let known = std::fs::read_to_string(self.folder.path().join("data/postmaster.pid")).unwrap_or_default();
        // Its key, and its number.
        if let Some(id) = known.lines().nth(6).and_then(|line| line.split_whitespace().nth(1)) {
            let _ = Command::new("ipcrm").args(["-m", id]).output();
        }
    }
}

/// Where Debian keeps them; else whatever is in the path.
fn program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = versions.map(|version| version.path().join("bin").join(name)).filter(|path| path.is_file()).max();
    newest.unwrap_or_else(|| name.into())
}
/// Made once for each version, and kept with what is built.
fn template() -> PathBuf {
    let initdb = program("initdb");
    let version: String = initdb.display().to_string().chars().filter(char::is_ascii_digit).collect();
    template::made(&format!("initdb-{version}"), USER, |data| {
        let mut words = vec![initdb.display().to_string(), "-D".to_owned(), data.display().to_string()];
        words.extend(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"].map(str::to_owned));
        words
    })
}
/// What a process has started.
fn children(child: &Child) -> Vec<Pid> {
    let id = child.id();
    let all = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    all.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}
fn kill(child: &mut Option<Child>) {
    let Some(mut child) = child.take() else { return };
    // It starts none any more.
    signal(&child, Signal::STOP);
    let all = children(&child);
    signal(&child, Signal::KILL);
    for pid in &all {
        let _ = kill_process(*pid, Signal::KILL);
    }
    let _ = child.wait();
    // Its memory is in use until they are gone.
    let deadline = Instant::now() + READY;
    while all.iter().any(|pid| lives(*pid)) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }
}
fn lives(pid: Pid) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    Path::new(&format!("/proc/{pid}")).exists() && !state.contains(") Z ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standby_follows_and_is_promoted_without_what_it_missed() {
        let server = Postgres::start();
        server.ask("CREATE TABLE t (n int); INSERT INTO t VALUES (1)");
        let standby = server.standby();
        server.ask("INSERT INTO t VALUES (2)");
        let deadline = Instant::now() + READY;
        while standby.ask("SELECT count(*) FROM t") != "2" {
            assert!(Instant::now() < deadline, "it does not follow");
        }
        standby.follow_nobody();
        server.ask("INSERT INTO t VALUES (3)");
        server.kill();
        standby.promote();
        standby.ask("INSERT INTO t VALUES (4)");
        assert_eq!(standby.ask("SELECT sum(n) FROM t"), "7");
    }
    #[test]
    fn a_pooler_of_transactions_gives_one_session_to_several() {
        let server = Postgres::start();
        let pooler = PgBouncer::start(&server, "transaction");
        let ask = || {
            let mut psql = Command::new("psql");
            psql.args(["-X", "-q", "-A", "-t", "-c", "SELECT pg_backend_pid()", &server.url_through(&pooler)]);
            String::from_utf8(psql.output().unwrap().stdout).unwrap()
        };
        let first = ask();
        assert!(!first.is_empty() && first == ask(), "{first}");
    }

    #[test]
    fn a_server_that_is_killed_keeps_what_it_said_it_has() {
        let server = Postgres::start();
        server.ask("CREATE TABLE t (n int); INSERT INTO t VALUES (7)");
        server.kill();
        assert!(server.restart());
        assert_eq!(server.ask("SELECT n, 'x' FROM t"), "7\tx");
        let folder = server.folder().path().to_owned();
        let segments = || std::fs::read_to_string("/proc/sysvipc/shm").unwrap();
        let pid = std::fs::read_to_string(folder.join("data/postmaster.pid")).unwrap();
        let segment = pid.lines().nth(6).unwrap().split_whitespace().nth(1).unwrap();
        let is_there = || segments().lines().any(|line| line.split_whitespace().nth(1) == Some(segment));
        assert!(is_there());
        drop(server);
        assert!(!folder.exists() && !is_there());
    }
}
