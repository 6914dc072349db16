//! `run --reentrant`: a run under the hold of the outer one (SAFETY A4).
//!
//! It acquires nothing and releases nothing. Its job dies with the outer run's: the outer minder ends its whole tree in time,
//! and this one is part of it, or it does not join. It does not rely on that alone. It looks at the hold by itself, tells its
//! own minder the end that it finds, and kills when the hold is gone: an outer run under `--on-loss warn` kills nobody.

use std::cell::Cell;
use std::env;
use std::time::Duration;

use fencelock::{BootClock, Client, Clock, EngineInfo, HoldId, Holder, Identity, LossReason, Moment};
use tokio::sync::Notify;

use crate::exit::{self, Failure};
use crate::mode::Mode;
use crate::render::plain;
use crate::supervise::{self, Later, Tenure};

/// The runs that this process is below, as they have told it.
pub(crate) struct Outer {
    name: Option<String>,
    engine: Option<String>,
    told_hold: bool,
    token: Option<String>,
    /// All of them, the one directly above too.
    runs: Vec<Above>,
}

/// The hold of a run above, and its ttl: `HOLD/MS` in FENCELOCK_OUTER.
struct Above {
    hold: HoldId,
    ttl: Duration,
}

impl Above {
    fn parse(hold: &str, ms: &str) -> Option<Self> {
        Some(Self { hold: hold.parse().ok()?, ttl: Duration::from_millis(ms.parse().ok()?) })
    }
}

impl Outer {
    pub(crate) fn from_environment() -> Self {
        let word = |key: &str| env::var(key).ok().filter(|value| !value.is_empty());
        let further = word("FENCELOCK_OUTER").unwrap_or_default();
        let mut runs: Vec<Above> = further
            .split(' ')
            .filter_map(|run| run.split_once('/'))
            .filter_map(|(h, ms)| Above::parse(h, ms))
            .collect();
        let (hold, ms) = (word("FENCELOCK_HOLD"), word("FENCELOCK_TTL_MS"));
        runs.extend(hold.as_deref().zip(ms.as_deref()).and_then(|(hold, ms)| Above::parse(hold, ms)));
        let (name, engine, token) = (word("FENCELOCK_NAME"), word("FENCELOCK_ENGINE"), word("FENCELOCK_TOKEN"));
        Self { name, engine, told_hold: hold.is_some(), token, runs }
    }

    /// This one is held by a run above, which waits for this process.
    pub(crate) fn has(&self, holder: &Holder) -> bool {
        self.runs.iter().any(|above| above.hold == holder.hold)
    }

    /// What the job of a run with this hold is told of those above.
    pub(crate) fn further(&self, own: HoldId) -> Option<String> {
        let others = self.runs.iter().filter(|above| above.hold != own);
        let others: Vec<String> = others.map(|run| format!("{}/{}", run.hold, run.ttl.as_millis())).collect();
        (!others.is_empty()).then(|| others.join(" "))
    }

    /// The hold of the outer run of this name on this engine. `None`: there is no such run.
    pub(crate) async fn find(&self, client: &Client, name: &str, mode: Mode) -> Result<Option<Joined>, Failure> {
        if self.runs.is_empty() && !self.told_hold {
            return Ok(None);
        }
        let shown = plain(name);
        let direct = self.name.as_deref() == Some(name) && self.engine.as_deref() == Some(&*engine(client.info()));
        let gone = || Failure::new(exit::LOST, format!("the outer run does not hold {shown} any more"));
        // Read before the question is sent: what is left then counts from a later moment.
        let asked = BootClock.now();
        let status = client.inspect(name).await?;
        let found =
            self.runs.iter().find_map(|above| Some((above, status.holders.iter().find(|h| h.hold == above.hold)?)));
        let Some((above, holder)) = found else {
            return if direct { Err(gone()) } else { Ok(None) };
        };
        // A reader below a writer has been told no token.
        let token = self.token.as_deref().filter(|_| direct && holder.claim.is_exclusive());
        let until = end(client.info(), asked, holder);
        if token.is_some_and(|token| token != holder.token.get().to_string()) || until <= asked {
            return Err(gone());
        }
        let below = i32::try_from(holder.pid).is_ok_and(supervise::is_below);
        if !below || holder.host != Identity::here().host {
            let (pid, host) = (holder.pid, plain(&holder.host));
            let who =
                format!("cannot join {shown}: this process is not below the run that holds it, pid {pid} on {host}");
            return Err(Failure::config(who).hint("it would outlive that run: leave --reentrant out"));
        }
        mode.within(holder.claim).map_err(|why| {
            let hint = "let the outer run hold what the inner one needs, or use two names";
            Failure::config(format!("cannot join {shown}: {why}")).hint(hint)
        })?;
        Ok(Some(Joined {
            client: client.clone(),
            name: name.to_owned(),
            hold: holder.hold,
            token: mode.claim().is_exclusive().then(|| holder.token.get().to_string()),
            ttl: above.ttl,
            until: Cell::new(until),
            moved: Notify::new(),
        }))
    }
}

/// What a job is told, for people, and for the check above: never with a secret.
pub(crate) fn engine(info: &EngineInfo) -> String {
    info.url.as_ref().unwrap_or(&info.endpoint).to_string()
}

/// The hold of the outer run, as seen from below.
pub(crate) struct Joined {
    client: Client,
    name: String,
    pub(crate) hold: HoldId,
    /// Only where the job may use it as a fence.
    pub(crate) token: Option<String>,
    pub(crate) ttl: Duration,
    until: Cell<Moment>,
    moved: Notify,
}

impl Joined {
    /// Looks at the hold until it is gone. An engine that does not answer tells nothing: then the end that is known counts.
    async fn watch(&self) -> LossReason {
        // Before the lease has less left than the grace, which begins at a third of it; renewals come every third.
        let every = (self.ttl / 10).clamp(Duration::from_millis(20), Duration::from_secs(2));
        loop {
            tokio::time::sleep(every).await;
            let asked = BootClock.now();
            let Ok(status) = self.client.inspect(&self.name).await else { continue };
            match status.holders.iter().find(|holder| holder.hold == self.hold) {
                Some(holder) => {
                    self.until.set(end(self.client.info(), asked, holder));
                    self.moved.notify_waiters();
                }
                None => return LossReason::TakenOver,
            }
        }
    }
}

impl Tenure for Joined {
    fn valid_until(&self) -> Moment {
        self.until.get()
    }
    fn lost(&self) -> Later<'_, LossReason> {
        Box::pin(self.watch())
    }
    fn renewed(&self) -> Later<'_, ()> {
        Box::pin(self.moved.notified())
    }
}

/// The end of its lease, no later than the engine's, whose clock may run faster than ours (SAFETY G3).
fn end(info: &EngineInfo, asked: Moment, holder: &Holder) -> Moment {
    asked + holder.left.saturating_sub(holder.left.mul_f64(info.capabilities.drift))
}
