//! Fence checks.
use super::*;
