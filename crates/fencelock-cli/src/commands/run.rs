//! `fencelock run`: get the lock, run the job under it, give it back.

use std::error::Error as _;
use std::ffi::OsString;
use std::future::ready;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use fencelock::{Client, ErrorKind, HoldId, LossReason};
use signal_hook::consts::signal::SIGINT;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;

use super::Finish;
use super::join::{self, Joined, Outer};
use super::own::{Own, Waiting, asked_to_end, ended_by, kept, unless_ended};
use crate::args::{Common, OnLoss, Run};
use crate::exit::{self, Failure};
use crate::mode;
use crate::render::{self, complain, plain};
use crate::supervise::signals::{self, Caught};
use crate::supervise::{self, End, Outcome, Plan, Reason, Tenure};

/// How long the end of `run` may take over what it could not release at once.
const FAREWELL: Duration = Duration::from_secs(2);

pub(crate) fn main(common: &Common, args: Run) -> Result<Finish, Failure> {
    render::detach()?;
    if !supervise::sees_processes() {
        return Err(Failure::config("/proc is not that of this process: what a job leaves behind could not be seen")
            .hint("mount it anew with the namespace of processes: unshare --mount-proc, or mount -t proc proc /proc"));
    }
    let url = super::url(common)?;
    let mut signals = signals::catch()?;
    super::runtime()?.block_on(async {
        let client = match unless_ended(super::connect(common, &url), &mut signals).await {
            Ok(client) => client?,
            Err(caught) => return Ok(ended_by(caught)),
        };
        let outer = Outer::from_environment();
        let mut run =
            Running { common, args, url: &url, client: &client, outer, cut_short: None, left: None, own_code: false };
        let finish = run.go(&mut signals).await;
        // What was dropped instead of released, a place in the queue too, is given back before the process ends.
        let farewell = client.shutdown(FAREWELL).await;
        // From here on a signal ends this process, whatever is left to be said. Of one that came before, too, nobody waits for that.
        signals.close();
        let mut late = std::iter::from_fn(|| signals.try_recv().ok());
        if run.cut_short.is_some() || late.any(Caught::asks_to_end) {
            render::hurry();
        }
        match (farewell, run.cut_short) {
            (Err(e), Some(caught)) => {
                run.unconfirmed(&plain(&e.to_string()));
                if run.own_code { Ok(ended_by(caught)) } else { finish }
            }
            (Err(e), None) if common.verbose => {
                complain(&plain(&e.to_string()));
                finish
            }
            _ => finish,
        }
    })
}

struct Running<'a> {
    common: &'a Common,
    args: Run,
    url: &'a str,
    client: &'a Client,
    outer: Outer,
    /// The signal that ended the wait for an answer to the release.
    cut_short: Option<Caught>,
    /// The signal that ended the wait for the end of `--at-least`.
    left: Option<Caught>,
    /// The job has ended by itself.
    own_code: bool,
}

/// What the job is told about its hold.
struct Told {
    hold: HoldId,
    token: Option<String>,
    /// The engine's own name of the record.
    place: Option<String>,
    ttl: Duration,
    /// The run that holds it stops nobody.
    warns: bool,
}

