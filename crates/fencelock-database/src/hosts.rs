//! Several servers in one URL.
use crate::{CONNECT_TIMEOUT, Fault};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// For so long one server is tried, where there are others.
pub const ONE_HOST: Duration = Duration::from_secs(2);

/// One of so many servers that can be used, the last good one first, which has this time: which, and what `reach` made there.
///
/// *Invariant (SAFETY E8):* each has its part of the time, and leaves to the others what it does not take: one that takes connections
/// and says nothing keeps nobody from the others.
///
/// # Errors
/// What tells most of why there is none: what a server says by itself, rather than that another one is silent.
pub async fn one_of<T, F: Fault, R>(
    many: usize,
    good: usize,
    first: Duration,
    reach: impl Fn(usize) -> R,
) -> Result<(usize, T), F>
where
    R: Future<Output = Result<T, F>>,
{
    let (end, mut why) = (Instant::now() + CONNECT_TIMEOUT.mul_f32(0.9), F::UNREACHED);
    for n in 0..many {
        let (at, left) = ((good + n) % many, end.saturating_duration_since(Instant::now()));
        let part = ONE_HOST.min(left / u32::try_from(many - n).unwrap_or(u32::MAX));
        match timeout(if n == 0 { first } else { part }, reach(at)).await.unwrap_or(Err(F::UNREACHED)) {
            Ok(made) => return Ok((at, made)),
            Err(fault) if fault.weight() >= why.weight() => why = fault,
            Err(_) => {}
        }
    }
    Err(why)
}
