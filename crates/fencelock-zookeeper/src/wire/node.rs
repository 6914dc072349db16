//! Names of nodes.
use super::op::Mode;
use fencelock_core::{Claim, HoldId, Kind, Name};
use std::fmt;

/// In whose words contenders are named. Nobody's words satisfy both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// Apache Curator's: mutexes, read-write locks and semaphores (V2). Go's client and a subclass of kazoo's have them, too.
    #[default]
    Curator,
    /// kazoo's own.
    Kazoo,
}
impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Curator => "curator",
            Self::Kazoo => "kazoo",
        })
    }
}

/// What a contender wants, by its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Mutex,
    Read,
    Write,
    /// It has a permit.
    Permit,
    /// One of kazoo's own: its mutexes and its writers have the same nodes.
    Either,
}
impl Role {
    pub(crate) const fn of(claim: Claim) -> Self {
        match claim {
            Claim::Read => Self::Read,
            Claim::Write => Self::Write,
            _ => Self::Mutex,
        }
    }
    pub(crate) const fn kind(self) -> Kind {
        match self {
            Self::Mutex | Self::Either => Kind::Mutex,
            Self::Read | Self::Write => Kind::RwLock,
            Self::Permit => Kind::Semaphore,
        }
    }
}

/// A contender's node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// As it lies there.
    pub(crate) name: String,
    /// Whose, as far as the name tells.
    pub(crate) id: String,
    pub(crate) role: Role,
    /// Its place: the parent's counter, which ends with 2^31 - 1; that of a server before 3.6 goes on with -2^31.
    pub(crate) number: i32,
}
impl Node {
    /// It contends for the same kind of lock.
    pub(crate) fn is_of(&self, role: Role) -> bool {
        self.role.kind() == role.kind() || self.role == Role::Either
    }
    /// Whether it came before the other one.
    ///
    /// *Invariant:* numbers of nodes that live together lie less than 2^31 apart, so the sign of their wrapping difference is their
    /// order, over the end of the counter, too (kazoo issue 730).
    pub(crate) fn is_before(&self, other: &Self) -> bool {
        self.number.wrapping_sub(other.number) < 0
    }
}

/// What lies below a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Child {
    Contender(Node),
    /// A semaphore's rooms.
    Locks,
    Leases,
    /// A cell's mark: it has a value.
    Cell,
    /// Somebody who contends in other words.
    Foreign(String),
    /// Nobody knows what it is, and no lock's rule minds it.
    Other,
}

/// Under one root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Paths {
    base: String,
    dialect: Dialect,
}
const LOCKS: &str = "locks";
const LEASES: &str = "leases";
/// kazoo's semaphores queue beside their name, which their permits lie below.
const QUEUE: &str = "-__lock__";
/// A name that ends so.
const NO_QUEUE: &str = "%2D__lock__";
const CELL: &str = "%cell-";
/// kazoo's writers have the nodes of its mutexes: ours say which they are.
const WRITES: &str = "-w";
const MUTEX: &str = "-m";

