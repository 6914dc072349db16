//! consensus.md 6: etcd.
use super::prelude::*;

cases! {}
roles! {}
