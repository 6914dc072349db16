//! A private MariaDB.
use crate::{
    clock::WallClock,
    process::{Folder, Port, blocking, log_of, signal, spawn, state_of},
    template,
};
use rustix::process::Signal;
use std::{
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

const READY: Duration = Duration::from_secs(30);
/// The database that there is in each.
const IN_TEST: &[&str] = &["-D", "test"];
/// As whom it runs, where this is root.
const USER: &str = "mysql";

/// One server, with a user `root` who needs no password, and a database `test`; it is killed, and its folder removed, when this is
/// dropped.
#[derive(Debug)]
pub struct MariaDb {
    port: Port,
    arguments: Vec<String>,
    child: Mutex<Option<Child>>,
    folder: Folder,
    /// What it uses beside its own one.
    _more: Vec<Port>,
    /// By which clock it goes, where that is not this machine's.
    clock: Vec<(&'static str, PathBuf)>,
}
impl MariaDb {
    /// As it comes, but for what makes tests slow.
    #[must_use]
    pub fn start() -> Self {
        Self::with(&[])
    }
    /// With more settings: `--NAME=VALUE`.
    ///
    /// # Panics
    /// It does not start.
    #[must_use]
    pub fn with(settings: &[&str]) -> Self {
        Self::ready(&template(), settings.iter().map(|setting| (*setting).to_owned()).collect(), Vec::new()).started()
    }
    /// That goes by this clock. What waits in it until a time of day does so by this machine's: sessions on `GET_LOCK` do.
    ///
    /// # Panics
    /// As there.
    #[must_use]
    pub fn by(clock: &WallClock) -> Self {
        let mut server = Self::ready(&template(), Vec::new(), Vec::new());
        server.clock = clock.environment().into();
        server.started()
    }
    fn started(self) -> Self {
        assert!(self.restart(), "mariadbd did not start:\n{}", log_of(self.folder.path()));
        self.say(&[], "CREATE DATABASE IF NOT EXISTS test");
        self
    }
    /// Not started, with a copy of this data.
    fn ready(template: &Path, arguments: Vec<String>, more: Vec<Port>) -> Self {
        let folder = Folder::new("mariadb");
        template::copy(template, &folder.path().join("data"));
        template::give(folder.path(), USER);
        Self { port: Port::free(), arguments, child: Mutex::default(), folder, _more: more, clock: Vec::new() }
    }
    /// So many nodes of Galera, which all take writes.
    ///
    /// # Panics
    /// They do not start, or do not come together.
    #[must_use]
    pub fn galera(nodes: usize) -> Vec<Self> {
        let (mut all, mut first): (Vec<Self>, _) = (Vec::new(), None);
        for node in 0..nodes {
            let ports: Vec<Port> = (0..3).map(|_| Port::free()).collect();
            let [group, state, transfer] = [0, 1, 2].map(|n| ports[n].number());
            let members = first.map_or_else(|| "gcomm://".to_owned(), |first| format!("gcomm://127.0.0.1:{first}"));
            let provides = format!(
                "base_host=127.0.0.1;base_port={group};gmcast.listen_addr=tcp://127.0.0.1:{group};ist.recv_addr=127.0.0.1:{state};\
                 gcache.size=16M"
            );
            let mut arguments = galera().map(str::to_owned).to_vec();
            arguments.extend([
                format!("--wsrep-cluster-address={members}"),
                "--wsrep-node-address=127.0.0.1".to_owned(),
                format!("--wsrep-node-name=n{node}"),
                format!("--wsrep-sst-receive-address=127.0.0.1:{transfer}"),
                format!("--wsrep-provider-options={provides}"),
            ]);
            let server = Self::ready(&galera_template(), arguments, ports);
            assert!(server.restart(), "mariadbd did not start:\n{}", log_of(server.folder.path()));
            first.get_or_insert(group);
            all.push(server);
        }
        let deadline = Instant::now() + READY;
        for server in &all {
            let size = "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'wsrep_cluster_size'";
            while server.say(&[], size) != nodes.to_string() {
                let logs =
                    || all.iter().map(|server| log_of(server.folder.path())).collect::<Vec<_>>().join("\n====\n");
                assert!(Instant::now() < deadline, "not together:\n{}", logs());
                thread::sleep(Duration::from_millis(20));
            }
        }
        if let Some(server) = all.first() {
            server.say(&[], "CREATE DATABASE IF NOT EXISTS test");
        }
        all
    }
    /// One that can have replicas, with more settings: it keeps what they need of what is written from its first moment on, and loses nothing
    /// of that when it is killed.
    ///
    /// # Panics
    /// It does not start.
    #[must_use]
    pub fn primary(settings: &[&str]) -> Self {
        Self::with(&[&["--server-id=1", "--log-bin=log", "--innodb-flush-log-at-trx-commit=1"], settings].concat())
    }
    /// A replica of this one, which is a `primary`: it takes no writes, and will soon have all that was written there.
    ///
    /// # Panics
    /// It does not start.
    #[must_use]
    pub fn replica(&self) -> Self {
        // Nobody else's among those that follow it.
        let id = format!("--server-id={}", fastrand::u32(2..));
        let replica = Self::with(&[&id, "--log-bin=log", "--innodb-flush-log-at-trx-commit=1", "--read-only=1"]);
        let master = format!("MASTER_HOST = '127.0.0.1', MASTER_PORT = {}, MASTER_USER = 'root'", self.port);
        // From the first moment on.
        replica.ask(&format!("CHANGE MASTER TO {master}, MASTER_USE_GTID = slave_pos; START SLAVE"));
        replica
    }
    /// A replica that hears nothing any more of what it follows: what is written there from now on it will never have.
    pub fn follow_nobody(&self) {
        self.ask("STOP SLAVE");
    }
    /// A replica becomes a primary, until it is started again.
    pub fn promote(&self) {
        self.ask("STOP SLAVE; RESET SLAVE ALL; SET GLOBAL read_only = 0");
    }
    /// Until this replica has what that one has written.
    ///
    /// # Panics
    /// It does not come.
    pub fn catch_up(&self, primary: &Self) {
        let end = primary.ask("SELECT @@gtid_binlog_pos");
        let has = format!("SELECT MASTER_GTID_WAIT('{end}', {})", READY.as_secs());
        assert_eq!(self.ask(&has), "0", "{}", log_of(self.folder.path()));
    }
    /// On 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number()
    }
    /// Where it is, as the engine is told.
    pub fn url(&self) -> String {
        format!("mysql://root@127.0.0.1:{}/test", self.port)
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
            let path = |name: &str| self.folder.path().join(name).display().to_string();
            let mut words = template::as_user(USER);
            words.extend([program("mariadbd").display().to_string(), "--no-defaults".to_owned()]);
            words.extend([format!("--datadir={}", path("data")), format!("--port={}", self.port)]);
            words.extend([format!("--socket={}", path("socket")), format!("--pid-file={}", path("pid"))]);
            // One that starts removes what it finds there, also of those that run.
            words.push(format!("--tmpdir={}", self.folder.path().display()));
            let common = [
                "--bind-address=127.0.0.1",
                "--skip-name-resolve",
                "--max-connections=600",
                "--innodb-buffer-pool-size=64M",
                "--innodb-log-file-size=32M",
                "--innodb-flush-log-at-trx-commit=0",
                "--innodb-use-native-aio=0",
                "--performance-schema=OFF",
            ];
            words.extend(common.map(str::to_owned));
            words.extend(self.arguments.iter().cloned());
            let started = spawn(&words, self.clock.clone(), self.folder.path());
            *self.child() = Some(started.unwrap_or_else(|e| panic!("setpriv: {e}; `cargo xtask test` installs it")));
            let deadline = Instant::now() + READY;
            loop {
                if !self.child().as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None))) {
                    return false;
                }
                let log = log_of(self.folder.path());
                if log.contains("ready for connections") {
                    return true;
                }
                let doing = || state_of(self.child().as_ref());
                assert!(Instant::now() < deadline, "mariadbd is not ready within {READY:?}: {}\n{log}", doing());
                thread::sleep(Duration::from_millis(5));
            }
        })
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
    /// Something that an operator says, by `mariadb`; what it answers, in lines, a tab between two columns.
    ///
    /// # Panics
    /// The server refuses it.
    pub fn ask(&self, sql: &str) -> String {
        self.say(IN_TEST, sql)
    }
    fn say(&self, within: &[&str], sql: &str) -> String {
        let done = blocking(|| self.client_in(within, sql).output())
            .unwrap_or_else(|e| panic!("mariadb: {e}; `cargo xtask test` installs it"));
        assert!(done.status.success(), "{sql}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).trim_end().to_owned()
    }
    /// `mariadb`, ready to be started.
    pub fn client(&self, sql: &str) -> Command {
        self.client_in(IN_TEST, sql)
    }
    fn client_in(&self, within: &[&str], sql: &str) -> Command {
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "-h", "127.0.0.1", "-P", &self.port.to_string(), "-u", "root", "-N", "-B"]);
        client.args(within).args(["-e", sql]);
        client
    }
}
impl Drop for MariaDb {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Where Debian keeps it; else whatever is in the path.
fn program(name: &str) -> PathBuf {
    Some(PathBuf::from("/usr/sbin").join(name)).filter(|path| path.is_file()).unwrap_or_else(|| name.into())
}
fn template() -> PathBuf {
    template::made("mariadb", USER, |data| {
        let made = [
            "mariadb-install-db".to_owned(),
            "--no-defaults".to_owned(),
            format!("--datadir={}", data.display()),
            "--auth-root-authentication-method=normal".to_owned(),
            "--skip-test-db".to_owned(),
            "--innodb-log-file-size=32M".to_owned(),
        ];
        made.to_vec()
    })
}
fn kill(child: &mut Option<Child>) {
    if let Some(mut child) = child.take() {
        signal(&child, Signal::KILL);
        let _ = child.wait();
    }
}

/// What a node of Galera is started with, beside where the others are.
fn galera() -> [&'static str; 4] {
    [
        "--wsrep-on=ON",
        "--wsrep-provider=/usr/lib/galera/libgalera_smm.so",
        "--binlog-format=ROW",
        "--innodb-autoinc-lock-mode=2",
    ]
}
/// What a node has that was a cluster of one and was shut down: with a copy of it each joins without being sent more than the last steps.
fn galera_template() -> PathBuf {
    let (from, port) = (template(), Port::free());
    template::made("galera", USER, |data| {
        let script = r#"
            set -e
            cp -a "$1/." "$2"
            echo "SHUTDOWN;" > "$2/shutdown.sql"
            data=$2 mariadbd=$3 port=$4
            shift 4
            "$mariadbd" --no-defaults --datadir="$data" --skip-networking --socket="$data/socket" --pid-file="$data/pid" \
                --tmpdir="$data" --innodb-log-file-size=32M --innodb-use-native-aio=0 --init-file="$data/shutdown.sql" \
                --wsrep-cluster-address=gcomm:// --wsrep-node-address=127.0.0.1 \
                --wsrep-provider-options="gmcast.listen_addr=tcp://127.0.0.1:$port" "$@" 2> "$data/log" || { cat "$data/log"; exit 1; }
            rm -f "$data/shutdown.sql" "$data/galera.cache" "$data/log"
        "#;
        let mut words = vec!["sh".to_owned(), "-c".to_owned(), script.to_owned(), "sh".to_owned()];
        words.extend([from.display().to_string(), data.display().to_string()]);
        words.extend([program("mariadbd").display().to_string(), port.number().to_string()]);
        words.extend(galera().map(str::to_owned));
        words
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (Red: it follows on.)
    #[test]
    fn a_replica_follows_and_is_promoted_without_what_it_missed() {
        let server = MariaDb::primary(&[]);
        server.ask("CREATE TABLE t (n int) ENGINE=InnoDB; INSERT INTO t VALUES (1)");
        let replica = server.replica();
        server.ask("INSERT INTO t VALUES (2)");
        replica.catch_up(&server);
        assert_eq!(replica.ask("SELECT SUM(n) FROM t; SELECT @@read_only"), "3\n1");
        replica.follow_nobody();
        server.ask("INSERT INTO t VALUES (3)");
        // Whoever follows has it by then.
        thread::sleep(Duration::from_millis(100));
        server.kill();
        replica.promote();
        replica.ask("INSERT INTO t VALUES (4)");
        assert_eq!(replica.ask("SELECT SUM(n) FROM t; SELECT @@read_only"), "7\n0");
    }
    #[test]
    fn a_server_that_is_killed_keeps_what_it_said_it_has() {
        let server = MariaDb::start();
        server.ask("CREATE TABLE t (n int) ENGINE=InnoDB; INSERT INTO t VALUES (7)");
        // As it is started here what was said in the last second may be lost with the machine, not with the process.
        server.kill();
        assert!(server.restart());
        assert_eq!(server.ask("SELECT n, 'x' FROM t"), "7\tx");
        let folder = server.folder().path().to_owned();
        drop(server);
        assert!(!folder.exists());
    }
}
