//! Operations: how they are asked, and what is answered.
use super::jute::{Reader, Writer};
use std::sync::Arc;

/// Who may do what with a node that we make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl {
    pub(crate) scheme: String,
    pub(crate) id: String,
}
const ALL: i32 = 31;

/// How a node is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Persistent,
    /// It goes with the session.
    Ephemeral,
    /// And its name ends with the next number of its parent.
    EphemeralSequential,
    /// It goes when it has had children and has none any more.
    Container,
}
impl Mode {
    const fn flags(self) -> i32 {
        match self {
            Self::Persistent => 0,
            Self::Ephemeral => 1,
            Self::EphemeralSequential => 3,
            Self::Container => 4,
        }
    }
}

/// What is asked of the server.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Create {
        path: String,
        data: Vec<u8>,
        mode: Mode,
        acl: Arc<[Acl]>,
    },
    /// Of this version; -1: of any.
    Delete {
        path: String,
        version: i32,
    },
    Exists {
        path: String,
        watch: bool,
    },
    Data {
        path: String,
        watch: bool,
    },
    SetData {
        path: String,
        data: Vec<u8>,
        version: i32,
    },
    Children {
        path: String,
        watch: bool,
    },
    /// What the leader knew when it was asked is known here when this is answered.
    Sync {
        path: String,
    },
    /// It has this version: only among others in one transaction.
    Check {
        path: String,
        version: i32,
    },
    /// All of them, or none.
    Multi(Vec<Op>),
    /// No word any more of what happens there.
    RemoveWatches {
        path: String,
    },
    Close,
}
/// What happens to a node is told once, to whoever asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Watched {
    /// Its data change, or it goes.
    Data,
    /// It comes.
    Absent,
    /// Its children come and go.
    Children,
}

