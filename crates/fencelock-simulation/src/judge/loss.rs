//! LOSS: a loss is told while the hold is still valid, at once after a pause; it is told at all, and never after a release. A
//! hold that was taken away is not renewed, and a fixed lease is never.
use super::{
    Breaches, NEVER, Record, breach,
    record::{End, Held},
};
use crate::{
    clock::{MS, Nanos, SEC},
    history::Way,
    plan::Class,
};

/// Timers have a grain of a millisecond.
const GRAIN: Nanos = 5 * MS;

pub(super) fn check(record: &Record<'_>, all: &mut Breaches) {
    for held in &record.held {
        in_time(record, held, all);
        told_at_all(record, held, all);
        not_renewed(record, held, all);
        taken_away(record, held, all);
        if held.untold {
            breach(all, "LOSS", held.ended, format!("guard {} is over by its clock, and nobody tells", held.part));
        }
    }
}
/// A process that stood still then hears of it when it goes on.
fn excused(record: &Record<'_>, client: u8, (valid, due): (Nanos, Nanos), at: Nanos) -> bool {
    record.paused(client, valid, due).is_some_and(|to| at <= to.saturating_add(GRAIN))
}
fn in_time(record: &Record<'_>, held: &Held, all: &mut Breaches) {
    let Some((at, _)) = held.told else { return };
    // The world's timers go by true time, a client's clock may run ahead of them by a hundredth.
    let drifts = record.plan.nodes[usize::from(held.client)].drift.ppm > 0;
    let slept = held.terms.max_hold.unwrap_or(0) + 2 * record.plan.ttl;
    let slack = if drifts { slept / 90 + GRAIN } else { GRAIN };
    let due = held.valid.saturating_add(slack);
    let known = held.end == End::Stops || at <= held.ended;
    // A session that has ended has no time any more; it is told by the report itself.
    let known = known && held.end != End::Open && !held.timeless;
    if known && at > due && !excused(record, held.client, (held.valid, due), at) && at <= held.gone.unwrap_or(NEVER) {
        let late = at - held.valid;
        breach(all, "LOSS", at, format!("guard {} was told {} ms after its validity", held.part, late / MS));
    }
}
fn told_at_all(record: &Record<'_>, held: &Held, all: &mut Breaches) {
    let due = held.valid + held.terms.max_hold.unwrap_or(0) / 90 + GRAIN;
    if let End::Leaves(_) = held.end
        && held.told.is_none_or(|(at, _)| at > held.ended)
        && held.ended > due
        && !held.timeless
        && !excused(record, held.client, (held.valid, due), held.ended)
    {
        breach(
            all,
            "LOSS",
            held.ended,
            format!("guard {} was let go of after its validity, and nobody had told", held.part),
        );
    }
    let Some((at, _)) = held.told else { return };
    let released = match (held.end, held.left) {
        (End::Leaves(Way::Drop), _) => at > held.ended,
        (End::Leaves(Way::Release | Way::Ticket), Some((left, None))) => at > left,
        _ => false,
    };
    // Another guard on the hold keeps it.
    let others = record.held.iter().any(|other| other.hold == held.hold && other.part != held.part);
    if released && !others {
        breach(all, "LOSS", at, format!("guard {} was told of a loss after its release", held.part));
    }
}
fn not_renewed(record: &Record<'_>, held: &Held, all: &mut Breaches) {
    let _ = record;
    if held.terms.fixed && !held.extended && held.end != End::Open && held.valid > held.valid_first {
        let alone = !record.held.iter().any(|other| other.hold == held.hold && other.part != held.part);
        if alone {
            breach(all, "LOSS", held.ended, format!("guard {} has a fixed lease, and it was renewed", held.part));
        }
    }
}
fn taken_away(record: &Record<'_>, held: &Held, all: &mut Breaches) {
    if held.forced == NEVER || held.end == End::Open || held.terms.session {
        return;
    }
    // A copy that lags may bring back what was lost; then it is renewed.
    if !record.disasters.is_empty() {
        return;
    }
    let longest = held.terms.ttl * 2 + SEC;
    let end = held.forced.saturating_add(if held.extended { longest } else { held.terms.ttl });
    if held.valid > end + held.terms.ttl / 50 && held.got < held.forced {
        breach(
            all,
            "LOSS",
            held.ended,
            format!("guard {} was taken away, and its hold was renewed all the same", held.part),
        );
    }
    let quiet = record.plan.nodes[usize::from(held.client)].quiet;
    let still = held.told.map_or(held.ended, |(at, _)| at.min(held.ended));
    let calm = !record.troubled(held.client, held.forced, held.forced + SEC);
    if !quiet && calm && held.got < held.forced && still > held.forced + SEC && record.plan.class != Class::Slow {
        breach(all, "LOSS", still, format!("guard {} was taken away, and was told so much later", held.part));
    }
}
