//! `fencelock semaphore resize`

use super::Finish;
use crate::args::{Common, Semaphore};
use crate::exit::{self, Failure};

pub(crate) fn main(common: &Common, args: &Semaphore) -> Result<Finish, Failure> {
    let Semaphore::Resize(args) = args;
    let url = super::url(common)?;
    super::runtime()?.block_on(async {
        let client = super::connect(common, &url).await?;
        client.semaphore(&args.name, args.from).resize(args.from, args.to).await?;
        Ok(Finish::Code(exit::OK))
    })
}
