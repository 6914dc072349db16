//! What goes into a statement beside its text.
use fencelock_core::Token;
use std::fmt;

/// A value for a statement: a key, a new content, a parameter of a filter. It never becomes part of the statement's text.
///
/// On PostgreSQL it takes the type that the statement wants there: `"2026-01-31"` is good for a `date`, and a text with a UUID for a
/// `uuid`.
///
/// ```
/// use fencelock_sql::Value;
/// assert_eq!(Value::from(42), Value::Int(42));
/// assert_eq!(Value::from("new").as_str(), Some("new"));
/// assert_eq!(Value::from(None::<i64>), Value::Null);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Value {
    /// `NULL`.
    Null,
    /// Yes or no.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A text, and on PostgreSQL whatever is written as one.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
}
impl Value {
    /// The text, where it is one.
    ///
    /// ```
    /// assert_eq!(fencelock_sql::Value::from(42).as_str(), None);
    /// ```
    pub fn as_str(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }
    /// The number, also where the database wrote it as a text.
    ///
    /// ```
    /// assert_eq!(fencelock_sql::Value::from("42").as_i64(), Some(42));
    /// ```
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Int(n) => Some(*n),
            Self::Text(text) => text.parse().ok(),
            Self::Null | Self::Bool(_) | Self::Bytes(_) => None,
        }
    }
}
/// As people read it; bytes as hex.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("NULL"),
            Self::Bool(yes) => yes.fmt(f),
            Self::Int(n) => n.fmt(f),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Bytes(bytes) => f.write_str(&hex(bytes)),
        }
    }
}
pub(crate) fn hex(bytes: &[u8]) -> String {
    use fmt::Write;
    bytes.iter().fold(String::from("\\x"), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

macro_rules! into_value {
    ($($from:ty: $value:ident => $to:expr;)*) => {$(
        impl From<$from> for Value {
            fn from($value: $from) -> Self {
                $to
            }
        }
    )*};
}
into_value! {
    bool: value => Self::Bool(value);
    i16: value => Self::Int(value.into());
    i32: value => Self::Int(value.into());
    i64: value => Self::Int(value);
    u8: value => Self::Int(value.into());
    u16: value => Self::Int(value.into());
    u32: value => Self::Int(value.into());
    &str: value => Self::Text(value.to_owned());
    &String: value => Self::Text(value.clone());
    String: value => Self::Text(value);
    &[u8]: value => Self::Bytes(value.to_vec());
    Vec<u8>: value => Self::Bytes(value);
    Token: value => Self::Int(value.get());
    &Value: value => value.clone();
}
impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}
