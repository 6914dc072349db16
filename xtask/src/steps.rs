//! A run of steps: each is announced and timed, a failing one stops nobody, the table at the end tells all.

use crate::cargo::spell;
use crate::tee::{Ran, tee_all};
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) struct Steps {
    started: Instant,
    done: Vec<Done>,
    said: Vec<String>,
}

struct Done {
    name: String,
    took: Duration,
    failure: Option<String>,
}

impl Steps {
    pub(crate) fn new() -> Self {
        Self { started: Instant::now(), done: Vec::new(), said: Vec::new() }
    }

    /// Runs one step; says whether it succeeded, for those that make no sense after a failure.
    pub(crate) fn step(&mut self, name: &str, work: impl FnOnce() -> Result<(), String>) -> bool {
        println!("\n== {name}");
        let started = Instant::now();
        let failure = work().err();
        let took = started.elapsed();
        match &failure {
            None => println!("== {name}: ok, {}", seconds(took)),
            Some(reason) => println!("== {name}: FAILED, {}: {reason}", seconds(took)),
        }
        let succeeded = failure.is_none();
        self.done.push(Done { name: name.to_owned(), took, failure });
        succeeded
    }

    pub(crate) fn command(&mut self, name: &str, mut command: Command) -> bool {
        self.step(name, || run(&mut command))
    }

    /// A command that runs tests: what the failed ones said is kept, to be told again at the end.
    pub(crate) fn tests(&mut self, name: &str, command: Command) -> bool {
        self.tests_side_by_side(name, Ok(vec![command]))
    }

    /// Several of them at once.
    pub(crate) fn tests_side_by_side(&mut self, name: &str, commands: Result<Vec<Command>, String>) -> bool {
        let mut said = Vec::new();
        let succeeded = self.step(name, || {
            let ran: Vec<Result<Ran, String>> = thread::scope(|scope| {
                let start = |mut command: Command| scope.spawn(move || tee_all(&mut command));
                let started: Vec<_> = commands?.into_iter().map(start).collect();
                Ok::<_, String>(
                    started.into_iter().map(|one| one.join().unwrap_or_else(|_| Err("panicked".to_owned()))).collect(),
                )
            })?;
            let mut failed = Ok(());
            for one in ran {
                match one {
                    Ok(Ran { output, failure }) => {
                        said.extend(failures(&output));
                        failed = failed.and(failure.map_or(Ok(()), Err));
                    }
                    Err(problem) => failed = failed.and(Err(problem)),
                }
            }
            failed
        });
        self.said.extend(said);
        succeeded
    }

    /// What the tests that failed had said, for somebody who sees only the end of a long output.
    pub(crate) fn said(&self) -> String {
        self.said.iter().map(|line| format!("{line}\n")).collect()
    }

    /// The table, and the exit code: one failed step is enough.
    pub(crate) fn finish(&self) -> ExitCode {
        let width = self.done.iter().map(|step| step.name.len()).max().unwrap_or(0).max("total".len());
        println!("\n{:width$}  {:8} {:>9}", "step", "result", "time");
        for step in &self.done {
            let result = if step.failure.is_none() { "ok" } else { "FAILED" };
            let reason = step.failure.as_deref().map(|reason| format!("  {reason}")).unwrap_or_default();
            println!("{:width$}  {result:8} {:>9}{reason}", step.name, seconds(step.took));
        }
        let failed = self.done.iter().filter(|step| step.failure.is_some()).count();
        let result = if failed == 0 { "ok" } else { "FAILED" };
        println!("{:width$}  {result:8} {:>9}", "total", seconds(self.started.elapsed()));
        if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Runs a command with our own standard output and error, so that what it says is seen as it is said.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    println!("   $ {}", spell(command));
    let status = command.status().map_err(|error| format!("cannot start {}: {error}", spell(command)))?;
    if status.success() { Ok(()) } else { Err(status.to_string()) }
}

/// What a command prints on standard output; its standard error is shown.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot start {}: {error}", spell(command)))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("{}: {}", spell(command), output.status))
    }
}

/// How many lines of one failed test are told again: its first ones say why.
const LINES: usize = 30;

/// Of what test programs printed: what each failed test said, and what cargo has to say of programs that failed.
fn failures(output: &str) -> Vec<String> {
    let mut told = Vec::new();
    // Lines of the test that is being told; none outside.
    let mut of_test: Option<usize> = None;
    for line in output.lines() {
        if line.starts_with("---- ") && line.ends_with(" ----") {
            of_test = Some(0);
        } else if line == "failures:" || line.starts_with("test result:") {
            of_test = None;
        }
        if let Some(lines) = &mut of_test {
            *lines += 1;
            if *lines <= LINES {
                told.push(line.to_owned());
            }
        } else if line.starts_with("error: ") || line.starts_with("    `-p ") || line.contains("(signal: ") {
            told.push(line.to_owned());
        }
    }
    told
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
running 2 tests
test a ... ok
test b ... FAILED

failures:

---- b stdout ----

thread 'b' panicked at tests/t.rs:3:5:
it says why

failures:
    b

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

error: test failed, to rerun pass `-p p --test t`
     Running tests/u.rs (target/debug/deps/u-0)
error: 1 target failed:
    `-p p --test t`
";

    #[test]
    fn what_failed_tests_said_is_told_again() {
        let told = failures(OUTPUT).join("\n");
        for part in ["---- b stdout ----", "it says why", "error: test failed", "    `-p p --test t`"] {
            assert!(told.contains(part), "{part}: {told}");
        }
        assert!(!told.contains("test a"), "{told}");
        let long = format!("---- b stdout ----\n{}test result: FAILED", "line\n".repeat(500));
        assert_eq!(failures(&long).len(), LINES);
    }
}
