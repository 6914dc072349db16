//! Renewals: many holds in few commands.
use crate::{
    error::Fault,
    shared::{Records, Shared, micros},
    wire::{
        reply::number,
        scripts::{PLAIN_RENEW, REDISSON_RENEW, RENEW, Script},
    },
};
use fencelock_core::{BootClock, Claim, Clock, HoldId, Name, Token};
use redis::{Cmd, Pipeline, RedisWrite, Value};
use std::time::Duration;

/// So many holds go into one script. On a connection that tracks keys the server notes all keys of a script anew with each read in it,
/// so what one costs grows with the square of their number; and each has a cost of its own.
const PART: usize = 8;

/// What a renewal says of a hold.
#[derive(Clone, Copy)]
pub(crate) struct Kept<'a> {
    pub(crate) name: &'a Name,
    pub(crate) hold: HoldId,
    pub(crate) token: Token,
    pub(crate) claim: Claim,
    /// From now on so long at least; zero: its record is kept for as long as it should, and nothing else of it changes.
    pub(crate) ttl: Duration,
}
/// What the server says of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    Extended,
    Gone,
    Unknown,
}

impl Shared {
    /// All of them at once; the answers in their order. Of a cluster's servers each answers for its own.
    pub(crate) async fn renew(&self, limit: Duration, all: &[Kept<'_>]) -> Result<Vec<Answered>, Fault> {
        if let Some(answers) = self.prolong(limit, all).await {
            return Ok(answers);
        }
        let mut answers = self.extend(limit, all).await?;
        if matches!(self.records, Records::Redisson) && self.pushed {
            self.watched(limit, all, &mut answers).await;
        }
        Ok(answers)
    }
    /// The same, by scripts.
    pub(crate) async fn extend(&self, limit: Duration, all: &[Kept<'_>]) -> Result<Vec<Answered>, Fault> {
        if self.link.is_cluster() {
            return Ok(self.renew_apart(limit, all).await);
        }
        let script: &Script = self.renews();
        let conn = self.link.at("").await?;
        let limit = conn.server.patience().min(limit);
        let parts = |first: &str, body: &str| {
            let mut parts = Pipeline::with_capacity(all.len().div_ceil(PART));
            for chunk in all.chunks(PART) {
                parts.add_command(self.renewal(chunk, first, body));
            }
            parts
        };
        let sent_at = BootClock.now();
        let answers = match self.link.all(&conn, limit, &parts("EVALSHA", &script.sha)).await {
            Err(fault) if fault.is_no_script() => self.link.all(&conn, limit, &parts("EVAL", script.text)).await?,
            answers => answers?,
        };
        let mut each = Vec::with_capacity(all.len());
        for answer in &answers {
            let (now, part) = judged(answer).ok_or(Fault::Answer)?;
            conn.server.time.seen(sent_at, BootClock.now(), now);
            each.extend(part);
        }
        if each.len() == all.len() { Ok(each) } else { Err(Fault::Answer) }
    }
    /// One key for each command: two may lie apart, and a slot that moves has no place for both (TRYAGAIN).
    async fn renew_apart(&self, limit: Duration, all: &[Kept<'_>]) -> Vec<Answered> {
        let script: &Script = self.renews();
        let keys: Vec<String> = all.iter().map(|kept| self.keys.key(kept.name)).collect();
        let cmd = |at: usize| self.renewal(all.get(at..=at).unwrap_or_default(), "EVALSHA", &script.sha);
        let mut answers = self.link.scattered(limit, &keys, cmd).await;
        let forgotten = |answer: &Result<Value, Fault>| answer.as_ref().is_err_and(Fault::is_no_script);
        let again: Vec<usize> = (0..all.len()).filter(|at| answers.get(*at).is_some_and(forgotten)).collect();
        if !again.is_empty() {
            let some: Vec<String> = again.iter().filter_map(|at| keys.get(*at).cloned()).collect();
            let cmd = |n: usize| {
                let at = again.get(n).copied().unwrap_or_default();
                self.renewal(all.get(at..=at).unwrap_or_default(), "EVAL", script.text)
            };
            for (at, answer) in again.iter().zip(self.link.scattered(limit, &some, cmd).await) {
                if let Some(place) = answers.get_mut(*at) {
                    *place = answer;
                }
            }
        }
        let one = |answer: &Result<Value, Fault>| judged(answer.as_ref().ok()?)?.1.first().copied();
        answers.iter().map(|answer| one(answer).unwrap_or(Answered::Unknown)).collect()
    }
    fn renews(&self) -> &'static Script {
        match self.records {
            Records::Native => &RENEW,
            Records::Plain(_) => &PLAIN_RENEW,
            Records::Redisson => &REDISSON_RENEW,
        }
    }
    fn renewal(&self, part: &[Kept<'_>], first: &str, body: &str) -> Cmd {
        if matches!(self.records, Records::Redisson) {
            return self.renewal_of_fields(part, first, body);
        }
        let mut cmd = Cmd::with_capacity(4 + 4 * part.len(), 128 + body.len() + 128 * part.len());
        cmd.arg(first).arg(body).arg(part.len());
        for kept in part {
            cmd.arg(self.keys.key(kept.name));
        }
        cmd.arg(&*self.link.keep);
        for kept in part {
            cmd.write_arg_fmt(kept.hold);
            cmd.write_arg_fmt(kept.token);
            cmd.write_arg_fmt(micros(kept.ttl));
        }
        cmd
    }
}
/// The server's time, and what it says of each key.
fn judged(answer: &Value) -> Option<(i64, Vec<Answered>)> {
    let Value::Array(fields) = answer else { return None };
    let [now, Value::Array(part)] = fields.as_slice() else { return None };
    let one = |answer: &Value| match number(answer) {
        Some(1) => Answered::Extended,
        Some(0) => Answered::Gone,
        _ => Answered::Unknown,
    };
    Some((number(now)?, part.iter().map(one).collect()))
}
