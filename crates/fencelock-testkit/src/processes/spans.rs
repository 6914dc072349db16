//! Intervals on the boot clock, of many processes, and what may never be seen in them.
use super::{Worker, now};
use std::{fs, path::Path, time::Duration};

/// One hold.
#[derive(Clone, Debug)]
pub struct Span {
    /// From when, in ns of the boot clock: after it was granted.
    pub start: u64,
    /// Until when: before it was released.
    pub end: u64,
    /// Beside nobody.
    pub alone: bool,
    /// Its permits.
    pub take: u64,
    /// How long it was waited for, in ns.
    pub waited: u64,
    /// Of one who is alone; else 0.
    pub token: u64,
}
/// A hold that was lost, as the role `spans` writes it: of what came beside it nothing can be said.
pub(super) const LOST: &str = "lost\n";
/// What the role `spans` wrote.
///
/// # Panics
/// A hold was lost.
pub fn parse(log: &str) -> Vec<Span> {
    assert!(!log.contains(LOST), "a hold was lost");
    let line = |line: &str| {
        let n: Vec<u64> = line.split(' ').map(|n| n.parse().unwrap()).collect();
        Span { start: n[0], end: n[1], alone: n[2] == 1, take: n[3], waited: n[4], token: n[5] }
    };
    log.lines().map(line).collect()
}
/// Processes that each run these claims, until their rounds or so many seconds are over; `start` adds the role and the address to
/// the words of the n-th. What they say they had, and what the counter of those who are alone says.
///
/// # Panics
/// One of them failed, or is stuck.
pub fn run(
    folder: &Path,
    name: &str,
    rounds: usize,
    seconds: u64,
    processes: &[&[&str]],
    start: impl Fn(usize, &[&str]) -> Worker,
) -> (Vec<Span>, u64) {
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    // They take a moment to start.
    let (counter, end) = (path("counter"), (now() + (seconds + 5) * 1_000_000_000).to_string());
    let rounds = rounds.to_string();
    let worker = |(i, claims): (usize, &&[&str])| {
        let log = path(&format!("log{i}"));
        start(i, &[&[name, &counter, &log, &rounds, &end], *claims].concat())
    };
    let workers: Vec<_> = processes.iter().enumerate().map(worker).collect();
    // All of them are waited for: what one could still write is not judged half-way.
    let deadline = Worker::deadline();
    let ended: Vec<bool> = workers.into_iter().map(|worker| worker.wait_until(deadline)).collect();
    assert!(ended.iter().all(|well| *well), "a worker failed or is stuck: {ended:?}");
    let logs = (0..processes.len()).map(|i| fs::read_to_string(path(&format!("log{i}"))).unwrap());
    let counter = fs::read_to_string(counter).unwrap_or_default().trim().parse().unwrap_or(0);
    (logs.flat_map(|log| parse(&log)).collect(), counter)
}
/// The most permits, and the most holds, at any one moment.
///
/// # Panics
/// Somebody is beside somebody who is alone.
pub fn judge(spans: &[Span]) -> (u64, usize) {
    // An end at the moment of a start comes first: they do not overlap.
    let mut edges: Vec<(u64, bool, usize)> = Vec::new();
    for (i, span) in spans.iter().enumerate() {
        edges.extend([(span.start, true, i), (span.end.max(span.start + 1), false, i)]);
    }
    edges.sort_unstable();
    let (mut inside, mut most, mut crowd) = (Vec::<usize>::new(), 0, 0);
    for (_, enters, i) in edges {
        if !enters {
            inside.retain(|other| *other != i);
            continue;
        }
        inside.push(i);
        let alone = inside.iter().any(|i| spans[*i].alone);
        assert!(!alone || inside.len() == 1, "{} beside somebody who is alone", inside.len() - 1);
        most = most.max(inside.iter().map(|i| spans[*i].take).sum());
        crowd = crowd.max(inside.len());
    }
    (most, crowd)
}
/// The tokens of those who are alone rise in the order in which they held.
///
/// # Panics
/// They do not.
pub fn tokens_rise(spans: &[Span]) {
    let mut alone: Vec<&Span> = spans.iter().filter(|span| span.alone).collect();
    alone.sort_unstable_by_key(|span| span.start);
    for pair in alone.windows(2) {
        assert!(pair[0].token < pair[1].token, "tokens do not rise: {pair:?}");
    }
}
/// The longest wait of these.
pub fn longest(spans: &[Span], of: impl Fn(&Span) -> bool) -> Duration {
    Duration::from_nanos(spans.iter().filter(|span| of(span)).map(|span| span.waited).max().unwrap_or(0))
}
/// The same, without the time for which somebody had it meanwhile.
pub fn longest_beyond_the_holds(spans: &[Span], of: impl Fn(&Span) -> bool) -> Duration {
    let mut times: Vec<(u64, u64)> = spans.iter().map(|span| (span.start, span.end)).collect();
    times.sort_unstable();
    let mut held: Vec<(u64, u64)> = Vec::new();
    for (start, end) in times {
        match held.last_mut().filter(|(_, last)| *last >= start) {
            Some((_, last)) => *last = end.max(*last),
            None => held.push((start, end)),
        }
    }
    let beyond = |span: &Span| {
        let asked = span.start - span.waited;
        let before = held[..held.partition_point(|(start, _)| *start < span.start)].iter().rev();
        let ahead = before.take_while(|(_, end)| *end > asked);
        // His own may begin within what was held before.
        span.waited - ahead.map(|(start, end)| end.min(&span.start) - start.max(&asked)).sum::<u64>()
    };
    Duration::from_nanos(spans.iter().filter(|span| of(span)).map(beyond).max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    //! Planted to see them go red: an end that comes after the start at the same moment; `alone` asked of the newcomer only; tokens
    //! that only differ.
    use super::*;

    #[test]
    fn a_wait_without_the_holds() {
        let spans = parse("10 20 1 1 0 1\n20 40 0 1 15 2\n25 50 0 1 25 3\n70 80 1 1 65 4\n90 95 1 1 1 5\n");
        assert_eq!(longest(&spans, |span| span.alone), Duration::from_nanos(65));
        // From 5 to 70, without 10 to 50.
        assert_eq!(longest_beyond_the_holds(&spans, |span| span.alone), Duration::from_nanos(25));
        assert_eq!(longest_beyond_the_holds(&spans, |span| !span.alone), Duration::from_nanos(10));
    }
    fn seen(log: &str) -> (u64, usize) {
        judge(&parse(log))
    }
    #[test]
    fn who_may_be_beside_whom() {
        assert_eq!(seen("0 10 1 0 0 1\n10 20 1 0 0 2\n20 30 0 0 0 0\n25 40 0 0 0 0\n"), (0, 2));
        assert_eq!(seen("0 10 0 2 0 0\n5 15 0 1 0 0\n10 20 0 3 0 0\n"), (4, 2));
        for wrong in ["0 10 1 0 0 1\n9 20 0 0 0 0\n", "0 10 0 0 0 0\n9 20 1 0 0 1\n", "5 5 1 0 0 1\n5 9 1 0 0 2\n"] {
            assert!(std::panic::catch_unwind(|| seen(wrong)).is_err(), "{wrong:?}");
        }
        let swapped = parse("10 20 1 0 0 1\n0 10 1 0 0 2\n");
        assert!(std::panic::catch_unwind(|| tokens_rise(&swapped)).is_err());
    }
}
