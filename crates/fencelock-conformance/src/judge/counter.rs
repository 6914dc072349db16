//! A counter that loses an increment when two are inside.
use std::{fs, os::unix::fs::FileExt, path::PathBuf, time::Duration};

/// A number in a file: read, a short nap, written. Whoever comes in between loses an increment, or finds none.
#[derive(Clone, Debug)]
pub struct Counter(PathBuf);
impl Counter {
    /// In this file; zero while it is not there.
    pub fn at(file: PathBuf) -> Self {
        Self(file)
    }
    /// One more, if nobody else counts meanwhile.
    ///
    /// # Panics
    /// The file cannot be written.
    pub async fn bump(&self) {
        let n = self.value();
        if fastrand::bool() {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(Duration::from_micros(fastrand::u64(0..500))).await;
        }
        // All numbers are as long as each other, so that one never shows the end of another; and none is cut off first: whoever is killed
        // then would leave nothing.
        let write = || {
            let file = fs::OpenOptions::new().write(true).create(true).truncate(false).open(&self.0)?;
            file.write_all_at(format!("{:020}", n + 1).as_bytes(), 0)
        };
        write().unwrap_or_else(|e| panic!("{}: {e}", self.0.display()));
    }
    /// The number; zero when it cannot be read.
    pub fn value(&self) -> u64 {
        fs::read_to_string(&self.0).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seen red, as it is meant to be: without a lock increments are lost.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn without_a_lock_it_loses_increments() {
        let file = std::env::temp_dir().join(format!("fencelock-counter-{}", fastrand::u64(..)));
        let counter = Counter::at(file.clone());
        counter.bump().await;
        assert_eq!(counter.value(), 1);
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let counter = counter.clone();
                tokio::spawn(async move {
                    for _ in 0..50 {
                        counter.bump().await;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert!(counter.value() < 401, "{}", counter.value());
        fs::remove_file(file).unwrap();
    }
}
