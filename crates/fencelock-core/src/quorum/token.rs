//! From a majority of grants to one token that stands on a majority (SAFETY T4).
use super::{
    attempt::{Attempt, End},
    ballot::{Settled, settle},
    gather::Gather,
    nodes::Shared,
    say,
};
use crate::{
    error::{Error, ErrorKind, Result},
    types::{Grant, Lease, Outcome, Token},
};
use tokio::time::{Instant, sleep};

/// How often a token is written anew, each time further above the nodes' clocks.
const WRITES: u32 = 4;

impl Attempt<'_> {
    /// From a majority of grants to one token and one time. `None`: some of them are lost meanwhile.
    pub(super) async fn win(&mut self) -> Result<Option<Outcome>> {
        let token = match self.token().await? {
            Ok(token) => token,
            Err(End::Stopped) => return self.stopped().await.map(Some),
            Err(End::Over) => return Ok(Some(Outcome::Displaced)),
            Err(End::Won | End::Lost) => return Ok(None),
        };
        let Some(standing) = self.entry.hold(self.shared.need(), token) else { return Ok(None) };
        let (name, claim, ttl) = (self.request.name().clone(), self.request.claim(), self.request.ttl());
        let lease = Lease::Own { sent_at: standing.sent_at };
        let (hold, token, server_micros) = (self.request.hold(), standing.token, standing.server_micros);
        Ok(Some(Outcome::Granted(Grant { name, claim, hold, token, ttl, lease, server_micros, place: None })))
    }
    async fn token(&mut self) -> Result<Result<Token, End>> {
        // A number does not order those who hold beside each other: any that tells them apart will do.
        if !self.request.claim().is_exclusive() {
            return Ok(say::commonest(self.entry.tokens()).and_then(Token::new).ok_or(End::Lost));
        }
        for write in 0..=WRITES {
            let clock = self.shared.proposal().unwrap_or(0) + (i64::from((1 << (2 * write)) - 1)) * 100_000;
            match settle(self.shared.nodes.len(), &self.entry.tokens(), clock) {
                Settled::On(token) => return Ok(Token::new(token).ok_or(End::Lost)),
                Settled::Lost => return Ok(Err(End::Lost)),
                Settled::Write(token) if write < WRITES => {
                    if let Err(end) = self.write(token).await {
                        return Ok(Err(end));
                    }
                }
                Settled::Write(_) => {}
            }
        }
        let apart = Error::new(ErrorKind::Unreachable, "lock", "the nodes agree on no token");
        Err(apart.with("name", self.request.name()).hint("their clocks must not be a day apart"))
    }
    /// Writes a token where our hold still is, until a majority has it. The hold passes to itself, under another id: the one step of
    /// an engine that compares the owner and gives a fresh token (SAFETY A5, T4).
    async fn write(&mut self, token: i64) -> Result<(), End> {
        let n = self.entry.next().ok_or(End::Over)?;
        let (floor, mut gather, mut asked) = (Token::new(token - 1), Gather::default(), Vec::new());
        for (node, piece) in self.entry.pieces() {
            if piece.grant.token.get() == token {
                continue;
            }
            let next = self.entry.ask(node, n, false, floor).ok_or(End::Over)?;
            let Some(piece) = self.entry.moving(node) else { continue };
            let (engine, part) = (self.shared.nodes[node].engine.clone(), next.clone());
            let grant = piece.grant.clone();
            gather.ask(node, async move { engine.exchange(&grant, &part).await });
            asked.push((node, piece.request, next));
        }
        let mut late = std::pin::pin!(sleep(self.limit()));
        let (entry, need) = (self.entry.clone(), self.shared.need());
        let settled = || entry.tokens().iter().filter(|given| **given == token).count() >= need;
        let (began, mut decided) = (self.shared.now(), false);
        while !gather.is_empty() {
            // As with the first question: what comes a moment later is waited for, and not taken back.
            if settled() && !decided {
                decided = true;
                let took = began.until(self.shared.now());
                late.as_mut().reset(Instant::now() + Shared::moment(took));
            }
            if decided && !self.shared.worth(&gather, None) {
                break;
            }
            tokio::select! {
                biased;
                () = self.request.stopped() => return Err(End::Stopped),
                answers = gather.some(|| false) => for (node, answer) in answers {
                    let Some((_, old, next)) = asked.iter().find(|(of, ..)| *of == node) else { continue };
                    match answer {
                        Ok(Outcome::Granted(grant)) => {
                            self.shared.saw(node, &grant);
                            self.entry.closed(node, old.hold());
                            if !self.entry.granted(node, next, &grant) {
                                self.leave(node, next);
                            }
                        }
                        // It is not there, and nothing was made.
                        Ok(Outcome::Busy(_)) if !next.is_stopped() => {
                            self.entry.closed(node, old.hold());
                            self.entry.closed(node, next.hold());
                        }
                        _ => {
                            self.leave(node, old);
                            self.leave(node, next);
                        }
                    }
                },
                () = &mut late => {
                    self.shared.too_late(&gather);
                    break;
                }
            }
        }
        // Nobody knows under which of the two it is there, if at all: it does not count, and goes.
        for (node, _) in gather.rest() {
            for (_, old, next) in asked.iter().filter(|(of, ..)| *of == node) {
                self.leave(node, old);
                self.leave(node, next);
            }
        }
        Ok(())
    }
}
