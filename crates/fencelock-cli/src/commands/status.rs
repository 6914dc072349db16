//! `fencelock status`

use super::Finish;
use crate::args::{Common, Status};
use crate::exit::{self, Failure};
use crate::render;

pub(crate) fn main(common: &Common, args: &Status) -> Result<Finish, Failure> {
    let url = super::url(common)?;
    super::runtime()?.block_on(async {
        let client = super::connect_to_look(common, &url).await?;
        let status = client.inspect(&args.name).await?;
        if args.quiet {
            return Ok(Finish::Code(if status.holders.is_empty() { exit::NONE } else { exit::OK }));
        }
        let text = if args.json { render::json(&status, client.info())? } else { render::status(&status) };
        render::print(&text)?;
        Ok(Finish::Code(exit::OK))
    })
}
