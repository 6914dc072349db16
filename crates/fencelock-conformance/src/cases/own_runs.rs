//! consensus.md 6: ours, from its runs.
use super::prelude::*;

cases! {
    "nobody/sigstop-past-ttl" => sigstop_past_ttl, needs: [Processes];
}
roles! {}

async fn sigstop_past_ttl(cx: Context) {
    let (client, mut stopped, name) = (cx.client().await, cx.puppet().await, cx.name("m"));
    let old = stopped.lock(&name).await;
    stopped.peer().stop();
    let next = within("another is in", client.mutex(&name).lock()).await.unwrap();
    assert!(next.token() > old);
    stopped.peer().go_on();
    // Told by his own clock, whatever the engine says. (How soon is a bar of its own.)
    stopped.lost(&name).await;
    assert!(!stopped.is_valid(&name).await);
    assert!(!stopped.release(&name).await, "it was not his any more");
    next.check().unwrap();
    next.release().await.unwrap();
}
