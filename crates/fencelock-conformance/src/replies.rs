//! Commands and replies that are lost on the wire: of an engine whose connections carry a command once, so that none is doubled there, and
//! that asks again. For each step of a lock, and for each of the messages that it takes: one hold, the same token, one release frees it
//! (SAFETY A, G1).
use crate::{
    context::{eventually, within},
    proxy::{Proxy, Trouble},
    suite::full,
};
use fencelock_core::{Claim, Client, Token, Version};
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

const TROUBLES: [Trouble; 2] = [Trouble::LoseReply, Trouble::Lose];
/// To each of so many messages, one by one; commands are lost in full runs alone.
fn troubles(messages: u32) -> impl Iterator<Item = (Trouble, u32)> {
    let troubles = TROUBLES.into_iter().take(if full() { 2 } else { 1 });
    troubles.flat_map(move |trouble| (0..messages).map(move |n| (trouble, n)))
}

/// A lock by two ways.
pub struct Wire {
    /// As names begin.
    pub words: String,
    /// On the way of the first.
    pub proxy: Proxy,
    /// Whose words are lost.
    pub client: Client,
    /// Whose words are not.
    pub other: Client,
    /// What the server itself says is the token of whoever holds it alone.
    pub token: Box<dyn Fn(&str) -> i64 + Send + Sync>,
}
impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wire({:?})", self.proxy)
    }
}
impl Wire {
    /// All of it.
    ///
    /// # Panics
    /// Something of it is not so.
    pub async fn prove(&self) {
        self.acquired().await;
        self.confirmed().await;
        self.released().await;
        self.downgraded().await;
        self.withdrawn().await;
        self.permitted().await;
        self.resized().await;
        self.written().await;
    }
    fn name(&self, what: &str) -> String {
        format!("{}-{what}", self.words)
    }
    /// From now on this is done to the message that names this after so many others, once. Whether it was met.
    fn meets(&self, name: &str, after: u32, trouble: Trouble) -> Arc<AtomicU32> {
        let (count, met, name) = (AtomicU32::new(0), Arc::new(AtomicU32::new(0)), name.to_owned());
        let seen = met.clone();
        self.proxy.rule(move |message| {
            let names = message.windows(name.len()).any(|part| part == name.as_bytes());
            if !names || count.fetch_add(1, SeqCst) != after {
                return Trouble::None;
            }
            seen.fetch_add(1, SeqCst);
            trouble
        });
        met
    }
    async fn queued(&self, name: &str, n: usize) {
        eventually("it waits", || async { self.other.inspect(name).await.is_ok_and(|it| it.waiters.len() == n) }).await;
    }
    /// One holds it, with this token, by everybody's word.
    async fn is_alone(&self, name: &str, token: Token) {
        let status = self.other.inspect(name).await.unwrap();
        let holders: Vec<_> = status.holders.iter().map(|holder| holder.token).collect();
        assert_eq!((holders, status.waiters.len()), (vec![token], 0), "{name}: {status:?}");
        assert_eq!((self.token)(name), token.get(), "{name}");
    }
    /// Nobody holds it and nobody waits, and the next one gets a greater token.
    async fn is_free(&self, name: &str, after: Token) {
        let status = self.other.inspect(name).await.unwrap();
        assert!(!status.is_held() && status.waiters.is_empty(), "{status:?}");
        let next = self.other.mutex(name).try_lock().await.unwrap().unwrap();
        assert!(next.token() > after, "{name}");
        next.release().await.unwrap();
    }

