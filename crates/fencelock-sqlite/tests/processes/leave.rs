//! Planted to see them go red: the last one out that does not wait; a sweep that is never made.
use crate::{
    bar,
    common::{Folder, eventually},
    tenth,
    worker::Worker,
};
use std::time::Duration;

pub(crate) fn end_of_main() {
    let folder = Folder::new();
    let rounds = tenth(1_000);
    for _ in 0..rounds {
        let worker = Worker::start(&["exit", folder.database().to_str().unwrap(), "x"]);
        assert!(worker.wait());
        // It waited for it before it ended: nothing to wait for here.
        assert_eq!(folder.count("SELECT count(*) FROM fencelock_holder"), 0, "the record is released");
    }
    bar("end of main on SQLite: released", format!("{rounds} of {rounds}"), "all", true);
}

pub(crate) fn leftovers() {
    let folder = Folder::new();
    for _ in 0..tenth(1_000) {
        assert!(Worker::start(&["exit", folder.database().to_str().unwrap(), "x"]).wait());
    }
    for i in 0..tenth(100) {
        let mut holder = Worker::hold(&folder.database(), &format!("x{i}"), Duration::from_secs(30));
        holder.hear("held");
        holder.kill();
        drop(holder);
    }
    // Whoever comes next tidies up.
    let client = folder.client();
    let guard = crate::common::runtime().block_on(client.mutex("y").lock()).unwrap();
    eventually("only the living have a session", Duration::from_secs(10), || {
        folder.count("SELECT count(*) FROM fencelock_session") == 1 && folder.files().len() == 2
    });
    assert_eq!(folder.count("SELECT count(*) FROM fencelock_holder"), 1);
    assert_eq!(folder.count("SELECT count(*) FROM fencelock_waiter"), 0);
    drop(guard);
}
