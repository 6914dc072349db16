//! Five servers that know nothing of each other, and what each of them has.
use super::*;
use fencelock_core::HoldId;
use fencelock_testkit::RedisOptions;

pub const NODES: usize = 5;
pub struct Five(pub Vec<Redis>);
impl Five {
    /// They keep what they have said over a restart.
    pub fn start() -> Self {
        Self(Redis::several(NODES, &RedisOptions { append_only: true, ..RedisOptions::default() }))
    }
    pub fn url(&self) -> String {
        redlock_url(self.0.iter().map(|node| format!("127.0.0.1:{}", node.port())))
    }
    pub async fn client(&self) -> Client {
        client(&self.url()).await
    }
    /// Of one server, as somebody whose Redlock is another.
    pub async fn alone(&self) -> Vec<Client> {
        let mut all = Vec::new();
        for node in &self.0 {
            all.push(client(&node.url()).await);
        }
        all
    }
    /// Who holds it alone, on each; nobody on those that are dead.
    pub fn holders(&self, name: &str) -> Vec<Option<HoldId>> {
        let key = format!("fl:{name}");
        let holder = |node: &Redis| node.ask(&["HGET", &key, "o"]).ok()?.split(' ').next()?.parse().ok();
        self.0.iter().map(holder).collect()
    }
    /// On which of them this hold has a part: the last byte of its id counts the questions.
    pub fn parts(&self, name: &str, hold: HoldId) -> Vec<usize> {
        let is_it = |at: &HoldId| at.to_bytes()[..15] == hold.to_bytes()[..15];
        let holders = self.holders(name);
        (0..NODES).filter(|node| holders[*node].as_ref().is_some_and(is_it)).collect()
    }
    /// How many wait for it, on all of them together.
    pub fn waiting(&self, name: &str) -> usize {
        let key = format!("fl:{name}");
        let waits = |node: &Redis| node.ask(&["HGET", &key, "q"]).ok()?.parse::<usize>().ok();
        self.0.iter().filter_map(waits).sum()
    }
    /// Until these are all who hold it, and nobody waits.
    pub async fn only(&self, name: &str, holders: &[Option<HoldId>]) {
        eventually(&format!("nothing more of {name}"), || async {
            self.holders(name) == holders && self.waiting(name) == 0
        })
        .await;
    }
    pub async fn nothing_is_left(&self, name: &str) {
        self.only(name, &[None; NODES]).await;
    }
}
pub fn redlock_url(hosts: impl Iterator<Item = String>) -> String {
    format!("redlock://{}", hosts.collect::<Vec<_>>().join(","))
}
