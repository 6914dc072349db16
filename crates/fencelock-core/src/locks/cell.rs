//! A value that nobody locks: whoever was first with the version wins.
use super::Options;
use crate::{
    engine::{Cells, Engine, lacks},
    error::{Error, ErrorKind, Result},
    keeper::Keeper,
    observe,
    pauses::Pauses,
    types::{Conflict, HoldId, Missing, Name, Version, Versioned},
};
use std::{sync::Arc, time::Duration};

/// How long a write is sent again when its reply is lost. Less than engines remember it (SAFETY A6).
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest pause of [`Cell::update`].
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// A small value with a version, for optimistic writes: load it, compute, and write if nobody else has written since. A name is
/// a cell or a lock, not both.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), fencelock_core::Error> {
/// # use std::sync::Arc;
/// # let engine = fencelock_core::memory::MemoryEngine::new();
/// # let client = fencelock_core::Client::builder(Arc::new(engine)).build()?;
/// let stock = client.cell("stock/42");
/// let first = stock.compare_exchange(stock.load().await?.version, "7").await??;
/// let late = stock.compare_exchange(fencelock_core::Version::NONE, "9").await?.unwrap_err();
/// assert_eq!(late.now.version, first);                 // and late.now.value is what stands there
///
/// let now = stock.update(|value| {
///     let n: u64 = value.and_then(|v| std::str::from_utf8(v).ok()?.parse().ok()).unwrap_or(0);
///     (n - 1).to_string()
/// }).await?;
/// assert_eq!(now.value.as_deref(), Some(&b"6"[..]));
/// stock.remove(now.version).await??;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Cell(Options);
impl Cell {
    /// The largest value, in bytes.
    pub const MAX_BYTES: usize = 256 * 1024;

    pub(crate) fn new(options: Options) -> Self {
        Self(options)
    }
    /// What stands there, and its version.
    ///
    /// # Errors
    /// `InvalidName`, `KindMismatch`: it is a lock; `Unsupported` where the engine has no cells; or what the engine says.
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn load(&self) -> Result<Versioned> {
        let (keeper, name) = self.ready()?;
        let load = async move { observe::timed(&keeper, "load", cells(&*keeper.engine)?.load(&name)).await };
        self.0.core.on_runtime(load).await.map_err(Error::of_a_read)
    }
    /// Writes `value` if the version is still `expected`; [`Version::NONE`] for a cell that was never written. A reply that is
    /// lost is asked for again, and a write that had won is not told as a conflict (SAFETY A6).
    ///
    /// # Errors
    /// As [`load`](Self::load); `InvalidConfig`: the value is too large; `Ambiguous`: no answer for 10 s, it may have been
    /// written.
    ///
    /// # Cancel safety
    /// If dropped it may or may not have been written.
    pub async fn compare_exchange(
        &self,
        expected: Version,
        value: impl Into<Vec<u8>>,
    ) -> Result<Result<Version, Conflict>> {
        self.write(expected, Some(value.into().into())).await
    }
    /// Removes the value if the version is still `expected`. The next write's version is greater all the same.
    ///
    /// # Errors
    /// As [`compare_exchange`](Self::compare_exchange).
    ///
    /// # Cancel safety
    /// If dropped it may or may not have been removed.
    pub async fn remove(&self, expected: Version) -> Result<Result<Version, Conflict>> {
        self.write(expected, None).await
    }
    /// Loads, computes and writes until nobody came in between. `f` may be called several times; between two of them it waits
    /// for a random time that grows up to 100 ms.
    ///
    /// # Errors
    /// As [`compare_exchange`](Self::compare_exchange).
    ///
    /// # Cancel safety
    /// If dropped it may or may not have been written, once at most.
    pub async fn update<V: Into<Vec<u8>>>(&self, mut f: impl FnMut(Option<&[u8]>) -> V) -> Result<Versioned> {
        let mut before = self.load().await?;
        let mut pauses = Pauses::new(Duration::from_millis(1), LONGEST_PAUSE);
        loop {
            let value: Arc<[u8]> = f(before.value.as_deref()).into().into();
            if let Ok(version) = self.write(before.version, Some(value.clone())).await? {
                return Ok(Versioned { version, value: Some(value) });
            }
            // Others go on meanwhile: it is loaded anew.
            self.0.core.pause(pauses.next().mul_f64(fastrand::f64())).await;
            before = self.load().await?;
        }
    }
    async fn write(&self, expected: Version, value: Option<Arc<[u8]>>) -> Result<Result<Version, Conflict>> {
        let (keeper, name) = self.ready()?;
        if let Some(large) = value.as_ref().map(|value| value.len()).filter(|n| *n > Self::MAX_BYTES) {
            let large = Error::new(ErrorKind::InvalidConfig, "cell", format!("a value of {large} bytes is too large"));
            return Err(large.with("name", name).hint("at most 256 KiB: store it elsewhere, and its place here"));
        }
        let core = self.0.core.clone();
        let nonce: HoldId = core.minter.mint();
        let write = async move {
            let ends = core.keeper().clock.now() + PATIENCE;
            let cells = cells(&*keeper.engine)?;
            let (mut refused, mut pauses) = (None, Pauses::short());
            loop {
                let sent = cells.compare_exchange(&name, expected, value.clone(), nonce);
                let sent = observe::timed(&keeper, "compare_exchange", sent);
                let rest = core.keeper().clock.now().until(ends);
                match tokio::time::timeout(rest.min(Duration::from_secs(1)), sent).await {
                    Ok(Ok(answer)) => return Ok(answer),
                    Ok(Err(e)) if !e.is_temporary() => return Err(e),
                    answer if core.keeper().clock.now() < ends => {
                        refused = answer.ok().and_then(Result::err);
                        tokio::time::sleep(pauses.next()).await;
                    }
                    answer => {
                        let refused = answer.ok().and_then(Result::err).or(refused);
                        let mute =
                            Error::new(ErrorKind::Ambiguous, "cell", "the engine does not answer").after(refused);
                        return Err(mute.with("name", name).hint("it may have been written: load it before you go on"));
                    }
                }
            }
        };
        self.0.core.on_runtime(write).await
    }
    fn ready(&self) -> Result<(Arc<Keeper>, Name)> {
        self.0.core.ready("cell")?;
        Ok((self.0.core.keeper().clone(), self.0.name()?))
    }
}
fn cells(engine: &dyn Engine) -> Result<&dyn Cells> {
    engine.cells().ok_or_else(|| lacks(engine, Missing::Cells, "cell", "cells").hint("use another engine"))
}
