//! The narrow door to the drivers: all that a driver has to do.
use crate::{Dialect, Value, fault::Fault};

/// What a statement brought.
#[derive(Debug, Default)]
pub struct Answer {
    /// How many rows were changed.
    pub affected: u64,
    /// What was read.
    pub rows: Vec<Vec<Value>>,
}
impl Answer {
    /// The first value of the only row.
    pub(crate) fn first(&self) -> Option<&Value> {
        self.rows.first()?.first()
    }
    /// The same, as a text.
    pub(crate) fn text(&self) -> &str {
        self.first().and_then(Value::as_str).unwrap_or_default()
    }
}

/// A transaction of one driver. Nobody else can write one: it is free to change.
pub trait Door: Sized {
    /// The driver's own error.
    type Error: Failure;
    /// What the driver speaks, before anybody has asked the server who it is.
    const DIALECT: Dialect;
    /// One statement.
    fn run<'a>(&'a mut self, sql: &'a str, values: &'a [Value]) -> impl Future<Output = Result<Answer, Self::Error>>;
    /// One without values that answers nothing.
    fn say<'a>(&'a mut self, sql: &'a str) -> impl Future<Output = Result<(), Self::Error>>;
    /// It has ended already, where the driver can tell: by itself, or by a statement.
    fn ended(&self) -> bool {
        false
    }
    /// A statement was dropped before its answer came, and the driver would take that for the next one's. Nothing more is sent then: what the
    /// driver knows of it would be gone.
    fn is_owed(&self) -> bool {
        false
    }
    /// Where the driver can be told to commit what is dropped, it is told not to.
    fn undo_when_dropped(&mut self) {}
    /// `COMMIT`.
    fn commit(self) -> impl Future<Output = Result<(), Self::Error>>;
    /// `ROLLBACK`.
    fn rollback(self) -> impl Future<Output = Result<(), Self::Error>>;
}

/// A connection of one driver, outside of a transaction.
pub trait Plain {
    /// What the driver speaks.
    const DIALECT: Dialect;
    /// One statement that answers nothing.
    fn say(&mut self, sql: &str) -> impl Future<Output = Result<(), Fault>>;
}

/// The error of one driver.
pub trait Failure {
    /// Without the driver's types.
    fn fault(self) -> Fault;
}
