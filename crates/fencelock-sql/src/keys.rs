//! Numbers for names, as several libraries make them: who uses the same codec for the same name means the same advisory lock of
//! PostgreSQL. Pure functions; the two spaces of keys, one 64-bit number and two of 32, never meet.
use fencelock_core::{Error, ErrorKind, Result};
use hkdf::Hkdf;
use sha1::{Digest, Sha1};
use sha2::Sha256;
use std::fmt;

/// The number of an advisory lock. A raw one is written as such: `Key::Int8(42)`.
///
/// ```
/// use fencelock_sql::keys::Key;
/// assert_eq!(Key::Int4s(3, -1).to_string(), "3, -1");
/// assert_ne!(Key::Int8(0), Key::Int4s(0, 0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// `pg_advisory_lock(bigint)`.
    Int8(i64),
    /// `pg_advisory_lock(integer, integer)`.
    Int4s(i32, i32),
}
/// The arguments of the function.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int8(key) => write!(f, "{key}"),
            Self::Int4s(first, second) => write!(f, "{first}, {second}"),
        }
    }
}

/// Ours: the first 64 bits of the SHA-256 of `fencelock` and the name, a NUL between them.
///
/// ```
/// use fencelock_sql::keys::{Key, fencelock};
/// assert_eq!(fencelock("orders/42"), Key::Int8(8477088641012882825));
/// ```
pub fn fencelock(name: &str) -> Key {
    let hash = Sha256::new().chain_update(b"fencelock\0").chain_update(name).finalize();
    Key::Int8(i64::from_be_bytes(first8(&hash)))
}
/// `PgAdvisoryLock::new(name)` of sqlx: HKDF of SHA-256.
///
/// ```
/// use fencelock_sql::keys::{Key, sqlx};
/// assert_eq!(sqlx("orders/42"), Key::Int8(8076690847007745901));
/// ```
pub fn sqlx(name: &str) -> Key {
    let mut bytes = [0; 8];
    // It fails for outputs longer than 8160 bytes.
    let expanded = Hkdf::<Sha256>::new(None, name.as_bytes()).expand(b"SQLx (Rust) Postgres advisory lock", &mut bytes);
    debug_assert!(expanded.is_ok());
    Key::Int8(i64::from_le_bytes(bytes))
}
/// `new PostgresAdvisoryLockKey(name, allowHashing: true)` of madelson's DistributedLock: up to nine ASCII characters are packed,
/// `16 hex digits` and `8,8 hex digits` are numbers, everything else is hashed by SHA-1.
///
/// ```
/// use fencelock_sql::keys::{Key, madelson};
/// assert_eq!(madelson("00000003,ffffffff"), Key::Int4s(3, -1));
/// assert_eq!(madelson("0000000000000001"), Key::Int8(1));
/// ```
pub fn madelson(name: &str) -> Key {
    exact(name).unwrap_or_else(|| Key::Int8(i64::from_le_bytes(first8(&Sha1::digest(name)))))
}
/// The same without `allowHashing`.
///
/// # Errors
/// `InvalidName`: it would have to be hashed.
///
/// ```
/// assert!(fencelock_sql::keys::madelson_exact("a name that is too long").is_err());
/// ```
pub fn madelson_exact(name: &str) -> Result<Key> {
    exact(name).ok_or_else(|| {
        let error = Error::new(ErrorKind::InvalidName, "advisory key", format!("{name:?} has no exact key"));
        error.hint("use up to 9 ASCII characters, 16 hex digits, or two times 8 with a comma between")
    })
}
fn exact(name: &str) -> Option<Key> {
    if !name.is_ascii() {
        return None;
    }
    if name.len() <= 9 {
        let packed = name.bytes().fold(0_u64, |bits, byte| bits << 7 | u64::from(byte)) << 1;
        // The end of the text is a zero, and ones fill what is left.
        return Some(pair((name.len()..9).fold(packed, |bits, _| bits << 7 | 0x7f)));
    }
    let number = |text: &str| {
        // `from_str_radix` takes a sign, too.
        let digits = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        digits.then(|| u32::from_str_radix(text, 16).ok()).flatten().map(u64::from)
    };
    let halves = || Some(number(name.get(..8)?)? << 32 | number(name.get(name.len() - 8..)?)?);
    match (name.len(), name.as_bytes().get(8)) {
        (16, _) => halves().map(|bits| Key::Int8(i64::from_be_bytes(bits.to_be_bytes()))),
        (17, Some(b',')) => halves().map(pair),
        _ => None,
    }
}
/// `with_advisory_lock(name)` of the Ruby gem, with the number in `WITH_ADVISORY_LOCK_PREFIX`, else 0: CRC-32, of which 31 bits are left.
///
/// ```
/// use fencelock_sql::keys::{Key, with_advisory_lock};
/// assert_eq!(with_advisory_lock("orders/42", 0), Key::Int4s(370287966, 0));
/// ```
pub fn with_advisory_lock(name: &str, prefix: i64) -> Key {
    let low = |n: i64| i32::try_from(n & 0x7fff_ffff).unwrap_or_default();
    Key::Int4s(low(crc32fast::hash(name.as_bytes()).into()), low(prefix))
}

