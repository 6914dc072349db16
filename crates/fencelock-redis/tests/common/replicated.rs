//! Primaries with replicas, behind sentinels or in a cluster.
use super::failovers::FAILOVER;
use fencelock_testkit::{RedisCluster, Sentinels};

pub trait Replicated {
    /// How it is reached, with these keys.
    fn url(&self, keys: &str) -> String;
    /// That of this key, once all are as they should be.
    fn primary(&self, key: &str) -> usize;
    fn replicas(&self, primary: usize) -> Vec<usize>;
    fn say(&self, server: usize, words: &[&str]) -> String;
    fn stop(&self, server: usize, stopped: bool);
    fn kill(&self, server: usize);
    /// Another one is the primary of this key, and all agree.
    fn promoted(&self, key: &str, old: usize);
    /// It runs again, and follows.
    fn restart(&self, server: usize);
    /// These keys have one primary.
    fn lie_together(&self, one: &str, other: &str) -> bool;
    /// From here on nobody has what is written but this one, until these [go on](Self::go_on).
    fn cut_off(&self, primary: usize) -> Vec<usize> {
        let replicas = self.replicas(primary);
        replicas.iter().for_each(|replica| self.stop(*replica, true));
        self.say(primary, &["CLIENT", "KILL", "TYPE", "replica"]);
        replicas
    }
    fn go_on(&self, replicas: &[usize]) {
        replicas.iter().for_each(|replica| self.stop(*replica, false));
    }
}
impl Replicated for Sentinels {
    fn url(&self, keys: &str) -> String {
        format!("redis+sentinel://{}/{}?{keys}", self.endpoints(), self.name())
    }
    fn primary(&self, _: &str) -> usize {
        self.settle(FAILOVER)
    }
    fn replicas(&self, primary: usize) -> Vec<usize> {
        (0..3).filter(|n| *n != primary).collect()
    }
    fn say(&self, server: usize, words: &[&str]) -> String {
        self.ask(server, words).unwrap()
    }
    fn stop(&self, server: usize, stopped: bool) {
        self.pause(server, stopped);
    }
    fn kill(&self, server: usize) {
        Self::kill(self, server);
    }
    fn promoted(&self, _: &str, old: usize) {
        Self::promoted(self, old, FAILOVER);
    }
    fn restart(&self, server: usize) {
        Self::restart(self, server);
        self.settle(FAILOVER);
    }
    fn lie_together(&self, _: &str, _: &str) -> bool {
        true
    }
}
impl Replicated for RedisCluster {
    fn url(&self, keys: &str) -> String {
        format!("redis+cluster://{}?{keys}", self.endpoints())
    }
    fn primary(&self, key: &str) -> usize {
        self.settle(FAILOVER);
        self.primary_of(self.slot(key)).unwrap()
    }
    fn replicas(&self, primary: usize) -> Vec<usize> {
        self.replicas_of(primary)
    }
    fn say(&self, server: usize, words: &[&str]) -> String {
        self.ask(server, words).unwrap()
    }
    fn stop(&self, server: usize, stopped: bool) {
        self.pause(server, stopped);
    }
    fn kill(&self, server: usize) {
        Self::kill(self, server);
    }
    fn promoted(&self, key: &str, old: usize) {
        Self::promoted(self, self.slot(key), old, FAILOVER);
    }
    fn restart(&self, server: usize) {
        Self::restart(self, server);
        self.settle(FAILOVER);
    }
    fn lie_together(&self, one: &str, other: &str) -> bool {
        self.primary_of(self.slot(one)) == self.primary_of(self.slot(other))
    }
}
