//! Rows that are refused before anything is sent.
use fencelock_sql::Row;

pub(crate) fn bad_rows() -> [Row; 6] {
    [
        Row::of("account"),
        Row::of("").key("id", 1),
        Row::of("account").key("i\0d", 1),
        Row::of("account").key("id", None::<i64>),
        Row::of("account").keys("id", [0_i64; 0]),
        Row::of("account").filter("id = {}", [1, 2]),
    ]
}
