//! Connections are cut while many wait.
//! Planted to see them go red: a stream of watches that ends, and nobody is told (etcd); what was watched, not watched again over the next
//! connection (ZooKeeper); a subscription that is not made anew, a hand-over to who does not hear of it (Redis): all stuck.
use crate::processes::Cuts;
use crate::processes::{
    Worker, bar, eventually, full, judge, longest_beyond_the_holds, now, parse, spans::LOST, tokens_rise,
};
use std::{fs, time::Duration};

/// So many clients in each of 4 processes want one lock all the time, until there were so many hand-overs. A wait beyond the holds ahead
/// of `seconds` misses the bar.
pub fn wake_ups<S: Cuts>(each: usize, enough: u64, seconds: u64) {
    let (scene, limit) = (S::to_be_cut(), if full() { 2_400 } else { 120 });
    let path = |name: &str| scene.folder().join(name).to_str().unwrap().to_owned();
    let (counter, ever) = (path("counter"), u64::MAX.to_string());
    let log = |n: usize| path(&format!("log{n}"));
    let workers: Vec<_> = (0..4)
        .map(|n| {
            let log = log(n);
            scene.start(n, "apart", &[&["x", &counter, &log, &ever, &ever][..], &vec!["mutex"; each]].concat())
        })
        .collect();
    let count = || fs::read_to_string(&counter).unwrap_or_default().trim().parse().unwrap_or(0);
    eventually("most of them wait", Duration::from_secs(60), || scene.status("x").waiters.len() > 3 * each);
    let (before, mut cuts, mut rounds, mut next) = (count(), 0, 0, now());
    eventually("hand-overs", Duration::from_secs(limit), || {
        if now() >= next {
            cuts += scene.cut();
            rounds += 1;
            next += 1_000_000_000;
        }
        // However quick they are, or few that can be cut: the run must bite.
        count() >= before + enough && rounds > 4 && cuts >= 8 * each
    });
    (0..4).for_each(|n| fs::write(format!("{}.stop", log(n)), "").unwrap());
    assert!(workers.into_iter().all(Worker::wait));
    let logs: String = (0..4).map(|n| fs::read_to_string(log(n)).unwrap()).collect();
    let lost = logs.matches(LOST).count();
    assert!(50 * lost <= if S::MAY_MEET_A_HOLDER { cuts } else { 0 }, "{lost} holds were lost");
    let spans = parse(&logs.replace(LOST, ""));
    assert!(count().abs_diff(spans.len() as u64) <= lost as u64, "{} in {} holds, {lost} lost", count(), spans.len());
    judge(&spans);
    tokens_rise(&spans);
    let beyond = longest_beyond_the_holds(&spans, |_| true);
    assert!(beyond < Duration::from_secs(20), "a lost wake-up: {beyond:?}");
    let figure = format!("{beyond:?} beyond them in {} hand-overs, {cuts} {} cut", count(), S::CUT);
    let what = format!(
        "{}: {} waiters, {} cut every second: the longest wait beyond the holds ahead",
        S::ENGINE,
        4 * each,
        S::CUT
    );
    bar(&what, figure, &format!("<= {seconds} s"), beyond <= Duration::from_secs(seconds));
}
