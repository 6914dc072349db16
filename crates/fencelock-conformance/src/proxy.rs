//! A TCP proxy that makes trouble on the way to a real server: what it does to a command is chosen by the command itself.
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    io::{Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

/// How long the first command of a buffer is; `None`: it is not complete yet.
pub type Framing = fn(&[u8]) -> Option<usize>;
/// Sends the first command of a connection, and waits until the server is ready for the next one.
type Greeting = fn(&mut TcpStream, &[u8]) -> Option<()>;
/// What is to be done with a command.
pub type Rule = dyn Fn(&[u8]) -> Trouble + Send + Sync;

/// What happens to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing.
    None,
    /// It is forwarded, its reply is not, and the connection breaks.
    LoseReply,
    /// It is forwarded, and when it has had its effect once more over another connection, whose reply nobody reads: both before its sender
    /// hears. (A copy that overtakes it is nothing that a connection does, nor one that comes when its sender knows the answer.)
    Twice,
    /// The connection breaks at once; the command arrives so much later all the same, over another one.
    Late(Duration),
    /// The connection breaks at once, and the command never arrives.
    Lose,
    /// So many bytes of it arrive, and from then on nothing does, over any connection and on either side: its sender was stopped there.
    Stop(usize),
}

/// Forwards to one server, from a port of its own, for as long as it lives.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}
/// Both ends, what its client has said, and whether it hears anything.
struct Connection {
    client: TcpStream,
    server: TcpStream,
    words: Arc<Mutex<BTreeSet<String>>>,
    mute: Arc<AtomicBool>,
}
/// What a client hears: nothing any more, or nothing for now.
#[derive(Default)]
struct Ears {
    deaf: AtomicBool,
    closed: Mutex<()>,
    /// So much has come from the server.
    answers: AtomicU64,
    /// And so much was passed on.
    told: AtomicU64,
}
struct Shared {
    upstream: Mutex<SocketAddr>,
    framing: Framing,
    /// The first command of a connection is one without which nothing else is understood.
    greets: Option<Greeting>,
    rule: Mutex<Arc<Rule>>,
    open: Mutex<Vec<Connection>>,
    seen: Mutex<BTreeMap<String, u64>>,
    silent: Mutex<bool>,
    /// That it is no more.
    goes_on: Condvar,
    delay: AtomicU64,
    ended: AtomicBool,
}
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Proxy {
    /// In front of this server.
    ///
    /// # Panics
    /// No port of loopback is free.
    pub fn start(upstream: SocketAddr, framing: Framing) -> Self {
        Self::new(upstream, framing, None)
    }
    /// In front of a PostgreSQL that asks for no password: a command that arrives over another connection is preceded by the greeting of
    /// its own.
    ///
    /// # Panics
    /// As there.
    pub fn postgres(upstream: SocketAddr) -> Self {
        Self::new(upstream, postgres, Some(greet_postgres))
    }
    /// The same for a MariaDB or MySQL.
    ///
    /// # Panics
    /// As there.
    pub fn mysql(upstream: SocketAddr) -> Self {
        Self::new(upstream, mysql, Some(greet_mysql))
    }
    fn new(upstream: SocketAddr, framing: Framing, greets: Option<Greeting>) -> Self {
        let (listener, address) = listener();
        let upstream = Mutex::new(upstream);
        let (rule, open, seen) = (Mutex::new(calm()), Mutex::default(), Mutex::default());
        let (silent, goes_on, delay, ended) = Default::default();
        let shared = Arc::new(Shared { upstream, framing, greets, rule, open, seen, silent, goes_on, delay, ended });
        let accepting = shared.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if accepting.ended.load(SeqCst) {
                    return;
                }
                accepting.clone().serve(client);
            }
        });
        Self { address, shared }
    }
    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
    /// From now on connections lead to this server; those that are open lead where they did. So a name or a virtual address moves.
    pub fn lead_to(&self, upstream: SocketAddr) {
        *lock(&self.shared.upstream) = upstream;
    }
    /// From now on this is done to commands.
    pub fn rule(&self, rule: impl Fn(&[u8]) -> Trouble + Send + Sync + 'static) {
        *lock(&self.shared.rule) = Arc::new(rule);
    }
    /// From now on nothing is done to them.
    pub fn calm(&self) {
        *lock(&self.shared.rule) = calm();
    }
    /// Breaks every connection that is open; how many there were.
    pub fn cut(&self) -> usize {
        self.shared.cut()
    }
    /// Takes what is sent, on either side, and forwards nothing, until `false`: a half-open connection.
    pub fn silent(&self, silent: bool) {
        *lock(&self.shared.silent) = silent;
        self.shared.goes_on.notify_all();
    }
    /// Nothing arrives any more over the connections that are open now and over which this command went; they stay open.
    pub fn mute(&self, word: &str) {
        let open = lock(&self.shared.open);
        let is_it = |connection: &&Connection| lock(&connection.words).contains(word);
        open.iter().filter(is_it).for_each(|connection| connection.mute.store(true, SeqCst));
    }
    /// Nothing that the server says arrives any more over the connections that are open now; what it is told does.
    pub fn mute_all(&self) {
        lock(&self.shared.open).iter().for_each(|connection| connection.mute.store(true, SeqCst));
    }
    /// Everything arrives so much later, in each direction.
    pub fn delay(&self, delay: Duration) {
        self.shared.delay.store(u64::try_from(delay.as_micros()).unwrap_or(u64::MAX), SeqCst);
    }
    /// How many commands went by since the last call, by their first word.
    pub fn commands(&self) -> BTreeMap<String, u64> {
        std::mem::take(&mut lock(&self.shared.seen))
    }
}
impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, SeqCst);
        // Before anybody goes on: what was kept back arrives nowhere.
        self.shared.cut();
        self.silent(false);
        let _ = TcpStream::connect(self.address); // whoever accepts looks
    }
}
impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({} to {})", self.address, lock(&self.shared.upstream))
    }
}
fn calm() -> Arc<Rule> {
    Arc::new(|_| Trouble::None)
}
/// On a port that is kept for nobody else.
///
/// *Invariant:* a server's port may be kept for it, as a socket that does not listen, while it is down: to whoever does not say that he
/// shares it, the kernel gives no such port.
fn listener() -> (TcpListener, SocketAddr) {
    for _ in 0..1_000 {
        if let Ok(found) = listen(fastrand::u16(20_000..32_000)) {
            return found;
        }
    }
    panic!("no port of loopback between 20000 and 32000 is free")
}
fn listen(port: u16) -> rustix::io::Result<(TcpListener, SocketAddr)> {
    let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &address)?;
    rustix::net::listen(&socket, 128)?;
    Ok((socket.into(), address.into()))
}

