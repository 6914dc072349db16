//! `fencelock hold`: no job; it is held until standard input ends, or a signal comes.

use std::io;
use std::time::Duration;

use fencelock::{Client, LossReason};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, fstat, major};
use rustix::io::{Errno, read};
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
/// So often one that is not in front any more looks whether it is.
const BEHIND: Duration = Duration::from_millis(250);

pub(crate) fn main(common: &Common, args: &Hold) -> Result<Finish, Failure> {
    render::detach()?;
    let url = super::url(common)?;
    let mut signals = signals::catch()?;
    super::runtime()?.block_on(async {
        let client = match unless_ended(super::connect(common, &url), &mut signals).await {
            Ok(client) => client?,
            Err(caught) => return Ok(ended_by(caught)),
        };
        let mut held = false;
        let finish = hold(common, args, &client, &mut signals, &mut held).await;
        // Of one that was never held there is nothing to be given back but a place.
        if let Err(e) = client.shutdown(FAREWELL).await
            && (held || common.verbose)
        {
            complain(&format!("{} could not be given back: {}", plain(&args.wanted.name), plain(&e.to_string())));
        }
        signals.close();
        // Whoever holds by it is told by its end, and that waits for no reader of standard error.
        render::hurry();
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
    held: &mut bool,
) -> Result<Finish, Failure> {
    let (wanted, outer) = (&args.wanted, Outer::from_environment());
    let ttl = common.ttl.unwrap_or_else(|| client.ttl());
    let note = wanted.note.clone().unwrap_or_else(|| "hold".to_owned());
    let mut input = Input::open()?;
    let mut waiting = Waiting { wanted, outer: &outer, signals, ttl, note, may_join: false };
    let got = tokio::select! {
        biased;
        got = waiting.acquire(client) => got,
        ended = input.ended() => {
            ended?;
            return Ok(wanted.went_without("standard input had ended before", None, common.verbose));
        }
    };
    let own = match got {
        Err(caught) => return Ok(ended_by(caught)),
        Ok(Err(e)) => return Err(wanted.refused(client, e).await),
        Ok(Ok(Err(busy))) => {
            let hint = waiting.for_itself(&busy);
            return Ok(wanted.not_got(&busy, hint, common.verbose));
        }
        Ok(Ok(Ok(own))) => own,
    };
    *held = true;
    let (kept_until, lost) = (wanted.kept_until(), own.lost());
    tokio::pin!(lost);
    let (info, token) = (client.info(), own.token().map(fencelock::Token::get));
    if common.verbose {
        complain(&token.map_or_else(|| format!("hold {}", own.id()), |token| format!("token {token}")));
    }
    let line = Line {
        name: &wanted.name,
        engine: info.scheme,
        layout: info.layout,
        hold: own.id().to_string(),
        mode: mode::word(wanted.mode().claim()),
        token,
        ttl_ms: ttl.as_millis(),
    };
    let said = tokio::select! {
        biased;
        reason = &mut lost => return Ok(is_lost(&wanted.name, reason)),
        said = say(line) => said,
        _ = ending(signals) => Ok(Said::Nothing),
    };
    let end = match said {
        Ok(Said::Line) => tokio::select! {
            biased;
            reason = &mut lost => return Ok(is_lost(&wanted.name, reason)),
            _ = ending(signals) => Ok(()),
            ended = input.ended() => ended,
        },
        Ok(Said::Nothing) => Ok(()),
        Err(failure) => Err(failure),
    };
    if kept(own.lost(), kept_until, signals).await.is_ok() && own.is_valid() {
        give_back(own, &wanted.name, signals).await?;
    }
    end.map(|()| Finish::Code(exit::OK))
}

enum Said {
    Line,
    /// A signal came first.
    Nothing,
}

/// By a thread, which ends with the process: a reader that does not read must not keep us from hearing of a loss.
async fn say(line: Line<'_>) -> Result<Said, Failure> {
    let text = render::object(&line)?;
    if thread("output", move || render::print(&text))?.await.map_err(Failure::bug)?? {
        return Ok(Said::Line);
    }
    Err(Failure::new(exit::OUTPUT, "nobody reads standard output, and what is held is of no use: it was given back"))
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
        // The keeper goes on with it, until the farewell is over, which tells what it could not.
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
struct Input(Option<oneshot::Receiver<io::Result<()>>>);

impl Input {
    /// A thread reads it, since whatever it is has to be waited for: files and terminals too.
    fn open() -> io::Result<Self> {
        if is_endless()? {
            return Ok(Self(None));
        }
        thread("input", read_to_its_end).map(|end| Self(Some(end)))
    }

    async fn ended(&mut self) -> Result<(), Failure> {
        let Some(end) = &mut self.0 else { return std::future::pending().await };
        let end = end.await.map_err(Failure::bug)?;
        end.map_err(|e| Failure::new(exit::INPUT, format!("cannot read standard input: {e}")))
    }
}

/// Whatever it says is nothing to us. Nobody who reads a terminal that has another program in front goes on, so that is not done.
fn read_to_its_end() -> io::Result<()> {
    let mut bytes = [0; 4096];
    loop {
        poll(&mut [PollFd::from_borrowed_fd(stdin(), PollFlags::IN)], None).or_else(again)?;
        if is_behind() {
            std::thread::sleep(BEHIND);
            continue;
        }
        match read(stdin(), &mut bytes[..]) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) => drop(again(error)?),
        }
    }
}

fn again(error: Errno) -> io::Result<usize> {
    if matches!(error, Errno::AGAIN | Errno::INTR) { Ok(0) } else { Err(error.into()) }
}

/// The devices that no program is behind: /dev/null, as services have it, and its like. Nobody ever ends them.
fn is_endless() -> io::Result<bool> {
    let stat = fstat(stdin())?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && major(stat.st_rdev) == 1)
}

/// Our terminal has another program in front.
fn is_behind() -> bool {
    isatty(stdin()) && tcgetpgrp(stdin()).is_ok_and(|front| front != getpgrp())
}
