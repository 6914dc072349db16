//! The thread for callers: SQLite's calls block, so they run on no runtime's thread. What has queued up shares a transaction.
use crate::{
    error::Fault,
    session::{Shared, writers},
    wire::scope::{Scope, Task, read, write_all},
};
use rusqlite::Connection;
use std::{
    sync::{Arc, mpsc},
    thread,
};
use tokio::sync::oneshot;

/// At most so many tasks in one transaction: the others on this database wait for its end.
const TOGETHER: usize = 32;

type Reading = Box<dyn FnOnce(&Connection, &Shared) + Send>;

enum Order {
    Write(Box<dyn Task>),
    Read(Reading),
}

#[derive(Debug)]
pub(crate) struct Worker(mpsc::Sender<Order>);

impl Worker {
    pub(crate) fn start(conn: Connection, shared: Arc<Shared>) -> std::io::Result<Self> {
        let (tx, rx) = mpsc::channel();
        thread::Builder::new().name("fencelock-sql".into()).spawn(move || serve(&conn, &shared, &rx))?;
        Ok(Self(tx))
    }
    /// Runs `op` in a write transaction. Dropping the future stops nothing: what was sent is carried out.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        op: impl FnMut(&Scope<'_>) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        let (reply, rx) = oneshot::channel();
        self.answer(Order::Write(Box::new(Call { op, value: None, reply })), rx).await
    }
    /// Runs `op` on one snapshot.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        op: impl FnMut(&Scope<'_>) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        let (reply, rx) = oneshot::channel();
        let run = move |conn: &Connection, shared: &Shared| drop(reply.send(read(conn, shared, op)));
        self.answer(Order::Read(Box::new(run)), rx).await
    }
    async fn answer<T>(&self, order: Order, rx: oneshot::Receiver<Result<T, Fault>>) -> Result<T, Fault> {
        self.0.send(order).map_err(|_| Fault::Closed)?;
        rx.await.unwrap_or(Err(Fault::Closed))
    }
}
struct Call<T, F> {
    op: F,
    value: Option<T>,
    reply: oneshot::Sender<Result<T, Fault>>,
}
impl<T: Send, F: FnMut(&Scope<'_>) -> Result<T, Fault> + Send> Task for Call<T, F> {
    fn attempt(&mut self, scope: &Scope<'_>) -> Result<(), Fault> {
        self.value = Some((self.op)(scope)?);
        Ok(())
    }
    fn finish(self: Box<Self>, end: Result<(), Fault>) {
        let Self { value, reply, .. } = *self;
        let answer = end.and_then(|()| value.ok_or(Fault::Closed));
        let _ = reply.send(answer);
    }
}

fn write_together(conn: &Connection, shared: &Shared, tasks: Vec<Box<dyn Task>>) {
    if !tasks.is_empty() {
        let _pass = shared.writers.enter(writers::Thread::Worker);
        write_all(conn, shared, tasks);
    }
}
fn serve(conn: &Connection, shared: &Shared, orders: &mpsc::Receiver<Order>) {
    while let Ok(first) = orders.recv() {
        let mut together: Vec<Box<dyn Task>> = Vec::new();
        let mut next = Some(first);
        while let Some(order) = next {
            match order {
                Order::Write(task) => together.push(task),
                Order::Read(run) => {
                    write_together(conn, shared, std::mem::take(&mut together));
                    run(conn, shared);
                }
            }
            next = if together.len() < TOGETHER { orders.try_recv().ok() } else { None };
        }
        write_together(conn, shared, together);
    }
}
