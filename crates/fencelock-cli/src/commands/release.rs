//! `fencelock release --force`

use fencelock::{Released, Token};

use super::Finish;
use crate::args::{Common, Release};
use crate::exit::{self, Failure};
use crate::render::{self, plain, tell};

pub(crate) fn main(common: &Common, args: &Release) -> Result<Finish, Failure> {
    let name = plain(&args.name);
    if !args.force {
        let refused = Failure::new(exit::USAGE, "release takes the lock away from a living holder: say --force");
        return Err(refused.hint("a job that has ended, or died, has released its lock already"));
    }
    let url = super::url(common)?;
    super::runtime()?.block_on(async {
        let client = super::connect_to_look(common, &url).await?;
        let status = client.inspect(&args.name).await?;
        // Who is hurt is shown before anything is done.
        for holder in &status.holders {
            tell(&format!("{name}: {}", render::holder(holder)));
        }
        if !status.is_held() {
            return Err(Failure::new(exit::LOST, format!("{name} is free: there is nothing to release")));
        }
        let Some(token) = args.token else {
            let missing = Failure::new(exit::USAGE, "say which hold is meant, so that its successor is not hit");
            let each = status.holders.iter().map(|holder| format!("--token {}", holder.token.get()));
            return Err(missing.hint(each.collect::<Vec<_>>().join(" or ")));
        };
        let token = Token::new(token)
            .ok_or_else(|| Failure::new(exit::USAGE, format!("{token} is no token: tokens are above zero")))?;
        match client.force_release(&args.name, token).await? {
            Released::Released => {
                tell(&format!("{name}: released"));
                tell("hint: the next holder may start before the old job is dead");
                Ok(Finish::Code(exit::OK))
            }
            Released::NotHeld { holder: Some(other) } => {
                let message = format!("{name} is not held with token {}: {}", token.get(), render::holder(&other));
                Err(Failure::new(exit::LOST, message).hint("nothing was released"))
            }
            _ => Err(Failure::new(exit::LOST, format!("{name} is not held with token {} any more", token.get()))),
        }
    })
}
