//! The calls on rows of ShedLock's table.
use crate::{
    engine::PostgresEngine,
    error::Fault,
    link::{Conn, Link},
    wire::{
        call::literal,
        reply::{Reply, status},
    },
};
use async_trait::async_trait;
use fencelock_core::{Engine, Grant, HoldId, Name, Renewed, Request, Result, ServerTime, Status, Token};
use fencelock_database::{PATIENCE, Table, micros};
use std::time::Duration;
use tokio::sync::Notify;

#[derive(Debug)]
pub(crate) struct Rows(pub(crate) PostgresEngine);
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
    async fn soon(&self, request: &Request) -> Result<Conn, Fault> {
        self.link().soon(request.stopped()).await
    }
    async fn here(&self) -> Result<Conn, Fault> {
        self.link().here().await
    }

    async fn acquire(&self, conn: &Conn, request: &Request, not_after: i64) -> Result<Reply, Fault> {
        let call = self.link().call("shed_acquire").text(request.name().as_str()).id(request.hold());
        let call = call.number(micros(request.ttl())).number(not_after).number(request.floor().map_or(0, Token::get));
        self.link().run(conn, PATIENCE, &call.text(&self.0.shared().identity(request.note())).end()).await
    }
    async fn release(
        &self,
        conn: &Conn,
        limit: Duration,
        name: &Name,
        hold: HoldId,
        token: Option<Token>,
    ) -> Result<Reply, Fault> {
        let call = self.link().call("shed_release").text(name.as_str()).id(hold).or_null(token.map(Token::get)).end();
        self.link().run(conn, limit, &call).await
    }
    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewed>> {
        self.0.renew_by(self.link().call("shed_renew"), grants).await
    }
    async fn force_release(&self, name: &Name, token: Token) -> Result<Reply, Fault> {
        self.0.forced(&self.link().call("shed_force").text(name.as_str()).number(token.get()).end()).await
    }
    async fn inspect(&self, name: &Name) -> Result<Status, Fault> {
        let rows = self.link().again(&self.link().call("shed_inspect").text(name.as_str()).end()).await?;
        status(name, &rows).ok_or(Fault::Answer)
    }
    async fn names(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Vec<Option<String>>, Fault> {
        let schema = self.link().place().ok_or(Fault::Closed)?.schema.as_str();
        let after = after.map(|after| format!("AND name COLLATE \"C\" > {}", literal(after)));
        let ask = format!(
            "SELECT name FROM {schema}.shedlock WHERE starts_with(name COLLATE \"C\", {}) \
             AND (lock_until > {schema}.fencelock_shed_now()) IS NOT FALSE {} ORDER BY name COLLATE \"C\" LIMIT {limit}",
            literal(prefix),
            after.unwrap_or_default()
        );
        let rows = self.link().again(&ask).await?;
        Ok(rows.iter().map(|row| row.get(0).map(str::to_owned)).collect())
    }
}
