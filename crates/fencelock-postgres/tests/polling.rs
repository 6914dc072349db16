//! Waiting where nothing tells that a turn has come, as behind a pooler of transactions: how often it is asked, and how soon.
//!
//! Which fault was planted to see one go red stands at it.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
#[path = "../../fencelock-testkit/stories/polling.rs"]
mod stories;
use common::*;
use fencelock_conformance::{proxy::Trouble, within};
use fencelock_core::Client;
use fencelock_testkit::{
    Postgres as Server,
    processes::{bar, full, percentile, tenth},
};
use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

const NAME: &str = "PostgreSQL";
async fn polling(url: &str) -> Client {
    client(&format!("{url}?listen=off")).await
}
