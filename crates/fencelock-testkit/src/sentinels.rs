//! A private redis-server with replicas, and the sentinels that watch over them.
use crate::{
    clock::WallClock,
    process::Folder,
    redis_process::{Process, READY, catch_up, common, eventually},
    resp::Reply,
};
use std::{collections::BTreeMap, io, sync::Arc, time::Duration};

/// How they are started.
#[derive(Clone, Debug)]
pub struct SentinelsOptions {
    /// So many servers: at first, the first of them is the primary, and the others are its replicas.
    pub servers: usize,
    /// So many sentinels: more than half of them have to agree.
    pub sentinels: usize,
    /// As sentinels call the servers.
    pub name: String,
    /// Whoever has been silent for so long is down. A busy machine needs more than half a second.
    pub down_after: Duration,
    /// After a failover that came to nothing the next one begins in twice this time.
    pub failover_timeout: Duration,
    /// How often a sentinel tells what it knows; it asks servers how they are after five of these. After four, a primary that another one
    /// has replaced is told to follow that. Sentinel's own is 2 s.
    pub hello: Duration,
    /// Every write is on the disk before it is answered; otherwise a server that is started again has forgotten everything.
    pub append_only: bool,
    /// Of the servers' default user, who may do everything.
    pub password: Option<String>,
    /// Of the sentinels' default user.
    pub sentinel_password: Option<String>,
    /// The servers' wall clocks, where they are not the machine's: of the first of them, and so on.
    pub clocks: Vec<Option<Arc<WallClock>>>,
    /// More lines of every server's configuration, `min-replicas-to-write 1` for example.
    pub settings: Vec<String>,
    /// More lines of every sentinel's configuration.
    pub sentinel_settings: Vec<String>,
}
impl Default for SentinelsOptions {
    fn default() -> Self {
        Self {
            servers: 3,
            sentinels: 3,
            name: "main".to_owned(),
            down_after: Duration::from_secs(1),
            failover_timeout: Duration::from_secs(2),
            hello: Duration::from_millis(250),
            append_only: false,
            password: None,
            sentinel_password: None,
            clocks: Vec::new(),
            settings: Vec::new(),
            sentinel_settings: Vec::new(),
        }
    }
}

/// Servers and their sentinels; they are killed, and their folder removed, when this is dropped.
#[derive(Debug)]
pub struct Sentinels {
    servers: Vec<Process>,
    sentinels: Vec<Process>,
    options: SentinelsOptions,
    folder: Folder,
}
impl Sentinels {
    /// A primary, two replicas, three sentinels.
    #[must_use]
    pub fn start() -> Self {
        Self::with(SentinelsOptions::default())
    }
    /// As the options say. The replicas have what the primary has, and all sentinels know that, and each other.
    ///
    /// # Panics
    /// They do not start.
    #[must_use]
    pub fn with(options: SentinelsOptions) -> Self {
        assert!(options.servers > 0 && options.sentinels > 0, "a server and a sentinel at least");
        let folder = Folder::new("sentinels");
        let process =
            |name: String, password: &Option<String>| Process::new(folder.path().join(name), password.as_deref());
        let servers = (0..options.servers).map(|n| process(format!("n{n}"), &options.password)).collect();
        let sentinels = (0..options.sentinels).map(|n| process(format!("s{n}"), &options.sentinel_password)).collect();
        let all = Self { servers, sentinels, options, folder };
        all.configure();
        (0..all.servers.len()).for_each(|server| all.begin(server));
        all.servers.iter().for_each(is_ready);
        // What a sentinel is told first it believes for five hellos.
        eventually(READY, || all.logs(&all.servers), || all.are_in_step(0).then_some(()));
        (0..all.sentinels.len()).for_each(|sentinel| all.begin_sentinel(sentinel));
        (0..all.sentinels.len()).for_each(|sentinel| all.hurry(sentinel));
        all.settle(READY);
        all
    }
    /// What is known of all is written down for all: they need not find each other.
    fn configure(&self) {
        let options = &self.options;
        for (n, server) in self.servers.iter().enumerate() {
            let mut lines = common(server.port(), options.append_only, options.password.as_deref());
            lines.extend(options.settings.iter().cloned());
            if n > 0 {
                lines.push(format!("replicaof 127.0.0.1 {}", self.port(0)));
            }
            server.write("conf", &lines);
        }
        let id = |_: &Process| format!("{:040x}", fastrand::u128(..));
        let ids: Vec<_> = self.sentinels.iter().map(id).collect();
        let name = &options.name;
        for (n, sentinel) in self.sentinels.iter().enumerate() {
            let mut lines = vec![format!("port {}", sentinel.port()), "bind 127.0.0.1".to_owned()];
            // It is also what they say to each other.
            lines.extend(options.sentinel_password.iter().map(|password| format!("requirepass {password}")));
            let quorum = self.sentinels.len() / 2 + 1;
            lines.push(format!("sentinel myid {}", ids[n]));
            lines.push(format!("sentinel monitor {name} 127.0.0.1 {} {quorum}", self.port(0)));
            lines.push(format!("sentinel down-after-milliseconds {name} {}", options.down_after.as_millis()));
            lines.push(format!("sentinel failover-timeout {name} {}", options.failover_timeout.as_millis()));
            lines.extend(options.password.iter().map(|password| format!("sentinel auth-pass {name} {password}")));
            for server in &self.servers[1..] {
                lines.push(format!("sentinel known-replica {name} 127.0.0.1 {}", server.port()));
            }
            for (other, id) in self.sentinels.iter().zip(&ids).filter(|(_, id)| **id != ids[n]) {
                lines.push(format!("sentinel known-sentinel {name} 127.0.0.1 {} {id}", other.port()));
            }
            lines.extend(options.sentinel_settings.iter().cloned());
            sentinel.write("conf", &lines);
        }
    }

