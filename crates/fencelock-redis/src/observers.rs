//! Those who want to hear of changes of who holds a lock.
use crate::{error::Fault, shared::Shared};
use fencelock_core::{Name, Status, Token};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{Notify, oneshot},
    time::timeout,
};

/// What they are answered.
pub(crate) type Reply = oneshot::Sender<Result<Status, Fault>>;
/// Without pushes they look so often.
const POLL: Duration = Duration::from_millis(250);
/// And with them so often, should one have been lost.
const CALM: Duration = Duration::from_secs(5);

/// Answers when the token of the one who holds alone is not `seen`.
pub(crate) async fn observe(shared: Arc<Shared>, name: Name, seen: Option<Token>, mut reply: Reply) {
    let key = shared.keys.key(&name);
    let observed = Observed::new(&shared, &key);
    let Some(changed) = &observed.changed else { return };
    loop {
        let change = changed.notified();
        tokio::pin!(change);
        // From here on no change is missed: the look that follows makes the server tell of the next one.
        change.as_mut().enable();
        let nap = match shared.glance(&name).await {
            Ok(status) => {
                let holder = status.exclusive();
                if holder.map(|holder| holder.token) != seen {
                    let _ = reply.send(Ok(status));
                    return;
                }
                // A lease that ends by itself is told by nobody.
                let left = holder.map_or(CALM, |holder| holder.left + Duration::from_millis(1));
                if shared.pushed { left.min(CALM) } else { left.min(POLL) }
            }
            Err(fault) if shared.link.tell("observe", &fault).is_temporary() => POLL,
            Err(fault) => {
                let _ = reply.send(Err(fault));
                return;
            }
        };
        tokio::select! {
            () = reply.closed() => return,
            _ = timeout(nap, change) => {}
        }
    }
}
/// However the look ends, the key is not kept.
pub(crate) struct Observed<'a> {
    shared: &'a Shared,
    key: &'a str,
    pub(crate) changed: Option<Arc<Notify>>,
}
impl<'a> Observed<'a> {
    pub(crate) fn new(shared: &'a Shared, key: &'a str) -> Self {
        Self { shared, key, changed: Some(shared.observe(key)) }
    }
}
impl Drop for Observed<'_> {
    fn drop(&mut self) {
        if let Some(changed) = self.changed.take() {
            self.shared.forget(self.key, changed);
        }
    }
}
