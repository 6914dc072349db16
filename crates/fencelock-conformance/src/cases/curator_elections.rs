//! consensus.md 6: Curator, leader election.
use super::prelude::*;

cases! {}
roles! {}