impl Op {
    const fn code(&self) -> i32 {
        match self {
            Self::Create { mode: Mode::Container, .. } => 19,
            Self::Create { .. } => 15,
            Self::Delete { .. } => 2,
            Self::Exists { .. } => 3,
            Self::Data { .. } => 4,
            Self::SetData { .. } => 5,
            Self::Children { .. } => 12,
            Self::Sync { .. } => 9,
            Self::Check { .. } => 13,
            Self::Multi(_) => 14,
            Self::RemoveWatches { .. } => 18,
            Self::Close => -11,
        }
    }
    /// One message.
    pub(crate) fn write(&self, xid: i32) -> Vec<u8> {
        let mut out = Writer::message();
        out.int(xid).int(self.code());
        self.body(&mut out);
        out.done()
    }
    fn body(&self, out: &mut Writer) {
        match self {
            Self::Create { path, data, mode, acl } => {
                out.text(path).bytes(data).len(acl.len());
                for Acl { scheme, id } in acl.iter() {
                    out.int(ALL).text(scheme).text(id);
                }
                out.int(mode.flags());
            }
            Self::Delete { path, version } | Self::Check { path, version } => {
                out.text(path).int(*version);
            }
            Self::Exists { path, watch } | Self::Data { path, watch } | Self::Children { path, watch } => {
                out.text(path).bool(*watch);
            }
            Self::SetData { path, data, version } => {
                out.text(path).bytes(data).int(*version);
            }
            Self::Sync { path } => {
                out.text(path);
            }
            Self::Multi(all) => {
                for op in all {
                    // Of what is made here the server tells the path alone: of the rest it says what is not so (ZOOKEEPER-4026).
                    let code = if matches!(op, Self::Create { .. }) { 1 } else { op.code() };
                    out.int(code).bool(false).int(-1);
                    op.body(out);
                }
                out.int(-1).bool(true).int(-1);
            }
            // Of any kind.
            Self::RemoveWatches { path } => {
                out.text(path).int(3);
            }
            Self::Close => {}
        }
    }
    /// Whose watch an answer of this kind leaves behind.
    pub(crate) fn watch(&self, found: bool) -> Option<(&str, Watched)> {
        match self {
            Self::Exists { path, watch: true } if !found => Some((path, Watched::Absent)),
            Self::Exists { path, watch: true } | Self::Data { path, watch: true } if found => {
                Some((path, Watched::Data))
            }
            Self::Children { path, watch: true } if found => Some((path, Watched::Children)),
            _ => None,
        }
    }
    /// So answered, it was a transaction that the majority has agreed to, though it may have changed nothing.
    pub(crate) const fn is_agreed(&self, error: i32) -> bool {
        let is_one = matches!(
            self,
            Self::Create { .. } | Self::Delete { .. } | Self::SetData { .. } | Self::Check { .. } | Self::Multi(_)
        );
        is_one && matches!(error, 0 | code::NO_NODE | code::BAD_VERSION | code::NODE_EXISTS)
    }
    /// How many bytes it is, about.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Create { path, data, acl, .. } => {
                path.len() + data.len() + acl.iter().map(|acl| acl.scheme.len() + acl.id.len() + 12).sum::<usize>() + 40
            }
            Self::SetData { path, data, .. } => path.len() + data.len() + 30,
            Self::Multi(all) => all.iter().map(Self::size).sum::<usize>() + 30,
            Self::Delete { path, .. }
            | Self::Exists { path, .. }
            | Self::Data { path, .. }
            | Self::Children { path, .. }
            | Self::Sync { path }
            | Self::Check { path, .. }
            | Self::RemoveWatches { path } => path.len() + 30,
            Self::Close => 30,
        }
    }
    /// What the server said, `None` when it is no answer to this.
    pub(crate) fn read(&self, zxid: i64, body: &mut Reader<'_>) -> Option<Answer> {
        Some(match self {
            Self::Create { .. } => {
                let path = body.text()?.to_owned();
                Answer::Created { path, stat: Stat::read(body)? }
            }
            Self::Exists { .. } | Self::SetData { .. } => Answer::Stat(Stat::read(body)?),
            Self::Data { .. } => {
                let data = body.bytes()?.to_vec();
                Answer::Data { data, stat: Stat::read(body)? }
            }
            Self::Children { .. } => {
                let names = body.texts()?;
                Answer::Children { names, stat: Stat::read(body)? }
            }
            Self::Multi(_) => return read_all(zxid, body),
            Self::Delete { .. } | Self::Sync { .. } | Self::Check { .. } | Self::RemoveWatches { .. } | Self::Close => {
                Answer::Done
            }
        })
    }
}
/// The paths of what was made, or which one was refused and why.
fn read_all(zxid: i64, body: &mut Reader<'_>) -> Option<Answer> {
    let (mut made, mut n) = (Vec::new(), 0);
    loop {
        let (code, done) = (body.int()?, body.bool()?);
        body.int()?;
        if done {
            return Some(Answer::All { zxid, made });
        }
        match code {
            // Those before it are told as 0, those after it as something else.
            -1 => match body.int()? {
                0 => {}
                error => return Some(Answer::Refused { which: n, error }),
            },
            1 => made.push(body.text()?.to_owned()),
            5 => {
                Stat::read(body)?;
            }
            _ => {}
        }
        n += 1;
    }
}

/// What the server answered.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Done,
    Created {
        path: String,
        stat: Stat,
    },
    Stat(Stat),
    Data {
        data: Vec<u8>,
        stat: Stat,
    },
    Children {
        names: Vec<String>,
        stat: Stat,
    },
    /// All was done, by this transaction, and these nodes were made.
    All {
        zxid: i64,
        made: Vec<String>,
    },
    /// Nothing was done, because of this one.
    Refused {
        which: usize,
        error: i32,
    },
}