    /// As sentinels call the servers.
    pub fn name(&self) -> &str {
        &self.options.name
    }
    /// Of the sentinels, on 127.0.0.1.
    pub fn sentinel_ports(&self) -> Vec<u16> {
        self.sentinels.iter().map(Process::port).collect()
    }
    /// Where the sentinels are, with commas.
    pub fn endpoints(&self) -> String {
        let all: Vec<_> = self.sentinel_ports().iter().map(|port| format!("127.0.0.1:{port}")).collect();
        all.join(",")
    }
    /// Of a server, on 127.0.0.1.
    pub fn port(&self, server: usize) -> u16 {
        self.servers[server].port()
    }
    /// A folder for each server and sentinel, `n0`, `s0` and so on: its files, and its log.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }
    /// The primary, as more than half of the sentinels say.
    pub fn primary(&self) -> Option<usize> {
        let said: Vec<_> = (0..self.sentinels.len()).filter_map(|sentinel| self.primary_by(sentinel)).collect();
        let votes = |server: usize| said.iter().filter(|it| **it == server).count();
        (0..self.servers.len()).find(|server| votes(*server) * 2 > self.sentinels.len())
    }
    /// The primary, as this sentinel says.
    pub fn primary_by(&self, sentinel: usize) -> Option<usize> {
        self.number(self.view(sentinel).get("port")?)
    }
    /// Of the configuration that this sentinel has: each failover takes a greater one.
    pub fn epoch_by(&self, sentinel: usize) -> Option<u64> {
        self.view(sentinel).get("config-epoch")?.parse().ok()
    }
    /// It takes writes by its own word.
    pub fn is_primary(&self, server: usize) -> bool {
        self.servers[server].is_up() && self.servers[server].replication().is_primary
    }
    fn number(&self, port: &str) -> Option<usize> {
        self.servers.iter().position(|server| server.port().to_string() == port)
    }
    /// What `SENTINEL MASTER` says; nothing where this sentinel does not answer.
    fn view(&self, sentinel: usize) -> BTreeMap<String, String> {
        let sentinel = &self.sentinels[sentinel];
        let asked = sentinel.is_up().then(|| sentinel.ask(&["SENTINEL", "MASTER", self.name()]).ok()).flatten();
        asked.map(Reply::into_fields).unwrap_or_default()
    }
    /// A command of whoever may do everything, and its answer in lines.
    ///
    /// # Errors
    /// The server's own, or it does not answer within 5 s.
    pub fn ask(&self, server: usize, words: &[&str]) -> io::Result<String> {
        self.servers[server].ask(words).map(Reply::into_lines)
    }
    /// As [`ask`](Self::ask), of a sentinel.
    ///
    /// # Errors
    /// The sentinel's own, or it does not answer within 5 s.
    pub fn ask_sentinel(&self, sentinel: usize, words: &[&str]) -> io::Result<String> {
        self.sentinels[sentinel].ask(words).map(Reply::into_lines)
    }

