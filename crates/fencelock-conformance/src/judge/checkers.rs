//! What is wrong with a history, if anything is. Each checker has been seen red with a planted one: the tests below.
use super::Interval;
use fencelock_core::Claim;

/// ME-R and RW: nobody was inside beside somebody whom their claims exclude. Permits are the matter of [`permits`] alone.
///
/// # Errors
/// The two who were, and for how long.
pub fn overlap(intervals: &[Interval]) -> Result<(), String> {
    let beside = |a: Claim, b: Claim| {
        matches!((a, b), (Claim::Read, Claim::Read) | (Claim::Permits { .. }, Claim::Permits { .. }))
    };
    sweep(intervals, |later, inside| match inside.iter().find(|other| !beside(other.claim, later.claim)) {
        None => Ok(()),
        Some(other) => {
            let both = other.end.min(later.end).saturating_sub(later.start);
            Err(format!("two were inside for {both} ns: {other:?} and {later:?}"))
        }
    })
}

/// PERM: the permits taken at once never exceed the capacity, which everybody names alike. The most that were taken at once.
///
/// # Errors
/// When they did, and who had them.
pub fn permits(intervals: &[Interval], capacity: u32) -> Result<u64, String> {
    let mut peak = 0;
    sweep(intervals, |later, inside| {
        if later.claim.capacity() != Some(capacity) {
            return Err(format!("not of {capacity} permits: {later:?}"));
        }
        let taken: u64 = inside.iter().chain([&later]).map(|interval| u64::from(interval.claim.take())).sum();
        peak = peak.max(taken);
        if taken <= u64::from(capacity) {
            return Ok(());
        }
        Err(format!("{taken} of {capacity} permits were taken: {later:?} beside {inside:?}"))
    })?;
    Ok(peak)
}

/// Calls `look` for each interval with those that are inside when it begins.
fn sweep<'a>(
    intervals: &'a [Interval],
    mut look: impl FnMut(&'a Interval, &[&'a Interval]) -> Result<(), String>,
) -> Result<(), String> {
    let mut sorted: Vec<_> = intervals.iter().collect();
    sorted.sort_by_key(|interval| interval.start);
    let mut inside: Vec<&Interval> = Vec::new();
    for later in sorted {
        if later.end < later.start {
            return Err(format!("it left before it came: {later:?}"));
        }
        inside.retain(|other| other.end > later.start);
        look(later, &inside)?;
        inside.push(later);
    }
    Ok(())
}

/// TOK: the tokens of exclusive grants are positive and rise strictly in the order of grants. A downgrade keeps its token and is
/// no grant: it is noted as a reader's interval.
///
/// # Errors
/// The first two that do not rise.
pub fn tokens(intervals: &[Interval]) -> Result<(), String> {
    let mut exclusive: Vec<_> = intervals.iter().filter(|interval| interval.claim.is_exclusive()).collect();
    exclusive.sort_by_key(|interval| interval.start);
    if let Some(first) = exclusive.first().filter(|first| first.token <= 0) {
        return Err(format!("a token is positive: {first:?}"));
    }
    match exclusive.windows(2).find(|pair| pair[1].token <= pair[0].token) {
        Some(pair) => Err(format!("tokens do not rise: {:?}, then {:?}", pair[0], pair[1])),
        None => Ok(()),
    }
}

