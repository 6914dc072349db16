//! One call of a function of ours, as one message.
//!
//! *Invariant (SAFETY E7):* the server works a message off when it has all of it, and its transaction ends before the server reads on:
//! no client that stops, wherever, leaves a row locked.
use fencelock_core::HoldId;
use postgres_protocol::escape::escape_literal;
use std::fmt::{Display, Write};

/// A pooler in between forgets what is said to begin with, so each transaction says it, where the database's own way is another one.
pub(crate) const READ_COMMITTED: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;";

/// *Invariant:* an answer says which call it answers, so one that a pooler hands to the wrong client is known for what it is: it would tell
/// of a grant that is somebody else's.
pub(crate) struct Call(String);
impl Call {
    /// `prefix`: how the transaction begins, where it has to be said; `schema`: with quotes.
    pub(crate) fn new(prefix: &str, schema: &str, function: &str) -> Self {
        let tag = fastrand::u32(..);
        Self(format!("{prefix}SELECT *,'{tag:08x}' AS call FROM {schema}.fencelock_{function}("))
    }
    fn push(mut self, word: impl Display) -> Self {
        if !self.0.ends_with('(') {
            self.0.push(',');
        }
        let _ = write!(self.0, "{word}");
        self
    }
    pub(crate) fn text(self, text: &str) -> Self {
        self.push(escape_literal(text))
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
        self.push(format_args!("'{hold}'"))
    }
    pub(crate) fn null(self) -> Self {
        self.push("NULL")
    }
    pub(crate) fn bytes(self, bytes: &[u8]) -> Self {
        let mut hex = String::with_capacity(2 * bytes.len() + 16);
        hex.push_str("decode('");
        bytes.iter().for_each(|byte| {
            let _ = write!(hex, "{byte:02x}");
        });
        hex.push_str("','hex')");
        self.push(hex)
    }
    /// Of this type.
    pub(crate) fn array(self, kind: &str, words: impl Iterator<Item = impl Display>) -> Self {
        let mut array = String::from("ARRAY[");
        for (n, word) in words.enumerate() {
            let _ = write!(array, "{}{word}", if n > 0 { "," } else { "" });
        }
        let _ = write!(array, "]::{kind}[]");
        self.push(array)
    }
    pub(crate) fn end(mut self) -> String {
        self.0.push(')');
        self.0
    }
}
/// What the rows that answer this message say of it, if it is a [`Call`].
pub(crate) fn tag(message: &str) -> Option<&str> {
    let said = message.strip_prefix(READ_COMMITTED).unwrap_or(message);
    let (tag, rest) = said.strip_prefix("SELECT *,'")?.split_at_checked(8)?;
    rest.starts_with("' AS call FROM ").then_some(tag)
}
/// A word of an [`array`](Call::array).
pub(crate) fn literal(text: &str) -> String {
    escape_literal(text)
}
/// The name of something, with quotes.
pub(crate) fn identifier(name: &str) -> String {
    postgres_protocol::escape::escape_identifier(name)
}

#[cfg(test)]
mod tests {
    //! Planted to see it go red: a text without quotes of ours.
    use super::*;

    #[test]
    fn what_is_said_stays_what_it_is() {
        let call = Call::new("", "\"a\"", "f").text("it's \\").number(-3).null().flag(true).bytes(&[0, 255]);
        let call = call.array("text", ["x'", "y"].into_iter().map(literal)).end();
        let tag = tag(&call).unwrap().to_owned();
        assert!(tag.len() == 8 && tag.chars().all(|c| c.is_ascii_hexdigit()), "{tag}");
        assert_eq!(
            call.replace(&format!("'{tag}'"), "?"),
            "SELECT *,? AS call FROM \"a\".fencelock_f( E'it''s \\\\',-3,NULL,true,decode('00ff','hex'),ARRAY['x''','y']::text[])"
        );
        assert_eq!(super::tag("SELECT pg_backend_pid()"), None);
        assert_eq!(identifier("a\"b"), "\"a\"\"b\"");
    }
}
