//! sql.md 12.1: madelson, abstract cases.
use super::prelude::*;

cases! {}
roles! {}
