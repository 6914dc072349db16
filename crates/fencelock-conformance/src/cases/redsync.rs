//! redis.md 6.5: redsync.
use super::prelude::*;
use async_trait::async_trait;
use fencelock_core::{
    EngineInfo, Held, Listing, Outcome, Request, Ticket,
    memory::{MemoryEngine, MemoryServer},
};
use std::io;

cases! {
    "redsync/mutex-extend-expired" => mutex_extend_expired, needs: [FixedLeases];
    "redsync/mutex-unlock-expired" => mutex_unlock_expired, needs: [FixedLeases];
    "redsync/valid" => valid;
    "redsync/mutex-lock-unlock-split" => mutex_lock_unlock_split, needs: [Tickets];
    "redsync/redis-error-is-as" => redis_error_is_as;
}
roles! {}

/// What the engine was told of this hold.
fn grant_of(held: &Held, token: Token) -> Grant {
    let lease = Lease::Own { sent_at: BootClock.now() };
    let (name, claim, hold, ttl) = (held.name().clone(), held.claim(), held.id(), held.ttl());
    Grant { name, claim, hold, token, ttl, lease, server_micros: 0, place: None }
}
async fn holders(client: &Client, name: &str) -> Vec<HoldId> {
    client.inspect(name).await.unwrap().holders.iter().map(|holder| holder.hold).collect()
}
/// A hold that has run out, its client, and the engine below.
async fn expired(cx: &Context, name: &str) -> (Client, Arc<dyn Engine>, Guard) {
    let (client, below) = cx.connect(60 * SEC).await;
    let guard = client.mutex(name).lease(cx.short()).lock().await.unwrap();
    within("told", guard.lost()).await;
    cx.free(&client, name).await;
    (client, below.engine, guard)
}

async fn mutex_extend_expired(cx: Context) {
    let name = cx.name("m");
    let (client, engine, guard) = expired(&cx, &name).await;
    let grant = grant_of(&guard, guard.token());
    let other = cx.client().await;
    for next in [None, Some(other.mutex(&name))] {
        // Nobody has it, then another one has.
        let next = match next {
            None => None,
            Some(mutex) => {
                let is_over = async {
                    loop {
                        match mutex.try_lock().await.unwrap() {
                            Ok(next) => return next,
                            // Of a database's row that somebody's statement keeps nothing is known (SAFETY E2): not for long.
                            Err(busy) => assert!(busy.holder.is_none(), "it is over: {busy:?}"),
                        }
                    }
                };
                Some(within("it is over", is_over).await)
            }
        };
        let late = guard.extend(60 * SEC).await.unwrap_err();
        assert_eq!(late.kind(), ErrorKind::Lost);
        // Whatever core would have sent, the engine knows better.
        let answer = renewed(&*engine, &grant).await;
        assert!(matches!(answer, Renewed::Lost(_)), "{answer:?}");
        assert!(!guard.is_valid() && guard.remaining().is_zero());
        let now: Vec<_> = next.iter().map(|next| next.id()).collect();
        assert_eq!(holders(&client, &name).await, now, "nothing is revived");
        if let Some(next) = next {
            next.check().unwrap();
            next.release().await.unwrap();
        }
    }
}

async fn mutex_unlock_expired(cx: Context) {
    let (free, taken) = (cx.name("free"), cx.name("taken"));
    let ((client, engine, first), (other, below, second)) = tokio::join!(expired(&cx, &free), expired(&cx, &taken));
    assert_eq!(engine.release(&grant_of(&first, first.token())).await.unwrap(), Released::NotHeld { holder: None });
    assert!(client.inspect(&free).await.unwrap().holders.is_empty());

    let next = client.mutex(&taken).try_lock().await.unwrap().expect("it is over");
    let answer = below.release(&grant_of(&second, second.token())).await.unwrap();
    assert!(matches!(&answer, Released::NotHeld { holder: Some(now) } if now.hold == next.id()), "{answer:?}");
    for guard in [first, second] {
        let late = guard.release().await.unwrap_err();
        assert!(matches!(late.kind(), ErrorKind::Lost | ErrorKind::NotHeld), "{late}");
    }
    assert_eq!(holders(&other, &taken).await, [next.id()], "it frees nothing of others");
    next.check().unwrap();
    next.release().await.unwrap();
}

async fn valid(cx: Context) {
    let (a, b, name) = (cx.client_with(2 * cx.short()).await, cx.client().await, cx.name("m"));
    let guard = a.mutex(&name).lock().await.unwrap();
    let end = guard.valid_until();
    eventually("it is renewed", || async {
        assert!(guard.is_valid(), "{:?} left", guard.remaining());
        assert!(b.mutex(&name).try_lock().await.unwrap().is_err());
        guard.valid_until() > end
    })
    .await;
    guard.check().unwrap();
    guard.release().await.unwrap();
    b.mutex(&name).try_lock().await.unwrap().expect("free").release().await.unwrap();
}

