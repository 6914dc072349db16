//! `fencelock run`: get the lock, run the job under it, give it back.

use std::ffi::OsString;
use std::future::{Future, pending};
use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

use fencelock::{Acquire, Busy, Client, ErrorKind, Guard};
use signal_hook::consts::signal::{SIGCONT, SIGINT, SIGWINCH};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep_until};

use super::Finish;
use crate::args::{Common, OnLoss, Run};
use crate::exit::{self, Failure};
use crate::render::{self, complain, plain, tell};
use crate::supervise::signals::{self, Caught};
use crate::supervise::{self, End, Outcome, Plan, Reason};

/// How long the end of `run` may take over what it could not release at once.
const FAREWELL: Duration = Duration::from_secs(2);

pub(crate) fn main(common: &Common, args: Run) -> Result<Finish, Failure> {
    let url = super::url(common)?;
    let mut signals = signals::catch()?;
    super::runtime()?.block_on(async {
        let client = match unless_ended(super::connect(common, &url), &mut signals).await {
            Ok(client) => client?,
            Err(caught) => return Ok(ended_by(caught)),
        };
        let finish = run(common, args, &url, &client, &mut signals).await;
        // What was dropped instead of released, a place in the queue too, is given back before the process ends.
        if let Err(e) = client.shutdown(FAREWELL).await
            && common.verbose
        {
            complain(&plain(&e.to_string()));
        }
        finish
    })
}

async fn run(
    common: &Common,
    args: Run,
    url: &str,
    client: &Client,
    signals: &mut UnboundedReceiver<Caught>,
) -> Result<Finish, Failure> {
    let ttl = common.ttl.unwrap_or_else(|| client.ttl());
    let grace = grace(args.grace, ttl)?;
    let note = args.note.clone().unwrap_or_else(|| default_note(&args.command));
    let mutex = client.mutex(&args.name).ttl(ttl).note(note);
    let got = if args.no_wait {
        watched(&args.name, mutex.try_lock(), signals).await
    } else if let Some(patience) = args.wait {
        watched(&args.name, mutex.try_lock_for(patience), signals).await
    } else {
        watched(&args.name, mutex.lock(), signals).await.map(|guard| guard.map(Ok))
    };
    let guard = match got {
        Err(caught) => return Ok(ended_by(caught)),
        Ok(answer) => match answer? {
            Ok(guard) => guard,
            Err(busy) => return Ok(not_got(common, &args, &busy)),
        },
    };
    if common.verbose {
        complain(&format!("token {}", guard.token().get()));
    }
    let outcome = match plan(args, url, client, &guard, ttl, grace) {
        Ok((name, on_loss, plan)) => {
            supervise::run(&guard, plan, signals).await.map_err(Failure::from).map(|o| (name, on_loss, o))
        }
        Err(e) => Err(e),
    };
    match outcome {
        Ok((name, on_loss, outcome)) => settle(&name, on_loss, guard, &outcome).await,
        Err(failure) => {
            // Nothing runs, so nothing may stay held.
            let _ = guard.release().await;
            Err(failure)
        }
    }
}

/// Waits for the lock, says on a terminal who is in the way, and gives up on a signal.
async fn watched<A>(
    name: &str,
    mut acquire: Acquire<A>,
    signals: &mut UnboundedReceiver<Caught>,
) -> Result<fencelock::Result<A>, Caught>
where
    Acquire<A>: Future<Output = fencelock::Result<A>> + Unpin,
{
    let mut next_look = std::io::stderr().is_terminal().then(|| Instant::now() + Duration::from_secs(1));
    loop {
        tokio::select! {
            biased;
            got = &mut acquire => return Ok(got),
            caught = fatal(signals) => return Err(caught),
            () = at(next_look) => {
                next_look = match acquire.blocked_by() {
                    Some(busy) => {
                        tell(&render::waiting(name, &busy));
                        None
                    }
                    None => Some(Instant::now() + Duration::from_secs(1)),
                };
            }
        }
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => pending().await,
    }
}

async fn unless_ended<T>(work: impl Future<Output = T>, signals: &mut UnboundedReceiver<Caught>) -> Result<T, Caught> {
    tokio::select! {
        biased;
        done = work => Ok(done),
        caught = fatal(signals) => Err(caught),
    }
}

