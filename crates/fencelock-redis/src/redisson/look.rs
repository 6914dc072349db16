//! Who has a lock, as its hash says it.
use super::names::{Names, WRITE, hold, is_holder};
use crate::{
    error::Fault,
    link::{Conn, clock, next_is_watched},
    plain::{FOR_EVER, beginning, ours, theirs},
    shared::Shared,
    wire::{
        record::pairs,
        reply::{bytes, number, text},
    },
};
use fencelock_core::{Claim, Holder, Name, Status, Token};
use redis::{Pipeline, Value};
use std::time::Duration;

/// One who has it: its field, what the hash says of its readers and writers, what stands beside it, and when that ends.
pub(crate) struct Sight<'a> {
    pub(crate) field: &'a [u8],
    pub(crate) mode: &'a str,
    pub(crate) beside: &'a [u8],
    /// So many ms are left; below 0: it does not end.
    pub(crate) ms: i64,
    /// By the server's clock, in µs.
    pub(crate) now: i64,
}
impl Sight<'_> {
    pub(crate) fn holder(&self) -> Holder {
        let left = u64::try_from(self.ms).map_or(FOR_EVER, Duration::from_millis);
        let field = std::str::from_utf8(self.field).unwrap_or_default();
        let mine = hold(field).filter(|hold| self.beside.starts_with(beginning(*hold).as_bytes()));
        let holder = mine.and_then(|_| ours(self.beside, left, self.now)).unwrap_or_else(|| theirs(self.field, left));
        let claim = match self.mode {
            "" => Claim::Mutex,
            _ if field.ends_with(WRITE) => Claim::Write,
            _ => Claim::Read,
        };
        Holder { claim, ..holder }
    }
}
/// What the server says of one hash.
struct Seen {
    mode: String,
    fields: Vec<Vec<u8>>,
    ms: i64,
    last: Option<Token>,
}

