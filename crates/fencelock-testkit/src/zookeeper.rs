//! Private ZooKeeper servers: one, or several that are one ensemble.
use crate::network::{Network, inside};
use crate::process::{Folder, Port, blocking, log_of, signal, spawn, state_of};
use crate::zookeeper_shell::ZooKeeperShell;
use rustix::process::Signal;
use std::{
    collections::BTreeSet,
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

const READY: Duration = Duration::from_secs(30);
/// A paused member takes connections, and says nothing.
const ANSWER: Duration = Duration::from_secs(1);
/// As [`ANSWER`], where a number is wanted.
const PATIENCE: Duration = Duration::from_secs(10);
/// Logged when every port for clients is bound; or, after this, when it ends.
const STARTED: &str = "ZooKeeper audit is";
const FAILED: &str = "exiting abnormally";
/// How long a member may be silent until the others go on without it: enough for a machine that stands still for a
/// moment. Who is killed is missed at once.
const SILENCE: Duration = Duration::from_secs(2);
/// How long a member may take to get what the leader has.
const CATCH_UP: Duration = Duration::from_secs(10);

/// As `libzookeeper-java`, and what it depends on, leave them.
const JARS: &[&str] = &[
    "zookeeper",
    "zookeeper-jute",
    "commons-cli",
    "metrics-core",
    "slf4j-api",
    // To stderr.
    "slf4j-simple",
    "snappy-java",
    // For TLS.
    "netty-buffer",
    "netty-codec",
    "netty-common",
    "netty-handler",
    "netty-resolver",
    "netty-transport",
    "netty-transport-native-epoll",
    "netty-transport-native-unix-common",
];
const JAVA: &[&str] = &[
    "-Xmx128m",
    "-XX:+ExitOnOutOfMemoryError",
    // Quick to start, also where there are few processors.
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    // Its files, in another folder, would outlive `kill -9`.
    "-XX:-UsePerfData",
];
/// Java takes arguments from them, too.
const VARIABLES: &[&str] = &["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"];

/// How it is started.
#[derive(Clone, Debug)]
pub struct ZooKeeperOptions {
    /// So many members.
    pub members: usize,
    /// Sessions are at least two of these long, and end about one of them late.
    pub tick: Duration,
    /// Sessions are at most this long.
    pub max_session: Duration,
    /// How often it looks for containers that have lost their last child.
    pub reap: Duration,
    /// Its clients speak TLS to it. Its members speak to each other as they are.
    pub tls: Option<ZooKeeperTls>,
    /// Its members are there, and not on loopback.
    pub network: Option<Arc<Network>>,
    /// More lines of every member's configuration, `key=value`; of two with the same key, the last is taken.
    pub arguments: Vec<String>,
}
impl Default for ZooKeeperOptions {
    fn default() -> Self {
        Self {
            members: 1,
            tick: Duration::from_millis(500),
            max_session: Duration::from_secs(60),
            reap: Duration::from_secs(2),
            tls: None,
            network: None,
            arguments: Vec::new(),
        }
    }
}

/// Files, in PEM.
#[derive(Clone, Debug)]
pub struct ZooKeeperTls {
    /// Every member's certificate, for 127.0.0.1; [`ZooKeeper::cli`] shows it, too, where certificates are wanted of
    /// clients.
    pub cert: PathBuf,
    /// Its key, in PKCS #8.
    pub key: PathBuf,
    /// Who signed it.
    pub ca: PathBuf,
    /// Clients have to show a certificate, signed by the same.
    pub client_auth: bool,
}

/// One ensemble; it is killed, and its folder removed, when this is dropped.
#[derive(Debug)]
pub struct ZooKeeper {
    members: Vec<Member>,
    options: ZooKeeperOptions,
    folder: Folder,
}

#[derive(Debug)]
struct Member {
    /// Where its clients find it.
    address: Ipv4Addr,
    /// Without TLS: four-letter words, and clients where those have none.
    plain: Port,
    secure: Option<Port>,
    /// Where its peers find it.
    host: Ipv4Addr,
    peer: Port,
    election: Port,
    /// Its configuration, its data, and its log.
    folder: PathBuf,
    child: Mutex<Option<Child>>,
}
impl Member {
    fn new(folder: PathBuf, n: usize, options: &ZooKeeperOptions) -> Self {
        let data = folder.join("data");
        std::fs::create_dir_all(&data).unwrap_or_else(|e| panic!("{}: {e}", data.display()));
        let network = options.network.as_ref();
        Self {
            address: network.map_or(Ipv4Addr::LOCALHOST, |network| network.client(n)),
            plain: Port::free(),
            secure: options.tls.as_ref().map(|_| Port::free()),
            host: network.map_or(Ipv4Addr::LOCALHOST, |network| network.peer(n)),
            peer: Port::free(),
            election: Port::free(),
            folder,
            child: Mutex::default(),
        }
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
    /// False: it ended.
    fn wait(&self, deadline: Instant) -> bool {
        blocking(|| {
            loop {
                if !self.runs() {
                    return false;
                }
                let log = self.log();
                // Whoever asks before it has loaded its data is never answered, and counts as a connection as long as it runs.
                if log.contains(STARTED) && !log.contains(FAILED) && self.mode().is_some() {
                    return true;
                }
                let doing = || state_of(self.child().as_ref());
                assert!(Instant::now() < deadline, "ZooKeeper is not ready within {READY:?}: {}\n{log}", doing());
                thread::sleep(Duration::from_millis(5));
            }
        })
    }
    fn client(&self) -> u16 {
        self.secure.as_ref().unwrap_or(&self.plain).number()
    }
    fn endpoint(&self) -> String {
        format!("{}:{}", self.address, self.client())
    }
    /// Of the four-letter words.
    fn plain(&self) -> SocketAddr {
        (self.address, self.plain.number()).into()
    }
    /// The answer to a four-letter word.
    fn command(&self, word: &str) -> io::Result<String> {
        self.command_within(word, ANSWER)
    }
    fn command_within(&self, word: &str, patience: Duration) -> io::Result<String> {
        let address = self.plain();
        let mut stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_read_timeout(Some(patience))?;
        stream.write_all(word.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
    /// `standalone`, `leader`, `follower`; none while it serves nobody.
    fn mode(&self) -> Option<String> {
        let answer = self.command("srvr").ok()?;
        answer.lines().find_map(|line| line.strip_prefix("Mode: ")).map(str::to_owned)
    }
    fn write(&self, name: &str, text: &str) {
        let file = self.folder.join(name);
        std::fs::write(&file, text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    }
    fn kill(&self) {
        if let Some(mut child) = self.child().take() {
            signal(&child, Signal::KILL);
            let _ = child.wait();
        }
    }
}

impl ZooKeeper {
    /// One member.
    #[must_use]
    pub fn start() -> Self {
        Self::with(ZooKeeperOptions::default())
    }
    /// Three members: one may be missing.
    #[must_use]
    pub fn cluster() -> Self {
        Self::with(ZooKeeperOptions { members: 3, ..ZooKeeperOptions::default() })
    }
    /// As the options say.
    ///
    /// # Panics
    /// It does not start.
    #[must_use]
    pub fn with(options: ZooKeeperOptions) -> Self {
        assert!(options.members > 0, "a ZooKeeper without members");
        let folder = Folder::new("zookeeper");
        let member = |n: usize| Member::new(folder.path().join(format!("m{n}")), n, &options);
        let members = (0..options.members).map(member).collect();
        let ensemble = Self { members, options, folder };
        // Without the others none serves.
        (0..ensemble.members.len()).for_each(|member| ensemble.begin(member));
        let deadline = Instant::now() + READY;
        for member in &ensemble.members {
            let ready = member.wait(deadline);
            assert!(ready, "ZooKeeper did not start; `cargo xtask test` installs it:\n{}", member.log());
        }
        ensemble
    }
    /// Where it is, as the engine is told.
    pub fn url(&self) -> String {
        self.url_of(&self.endpoints())
    }
    /// As the engine is told of these alone.
    pub fn url_of(&self, endpoints: &str) -> String {
        format!("{}://{endpoints}", if self.options.tls.is_some() { "zookeepers" } else { "zookeeper" })
    }
    /// Where it is, as its other clients are told.
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
        self.members[member].client()
    }
    /// A folder for each member, `m0` and so on: its files, and its log.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }
    /// `kill -9`.
    pub fn kill(&self, member: usize) {
        self.members[member].kill();
    }
    /// Starts a member again where it was, and waits until it serves: a majority, with it, has to run.
    ///
    /// # Panics
    /// It does not start, or does not serve.
    pub fn restart(&self, member: usize) {
        self.begin(member);
        let ready = self.members[member].wait(Instant::now() + READY);
        assert!(ready, "ZooKeeper did not start again:\n{}", self.members[member].log());
    }
    /// As [`restart`](Self::restart), without waiting: to start several, of which none serves without the others.
    ///
    /// # Panics
    /// It cannot be started.
    pub fn begin(&self, member: usize) {
        let this = &self.members[member];
        this.kill();
        this.write("zoo.cfg", &self.configuration(member));
        this.write("data/myid", &id(member).to_string());
        if let Some(ZooKeeperTls { cert, key, ca, .. }) = &self.options.tls {
            this.write("server.pem", &format!("{}\n{}", read(cert), read(key)));
            this.write("ca.pem", &read(ca));
        }
        let mut arguments = inside(self.options.network.as_deref(), member);
        arguments.push("env".to_owned());
        arguments.extend(VARIABLES.iter().map(|name| format!("--unset={name}")));
        // The system's errors in its log are in English.
        arguments.extend(["LC_ALL=C.UTF-8", "java"].map(str::to_owned));
        arguments.extend(java());
        // What its libraries unpack.
        arguments.push(format!("-Djava.io.tmpdir={}", this.folder.display()));
        arguments.push(format!("-Dznode.container.checkIntervalMs={}", self.options.reap.as_millis().max(1)));
        // A vote that was lost is asked for again after twice as long each time, up to a minute: an election took 41 s once.
        arguments.push("-Dzookeeper.fastleader.maxNotificationInterval=1000".to_owned());
        // Of one member, too.
        arguments.extend(["org.apache.zookeeper.server.quorum.QuorumPeerMain", "./zoo.cfg"].map(str::to_owned));
        let started = spawn(&arguments, [], &this.folder).unwrap_or_else(|e| panic!("ZooKeeper: {e}"));
        *this.child() = Some(started);
    }
    fn configuration(&self, member: usize) -> String {
        let (this, options) = (&self.members[member], &self.options);
        let tick = options.tick.as_millis().max(1);
        let ticks = |time: Duration| time.as_millis().div_ceil(tick).max(2).to_string();
        let mut lines = Vec::new();
        let mut say = |key: &str, value: &str| lines.push(format!("{key}={value}"));
        say("dataDir", "./data");
        say("clientPort", &this.plain.to_string());
        say("clientPortAddress", &this.address.to_string());
        say("tickTime", &tick.to_string());
        say("maxSessionTimeout", &options.max_session.as_millis().to_string());
        say("initLimit", &ticks(CATCH_UP));
        say("syncLimit", &ticks(SILENCE));
        // A member that is stopped takes a connection for an election, too, and says nothing.
        say("cnxTimeout", "500");
        say("maxClientCnxns", "0");
        say("4lw.commands.whitelist", "*");
        // Another port.
        say("admin.enableServer", "false");
        say("extendedTypesEnabled", "false");
        // Without these it is alone, whatever its number.
        if self.members.len() > 1 {
            for (n, Member { host, peer, election, .. }) in self.members.iter().enumerate() {
                say(&format!("server.{}", id(n)), &format!("{host}:{peer}:{election}"));
            }
        }
        if let Some(ZooKeeperTls { client_auth, .. }) = &options.tls {
            say("secureClientPort", &this.client().to_string());
            say("secureClientPortAddress", &this.address.to_string());
            say("serverCnxnFactory", "org.apache.zookeeper.server.NettyServerCnxnFactory");
            say("ssl.keyStore.type", "PEM");
            say("ssl.keyStore.location", "./server.pem");
            say("ssl.trustStore.type", "PEM");
            say("ssl.trustStore.location", "./ca.pem");
            say("ssl.clientAuth", if *client_auth { "need" } else { "none" });
        }
        lines.extend(options.arguments.iter().cloned());
        lines.join("\n") + "\n"
    }
    /// It is stopped, or goes on.
    pub fn pause(&self, member: usize, paused: bool) {
        if let Some(child) = &*self.members[member].child() {
            signal(child, if paused { Signal::STOP } else { Signal::CONT });
        }
    }
    /// Who leads by its own word, as one that is alone does; of those who do not run, or do not answer within a second,
    /// none is.
    pub fn leader(&self) -> Option<usize> {
        let leads = |member: &Member| matches!(member.mode().as_deref(), Some("leader" | "standalone"));
        self.members.iter().position(|member| member.runs() && leads(member))
    }
    /// An operator's hand in a member that answers.
    ///
    /// # Panics
    /// None does.
    pub fn shell(&self) -> ZooKeeperShell {
        let members = || self.members.iter().map(Member::plain);
        let deadline = Instant::now() + READY;
        loop {
            if let Some(shell) = members().find_map(|member| ZooKeeperShell::connect(member).ok()) {
                return shell;
            }
            assert!(Instant::now() < deadline, "no member takes a session");
            thread::sleep(Duration::from_millis(20));
        }
    }
    /// The paths of all nodes below this one.
    ///
    /// # Panics
    /// No member answers.
    pub fn nodes(&self, below: &str) -> Vec<String> {
        self.shell().below(below).unwrap_or_else(|e| panic!("{below}: {e}"))
    }
    /// Deletes all nodes below this one that have no children. How many.
    ///
    /// # Panics
    /// As there.
    pub fn delete_below(&self, path: &str) -> usize {
        let mut shell = self.shell();
        let nodes = shell.below(path).unwrap_or_else(|e| panic!("{path}: {e}"));
        let leaf = |node: &&String| !nodes.iter().any(|other| other.starts_with(&format!("{node}/")));
        nodes.iter().filter(leaf).filter(|node| shell.delete(node).unwrap_or(false)).count()
    }
    /// Ends the session that this node goes with, if there is one.
    ///
    /// # Panics
    /// The server does not answer.
    pub fn end_session_of(&self, node: &str) {
        if let Some(owner) = self.shell().owner(node).unwrap_or_else(|e| panic!("{node}: {e}")) {
            ZooKeeperShell::end(self.members[0].plain(), owner).unwrap_or_else(|e| panic!("session {owner:x}: {e}"));
        }
    }
    /// Ends every session that is open, the latest first.
    ///
    /// # Panics
    /// As there.
    pub fn end_sessions(&self) {
        let member = self.members[0].plain();
        let dump = self.command(0, "dump").unwrap_or_else(|e| panic!("dump: {e}"));
        let words = dump.split_whitespace().filter_map(|word| word.trim_end_matches(':').strip_prefix("0x"));
        let ids: BTreeSet<i64> = words
            .filter_map(|id| u64::from_str_radix(id, 16).ok())
            .map(u64::cast_signed)
            .filter(|id| *id != 0)
            .collect();
        for id in ids.into_iter().rev() {
            ZooKeeperShell::end(member, id).unwrap_or_else(|e| panic!("session {id:x}: {e}"));
        }
    }
    /// What a member answers to a four-letter word, such as `srvr`; to most of them, while it has no leader, that it
    /// does not serve.
    ///
    /// # Errors
    /// It does not answer within a second.
    pub fn command(&self, member: usize, word: &str) -> io::Result<String> {
        self.members[member].command(word)
    }
    /// A number among those that a member answers to `mntr`, such as `zk_packets_received`: every four-letter word is
    /// one of these packets, and this question, too.
    ///
    /// # Errors
    /// It does not answer within ten seconds, or has no such number.
    pub fn metric(&self, member: usize, key: &str) -> io::Result<f64> {
        let answer = self.members[member].command_within("mntr", PATIENCE)?;
        let mut all = answer.lines().filter_map(|line| line.split_once('\t'));
        let value = all.find(|(name, _)| *name == key).and_then(|(_, value)| value.trim().parse::<f64>().ok());
        value.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no number {key} in {answer:?}")))
    }
    /// ZooKeeper's own client, `zkCli.sh` to an operator, with these words, ready to run.
    pub fn cli(&self, words: &[&str]) -> Command {
        let mut command = Command::new("java");
        // As with the server's.
        for name in VARIABLES {
            command.env_remove(name);
        }
        command.args(java()).arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn");
        if let Some(ZooKeeperTls { client_auth, .. }) = &self.options.tls {
            let file = |name: &str| self.members[0].folder.join(name).display().to_string();
            let mut say = |key: &str, value: &str| {
                command.arg(format!("-Dzookeeper.{key}={value}"));
            };
            say("client.secure", "true");
            say("clientCnxnSocket", "org.apache.zookeeper.ClientCnxnSocketNetty");
            say("ssl.trustStore.type", "PEM");
            say("ssl.trustStore.location", &file("ca.pem"));
            if *client_auth {
                say("ssl.keyStore.type", "PEM");
                say("ssl.keyStore.location", &file("server.pem"));
            }
        }
        command.args(["org.apache.zookeeper.ZooKeeperMain", "-server", &self.endpoints()]).args(words);
        command
    }
    /// What [`cli`](Self::cli) prints as its answer: a value, names. That it has created something is not among it.
    ///
    /// # Panics
    /// It fails.
    pub fn run(&self, words: &[&str]) -> String {
        blocking(|| {
            let output = self.cli(words).output();
            let output = output.unwrap_or_else(|e| panic!("java: {e}; `cargo xtask test` installs it"));
            let (said, why) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert!(output.status.success(), "zkCli.sh {words:?}: {}\n{said}{why}", output.status);
            // Its session's events come in between.
            let events = ["Connecting to ", "WATCHER::", "WatchedEvent "];
            let answer = said.lines().filter(|line| !line.is_empty() && !events.iter().any(|it| line.starts_with(it)));
            answer.map(|line| format!("{line}\n")).collect()
        })
    }
}
/// A member's number among the others; 0 is not one.
fn id(member: usize) -> usize {
    member + 1
}
/// Java's own arguments.
fn java() -> impl Iterator<Item = String> {
    let jars: Vec<_> = JARS.iter().map(|jar| format!("/usr/share/java/{jar}.jar")).collect();
    JAVA.iter().map(|it| (*it).to_owned()).chain(["-cp".to_owned(), jars.join(":")])
}
fn read(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
}
impl Drop for ZooKeeper {
    fn drop(&mut self) {
        self.members.iter().for_each(Member::kill);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pki;

    #[test]
    fn a_member_that_is_killed_keeps_what_it_said_it_has_and_counts_what_it_is_asked() {
        let zookeeper = ZooKeeper::start();
        assert_eq!(zookeeper.url(), format!("zookeeper://127.0.0.1:{}", zookeeper.client_port(0)));
        zookeeper.run(&["create", "/name", "value"]);
        let packets = || zookeeper.metric(0, "zk_packets_received").unwrap();
        let before = packets();
        assert_eq!(packets(), before + 1.0);
        assert_eq!(zookeeper.run(&["get", "/name"]), "value\n");
        assert!(packets() > before + 2.0);
        assert_eq!(zookeeper.command(0, "ruok").unwrap(), "imok");
        assert_eq!(zookeeper.metric(0, "zk_server_state").unwrap_err().kind(), io::ErrorKind::NotFound);
        zookeeper.kill(0);
        assert_eq!(zookeeper.leader(), None);
        zookeeper.restart(0);
        assert_eq!(zookeeper.leader(), Some(0));
        assert_eq!(zookeeper.run(&["get", "/name"]), "value\n");
        let folder = zookeeper.folder().path().to_owned();
        drop(zookeeper);
        assert!(!folder.exists());
    }

    #[test]
    fn of_three_another_one_leads_when_the_leader_is_killed_or_stopped() {
        let zookeeper = ZooKeeper::cluster();
        zookeeper.shell().create("/name", b"value", 0).unwrap();
        let first = leader_but(&zookeeper, None);
        zookeeper.kill(first);
        let second = leader_but(&zookeeper, Some(first));
        assert_eq!(zookeeper.shell().data("/name").unwrap().unwrap(), b"value");
        zookeeper.restart(first);
        zookeeper.pause(second, true);
        leader_but(&zookeeper, Some(second));
        zookeeper.pause(second, false);
    }
    fn leader_but(zookeeper: &ZooKeeper, gone: Option<usize>) -> usize {
        let mut leader = None;
        within_10_s("somebody leads", || {
            leader = zookeeper.leader().filter(|it| Some(*it) != gone);
            leader.is_some()
        });
        leader.unwrap()
    }
    fn within_10_s(what: &str, mut happens: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !happens() {
            assert!(Instant::now() < deadline, "not within 10 s: {what}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    #[test]
    fn an_empty_container_that_had_a_child_is_gone_soon() {
        let zookeeper = ZooKeeper::start();
        let nodes = || zookeeper.metric(0, "zk_znode_count").unwrap();
        let before = nodes();
        zookeeper.run(&["create", "-c", "/container"]);
        zookeeper.run(&["create", "/container/child"]);
        assert_eq!(nodes(), before + 2.0);
        zookeeper.run(&["delete", "/container/child"]);
        within_10_s("the container is gone", || nodes() == before);
    }

    #[test]
    fn with_tls_clients_show_a_certificate_where_that_is_wanted() {
        let pki = Pki::new(&["127.0.0.1"]);
        let file = |name: &str| pki.file(&format!("ours.{name}"));
        let tls = ZooKeeperTls { cert: file("server.crt"), key: file("server.key"), ca: file("ca"), client_auth: true };
        let mut zookeeper = ZooKeeper::with(ZooKeeperOptions { tls: Some(tls), ..Default::default() });
        assert_eq!(zookeeper.url(), format!("zookeepers://{}", zookeeper.endpoints()));
        zookeeper.run(&["create", "/name", "value"]);
        assert_eq!(zookeeper.run(&["get", "/name"]), "value\n");
        // From now on its client shows none.
        if let Some(tls) = &mut zookeeper.options.tls {
            tls.client_auth = false;
        }
        let output = zookeeper.cli(&["get", "/name"]).output().unwrap();
        assert!(!output.status.success(), "{output:?}");
    }

    #[test]
    fn what_it_says_is_told_when_it_does_not_start() {
        let arguments = vec!["tickTime=never".to_owned()];
        let wrong = || ZooKeeper::with(ZooKeeperOptions { arguments, ..Default::default() });
        let why = std::panic::catch_unwind(|| drop(wrong())).unwrap_err();
        let why = why.downcast_ref::<String>().unwrap();
        assert!(why.contains("never"), "{why}");
    }
}
