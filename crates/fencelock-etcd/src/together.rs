//! Several claims in one transaction (SAFETY E1).
use crate::{
    claims::KINDS,
    error::Fault,
    leases::Place,
    link::Conn,
    shared::Shared,
    wire::txn::{choose, first_under, modified, none_under},
};
use fencelock_core::{Busy, Claim};
use std::collections::BTreeMap;

/// So many comparisons, or steps, a member takes in one transaction unless it is told otherwise.
const MOST: usize = 128;

/// What became of them.
pub(crate) enum All {
    /// All hold.
    Granted { token: i64 },
    /// Somebody is in the way of the n-th; nothing was written.
    Busy(usize, Busy),
    /// Too many of them, or one of which only its own claim can say what is wrong; nothing was written.
    Apart,
}

impl Shared {
    /// One call: all of these, of which none has been asked for before, or none. Permits depend on sizes and on what others take:
    /// they are asked for alone.
    ///
    /// *Invariant (SAFETY A2):* it writes only while the epochs of all their leases are what they were, so whoever takes one of the
    /// attempts back, and changes its epoch, has ended what is still on its way for all of them.
    pub(crate) async fn enter_all(&self, conn: &Conn, places: &[Place]) -> Result<All, Fault> {
        let epochs: BTreeMap<_, _> = places.iter().map(|place| (place.lease.id, place.lease.epoch)).collect();
        let mut asks: Vec<_> = epochs.into_iter().map(|(id, epoch)| modified(&self.keys.epoch(id), epoch)).collect();
        let (mut writes, mut looks) = (Vec::new(), Vec::new());
        for place in places {
            if let Claim::Permits { .. } = place.claim {
                return Ok(All::Apart);
            }
            // A mutex's own key, and a writer's, is among those that must not be there; another reader's is of another hold id.
            asks.push(none_under(&place.spot.before));
            let others = KINDS.into_iter().filter(|kind| *kind != place.claim.kind());
            asks.extend(others.map(|kind| none_under(&self.keys.room(kind, &place.name))));
            writes.extend(place.written(true));
            looks.extend([first_under(&place.spot.before), first_under(&self.keys.whos(&place.name))]);
        }
        if asks.len().max(writes.len()) > MOST {
            return Ok(All::Apart);
        }
        for place in places {
            self.asks(place, true);
        }
        let answer = match self.link.txn(conn, choose(asks, writes, looks)).await {
            // A member that takes fewer.
            Err(fault) if fault.is_too_many() => return Ok(All::Apart),
            answer => answer?,
        };
        for place in places {
            self.asks(place, false);
        }
        let token = answer.revision();
        if answer.succeeded {
            places.iter().for_each(|place| self.made(place.hold, token));
            return Ok(All::Granted { token });
        }
        for n in 0..places.len() {
            let (first, who) =
                (answer.ranged(2 * n).ok_or(Fault::Answer)?, answer.one(2 * n + 1).ok_or(Fault::Answer)?);
            if first.count > 0 {
                let ahead = u32::try_from(first.count - 1).ok();
                return Ok(All::Busy(n, Busy::new(self.holder_of(first.keys.first(), who), ahead)));
            }
        }
        Ok(All::Apart)
    }
}
