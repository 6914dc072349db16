//! What is done to a hash that Redisson uses, too.
use super::{
    lease,
    look::Sight,
    names::{Names, WRITE, field},
};
use crate::{
    config::MAX_TTL,
    error::Fault,
    link::Conn,
    plain::{Claimed, Question, beginning, tail},
    renew::{Answered, Kept},
    shared::{LEAVE, Own, Shared, micros},
    wire::{
        record::letter,
        reply::{bytes, number, text},
        scripts::{REDISSON_ACQUIRE, REDISSON_DOWNGRADE, REDISSON_RELEASE},
    },
};
use fencelock_core::{
    BootClock, Busy, Claim, Clock, Grant, HoldId, Holder, Identity, Kind, Moment, Name, Request, Token,
};
use redis::{Cmd, RedisWrite, Value};
use std::time::Duration;

/// What the server counts in, and a bit: a lease that is as long as it was is written by nobody, which others would have to look at.
const GRAIN: Duration = Duration::from_millis(2);

impl Shared {
    /// How a release is told: in a cluster on the shard of the key, as Redisson does where there are such channels.
    fn verb(&self) -> &'static str {
        if self.link.is_cluster() { "SPUBLISH" } else { "PUBLISH" }
    }
    pub(crate) fn question_of_field(&self, request: &Request, key: &str) -> Question {
        let (names, field) = (Names(key), field(request.hold()));
        let Identity { host, pid } = Identity::here();
        let keys = vec![key.to_owned(), names.token(), names.beside(&field)];
        let args = vec![
            names.holders(),
            field,
            letter(request.claim()).to_owned(),
            micros(lease(request)).to_string(),
            String::new(),
            self.link.floor(request.floor()),
            beginning(request.hold()),
            tail(&host, pid, request.note()),
        ];
        Question { script: &REDISSON_ACQUIRE, keys, args, end: 4 }
    }
    /// Ends a hold of ours of this id, and of this token if one is given, as reader or as writer.
    pub(crate) async fn end_hold(
        &self,
        key: &str,
        hold: HoldId,
        token: Option<Token>,
    ) -> Result<Result<(), Option<Holder>>, Fault> {
        let (field, begins) = (&*field(hold), &*begins(hold, token));
        let ask = |conn: Conn| async move {
            let limit = conn.server.patience().min(LEAVE);
            self.end_field(&conn, limit, key, field.as_bytes(), begins).await
        };
        self.link.turned(self.link.at(key).await?, ask).await
    }
    /// `begins`: what stands beside it begins so; empty: it is another program's, and this very field.
    async fn end_field(
        &self,
        conn: &Conn,
        limit: Duration,
        key: &str,
        field: &[u8],
        begins: &str,
    ) -> Result<Result<(), Option<Holder>>, Fault> {
        let names = Names(key);
        let (beside, holders) = (names.beside(&String::from_utf8_lossy(field)), names.holders());
        let (lone, both, queue, token) = (names.channel(), names.channel_of_both(), names.queue(), names.token());
        let how = if begins.is_empty() { "=" } else { "" };
        let words = [how, begins, self.verb(), &lone, &both, &queue, &token].map(str::as_bytes);
        // Theirs need have none beside it.
        let keys: &[&str] = if begins.is_empty() { &[key] } else { &[key, &beside] };
        let args: Vec<&[u8]> = [holders.as_bytes(), field].into_iter().chain(words).collect();
        let answer = self.link.timed(conn, limit, &REDISSON_RELEASE, keys, &args).await?;
        // What it leaves may be of use to others of this client.
        self.link.touched(conn, key);
        let Value::Array(parts) = &answer else { return Err(Fault::Answer) };
        match parts.first().and_then(number) {
            Some(1) => Ok(Ok(())),
            Some(0) => Ok(Err(sight(parts).map(|sight| sight.holder()))),
            _ => Err(Fault::Answer),
        }
    }
    /// Breaks whatever has this token, or what stands for one: of a thread that writes and reads, that part of it.
    pub(crate) async fn break_field(&self, name: &Name, token: Token) -> Result<Result<(), Option<Holder>>, Fault> {
        let key = &*self.keys.key(name);
        let ask = |conn: Conn| async move {
            let status = self.holders(&conn, name, key).await?;
            let Some(holder) = status.holders.iter().find(|holder| holder.token == token) else {
                return Ok(Err(status.holders.into_iter().next()));
            };
            let limit = conn.server.patience();
            if holder.pid > 0 {
                let begins = begins(holder.hold, Some(token));
                return self.end_field(&conn, limit, key, field(holder.hold).as_bytes(), &begins).await;
            }
            let Some(theirs) = self.field_of(&conn, key, token).await? else { return Ok(Err(None)) };
            self.end_field(&conn, limit, key, &theirs, "").await
        };
        self.link.again(key, ask).await
    }
    /// A writer goes on as a reader. Busy: it has not got it any more.
    pub(crate) async fn become_reader(&self, grant: &Grant, next: &Request) -> Result<Claimed, Fault> {
        let key = &*self.keys.key(&grant.name);
        let (names, field) = (Names(key), field(grant.hold));
        let (beside, holders, channel) = (&*names.beside(&field), &*names.holders(), &*names.channel_of_both());
        let (begins, ttl) = (&*begins(grant.hold, Some(grant.token)), &*micros(lease(next)).to_string());
        let field = &*field;
        let conn = self.link.soon(key, next.stopped()).await?;
        let ask = |conn: Conn| async move {
            let sent_at = BootClock.now();
            let args = [holders, field, begins, ttl, self.verb(), channel].map(str::as_bytes);
            let limit = conn.server.patience();
            let answer = self.link.timed(&conn, limit, &REDISSON_DOWNGRADE, &[key, beside], &args).await?;
            self.link.touched(&conn, key);
            claimed(&answer, sent_at, false).ok_or(Fault::Answer)
        };
        self.link.turned(conn, ask).await
    }

    /// What renews these, each by its hash and by what stands beside it.
    pub(crate) fn renewal_of_fields(&self, part: &[Kept<'_>], first: &str, body: &str) -> Cmd {
        let mut cmd = Cmd::with_capacity(4 + 7 * part.len(), 256 + body.len() + 320 * part.len());
        cmd.arg(first).arg(body).arg(2 * part.len());
        let keys: Vec<String> = part.iter().map(|kept| self.keys.key(kept.name)).collect();
        for (kept, key) in part.iter().zip(&keys) {
            cmd.arg(key).arg(Names(key).beside(&field(kept.hold)));
        }
        cmd.arg(&*self.link.keep);
        for (kept, key) in part.iter().zip(&keys) {
            cmd.arg(field(kept.hold)).arg(letter(kept.claim)).arg(begins(kept.hold, Some(kept.token)));
            cmd.write_arg_fmt(micros(kept.ttl));
            cmd.arg(Names(key).token());
        }
        cmd
    }
    /// Looks whether these are there still, so that the server tells of their next change: it forgot that it should with the write that
    /// went before, and what happened between the two is seen here (SAFETY G6).
    pub(crate) async fn watched(&self, limit: Duration, all: &[Kept<'_>], answers: &mut [Answered]) {
        let mut unseen = Vec::new();
        for ((answer, kept), now) in answers.iter_mut().zip(all).zip(self.still_there(limit, all).await) {
            match now {
                Answered::Gone => *answer = Answered::Gone,
                // Nobody tells of it until it is read again.
                Answered::Unknown => unseen.extend(self.own(kept.hold).map(|own| (kept.hold, own))),
                Answered::Extended => {}
            }
        }
        if !unseen.is_empty() {
            self.unsettle(&unseen);
        }
    }
    async fn still_there(&self, limit: Duration, all: &[Kept<'_>]) -> Vec<Answered> {
        let keys: Vec<String> = all.iter().map(|kept| self.keys.key(kept.name)).collect();
        let read = |at: usize| {
            let field = all.get(at).map_or_else(String::new, |kept| field(kept.hold));
            let key = keys.get(at).map_or("", String::as_str);
            redis::cmd("HMGET").arg(key).arg("mode").arg(&field).arg(field.clone() + WRITE).to_owned()
        };
        let answers = self.link.watching(limit, &keys, read).await;
        let judged = |(kept, answer): (&Kept<'_>, &Result<Value, Fault>)| match answer {
            Ok(Value::Array(fields)) if has(fields, kept.claim) => Answered::Extended,
            Ok(Value::Array(_)) => Answered::Gone,
            Err(fault) if fault.is_wrong_type() => Answered::Gone,
            Ok(_) | Err(_) => Answered::Unknown,
        };
        all.iter().zip(&answers).map(judged).collect()
    }
    /// As `missing`. A reader's lease that another one's renewal cut short is put right before: Redisson's watchdog gives the whole lock the
    /// end that is its own.
    pub(crate) async fn without_field(&self, holds: &[(HoldId, Own)]) -> (Vec<HoldId>, Vec<(HoldId, Own)>) {
        let now = BootClock.now();
        let mut all = Vec::with_capacity(holds.len());
        for (hold, own) in holds {
            let ttl = now.until(own.until).saturating_sub(GRAIN);
            all.push(Kept { name: &own.name, hold: *hold, token: own.token, claim: own.claim, ttl });
        }
        let readers: Vec<Kept<'_>> = all.iter().filter(|kept| kept.claim == Claim::Read).copied().collect();
        // What fails is done again a little later; the next renewal, too, is there in time: a reader counts on no more than their watchdog
        // leaves.
        let answers = if readers.is_empty() { Ok(Vec::new()) } else { self.extend(MAX_TTL, &readers).await };
        let answers = answers.unwrap_or_else(|_| vec![Answered::Unknown; readers.len()]);
        let put_right = |hold: HoldId| {
            let at = readers.iter().position(|kept| kept.hold == hold);
            at.and_then(|at| answers.get(at)).copied().unwrap_or(Answered::Extended)
        };
        let (mut gone, mut unknown) = (Vec::new(), Vec::new());
        for ((hold, own), seen) in holds.iter().zip(self.still_there(MAX_TTL, &all).await) {
            match (put_right(*hold), seen) {
                (Answered::Gone, _) | (_, Answered::Gone) => gone.push(*hold),
                (Answered::Unknown, _) | (_, Answered::Unknown) => unknown.push((*hold, own.clone())),
                (Answered::Extended, Answered::Extended) => {}
            }
        }
        (gone, unknown)
    }
}
/// How what stands beside a hold begins.
fn begins(hold: HoldId, token: Option<Token>) -> String {
    match token {
        Some(token) => format!("{}{token}.", beginning(hold)),
        None => beginning(hold),
    }
}
/// These fields, `mode` and the hold's two, say that it is there. A writer may have become a reader meanwhile. A lock of others on top of a
/// mutex, which RReadWriteLock makes without looking, leaves nobody who has it alone.
fn has(fields: &[Value], claim: Claim) -> bool {
    let is = |at: usize| fields.get(at).is_some_and(|field| *field != Value::Nil);
    match fields.first().and_then(text) {
        None => claim == Claim::Mutex && is(1),
        Some("read") => claim != Claim::Mutex && is(1),
        Some("write") => claim != Claim::Mutex && is(2),
        Some(_) => false,
    }
}
fn sight(parts: &[Value]) -> Option<Sight<'_>> {
    let at = |n: usize| parts.get(n).unwrap_or(&Value::Nil);
    let (field, mode) = (bytes(at(1))?, text(at(4)).unwrap_or_default());
    let beside = bytes(at(5)).unwrap_or_default();
    Some(Sight { field, mode, beside, ms: number(at(3))?, now: number(at(2))? })
}
/// What the script answers.
pub(crate) fn claimed(answer: &Value, sent_at: Moment, tracks: bool) -> Option<Claimed> {
    let Value::Array(parts) = answer else { return None };
    let at = |n: usize| parts.get(n).unwrap_or(&Value::Nil);
    let now = number(at(2))?;
    Some(match number(at(0))? {
        1 => Claimed::Granted { number: number(at(1))?, now, sent_at, value: text(at(3))?.into() },
        3 => {
            let rest = number(at(3)).and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis);
            let busy = Busy::new(sight(parts).map(|sight| sight.holder()), None);
            Claimed::Busy { busy, rest, tracks }
        }
        4 => Claimed::OtherKind(text(at(1))?.parse::<Kind>().ok()?),
        6 => Claimed::Past,
        _ => return None,
    })
}
