//! A peer who locks and releases as he is told: most cases need no role of their own.
use crate::{
    case::roles,
    peer::{Peer, RoleContext},
};
use fencelock_core::{Error, Guard, LossReason, SharedGuard, Token, Try};
use std::{collections::HashMap, fmt::Display, time::Duration};

roles! {
    "puppet" => puppet;
}

/// A peer who locks and releases as he is told. He has at most one hold of a name. His errors are failures of the case.
///
/// What waits is asked for in two steps: `ask_…` sends the order, [`granted`](Self::granted) hears its end. He hears nothing
/// else in between.
#[derive(Debug)]
pub struct Puppet(Peer);
impl Puppet {
    pub(crate) fn new(peer: Peer) -> Self {
        Self(peer)
    }
    /// Waits for a mutex.
    pub async fn lock(&mut self, name: &str) -> Token {
        self.ask_lock(name);
        self.granted().await
    }
    /// Takes a mutex for a fixed time.
    pub async fn lease(&mut self, name: &str, d: Duration) -> Token {
        self.0.tell(&format!("lease {} {name}", d.as_millis()));
        self.granted().await
    }
    /// Tries a mutex; `None`: somebody has it.
    pub async fn try_lock(&mut self, name: &str) -> Option<Token> {
        self.tried(&format!("try {name}")).await
    }
    /// Waits to write.
    pub async fn write(&mut self, name: &str) -> Token {
        self.ask_write(name);
        self.granted().await
    }
    /// Tries to write; `None`: somebody is in the way.
    pub async fn try_write(&mut self, name: &str) -> Option<Token> {
        self.tried(&format!("try-write {name}")).await
    }
    /// Waits to read.
    pub async fn read(&mut self, name: &str) {
        self.ask_read(name);
        self.shared().await;
    }
    /// Tries to read.
    pub async fn try_read(&mut self, name: &str) -> bool {
        self.0.tell(&format!("try-read {name}"));
        self.0.hear("").await.starts_with("held")
    }
    /// Waits for permits.
    pub async fn acquire(&mut self, name: &str, take: u32, of: u32) {
        self.ask_acquire(name, take, of);
        self.shared().await;
    }
    /// Tries to get permits.
    pub async fn try_acquire(&mut self, name: &str, take: u32, of: u32) -> bool {
        self.0.tell(&format!("try-acquire {take} {of} {name}"));
        self.0.hear("").await.starts_with("held")
    }
    /// Tells him to wait for a mutex.
    pub fn ask_lock(&mut self, name: &str) {
        self.0.tell(&format!("lock {name}"));
    }
    /// Tells him to wait for the right to write.
    pub fn ask_write(&mut self, name: &str) {
        self.0.tell(&format!("write {name}"));
    }
    /// Tells him to wait for the right to read.
    pub fn ask_read(&mut self, name: &str) {
        self.0.tell(&format!("read {name}"));
    }
    /// Tells him to wait for permits.
    pub fn ask_acquire(&mut self, name: &str, take: u32, of: u32) {
        self.0.tell(&format!("acquire {take} {of} {name}"));
    }
    /// What he has asked for alone is granted.
    pub async fn granted(&mut self) -> Token {
        let said = self.0.hear("held").await;
        token(&said).unwrap_or_else(|| panic!("a grant without a token: {said:?}"))
    }
    /// What he has asked for beside others is granted.
    pub async fn shared(&mut self) {
        self.0.hear("held").await;
    }
    /// Releases; whether it was still held.
    pub async fn release(&mut self, name: &str) -> bool {
        self.0.tell(&format!("release {name}"));
        self.0.hear("released").await == "true"
    }
    /// Drops the guard.
    pub async fn forget(&mut self, name: &str) {
        self.0.tell(&format!("drop {name}"));
        self.0.hear("dropped").await;
    }
    /// Whether his hold is good, as far as he knows.
    pub async fn is_valid(&mut self, name: &str) -> bool {
        self.0.tell(&format!("check {name}"));
        self.0.hear("checked").await == "true"
    }
    /// Waits until he is told that it is lost.
    pub async fn lost(&mut self, name: &str) -> String {
        self.0.tell(&format!("lost {name}"));
        self.0.hear("lost").await
    }
    /// He dies without a word: [`Peer::crash`].
    pub async fn crash(&mut self) -> u64 {
        self.0.crash().await
    }
    /// The peer himself: signals, his process id.
    pub fn peer(&mut self) -> &mut Peer {
        &mut self.0
    }
    async fn tried(&mut self, order: &str) -> Option<Token> {
        self.0.tell(order);
        let said = self.0.hear("").await;
        token(said.strip_prefix("held")?.trim())
    }
}
fn token(text: &str) -> Option<Token> {
    text.parse().ok().and_then(Token::new)
}

