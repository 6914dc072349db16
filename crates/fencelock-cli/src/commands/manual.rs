//! `fencelock man` and `fencelock completions`: from the one definition of the command line.

use std::path::Path;

use clap::CommandFactory;
use clap_mangen::Man as Page;

use super::Finish;
use crate::args::{Cli, Completions, Man};
use crate::exit::{self, Failure};
use crate::render;

/// Whole, with what every subcommand has of the others.
fn definition() -> clap::Command {
    let mut definition = Cli::command();
    definition.build();
    definition
}

pub(crate) fn completions(args: &Completions) -> Result<Finish, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "fencelock", &mut text);
    render::print_bytes(&text)?;
    Ok(Finish::Code(exit::OK))
}

pub(crate) fn man(args: &Man) -> Result<Finish, Failure> {
    let definition = definition();
    if let Some(dir) = &args.dir {
        write_all(&definition, dir)?;
        return Ok(Finish::Code(exit::OK));
    }
    let mut command = &definition;
    for word in args.command.iter().flat_map(|words| words.split_whitespace()) {
        command = command.find_subcommand(word).ok_or_else(|| {
            let known = command.get_subcommands().filter(|c| !c.is_hide_set()).map(clap::Command::get_name);
            let known = known.collect::<Vec<_>>().join(", ");
            let failure = Failure::new(exit::USAGE, format!("there is no subcommand {}", render::plain(word)));
            failure.hint(if known.is_empty() { "it has none".to_owned() } else { format!("one of {known}") })
        })?;
    }
    render::print_bytes(&page(command)?)?;
    Ok(Finish::Code(exit::OK))
}

fn page(command: &clap::Command) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    let source = concat!("fencelock ", env!("CARGO_PKG_VERSION"));
    Page::new(command.clone()).source(source).render(&mut text).map_err(Failure::bug)?;
    Ok(text)
}

fn write_all(command: &clap::Command, dir: &Path) -> Result<(), Failure> {
    let file = dir.join(format!("{}.1", command.get_display_name().unwrap_or("fencelock")));
    let failed = |e| Failure::new(exit::OUTPUT, format!("cannot write {}: {e}", file.display()));
    std::fs::write(&file, page(command)?).map_err(failed)?;
    command.get_subcommands().filter(|c| !c.is_hide_set()).try_for_each(|below| write_all(below, dir))
}
