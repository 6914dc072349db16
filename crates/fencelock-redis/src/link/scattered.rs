//! Many keys at once, wherever they lie.
use super::{Conn, Link, Way, cluster::slot, server::Server};
use crate::error::Fault;
use fencelock_core::{BootClock, Clock, within};
use futures_util::future::join_all;
use redis::{Cmd, Pipeline, Value};
#[cfg(feature = "bench")]
use std::sync::atomic::Ordering::Relaxed;
use std::{pin::pin, sync::Arc, time::Duration};

/// The server tells when the key of the next command changes: of all others it does not, so it need not remember them.
pub(crate) fn next_is_watched() -> Cmd {
    redis::cmd("CLIENT").arg("CACHING").arg("YES").to_owned()
}
/// A server of a cluster, or none: the one server that has all.
type Place = Result<Option<Arc<Server>>, Fault>;
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
        let (until, cmd) = (BootClock.now() + limit, &cmd);
        // *Invariant:* whoever is asked has a quarter of the limit at least, so no connection is given up for what others took; and all of it
        // is over within five quarters, before core has it tried anew.
        let left = || BootClock.now().until(until).max(limit / 4);
        let groups = self.grouped(limit, keys).await;
        let asked = groups.iter().map(|(place, group)| async move {
            let conn = self.to_place(left() / 2, place).await?;
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
            let answers = self.limited(&conn, conn.server.patience().min(left()), pin!(conn.send_all(&all))).await?;
            let each: Vec<_> = if watches { answers.into_iter().skip(1).step_by(2).collect() } else { answers };
            let each = group.iter().zip(each).map(|(at, answer)| {
                let conn = &conn;
                async move {
                    match answer.extract_error().map_err(Fault::from) {
                        Err(fault) if fault.redirect().is_some() => {
                            let cmd = cmd(*at);
                            let there = self.elsewhere(conn, &fault, left(), watches, &cmd);
                            within(left(), there).await.unwrap_or(Err(Fault::Unreached))
                        }
                        answer => answer,
                    }
                }
            });
            Ok::<_, Fault>(join_all(each).await)
        });
        for ((_, group), asked) in groups.iter().zip(join_all(asked).await) {
            let each = asked.unwrap_or_else(|fault| group.iter().map(|_| Err(fault.clone())).collect());
            for (at, answer) in group.iter().zip(each) {
                if let Some(place) = answers.get_mut(*at) {
                    *place = answer;
                }
            }
        }
        answers
    }
    /// What lies together, and where, as far as that is known.
    ///
    /// *Invariant:* nobody is waited for here who has some of the keys and not others. One that is silent takes no connection, for each of its
    /// keys anew: whoever waited for that would be late with those of the others.
    async fn grouped(&self, limit: Duration, keys: &[String]) -> Vec<(Place, Vec<usize>)> {
        let Way::Cluster(cluster) = &self.way else { return vec![(Ok(None), (0..keys.len()).collect())] };
        let (mut groups, mut asked) = (Vec::<(Place, Vec<usize>)>::new(), false);
        for (at, key) in keys.iter().enumerate() {
            let slot = slot(key);
            let place = match cluster.known(self, slot) {
                Some(server) => Ok(Some(server)),
                // Once is enough. Whoever does not have it any more says where it is.
                None if !std::mem::replace(&mut asked, true) => {
                    let told = within(limit / 2, cluster.owner(self, slot)).await.unwrap_or(Err(Fault::Unreached));
                    told.or_else(|why| cluster.believed(self, slot).ok_or(why)).map(Some)
                }
                None => cluster.believed(self, slot).map(Some).ok_or(Fault::NoPrimary),
            };
            let same = |(known, _): &&mut (Place, _)| match (known, &place) {
                (Ok(Some(known)), Ok(Some(server))) => Arc::ptr_eq(known, server),
                (known, place) => known.is_err() && place.is_err(),
            };
            match groups.iter_mut().find(same) {
                Some((_, group)) => group.push(at),
                None => groups.push((place, vec![at])),
            }
        }
        groups
    }
    async fn to_place(&self, limit: Duration, place: &Place) -> Result<Conn, Fault> {
        let Some(server) = place.as_ref().map_err(Clone::clone)? else { return self.at("").await };
        // *Invariant:* batch after batch comes here for one that is silent, and each has one turn: they do not all wait for it.
        if server.rests() {
            return Err(Fault::Unreached);
        }
        let conn = within(limit, self.to(server)).await.unwrap_or(Err(Fault::Unreached));
        if conn.is_err() {
            server.was_not_reached();
        }
        if let (Way::Cluster(cluster), Err(fault)) = (&self.way, &conn)
            && fault.may_pass()
        {
            cluster.doubt();
        }
        conn
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
