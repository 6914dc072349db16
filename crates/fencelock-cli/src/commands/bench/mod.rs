//! `fencelock bench`: what the engine gives, beside its bare driver sending the same statements, in turns in one run.

mod cases;
mod report;
mod rival;

use std::sync::Arc;
use std::time::Duration;

use fencelock::Client;

use super::Finish;
use crate::args::{Bench, Common};
use crate::exit::{self, Failure};
use crate::render;
use report::Row;
use rival::{Counter, Rival};

/// How long the end of a client may take.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// An engine under test.
struct Arena {
    url: String,
    client: Client,
    rival: Option<Rival>,
}

impl Arena {
    async fn open(common: &Common, url: String) -> Result<Self, Failure> {
        // It says what is wrong with a URL, and where it is with `-v`.
        let client = super::connect(common, &url).await?;
        let rival = Rival::open(&url, client.info()).await?;
        Ok(Self { url, client, rival })
    }

    /// A client of its own, as another process has one, and how many commands it sends.
    async fn another(&self) -> Result<(Client, Counter), Failure> {
        if self.client.info().scheme == "memory" {
            // Another engine would be another store.
            return Ok((self.client.clone(), None));
        }
        rival::client(&self.url, self.client.info().scheme).await
    }

    /// The start of a row.
    fn row(&self, case: &'static str, tasks: usize) -> Row {
        let info = self.client.info();
        Row { engine: info.scheme, layout: info.layout, case, tasks, ..Row::default() }
    }
}

pub(crate) fn main(common: &Common, args: &Bench) -> Result<Finish, Failure> {
    let common = Common { url: args.engine.clone().or_else(|| common.url.clone()), ..common.clone() };
    let url = super::url(&common)?;
    // As a service has it: the library's own threads are beside these.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut rows = Vec::new();
    let mut show = |row: Row| -> Result<bool, Failure> {
        let more = render::print(&if args.json { row.json()? } else { row.line(rows.is_empty()) })?;
        rows.push(row);
        Ok(more)
    };
    let arena = Arc::new(runtime.block_on(Arena::open(&common, url))?);
    for &tasks in &args.tasks {
        if !show(runtime.block_on(cases::uncontended(&arena, tasks, args.seconds))?)? {
            return Ok(Finish::Code(exit::OK));
        }
    }
    for &waiters in &args.waiters {
        if !show(runtime.block_on(cases::contended(&arena, waiters, args.seconds))?)? {
            return Ok(Finish::Code(exit::OK));
        }
    }
    if args.holders > 0 {
        show(runtime.block_on(cases::renew(&arena, args.holders, args.seconds))?)?;
    }
    if let Some(file) = &args.html {
        let page = report::html(&arena.client.info().endpoint, &rows);
        std::fs::write(file, page)
            .map_err(|e| Failure::new(exit::OUTPUT, format!("cannot write {}: {e}", file.display())))?;
    }
    runtime.block_on(arena.client.shutdown(GRACE))?;
    Ok(Finish::Code(exit::OK))
}
