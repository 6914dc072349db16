//! TOK: tokens of exclusive holds rise in the order of the holds and never repeat; over lost data as SAFETY T1 promises it.
use super::{Breaches, Record, breach, record::Held};
use crate::{
    clock::MS,
    history::{How, What},
};

pub(super) fn check(record: &Record<'_>, all: &mut Breaches) {
    // Steps back end what the clock promises.
    let back =
        record.events.iter().find(|event| matches!(event.what, What::Wall { by } if by < 0)).map(|event| event.at);
    for name in 0..u8::try_from(record.plan.places.len()).unwrap_or(0) {
        let mut seen: Vec<&Held> = Vec::new();
        for next in record.held.iter().filter(|held| held.name == name && held.token > 0 && !held.unsure) {
            // Another guard of a hold that was there before has its token.
            let known = seen.iter().find(|before| before.hold == next.hold);
            if let Some(before) = known {
                if before.token != next.token {
                    breach(all, "TOK", next.got, format!("hold {} has two tokens", next.hold));
                }
                continue;
            }
            for before in &seen {
                if let Some(why) = lower(record, before, next, back) {
                    let what = format!(
                        "guard {} has token {}, and guard {} before it had {} ({why})",
                        next.part, next.token, before.part, before.token
                    );
                    breach(all, "TOK", next.got, what);
                    break;
                }
            }
            seen.push(next);
        }
    }
}
/// Why the later token should have been the greater one, and is not.
fn lower(record: &Record<'_>, before: &Held, next: &Held, back: Option<u64>) -> Option<&'static str> {
    if next.token > before.token {
        return None;
    }
    if before.client == next.client && before.got < next.asked && next.how != How::Adopt {
        return Some("its own client had seen that");
    }
    if before.epoch == next.epoch {
        let fought = before.got >= before.to() || next.got >= next.to();
        return match () {
            () if next.token == before.token => Some("in one life of the store"),
            // What was over before it was in hand has no place in the order.
            () if fought => None,
            () => Some("in one life of the store"),
        };
    }
    let ahead = 300 * MS + 4 * record.plan.delay;
    let promised =
        back.is_none_or(|back| back > next.got) && next.asked > before.got + ahead && before.got < before.to();
    promised.then_some("the store's clock had gone on")
}