/// What is known of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stat {
    /// The transaction that made it.
    pub(crate) created: i64,
    /// The last one that changed its data.
    pub(crate) modified: i64,
    /// When it was made, by the leader's clock, in ms.
    pub(crate) born: i64,
    /// How often its data were changed.
    pub(crate) version: i32,
    /// The session that it goes with; 0: none.
    pub(crate) owner: i64,
    pub(crate) data_len: i32,
}
impl Stat {
    fn read(body: &mut Reader<'_>) -> Option<Self> {
        let (created, modified, born) = (body.long()?, body.long()?, body.long()?);
        body.long()?;
        let version = body.int()?;
        body.int()?;
        body.int()?;
        let (owner, data_len) = (body.long()?, body.int()?);
        body.int()?;
        body.long()?;
        Some(Self { created, modified, born, version, owner, data_len })
    }
}

/// The first message of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Hello {
    pub(crate) seen: i64,
    pub(crate) timeout: i32,
    /// 0: a new one.
    pub(crate) session: i64,
    pub(crate) password: Vec<u8>,
}
impl Hello {
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut out = Writer::message();
        out.int(0).long(self.seen).int(self.timeout).long(self.session).bytes(&self.password);
        // Not one who has lost the others.
        out.bool(false);
        out.done()
    }
    /// What the server grants; a session of 0: that one is over.
    pub(crate) fn read(body: &mut Reader<'_>) -> Option<Self> {
        body.int()?;
        let (timeout, session) = (body.int()?, body.long()?);
        Some(Self { seen: 0, timeout, session, password: body.bytes()?.to_vec() })
    }
}
pub(crate) const XID_EVENT: i32 = -1;
pub(crate) const XID_AUTH: i32 = -4;
pub(crate) const XID_WATCHES: i32 = -8;

/// Who we are.
pub(crate) fn auth(scheme: &str, secret: &str) -> Vec<u8> {
    let mut out = Writer::message();
    out.int(XID_AUTH).int(100).int(0).text(scheme).text(secret);
    out.done()
}
/// What is watched, after a connection was lost. What has happened since is told at once.
pub(crate) fn watches(seen: i64, all: &[(String, Watched)]) -> Vec<u8> {
    let mut out = Writer::message();
    out.int(XID_WATCHES).int(101).long(seen);
    for kind in [Watched::Data, Watched::Absent, Watched::Children] {
        let paths: Vec<_> = all.iter().filter(|(_, of)| *of == kind).map(|(path, _)| path.as_str()).collect();
        out.texts(paths.into_iter());
    }
    out.done()
}
/// What has happened to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happened {
    Created,
    Deleted,
    DataChanged,
    ChildrenChanged,
}
impl Happened {
    pub(crate) fn read(body: &mut Reader<'_>) -> Option<(Self, String)> {
        let kind = match body.int()? {
            1 => Self::Created,
            2 => Self::Deleted,
            3 => Self::DataChanged,
            4 => Self::ChildrenChanged,
            _ => return None,
        };
        body.int()?;
        Some((kind, body.text()?.to_owned()))
    }
    pub(crate) const fn concerns(self, watched: Watched) -> bool {
        match self {
            Self::Created => matches!(watched, Watched::Absent),
            Self::Deleted => true,
            Self::DataChanged => matches!(watched, Watched::Data),
            Self::ChildrenChanged => matches!(watched, Watched::Children),
        }
    }
}

/// What the server says no with.
pub(crate) mod code {
    pub(crate) const UNIMPLEMENTED: i32 = -6;
    pub(crate) const TIMED_OUT: i32 = -7;
    pub(crate) const THROTTLED: i32 = -127;
    pub(crate) const NO_NODE: i32 = -101;
    pub(crate) const NO_AUTH: i32 = -102;
    pub(crate) const BAD_VERSION: i32 = -103;
    pub(crate) const NODE_EXISTS: i32 = -110;
    pub(crate) const SESSION_EXPIRED: i32 = -112;
    pub(crate) const INVALID_ACL: i32 = -114;
    pub(crate) const AUTH_FAILED: i32 = -115;
    pub(crate) const SESSION_MOVED: i32 = -118;
}