    /// `kill -9` of a server.
    pub fn kill(&self, server: usize) {
        self.servers[server].kill();
    }
    /// Starts a server again as its own configuration says: one that was the primary when it was killed is one again, without what was
    /// not on its disk, until the sentinels tell it otherwise.
    ///
    /// # Panics
    /// It does not start.
    pub fn restart(&self, server: usize) {
        self.begin(server);
        is_ready(&self.servers[server]);
    }
    fn begin(&self, server: usize) {
        let clock = self.options.clocks.get(server).and_then(Option::as_deref);
        self.servers[server].begin(&["redis-server", "conf"].map(str::to_owned), clock);
    }
    /// A server is stopped, or goes on.
    pub fn pause(&self, server: usize, paused: bool) {
        self.servers[server].pause(paused);
    }
    /// `kill -9` of a sentinel.
    pub fn kill_sentinel(&self, sentinel: usize) {
        self.sentinels[sentinel].kill();
    }
    /// Starts a sentinel again, with what it knew.
    ///
    /// # Panics
    /// It does not start.
    pub fn restart_sentinel(&self, sentinel: usize) {
        self.begin_sentinel(sentinel);
        self.hurry(sentinel);
    }
    fn begin_sentinel(&self, sentinel: usize) {
        self.sentinels[sentinel].begin(&["redis-sentinel", "conf"].map(str::to_owned), None);
    }
    /// What no configuration can say.
    fn hurry(&self, sentinel: usize) {
        let sentinel = &self.sentinels[sentinel];
        assert!(
            sentinel.wait("redis-sentinel", "+monitor master"),
            "redis-sentinel did not start:\n{}",
            sentinel.log()
        );
        let millis = |time: Duration| time.as_millis().max(1).to_string();
        let hello = self.options.hello;
        // By itself it asks for the first sign of life when so long has passed as a server may be silent: of one that it has just heard of
        // it often says that it is down, and then all vote once more. But what it has heard before five of these pings is nothing to it when
        // it chooses whom to promote, and then it asks once a second.
        let ping = (self.options.down_after / 2).max(Duration::from_millis(250));
        let (hello, info, ping) = (millis(hello), millis(hello * 5), millis(ping));
        let periods = ["PUBLISH-PERIOD", &hello, "INFO-PERIOD", &info, "PING-PERIOD", &ping, "ASK-PERIOD", "250"];
        // A machine that stands still for a moment is no reason to do nothing for half a minute.
        let words = [&["SENTINEL", "DEBUG"], &periods[..], &["TILT-PERIOD", "1000"]].concat();
        sentinel.ask(&words).unwrap_or_else(|e| panic!("{words:?}: {e}\n{}", sentinel.log()));
    }
    /// A sentinel is stopped, or goes on.
    pub fn pause_sentinel(&self, sentinel: usize, paused: bool) {
        self.sentinels[sentinel].pause(paused);
    }

