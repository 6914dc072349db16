//! What the procedures answer: a row whose first field says what became of it.
use fencelock_core::{Conflict, HoldId, Kind, Name, Status, UnknownKind, Version, Versioned};
use fencelock_database::Fields;
pub(crate) use fencelock_database::{Reply, Value, letter};
use mysql_async::{Row, Value as Field};
use std::{borrow::Cow, str::from_utf8, sync::Arc};

pub(crate) fn reply(row: &Row) -> Option<Reply> {
    let row = Named(row);
    Some(match row.text("code")? {
        "kind" if row.text("kind")? == SESSION => Reply::Layout(SESSION.to_owned()),
        "kind" => Reply::OtherKind(row.text("kind")?.parse().ok()?),
        "reserved" => Reply::Reserved { rest: row.time("number")? },
        "layout" => Reply::Layout(row.text("kind")?.to_owned()),
        _ => return row.reply(),
    })
}
/// A mutex that a session of the server has, as its record is marked.
const SESSION: &str = "session";
fn kind(text: &str) -> Option<Kind> {
    if text == SESSION { Some(Kind::Mutex) } else { text.parse().ok() }
}
/// A session was asked to let go: which, or of which hold.
pub(crate) fn asked(row: &Row) -> Option<HoldId> {
    let row = Named(row);
    if row.text("code")? == "asked" { row.hold() } else { None }
}
/// The column with this number, as text.
pub(crate) fn column(row: &Row, at: usize) -> Option<&str> {
    from_utf8(bytes(row.as_ref(at)?)?).ok()
}
fn bytes(field: &Field) -> Option<&[u8]> {
    match field {
        Field::Bytes(bytes) => Some(bytes),
        _ => None,
    }
}
/// A place in a queue.
pub(crate) fn place(row: &Row) -> Option<(Name, HoldId)> {
    let row = Named(row);
    Some((Name::new(row.text("name")?).ok()?, row.hold()?))
}
/// When the answer was given, by the server's clock.
pub(crate) fn clock(row: &Row) -> Option<i64> {
    Named(row).number("now")
}
pub(crate) fn value(row: &Row) -> Option<Value> {
    let row = Named(row);
    let version = || row.number("version").map(Version::new);
    Some(match row.text("code")? {
        "done" => Value::Written(version()?),
        "value" => {
            let value = row.bytes("value").map(Arc::from);
            Value::Now(Conflict { now: Versioned { version: version()?, value } })
        }
        "kind" => Value::OtherKind(kind(row.text("kind")?)?),
        "locked" => Value::Locked,
        _ => return None,
    })
}
/// A lock as `fencelock_inspect` tells it.
pub(crate) fn status(name: &Name, rows: &[Row]) -> Option<Status> {
    fencelock_database::status(name, rows.iter().map(Named))
}

struct Named<'a>(&'a Row);
impl Named<'_> {
    fn bytes(&self, name: &str) -> Option<&[u8]> {
        let at = self.0.columns_ref().iter().position(|column| column.name_ref() == name.as_bytes())?;
        bytes(self.0.as_ref(at)?)
    }
}
impl Fields for Named<'_> {
    fn text(&self, name: &str) -> Option<&str> {
        from_utf8(self.bytes(name)?).ok()
    }
    fn hold(&self) -> Option<HoldId> {
        let id = u128::from_be_bytes(self.bytes("hold")?.try_into().ok()?);
        format!("{id:032x}").parse().ok()
    }
    fn who(&self) -> Option<Cow<'_, str>> {
        self.bytes("who").map(String::from_utf8_lossy)
    }
    fn kind(&self) -> Option<Result<Kind, UnknownKind>> {
        self.text("kind").and_then(kind).map(Ok)
    }
}
