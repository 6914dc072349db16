//! The command line of fencelock. `run` is in `commands/run.rs`, what it takes to really stop a job in `supervise/`.

#![forbid(unsafe_code)]

mod args;
mod commands;
mod duration;
mod exit;
mod help;
mod mode;
mod render;
mod supervise;

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use commands::{Finish, acl, bench, cell, hold, list, manual, migrate, release, run, semaphore, status};
use exit::Failure;

fn main() -> ExitCode {
    // The two hidden subcommands are on the way of every job: they come before anything that costs time.
    let mut args = std::env::args_os().skip(1);
    match args.next() {
        Some(word) if word == "minder" => return supervise::minder::main(args),
        Some(word) if word == "job" => return supervise::job::main(args),
        _ => {}
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => return ExitCode::from(tell(&e)),
    };
    let finish = dispatch(cli).unwrap_or_else(|failure| {
        render::complain(&failure.to_string());
        Finish::Code(failure.code)
    });
    render::flush();
    match finish {
        Finish::Code(code) => ExitCode::from(code),
        Finish::Signal(signal) => supervise::signals::die_of(signal),
    }
}

/// What is wrong with the command line, or the help that was asked for; in colour on a terminal.
fn tell(said: &clap::Error) -> u8 {
    let (wrong, text) = (said.use_stderr(), said.render().to_string());
    let is_terminal = if wrong { io::stderr().is_terminal() } else { io::stdout().is_terminal() };
    if is_terminal {
        let _ = said.print();
    } else if wrong {
        render::write(&text);
    } else if let Err(failure) = render::print(&text) {
        render::complain(&failure.to_string());
        return failure.code;
    }
    if wrong { exit::USAGE } else { exit::OK }
}

fn dispatch(cli: Cli) -> Result<Finish, Failure> {
    let common = cli.common;
    match cli.command {
        Command::Run(args) => run::main(&common, *args),
        Command::Hold(args) => hold::main(&common, &args),
        Command::Status(args) => status::main(&common, &args),
        Command::List(args) => list::main(&common, &args),
        Command::Bench(args) => bench::main(&common, &args),
        Command::Cell(args) => cell::main(&common, &args),
        Command::Semaphore(args) => semaphore::main(&common, &args),
        Command::Completions(args) => manual::completions(&args),
        Command::Man(args) => manual::man(&args),
        Command::Acl(args) => acl::main(&common, &args),
        Command::Migrate(args) => migrate::main(&common, &args),
        Command::Release(args) => release::main(&common, &args),
    }
}
