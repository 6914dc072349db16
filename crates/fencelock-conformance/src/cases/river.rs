//! sql.md 12.6: River.
use super::prelude::*;

cases! {}
roles! {}