async fn mutex_lock_unlock_split(cx: Context) {
    let (a, b, c, name) = (cx.client().await, cx.client().await, cx.client().await, cx.name("m"));
    let guard = a.mutex(&name).lock().await.unwrap();
    let first = guard.token();
    let text = guard.into_ticket().await.unwrap().to_string();
    assert_eq!(a.held(), 0, "the first object has nothing of it any more");
    assert!(c.mutex(&name).try_lock().await.unwrap().is_err(), "nobody gets in meanwhile");

    let ticket: Ticket = text.parse().unwrap();
    let other = b.adopt(&ticket).await.unwrap();
    assert!(other.token() > first && other.is_valid());
    assert_eq!(holders(&c, &name).await, [other.id()]);
    let late = a.adopt(&ticket).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::NotHeld, "it is good for one: {late}");
    other.check().unwrap();
    other.release().await.unwrap();
    c.mutex(&name).try_lock().await.unwrap().expect("released by the other object").release().await.unwrap();
}

/// An engine whose server refuses, and says why.
#[derive(Debug)]
struct Refusing(MemoryEngine);
#[derive(Debug)]
struct Reason(&'static str);
impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}
impl std::error::Error for Reason {}
#[async_trait]
impl Engine for Refusing {
    fn info(&self) -> &EngineInfo {
        self.0.info()
    }
    async fn acquire(&self, request: &Request) -> fencelock_core::Result<Outcome> {
        let refused = |kind| Error::new(kind, "lock", "the server refuses").with("name", request.name());
        Err(match request.name().as_str() {
            "rights" => refused(ErrorKind::PermissionDenied).because(io::Error::from(io::ErrorKind::PermissionDenied)),
            _ => refused(ErrorKind::Protocol).because(Reason("NOPROTO")),
        })
    }
    async fn withdraw(&self, request: &Request) -> fencelock_core::Result<()> {
        self.0.withdraw(request).await
    }
    async fn renew(&self, grants: &[Grant]) -> fencelock_core::Result<Vec<Renewed>> {
        self.0.renew(grants).await
    }
    async fn release(&self, grant: &Grant) -> fencelock_core::Result<Released> {
        self.0.release(grant).await
    }
    async fn inspect(&self, _: &Name) -> fencelock_core::Result<Status> {
        Err(Error::new(ErrorKind::Unreachable, "status", "no answer").because(io::Error::from(io::ErrorKind::BrokenPipe)))
    }
    async fn list(&self, prefix: &str, page: &Page) -> fencelock_core::Result<Listing> {
        self.0.list(prefix, page).await
    }
    async fn force_release(&self, name: &Name, token: Token) -> fencelock_core::Result<Released> {
        self.0.force_release(name, token).await
    }
}
fn cause<T: std::error::Error + 'static>(error: &Error) -> Option<&T> {
    std::error::Error::source(error).and_then(|source| source.downcast_ref())
}

/// Through core, not only as they were made: kind, operation, and the cause itself.
async fn redis_error_is_as(_: Context) {
    let engine = MemoryEngine::on(MemoryServer::new(Arc::new(BootClock)));
    let client = Client::builder(Arc::new(Refusing(engine))).build().unwrap();
    let mutex = |name: &str| client.mutex(name);
    for error in [mutex("rights").lock().await.unwrap_err(), mutex("rights").try_lock().await.unwrap_err()] {
        assert_eq!((error.kind(), error.operation()), (ErrorKind::PermissionDenied, "lock"));
        assert_eq!(cause::<io::Error>(&error).map(io::Error::kind), Some(io::ErrorKind::PermissionDenied));
        assert!(cause::<Reason>(&error).is_none() && !error.is_temporary());
    }
    let error = mutex("words").try_lock_for(STUCK).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
    assert_eq!(cause::<Reason>(&error).map(|reason| reason.0), Some("NOPROTO"));
    assert!(cause::<io::Error>(&error).is_none() && error.to_string().contains("NOPROTO"), "{error}");
    let error = client.inspect("words").await.unwrap_err();
    assert_eq!(cause::<io::Error>(&error).map(io::Error::kind), Some(io::ErrorKind::BrokenPipe));
    assert!(error.is_temporary());
    // An own error type over ours keeps the chain.
    let over = io::Error::other(error);
    let ours = over.get_ref().and_then(|inner| inner.downcast_ref::<Error>()).expect("ours");
    assert_eq!(ours.kind(), ErrorKind::Unreachable);
}
