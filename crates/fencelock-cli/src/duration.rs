//! Durations on the command line: `30s`, `1.5s`, `250ms`, `2h`, `1h30m`, `30`.

use std::time::Duration;

/// The longest duration that is not a slip of the keyboard: a hundred years.
const ABSURD: u128 = 100 * 366 * 86_400 * 1_000_000_000;

/// A duration above zero.
pub(crate) fn positive(text: &str) -> Result<Duration, String> {
    match any(text)? {
        Duration::ZERO => Err("it must be above zero".to_owned()),
        d => Ok(d),
    }
}

/// A duration; whether zero makes sense is judged where it is used.
pub(crate) fn any(text: &str) -> Result<Duration, String> {
    let unreadable =
        || "give a number with ms, s, m, h or d, such as 250ms, 1.5s, 1h30m; without a unit, seconds".to_owned();
    let mut total: u128 = 0;
    let mut rest = text;
    if rest.is_empty() {
        return Err(unreadable());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let unit: u128 = match unit {
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "d" => 86_400_000_000_000,
            // Only for the whole of it: `1h30` would be read as minutes by some and as seconds by others.
            "" if digits == text.len() => 1_000_000_000,
            _ => return Err(unreadable()),
        };
        total = total.saturating_add(scaled(number, unit).ok_or_else(unreadable)?);
        rest = tail;
    }
    if total > ABSURD {
        return Err("it is longer than a hundred years".to_owned());
    }
    u64::try_from(total).map(Duration::from_nanos).map_err(|_| unreadable())
}

/// `number` × `unit`, cut off below a nanosecond.
fn scaled(number: &str, unit: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.contains('.') || number.ends_with('.') {
        return None;
    }
    // More digits than a u128 has are an absurd duration, and told as one.
    let whole = if whole.len() > 30 { u128::MAX } else { whole.parse().ok()? };
    let mut nanos = unit.saturating_mul(whole);
    let mut place = unit;
    for digit in fraction.chars() {
        place /= 10;
        nanos = nanos.saturating_add(place.saturating_mul(u128::from(digit.to_digit(10)?)));
    }
    Some(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Planted: minutes for a bare number; a unit taken without its number.
    #[test]
    fn what_people_write() {
        let ms = |t| any(t).map(|d| d.as_millis());
        assert_eq!(ms("30s"), Ok(30_000));
        assert_eq!(ms("1.5s"), Ok(1_500));
        assert_eq!(ms("250ms"), Ok(250));
        assert_eq!(ms("2h"), Ok(7_200_000));
        assert_eq!(ms("1h30m"), Ok(5_400_000));
        assert_eq!(ms("0.25"), Ok(250));
        assert_eq!(ms("30"), Ok(30_000));
        assert_eq!(ms("0"), Ok(0));
        assert!(positive("0s").is_err());
    }

    // Planted: saturating to the longest duration instead of refusing.
    #[test]
    fn what_they_did_not_mean() {
        for text in ["", "s", "1h30", "-5s", "1.2.3s", "5 s", "1e9s", "5.", ".5s", "1y", "99999999999h", "40000d", "٣s"]
        {
            assert!(any(text).is_err(), "{text:?}");
        }
        assert!(any(&"9".repeat(60)).is_err());
    }
}
