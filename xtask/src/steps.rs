//! A run of steps: each is announced and timed, a failing one stops nobody, the table at the end tells all.

use crate::cargo::spell;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

pub(crate) struct Steps {
    started: Instant,
    done: Vec<Done>,
}

struct Done {
    name: String,
    took: Duration,
    failure: Option<String>,
}

impl Steps {
    pub(crate) fn new() -> Self {
        Self { started: Instant::now(), done: Vec::new() }
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

    /// The table, and the exit code: one failed step is enough.
    pub(crate) fn finish(self) -> ExitCode {
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

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
