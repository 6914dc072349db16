//! Many keys at once, wherever they lie.
use super::{Conn, Link};
use crate::error::Fault;
use futures_util::future::join_all;
use redis::{Cmd, Pipeline, Value};
#[cfg(feature = "bench")]
use std::sync::atomic::Ordering::Relaxed;
use std::{pin::pin, sync::Arc, time::Duration};

/// The server tells when the key of the next command changes: of all others it does not, so it need not remember them.
pub(crate) fn next_is_watched() -> Cmd {
    redis::cmd("CLIENT").arg("CACHING").arg("YES").to_owned()
}
impl Link {
    /// One command for each of these keys, in one pipeline for each server; each has its own answer, in their order. A server that
    /// is silent keeps none of another one's waiting for longer than `limit`.
    pub(crate) async fn scattered(
        &self,
        limit: Duration,
        keys: &[String],
        cmd: impl Fn(usize) -> Cmd,
    ) -> Vec<Result<Value, Fault>> {
        self.scatter(limit, keys, false, cmd).await
    }
    /// The same, of reads: where the server tells only of keys that it is asked to, it tells of the next change of each (SAFETY G6).
    pub(crate) async fn watching(
        &self,
        limit: Duration,
        keys: &[String],
        cmd: impl Fn(usize) -> Cmd,
    ) -> Vec<Result<Value, Fault>> {
        self.scatter(limit, keys, true, cmd).await
    }
    async fn scatter(
        &self,
        limit: Duration,
        keys: &[String],
        watches: bool,
        cmd: impl Fn(usize) -> Cmd,
    ) -> Vec<Result<Value, Fault>> {
        let mut answers: Vec<Result<Value, Fault>> = keys.iter().map(|_| Err(Fault::Unreached)).collect();
        let mut groups: Vec<(Result<Conn, Fault>, Vec<usize>)> = Vec::new();
        for (at, key) in keys.iter().enumerate() {
            let conn = if groups.is_empty() || self.is_cluster() { Some(self.at(key).await) } else { None };
            let same = |(known, _): &&mut (Result<Conn, Fault>, _)| match (known, &conn) {
                (Ok(known), Some(Ok(conn))) => Arc::ptr_eq(&known.server, &conn.server),
                (_, conn) => conn.is_none(),
            };
            match groups.iter_mut().find(same) {
                Some((_, group)) => group.push(at),
                None => groups.push((conn.unwrap_or(Err(Fault::Unreached)), vec![at])),
            }
        }
        let cmd = &cmd;
        let asked = groups.iter().map(|(conn, group)| async move {
            let conn = conn.as_ref().map_err(Clone::clone)?;
            let watches = watches && conn.tracks;
            let mut all = Pipeline::with_capacity(2 * group.len());
            for at in group {
                if watches {
                    all.add_command(next_is_watched());
                }
                all.add_command(cmd(*at));
            }
            #[cfg(feature = "bench")]
            self.sent.fetch_add(all.len() as u64 - 1, Relaxed);
            let answers = self.limited(conn, conn.server.patience().min(limit), pin!(conn.send_all(&all))).await?;
            Ok::<_, Fault>(if watches { answers.into_iter().skip(1).step_by(2).collect() } else { answers })
        });
        let asked = join_all(asked).await;
        let mut put = |at: usize, answer| {
            if let Some(place) = answers.get_mut(at) {
                *place = answer;
            }
        };
        for ((conn, group), answer) in groups.iter().zip(asked) {
            match answer {
                Ok(each) => {
                    for (at, answer) in group.iter().zip(each) {
                        let answer = answer.extract_error().map_err(Fault::from);
                        let answer = match (conn, answer) {
                            (Ok(conn), Err(fault)) if fault.redirect().is_some() => {
                                self.elsewhere(conn, &fault, limit, watches, &cmd(*at)).await
                            }
                            (_, answer) => answer,
                        };
                        put(*at, answer);
                    }
                }
                Err(fault) => group.iter().for_each(|at| put(*at, Err(fault.clone()))),
            }
        }
        answers
    }
    /// Where a slot is on its way it is not watched there: `ASKING` and that are for the next command each.
    async fn elsewhere(
        &self,
        conn: &Conn,
        fault: &Fault,
        limit: Duration,
        watches: bool,
        cmd: &Cmd,
    ) -> Result<Value, Fault> {
        let conn = self.redirected(conn, fault).await?;
        let ask = |conn: Conn| async move {
            let limit = conn.server.patience().min(limit);
            if !watches || !conn.tracks || conn.asking {
                return self.limited(&conn, limit, pin!(conn.send(cmd))).await;
            }
            let mut both = Pipeline::with_capacity(2);
            both.add_command(next_is_watched()).add_command(cmd.clone());
            let answer = self.limited(&conn, limit, pin!(conn.send_all(&both))).await?.pop().ok_or(Fault::Answer)?;
            answer.extract_error().map_err(Fault::from)
        };
        self.turned(conn, ask).await
    }
}
