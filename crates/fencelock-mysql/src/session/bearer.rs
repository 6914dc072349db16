//! A connection that bears locks: what is held there lives as long as its session.
//!
//! *Invariant (SAFETY E3):* nothing that waits is asked of a session that holds, the server ends one that is silent for its ttl, and one
//! that bears a lock is never anybody else's: it is closed, or it has given the lock back.
use crate::{
    error::Fault,
    link::{Answer, Link, ask},
    wire::{
        call::Call,
        reply::{Reply, asked, column, reply},
    },
};
use async_trait::async_trait;
use fencelock_core::{BootClock, Clock, EngineId, HoldId, Moment, SessionId, within};
use fencelock_database::{
    PATIENCE,
    session::{Bears, Excludes, Session},
};
use mysql_async::{Conn, Row};
use std::{ops::Deref, time::Duration};
use tokio::{
    sync::{mpsc, oneshot},
    task::AbortHandle,
};

#[derive(Debug)]
pub(crate) struct Bearer {
    questions: mpsc::UnboundedSender<Question>,
    line: AbortHandle,
    known: Session<Lock>,
    /// What its pulse says: no other session ever has the same.
    pub(crate) id: HoldId,
    pid: i64,
}
impl Deref for Bearer {
    type Target = Session<Lock>;
    fn deref(&self) -> &Session<Lock> {
        &self.known
    }
}
/// A named lock, as the server reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lock(pub(crate) String);
impl Excludes for Lock {
    fn excludes(&self, other: &Self) -> bool {
        self == other
    }
}
/// A sign of life, and what is asked back.
pub(crate) struct Beat {
    pub(crate) sent_at: Moment,
    pub(crate) asked: Vec<HoldId>,
}
/// One packet, and where its answer goes.
type Question = (String, oneshot::Sender<Result<Vec<Row>, Fault>>);

impl Bearer {
    /// Another one, which is ours alone, at the server that our other connections lead to.
    pub(crate) async fn open(link: &Link, session: SessionId, ttl: Duration, alone: bool) -> Result<Self, Fault> {
        let id = EngineId::random().ok().and_then(|id| id.to_string().parse::<HoldId>().ok()).ok_or(Fault::Answer)?;
        let mut conn = link.dedicated().await?;
        // In plain words: a proxy that gives sessions to many keeps one whose words take a named lock. No limit of time ends a wait.
        let first = format!(
            "SET SESSION wait_timeout = {0}, net_read_timeout = {0}, net_write_timeout = {0} /*M! , max_statement_time = 0 */; \
             SELECT GET_LOCK(CONCAT('fencelock.', HEX(X'{id}')), 0), CONNECTION_ID()",
            silent(ttl)
        );
        let mut rows = Vec::new();
        for statement in first.split("; ") {
            rows = within(PATIENCE, ask(&mut conn, statement.to_owned()))
                .await
                .ok_or(Fault::Unanswered)?
                .map_err(Fault::of)?;
        }
        let row = rows.first().filter(|row| column(row, 0) == Some("1")).ok_or(Fault::Answer)?;
        let pid = column(row, 1).and_then(|pid| pid.parse().ok()).ok_or(Fault::Answer)?;
        let (questions, inbox) = mpsc::unbounded_channel();
        let line = tokio::spawn(speak(conn, inbox)).abort_handle();
        let bearer = Self { questions, line, known: Session::new(session, ttl, alone), id, pid };
        // Each is judged: what is between us and the server may have changed since the one before.
        let felt = bearer.is_felt(link).await?;
        // Whoever is not felt because it was ended meanwhile does not answer either.
        bearer.live(ttl, PATIENCE).await?;
        if felt { Ok(bearer) } else { Err(Fault::Pooled(POOLED)) }
    }
    /// Nothing is answered there any more.
    pub(crate) async fn broken(&self) {
        self.questions.closed().await;
    }
    /// Its holders were told: the server frees it.
    pub(crate) fn hang_up(&self) {
        self.line.abort();
    }
    /// A sign of life: this very session of the server has heard it, and may be silent for its ttl.
    pub(crate) async fn beat(&self) -> Result<Beat, Fault> {
        self.live(self.ttl, self.ttl / 3).await
    }
    /// It is about to wait: until it has confirmed what it gets it may be silent for so long.
    pub(crate) async fn begin_waiting(&self, idle: Duration) -> Result<(), Fault> {
        self.will_wait();
        if !self.is_open() {
            return Err(Fault::Unanswered);
        }
        self.live(idle, PATIENCE).await.map(drop)
    }
    /// It bears what it has waited for.
    pub(crate) fn has_waited(&self) {
        self.waits_no_more();
        self.needed.notify_one();
    }
    async fn live(&self, idle: Duration, limit: Duration) -> Result<Beat, Fault> {
        let sent_at = BootClock.now();
        let call = Call::new("live").id(self.id).number(silent(idle)).end();
        let rows = within(limit, self.say(call)).await.ok_or(Fault::Unanswered)??;
        let row = rows.first().ok_or(Fault::Answer)?;
        let number = |at| column(row, at).and_then(|number| number.parse::<i64>().ok());
        // A proxy that gives our session away has given our locks away.
        if column(row, 0) != Some("done") || number(1) != Some(self.pid) {
            return Err(Fault::Pooled(POOLED));
        }
        // What it is, not what was said to it.
        if number(2) != Some(silent(idle)) {
            let what = "the server does not end silent sessions when it is told to".to_owned();
            return Err(Fault::Unusable { what, hint: "connect without a proxy, or take strategy=lease" });
        }
        Ok(Beat { sent_at, asked: rows.iter().skip(1).filter_map(asked).collect() })
    }
    /// Its pulse can be felt, by another connection of ours: named locks are the server's, and both of us are with the same one, which takes
    /// writes.
    pub(crate) async fn is_felt(&self, link: &Link) -> Result<bool, Fault> {
        let rows = link.again(&Call::new("feel").id(self.id).end()).await?;
        let row = rows.first().ok_or(Fault::Answer)?;
        let number = |at| column(row, at).and_then(|number| number.parse::<i64>().ok());
        Ok(number(0) == Some(self.pid) && number(1) != Some(self.pid))
    }
    /// A procedure on one lock, of one that waits: for as long as it takes.
    pub(crate) async fn wait(&self, call: String) -> Result<Reply, Fault> {
        reply(self.say(call).await?.first().ok_or(Fault::Answer)?).ok_or(Fault::Answer)
    }
    async fn say(&self, call: String) -> Result<Vec<Row>, Fault> {
        let (answer, answered) = oneshot::channel();
        self.questions.send((call, answer)).map_err(|_| Fault::Unanswered)?;
        answered.await.map_err(|_| Fault::Unanswered)?
    }
}
#[async_trait]
impl Bears for Bearer {
    type Key = Lock;
    type Fault = Fault;

