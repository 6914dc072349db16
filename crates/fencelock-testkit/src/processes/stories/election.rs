//! Planted to see it go red: an observer that looks once in 2 s (at the bar alone).
use crate::processes::{Scene, bar, full, percentile};
use std::time::Duration;

/// As often as observers look, and some time for the answer.
const SEEN: Duration = Duration::from_millis(250);

/// A leader is killed again and again: one leads at a time, terms rise, and observers in other processes see each of them soon.
pub fn leaders<S: Scene>() {
    // At a tenth of the length nobody judges how soon the next one leads: a machine that stands still for a moment ends no term.
    let (scene, kills, least) = (S::new(), if full() { 50 } else { 2 }, if full() { 0 } else { 5 });
    let ttl = (2 * S::BRIEF).max(Duration::from_secs(least));
    let millis = ttl.as_millis().to_string();
    let candidate = |n: usize| scene.start(n, "campaign", &["boss", &format!("node-{n}"), &millis]);
    let mut observers = [0, 1].map(|n| scene.start(n, "observe", &["boss"]));
    observers.iter_mut().for_each(|observer| drop(observer.hear("observes")));
    let (mut leader, mut ended, mut newest, mut seen) = (candidate(0), 0, 0, [0; 2]);
    let (mut told, mut taken) = (Vec::new(), Vec::new());
    for n in 0..=kills {
        let (began, term) = leader.hear("leads");
        let term: i64 = term.parse().unwrap();
        assert!(term > newest, "terms rise: {newest}, {term}");
        assert!(began > ended, "two leaders at once");
        // One at a time: else the next leader would be anybody's guess.
        let next = candidate(n + 1);
        scene.queued("boss", 1);
        if n > 0 {
            taken.push(Duration::from_nanos(began - ended));
        }
        newest = term;
        for (observer, seen) in observers.iter_mut().zip(&mut seen) {
            // A time without a leader may be seen.
            while *seen < term {
                let (at, said) = observer.hear("sees");
                let (now, who) = said.split_once(' ').unwrap();
                let now: i64 = now.parse().unwrap();
                assert!(now == 0 || now > *seen, "what an observer sees never goes back: {seen}, {now}");
                if now > 0 {
                    assert_eq!(who, format!("node-{n}"), "whose term that is");
                    *seen = now;
                    told.push(Duration::from_nanos(at.saturating_sub(began)));
                }
            }
            assert_eq!(*seen, term, "nobody sees a term before it has begun");
        }
        ended = leader.bury();
        leader = next;
    }
    let (next, of) = (percentile(&mut taken, 1.0), told.len());
    assert!(next < ttl + Duration::from_secs(10), "stuck: {next:?}");
    let figure = format!("one at a time, terms rise, the next leads after {next:?} at the latest");
    bar(&format!("{}: {kills} leaders killed, ttl {ttl:?}", S::ENGINE), figure, "one at a time", true);
    let worst = percentile(&mut told, 1.0);
    assert!(worst < Duration::from_secs(10), "stuck: {worst:?}");
    let what = format!("{}: a new term is seen by observers in other processes after, slowest", S::ENGINE);
    bar(&what, format!("{worst:?} of {of}"), &format!("<= {SEEN:?}"), worst <= SEEN);
}
