//! Which store this is: a node that is there for as long as somebody is connected, and a little longer.
use crate::{
    error::Fault,
    link::{Session, found},
    shared::Shared,
    wire::op::{Mode, Op, code},
};
use fencelock_core::EngineId;
use std::{future::pending, time::Duration};
use tokio::time::sleep;

impl Shared {
    /// What is written there, by us if need be.
    pub(crate) async fn identity(&self) -> Result<EngineId, Fault> {
        let session = self.link.session(pending()).await?;
        let mine = EngineId::random().map_err(|_| Fault::Closed)?;
        loop {
            self.stay(session, mine).await?;
            let data = self.link.look(Op::Data { path: self.paths.id(), watch: false }).data().await;
            let Some((data, _)) = found(data)? else { continue };
            let id = std::str::from_utf8(&data).ok().and_then(|id| u128::from_str_radix(id, 16).ok());
            let id = id.map(|id| EngineId::from_bytes(id.to_be_bytes())).ok_or(Fault::Answer)?;
            let _ = self.id.set(id);
            return Ok(id);
        }
    }
    /// A session is new: for as long as it is there, so is what the store is known by.
    pub(crate) async fn present(&self, session: Session) {
        let Some(id) = self.id.get() else { return };
        while self.stay(session, *id).await.is_err_and(|fault| fault.may_pass() && fault != Fault::SessionOver) {
            sleep(Duration::from_millis(250)).await;
        }
    }
    async fn stay(&self, session: Session, id: EngineId) -> Result<(), Fault> {
        let path = self.paths.id();
        loop {
            let make = self.create(path.clone(), id.to_string().into_bytes(), Mode::Container);
            match self.link.ask(session, make).created().await {
                Err(fault) if fault.is_no_node() => {
                    self.make_parent(self.paths.base(), false).await?;
                    continue;
                }
                Err(fault) if !fault.is(code::NODE_EXISTS) => return Err(fault),
                _ => {}
            }
            let here = self.create(format!("{path}/{:x}", session.0), Vec::new(), Mode::Ephemeral);
            match self.link.ask(session, here).created().await {
                Err(fault) if fault.is_no_node() => {}
                Err(fault) if !fault.is(code::NODE_EXISTS) => return Err(fault),
                _ => return Ok(()),
            }
        }
    }
}
