//! consensus.md 7: Jepsen, workloads and models.
use super::prelude::*;

cases! {}
roles! {}
