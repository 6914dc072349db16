//! What the procedures answer: a row whose first field says what became of it.
use fencelock_core::{Busy, Claim, Conflict, HoldId, Holder, Kind, Name, Status, Token, Version, Versioned, Waiter};
use mysql_async::{Row, Value as Field};
use std::{str::from_utf8, sync::Arc, time::Duration};

/// An answer, taken apart.
#[derive(Debug)]
pub(crate) enum Reply {
    /// Done; what the number is, is the procedure's affair.
    Done { number: i64, now: i64 },
    /// In the queue; something ends by itself after so long.
    Queued { busy: Busy, rest: Option<Duration> },
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
    /// Somebody's transaction keeps the row now (SAFETY E2).
    Locked,
    /// There is no such hold, nor a place in the queue.
    Gone { holder: Option<Box<Holder>> },
    /// It cannot become that.
    Never,
}
pub(crate) fn reply(row: &Row) -> Option<Reply> {
    let field = Fields(row);
    Some(match field.text("code")? {
        "done" => Reply::Done { number: field.number("number").unwrap_or(0), now: field.number("now").unwrap_or(0) },
        "queued" => Reply::Queued { busy: field.busy(), rest: field.number("rest").map(micros) },
        "turn" => Reply::Turn,
        "busy" => Reply::Busy(field.busy()),
        "kind" => Reply::OtherKind(field.text("kind")?.parse().ok()?),
        "size" => Reply::OtherSize(u32::try_from(field.number("size")?).ok()?),
        "past" => Reply::Past,
        "locked" => Reply::Locked,
        "gone" => Reply::Gone { holder: field.holder().map(Box::new) },
        "never" => Reply::Never,
        _ => return None,
    })
}
/// The column with this number, as text.
pub(crate) fn column(row: &Row, at: usize) -> Option<&str> {
    match row.as_ref(at)? {
        Field::Bytes(bytes) => from_utf8(bytes).ok(),
        _ => None,
    }
}
/// When the answer was given, by the server's clock.
pub(crate) fn clock(row: &Row) -> Option<i64> {
    Fields(row).number("now")
}
/// What became of a value.
pub(crate) enum Value {
    Written(Version),
    Now(Conflict),
    OtherKind(Kind),
    Locked,
}
pub(crate) fn value(row: &Row) -> Option<Value> {
    let field = Fields(row);
    let version = || field.number("version").map(Version::new);
    Some(match field.text("code")? {
        "done" => Value::Written(version()?),
        "value" => {
            let value = field.bytes("value").map(Arc::from);
            Value::Now(Conflict { now: Versioned { version: version()?, value } })
        }
        "kind" => Value::OtherKind(field.text("kind")?.parse().ok()?),
        "locked" => Value::Locked,
        _ => return None,
    })
}
/// A lock as `fencelock_inspect` tells it.
pub(crate) fn status(name: &Name, rows: &[Row]) -> Option<Status> {
    let mut status = Status::free(name.clone());
    let (mut kind, mut value) = (None, false);
    for row in rows {
        let field = Fields(row);
        match field.text("code")? {
            "lock" => {
                kind = field.text("kind").map(str::parse::<Kind>).transpose().ok()?;
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

struct Fields<'a>(&'a Row);
impl<'a> Fields<'a> {
    /// By its name: what an answer does not have is not there.
    fn bytes(&self, name: &str) -> Option<&'a [u8]> {
        let at = self.0.columns_ref().iter().position(|column| column.name_ref() == name.as_bytes())?;
        match self.0.as_ref(at)? {
            Field::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }
    fn text(&self, name: &str) -> Option<&'a str> {
        from_utf8(self.bytes(name)?).ok()
    }
    fn number(&self, name: &str) -> Option<i64> {
        self.text(name)?.parse().ok()
    }
    fn small(&self, name: &str) -> u32 {
        self.number(name).and_then(|n| u32::try_from(n).ok()).unwrap_or(0)
    }
    fn hold(&self) -> Option<HoldId> {
        let id = u128::from_be_bytes(self.bytes("hold")?.try_into().ok()?);
        format!("{id:032x}").parse().ok()
    }
    fn who(&self) -> Option<String> {
        self.bytes("who").map(|who| String::from_utf8_lossy(who).into_owned())
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
        let (host, pid, note) = identity(&self.who()?);
        let (held_for, left) = (micros(self.number("held")?), micros(self.number("rest")?));
        Some(Holder { hold, claim, token, host, pid, note, held_for, left })
    }
    fn waiter(&self) -> Option<Waiter> {
        let (hold, claim) = (self.hold()?, self.claim()?);
        let (host, pid, note) = identity(&self.who()?);
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
