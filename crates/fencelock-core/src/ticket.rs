//! A hold on its way from one client to another.
use crate::{
    clock::Moment,
    error::{Error, ErrorKind, Result},
    types::{Claim, EngineId, Grant, HoldId, Lease, Name, Token},
};
use std::{fmt, str::FromStr, time::Duration};

/// A hold that nobody has in hand: text that another process can be given, on its standard input or in a message. It is good
/// for its ttl, and for one adoption: see [`Held::into_ticket`](crate::Held::into_ticket). Whoever has it has the lock.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), fencelock_core::Error> {
/// # use std::sync::Arc;
/// # use fencelock_core::{BootClock, Client, Ticket, memory::{MemoryEngine, MemoryServer}};
/// # let server = MemoryServer::new(Arc::new(BootClock));
/// # let here = Client::builder(Arc::new(MemoryEngine::on(server.clone()))).build()?;
/// # let there = Client::builder(Arc::new(MemoryEngine::on(server))).build()?;
/// let guard = here.mutex("orders/42").lock().await?;
/// let first = guard.token();
/// let text = guard.into_ticket().await?.to_string();
///
/// let ticket: Ticket = text.parse()?;
/// let guard = there.adopt(&ticket).await?;
/// assert!(guard.token() > first);
/// assert!(there.adopt(&ticket).await.is_err());
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq)]
#[must_use = "whoever has it has the lock: unused, nobody gets it for a ttl"]
pub struct Ticket {
    engine: EngineId,
    name: Name,
    claim: Claim,
    hold: HoldId,
    token: Token,
    ttl: Duration,
}
impl Ticket {
    pub(crate) fn new(engine: EngineId, grant: &Grant) -> Self {
        let Grant { name, claim, hold, token, ttl, .. } = grant.clone();
        Self { engine, name, claim, hold, token, ttl }
    }
    /// The store that it is good for.
    pub fn engine(&self) -> EngineId {
        self.engine
    }
    /// What is locked.
    pub fn name(&self) -> &Name {
        &self.name
    }
    /// How.
    pub fn claim(&self) -> Claim {
        self.claim
    }
    /// For how long it is good, and how long the hold is good afterwards without a renewal.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }
    /// As the engine has it.
    pub(crate) fn grant(&self) -> Grant {
        let Self { name, claim, hold, token, ttl, .. } = self.clone();
        let lease = Lease::Own { sent_at: Moment::ZERO };
        Grant { name, claim, hold, token, ttl, lease, server_micros: 0, place: None }
    }
}
/// `fencelock1:ENGINE:HOLD:TOKEN:TTL in ns:CLAIM:BYTES:NAME`; the name comes last, for it may hold anything, and says how long it
/// is, so that a cut text is seen and an end of line does no harm.
impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { engine, name, hold, token, .. } = self;
        let claim = match self.claim {
            Claim::Mutex => "mutex".to_owned(),
            Claim::Read => "read".to_owned(),
            Claim::Write => "write".to_owned(),
            Claim::Permits { take, of } => format!("{take}/{of}"),
        };
        write!(f, "fencelock1:{engine}:{hold}:{token}:{}:{claim}:{}:{name}", self.ttl.as_nanos(), name.as_str().len())
    }
}
impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Whoever has the whole text has the lock.
        write!(f, "Ticket({} {:?})", self.claim, self.name.as_str())
    }
}
impl FromStr for Ticket {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let refused = || {
            let no_ticket = Error::new(ErrorKind::InvalidConfig, "ticket", "this is no ticket of a lock");
            no_ticket.hint("it begins with fencelock1: and is given on as it was printed")
        };
        let mut parts = text.splitn(8, ':');
        if parts.next() != Some("fencelock1") {
            return Err(refused());
        }
        let mut part = || parts.next().ok_or_else(refused);
        let engine = EngineId::from_bytes(part()?.parse::<HoldId>().map_err(|_| refused())?.to_bytes());
        let hold = part()?.parse::<HoldId>().map_err(|_| refused())?;
        let token = part()?.parse().ok().and_then(Token::new).ok_or_else(refused)?;
        let ttl = Duration::from_nanos(part()?.parse().map_err(|_| refused())?);
        let claim = match part()? {
            "mutex" => Claim::Mutex,
            "read" => Claim::Read,
            "write" => Claim::Write,
            permits => {
                let (take, of) = permits.split_once('/').ok_or_else(refused)?;
                Claim::Permits { take: take.parse().map_err(|_| refused())?, of: of.parse().map_err(|_| refused())? }
            }
        };
        let bytes: usize = part()?.parse().map_err(|_| refused())?;
        let (name, rest) = part()?.split_at_checked(bytes).ok_or_else(refused)?;
        if !rest.trim().is_empty() {
            return Err(refused());
        }
        Ok(Self { engine, name: Name::new(name)?, claim, hold, token, ttl })
    }
}