/// The next signal that ends a program which has no job yet.
async fn fatal(signals: &mut UnboundedReceiver<Caught>) -> Caught {
    loop {
        match signals.recv().await {
            Some(caught) if matches!(caught.signal, SIGCONT | SIGWINCH) => {}
            Some(caught) => return caught,
            None => pending().await,
        }
    }
}

fn ended_by(caught: Caught) -> Finish {
    // A loop in a script goes on when a command of it only *exits* with 130.
    if caught.signal == SIGINT && caught.from_terminal {
        Finish::Signal(SIGINT)
    } else {
        Finish::Code(exit::by_signal(caught.signal))
    }
}

fn not_got(common: &Common, args: &Run, busy: &Busy) -> Finish {
    if !args.skip_ok || common.verbose {
        complain(&format!("{} was not got: {}", plain(&args.name), render::in_the_way(busy)));
    }
    Finish::Code(if args.skip_ok { exit::OK } else { args.busy_exit_code })
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

fn plan(
    args: Run,
    url: &str,
    client: &Client,
    guard: &Guard,
    ttl: Duration,
    grace: Duration,
) -> Result<(String, OnLoss, Plan), Failure> {
    let info = client.info();
    let lifeline = match client.lifeline() {
        Ok(fd) => Some(fd),
        // Crashes are noticed by leases alone there.
        Err(e) if e.kind() == ErrorKind::Unsupported => None,
        Err(e) => return Err(e.into()),
    };
    let known = match &info.url {
        Some(url) => Some(url.to_string()),
        None => args.pass_url.then(|| url.to_owned()),
    };
    let env = vec![
        ("FENCELOCK_NAME", Some(args.name.clone().into())),
        ("FENCELOCK_TOKEN", Some(guard.token().get().to_string().into())),
        ("FENCELOCK_HOLD", Some(guard.id().to_string().into())),
        // For people, and for the check that a nested run makes: never with a secret.
        ("FENCELOCK_ENGINE", Some(info.url.as_ref().unwrap_or(&info.endpoint).to_string().into())),
        ("FENCELOCK_MODE", Some("mutex".into())),
        ("FENCELOCK_TTL_MS", Some(ttl.as_millis().to_string().into())),
        ("FENCELOCK_URL", known.map(OsString::from)),
    ];
    let (on_loss, max_hold) = (args.on_loss, args.max_hold);
    let plan = Plan { command: args.command, env, on_loss, grace, max_hold, ttl, lifeline };
    Ok((args.name, on_loss, plan))
}

/// The job is gone, all of it: releases, and judges.
async fn settle(name: &str, on_loss: OnLoss, guard: Guard, outcome: &Outcome) -> Result<Finish, Failure> {
    let name = plain(name);
    // A hold that is lost is not ours to release; what dropping it sends compares hold and token (SAFETY G4).
    let released = if outcome.lost.is_some() {
        drop(guard);
        Ok(())
    } else {
        guard.release().await
    };
    let lost = match (&released, outcome.lost) {
        (_, Some(reason)) => Some(reason.to_string()),
        (Err(e), None) if matches!(e.kind(), ErrorKind::Lost | ErrorKind::NotHeld) => Some(plain(&e.to_string())),
        (Err(e), None) => {
            complain(&format!("{name} could not be released: {}", plain(&e.to_string())));
            None
        }
        (Ok(()), None) => None,
    };
    let stopped = match outcome.reason {
        Some(Reason::MaxHold) => Some(format!("{name} was held as long as --max-hold allows: the job was stopped")),
        Some(Reason::MinderGone) => Some("the process that minds the job died: the job was stopped".to_owned()),
        Some(Reason::Deadline) => Some(format!("the lease of {name} was about to run out: the job was stopped")),
        Some(Reason::Lost | Reason::WrapperGone) => {
            let why = lost.as_deref().unwrap_or("for an unknown reason");
            Some(format!("{name} is lost, {why}: the job was stopped"))
        }
        None if on_loss == OnLoss::Warn => None,
        None => lost.map(|why| format!("{name} was lost before the job had ended: {why}")),
    };
    if let Some(message) = stopped {
        complain(&message);
        return Ok(Finish::Code(exit::LOST));
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