/// Somebody who waited, on CLOCK_BOOTTIME in ns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Who.
    pub who: String,
    /// Before he asked.
    pub asked: u64,
    /// After he was seen in the queue.
    pub queued: u64,
    /// When he got in.
    pub granted: u64,
}
/// FIFO: whoever was seen in the queue before another one asked got in before him.
///
/// # Errors
/// Who passed whom.
pub fn fifo(waits: &[Wait]) -> Result<(), String> {
    for early in waits {
        if let Some(late) = waits.iter().find(|late| early.queued < late.asked && late.granted < early.granted) {
            return Err(format!("{late:?} passed {early:?}"));
        }
    }
    Ok(())
}
/// FIFO, where the order of asking is known: they got in as they asked.
///
/// # Errors
/// Both orders.
pub fn in_order<T: PartialEq + std::fmt::Debug>(asked: &[T], granted: &[T]) -> Result<(), String> {
    if asked == granted { Ok(()) } else { Err(format!("they asked as {asked:?} and got in as {granted:?}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(claim: Claim, token: i64, start: u64, end: u64) -> Interval {
        Interval { holder: format!("h{token}"), claim, token, start, end }
    }
    fn of(take: u32) -> Claim {
        Claim::Permits { take, of: 3 }
    }
    const FOR_EVER: u64 = u64::MAX;

    #[test]
    fn overlap_sees_two_who_exclude_each_other() {
        use Claim::{Mutex, Read, Write};
        let good = [interval(Mutex, 1, 0, 10), interval(Mutex, 2, 10, 20), interval(Mutex, 3, 20, FOR_EVER)];
        assert_eq!(overlap(&good), Ok(()));
        let readers = [interval(Read, 1, 0, 10), interval(Read, 2, 5, 20), interval(Write, 3, 20, 30)];
        assert_eq!(overlap(&readers), Ok(()));
        for (one, other) in
            [(Mutex, Mutex), (Write, Write), (Write, Read), (Read, Write), (Mutex, Read), (Mutex, of(1))]
        {
            let bad = [interval(one, 1, 0, 10), interval(other, 2, 9, 20)];
            assert!(overlap(&bad).unwrap_err().contains("inside for 1 ns"), "{bad:?}");
        }
        // Not only neighbours: the first one stays inside beyond the second.
        let around = [interval(Mutex, 1, 0, 100), interval(Read, 2, 200, 300), interval(Write, 3, 250, 260)];
        assert!(overlap(&around).is_err());
        let long = [interval(Read, 1, 0, 100), interval(Read, 2, 10, 20), interval(Write, 3, 30, 40)];
        assert!(overlap(&long).is_err(), "the writer came while the first reader was inside");
        assert!(overlap(&[interval(Mutex, 1, 0, FOR_EVER), interval(Mutex, 2, 5, 6)]).is_err(), "nobody saw him leave");
        assert!(overlap(&[interval(Mutex, 1, 7, 3)]).is_err(), "a clock that goes back");
        assert!(overlap(&[interval(Mutex, 2, 9, 20), interval(Mutex, 1, 0, 10)]).is_err(), "whatever the order given");
    }
    #[test]
    fn permits_sees_more_than_there_are() {
        let good = [interval(of(2), 1, 0, 10), interval(of(1), 2, 1, 9), interval(of(3), 3, 10, 20)];
        assert_eq!(permits(&good, 3), Ok(3));
        assert_eq!(permits(&good[..1], 3), Ok(2));
        let bad = [interval(of(2), 1, 0, 10), interval(of(1), 2, 1, 9), interval(of(1), 3, 8, 20)];
        assert!(permits(&bad, 3).unwrap_err().starts_with("4 of 3"));
        assert!(permits(&[interval(Claim::Permits { take: 1, of: 4 }, 1, 0, 1)], 3).is_err(), "another size");
        assert!(permits(&[interval(Claim::Mutex, 1, 0, 1)], 3).is_err(), "no permits");
    }
    #[test]
    fn tokens_sees_what_does_not_rise() {
        use Claim::{Mutex, Read, Write};
        let good = [interval(Mutex, 5, 0, 1), interval(Read, 1, 2, 3), interval(Write, 6, 4, 5)];
        assert_eq!(tokens(&good), Ok(()));
        assert!(tokens(&[interval(Mutex, 5, 0, 1), interval(Mutex, 5, 2, 3)]).is_err(), "equal");
        assert!(tokens(&[interval(Mutex, 5, 0, 1), interval(Mutex, 4, 2, 3)]).is_err(), "lower");
        assert!(tokens(&[interval(Mutex, 4, 2, 3), interval(Mutex, 5, 0, 1)]).is_err(), "lower, in another order");
        assert!(tokens(&[interval(Mutex, 0, 0, 1)]).is_err(), "no token");
    }
    #[test]
    fn fifo_sees_who_passed() {
        let wait = |who: &str, asked, queued, granted| Wait { who: who.into(), asked, queued, granted };
        assert_eq!(fifo(&[wait("a", 0, 1, 10), wait("b", 2, 3, 11)]), Ok(()));
        // They asked at the same time: either may be first.
        assert_eq!(fifo(&[wait("a", 0, 3, 11), wait("b", 2, 4, 10)]), Ok(()));
        assert!(fifo(&[wait("a", 0, 1, 11), wait("b", 2, 3, 10)]).unwrap_err().contains("passed"));
        assert!(fifo(&[wait("b", 2, 3, 10), wait("a", 0, 1, 11)]).is_err(), "whatever the order given");
        assert_eq!(in_order(&[1, 2, 3], &[1, 2, 3]), Ok(()));
        assert!(in_order(&[1, 2, 3], &[1, 3, 2]).is_err());
        assert!(in_order(&[1, 2, 3], &[1, 2]).is_err(), "one is missing");
    }
}
