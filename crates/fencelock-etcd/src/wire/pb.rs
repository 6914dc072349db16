//! The messages of etcd's API v3 that we send and read, with the numbers of its `rpc.proto` and `kv.proto`. What is not here is
//! skipped when it is read.
use prost::{Message, Oneof};

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Header {
    #[prost(uint64, tag = "1")]
    pub(crate) cluster: u64,
    #[prost(int64, tag = "3")]
    pub(crate) revision: i64,
    /// For so long, in elections, nobody else has led.
    #[prost(uint64, tag = "4")]
    pub(crate) term: u64,
}
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub(crate) created: i64,
    #[prost(int64, tag = "3")]
    pub(crate) modified: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) value: Vec<u8>,
    #[prost(int64, tag = "6")]
    pub(crate) lease: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Range {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) limit: i64,
    #[prost(int64, tag = "4")]
    pub(crate) revision: i64,
    /// 1: rising, 2: falling.
    #[prost(int32, tag = "5")]
    pub(crate) order: i32,
    /// 2: by the revision of creation.
    #[prost(int32, tag = "6")]
    pub(crate) by: i32,
    #[prost(bool, tag = "8")]
    pub(crate) keys_only: bool,
    #[prost(int64, tag = "12")]
    pub(crate) created_from: i64,
    #[prost(int64, tag = "13")]
    pub(crate) created_to: i64,
}
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Ranged {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) keys: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub(crate) more: bool,
    #[prost(int64, tag = "4")]
    pub(crate) count: i64,
}
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Put {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) lease: i64,
}
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Delete {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) end: Vec<u8>,
}
/// The answer to a put or a delete: nothing of it is looked at but how many were deleted.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Done {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Compare {
    /// 0: equal, 1: greater, 2: less.
    #[prost(int32, tag = "1")]
    pub(crate) result: i32,
    /// 1: revision of creation, 2: of modification, 3: value.
    #[prost(int32, tag = "2")]
    pub(crate) target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) key: Vec<u8>,
    #[prost(oneof = "Against", tags = "5, 6, 7")]
    pub(crate) against: Option<Against>,
    #[prost(bytes = "vec", tag = "64")]
    pub(crate) end: Vec<u8>,
}
#[derive(Clone, PartialEq, Eq, Oneof)]
pub(crate) enum Against {
    #[prost(int64, tag = "5")]
    Created(i64),
    #[prost(int64, tag = "6")]
    Modified(i64),
    #[prost(bytes, tag = "7")]
    Value(Vec<u8>),
}
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Step {
    #[prost(oneof = "Do", tags = "1, 2, 3, 4")]
    pub(crate) what: Option<Do>,
}
#[derive(Clone, PartialEq, Eq, Oneof)]
pub(crate) enum Do {
    #[prost(message, tag = "1")]
    Range(Range),
    #[prost(message, tag = "2")]
    Put(Put),
    #[prost(message, tag = "3")]
    Delete(Delete),
    #[prost(message, tag = "4")]
    Txn(Txn),
}
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Txn {
    #[prost(message, repeated, tag = "1")]
    pub(crate) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) then: Vec<Step>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) or_else: Vec<Step>,
}
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct StepDone {
    #[prost(oneof = "Did", tags = "1, 2, 3, 4")]
    pub(crate) what: Option<Did>,
}
#[derive(Clone, PartialEq, Eq, Oneof)]
pub(crate) enum Did {
    #[prost(message, tag = "1")]
    Range(Ranged),
    #[prost(message, tag = "2")]
    Put(Done),
    #[prost(message, tag = "3")]
    Delete(Done),
    #[prost(message, tag = "4")]
    Txn(TxnDone),
}
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct TxnDone {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(bool, tag = "2")]
    pub(crate) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(crate) steps: Vec<StepDone>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct LeaseGrant {
    #[prost(int64, tag = "1")]
    pub(crate) ttl: i64,
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
}
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct LeaseGranted {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
}
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct LeaseId {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}
/// Of a keep-alive; `ttl` 0: there is no such lease.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct LeaseKept {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
}

/// Of a lease that was asked for.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct LeaseLeft {
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct AskAbout {}
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct About {
    #[prost(string, tag = "2")]
    pub(crate) version: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct WatchRequest {
    #[prost(oneof = "WatchDo", tags = "1, 2")]
    pub(crate) what: Option<WatchDo>,
}
#[derive(Clone, PartialEq, Eq, Oneof)]
pub(crate) enum WatchDo {
    #[prost(message, tag = "1")]
    Create(WatchCreate),
    #[prost(message, tag = "2")]
    Cancel(WatchCancel),
}
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct WatchCreate {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) start: i64,
    /// 0: no puts, 1: no deletes.
    #[prost(int32, repeated, tag = "5")]
    pub(crate) without: Vec<i32>,
    #[prost(int64, tag = "7")]
    pub(crate) id: i64,
}
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct WatchCancel {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Watched {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
    /// It has begun, after the header's revision.
    #[prost(bool, tag = "3")]
    pub(crate) created: bool,
    #[prost(bool, tag = "4")]
    pub(crate) canceled: bool,
    /// What was asked for is forgotten up to this revision: that is why.
    #[prost(int64, tag = "5")]
    pub(crate) compacted: i64,
    #[prost(message, repeated, tag = "11")]
    pub(crate) events: Vec<Event>,
}
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Event {
    /// 0: put, 1: delete.
    #[prost(int32, tag = "1")]
    pub(crate) kind: i32,
    #[prost(message, optional, tag = "2")]
    pub(crate) key: Option<KeyValue>,
}

#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub(crate) struct Authenticate {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) password: String,
}
/// The password is never shown.
impl std::fmt::Debug for Authenticate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Authenticate({})", self.name)
    }
}
#[derive(Clone, PartialEq, Eq, Message)]
#[prost(skip_debug)]
pub(crate) struct Authenticated {
    #[prost(string, tag = "2")]
    pub(crate) token: String,
}
impl std::fmt::Debug for Authenticated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authenticated(***)")
    }
}
