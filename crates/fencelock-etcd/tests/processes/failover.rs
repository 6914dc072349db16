//! Leaders are killed while many contend.
use crate::scene::Scene;
use fencelock_testkit::{Etcd, processes::stories};
use std::time::Duration;

/// Of the contenders' holds, as [`worker`](crate::worker) has it.
const TTL: Duration = Duration::from_secs(5);

pub(crate) fn leaders_killed() {
    let scene = Scene::of(Etcd::cluster());
    stories::leaders_killed(&scene, &scene.etcd, TTL);
}
