//! The names of keys, channels and fields that Redisson makes of the name of a lock.
use fencelock_core::HoldId;

/// What a lock's key leads to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names<'a>(pub(crate) &'a str);
/// What the field of a writer ends with.
pub(crate) const WRITE: &str = ":write";

impl Names<'_> {
    /// The last token of RFencedLock.
    pub(crate) fn token(self) -> String {
        self.before("redisson_lock_token")
    }
    /// Where releases of mutexes are told.
    pub(crate) fn channel(self) -> String {
        self.before("redisson_lock__channel")
    }
    /// And those of readers and writers.
    pub(crate) fn channel_of_both(self) -> String {
        self.before("redisson_rwlock")
    }
    /// Those who wait for an RFairLock.
    pub(crate) fn queue(self) -> String {
        self.before("redisson_lock_queue")
    }
    /// What the keys of those who hold it begin with.
    pub(crate) fn holders(self) -> String {
        if self.has_tag() { self.0.to_owned() } else { format!("{{{}}}", self.0) }
    }
    /// The key beside a hold.
    pub(crate) fn beside(self, field: &str) -> String {
        format!("{}:{}:rwlock_timeout:1", self.holders(), field.strip_suffix(WRITE).unwrap_or(field))
    }
    fn before(self, prefix: &str) -> String {
        if self.has_tag() { format!("{prefix}:{}", self.0) } else { format!("{prefix}:{{{}}}", self.0) }
    }
    /// As Redisson judges it, which is not quite as a cluster does.
    fn has_tag(self) -> bool {
        self.0.contains('{')
    }
}

/// The field of a hold of ours: its id as a UUID, and as thread the one that no program has, so no client of theirs is the same.
pub(crate) fn field(hold: HoldId) -> String {
    let mut field = hold.to_string();
    for at in [20, 16, 12, 8] {
        field.insert(at, '-');
    }
    field + ":0"
}
/// Back to the hold; `None`: it is none of ours.
pub(crate) fn hold(field: &str) -> Option<HoldId> {
    let uuid = field.strip_suffix(WRITE).unwrap_or(field).strip_suffix(":0")?;
    let whole: HoldId = uuid.replace('-', "").parse().ok()?;
    (self::field(whole).strip_suffix(":0") == Some(uuid)).then_some(whole)
}
/// It looks like a holder and how often he has it, or says what those are: a program and what in it, with a colon in between.
pub(crate) fn is_holder(field: &str, value: &str) -> bool {
    match field {
        "mode" => matches!(value, "read" | "write"),
        _ => field.contains(':') && value.parse::<i64>().is_ok(),
    }
}

#[cfg(test)]
mod tests {
    //! Planted to see them go red: a tag that is put into a tag; a UUID without its dashes.
    use super::*;

    #[test]
    fn names_are_made_as_redisson_makes_them() {
        let name = Names("order 1");
        assert_eq!(
            (&*name.token(), &*name.channel()),
            ("redisson_lock_token:{order 1}", "redisson_lock__channel:{order 1}")
        );
        assert_eq!(
            (&*name.channel_of_both(), &*name.queue()),
            ("redisson_rwlock:{order 1}", "redisson_lock_queue:{order 1}")
        );
        assert_eq!(name.beside("u:7:write"), "{order 1}:u:7:rwlock_timeout:1");
        let name = Names("order:{42}");
        assert_eq!(
            (&*name.token(), &*name.beside("u:7")),
            ("redisson_lock_token:order:{42}", "order:{42}:u:7:rwlock_timeout:1")
        );
    }
    #[test]
    fn a_hold_has_one_field_and_a_field_one_hold() {
        let id: HoldId = "00112233445566778899aabbccddeeff".parse().unwrap_or_else(|_| unreachable!("it is one"));
        assert_eq!(field(id), "00112233-4455-6677-8899-aabbccddeeff:0");
        assert_eq!((hold(&field(id)), hold(&(field(id) + WRITE))), (Some(id), Some(id)));
        for no in
            ["00112233-4455-6677-8899-aabbccddeeff:1", "00112233445566778899aabbccddeeff:0", "x:0", ":0", "mode", ""]
        {
            assert_eq!(hold(no), None, "{no}");
        }
        for (field, value, is) in [
            ("mode", "read", true),
            ("u:7", "1", true),
            ("u:v:write", "2", true),
            ("x", "1", false),
            ("a:b", "c", false),
        ] {
            assert_eq!(is_holder(field, value), is, "{field}");
        }
    }
}
