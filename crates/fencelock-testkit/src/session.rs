//! Somebody at a terminal of a database.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
use crate::{MariaDb, Postgres, process::blocking};
use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

/// What reads there what is typed, and has it worked off.
pub trait Terminal {
    /// Without a command, and what makes it write `done`.
    fn terminal(&self) -> (Command, &'static str);
}
impl Terminal for Postgres {
    fn terminal(&self) -> (Command, &'static str) {
        (typed(&self.psql(""), &[]), "\\echo done")
    }
}
impl Terminal for MariaDb {
    fn terminal(&self) -> (Command, &'static str) {
        (typed(&self.client(""), &["--unbuffered"]), "SELECT 'done';")
    }
}
/// The command comes last, behind its flag.
fn typed(told: &Command, more: &[&str]) -> Command {
    let mut command = Command::new(told.get_program());
    command.args(told.get_args().take(told.get_args().len() - 2)).args(more);
    command
}

/// Somebody there, in a session of their own.
#[derive(Debug)]
pub struct Session {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    done: &'static str,
}
impl Session {
    /// As many as the server takes.
    ///
    /// # Panics
    /// There is no such terminal.
    pub fn all(server: &impl Terminal) -> Vec<Self> {
        let next = || {
            let mut one = Self::new(server);
            one.try_ask("SELECT 1").map(|_| one)
        };
        std::iter::from_fn(next).collect()
    }
    /// # Panics
    /// There is no such terminal.
    pub fn new(server: &impl Terminal) -> Self {
        let (mut command, done) = server.terminal();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output, done }
    }
    /// What it answers, when it is done.
    ///
    /// # Panics
    /// It has ended.
    pub fn ask(&mut self, sql: &str) -> String {
        self.try_ask(sql).unwrap_or_else(|| panic!("the terminal has ended: {sql}"))
    }
    /// The same; `None` where it has ended, as one does that the server refuses. What is no text is shown as `�`.
    ///
    /// # Panics
    /// It cannot be read from.
    pub fn try_ask(&mut self, sql: &str) -> Option<String> {
        blocking(|| {
            // One that has ended reads nothing.
            writeln!(self.input, "{sql};\n{}", self.done).ok()?;
            let mut said = String::new();
            loop {
                let mut line = Vec::new();
                if self.output.read_until(b'\n', &mut line).unwrap() == 0 {
                    return None;
                }
                if line == b"done\n" {
                    return Some(said.trim_end().to_owned());
                }
                said.push_str(&String::from_utf8_lossy(&line));
            }
        })
    }
}
impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
