//! A record as it lies in its hash, read without a script: for those who only look.
use super::reply::{bytes, number, text};
use fencelock_core::{Claim, HoldId, Holder, Kind, Name, Status, Token, Waiter};
use redis::Value;
use std::{sync::Arc, time::Duration};

/// Somebody who holds, as its field says it: `hold token end ttl since take host pid note`.
pub(crate) struct Held<'a> {
    pub(crate) hold: &'a str,
    pub(crate) token: &'a str,
    ends: i64,
    since: i64,
    take: u32,
    identity: &'a str,
}
impl<'a> Held<'a> {
    pub(crate) fn parse(field: &'a str) -> Option<Self> {
        let mut parts = field.splitn(7, ' ');
        let (hold, token) = (parts.next()?, parts.next()?);
        let ends = parts.next()?.parse().ok()?;
        let _ttl = parts.next()?;
        let (since, take) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Self { hold, token, ends, since, take, identity: parts.next()? })
    }
    fn holder(&self, claim: Claim, now: i64) -> Option<Holder> {
        let (host, pid, note) = identity(self.identity);
        let token = Token::new(self.token.parse().ok()?)?;
        let (held_for, left) = (micros(now - self.since), micros(self.ends - now));
        Some(Holder { hold: self.hold.parse().ok()?, claim, token, host, pid, note, held_for, left })
    }
}
/// Host, process and note, as one text with the note last.
pub(crate) fn identity(text: &str) -> (Arc<str>, u32, Arc<str>) {
    let mut parts = text.splitn(3, ' ');
    let (host, pid) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    (host.into(), pid.parse().unwrap_or(0), parts.next().unwrap_or("").into())
}
pub(crate) fn micros(n: i64) -> Duration {
    Duration::from_micros(u64::try_from(n).unwrap_or(0))
}

/// What is claimed, by the letter that stands for it.
pub(crate) fn claim(letter: &str, take: u32, of: u32) -> Claim {
    match letter {
        "r" => Claim::Read,
        "w" => Claim::Write,
        "p" => Claim::Permits { take, of },
        _ => Claim::Mutex,
    }
}
/// And the letter.
pub(crate) const fn letter(claim: Claim) -> &'static str {
    match claim {
        Claim::Read => "r",
        Claim::Write => "w",
        Claim::Permits { .. } => "p",
        _ => "m",
    }
}

/// The record, as it is at `now` by the server's clock: who is over does not count. `None`: another program's, or a newer one's.
pub(crate) fn status(name: &Name, fields: &Value, now: i64) -> Option<Status> {
    let mut status = Status::free(name.clone());
    let (mut kind, mut size, mut value) = (None, 0, false);
    let (mut alone, mut shared, mut waiters, mut alive) = (None, Vec::new(), Vec::new(), Vec::new());
    for (key, field) in pairs(fields)? {
        let key = std::str::from_utf8(bytes(key)?).ok()?;
        match key.split_at_checked(1)? {
            ("k", "") => kind = Some(text(field)?.parse::<Kind>().ok()?),
            ("c", "") => size = u32::try_from(number(field)?).ok()?,
            ("f", "") => status.last_token = Token::new(number(field)?),
            ("v", "") => value = true,
            ("o", "") => alone = Some(Held::parse(text(field)?)?),
            ("h", _) => shared.push(Held::parse(text(field)?)?),
            ("w", place) => waiters.push((place.parse::<i64>().ok()?, text(field)?)),
            ("x", place) => alive.push((place.parse::<i64>().ok()?, number(field)?)),
            _ => {}
        }
    }
    let (exclusive, beside) = match kind {
        Some(Kind::RwLock) => ("w", "r"),
        Some(Kind::Semaphore) => ("p", "p"),
        _ => ("m", "m"),
    };
    let good = |held: &Held<'_>| held.ends > now;
    for held in alone.into_iter().filter(good) {
        status.holders.push(held.holder(claim(exclusive, held.take, size), now)?);
    }
    shared.sort_by(|a, b| (a.since, a.token).cmp(&(b.since, b.token)));
    for held in shared.into_iter().filter(good) {
        status.holders.push(held.holder(claim(beside, held.take, size), now)?);
    }
    waiters.sort_unstable();
    for (place, text) in waiters {
        if alive.iter().any(|(at, until)| *at == place && *until > now) {
            status.waiters.push(waiter(text, size, now)?);
        }
    }
    if matches!(kind, Some(Kind::Semaphore)) && size > 0 {
        status.capacity = Some(size);
    }
    let is_live = status.is_held() || !status.waiters.is_empty();
    status.kind = kind.filter(|kind| if *kind == Kind::Cell { value } else { is_live });
    Some(status)
}
/// `hold claim take ttl floor since channel host pid note`.
fn waiter(field: &str, of: u32, now: i64) -> Option<Waiter> {
    let mut parts = field.splitn(8, ' ');
    let hold: HoldId = parts.next()?.parse().ok()?;
    let (letter, take) = (parts.next()?, parts.next()?.parse().ok()?);
    let (_ttl, _floor, since, _channel) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let (host, pid, note) = identity(parts.next()?);
    let waiting_for = micros(now - since.parse::<i64>().ok()?);
    Some(Waiter { hold, claim: claim(letter, take, of), host, pid, note, waiting_for })
}
/// RESP2 tells a map as a list.
pub(crate) fn pairs(value: &Value) -> Option<Vec<(&Value, &Value)>> {
    match value {
        Value::Map(pairs) => Some(pairs.iter().map(|(key, value)| (key, value)).collect()),
        Value::Array(list) => Some(list.chunks_exact(2).map(|pair| (&pair[0], &pair[1])).collect()),
        Value::Nil => Some(Vec::new()),
        _ => None,
    }
}
