//! Names of keys.
use fencelock_core::Name;

/// Under one prefix. A lock NAME lies at `PREFIX NAME / LEASE`, as Go's `concurrency.Mutex` and `etcdctl lock PREFIX NAME` have it.
///
/// *Invariant:* a name has one part, so no lock's keys lie among another's; and what is not a lock's key begins with a `%` that no
/// name has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keys(String);

impl Keys {
    /// Those of a namespace lie beside the others, never below: they would be taken for contenders of a lock of that name.
    pub(crate) fn new(prefix: &str, namespace: &str) -> Self {
        if namespace.is_empty() {
            return Self(prefix.to_owned());
        }
        let mut all = prefix.strip_suffix('/').unwrap_or(prefix).to_owned();
        all.push('.');
        escape(namespace, &mut all);
        all.push('/');
        Self(all)
    }
    /// Everything of ours.
    pub(crate) fn all(&self) -> &str {
        &self.0
    }
    /// What all contenders of this lock begin with.
    pub(crate) fn lock(&self, name: &Name) -> String {
        let mut key = self.0.clone();
        escape(name.as_str(), &mut key);
        key.push('/');
        key
    }
    /// What all names that begin so have in common.
    pub(crate) fn beginning(&self, prefix: &str) -> String {
        let mut key = self.0.clone();
        escape(prefix, &mut key);
        key
    }
    /// A contender.
    pub(crate) fn own(&self, name: &Name, lease: i64) -> String {
        format!("{}{lease:x}", self.lock(name))
    }
    /// What those begin with who waited for this lock and have it.
    pub(crate) fn grants(&self, name: &Name) -> String {
        let mut key = format!("{}%who/", self.0);
        escape(name.as_str(), &mut key);
        key.push('/');
        key
    }
    /// One of them: written by whoever waited and found nobody in front.
    pub(crate) fn grant(&self, name: &Name, lease: i64) -> String {
        format!("{}{lease:x}", self.grants(name))
    }
    /// Changed by whoever takes an attempt of this lease back, before he looks for what it wrote (SAFETY A2).
    pub(crate) fn epoch(&self, lease: i64) -> String {
        format!("{}%live/{lease:x}", self.0)
    }
    /// Which store this is.
    pub(crate) fn id(&self) -> String {
        format!("{}%id", self.0)
    }
    /// Of whom a contender's key is; `None`: it is none.
    pub(crate) fn name(&self, key: &[u8]) -> Option<Name> {
        let rest = std::str::from_utf8(key.strip_prefix(self.0.as_bytes())?).ok()?;
        let (name, _) = rest.split_once('/')?;
        let mut bytes = Vec::with_capacity(name.len());
        let mut rest = name.as_bytes();
        while let Some((byte, after)) = rest.split_first() {
            rest = after;
            if *byte != b'%' {
                bytes.push(*byte);
                continue;
            }
            let (code, after) = rest.split_at_checked(2)?;
            rest = after;
            bytes.push(match code {
                b"25" => b'%',
                b"2F" => b'/',
                _ => return None,
            });
        }
        Name::new(String::from_utf8(bytes).ok()?).ok()
    }
}
fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '%' => out.push_str("%25"),
            '/' => out.push_str("%2F"),
            c => out.push(c),
        }
    }
}
/// The first key after all that begin so.
pub(crate) fn after(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // Of all keys.
    vec![0]
}

#[cfg(test)]
mod tests {
    //! Planted to see them go red: `/` not escaped.
    use super::*;

    #[test]
    fn a_name_has_one_key_and_a_key_one_name() {
        let keys = Keys::new("fencelock/", "");
        for name in ["orders", "a/b", "..", "a b", "100%", "%live/1", "%2F", "f\u{1F512}"] {
            let name = Name::new(name).unwrap();
            let key = keys.own(&name, 0x77);
            assert_eq!(keys.name(key.as_bytes()), Some(name.clone()));
            assert!(key.ends_with("/77"));
            for no in [keys.grant(&name, 7), keys.epoch(7), keys.id()] {
                assert_eq!(keys.name(no.as_bytes()), None, "{no}");
            }
        }
        assert_eq!(keys.own(&Name::new("a").unwrap(), 255), "fencelock/a/ff");
        assert!(!keys.own(&Name::new("a/b").unwrap(), 1).starts_with(&keys.lock(&Name::new("a").unwrap())));
    }
    #[test]
    fn namespaces_do_not_meet() {
        let name = Name::new("x").unwrap();
        let own = |space: &str| Keys::new("fencelock/", space).own(&name, 1);
        assert_eq!(
            (&*own(""), &*own("shop"), &*own("a/b")),
            ("fencelock/x/1", "fencelock.shop/x/1", "fencelock.a%2Fb/x/1")
        );
        assert_eq!(Keys::new("fencelock/", "").name(own("shop").as_bytes()), None);
    }
    #[test]
    fn the_end_of_a_prefix() {
        assert_eq!(after("a/"), b"a0");
        assert_eq!(after(""), [0]);
    }
}
