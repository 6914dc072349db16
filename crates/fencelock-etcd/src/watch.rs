//! One stream of watches for all who wait for a key to go.
//!
//! A watch that begins at a revision which is past is served by the server's slow way for those who lag behind, every 100 ms; and the
//! revision after the one that somebody has read is past as soon as anybody writes anything. So a waiter's watch begins when it arrives, and
//! if something was written in between its owner is told to look once more. It is a hint: whoever is woken looks.
use crate::{
    link::Link,
    shared::lock,
    wire::key::after,
    wire::pb::{WatchCancel, WatchCreate, WatchDo, WatchRequest, Watched},
};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    sync::{
        Notify,
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    },
    time::sleep,
};

/// What a waiter wants to hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    key: Vec<u8>,
    end: Vec<u8>,
    without: Option<i32>,
}
impl Target {
    const NO_PUTS: i32 = 0;
    const NO_DELETES: i32 = 1;

    /// That this key goes.
    pub(crate) fn goes(key: &[u8]) -> Self {
        Self { key: key.to_vec(), end: Vec::new(), without: Some(Self::NO_PUTS) }
    }
    /// That this key is written.
    pub(crate) fn comes(key: &str) -> Self {
        Self { key: key.as_bytes().to_vec(), end: Vec::new(), without: Some(Self::NO_DELETES) }
    }
    /// That one of those goes that begin so.
    pub(crate) fn any_goes(prefix: &str) -> Self {
        Self { without: Some(Self::NO_PUTS), ..Self::any(prefix) }
    }
    /// Whatever becomes of those that begin so.
    pub(crate) fn any(prefix: &str) -> Self {
        Self { key: prefix.as_bytes().to_vec(), end: after(prefix), without: None }
    }
}

#[derive(Debug)]
pub(crate) enum Order {
    Add(i64, Wanted),
    Remove(i64),
}
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    target: Target,
    from: From,
    told: Arc<Told>,
}
/// From when on something is told.
#[derive(Clone, Copy, Debug)]
enum From {
    /// This revision, whatever it takes.
    Past(i64),
    /// When the watch arrives.
    Now,
}
#[derive(Debug)]
pub(crate) struct Told {
    word: Mutex<Word>,
    notify: Notify,
}
#[derive(Debug, Default)]
struct Word {
    keys: Vec<Vec<u8>>,
    /// It was looked at this revision, and what happens after that is to be told.
    looked: i64,
    /// One that is told from now on has begun after this revision, the latest of them.
    began: i64,
    over: bool,
}
/// What a watch has told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// Something has happened to these keys, at least one, in that order.
    Of(Vec<Vec<u8>>),
    /// Something was written before the watch began, perhaps what is watched. From now on nothing is missed.
    Missed,
    /// Nobody knows what has happened, and nothing is told any more.
    Over,
}
#[derive(Debug)]
pub(crate) struct Watches {
    orders: UnboundedSender<Order>,
    last: AtomicI64,
}
impl Watches {
    pub(crate) fn new() -> (Self, UnboundedReceiver<Order>) {
        let (orders, inbox) = unbounded_channel();
        (Self { orders, last: AtomicI64::new(0) }, inbox)
    }
    /// Tells what of this has happened since this revision and what happens: late, when it is past.
    pub(crate) fn since(&self, targets: Vec<Target>, from: i64) -> Watch {
        self.add(targets, From::Past(from), from)
    }
    fn add(&self, targets: Vec<Target>, from: From, looked: i64) -> Watch {
        let word = Mutex::new(Word { looked, ..Word::default() });
        let told = Arc::new(Told { word, notify: Notify::new() });
        let ids = targets.into_iter().map(|target| {
            let id = self.last.fetch_add(1, Relaxed) + 1;
            let _ = self.orders.send(Order::Add(id, Wanted { target, from, told: told.clone() }));
            id
        });
        Watch { ids: ids.collect(), orders: self.orders.clone(), told }
    }
}
/// The watch of somebody who looks, and listens, again and again. It stays for as long as he listens for the same.
#[derive(Debug, Default)]
pub(crate) struct Ear(Option<(Vec<Target>, Watch)>);
impl Ear {
    /// What happens to these from now on, at once; it was looked at this revision.
    ///
    /// *Invariant:* what happens after that is told, by its key or as missed: a watch that stays has begun before it was looked, and a
    /// new one says at which revision it began.
    pub(crate) fn at(&mut self, watches: &Watches, targets: Vec<Target>, revision: i64) -> &Watch {
        if self.0.as_ref().is_some_and(|(known, _)| *known != targets) {
            self.0 = None;
        }
        let begin = || {
            let watch = watches.add(targets.clone(), From::Now, revision);
            (targets, watch)
        };
        let (_, watch) = self.0.get_or_insert_with(begin);
        lock(&watch.told.word).looked = revision;
        watch
    }
    /// It hears no more.
    pub(crate) fn close(&mut self) {
        self.0 = None;
    }
}
/// It is watched for as long as this lives.
#[derive(Debug)]
pub(crate) struct Watch {
    orders: UnboundedSender<Order>,
    ids: Vec<i64>,
    told: Arc<Told>,
}
impl Watch {
    /// What has happened since it was asked last.
    pub(crate) async fn told(&self) -> Heard {
        loop {
            if let Some(heard) = lock(&self.told.word).heard() {
                return heard;
            }
            self.told.notify.notified().await;
        }
    }
}
impl Drop for Watch {
    fn drop(&mut self) {
        for id in &self.ids {
            let _ = self.orders.send(Order::Remove(*id));
        }
    }
}

