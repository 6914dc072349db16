//! Which rows are meant.
use crate::{Dialect, Value, dialect::Statement};
use fencelock_core::{Error, ErrorKind, Result};
use std::fmt;

/// Rows of one of your tables, by their key: what is locked, changed or fenced.
///
/// Names are quoted, values are parameters: neither can become SQL. PostgreSQL tells upper from lower case in quoted names.
///
/// ```
/// use fencelock_sql::Row;
/// let one = Row::of("shop.orders").key("tenant", 3).key("id", "A-17");
/// let many = Row::of("account").keys("id", [7, 3]);
/// let next = Row::of("job").filter("state = {} AND due < now()", ["new"]).sorted_by("id").limit(1);
/// # let _ = (one, many, next);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "it names rows, and does nothing by itself"]
pub struct Row {
    table: String,
    keys: Vec<(String, Vec<Value>)>,
    filters: Vec<(&'static str, Vec<Value>)>,
    sorted: Vec<String>,
    limit: Option<u32>,
    version: String,
    fence: (String, String),
}
impl Row {
    /// Of this table: `NAME` or `SCHEMA.NAME`.
    ///
    /// ```
    /// let row = fencelock_sql::Row::of("orders").key("id", 42);
    /// assert_eq!(row.to_string(), "orders[id = 42]");
    /// ```
    pub fn of(table: impl Into<String>) -> Self {
        Self {
            table: table.into(),
            keys: Vec::new(),
            filters: Vec::new(),
            sorted: Vec::new(),
            limit: None,
            version: "version".to_owned(),
            fence: ("fence_token".to_owned(), "fence_owner".to_owned()),
        }
    }
    /// Where this column has this value. A key of several columns is named by several calls.
    ///
    /// ```
    /// let row = fencelock_sql::Row::of("orders").key("tenant", 3).key("id", "A-17");
    /// assert_eq!(row.to_string(), "orders[tenant = 3, id = \"A-17\"]");
    /// ```
    pub fn key(mut self, column: impl Into<String>, value: impl Into<Value>) -> Self {
        self.keys.push((column.into(), vec![value.into()]));
        self
    }
    /// Where this column has one of these values. They are locked in their order, whatever yours is: two transactions that lock the
    /// same rows do not meet in a deadlock.
    ///
    /// ```
    /// let rows = fencelock_sql::Row::of("account").keys("id", [7, 3]);
    /// assert_eq!(rows.to_string(), "account[id in 7, 3]");
    /// ```
    pub fn keys<V: Into<Value>>(mut self, column: impl Into<String>, values: impl IntoIterator<Item = V>) -> Self {
        self.keys.push((column.into(), values.into_iter().map(Into::into).collect()));
        self
    }
    /// Where this holds, in your own SQL, with `{}` where a value is. The text is one of the program, so nothing from outside can be in it.
    ///
    /// ```
    /// let due = fencelock_sql::Row::of("job").filter("state = {} AND due < now()", ["new"]);
    /// assert_eq!(due.to_string(), "job[state = {} AND due < now()]");
    /// ```
    pub fn filter<V: Into<Value>>(mut self, sql: &'static str, values: impl IntoIterator<Item = V>) -> Self {
        self.filters.push((sql, values.into_iter().map(Into::into).collect()));
        self
    }
    /// In the order of this column, after that of the keys.
    ///
    /// ```
    /// let next = fencelock_sql::Row::of("job").filter("state = {}", ["new"]).sorted_by("id").limit(1);
    /// # let _ = next;
    /// ```
    pub fn sorted_by(mut self, column: impl Into<String>) -> Self {
        self.sorted.push(column.into());
        self
    }
    /// Not more than so many.
    ///
    /// ```
    /// let next = fencelock_sql::Row::of("job").filter("state = {}", ["new"]).sorted_by("id").limit(1);
    /// # let _ = next;
    /// ```
    pub fn limit(mut self, rows: u32) -> Self {
        self.limit = Some(rows);
        self
    }
    /// The column of [`update`](Self::update), where it is not called `version`.
    ///
    /// ```
    /// let row = fencelock_sql::Row::of("orders").key("id", 42).version_column("revision");
    /// # let _ = row;
    /// ```
    pub fn version_column(mut self, column: impl Into<String>) -> Self {
        self.version = column.into();
        self
    }
    /// The columns of [`fence::check`](crate::fence::check), where they are not called `fence_token` and `fence_owner`.
    ///
    /// ```
    /// let row = fencelock_sql::Row::of("orders").key("id", 42).fence_columns("token", "holder");
    /// # let _ = row;
    /// ```
    pub fn fence_columns(mut self, token: impl Into<String>, owner: impl Into<String>) -> Self {
        self.fence = (token.into(), owner.into());
        self
    }

