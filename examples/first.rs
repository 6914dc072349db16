//! The README's first program: one lock, one fenced write. `cargo run --example first`
use fencelock::Result;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let client = fencelock::connect("sqlite:").await?;
    println!("locks are kept in {}", client.info().endpoint);

    let guard = client.mutex("orders/42").note("shipping").lock().await?;
    println!("held with token {}, good for {:?} without a renewal", guard.token(), guard.remaining());

    // Work that stops when the lock is lost.
    guard.run(tokio::time::sleep(std::time::Duration::from_millis(100))).await?;
    guard.release().await
}
