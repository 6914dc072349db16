//! Private etcd servers: one, or several that are one cluster.
use crate::network::{Network, inside};
use crate::process::{Folder, Port, blocking, log_of, signal, spawn, state_of};
use rustix::process::Signal;
use std::{
    ffi::OsString,
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::PathBuf,
    process::{Child, Command},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

const READY: Duration = Duration::from_secs(20);
/// A paused member takes connections, and says nothing.
const ANSWER: Duration = Duration::from_secs(1);
/// As [`ANSWER`], where a number is wanted.
const PATIENCE: Duration = Duration::from_secs(10);

/// How it is started.
#[derive(Clone, Debug)]
pub struct EtcdOptions {
    /// So many members.
    pub members: usize,
    /// Its clients speak TLS to it. Its members speak to each other as they are.
    pub tls: Option<EtcdTls>,
    /// Its members are there, and not on loopback.
    pub network: Option<Arc<Network>>,
    /// More arguments of every member, as on its command line; of two that are the same, the last is taken.
    pub arguments: Vec<String>,
}
impl Default for EtcdOptions {
    fn default() -> Self {
        Self { members: 1, tls: None, network: None, arguments: Vec::new() }
    }
}

/// Files, in PEM.
#[derive(Clone, Debug)]
pub struct EtcdTls {
    /// Every member's certificate, for 127.0.0.1; `etcdctl` shows it, too, where certificates are wanted of clients.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// Who signed it.
    pub ca: PathBuf,
    /// Clients have to show a certificate, signed by the same.
    pub client_auth: bool,
}

/// One cluster; it is killed, and its folder removed, when this is dropped.
#[derive(Debug)]
pub struct Etcd {
    members: Vec<Member>,
    options: EtcdOptions,
    folder: Folder,
}

#[derive(Debug)]
struct Member {
    /// Where its clients find it.
    address: Ipv4Addr,
    /// Where its peers find it.
    host: Ipv4Addr,
    client: Port,
    peer: Port,
    /// Without TLS, whatever the clients speak: health and metrics.
    metrics: Port,
    /// Its data, and its log.
    folder: PathBuf,
    child: Mutex<Option<Child>>,
}
impl Member {
    fn new(folder: PathBuf, n: usize, network: Option<&Network>) -> Self {
        std::fs::create_dir_all(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        let (client, peer, metrics) = (Port::free(), Port::free(), Port::free());
        let (address, host) =
            network.map_or((Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST), |it| (it.client(n), it.peer(n)));
        Self { address, host, client, peer, metrics, folder, child: Mutex::default() }
    }
    fn endpoint(&self) -> String {
        format!("{}:{}", self.address, self.client)
    }
    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn log(&self) -> String {
        log_of(&self.folder)
    }
    fn runs(&self) -> bool {
        self.child().as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }
    fn is_ready(&self) -> bool {
        self.log().contains("serving client ")
            && self.get("/health", ANSWER).is_ok_and(|it| it.contains(r#""health":"true""#))
    }
    /// False: it ended.
    fn wait(&self, deadline: Instant) -> bool {
        blocking(|| {
            loop {
                if !self.runs() {
                    return false;
                }
                if self.is_ready() {
                    return true;
                }
                let doing = || state_of(self.child().as_ref());
                assert!(Instant::now() < deadline, "etcd is not ready within {READY:?}: {}\n{}", doing(), self.log());
                thread::sleep(Duration::from_millis(5));
            }
        })
    }
    /// The answer to an HTTP request, with its head.
    fn get(&self, path: &str, patience: Duration) -> io::Result<String> {
        let address = SocketAddr::from((self.address, self.metrics.number()));
        let mut stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_read_timeout(Some(patience))?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
    fn metric(&self, line_prefix: &str, patience: Duration) -> io::Result<f64> {
        let answer = self.get("/metrics", patience)?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        if !head.contains(" 200 OK") {
            return Err(io::Error::other(head.to_owned()));
        }
        let value = |line: &str| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok());
        Ok(body.lines().filter(|line| line.starts_with(line_prefix)).filter_map(value).sum())
    }
    fn kill(&self) {
        if let Some(mut child) = self.child().take() {
            signal(&child, Signal::KILL);
            let _ = child.wait();
        }
    }
}

impl Etcd {
    /// One member.
    #[must_use]
    pub fn start() -> Self {
        Self::with(EtcdOptions::default())
    }
    /// Three members: one may be missing.
    #[must_use]
    pub fn cluster() -> Self {
        Self::with(EtcdOptions { members: 3, ..EtcdOptions::default() })
    }
    /// As the options say.
    ///
    /// # Panics
    /// It does not start.
    #[must_use]
    pub fn with(options: EtcdOptions) -> Self {
        assert!(options.members > 0, "an etcd without members");
        let folder = Folder::new("etcd");
        let members = (0..options.members)
            .map(|n| Member::new(folder.path().join(name(n)), n, options.network.as_deref()))
            .collect();
        let cluster = Self { members, options, folder };
        // Without the others none is healthy.
        (0..cluster.members.len()).for_each(|member| cluster.begin(member));
        let deadline = Instant::now() + READY;
        for member in &cluster.members {
            let ready = member.wait(deadline);
            assert!(ready, "etcd did not start; `cargo xtask test` installs it:\n{}", member.log());
        }
        cluster
    }
    /// Where it is, as the engine is told.
    pub fn url(&self) -> String {
        self.url_of(&self.endpoints())
    }
    /// As the engine is told of these alone.
    pub fn url_of(&self, endpoints: &str) -> String {
        format!("{}://{endpoints}", if self.options.tls.is_some() { "etcds" } else { "etcd" })
    }
    /// Where it is, as `etcdctl` is told.
    pub fn endpoints(&self) -> String {
        let all: Vec<_> = self.members.iter().map(Member::endpoint).collect();
        all.join(",")
    }
    /// Where a member is.
    pub fn endpoint(&self, member: usize) -> String {
        self.members[member].endpoint()
    }
    /// Of the address where it is: 127.0.0.1, but in a network.
    pub fn client_port(&self, member: usize) -> u16 {
        self.members[member].client.number()
    }
    /// A folder for each member, `m0` and so on: its files, and its log.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }
    /// `kill -9`.
    pub fn kill(&self, member: usize) {
        self.members[member].kill();
    }
    /// Starts a member again where it was, and waits until it is healthy: a majority, with it, has to run.
    ///
    /// # Panics
    /// It does not start, or is not healthy.
    pub fn restart(&self, member: usize) {
        self.begin(member);
        let ready = self.members[member].wait(Instant::now() + READY);
        assert!(ready, "etcd did not start again:\n{}", self.members[member].log());
    }
    /// As [`restart`](Self::restart), without waiting: to start several, of which none is healthy without the others.
    ///
    /// # Panics
    /// It cannot be started.
    pub fn begin(&self, member: usize) {
        let this = &self.members[member];
        this.kill();
        // A variable of etcd's that an argument contradicts is an error to it.
        let mut arguments = inside(self.options.network.as_deref(), member);
        arguments.push("env".to_owned());
        arguments.extend(variables(b"ETCD_").into_iter().map(|name| format!("--unset={}", name.display())));
        arguments.push("etcd".to_owned());
        arguments.extend(self.arguments(member));
        let started = spawn(&arguments, [], &this.folder).unwrap_or_else(|e| panic!("etcd: {e}"));
        *this.child() = Some(started);
    }
    fn arguments(&self, member: usize) -> Vec<String> {
        let this = &self.members[member];
        let peer = |member: &Member| format!("http://{}:{}", member.host, member.peer);
        let all = self.members.iter().enumerate().map(|(n, member)| format!("{}={}", name(n), peer(member)));
        let tls = self.options.tls.as_ref();
        let client = format!("{}://{}", if tls.is_some() { "https" } else { "http" }, this.endpoint());
        let mut arguments = Vec::new();
        let mut say = |key: &str, value: &str| arguments.push(format!("--{key}={value}"));
        say("name", &name(member));
        say("data-dir", "data");
        say("listen-client-urls", &client);
        say("advertise-client-urls", &client);
        say("listen-peer-urls", &peer(this));
        say("initial-advertise-peer-urls", &peer(this));
        say("initial-cluster", &all.collect::<Vec<_>>().join(","));
        // Another test's member that comes to one of these ports is not taken for one of these.
        say("initial-cluster-token", &self.folder.path().display().to_string());
        say("listen-metrics-urls", &format!("http://{}:{}", this.address, this.metrics));
        // `--help` is silent about this one. What it answered for is with the kernel by then, and outlives `kill -9`.
        say("unsafe-no-fsync", "true");
        // A tenth of a test's patience for an election, and enough for a machine that stands still for a moment.
        say("heartbeat-interval", "50");
        say("election-timeout", "500");
        say("logger", "zap");
        say("log-outputs", "stderr");
        if let Some(EtcdTls { cert, key, ca, client_auth }) = tls {
            say("cert-file", &cert.display().to_string());
            say("key-file", &key.display().to_string());
            // With it alone, certificates are wanted of clients already.
            if *client_auth {
                say("trusted-ca-file", &ca.display().to_string());
                say("client-cert-auth", "true");
            }
        }
        arguments.extend(self.options.arguments.iter().cloned());
        arguments
    }
    /// It is stopped, or goes on.
    pub fn pause(&self, member: usize, paused: bool) {
        if let Some(child) = &*self.members[member].child() {
            signal(child, if paused { Signal::STOP } else { Signal::CONT });
        }
    }
    /// It is healthy by its own word: it hears of the leader.
    pub fn serves(&self, member: usize) -> bool {
        self.members[member].runs() && self.members[member].is_ready()
    }
    /// Who leads by its own word; of those who do not run, or do not answer within a second, none is.
    pub fn leader(&self) -> Option<usize> {
        let says = |member: &Member| member.metric("etcd_server_is_leader ", ANSWER);
        let leads = |member: &Member| member.runs() && says(member).is_ok_and(|it| it > 0.0);
        self.members.iter().position(leads)
    }
    /// The sum of the lines of its metrics that begin so; none of them is 0.
    ///
    /// # Panics
    /// It does not answer within ten seconds.
    pub fn metric(&self, member: usize, line_prefix: &str) -> f64 {
        let sum = self.members[member].metric(line_prefix, PATIENCE);
        sum.unwrap_or_else(|e| panic!("the metrics of {}: {e}", name(member)))
    }
    /// `etcdctl` with these words, ready to run.
    pub fn etcdctl(&self, words: &[&str]) -> Command {
        let mut command = Command::new("etcdctl");
        // As with the server's.
        for name in variables(b"ETCDCTL_") {
            command.env_remove(name);
        }
        command.env("ETCDCTL_API", "3").arg(format!("--endpoints={}", self.endpoints()));
        if let Some(EtcdTls { cert, key, ca, client_auth }) = &self.options.tls {
            command.arg("--cacert").arg(ca);
            if *client_auth {
                command.arg("--cert").arg(cert).arg("--key").arg(key);
            }
        }
        command.args(words);
        command
    }
    /// What `etcdctl` prints.
    ///
    /// # Panics
    /// It fails.
    pub fn run(&self, words: &[&str]) -> String {
        blocking(|| {
            let output = self.etcdctl(words).output();
            let output = output.unwrap_or_else(|e| panic!("etcdctl: {e}; `cargo xtask test` installs it"));
            let (said, why) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert!(output.status.success(), "etcdctl {words:?}: {}\n{said}{why}", output.status);
            said.into_owned()
        })
    }
}
fn name(member: usize) -> String {
    format!("m{member}")
}
/// The names of this process' variables that begin so.
fn variables(beginning: &[u8]) -> Vec<OsString> {
    std::env::vars_os().map(|(name, _)| name).filter(|name| name.as_encoded_bytes().starts_with(beginning)).collect()
}
impl Drop for Etcd {
    fn drop(&mut self) {
        self.members.iter().for_each(Member::kill);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGES: &str = r#"grpc_server_msg_received_total{grpc_method="Range","#;

    #[test]
    fn a_member_that_is_killed_keeps_what_it_said_it_has_and_counts_what_it_is_asked() {
        let etcd = Etcd::start();
        assert_eq!(etcd.run(&["put", "name", "value"]), "OK\n");
        let before = etcd.metric(0, RANGES);
        assert_eq!(etcd.run(&["get", "name", "--print-value-only"]), "value\n");
        assert_eq!(etcd.metric(0, RANGES), before + 1.0);
        etcd.kill(0);
        assert_eq!(etcd.leader(), None);
        etcd.restart(0);
        assert_eq!(etcd.leader(), Some(0));
        assert_eq!(etcd.run(&["get", "name", "--print-value-only"]), "value\n");
        let folder = etcd.folder().path().to_owned();
        drop(etcd);
        assert!(!folder.exists());
    }

    #[test]
    fn of_three_another_one_leads_when_the_leader_is_killed_or_stopped() {
        let etcd = Etcd::cluster();
        assert_eq!(etcd.url(), format!("etcd://{}", etcd.endpoints()));
        etcd.run(&["put", "name", "value"]);
        let first = leader_but(&etcd, None);
        etcd.kill(first);
        let second = leader_but(&etcd, Some(first));
        assert_eq!(etcd.run(&["get", "name", "--print-value-only"]), "value\n");
        etcd.restart(first);
        etcd.pause(second, true);
        leader_but(&etcd, Some(second));
        etcd.pause(second, false);
    }
    fn leader_but(etcd: &Etcd, gone: Option<usize>) -> usize {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            match etcd.leader() {
                Some(leader) if Some(leader) != gone => return leader,
                _ => assert!(Instant::now() < deadline, "nobody leads"),
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    #[test]
    fn what_it_says_is_told_when_it_does_not_start() {
        let wrong = || Etcd::with(EtcdOptions { arguments: vec!["--no-such-flag".to_owned()], ..Default::default() });
        let why = std::panic::catch_unwind(|| drop(wrong())).unwrap_err();
        let why = why.downcast_ref::<String>().unwrap();
        assert!(why.contains("no-such-flag"), "{why}");
    }
}
