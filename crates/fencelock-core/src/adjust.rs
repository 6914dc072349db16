//! What is changed of a hold while somebody has it: when it ends, and what it claims.
use crate::{
    client::Core,
    error::{Error, ErrorKind, Result},
    hold::{Hold, Life},
    keeper::Keeper,
    observe,
    pauses::Pauses,
    types::{Grant, LossReason, Outcome, Renewed},
};
use std::time::Duration;

pub(crate) fn lost_error(hold: &Hold, operation: &'static str) -> Error {
    let why = match hold.life() {
        Life::Lost(reason) => reason,
        // The clock says so, and the timer has not run yet.
        _ => LossReason::Expired,
    };
    lost_by(why, hold, operation)
}
fn lost_by(why: LossReason, hold: &Hold, operation: &'static str) -> Error {
    Error::new(ErrorKind::Lost, operation, format!("the lock is lost: {why}"))
        .with("name", &hold.grant.name)
        .hint("stop what it protected; writes that carry the token are refused where they are fenced")
}
pub(crate) async fn extend(core: &Core, hold: &Hold, d: Duration) -> Result<()> {
    let can = &core.engine().info().capabilities;
    let refuse = |what: String, way_out: &str| {
        Err(Error::new(ErrorKind::InvalidConfig, "extend", what).with("name", &hold.grant.name).hint(way_out))
    };
    if !hold.fixed {
        return refuse("it is renewed by itself".into(), "only a lease of a fixed length is extended: .lease(d)");
    }
    if d < can.min_ttl || d > can.max_ttl {
        let range = format!("give {:?} to {:?}", can.min_ttl, can.max_ttl);
        return refuse(format!("{d:?} cannot be used"), &range);
    }
    renew_once(core, hold, d, "extend").await
}
/// One renewal by `ttl`, asked until it is answered or the validity ends.
pub(crate) async fn renew_once(core: &Core, hold: &Hold, ttl: Duration, operation: &'static str) -> Result<()> {
    let grant = [Grant { ttl, ..hold.grant_now().into_owned() }];
    let (keeper, mut pauses) = (core.keeper(), Pauses::short());
    loop {
        if !hold.is_valid() {
            return Err(lost_error(hold, operation));
        }
        let span = observe::renewal(keeper, hold);
        hold.extends(ttl);
        let renew = observe::timed(keeper, "renew", core.engine().renew(&grant));
        let renew = observe::Within::new(span.clone(), renew);
        let answers = tokio::select! {
            biased;
            answers = renew => answers,
            () = hold.until(|life| life.is_over().then_some(())) => return Err(lost_error(hold, operation)),
        };
        let answer = answers.map(|answers| answers.first().copied());
        observe::renewed(keeper, Some(&span), answer.as_ref().ok().copied().flatten().unwrap_or(Renewed::Unknown));
        match answer {
            Ok(Some(Renewed::Extended { sent_at })) => {
                let in_time = hold.extend_by(sent_at, ttl, &core.engine().info().capabilities);
                return if in_time { Ok(()) } else { Err(lost_error(hold, operation)) };
            }
            Ok(Some(Renewed::Lost(reason))) => {
                keeper.losses.lose(hold.grant.hold, reason);
                return Err(lost_error(hold, operation));
            }
            Err(e) if !e.is_temporary() => return Err(e),
            Ok(Some(Renewed::Unknown) | None) | Err(_) => tokio::time::sleep(pauses.next()).await,
        }
    }
}
/// The claim becomes `Read` in the engine, under the same hold id and token: asked until it is answered or the hold is lost.
pub(crate) async fn downgrade(keeper: &Keeper, hold: &Hold) -> Result<()> {
    let (next, mut pauses) = (hold.as_reader(), Pauses::short());
    loop {
        if !hold.is_valid() {
            return Err(lost_error(hold, "downgrade"));
        }
        let exchange = observe::timed(keeper, "exchange", keeper.engine.exchange(&hold.grant, &next));
        let outcome = tokio::select! {
            biased;
            outcome = exchange => outcome,
            () = hold.until(|life| life.is_over().then_some(())) => return Err(lost_error(hold, "downgrade")),
        };
        match outcome {
            Ok(Outcome::Granted(_)) => {
                hold.set_downgraded();
                return Ok(());
            }
            Ok(Outcome::Busy(_) | Outcome::Displaced) => {
                // With no guard on it any more it is being given back, or passed on, and that may have come first: no loss.
                if hold.entries() == 0 {
                    return Err(lost_by(LossReason::TakenOver, hold, "downgrade"));
                }
                keeper.losses.lose(hold.grant.hold, LossReason::TakenOver);
                return Err(lost_error(hold, "downgrade"));
            }
            Err(e) if !e.is_temporary() => return Err(e),
            Err(_) => tokio::time::sleep(pauses.next()).await,
        }
    }
}
