//! `fencelock hold`: no job; it is held for as long as standard input, or nobody's signal, ends it.

use std::io;
use std::time::Duration;

use fencelock::{Client, LossReason};
use rustix::fs::{FileType, fstat, major, minor};
use rustix::process::getpgrp;
use rustix::stdio::stdin;
use rustix::termios::{isatty, tcgetpgrp};
use serde::Serialize;
use signal_hook::consts::signal::{SIGUSR1, SIGUSR2};
use tokio::sync::{mpsc::UnboundedReceiver, oneshot};

use super::Finish;
use super::join::Outer;
use super::own::{Own, Waiting, ended_by, fatal, kept, unless_ended};
use crate::args::{Common, Hold};
use crate::exit::{self, Failure};
use crate::mode;
use crate::render::{self, complain, plain};
use crate::supervise::signals::{self, Caught};

/// How long the end may take over what could not be given back at once.
const FAREWELL: Duration = Duration::from_secs(2);

pub(crate) fn main(common: &Common, args: &Hold) -> Result<Finish, Failure> {
    render::detach()?;
    let url = super::url(common)?;
    let mut signals = signals::catch()?;
    super::runtime()?.block_on(async {
        let client = match unless_ended(super::connect(common, &url), &mut signals).await {
            Ok(client) => client?,
            Err(caught) => return Ok(ended_by(caught)),
        };
        let finish = hold(common, args, &client, &mut signals).await;
        let farewell = client.shutdown(FAREWELL).await;
        signals.close();
        if let (Err(e), true) = (farewell, common.verbose) {
            complain(&plain(&e.to_string()));
        }
        finish
    })
}

/// What is said when it is held.
#[derive(Serialize)]
struct Line<'a> {
    name: &'a str,
    engine: &'a str,
    layout: &'a str,
    hold: String,
    mode: &'static str,
    /// For fenced writes: a hold that has others beside it has none.
    token: Option<i64>,
    ttl_ms: u128,
}

async fn hold(
    common: &Common,
    args: &Hold,
    client: &Client,
    signals: &mut UnboundedReceiver<Caught>,
) -> Result<Finish, Failure> {
    let (wanted, outer) = (&args.wanted, Outer::from_environment());
    let ttl = common.ttl.unwrap_or_else(|| client.ttl());
    let note = wanted.note.clone().unwrap_or_else(|| "hold".to_owned());
    // Before it is held: whoever cannot be heard must not hold anything.
    let input = Input::open()?;
    let mut waiting = Waiting { wanted, outer: &outer, signals, ttl, note };
    let own = match waiting.acquire(client).await {
        Err(caught) => return Ok(ended_by(caught)),
        Ok(Err(e)) => return Err(wanted.refused(client, e).await),
        Ok(Ok(Err(busy))) => {
            let hint = waiting.for_itself(&busy);
            return Ok(wanted.not_got(&busy, hint, common.verbose));
        }
        Ok(Ok(Ok(own))) => own,
    };
    let (kept_until, lost) = (wanted.kept_until(), own.lost());
    let (info, token) = (client.info(), own.token().map(fencelock::Token::get));
    let line = Line {
        name: &wanted.name,
        engine: info.scheme,
        layout: info.layout,
        hold: own.id().to_string(),
        mode: mode::word(wanted.mode().claim()),
        token,
        ttl_ms: ttl.as_millis(),
    };
    let end = tokio::select! {
        biased;
        reason = lost => return Ok(is_lost(&wanted.name, reason)),
        said = say(line) => match said {
            Ok(true) => None,
            // Nobody reads what it is for.
            Ok(false) => Some(Err(Failure::new(exit::OUTPUT, "nobody reads standard output: it was given back"))),
            Err(failure) => Some(Err(failure)),
        },
        _ = ending(signals) => Some(Ok(())),
    };
    let end = match end {
        Some(end) => end,
        None => tokio::select! {
            biased;
            reason = own.lost() => return Ok(is_lost(&wanted.name, reason)),
            _ = ending(signals) => Ok(()),
            () = input.ended() => Ok(()),
        },
    };
    if kept(&own, kept_until, signals).await.is_ok() && own.is_valid() {
        give_back(own, &wanted.name, signals).await?;
    }
    end.map(|()| Finish::Code(exit::OK))
}

/// By a thread, which ends with the process: a reader that does not read must not keep us from hearing of a loss.
async fn say(line: Line<'_>) -> Result<bool, Failure> {
    let text = render::object(&line)?;
    thread("output", move || render::print(&text))?.await.map_err(Failure::bug)?
}

fn thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<oneshot::Receiver<T>> {
    let (tx, rx) = oneshot::channel();
    let thread = std::thread::Builder::new().name(name.to_owned()).stack_size(128 << 10);
    thread.spawn(move || tx.send(work()))?;
    Ok(rx)
}

fn is_lost(name: &str, reason: LossReason) -> Finish {
    complain(&format!("{} is lost: {reason}", plain(name)));
    Finish::Code(exit::LOST)
}

async fn give_back(own: Own, name: &str, signals: &mut UnboundedReceiver<Caught>) -> Result<(), Failure> {
    let released = tokio::select! {
        biased;
        released = own.release() => released,
        // The keeper goes on with it, until the farewell is over.
        _ = ending(signals) => return Ok(()),
    };
    released.map_err(|e| {
        let failure = Failure::from(e);
        complain(&format!("{} could not be given back", plain(name)));
        failure
    })
}

/// The next signal that ends it: USR1 and USR2, too, since there is no job that they could be for.
async fn ending(signals: &mut UnboundedReceiver<Caught>) -> Caught {
    loop {
        let caught = fatal(signals).await;
        if caught.asks_to_end() || matches!(caught.signal, SIGUSR1 | SIGUSR2) {
            return caught;
        }
    }
}

/// Standard input, whose end ends the hold.
struct Input(Option<oneshot::Receiver<()>>);

impl Input {
    /// A thread reads it, since whatever it is has to be waited for: files and terminals too.
    fn open() -> io::Result<Self> {
        if is_null()? || is_behind()? {
            return Ok(Self(None));
        }
        thread("input", || drop(io::copy(&mut io::stdin().lock(), &mut io::sink()))).map(|end| Self(Some(end)))
    }

    async fn ended(self) {
        match self.0 {
            Some(end) => drop(end.await),
            None => std::future::pending().await,
        }
    }
}

/// What services and cron jobs have, and what a closed one is replaced by: nobody ever ends that.
fn is_null() -> io::Result<bool> {
    let stat = fstat(stdin())?;
    let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
    Ok(is_device && (major(stat.st_rdev), minor(stat.st_rdev)) == (1, 3))
}

/// A terminal that has another program in front: whoever reads there is stopped, and the lease of it runs out.
fn is_behind() -> io::Result<bool> {
    Ok(isatty(stdin()) && tcgetpgrp(stdin()).ok() != Some(getpgrp()))
}
