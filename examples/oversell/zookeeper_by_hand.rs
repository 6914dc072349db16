//! The lock that is often written by hand over ZooKeeper: one node, which everybody watches. It excludes; but whenever it goes,
//! everybody is woken, and all but one for nothing.
use crate::machine::{Machine, Result, say, wait};
use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

const NODE: &str = "/article-by-hand";
const WAITERS: usize = 8;

/// A machine that does it by hand.
pub(crate) fn machine(url: &str) -> Result<()> {
    let mut session = Session::open(&server(url)?)?;
    while !session.create(NODE)? {
        // Gone between the two calls: nobody would tell.
        if session.watch(NODE)? {
            say("waits")?;
            session.woken()?;
            say("is woken")?;
        }
    }
    say("has it")?;
    wait()?;
    session.delete(NODE)?;
    say("has given it back")
}

fn server(url: &str) -> Result<String> {
    let rest = url.strip_prefix("zookeeper://").ok_or("not of ZooKeeper")?;
    Ok(rest.split(['/', '?', ',']).next().unwrap_or(rest).to_owned())
}

pub(crate) async fn stories(url: &str) -> Result<()> {
    let start = |ours: bool| Machine::start(&if ours { ["ours", "holds", url] } else { ["zookeeper", "-", url] });
    let mut one = start(false)?;
    println!("one node that everybody watches: the first machine {}; {WAITERS} others wait …", one.hear()?);
    let mut others = Vec::new();
    for _ in 0..WAITERS {
        let mut other = start(false)?;
        assert_eq!(other.hear()?, "waits");
        others.push(other);
    }
    let before = sent(url)?;
    one.tell()?;
    let (mut woken, mut next) = (0, None);
    for mut other in others {
        assert_eq!(other.hear()?, "is woken");
        woken += 1;
        if other.hear()? == "has it" {
            assert!(next.replace(other).is_none(), "two at once");
        }
    }
    let herd = sent(url)? - before;
    println!("   … it ends: {woken} are woken, and ask again, one for something; {herd} messages of the server");
    let mut next = next.ok_or("nobody has it")?;
    next.tell()?;
    next.hear()?;

    let client = fencelock::connect(url).await?;
    let mut one = start(true)?;
    println!("   ours: the first machine {}; {WAITERS} others wait, each for the one before it …", one.hear()?);
    let mut others = Vec::new();
    for _ in 0..WAITERS {
        others.push(start(true)?);
        // In the order in which they have come.
        while client.inspect("article/7").await?.waiters.len() < others.len() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    let before = sent(url)?;
    one.tell()?;
    println!(
        "   … the first {}, the next {}: {} messages of the server",
        one.hear()?,
        others[0].hear()?,
        sent(url)? - before
    );
    Ok(())
}

/// How many messages the server has sent so far.
fn sent(url: &str) -> Result<u64> {
    let (mut stream, mut said) = (TcpStream::connect(server(url)?)?, String::new());
    stream.write_all(b"srvr")?;
    stream.read_to_string(&mut said)?;
    let line = said.lines().find_map(|line| line.strip_prefix("Sent: ")).ok_or("the server does not tell")?;
    Ok(line.trim().parse()?)
}

/// As much of ZooKeeper's protocol as such a lock needs.
struct Session {
    stream: TcpStream,
    calls: i32,
    /// What was watched has changed; it was told before another answer.
    changed: bool,
}

impl Session {
    fn open(server: &str) -> Result<Self> {
        let mut session = Self { stream: TcpStream::connect(server)?, calls: 0, changed: false };
        // Version, last change seen, session of so many ms, none before, its password; not only to read.
        let words = [&[0; 12][..], &30_000_i32.to_be_bytes(), &[0; 8], &16_i32.to_be_bytes(), &[0; 17]].concat();
        session.send(&words)?;
        session.receive()?;
        Ok(session)
    }
    /// A node that ends with this session. False: there is one.
    fn create(&mut self, node: &str) -> Result<bool> {
        const EXISTS: i32 = -110;
        let everybody = [text("world"), text("anyone")].concat();
        let rights = [&1_i32.to_be_bytes()[..], &31_i32.to_be_bytes(), &everybody].concat();
        let ephemeral = 1_i32.to_be_bytes();
        match self.call(1, &[&text(node)[..], &text(""), &rights, &ephemeral].concat())? {
            0 => Ok(true),
            EXISTS => Ok(false),
            other => Err(format!("ZooKeeper says {other}").into()),
        }
    }
    fn delete(&mut self, node: &str) -> Result<()> {
        match self.call(2, &[&text(node)[..], &(-1_i32).to_be_bytes()].concat())? {
            0 => Ok(()),
            other => Err(format!("ZooKeeper says {other}").into()),
        }
    }
    /// To be told when it changes. False: it is not there.
    fn watch(&mut self, node: &str) -> Result<bool> {
        const NONE: i32 = -101;
        match self.call(3, &[&text(node)[..], &[1]].concat())? {
            0 => Ok(true),
            NONE => Ok(false),
            other => Err(format!("ZooKeeper says {other}").into()),
        }
    }
    fn woken(&mut self) -> Result<()> {
        while !std::mem::take(&mut self.changed) {
            self.receive()?;
        }
        Ok(())
    }
    /// The code of the answer.
    fn call(&mut self, kind: i32, words: &[u8]) -> Result<i32> {
        self.calls += 1;
        self.send(&[&self.calls.to_be_bytes()[..], &kind.to_be_bytes(), words].concat())?;
        loop {
            let answer = self.receive()?;
            if number(&answer, 0)? == self.calls {
                return number(&answer, 12);
            }
        }
    }
    fn send(&mut self, words: &[u8]) -> Result<()> {
        let length = i32::try_from(words.len())?.to_be_bytes();
        Ok(self.stream.write_all(&[&length[..], words].concat())?)
    }
    fn receive(&mut self) -> Result<Vec<u8>> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let mut answer = vec![0; usize::try_from(i32::from_be_bytes(length))?];
        self.stream.read_exact(&mut answer)?;
        self.changed |= number(&answer, 0)? == -1;
        Ok(answer)
    }
}

fn text(text: &str) -> Vec<u8> {
    let length = i32::try_from(text.len()).unwrap_or(i32::MAX);
    [&length.to_be_bytes()[..], text.as_bytes()].concat()
}
fn number(answer: &[u8], at: usize) -> Result<i32> {
    let word = answer.get(at..at + 4).and_then(|word| word.try_into().ok());
    Ok(i32::from_be_bytes(word.ok_or("a short answer")?))
}