impl Shared {
    fn cut(&self) -> usize {
        let open = std::mem::take(&mut *lock(&self.open));
        for Connection { client, server, .. } in &open {
            let _ = client.shutdown(Shutdown::Both);
            let _ = server.shutdown(Shutdown::Both);
        }
        open.len()
    }
    fn serve(self: Arc<Self>, client: TcpStream) {
        let Ok(server) = TcpStream::connect(*lock(&self.upstream)) else { return };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let (Ok(c), Ok(s)) = (client.try_clone(), server.try_clone()) else { return };
        let (Ok(to_client), Ok(from_server)) = (client.try_clone(), server.try_clone()) else { return };
        let (words, mute) = (Arc::<Mutex<BTreeSet<String>>>::default(), Arc::<AtomicBool>::default());
        lock(&self.open).push(Connection { client: c, server: s, words: words.clone(), mute: mute.clone() });
        let ears = Arc::<Ears>::default();
        let (up, down) = (self.clone(), self);
        let same = ears.clone();
        thread::spawn(move || up.forward(&client, &server, &ears, &words));
        thread::spawn(move || {
            down.back(&from_server, &to_client, &same, &mute);
            lock(&down.open).retain(|connection| !Arc::ptr_eq(&connection.mute, &mute));
        });
    }
    /// What the client sends, command by command.
    fn forward(&self, mut client: &TcpStream, mut server: &TcpStream, ears: &Ears, words: &Mutex<BTreeSet<String>>) {
        let (mut buffer, mut chunk, mut greeting) = (Vec::new(), vec![0; 65_536], None);
        'open: while let Ok(n @ 1..) = client.read(&mut chunk) {
            buffer.extend_from_slice(&chunk[..n]);
            self.wait();
            while let Some(length) = (self.framing)(&buffer) {
                let command: Vec<u8> = buffer.drain(..length).collect();
                let greeting =
                    self.greets.map(|greet| (greet, greeting.get_or_insert_with(|| command.clone()).clone()));
                let word = first_word(&command);
                lock(words).insert(word.clone());
                *lock(&self.seen).entry(word).or_default() += 1;
                let rule = lock(&self.rule).clone();
                match rule(&command) {
                    Trouble::None => {}
                    Trouble::LoseReply => ears.deaf.store(true, SeqCst),
                    Trouble::Twice => {
                        // The answer before has passed: else it would wait for this one, and this one for it.
                        let patience = Instant::now() + Duration::from_secs(1);
                        while ears.told.load(SeqCst) < ears.answers.load(SeqCst) && Instant::now() < patience {
                            thread::sleep(Duration::from_micros(100));
                        }
                        let _later = lock(&ears.closed);
                        let (answers, deadline) = (ears.answers.load(SeqCst), Instant::now() + Duration::from_secs(1));
                        let sent = server.write_all(&command);
                        while ears.answers.load(SeqCst) == answers && Instant::now() < deadline {
                            thread::sleep(Duration::from_micros(100));
                        }
                        drop(self.elsewhere(greeting, command, Duration::ZERO).join());
                        if sent.is_err() {
                            break 'open;
                        }
                        continue;
                    }
                    Trouble::Late(after) => {
                        drop(self.elsewhere(greeting, command, after));
                        break 'open;
                    }
                    Trouble::Lose => break 'open,
                    Trouble::Stop(after) => {
                        *lock(&self.silent) = true;
                        let _ = server.write_all(&command[..after.min(command.len())]);
                        self.wait();
                        break 'open;
                    }
                }
                if server.write_all(&command).is_err() {
                    break 'open;
                }
            }
        }
        let _ = client.shutdown(Shutdown::Both);
        let _ = server.shutdown(Shutdown::Both);
    }
    /// What the server answers.
    fn back(&self, mut server: &TcpStream, mut client: &TcpStream, ears: &Ears, mute: &AtomicBool) {
        let mut chunk = vec![0; 65_536];
        while let Ok(n @ 1..) = server.read(&mut chunk) {
            self.wait();
            if mute.load(SeqCst) {
                continue;
            }
            ears.answers.fetch_add(1, SeqCst);
            drop(lock(&ears.closed));
            // The answer is there, so the command has had its effect.
            if ears.deaf.load(SeqCst) || client.write_all(&chunk[..n]).is_err() {
                break;
            }
            ears.told.fetch_add(1, SeqCst);
        }
        let _ = client.shutdown(Shutdown::Both);
        let _ = server.shutdown(Shutdown::Both);
    }
    fn wait(&self) {
        let delay = Duration::from_micros(self.delay.load(SeqCst));
        if !delay.is_zero() {
            thread::sleep(delay);
        }
        let mut silent = lock(&self.silent);
        while *silent && !self.ended.load(SeqCst) {
            silent = self.goes_on.wait(silent).unwrap_or_else(PoisonError::into_inner);
        }
    }
    /// Over a connection of its own, which is closed when it was answered.
    fn elsewhere(
        &self,
        greeting: Option<(Greeting, Vec<u8>)>,
        command: Vec<u8>,
        after: Duration,
    ) -> thread::JoinHandle<()> {
        let upstream = *lock(&self.upstream);
        thread::spawn(move || {
            thread::sleep(after);
            let Ok(mut server) = TcpStream::connect(upstream) else { return };
            let _ = server.set_read_timeout(Some(Duration::from_secs(10)));
            if greeting.is_some_and(|(greet, greeting)| greet(&mut server, &greeting).is_none()) {
                return;
            }
            if server.write_all(&command).is_ok() {
                let _ = server.read(&mut [0; 1_024]);
            }
        })
    }
}

