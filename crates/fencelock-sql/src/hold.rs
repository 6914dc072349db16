//! Who holds which lock, as a database is told.
use crate::fence::Stamp;
use fencelock_core::{Claim, Guard, Held, HoldId, Name, Result, SharedGuard, Token};

/// A hold of a lock that is kept in the same PostgreSQL, for [`fence::guard`](crate::fence::guard).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> fencelock_core::Result<()> {
/// # let client = fencelock_core::Client::builder(std::sync::Arc::new(fencelock_core::memory::MemoryEngine::new())).build()?;
/// use fencelock_sql::Hold;
/// let guard = client.mutex("orders/42").lock().await?;
/// let hold = Hold::from(&guard).schema("locks").namespace("shop");   // as the URL of the engine says
/// # let _ = hold;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "it names a hold, and does nothing by itself"]
pub struct Hold {
    pub(crate) name: Name,
    pub(crate) id: HoldId,
    /// Of an exclusive one: so that it is in the lock's own row.
    pub(crate) alone: bool,
    pub(crate) schema: Option<String>,
    pub(crate) namespace: String,
}
impl Hold {
    /// One that another process has, and has told of.
    ///
    /// # Errors
    /// `InvalidName`.
    ///
    /// ```
    /// use fencelock_core::{Claim, HoldId};
    /// let hold = fencelock_sql::Hold::new("orders/42", HoldId::from_bytes([7; 16]), Claim::Mutex).unwrap();
    /// # let _ = hold;
    /// ```
    pub fn new(name: impl AsRef<str>, id: HoldId, claim: Claim) -> Result<Self> {
        let alone = matches!(claim, Claim::Mutex | Claim::Write);
        Ok(Self { name: Name::new(name)?, id, alone, schema: None, namespace: String::new() })
    }
    /// The schema of the lock's tables, where it is not the first one of your search path.
    ///
    /// ```
    /// # use fencelock_core::{Claim, HoldId};
    /// # let hold = fencelock_sql::Hold::new("orders/42", HoldId::from_bytes([7; 16]), Claim::Mutex).unwrap();
    /// let hold = hold.schema("locks");
    /// # let _ = hold;
    /// ```
    pub fn schema(self, schema: impl Into<String>) -> Self {
        Self { schema: Some(schema.into()), ..self }
    }
    /// The namespace, where the engine's URL names one.
    ///
    /// ```
    /// # use fencelock_core::{Claim, HoldId};
    /// # let hold = fencelock_sql::Hold::new("orders/42", HoldId::from_bytes([7; 16]), Claim::Mutex).unwrap();
    /// let hold = hold.namespace("shop");
    /// # let _ = hold;
    /// ```
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), ..self }
    }
}
impl From<&Held> for Hold {
    fn from(held: &Held) -> Self {
        let alone = matches!(held.claim(), Claim::Mutex | Claim::Write);
        Self { name: held.name().clone(), id: held.id(), alone, schema: None, namespace: String::new() }
    }
}
impl From<&Guard> for Hold {
    fn from(guard: &Guard) -> Self {
        Self::from(&**guard)
    }
}
impl From<&SharedGuard> for Hold {
    fn from(guard: &SharedGuard) -> Self {
        Self::from(&**guard)
    }
}
/// Its token, and the id of its hold.
impl From<&Guard> for Stamp {
    fn from(guard: &Guard) -> Self {
        Self::new(guard.token(), guard.id().to_string())
    }
}
impl<O: Into<String>> From<(Token, O)> for Stamp {
    fn from((token, owner): (Token, O)) -> Self {
        Self::new(token, owner)
    }
}
