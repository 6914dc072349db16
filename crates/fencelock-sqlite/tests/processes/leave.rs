//! Planted to see them go red: the last one out that does not wait; a sweep that is never made.
use crate::{
    bar,
    common::{FAREWELL, Folder, eventually},
    tenth,
    worker::{Worker, now},
};
use std::time::Duration;

pub(crate) fn end_of_main() {
    let folder = Folder::new();
    let (rounds, mut in_time) = (tenth(1_000), 0);
    for _ in 0..rounds {
        let mut worker = Worker::start(&["exit", folder.database().to_str().unwrap(), "x"]);
        let (leaves, _) = worker.hear("leaves");
        assert!(worker.wait());
        if Duration::from_nanos(now() - leaves) >= FAREWELL {
            // It may have waited in vain, and has kept its word: the next one buries it.
            continue;
        }
        // It waited for it before it ended: nothing to wait for here.
        in_time += 1;
        assert_eq!(folder.count("SELECT count(*) FROM fencelock_holder"), 0, "the record is released");
    }
    assert!(in_time > 0, "the run must bite");
    bar("end of main on SQLite: released", format!("{in_time} of {rounds}"), "all", in_time == rounds);
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
