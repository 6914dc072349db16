//! Every exit code in one place (CLI.md).

use std::fmt;
use std::io;

use fencelock::ErrorKind;
use rustix::io::Errno;

use crate::render::plain;

/// Done.
pub(crate) const OK: u8 = 0;
/// `status -q`: nobody holds it; `cell get`: there is no value.
pub(crate) const NONE: u8 = 1;
/// The command line is wrong.
pub(crate) const USAGE: u8 = 64;
/// The engine cannot be reached, or its answer cannot be used.
pub(crate) const UNREACHABLE: u8 = 69;
/// A bug of ours, or a system that denies what every program needs.
pub(crate) const BUG: u8 = 70;
/// Standard input cannot be read.
pub(crate) const INPUT: u8 = 74;
/// Standard output, or a file of ours, cannot be written.
pub(crate) const OUTPUT: u8 = 74;
/// The lock was not got in time, which `--busy-exit-code` changes; or somebody else has written the cell.
pub(crate) const BUSY: u8 = 75;
/// The lock was lost and the job stopped.
pub(crate) const LOST: u8 = 76;
/// The configuration is wrong.
pub(crate) const CONFIG: u8 = 78;
/// The command is not executable.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command was not found.
pub(crate) const NOT_FOUND: u8 = 127;

/// The code of a shell for a program that ended by a signal.
pub(crate) fn by_signal(signal: i32) -> u8 {
    u8::try_from(signal).map_or(u8::MAX, |s| s.saturating_add(128))
}

/// The code for an error of the library.
pub(crate) fn of(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::InvalidName
        | ErrorKind::InvalidConfig
        | ErrorKind::Unsupported
        | ErrorKind::LayoutMismatch
        | ErrorKind::KindMismatch
        | ErrorKind::CapacityMismatch
        | ErrorKind::PermissionDenied => CONFIG,
        ErrorKind::Unreachable | ErrorKind::Ambiguous | ErrorKind::Protocol | ErrorKind::Closed => UNREACHABLE,
        ErrorKind::Busy | ErrorKind::Conflict => BUSY,
        ErrorKind::Lost | ErrorKind::NotHeld => LOST,
        _ => BUG,
    }
}

/// Why a command ends without having done its work.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    message: String,
    hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None }
    }

    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self::new(CONFIG, message)
    }

    /// What cannot happen has happened.
    pub(crate) fn bug(why: impl fmt::Display) -> Self {
        Self::new(BUG, why.to_string())
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl From<fencelock::Error> for Failure {
    fn from(e: fencelock::Error) -> Self {
        // An error may quote what an engine or another machine wrote.
        Self::new(of(e.kind()), plain(&e.to_string()))
    }
}

impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Self {
        match e.kind() {
            // What we add to them did not fit any more.
            io::ErrorKind::ArgumentListTooLong => {
                Self::new(NOT_EXECUTABLE, "the command's arguments and environment are too long for the system")
            }
            _ => {
                let refused = Self::new(BUG, format!("the system refused: {e}"));
                let none_left = [Errno::MFILE, Errno::NFILE].map(|errno| Some(errno.raw_os_error()));
                let way_out = none_left.contains(&e.raw_os_error());
                if way_out { refused.hint("raise the limit of open files (ulimit -n)") } else { refused }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Planted: PermissionDenied moved to the unreachable ones; CapacityMismatch forgotten.
    #[test]
    fn kinds_have_the_codes_of_the_manual() {
        assert_eq!(of(ErrorKind::PermissionDenied), 78);
        assert_eq!(of(ErrorKind::CapacityMismatch), 78);
        assert_eq!(of(ErrorKind::Ambiguous), 69);
        assert_eq!(of(ErrorKind::NotHeld), 76);
        assert_eq!(of(ErrorKind::Busy), 75);
        assert_eq!((by_signal(2), by_signal(15), by_signal(64)), (130, 143, 192));
    }
}
