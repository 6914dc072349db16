//! The connection's own side: it carries the session, in order, from one server to the next.
use crate::{
    config::Config,
    error::Fault,
    link::{Link, PATIENCE, Session},
    pipe::{Pipe, Sent},
    tls::{Connected, Connector},
    wire::{
        jute::Reader,
        op::{Answer, Happened, Hello, Op, Watched, XID_AUTH, XID_EVENT, XID_WATCHES, auth, code, watches},
    },
};
use fencelock_core::{BootClock, Clock, Event, Moment, within};
use std::{
    collections::{HashMap, VecDeque},
    fmt,
    future::pending,
    pin::pin,
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::oneshot,
    time::{sleep, timeout},
};

/// One server has so long to greet us.
const ONE_SERVER: Duration = Duration::from_secs(1);
/// A new session has so long.
const NEW_SESSION: Duration = Duration::from_millis(2_500);
/// So many signs of life in a timeout.
///
/// One is confirmed by the first that is sent a third of the timeout after its answer, the fifth with a majority that answers within a
/// twelfth: so a session is never known to be younger than five twelfths and that answer, and core hands a hold out when half of its
/// time is left (SAFETY G3). No other number leaves the majority more time.
const BEATS: u32 = 12;
/// What nobody wants to hear any more is not watched for longer (SAFETY E9).
const SWEEP: Duration = Duration::from_secs(1);
/// A busy machine is late by as much now and then.
const LEAST_PATIENCE: Duration = Duration::from_millis(250);
/// No answer is longer: the names of a million locks.
const LARGEST: usize = 256 << 20;
/// So many bytes of paths go into one message: a server takes a megabyte.
const WATCHES_TOGETHER: usize = 128 << 10;

/// The connection's own side. It outlives connections, and holds the session.
pub(crate) struct Wire {
    config: Config,
    connector: Connector,
    turn: usize,
    /// 0: none.
    session: i64,
    password: Vec<u8>,
    /// What the first session was granted. None is shorter.
    ttl: Option<Duration>,
    /// The newest transaction that we have seen the effects of.
    seen: i64,
    watches: HashMap<(String, Watched), Vec<oneshot::Sender<Happened>>>,
    /// Signs of life that were answered and are not known to have reached the leader yet (SAFETY E6).
    beats: VecDeque<Beat>,
    /// We have ended the session, and open none any more.
    closed: bool,
}
/// A sign of life: when it was sent, and from when on a transaction confirms it.
#[derive(Clone, Copy)]
struct Beat {
    sent_at: Moment,
    counts: Moment,
}
/// Why a connection ends.
enum End {
    /// Another one may carry the session on.
    Lost(Fault),
    Expired,
    /// We have ended it.
    Closed,
}