impl Paths {
    pub(crate) fn new(base: String, dialect: Dialect) -> Self {
        Self { base, dialect }
    }
    pub(crate) fn base(&self) -> &str {
        &self.base
    }
    /// *Invariant:* a name has one part, so no lock lies below another; and what is no lock begins with a `%` that no name begins with,
    /// unless a `2` follows.
    pub(crate) fn of(&self, name: &Name) -> String {
        let mut path = format!("{}/", self.base);
        escape(name.as_str(), &mut path);
        match path.strip_suffix(QUEUE) {
            Some(head) if self.queues_apart() => format!("{head}{NO_QUEUE}"),
            _ => path,
        }
    }
    /// A semaphore's queue lies beside its name, and nothing below that says that there is one, but its size.
    pub(crate) fn queues_apart(&self) -> bool {
        self.dialect == Dialect::Kazoo
    }
    /// Where those wait who want permits of the semaphore with this path.
    pub(crate) fn queue(&self, path: &str) -> String {
        if self.queues_apart() { format!("{path}{QUEUE}") } else { format!("{path}/{LOCKS}") }
    }
    /// Where its permits lie.
    pub(crate) fn permits(&self, path: &str) -> String {
        if self.queues_apart() { path.to_owned() } else { format!("{path}/{LEASES}") }
    }
    /// Those who are connected, and the store's identity.
    pub(crate) fn id(&self) -> String {
        format!("{}/%id", self.base)
    }
    /// Writes of cells that have had their effect (SAFETY A6).
    pub(crate) fn written(&self) -> String {
        format!("{}/%did", self.base)
    }
    /// Cells that were removed, not long ago.
    pub(crate) fn all_gone(&self) -> String {
        format!("{}/%gone", self.base)
    }
    /// Says that this one was.
    pub(crate) fn gone(&self, name: &Name) -> String {
        let mut path = format!("{}/", self.all_gone());
        escape(name.as_str(), &mut path);
        path
    }
    pub(crate) fn name(&self, child: &str) -> Option<Name> {
        match child.strip_suffix(NO_QUEUE) {
            _ if !self.queues_apart() => unescape(child),
            _ if child.ends_with(QUEUE) => None,
            Some(head) => unescape(&format!("{head}{QUEUE}")),
            None => unescape(child),
        }
    }
    /// The node of the n-th of so many permits of one hold. The server adds the number, or it has none.
    pub(crate) fn permit(&self, hold: HoldId, n: u32) -> (String, Mode) {
        match (self.dialect, n) {
            (Dialect::Curator, _) => (self.beginning(Role::Permit, hold), Mode::EphemeralSequential),
            (Dialect::Kazoo, 0) => (hold.to_string(), Mode::Ephemeral),
            (Dialect::Kazoo, n) => (format!("{hold}-{n}"), Mode::Ephemeral),
        }
    }
    /// What a contender's node begins with; the server adds the number.
    pub(crate) fn beginning(&self, role: Role, hold: HoldId) -> String {
        match (self.dialect, role) {
            (Dialect::Curator, role) => format!("_c_{}-{}", dashed(hold), curators(role)),
            (Dialect::Kazoo, Role::Read) => format!("{hold}__rlock__"),
            // What comes before its words kazoo does not mind.
            (Dialect::Kazoo, Role::Write) => format!("{hold}{WRITES}__lock__"),
            (Dialect::Kazoo, _) => format!("{hold}{MUTEX}__lock__"),
        }
    }
    /// What lies below a name under this name.
    pub(crate) fn child(&self, name: &str) -> Child {
        match name {
            LOCKS => return Child::Locks,
            LEASES => return Child::Leases,
            _ if name.starts_with(CELL) => return Child::Cell,
            _ => {}
        }
        match parse(name) {
            Some((Dialect::Kazoo, node)) if self.dialect == Dialect::Kazoo => Child::Contender(node),
            Some((Dialect::Curator, node)) if self.dialect == Dialect::Curator => Child::Contender(node),
            Some(_) => Child::Foreign(name.to_owned()),
            None if is_foreign(name) => Child::Foreign(name.to_owned()),
            None => Child::Other,
        }
    }
    /// A contender, by its node.
    pub(crate) fn contender(&self, name: &str) -> Option<Node> {
        match self.child(name) {
            Child::Contender(node) => Some(node),
            _ => None,
        }
    }
    /// The node of a reader who has given the right to write back: in the writer's place.
    pub(crate) fn downgraded(&self, hold: HoldId, number: i32) -> String {
        format!("{}{number:010}", self.beginning(Role::Read, hold))
    }
}
/// The last part of a path.
pub(crate) fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
pub(crate) fn cell_mark(id: u64) -> String {
    format!("{CELL}{id:016x}")
}
/// As Curator writes the id of a contender; we take the hold id.
pub(crate) fn dashed(hold: HoldId) -> String {
    let hex = hold.to_string();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}
