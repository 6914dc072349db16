//! REL, RE, LEAK, IDEM, SIZE, OBS: what was released is free, and nothing else; nothing stays; nothing happens twice.
use super::{
    Breaches, NEVER, Record, breach,
    record::{Asked, End, Held},
};
use crate::{
    clock::{MS, Nanos, SEC},
    history::{Fault, How, Way, What, Written},
    plan::Class,
};
use fencelock_core::{ErrorKind, HoldId};
use std::collections::BTreeMap;

pub(super) fn check(record: &Record<'_>, all: &mut Breaches) {
    events(record, all);
    cells(record, all);
    observers(record, all);
    for held in &record.held {
        released(record, held, all);
        entered(record, held, all);
    }
}
fn events(record: &Record<'_>, all: &mut Breaches) {
    for event in record.events {
        match event.what {
            What::Stands { name, hold, since } => stands(record, event.at, (name, hold, since), all),
            What::Stuck { tasks } => breach(all, "PROG", event.at, format!("{tasks} tasks never end, with all healed")),
            What::Census { held, queued, clients, after } if held + queued + clients > 0 => {
                let what = format!(
                    "{} s after the end the store has {held} holds and {queued} waiters, the clients {clients} holds",
                    after / SEC
                );
                breach(all, "LEAK", event.at, what);
            }
            What::Revived { part } => {
                breach(all, "LOSS", event.at, format!("guard {part} was lost, and is good again"))
            }
            What::Entries { part, are, should } if are != should => {
                breach(all, "RE", event.at, format!("guard {part} is one of {are}, and should be of {should}"));
            }
            What::WrongSize { name, answer } => {
                // Whose session ended on the way was not looked at.
                let session = record.plan.nodes[usize::from(event.client)].session;
                let unseen = |kind: ErrorKind| kind.is_temporary() || kind == ErrorKind::Busy && session;
                let told = answer.is_some_and(|kind| kind == ErrorKind::CapacityMismatch || unseen(kind));
                if !told {
                    breach(all, "SIZE", event.at, format!("place {name}: a semaphore of another size: {answer:?}"));
                }
            }
            What::CellWrote { name, written: Written::Conflict { own: true } } => {
                breach(all, "IDEM", event.at, format!("place {name}: a write that had won was told as a conflict"));
            }
            _ => {}
        }
    }
}
/// An attempt that was given up leaves nothing within its window.
fn stands(record: &Record<'_>, at: Nanos, (name, hold, since): (u8, HoldId, Nanos), all: &mut Breaches) {
    let known = record.held.iter().any(|held| held.hold == hold);
    // What one has of several is not in hand before the others are.
    let several =
        |asked: &Asked| asked.name == name && asked.how == How::Multi && asked.at <= at && since <= asked.ended;
    let window = record.cleared() + SEC;
    if !known && at > since + window && !record.asked.iter().any(several) {
        let what = format!("hold {hold} of place {name} stands since {} ms, and nobody has had it", (at - since) / MS);
        breach(all, "CANC", at, what);
    }
}
/// As many as were told that they had written, and none twice.
fn cells(record: &Record<'_>, all: &mut Breaches) {
    if record.plan.class == Class::Disaster {
        return;
    }
    let mut counts: BTreeMap<u8, (u64, u64)> = BTreeMap::new();
    for event in record.events {
        match event.what {
            What::CellWrote { name, written } => {
                let (won, unknown) = counts.entry(name).or_default();
                match written {
                    Written::Won => *won += 1,
                    Written::Unknown => *unknown += 1,
                    Written::Conflict { .. } => {}
                }
            }
            What::CellIs { name, value } => {
                let (won, mut unknown) = counts.get(&name).copied().unwrap_or_default();
                // A killed process was perhaps just writing.
                let killed = (0..u8::MAX).zip(&record.plan.nodes).filter(|(who, _)| record.killed(*who).is_some());
                unknown += killed.map(|(_, node)| u64::from(node.tasks)).sum::<u64>();
                if value < won || value > won + unknown {
                    let what =
                        format!("place {name}: {won} writes won and {unknown} are not known, its value is {value}");
                    breach(all, "IDEM", event.at, what);
                }
            }
            _ => {}
        }
    }
}
/// Of which place, since when, and when it was told of which term.
type Observer = (u8, Nanos, Vec<(Nanos, i64)>);

/// What an observer is told never goes back, and it hears of the newest term in time.
fn observers(record: &Record<'_>, all: &mut Breaches) {
    let mut seen: BTreeMap<u32, Observer> = BTreeMap::new();
    for event in record.events {
        match event.what {
            What::Observes { observer, name } => {
                seen.insert(observer, (name, event.at, Vec::new()));
            }
            What::Saw { observer, term, .. } if term > 0 => {
                let Some((_, _, terms)) = seen.get_mut(&observer) else { continue };
                if terms.last().is_some_and(|(_, last)| *last >= term) {
                    breach(all, "OBS", event.at, format!("observer {observer} went back to term {term}"));
                }
                terms.push((event.at, term));
            }
            _ => {}
        }
    }
    if record.plan.class != Class::Calm {
        return;
    }
    for (observer, (name, since, terms)) in &seen {
        let leads = |held: &&Held| held.name == *name && held.token > 0 && held.to() > held.got + 4 * SEC;
        for held in record.held.iter().filter(leads) {
            let due = held.got.max(*since) + 3 * SEC;
            let heard = terms.iter().any(|(at, term)| *at <= due && *term >= held.token);
            if !heard && due < record.calm && due < held.to() {
                let what = format!("observer {observer} does not know of guard {} that leads", held.part);
                breach(all, "OBS", due, what);
            }
        }
    }
}
/// A release that was answered Ok found its own hold.
fn released(record: &Record<'_>, held: &Held, all: &mut Breaches) {
    let node = &record.plan.nodes[usize::from(held.client)];
    let exact = record.plan.lost_replies == 0.0 && !node.chaos && held.terms.at_least == 0;
    if let (End::Leaves(Way::Release), Some((at, None))) = (held.end, held.left)
        && exact
        && held.how != How::Multi
        && record.disasters.is_empty()
        && held.forced != NEVER
        && held.got < held.forced
        && held.forced < held.ended
        && !record
            .troubles
            .iter()
            .any(|t| t.who == held.client && t.fault != Fault::Pause && t.from <= at && held.ended <= t.to)
        && !record.held.iter().any(|other| other.hold == held.hold && other.part != held.part)
    {
        breach(all, "REL", at, format!("guard {} had been taken away, and its release was Ok", held.part));
    }
}
/// A hold that is lost is not entered again.
fn entered(record: &Record<'_>, held: &Held, all: &mut Breaches) {
    if held.how != How::Again {
        return;
    }
    let before = record.held.iter().find(|other| other.hold == held.hold && other.part < held.part);
    if let Some((told, _)) = before.and_then(|before| before.told)
        && told < held.got
    {
        breach(all, "RE", held.got, format!("guard {} entered a hold whose loss had been told", held.part));
    }
    if held.valid_first < held.got {
        breach(all, "RE", held.got, format!("guard {} was over before it was in hand", held.part));
    }
}
