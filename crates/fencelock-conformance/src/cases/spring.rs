//! sql.md 12.3: Spring JDBC.
use super::prelude::*;

cases! {}
roles! {}
