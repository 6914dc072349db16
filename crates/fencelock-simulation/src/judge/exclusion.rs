//! ME-L: claims that exclude each other do not overlap within their validity; permits are never more than there are.
//! ME-R: who writes within his validity is not refused by the resource.
use super::{Breaches, NEVER, Record, breach, record::Held};
use crate::history::How;
use fencelock_core::Claim;

pub(super) fn check(record: &Record<'_>, all: &mut Breaches) {
    for name in 0..u8::try_from(record.plan.places.len()).unwrap_or(0) {
        let held: Vec<&Held> = record.held.iter().filter(|held| held.name == name && held.got < held.to()).collect();
        pairs(&held, all);
        permits(record, &held, all);
    }
    for held in &record.held {
        if let Some(at) = held.refused
            && at < held.forced
            && at < held.valid
            && held.epoch == 0
            && record.disasters.is_empty()
        {
            let what =
                format!("guard {} wrote with token {} while it was valid, and was refused", held.part, held.token);
            breach(all, "ME-R", at, what);
        }
    }
}
/// In the order of their begin: each with those that are not over yet.
fn pairs(held: &[&Held], all: &mut Breaches) {
    let mut open: Vec<&Held> = Vec::new();
    for next in held {
        open.retain(|before| before.to() > next.got);
        for before in open.iter().filter(|before| before.epoch == next.epoch && before.conflicts(next)) {
            let what = format!(
                "guard {} of client {} ({}) was in hand while guard {} of client {} ({}) was valid until {}.{:06} s",
                next.part,
                next.client,
                next.claim,
                before.part,
                before.client,
                before.claim,
                before.to() / 1_000_000_000,
                before.to() % 1_000_000_000 / 1_000
            );
            breach(all, "ME-L", next.got, what);
        }
        open.push(next);
    }
}
fn permits(record: &Record<'_>, held: &[&Held], all: &mut Breaches) {
    let mut open: Vec<&Held> = Vec::new();
    for next in held {
        let Claim::Permits { take, .. } = next.claim else { continue };
        open.retain(|before| before.to() > next.got);
        let beside = open.iter().filter(|before| before.epoch == next.epoch && before.hold != next.hold);
        let taken: u32 = beside.map(|before| before.claim.take()).sum();
        // A ticket has its permits from before a semaphore shrank.
        let since = if next.how == How::Adopt { 0 } else { next.asked };
        let size = record.size(next.name, since, next.got);
        if taken + take > size && next.got != NEVER {
            let what = format!("guard {} has {take} permits beside {taken} others of {size}", next.part);
            breach(all, "ME-L", next.got, what);
        }
        open.push(next);
    }
}
