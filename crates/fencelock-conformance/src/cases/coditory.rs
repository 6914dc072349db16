//! sql.md 12.8: with_advisory_lock, coditory, sherlock.
use super::prelude::*;

cases! {
    "coditory/reconnect-after-db-failure" => reconnect, needs: [Server];
}
roles! {}

async fn reconnect(cx: Context) {
    let (a, b) = (cx.client().await, cx.client().await);
    let (kept, waited, fresh) = (cx.name("kept"), cx.name("waited"), cx.name("fresh"));
    let server = cx.fixture().server().unwrap();
    for _ in 0..2 {
        let keep = a.mutex(&kept).lock().await.unwrap();
        let held = a.mutex(&waited).lock().await.unwrap();
        let wait = tokio::spawn(b.mutex(&waited).lock());
        cx.queued(&a, &waited, 1).await;
        server.stop().await;
        for client in [&a, &b] {
            let answer = within("it does not hang", client.mutex(&fresh).try_lock_for(100 * MS)).await;
            assert!(answer.is_err_and(|e| e.is_temporary()), "neither free nor held: nobody knows");
        }
        server.start().await;
        for client in [&a, &b] {
            within("by itself", client.mutex(&fresh).lock()).await.unwrap().release().await.unwrap();
            within("by itself", client.inspect(&kept)).await.unwrap();
        }
        keep.check().expect("its lease is long");
        keep.release().await.unwrap();
        held.release().await.unwrap();
        within("his turn", wait).await.unwrap().unwrap().release().await.unwrap();
    }
}