    async fn acquired(&self) {
        let name = self.name("acquired");
        self.other.mutex(&name).lock().await.unwrap().release().await.unwrap();
        for trouble in TROUBLES {
            let met = self.meets(&name, 0, trouble);
            let guard = within("it is granted", self.client.mutex(&name).lock()).await.unwrap();
            assert_eq!(met.load(SeqCst), 1, "{trouble:?}");
            self.is_alone(&name, guard.token()).await;
            let token = guard.token();
            guard.release().await.unwrap();
            self.is_free(&name, token).await;
        }
    }
    /// A waiter finds that it is his turn.
    async fn confirmed(&self) {
        let name = self.name("confirmed");
        for trouble in TROUBLES {
            let held = self.other.mutex(&name).lock().await.unwrap();
            let wait = tokio::spawn(self.client.mutex(&name).lock());
            self.queued(&name, 1).await;
            // He has said all that he has to say.
            self.proxy.commands();
            eventually("he listens", || async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                self.proxy.commands().is_empty()
            })
            .await;
            let met = self.meets(&name, 0, trouble);
            held.release().await.unwrap();
            let guard = within("his turn", wait).await.unwrap().unwrap();
            assert_eq!(met.load(SeqCst), 1, "{trouble:?}");
            self.is_alone(&name, guard.token()).await;
            let token = guard.token();
            guard.release().await.unwrap();
            self.is_free(&name, token).await;
        }
    }
    async fn released(&self) {
        let name = self.name("released");
        for trouble in TROUBLES {
            let guard = self.client.mutex(&name).lock().await.unwrap();
            let token = guard.token();
            let met = self.meets(&name, 0, trouble);
            within("it is given back", guard.release()).await.unwrap_or_else(|e| panic!("{trouble:?}: {e}"));
            assert_eq!(met.load(SeqCst), 1, "{trouble:?}");
            self.is_free(&name, token).await;
        }
    }
    async fn downgraded(&self) {
        let name = self.name("downgraded");
        for trouble in TROUBLES {
            let writer = self.client.rw_lock(&name).write().await.unwrap();
            let token = writer.token();
            let met = self.meets(&name, 0, trouble);
            let reader = within("it reads", writer.downgrade()).await.unwrap_or_else(|e| panic!("{trouble:?}: {e}"));
            assert_eq!(met.load(SeqCst), 1, "{trouble:?}");
            let status = self.other.inspect(&name).await.unwrap();
            let holders: Vec<_> = status.holders.iter().map(|holder| (holder.claim, holder.token)).collect();
            assert_eq!(holders, [(Claim::Read, token)], "{trouble:?}");
            self.other.rw_lock(&name).try_read().await.unwrap().unwrap().release().await.unwrap();
            reader.release().await.unwrap();
            self.other.rw_lock(&name).try_write().await.unwrap().unwrap().release().await.unwrap();
        }
    }
    /// Whoever waits goes.
    async fn withdrawn(&self) {
        let name = self.name("withdrawn");
        for trouble in TROUBLES {
            let held = self.other.mutex(&name).lock().await.unwrap();
            let wait = tokio::spawn(self.client.mutex(&name).lock());
            self.queued(&name, 1).await;
            let met = self.meets(&name, 0, trouble);
            wait.abort();
            self.queued(&name, 0).await;
            assert_eq!(met.load(SeqCst), 1, "{trouble:?}");
            self.is_alone(&name, held.token()).await;
            let token = held.token();
            held.release().await.unwrap();
            self.is_free(&name, token).await;
        }
    }
    /// A permit takes several messages on some engines; each of them is lost once.
    async fn permitted(&self) {
        let (name, mut all) = (self.name("permitted"), 0);
        for (trouble, after) in troubles(6) {
            let met = self.meets(&name, after, trouble);
            let permit = within("it is granted", self.client.semaphore(&name, 1).acquire(1)).await.unwrap();
            let status = self.other.inspect(&name).await.unwrap();
            assert_eq!((status.holders.len(), status.waiters.len()), (1, 0), "{trouble:?} {after}: {status:?}");
            within("it is given back", permit.release()).await.unwrap_or_else(|e| panic!("{trouble:?} {after}: {e}"));
            let status = self.other.inspect(&name).await.unwrap();
            assert!(!status.is_held() && status.waiters.is_empty(), "{trouble:?} {after}: {status:?}");
            all += met.load(SeqCst);
        }
        assert!(all >= 1, "the run must bite: {all}");
    }
    async fn resized(&self) {
        let (name, mut size, mut all) = (self.name("resized"), 2, 0);
        self.other.semaphore(&name, size).acquire(1).await.unwrap().release().await.unwrap();
        for (trouble, after) in troubles(3) {
            let met = self.meets(&name, after, trouble);
            let next = 5 - size;
            let resized = within("it is resized", self.client.semaphore(&name, size).resize(size, next)).await;
            resized.unwrap_or_else(|e| panic!("{trouble:?} {after}: {e}"));
            size = next;
            self.other.semaphore(&name, size).try_acquire(1).await.unwrap().unwrap().release().await.unwrap();
            all += met.load(SeqCst);
        }
        assert!(all >= 1, "the run must bite: {all}");
    }
    /// A cell's value.
    async fn written(&self) {
        let (name, mut version, mut all) = (self.name("written"), Version::NONE, 0);
        for (trouble, after) in troubles(3) {
            let (met, value) = (self.meets(&name, after, trouble), format!("{trouble:?} {after}"));
            let cell = self.client.cell(&name);
            let swapped = within("it is written", cell.compare_exchange(version, value.as_bytes())).await;
            version = swapped.unwrap().unwrap_or_else(|now| panic!("{value}: written twice: {now:?}"));
            let now = self.other.cell(&name).load().await.unwrap();
            assert_eq!((now.version, now.value.as_deref()), (version, Some(value.as_bytes())));
            all += met.load(SeqCst);
        }
        assert!(all >= 1, "the run must bite: {all}");
    }
    /// Every third sign of life is lost, or what is said to it: no hold is. `beats` says which messages are one, `ttl` how long the hold
    /// is good without any.
    ///
    /// # Panics
    /// The hold is lost.
    pub async fn signs_of_life(&self, ttl: Duration, beats: fn(&[u8]) -> bool) {
        let name = self.name("alive");
        let guard = self.client.mutex(&name).lock().await.unwrap();
        let (count, met) = (AtomicU32::new(0), Arc::new(AtomicU32::new(0)));
        let seen = met.clone();
        self.proxy.rule(move |message| {
            if !beats(message) || !count.fetch_add(1, SeqCst).is_multiple_of(3) {
                return Trouble::None;
            }
            TROUBLES[seen.fetch_add(1, SeqCst) as usize % 2]
        });
        tokio::time::sleep(ttl + ttl / 2).await;
        // A machine that stood still has said fewer by now.
        eventually("two are lost", || std::future::ready(met.load(SeqCst) >= 2)).await;
        guard.check().unwrap();
        assert!(met.load(SeqCst) >= 2, "the run must bite: {met:?}");
        self.proxy.calm();
        self.is_alone(&name, guard.token()).await;
        guard.release().await.unwrap();
    }
}