enum Any {
    Alone(Guard),
    Shared(SharedGuard),
}
impl Any {
    fn is_valid(&self) -> bool {
        match self {
            Self::Alone(guard) => guard.is_valid(),
            Self::Shared(guard) => guard.is_valid(),
        }
    }
    async fn lost(&self) -> LossReason {
        match self {
            Self::Alone(guard) => guard.lost().await,
            Self::Shared(guard) => guard.lost().await,
        }
    }
    async fn release(self) -> Result<(), Error> {
        match self {
            Self::Alone(guard) => guard.release().await,
            Self::Shared(guard) => guard.release().await,
        }
    }
}

/// An order is a word, numbers, and the name, which may hold spaces.
async fn puppet(mut me: RoleContext) {
    let mut held: HashMap<String, Any> = HashMap::new();
    while let Some(order) = me.hear().await {
        let (verb, rest) = order.split_once(' ').unwrap_or((&order, ""));
        let (client, number) =
            (&me.client, |text: &str| text.parse::<u32>().unwrap_or_else(|e| panic!("{text:?}: {e}")));
        let (name, first, second) = match verb {
            "lease" => {
                let (ms, name) = two(rest);
                (name, number(ms), 0)
            }
            "acquire" | "try-acquire" => {
                let ((take, rest), (of, name)) = (two(rest), two(two(rest).1));
                debug_assert!(rest.ends_with(name));
                (name, number(take), number(of))
            }
            _ => (rest, 0, 0),
        };
        let (got, say): (Option<Any>, String) = match verb {
            "lock" => alone(client.mutex(name).lock().await.map(Ok)),
            "lease" => alone(client.mutex(name).lease(Duration::from_millis(first.into())).lock().await.map(Ok)),
            "try" => alone(client.mutex(name).try_lock().await),
            "write" => alone(client.rw_lock(name).write().await.map(Ok)),
            "try-write" => alone(client.rw_lock(name).try_write().await),
            "read" => shared(client.rw_lock(name).read().await.map(Ok)),
            "try-read" => shared(client.rw_lock(name).try_read().await),
            "acquire" => shared(client.semaphore(name, second).acquire(first).await.map(Ok)),
            "try-acquire" => shared(client.semaphore(name, second).try_acquire(first).await),
            "release" => {
                let released = match held.remove(name) {
                    Some(any) => any.release().await.is_ok(),
                    None => false,
                };
                (None, format!("released {released}"))
            }
            "drop" => {
                held.remove(name);
                (None, "dropped".to_owned())
            }
            "check" => (None, format!("checked {}", held.get(name).is_some_and(Any::is_valid))),
            "lost" => match held.get(name) {
                Some(any) => (None, format!("lost {:?}", any.lost().await)),
                None => panic!("{name:?} is not held"),
            },
            other => panic!("no such order: {other}"),
        };
        held.extend(got.map(|any| (name.to_owned(), any)));
        me.say(say);
    }
}
fn two(text: &str) -> (&str, &str) {
    text.split_once(' ').unwrap_or_else(|| panic!("a word is missing: {text:?}"))
}
fn alone(answer: Result<Try<Guard>, Error>) -> (Option<Any>, String) {
    match answer.unwrap_or_else(failed) {
        Ok(guard) => {
            let say = format!("held {}", guard.token());
            (Some(Any::Alone(guard)), say)
        }
        Err(busy) => (None, format!("busy {busy}")),
    }
}
fn shared(answer: Result<Try<SharedGuard>, Error>) -> (Option<Any>, String) {
    match answer.unwrap_or_else(failed) {
        Ok(guard) => (Some(Any::Shared(guard)), "held".to_owned()),
        Err(busy) => (None, format!("busy {busy}")),
    }
}
fn failed<T>(error: impl Display) -> T {
    panic!("{error}")
}
