//! Somebody else: a worker process, which is this very binary started again; or, where the store lives in one process, a task
//! with a client of its own. Both speak line by line, so a case does not know which it has.
use crate::{
    case::role,
    context::STUCK,
    fixture::{Cut, Family, Fixture},
};
use fencelock_core::{BootClock, Client, Clock};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fmt,
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, ChildStdin, Command, ExitCode, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::JoinHandle,
};

/// Set for workers; the arguments are family, role, address, ttl in ms, and the role's own words.
const WORKER: &str = "FENCELOCK_CONFORMANCE_WORKER";

/// What a role has in hand.
pub struct RoleContext {
    /// A client of its own.
    pub client: Client,
    /// The words that the case gave.
    pub words: Vec<String>,
    out: Out,
    orders: UnboundedReceiver<String>,
}
#[derive(Clone)]
enum Out {
    Stdout,
    Channel(UnboundedSender<String>),
}
impl RoleContext {
    /// One line to the case.
    pub fn say(&self, line: impl AsRef<str>) {
        match &self.out {
            Out::Stdout => {
                let mut out = std::io::stdout().lock();
                // Nobody listens any more: the end of standard input tells it too.
                let _ = writeln!(out, "{}", line.as_ref()).and_then(|()| out.flush());
            }
            Out::Channel(tx) => drop(tx.send(line.as_ref().to_owned())),
        }
    }
    /// The next line of the case; `None` when it has nothing more to say.
    pub async fn hear(&mut self) -> Option<String> {
        self.orders.recv().await
    }
    /// The n-th word as a number.
    ///
    /// # Panics
    /// It is none.
    pub fn number(&self, n: usize) -> u64 {
        let word = self.words.get(n);
        word.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("word {n} of a role is no number: {word:?}"))
    }
}
impl fmt::Debug for RoleContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RoleContext({:?})", self.words)
    }
}

/// Somebody else, as a case sees him. When he is dropped he is gone: a process is killed, a task is aborted and releases.
pub struct Peer {
    role: String,
    lines: UnboundedReceiver<String>,
    body: Body,
    /// Set when he dies or is silent.
    runs_out: Arc<AtomicBool>,
}
enum Body {
    Process { child: Child, input: Option<ChildStdin> },
    Task { task: JoinHandle<()>, orders: Option<UnboundedSender<String>>, cut: Option<Cut>, client: Option<Client> },
}