impl Shared {
    /// One lock, as it is now.
    pub(crate) async fn holders(&self, conn: &Conn, name: &Name, key: &str) -> Result<Status, Fault> {
        let mut all = self.statuses(conn, &[(name, key)], true).await?;
        all.pop().unwrap_or(Err(Fault::Answer))
    }
    /// Of these hashes, those that are locks.
    pub(crate) async fn held_hashes(
        &self,
        conn: &Conn,
        keys: Vec<(String, Name)>,
    ) -> Result<Vec<(String, Status)>, Fault> {
        let mut first = Pipeline::with_capacity(keys.len());
        let written: Vec<String> = keys.iter().map(|(_, name)| self.keys.key(name)).collect();
        for key in &written {
            // Another program's hash may be of any size.
            first.cmd("HSCAN").arg(key).arg(0).arg("COUNT").arg(8);
        }
        let answers = self.link.commands(conn, &first).await?;
        let is_lock = |answer: &Value| {
            let Value::Array(parts) = answer else { return false };
            let Some(Value::Array(fields)) = parts.get(1) else { return false };
            let pair = |pair: &[Value]| match pair {
                [field, value] => text(field).zip(text(value)).is_some_and(|(field, value)| is_holder(field, value)),
                _ => false,
            };
            !fields.is_empty() && fields.chunks(2).all(pair)
        };
        let locks: Vec<_> = keys
            .into_iter()
            .zip(written)
            .zip(&answers)
            .filter(|(_, answer)| is_lock(answer))
            .map(|(it, _)| it)
            .collect();
        let asked: Vec<(&Name, &str)> = locks.iter().map(|((_, name), key)| (name, key.as_str())).collect();
        let found = self.statuses(conn, &asked, false).await?;
        let all = locks.iter().zip(found).filter_map(|(((key, _), _), status)| Some((key.clone(), status.ok()?)));
        Ok(all.filter(|(_, status)| status.is_held()).collect())
    }
    /// The field of another program for which this token stands.
    pub(crate) async fn field_of(&self, conn: &Conn, key: &str, token: Token) -> Result<Option<Vec<u8>>, Fault> {
        let fields = self.link.command(conn, redis::cmd("HKEYS").arg(key)).await?;
        let Value::Array(fields) = &fields else { return Err(Fault::Answer) };
        let stands = |field: &&[u8]| *field != b"mode" && theirs(field, Duration::ZERO).token == token;
        Ok(fields.iter().filter_map(bytes).find(stands).map(<[u8]>::to_vec))
    }
    async fn statuses(
        &self,
        conn: &Conn,
        keys: &[(&Name, &str)],
        watches: bool,
    ) -> Result<Vec<Result<Status, Fault>>, Fault> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let watches = watches && conn.tracks;
        let mut all = Pipeline::with_capacity(4 * keys.len() + 1);
        for (_, key) in keys {
            if watches {
                all.add_command(next_is_watched());
            }
            all.cmd("HGETALL").arg(key).cmd("PTTL").arg(key).cmd("GET").arg(Names(key).token());
        }
        all.cmd("TIME");
        let mut answers = self.link.commands(conn, &all).await?;
        let now = answers.pop().as_ref().and_then(clock).ok_or(Fault::Answer)?;
        let each = if watches { 4 } else { 3 };
        let seen: Vec<_> = answers.chunks_exact(each).map(|part| seen(part.get(each - 3..).unwrap_or(part))).collect();
        // Whoever is one of ours says more beside it.
        let mut more = Pipeline::new();
        for ((_, key), seen) in keys.iter().zip(&seen) {
            for field in seen.iter().flat_map(|seen| &seen.fields).filter_map(|field| mine(field)) {
                let beside = Names(key).beside(field);
                more.cmd("GET").arg(&beside).cmd("PTTL").arg(&beside);
            }
        }
        let said = if more.is_empty() { Vec::new() } else { self.link.commands(conn, &more).await? };
        let mut said = said.chunks_exact(2);
        let mut statuses = Vec::with_capacity(keys.len());
        for ((name, _), seen) in keys.iter().zip(seen) {
            statuses.push(seen.map(|seen| status(name, &seen, &mut said, now)));
        }
        Ok(statuses)
    }
}
fn mine(field: &[u8]) -> Option<&str> {
    std::str::from_utf8(field).ok().filter(|field| hold(field).is_some())
}
fn seen(part: &[Value]) -> Result<Seen, Fault> {
    let [fields, ms, last] = part else { return Err(Fault::Answer) };
    if let Value::ServerError(e) = fields {
        return Err(Fault::Redis(e.clone().into()));
    }
    let mut seen = Seen {
        mode: String::new(),
        fields: Vec::new(),
        ms: number(ms).ok_or(Fault::Answer)?,
        last: number(last).and_then(Token::new),
    };
    for (field, value) in pairs(fields).ok_or(Fault::Answer)? {
        match bytes(field).ok_or(Fault::Answer)? {
            b"mode" => text(value).unwrap_or_default().clone_into(&mut seen.mode),
            field => seen.fields.push(field.to_vec()),
        }
    }
    Ok(seen)
}
fn status<'a>(name: &Name, seen: &Seen, said: &mut impl Iterator<Item = &'a [Value]>, now: i64) -> Status {
    let mut status = Status::free(name.clone());
    status.last_token = seen.last;
    for field in &seen.fields {
        let beside = mine(field).and_then(|_| said.next()).unwrap_or_default();
        let value = beside.first().and_then(bytes).unwrap_or_default();
        let ms = beside.get(1).and_then(number).filter(|_| !value.is_empty()).unwrap_or(seen.ms);
        // A reader of ours whose lease is over, beside others'.
        if mine(field).is_some() && value.is_empty() && seen.mode == "read" {
            continue;
        }
        status.holders.push(Sight { field, mode: &seen.mode, beside: value, ms, now }.holder());
    }
    status.holders.sort_by_key(|holder| (!holder.claim.is_exclusive(), holder.token));
    status.kind = status.holders.first().map(|holder| holder.claim.kind());
    status
}
