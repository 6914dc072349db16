//! What the suite must know about an engine that it proves.
use async_trait::async_trait;
use fencelock_core::{Chaos, Client, Engine, Name, Token};
use std::{fmt, sync::Arc, time::Duration};

/// An engine under test, in one of its topologies, layouts or strategies.
#[async_trait]
pub trait Family: Send + Sync {
    /// The first word of its trials' names.
    fn name(&self) -> &'static str;
    /// Which cases apply: the scopes of `cases.txt`. `any`, and what the engine has of `lease`, `session`, `queue`; its own
    /// name where there are cases for it alone; `core` where the cases that need no engine are to run.
    fn scopes(&self) -> &'static [&'static str];
    /// The same engine as another family's, in another topology or layout: of the whole suite it runs every third case, and all of them
    /// in full.
    fn is_variant(&self) -> bool {
        false
    }
    /// A store with nothing in it. It ends when it is dropped.
    fn start(&self) -> Box<dyn Fixture>;
    /// So many trials at once unless `--test-threads` says otherwise: trials wait more than they work. Fewer where the store works for each
    /// of its clients, or a busy machine keeps clients waiting for longer than they do.
    fn at_once(&self) -> usize {
        8
    }
    /// A ttl as short as trials should wait for, and as long as a busy machine needs to renew in time.
    fn short_ttl(&self) -> Duration {
        Duration::from_secs(2)
    }
    /// How long a first waiter who is alive may leave a free lock alone before the next may pass him; `None`: for ever. A busy
    /// machine makes him late, and then a trial of the order in the queue proves nothing.
    fn patience(&self) -> Option<Duration> {
        None
    }
    /// Whether a name that nobody uses still tells its last token: a store that orders everything that is written to it need keep
    /// nothing for that.
    fn tells_last_token(&self) -> bool {
        true
    }
    /// Whether readers wait behind a writer who waits.
    fn gives_writers_a_turn(&self) -> bool {
        true
    }
    /// Whether `held_for` counts from the grant at once. Where a record is not written again when its turn has come it is since somebody
    /// came, for a while.
    fn tells_since_the_grant(&self) -> bool {
        true
    }
    /// Whether the store tells who waits. Where nobody has a place in a queue it does not.
    fn tells_who_waits(&self) -> bool {
        true
    }
    /// Whether the store tells how long somebody's lease has left.
    fn tells_what_is_left(&self) -> bool {
        true
    }
    /// Whether nobody is seen to hold but who was told so. Most of several stores may have what came too late for its client.
    fn shows_grants_alone(&self) -> bool {
        true
    }
    /// Whether a holder's note is kept whatever its length. Where others read the record, too, it may not be.
    fn keeps_long_notes(&self) -> bool {
        true
    }
    /// By how much the store may have a lease longer than was asked for: one that counts more coarsely rounds it up.
    fn rounds_up(&self) -> Duration {
        Duration::ZERO
    }
    /// The longest name, in bytes. Where others made the column it may be short.
    fn longest_name(&self) -> usize {
        Name::MAX_BYTES
    }
    /// Whether names are compared byte by byte. Where others made the column some are the same to it.
    fn compares_bytes(&self) -> bool {
        true
    }
    /// Whether one request may take as many permits as there can be.
    fn takes_any_number(&self) -> bool {
        true
    }
    /// In a worker process: an engine on the store of [`Fixture::address`].
    async fn reach(&self, address: &str, ttl: Duration) -> Arc<dyn Engine> {
        let _ = ttl;
        panic!("{}: no process can reach {address:?}", self.name())
    }
}