/// It ends with word that the server is ready: Z, a length of 5, and I.
fn greet_postgres(server: &mut TcpStream, greeting: &[u8]) -> Option<()> {
    let mut said = Vec::new();
    server.write_all(greeting).ok()?;
    while !said.ends_with(b"Z\0\0\0\x05I") {
        let mut chunk = [0; 1_024];
        let n = server.read(&mut chunk).ok().filter(|n| *n > 0)?;
        said.extend_from_slice(&chunk[..n]);
    }
    Some(())
}
/// The server speaks first; whoever has no password says the same to all of them.
fn greet_mysql(server: &mut TcpStream, greeting: &[u8]) -> Option<()> {
    let packet = |server: &mut TcpStream| {
        let mut head = [0; 4];
        server.read_exact(&mut head).ok()?;
        let mut body = vec![0; u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize];
        server.read_exact(&mut body).ok()?;
        Some(body)
    };
    packet(server)?;
    server.write_all(greeting).ok()?;
    packet(server).filter(|answer| answer.first() == Some(&0)).map(drop)
}

/// Of a protocol that is not taken apart: what has come so far is a command.
pub fn bytes(buffer: &[u8]) -> Option<usize> {
    Some(buffer.len()).filter(|len| *len > 0)
}
/// Of the protocol of PostgreSQL: a letter, and a length that counts itself; the first message has no letter.
pub fn postgres(buffer: &[u8]) -> Option<usize> {
    let letter = usize::from(*buffer.first()? != 0);
    let length = u32::from_be_bytes(buffer.get(letter..letter + 4)?.try_into().ok()?);
    Some(letter + length as usize).filter(|length| *length <= buffer.len())
}
/// Of the protocol of MySQL: a length of three bytes, a number, and the body.
pub fn mysql(buffer: &[u8]) -> Option<usize> {
    let length = u32::from_le_bytes([*buffer.first()?, *buffer.get(1)?, *buffer.get(2)?, 0]);
    Some(4 + length as usize).filter(|length| *length <= buffer.len())
}
/// Of the protocol of Redis: a list of strings, each with its length in front.
pub fn resp(buffer: &[u8]) -> Option<usize> {
    let mut at = 0;
    let line = |at: usize| {
        let end = buffer.get(at..)?.windows(2).position(|pair| pair == b"\r\n")? + at;
        Some((std::str::from_utf8(buffer.get(at + 1..end)?).ok()?.parse::<usize>().ok()?, end + 2))
    };
    let (many, next) = line(at)?;
    at = next;
    for _ in 0..many {
        let (length, next) = line(at)?;
        at = next + length + 2;
    }
    (at <= buffer.len()).then_some(at)
}
/// Of a command: the first string that is a word.
fn first_word(command: &[u8]) -> String {
    let mut lines = command.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let is_word = |line: &&[u8]| line.first().is_some_and(u8::is_ascii_alphabetic);
    lines.find(is_word).map(|word| String::from_utf8_lossy(word).to_ascii_uppercase()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    //! Planted to see them go red: a length that is one too short; the rule asked after the command was sent; nobody told that it goes on.
    use super::*;

    #[test]
    fn a_port_that_is_kept_for_somebody_is_not_taken() {
        let port = fencelock_testkit::Port::free();
        assert!(listen(port.number()).is_err());
        let number = port.number();
        drop(port);
        listen(number).unwrap();
    }
    #[test]
    fn messages_are_told_apart() {
        let two = b"\0\0\0\x09\0\x03\0\0\0Q\0\0\0\x06x\0";
        let first = postgres(two).unwrap();
        assert_eq!((first, postgres(&two[first..])), (9, Some(7)));
        assert!((0..9).all(|n| postgres(&two[..n]).is_none()) && (9..16).all(|n| postgres(&two[9..n]).is_none()));
        let two = b"\x02\0\0\x01ab\x01\0\0\0\x0e";
        assert_eq!((mysql(two), mysql(&two[6..])), (Some(6), Some(5)));
        assert!((0..6).all(|n| mysql(&two[..n]).is_none()));
    }
    #[test]
    fn commands_are_told_apart() {
        let two = b"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n*1\r\n$4\r\nPING\r\n";
        assert_eq!(resp(two), Some(23));
        assert_eq!(resp(&two[23..]), Some(14));
        for cut in 0..23 {
            assert_eq!(resp(&two[..cut]), None, "{cut}");
        }
        assert_eq!((first_word(two), first_word(&two[23..])), ("GET".to_owned(), "PING".to_owned()));
    }
    #[test]
    fn what_is_kept_back_arrives_when_it_goes_on_and_not_after_the_end() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Proxy::start(server.local_addr().unwrap(), bytes);
        let mut client = TcpStream::connect(proxy.address()).unwrap();
        let (mut end, _) = server.accept().unwrap();
        let mut arrives = |within: u64| {
            end.set_read_timeout(Some(Duration::from_millis(within))).unwrap();
            end.read(&mut [0; 8]).is_ok_and(|n| n > 0)
        };
        for _ in 0..2 {
            proxy.silent(true);
            client.write_all(b"x").unwrap();
            assert!(!arrives(50));
            proxy.silent(false);
            assert!(arrives(10_000));
        }
        proxy.silent(true);
        client.write_all(b"y").unwrap();
        assert!(!arrives(50));
        drop(proxy);
        assert!(!arrives(10_000), "it is cut");
    }
    #[test]
    fn each_trouble_is_what_it_says() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let (told, heard) = std::sync::mpsc::channel();
        let address = server.local_addr().unwrap();
        thread::spawn(move || {
            for mut client in server.incoming().map_while(Result::ok) {
                let told = told.clone();
                thread::spawn(move || {
                    let mut chunk = [0; 256];
                    while let Ok(n @ 1..) = client.read(&mut chunk) {
                        let _ = (told.send(first_word(&chunk[..n])), client.write_all(b"+OK\r\n"));
                    }
                });
            }
        });
        let proxy = Proxy::start(address, resp);
        let say = |word: &str| {
            let mut client = TcpStream::connect(proxy.address()).unwrap();
            client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            client.write_all(format!("*1\r\n${}\r\n{word}\r\n", word.len()).as_bytes()).unwrap();
            let mut answer = [0; 16];
            client.read(&mut answer).unwrap_or(0)
        };
        let arrives = || heard.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_eq!((say("CALM"), arrives().as_str()), (5, "CALM"));
        proxy.rule(|_| Trouble::LoseReply);
        assert_eq!((say("MUTE"), arrives().as_str()), (0, "MUTE"));
        proxy.rule(|_| Trouble::Twice);
        assert_eq!((say("ECHO"), arrives().as_str(), arrives().as_str()), (5, "ECHO", "ECHO"));
        proxy.rule(|_| Trouble::Late(Duration::from_millis(20)));
        assert_eq!((say("LATE"), arrives().as_str()), (0, "LATE"));
        proxy.rule(|_| Trouble::Lose);
        assert_eq!(say("GONE"), 0);
        proxy.calm();
        assert_eq!((say("LAST"), arrives().as_str()), (5, "LAST"), "and nothing of the one before");
        let seen = proxy.commands();
        assert!(seen.len() == 6 && seen.values().all(|n| *n == 1), "{seen:?}");
    }
}
