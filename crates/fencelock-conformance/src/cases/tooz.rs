//! sql.md 12.4: tooz.
use super::prelude::*;

cases! {}
roles! {}
