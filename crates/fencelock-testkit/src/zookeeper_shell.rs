//! An operator's hand in ZooKeeper: looks, deletes, and ends sessions. It speaks the protocol itself, so that no engine proves itself.
use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

const ANSWER: Duration = Duration::from_secs(5);
const NO_NODE: i32 = -101;

/// One session of its own.
#[derive(Debug)]
pub struct ZooKeeperShell {
    stream: TcpStream,
    xid: i32,
    /// Of our session.
    session: i64,
}
impl ZooKeeperShell {
    /// To the server there.
    ///
    /// # Errors
    /// It does not answer, or says no.
    pub fn connect(server: SocketAddr) -> io::Result<Self> {
        Self::open(server, 0, [0; 16])
    }
    fn open(server: SocketAddr, session: i64, password: [u8; 16]) -> io::Result<Self> {
        let mut stream = TcpStream::connect_timeout(&server, ANSWER)?;
        stream.set_read_timeout(Some(ANSWER))?;
        let mut hello = Vec::new();
        hello.extend(0_i32.to_be_bytes());
        hello.extend(0_i64.to_be_bytes());
        hello.extend(10_000_i32.to_be_bytes());
        hello.extend(session.to_be_bytes());
        put(&mut hello, &password);
        hello.push(0);
        send(&mut stream, &hello)?;
        let answer = receive(&mut stream)?;
        let id = answer.get(8..16).and_then(|id| id.try_into().ok()).map(i64::from_be_bytes);
        match id {
            Some(id) if id != 0 => Ok(Self { stream, xid: 0, session: id }),
            _ => Err(io::Error::other("no session")),
        }
    }
    /// From now on it is somebody: `USER:PASSWORD`.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn log_in(&mut self, login: &str) -> io::Result<()> {
        let mut ask = Vec::new();
        ask.extend((-4_i32).to_be_bytes());
        ask.extend(100_i32.to_be_bytes());
        ask.extend(0_i32.to_be_bytes());
        put(&mut ask, b"digest");
        put(&mut ask, login.as_bytes());
        send(&mut self.stream, &ask)?;
        receive(&mut self.stream).map(drop)
    }
    /// What is answered, without its head; `None`: there is no such node.
    fn ask(&mut self, op: i32, body: &[u8]) -> io::Result<Option<Vec<u8>>> {
        self.xid += 1;
        let mut ask = Vec::new();
        ask.extend(self.xid.to_be_bytes());
        ask.extend(op.to_be_bytes());
        ask.extend(body);
        send(&mut self.stream, &ask)?;
        loop {
            let answer = receive(&mut self.stream)?;
            let int = |at: usize| answer.get(at..at + 4).and_then(|int| int.try_into().ok()).map(i32::from_be_bytes);
            match (int(0), int(12)) {
                (Some(xid), Some(0)) if xid == self.xid => return Ok(Some(answer[16..].to_vec())),
                (Some(xid), Some(NO_NODE)) if xid == self.xid => return Ok(None),
                (Some(xid), Some(error)) if xid == self.xid => return Err(io::Error::other(format!("error {error}"))),
                // Something of somebody else's.
                (Some(_), Some(_)) => {}
                _ => return Err(io::Error::other("an answer that is none")),
            }
        }
    }
    /// Names of the children; none where there is no such node.
    ///
    /// # Errors
    /// The server does not answer, or says no.
    pub fn children(&mut self, path: &str) -> io::Result<Vec<String>> {
        let mut body = Vec::new();
        put(&mut body, path.as_bytes());
        body.push(0);
        let Some(answer) = self.ask(8, &body)? else { return Ok(Vec::new()) };
        let mut rest = answer.get(4..).unwrap_or_default();
        let mut all = Vec::new();
        while let Some((len, after)) = rest.split_first_chunk() {
            let len = usize::try_from(i32::from_be_bytes(*len)).unwrap_or(0);
            let Some((name, after)) = after.split_at_checked(len) else { break };
            all.push(String::from_utf8_lossy(name).into_owned());
            rest = after;
        }
        Ok(all)
    }
    /// The data of a node; `None`: there is no such node.
    ///
    /// # Errors
    /// As there.
    pub fn data(&mut self, path: &str) -> io::Result<Option<Vec<u8>>> {
        let mut body = Vec::new();
        put(&mut body, path.as_bytes());
        body.push(0);
        let Some(answer) = self.ask(4, &body)? else { return Ok(None) };
        let len = answer.first_chunk().map_or(0, |len| usize::try_from(i32::from_be_bytes(*len)).unwrap_or(0));
        Ok(Some(answer.get(4..4 + len).unwrap_or_default().to_vec()))
    }
    /// Makes a node, open to all: `flags` 0 stays, 1 goes with this session, 2 and 3 are numbered. Its path.
    ///
    /// # Errors
    /// As there.
    pub fn create(&mut self, path: &str, data: &[u8], flags: i32) -> io::Result<String> {
        let mut body = Vec::new();
        put(&mut body, path.as_bytes());
        put(&mut body, data);
        body.extend(1_i32.to_be_bytes());
        body.extend(31_i32.to_be_bytes());
        put(&mut body, b"world");
        put(&mut body, b"anyone");
        body.extend(flags.to_be_bytes());
        let answer = self.ask(1, &body)?.ok_or_else(|| io::Error::other(format!("{path}: no parent")))?;
        Ok(String::from_utf8_lossy(answer.get(4..).unwrap_or_default()).into_owned())
    }
    /// Writes a node's data.
    ///
    /// # Errors
    /// As there.
    pub fn set(&mut self, path: &str, data: &[u8]) -> io::Result<()> {
        let mut body = Vec::new();
        put(&mut body, path.as_bytes());
        put(&mut body, data);
        body.extend((-1_i32).to_be_bytes());
        self.ask(5, &body)?.map(drop).ok_or_else(|| io::Error::other(format!("{path}: no node")))
    }
    /// False: there is no such node.
    ///
    /// # Errors
    /// As there; a node with children is not deleted.
    pub fn delete(&mut self, path: &str) -> io::Result<bool> {
        let mut body = Vec::new();
        put(&mut body, path.as_bytes());
        body.extend((-1_i32).to_be_bytes());
        Ok(self.ask(2, &body)?.is_some())
    }
    /// Writes a node's data if another node is there, in one transaction. False: it is not, and nothing is written.
    ///
    /// # Errors
    /// As there.
    pub fn set_if(&mut self, there: &str, path: &str, data: &[u8]) -> io::Result<bool> {
        let mut body = Vec::new();
        let head = |body: &mut Vec<u8>, op: i32, done: bool| {
            body.extend(op.to_be_bytes());
            body.push(u8::from(done));
            body.extend((-1_i32).to_be_bytes());
        };
        head(&mut body, 13, false);
        put(&mut body, there.as_bytes());
        body.extend((-1_i32).to_be_bytes());
        head(&mut body, 5, false);
        put(&mut body, path.as_bytes());
        put(&mut body, data);
        body.extend((-1_i32).to_be_bytes());
        head(&mut body, -1, true);
        // Its first part, or why there is none.
        let answer = self.ask(14, &body)?;
        Ok(answer.is_some_and(|answer| answer.first_chunk().is_some_and(|op| i32::from_be_bytes(*op) == 13)))
    }
    /// The session that a node goes with, if it is there and goes with one.
    ///
    /// # Errors
    /// As there.
    pub fn owner(&mut self, path: &str) -> io::Result<Option<i64>> {
        Ok(self.stat(path, 44)?.filter(|owner| *owner != 0))
    }
    /// The transaction that made a node, if it is there.
    ///
    /// # Errors
    /// As there.
    pub fn created(&mut self, path: &str) -> io::Result<Option<i64>> {
        self.stat(path, 0)
    }
    /// A number of what the server says of a node.
    fn stat(&mut self, path: &str, at: usize) -> io::Result<Option<i64>> {
        let mut body = Vec::new();
        put(&mut body, path.as_bytes());
        body.push(0);
        let Some(answer) = self.ask(3, &body)? else { return Ok(None) };
        Ok(answer.get(at..at + 8).and_then(|number| number.try_into().ok()).map(i64::from_be_bytes))
    }
    /// Who may do what with a node: `SCHEME:ID` and the sum of his rights, of which all are 31.
    ///
    /// # Errors
    /// As there.
    pub fn acl(&mut self, path: &str) -> io::Result<Vec<(String, i32)>> {
        let mut body = Vec::new();
        put(&mut body, path.as_bytes());
        let answer = self.ask(6, &body)?.unwrap_or_default();
        let mut rest = answer.get(4..).unwrap_or_default();
        let int = |rest: &mut &[u8]| {
            let (int, after) = rest.split_first_chunk().ok_or_else(|| io::Error::other("half an answer"))?;
            *rest = after;
            Ok::<_, io::Error>(i32::from_be_bytes(*int))
        };
        let many = answer.first_chunk().map_or(0, |many| i32::from_be_bytes(*many));
        let mut all = Vec::new();
        for _ in 0..many {
            let rights = int(&mut rest)?;
            let mut who = Vec::new();
            for _ in 0..2 {
                let len = usize::try_from(int(&mut rest)?).unwrap_or(0);
                let (word, after) = rest.split_at_checked(len).ok_or_else(|| io::Error::other("half an answer"))?;
                who.push(String::from_utf8_lossy(word).into_owned());
                rest = after;
            }
            all.push((who.join(":"), rights));
        }
        Ok(all)
    }
    /// The paths of all nodes below this one.
    ///
    /// # Errors
    /// As there.
    pub fn below(&mut self, path: &str) -> io::Result<Vec<String>> {
        let mut all = Vec::new();
        for name in self.children(path)? {
            let path = format!("{}/{name}", path.trim_end_matches('/'));
            all.push(path.clone());
            all.extend(self.below(&path)?);
        }
        Ok(all)
    }
    /// Ends somebody's session, as if he had closed it.
    ///
    /// # Errors
    /// As there.
    pub fn end(server: SocketAddr, session: i64) -> io::Result<()> {
        // Its owner comes back at once when his connection is taken, and takes it from us: until the server says that it is gone.
        for _ in 0..1_000 {
            match Self::open(server, session, password(session)) {
                Ok(mut theirs) => drop(theirs.ask(-11, &[])),
                Err(e) if e.to_string() == "no session" => return Ok(()),
                Err(_) => {}
            }
        }
        Err(io::Error::other("it does not end"))
    }
    /// Our own number.
    pub const fn session(&self) -> i64 {
        self.session
    }
}
impl Drop for ZooKeeperShell {
    fn drop(&mut self) {
        let _ = self.ask(-11, &[]);
    }
}
fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend(i32::try_from(bytes.len()).unwrap_or(i32::MAX).to_be_bytes());
    out.extend(bytes);
}
fn send(stream: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    let mut out = Vec::new();
    put(&mut out, message);
    stream.write_all(&out)
}
fn receive(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut len = [0; 4];
    stream.read_exact(&mut len)?;
    let mut message = vec![0; usize::try_from(i32::from_be_bytes(len)).map_err(io::Error::other)?];
    stream.read_exact(&mut message)?;
    Ok(message)
}
/// What the server has given for this session: Java's random bytes, by a seed that every server has.
fn password(session: i64) -> [u8; 16] {
    const SECRET: u64 = 0xB341_5C00;
    const FACTOR: u64 = 0x5_DEEC_E66D;
    const MASK: u64 = (1 << 48) - 1;
    let mut seed = ((session.cast_unsigned() ^ SECRET) ^ FACTOR) & MASK;
    let mut password = [0; 16];
    for part in password.chunks_mut(4) {
        seed = seed.wrapping_mul(FACTOR).wrapping_add(0xB) & MASK;
        let bytes = (seed >> 16).to_le_bytes();
        part.copy_from_slice(&bytes[..4]);
    }
    password
}
