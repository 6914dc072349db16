//! The hidden subcommand `job`: the last step before the command itself.
//!
//! It is a program of its own because what it does has to happen after the fork and before the exec, where only code with
//! `unsafe` could do it in the minder (SAFETY R1).

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
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
    let program = plain(&program.to_string_lossy());
    complain(&format!("cannot run {program:?}: {}", reason(&error)));
    ExitCode::from(if error.kind() == io::ErrorKind::NotFound { exit::NOT_FOUND } else { exit::NOT_EXECUTABLE })
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such command".to_owned(),
        io::ErrorKind::PermissionDenied => "it is not executable".to_owned(),
        _ => error.to_string(),
    }
}
