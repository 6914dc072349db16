//! A connection to one server, and what is sent over it.
use super::server::Server;
use fencelock_core::{Connection, Moment, Request};
use redis::{Cmd, Pipeline, Value, aio::MultiplexedConnection};
use std::{ops::Deref, sync::Arc};

/// A connection, and where it leads.
pub(crate) struct Wire {
    pub(super) inner: MultiplexedConnection,
    pub(crate) server: Arc<Server>,
    /// It is that of `run`.
    pub(super) attends: bool,
    /// The server tells it when a key changes that it has read.
    pub(crate) tracks: bool,
}
#[derive(Clone)]
pub(crate) struct Conn {
    pub(super) wire: Arc<Wire>,
    /// One that others use, too.
    pub(super) shared: Option<Connection<Arc<Wire>>>,
    /// The key is on its way to this server: each command says that it knows.
    pub(super) asking: bool,
}
impl Deref for Conn {
    type Target = Wire;
    fn deref(&self) -> &Wire {
        &self.wire
    }
}
impl From<Connection<Arc<Wire>>> for Conn {
    fn from(shared: Connection<Arc<Wire>>) -> Self {
        Self { wire: shared.deref().clone(), shared: Some(shared), asking: false }
    }
}
impl Conn {
    pub(super) fn alone(wire: Arc<Wire>) -> Self {
        Self { wire, shared: None, asking: false }
    }
    /// The end of a command by the server's clock, and by ours; `None`: the attempt was stopped (SAFETY A2).
    pub(crate) fn open_window(&self, request: &Request, sent_at: Moment) -> Option<(i64, Moment)> {
        let window = self.server.patience();
        let (not_after, more) = self.server.time.end(sent_at, window)?;
        request.open(sent_at, window + window / 50 + more).map(|ends| (not_after, ends))
    }
    pub(super) async fn send(&self, cmd: &Cmd) -> redis::RedisResult<Value> {
        if !self.asking {
            return self.wire.send(cmd).await;
        }
        let mut all = Pipeline::with_capacity(1);
        all.add_command(cmd.clone());
        match Box::pin(self.send_all(&all)).await?.pop() {
            Some(Value::ServerError(e)) => Err(e.into()),
            answer => Ok(answer.unwrap_or(Value::Nil)),
        }
    }
    pub(super) async fn send_all(&self, all: &Pipeline) -> redis::RedisResult<Vec<Value>> {
        let (mut inner, many) = (self.inner.clone(), all.len());
        if !self.asking {
            return inner.send_packed_commands(all, 0, many).await;
        }
        let mut each = Pipeline::with_capacity(2 * many);
        for cmd in all.cmd_iter() {
            each.cmd("ASKING").add_command(cmd.clone());
        }
        let answers = inner.send_packed_commands(&each, 0, 2 * many).await?;
        Ok(answers.into_iter().skip(1).step_by(2).collect())
    }
}
impl Wire {
    pub(super) async fn send(&self, cmd: &Cmd) -> redis::RedisResult<Value> {
        match self.inner.clone().send_packed_command(cmd).await? {
            Value::ServerError(e) => Err(e.into()),
            answer => Ok(answer),
        }
    }
}
