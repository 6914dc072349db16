//! Planted to see it go red: watchers that are not rung (1 s, in full); an observer that tells the same again.
use crate::{
    bar,
    common::{Folder, client},
    percentile, tenth,
    worker::{Worker, queued, say},
};
use std::{path::Path, time::Duration};

/// A leader is killed again and again: one leads at a time, terms rise, and observers in other processes see it.
pub(crate) fn leaders() {
    let (folder, kills) = (Folder::new(), tenth(50));
    let database = folder.database().to_str().unwrap().to_owned();
    let candidate = |i: usize| Worker::start(&["campaign", &database, &format!("node-{i}")]);
    let mut observers: Vec<_> = (0..2).map(|_| Worker::start(&["observe", &database])).collect();
    observers.iter_mut().for_each(|observer| drop(observer.hear("observes")));
    let mut queue = std::collections::VecDeque::from([candidate(0)]);
    let (mut ended, mut newest) = (0, 0);
    let mut seen = vec![0; observers.len()];
    let (mut told, mut taken) = (Vec::new(), Vec::new());
    for i in 1..=kills + 1 {
        let (_, term) = queue[0].hear("leads");
        let term: u64 = term.parse().unwrap();
        // From the grant on, not from when its process says so.
        let began = folder.count(&format!("SELECT since FROM fencelock_holder WHERE token = {term}"));
        let began = u64::try_from(began).unwrap();
        // One candidate at a time stands in the queue: else the next leader would be anybody's guess.
        queue.push_back(candidate(i));
        queued(&folder, 1);
        assert!(term > newest, "terms rise: {newest}, {term}");
        assert!(began > ended, "two leaders at once");
        if ended > 0 {
            taken.push(Duration::from_nanos(began - ended));
        }
        newest = term;
        for (observer, seen) in observers.iter_mut().zip(&mut seen) {
            // Terms may be skipped, and a time without a leader may be seen.
            while *seen < term {
                let (at, said) = observer.hear("sees");
                let now: u64 = said.parse().unwrap();
                assert!(now == 0 || now > *seen, "what an observer sees never goes back: {seen} {now}");
                if now > 0 {
                    *seen = now;
                    told.push(Duration::from_nanos(at.saturating_sub(began)));
                }
            }
            assert_eq!(*seen, term, "nobody sees a term before it has begun");
        }
        ended = queue[0].kill();
        queue.pop_front();
    }
    let (took, heard) = (percentile(&mut taken, 0.99), percentile(&mut told, 1.0));
    let what = format!("{kills} kills, one leader at a time, terms rise, the next leads after p99 {took:?}");
    bar("election: leaders killed", what, "one at a time", true);
    let limit = Duration::from_millis(250);
    bar("a new term is seen by an observer, at the latest", format!("{heard:?}"), "<= 250 ms", heard <= limit);
}

/// campaign DB CANDIDATE: leads until it is killed.
pub(crate) async fn campaign(words: &[String]) {
    let client = client(Path::new(&words[1]));
    let election = client.election("boss");
    let term = election.campaign(words[2].as_str()).await.unwrap();
    say(&format!("leads {}", term.token()));
    std::future::pending().await
}
/// observe DB: says what it sees until it is killed.
pub(crate) async fn observe(words: &[String]) {
    let client = client(Path::new(&words[1]));
    let mut observer = client.election("boss").observe();
    say("observes");
    loop {
        let leader = observer.changed().await.unwrap();
        say(&format!("sees {}", leader.map_or(0, |leader| leader.term.get())));
    }
}
