//! A network for the members of a cluster, in which one of them can be cut off from the others, while its clients still reach it.
use crate::process::{Folder, signal, spawn};
use rustix::process::{Signal, geteuid};
use std::{
    fs,
    net::Ipv4Addr,
    path::PathBuf,
    process::{Child, Command},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

const INSIDE: &str = "FENCELOCK_IN_ITS_OWN_NETWORK";
/// The members speak to each other there, and to nobody else.
const PEERS: &str = "peers";
/// Clients speak to the members there.
const CLIENTS: &str = "clients";

/// Runs the test of this name in a network of its own: true inside, where it may have a [`Network`]. What it makes there is gone with
/// the last process in it.
///
/// # Panics
/// The test fails there, or there can be no such network: the kernel wants root, or namespaces of users.
#[must_use]
pub fn in_its_own_network(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        ip(&["link", "set", "lo", "up"]);
        return true;
    }
    // Whole clusters, side by side, would only measure each other.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let binary = std::env::current_exe().unwrap_or_else(|e| panic!("this test's program: {e}"));
    let mut command = Command::new("unshare");
    command.arg("--net");
    if !geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.arg("--").arg(binary).args([test, "--exact", "--nocapture"]).env(INSIDE, "1");
    let output = command.output().unwrap_or_else(|e| panic!("unshare: {e}"));
    let (said, why) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{said}");
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{test} in its own network: {}\n{why}",
        output.status
    );
    false
}

/// Two networks of so many members: theirs, and that of their clients, who are in the network of the test.
#[derive(Debug)]
pub struct Network {
    /// Somebody who is in a member's namespace as long as it lasts.
    members: Vec<Child>,
    _folder: Folder,
}
impl Network {
    /// Only [`in_its_own_network`].
    ///
    /// # Panics
    /// It cannot be made.
    #[must_use]
    pub fn new(members: usize) -> Self {
        assert!(std::env::var_os(INSIDE).is_some(), "not in a network of its own");
        let folder = Folder::new("network");
        let inhabit = ["unshare", "--net", "sleep", "infinity"].map(str::to_owned);
        let start = |_| spawn(&inhabit, [], folder.path()).unwrap_or_else(|e| panic!("unshare: {e}"));
        let members = (0..members).map(start).collect();
        let network = Self { members, _folder: folder };
        for switch in [PEERS, CLIENTS] {
            ip(&["link", "add", switch, "type", "bridge"]);
            ip(&["link", "set", switch, "up"]);
        }
        ip(&["addr", "add", &format!("{}/24", address(CLIENTS, 253)), "dev", CLIENTS]);
        for member in 0..network.members.len() {
            network.plug_in(member);
        }
        network
    }
    fn plug_in(&self, member: usize) {
        let pid = self.members[member].id().to_string();
        let namespace = |pid: &str| fs::read_link(PathBuf::from("/proc").join(pid).join("ns/net")).ok();
        let deadline = Instant::now() + Duration::from_secs(10);
        while namespace(&pid).is_none_or(|its| Some(its) == namespace("self")) {
            assert!(Instant::now() < deadline, "member {member} has no network of its own");
            thread::sleep(Duration::from_millis(1));
        }
        let inside = |words: &[&str]| run("nsenter", &[&["--target", &pid, "--net", "ip"], words].concat());
        inside(&["link", "set", "lo", "up"]);
        for switch in [PEERS, CLIENTS] {
            let port = port(switch, member);
            ip(&["link", "add", &port, "type", "veth", "peer", "name", switch, "netns", &pid]);
            ip(&["link", "set", &port, "master", switch, "up"]);
            inside(&["addr", "add", &format!("{}/24", address(switch, member)), "dev", switch]);
            inside(&["link", "set", switch, "up"]);
        }
    }
    /// Where a member is to the others.
    pub fn peer(&self, member: usize) -> Ipv4Addr {
        address(PEERS, member)
    }
    /// Where it is to its clients.
    pub fn client(&self, member: usize) -> Ipv4Addr {
        address(CLIENTS, member)
    }
    /// What a member and the others say to each other is lost, or arrives again.
    ///
    /// # Panics
    /// It cannot be done.
    pub fn cut_off(&self, member: usize, cut: bool) {
        let port = port(PEERS, member);
        if cut {
            ip(&["link", "set", &port, "nomaster"]);
        } else {
            ip(&["link", "set", &port, "master", PEERS]);
        }
    }
}
impl Drop for Network {
    fn drop(&mut self) {
        for member in &mut self.members {
            signal(member, Signal::KILL);
            let _ = member.wait();
        }
        for switch in [PEERS, CLIENTS] {
            ip(&["link", "del", switch]);
        }
    }
}
/// The words before those of a command that is to run there.
pub(crate) fn inside(network: Option<&Network>, member: usize) -> Vec<String> {
    let enter = |network: &Network| {
        ["nsenter", "--target", &network.members[member].id().to_string(), "--net"].map(str::to_owned)
    };
    network.map(enter).into_iter().flatten().collect()
}
fn port(switch: &str, member: usize) -> String {
    format!("{switch}{member}")
}
fn address(switch: &str, member: usize) -> Ipv4Addr {
    let member = u8::try_from(member + 1).unwrap_or_else(|_| panic!("{member} is one member too many"));
    Ipv4Addr::new(10, 77, if switch == PEERS { 1 } else { 2 }, member)
}
fn ip(words: &[&str]) {
    run("ip", words);
}
fn run(program: &str, words: &[&str]) {
    let output = Command::new(program).args(words).output();
    let output = output.unwrap_or_else(|e| panic!("{program}: {e}; `cargo xtask test` installs it"));
    assert!(output.status.success(), "{program} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
}
