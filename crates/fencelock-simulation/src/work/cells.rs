//! Values that nobody locks: a counter, so that what was written twice or not at all can be seen.
use super::Worker;
use crate::history::Written;

/// A counter's value.
pub(crate) fn number(value: Option<&[u8]>) -> u64 {
    let word: Option<[u8; 16]> = value.and_then(|value| value.try_into().ok());
    word.map_or(0, |word| u64::from_be_bytes(std::array::from_fn(|i| word[i])))
}
/// The counter, and who wrote it.
fn value(count: u64, by: u64) -> Vec<u8> {
    [count.to_be_bytes(), by.to_be_bytes()].concat()
}

impl Worker {
    pub(super) async fn cell(&mut self, name: u8) {
        let cell = self.process.client.cell(self.place(name));
        if self.rng.bool() {
            let mine = self.rng.u64(1..);
            let answer = cell.update(|before| value(number(before) + 1, mine)).await;
            return self.won(name, if answer.is_ok() { Written::Won } else { Written::Unknown });
        }
        let Ok(before) = cell.load().await else { return };
        let new = value(number(before.value.as_deref()) + 1, self.rng.u64(1..));
        let written = match cell.compare_exchange(before.version, new.clone()).await {
            Ok(Ok(_)) => Written::Won,
            Ok(Err(conflict)) => Written::Conflict { own: conflict.now.value.as_deref() == Some(&new[..]) },
            Err(_) => Written::Unknown,
        };
        self.won(name, written);
    }
}
