//! FIFO: in a world without trouble nobody who comes later gets in before somebody who stands in the queue already; so writers
//! and large requests are not starved. AT-LEAST: what is taken for a time is not granted to another one before.
use super::{
    Breaches, Record, breach,
    record::{Answer, Asked, End},
};
use crate::{
    clock::{MS, SEC},
    history::{How, Way},
    plan::Class,
};

pub(super) fn check(record: &Record<'_>, all: &mut Breaches) {
    if record.plan.class == Class::Calm {
        overtaken(record, all);
    }
    at_least(record, all);
}
fn overtaken(record: &Record<'_>, all: &mut Breaches) {
    let apart = 4 * record.plan.delay + 20 * MS;
    let waits = |asked: &&Asked| asked.how == How::Wait && asked.answer == Answer::Got;
    for first in record.asked.iter().filter(waits) {
        // Behind another one of its own process it stands in no queue but that one's.
        let behind = |other: &Asked| {
            other.op != first.op
                && other.client == first.client
                && other.name == first.name
                && other.at <= first.at
                && first.at <= other.ended.saturating_add(1_500 * MS)
        };
        if record.asked.iter().any(behind) {
            continue;
        }
        let later = record.asked.iter().filter(|other| {
            other.name == first.name
                && other.op != first.op
                && other.answer == Answer::Got
                && matches!(other.how, How::Wait | How::Timed | How::Try)
                && other.at > first.at + apart
        });
        for second in later {
            // A push that is lost costs a second, in which readers beside each other may change places.
            let beside = !first.claim.is_exclusive() && !second.claim.is_exclusive();
            let slack = if beside { 2_000 * MS } else { apart };
            if second.ended.saturating_add(slack) < first.ended {
                let what = format!(
                    "attempt {} ({}) came later than attempt {} ({}) and got in before it",
                    second.op, second.claim, first.op, first.claim
                );
                breach(all, "FIFO", second.ended, what);
                return;
            }
        }
    }
}
fn at_least(record: &Record<'_>, all: &mut Breaches) {
    for (i, held) in record.held.iter().enumerate() {
        let d = held.terms.at_least;
        if d == 0
            || held.end == End::Open
            || matches!(held.end, End::Leaves(Way::Downgrade | Way::Ticket))
            || record.killed(held.client).is_some()
        {
            continue;
        }
        if record.held.iter().any(|other| other.hold == held.hold && other.part != held.part) {
            continue;
        }
        // It counts from the grant, which was in hand a bit later.
        let until = (held.asked.max(held.got.saturating_sub(record.trip() + SEC / 2)) + d - d / 90).min(held.forced);
        let next = record.held[i + 1..].iter().take_while(|next| next.got < until);
        for next in next.filter(|next| {
            next.name == held.name && next.got < next.to() && next.conflicts(held) && next.epoch == held.epoch
        }) {
            let what =
                format!("guard {} was to stay taken for {} ms, and guard {} got in", held.part, d / MS, next.part);
            breach(all, "AT-LEAST", next.got, what);
        }
    }
}
