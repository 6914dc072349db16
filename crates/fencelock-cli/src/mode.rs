//! How `run` holds a name, and what a nested run may do under the hold of the outer one.

use fencelock::{Claim, Kind};

/// What the options of `run` say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Mutex,
    Permits(Permits),
    Read,
    Write,
}

/// `--permits K/N`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Permits {
    pub(crate) take: u32,
    pub(crate) of: u32,
}

impl Mode {
    pub(crate) fn claim(self) -> Claim {
        match self {
            Self::Mutex => Claim::Mutex,
            Self::Permits(Permits { take, of }) => Claim::Permits { take, of },
            Self::Read => Claim::Read,
            Self::Write => Claim::Write,
        }
    }

    /// Whether a hold of this claim is as good as one of this mode; else why not (SAFETY A4).
    pub(crate) fn within(self, outer: Claim) -> Result<(), String> {
        let mine = self.claim();
        if mine.kind() != outer.kind() {
            let (has, wants) = (kind(outer.kind()), kind(mine.kind()));
            return Err(format!("the outer run holds {has}, and {wants} of the same name cannot be"));
        }
        match (self, outer) {
            (Self::Permits(mine), Claim::Permits { of, .. }) if mine.of != of => {
                Err(format!("the outer run holds permits of a semaphore of {of}, not {}", mine.of))
            }
            (Self::Permits(mine), Claim::Permits { take, .. }) if mine.take > take => {
                Err(format!("the outer run has {take} of its permits, not {}", mine.take))
            }
            (Self::Write, Claim::Read) => Err("the outer run reads: to write, this one would wait for it".to_owned()),
            _ => Ok(()),
        }
    }
}

/// The kind of a lock, for people.
pub(crate) fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Cell => "a cell",
        Kind::Mutex => "a mutex",
        Kind::RwLock => "a read-write lock",
        Kind::Semaphore => "a semaphore",
        _ => "another kind of lock",
    }
}

/// The mode of a claim in one word, for programs.
pub(crate) fn word(claim: Claim) -> &'static str {
    match claim {
        Claim::Mutex => "mutex",
        Claim::Permits { .. } => "permits",
        Claim::Read => "read",
        Claim::Write => "write",
        _ => "other",
    }
}

/// Reads `K/N`.
pub(crate) fn permits(text: &str) -> Result<Permits, String> {
    let number = |digits: &str| {
        // `parse` takes a sign too.
        let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        let unreadable = || "give how many of how many, such as 1/3".to_owned();
        let digits = plain.then_some(digits).ok_or_else(unreadable)?;
        digits.parse::<u32>().map_err(|_| format!("there are at most {} permits", u32::MAX))
    };
    let (take, of) = text.split_once('/').unwrap_or((text, ""));
    let (take, of) = (number(take)?, number(of)?);
    match (take, of) {
        (_, 0) => Err("a semaphore has at least one permit".to_owned()),
        (0, _) => Err("it holds at least one permit".to_owned()),
        _ if take > of => Err(format!("there are only {of} permits")),
        _ => Ok(Permits { take, of }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Planted: `>=` for `>`; the sign that `parse` takes.
    #[test]
    fn permits_are_k_of_n() {
        assert_eq!(permits("1/3"), Ok(Permits { take: 1, of: 3 }));
        assert_eq!(permits("3/3"), Ok(Permits { take: 3, of: 3 }));
        assert_eq!(permits("4294967295/4294967295").map(|p| p.take), Ok(u32::MAX));
        for (text, said) in [
            ("", "1/3"),
            ("x", "1/3"),
            ("3", "1/3"),
            ("/3", "1/3"),
            ("1/", "1/3"),
            ("1/2/3", "1/3"),
            ("-1/3", "1/3"),
            ("+1/3", "1/3"),
            (" 1/3", "1/3"),
            ("1.5/3", "1/3"),
            ("٣/3", "1/3"),
            ("0/3", "at least one"),
            ("0/0", "at least one"),
            ("4/3", "only 3"),
            ("4294967296/4294967296", "at most 4294967295"),
            ("1/99999999999999999999999", "at most 4294967295"),
        ] {
            let refused = permits(text).expect_err(text);
            assert!(refused.contains(said), "{text:?}: {refused}");
        }
    }

    // Planted: a writer under a reader let in; the sizes not compared.
    #[test]
    fn what_a_nested_run_may() {
        let of = |take, of| Mode::Permits(Permits { take, of });
        let modes = [Mode::Mutex, Mode::Read, Mode::Write, of(1, 3), of(2, 3), of(2, 4)];
        let allowed = |outer: Mode| modes.map(|nested| nested.within(outer.claim()).is_ok());
        assert_eq!(allowed(Mode::Mutex), [true, false, false, false, false, false]);
        assert_eq!(allowed(Mode::Read), [false, true, false, false, false, false]);
        assert_eq!(allowed(Mode::Write), [false, true, true, false, false, false]);
        assert_eq!(allowed(of(1, 3)), [false, false, false, true, false, false]);
        assert_eq!(allowed(of(2, 3)), [false, false, false, true, true, false]);
    }
}
