//! What is done to a key that others use, too.
use super::value::{SIGHT, Sight, beginning, tail};
use crate::{
    config::{MAX_TTL, Templates, filled},
    error::Fault,
    link::{Conn, TURNS, clock, next_is_watched},
    redisson,
    renew::{Answered, Kept},
    shared::{Haunt, LEAVE, Own, Records, Shared, micros},
    wire::{
        reply::{Reply, bytes, number, text},
        scripts::{PLAIN_ACQUIRE, PLAIN_RELEASE, Script},
    },
};
use fencelock_core::{
    BootClock, Busy, Clock, Error, ErrorKind, HoldId, Holder, Identity, Kind, Moment, Name, Released, Request, Status,
    Token,
};
use redis::{Pipeline, Value};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
    time::Duration,
};

/// What the layout has beside keys.
#[derive(Debug)]
pub(crate) struct Plain {
    templates: Templates,
    /// By which command the server deletes what is still ours.
    deletes: AtomicU8,
    /// And by which it is prolonged.
    pub(crate) prolongs: AtomicU8,
}
/// What is known of a server: not every one compares and writes in one command.
pub(crate) mod compares {
    pub(crate) const DELEX: u8 = 0;
    pub(crate) const DELIFEQ: u8 = 1;
    pub(crate) const SET: u8 = 0;
    /// It does not, or this user may not: by a script.
    pub(crate) const NO: u8 = 2;
}
impl Plain {
    pub(crate) fn new(templates: Templates) -> Self {
        Self { templates, deletes: AtomicU8::new(compares::DELEX), prolongs: AtomicU8::new(compares::SET) }
    }
    fn tells(&self) -> bool {
        self.templates.signal.is_some() || self.templates.channel.is_some()
    }
}

/// What became of one claim.
pub(crate) enum Claimed {
    Granted {
        number: i64,
        now: i64,
        sent_at: Moment,
        value: Arc<str>,
    },
    /// It is a live lock of this kind.
    OtherKind(Kind),
    Busy {
        busy: Busy,
        rest: Option<Duration>,
        tracks: bool,
    },
    /// It came after its end and did nothing (SAFETY A2).
    Past,
    /// Nobody wants it any more: nothing was sent.
    Stopped,
}
/// A script that claims a key, and which of its arguments says until when.
pub(crate) struct Question {
    pub(crate) script: &'static Script,
    pub(crate) keys: Vec<String>,
    pub(crate) args: Vec<String>,
    pub(crate) end: usize,
}
impl Question {
    async fn ask(mut self, shared: &Shared, conn: &Conn, not_after: i64) -> Result<Value, Fault> {
        if let Some(end) = self.args.get_mut(self.end) {
            *end = not_after.to_string();
        }
        let keys: Vec<&str> = self.keys.iter().map(String::as_str).collect();
        let args: Vec<&[u8]> = self.args.iter().map(String::as_bytes).collect();
        shared.link.timed(conn, conn.server.patience(), self.script, &keys, &args).await
    }
}

