//! The hidden subcommand `job`: the last step before the command itself.
//!
//! It is a program of its own because what it does has to happen after the fork and before the exec, where only code with
//! `unsafe` could do it in the minder (SAFETY R1).

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use crate::exit;
use crate::render::{complain, plain};

/// `job PID -- CMD…`: dies with the minder of this number, 0 for none, and becomes the command.
pub(crate) fn main(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let minder: Option<i32> = args.next().and_then(|a| a.to_str()?.parse().ok());
    let (Some(minder), Some(_dashes), Some(program)) = (minder, args.next(), args.next()) else {
        complain("the subcommand `job` is not for use by hand");
        return ExitCode::from(exit::USAGE);
    };
    if minder != 0 {
        let armed = set_parent_process_death_signal(Some(Signal::KILL));
        // The minder may have died before the signal was armed: then nobody would kill the job.
        if armed.is_err() || getppid().map(Pid::as_raw_pid) != Some(minder) {
            return ExitCode::from(exit::BUG);
        }
    }
    let error = Command::new(&program).args(args).exec();
    let (code, reason) = judge(&program, &error);
    complain(&format!("cannot run {:?}: {reason}", plain(&program.to_string_lossy())));
    ExitCode::from(code)
}

fn judge(program: &OsStr, error: &io::Error) -> (u8, String) {
    // Without a slash it was looked for in PATH, not here.
    let is_there = program.as_bytes().contains(&b'/') && Path::new(program).exists();
    match error.kind() {
        io::ErrorKind::NotFound if is_there => {
            (exit::NOT_EXECUTABLE, "the interpreter that it names is not there".to_owned())
        }
        io::ErrorKind::NotFound => (exit::NOT_FOUND, "there is no such command".to_owned()),
        io::ErrorKind::PermissionDenied => (exit::NOT_EXECUTABLE, "it is not executable".to_owned()),
        _ => (exit::NOT_EXECUTABLE, error.to_string()),
    }
}
