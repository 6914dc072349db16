//! The bare driver with our operations: what a program could have at best, for the benchmark's other side. Not part of the library.
#![allow(missing_docs, clippy::missing_errors_doc, reason = "for our own benchmarks")]
use crate::{
    config::Config,
    error::Fault,
    link::{Link, Session, found, heard},
    shared::Shared,
    wire::{
        node::{Node, Role, last},
        op::{Mode, Op},
        record::Record,
    },
};
use fencelock_core::{Claim, HoldId, Name, Result};
use std::{future::pending, sync::Arc, time::Duration};

/// One connection on the runtime that made it, and one session; no library.
#[derive(Clone, Debug)]
pub struct Raw {
    shared: Arc<Shared>,
    session: Session,
}
/// What it holds.
#[derive(Debug)]
pub struct RawHold(String);

impl Raw {
    pub async fn connect(url: &str) -> Result<Self> {
        let config = Config::from_url(url)?;
        let (link, mut wire) = Link::new(&config)?;
        let shared = Arc::new(Shared::new(&config, Arc::new(link))?);
        let link = shared.link.clone();
        tokio::spawn(async move { wire.serve(&link).await });
        let session = shared.link.session(pending()).await.map_err(|fault| shared.link.tell("connect", &fault))?;
        Ok(Self { shared, session })
    }
    async fn enter(&self, path: &str, hold: u128) -> std::result::Result<(String, Vec<String>), Fault> {
        let beginning = self.shared.paths.beginning(Role::Mutex, HoldId::from_bytes(hold.to_be_bytes()));
        let data = Record::new(Claim::Mutex, &"".into(), Duration::from_secs(30)).write();
        loop {
            let made = self.shared.create(format!("{path}/{beginning}"), data.clone(), Mode::EphemeralSequential);
            let list = Op::Children { path: path.to_owned(), watch: false };
            let [made, listed] = self.shared.link.ask_all(self.session, [made, list]);
            match found(made.created().await)? {
                Some((node, _)) => return Ok((node, listed.children().await?.0)),
                None => self.shared.make_room(path).await?,
            }
        }
    }
    /// Takes a lock that is free and gives it back: the same bytes as the engine sends.
    pub async fn pair(&self, name: &str, hold: u128) -> Result<()> {
        let told = |fault: Fault| fault.tell("lock", "the bare driver");
        let (node, _) = self.enter(&self.shared.paths.of(&Name::new(name)?), hold).await.map_err(told)?;
        self.leave(&node).await.map_err(told)
    }
    async fn leave(&self, node: &str) -> std::result::Result<(), Fault> {
        self.shared.link.ask(self.session, Op::Delete { path: node.to_owned(), version: -1 }).done().await
    }
    /// Waits for the lock: release, the watch's word, one read.
    pub async fn lock(&self, name: &str, hold: u128) -> Result<RawHold> {
        let told = |fault: Fault| fault.tell("lock", "the bare driver");
        let path = self.shared.paths.of(&Name::new(name)?);
        let (node, mut names) = self.enter(&path, hold).await.map_err(told)?;
        let contender = |name: &str| self.shared.paths.contender(name);
        let own = contender(last(&node)).ok_or(Fault::Answer).map_err(told)?;
        loop {
            let before: Vec<Node> =
                names.iter().filter_map(|name| contender(name)).filter(|one| one.is_before(&own)).collect();
            let Some(nearest) = before.iter().max_by_key(|one| one.number) else { return Ok(RawHold(node)) };
            let (asked, mut word) =
                self.shared.link.watch(None, Op::Data { path: format!("{path}/{}", nearest.name), watch: true });
            if found(asked.data().await).map_err(told)?.is_some() {
                heard(&mut [&mut word]).await;
            }
            let listed = self.shared.link.ask(self.session, Op::Children { path: path.clone(), watch: false });
            (names, _) = listed.children().await.map_err(told)?;
        }
    }
    pub async fn release(&self, hold: &RawHold) -> Result<()> {
        self.leave(&hold.0).await.map_err(|fault| fault.tell("release", "the bare driver"))
    }
}