impl Shared {
    fn plain(&self) -> Result<&Plain, Fault> {
        match &self.records {
            Records::Plain(plain) => Ok(plain),
            Records::Native | Records::Redisson => Err(Fault::Answer),
        }
    }
    fn question(&self, request: &Request, key: &str) -> Question {
        if matches!(self.records, Records::Redisson) {
            return self.question_of_field(request, key);
        }
        let Identity { host, pid } = Identity::here();
        let (hold, ttl) = (request.hold().to_string(), micros(request.ttl()).to_string());
        let floor = self.link.floor(request.floor());
        let args = vec![hold, ttl, String::new(), floor, tail(&host, pid, request.note())];
        Question { script: &PLAIN_ACQUIRE, keys: vec![key.to_owned()], args, end: 2 }
    }
    fn claimed(&self, answer: &Value, sent_at: Moment, tracks: bool) -> Result<Claimed, Fault> {
        let claimed = match self.records {
            Records::Redisson => redisson::claimed(answer, sent_at, tracks),
            Records::Native | Records::Plain(_) => claimed(answer, sent_at, tracks),
        };
        claimed.ok_or(Fault::Answer)
    }
    /// One claim, wherever the key lies. `watches`: where the server can, it tells of the next change of the key.
    pub(crate) async fn claim(&self, mut conn: Conn, request: &Request, watches: bool) -> Result<Claimed, Fault> {
        let key = &*self.keys.key(request.name());
        let mut turns = 0;
        loop {
            // *Invariant:* before the claim, so no change after it is missed.
            if watches && conn.tracks && matches!(self.records, Records::Redisson) {
                let mut all = Pipeline::with_capacity(2);
                all.add_command(next_is_watched()).cmd("EXISTS").arg(key);
                self.link.commands(&conn, &all).await?;
            }
            let sent_at = BootClock.now();
            let Some((not_after, ends)) = conn.open_window(request, sent_at) else { return Ok(Claimed::Stopped) };
            // Anew for each server: from one that it is led away from it takes the floor of its token along.
            match self.question(request, key).ask(self, &conn, not_after).await {
                Ok(answer) => {
                    let claimed = self.claimed(&answer, sent_at, conn.tracks)?;
                    if matches!(claimed, Claimed::Granted { .. }) {
                        self.link.touched(&conn, key);
                    }
                    return Ok(claimed);
                }
                Err(fault) if fault.redirect().is_some() && turns < TURNS => {
                    conn = self.link.redirected(&conn, &fault).await?;
                    turns += 1;
                }
                Err(fault) => {
                    self.haunt(request.hold(), Haunt { until: ends, over: ends + request.ttl() });
                    return Err(fault);
                }
            }
        }
    }
    /// Ends a hold of this id, and of this token if one is given. `value`: what it wrote, if that is known. True: it was there.
    pub(crate) async fn give_back(
        &self,
        key: &str,
        hold: HoldId,
        token: Option<Token>,
        value: Option<Arc<str>>,
    ) -> Result<Result<(), Option<Holder>>, Fault> {
        if matches!(self.records, Records::Redisson) {
            return self.end_hold(key, hold, token).await;
        }
        let plain = self.plain()?;
        let begins = match token {
            Some(token) => format!("{}{token}.", beginning(hold)),
            None => beginning(hold),
        };
        let (begins, value) = (&*begins, value.as_deref().filter(|_| !plain.tells()));
        let ask = |conn: Conn| async move {
            let limit = conn.server.patience().min(LEAVE);
            if let Some(value) = value
                && let Some(gone) = self.compare_and_delete(&conn, limit, key, value).await?
            {
                return Ok(gone);
            }
            self.end(&conn, limit, key, begins.as_bytes(), "").await
        };
        self.link.turned(self.link.at(key).await?, ask).await
    }
    /// The hold whose value is, or begins so.
    async fn end(
        &self,
        conn: &Conn,
        limit: Duration,
        key: &str,
        value: &[u8],
        how: &str,
    ) -> Result<Result<(), Option<Holder>>, Fault> {
        let Templates { signal, channel, .. } = &self.plain()?.templates;
        let name = self.keys.name(key.as_bytes());
        let made = |template: &Option<String>| {
            let name = name.as_ref()?;
            template.as_ref().map(|template| filled(template, name.as_str()))
        };
        let (signal, channel) = (made(signal), made(channel).unwrap_or_default());
        let keys: Vec<&str> = [Some(key), signal.as_deref()].into_iter().flatten().collect();
        let args = [value, how.as_bytes(), channel.as_bytes()];
        let answer = self.link.timed(conn, limit, &PLAIN_RELEASE, &keys, &args).await?;
        let Value::Array(parts) = &answer else { return Err(Fault::Answer) };
        let at = |n: usize| parts.get(n).unwrap_or(&Value::Nil);
        match number(at(0)) {
            Some(1) => {
                self.link.touched(conn, key);
                Ok(Ok(()))
            }
            Some(0) => {
                let now = number(at(2)).ok_or(Fault::Answer)?;
                let seen = bytes(at(1)).zip(number(at(3)));
                Ok(Err(seen.map(|(value, ms)| Sight { value, ms, now }.holder())))
            }
            _ => Err(Fault::Answer),
        }
    }
    /// The same in one command; `None`: this server has none.
    async fn compare_and_delete(
        &self,
        conn: &Conn,
        limit: Duration,
        key: &str,
        value: &str,
    ) -> Result<Option<Result<(), Option<Holder>>>, Fault> {
        let plain = self.plain()?;
        loop {
            let known = plain.deletes.load(Relaxed);
            let mut cmd = redis::cmd(if known == compares::DELEX { "DELEX" } else { "DELIFEQ" });
            match known {
                compares::DELEX => cmd.arg(key).arg("IFEQ").arg(value),
                compares::DELIFEQ => cmd.arg(key).arg(value),
                _ => return Ok(None),
            };
            match self.link.command_within(conn, limit, &cmd).await {
                Ok(gone) if number(&gone) == Some(1) => {
                    self.link.touched(conn, key);
                    return Ok(Some(Ok(())));
                }
                Ok(_) => {
                    let name = self.keys.name(key.as_bytes()).ok_or(Fault::Answer)?;
                    let mut status = self.sight(conn, &name, key).await?;
                    return Ok(Some(Err(status.holders.pop())));
                }
                Err(fault) if fault.is_no_command() => {
                    let _ = plain.deletes.compare_exchange(known, known + 1, Relaxed, Relaxed);
                }
                // No string: not ours.
                Err(fault) if fault.is_wrong_type() => return Ok(Some(Err(None))),
                Err(fault) => return Err(fault),
            }
        }
    }
    /// Breaks whatever has this token, or what stands for one.
    pub(crate) async fn break_hold(&self, name: &Name, token: Token) -> Result<Result<(), Option<Holder>>, Fault> {
        let key = &*self.keys.key(name);
        let ask = |conn: Conn| async move {
            let answers = self.look_at(&conn, &[key]).await?;
            let [ms, value, time] = answers.as_slice() else { return Err(Fault::Answer) };
            let value = self.sure(&conn, key, value.clone()).await?;
            let Some(seen) = seen(&value, ms, time)? else { return Ok(Err(None)) };
            let holder = seen.holder();
            if holder.token != token {
                return Ok(Err(Some(holder)));
            }
            self.end(&conn, conn.server.patience(), key, seen.value, "=").await
        };
        self.link.again(key, ask).await
    }

