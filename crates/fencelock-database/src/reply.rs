//! What functions and procedures answer: rows whose field `code` says what became of it.
use fencelock_core::{Busy, Claim, Conflict, HoldId, Holder, Kind, Name, Status, Token, UnknownKind, Version, Waiter};
use std::{borrow::Cow, sync::Arc, time::Duration};

/// An answer, taken apart.
#[derive(Debug)]
pub enum Reply {
    /// Done; what the number is, is the function's affair.
    Done {
        /// Often a token.
        number: i64,
        /// By the server's clock.
        now: i64,
    },
    /// In the queue.
    Queued {
        /// What is known of those in the way.
        busy: Busy,
        /// Something ends by itself after so long.
        rest: Option<Duration>,
    },
    /// A waiter's turn may have come.
    Turn,
    /// Somebody else has it.
    Busy(Busy),
    /// It is a live lock of this kind.
    OtherKind(Kind),
    /// The semaphore has this size.
    OtherSize(u32),
    /// The command came after its end and did nothing (SAFETY A2).
    Past,
    /// It did nothing, since nothing shows at the server that its client is there.
    Unheard,
    /// Somebody's transaction keeps the row now (SAFETY E2).
    Locked,
    /// There is no such hold, nor a place in the queue.
    Gone {
        /// Who has it.
        holder: Option<Box<Holder>>,
    },
    /// It cannot become that.
    Never,
    /// It is this session's, or that of nobody any more, and free for nobody before its time.
    Reserved {
        /// So long.
        rest: Duration,
    },
    /// Somebody has it who minds other rules: which.
    Layout(String),
    /// The server's process that holds it was asked to let go.
    Asked {
        /// Its number.
        pid: i64,
    },
}
/// What became of a value.
#[derive(Debug)]
pub enum Value {
    /// It was written.
    Written(Version),
    /// It is this one.
    Now(Conflict),
    /// The name is a live lock of this kind.
    OtherKind(Kind),
    /// Somebody's transaction keeps the row now (SAFETY E2).
    Locked,
}

/// A row, by the names of its columns: what an answer does not have is not there.
pub trait Fields {
    /// This column.
    fn text(&self, name: &str) -> Option<&str>;
    /// The id of a hold.
    fn hold(&self) -> Option<HoldId>;
    /// Whose it is: host, process and note, as one text.
    fn who(&self) -> Option<Cow<'_, str>>;
    /// Of a lock's own row.
    fn kind(&self) -> Option<Result<Kind, UnknownKind>>;

    /// This column.
    fn number(&self, name: &str) -> Option<i64> {
        self.text(name)?.parse().ok()
    }
    /// The same in µs, as a time.
    fn time(&self, name: &str) -> Option<Duration> {
        self.number(name).map(|micros| Duration::from_micros(u64::try_from(micros).unwrap_or(0)))
    }
    /// The same, and no number below 0.
    fn small(&self, name: &str) -> Option<u32> {
        self.number(name).and_then(|number| u32::try_from(number).ok())
    }
    /// What each database answers in the same words.
    fn reply(&self) -> Option<Reply> {
        Some(match self.text("code")? {
            "done" => Reply::Done { number: self.number("number").unwrap_or(0), now: self.number("now").unwrap_or(0) },
            "turn" => Reply::Turn,
            "queued" => Reply::Queued { busy: self.busy(), rest: self.time("rest") },
            "busy" => Reply::Busy(self.busy()),
            "size" => Reply::OtherSize(self.small("size")?),
            "past" => Reply::Past,
            "unheard" => Reply::Unheard,
            "locked" => Reply::Locked,
            "gone" => Reply::Gone { holder: self.holder().map(Box::new) },
            "never" => Reply::Never,
            _ => return None,
        })
    }
    /// Who is in the way, and how many are in front.
    fn busy(&self) -> Busy {
        Busy::new(self.holder(), self.small("ahead"))
    }
    /// What is claimed.
    fn claim(&self) -> Option<Claim> {
        Some(match self.text("claim")? {
            "m" => Claim::Mutex,
            "w" => Claim::Write,
            "r" => Claim::Read,
            "p" => Claim::Permits { take: self.small("take").unwrap_or(0), of: self.small("size").unwrap_or(0) },
            _ => return None,
        })
    }
    /// A row of one who holds.
    fn holder(&self) -> Option<Holder> {
        let (hold, claim, token) = (self.hold()?, self.claim()?, Token::new(self.number("token")?)?);
        let (host, pid, note) = identity(&self.who()?);
        let (held_for, left) = (self.time("held")?, self.time("rest")?);
        Some(Holder { hold, claim, token, host, pid, note, held_for, left })
    }
    /// A row of one who waits.
    fn waiter(&self) -> Option<Waiter> {
        let (hold, claim) = (self.hold()?, self.claim()?);
        let (host, pid, note) = identity(&self.who()?);
        Some(Waiter { hold, claim, host, pid, note, waiting_for: self.time("held")? })
    }
}
/// A lock as `fencelock_inspect` tells it, row by row.
pub fn status<F: Fields>(name: &Name, rows: impl Iterator<Item = F>) -> Option<Status> {
    let mut status = Status::free(name.clone());
    let (mut kind, mut value) = (None, false);
    for row in rows {
        match row.text("code")? {
            "lock" => {
                kind = row.kind().transpose().ok()?;
                status.last_token = row.number("number").and_then(Token::new);
                value = row.number("held").is_some();
                if kind == Some(Kind::Semaphore) {
                    status.capacity = row.small("size");
                }
            }
            "holder" => status.holders.push(row.holder()?),
            "waiter" => status.waiters.push(row.waiter()?),
            _ => return None,
        }
    }
    let is_live = status.is_held() || !status.waiters.is_empty();
    status.kind = kind.filter(|kind| if *kind == Kind::Cell { value } else { is_live });
    Some(status)
}
/// Host, process and note, as one text with the note last.
fn identity(text: &str) -> (Arc<str>, u32, Arc<str>) {
    let mut parts = text.splitn(3, ' ');
    let (host, pid) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    (host.into(), pid.parse().unwrap_or(0), parts.next().unwrap_or("").into())
}
/// What is claimed, as a letter.
pub const fn letter(claim: Claim) -> &'static str {
    match claim {
        Claim::Read => "r",
        Claim::Write => "w",
        Claim::Permits { .. } => "p",
        _ => "m",
    }
}