impl Wire {
    pub(crate) fn new(config: &Config) -> fencelock_core::Result<Self> {
        let turn = fastrand::usize(..config.hosts.len().max(1));
        let (password, watches, beats) = Default::default();
        let (session, ttl, seen, closed) = (0, None, 0, false);
        let (config, connector) = (config.clone(), Connector::new(config)?);
        Ok(Self { config, connector, turn, session, password, ttl, seen, watches, beats, closed })
    }
    /// What the server has granted.
    pub(crate) const fn ttl(&self) -> Option<Duration> {
        self.ttl
    }
    /// Returns when the session was closed.
    pub(crate) async fn serve(&mut self, link: &Link) {
        if self.closed {
            return pending().await;
        }
        let mut pause = Duration::ZERO;
        // One that was dropped in the middle has lost its connection.
        self.lost(link, &Fault::Connect("there was none yet".to_owned()), &Fault::Unanswered);
        loop {
            let mut began = BootClock.now();
            let opened = async {
                sleep(pause).await;
                began = BootClock.now();
                self.open(link).await
            };
            let opened = tokio::select! {
                opened = opened => opened,
                () = link.pipe.prune() => return,
            };
            let end = match opened {
                Ok(connected) => self.carry(link, connected).await,
                Err(end) => end,
            };
            // What breaks at once will break again.
            pause = match end {
                _ if began.until(BootClock.now()) > Duration::from_secs(1) => Duration::ZERO,
                _ => (pause * 2).clamp(Duration::from_millis(2), Duration::from_millis(250)),
            };
            match end {
                End::Closed => {
                    self.lost(link, &Fault::Closed, &Fault::Unanswered);
                    self.closed = true;
                    return;
                }
                End::Lost(fault) => {
                    self.lost(link, &fault, &Fault::Unanswered);
                    self.turn = self.turn.wrapping_add(1);
                    if matches!(fault, Fault::Shorter { .. }) {
                        // Each try opens a session.
                        pause = self.ttl.unwrap_or(pause);
                    }
                }
                End::Expired => self.expired(link),
            }
        }
    }
    /// *Invariant:* nobody waits for an answer that cannot come.
    fn lost(&mut self, link: &Link, fault: &Fault, answer: &Fault) {
        for sent in link.pipe.given_up() {
            if let Some(reply) = sent.reply {
                let _ = reply.send(Err(answer.clone()));
            }
        }
        self.beats.clear();
        link.state.send_modify(|state| {
            // A login that was refused is the reason, whatever came of it.
            if state.trouble != Some(Fault::Login) {
                state.trouble = Some(fault.clone());
            }
        });
    }
    /// *Invariant (SAFETY A2):* what was meant for the session that is over is sent in no other. The server has ended it, and with it
    /// every node that was made in it.
    fn expired(&mut self, link: &Link) {
        self.lost(link, &Fault::SessionOver, &Fault::SessionOver);
        let over = Session(std::mem::take(&mut self.session));
        self.password.clear();
        self.watches.clear();
        if over.0 != 0 {
            link.state.send_modify(|state| state.session = None);
            link.report(Event::SessionEnded { session: over.id() });
        }
    }
    /// To the next server, and greets it.
    async fn open(&mut self, link: &Link) -> Result<Connected, End> {
        let lost = |why: &dyn fmt::Display| End::Lost(Fault::Connect(why.to_string()));
        let host = self.config.hosts[self.turn % self.config.hosts.len()].clone();
        // The majority has to agree to a new session.
        let limit = if self.session == 0 { NEW_SESSION } else { ONE_SERVER };
        let late = || End::Lost(Fault::Connect(format!("no word of {}:{} within {limit:?}", host.0, host.1)));
        // A name may have several addresses, of which some are dead.
        let address = self.turn / self.config.hosts.len();
        let stream = timeout(ONE_SERVER, self.connector.connect(&host.0, host.1, address)).await.map_err(|_| late())?;
        let mut connected = stream.map_err(|e| lost(&format!("{}:{}: {e}", host.0, host.1)))?;
        let millis = i32::try_from(self.config.ttl.as_millis()).unwrap_or(i32::MAX);
        let hello = Hello {
            seen: self.seen,
            timeout: millis,
            session: self.session,
            // A new one has none.
            password: if self.session == 0 { vec![0; 16] } else { self.password.clone() },
        };
        // Its ttl counts from before it was asked for (SAFETY G1): the leader knows of it since then, or a little later.
        let at = BootClock.now();
        let mut out = hello.write();
        if let Some((user, password)) = &self.config.login {
            out.extend(auth("digest", &format!("{user}:{password}")));
        }
        let talk = async {
            let Connected { reader, writer, .. } = &mut connected;
            writer.write_all(&out).await?;
            writer.flush().await?;
            let len = usize::try_from(reader.read_i32().await?).unwrap_or(usize::MAX);
            if len > 1 << 16 {
                return Ok(None);
            }
            let mut body = vec![0; len];
            reader.read_exact(&mut body).await?;
            Ok(Hello::read(&mut Reader(&body)))
        };
        let answer: Result<_, std::io::Error> = within(limit, talk).await.ok_or_else(late)?;
        let answer = answer.map_err(|e| lost(&format!("{}:{}: {e}", host.0, host.1)))?;
        let Some(answer) = answer else { return Err(End::Lost(Fault::Answer)) };
        if answer.session == 0 || answer.timeout <= 0 {
            return Err(End::Expired);
        }
        let takes_over = self.session != 0 && answer.session == self.session;
        if self.session != 0 && !takes_over {
            // Some servers give another one in silence.
            self.expired(link);
        }
        let ttl = Duration::from_millis(u64::try_from(answer.timeout).unwrap_or(0));
        if self.ttl.is_some_and(|first| ttl < first) {
            self.expired(link);
            return Err(End::Lost(Fault::Shorter { now: answer.timeout }));
        }
        self.ttl.get_or_insert(ttl);
        (self.session, self.password) = (answer.session, answer.password);
        let session = Session(self.session);
        // The majority has made a new session. That one is taken over one server says, who may be a leader no more: the first
        // transaction of this connection confirms it.
        if !takes_over {
            link.report(Event::SessionAlive { session: session.id(), sent_at: at });
        }
        self.beats.push_back(Beat { sent_at: at, counts: BootClock.now() });
        link.state.send_modify(|state| {
            state.session = Some(session);
            if state.trouble != Some(Fault::Login) {
                state.trouble = None;
            }
        });
        Ok(connected)
    }
    /// What was watched, in parts.
    fn watch_again(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        self.watches.retain(|_, told| {
            told.retain(|tx| !tx.is_closed());
            !told.is_empty()
        });
        let (mut part, mut size) = (Vec::new(), 0);
        for key in self.watches.keys() {
            size += key.0.len() + 4;
            part.push(key.clone());
            if size > WATCHES_TOGETHER {
                out.extend(watches(self.seen, &part));
                (part, size) = (Vec::new(), 0);
            }
        }
        if !part.is_empty() {
            out.extend(watches(self.seen, &part));
        }
        out
    }
    /// Carries commands and answers until it ends.
    async fn carry(&mut self, link: &Link, connected: Connected) -> End {
        const NAPS: u32 = 8;
        let Connected { mut reader, mut writer, socket } = connected;
        link.pipe.open(self.session, self.watch_again(), socket);
        let _open = Open(&link.pipe);
        let (mut out, mut from, mut input) = (link.pipe.take().unwrap_or_default(), 0, Vec::with_capacity(4096));
        let ttl = self.ttl.unwrap_or(PATIENCE);
        let patience = (ttl / 7).clamp(LEAST_PATIENCE, PATIENCE).min(ttl / 3);
        // The first one at once: it confirms the greeting.
        let mut beat = pin!(sleep(Duration::ZERO));
        // Of the time in which this process ran: one that was stopped reads what has come before it gives up.
        let mut nap = pin!(sleep(patience));
        let (mut quiet, mut unflushed) = (0, false);
        let mut sweep = pin!(sleep(SWEEP));
        loop {
            tokio::select! {
                biased;
                read = reader.read_buf(&mut input) => {
                    match read {
                        Ok(0) => return End::Lost(Fault::Connect("the server closed the connection".to_owned())),
                        Err(e) => return End::Lost(Fault::Connect(e.to_string())),
                        Ok(_) => {}
                    }
                    let before = link.pipe.next();
                    if let Err(end) = self.take(link, &mut input) {
                        return end;
                    }
                    // An answer, or a part of one: what others have done says nothing of our commands.
                    if before != link.pipe.next() || !input.is_empty() {
                        quiet = 0;
                    }
                }
                // What is encrypted goes out when it is flushed.
                written = async {
                    if from < out.len() {
                        writer.write(&out[from..]).await.map(Some)
                    } else {
                        writer.flush().await.map(|()| None)
                    }
                }, if from < out.len() || unflushed => match written {
                    Ok(Some(len)) => {
                        (from, unflushed) = (from + len, true);
                        if from == out.len() {
                            (out, from) = (link.pipe.take().unwrap_or_default(), 0);
                        }
                    }
                    Ok(None) => unflushed = false,
                    Err(e) => return End::Lost(Fault::Connect(e.to_string())),
                },
                () = link.pipe.nudged(), if out.is_empty() => out = link.pipe.take().unwrap_or_default(),
                () = &mut beat => {
                    // Who holds nothing need not ask the majority.
                    let path = "/".to_owned();
                    let op = if link.holds() { Op::Multi(vec![Op::Check { path, version: -1 }]) } else { Op::Sync { path } };
                    link.pipe.say(op);
                    beat.set(sleep(ttl / BEATS));
                    if quiet == 0 {
                        nap.set(sleep(patience / NAPS));
                    }
                }
                () = &mut sweep, if !self.watches.is_empty() => {
                    self.sweep(&link.pipe);
                    sweep.set(sleep(SWEEP));
                }
                // Whoever asks writes by himself, and nobody tells it here.
                () = &mut nap => {
                    if link.pipe.next().is_none() {
                        quiet = 0;
                        nap.set(sleep(patience));
                        continue;
                    }
                    nap.set(sleep(patience / NAPS));
                    quiet += 1;
                    if quiet > NAPS {
                        return End::Lost(Fault::Connect(format!("no answer within {patience:?}")));
                    }
                }
            }
        }
    }
    /// What nobody wants to hear any more is not watched any more (SAFETY E9).
    fn sweep(&mut self, pipe: &Pipe) {
        let mut unwatched = Vec::new();
        self.watches.retain(|(path, _), told| {
            told.retain(|tx| !tx.is_closed());
            if told.is_empty() {
                unwatched.push(path.clone());
            }
            !told.is_empty()
        });
        let kinds = [Watched::Data, Watched::Absent, Watched::Children];
        for path in unwatched {
            if !kinds.iter().any(|of| self.watches.contains_key(&(path.clone(), *of))) {
                pipe.unwatch(path);
            }
        }
    }
    /// All messages that are whole.
    fn take(&mut self, link: &Link, input: &mut Vec<u8>) -> Result<(), End> {
        let mut from = 0;
        while let Some(len) = input[from..].first_chunk().map(|len| u32::from_be_bytes(*len) as usize) {
            if len > LARGEST {
                return Err(End::Lost(Fault::Answer));
            }
            let Some(message) = input.get(from + 4..from + 4 + len) else { break };
            self.message(link, message)?;
            from += 4 + len;
        }
        input.drain(..from);
        Ok(())
    }
    fn message(&mut self, link: &Link, message: &[u8]) -> Result<(), End> {
        let mut body = Reader(message);
        let head = (body.int(), body.long(), body.int());
        let (Some(xid), Some(zxid), Some(error)) = head else { return Err(End::Lost(Fault::Answer)) };
        match xid {
            XID_EVENT => {
                if let Some((happened, path)) = Happened::read(&mut body) {
                    self.happened(happened, path);
                }
                return Ok(());
            }
            XID_AUTH if error != 0 => return Err(End::Lost(Fault::Login)),
            XID_AUTH => return Ok(()),
            // A path that we may not see any more: whoever watches it is told by silence, and looks.
            XID_WATCHES if error != 0 => {
                self.watches.clear();
                return Ok(());
            }
            XID_WATCHES => return Ok(()),
            _ => {}
        }
        self.seen = self.seen.max(zxid);
        // What is out of order is no answer of this: nobody knows what became of anything on this connection.
        let Some(sent) = link.pipe.answered(xid) else { return Err(End::Lost(Fault::Answer)) };
        match error {
            code::SESSION_EXPIRED => {
                link.pipe.put_back(sent);
                return Err(End::Expired);
            }
            code::SESSION_MOVED => {
                link.pipe.put_back(sent);
                return Err(End::Lost(Fault::Refused(error)));
            }
            code::AUTH_FAILED => {
                link.pipe.put_back(sent);
                return Err(End::Lost(Fault::Login));
            }
            _ => {}
        }
        let whole = error == 0 || (matches!(sent.op, Op::Multi(_)) && !body.0.is_empty());
        let answer =
            if whole { sent.op.read(zxid, &mut body).ok_or(Fault::Answer) } else { Err(Fault::Refused(error)) };
        if let Ok(Answer::Refused { error: code::SESSION_EXPIRED, .. }) = answer {
            link.pipe.put_back(sent);
            return Err(End::Expired);
        }
        // Before it is answered: whoever is granted something by it has a session that lives (SAFETY G1).
        if sent.op.is_agreed(error) {
            self.agreed(link, sent.at);
        }
        if sent.reply.is_none() && matches!(sent.op, Op::Sync { .. } | Op::Multi(_)) {
            self.alive(sent.at);
        }
        let Sent { op, reply, watch, .. } = sent;
        if let (Some((path, of)), Some(watch)) = (op.watch(error == 0), watch)
            && (error == 0 || error == code::NO_NODE)
        {
            self.watches.entry((path.to_owned(), of)).or_default().push(watch);
        }
        let Some(reply) = reply else { return Ok(()) };
        let unknown = matches!(answer, Err(Fault::Answer));
        // It may have had its effect.
        let _ = reply.send(if unknown { Err(Fault::Unanswered) } else { answer });
        if unknown {
            return Err(End::Lost(Fault::Answer));
        }
        match op {
            Op::Close => Err(End::Closed),
            _ => Ok(()),
        }
    }
    /// The server has answered a sign of life.
    fn alive(&mut self, sent_at: Moment) {
        const KEPT: usize = 32;
        self.beats.push_back(Beat { sent_at, counts: BootClock.now() + self.ttl.unwrap_or_default() / 3 });
        if self.beats.len() > KEPT {
            self.beats.pop_front();
        }
    }
    /// The majority has agreed to a transaction that was sent then.
    ///
    /// *Invariant (SAFETY E6):* only the leader ends sessions, and it hears of a client that is connected to another server with that
    /// server's next ping, up to half a tick later. So what counts is the latest sign of life that the server had answered a third of
    /// the timeout before the transaction was sent: a timeout is two ticks at least, and its third more than half a tick. A server that
    /// takes itself for the leader answers a `sync` and takes a session over by itself, while the others have elected another one who
    /// ends it; a transaction it cannot. The greeting went to the leader itself, and a connection has one leader all its life.
    fn agreed(&mut self, link: &Link, at: Moment) {
        while self.beats.get(1).is_some_and(|beat| beat.counts <= at) {
            self.beats.pop_front();
        }
        if let Some(beat) = self.beats.front().filter(|beat| beat.counts <= at) {
            link.report(Event::SessionAlive { session: Session(self.session).id(), sent_at: beat.sent_at });
        }
    }
    fn happened(&mut self, happened: Happened, path: String) {
        for of in [Watched::Data, Watched::Absent, Watched::Children] {
            if !happened.concerns(of) {
                continue;
            }
            for told in self.watches.remove(&(path.clone(), of)).into_iter().flatten() {
                let _ = told.send(happened);
            }
        }
    }
}
impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wire")
    }
}
/// For as long as it is carried.
struct Open<'a>(&'a Pipe);
impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.shut();
    }
}
