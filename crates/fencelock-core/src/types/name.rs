//! Names of locks, of attempts, and of those who make them.
use crate::error::{Error, ErrorKind, Result};
use std::{
    fmt,
    str::FromStr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// The name of a lock: 1 to 512 bytes of UTF-8 without NUL. `/` is an ordinary character.
///
/// ```
/// use fencelock_core::{ErrorKind, Name};
/// assert_eq!(Name::new("orders/42")?.as_str(), "orders/42");
/// assert_eq!(Name::new("").unwrap_err().kind(), ErrorKind::InvalidName);
/// # Ok::<(), fencelock_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<str>);

impl Name {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = 512;

    /// Checks a name.
    ///
    /// # Errors
    /// `InvalidName` when it is empty, longer than 512 bytes or holds a NUL.
    pub fn new(name: impl AsRef<str>) -> Result<Self> {
        let name = name.as_ref();
        let refused = |why: String, way_out: &str| Err(Error::new(ErrorKind::InvalidName, "lock", why).hint(way_out));
        if name.is_empty() {
            return refused("the name is empty".into(), "a name has 1 to 512 bytes");
        }
        if name.len() > Self::MAX_BYTES {
            let start: String = name.chars().take(24).collect();
            let why = format!("the name {start:?}… has {} bytes", name.len());
            return refused(why, "a name has at most 512 bytes: shorten it, or hash the long part");
        }
        if name.contains('\0') {
            return refused(format!("the name {name:?} holds a NUL"), "leave the NUL out");
        }
        Ok(Self(name.into()))
    }
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.0
    }
}
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One attempt and the hold that comes of it (SAFETY A1): 128 bits, minted before the first byte is sent, never used twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HoldId([u8; 16]);
impl HoldId {
    pub(crate) const MIN: Self = Self([0; 16]);
    pub(crate) const MAX: Self = Self([u8::MAX; 16]);

    /// From the bytes that an engine stored.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
    /// The bytes that an engine stores.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }
    /// The n-th part of this one: a quorum counts in the last byte how often it has asked its nodes. Each time is an attempt of its
    /// own (SAFETY A1), and whoever looks sees whose, since the last byte of every id that core mints follows from the others.
    pub(crate) fn part(self, n: u8) -> Self {
        let mut bytes = self.0;
        bytes[15] = bytes[..15].iter().fold(n, |sum, byte| sum ^ byte);
        Self(bytes)
    }
    /// Which part of its whole it is.
    pub(crate) fn number(self) -> u8 {
        self.0.iter().fold(0, |sum, byte| sum ^ byte)
    }
    pub(crate) fn whole(self) -> Self {
        self.part(0)
    }
}
impl fmt::Display for HoldId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}
impl fmt::Debug for HoldId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
impl FromStr for HoldId {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let refused = || Error::new(ErrorKind::InvalidConfig, "hold id", format!("{text:?} is no hold id"));
        if text.len() != 32 {
            return Err(refused());
        }
        u128::from_str_radix(text, 16).map(|n| Self(n.to_be_bytes())).map_err(|_| refused())
    }
}

/// A store, whatever URL led to it: 128 bits, minted in it when it was made. Locks of several stores are taken in an order that
/// all processes share (SAFETY K3), and a ticket names the store that it is good for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EngineId(u128);
impl EngineId {
    /// From the bytes that an engine stored.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }
    /// The bytes that an engine stores.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }
    /// A new one.
    ///
    /// # Errors
    /// `Unreachable`: the system has no random numbers.
    pub fn random() -> Result<Self> {
        Ok(Self(random()?))
    }
}
impl fmt::Display for EngineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}
impl fmt::Debug for EngineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
fn random() -> Result<u128> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|e| {
        Error::new(ErrorKind::Unreachable, "connect", "the system has no random numbers").because(e.to_string())
    })?;
    Ok(u128::from_be_bytes(bytes))
}

/// Mints hold ids: a random start per client and a counter. A generator of the whole process would hand the same ids to a
/// parent and its forked child; a client is of no use in a child, so its ids cannot meet anybody's.
#[derive(Debug)]
pub(crate) struct Minter {
    start: u128,
    next: AtomicU64,
}
impl Minter {
    pub(crate) fn new(seed: Option<u64>) -> Result<Self> {
        // A simulation that is repeated wants the same ids.
        let start = match seed {
            Some(seed) => u128::from(seed).wrapping_mul(0x2545_f491_4f6c_dd1d_9e37_79b9_7f4a_7c15),
            None => random()?,
        };
        // The last byte is a quorum's: see `HoldId::part`.
        Ok(Self { start: start << 8, next: AtomicU64::new(0) })
    }
    pub(crate) fn mint(&self) -> HoldId {
        // The odd factor spreads the ids, so that the first digits tell them apart for people; it loses none.
        let n = u128::from(self.next.fetch_add(1, Relaxed));
        let id = self.start.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835) << 8);
        HoldId(id.to_be_bytes()).whole()
    }
}

/// Hashes hold ids: they are spread already.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spread(u64);
impl std::hash::Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.0 = self.0.rotate_left(32) ^ u64::from_ne_bytes(word);
        }
    }
}

/// Who asks: shown to those who wait. It decides nothing (SAFETY A1).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The host's name.
    pub host: Arc<str>,
    /// The process on that host.
    pub pid: u32,
}
impl Identity {
    /// This process.
    pub fn here() -> Self {
        static HOST: OnceLock<Arc<str>> = OnceLock::new();
        let host = HOST.get_or_init(|| rustix::system::uname().nodename().to_string_lossy().into());
        Self { host: host.clone(), pid: std::process::id() }
    }
}
