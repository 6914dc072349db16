//! A private Redis Cluster.
use crate::{
    clock::WallClock,
    process::{Folder, Port},
    redis_process::{Process, READY, catch_up, common, eventually},
    resp::{Reply, fields},
};
use std::{
    io,
    ops::RangeInclusive,
    sync::Arc,
    time::{Duration, Instant},
};

const SLOTS: u16 = 16_384;

/// How it is started.
#[derive(Clone, Debug)]
pub struct RedisClusterOptions {
    /// So many nodes have a part of the slots each, the first ones.
    pub primaries: usize,
    /// So many others follow each of them.
    pub replicas: usize,
    /// Whoever has been silent for so long is down.
    pub node_timeout: Duration,
    /// Every write is on the disk before it is answered; otherwise a node that is started again has forgotten everything but the cluster.
    pub append_only: bool,
    /// Of the default user, who may do everything.
    pub password: Option<String>,
    /// The nodes' wall clocks, where they are not the machine's: of the first of them, and so on.
    pub clocks: Vec<Option<Arc<WallClock>>>,
    /// More lines of every node's configuration, `cluster-require-full-coverage no` for example.
    pub settings: Vec<String>,
}
impl Default for RedisClusterOptions {
    fn default() -> Self {
        Self {
            primaries: 3,
            replicas: 1,
            node_timeout: Duration::from_secs(1),
            append_only: false,
            password: None,
            clocks: Vec::new(),
            settings: Vec::new(),
        }
    }
}

/// One cluster; it is killed, and its folder removed, when this is dropped.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<Node>,
    options: RedisClusterOptions,
    folder: Folder,
}
#[derive(Debug)]
struct Node {
    process: Process,
    /// Where the others find it.
    bus: Port,
    id: String,
}
/// As a node sees one, itself or another.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    id: String,
    flags: String,
    is_linked: bool,
    epoch: u64,
    slots: Vec<RangeInclusive<u16>>,
}
impl Seen {
    /// A line of `CLUSTER NODES`.
    fn new(line: &str) -> Option<Self> {
        let words: Vec<_> = line.split_whitespace().collect();
        let &[id, _, flags, _, _, _, epoch, link, ref slots @ ..] = &words[..] else { return None };
        let range = |word: &&str| {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            Some(first.parse().ok()?..=last.parse().ok()?)
        };
        let (id, flags, is_linked) = (id.to_owned(), flags.to_owned(), link == "connected");
        Some(Self { id, flags, is_linked, epoch: epoch.parse().ok()?, slots: slots.iter().filter_map(range).collect() })
    }
    fn is(&self, flag: &str) -> bool {
        self.flags.split(',').any(|it| it == flag)
    }
    fn owns(&self, slot: u16) -> bool {
        self.slots.iter().any(|range| range.contains(&slot))
    }
}

impl RedisCluster {
    /// Three primaries, the nodes 0 to 2, with one replica each, 3 to 5.
    #[must_use]
    pub fn start() -> Self {
        Self::with(RedisClusterOptions::default())
    }
    /// As the options say. All nodes take commands, and the replicas have what their primaries have.
    ///
    /// # Panics
    /// It does not start.
    #[must_use]
    pub fn with(options: RedisClusterOptions) -> Self {
        assert!(options.primaries > 0, "a cluster without nodes");
        let folder = Folder::new("redis-cluster");
        let node = |n: usize| Node {
            process: Process::new(folder.path().join(format!("n{n}")), options.password.as_deref()),
            bus: Port::free(),
            id: format!("{:040x}", fastrand::u128(..)),
        };
        let nodes = (0..options.primaries * (1 + options.replicas)).map(node).collect();
        let cluster = Self { nodes, options, folder };
        cluster.configure();
        (0..cluster.nodes.len()).for_each(|node| cluster.begin(node));
        cluster.nodes.iter().for_each(|node| is_ready(&node.process));
        cluster.settle(READY);
        cluster
    }
    /// A cluster as it would be written down by one that has run: nobody has to be introduced. What is left of a start are the two seconds
    /// in which a primary that starts takes nothing.
    fn configure(&self) {
        let options = &self.options;
        for (n, Node { process, bus, .. }) in self.nodes.iter().enumerate() {
            let mut lines = common(process.port(), options.append_only, options.password.as_deref());
            lines.extend(["cluster-enabled yes".to_owned(), format!("cluster-port {bus}")]);
            lines.push("cluster-config-file nodes".to_owned());
            lines.push(format!("cluster-node-timeout {}", options.node_timeout.as_millis()));
            lines.extend(options.settings.iter().cloned());
            process.write("conf", &lines);
            let mut known: Vec<_> = (0..self.nodes.len()).map(|other| self.line(other, n)).collect();
            known.push(format!("vars currentEpoch {} lastVoteEpoch 0", options.primaries));
            process.write("nodes", &known);
        }
    }
    /// One node, as it is written down by another.
    fn line(&self, of: usize, by: usize) -> String {
        let primaries = self.options.primaries;
        let Node { process, bus, id } = &self.nodes[of];
        let shard = of % primaries;
        let first = |shard: usize| usize::from(SLOTS) * shard / primaries;
        let (myself, port) = (if of == by { "myself," } else { "" }, process.port());
        let (role, follows, slots) = if of < primaries {
            ("master", "-", format!("{}-{}", first(shard), first(shard + 1) - 1))
        } else {
            ("slave", &*self.nodes[shard].id, String::new())
        };
        let epoch = shard + 1;
        format!("{id} 127.0.0.1:{port}@{bus} {myself}{role} {follows} 0 0 {epoch} connected {slots}")
            .trim_end()
            .to_owned()
    }

