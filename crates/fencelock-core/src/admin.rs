//! What an operator does for a store before anybody locks anything in it.
use crate::error::Result;
use async_trait::async_trait;
use std::fmt;

/// The schema of an engine that has one. Whoever may make it does so by connecting; this is for those who may not.
///
/// `role`: who is given the rights that it takes to use it, and none to make or change it.
#[async_trait]
pub trait Admin: fmt::Debug + Send + Sync {
    /// All of it, for the store's own terminal.
    ///
    /// # Errors
    /// What the store says, where it has to be asked for the place.
    ///
    /// # Cancel safety
    /// It only reads.
    async fn schema(&self, role: Option<&str>) -> Result<String>;
    /// Makes what is missing.
    ///
    /// # Errors
    /// `PermissionDenied`, `Unreachable`, `InvalidConfig`, as when connecting.
    ///
    /// # Cancel safety
    /// If dropped it may or may not have been done; a repeat does what is left.
    async fn migrate(&self, role: Option<&str>) -> Result<()>;
}
