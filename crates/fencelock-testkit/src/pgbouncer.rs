//! A pooler in front of a PostgreSQL.
use crate::{
    postgres::Postgres,
    process::{Folder, Port, blocking, log_of, signal, spawn},
    template,
};
use rustix::process::Signal;
use std::{
    net::TcpStream,
    path::Path,
    process::Child,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

const READY: Duration = Duration::from_secs(20);
/// As whom it runs, where this is root: it refuses to be that.
const USER: &str = "postgres";
const FILE: &str = "pgbouncer.ini";

/// One pgbouncer; it is killed, and its folder removed, when this is dropped.
#[derive(Debug)]
pub struct PgBouncer {
    port: Port,
    child: Mutex<Option<Child>>,
    folder: Folder,
}
impl PgBouncer {
    /// Its pool's mode is `session`, `transaction` or `statement`; whoever comes is the superuser.
    ///
    /// # Panics
    /// It does not start.
    #[must_use]
    pub fn start(server: &Postgres, mode: &str) -> Self {
        Self::of(server, mode, 50, 1000)
    }
    /// The same, with so many sessions of the server at most.
    ///
    /// # Panics
    /// As there.
    #[must_use]
    pub fn with_pool(server: &Postgres, mode: &str, size: usize) -> Self {
        Self::of(server, mode, size, 1000)
    }
    /// The same, which takes so many clients at most.
    ///
    /// # Panics
    /// As there.
    #[must_use]
    pub fn with_clients(server: &Postgres, mode: &str, clients: usize) -> Self {
        Self::of(server, mode, 50, clients)
    }
    fn of(server: &Postgres, mode: &str, size: usize, clients: usize) -> Self {
        blocking(|| {
            let (folder, port) = (Folder::new("pgbouncer"), Port::free());
            template::give(folder.path(), USER);
            let text = format!(
                "[databases]\npostgres = host=127.0.0.1 port={} user=postgres\n\
                 [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
                 pool_mode = {mode}\nmax_client_conn = {clients}\ndefault_pool_size = {size}\nserver_login_retry = 0.1\n",
                server.port()
            );
            let file = folder.path().join(FILE);
            std::fs::write(&file, text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
            let pooler = Self { port, child: Mutex::default(), folder };
            pooler.restart();
            pooler
        })
    }
    /// Starts it, or starts it again where it was.
    ///
    /// # Panics
    /// It does not start.
    pub fn restart(&self) {
        let mut words = template::as_user(USER);
        words.extend([program(), self.folder.path().join(FILE).display().to_string()]);
        let child = spawn(&words, [], self.folder.path())
            .unwrap_or_else(|e| panic!("pgbouncer: {e}; `cargo xtask test` installs it"));
        *self.child() = Some(child);
        let deadline = Instant::now() + READY;
        while TcpStream::connect(("127.0.0.1", self.port())).is_err() {
            assert!(Instant::now() < deadline, "pgbouncer is not ready:\n{}", log_of(self.folder.path()));
            thread::sleep(Duration::from_millis(5));
        }
    }
    /// `kill -9`.
    pub fn kill(&self) {
        if let Some(mut child) = self.child().take() {
            signal(&child, Signal::KILL);
            let _ = child.wait();
        }
    }
    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// On 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number()
    }
}
/// Where Debian keeps it; else whatever is in the path.
fn program() -> String {
    let path = "/usr/sbin/pgbouncer";
    if Path::new(path).is_file() { path.to_owned() } else { "pgbouncer".to_owned() }
}
impl Drop for PgBouncer {
    fn drop(&mut self) {
        self.kill();
    }
}
