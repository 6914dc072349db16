//! Names of keys.
use fencelock_core::{Claim, HoldId, Kind, Name};

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
    /// What the keys of one name begin with: of a mutex without more, of everything else below a word of its own.
    fn of(&self, word: &str, name: &Name) -> String {
        let mut key = format!("{}{word}", self.0);
        escape(name.as_str(), &mut key);
        key.push('/');
        key
    }
    /// What all contenders for a lock of this kind begin with; of a cell, its value.
    pub(crate) fn room(&self, kind: Kind, name: &Name) -> String {
        self.of(word(kind), name)
    }
    /// Where one of them is written: of a mutex by its lease, as others do; else by its hold id, so several share a lease.
    pub(crate) fn spot(&self, name: &Name, claim: Claim, lease: i64, hold: HoldId) -> Spot {
        let room = self.room(claim.kind(), name);
        let id = if claim == Claim::Mutex { format!("{lease:x}") } else { hold.to_string() };
        let who = format!("{}{id}", self.whos(name));
        let (keys, before) = match claim {
            Claim::Read => (vec![format!("{room}r/{id}")], format!("{room}w/")),
            Claim::Write => (vec![format!("{room}r/{id}"), format!("{room}w/{id}")], room.clone()),
            Claim::Permits { take, .. } => (vec![format!("{room}{take:x}/{id}")], room.clone()),
            _ => (vec![format!("{room}{id}")], room.clone()),
        };
        Spot { room, before, keys, who }
    }
    /// What all names that begin so have in common.
    pub(crate) fn beginning(&self, kind: Kind, prefix: &str) -> String {
        let mut key = format!("{}{}", self.0, word(kind));
        escape(prefix, &mut key);
        key
    }
    /// What those begin with that say who the contenders for a lock are.
    pub(crate) fn whos(&self, name: &Name) -> String {
        self.of("%who/", name)
    }
    /// The size of a semaphore.
    pub(crate) fn size(&self, name: &Name) -> String {
        self.of("%size/", name)
    }
    /// The value of a cell.
    pub(crate) fn value(&self, name: &Name) -> String {
        self.room(Kind::Cell, name)
    }
    /// That a cell's value was removed.
    pub(crate) fn removed(&self, name: &Name) -> String {
        self.of("%gone/", name)
    }
    /// That this write of a cell has had its effect (SAFETY A6).
    pub(crate) fn written(&self, nonce: HoldId) -> String {
        format!("{}%did/{nonce}", self.0)
    }
    /// Changed by whoever takes an attempt of this lease back, before he looks for what it wrote (SAFETY A2).
    pub(crate) fn epoch(&self, lease: i64) -> String {
        format!("{}%live/{lease:x}", self.0)
    }
    /// Which store this is.
    pub(crate) fn id(&self) -> String {
        format!("{}%id", self.0)
    }
    /// What lies among the keys of mutexes and is none: an escaped `%` or `/` is `%25` or `%2F`.
    pub(crate) fn others(&self) -> (Vec<u8>, Vec<u8>) {
        (format!("{}%3", self.0).into_bytes(), format!("{}&", self.0).into_bytes())
    }
    /// Of which lock of this kind a contender's key is; `None`: it is none.
    pub(crate) fn name(&self, kind: Kind, key: &[u8]) -> Option<Name> {
        let rest = key.strip_prefix(self.0.as_bytes())?.strip_prefix(word(kind).as_bytes())?;
        let (name, _) = std::str::from_utf8(rest).ok()?.split_once('/')?;
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
/// Where an attempt is written, and whose going it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    /// All contenders of its kind.
    pub(crate) room: String,
    /// Those whom it cannot hold beside: a reader waits for writers only.
    pub(crate) before: String,
    /// Its own, made together. The first stays to the end; the second is a writer's.
    pub(crate) keys: Vec<String>,
    /// Who it is, and whether it holds.
    pub(crate) who: String,
}
/// Whose key it is: what it ends with.
pub(crate) fn id(key: &[u8]) -> &[u8] {
    key.rsplit(|byte| *byte == b'/').next().unwrap_or(key)
}
/// How many permits the contender of this key takes of the semaphore with this room.
pub(crate) fn take(room: &str, key: &[u8]) -> Option<u32> {
    let rest = std::str::from_utf8(key.strip_prefix(room.as_bytes())?).ok()?;
    u32::from_str_radix(rest.split_once('/')?.0, 16).ok()
}
const fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Mutex => "",
        Kind::RwLock => "%rw/",
        Kind::Semaphore => "%sem/",
        _ => "%cell/",
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

    const HOLD: HoldId = HoldId::from_bytes([0xAB; 16]);

    #[test]
    fn a_name_has_one_key_and_a_key_one_name() {
        let keys = Keys::new("fencelock/", "");
        let claims = [Claim::Mutex, Claim::Read, Claim::Write, Claim::Permits { take: 2, of: 3 }];
        for name in ["orders", "a/b", "..", "a b", "100%", "%live/1", "%2F", "f\u{1F512}"] {
            let name = Name::new(name).unwrap();
            for claim in claims {
                let spot = keys.spot(&name, claim, 0x77, HOLD);
                for key in &spot.keys {
                    assert!(key.starts_with(&spot.room));
                    for kind in Kind::ALL {
                        let own = (kind == claim.kind()).then(|| name.clone());
                        assert_eq!(keys.name(kind, key.as_bytes()), own, "{key} {kind}");
                    }
                }
            }
            assert_eq!(id(keys.spot(&name, Claim::Mutex, 0x77, HOLD).keys[0].as_bytes()), b"77");
            for no in
                [keys.whos(&name), keys.size(&name), keys.removed(&name), keys.written(HOLD), keys.epoch(7), keys.id()]
            {
                assert_eq!(keys.name(Kind::Mutex, no.as_bytes()), None, "{no}");
                let (from, to) = keys.others();
                assert!((from..to).contains(&no.into_bytes()));
            }
        }
        let key = |name: &str, claim| keys.spot(&Name::new(name).unwrap(), claim, 255, HOLD).keys.concat();
        assert_eq!(key("a", Claim::Mutex), "fencelock/a/ff");
        assert!(!key("a/b", Claim::Mutex).starts_with(&keys.room(Kind::Mutex, &Name::new("a").unwrap())));
        assert_eq!(take("fencelock/%sem/a/", key("a", claims[3]).as_bytes()), Some(2));
    }
    #[test]
    fn namespaces_do_not_meet() {
        let name = Name::new("x").unwrap();
        let own = |space: &str| Keys::new("fencelock/", space).spot(&name, Claim::Mutex, 1, HOLD).keys.concat();
        assert_eq!(
            (&*own(""), &*own("shop"), &*own("a/b")),
            ("fencelock/x/1", "fencelock.shop/x/1", "fencelock.a%2Fb/x/1")
        );
        assert_eq!(Keys::new("fencelock/", "").name(Kind::Mutex, own("shop").as_bytes()), None);
    }
    #[test]
    fn the_end_of_a_prefix() {
        assert_eq!(after("a/"), b"a0");
        assert_eq!(after(""), [0]);
    }
}
