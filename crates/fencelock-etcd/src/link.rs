//! Connections: one for each runtime that calls, to one of the members, made when it is needed and made again, to the next member,
//! when it broke.
//!
//! *Invariant (SAFETY E5):* a connection is driven by tasks of the runtime that opened it, so one whose runtime is gone is never
//! waited for by another one's tasks. Every call has a limit of ours; one that is over it gives its connection up.
use crate::{
    config::{Config, Tls},
    error::Fault,
    wire::pb::{Authenticate, Authenticated, Txn, TxnDone},
};
use fencelock_core::{BootClock, Clock, Error, ErrorKind, Result, within};
use fencelock_tls::{chain, key};
use prost::Message;
use std::{
    future::pending,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    runtime::{Handle, Id},
    sync::{Mutex as AsyncMutex, Notify, mpsc::UnboundedReceiver, watch},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{
    Request, Streaming,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    metadata::{Ascii, MetadataValue},
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};
use tonic_prost::ProstCodec;

/// For so long a connection is tried, to whatever member (SAFETY E8).
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// And for so long one member is.
const ONE_MEMBER: Duration = Duration::from_secs(2);
/// One that has not answered by then is not waited for alone: the next one is tried beside it.
const HEAD_START: Duration = Duration::from_millis(250);
/// Whoever logs in for all is waited for so long: he may not be polled any more.
const LOGIN: Duration = Duration::from_millis(250);
/// A name with very many contenders is told in one answer.
const LARGEST: usize = 64 << 20;
/// So often a silent server is asked for a sign of life, while something is open.
const LISTENS: Duration = Duration::from_secs(10);
/// For so long an answer is waited for: longer than an election takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

pub(crate) struct Link {
    /// For the tasks that connect.
    me: Weak<Self>,
    members: Vec<Endpoint>,
    pub(crate) endpoint: Arc<str>,
    login: Option<(String, String)>,
    /// What the server gave us for it.
    token: Mutex<Option<MetadataValue<Ascii>>>,
    logs_in: AsyncMutex<()>,
    slots: Mutex<Vec<Slot>>,
    /// The member that is tried next.
    turn: AtomicUsize,
    last: AtomicUsize,
    /// Told whenever a connection is given up.
    given_up: Notify,
    closed: AtomicBool,
}
/// One runtime's connection. A task of that runtime makes it, so nobody who waits for it and is dropped, or not polled any more,
/// keeps the others from it; and that task keeps it, so it is told by this channel when its runtime is gone.
struct Slot {
    runtime: Id,
    conn: watch::Receiver<Option<Result<Conn, Fault>>>,
}
impl Slot {
    fn has(&self, is_wanted: impl Fn(&Conn) -> bool) -> bool {
        matches!(&*self.conn.borrow(), Some(Ok(conn)) if is_wanted(conn))
    }
    fn is(&self, wanted: &Conn) -> bool {
        self.has(|conn| conn.number == wanted.number)
    }
}
#[derive(Clone, Debug)]
pub(crate) struct Conn {
    pub(crate) channel: Channel,
    number: usize,
    /// In whose turn it was made.
    turn: usize,
    life: Arc<Life>,
}
/// Signs of life of a connection, in ns.
#[derive(Debug, Default)]
struct Life {
    /// Since when something is asked and nothing is answered; 0: it is not so.
    silent: AtomicU64,
    /// The last answer.
    heard: AtomicU64,
}
impl Conn {
    /// *Invariant:* who asks may be gone before his limit, again and again; the connection is given up all the same.
    fn is_mute(&self) -> bool {
        let since = self.life.silent.load(Relaxed);
        since > 0 && BootClock.now().as_nanos() > since + nanos(PATIENCE)
    }
    fn asked(&self) {
        let _ = self.life.silent.compare_exchange(0, BootClock.now().as_nanos(), Relaxed, Relaxed);
    }
    pub(crate) fn heard(&self) {
        self.life.silent.store(0, Relaxed);
        self.life.heard.store(BootClock.now().as_nanos(), Relaxed);
    }
    /// *Invariant:* a server with too much to do is slow, and not silent: were its connection given up, all who wait by it would ask anew
    /// by the next one, and it would have more to do.
    fn is_silent(&self) -> bool {
        BootClock.now().as_nanos() > self.life.heard.load(Relaxed) + nanos(PATIENCE)
    }
}
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Link {
    pub(crate) fn new(config: &Config) -> Result<Arc<Self>> {
        let refuse = |e: tonic::transport::Error| {
            Error::new(ErrorKind::InvalidConfig, "connect", "the URL cannot be used").because(said(&e))
        };
        let tls = config.tls.as_ref().map(certificates).transpose()?;
        let member = |uri: String| {
            let member = Endpoint::from_shared(uri).map_err(refuse)?.connect_timeout(ONE_MEMBER).tcp_nodelay(true);
            // Who only listens would not notice that nobody speaks any more. A server takes no more than one in 5 s, and none of a
            // client that has nothing open.
            let member = member.http2_keep_alive_interval(LISTENS).keep_alive_timeout(CONNECT_TIMEOUT);
            match &tls {
                Some(tls) => member.tls_config(tls.clone()).map_err(refuse),
                None => Ok(member),
            }
        };
        let members = config.members().map(member).collect::<Result<Vec<_>>>()?;
        // Clients of one configuration do not all go to the first.
        let turn = AtomicUsize::new(fastrand::usize(..members.len().max(1)));
        Ok(Arc::new_cyclic(|me| Self {
            me: me.clone(),
            members,
            endpoint: config.endpoint().into(),
            login: config.login.clone(),
            token: Mutex::default(),
            logs_in: AsyncMutex::default(),
            slots: Mutex::default(),
            turn,
            last: AtomicUsize::new(0),
            given_up: Notify::new(),
            closed: AtomicBool::new(false),
        }))
    }
    fn slots(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn token(&self) -> MutexGuard<'_, Option<MetadataValue<Ascii>>> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }
    pub(crate) fn close(&self) {
        self.closed.store(true, Relaxed);
        self.slots().clear();
    }
    fn check_open(&self) -> Result<(), Fault> {
        if self.closed.load(Relaxed) { Err(Fault::Closed) } else { Ok(()) }
    }
    /// This runtime's connection.
    pub(crate) async fn here(&self) -> Result<Conn, Fault> {
        let here = Handle::current().id();
        let open = |slot: &Slot| slot.conn.borrow().as_ref().and_then(|end| end.as_ref().ok().cloned());
        let known = self.slots().iter().find(|slot| slot.runtime == here).and_then(open);
        if let Some(conn) = known {
            if !conn.is_mute() {
                return Ok(conn);
            }
            self.give_up(&conn);
        }
        let mut conn = self.slot(here)?;
        // Whoever waits has a limit of his own. The channel ends with a runtime that is going.
        let end = timeout(CONNECT_TIMEOUT, conn.wait_for(Option::is_some)).await;
        let end = end.ok().and_then(Result::ok).and_then(|end| end.clone());
        end.unwrap_or_else(|| Err(Fault::Connect("none within the time that there was".to_owned())))
    }
    /// The same, tried again for a while when there is none, until `stopped`: then why there was none is told, too.
    pub(crate) async fn soon(&self, stopped: impl Future<Output = ()>) -> Result<Conn, Fault> {
        let (limit, mut pause) = (BootClock.now() + CONNECT_TIMEOUT, Duration::from_millis(10));
        let mut stopped = pin!(stopped);
        loop {
            let fault = tokio::select! {
                biased;
                conn = self.here() => match conn {
                    Err(fault) if fault.may_pass() && BootClock.now() + pause < limit => fault,
                    end => return end,
                },
                () = &mut stopped => return Err(Fault::Connect("none before it was stopped".to_owned())),
            };
            tokio::select! {
                biased;
                () = &mut stopped => return Err(fault),
                () = sleep(pause) => {}
            }
            pause = (pause * 2).min(Duration::from_millis(250));
        }
    }
    /// What may be asked again with one effect: it is, for a while, when the members cannot do it now.
    pub(crate) async fn again<T, A>(&self, ask: impl Fn(Conn) -> A) -> Result<T, Fault>
    where
        A: Future<Output = Result<T, Fault>>,
    {
        let (limit, mut pause) = (BootClock.now() + CONNECT_TIMEOUT, Duration::from_millis(10));
        loop {
            match ask(self.soon(pending()).await?).await {
                Err(fault) if fault.may_pass() && BootClock.now() + pause < limit => {}
                end => return end,
            }
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(250));
        }
    }
    /// Where this runtime's connection is, or will be.
    fn slot(&self, here: Id) -> Result<watch::Receiver<Option<Result<Conn, Fault>>>, Fault> {
        let mut slots = self.slots();
        // Under the mutex: `close` finds the slot, or has told us.
        self.check_open()?;
        if let Some(slot) = slots.iter().find(|slot| slot.runtime == here) {
            return Ok(slot.conn.clone());
        }
        let (told, conn) = watch::channel(None);
        slots.retain(|slot| slot.conn.has_changed().is_ok());
        slots.push(Slot { runtime: here, conn: conn.clone() });
        drop(slots);
        let me = self.me.clone();
        tokio::spawn(async move {
            let Some(link) = me.upgrade() else { return };
            let end = link.connect().await;
            let end = end.and_then(|conn| link.check_open().map(|()| conn));
            if end.is_err() {
                // Those who wait are told; whoever comes next tries anew.
                link.slots().retain(|slot| !slot.conn.same_channel(&told.subscribe()));
            }
            told.send_replace(Some(end));
            drop(link);
            // For as long as it is wanted.
            told.closed().await;
        });
        Ok(conn)
    }
    /// To the first member that answers, from the one whose turn it is on.
    async fn connect(&self) -> Result<Conn, Fault> {
        let (mut tried, mut why, first) = (JoinSet::new(), String::new(), self.turn.load(Relaxed));
        let mut rest = (0..self.members.len()).map(|n| first.wrapping_add(n)).peekable();
        loop {
            if let Some(turn) = rest.next() {
                let member = self.members[turn % self.members.len()].clone();
                tried.spawn(async move { (turn, timeout(ONE_MEMBER, member.connect()).await) });
            }
            tokio::select! {
                end = tried.join_next() => match end {
                    Some(Ok((turn, Ok(Ok(channel))))) => {
                        let _ = self.turn.compare_exchange(first, turn, Relaxed, Relaxed);
                        let number = self.last.fetch_add(1, Relaxed);
                        return Ok(Conn { channel, number, turn, life: Arc::default() });
                    }
                    Some(Ok((_, Ok(Err(e))))) => why = said(&e),
                    Some(Ok((_, Err(_)))) => why = format!("no connection within {ONE_MEMBER:?}"),
                    Some(Err(_)) | None => return Err(Fault::Connect(why)),
                },
                () = sleep(HEAD_START), if rest.peek().is_some() => {}
            }
        }
    }
    /// The next member's turn, unless somebody has passed this one before.
    fn pass(&self, turn: usize) {
        let _ = self.turn.compare_exchange(turn, turn.wrapping_add(1), Relaxed, Relaxed);
    }
    /// The next call opens another one, to the next member; so do the other runtimes', where there is another member: they would find
    /// out one after the other that this one does not serve.
    pub(crate) fn give_up(&self, conn: &Conn) {
        let mut slots = self.slots();
        if slots.iter().any(|slot| slot.is(conn)) {
            let alone = self.members.len() == 1;
            slots.retain(|slot| !slot.is(conn) && (alone || !slot.has(|other| other.turn == conn.turn)));
            drop(slots);
            // Another runtime's connection to the same member may have passed it: both together would come round to it again.
            self.pass(conn.turn);
            self.given_up.notify_waiters();
        }
    }
    /// Resolves when somebody has given this connection up. What was open on it may never be answered.
    pub(crate) async fn left(&self, conn: &Conn) {
        loop {
            let mut told = pin!(self.given_up.notified());
            told.as_mut().enable();
            if !self.slots().iter().any(|slot| slot.is(conn)) {
                return;
            }
            told.await;
        }
    }

    /// What the server wants to see of our login.
    pub(crate) async fn login(&self, conn: &Conn) -> Result<Option<MetadataValue<Ascii>>, Fault> {
        let Some((name, password)) = &self.login else { return Ok(None) };
        if let Some(token) = self.known_login() {
            return Ok(Some(token));
        }
        // One for all who have heard that the last one is over: a password costs the server much. *Invariant (SAFETY E5):* whoever
        // is not polled any more while he does it, or while it is his turn, does not keep the others from it.
        let _turn = timeout(LOGIN, self.logs_in.lock()).await;
        if let Some(token) = self.known_login() {
            return Ok(Some(token));
        }
        let ask = Authenticate { name: name.clone(), password: password.clone() };
        let answer: Authenticated = self.send(conn, "/etcdserverpb.Auth/Authenticate", ask, None).await?;
        let mut token: MetadataValue<Ascii> = answer.token.parse().map_err(|_| Fault::Answer)?;
        token.set_sensitive(true);
        *self.token() = Some(token.clone());
        Ok(Some(token))
    }
    pub(crate) fn known_login(&self) -> Option<MetadataValue<Ascii>> {
        self.token().clone()
    }
    /// It is not known any more: the next call logs in anew.
    pub(crate) fn log_out(&self, used: Option<&MetadataValue<Ascii>>) {
        let mut token = self.token();
        if token.as_ref() == used {
            *token = None;
        }
    }
    pub(crate) fn request<Q>(ask: Q, token: Option<MetadataValue<Ascii>>) -> Request<Q> {
        let mut request = Request::new(ask);
        // A member that has lost the others says so at once.
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        if let Some(token) = token {
            request.metadata_mut().insert("token", token);
        }
        request
    }
    async fn send<Q, A>(
        &self,
        conn: &Conn,
        path: &'static str,
        ask: Q,
        token: Option<MetadataValue<Ascii>>,
    ) -> Result<A, Fault>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let answer = within(PATIENCE, async {
            let mut grpc = Grpc::new(conn.channel.clone()).max_decoding_message_size(LARGEST);
            grpc.ready().await.map_err(|e| Fault::Connect(said(&e)))?;
            let (request, codec) = (Self::request(ask, token), ProstCodec::<Q, A>::default());
            let answer = grpc.unary(request, PathAndQuery::from_static(path), codec).await?;
            Ok(answer.into_inner())
        });
        conn.asked();
        let answer = tokio::select! {
            biased;
            answer = answer => answer.unwrap_or(Err(Fault::Unanswered)),
            // Somebody has waited for it in vain for longer than he can.
            () = self.left(conn) => Err(Fault::Unanswered),
        };
        if !matches!(answer, Err(Fault::Unanswered)) {
            conn.heard();
        }
        match &answer {
            Err(Fault::Unanswered) if !conn.is_silent() => {}
            Err(fault) if fault.ends_connection() || matches!(fault, Fault::Connect(_)) => self.give_up(conn),
            _ => {}
        }
        answer
    }
    /// One call.
    pub(crate) async fn call<Q, A>(&self, conn: &Conn, path: &'static str, ask: Q) -> Result<A, Fault>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let token = self.login(conn).await?;
        match self.send(conn, path, ask.clone(), token.clone()).await {
            Err(fault) if fault.is_stale_login() && self.login.is_some() => {
                self.log_out(token.as_ref());
                let token = self.login(conn).await?;
                self.send(conn, path, ask, token).await
            }
            answer => answer,
        }
    }
    pub(crate) async fn txn(&self, conn: &Conn, txn: Txn) -> Result<TxnDone, Fault> {
        self.call(conn, "/etcdserverpb.KV/Txn", txn).await
    }
    /// A stream of calls and answers. It does not begin, or ends, when the connection is given up.
    pub(crate) async fn stream<Q, A>(
        &self,
        conn: &Conn,
        path: &'static str,
        asks: UnboundedReceiver<Q>,
    ) -> Result<Streaming<A>, Fault>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let token = self.login(conn).await?;
        let used = token.clone();
        let stream = async {
            let mut grpc = Grpc::new(conn.channel.clone()).max_decoding_message_size(LARGEST);
            grpc.ready().await.map_err(|e| Fault::Connect(said(&e)))?;
            let asks = Self::request(UnboundedReceiverStream::new(asks), token);
            let codec = ProstCodec::<Q, A>::default();
            let stream = grpc.streaming(asks, PathAndQuery::from_static(path), codec).await?;
            Ok(stream.into_inner())
        };
        // The server answers a stream with its first word, so whoever opens one has sent something.
        let stream = tokio::select! {
            stream = within(PATIENCE, stream) => stream.unwrap_or(Err(Fault::Unanswered)),
            () = self.left(conn) => Err(Fault::Unanswered),
        };
        if let Err(fault) = &stream {
            if fault.is_stale_login() {
                self.log_out(used.as_ref());
            } else if fault.ends_connection() {
                self.give_up(conn);
            }
        }
        stream
    }
    /// A stream ended so.
    pub(crate) fn ended(&self, conn: &Conn, fault: &Fault) {
        if fault.is_stale_login() {
            // Whoever has logged in since is asked in vain once.
            *self.token() = None;
        } else if fault.ends_connection() {
            self.give_up(conn);
        }
    }
    pub(crate) fn tell(&self, operation: &'static str, fault: &Fault) -> Error {
        fault.tell(operation, &self.endpoint)
    }
}
impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Link({})", self.endpoint)
    }
}