    fn is_connected(&self) -> bool {
        !self.questions.is_closed()
    }
    async fn run(&self, limit: Duration, call: &str) -> Result<Reply, Fault> {
        within(limit, self.wait(call.to_owned())).await.ok_or(Fault::Unanswered)?
    }
}
impl Drop for Bearer {
    fn drop(&mut self) {
        self.line.abort();
    }
}
const POOLED: &str = "a proxy is in between: sessions are not ours";

/// In whole seconds, as the server counts, and no less than that.
fn silent(idle: Duration) -> i64 {
    i64::try_from(idle.as_millis().div_ceil(1000).max(1)).unwrap_or(i64::MAX)
}
/// *Invariant:* a question that was sent is answered to its end, whoever asked is gone or not: nobody meets half of another's answer.
/// *Invariant:* a connection on which something has failed stays until its holders were told: whoever tends it hangs up.
async fn speak(mut conn: Conn, mut questions: mpsc::UnboundedReceiver<Question>) {
    while let Some((call, answer)) = questions.recv().await {
        // Nobody waits for it any more, and it was not sent.
        if answer.is_closed() {
            continue;
        }
        let said: Answer = ask(&mut conn, call).await;
        let said = said.map_err(Fault::of);
        let over = said.as_ref().err().filter(|fault| fault.ends_connection()).cloned();
        if let Some(fault) = over {
            // Whoever asked behind it is told the same.
            questions.close();
            let _ = answer.send(said);
            while let Ok((_, answer)) = questions.try_recv() {
                let _ = answer.send(Err(fault.clone()));
            }
            return std::future::pending().await;
        }
        let _ = answer.send(said);
    }
}
/// Ends the session with this pulse, if it is still there; true when it is gone.
pub(crate) async fn bury(link: &Link, id: HoldId) -> Result<bool, Fault> {
    let rows = link.again(&Call::new("bury").id(id).end()).await?;
    Ok(matches!(rows.first().and_then(reply), Some(Reply::Gone { .. })))
}

#[cfg(test)]
mod tests {
    //! Planted to see it go red: rounded down.
    use super::*;

    #[test]
    fn whole_seconds() {
        for (ms, is) in [(0, 1), (500, 1), (1_000, 1), (1_001, 2), (30_000, 30)] {
            assert_eq!(silent(Duration::from_millis(ms)), is, "{ms} ms");
        }
    }
}
