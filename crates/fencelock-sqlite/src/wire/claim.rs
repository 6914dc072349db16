//! Claims as they are written, and whether one fits beside others.
use fencelock_core::Claim;
use rusqlite::Row;

const MUTEX: i64 = 1;
const WRITE: i64 = 2;
const READ: i64 = 3;
const PERMITS: i64 = 4;

/// What stands in the columns `claim` and `take`.
pub(crate) fn stored(claim: Claim) -> (i64, u32) {
    let code = match claim {
        Claim::Permits { .. } => PERMITS,
        Claim::Read => READ,
        Claim::Write => WRITE,
        // One that this version does not know: beside nobody.
        _ => MUTEX,
    };
    (code, claim.take())
}
/// And back, on a lock of this size.
pub(crate) fn claim(code: i64, take: i64, of: u32) -> Claim {
    match code {
        PERMITS => Claim::Permits { take: u32::try_from(take).unwrap_or(u32::MAX), of },
        READ => Claim::Read,
        WRITE => Claim::Write,
        _ => Claim::Mutex,
    }
}

/// Some who hold or wait, as far as it matters to one more. A name has one kind, so they are all of one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Company {
    pub(crate) count: i64,
    /// The smallest code: an exclusive one, if there is any.
    least: i64,
    taken: i64,
    most: i64,
}
impl Company {
    /// Of the columns of `sql::HOLDING` and `sql::AHEAD`.
    pub(crate) fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self { count: row.get(0)?, least: row.get(1)?, taken: row.get(2)?, most: row.get(3)? })
    }
    pub(crate) fn add(&mut self, one: Claim) {
        let (code, take) = stored(one);
        self.least = if self.count == 0 { code } else { self.least.min(code) };
        self.count += 1;
        self.taken = self.taken.saturating_add(i64::from(take));
        self.most = self.most.max(i64::from(take));
    }
    /// One claim that lets in whatever all of them together let in.
    pub(crate) fn together(&self) -> Option<Claim> {
        (self.count > 0).then(|| claim(self.least, self.taken, u32::MAX))
    }
    /// The one of them that is the hardest to let in.
    pub(crate) fn hardest(&self, of: u32) -> Option<Claim> {
        (self.count > 0).then(|| claim(self.least, self.most, of))
    }
}
impl<'a> FromIterator<&'a Claim> for Company {
    fn from_iter<T: IntoIterator<Item = &'a Claim>>(all: T) -> Self {
        let mut company = Self::default();
        all.into_iter().for_each(|one| company.add(*one));
        company
    }
}

#[cfg(test)]
mod tests {
    //! Planted to see it go red: the largest code instead of the smallest; `taken` without those before.
    use super::*;

    #[test]
    fn together_they_let_in_what_each_of_them_lets_in() {
        let permits = |take| Claim::Permits { take, of: 5 };
        let rooms: [&[Claim]; 8] = [
            &[],
            &[Claim::Mutex],
            &[Claim::Read],
            &[Claim::Read, Claim::Write, Claim::Read],
            &[Claim::Read; 3],
            &[permits(1)],
            &[permits(2), permits(2)],
            &[permits(3), permits(1), permits(1)],
        ];
        for room in rooms {
            let company: Company = room.iter().collect();
            for one in [Claim::Mutex, Claim::Write, Claim::Read, permits(1), permits(3), permits(5)] {
                assert_eq!(one.fits(company.together()), one.fits(room.iter().copied()), "{one} beside {room:?}");
            }
            let hardest = company.hardest(5).is_none_or(|one| one.fits([permits(2)]));
            assert_eq!(hardest, room.iter().all(|one| one.fits([permits(2)])), "{room:?}");
        }
    }
    #[test]
    fn a_claim_is_read_as_it_was_written() {
        for one in [Claim::Mutex, Claim::Write, Claim::Read, Claim::Permits { take: 2, of: 3 }] {
            let (code, take) = stored(one);
            assert_eq!(claim(code, take.into(), 3), one);
        }
    }
}
