//! Every way to have a lock, for tests that tell one story of them all.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
use fencelock_core::{Claim, Client, Guard, Result, SharedGuard, Token};
use std::time::Duration;

/// Each way to have a lock, as the functions call it, and one that does not fit in beside it.
pub const CLAIMS: [(&str, Claim, Claim); 4] = [
    ("m", Claim::Mutex, Claim::Mutex),
    ("w", Claim::Write, Claim::Read),
    ("r", Claim::Read, Claim::Write),
    ("p", Claim::Permits { take: 2, of: 3 }, Claim::Permits { take: 2, of: 3 }),
];
/// A guard of any of them.
#[derive(Debug)]
pub enum Any {
    /// Of a claim that is alone.
    Alone(Guard),
    /// Of one that others may share.
    Shared(SharedGuard),
}
impl Any {
    /// Waits for it.
    pub async fn lock(client: &Client, name: &str, claim: Claim, ttl: Duration) -> Result<Self> {
        Ok(match claim {
            Claim::Read => Self::Shared(client.rw_lock(name).ttl(ttl).read().await?),
            Claim::Write => Self::Alone(client.rw_lock(name).ttl(ttl).write().await?),
            Claim::Permits { take, of } => Self::Shared(client.semaphore(name, of).ttl(ttl).acquire(take).await?),
            _ => Self::Alone(client.mutex(name).ttl(ttl).lock().await?),
        })
    }
    /// Tries it; `None`: it is busy.
    pub async fn attempt(client: &Client, name: &str, claim: Claim) -> Result<Option<Self>> {
        Ok(match claim {
            Claim::Read => client.rw_lock(name).try_read().await?.ok().map(Self::Shared),
            Claim::Write => client.rw_lock(name).try_write().await?.ok().map(Self::Alone),
            Claim::Permits { take, of } => client.semaphore(name, of).try_acquire(take).await?.ok().map(Self::Shared),
            _ => client.mutex(name).try_lock().await?.ok().map(Self::Alone),
        })
    }
    /// Whether a try finds it busy.
    pub async fn is_busy(client: &Client, name: &str, claim: Claim) -> bool {
        Self::attempt(client, name, claim).await.unwrap().is_none()
    }
    /// Its number; one that is shared has none.
    pub fn token(&self) -> Option<Token> {
        match self {
            Self::Alone(guard) => Some(guard.token()),
            Self::Shared(_) => None,
        }
    }
    /// Ends it, and says whether that came through.
    pub async fn release(self) -> Result<()> {
        match self {
            Self::Alone(guard) => guard.release().await,
            Self::Shared(guard) => guard.release().await,
        }
    }
}
