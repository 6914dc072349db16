//! When somebody was inside.
use super::{claim_of, claim_text};
use fencelock_core::{BootClock, Claim, Clock};
use std::{
    collections::HashMap,
    fs::{self, OpenOptions},
    io::Write,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

/// What is known of the time that one holder spent inside. The lock was granted before `start` and released after `end`, so two
/// that overlap have held it at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Who.
    pub holder: String,
    /// How.
    pub claim: Claim,
    /// Its token; 0 for those who share.
    pub token: i64,
    /// CLOCK_BOOTTIME in ns.
    pub start: u64,
    /// CLOCK_BOOTTIME in ns; `u64::MAX` while it has not left.
    pub end: u64,
}

/// Somebody who is inside.
#[derive(Debug)]
#[must_use = "who enters leaves"]
pub struct Inside(u64);

/// A list of intervals, to which several processes append: a line for who enters, a line for who leaves.
#[derive(Clone, Debug)]
pub struct History(Place);
#[derive(Clone, Debug)]
enum Place {
    File(PathBuf),
    Memory(Arc<Mutex<String>>),
}
impl History {
    /// In a file, for several processes.
    pub fn at(file: PathBuf) -> Self {
        Self(Place::File(file))
    }
    /// In memory, for this process.
    pub fn in_memory() -> Self {
        Self(Place::Memory(Arc::default()))
    }
    /// Call it as soon as the lock is granted.
    pub fn enter(&self, who: &str, claim: Claim, token: i64) -> Inside {
        assert!(!who.contains(char::is_whitespace), "{who:?} is one word in the history");
        let id = fastrand::u64(..);
        self.append(&format!("in {id} {} {who} {token} {}\n", now(), claim_text(claim)));
        Inside(id)
    }
    /// Call it before the lock is released.
    pub fn leave(&self, inside: Inside) {
        self.append(&format!("out {} {}\n", inside.0, now()));
    }
    /// Whoever of this name is still inside was killed at this time.
    pub fn killed(&self, who: &str, at: u64) {
        assert!(!who.contains(char::is_whitespace), "{who:?} is one word in the history");
        self.append(&format!("killed {who} {at}\n"));
    }
    fn append(&self, line: &str) {
        match &self.0 {
            // One write in append mode: lines of several processes do not mix.
            Place::File(file) => {
                let opened = OpenOptions::new().create(true).append(true).open(file);
                let written = opened.and_then(|mut file| file.write_all(line.as_bytes()));
                written.unwrap_or_else(|e| panic!("{}: {e}", file.display()));
            }
            Place::Memory(text) => text.lock().unwrap_or_else(PoisonError::into_inner).push_str(line),
        }
    }
    /// All of it, by start.
    ///
    /// # Panics
    /// A line that nobody wrote.
    pub fn intervals(&self) -> Vec<Interval> {
        let text = match &self.0 {
            Place::File(file) => fs::read_to_string(file).unwrap_or_default(),
            Place::Memory(text) => text.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        };
        let (mut all, mut open): (Vec<Interval>, HashMap<u64, usize>) = Default::default();
        for line in text.lines() {
            read(line, &mut all, &mut open).unwrap_or_else(|| panic!("no line of a history: {line:?}"));
        }
        all.sort_by_key(|interval| interval.start);
        all
    }
}
fn read(line: &str, all: &mut Vec<Interval>, open: &mut HashMap<u64, usize>) -> Option<()> {
    let mut words = line.split(' ');
    let mut word = || words.next();
    match word()? {
        "in" => {
            let (id, start, holder) = (word()?.parse().ok()?, word()?.parse().ok()?, word()?.to_owned());
            let (token, claim) = (word()?.parse().ok()?, claim_of(word()?)?);
            open.insert(id, all.len());
            all.push(Interval { holder, claim, token, start, end: u64::MAX });
        }
        "out" => {
            let id: u64 = word()?.parse().ok()?;
            all.get_mut(open.remove(&id)?)?.end = word()?.parse().ok()?;
        }
        "killed" => {
            let (who, at) = (word()?, word()?.parse().ok()?);
            for interval in all.iter_mut().filter(|interval| interval.holder == who && interval.end == u64::MAX) {
                interval.end = at;
            }
        }
        _ => return None,
    }
    Some(())
}
fn now() -> u64 {
    BootClock.now().as_nanos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_from_file_and_memory() {
        let file = std::env::temp_dir().join(format!("fencelock-history-{}", fastrand::u64(..)));
        for history in [History::at(file.clone()), History::in_memory()] {
            let a = history.enter("a", Claim::Mutex, 7);
            history.leave(a);
            let _killed = history.enter("b", Claim::Permits { take: 2, of: 3 }, 0);
            let _open = history.enter("c", Claim::Read, 0);
            let at = now();
            history.killed("b", at);
            let read = history.intervals();
            let seen: Vec<_> = read.iter().map(|i| (i.holder.as_str(), i.claim, i.token)).collect();
            let permits = Claim::Permits { take: 2, of: 3 };
            assert_eq!(seen, [("a", Claim::Mutex, 7), ("b", permits, 0), ("c", Claim::Read, 0)]);
            assert!(read[0].end >= read[0].start && read[1].end == at && read[2].end == u64::MAX);
        }
        fs::remove_file(file).unwrap();
    }
    #[test]
    #[should_panic(expected = "no line of a history")]
    fn what_nobody_wrote_is_told() {
        let history = History::in_memory();
        history.append("out 1 2\n");
        history.intervals();
    }
}