fn first8(bytes: &[u8]) -> [u8; 8] {
    let mut first = [0; 8];
    first.copy_from_slice(&bytes[..8]);
    first
}
fn pair(bits: u64) -> Key {
    let [a, b, c, d, e, f, g, h] = bits.to_be_bytes();
    Key::Int4s(i32::from_be_bytes([a, b, c, d]), i32::from_be_bytes([e, f, g, h]))
}

#[cfg(test)]
mod tests {
    //! Golden vectors, made by Python's hashlib, hmac and zlib. Planted to see it go red: one byte order, the padding, the mask, one letter
    //! of the info.
    use super::*;

    #[test]
    fn golden() {
        let long = "x".repeat(512);
        let long = long.as_str();
        let ours_and_sqlx = [
            ("", 4352712370763404433, 8559922135585776354),
            ("orders/42", 8477088641012882825, 8076690847007745901),
            ("a", 8530289540300838491, -2537430154616479981),
            ("nightly-report", -5518723550250880712, 8797529593787444750),
            ("漢字", 6194648271190926648, -8473516279484307721),
            (long, 2240344000838401690, 2973038657259983661),
        ];
        for (name, ours, theirs) in ours_and_sqlx {
            assert_eq!((fencelock(name), sqlx(name)), (Key::Int8(ours), Key::Int8(theirs)), "{name}");
        }
        let of_madelson = [
            ("", Key::Int4s(2147483647, -1)),
            ("\0", Key::Int4s(16777215, -1)),
            ("ASCII", Key::Int4s(-2092032871, 805306367)),
            ("base38", Key::Int4s(-980967850, 1847590911)),
            ("123456789", Key::Int4s(1657379654, -1382303630)),
            ("orders/42", Key::Int4s(-540334498, 1557640292)),
            ("1234567890", Key::Int8(-768901973204815103)),
            ("漢字", Key::Int8(-1151405521232592816)),
            ("some very long name", Key::Int8(1765484347666752899)),
            ("0000000000000001", Key::Int8(1)),
            ("ffffffffffffffff", Key::Int8(-1)),
            ("80000000,7fffffff", Key::Int4s(-2147483648, 2147483647)),
            ("00000003,FFFFFFFF", Key::Int4s(3, -1)),
            ("0000000000000001 ", Key::Int8(707203172845866178)),
            ("00000003;ffffffff", Key::Int8(3631397326658488740)),
            ("+000000000000001", Key::Int8(8510548192079397173)),
            (&"漢".repeat(18), Key::Int8(-5707277204051710361)),
        ];
        for (name, key) in of_madelson {
            assert_eq!(madelson(name), key, "{name:?}");
        }
        let of_the_gem = [
            ("", 0, 0, 0),
            ("orders/42", 0, 370287966, 0),
            ("漢字", 0, 425835439, 0),
            ("orders/42", 7, 370287966, 7),
            ("orders/42", -1, 370287966, 0x7fff_ffff),
        ];
        for (name, prefix, first, second) in of_the_gem {
            assert_eq!(with_advisory_lock(name, prefix), Key::Int4s(first, second), "{name:?}");
        }
    }
}
