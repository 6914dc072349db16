//! Distributed locks with fencing tokens over the engines you already run.
//!
//! One API, one feature per engine; `default = []`: name the engines that you use. Start at [`connect`] and [`Client::mutex`];
//! [`Held`] says what a guard promises, [`Token`] how to fence writes with it.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), fencelock::Error> {
//! let client = fencelock::connect("memory:").await?;
//! let guard = client.mutex("orders/42").lock().await?;
//! println!("mine, with token {}", guard.token());
//! guard.release().await?;
//! # Ok(()) }
//! ```
use std::sync::Arc;

#[cfg(all(doctest, feature = "sqlite"))]
#[doc = include_str!("../../../README.md")]
struct Readme;

pub use fencelock_core::*;

/// The embedded engine.
#[cfg(feature = "sqlite")]
pub mod sqlite {
    pub use fencelock_sqlite::{Config, SqliteEngine};
}

/// Connects to the engine of a URL: `sqlite:` (the user's default database), `sqlite:/path/locks.db`, `memory:`.
///
/// # Errors
/// `InvalidConfig` for the URL, `Unsupported` for an engine that is not built in, and what the engine says.
///
/// # Cancel safety
/// If dropped nothing is left but, perhaps, an empty database.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let error = fencelock::connect("sqlit:locks.db").await.unwrap_err();
/// assert!(error.to_string().contains("did you mean sqlite:"));
/// # }
/// ```
pub async fn connect(url: &str) -> Result<Client> {
    let parsed = url::Url::parse(url)?;
    let engine: Arc<dyn Engine> = match parsed.scheme() {
        "memory" => {
            parsed.finish(&[])?;
            Arc::new(memory::MemoryEngine::new())
        }
        #[cfg(feature = "sqlite")]
        "sqlite" => Arc::new(fencelock_sqlite::SqliteEngine::from_url(url)?),
        #[cfg(not(feature = "sqlite"))]
        "sqlite" => {
            let missing = Error::new(ErrorKind::Unsupported, "connect", "this build has no sqlite: engine");
            return Err(missing.hint("add the feature \"sqlite\" of the crate fencelock"));
        }
        other => {
            let known =
                if cfg!(feature = "sqlite") { "known here: sqlite:PATH, memory:" } else { "known here: memory:" };
            let way_out = match url::nearest(other, &["sqlite", "memory"]) {
                Some(meant) => format!("did you mean {meant}:? {known}"),
                None => known.to_owned(),
            };
            let unknown = Error::new(ErrorKind::InvalidConfig, "connect", format!("unknown scheme {other:?}"));
            return Err(unknown.hint(way_out));
        }
    };
    Client::builder(engine).build()
}
