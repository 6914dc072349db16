//! consensus.md 6: client-go.
use super::prelude::*;

cases! {}
roles! {}