    pub(crate) fn table(&self) -> &str {
        &self.table
    }
    pub(crate) fn version(&self) -> &str {
        &self.version
    }
    pub(crate) fn fence(&self) -> (&str, &str) {
        (&self.fence.0, &self.fence.1)
    }
    /// What can be seen without asking anybody.
    pub(crate) fn check(&self, operation: &'static str, dialect: Dialect) -> Result<()> {
        let wrong = |what: &str, hint: &str| {
            Err(Error::new(ErrorKind::InvalidConfig, operation, what).with("table", &self.table).hint(hint))
        };
        if self.keys.is_empty() && self.filters.is_empty() {
            return wrong("it names every row of the table", "add key(…) or filter(…)");
        }
        if self.keys.iter().any(|(_, values)| values.contains(&Value::Null)) {
            return wrong("a key is NULL, which equals nothing", "use filter(\"… IS NULL\", …)");
        }
        if self.keys.iter().any(|(_, values)| values.is_empty()) {
            return wrong("a key has no values", "do not ask when there is nothing to do");
        }
        // The same that the statement will do, before the transaction has anything to do with it.
        let mut statement = Statement::new(dialect, operation, "");
        self.select(&mut statement)?;
        self.order(&mut statement)?;
        [self.version(), self.fence.0.as_str(), self.fence.1.as_str()]
            .iter()
            .try_for_each(|name| dialect.quoted(operation, name).map(drop))
    }
    /// As [`check`](Self::check), for what is about one row.
    pub(crate) fn check_one(&self, operation: &'static str, dialect: Dialect) -> Result<()> {
        self.check(operation, dialect)?;
        if self.keys.iter().any(|(_, values)| values.len() > 1) {
            let error = Error::new(ErrorKind::InvalidConfig, operation, format!("{self} is several rows"));
            return Err(error.with("table", &self.table).hint("name one row by its key"));
        }
        if self.limit.is_some() || !self.sorted.is_empty() {
            let error = Error::new(ErrorKind::InvalidConfig, operation, "a limit and an order are for locks");
            return Err(error.with("table", &self.table).hint("name one row by its key"));
        }
        Ok(())
    }
    fn named(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(|(column, _)| column.as_str()).chain(self.sorted.iter().map(String::as_str))
    }
    /// `SELECT … FROM … WHERE …`: its keys, as text on PostgreSQL. What is read has a name of its own there: `ORDER BY` takes that of a
    /// column for what is read, where there is one, and would sort numbers as texts.
    pub(crate) fn select(&self, statement: &mut Statement) -> Result<()> {
        statement.text("SELECT ");
        for (i, column) in self.named().enumerate() {
            statement.text(if i == 0 { "" } else { ", " }).name(column)?;
            if statement.dialect == Dialect::Postgres {
                statement.text(&format!("::text AS fencelock_{i}"));
            }
        }
        let nothing = self.named().next().is_none();
        statement.text(if nothing { "'1' FROM " } else { " FROM " }).name(&self.table)?.text(" WHERE ");
        self.condition(statement)
    }
    /// What follows `WHERE`.
    pub(crate) fn condition(&self, statement: &mut Statement) -> Result<()> {
        let mut first = true;
        for (column, values) in &self.keys {
            statement.text(if first { "" } else { " AND " }).name(column)?;
            first = false;
            if let [value] = values.as_slice() {
                statement.text(" = ").value(value);
                continue;
            }
            statement.text(" IN (");
            for (i, value) in values.iter().enumerate() {
                statement.text(if i == 0 { "" } else { ", " }).value(value);
            }
            statement.text(")");
        }
        for (sql, values) in &self.filters {
            statement.text(if first { "(" } else { " AND (" }).filled(sql, values)?.text(")");
            first = false;
        }
        Ok(())
    }
    /// `ORDER BY … LIMIT …`, as all of them want it in front of the lock's clause.
    pub(crate) fn order(&self, statement: &mut Statement) -> Result<()> {
        for (i, column) in self.named().enumerate() {
            statement.text(if i == 0 { " ORDER BY " } else { ", " }).name(column)?;
        }
        if let Some(limit) = self.limit {
            statement.text(&format!(" LIMIT {limit}"));
        }
        Ok(())
    }
}
/// The table, and which of its rows.
impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", self.table)?;
        for (i, (column, values)) in self.keys.iter().enumerate() {
            let values: Vec<_> = values.iter().map(ToString::to_string).collect();
            let sign = if values.len() == 1 { "=" } else { "in" };
            write!(f, "{}{column} {sign} {}", if i == 0 { "" } else { ", " }, values.join(", "))?;
        }
        for (i, (sql, _)) in self.filters.iter().enumerate() {
            write!(f, "{}{sql}", if i == 0 && self.keys.is_empty() { "" } else { ", " })?;
        }
        f.write_str("]")
    }
}