impl Peer {
    pub(crate) async fn start(
        family: &'static dyn Family,
        fixture: &Arc<dyn Fixture>,
        runs_out: Arc<AtomicBool>,
        ttl: Duration,
        name: &str,
        words: &[&str],
    ) -> Self {
        let role = role(name).unwrap_or_else(|| panic!("no role is called {name:?}"));
        let (lines_tx, lines) = unbounded_channel();
        if let Some(address) = fixture.address() {
            let me = std::env::current_exe().unwrap_or_else(|e| panic!("who am I? {e}"));
            let mut command = Command::new(me);
            command.env(WORKER, "1").args([family.name(), name, &address, &ttl.as_millis().to_string()]).args(words);
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().unwrap_or_else(|e| panic!("no worker: {e}"));
            let (input, output) = (child.stdin.take(), child.stdout.take());
            std::thread::spawn(move || {
                let lines = output.into_iter().flat_map(|output| BufReader::new(output).lines());
                lines.map_while(Result::ok).for_each(|line| drop(lines_tx.send(line)));
            });
            let body = Body::Process { child, input };
            return Self { role: name.to_owned(), lines, body, runs_out };
        }
        let connection = fixture.engine(ttl).await;
        let client = Client::builder(connection.engine).build().unwrap_or_else(|e| panic!("no client: {e}"));
        let (orders, heard) = unbounded_channel();
        let words = words.iter().map(|&word| word.to_owned()).collect();
        let context = RoleContext { client: client.clone(), words, out: Out::Channel(lines_tx), orders: heard };
        let task = tokio::spawn((role.run)(context));
        let body = Body::Task { task, orders: Some(orders), cut: connection.cut, client: Some(client) };
        Self { role: name.to_owned(), lines, body, runs_out }
    }
    /// Gives him a line.
    ///
    /// # Panics
    /// He is gone.
    pub fn tell(&mut self, order: &str) {
        let told = match &mut self.body {
            Body::Process { input, .. } => {
                input.as_mut().is_some_and(|input| writeln!(input, "{order}").and_then(|()| input.flush()).is_ok())
            }
            Body::Task { orders, .. } => orders.as_ref().is_some_and(|orders| orders.send(order.to_owned()).is_ok()),
        };
        assert!(told, "the {} is gone and cannot be told {order:?}", self.role);
    }
    /// His next line, without the word that it begins with.
    ///
    /// # Panics
    /// It is another one, or none within [`STUCK`].
    pub async fn hear(&mut self, word: &str) -> String {
        let line = tokio::time::timeout(STUCK, self.lines.recv()).await;
        let line = line.unwrap_or_else(|_| panic!("the {} has not said {word:?} within {STUCK:?}", self.role));
        let line = line.unwrap_or_else(|| panic!("the {} has ended and not said {word:?}", self.role));
        match line.strip_prefix(word) {
            Some(rest) => rest.trim().to_owned(),
            None => panic!("the {} should have said {word:?}, and said {line:?}", self.role),
        }
    }
    /// He dies without a word, now: a process by `kill -9`, a task by being cut off for good. When, on CLOCK_BOOTTIME in ns.
    /// The case needs `Crash`.
    ///
    /// # Panics
    /// He cannot.
    pub async fn crash(&mut self) -> u64 {
        self.runs_out.store(true, SeqCst);
        match &mut self.body {
            Body::Process { child, .. } => {
                // *Invariant:* from this moment on nothing of him works, and what he held is still his: an engine that frees it with his
                // last socket may have given it to somebody else before we hear that he is gone.
                signal(child, Signal::STOP);
                let deadline = BootClock.now() + Duration::from_secs(10);
                while !stands_still(child.id()) && BootClock.now() < deadline {
                    tokio::task::yield_now().await;
                }
                let at = BootClock.now().as_nanos();
                signal(child, Signal::KILL);
                let _ = child.wait();
                return at;
            }
            Body::Task { task, cut, .. } => {
                let Some(cut) = cut else { panic!("this family's clients cannot be cut off: the case needs Crash") };
                cut(true);
                task.abort();
                let _ = task.await;
            }
        }
        BootClock.now().as_nanos()
    }
    /// SIGSTOP. The case needs `Processes`.
    ///
    /// # Panics
    /// He is no process.
    pub fn stop(&self) {
        self.send(Signal::STOP);
    }
    /// SIGCONT. The case needs `Processes`.
    ///
    /// # Panics
    /// He is no process.
    pub fn go_on(&self) {
        self.send(Signal::CONT);
    }
    /// With `true` he is silent: a process is stopped, a task cut off. With `false` he goes on. The case needs `Crash`.
    ///
    /// # Panics
    /// He can be neither stopped nor cut off.
    pub fn silence(&self, silent: bool) {
        self.runs_out.store(true, SeqCst);
        match &self.body {
            Body::Process { child, .. } => signal(child, if silent { Signal::STOP } else { Signal::CONT }),
            Body::Task { cut: Some(cut), .. } => cut(silent),
            Body::Task { .. } => panic!("this family's clients cannot be cut off: the case needs Crash"),
        }
    }
    fn send(&self, what: Signal) {
        self.runs_out.store(true, SeqCst);
        match &self.body {
            Body::Process { child, .. } => signal(child, what),
            Body::Task { .. } => panic!("a task has no signals: the case needs Processes"),
        }
    }
    /// His process id, where he has one of his own.
    pub fn pid(&self) -> Option<u32> {
        match &self.body {
            Body::Process { child, .. } => Some(child.id()),
            Body::Task { .. } => None,
        }
    }
    /// Waits until he has done what his role says. The suite's own limit is the limit.
    ///
    /// # Panics
    /// He failed.
    pub async fn finish(mut self) {
        // His last line has been said when his side is closed.
        while let Some(line) = self.lines.recv().await {
            assert!(line.is_empty(), "the {} said {line:?}, and nobody has heard it", self.role);
        }
        let well = match &mut self.body {
            Body::Process { child, .. } => child.wait().is_ok_and(|status| status.success()),
            Body::Task { task, .. } => task.await.is_ok(),
        };
        assert!(well, "the {} has failed", self.role);
    }
}
fn signal(child: &Child, what: Signal) {
    // Not waited for yet, so the id is still his.
    let sent = kill_process(Pid::from_child(child), what);
    assert!(sent.is_ok(), "no signal: {sent:?}");
}
impl Drop for Peer {
    fn drop(&mut self) {
        match &mut self.body {
            Body::Process { child, .. } => {
                let _ = child.kill();
                let _ = child.wait();
            }
            Body::Task { task, client, .. } => {
                task.abort();
                // The last of its clones may wait a moment for releases: not on a runtime's thread.
                let client = client.take();
                std::thread::spawn(move || drop(client));
            }
        }
    }
}
impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Peer({}, pid {:?})", self.role, self.pid())
    }
}

/// Whether this process was started as a worker: then it does what it was started for.
pub(crate) fn worker(families: &[&'static dyn Family]) -> Option<ExitCode> {
    std::env::var_os(WORKER)?;
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [family, name, address, ttl, words @ ..] = &words[..] else { panic!("a worker needs its words: {words:?}") };
    let family = families.iter().find(|known| known.name() == family);
    let family = family.unwrap_or_else(|| panic!("no such family of engines in this binary"));
    let role = role(name).unwrap_or_else(|| panic!("no role is called {name:?}"));
    let ttl = Duration::from_millis(ttl.parse().unwrap_or_else(|e| panic!("ttl {ttl:?}: {e}")));

    let (orders, heard) = unbounded_channel();
    std::thread::spawn(move || {
        std::io::stdin().lines().map_while(Result::ok).for_each(|line| drop(orders.send(line)));
        // Whoever started it is gone.
        std::process::exit(3);
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.unwrap_or_else(|e| panic!("no runtime: {e}"));
    let done = runtime.block_on(async {
        let engine = family.reach(address, ttl).await;
        let client = Client::builder(engine).build().unwrap_or_else(|e| panic!("no client: {e}"));
        let context = RoleContext { client, words: words.to_vec(), out: Out::Stdout, orders: heard };
        tokio::spawn((role.run)(context)).await
    });
    Some(if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(101) })
}
/// All threads of a process are stopped, or it is gone.
fn stands_still(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let state = |path: PathBuf| std::fs::read_to_string(path.join("stat")).unwrap_or_default();
    // After the name, which may hold anything but ends with the last of these.
    let stopped = |stat: &str| stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['T', 't', 'Z', 'X']));
    threads.map(|thread| state(thread.path())).all(|stat| stopped(&stat))
}
