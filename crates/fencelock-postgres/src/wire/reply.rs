//! What the functions answer: a row whose first field says what became of it.
use fencelock_core::{Conflict, HoldId, Kind, Name, Status, UnknownKind, Version, Versioned};
use fencelock_database::Fields;
pub(crate) use fencelock_database::{Reply, Value, letter};
use std::{borrow::Cow, sync::Arc};
use tokio_postgres::SimpleQueryRow;

pub(crate) fn reply(row: &SimpleQueryRow) -> Option<Reply> {
    let row = Row(row);
    Some(match row.text("code")? {
        "kind" => Reply::OtherKind(row.text("who")?.parse().ok()?),
        "reserved" => Reply::Reserved { rest: row.time("rest")? },
        "layout" => Reply::Layout(row.text("who")?.to_owned()),
        "asked" => Reply::Asked { pid: row.number("number")? },
        _ => return row.reply(),
    })
}
/// When the answer was given, by the server's clock.
pub(crate) fn clock(row: &SimpleQueryRow) -> Option<i64> {
    Row(row).number("now")
}
pub(crate) fn value(row: &SimpleQueryRow) -> Option<Value> {
    let row = Row(row);
    let version = || row.number("version").map(Version::new);
    Some(match row.text("code")? {
        "done" => Value::Written(version()?),
        "value" => {
            let value =
                row.text("value").map(|hex| unhex(hex.strip_prefix("\\x")?)).map_or(Some(None), |v| v.map(Some))?;
            Value::Now(Conflict { now: Versioned { version: version()?, value } })
        }
        "kind" => Value::OtherKind(row.text("kind")?.parse().ok()?),
        "locked" => Value::Locked,
        _ => return None,
    })
}
fn unhex(hex: &str) -> Option<Arc<[u8]>> {
    let digits = |at: usize| hex.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
    (0..hex.len()).step_by(2).map(digits).collect()
}
/// A lock as `fencelock_inspect` tells it.
pub(crate) fn status(name: &Name, rows: &[SimpleQueryRow]) -> Option<Status> {
    fencelock_database::status(name, rows.iter().map(Row))
}

struct Row<'a>(&'a SimpleQueryRow);
impl Fields for Row<'_> {
    fn text(&self, name: &str) -> Option<&str> {
        self.0.try_get(name).ok()?
    }
    fn hold(&self) -> Option<HoldId> {
        self.text("hold")?.replace('-', "").parse().ok()
    }
    fn who(&self) -> Option<Cow<'_, str>> {
        self.text("who").map(Cow::Borrowed)
    }
    fn kind(&self) -> Option<Result<Kind, UnknownKind>> {
        self.text("who").map(str::parse)
    }
}
