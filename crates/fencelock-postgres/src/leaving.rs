//! Attempts that nobody makes any more are taken back, many in one call: a crowd that leaves at once keeps nobody waiting for long.
use crate::{error::Fault, shared::Shared, wire::call::literal};
use fencelock_core::{HoldId, Name};
use fencelock_database::LEAVE;
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};

/// So many in one call: their locks are kept from others for as long as it takes.
const TOGETHER: usize = 16;
/// The shortest pause where somebody keeps all of them, in ms.
const SHORT: u64 = 4;

/// Those who are to be taken back, one call after the other. *Invariant:* whoever asks again, because there was no answer in his time, has the
/// place that he had, and is taken back once. What may hold a lock does not wait for its end behind those who only wanted one.
#[derive(Debug, Default)]
pub(crate) struct Leaving {
    turn: tokio::sync::Mutex<()>,
    queue: Mutex<Queue>,
}
#[derive(Debug, Default)]
struct Queue {
    order: [VecDeque<(Name, HoldId)>; 2],
    told: HashMap<HoldId, Told>,
}
#[derive(Clone, Copy)]
enum Line {
    Holds,
    Places,
}
type Left = (Name, HoldId, Told);
type Told = oneshot::Sender<Result<(), Fault>>;
impl Leaving {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
    pub(crate) fn has(&self, hold: HoldId) -> bool {
        self.queue().told.contains_key(&hold)
    }
    /// What becomes of it, and whether it was not there before.
    fn put(&self, line: Line, name: &Name, hold: HoldId) -> (oneshot::Receiver<Result<(), Fault>>, bool) {
        let (told, end) = oneshot::channel();
        let mut queue = self.queue();
        let is_new = queue.told.insert(hold, told).is_none();
        if is_new {
            queue.order[line as usize].push_back((name.clone(), hold));
        }
        (end, is_new)
    }
    /// Somebody keeps its lock: it comes after the others, if it is still asked for.
    fn put_back(&self, line: Line, (name, hold, told): Left) {
        let mut queue = self.queue();
        if !told.is_closed() && !queue.told.contains_key(&hold) {
            queue.told.insert(hold, told);
            queue.order[line as usize].push_back((name, hold));
        }
    }
    fn next(&self, line: Line) -> Vec<Left> {
        let mut queue = self.queue();
        let Queue { order, told } = &mut *queue;
        let order = &mut order[line as usize];
        let many = order.len().min(TOGETHER);
        order.drain(..many).filter_map(|(name, hold)| Some((name, hold, told.remove(&hold)?))).collect()
    }
}

impl Shared {
    /// Ends whatever an attempt has, a hold or a place.
    pub(crate) async fn withdraw(self: &Arc<Self>, name: &Name, hold: HoldId) -> Result<(), Fault> {
        let line = if self.was_only_waiting(hold) { Line::Places } else { Line::Holds };
        let (end, is_new) = self.leaving.put(line, name, hold);
        if is_new {
            tokio::spawn(self.clone().take_back());
        }
        timeout(LEAVE, end).await.ok().and_then(Result::ok).unwrap_or(Err(Fault::Unanswered))?;
        self.has_left(hold);
        Ok(())
    }
    /// All who are there. *Invariant:* one comes after each that was put there, so nobody is left.
    async fn take_back(self: Arc<Self>) {
        let _turn = self.leaving.turn.lock().await;
        let mut pause = SHORT;
        loop {
            let (mut all, mut all_kept) = (0, 0);
            for line in [Line::Holds, Line::Places] {
                let next = self.leaving.next(line);
                all += next.len();
                let kept = self.take_back_together(next).await;
                all_kept += kept.len();
                kept.into_iter().for_each(|left| self.leaving.put_back(line, left));
            }
            match all {
                0 => return,
                all if all > all_kept => pause = SHORT,
                _ => {
                    sleep(Duration::from_millis(fastrand::u64(pause..2 * pause))).await;
                    pause = (pause * 2).min(8 * SHORT);
                }
            }
        }
    }
    /// Those whose lock somebody keeps from us for now.
    async fn take_back_together(&self, all: Vec<Left>) -> Vec<Left> {
        if all.is_empty() {
            return all;
        }
        let call = self.link.call("withdraw").text(&self.space);
        let call = call.array("text", all.iter().map(|(name, ..)| literal(name.as_str())));
        let call = call.array("uuid", all.iter().map(|(_, hold, _)| format!("'{hold}'"))).end();
        let answers = async {
            let conn = self.link.here().await?;
            let rows = self.link.rows(&conn, LEAVE, &call).await?;
            rows.first().and_then(|row| row.get(0)).map(str::to_owned).ok_or(Fault::Answer)
        };
        let (answers, mut kept) = (answers.await, Vec::new());
        for (n, (name, hold, told)) in all.into_iter().enumerate() {
            let end = match answers.as_ref().map(|letters| letters.as_bytes().get(n)) {
                Ok(Some(b'd')) => Ok(()),
                Ok(Some(b'l')) => {
                    kept.push((name, hold, told));
                    continue;
                }
                Ok(_) => Err(Fault::Answer),
                Err(fault) => Err(fault.clone()),
            };
            let _ = told.send(end);
        }
        kept
    }
}
