//! A member is cut off from the others: whoever holds a lock by it is told the loss before the next one is granted it (SAFETY E6).
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_core::Client;
use fencelock_etcd::{Config, EtcdEngine};
use fencelock_testkit::{
    Etcd, EtcdOptions, Network, in_its_own_network,
    partition::{Cut, Members, a_way_out, no_way_out},
};
use std::sync::Arc;

struct Cluster(Etcd, Arc<Network>);
impl Cluster {
    fn start() -> Self {
        let network = Arc::new(Network::new(3));
        let options = EtcdOptions { members: 3, network: Some(network.clone()), ..EtcdOptions::default() };
        Self(Etcd::with(options), network)
    }
}
impl Members for Cluster {
    fn network(&self) -> &Network {
        &self.1
    }
    fn leader(&self) -> Option<usize> {
        self.0.leader()
    }
    fn serves(&self, member: usize) -> bool {
        self.0.serves(member)
    }
    async fn client(&self, members: &[usize]) -> Client {
        let endpoints: Vec<_> = members.iter().map(|member| self.0.endpoint(*member)).collect();
        let mut config = Config::from_url(&self.0.url_of(&endpoints.join(","))).unwrap();
        config.ttl = 4 * SEC;
        built(EtcdEngine::connect(config).await.unwrap())
    }
}
fn in_a_network(name: &str, test: impl AsyncFnOnce(Cluster)) {
    if in_its_own_network(name) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(test(Cluster::start()));
    }
}

#[test]
fn a_follower_cut_off() {
    in_a_network("a_follower_cut_off", async |cluster| no_way_out("etcd", &cluster, Cut::Follower).await);
}
#[test]
fn a_leader_cut_off() {
    in_a_network("a_leader_cut_off", async |cluster| no_way_out("etcd", &cluster, Cut::Leader).await);
}
#[test]
fn a_follower_cut_off_and_others_to_go_to() {
    let test = async |cluster| a_way_out("etcd", &cluster, Cut::Follower).await;
    in_a_network("a_follower_cut_off_and_others_to_go_to", test);
}
#[test]
fn a_leader_cut_off_and_others_to_go_to() {
    let test = async |cluster| a_way_out("etcd", &cluster, Cut::Leader).await;
    in_a_network("a_leader_cut_off_and_others_to_go_to", test);
}
