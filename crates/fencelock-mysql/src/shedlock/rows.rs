//! The calls on rows of ShedLock's table.
use crate::{
    engine::MysqlEngine,
    error::Fault,
    link::{Conn, Link},
    pool::Lane,
    wire::{
        call::Call,
        reply::{Reply, column, status},
    },
};
use async_trait::async_trait;
use fencelock_core::{
    BootClock, Clock, Engine, Grant, HoldId, Name, Renewed, Request, Result, ServerTime, Status, Token,
};
use fencelock_database::{PATIENCE, Table, micros};
use std::time::Duration;
use tokio::sync::Notify;

#[derive(Debug)]
pub(crate) struct Rows(pub(crate) MysqlEngine);
impl Rows {
    fn link(&self) -> &Link {
        &self.0.shared().link
    }
}
#[async_trait]
impl Table for Rows {
    type Conn = Conn;
    type Fault = Fault;

    fn lease(&self) -> &dyn Engine {
        &self.0
    }
    fn time(&self) -> &ServerTime {
        &self.link().time
    }
    fn broke(&self) -> &Notify {
        &self.link().broke
    }
    async fn run(&self) {
        self.0.shared().feel().await;
    }
    async fn soon(&self, request: &Request) -> Result<Conn, Fault> {
        self.link().soon(request.stopped()).await
    }
    async fn here(&self) -> Result<Conn, Fault> {
        self.link().here().await
    }

    async fn acquire(&self, conn: &Conn, request: &Request, not_after: i64) -> Result<Reply, Fault> {
        let call = Call::new("shed_acquire").letters(request.name().as_str()).id(request.hold());
        let call = call.number(micros(request.ttl())).number(not_after).number(request.floor().map_or(0, Token::get));
        let call = call.text(&self.0.shared().identity(request.note())).end();
        let sent_at = BootClock.now();
        let reply = self.link().run(conn, Lane::Calls, PATIENCE, &call).await?;
        if matches!(reply, Reply::Done { .. }) {
            self.0.shared().keep(request.hold(), sent_at + request.ttl(), None);
        }
        Ok(reply)
    }
    async fn release(
        &self,
        conn: &Conn,
        limit: Duration,
        name: &Name,
        hold: HoldId,
        token: Option<Token>,
    ) -> Result<Reply, Fault> {
        self.0.shared().ring(hold);
        let call = Call::new("shed_release").letters(name.as_str()).id(hold).or_null(token.map(Token::get)).end();
        self.link().run(conn, Lane::Calls, limit, &call).await
    }
    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewed>> {
        self.0.renew_by(Call::new("shed_renew"), grants).await
    }
    async fn force_release(&self, name: &Name, token: Token) -> Result<Reply, Fault> {
        self.0.forced(&Call::new("shed_force").letters(name.as_str()).number(token.get()).end()).await
    }
    async fn inspect(&self, name: &Name) -> Result<Status, Fault> {
        let rows = self.link().again(&Call::new("shed_inspect").letters(name.as_str()).end()).await?;
        status(name, &rows).ok_or(Fault::Answer)
    }
    async fn names(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Vec<Option<String>>, Fault> {
        let call = Call::new("shed_list").letters(prefix);
        let call = match after {
            Some(after) => call.letters(after),
            None => call.null(),
        };
        let rows = self.link().again(&call.number(i64::try_from(limit).unwrap_or(i64::MAX)).end()).await?;
        Ok(rows.iter().map(|row| column(row, 0).map(str::to_owned)).collect())
    }
}
