//! How to test code of your own that holds locks: a lost lock, a takeover and a lost reply, in milliseconds.
//!
//! `cargo run --example testing`. In a project of yours these are functions under `#[tokio::test(start_paused = true)]`, with
//! tokio's feature `test-util`.
#![allow(clippy::unwrap_used, reason = "as in a test")]
use fencelock::{Client, ErrorKind, LossReason, Operation, Token, testing};
use std::{error::Error, time::Duration};

/// Code under test: takes an order, works on it for a minute, and writes it with the token of its lock.
async fn ship(client: &Client, store: &mut Store) -> fencelock::Result<()> {
    let guard = client.mutex("orders/42").ttl(Duration::from_secs(30)).lock().await?;
    // Stopped where it stands when the lock is lost.
    guard.run(tokio::time::sleep(Duration::from_secs(60))).await?;
    store.write(guard.token());
    guard.release().await
}

/// A resource that is fenced: it refuses whoever has an older token than the last one.
#[derive(Default)]
struct Store {
    fence: i64,
    written: u32,
}
impl Store {
    fn write(&mut self, token: Token) {
        if token.get() >= self.fence {
            (self.fence, self.written) = (token.get(), self.written + 1);
        }
    }
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn Error>> {
    let began = std::time::Instant::now();
    let mut store = Store::default();

    // All goes well: a minute of work, renewals included.
    let (client, control) = testing::memory();
    ship(&client, &mut store).await?;
    assert_eq!(store.written, 1);

    // The store cannot be reached any more: the work is stopped before anybody else can have the lock.
    let cut = async {
        control.advance(Duration::from_secs(5)).await;
        control.cut();
    };
    let (shipped, ()) = tokio::join!(ship(&client, &mut store), cut);
    assert_eq!(shipped.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(store.written, 1, "nothing was written without the lock");
    control.restore();

    // Somebody takes it over in the middle of the work: told at once, and the fence keeps the old holder out.
    let guard = client.mutex("orders/42").lock().await?;
    let thief = control.take_over("orders/42").await?;
    assert_eq!(guard.lost().await, LossReason::TakenOver);
    store.write(thief.token());
    store.write(guard.token());
    assert_eq!(store.written, 2, "the old holder's write was refused");
    thief.release().await?;

    // The reply of a release is lost: it is repeated under the same hold id, and has one effect.
    control.lose_reply(Operation::Release);
    client.mutex("orders/42").lock().await?.release().await?;
    assert_eq!(control.census(), (0, 0), "nobody holds, nobody waits");

    // That of a grant: your code is told, and what it was granted is taken back.
    control.lose_reply(Operation::Acquire);
    assert_eq!(ship(&client, &mut store).await.unwrap_err().kind(), ErrorKind::Ambiguous);
    control.advance(Duration::from_secs(2)).await;
    assert_eq!(control.census(), (0, 0), "nobody holds, nobody waits");

    assert!(began.elapsed() < Duration::from_secs(5), "minutes of the lock's time, and none of ours");
    println!("a lost lock, a takeover and two lost replies in {} ms", began.elapsed().as_millis());
    Ok(())
}
