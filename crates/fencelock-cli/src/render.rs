//! What people and programs read: messages on standard error, data on standard output.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use fencelock::{Busy, Claim, EngineInfo, Holder, Kind, Status, Waiter};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::getpgrp;
use rustix::stdio::{stderr, stdout};
use rustix::termios::{isatty, tcgetpgrp, tcgetwinsize};
use serde::Serialize;

use crate::exit::{self, Failure};
use crate::mode;

/// A message to the user. A standard error that is closed or full is no reason to die of.
pub(crate) fn complain(message: &str) {
    tell(&format!("fencelock: {message}"));
}

/// A line of its own on standard error, in one write, so that lines of several processes do not mix.
pub(crate) fn tell(line: &str) {
    let line = format!("{line}\n");
    match WRITER.get() {
        // It lives as long as the process.
        Some(writer) => drop(writer.send(Message::Line(line))),
        None => write(&line),
    }
}

/// To standard error, as it is.
pub(crate) fn write(line: &str) {
    let _ = write_all(&mut io::stderr().lock(), stderr(), line.as_bytes());
}

/// All of it, for as long as it takes. That a descriptor does not block is the wish of a program that shares it, such as one that
/// has the same terminal or the other end of our socket: a reader who is slow is no error.
fn write_all(out: &mut impl Write, fd: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    let has_room = || poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], None);
    loop {
        let written = if bytes.is_empty() { out.flush().map(|()| 0) } else { out.write(bytes) };
        match written {
            Ok(0) if bytes.is_empty() => return Ok(()),
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => bytes = &bytes[n..],
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => drop(has_room()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// To the thread that writes the messages, where there is one.
static WRITER: OnceLock<Sender<Message>> = OnceLock::new();

enum Message {
    Line(String),
    /// The last line of a terminal, in the place of the one before; empty: none any more.
    Shown(String),
    /// To be answered when all before it is written.
    End(Sender<()>),
}

/// Has the messages from now on written by another thread. A standard error that nobody reads, or a terminal that stops
/// background output, may hold whoever writes for ever, and what stops a job must never wait for that (SAFETY R1).
pub(crate) fn detach() -> io::Result<()> {
    if WRITER.get().is_some() {
        return Ok(());
    }
    let (tx, rx) = channel();
    std::thread::Builder::new().name("messages".into()).stack_size(128 << 10).spawn(move || {
        let mut shown = String::new();
        for message in rx {
            match message {
                // Below a line that is shown there is nothing: it is written anew.
                Message::Line(line) if is_there(&shown) => write(&format!("{CLEAR}{line}{}", fitting(&shown))),
                Message::Line(line) => write(&line),
                Message::Shown(line) => {
                    // Another program is in front by now, and what stands there is its own.
                    if before() == Before::InFront {
                        write(&format!("{CLEAR}{}", fitting(&line)));
                    }
                    shown = line;
                }
                Message::End(written) => drop(written.send(())),
            }
        }
    })?;
    let _ = WRITER.set(tx);
    Ok(())
}

fn is_there(shown: &str) -> bool {
    !shown.is_empty() && before() == Before::InFront
}

/// To the first column, and nothing to the right of it.
const CLEAR: &str = "\r\x1b[K";
/// So long a job waits, at most, until what was shown is gone.
const SHOWN: Duration = Duration::from_millis(250);
static IS_SHOWN: AtomicBool = AtomicBool::new(false);

/// What stands at standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// No terminal.
    Nobody,
    /// A terminal with another program in front.
    Behind,
    InFront,
}

pub(crate) fn before() -> Before {
    match tcgetpgrp(stderr()) {
        _ if !isatty(stderr()) => Before::Nobody,
        Ok(front) if front == getpgrp() => Before::InFront,
        _ => Before::Behind,
    }
}

/// Shows a line in the place of the one that was shown before.
pub(crate) fn show(line: &str) {
    IS_SHOWN.store(true, Relaxed);
    send(Message::Shown(line.to_owned()));
}

/// As much of it as fits now: the terminal may be narrower than it was.
fn fitting(line: &str) -> String {
    cut(line, tcgetwinsize(stderr()).map_or(0, |size| usize::from(size.ws_col)))
}

/// A line that is longer than the terminal is wide could not be taken back. 0: nobody knows how wide it is.
fn cut(line: &str, columns: usize) -> String {
    let mut left = if columns == 0 { usize::MAX } else { columns - 1 };
    // A character outside ASCII may be two columns wide.
    let fits = |c: &char| left.checked_sub(if c.is_ascii() { 1 } else { 2 }).map(|rest| left = rest).is_some();
    line.chars().take_while(fits).collect()
}

/// Takes back what is shown. Returns when it is gone, or soon where nobody reads.
pub(crate) fn show_no_more() {
    if IS_SHOWN.swap(false, Relaxed) {
        send(Message::Shown(String::new()));
        let (tx, written) = channel();
        send(Message::End(tx));
        let _ = written.recv_timeout(SHOWN);
    }
}

fn send(message: Message) {
    let _ = WRITER.get().map(|writer| writer.send(message));
}

/// Somebody waits for the end of this process.
static HURRY: AtomicBool = AtomicBool::new(false);

pub(crate) fn hurry() {
    HURRY.store(true, Relaxed);
}

/// Waits until every message is written, or not for long: the last thing of all.
pub(crate) fn flush() {
    let (tx, written) = channel();
    if WRITER.get().is_some_and(|writer| writer.send(Message::End(tx)).is_ok()) {
        if HURRY.load(Relaxed) {
            let _ = written.recv_timeout(Duration::from_millis(250));
        } else {
            let _ = written.recv();
        }
    }
}

/// Data for standard output. `Ok(false)`: nobody reads any more, as after `| head`.
pub(crate) fn print(text: &str) -> Result<bool, Failure> {
    print_bytes(text.as_bytes())
}

/// The same, of what is no text.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<bool, Failure> {
    match write_all(&mut io::stdout().lock(), stdout(), bytes) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(e) => Err(Failure::new(exit::OUTPUT, format!("cannot write to standard output: {e}"))),
    }
}

