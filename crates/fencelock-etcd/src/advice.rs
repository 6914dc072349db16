//! What is known to be wrong with a server of this version.
use crate::{
    error::Fault,
    link::Link,
    wire::pb::{About, AskAbout},
};

type Version = [u32; 3];

/// From which version of each line on it is mended; what it does, and where it is told.
const FAULTS: [(&[Version], &str); 2] = [
    (
        &[[3, 4, 31], [3, 5, 13]],
        "a leader that was stuck may end leases that live, and answers for leases that others have ended (etcd issue 15247): a lock may be lost early, and is told; signs of life are checked by a read",
    ),
    (
        &[[3, 4, 38], [3, 5, 23], [3, 6, 5]],
        "a sign of life may be answered for a lease that has just been revoked (etcd pull request 20615): a hold younger than a second hears of it late",
    ),
];

pub(crate) async fn advice(link: &Link) -> Result<Vec<String>, Fault> {
    let ask = |conn| async move { link.call(&conn, "/etcdserverpb.Maintenance/Status", AskAbout {}).await };
    let About { version } = link.again(ask).await?;
    Ok(faults(&version))
}
fn faults(version: &str) -> Vec<String> {
    let mut numbers = version.splitn(3, '.').map(|part| {
        let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap_or(0)
    });
    let known: Version = std::array::from_fn(|_| numbers.next().unwrap_or(0));
    let has = |mended: &[Version]| match mended.iter().find(|from| from[..2] == known[..2]) {
        Some(from) => known < *from,
        // Older than all lines that were mended, or newer.
        None => mended.first().is_some_and(|first| known < *first),
    };
    let told = FAULTS.iter().filter(|(mended, _)| has(mended)).map(|(mended, what)| {
        let mended: Vec<_> = mended.iter().map(|[a, b, c]| format!("{a}.{b}.{c}")).collect();
        format!("etcd {version}: {what}; update to {} or later", mended.join(", "))
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    //! Planted to see it go red: versions compared as texts.
    use super::*;

    #[test]
    fn versions_are_told_apart() {
        let n = |version: &str| faults(version).len();
        let known = ["3.3.27", "3.4.9", "3.4.31", "3.4.38", "3.5.9", "3.5.13", "3.5.23", "3.6.4", "3.6.5", "4.0.0"];
        assert_eq!(known.map(n), [2, 2, 1, 0, 2, 1, 0, 1, 0, 0]);
        assert_eq!((n("3.6.0-rc.1"), n("")), (1, 2));
        assert!(faults("3.4.23")[0].contains("3.4.31, 3.5.13"));
    }
}
