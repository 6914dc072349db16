//! What a key says of its holder: `HOLD.fl1.TOKEN.PID.NOTE.HOST`, in ASCII, the same for as long as it is held. Note and host are
//! percent-encoded; whoever else writes there says what he wants.
use fencelock_core::{Busy, Claim, HoldId, Holder, Name, Status, Token};
use std::{sync::Arc, time::Duration};

/// So much of a value is looked at: there may be anything.
pub(crate) const SIGHT: usize = 4_096;
/// So much a note may take: others keep whole values.
const NOTE: usize = 2_048;
/// What never ends by itself has this left.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// What a value of ours ends with, behind its token.
pub(crate) fn tail(host: &str, pid: u32, note: &str) -> String {
    let note = encoded(note);
    // Half of one says what nobody has said.
    let note = if note.len() > NOTE { "" } else { &note };
    format!(".{pid}.{note}.{}", encoded(host))
}
/// Any text in letters that every client takes, without what divides the parts.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'.' | b'%' | 0..=0x20 | 0x7f.. => out.push_str(&format!("%{byte:02X}")),
            _ => out.push(char::from(byte)),
        }
    }
    out
}
fn decoded(text: &str) -> Option<Arc<str>> {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte == b'%' {
            let (code, after) = rest.split_at_checked(2)?;
            out.push(u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok()?);
            rest = after;
        } else {
            out.push(*byte);
        }
    }
    Some(String::from_utf8(out).ok()?.into())
}

/// How every value of this attempt begins.
pub(crate) fn beginning(hold: HoldId) -> String {
    format!("{hold}.fl1.")
}
/// A value that is ours.
pub(crate) fn ours(value: &[u8], left: Duration, now: i64) -> Option<Holder> {
    let mut parts = std::str::from_utf8(value).ok()?.split('.');
    let hold: HoldId = parts.next()?.parse().ok()?;
    if parts.next()? != "fl1" {
        return None;
    }
    let token = Token::new(parts.next()?.parse().ok()?)?;
    let pid = parts.next()?.parse().ok()?;
    let (note, host) = (decoded(parts.next()?)?, decoded(parts.next()?)?);
    if parts.next().is_some() {
        return None;
    }
    // A token is made of the time; one that was made of a floor is of later, or as good as now.
    let held_for = Duration::from_micros(u64::try_from(now - token.get()).unwrap_or(0));
    Some(Holder { hold, claim: Claim::Mutex, token, host, pid, note, held_for, left })
}
/// Anybody else's. What stands for its token is made of the value, so it is the same for whoever looks, and below each of ours: those are
/// made of the time.
pub(crate) fn theirs(value: &[u8], left: Duration) -> Holder {
    let id = hash(value);
    let token = i64::try_from(id >> 88).unwrap_or(0) + 1;
    let token = Token::new(token).unwrap_or_else(|| unreachable!("it is positive"));
    let said = String::from_utf8_lossy(value);
    let short: String = said.chars().take(64).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    let more = if said.chars().nth(64).is_some() { "…" } else { "" };
    let note = format!("another program: {short}{more}").into();
    let hold = HoldId::from_bytes(id.to_be_bytes());
    Holder { hold, claim: Claim::Mutex, token, host: "?".into(), pid: 0, note, held_for: Duration::ZERO, left }
}
/// FNV-1a, and once over it: its first bits are of all letters.
fn hash(value: &[u8]) -> u128 {
    let step = |hash: u128, byte: &u8| (hash ^ u128::from(*byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b);
    let once = value.iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, step);
    once.to_be_bytes().iter().fold(once, step)
}
/// The same, of another text: stores that are told apart by it.
pub(crate) fn mixed(id: u128, text: &str) -> u128 {
    id ^ hash(text.as_bytes())
}

/// What is in a key.
#[derive(Clone, Debug)]
pub(crate) struct Sight<'a> {
    /// How its value begins.
    pub(crate) value: &'a [u8],
    /// So many ms are left; below 0: it does not end.
    pub(crate) ms: i64,
    /// By the server's clock, in µs.
    pub(crate) now: i64,
}
impl Sight<'_> {
    /// Whoever has it.
    pub(crate) fn holder(&self) -> Holder {
        let left = u64::try_from(self.ms).map_or(FOR_EVER, Duration::from_millis);
        ours(self.value, left, self.now).unwrap_or_else(|| theirs(self.value, left))
    }
    pub(crate) fn busy(&self) -> Busy {
        Busy::new(Some(self.holder()), None)
    }
    pub(crate) fn status(&self, name: Name) -> Status {
        let holder = self.holder();
        let mut status = Status::free(name);
        status.kind = Some(Claim::Mutex.kind());
        status.last_token = (holder.pid > 0).then_some(holder.token);
        status.holders.push(holder);
        status
    }
    /// When it ends by itself.
    pub(crate) fn rest(&self) -> Option<Duration> {
        u64::try_from(self.ms).ok().map(Duration::from_millis)
    }
}

#[cfg(test)]
mod tests {
    //! Planted to see them go red: a dot of a host that is left; half of a long note; what stands for their token made of the last letter.
    use super::*;

    fn seen(value: &str, ms: i64) -> Holder {
        Sight { value: value.as_bytes(), ms, now: 1_700_000_000_500_000 }.holder()
    }

    #[test]
    fn a_value_says_who_has_it() {
        let hold = HoldId::from_bytes([7; 16]);
        for (host, note) in [("h", ""), ("db1.example.org", "a.b 50%\u{e4}\n"), ("", "x")] {
            let value = format!("{}1700000000000000{}", beginning(hold), tail(host, 42, note));
            assert!(value.bytes().all(|byte| byte.is_ascii_graphic()), "{value}");
            let holder = seen(&value, 1_500);
            assert_eq!((holder.hold, holder.token.get(), holder.pid), (hold, 1_700_000_000_000_000, 42));
            assert_eq!((&*holder.host, &*holder.note), (host, note));
            assert_eq!((holder.held_for.as_millis(), holder.left.as_millis()), (500, 1_500));
        }
        let long = format!("{}7{}", beginning(hold), tail("h", 1, &"\u{e4}".repeat(350)));
        assert_eq!(&*seen(&long, 1).note, "", "half of it says something else");
    }
    #[test]
    fn others_are_shown_as_what_they_are() {
        let all = ["", "0a1b", "0a1c", "x.fl1.7.1..h", "00000000000000000000000000000007.fl2.7.1..h", "\u{7}"];
        let holders: Vec<_> = all.iter().map(|value| seen(value, -1)).collect();
        for (value, holder) in all.iter().zip(&holders) {
            assert_eq!((&*holder.host, holder.pid, holder.left), ("?", 0, FOR_EVER), "{value}");
            assert!(holder.token.get() < 2_i64.pow(41) && !holder.note.contains('\u{7}'));
            assert_eq!(seen(value, 5).token, holder.token);
        }
        let tokens: std::collections::BTreeSet<_> = holders.iter().map(|holder| holder.token).collect();
        assert_eq!(tokens.len(), all.len());
        let raw = Sight { value: &[0xff; 20], ms: 1, now: 0 }.holder();
        assert!(raw.note.starts_with("another program: \u{fffd}"));
    }
}
