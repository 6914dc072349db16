//! consensus.md 6: Curator, locks and semaphores.
use super::prelude::*;

cases! {}
roles! {}
