//! Names of keys and channels.
use fencelock_core::Name;

/// Of one namespace: `fl:` without one, `fl.SPACE:` with. Of the layout `plain`: what stands before a name, and after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keys(String, Option<(String, String)>);

impl Keys {
    pub(crate) fn new(namespace: &str) -> Self {
        if namespace.is_empty() {
            return Self("fl:".to_owned(), None);
        }
        let mut prefix = "fl.".to_owned();
        for byte in namespace.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'/' => prefix.push(char::from(byte)),
                _ => prefix.push_str(&format!("%{byte:02X}")),
            }
        }
        prefix.push(':');
        Self(prefix, None)
    }
    /// Those of this template.
    pub(crate) fn plain(template: &str) -> Self {
        let (before, after) = template.split_once("{}").unwrap_or((template, ""));
        Self("fl:".to_owned(), Some((before.to_owned(), after.to_owned())))
    }
    /// Where a name's record lies. Braces are escaped: they would choose the slot in a cluster. With others nothing is: they would not
    /// find it.
    pub(crate) fn key(&self, name: &Name) -> String {
        if let Some((before, after)) = &self.1 {
            return [before, name.as_str(), after].concat();
        }
        let mut key = String::with_capacity(self.0.len() + name.as_str().len());
        key.push_str(&self.0);
        escape(name.as_str(), &mut key);
        key
    }
    /// Back to the name; `None`: it is no record's key.
    pub(crate) fn name(&self, key: &[u8]) -> Option<Name> {
        if let Some((before, after)) = &self.1 {
            let name = key.strip_prefix(before.as_bytes())?.strip_suffix(after.as_bytes())?;
            let name = Name::new(std::str::from_utf8(name).ok()?).ok()?;
            return (key != self.id().as_bytes()).then_some(name);
        }
        let mut rest = key.strip_prefix(self.0.as_bytes())?;
        let mut name = Vec::with_capacity(rest.len());
        while let Some((byte, after)) = rest.split_first() {
            rest = after;
            if *byte != b'%' {
                name.push(*byte);
                continue;
            }
            let (code, after) = rest.split_at_checked(2)?;
            name.push(match code {
                b"25" => b'%',
                b"7B" => b'{',
                b"7D" => b'}',
                _ => return None,
            });
            rest = after;
        }
        Name::new(String::from_utf8(name).ok()?).ok()
    }
    /// Which store this is. No name has this key: a `%` in one is escaped.
    pub(crate) fn id(&self) -> String {
        format!("{}%id", self.0)
    }
    /// Where a client hears that its turn has come.
    pub(crate) fn channel(&self, client: u128) -> String {
        format!("{}%{client:032x}", self.0)
    }
    /// The same in a cluster, where each lock has one: it lies where the key does.
    pub(crate) fn sharded(key: &str, client: u128) -> String {
        let client = format!("%{client:032x}");
        if key.is_empty() { client } else { format!("{{{key}}}{client}") }
    }
    /// The channels of all clients, as a pattern.
    pub(crate) fn channels(&self, sharded: bool) -> String {
        let prefix = literal(&self.0);
        if sharded { format!("{{{prefix}*}}%*") } else { format!("{prefix}%*") }
    }
    /// The keys of all names that begin so.
    pub(crate) fn pattern(&self, prefix: &str) -> String {
        if let Some((before, after)) = &self.1 {
            return format!("{}*{}", literal(&[before, prefix].concat()), literal(after));
        }
        let mut escaped = self.0.clone();
        escape(prefix, &mut escaped);
        literal(&escaped) + "*"
    }
}
/// Of a pattern: this text and no other.
fn literal(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len() + 1);
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}
fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '%' => out.push_str("%25"),
            '{' => out.push_str("%7B"),
            '}' => out.push_str("%7D"),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Planted to see them go red: `%` not escaped; a namespace that is pasted in as it is.
    use super::*;

    #[test]
    fn a_name_has_one_key_and_a_key_one_name() {
        let keys = Keys::new("");
        for name in ["orders/42", "a b", "{x}", "%7B", "100%", "%id", "f\u{1F512}", "*?[a]\\^"] {
            let name = Name::new(name).unwrap();
            let key = keys.key(&name);
            assert!(key.starts_with("fl:") && !key.contains(['{', '}']), "{key}");
            assert_eq!(keys.name(key.as_bytes()), Some(name));
        }
        assert_eq!(keys.key(&Name::new("orders/42").unwrap()), "fl:orders/42");
        assert_eq!(keys.key(&Name::new("{a}%").unwrap()), "fl:%7Ba%7D%25");
        for no in [keys.id(), keys.channel(7), "fl".to_owned(), "fl:%".to_owned(), "fl:%2".to_owned()] {
            assert_eq!(keys.name(no.as_bytes()), None, "{no}");
        }
    }
    #[test]
    fn with_others_a_key_is_what_they_make_of_a_name() {
        for (template, name, key) in
            [("{}", "a:{b}%", "a:{b}%"), ("lock:{}", "a b", "lock:a b"), ("l:{{}}:x", "{}", "l:{{}}:x")]
        {
            let (keys, name) = (Keys::plain(template), Name::new(name).unwrap());
            assert_eq!((&*keys.key(&name), keys.name(key.as_bytes())), (key, Some(name)));
        }
        let keys = Keys::plain("lock:{}:x");
        for no in ["lock:a", "a:x", "lock::x", "lock:x", "fl:%id"] {
            assert_eq!(keys.name(no.as_bytes()), None, "{no}");
        }
        let all = Keys::plain("{}");
        assert_eq!((all.name(b"fl:%id"), all.id()), (None, Keys::new("").id()));
        assert!(all.name(b"fl:x").is_some() && all.name(b"\xff").is_none());
    }
    #[test]
    fn namespaces_do_not_meet() {
        let name = Name::new("x").unwrap();
        let all: std::collections::BTreeSet<_> =
            ["", "a", "a:", "a.", "a:x", "%", "a b"].into_iter().map(|space| Keys::new(space).key(&name)).collect();
        assert_eq!(all.len(), 7);
        assert!(all.iter().all(|key| !key.contains([' ', '{'])), "{all:?}");
        assert_eq!(Keys::new("shop").name(Keys::new("").key(&name).as_bytes()), None);
    }
    #[test]
    fn a_pattern_means_what_it_says() {
        assert_eq!(Keys::new("").pattern("a*[b]"), "fl:a\\*\\[b\\]*");
        assert_eq!(Keys::new("").pattern("{"), "fl:%7B*");
        assert_eq!(Keys::plain("[a]{}?").pattern("{x}*"), "\\[a\\]{x}\\**\\?");
    }
}