    /// Of all nodes, on 127.0.0.1.
    pub fn ports(&self) -> Vec<u16> {
        self.nodes.iter().map(|node| node.process.port()).collect()
    }
    /// Of a node, on 127.0.0.1.
    pub fn port(&self, node: usize) -> u16 {
        self.nodes[node].process.port()
    }
    /// Where the nodes are, with commas.
    pub fn endpoints(&self) -> String {
        let all: Vec<_> = self.ports().iter().map(|port| format!("127.0.0.1:{port}")).collect();
        all.join(",")
    }
    /// A folder for each node, `n0` and so on: its files, and its log.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }
    /// Of a node, as the others call it.
    pub fn id(&self, node: usize) -> &str {
        &self.nodes[node].id
    }
    /// A command of whoever may do everything, and its answer in lines.
    ///
    /// # Errors
    /// The node's own, `MOVED` too, or it does not answer within 5 s.
    pub fn ask(&self, node: usize, words: &[&str]) -> io::Result<String> {
        self.nodes[node].process.ask(words).map(Reply::into_lines)
    }
    /// Where a key belongs.
    ///
    /// # Panics
    /// No node answers.
    pub fn slot(&self, key: &str) -> u16 {
        let slot = |node: usize| self.ask(node, &["CLUSTER", "KEYSLOT", key]).ok()?.parse().ok();
        self.up().find_map(slot).unwrap_or_else(|| panic!("no node answers"))
    }
    /// A key that belongs to a slot of this node's.
    ///
    /// # Panics
    /// It has no slot.
    pub fn key_on(&self, node: usize) -> String {
        let mine = self.own_view(node).unwrap_or_else(|| panic!("node {node} does not answer"));
        let mut keys = (0..1_000).map(|n| format!("key{n}"));
        keys.find(|key| mine.owns(self.slot(key))).unwrap_or_else(|| panic!("node {node} has no slots"))
    }
    /// Who has this slot by its own word; of those who do not run, or are stopped, nobody has one.
    pub fn primary_of(&self, slot: u16) -> Option<usize> {
        let claims = self.up().filter_map(|node| Some((self.own_view(node)?, node)));
        let owner = claims.filter(|(own, _)| own.is("master") && own.owns(slot)).max_by_key(|(own, _)| own.epoch);
        owner.map(|(_, node)| node)
    }
    /// Those that follow this one, by their own word.
    pub fn replicas_of(&self, node: usize) -> Vec<usize> {
        let port = self.port(node);
        self.up().filter(|it| self.nodes[*it].process.replication().follows == Some(port)).collect()
    }
    fn up(&self) -> impl Iterator<Item = usize> {
        (0..self.nodes.len()).filter(|node| self.nodes[*node].process.is_up())
    }
    fn view(&self, node: usize) -> Vec<Seen> {
        let said = self.ask(node, &["CLUSTER", "NODES"]).unwrap_or_default();
        said.lines().filter_map(Seen::new).collect()
    }
    fn own_view(&self, node: usize) -> Option<Seen> {
        self.view(node).into_iter().find(|it| it.is("myself"))
    }

