//! redis.md 6.4: other suites of Redisson: MultiLock, semaphores, re-entry.
use super::prelude::*;

cases! {}
roles! {}