impl Running<'_> {
    async fn go(&mut self, signals: &mut UnboundedReceiver<Caught>) -> Result<Finish, Failure> {
        if self.args.reentrant {
            let engine = join::engine(self.client.info(), self.url);
            let found = self.outer.find(self.client, &engine, &self.args.wanted.name, self.args.wanted.mode());
            match unless_ended(found, signals).await {
                Err(caught) => return Ok(ended_by(caught)),
                Ok(Err(failure)) => return Err(failure),
                Ok(Ok(Some(joined))) => return self.below(joined, signals).await,
                Ok(Ok(None)) => {}
            }
        }
        let ttl = self.common.ttl.unwrap_or_else(|| self.client.ttl());
        let grace = grace(self.args.grace, ttl)?;
        if let (Some(least), Some(most)) = (self.args.wanted.at_least, self.args.max_hold)
            && least > most
        {
            let longer = format!("--at-least {least:?} is longer than --max-hold {most:?}");
            return Err(Failure::config(longer).hint("a job that is stopped gives its lock back"));
        }
        let note = self.args.wanted.note.clone().unwrap_or_else(|| default_note(&self.args.command));
        let wanted = &self.args.wanted;
        let mut waiting = Waiting { wanted, outer: &self.outer, signals, ttl, note, may_join: true };
        let own = match waiting.acquire(self.client).await {
            Err(caught) => return Ok(ended_by(caught)),
            Ok(Err(e)) => return Err(wanted.refused(self.client, e).await),
            Ok(Ok(Err(busy))) => {
                let hint = waiting.for_itself(&busy);
                return Ok(wanted.not_got(&busy, hint, self.common.verbose));
            }
            Ok(Ok(Ok(own))) => own,
        };
        let kept_until = wanted.kept_until();
        let told = Told {
            hold: own.id(),
            token: own.token().map(|t| t.get().to_string()),
            place: own.place().map(str::to_owned),
            ttl,
            warns: self.args.on_loss == OnLoss::Warn,
        };
        if self.common.verbose {
            complain(&match &told.token {
                Some(token) => format!("token {token}"),
                None => format!("hold {}", told.hold),
            });
        }
        let outcome = match self.lifeline().and_then(|lifeline| self.plan(told, grace, lifeline)) {
            Ok(plan) => supervise::run(&*own, plan, signals).await.map_err(Failure::from),
            Err(failure) => Err(failure),
        };
        match outcome {
            Ok(outcome) => {
                // A command that could not be started is told at once; the lease runs out by itself.
                let kept_until = kept_until.filter(|_| !matches!(outcome.end, End::NotStarted(_)));
                let loss = self.give_back(own, outcome.lost, kept_until, signals).await;
                self.own_code = outcome.reason.is_none();
                self.settle(loss, &outcome)
            }
            Err(failure) => {
                // Nothing runs, so nothing may stay held.
                self.give_back(own, None, None, signals).await;
                Err(failure)
            }
        }
    }

    /// Under the outer run's hold, which keeps it as long as that one says: nothing is released, and the descriptor that keeps it alive is inherited already.
    async fn below(&mut self, joined: Joined, signals: &mut UnboundedReceiver<Caught>) -> Result<Finish, Failure> {
        if self.common.verbose {
            complain(&format!("joined hold {}", joined.hold));
        }
        let grace = grace(self.args.grace, joined.ttl)?;
        let (token, place) = (joined.token.clone(), joined.place.clone());
        // Whatever this one does on a loss: the run that holds it stops all below it.
        let told = Told { hold: joined.hold, token, place, ttl: joined.ttl, warns: false };
        let plan = self.plan(told, grace, None)?;
        let tenure: &dyn Tenure = &joined;
        let kept_until = self.args.wanted.kept_until();
        let outcome = supervise::run(tenure, plan, signals).await?;
        if kept_until.is_some() && outcome.lost.is_none() {
            // The run that holds it waits for this one.
            self.left = kept(tenure.lost(), kept_until, signals).await.err();
        }
        self.settle(outcome.lost.map(|reason| reason.to_string()), &outcome)
    }

    fn lifeline(&self) -> Result<Option<OwnedFd>, Failure> {
        match self.client.lifeline() {
            Ok(fd) => Ok(Some(fd)),
            // Crashes are noticed by leases alone there.
            Err(e) if e.kind() == ErrorKind::Unsupported => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    fn plan(&mut self, told: Told, grace: Duration, lifeline: Option<OwnedFd>) -> Result<Plan, Failure> {
        let info = self.client.info();
        let known = match &info.url {
            Some(url) => Some(url.to_string()),
            None => self.args.pass_url.then(|| self.url.to_owned()),
        };
        // As `etcdctl lock` tells its command.
        let etcd = told.place.filter(|_| info.scheme.starts_with("etcd"));
        let revision = etcd.as_ref().and(told.token.clone());
        let env = vec![
            ("FENCELOCK_NAME", Some(self.args.wanted.name.clone().into())),
            // Removed where it is none: that of another run, found in the environment, would be taken for ours.
            ("FENCELOCK_TOKEN", told.token.map(OsString::from)),
            ("FENCELOCK_HOLD", Some(told.hold.to_string().into())),
            ("FENCELOCK_ENGINE", Some(join::engine(info, self.url).into())),
            ("FENCELOCK_MODE", Some(mode::word(self.args.wanted.mode().claim()).into())),
            ("FENCELOCK_TTL_MS", Some(told.ttl.as_millis().to_string().into())),
            ("FENCELOCK_ON_LOSS", told.warns.then(|| join::WARN.into())),
            ("FENCELOCK_OUTER", self.outer.further(told.hold).map(OsString::from)),
            ("FENCELOCK_URL", known.map(OsString::from)),
            ("ETCD_LOCK_KEY", etcd.map(OsString::from)),
            ("ETCD_LOCK_REV", revision.map(OsString::from)),
        ];
        let (on_loss, max_hold) = (self.args.on_loss, self.args.max_hold);
        let command = std::mem::take(&mut self.args.command);
        Ok(Plan { command, env, on_loss, grace, max_hold, ttl: told.ttl, lifeline })
    }

    /// Releases, and says why the hold was lost before. A hold that is lost is not ours to release; what dropping it sends
    /// compares hold and token (SAFETY G4).
    async fn give_back(
        &mut self,
        own: Own,
        lost: Option<LossReason>,
        kept_until: Option<Instant>,
        signals: &mut UnboundedReceiver<Caught>,
    ) -> Option<String> {
        if let Some(reason) = lost {
            return Some(reason.to_string());
        }
        if kept_until.is_some() {
            self.left = kept(own.lost(), kept_until, signals).await.err();
            if self.left.is_some() || !own.is_valid() {
                // The job has ended: it lost nothing, and nobody waits for it any more.
                return None;
            }
        }
        let lost = own.lost();
        let released = tokio::select! {
            biased;
            released = own.release() => released,
            // The keeper goes on with it, until the farewell is over.
            caught = asked_to_end(signals) => {
                self.cut_short = Some(caught);
                return None;
            }
        };
        let e = released.err()?;
        let reason = tokio::select! { biased; reason = lost => Some(reason), () = ready(()) => None };
        match (e.kind(), reason) {
            // Nobody answered until its lease was over. The job had ended before: it lost nothing.
            (ErrorKind::Lost, Some(LossReason::Expired | LossReason::Unreachable)) => {
                let last = e.source().map(|last| format!(", at last {last}")).unwrap_or_default();
                self.unconfirmed(&format!("no answer came until its lease was over{}", plain(&last)));
                None
            }
            (ErrorKind::Lost | ErrorKind::NotHeld, _) => Some(plain(&e.to_string())),
            _ => {
                self.unconfirmed(&plain(&e.to_string()));
                None
            }
        }
    }

    fn unconfirmed(&self, why: &str) {
        complain(&format!("{} could not be released: {why}", plain(&self.args.wanted.name)));
    }

    /// The job is gone, all of it, and what was ours is released, or was lost: judges.
    fn settle(&self, lost: Option<String>, outcome: &Outcome) -> Result<Finish, Failure> {
        let name = plain(&self.args.wanted.name);
        let so = if matches!(outcome.end, End::NotStarted(_)) { "was not started" } else { "was stopped" };
        let stopped = match outcome.reason {
            Some(Reason::MaxHold) => Some(format!("{name} was held as long as --max-hold allows: the job {so}")),
            Some(Reason::MinderGone) => Some(format!("the process that minds the job died: the job {so}")),
            Some(Reason::Deadline) => Some(format!("the lease of {name} was about to run out: the job {so}")),
            Some(Reason::Lost | Reason::WrapperGone) => {
                let why = lost.as_deref().unwrap_or("for an unknown reason");
                Some(format!("{name} is lost, {why}: the job {so}"))
            }
            None if self.args.on_loss == OnLoss::Warn => None,
            None => lost.map(|why| format!("{name} was lost before the job had ended: {why}")),
        };
        if let Some(message) = stopped {
            complain(&message);
            return Ok(Finish::Code(exit::LOST));
        }
        if let Some(caught) = self.left.filter(|caught| caught.from_terminal) {
            return Ok(ended_by(caught));
        }
        match outcome.end {
            // After Ctrl-C the shell has to see that we died of it too, or its loop goes on.
            End::Signaled(SIGINT) => Ok(Finish::Signal(SIGINT)),
            End::Signaled(signal) => Ok(Finish::Code(exit::by_signal(signal))),
            End::Exited(code) => Ok(Finish::Code(u8::try_from(code).unwrap_or(exit::BUG))),
            End::NotStarted(error) => Err(std::io::Error::from_raw_os_error(error).into()),
            End::Unknown => Err(Failure::new(exit::BUG, "nobody saw how the job ended")),
        }
    }
}

/// The grace between TERM and KILL: within what is surely left of a lease when renewals stop (SAFETY R2).
fn grace(wanted: Option<Duration>, ttl: Duration) -> Result<Duration, Failure> {
    let limit = ttl / 3;
    match wanted {
        None => Ok(limit.min(Duration::from_secs(5))),
        Some(d) if d <= limit => Ok(d),
        Some(d) => Err(Failure::config(format!("the grace of {d:?} is above a third of the ttl, {limit:?}"))
            .hint("give a shorter --grace or a longer --ttl")),
    }
}

/// The command's file name, never its arguments, which may be secrets.
fn default_note(command: &[OsString]) -> String {
    let program = command.first().map(Path::new).and_then(Path::file_name);
    program.map(|p| p.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Planted: `<` instead of `<=`; the default not capped by the ttl.
    #[test]
    fn grace_stays_within_a_third_of_the_lease() {
        let s = Duration::from_secs;
        assert_eq!(grace(None, s(30)).ok(), Some(s(5)));
        assert_eq!(grace(None, s(3)).ok(), Some(s(1)));
        assert_eq!(grace(Some(s(10)), s(30)).ok(), Some(s(10)));
        let refused = grace(Some(s(11)), s(30)).expect_err("refused");
        assert_eq!(refused.code, exit::CONFIG);
        assert!(refused.to_string().contains("11s") && refused.to_string().contains("10s"));
    }

    // Planted: the whole command line as the note.
    #[test]
    fn the_note_is_the_file_name_only() {
        let command = ["/usr/bin/pg_dump", "--password=x"].map(OsString::from);
        assert_eq!(default_note(&command), "pg_dump");
        assert_eq!(default_note(&["".into()]), "");
    }
}
