//! What scripts answer: a list whose first number says what became of it.
use super::record::{claim, identity, micros};
use fencelock_core::{Busy, HoldId, Holder, Token, Version, Versioned};
use redis::Value;
use std::time::Duration;

/// A script's answer, taken apart.
#[derive(Debug)]
pub(crate) enum Reply {
    /// Done, or granted so long ago. What the number is, is the script's affair.
    Done { number: i64, now: i64, ago: Duration },
    /// In the queue; something ends by itself after so long, then by the server's clock.
    Queued { busy: Busy, left: Duration, end: i64 },
    /// Somebody else has it.
    Busy(Busy),
    /// It is a live lock of this kind.
    OtherKind(String),
    /// The semaphore has this size.
    OtherSize(u32),
    /// The command came after its end and did nothing (SAFETY A2).
    Past,
    /// A hold of that kind has no such side.
    Never,
    /// What stands there instead.
    Conflict(Versioned),
    /// There is nothing of it.
    Unknown { holder: Option<Box<Holder>> },
}

/// `None`: no script of ours answers so.
pub(crate) fn reply(value: &Value) -> Option<Reply> {
    let Value::Array(parts) = value else { return None };
    let at = |n: usize| parts.get(n).unwrap_or(&Value::Nil);
    let numeral = |n: usize| number(at(n));
    let busy = || Busy::new(holder(at(4)), numeral(1).and_then(|n| u32::try_from(n).ok()));
    Some(match numeral(0)? {
        0 => Reply::Unknown { holder: holder(at(4)).map(Box::new) },
        1 => Reply::Done {
            number: numeral(1).unwrap_or(0),
            now: numeral(2).unwrap_or(0),
            ago: micros(numeral(3).unwrap_or(0)),
        },
        2 => Reply::Queued { busy: busy(), left: micros(numeral(3)?), end: numeral(2)?.checked_add(numeral(3)?)? },
        3 => Reply::Busy(busy()),
        4 => Reply::OtherKind(text(at(1))?.to_owned()),
        5 => Reply::OtherSize(u32::try_from(numeral(1)?).ok()?),
        6 => Reply::Past,
        7 => Reply::Never,
        8 => Reply::Conflict(versioned(at(1), at(4))?),
        _ => return None,
    })
}
pub(crate) fn versioned(version: &Value, value: &Value) -> Option<Versioned> {
    let value = match value {
        Value::Nil => None,
        value => Some(bytes(value)?.into()),
    };
    Some(Versioned { version: Version::new(number(version)?), value })
}
/// Somebody who is in the way.
fn holder(value: &Value) -> Option<Holder> {
    let Value::Array(parts) = value else { return None };
    let [hold, letter, take, of, token, who, held_for, left] = parts.as_slice() else { return None };
    let hold: HoldId = text(hold)?.parse().ok()?;
    let (take, of) = (u32::try_from(number(take)?).ok()?, u32::try_from(number(of)?).ok()?);
    let (claim, token) = (claim(text(letter)?, take, of), Token::new(number(token)?)?);
    let (host, pid, note) = identity(text(who)?);
    let (held_for, left) = (micros(number(held_for)?), micros(number(left)?));
    Some(Holder { hold, claim, token, host, pid, note, held_for, left })
}

pub(crate) fn bytes(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.as_bytes()),
        _ => None,
    }
}
pub(crate) fn text(value: &Value) -> Option<&str> {
    std::str::from_utf8(bytes(value)?).ok()
}
pub(crate) fn number(value: &Value) -> Option<i64> {
    match value {
        Value::Int(n) => Some(*n),
        other => text(other)?.parse().ok(),
    }
}