/// With what lies below it, which says more.
fn said(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut below = error.source();
    while let Some(error) = below {
        words.push_str(": ");
        words.push_str(&error.to_string());
        below = error.source();
    }
    words
}
fn certificates(tls: &Tls) -> Result<ClientTlsConfig> {
    let mut config = ClientTlsConfig::new();
    config = match &tls.ca {
        Some(ca) => config.ca_certificate(Certificate::from_pem(chain(ca)?)),
        None => config.with_native_roots(),
    };
    if let Some((cert, private)) = &tls.client {
        config = config.identity(Identity::from_pem(chain(cert)?, key(private)?));
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    //! Planted to see them go red: a login that is waited for without end; one member after the other; a slow answer that is taken for
    //! silence, and silence that neither the call nor the next one finds.
    use super::*;
    use fencelock_testkit::Etcd;
    use tokio::{net::TcpSocket, time::Instant};

    /// One call is given up in time: what it proposed may have gone with a leader. Its connection is not, while it hears anything.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_is_slow_keeps_his_connection_and_who_is_silent_does_not() {
        let etcd = Etcd::start();
        let link = Link::new(&Config::from_url(&etcd.url()).expect("a URL")).expect("a link");
        let conn = link.here().await.expect("it serves");
        for hears in [true, false] {
            etcd.pause(0, true);
            let others = async {
                for _ in 0..if hears { 8 } else { 0 } {
                    sleep(PATIENCE / 6).await;
                    conn.heard();
                }
            };
            let call = async {
                let began = Instant::now();
                (link.txn(&conn, Txn::default()).await, began.elapsed())
            };
            let ((answer, took), ()) = tokio::join!(call, others);
            assert!(matches!(answer, Err(Fault::Unanswered)) && took < PATIENCE * 3 / 2, "{answer:?} after {took:?}");
            etcd.pause(0, false);
            assert_eq!(link.here().await.expect("it serves").number == conn.number, hears);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn whoever_logs_in_and_is_not_polled_any_more_keeps_nobody_from_it() {
        let etcd = Etcd::start();
        for words in [&["user", "add", "root:pass"][..], &["user", "grant-role", "root", "root"], &["auth", "enable"]] {
            etcd.run(words);
        }
        let url = format!("etcd://root:pass@127.0.0.1:{}", etcd.client_port(0));
        let link = Link::new(&Config::from_url(&url).expect("a URL")).expect("a link");
        let conn = link.here().await.expect("it serves");
        let stuck = link.logs_in.lock().await;
        let login = timeout(CONNECT_TIMEOUT, link.login(&conn)).await;
        assert!(login.expect("nobody waits for that one").expect("a password").is_some());
        drop(stuck);
    }

    /// A member to which no connection comes about costs a moment, not the time that it is given.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn members_that_take_no_connection_are_passed() {
        let etcd = Etcd::start();
        // Nobody accepts: what comes when there is no more room is not answered.
        let full = TcpSocket::new_v4().expect("a socket");
        full.bind(([127, 0, 0, 1], 0).into()).expect("a port");
        let full = full.listen(1).expect("a listener");
        let address = full.local_addr().expect("its address");
        let mut taken = Vec::new();
        while let Ok(stream) = std::net::TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
            taken.push(stream);
        }
        let members = [address.to_string(), etcd.endpoint(0)];
        // Those that take none are as many as are tried one after the other for longer than there is time.
        let members = [vec![members[0].clone(); 4], vec![members[1].clone()]].concat();
        let link = Link::new(&Config::from_url(&format!("etcd://{}", members.join(","))).expect("a URL"));
        let link = link.expect("a link");
        link.turn.store(0, Relaxed);
        link.here().await.expect("one of them serves");
        assert_eq!(link.turn.load(Relaxed), 4, "whoever comes next begins with it");
    }
}
