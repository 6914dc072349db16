//! With a guard in hand: writing, looking, extending, entering again, and every way to let go.
use super::{Errand, Grip, Later, Worker};
use crate::{
    clock::{MS, Nanos, SEC},
    history::{Fault, How, Part, Terms, Way, What},
    nemesis::Nemesis,
    plan::{between, chance},
    world::{duration, sleep},
};
use fencelock_core::{Claim, LossReason};

/// How the work on a hold came to its end.
enum End {
    Done,
    Lost,
}

impl Worker {
    /// Works for as long as the errand says, or until it is lost; then lets go.
    pub(super) async fn hold(&mut self, grip: Grip, part: Part, errand: &Errand) {
        self.strike(errand.terms.ttl);
        let mut lost: Later<LossReason> = Box::pin(grip.lost());
        let entered = if errand.owned && self.rng.u8(0..3) > 0 { self.enter_again(&grip, errand).await } else { None };
        match self.work_on(&grip, part, errand, &mut lost, errand.hold).await {
            End::Lost => self.after_loss(grip, part, errand).await,
            End::Done => self.let_go(grip, part, errand).await,
        }
        if let Some((grip, part)) = entered {
            let mut lost: Later<LossReason> = Box::pin(grip.lost());
            let rest = self.some(self.shared.plan.hold / 2);
            match self.work_on(&grip, part, errand, &mut lost, rest).await {
                End::Lost => self.drop(grip, part),
                End::Done => self.release(grip, part).await,
            }
        }
    }
    fn drop(&self, grip: Grip, part: Part) {
        drop(grip);
        self.log(What::Gone { part });
    }
    /// Now and then trouble comes to a holder, at some moment of its hold.
    fn strike(&mut self, ttl: Nanos) {
        if !chance(&mut self.rng, self.shared.plan.strikes) {
            return;
        }
        let fault = match self.rng.u8(0..10) {
            0..5 => Fault::Pause,
            5 | 6 => Fault::Cut,
            _ => Fault::Deaf,
        };
        let after =
            if self.rng.bool() { between(&mut self.rng, 0, ttl / 4) } else { between(&mut self.rng, 0, 4 * SEC) };
        let d = between(&mut self.rng, ttl / 4, ttl * 5 / 2);
        let (shared, who) = (self.shared.clone(), self.process.id);
        drop(tokio::spawn(async move {
            sleep(after).await;
            Nemesis::strike(&shared, fault, who, d);
        }));
    }
    async fn work_on(
        &mut self,
        grip: &Grip,
        part: Part,
        errand: &Errand,
        lost: &mut Later<LossReason>,
        d: Nanos,
    ) -> End {
        let end = self.shared.history.now() + d;
        loop {
            let rest = end.saturating_sub(self.shared.history.now());
            if rest == 0 {
                return End::Done;
            }
            let step = between(&mut self.rng, 200 * MS, 6 * SEC).min(rest);
            tokio::select! {
                biased;
                _ = &mut *lost => return self.stop(grip, part),
                () = sleep(step) => {}
            }
            if !self.touch(grip, part, errand.name) {
                if tokio::time::timeout(duration(SEC), &mut *lost).await.is_err() {
                    self.log(What::Untold { part });
                }
                return self.stop(grip, part);
            }
            if errand.terms.fixed && self.rng.u8(0..4) == 0 {
                let d = between(&mut self.rng, errand.terms.ttl / 2, errand.terms.longest()).max(SEC / 10);
                let ok = grip.extend(duration(d)).await.is_ok();
                self.log(What::Extended { part, ok });
            }
        }
    }
    /// Right before what cannot be fenced it looks; and it writes with its token. False: it is lost.
    fn touch(&self, grip: &Grip, part: Part, name: u8) -> bool {
        if !grip.is_valid() {
            if let Some(token) = grip.token() {
                let accepted = self.write(name, token, grip.id());
                self.log(What::Blind { part, accepted });
            }
            return false;
        }
        if let Some(token) = grip.token() {
            let accepted = self.write(name, token, grip.id());
            self.log(What::Wrote { part, accepted });
        }
        true
    }
    fn stop(&self, grip: &Grip, part: Part) -> End {
        self.log(What::Stops { part, valid: self.valid(grip) });
        End::Lost
    }
    /// Another guard of the same owner: the same hold, or, where the first one reads and this one would write, a refusal.
    async fn enter_again(&mut self, grip: &Grip, errand: &Errand) -> Option<(Grip, Part)> {
        let claim = match errand.claim {
            Claim::Write if self.rng.bool() => Claim::Read,
            claim => claim,
        };
        let again = Errand { claim, how: How::Again, owned: true, gives_up: None, ..errand.clone() };
        let (inner, part) = self.ask(&again).await?;
        if inner.id() == grip.id() {
            self.log(What::Entries { part, are: inner.entries(), should: 2 });
        }
        Some((inner, part))
    }
    /// What a program does that hears of its loss: it stops, a bit later than it should; a hung one much later.
    async fn after_loss(&mut self, grip: Grip, old: Part, errand: &Errand) {
        if self.rng.bool() {
            let hangs = between(&mut self.rng, 0, 2 * errand.terms.ttl).min(60 * SEC);
            sleep(hangs).await;
            if grip.is_valid() {
                self.log(What::Revived { part: old });
            }
            if let Some(token) = grip.token() {
                let accepted = self.write(errand.name, token, grip.id());
                self.log(What::Blind { part: old, accepted });
            }
        }
        if errand.owned && self.rng.bool() {
            // The old guard is still there: it must not be entered.
            let terms = Terms { at_least: 0, max_hold: None, ..errand.terms };
            let again = Errand { how: How::Again, owned: true, gives_up: Some(3 * SEC), terms, ..errand.clone() };
            if let Some((inner, part)) = self.ask(&again).await {
                self.drop(grip, old);
                return self.release(inner, part).await;
            }
        }
        if self.rng.bool() {
            let answer = grip.release().await.err().map(|error| error.kind());
            self.log(What::Left { part: old, answer });
            self.log(What::Gone { part: old });
        } else {
            self.drop(grip, old);
        }
    }
    async fn let_go(&mut self, grip: Grip, part: Part, errand: &Errand) {
        let can_leave = !self.process.node.session && !errand.terms.fixed && !errand.owned;
        match (grip, self.rng.u8(0..10)) {
            (Grip::One(guard), 0..4) if errand.claim == Claim::Write && !errand.owned => {
                let valid = self.valid(&guard);
                self.log(What::Leaves { part, valid, way: Way::Downgrade });
                let answer = guard.downgrade().await;
                self.log(What::Left { part, answer: answer.as_ref().err().map(fencelock_core::Error::kind) });
                let Ok(reader) = answer else { return };
                let grip = Grip::Shared(reader);
                let part = self.have(self.number(), errand.name, &grip, 0, errand.terms);
                let mut lost: Later<LossReason> = Box::pin(grip.lost());
                let more = self.some(self.shared.plan.hold);
                match self.work_on(&grip, part, errand, &mut lost, more).await {
                    End::Lost => self.drop(grip, part),
                    End::Done => self.release(grip, part).await,
                }
            }
            (grip, 4) if can_leave => self.leave_ticket(grip, part, errand).await,
            (grip, _) => self.release(grip, part).await,
        }
    }
    async fn leave_ticket(&mut self, grip: Grip, part: Part, errand: &Errand) {
        let valid = self.valid(&grip);
        self.log(What::Leaves { part, valid, way: Way::Ticket });
        let ticket = match grip {
            Grip::One(guard) => guard.into_ticket().await,
            Grip::Shared(guard) => guard.into_ticket().await,
            Grip::Term(term) => return drop(term),
        };
        self.log(What::Left { part, answer: ticket.as_ref().err().map(fencelock_core::Error::kind) });
        if let Ok(ticket) = ticket {
            let mut tickets = self.shared.tickets();
            tickets.push((errand.name, ticket));
            if tickets.len() > 4 {
                drop(tickets.remove(0));
            }
        }
    }
    async fn release(&mut self, grip: Grip, part: Part) {
        let valid = self.valid(&grip);
        let way = if self.rng.u8(0..3) == 0 { Way::Drop } else { Way::Release };
        self.log(What::Leaves { part, valid, way });
        if way == Way::Drop {
            return drop(grip);
        }
        let answer = grip.release().await.err().map(|error| error.kind());
        self.log(What::Left { part, answer });
    }
}
