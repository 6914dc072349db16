//! What the functions answer: a row whose first field says what became of it.
use fencelock_core::{Busy, Claim, Conflict, HoldId, Holder, Kind, Name, Status, Token, Version, Versioned, Waiter};
use std::{sync::Arc, time::Duration};
use tokio_postgres::SimpleQueryRow;

/// An answer, taken apart.
#[derive(Debug)]
pub(crate) enum Reply {
    /// Done; what the number is, is the function's affair.
    Done { number: i64, now: i64 },
    /// In the queue; something ends by itself after so long.
    Queued { busy: Busy, rest: Option<Duration> },
    /// Somebody else has it.
    Busy(Busy),
    /// It is a live lock of this kind.
    OtherKind(Kind),
    /// The semaphore has this size.
    OtherSize(u32),
    /// The command came after its end and did nothing (SAFETY A2).
    Past,
    /// Somebody's transaction keeps the row now (SAFETY E2).
    Locked,
    /// There is no such hold, nor a place in the queue.
    Gone { holder: Option<Box<Holder>> },
    /// It cannot become that.
    Never,
    /// Who held it is gone, and it is not free before so long.
    Reserved { rest: Duration },
    /// Somebody has it who minds other rules.
    Layout(String),
    /// The process that holds it was asked to let go.
    Asked { pid: i64 },
}
pub(crate) fn reply(row: &SimpleQueryRow) -> Option<Reply> {
    let field = Fields(row);
    Some(match field.text("code")? {
        "done" => Reply::Done { number: field.number("number").unwrap_or(0), now: field.number("now").unwrap_or(0) },
        "queued" => Reply::Queued { busy: field.busy(), rest: field.number("rest").map(micros) },
        "busy" => Reply::Busy(field.busy()),
        "kind" => Reply::OtherKind(field.text("who")?.parse().ok()?),
        "size" => Reply::OtherSize(u32::try_from(field.number("size")?).ok()?),
        "past" => Reply::Past,
        "locked" => Reply::Locked,
        "gone" => Reply::Gone { holder: field.holder().map(Box::new) },
        "never" => Reply::Never,
        "reserved" => Reply::Reserved { rest: micros(field.number("rest")?) },
        "layout" => Reply::Layout(field.text("who")?.to_owned()),
        "asked" => Reply::Asked { pid: field.number("number")? },
        _ => return None,
    })
}
/// When the answer was given, by the server's clock.
pub(crate) fn clock(row: &SimpleQueryRow) -> Option<i64> {
    Fields(row).number("now")
}
/// What became of a value.
pub(crate) enum Value {
    Written(Version),
    Now(Conflict),
    OtherKind(Kind),
    Locked,
}
pub(crate) fn value(row: &SimpleQueryRow) -> Option<Value> {
    let field = Fields(row);
    let version = || field.number("version").map(Version::new);
    Some(match field.text("code")? {
        "done" => Value::Written(version()?),
        "value" => {
            let value =
                field.text("value").map(|hex| unhex(hex.strip_prefix("\\x")?)).map_or(Some(None), |v| v.map(Some))?;
            Value::Now(Conflict { now: Versioned { version: version()?, value } })
        }
        "kind" => Value::OtherKind(field.text("kind")?.parse().ok()?),
        "locked" => Value::Locked,
        _ => return None,
    })
}
fn unhex(hex: &str) -> Option<Arc<[u8]>> {
    let digits = |at: usize| hex.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
    (0..hex.len()).step_by(2).map(digits).collect()
}
/// A lock as `fencelock_inspect` tells it.
pub(crate) fn status(name: &Name, rows: &[SimpleQueryRow]) -> Option<Status> {
    let mut status = Status::free(name.clone());
    let (mut kind, mut value) = (None, false);
    for row in rows {
        let field = Fields(row);
        match field.text("code")? {
            "lock" => {
                kind = field.text("who").map(str::parse::<Kind>).transpose().ok()?;
                status.last_token = field.number("number").and_then(Token::new);
                value = field.number("held").is_some();
                if kind == Some(Kind::Semaphore) {
                    status.capacity = field.number("size").and_then(|size| u32::try_from(size).ok());
                }
            }
            "holder" => status.holders.push(field.holder()?),
            "waiter" => status.waiters.push(field.waiter()?),
            _ => return None,
        }
    }
    let is_live = status.is_held() || !status.waiters.is_empty();
    status.kind = kind.filter(|kind| if *kind == Kind::Cell { value } else { is_live });
    Some(status)
}

struct Fields<'a>(&'a SimpleQueryRow);
impl<'a> Fields<'a> {
    fn text(&self, name: &str) -> Option<&'a str> {
        self.0.try_get(name).ok()?
    }
    fn number(&self, name: &str) -> Option<i64> {
        self.text(name)?.parse().ok()
    }
    fn small(&self, name: &str) -> u32 {
        self.number(name).and_then(|n| u32::try_from(n).ok()).unwrap_or(0)
    }
    fn hold(&self) -> Option<HoldId> {
        self.text("hold")?.replace('-', "").parse().ok()
    }
    fn claim(&self) -> Option<Claim> {
        Some(match self.text("claim")? {
            "m" => Claim::Mutex,
            "w" => Claim::Write,
            "r" => Claim::Read,
            "p" => Claim::Permits { take: self.small("take"), of: self.small("size") },
            _ => return None,
        })
    }
    fn busy(&self) -> Busy {
        Busy::new(self.holder(), self.number("ahead").and_then(|ahead| u32::try_from(ahead).ok()))
    }
    fn holder(&self) -> Option<Holder> {
        let (hold, claim, token) = (self.hold()?, self.claim()?, Token::new(self.number("token")?)?);
        let (host, pid, note) = identity(self.text("who")?);
        let (held_for, left) = (micros(self.number("held")?), micros(self.number("rest")?));
        Some(Holder { hold, claim, token, host, pid, note, held_for, left })
    }
    fn waiter(&self) -> Option<Waiter> {
        let (hold, claim) = (self.hold()?, self.claim()?);
        let (host, pid, note) = identity(self.text("who")?);
        Some(Waiter { hold, claim, host, pid, note, waiting_for: micros(self.number("held")?) })
    }
}
/// Host, process and note, as one text with the note last.
fn identity(text: &str) -> (Arc<str>, u32, Arc<str>) {
    let mut parts = text.splitn(3, ' ');
    let (host, pid) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    (host.into(), pid.parse().unwrap_or(0), parts.next().unwrap_or("").into())
}
fn micros(n: i64) -> Duration {
    Duration::from_micros(u64::try_from(n).unwrap_or(0))
}
/// What is claimed, as a letter.
pub(crate) const fn letter(claim: Claim) -> &'static str {
    match claim {
        Claim::Read => "r",
        Claim::Write => "w",
        Claim::Permits { .. } => "p",
        _ => "m",
    }
}