/// Whose node it is, if one of ours.
pub(crate) fn hold(id: &str) -> Option<HoldId> {
    let hex: String = id.chars().filter(|c| *c != '-').collect();
    if hex.len() == 32 { hex.parse().ok() } else { None }
}
const fn curators(role: Role) -> &'static str {
    match role {
        Role::Mutex | Role::Either => "lock-",
        Role::Read => "__READ__",
        Role::Write => "__WRIT__",
        Role::Permit => "lease-",
    }
}
/// kazoo's permits have no number, and are no queue.
fn permit_of_kazoos(name: &str) -> Option<Node> {
    let (id, rest) = name.split_at_checked(32)?;
    let number = if rest.is_empty() { 0 } else { rest.strip_prefix('-')?.parse().ok()? };
    let is_id = id.bytes().all(|b| b.is_ascii_hexdigit());
    is_id.then(|| Node { name: name.to_owned(), id: id.to_owned(), role: Role::Permit, number })
}
fn parse(name: &str) -> Option<(Dialect, Node)> {
    if let Some(permit) = permit_of_kazoos(name) {
        return Some((Dialect::Kazoo, permit));
    }
    // `-2147483648` has eleven.
    let digits = name.len() - name.bytes().rev().take_while(u8::is_ascii_digit).count();
    let (head, number) = name.split_at(digits);
    let node = |dialect, id: &str, role, number: &str| {
        let number = number.parse().ok()?;
        Some((dialect, Node { name: name.to_owned(), id: id.to_owned(), role, number }))
    };
    // The minus is the number's, where the words do not end with one of their own.
    let signed = |words: &str| {
        head.strip_suffix(words)
            .map(|id| (id, number.to_owned()))
            .or_else(|| head.strip_suffix('-')?.strip_suffix(words).map(|id| (id, format!("-{number}"))))
    };
    for role in [Role::Mutex, Role::Read, Role::Write, Role::Permit] {
        if let Some((id, number)) = signed(curators(role)) {
            // A subclass of kazoo's has no `_c_`.
            let id = id.strip_suffix('-')?;
            return node(Dialect::Curator, id.strip_prefix("_c_").unwrap_or(id), role, &number);
        }
    }
    if let Some((id, number)) = signed("__rlock__") {
        return node(Dialect::Kazoo, id, Role::Read, &number);
    }
    let (id, number) = signed("__lock__")?;
    let ours = [(MUTEX, Role::Mutex), (WRITES, Role::Write), ("", Role::Either)];
    let (id, role) = ours.into_iter().find_map(|(mark, role)| Some((id.strip_suffix(mark)?, role)))?;
    node(Dialect::Kazoo, id, role, &number)
}
/// The words of others: ZooKeeper's own recipes, and elections that rank by other names.
fn is_foreign(name: &str) -> bool {
    const WORDS: [&str; 4] = ["lock-", "latch-", "read-", "write-"];
    let head = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let numbered = head.len() < name.len();
    numbered && (WORDS.iter().any(|word| head.ends_with(word)) || (name.starts_with("x-") && head.ends_with('-')))
}

/// Between two slashes ZooKeeper refuses control characters, `.` and `..`, what is private to programs, and what takes two of Java's
/// characters.
pub(crate) fn is_refused(c: char) -> bool {
    c.is_control() || matches!(c, '\u{E000}'..='\u{F8FF}' | '\u{FFF0}'..)
}
/// What it refuses is written as its bytes, as in a URL.
pub(crate) fn escape(text: &str, out: &mut String) {
    let dots = matches!(text, "." | "..") || text == "zookeeper";
    for (n, c) in text.chars().enumerate() {
        let odd = matches!(c, '%' | '/') || is_refused(c);
        if odd || (n == 0 && dots) {
            let mut buffer = [0; 4];
            for byte in c.encode_utf8(&mut buffer).bytes() {
                out.push_str(&format!("%{byte:02X}"));
            }
        } else {
            out.push(c);
        }
    }
}
fn unescape(text: &str) -> Option<Name> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte == b'%' {
            let (code, after) = rest.split_at_checked(2)?;
            rest = after;
            bytes.push(u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok()?);
        } else {
            bytes.push(*byte);
        }
    }
    let name = Name::new(String::from_utf8(bytes).ok()?).ok()?;
    // What we would not have written so is nobody's name.
    let mut again = String::new();
    escape(name.as_str(), &mut again);
    (again == text).then_some(name)
}

#[cfg(test)]
mod tests {
    //! Planted to see them go red: `/` not escaped; numbers compared as they are.
    use super::*;

    const HOLD: HoldId = HoldId::from_bytes([0xAB; 16]);

