//! Transactions, a word for each thing that we ask.
use super::{
    key::after,
    pb::{Against, Compare, Delete, Did, Do, KeyValue, Put, Range, Ranged, Step, StepDone, Txn, TxnDone},
};

const EQUAL: i32 = 0;
const GREATER: i32 = 1;
const LESS: i32 = 2;
const CREATED: i32 = 1;
const MODIFIED: i32 = 2;
const VALUE: i32 = 3;

fn compare(result: i32, target: i32, key: &str, end: Vec<u8>, against: Against) -> Compare {
    Compare { result, target, key: key.as_bytes().to_vec(), against: Some(against), end }
}
/// It was made at this revision; 0: there is none.
pub(crate) fn created(key: &str, revision: i64) -> Compare {
    compare(EQUAL, CREATED, key, Vec::new(), Against::Created(revision))
}
pub(crate) fn exists(key: &str) -> Compare {
    compare(GREATER, CREATED, key, Vec::new(), Against::Created(0))
}
/// It was last written at this revision.
pub(crate) fn modified(key: &str, revision: i64) -> Compare {
    compare(EQUAL, MODIFIED, key, Vec::new(), Against::Modified(revision))
}
pub(crate) fn has_value(key: &str, value: Vec<u8>) -> Compare {
    compare(EQUAL, VALUE, key, Vec::new(), Against::Value(value))
}
/// Its value begins with these words, of which none is a part of a longer one.
pub(crate) fn begins(key: &str, words: &str) -> [Compare; 2] {
    let than = |result, end| {
        let value = Against::Value(format!("{words}{end}").into_bytes());
        compare(result, VALUE, key, Vec::new(), value)
    };
    // What follows them is a space, which lies between the two.
    [than(GREATER, ""), than(LESS, "!")]
}
/// No key begins so.
pub(crate) fn none_under(prefix: &str) -> Compare {
    compare(EQUAL, CREATED, prefix, after(prefix), Against::Created(0))
}
/// All keys that begin so were made at this revision or later: a comparison of a range holds when it holds for each of its keys.
pub(crate) fn none_before(prefix: &str, revision: i64) -> Compare {
    compare(GREATER, CREATED, prefix, after(prefix), Against::Created(revision - 1))
}

fn step(what: Do) -> Step {
    Step { what: Some(what) }
}
pub(crate) fn put(key: &str, value: Vec<u8>, lease: i64) -> Step {
    step(Do::Put(Put { key: key.as_bytes().to_vec(), value, lease }))
}
pub(crate) fn delete(key: &str) -> Step {
    step(Do::Delete(Delete { key: key.as_bytes().to_vec(), end: Vec::new() }))
}
pub(crate) fn get(key: impl AsRef<[u8]>) -> Step {
    step(Do::Range(Range { key: key.as_ref().to_vec(), ..Range::default() }))
}
pub(crate) fn all_under(prefix: &str, limit: i64) -> Range {
    Range { key: prefix.as_bytes().to_vec(), end: after(prefix), limit, order: 1, by: 2, ..Range::default() }
}
/// The first of those that begin so, in the order in which they were made; and how many there are.
pub(crate) fn first_under(prefix: &str) -> Step {
    step(Do::Range(all_under(prefix, 1)))
}
/// Whether there are any.
pub(crate) fn any_under(prefix: &str) -> Step {
    let (key, end) = (prefix.as_bytes().to_vec(), after(prefix));
    step(Do::Range(Range { key, end, limit: 1, keys_only: true, ..Range::default() }))
}
pub(crate) fn every_under(prefix: &str) -> Step {
    step(Do::Range(all_under(prefix, 0)))
}
/// The last of those that begin so.
pub(crate) fn last_under(prefix: &str) -> Step {
    step(Do::Range(Range { order: 2, ..all_under(prefix, 1) }))
}
/// The last one that was made before this revision.
pub(crate) fn last_before(prefix: &str, revision: i64) -> Step {
    step(Do::Range(Range { order: 2, created_to: revision - 1, ..all_under(prefix, 1) }))
}
/// The names of all that begin so, in the order in which they were made.
pub(crate) fn names_under(prefix: &str) -> Step {
    step(Do::Range(Range { keys_only: true, ..all_under(prefix, 0) }))
}
/// The names of all that were made before this revision, in that order.
pub(crate) fn names_before(prefix: &str, revision: i64) -> Step {
    step(Do::Range(Range { keys_only: true, created_to: revision - 1, ..all_under(prefix, 0) }))
}
pub(crate) fn choose(compare: Vec<Compare>, then: Vec<Step>, or_else: Vec<Step>) -> Txn {
    Txn { compare, then, or_else }
}
pub(crate) fn nested(txn: Txn) -> Step {
    step(Do::Txn(txn))
}

impl TxnDone {
    pub(crate) fn revision(&self) -> i64 {
        self.header.as_ref().map_or(0, |header| header.revision)
    }
    /// What the n-th step read.
    pub(crate) fn ranged(&self, n: usize) -> Option<&Ranged> {
        match self.steps.get(n) {
            Some(StepDone { what: Some(Did::Range(ranged)) }) => Some(ranged),
            _ => None,
        }
    }
    /// The key that the n-th step read. Outer `None`: it was no read.
    pub(crate) fn one(&self, n: usize) -> Option<Option<&KeyValue>> {
        self.ranged(n).map(|ranged| ranged.keys.first())
    }
    pub(crate) fn inner(&self, n: usize) -> Option<&Self> {
        match self.steps.get(n) {
            Some(StepDone { what: Some(Did::Txn(done)) }) => Some(done),
            _ => None,
        }
    }
}