    /// `kill -9`.
    pub fn kill(&self, node: usize) {
        self.nodes[node].process.kill();
    }
    /// Starts a node again with what it knew of the cluster: a primary that nobody has replaced takes nothing for two seconds.
    ///
    /// # Panics
    /// It does not start.
    pub fn restart(&self, node: usize) {
        self.begin(node);
        is_ready(&self.nodes[node].process);
    }
    fn begin(&self, node: usize) {
        let clock = self.options.clocks.get(node).and_then(Option::as_deref);
        self.nodes[node].process.begin(&["redis-server", "conf"].map(str::to_owned), clock);
    }
    /// It is stopped, or goes on.
    pub fn pause(&self, node: usize, paused: bool) {
        self.nodes[node].process.pause(paused);
    }
    /// `CLUSTER FAILOVER`: this replica takes the slots of the node that it follows, which lives on as its replica; nothing is lost.
    ///
    /// # Panics
    /// That takes longer.
    pub fn failover(&self, replica: usize, within: Duration) {
        // Refused, or forgotten, where the other one is not heard of at the moment.
        let asked = std::cell::Cell::new(None::<Instant>);
        let done = || {
            if self.own_view(replica).is_some_and(|own| own.is("master")) {
                return Some(());
            }
            if asked.get().is_none_or(|at| at.elapsed() > Duration::from_secs(5)) {
                asked.set(self.ask(replica, &["CLUSTER", "FAILOVER"]).is_ok().then(Instant::now));
            }
            None
        };
        eventually(within, || self.state(), done);
        eventually(within, || self.state(), || self.agree().then_some(()));
    }
    /// Waits until another one than `old` has this slot, and all that run agree and take commands. Which it is.
    ///
    /// # Panics
    /// That takes longer.
    pub fn promoted(&self, slot: u16, old: usize, within: Duration) -> usize {
        let new = || self.primary_of(slot).filter(|new| *new != old && self.agree());
        eventually(within, || format!("slot {slot}: another one than {old}\n{}", self.state()), new)
    }
    /// Waits until all that run are as after the start: they agree, take commands, and the replicas have what their primaries have.
    ///
    /// # Panics
    /// That takes longer.
    pub fn settle(&self, within: Duration) {
        let in_step = |node: usize| {
            let its = self.nodes[node].process.replication();
            let is_in_step = its.is_primary && its.replicas == self.replicas_of(node).len() || its.is_linked;
            // Else `CLUSTER SLOTS` leaves replicas out.
            let shards =
                self.nodes[node].process.ask(&["CLUSTER", "SHARDS"]).map(Reply::into_texts).unwrap_or_default();
            is_in_step && !shards.iter().any(|it| it == "loading")
        };
        let settled = || (self.agree() && self.up().all(in_step)).then_some(());
        eventually(within, || self.state(), settled);
    }
    /// Waits until all replicas that run have what their primaries have at this moment.
    ///
    /// # Panics
    /// That takes longer.
    pub fn catch_up(&self, within: Duration) {
        for primary in self.up().filter(|node| self.nodes[*node].process.replication().is_primary) {
            let replicas: Vec<_> = self.replicas_of(primary).into_iter().map(|it| &self.nodes[it].process).collect();
            catch_up(&self.nodes[primary].process, &replicas, within);
        }
    }
    /// All that run take commands, hear of each other, and say the same of every slot.
    fn agree(&self) -> bool {
        let is_ok = |node: usize| {
            let info = self.ask(node, &["CLUSTER", "INFO"]).map(|text| fields(&text)).unwrap_or_default();
            info.get("cluster_state").is_some_and(|state| state == "ok")
        };
        let running: Vec<_> = self.up().collect();
        let is_up = |seen: &Seen| running.iter().any(|node| self.nodes[*node].id == seen.id);
        let is_well = |seen: &Seen| seen.is_linked && !["fail", "fail?", "handshake"].iter().any(|flag| seen.is(flag));
        let mut first = None;
        running.iter().all(|node| is_ok(*node))
            && running.iter().all(|node| {
                let view = self.view(*node);
                let well = view.iter().filter(|seen| is_up(seen)).all(is_well);
                let owner = |seen: Seen| (!seen.slots.is_empty()).then_some((seen.id, seen.slots));
                let mut owners: Vec<_> = view.into_iter().filter_map(owner).collect();
                owners.sort_by_key(|(_, slots)| slots.first().map(|range| *range.start()));
                let same = first.get_or_insert_with(|| owners.clone()) == &owners;
                // Whoever has slots and does not run leaves them to nobody.
                well && same && owners.iter().all(|(id, _)| running.iter().any(|node| self.nodes[*node].id == *id))
            })
    }
    fn state(&self) -> String {
        let of = |node: usize| {
            let process = &self.nodes[node].process;
            let (port, replication, nodes) =
                (process.port(), process.replication(), self.ask(node, &["CLUSTER", "NODES"]));
            format!("{node}, at {port}: {replication:?}\n{}\n{}\n", nodes.unwrap_or_default(), process.log())
        };
        self.up().map(of).collect()
    }

