//! `fencelock migrate`

use super::Finish;
use crate::args::{Common, Migrate};
use crate::exit::{self, Failure};
use crate::render::{self, complain};

pub(crate) fn main(common: &Common, args: &Migrate) -> Result<Finish, Failure> {
    let url = super::url(common)?;
    let role = args.role.as_deref();
    let Some(admin) = fencelock::admin(&url)? else {
        complain(&format!("{}: needs no schema", url.split(':').next().unwrap_or_default()));
        return Ok(Finish::Code(exit::OK));
    };
    super::runtime()?.block_on(async {
        if args.run {
            admin.migrate(role).await?;
            complain("the schema is there");
        } else {
            render::print(&admin.schema(role).await?)?;
        }
        Ok(Finish::Code(exit::OK))
    })
}
