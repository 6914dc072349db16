//! `run --reentrant`: a run under the hold of the outer one (SAFETY A4).
//!
//! It acquires nothing and releases nothing. Its job dies with the outer run's: the outer minder ends its whole tree in time,
//! and this one is part of it, or it does not join. An outer run under `--on-loss warn` ends nobody, not even when its own job
//! has ended and the lock is released: what it holds is not joined. It does not rely on that alone. It looks at the hold by
//! itself, tells its own minder the end that it finds, and kills when the hold is gone.

use std::cell::Cell;
use std::env;
use std::fmt;
use std::time::Duration;

use fencelock::url::Url;
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
    place: Option<String>,
    /// All of them, the one directly above too.
    runs: Vec<Above>,
}

/// The hold of a run above, its ttl, and whether that run ends nobody: `HOLD/MS` or `HOLD/MS/warn` in FENCELOCK_OUTER.
pub(crate) struct Above {
    hold: HoldId,
    ttl: Duration,
    pub(crate) warns: bool,
}

impl Above {
    fn parse(run: &str) -> Option<Self> {
        let mut words = run.split('/');
        let (hold, ms) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Self { hold, ttl: Duration::from_millis(ms), warns: words.next() == Some(WARN) })
    }
}

impl fmt::Display for Above {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.hold, self.ttl.as_millis())?;
        if self.warns { write!(f, "/{WARN}") } else { Ok(()) }
    }
}

/// FENCELOCK_ON_LOSS of a hold whose run ends nobody.
pub(crate) const WARN: &str = "warn";

impl Outer {
    pub(crate) fn from_environment() -> Self {
        let word = |key: &str| env::var(key).ok().filter(|value| !value.is_empty());
        let further = word("FENCELOCK_OUTER").unwrap_or_default();
        let (hold, ms, on_loss) = (word("FENCELOCK_HOLD"), word("FENCELOCK_TTL_MS"), word("FENCELOCK_ON_LOSS"));
        let nearest = [hold.clone(), ms, on_loss].into_iter().flatten().collect::<Vec<_>>().join("/");
        let runs = further.split(' ').chain([&*nearest]).filter_map(Above::parse).collect();
        let (name, engine, token) = (word("FENCELOCK_NAME"), word("FENCELOCK_ENGINE"), word("FENCELOCK_TOKEN"));
        Self { name, engine, told_hold: hold.is_some(), token, place: word("ETCD_LOCK_KEY"), runs }
    }

    /// The run above that holds this one, and waits for this process.
    pub(crate) fn holds(&self, holder: &Holder) -> Option<&Above> {
        self.runs.iter().find(|above| above.hold == holder.hold)
    }

    /// What the job of a run with this hold is told of those above.
    pub(crate) fn further(&self, own: HoldId) -> Option<String> {
        let others = self.runs.iter().filter(|above| above.hold != own);
        let others: Vec<String> = others.map(Above::to_string).collect();
        (!others.is_empty()).then(|| others.join(" "))
    }

    /// The hold of the outer run of this name on this engine. `None`: there is no such run.
    pub(crate) async fn find(
        &self,
        client: &Client,
        engine: &str,
        name: &str,
        mode: Mode,
    ) -> Result<Option<Joined>, Failure> {
        if self.runs.is_empty() && !self.told_hold {
            return Ok(None);
        }
        let shown = plain(name);
        let direct = self.name.as_deref() == Some(name) && self.engine.as_deref() == Some(engine);
        let gone = || Failure::new(exit::LOST, format!("the outer run does not hold {shown} any more"));
        // Read before the question is sent: what is left then counts from a later moment.
        let asked = BootClock.now();
        let status = client.inspect(name).await?;
        // The nearest that ends what is below it.
        let holder = |above: &Above| status.holders.iter().find(|holder| holder.hold == above.hold);
        let mut found: Vec<_> = self.runs.iter().rev().filter_map(|above| Some((above, holder(above)?))).collect();
        found.sort_by_key(|(above, _)| above.warns);
        let Some((above, holder)) = found.first().copied() else {
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
        if above.warns {
            let why = format!("cannot join {shown}: the run that holds it has --on-loss warn, and stops nobody");
            return Err(Failure::config(why).hint("give the outer run --on-loss term, or leave --reentrant out"));
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
            place: self.place.clone().filter(|_| self.runs.last().is_some_and(|nearest| nearest.hold == holder.hold)),
            ttl: above.ttl,
            until: Cell::new(until),
            moved: Notify::new(),
        }))
    }
}

/// What a job is told of the engine behind this URL, for people, and for the check above: never with a secret.
pub(crate) fn engine(info: &EngineInfo, url: &str) -> String {
    match &info.url {
        Some(known) => known.to_string(),
        None => match Url::parse(url).ok().and_then(|mut url| url.take("namespace")) {
            Some(namespace) => super::with(&info.endpoint, "namespace", &namespace),
            None => info.endpoint.to_string(),
        },
    }
}

/// The hold of the outer run, as seen from below.
pub(crate) struct Joined {
    client: Client,
    name: String,
    pub(crate) hold: HoldId,
    /// Only where the job may use it as a fence.
    pub(crate) token: Option<String>,
    /// The engine's own name of the record, where the run directly above was told it: that of another hold is none of ours.
    pub(crate) place: Option<String>,
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
