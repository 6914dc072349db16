//! Test programs side by side: most of their time they wait, for a lease to end or a server to start.
//!
//! Each lane is a `cargo test` of its own that goes through all programs; what runs one of them (`cargo`'s runner, which is this very
//! program) leaves it to whoever came first. So each runs once, as cargo runs it, and a lane that is done with a short one takes the next.

use crate::cargo::{cargo, target_dir};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write, stdout};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// So many: with two cores more of them would only measure each other.
const LANES: usize = 2;

/// A command for each lane: `cargo ARGUMENTS`, with a runner.
pub(crate) fn lanes(root: &Path, arguments: &[&str]) -> Result<Vec<Command>, String> {
    let taken = target_dir(root).join("tmp").join("lanes");
    let fails = |e: io::Error| format!("{}: {e}", taken.display());
    // Of an earlier run.
    match fs::remove_dir_all(&taken) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(fails(e)),
        _ => fs::create_dir_all(&taken).map_err(fails)?,
    }
    let ours = std::env::current_exe().map_err(|e| format!("our own program: {e}"))?;
    let words = [ours.as_path(), Path::new("claim"), taken.as_path()].map(|word| format!("'{}'", word.display()));
    let runner = format!("target.'cfg(all())'.runner=[{}]", words.join(","));
    let lane = || cargo(root, ["--config", runner.as_str()].into_iter().chain(arguments.iter().copied()));
    Ok((0..LANES).map(|_| lane()).collect())
}

/// `claim FOLDER PROGRAM …`: runs it, if nobody has. What it says comes out at once: lanes speak at the same time.
pub(crate) fn claim(words: &[OsString]) -> ExitCode {
    let [taken, program, arguments @ ..] = words else { return ExitCode::from(2) };
    let name = Path::new(program).file_name().unwrap_or(program);
    match File::create_new(PathBuf::from(taken).join(name)) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("xtask: {}: {e}", Path::new(taken).display());
            return ExitCode::from(2);
        }
        Ok(_) => {}
    }
    let shown = Path::new(name).display();
    println!("     {shown} begins");
    let run = std::io::pipe().and_then(|(mut reader, writer)| {
        let mut command = Command::new(program);
        command.args(arguments).stderr(writer.try_clone()?).stdout(writer);
        let mut child = command.spawn()?;
        drop(command);
        let mut said = Vec::new();
        io::Read::read_to_end(&mut reader, &mut said)?;
        let status = child.wait()?;
        stdout().lock().write_all(&said)?;
        Ok(status)
    });
    match run {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(status) => {
            println!("     {shown}: {status}");
            ExitCode::FAILURE
        }
        Err(e) => {
            eprintln!("xtask: {shown}: {e}");
            ExitCode::from(2)
        }
    }
}
