//! consensus.md 6: Consul.
use super::prelude::*;

cases! {}
roles! {}
