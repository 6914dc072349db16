//! Renewals: many holds in few commands.
use crate::{
    error::Fault,
    link::Conn,
    shared::{Shared, micros},
    wire::{reply::number, scripts::RENEW},
};
use fencelock_core::{BootClock, Clock, HoldId, Name, Token};
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
    /// All of them at once; the answers in their order.
    pub(crate) async fn renew(&self, conn: &Conn, limit: Duration, all: &[Kept<'_>]) -> Result<Vec<Answered>, Fault> {
        let part = |part: &[Kept<'_>], first: &str, body: &str| {
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
        };
        let parts = |first: &str, body: &str| {
            let mut parts = Pipeline::with_capacity(all.len().div_ceil(PART));
            for chunk in all.chunks(PART) {
                parts.add_command(part(chunk, first, body));
            }
            parts
        };
        let sent_at = BootClock.now();
        let answers = match self.link.all(conn, limit, &parts("EVALSHA", &RENEW.sha)).await {
            Err(fault) if fault.is_no_script() => self.link.all(conn, limit, &parts("EVAL", RENEW.text)).await?,
            answers => answers?,
        };
        let mut each = Vec::with_capacity(all.len());
        for answer in &answers {
            let Value::Array(fields) = answer else { return Err(Fault::Answer) };
            let [now, Value::Array(part)] = fields.as_slice() else { return Err(Fault::Answer) };
            if let Some(now) = number(now) {
                self.link.time.seen(sent_at, BootClock.now(), now);
            }
            each.extend(part.iter().map(|answer| match number(answer) {
                Some(1) => Answered::Extended,
                Some(0) => Answered::Gone,
                _ => Answered::Unknown,
            }));
        }
        if each.len() == all.len() { Ok(each) } else { Err(Fault::Answer) }
    }
}