/// A store that has been started: trials share it, each under a prefix of its own.
#[async_trait]
pub trait Fixture: Send + Sync {
    /// A fresh engine: another client of the same store. `ttl` is that of holds which do not say their own, and of its session
    /// where it has one.
    async fn engine(&self, ttl: Duration) -> Connection;
    /// What leads a worker process to this store; `None`: it lives in this process alone.
    fn address(&self) -> Option<String> {
        None
    }
    /// The server, where there is one to be stopped. A trial that does so has a store of its own.
    fn server(&self) -> Option<&dyn Server> {
        None
    }
    /// The operator's hand on sessions, where it reaches them. A trial that uses it has a store of its own.
    fn sessions(&self) -> Option<&dyn Sessions> {
        None
    }
    /// The operator's hand on wake-ups. A trial that uses it has a store of its own.
    fn wake_ups(&self) -> Option<&dyn WakeUps> {
        None
    }
    /// What is kept of names that nobody uses, where that goes after a time. A trial that uses it has a store of its own.
    fn records(&self) -> Option<&dyn Records> {
        None
    }
    /// Somebody's hand on the records of what is held. A trial that uses it has a store of its own.
    fn deletions(&self) -> Option<&dyn Deletions> {
        None
    }
    /// Where several applications share a store, each under a name of its own.
    fn namespaces(&self) -> Option<&dyn Namespaces> {
        None
    }
    /// Clients whose clock is not the store's.
    fn clocks(&self) -> Option<&dyn Clocks> {
        None
    }
    /// What is left over in the store when all clients are gone: holders, waiters, sessions, files. Asked at the end, until it
    /// says nothing, for at most ten seconds.
    async fn clean(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A server that can be stopped. Where there is no server, the store itself may fall silent: nothing can be written to it.
#[async_trait]
pub trait Server: Send + Sync {
    /// Whether those who only look are answered all the same.
    fn answers_readers(&self) -> bool {
        false
    }
    /// Whether an engine asks it before there is a client.
    fn is_asked_first(&self) -> bool {
        false
    }
    /// Nothing listens any more.
    async fn stop(&self);
    /// It listens again.
    async fn start(&self);
    /// It takes what is sent, and answers nothing, until `false`.
    async fn pause(&self, paused: bool);
}

/// Sessions that can be ended from outside.
#[async_trait]
pub trait Sessions: Send + Sync {
    /// Ends all that are open now, as an operator does: what they hold and wait for is over.
    async fn end(&self);
}

/// Wake-ups that do not arrive.
#[async_trait]
pub trait WakeUps: Send + Sync {
    /// None that is sent from now on reaches anybody who waits now.
    async fn lose(&self);
}

/// What is kept of names that nobody uses any more.
#[async_trait]
pub trait Records: Send + Sync {
    /// Makes every record as old as one that goes, used or not: the next client that comes cleans up.
    async fn age(&self);
    /// Makes the last tokens of these higher than the time of day would, as if the store's clock had been ahead. How high at most.
    /// *Invariant:* those of other trials stay as they are: a hold whose token is not its own any more is lost.
    async fn raise(&self, names: &[&str]) -> Token;
    /// Of which names there are records.
    async fn names(&self) -> Vec<String>;
}

/// Records of holds that are deleted behind everybody's back.
#[async_trait]
pub trait Deletions: Send + Sync {
    /// Deletes what is held of this name, and nobody is told. Other names may go too.
    async fn delete(&self, name: &str);
}

/// A store that several applications share.
#[async_trait]
pub trait Namespaces: Send + Sync {
    /// Another client, in a namespace that no other trial uses.
    async fn engine(&self, namespace: &str, ttl: Duration) -> Connection;
}

/// Clients whose clock is not the store's.
#[async_trait]
pub trait Clocks: Send + Sync {
    /// A client whose clock is so many seconds ahead of the store's; behind it, where that is below zero. All of them share a
    /// store, which need not be the fixture's.
    async fn client(&self, ahead: i64, ttl: Duration) -> Client;
}

/// Cuts one client off: with `true` nothing that it sends arrives and nothing is answered, until `false`.
pub type Cut = Arc<dyn Fn(bool) + Send + Sync>;

/// A fresh engine, and how to cut it off.
#[derive(Clone)]
#[non_exhaustive]
pub struct Connection {
    /// For one client.
    pub engine: Arc<dyn Engine>,
    /// How it is cut off, where that can be done.
    pub cut: Option<Cut>,
    /// How many commands it has sent to its store, where it counts them: what the engine does by itself counts as well.
    pub commands: Option<Arc<dyn Fn() -> u64 + Send + Sync>>,
    /// The cut is in front of the engine: what meets it is none of the engine's errors.
    pub(crate) cut_in_front: bool,
}
impl Connection {
    /// One that cannot be cut off.
    pub fn new(engine: Arc<dyn Engine>) -> Self {
        Self { engine, cut: None, commands: None, cut_in_front: false }
    }
    /// One that can, because its calls go through [`Chaos`]. For engines that do nothing but what they are called for: a session's
    /// own heartbeats do not go that way.
    pub fn cuttable(engine: Arc<dyn Engine>) -> Self {
        let chaos = Arc::new(Chaos::new(engine));
        let mut connection = Self::new(chaos.clone()).cut_by(move |cut| chaos.cut(cut));
        connection.cut_in_front = true;
        connection
    }
    /// One that can, by its own means.
    #[must_use]
    pub fn cut_by(mut self, cut: impl Fn(bool) + Send + Sync + 'static) -> Self {
        self.cut = Some(Arc::new(cut));
        self
    }
    /// One that counts its commands.
    #[must_use]
    pub fn counted_by(mut self, commands: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        self.commands = Some(Arc::new(commands));
        self
    }
}
impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.engine.fmt(f)
    }
}