    /// From now on, the sentinels rather promote this server than others, and know so.
    ///
    /// # Panics
    /// They do not come to know.
    pub fn prefer(&self, server: usize) {
        for (n, process) in self.servers.iter().enumerate().filter(|(_, process)| process.is_up()) {
            let rank = if n == server { "1" } else { "100" };
            process.ask(&["CONFIG", "SET", "replica-priority", rank]).unwrap_or_else(|e| panic!("{rank}: {e}"));
        }
        let knows = |sentinel: &Process| {
            let is = |it: &BTreeMap<String, String>| {
                it.get("slave-priority").is_none_or(|rank| (rank == "1") == (self.number(&it["port"]) == Some(server)))
            };
            self.replicas_by(sentinel).iter().all(is)
        };
        let known = || self.sentinels.iter().filter(|it| it.is_up()).all(knows).then_some(());
        eventually(READY, || self.logs(&self.sentinels), known);
    }
    /// `SENTINEL FAILOVER`: another server becomes the primary although this one runs, which takes writes until it is told: after four
    /// hellos or more. As [`promoted`](Self::promoted).
    ///
    /// # Panics
    /// None becomes it.
    pub fn failover(&self, within: Duration) -> usize {
        let old = eventually(within, || self.logs(&self.sentinels), || self.primary());
        // Refused for as long as there is another one, and while no replica is good enough.
        let begun = || {
            let up = (0..self.sentinels.len()).find(|it| self.sentinels[*it].is_up())?;
            self.ask_sentinel(up, &["SENTINEL", "FAILOVER", self.name()]).ok()
        };
        eventually(within, || self.logs(&self.sentinels), begun);
        self.promoted(old, within)
    }
    /// Waits until all sentinels that run say that another server is the primary, and it says so, too.
    ///
    /// # Panics
    /// That takes longer.
    pub fn promoted(&self, old: usize, within: Duration) -> usize {
        let all_say = || {
            let up = (0..self.sentinels.len()).filter(|it| self.sentinels[*it].is_up());
            let said: Vec<_> = up.map(|it| self.primary_by(it)).collect();
            let new = said.first().copied().flatten()?;
            (new != old && said.iter().all(|it| *it == Some(new)) && self.is_primary(new)).then_some(new)
        };
        eventually(within, || format!("a primary but {old}\n{}", self.logs(&self.sentinels)), all_say)
    }
    /// Waits until all that run are as after the start: one primary, whose replicas have what it has, and sentinels that know. Which it is.
    ///
    /// # Panics
    /// That takes longer.
    pub fn settle(&self, within: Duration) -> usize {
        let settled = || {
            let primary = self.primary().filter(|primary| self.are_in_step(*primary))?;
            let mut up = (0..self.sentinels.len()).filter(|it| self.sentinels[*it].is_up());
            up.all(|it| self.knows_all(it, primary)).then_some(primary)
        };
        let state = || {
            let servers = self.servers.iter().filter(|it| it.is_up()).map(|it| (it.port(), it.replication()));
            format!("{:?}\n{}", servers.collect::<Vec<_>>(), self.logs(&self.sentinels))
        };
        eventually(within, state, settled)
    }
    /// Waits until all replicas that run have what the primary has at this moment.
    ///
    /// # Panics
    /// There is no primary, or that takes longer.
    pub fn catch_up(&self, within: Duration) {
        let primary = self.primary().unwrap_or_else(|| panic!("there is no primary"));
        let up = self.servers.iter().filter(|it| it.is_up());
        catch_up(&self.servers[primary], &up.collect::<Vec<_>>(), within);
    }
    fn are_in_step(&self, primary: usize) -> bool {
        let port = self.port(primary);
        let up = || self.servers.iter().filter(|server| server.is_up());
        let follows = |server: &Process| {
            let its = server.replication();
            its.follows == Some(port) && its.is_linked
        };
        let its = self.servers[primary].replication();
        its.is_primary && its.replicas + 1 == up().count() && up().filter(|it| it.port() != port).all(follows)
    }
    fn knows_all(&self, sentinel: usize, primary: usize) -> bool {
        let view = self.view(sentinel);
        let says = |name: &str, value: &str| view.get(name).is_some_and(|it| it == value);
        let count = |name: &str, many: usize| says(name, &many.to_string());
        let (primary, sentinel) = (self.port(primary).to_string(), &self.sentinels[sentinel]);
        let up = |port: &String| {
            let all = self.servers.iter().chain(&self.sentinels);
            all.filter(|it| it.is_up()).any(|it| it.port().to_string() == *port)
        };
        let is_well = |it: &BTreeMap<String, String>, kind: &str| {
            let says = |name: &str, value: &str| it.get(name).is_some_and(|it| it == value);
            !up(&it["port"])
                || says("flags", kind)
                    && (kind != "slave" || says("master-link-status", "ok") && says("master-port", &primary))
        };
        says("port", &primary)
            && says("flags", "master")
            && count("num-slaves", self.servers.len() - 1)
            && count("num-other-sentinels", self.sentinels.len() - 1)
            && self.replicas_by(sentinel).iter().all(|it| is_well(it, "slave"))
            && self.list(sentinel, "SENTINELS").iter().all(|it| is_well(it, "sentinel"))
    }
    fn replicas_by(&self, sentinel: &Process) -> Vec<BTreeMap<String, String>> {
        self.list(sentinel, "REPLICAS")
    }
    fn list(&self, sentinel: &Process, what: &str) -> Vec<BTreeMap<String, String>> {
        match sentinel.ask(&["SENTINEL", what, self.name()]) {
            Ok(Reply::List(all)) => all.into_iter().map(Reply::into_fields).collect(),
            _ => Vec::new(),
        }
    }
    fn logs(&self, of: &[Process]) -> String {
        of.iter().map(|process| format!("{}:\n{}\n", process.port(), process.log())).collect()
    }
}
fn is_ready(server: &Process) {
    let ready = server.wait("redis-server", "Ready to accept connections");
    assert!(ready, "redis-server did not start:\n{}", server.log());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    const WITHIN: Duration = Duration::from_secs(30);

    fn measured(what: &str, began: Instant) {
        println!("{what}: {:?}", began.elapsed());
    }
    /// (Red: a quorum of more sentinels than there are.)
    #[test]
    fn the_primary_is_killed_another_is_promoted_and_the_first_comes_back_as_its_replica() {
        let began = Instant::now();
        let all = Sentinels::start();
        measured("started", began);
        assert_eq!(all.primary(), Some(0));
        all.ask(0, &["SET", "k", "v"]).unwrap();
        all.catch_up(WITHIN);
        let epochs = || (0..3).map(|sentinel| all.epoch_by(sentinel)).collect::<Vec<_>>();
        assert_eq!(epochs(), [Some(0); 3]);
        let began = Instant::now();
        all.kill(0);
        let new = all.promoted(0, WITHIN);
        measured("killed, and another promoted", began);
        assert_ne!(new, 0);
        assert_eq!(all.ask(new, &["GET", "k"]).unwrap(), "v");
        all.ask(new, &["SET", "k", "w"]).unwrap();
        assert_eq!(epochs(), [epochs()[0]; 3]);
        assert!(epochs()[0] > Some(0));
        // It knows nothing of what was meanwhile.
        let began = Instant::now();
        all.restart(0);
        assert!(all.is_primary(0));
        assert_eq!(all.ask(0, &["GET", "k"]).unwrap(), "");
        assert_eq!(all.settle(WITHIN), new);
        measured("back as a replica", began);
        assert_eq!(all.ask(0, &["GET", "k"]).unwrap(), "w");
        let folder = all.folder().path().to_owned();
        let ports: Vec<_> = all.sentinel_ports().into_iter().chain((0..3).map(|server| all.port(server))).collect();
        drop(all);
        assert!(!folder.exists());
        for port in ports {
            assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err(), "{port} is listened on");
        }
    }
    /// (Red: without the clock; a `prefer` of another one.)
    #[test]
    fn one_whose_clock_is_behind_is_promoted_while_the_first_is_stopped_and_a_failover_is_asked_for() {
        let clock = Arc::new(WallClock::new());
        clock.step(Duration::from_secs(60), false);
        let clocks = vec![None, None, Some(clock)];
        let all = Sentinels::with(SentinelsOptions { clocks, ..SentinelsOptions::default() });
        let time = |server| all.ask(server, &["TIME"]).unwrap().lines().next().unwrap().parse::<i64>().unwrap();
        all.prefer(2);
        all.pause(0, true);
        assert_eq!(all.promoted(0, WITHIN), 2);
        let behind = time(1) - time(2);
        assert!((59..=61).contains(&behind), "{behind}");
        all.pause(0, false);
        assert_eq!(all.settle(WITHIN), 2);
        all.prefer(0);
        let began = Instant::now();
        assert_eq!(all.failover(WITHIN), 0);
        measured("a failover that was asked for", began);
        assert_eq!(all.settle(WITHIN), 0);
        // Two of three are enough.
        all.kill_sentinel(1);
        assert_eq!((all.primary(), all.primary_by(1)), (Some(0), None));
        all.pause_sentinel(2, true);
        assert_eq!(all.primary(), None);
        all.pause_sentinel(2, false);
        all.restart_sentinel(1);
        assert_eq!(all.settle(WITHIN), 0);
    }
    /// (Red: without `sentinel auth-pass`.)
    #[test]
    fn with_passwords_and_a_primary_that_takes_nothing_without_replicas() {
        let (password, sentinel_password) = (Some("secret".to_owned()), Some("other".to_owned()));
        let settings = vec!["min-replicas-to-write 1".to_owned(), "user app on >pw ~a* &* +@all".to_owned()];
        let all =
            Sentinels::with(SentinelsOptions { password, sentinel_password, settings, ..SentinelsOptions::default() });
        let refused = crate::resp::ask(all.port(0), None, &["SET", "a", "1"], WITHIN).unwrap_err();
        assert!(refused.to_string().starts_with("NOAUTH"), "{refused}");
        let refused = crate::resp::ask(all.sentinel_ports()[0], None, &["SENTINEL", "MASTERS"], WITHIN).unwrap_err();
        assert!(refused.to_string().starts_with("NOAUTH"), "{refused}");
        all.ask(0, &["SET", "a", "1"]).unwrap();
        assert!(all.ask(0, &["ACL", "LIST"]).unwrap().contains("user app on"));
        all.kill(0);
        let new = all.promoted(0, WITHIN);
        assert_eq!(all.settle(WITHIN), new);
        all.ask(new, &["SET", "a", "2"]).unwrap();
        let last = 3 - new;
        all.kill(last);
        let refused = || all.ask(new, &["SET", "a", "3"]).err().filter(|e| e.to_string().starts_with("NOREPLICAS"));
        eventually(WITHIN, || "a write without replicas".to_owned(), refused);
    }
}
