//! How often each thing happened that a simulator must see: one that does not bite is void.
use crate::{
    history::{Fault, How, Way, What, Written},
    judge::Record,
};
use std::collections::BTreeMap;

/// What happened how often.
pub(crate) type Coverage = BTreeMap<&'static str, u64>;

/// What must happen in a run of many seeds.
pub(crate) const MUST: &[&str] = &[
    "adopted",
    "adopted in vain",
    "attempts",
    "capacity mismatch told",
    "cell writes not known",
    "cells lost to others",
    "cells written",
    "copies",
    "cancelled early",
    "cancelled in the queue",
    "data lost",
    "downgrades",
    "entered again",
    "extended",
    "failovers",
    "fault: cut",
    "fault: deaf",
    "fault: kill",
    "fault: pause",
    "fenced out",
    "forced",
    "grants",
    "hand-overs",
    "loss: expired",
    "loss: max hold",
    "loss: session ended",
    "loss: taken over",
    "loss: unreachable",
    "multi grants",
    "permits granted",
    "reads beside each other",
    "refused",
    "releases by drop",
    "releases told ok",
    "releases that failed",
    "resized",
    "terms observed",
    "tickets",
    "wall steps",
];

pub(crate) fn count(record: &Record<'_>, coverage: &mut Coverage) {
    let mut one = |key: &'static str| *coverage.entry(key).or_default() += 1;
    for event in record.events {
        match event.what {
            What::Asked { .. } => one("attempts"),
            What::Refused { .. } => one("refused"),
            What::Cancelled { early: true, .. } => one("cancelled early"),
            What::Cancelled { .. } => one("cancelled in the queue"),
            What::Leaves { way: Way::Drop, .. } => one("releases by drop"),
            What::Leaves { way: Way::Downgrade, .. } => one("downgrades"),
            What::Leaves { way: Way::Ticket, .. } => one("tickets"),
            What::Left { answer: None, .. } => one("releases told ok"),
            What::Left { answer: Some(_), .. } => one("releases that failed"),
            What::Told { reason, .. } => one(loss(reason)),
            What::Entries { .. } => one("entered again"),
            What::Extended { ok: true, .. } => one("extended"),
            What::Blind { accepted: false, .. } => one("fenced out"),
            What::Wrote { accepted: false, .. } => one("fenced out"),
            What::CellWrote { written: Written::Won, .. } => one("cells written"),
            What::CellWrote { written: Written::Unknown, .. } => one("cell writes not known"),
            What::CellWrote { .. } => one("cells lost to others"),
            What::Saw { term: 1.., .. } => one("terms observed"),
            What::Began { fault: Fault::Cut, .. } => one("fault: cut"),
            What::Began { fault: Fault::Deaf, .. } => one("fault: deaf"),
            What::Began { fault: Fault::Kill, .. } => one("fault: kill"),
            What::Began { fault: Fault::Pause, .. } => one("fault: pause"),
            What::Forced { .. } => one("forced"),
            What::Wall { .. } => one("wall steps"),
            What::WrongSize { answer: Some(_), .. } => one("capacity mismatch told"),
            What::Resized { .. } => one("resized"),
            What::DataLost => one("data lost"),
            What::Copied => one("copies"),
            What::FailedOver => one("failovers"),
            What::Got { claim: fencelock_core::Claim::Permits { .. }, .. } => one("permits granted"),
            What::Got { .. } => one("grants"),
            _ => {}
        }
    }
    for asked in &record.asked {
        if asked.how == How::Adopt && matches!(asked.answer, crate::judge::Answer::Failed(_)) {
            one("adopted in vain");
        }
    }
    for (i, held) in record.held.iter().enumerate() {
        match held.how {
            How::Adopt => one("adopted"),
            How::Multi => one("multi grants"),
            _ => {}
        }
        let mut before =
            record.held[..i].iter().rev().take(8).filter(|before| before.name == held.name && before.hold != held.hold);
        if before.clone().any(|before| held.asked < before.to() && before.to() <= held.got) {
            one("hand-overs");
        }
        if held.claim == fencelock_core::Claim::Read
            && before.any(|before| before.claim == held.claim && before.to() > held.got)
        {
            one("reads beside each other");
        }
    }
}
fn loss(reason: fencelock_core::LossReason) -> &'static str {
    match reason {
        fencelock_core::LossReason::MaxHold => "loss: max hold",
        fencelock_core::LossReason::SessionEnded => "loss: session ended",
        fencelock_core::LossReason::TakenOver => "loss: taken over",
        fencelock_core::LossReason::Unreachable => "loss: unreachable",
        _ => "loss: expired",
    }
}
