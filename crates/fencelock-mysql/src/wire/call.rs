//! One call of a procedure of ours, as one packet.
//!
//! *Invariant (SAFETY E7):* the server works a packet off when it has all of it, and the procedure's transaction ends before its answer
//! begins: no client that stops, wherever, leaves a row locked.
use fencelock_core::HoldId;
use std::fmt::{Display, Write};

pub(crate) struct Call(String);
impl Call {
    pub(crate) fn new(procedure: &str) -> Self {
        Self(format!("CALL fencelock_{procedure}("))
    }
    fn push(mut self, word: impl Display) -> Self {
        if !self.0.ends_with('(') {
            self.0.push(',');
        }
        let _ = write!(self.0, "{word}");
        self
    }
    /// As bytes, whatever the connection takes for letters, quotes and backslashes.
    pub(crate) fn text(self, text: &str) -> Self {
        self.bytes(text.as_bytes())
    }
    /// What the server reckons out first.
    pub(crate) fn expression(self, text: &str) -> Self {
        self.push(text)
    }
    /// As letters, for a table of others.
    pub(crate) fn letters(self, text: &str) -> Self {
        self.push(format_args!("_utf8mb4 {}", literal(text.as_bytes())))
    }
    pub(crate) fn number(self, number: impl Into<i64>) -> Self {
        self.push(number.into())
    }
    pub(crate) fn or_null(self, number: Option<i64>) -> Self {
        match number {
            Some(number) => self.number(number),
            None => self.null(),
        }
    }
    pub(crate) fn flag(self, flag: bool) -> Self {
        self.push(flag)
    }
    pub(crate) fn id(self, hold: HoldId) -> Self {
        self.push(format_args!("X'{hold}'"))
    }
    pub(crate) fn null(self) -> Self {
        self.push("NULL")
    }
    pub(crate) fn bytes(self, bytes: &[u8]) -> Self {
        self.push(literal(bytes))
    }
    pub(crate) fn end(mut self) -> String {
        self.0.push(')');
        self.0
    }
}
/// Bytes, as the server reads them in any mode.
pub(crate) fn literal(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut hex = String::with_capacity(2 * bytes.len() + 3);
    hex.push_str("X'");
    for byte in bytes {
        hex.push(char::from(DIGITS[usize::from(byte >> 4)]));
        hex.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    hex.push('\'');
    hex
}
/// What `fencelock_renew` takes apart: of each hold the length of its name, its name, its id, its token and its ttl.
pub(crate) struct Holds(Vec<u8>);
impl Holds {
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }
    pub(crate) fn push(&mut self, name: &str, hold: HoldId, token: i64, ttl: i64) {
        self.0.extend(u16::try_from(name.len()).unwrap_or(u16::MAX).to_be_bytes());
        self.0.extend(name.as_bytes());
        self.0.extend(bytes_of(hold));
        self.0.extend(token.to_be_bytes());
        self.0.extend(ttl.to_be_bytes());
    }
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}
fn bytes_of(hold: HoldId) -> [u8; 16] {
    u128::from_str_radix(&hold.to_string(), 16).unwrap_or_default().to_be_bytes()
}

#[cfg(test)]
mod tests {
    //! Planted to see it go red: a text between quotes.
    use super::*;

    #[test]
    fn what_is_said_stays_what_it_is() {
        let call = Call::new("f").text("it's \\").number(-3).null().flag(true).bytes(&[0, 255]).text("");
        assert_eq!(call.end(), "CALL fencelock_f(X'69742773205c',-3,NULL,true,X'00ff',X'')");
        let hold: HoldId = "000102030405060708090a0b0c0d0e0f".parse().expect("an id");
        let mut holds = Holds::new();
        holds.push("ab", hold, 1, 258);
        assert_eq!(
            literal(holds.bytes()),
            "X'00026162000102030405060708090a0b0c0d0e0f00000000000000010000000000000102'"
        );
    }
}
