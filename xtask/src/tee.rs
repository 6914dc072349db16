//! Runs a command so that what it prints is both seen and kept.

use crate::cargo::spell;
use std::io::{PipeReader, PipeWriter, Read, Write, stdout};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) struct Ran {
    pub(crate) output: String,
    pub(crate) failure: Option<String>,
}

/// How long a process that outlived the command may keep its output open before it counts as left over.
const PATIENCE: Duration = Duration::from_secs(2);

/// Standard output; standard error is only seen.
pub(crate) fn tee(command: &mut Command) -> Result<Ran, String> {
    let (reader, writer) = pipe(command)?;
    command.stdout(writer);
    follow(command, reader)
}

/// Both, in the order in which they are written.
pub(crate) fn tee_all(command: &mut Command) -> Result<Ran, String> {
    let (reader, writer) = pipe(command)?;
    command.stderr(writer.try_clone().map_err(|error| error.to_string())?).stdout(writer);
    follow(command, reader)
}

fn pipe(command: &Command) -> Result<(PipeReader, PipeWriter), String> {
    std::io::pipe().map_err(|error| format!("cannot start {}: {error}", spell(command)))
}

fn follow(command: &mut Command, mut reader: PipeReader) -> Result<Ran, String> {
    println!("   $ {}", spell(command));
    let spawned = command.spawn().map_err(|error| format!("cannot start {}: {error}", spell(command)));
    // The command owns copies of the pipe's other end; while it has one, the output never ends.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = spawned?;
    let (sender, chunks) = channel();
    // A thread, because a job that escaped its test keeps the pipe open for ever, and must not stop us with it.
    thread::spawn(move || {
        let mut chunk = [0; 4096];
        while let Ok(length) = reader.read(&mut chunk) {
            if length == 0 || sender.send(chunk[..length].to_vec()).is_err() {
                break;
            }
        }
    });
    let mut output = Vec::new();
    let mut ended: Option<(Instant, Option<String>)> = None;
    let failure = loop {
        match chunks.recv_timeout(Duration::from_millis(50)) {
            Ok(chunk) => {
                // If our own reader is gone (`| head`), the step's next line tells it; the child must be waited for first.
                let _ = stdout().write_all(&chunk).and_then(|()| stdout().flush());
                output.extend(chunk);
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = child.wait().map_err(|error| error.to_string())?;
                break (!status.success()).then(|| status.to_string());
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        match &ended {
            None => {
                if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
                    ended = Some((Instant::now(), (!status.success()).then(|| status.to_string())));
                }
            }
            Some((at, failure)) if at.elapsed() > PATIENCE => {
                break Some(
                    failure.clone().unwrap_or_else(|| "left a process behind that holds its output".to_owned()),
                );
            }
            Some(_) => {}
        }
    };
    Ok(Ran { output: String::from_utf8_lossy(&output).into_owned(), failure })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Ran {
        tee(Command::new("sh").args(["-c", script])).expect("sh starts")
    }

    #[test]
    fn output_is_kept_and_failure_told() {
        let ran = sh("echo seen");
        assert_eq!((ran.output.as_str(), ran.failure), ("seen\n", None));
        assert!(sh("exit 3").failure.is_some());
    }

    #[test]
    fn both_outputs_are_kept_in_their_order() {
        let ran = tee_all(Command::new("sh").args(["-c", "echo one; echo two >&2; echo three"])).expect("sh starts");
        assert_eq!((ran.output.as_str(), ran.failure), ("one\ntwo\nthree\n", None));
    }

    #[test]
    fn a_process_left_behind_is_told_and_does_not_hang() {
        let started = Instant::now();
        let ran = sh("sleep 60 & echo \"$!\"");
        assert!(ran.failure.is_some_and(|failure| failure.contains("behind")));
        assert!(started.elapsed() < Duration::from_secs(30));
        assert!(Command::new("kill").arg(ran.output.trim()).status().is_ok_and(|status| status.success()));
    }
}