/// Whether anybody can still read standard output: a pipe's reader may have gone while there is nothing to say.
pub(crate) fn is_read() -> bool {
    let mut output = [PollFd::from_borrowed_fd(stdout(), PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    !matches!(poll(&mut output, Some(&now)), Ok(1)) || !output[0].revents().contains(PollFlags::ERR)
}

/// Text of other machines without what a terminal would obey: C0 with ESC, DEL, C1, and marks that turn the direction.
pub(crate) fn plain(text: &str) -> String {
    let harmless = |c: &char| {
        !c.is_control() && !matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().filter(harmless).collect()
}

/// `250ms`, `8s`, `4m12s`, `2h5m`, `3d4h`.
pub(crate) fn span(d: Duration) -> String {
    match (d.as_secs(), d.subsec_millis()) {
        (0, ms) => format!("{ms}ms"),
        (s @ 1..60, _) => format!("{s}s"),
        (s @ 60..3600, _) => format!("{}m{}s", s / 60, s % 60),
        (s @ 3600..86_400, _) => format!("{}h{}m", s / 3600, s % 3600 / 60),
        (s, _) => format!("{}d{}h", s / 86_400, s % 86_400 / 3600),
    }
}

/// `held 4m12s by web-3 pid 812 "pg_dump" (token 1181, lease 8 s left)`, with the mode where it is not a mutex's.
pub(crate) fn holder(h: &Holder) -> String {
    let left =
        if h.left.as_secs() > 0 { format!("{} s", h.left.as_secs()) } else { format!("{} ms", h.left.as_millis()) };
    format!(
        "held {} by {} pid {} \"{}\" ({}token {}, lease {left} left)",
        span(h.held_for),
        plain(&h.host),
        h.pid,
        plain(&h.note),
        claimed(h.claim),
        h.token.get(),
    )
}

/// How, where it is not the usual way.
fn claimed(claim: Claim) -> String {
    match claim {
        Claim::Mutex => String::new(),
        Claim::Permits { take: 1, .. } => "1 permit, ".to_owned(),
        Claim::Permits { take, .. } => format!("{take} permits, "),
        other => format!("{}, ", mode::word(other)),
    }
}

/// `waiting for backup: held …, 2 ahead of you`
pub(crate) fn waiting(name: &str, busy: &Busy) -> String {
    format!("waiting for {}: {}", plain(name), in_the_way(busy))
}

/// Who is in the way, and how many. That it is not the holder but the engine comes first: a line is cut where the terminal ends (SAFETY E8).
pub(crate) fn in_the_way(busy: &Busy) -> String {
    let who = busy.holder.as_deref().map_or_else(|| "somebody else is next".to_owned(), holder);
    let stale = if busy.stale { "no answer from the engine; before: " } else { "" };
    match busy.ahead {
        Some(n) if n > 0 => format!("{stale}{who}, {n} ahead of you"),
        _ => format!("{stale}{who}"),
    }
}

fn waiter(position: usize, w: &Waiter) -> String {
    let (host, note) = (plain(&w.host), plain(&w.note));
    let wants = match claimed(w.claim) {
        usual if usual.is_empty() => usual,
        other => format!(", for {}", other.trim_end_matches(", ")),
    };
    format!("{position}. {host} pid {} \"{note}\" has waited {}{wants}", w.pid, span(w.waiting_for))
}

/// Nobody holds it. What the name is all the same: whoever wants it as something else is refused, or was of another size.
fn free(s: &Status) -> String {
    match (s.kind, s.capacity) {
        (Some(Kind::Cell), _) => "a cell: it has a value, and nobody can hold it".to_owned(),
        (None | Some(Kind::Semaphore), Some(size)) => format!("free, a semaphore of {size}"),
        _ => "free".to_owned(),
    }
}

/// `1 of 3 permits free`, while somebody has some.
fn permits_left(s: &Status) -> Option<String> {
    let size = s.capacity.filter(|_| s.kind == Some(Kind::Semaphore))?;
    Some(format!("{} of {size} permits free", s.free_permits().unwrap_or(0)))
}

/// A lock for people, with its queue.
pub(crate) fn status(s: &Status) -> String {
    let mut text = String::new();
    for h in &s.holders {
        let _ = writeln!(text, "{}", holder(h));
    }
    match permits_left(s) {
        _ if s.holders.is_empty() => text.push_str(&(free(s) + "\n")),
        Some(left) => text.push_str(&(left + "\n")),
        None => {}
    }
    for (i, w) in s.waiters.iter().enumerate() {
        let _ = writeln!(text, "  {}", waiter(i + 1, w));
    }
    text
}

/// A lock for people, on one line.
pub(crate) fn line(s: &Status) -> String {
    let mut parts = vec![s.holders.first().map_or_else(|| "free".to_owned(), holder)];
    if let more @ 1.. = s.holders.len().saturating_sub(1) {
        parts.push(format!("{more} more hold it"));
    }
    parts.extend(permits_left(s).filter(|_| s.is_held()));
    if let waiting @ 1.. = s.waiters.len() {
        parts.push(format!("{waiting} waiting"));
    }
    format!("{}: {}\n", plain(s.name.as_str()), parts.join(", "))
}

/// A lock for programs: one JSON object and a line end.
pub(crate) fn json(s: &Status, info: &EngineInfo) -> Result<String, Failure> {
    let object = Object {
        // The key that programs compare stays as it is; JSON escapes what a terminal would obey, but for C1.
        name: s.name.as_str(),
        engine: info.scheme,
        layout: info.layout,
        kind: s.kind.map(Kind::as_str),
        capacity: s.capacity,
        holders: s.holders.iter().map(HolderObject::of).collect(),
        waiters: s.waiters.iter().enumerate().map(|(i, w)| WaiterObject::of(i + 1, w)).collect(),
        last_token: s.last_token.map(|t| t.get()),
    };
    self::object(&object)
}

/// One JSON object and a line end.
pub(crate) fn object(object: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string(object).map_err(Failure::bug)?;
    Ok(escape_c1(&text) + "\n")
}

fn escape_c1(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if matches!(c, '\u{7f}'..='\u{9f}') {
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

#[derive(Serialize)]
struct Object<'a> {
    name: &'a str,
    engine: &'a str,
    layout: &'a str,
    kind: Option<&'a str>,
    /// The size of a semaphore.
    capacity: Option<u32>,
    holders: Vec<HolderObject>,
    waiters: Vec<WaiterObject>,
    last_token: Option<i64>,
}

#[derive(Serialize)]
struct HolderObject {
    hold: String,
    mode: &'static str,
    permits: Option<u32>,
    token: i64,
    host: String,
    pid: u32,
    note: String,
    since_ms: u64,
    remaining_ms: u64,
}

impl HolderObject {
    fn of(h: &Holder) -> Self {
        Self {
            hold: h.hold.to_string(),
            mode: mode::word(h.claim),
            permits: permits(h.claim),
            token: h.token.get(),
            host: plain(&h.host),
            pid: h.pid,
            note: plain(&h.note),
            since_ms: millis(h.held_for),
            remaining_ms: millis(h.left),
        }
    }
}

#[derive(Serialize)]
struct WaiterObject {
    position: usize,
    hold: String,
    mode: &'static str,
    permits: Option<u32>,
    host: String,
    pid: u32,
    note: String,
    waiting_ms: u64,
}

impl WaiterObject {
    fn of(position: usize, w: &Waiter) -> Self {
        Self {
            position,
            hold: w.hold.to_string(),
            mode: mode::word(w.claim),
            permits: permits(w.claim),
            host: plain(&w.host),
            pid: w.pid,
            note: plain(&w.note),
            waiting_ms: millis(w.waiting_for),
        }
    }
}

fn permits(claim: Claim) -> Option<u32> {
    claim.capacity().map(|_| claim.take())
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Planted: only C0 stripped.
    #[test]
    fn nothing_that_a_terminal_obeys_is_printed() {
        assert_eq!(plain("a\x1b[31mb\u{9b}2Jc\x07\r\n\x7f\u{202e}d é 日"), "a[31mb2Jcd é 日");
        assert_eq!(escape_c1("\"a\u{9b}b\""), "\"a\\u009bb\"");
    }

    // Planted: the last column filled, which moves the cursor on.
    #[test]
    fn what_is_shown_fits_on_a_line() {
        assert_eq!(cut("waiting", 0), "waiting");
        assert_eq!(cut("waiting", 8), "waiting");
        assert_eq!(cut("waiting", 7), "waitin");
        assert_eq!(cut("a日本", 6), "a日本");
        assert_eq!(cut("a日本", 5), "a日");
        assert_eq!(cut("ab", 1), "");
    }

    // Planted: seconds and minutes swapped in the third line.
    #[test]
    fn spans_as_people_say_them() {
        let said = |ms| span(Duration::from_millis(ms));
        assert_eq!(said(250), "250ms");
        assert_eq!(said(8_400), "8s");
        assert_eq!(said(252_000), "4m12s");
        assert_eq!(said(7_500_000), "2h5m");
        assert_eq!(said(100 * 3_600_000), "4d4h");
    }
}
