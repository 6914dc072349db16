//! The bare driver with our transactions: what a program could have at best, for the benchmark's other side. Not part of the library.
#![allow(missing_docs, clippy::missing_errors_doc, reason = "for our own benchmarks")]
use crate::{
    claims::{claim_of, leave_of},
    config::Config,
    error::Fault,
    leases::{Lease, Place, Term},
    link::Link,
    watch::{Target, cancel, create},
    wire::{
        key::Keys,
        pb::{LeaseGrant, LeaseGranted, Txn, TxnDone, WatchRequest, Watched},
        record::Record,
        txn::{choose, first_under, last_before, put},
    },
};
use fencelock_core::{Claim, HoldId, Kind, Name};
use prost::Message;
use std::{future::pending, time::Duration};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{
    Status, Streaming,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    metadata::{Ascii, MetadataValue},
    transport::Channel,
};
use tonic_prost::ProstCodec;

const TXN: &str = "/etcdserverpb.KV/Txn";

/// One connection and one lease, no library. It gives no sign of life.
#[derive(Clone, Debug)]
pub struct Raw {
    channel: Channel,
    token: Option<MetadataValue<Ascii>>,
    keys: Keys,
    lease: Lease,
}
impl Raw {
    pub async fn connect(url: &str) -> fencelock_core::Result<Self> {
        let config = Config::from_url(url)?;
        let link = Link::new(&config)?;
        let told = |fault: Fault| link.tell("connect", &fault);
        let conn = link.soon(pending()).await.map_err(told)?;
        let token = link.login(&conn).await.map_err(told)?;
        let term = Term { ttl: Duration::from_secs(600), seconds: 600, stays: false };
        let (keys, lease) = (Keys::new(&config.prefix, &config.namespace), Lease { id: 0, term, epoch: 0 });
        let mut raw = Self { channel: conn.channel.clone(), token, keys, lease };
        raw.lease(term).await.map_err(|status| told(status.into()))?;
        Ok(raw)
    }
    async fn lease(&mut self, term: Term) -> Result<(), Status> {
        let ask = LeaseGrant { ttl: term.seconds, id: 0 };
        let granted: LeaseGranted = self.call("/etcdserverpb.Lease/LeaseGrant", ask).await?;
        self.lease.id = granted.id;
        let epoch = put(&self.keys.epoch(granted.id), b"new".to_vec(), granted.id);
        self.lease.epoch = self.txn(choose(Vec::new(), vec![epoch], Vec::new())).await?.revision();
        Ok(())
    }
    async fn call<Q, A>(&self, path: &'static str, ask: Q) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = Grpc::new(self.channel.clone());
        grpc.ready().await.map_err(|e| Status::unknown(e.to_string()))?;
        let codec = ProstCodec::<Q, A>::default();
        let ask = Link::request(ask, self.token.clone());
        Ok(grpc.unary(ask, PathAndQuery::from_static(path), codec).await?.into_inner())
    }
    fn place(&self, name: &str, hold: u128) -> Result<Place, Status> {
        let name = Name::new(name).map_err(|e| Status::unknown(e.to_string()))?;
        let who = Record::new(HoldId::from_bytes(hold.to_be_bytes()), Claim::Mutex, self.lease.term.ttl);
        Ok(Place::new(&self.keys, &name, who, &"".into(), self.lease))
    }
    async fn txn(&self, txn: Txn) -> Result<TxnDone, Status> {
        self.call(TXN, txn).await
    }
    async fn leave(&self, place: &Place) -> Result<(), Status> {
        let look = vec![first_under(&place.spot.room), first_under(&self.keys.whos(&place.name))];
        let done = self.txn(leave_of(place, look, &[])).await?;
        if done.succeeded { Ok(()) } else { Err(Status::unknown("it was not held")) }
    }
    /// Takes a lock that is free and gives it back: the same bytes as the engine sends.
    pub async fn pair(&self, name: &str, hold: u128) -> fencelock_core::Result<()> {
        self.free_pair(name, hold).await.map_err(|status| Fault::from(status).tell("lock", "the bare driver"))
    }
    async fn free_pair(&self, name: &str, hold: u128) -> Result<(), Status> {
        let mut place = self.place(name, hold)?;
        let done = self.txn(claim_of(&self.keys, &place, true, 0)).await?;
        if !done.inner(0).is_some_and(|inner| inner.succeeded) {
            return Err(Status::unknown("it was not free"));
        }
        place.created = done.revision();
        self.leave(&place).await
    }
}

/// How a waiter watches who is in front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// From the revision after the one that was read.
    Next,
    /// From the revision that was read, as Go's `concurrency.Mutex` does.
    Read,
}
/// What a hand-over takes and nothing else: release, the watch's word, one read.
#[allow(missing_debug_implementations, reason = "for our own benchmarks")]
pub struct RawQueue {
    raw: Raw,
    asks: UnboundedSender<WatchRequest>,
    words: Streaming<Watched>,
    last: u128,
    watches: i64,
}
fn broken() -> Status {
    Status::unknown("no answer of this call")
}
/// What it holds.
#[allow(missing_debug_implementations, reason = "for our own benchmarks")]
pub struct RawHold(Place);
impl RawQueue {
    pub async fn connect(url: &str) -> fencelock_core::Result<Self> {
        let raw = Raw::connect(url).await?;
        Self::of(raw).await.map_err(|status| Fault::from(status).tell("connect", url))
    }
    async fn of(raw: Raw) -> Result<Self, Status> {
        let (asks, rx) = unbounded_channel();
        // The server answers a stream with its first word.
        let _ = asks.send(create(1, &Target::comes("fencelock/%nobody"), 0));
        let mut grpc = Grpc::new(raw.channel.clone());
        grpc.ready().await.map_err(|e| Status::unknown(e.to_string()))?;
        let (asked, codec) =
            (Link::request(UnboundedReceiverStream::new(rx), raw.token.clone()), ProstCodec::default());
        let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
        let words = grpc.streaming(asked, path, codec).await?.into_inner();
        Ok(Self { raw, asks, words, last: u128::from(std::process::id()) << 64, watches: 1 })
    }
    /// Waits for the lock.
    pub async fn lock(&mut self, name: &str, from: From) -> Result<RawHold, Status> {
        self.last += 1;
        let mut place = self.raw.place(name, self.last)?;
        let done = self.raw.txn(claim_of(&self.raw.keys, &place, true, 0)).await?;
        let inner = done.inner(0).ok_or_else(broken)?;
        let mut revision = done.revision();
        place.created = revision;
        if inner.succeeded {
            return Ok(RawHold(place));
        }
        let mut before = inner.ranged(2).and_then(|last| last.keys.first()).map(|key| key.key.clone());
        let room = self.raw.keys.room(Kind::Mutex, &place.name);
        while let Some(key) = before {
            self.watches += 1;
            let id = self.watches;
            let start = revision + i64::from(from == From::Next);
            let _ = self.asks.send(create(id, &Target::goes(&key), start));
            loop {
                let word = self.words.message().await?.ok_or_else(broken)?;
                if word.id == id && !word.events.is_empty() {
                    break;
                }
            }
            let _ = self.asks.send(cancel(id));
            let read = choose(Vec::new(), vec![last_before(&room, place.created)], Vec::new());
            let done = self.raw.txn(read).await?;
            revision = done.revision();
            before = done.one(0).flatten().map(|key| key.key.clone());
        }
        Ok(RawHold(place))
    }
    pub async fn release(&self, hold: &RawHold) -> Result<(), Status> {
        self.raw.leave(&hold.0).await
    }
}
