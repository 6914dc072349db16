//! Story: a process that has no room for a thread at the moment is told so, and the client works when there is some again. In a process of
//! its own: the limit is everybody's.
//!
//! Planted to see it red: an outcome that is kept (told for ever); the first thread left to itself when there is no second one.
#![allow(clippy::unwrap_used)] // helpers of tests
#![cfg(target_os = "linux")]

mod common;
use common::*;
use fencelock_core::{ErrorKind, memory::MemoryEngine};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Of this process.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}
#[test]
fn a_keeper_that_could_not_start_starts_with_the_next_use() {
    let limits = getrlimit(Resource::As);
    let before = threads();
    let client = client(MemoryEngine::new().default_ttl(LONG));
    // For no thread, whose stack has two mebibytes; then for one of two.
    for room in [1 << 20, 3 << 20] {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
        let used = 1024 * size.trim().trim_end_matches(" kB").parse::<u64>().unwrap();
        setrlimit(Resource::As, Rlimit { current: Some(used + room), ..limits }).unwrap();
        let refused = block_on(client.mutex("x").lock());
        setrlimit(Resource::As, limits).unwrap();
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        assert!(error.to_string().contains("threads cannot start"), "{error}");
        eventually("none is left", 10 * SEC, || threads() == before);
    }
    let guard = block_on(client.mutex("x").lock()).unwrap();
    assert_eq!(threads(), before + 2);
    block_on(guard.release()).unwrap();
    drop(client);
    eventually("nor now", 10 * SEC, || threads() == before);
}