    /// Begins to move a slot to another primary: from now on, who wants a key of it that is not here is sent there by `ASK`.
    ///
    /// # Panics
    /// Nobody has it, or it is there already, or a node refuses.
    pub fn move_slot(&self, slot: u16, to: usize) -> MoveOfSlot<'_> {
        let from = self.primary_of(slot).unwrap_or_else(|| panic!("nobody has slot {slot}"));
        let step = MoveOfSlot { cluster: self, slot, from, to };
        step.say(to, &["IMPORTING", self.id(from)]);
        step.say(from, &["MIGRATING", self.id(to)]);
        step
    }
}
fn is_ready(server: &Process) {
    let ready = server.wait("redis-server", "Ready to accept connections");
    assert!(ready, "redis-server did not start:\n{}", server.log());
}

/// A slot that is on its way. One that is dropped stays on its way.
#[derive(Debug)]
pub struct MoveOfSlot<'a> {
    cluster: &'a RedisCluster,
    slot: u16,
    from: usize,
    to: usize,
}
impl MoveOfSlot<'_> {
    /// Who has had it.
    pub fn from(&self) -> usize {
        self.from
    }
    /// How many keys have still to go.
    ///
    /// # Panics
    /// The node does not answer.
    pub fn keys_left(&self) -> usize {
        let slot = self.slot.to_string();
        let many = self.cluster.ask(self.from, &["CLUSTER", "COUNTKEYSINSLOT", &slot]);
        let many = many.and_then(|many| many.parse().map_err(io::Error::other));
        many.unwrap_or_else(|e| panic!("slot {slot}: {e}"))
    }
    /// Moves so many keys at most. How many it were.
    ///
    /// # Panics
    /// A node refuses.
    pub fn move_keys(&self, most: usize) -> usize {
        let (slot, many) = (self.slot.to_string(), most.to_string());
        let source = &self.cluster.nodes[self.from].process;
        let keys = source.ask(&["CLUSTER", "GETKEYSINSLOT", &slot, &many]).map(Reply::into_texts);
        let keys = keys.unwrap_or_else(|e| panic!("slot {slot}: {e}"));
        if !keys.is_empty() {
            self.move_these(&keys.iter().map(String::as_str).collect::<Vec<_>>());
        }
        keys.len()
    }
    /// Moves these keys.
    ///
    /// # Panics
    /// A node refuses: the other one has such a key, say.
    pub fn move_these(&self, keys: &[&str]) {
        let port = self.cluster.port(self.to).to_string();
        let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000"];
        words.extend(self.cluster.options.password.iter().flat_map(|password| ["AUTH", password]));
        words.push("KEYS");
        words.extend(keys);
        let moved = self.cluster.nodes[self.from].process.ask(&words);
        moved.unwrap_or_else(|e| panic!("slot {}: {e}", self.slot));
    }
    /// Moves what is left, and gives the slot to its new node: that one first, then the old one, and the others hear of it.
    ///
    /// # Panics
    /// A node refuses, or it takes longer.
    pub fn finish(self, within: Duration) {
        while self.move_keys(100) > 0 {}
        let id = self.cluster.id(self.to);
        self.say(self.to, &["NODE", id]);
        self.say(self.from, &["NODE", id]);
        let (cluster, slot, to) = (self.cluster, self.slot, self.to);
        let known = || (cluster.primary_of(slot) == Some(to) && cluster.agree()).then_some(());
        eventually(within, || format!("slot {slot} is on {to}\n{}", cluster.state()), known);
    }
    fn say(&self, to: usize, words: &[&str]) {
        let slot = self.slot.to_string();
        let words = [&["CLUSTER", "SETSLOT", &slot], words].concat();
        self.cluster.ask(to, &words).unwrap_or_else(|e| panic!("{words:?} to node {to}: {e}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITHIN: Duration = Duration::from_secs(30);

    fn measured(what: &str, began: Instant) {
        println!("{what}: {:?}", began.elapsed());
    }
    fn refusal(answer: io::Result<String>) -> String {
        answer.unwrap_err().to_string()
    }
    /// (Red: without replicas.)
    #[test]
    fn a_primary_is_killed_its_replica_takes_its_slots_and_it_comes_back_as_a_replica() {
        let began = Instant::now();
        let cluster = RedisCluster::start();
        measured("started", began);
        let key = cluster.key_on(1);
        let slot = cluster.slot(&key);
        assert_eq!((cluster.primary_of(slot), cluster.replicas_of(1)), (Some(1), vec![4]));
        for node in 0..6 {
            let known = cluster.ask(node, &["CLUSTER", "SLOTS"]).unwrap();
            assert!((0..6).all(|node| known.contains(cluster.id(node))), "{known}");
        }
        cluster.ask(1, &["SET", &key, "v"]).unwrap();
        cluster.catch_up(WITHIN);
        assert_eq!(refusal(cluster.ask(0, &["GET", &key])), format!("MOVED {slot} 127.0.0.1:{}", cluster.port(1)));
        let began = Instant::now();
        cluster.kill(1);
        assert_eq!(cluster.promoted(slot, 1, WITHIN), 4);
        measured("killed, and another promoted", began);
        assert_eq!(cluster.ask(4, &["GET", &key]).unwrap(), "v");
        let began = Instant::now();
        cluster.restart(1);
        cluster.settle(WITHIN);
        measured("back as a replica", began);
        assert_eq!((cluster.primary_of(slot), cluster.replicas_of(4)), (Some(4), vec![1]));
        let began = Instant::now();
        cluster.failover(1, WITHIN);
        measured("a failover that was asked for", began);
        assert_eq!(cluster.ask(1, &["GET", &key]).unwrap(), "v");
        let (folder, ports) = (cluster.folder().path().to_owned(), cluster.ports());
        drop(cluster);
        assert!(!folder.exists());
        for port in ports {
            assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err(), "{port} is listened on");
        }
    }
    /// (Red: a `finish` that moves no keys.)
    #[test]
    fn a_slot_is_moved_step_by_step_with_its_keys() {
        let password = Some("secret".to_owned());
        let cluster = RedisCluster::with(RedisClusterOptions { password, ..RedisClusterOptions::default() });
        let slot = cluster.slot("{x}");
        let from = cluster.primary_of(slot).unwrap();
        let to = (from + 1) % 3;
        let key = |n: usize| format!("{{x}}{n}");
        let value = |node: usize, n: usize| cluster.ask(node, &["GET", &key(n)]);
        for n in 0..250 {
            cluster.ask(from, &["SET", &key(n), &n.to_string()]).unwrap();
        }
        let step = cluster.move_slot(slot, to);
        assert_eq!((step.from(), step.keys_left()), (from, 250));
        assert_eq!(step.move_keys(100), 100);
        assert_eq!(step.keys_left(), 150);
        // In the middle: what is here is answered, and what is not is there.
        let (here, gone): (Vec<_>, Vec<_>) = (0..250).map(|n| value(from, n)).partition(io::Result::is_ok);
        assert_eq!((here.len(), gone.len()), (150, 100));
        let port = cluster.port(to);
        assert!(gone.into_iter().all(|answer| refusal(answer) == format!("ASK {slot} 127.0.0.1:{port}")));
        assert!(refusal(value(to, 0)).starts_with("MOVED "));
        step.finish(WITHIN);
        assert_eq!(cluster.primary_of(slot), Some(to));
        for n in 0..250 {
            assert_eq!(value(to, n).unwrap(), n.to_string());
        }
        assert_eq!(refusal(value(from, 0)), format!("MOVED {slot} 127.0.0.1:{port}"));
        // With its replica, which has got them, too.
        cluster.catch_up(WITHIN);
        cluster.failover(cluster.replicas_of(to)[0], WITHIN);
        assert_eq!(value(cluster.primary_of(slot).unwrap(), 7).unwrap(), "7");
    }
    /// (Red: without the clock; a primary that is not stopped.)
    #[test]
    fn a_primary_is_stopped_and_one_whose_clock_is_behind_takes_its_slots() {
        let clock = Arc::new(WallClock::new());
        clock.step(Duration::from_millis(60_500), false);
        let clocks = vec![None, None, None, Some(clock)];
        let cluster = RedisCluster::with(RedisClusterOptions { clocks, ..RedisClusterOptions::default() });
        let slot = cluster.slot(&cluster.key_on(0));
        cluster.pause(0, true);
        assert_eq!(cluster.promoted(slot, 0, WITHIN), 3);
        let time = |node| cluster.ask(node, &["TIME"]).unwrap().lines().next().unwrap().parse::<i64>().unwrap();
        let behind = time(1) - time(3);
        assert!((59..=62).contains(&behind), "{behind}");
        cluster.pause(0, false);
        cluster.settle(WITHIN);
        assert_eq!(cluster.primary_of(slot), Some(3));
    }
}
