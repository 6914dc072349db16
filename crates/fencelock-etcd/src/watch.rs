//! One stream of watches for all who wait for a key to go.
//!
//! A watch begins at the revision after the one that its owner has read: one that begins earlier is served by the server's slow way for
//! those who lag behind. It is a hint: whoever is woken looks.
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
    Add { id: i64, target: Target, from: i64, told: Arc<Told> },
    Remove(i64),
}
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// The keys that something has happened to, in that order; `None` at the end: nobody can tell any more.
    keys: Mutex<Vec<Option<Vec<u8>>>>,
    notify: Notify,
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
    /// Tells when something of this happens at this revision or later, or nobody can tell any more.
    pub(crate) fn add(&self, targets: Vec<Target>, from: i64) -> Watch {
        let told = Arc::<Told>::default();
        let ids = targets.into_iter().map(|target| {
            let id = self.last.fetch_add(1, Relaxed) + 1;
            let _ = self.orders.send(Order::Add { id, target, from, told: told.clone() });
            id
        });
        Watch { ids: ids.collect(), orders: self.orders.clone(), told }
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
    /// The keys that something has happened to since it was asked last, at least one. `None`: nobody knows what has happened, and
    /// nothing is told any more.
    pub(crate) async fn told(&self) -> Option<Vec<Vec<u8>>> {
        loop {
            let keys = std::mem::take(&mut *lock(&self.told.keys));
            if !keys.is_empty() {
                return keys.into_iter().collect();
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
struct Open(HashMap<i64, (Target, i64, Arc<Told>)>);
impl Open {
    fn take(&mut self, order: Order) -> Option<WatchRequest> {
        match order {
            Order::Add { id, target, from, told } => {
                let ask = create(id, &target, from);
                self.0.insert(id, (target, from, told));
                Some(ask)
            }
            Order::Remove(id) => self.0.remove(&id).map(|_| cancel(id)),
        }
    }
    fn tell(&self, id: i64, keys: impl Iterator<Item = Vec<u8>>) {
        if let Some((.., told)) = self.0.get(&id) {
            lock(&told.keys).extend(keys.map(Some));
            told.notify.notify_one();
        }
    }
    fn end(&mut self, id: i64) {
        if let Some((.., told)) = self.0.remove(&id) {
            told.end();
        }
    }
}
impl Told {
    fn end(&self) {
        lock(&self.keys).push(None);
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
        open.0.drain().for_each(|(_, (.., told))| told.end());
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}
/// Until the stream ends. `None`: it never began, or refuses what is asked.
async fn watch(link: &Link, inbox: &mut UnboundedReceiver<Order>, open: &mut Open) -> Option<()> {
    let conn = link.here().await.ok()?;
    let ((asks, sent), login) = (unbounded_channel(), link.known_login());
    for (id, (target, from, _)) in &open.0 {
        let _ = asks.send(create(*id, target, *from));
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
                Ok(Some(Watched { id, events, .. })) => {
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
