//! The same server, with the keys of others.
//! Planted to see it go red: a `SET` without looking whether the key is there (overlaps).
use crate::{
    common::{PLAIN, client},
    scene::Scene,
};
use fencelock_core::Client;
use fencelock_testkit::processes::{self, Scene as _, Worker};
use std::{path::Path, time::Duration};
use tokio::runtime::Runtime;

pub(crate) struct Plain(Scene, Client);
impl Plain {
    fn of(scene: Scene) -> Self {
        let url = format!("{}?{PLAIN}", scene.server.url());
        let client = scene.runtime().block_on(client(&url));
        Self(scene, client)
    }
}
impl processes::Scene for Plain {
    const ENGINE: &'static str = "Redis, plain";
    const WORKERS: &'static str = Scene::WORKERS;
    const TTL: Duration = Scene::TTL;
    const BRIEF: Duration = Scene::BRIEF;
    const AFTER_TTL: Duration = Scene::AFTER_TTL;

    fn new() -> Self {
        Self::of(Scene::new())
    }
    fn with_wrong_clocks() -> Self {
        Self::of(Scene::with_wrong_clocks())
    }
    fn folder(&self) -> &Path {
        self.0.folder()
    }
    fn runtime(&self) -> &Runtime {
        self.0.runtime()
    }
    fn client(&self) -> &Client {
        &self.1
    }
    fn start(&self, n: usize, role: &str, words: &[&str]) -> Worker {
        self.0.start_at(&format!("{}?{PLAIN}", self.0.server.url()), n, role, words)
    }
    fn traces(&self) -> usize {
        usize::try_from(self.0.number(&["EVAL", "return #redis.call('KEYS','lock:*')", "0"])).unwrap()
    }
}