    /// When each ends, and how its value begins; and the time.
    async fn look_at(&self, conn: &Conn, keys: &[&str]) -> Result<Vec<Value>, Fault> {
        let mut all = Pipeline::with_capacity(2 * keys.len() + 1);
        for key in keys {
            all.cmd("PTTL").arg(key).cmd("GETRANGE").arg(key).arg(0).arg(SIGHT - 1);
        }
        all.cmd("TIME");
        self.link.commands(conn, &all).await
    }
    pub(crate) async fn sight(&self, conn: &Conn, name: &Name, key: &str) -> Result<Status, Fault> {
        let answers = self.look_at(conn, &[key]).await?;
        let [ms, value, time] = answers.as_slice() else { return Err(Fault::Answer) };
        let value = self.sure(conn, key, value.clone()).await?;
        Ok(seen(&value, ms, time)?.map_or_else(|| Status::free(name.clone()), |seen| seen.status(name.clone())))
    }
    /// Of these keys, those that are held.
    pub(crate) async fn sights(&self, conn: &Conn, keys: Vec<(String, Name)>) -> Result<Vec<(String, Status)>, Fault> {
        let written: Vec<String> = keys.iter().map(|(_, name)| self.keys.key(name)).collect();
        let mut answers = self.look_at(conn, &written.iter().map(String::as_str).collect::<Vec<_>>()).await?;
        let time = answers.pop().ok_or(Fault::Answer)?;
        let mut all = Vec::new();
        for (((key, name), pair), written) in keys.into_iter().zip(answers.chunks_exact(2)).zip(&written) {
            let [ms, value] = pair else { continue };
            // What is no string is none of them.
            if let Ok(value) = self.sure(conn, written, value.clone()).await
                && let Ok(Some(seen)) = seen(&value, ms, &time)
            {
                all.push((key, seen.status(name)));
            }
        }
        Ok(all)
    }
    /// An empty part of a value is that of an empty one, or of none: it may have gone since it was asked when it ends.
    async fn sure(&self, conn: &Conn, key: &str, value: Value) -> Result<Value, Fault> {
        if bytes(&value).is_some_and(<[u8]>::is_empty) {
            return self.link.command(conn, redis::cmd("GET").arg(key)).await;
        }
        Ok(value)
    }
    /// The same hold, for its full ttl once more: what a connection of its own writes.
    pub(crate) async fn put_off(&self, conn: &Conn, request: &Request) -> Result<(Reply, Moment), Fault> {
        let (sent_at, key) = (BootClock.now(), &*self.keys.key(request.name()));
        // It creates nothing: its end was over before it was sent.
        let answer = self.question(request, key).ask(self, conn, 0).await?;
        let reply = match self.claimed(&answer, sent_at, false)? {
            Claimed::Granted { number, now, .. } => Reply::Done { number, now, ago: Duration::ZERO },
            _ => Reply::Unknown { holder: None },
        };
        Ok((reply, sent_at))
    }
    /// Renewals by commands without scripts; `None`: this server has none, or it is not known what the keys say.
    pub(crate) async fn prolong(&self, limit: Duration, all: &[Kept<'_>]) -> Option<Vec<Answered>> {
        let plain = self.plain().ok().filter(|plain| plain.prolongs.load(Relaxed) == compares::SET)?;
        let owns: Vec<Own> = all.iter().map(|kept| self.own(kept.hold)).collect::<Option<_>>()?;
        if owns.iter().any(|own| own.value.is_none()) {
            return None;
        }
        let keys: Vec<String> = all.iter().map(|kept| self.keys.key(kept.name)).collect();
        let now = BootClock.now();
        let set = |at: usize| {
            let (own, kept) = (owns.get(at), all.get(at));
            let value = own.and_then(|own| own.value.as_deref()).unwrap_or_default();
            // None is made to end earlier.
            let left = own.map_or(Duration::ZERO, |own| now.until(own.until));
            let ttl = kept.map_or(left, |kept| if left > kept.ttl { left + left / 50 } else { kept.ttl });
            let mut cmd = redis::cmd("SET");
            cmd.arg(keys.get(at).map_or("", String::as_str)).arg(value).arg("IFEQ").arg(value);
            cmd.arg("PX").arg(ttl.as_micros().div_ceil(1_000).to_string());
            cmd
        };
        let answers = self.link.scattered(limit, &keys, set).await;
        if answers.iter().any(|answer| answer.as_ref().is_err_and(Fault::is_no_command)) {
            plain.prolongs.store(compares::NO, Relaxed);
            return None;
        }
        // What is written is read once more after it: who tracks keys goes on to hear of them (SAFETY G6).
        if self.pushed {
            let read = |at: usize| redis::cmd("EXISTS").arg(keys.get(at).map_or("", String::as_str)).to_owned();
            drop(self.link.scattered(limit, &keys, read).await);
        }
        let answered = |answer: &Result<Value, Fault>| match answer {
            Ok(Value::Nil) => Answered::Gone,
            Ok(_) => Answered::Extended,
            Err(fault) if fault.is_wrong_type() => Answered::Gone,
            Err(_) => Answered::Unknown,
        };
        Some(answers.iter().map(answered).collect())
    }
    /// As `missing`: what is not written any more, or not as ours.
    pub(crate) async fn gone(&self, holds: &[(HoldId, Own)]) -> (Vec<HoldId>, Vec<(HoldId, Own)>) {
        let keys: Vec<String> = holds.iter().map(|(_, own)| self.keys.key(&own.name)).collect();
        let read = |at: usize| {
            let mut cmd = redis::cmd("GETRANGE");
            cmd.arg(keys.get(at).map_or("", String::as_str)).arg(0).arg(SIGHT - 1);
            cmd
        };
        let answers = self.link.scattered(MAX_TTL, &keys, read).await;
        let (mut gone, mut unknown) = (Vec::new(), Vec::new());
        for ((hold, own), answer) in holds.iter().zip(&answers) {
            match answer {
                Ok(value) if bytes(value).is_some() => {
                    let mine = format!("{}{}.", beginning(*hold), own.token);
                    if !bytes(value).is_some_and(|value| value.starts_with(mine.as_bytes())) {
                        gone.push(*hold);
                    }
                }
                Err(fault) if fault.is_wrong_type() => gone.push(*hold),
                Ok(_) | Err(_) => unknown.push((*hold, own.clone())),
            }
        }
        (gone, unknown)
    }
    /// In core's words.
    pub(crate) fn released(&self, left: Result<Result<(), Option<Holder>>, Fault>) -> Result<Released, Error> {
        match left {
            Ok(Ok(())) => Ok(Released::Released),
            Ok(Err(holder)) => Ok(Released::NotHeld { holder }),
            Err(fault) => Err(self.link.tell("release", &fault)),
        }
    }
    pub(crate) fn too_late(&self) -> Error {
        let error = Error::new(ErrorKind::Unreachable, "lock", "commands take too long to arrive");
        error.with("redis", &self.link.endpoint)
    }
}
/// What the script answers.
fn claimed(answer: &Value, sent_at: Moment, tracks: bool) -> Option<Claimed> {
    let Value::Array(parts) = answer else { return None };
    let at = |n: usize| parts.get(n).unwrap_or(&Value::Nil);
    let now = number(at(2))?;
    Some(match number(at(0))? {
        1 => Claimed::Granted { number: number(at(1))?, now, sent_at, value: text(at(3))?.into() },
        3 => {
            let seen = Sight { value: bytes(at(1))?, ms: number(at(3))?, now };
            Claimed::Busy { busy: seen.busy(), rest: seen.rest(), tracks }
        }
        6 => Claimed::Past,
        _ => return None,
    })
}
/// `None`: there is no such key.
fn seen<'a>(value: &'a Value, ms: &Value, time: &Value) -> Result<Option<Sight<'a>>, Fault> {
    if let Value::ServerError(e) = value {
        return Err(Fault::Redis(e.clone().into()));
    }
    if *value == Value::Nil {
        return Ok(None);
    }
    let (value, ms) = bytes(value).zip(number(ms)).ok_or(Fault::Answer)?;
    let now = clock(time).ok_or(Fault::Answer)?;
    Ok((ms != -2).then_some(Sight { value, ms, now }))
}
