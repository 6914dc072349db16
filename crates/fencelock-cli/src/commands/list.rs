//! `fencelock list`

use std::io::IsTerminal;
use std::time::Duration;

use fencelock::{Client, Name, Page, Status};

use super::Finish;
use crate::args::{Common, List};
use crate::exit::{self, Failure};
use crate::render;

pub(crate) fn main(common: &Common, args: &List) -> Result<Finish, Failure> {
    let url = super::url(common)?;
    super::runtime()?.block_on(async {
        let client = super::connect_to_look(common, &url).await?;
        let mut shown: Option<Vec<String>> = None;
        let (mut names, mut is_told) = (Vec::<Name>::new(), false);
        loop {
            let locks = match all(&client, &args.prefix).await {
                // Said once; what is shown is as it was.
                Err(error) if args.watch && error.is_temporary() && render::is_read() => {
                    if !std::mem::replace(&mut is_told, true) {
                        render::complain(&format!("{}; it is looked again", Failure::from(error)));
                    }
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    continue;
                }
                locks => locks?,
            };
            is_told = false;
            let now = fingerprint(&locks);
            if shown.as_ref() != Some(&now) {
                let mut text = page(args, &client, &locks)?;
                if args.json {
                    // Programs do not see that a line is not there any more.
                    for gone in names.iter().filter(|name| locks.iter().all(|lock| lock.name != **name)) {
                        text.push_str(&render::json(&Status::free((*gone).clone()), client.info())?);
                    }
                }
                if !render::print(&text)? {
                    return Ok(Finish::Code(exit::OK));
                }
                names = locks.iter().map(|lock| lock.name.clone()).collect();
                shown = Some(now);
            }
            if !args.watch || !render::is_read() {
                return Ok(Finish::Code(exit::OK));
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    })
}

/// Every lock once, by name: an engine may repeat some between pages.
async fn all(client: &Client, prefix: &str) -> fencelock::Result<Vec<Status>> {
    let mut locks: Vec<Status> = Vec::new();
    let mut page = Page::default();
    loop {
        let listing = client.list(prefix, &page).await?;
        locks.extend(listing.items);
        match listing.next {
            Some(next) => page.after = Some(next),
            None => break,
        }
    }
    locks.sort_by(|a, b| a.name.as_str().cmp(b.name.as_str()));
    locks.dedup_by(|a, b| a.name.as_str() == b.name.as_str());
    Ok(locks)
}

/// What counts as a change: who holds and who waits and how many may, not for how long.
fn fingerprint(locks: &[Status]) -> Vec<String> {
    let one = |s: &Status| {
        let holds = s.holders.iter().map(|h| h.hold.to_string());
        let waits = s.waiters.iter().map(|w| w.hold.to_string());
        let (holds, waits) = (holds.collect::<String>(), waits.collect::<String>());
        format!("{} {:?} {holds} | {waits}", s.name.as_str(), s.capacity)
    };
    locks.iter().map(one).collect()
}

fn page(args: &List, client: &Client, locks: &[Status]) -> Result<String, Failure> {
    let mut text = String::new();
    for lock in locks {
        text.push_str(&if args.json { render::json(lock, client.info())? } else { render::line(lock) });
    }
    if args.watch && !args.json {
        if std::io::stdout().is_terminal() {
            // Home, and clear what is below.
            text.insert_str(0, "\x1b[H\x1b[J");
        } else {
            text.push('\n');
        }
    }
    Ok(text)
}
