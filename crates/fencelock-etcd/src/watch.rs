//! One stream of watches for all who wait for a key to go.
//!
//! A watch begins at the revision after the one that its owner has read: one that begins earlier is served by the server's slow way for
//! those who lag behind. It is a hint: whoever is woken looks.
use crate::{
    link::Link,
    wire::pb::{WatchCancel, WatchCreate, WatchDo, WatchRequest, Watched},
};
use std::{
    collections::HashMap,
    sync::{
        Arc,
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

/// Puts are told to nobody.
const NO_PUTS: i32 = 0;

#[derive(Debug)]
pub(crate) enum Order {
    Add { id: i64, key: Vec<u8>, from: i64, gone: Arc<Notify> },
    Remove(i64),
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
    /// Tells once, when this key goes at this revision or later, or nobody can tell any more.
    pub(crate) fn add(&self, key: Vec<u8>, from: i64) -> Watch {
        let (id, gone) = (self.last.fetch_add(1, Relaxed) + 1, Arc::<Notify>::default());
        let _ = self.orders.send(Order::Add { id, key, from, gone: gone.clone() });
        Watch { orders: self.orders.clone(), id, gone }
    }
}
/// It is watched for as long as this lives.
#[derive(Debug)]
pub(crate) struct Watch {
    orders: UnboundedSender<Order>,
    id: i64,
    gone: Arc<Notify>,
}
impl Watch {
    pub(crate) async fn gone(&self) {
        self.gone.notified().await;
    }
}
impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.orders.send(Order::Remove(self.id));
    }
}

#[derive(Default)]
struct Open(HashMap<i64, (Vec<u8>, i64, Arc<Notify>)>);
impl Open {
    fn take(&mut self, order: Order) -> Option<WatchRequest> {
        match order {
            Order::Add { id, key, from, gone } => {
                let ask = create(id, &key, from);
                self.0.insert(id, (key, from, gone));
                Some(ask)
            }
            Order::Remove(id) => self.0.remove(&id).map(|_| cancel(id)),
        }
    }
    /// True: it was open.
    fn tell(&mut self, id: i64) -> bool {
        self.0.remove(&id).map(|(_, _, gone)| gone.notify_one()).is_some()
    }
}
fn create(id: i64, key: &[u8], start: i64) -> WatchRequest {
    let key = key.to_vec();
    WatchRequest {
        what: Some(WatchDo::Create(WatchCreate { key, end: Vec::new(), start, without: vec![NO_PUTS], id })),
    }
}
fn cancel(id: i64) -> WatchRequest {
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
        open.0.drain().for_each(|(_, (_, _, gone))| gone.notify_one());
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}
/// Until the stream ends. `None`: it never began.
async fn watch(link: &Link, inbox: &mut UnboundedReceiver<Order>, open: &mut Open) -> Option<()> {
    let conn = link.here().await.ok()?;
    let (asks, sent) = unbounded_channel();
    for (id, (key, from, _)) in &open.0 {
        let _ = asks.send(create(*id, key, *from));
    }
    let mut stream = link.stream::<_, Watched>(&conn, "/etcdserverpb.Watch/Watch", sent).await.ok()?;
    loop {
        tokio::select! {
            order = inbox.recv() => {
                if let Some(ask) = open.take(order?) {
                    let _ = asks.send(ask);
                }
            }
            message = stream.message() => match message {
                Ok(Some(Watched { id, canceled, events, .. })) => {
                    let told = (canceled || !events.is_empty()) && open.tell(id);
                    if told && !canceled {
                        let _ = asks.send(cancel(id));
                    }
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
