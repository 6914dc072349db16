//! A process' wall clock, set by the test: a library that is loaded before all others.
use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::PathBuf,
    process::Command,
    sync::atomic::{AtomicI64, Ordering::SeqCst},
    time::Duration,
};

/// The clock of the processes that are started with it; right until it is stepped.
#[derive(Debug)]
pub struct WallClock {
    folder: PathBuf,
    offset: File,
    micros: AtomicI64,
}
impl WallClock {
    /// Builds the library, with the C compiler of this machine.
    ///
    /// # Panics
    /// It cannot be built.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "it starts a compiler")]
    pub fn new() -> Self {
        // Not in memory: containers forbid to run what is there.
        let name = format!("fencelock-clock-{}-{:08x}", std::process::id(), fastrand::u32(..));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
        std::fs::write(&source, include_str!("clock.c")).unwrap_or_else(|e| panic!("{}: {e}", source.display()));
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]);
        let made = compiler.arg(library).arg(source).arg("-ldl").status().unwrap_or_else(|e| panic!("cc: {e}"));
        assert!(made.success(), "cc: {made}");
        let file = folder.join("offset");
        let offset = File::create(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let clock = Self { folder, offset, micros: AtomicI64::new(0) };
        clock.set(0);
        clock
    }
    /// One that is 11 minutes ahead, and one that is as much behind.
    ///
    /// # Panics
    /// They cannot be built.
    #[must_use]
    pub fn apart() -> Vec<Self> {
        let clock = |forward| {
            let clock = Self::new();
            clock.step(Duration::from_secs(660), forward);
            clock
        };
        vec![clock(true), clock(false)]
    }
    /// What a process is started with.
    #[must_use]
    pub fn environment(&self) -> [(&'static str, PathBuf); 2] {
        [("LD_PRELOAD", self.folder.join("clock.so")), ("FENCELOCK_CLOCK", self.folder.join("offset"))]
    }
    fn set(&self, micros: i64) {
        self.offset.write_all_at(&micros.to_ne_bytes(), 0).unwrap_or_else(|e| panic!("the offset: {e}"));
    }
    /// From now on it shows so much more, or less.
    pub fn step(&self, by: Duration, forward: bool) {
        let by = i64::try_from(by.as_micros()).unwrap_or(i64::MAX / 4);
        let by = if forward { by } else { -by };
        self.set(self.micros.fetch_add(by, SeqCst) + by);
    }
}
impl Drop for WallClock {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
