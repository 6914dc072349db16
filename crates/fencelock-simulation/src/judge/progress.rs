//! WAKE: who waits is in soon after what stood before him is gone. What stands before him: holds, and for a while what is left
//! of holds and attempts whose process or link is in trouble.
use super::{
    Breaches, NEVER, Record, Trouble, breach,
    record::{Answer, Asked, End, Held},
};
use crate::{
    clock::{MS, Nanos, SEC},
    history::{How, Way, What},
    plan::Class,
};
use fencelock_core::LossReason;

/// From, and until.
type Span = (Nanos, Nanos);

pub(super) fn check(record: &Record<'_>, all: &mut Breaches) {
    let calm = record.plan.class == Class::Calm;
    let most = 2 * SEC + if calm { 4 } else { 10 } * record.plan.delay + if calm { 0 } else { SEC };
    for name in 0..u8::try_from(record.plan.places.len()).unwrap_or(0) {
        let mut busy = busy(record, name);
        busy.sort_unstable();
        let waits = |asked: &&Asked| asked.name == name && matches!(asked.how, How::Wait | How::Timed);
        for asked in record.asked.iter().filter(waits) {
            if let Some((from, to)) = gap(record, asked, &busy, most) {
                let what = format!(
                    "attempt {} waited for {} ms while nobody stood before it, until {}.{:03} s",
                    asked.op,
                    (to - from) / MS,
                    to / SEC,
                    to % SEC / MS
                );
                breach(all, "WAKE", from + most, what);
                break;
            }
        }
    }
}
/// The first time in which the attempt waits longer than it may.
fn gap(record: &Record<'_>, asked: &Asked, busy: &[Span], most: Nanos) -> Option<Span> {
    let end =
        asked.ended.min(record.killed(asked.client).unwrap_or(NEVER)).min(record.calm.max(asked.at) + 3_600 * SEC);
    let mut free = asked.at;
    let back = |t: &Trouble| (t.from, t.to.saturating_add(3 * SEC));
    let own = record.troubles.iter().filter(|t| t.who == asked.client).map(back);
    let mut spans: Vec<Span> = own.collect();
    spans.extend(busy.iter().filter(|(from, to)| *from < end && *to > asked.at));
    spans.sort_unstable();
    for (from, to) in spans {
        if from.min(end) > free + most {
            return Some((free, from.min(end)));
        }
        free = free.max(to);
        if free >= end {
            return None;
        }
    }
    (end > free + most).then_some((free, end))
}
fn busy(record: &Record<'_>, name: u8) -> Vec<Span> {
    let mut busy: Vec<Span> = Vec::new();
    let plan = record.plan;
    let longest = record.held.iter().map(|held| held.terms.ttl).max().unwrap_or(plan.ttl).max(plan.ttl * 2);
    for held in record.held.iter().filter(|held| held.name == name) {
        busy.push((held.got, gone(record, held)));
    }
    for asked in record.asked.iter().filter(|asked| asked.name == name) {
        let session = plan.nodes[usize::from(asked.client)].session;
        if matches!(asked.how, How::Multi | How::Adopt | How::Again) {
            // What it has of several, or of a ticket, is not seen before it has it all.
            busy.push((asked.at, asked.ended.saturating_add(record.trip())));
        }
        if asked.answer != Answer::Got && asked.ended != NEVER {
            busy.push((asked.ended, record.through(asked.client, asked.ended, record.cleared())));
        }
        for t in record.troubles.iter().filter(|t| t.who == asked.client && t.from < asked.ended && asked.at < t.to) {
            let left = if session { plan.ttl + plan.ttl / 20 } else { 0 } + 6 * SEC + 2 * plan.delay;
            // Its place is gone after a while; what was granted as it asked, after its lease.
            busy.push((t.from, t.from + left.max(longest + SEC)));
            busy.push((t.to, t.to.saturating_add(6 * SEC)));
        }
    }
    for event in record.events {
        match event.what {
            What::DataLost => busy.push((event.at, event.at + 6 * SEC)),
            What::FailedOver => busy.push((event.at, event.at + longest + longest / 20 + 6 * SEC)),
            // Its clients hear of it with their next heartbeats.
            What::SessionsEnded => busy.push((event.at, event.at + plan.ttl / 2 + 4 * SEC)),
            What::Resized { .. } => busy.push((event.at, event.at + SEC)),
            _ => {}
        }
    }
    busy
}
/// When the store has nothing of it any more.
fn gone(record: &Record<'_>, held: &Held) -> Nanos {
    // An extension asks for up to so much, and may have come to the store though its answer did not come back.
    let ttl = if held.extended { held.terms.longest() } else { held.terms.ttl };
    let trip = record.trip();
    let killed = record.killed(held.client).unwrap_or(NEVER);
    let lease = |from: Nanos| from.saturating_add(ttl + ttl / 20 + SEC);
    // It is not given back before.
    let stays = if held.terms.at_least > 0 { held.got + held.terms.at_least + held.terms.at_least / 50 } else { 0 };
    let dropped = |at: Nanos| {
        let at = at.max(stays);
        let sent = record.through(held.client, at, trip);
        if held.terms.session { sent } else { sent.min(lease(at).max(lease(held.valid))) }
    };
    let gone = match (held.end, held.told) {
        _ if killed < held.ended => return lease(killed) + 2 * ttl,
        (End::Open, _) => return NEVER,
        (End::Leaves(Way::Drop), _) => dropped(held.ended),
        (End::Leaves(Way::Release), _) => match held.left {
            Some((at, None)) if held.how != How::Multi && stays <= held.ended => at,
            Some((at, None)) => dropped(at),
            Some((at, _)) => dropped(at).max(held.valid + ttl / 20).max(lease(held.ended)),
            None => lease(killed),
        },
        (End::Leaves(Way::Ticket), _) => lease(held.left.map_or(killed, |(at, _)| at)).saturating_add(ttl / 10),
        // Its next guard says when.
        (End::Leaves(Way::Downgrade), _) => match held.left {
            Some((at, None)) => at,
            Some((at, Some(_))) => dropped(at).max(lease(at)),
            None => lease(killed),
        },
        // The lease ended, or goes on until those who hold it are gone.
        (End::Stops, Some((_, LossReason::MaxHold))) => {
            dropped(held.gone.unwrap_or(held.ended)).max(held.valid + ttl + ttl / 20)
        }
        (End::Stops, Some((at, LossReason::TakenOver))) => at + trip,
        (End::Stops, _) if held.timeless => held.ended + trip,
        (End::Stops, _) => {
            let over = held.valid + ttl / 20 + 10 * MS;
            let sent = record.through(held.client, over, trip + SEC);
            if held.terms.session { sent.max(lease(held.valid)) } else { sent.min(lease(held.ended)) }
        }
    };
    // Another guard of the same hold.
    let rest = record.held.iter().filter(|other| other.hold == held.hold && other.part > held.part);
    rest.map(|other| other.ended).max().map_or(gone, |last| gone.max(last.min(killed)))
}
