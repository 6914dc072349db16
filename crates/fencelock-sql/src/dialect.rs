//! What the databases say differently.
use crate::Value;
use fencelock_core::{Error, ErrorKind, Result};

/// Which SQL is spoken.
///
/// ```
/// assert!(fencelock_sql::fence::table(fencelock_sql::Dialect::Sqlite).contains("fencelock_fence"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// PostgreSQL.
    Postgres,
    /// MySQL.
    MySql,
    /// MariaDB.
    MariaDb,
    /// SQLite.
    Sqlite,
}
impl Dialect {
    /// MySQL and MariaDB have much in common.
    pub(crate) const fn is_mysql(self) -> bool {
        matches!(self, Self::MySql | Self::MariaDb)
    }
    /// `"orders"`, `` `orders` ``; a dot separates schema and table.
    ///
    /// # Errors
    /// `InvalidConfig`: nothing can have this name.
    pub(crate) fn quoted(self, operation: &'static str, name: &str) -> Result<String> {
        let parts = name.split('.').map(|part| self.part(operation, name, part));
        Ok(parts.collect::<Result<Vec<_>>>()?.join("."))
    }
    /// This column as a whole number: one that is kept as a text would be compared by its letters.
    pub(crate) fn number(self, column: &str) -> String {
        match self {
            Self::Postgres => format!("{column}::int8"),
            Self::MySql | Self::MariaDb => format!("CAST({column} AS SIGNED)"),
            Self::Sqlite => format!("CAST({column} AS INTEGER)"),
        }
    }
    /// This column as its bytes, where its collation could take `a`, `A` and `a ` for the same.
    pub(crate) fn bytes(self, column: &str) -> String {
        match self {
            Self::Postgres => column.to_owned(),
            Self::MySql | Self::MariaDb => format!("CAST({column} AS BINARY)"),
            Self::Sqlite => format!("{column} COLLATE BINARY"),
        }
    }
    /// This column as the answer has it: as a text on PostgreSQL, whatever its type is.
    pub(crate) fn read(self, column: &str) -> String {
        match self {
            Self::Postgres => format!("({column})::text"),
            Self::MySql | Self::MariaDb => column.to_owned(),
            Self::Sqlite => format!("CAST({column} AS TEXT)"),
        }
    }
    fn part(self, operation: &'static str, whole: &str, part: &str) -> Result<String> {
        if part.is_empty() || part.contains('\0') {
            let error = Error::new(ErrorKind::InvalidConfig, operation, format!("{whole:?} names no table or column"));
            return Err(error.hint("write NAME or SCHEMA.NAME"));
        }
        // SQLite takes a name in double quotes that it does not know for a text.
        let quote = if self == Self::Postgres { '"' } else { '`' };
        Ok(format!("{quote}{}{quote}", part.replace(quote, &format!("{quote}{quote}"))))
    }
}

/// A statement while it is written: names are quoted, values are parameters.
#[derive(Debug)]
pub(crate) struct Statement {
    pub(crate) dialect: Dialect,
    pub(crate) operation: &'static str,
    pub(crate) text: String,
    pub(crate) values: Vec<Value>,
}
impl Statement {
    pub(crate) fn new(dialect: Dialect, operation: &'static str, text: &str) -> Self {
        Self { dialect, operation, text: text.to_owned(), values: Vec::new() }
    }
    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        self.text.push_str(text);
        self
    }
    pub(crate) fn name(&mut self, name: &str) -> Result<&mut Self> {
        self.text.push_str(&self.dialect.quoted(self.operation, name)?);
        Ok(self)
    }
    pub(crate) fn value(&mut self, value: impl Into<Value>) -> &mut Self {
        self.values.push(value.into());
        match self.dialect {
            Dialect::Postgres => self.text.push_str(&format!("${}", self.values.len())),
            _ => self.text.push('?'),
        }
        self
    }
    /// A text of the program, with `{}` where its values are.
    pub(crate) fn filled(&mut self, text: &'static str, values: &[Value]) -> Result<&mut Self> {
        let parts: Vec<_> = text.split("{}").collect();
        if parts.len() != values.len() + 1 {
            let what = format!("{text:?} has {} places for {} values", parts.len() - 1, values.len());
            let error = Error::new(ErrorKind::InvalidConfig, self.operation, what);
            return Err(error.hint("write {} for each value, and nowhere else: a literal '{}' is a value, too"));
        }
        for (i, part) in parts.iter().enumerate() {
            self.text(part);
            if let Some(value) = values.get(i) {
                self.value(value);
            }
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    //! Planted to see it go red: the quote not doubled; one place more allowed than values.
    use super::*;

    #[test]
    fn names_are_quoted_and_values_are_not_text() {
        let quoted = |dialect: Dialect, name| dialect.quoted("test", name).unwrap();
        assert_eq!(quoted(Dialect::Postgres, "shop.a\"; DROP TABLE b; --"), "\"shop\".\"a\"\"; DROP TABLE b; --\"");
        assert_eq!(quoted(Dialect::MariaDb, "a`b"), "`a``b`");
        for bad in ["", "a.", ".b", "a\0"] {
            assert_eq!(Dialect::Sqlite.quoted("test", bad).unwrap_err().kind(), ErrorKind::InvalidConfig, "{bad:?}");
        }
        let mut statement = Statement::new(Dialect::Postgres, "test", "SELECT 1 WHERE ");
        statement.filled("a = {} AND b = {}", &["x' OR 1=1".into(), 7.into()]).unwrap();
        assert_eq!(statement.text, "SELECT 1 WHERE a = $1 AND b = $2");
        assert_eq!(statement.values, ["x' OR 1=1".into(), 7.into()]);
        for (text, values) in [("a = {}", vec![]), ("true", vec![Value::Null]), ("a = '{}' AND b = {}", vec![1.into()])]
        {
            assert_eq!(statement.filled(text, &values).unwrap_err().kind(), ErrorKind::InvalidConfig, "{text}");
        }
    }
}