#[derive(Default)]
struct Open(HashMap<i64, Wanted>);
impl Open {
    fn take(&mut self, order: Order) -> Option<WatchRequest> {
        match order {
            Order::Add(id, wanted) => {
                let ask = wanted.ask(id);
                self.0.insert(id, wanted);
                Some(ask)
            }
            Order::Remove(id) => self.0.remove(&id).map(|_| cancel(id)),
        }
    }
    fn tell(&self, id: i64, keys: impl Iterator<Item = Vec<u8>>) {
        if let Some(Wanted { told, .. }) = self.0.get(&id) {
            told.tell(|word| word.keys.extend(keys));
        }
    }
    /// It has begun after this revision.
    fn began(&self, id: i64, revision: i64) {
        if let Some(Wanted { from: From::Now, told, .. }) = self.0.get(&id) {
            told.tell(|word| word.began = word.began.max(revision));
        }
    }
    fn end(&mut self, id: i64) {
        if let Some(Wanted { told, .. }) = self.0.remove(&id) {
            told.tell(|word| word.over = true);
        }
    }
}
impl Wanted {
    fn ask(&self, id: i64) -> WatchRequest {
        let start = match self.from {
            From::Past(from) => from,
            From::Now => 0,
        };
        create(id, &self.target, start)
    }
}
impl Word {
    fn heard(&mut self) -> Option<Heard> {
        let (began, keys) = (std::mem::take(&mut self.began), std::mem::take(&mut self.keys));
        match () {
            () if self.over => Some(Heard::Over),
            () if began > self.looked => Some(Heard::Missed),
            () => (!keys.is_empty()).then_some(Heard::Of(keys)),
        }
    }
}
impl Told {
    fn tell(&self, change: impl FnOnce(&mut Word)) {
        change(&mut lock(&self.word));
        self.notify.notify_one();
    }
}
pub(crate) fn create(id: i64, target: &Target, start: i64) -> WatchRequest {
    let Target { key, end, without } = target.clone();
    let without = without.into_iter().collect();
    WatchRequest { what: Some(WatchDo::Create(WatchCreate { key, end, start, without, id })) }
}
pub(crate) fn cancel(id: i64) -> WatchRequest {
    WatchRequest { what: Some(WatchDo::Cancel(WatchCancel { id })) }
}

/// Never returns.
pub(crate) async fn run(link: &Link, inbox: &mut UnboundedReceiver<Order>) {
    let mut open = Open::default();
    let mut pause = Duration::from_millis(10);
    loop {
        while open.0.is_empty() {
            match inbox.recv().await {
                Some(order) => drop(open.take(order)),
                None => return std::future::pending().await,
            }
        }
        if watch(link, inbox, &mut open).await.is_some() {
            pause = Duration::from_millis(10);
        }
        // Nobody would tell them any more: they look for themselves, and come again.
        open.0.drain().for_each(|(_, wanted)| wanted.told.tell(|word| word.over = true));
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}
/// Until the stream ends. `None`: it never began, or refuses what is asked.
async fn watch(link: &Link, inbox: &mut UnboundedReceiver<Order>, open: &mut Open) -> Option<()> {
    let conn = link.here().await.ok()?;
    let ((asks, sent), login) = (unbounded_channel(), link.known_login());
    for (id, wanted) in &open.0 {
        let _ = asks.send(wanted.ask(*id));
    }
    let mut stream = link.stream::<_, Watched>(&conn, "/etcdserverpb.Watch/Watch", sent).await.ok()?;
    loop {
        tokio::select! {
            order = inbox.recv() => {
                if let Some(ask) = open.take(order?) {
                    let _ = asks.send(ask);
                }
            }
            message = stream.message() => match message.inspect(|_| conn.heard()) {
                Ok(Some(Watched { id, canceled: true, compacted, .. })) => match open.0.contains_key(&id) {
                    true if compacted > 0 => open.end(id),
                    // The stream's login is not known any more, or may not read this. The server refuses a watch and leaves the
                    // stream open, where nobody would be told of the next one; some servers do not say which they refuse.
                    known if known || id < 0 => {
                        link.log_out(login.as_ref());
                        return None;
                    }
                    // We have ended it.
                    _ => {}
                },
                Ok(Some(Watched { id, created, header, events, .. })) => {
                    if created {
                        open.began(id, header.map_or(i64::MAX, |header| header.revision));
                    }
                    open.tell(id, events.into_iter().filter_map(|event| Some(event.key?.key)));
                }
                Ok(None) => return Some(()),
                Err(status) => {
                    link.ended(&conn, &status.into());
                    return Some(());
                }
            },
            () = link.left(&conn) => return Some(()),
        }
    }
}