    fn paths(dialect: Dialect) -> Paths {
        Paths::new("/fencelock".to_owned(), dialect)
    }
    #[test]
    fn a_name_has_one_path_and_a_path_one_name() {
        let paths = paths(Dialect::Curator);
        for name in [
            "orders",
            "a/b",
            ".",
            "..",
            "...",
            "a b",
            "100%",
            "%id",
            "%2F",
            "zookeeper",
            "\u{1}\u{7f}\u{85}",
            "\u{E000}x",
            "f\u{1F512}",
        ] {
            let name = Name::new(name).unwrap();
            let path = paths.of(&name);
            let child = path.strip_prefix("/fencelock/").unwrap();
            assert!(!child.contains('/') && child != "." && child != "..", "{path}");
            assert_eq!(paths.name(child), Some(name));
        }
        for no in ["%id", "%did", "%2f", "%4", "%zz", "%41"] {
            assert_eq!(paths.name(no), None, "{no}");
        }
    }
    #[test]
    fn a_queue_of_kazoos_is_no_name() {
        let (kazoo, curator) = (paths(Dialect::Kazoo), paths(Dialect::Curator));
        let (name, odd) = (Name::new("d").unwrap(), Name::new("d-__lock__").unwrap());
        let queue = kazoo.queue(&kazoo.of(&name));
        assert_eq!((queue.as_str(), kazoo.of(&odd).as_str()), ("/fencelock/d-__lock__", "/fencelock/d%2D__lock__"));
        assert_eq!((kazoo.name("d-__lock__"), kazoo.name("d%2D__lock__")), (None, Some(odd.clone())));
        assert_eq!((curator.name("d-__lock__"), curator.of(&odd)), (Some(odd), queue));
    }
    #[test]
    fn nodes_are_read_as_their_peers_write_them() {
        let curator = paths(Dialect::Curator);
        let id = "abababab-abab-abab-abab-abababababab";
        for (role, word) in
            [(Role::Mutex, "lock-"), (Role::Read, "__READ__"), (Role::Write, "__WRIT__"), (Role::Permit, "lease-")]
        {
            for (number, digits) in [(7, "0000000007"), (i32::MIN, "-2147483648")] {
                let name = format!("_c_{id}-{word}{digits}");
                assert_eq!(curator.beginning(role, HOLD), format!("_c_{id}-{word}"));
                let node = Node { name: name.clone(), id: id.to_owned(), role, number };
                assert_eq!(curator.child(&name), Child::Contender(node), "{name}");
                assert_eq!(hold(id), Some(HOLD));
            }
        }
        let kazoo = paths(Dialect::Kazoo);
        for (role, name) in [
            (Role::Either, format!("{HOLD}__lock__-000000003")),
            (Role::Mutex, format!("{HOLD}-m__lock__0000000003")),
            (Role::Write, format!("{HOLD}-w__lock__-2147483648")),
            (Role::Read, format!("{HOLD}__rlock__0000000003")),
            (Role::Permit, HOLD.to_string()),
            (Role::Permit, format!("{HOLD}-7")),
        ] {
            assert_eq!(kazoo.contender(&name).map(|node| node.role), Some(role), "{name}");
            assert_eq!(curator.child(&name), Child::Foreign(name));
        }
        // Go's have no dashes, and those of a subclass of kazoo's no `_c_`.
        assert!(curator.contender("0123456789abcdef0123456789abcdef-lock-0000000001").is_some());
        assert!(curator.contender("_c_0123456789abcdef0123456789abcdef-lock-0000000001").is_some());
        for foreign in [
            "x-72057-0000000001",
            "_c_1-latch-0000000001",
            "read-0000000001",
            "lock-0000000003",
            "0123456789abcdef0123456789abcdef",
        ] {
            assert_eq!(curator.child(foreign), Child::Foreign(foreign.to_owned()));
        }
        for other in ["lock", "_c_", "x", "junk", "_c_1-lock-", "99999999999999"] {
            assert_eq!(curator.child(other), Child::Other, "{other}");
        }
        assert_eq!(
            (curator.child("locks"), curator.child("leases"), curator.child(&cell_mark(3))),
            (Child::Locks, Child::Leases, Child::Cell)
        );
    }
    #[test]
    fn the_order_goes_on_over_the_end_of_the_counter() {
        let node = |number| Node { name: String::new(), id: String::new(), role: Role::Mutex, number };
        assert!(node(1).is_before(&node(2)) && !node(2).is_before(&node(2)));
        assert!(node(i32::MAX).is_before(&node(i32::MIN)) && !node(i32::MIN).is_before(&node(i32::MAX)));
    }
}
