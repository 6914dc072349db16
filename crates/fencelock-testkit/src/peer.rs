//! Other people's clients, as processes that are told what to do: a line in, a line out.
use crate::{Redis, ZooKeeper};
use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Mutex, PoisonError, mpsc},
    thread,
    time::Duration,
};

const PATIENCE: Duration = Duration::from_secs(120);
const JARS: &str = "/usr/share/java/curator-recipes.jar";
const LOG: &str = "/usr/share/java/slf4j-nop.jar";

/// A client that is not ours. Killed when it is dropped.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    input: ChildStdin,
    lines: mpsc::Receiver<String>,
}
impl Peer {
    /// Apache Curator, in Java.
    ///
    /// # Panics
    /// It cannot be built or started; `cargo xtask test` installs what it needs.
    pub fn curator(zk: &ZooKeeper, login: Option<&str>) -> Self {
        let folder = kept("interop-curator", &interop("zookeeper/CuratorPeer.java"), |folder, source| {
            let mut javac = Command::new("javac");
            javac.args(["-proc:none", "-implicit:none", "-cp", JARS, "-d"]).arg(folder).arg(source);
            javac
        });
        let class_path = format!("{}:{JARS}:{LOG}", folder.display());
        let mut command = Command::new("java");
        command.args(["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", &class_path, "CuratorPeer"]);
        Self::on_zookeeper(command, zk, login)
    }
    /// kazoo, in Python.
    ///
    /// # Panics
    /// As there.
    pub fn kazoo(zk: &ZooKeeper, login: Option<&str>) -> Self {
        let packages = kept("interop-python", &interop("zookeeper/requirements.txt"), pip);
        let mut command = Command::new("python3");
        command.env("PYTHONPATH", &packages).arg(interop("zookeeper/kazoo_peer.py"));
        Self::on_zookeeper(command, zk, login)
    }
    /// redis-py, python-redis-lock and pottery, in Python.
    ///
    /// # Panics
    /// As there.
    pub fn redis_python(server: &Redis) -> Self {
        let packages = kept("interop-redis-python", &interop("redis/requirements.txt"), pip);
        let mut command = Command::new("python3");
        command.env("PYTHONPATH", &packages).arg(interop("redis/peer.py")).arg(format!("127.0.0.1:{}", server.port()));
        Self::start(command)
    }
    /// node-redlock, redis-semaphore and node-redisson, in JavaScript.
    ///
    /// # Panics
    /// As there.
    pub fn redis_node(server: &Redis) -> Self {
        let packages = kept("interop-redis-node", &interop("redis/packages.json"), |folder, packages| {
            let mut npm = Command::new("sh");
            let script = "cp \"$1\" \"$2\"/package.json && exec npm install --silent --no-fund --no-audit --legacy-peer-deps --prefix \"$2\"";
            npm.args(["-c", script, "npm"]).arg(packages).arg(folder);
            npm
        });
        let mut command = Command::new("node");
        command.env("NODE_PATH", packages.join("node_modules")).arg(interop("redis/peer.js"));
        command.arg(format!("127.0.0.1:{}", server.port()));
        Self::start(command)
    }
    fn on_zookeeper(mut command: Command, zk: &ZooKeeper, login: Option<&str>) -> Self {
        command.args([&zk.endpoints(), "10000"]);
        if let Some(login) = login {
            command.args(["digest", login]);
        }
        Self::start(command)
    }
    fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let (input, output) =
            child.stdin.take().zip(child.stdout.take()).unwrap_or_else(|| unreachable!("both are pipes"));
        let (tx, lines) = mpsc::channel();
        thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).for_each(|line| drop(tx.send(line)))
        });
        let peer = Self { child, input, lines };
        assert_eq!(peer.hear(), "ready");
        peer
    }
    /// Says a line; the answer is heard later.
    ///
    /// # Panics
    /// It has ended.
    pub fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").and_then(|()| self.input.flush()).unwrap_or_else(|e| panic!("{line}: {e}"));
    }
    /// The next answer.
    ///
    /// # Panics
    /// There is none within two minutes.
    pub fn hear(&self) -> String {
        self.lines.recv_timeout(PATIENCE).unwrap_or_else(|e| panic!("a peer does not answer: {e}"))
    }
    /// An answer that is there already.
    pub fn heard(&self) -> Option<String> {
        self.lines.try_recv().ok()
    }
    /// Both.
    ///
    /// # Panics
    /// As those.
    pub fn ask(&mut self, line: &str) -> String {
        self.say(line);
        self.hear()
    }
    /// A lock of this kind that it has got: the handle, and its node.
    ///
    /// # Panics
    /// It has not.
    pub fn acquire(&mut self, words: &str) -> (String, String) {
        let answer = self.ask(&format!("acquire {words}"));
        let mut parts = answer.splitn(3, ' ');
        match (parts.next(), parts.next(), parts.next()) {
            (Some("ok"), Some(handle), Some(node)) => (handle.to_owned(), node.to_owned()),
            _ => panic!("acquire {words}: {answer}"),
        }
    }
    /// Gives it back.
    ///
    /// # Panics
    /// It says that it did not have it.
    pub fn release(&mut self, handle: &str) {
        assert_eq!(self.ask(&format!("release {handle}")), "ok");
    }
}
impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
fn pip(folder: &Path, requirements: &Path) -> Command {
    let mut pip = Command::new("pip3");
    pip.args(["install", "--quiet", "--disable-pip-version-check", "--upgrade", "--target"]).arg(folder);
    pip.arg("-r").arg(requirements);
    pip
}
/// A folder of `target`, made anew where what it is made of has changed.
fn kept(name: &str, source: &Path, make: impl FnOnce(&Path, &Path) -> Command) -> PathBuf {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target").join(name);
    let why = |e| panic!("{}: {e}", folder.display());
    // What it was made of last is written down in it.
    let wanted = std::fs::read(source).unwrap_or_else(|e| panic!("{}: {e}", source.display()));
    let mark = source.file_name().map(|it| folder.join(it)).unwrap_or_else(|| unreachable!("a source is a file"));
    if std::fs::read(&mark).ok().as_ref() != Some(&wanted) {
        std::fs::create_dir_all(&folder).unwrap_or_else(why);
        let mut command = make(&folder, source);
        let made = command.status().unwrap_or_else(|e| panic!("{command:?}: {e}; `cargo xtask test` installs it"));
        assert!(made.success(), "{command:?}: {made}");
        std::fs::write(&mark, wanted).unwrap_or_else(why);
    }
    folder
}
fn interop(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../interop").join(file)
}
