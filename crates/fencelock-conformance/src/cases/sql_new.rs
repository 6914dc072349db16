//! sql.md 12.9: new cases, ours.
use super::prelude::*;

cases! {}
roles! {}
