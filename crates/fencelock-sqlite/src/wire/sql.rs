//! Every statement, in one place: the benchmark's bare driver runs the same ones.

/// The layout's number. Another one in a database is another layout.
pub(crate) const LAYOUT: i64 = 2;

/// Times are nanoseconds of the host's boot time, `used` is seconds of the wall clock. `holder`, `waiter` and `watcher` are small:
/// they hold what is live, and have no index but their order by lock: one by session would cost every grant and release a seventh,
/// and serve the burial of a session alone. A claim is 1 mutex, 2 write, 3 read, 4 permits (`take`).
pub(crate) const SCHEMA: &str = "
CREATE TABLE fencelock_meta (
  id      INTEGER PRIMARY KEY CHECK (id = 1),
  layout  INTEGER NOT NULL,
  boot    TEXT    NOT NULL,             -- the boot that mark and floor were last looked at in
  mark    INTEGER NOT NULL,             -- no token above this was ever handed out, and it is on the disk
  floor   INTEGER NOT NULL,             -- every token is above this
  swept   INTEGER NOT NULL,             -- when idle records were last deleted, seconds of the wall clock
  store   BLOB    NOT NULL              -- random: which store this is, whatever path leads to it
);
CREATE TABLE fencelock_session (
  id        INTEGER PRIMARY KEY,        -- random; names its files in the folder beside the database
  boot      TEXT    NOT NULL,
  beat      INTEGER NOT NULL,           -- its last heartbeat
  host      TEXT    NOT NULL,
  pid       INTEGER NOT NULL,
  seen_boot TEXT    NOT NULL DEFAULT '',-- who of another boot first saw this heartbeat
  seen_at   INTEGER NOT NULL DEFAULT 0, -- and when, on that boot's clock
  dead      INTEGER NOT NULL DEFAULT 0  -- buried; its row stays for as long as a hold of it may not end (at_least)
);
CREATE TABLE fencelock_lock (
  id       INTEGER PRIMARY KEY,
  space    TEXT    NOT NULL,
  name     TEXT    NOT NULL,
  kind     TEXT    NOT NULL,            -- of the last use; '': of none, or of a cell that was removed
  capacity INTEGER NOT NULL,            -- the size of a semaphore, kept while nobody has it; 0: none
  fence    INTEGER NOT NULL,            -- the last token
  freed    INTEGER NOT NULL DEFAULT 0,  -- since when the first one in the queue fits in; 0: it does not
  watched  INTEGER NOT NULL DEFAULT 0,  -- somebody in fencelock_watcher wants to know who holds it
  used     INTEGER NOT NULL,
  version  INTEGER NOT NULL DEFAULT 0,  -- of a cell's value, or of its removal
  value    BLOB,                        -- a cell's. Last: it is long
  UNIQUE (space, name)
);
CREATE TABLE fencelock_holder (
  lock    INTEGER NOT NULL,
  hold    BLOB    NOT NULL,
  session INTEGER NOT NULL,
  claim   INTEGER NOT NULL,
  take    INTEGER NOT NULL,
  token   INTEGER NOT NULL,
  ttl     INTEGER NOT NULL,             -- counts from the session's heartbeat
  fixed   INTEGER NOT NULL,             -- the end of a lease that no heartbeat renews; 0: heartbeats do
  cap     INTEGER NOT NULL,             -- the end of it all, by max_hold
  least   INTEGER NOT NULL,             -- not before then, even if the session is dead (at_least)
  since   INTEGER NOT NULL,
  note    TEXT    NOT NULL,
  watched INTEGER NOT NULL,             -- as in fencelock_lock: a release reads no other row
  PRIMARY KEY (lock, hold)
) WITHOUT ROWID;
CREATE TABLE fencelock_waiter (
  lock    INTEGER NOT NULL,
  place   INTEGER NOT NULL,
  hold    BLOB    NOT NULL,
  session INTEGER NOT NULL,
  claim   INTEGER NOT NULL,
  take    INTEGER NOT NULL,
  ttl     INTEGER NOT NULL,
  since   INTEGER NOT NULL,
  note    TEXT    NOT NULL,
  PRIMARY KEY (lock, place)
) WITHOUT ROWID;
CREATE TABLE fencelock_watcher (
  lock    INTEGER NOT NULL,
  session INTEGER NOT NULL,
  PRIMARY KEY (lock, session)
) WITHOUT ROWID;
CREATE TABLE fencelock_write (          -- writes to cells in the last minute, for their repeats
  id      INTEGER PRIMARY KEY,
  nonce   BLOB    NOT NULL UNIQUE,
  version INTEGER NOT NULL,
  at      INTEGER NOT NULL
);
";
pub(crate) const TABLES: &str = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'fencelock_meta'";

/// Another one after each commit of any other connection.
pub(crate) const DATA_VERSION: &str = "PRAGMA data_version";
/// The one statement that is run on a database of any layout; 0: damaged.
pub(crate) const LAYOUT_THERE: &str = "SELECT coalesce(max(layout), 0) FROM fencelock_meta WHERE id = 1";
pub(crate) const BOOT: &str = "SELECT boot FROM fencelock_meta WHERE id = 1";
pub(crate) const SWEPT: &str = "SELECT swept FROM fencelock_meta WHERE id = 1";
pub(crate) const META_INSERT: &str = "INSERT INTO fencelock_meta VALUES (1, ?1, '', 0, 0, 0, ?2)";
pub(crate) const META_BOOT: &str = "UPDATE fencelock_meta SET boot = ?1, floor = max(floor, mark) WHERE id = 1";
pub(crate) const META_MARK: &str = "UPDATE fencelock_meta SET mark = max(mark, ?1) WHERE id = 1";
pub(crate) const META_SWEPT: &str = "UPDATE fencelock_meta SET swept = ?1 WHERE id = 1";
pub(crate) const META_FLOOR: &str = "UPDATE fencelock_meta SET floor = max(floor, ?1) WHERE id = 1";
pub(crate) const STORE: &str = "SELECT store FROM fencelock_meta WHERE id = 1";
pub(crate) const BOUNDS: &str = "SELECT mark, floor FROM fencelock_meta WHERE id = 1";

pub(crate) const LOCK: &str =
    "SELECT id, kind, capacity, fence, watched FROM fencelock_lock WHERE space = ?1 AND name = ?2";
pub(crate) const LOCK_INSERT: &str =
    "INSERT INTO fencelock_lock (space, name, kind, capacity, fence, used) VALUES (?1, ?2, ?3, ?4, 0, ?5)";
pub(crate) const LOCK_GRANT: &str =
    "UPDATE fencelock_lock SET kind = ?2, fence = ?3, freed = 0, used = ?4 WHERE id = ?1";
pub(crate) const LOCK_KIND: &str = "UPDATE fencelock_lock SET kind = ?2, capacity = ?3 WHERE id = ?1";
pub(crate) const LOCK_STATE: &str = "SELECT capacity, freed FROM fencelock_lock WHERE id = ?1";
pub(crate) const LOCK_FREED: &str = "UPDATE fencelock_lock SET freed = ?2 WHERE id = ?1";
/// So many records behind this one, and whether each may be idle.
pub(crate) const IDLE: &str = "
SELECT id, used < ?2 AND kind <> 'cell' AND watched = 0 FROM fencelock_lock WHERE id > ?1 ORDER BY id LIMIT ?3";
pub(crate) const LOCK_RETIRE: &str = "
DELETE FROM fencelock_lock WHERE id = ?1 AND used < ?2 AND kind <> 'cell' AND watched = 0
  AND NOT EXISTS (SELECT 1 FROM fencelock_holder WHERE lock = ?1)
  AND NOT EXISTS (SELECT 1 FROM fencelock_waiter WHERE lock = ?1)
RETURNING fence";

pub(crate) const HOLDERS: &str = "
SELECT h.hold, h.session, h.claim, h.take, h.token, h.ttl, h.fixed, h.cap, h.least, h.since, h.note,
  s.boot, s.beat, s.host, s.pid, s.seen_boot, s.seen_at, s.dead
FROM fencelock_holder h LEFT JOIN fencelock_session s ON s.id = h.session WHERE h.lock = ?1";
/// All that are written, whether they still count or not; and whether this hold is one of them.
pub(crate) const HOLDING_AND_MINE: &str = "
SELECT count(*), coalesce(min(claim), 0), coalesce(sum(take), 0), coalesce(max(take), 0), coalesce(max(hold = ?2), 0)
FROM fencelock_holder WHERE lock = ?1";
pub(crate) const HOLDING: &str = "
SELECT count(*), coalesce(min(claim), 0), coalesce(sum(take), 0), coalesce(max(take), 0)
FROM fencelock_holder WHERE lock = ?1";
pub(crate) const HOLDER_INSERT: &str =
    "INSERT INTO fencelock_holder VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
pub(crate) const HOLDER_CLAIM: &str =
    "SELECT claim FROM fencelock_holder WHERE lock = ?1 AND hold = ?2 AND token = ?3 AND session = ?4";
pub(crate) const HOLDER_DOWNGRADE: &str = "UPDATE fencelock_holder SET claim = ?3 WHERE lock = ?1 AND hold = ?2";
pub(crate) const HOLDER_EXTEND: &str = "
UPDATE fencelock_holder SET ttl = max(ttl, ?4), fixed = iif(fixed = 0, 0, max(fixed, ?3 + ?4))
WHERE lock = ?1 AND hold = ?2";
pub(crate) const HOLDER_DELETE: &str = "DELETE FROM fencelock_holder WHERE lock = ?1 AND hold = ?2 AND token = ?3";
pub(crate) const HOLDER_DELETE_UNWATCHED: &str =
    "DELETE FROM fencelock_holder WHERE lock = ?1 AND hold = ?2 AND token = ?3 AND watched = 0";
pub(crate) const HOLDER_OVER: &str = "SELECT 1 FROM fencelock_holder WHERE lock = ?1 AND hold = ?2 AND token = ?3 AND fixed > 0 AND min(fixed, cap) <= ?4";
pub(crate) const HOLDERS_WATCHED: &str = "UPDATE fencelock_holder SET watched = 1 WHERE lock = ?1";
pub(crate) const HOLDER_WITHDRAW: &str = "DELETE FROM fencelock_holder WHERE lock = ?1 AND hold = ?2";
pub(crate) const HOLDER_THERE: &str = "SELECT 1 FROM fencelock_holder WHERE lock = ?1 AND hold = ?2 AND session = ?3";
pub(crate) const HOLDER_LAPSED: &str = "
SELECT min(iif(fixed = 0, ?4 + ttl, fixed), cap) <= ?5 FROM fencelock_holder
WHERE lock = ?1 AND hold = ?2 AND session = ?3";
/// What must not end yet stays. On another boot's clock nobody can tell.
pub(crate) const HOLDERS_BURY: &str = "
DELETE FROM fencelock_holder WHERE session = ?1
  AND (least <= ?2 OR NOT EXISTS (SELECT 1 FROM fencelock_session WHERE id = ?1 AND boot = ?3))
RETURNING lock";

pub(crate) const WAITERS: &str = "
SELECT w.place, w.hold, w.session, w.claim, w.take, w.ttl, w.since, w.note,
  s.boot, s.beat, s.host, s.pid, s.seen_boot, s.seen_at, s.dead
FROM fencelock_waiter w LEFT JOIN fencelock_session s ON s.id = w.session WHERE w.lock = ?1 ORDER BY w.place";
pub(crate) const PREDECESSOR: &str = "
SELECT w.place, w.hold, w.session, w.claim, w.take, w.ttl, w.since, w.note,
  s.boot, s.beat, s.host, s.pid, s.seen_boot, s.seen_at, s.dead
FROM fencelock_waiter w LEFT JOIN fencelock_session s ON s.id = w.session
WHERE w.lock = ?1 AND w.place < ?2 ORDER BY w.place DESC LIMIT 1";
pub(crate) const PLACE: &str = "SELECT place FROM fencelock_waiter WHERE lock = ?1 AND hold = ?2";
pub(crate) const PLACE_AND_STATE: &str = "
SELECT w.place, l.capacity, l.freed FROM fencelock_waiter w JOIN fencelock_lock l ON l.id = w.lock
WHERE w.lock = ?1 AND w.hold = ?2";
pub(crate) const AHEAD: &str = "
SELECT count(*), coalesce(min(claim), 0), coalesce(sum(take), 0), coalesce(max(take), 0)
FROM fencelock_waiter WHERE lock = ?1 AND place < ?2";
/// As `AHEAD`, for those who can be beside nobody.
pub(crate) const AHEAD_ALONE: &str = "
SELECT count(*), 1, 0, 0 FROM fencelock_waiter WHERE lock = ?1 AND place < ?2";
pub(crate) const SESSIONS_AHEAD: &str =
    "SELECT count(DISTINCT session) FROM fencelock_waiter WHERE lock = ?1 AND place < ?2";
pub(crate) const WAITER_INSERT: &str = "
INSERT INTO fencelock_waiter
SELECT ?1, 1 + coalesce((SELECT max(place) FROM fencelock_waiter WHERE lock = ?1), 0), ?2, ?3, ?4, ?5, ?6, ?7, ?8";
pub(crate) const WAITER_TAIL: &str = "
UPDATE fencelock_waiter SET place = 1 + (SELECT max(place) FROM fencelock_waiter WHERE lock = ?1)
WHERE lock = ?1 AND place = ?2";
pub(crate) const WAITER_DELETE: &str = "DELETE FROM fencelock_waiter WHERE lock = ?1 AND hold = ?2";
pub(crate) const WAITERS_TOO_LARGE: &str =
    "DELETE FROM fencelock_waiter WHERE lock = ?1 AND take > ?2 RETURNING session";
pub(crate) const WAITERS_BURY: &str = "DELETE FROM fencelock_waiter WHERE session = ?1 RETURNING lock";
pub(crate) const SUCCESSOR: &str =
    "SELECT session FROM fencelock_waiter WHERE lock = ?1 AND place > ?2 ORDER BY place LIMIT 1";
pub(crate) const WAITING: &str = "SELECT count(*) FROM fencelock_waiter WHERE lock = ?1";
pub(crate) const NEXT: &str = "SELECT session, claim, take FROM fencelock_waiter WHERE lock = ?1 ORDER BY place";

pub(crate) const WATCHERS: &str = "SELECT session FROM fencelock_watcher WHERE lock = ?1";
pub(crate) const WATCHER_INSERT: &str = "INSERT OR IGNORE INTO fencelock_watcher VALUES (?1, ?2)";
pub(crate) const WATCHER_DELETE: &str = "DELETE FROM fencelock_watcher WHERE lock = ?1 AND session = ?2";
pub(crate) const WATCHERS_BURY: &str = "DELETE FROM fencelock_watcher WHERE session = ?1 RETURNING lock";
pub(crate) const LOCK_WATCHED: &str = "
UPDATE fencelock_lock SET watched = EXISTS (SELECT 1 FROM fencelock_watcher WHERE lock = ?1) WHERE id = ?1";

pub(crate) const CELL: &str = "SELECT version, value FROM fencelock_lock WHERE id = ?1";
pub(crate) const CELL_WRITE: &str = "
UPDATE fencelock_lock SET kind = ?2, capacity = 0, fence = ?3, version = ?3, value = ?4, used = ?5, freed = 0
WHERE id = ?1";
pub(crate) const WRITE: &str = "SELECT version FROM fencelock_write WHERE nonce = ?1";
pub(crate) const WRITE_INSERT: &str = "INSERT INTO fencelock_write (nonce, version, at) VALUES (?1, ?2, ?3)";
/// The oldest come first. A few with each write: more than it adds.
pub(crate) const WRITES_FORGET: &str = "
DELETE FROM fencelock_write WHERE id IN (SELECT id FROM fencelock_write ORDER BY id LIMIT ?3)
  AND NOT at BETWEEN ?1 AND ?2";

pub(crate) const SESSION_INSERT: &str =
    "INSERT INTO fencelock_session (id, boot, beat, host, pid) VALUES (?1, ?2, ?3, ?4, ?5)";
pub(crate) const SESSION_BEAT: &str =
    "UPDATE fencelock_session SET beat = ?2, seen_boot = '' WHERE id = ?1 AND dead = 0";
pub(crate) const SESSION_LAST: &str = "SELECT beat FROM fencelock_session WHERE id = ?1 AND dead = 0";
pub(crate) const SESSION_SEEN: &str = "UPDATE fencelock_session SET seen_boot = ?2, seen_at = ?3 WHERE id = ?1";
pub(crate) const SESSION_DELETE: &str = "
DELETE FROM fencelock_session WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM fencelock_holder WHERE session = ?1)";
pub(crate) const SESSION_DEAD: &str = "UPDATE fencelock_session SET dead = 1 WHERE id = ?1";
pub(crate) const SESSIONS: &str = "
SELECT id, boot, beat, seen_boot, seen_at, dead FROM fencelock_session WHERE id <> ?1";
/// The longest ttl and the latest `least` of each session.
pub(crate) const LEASES: &str = "
SELECT session, max(ttl), max(least) FROM
  (SELECT session, ttl, least FROM fencelock_holder UNION ALL SELECT session, ttl, 0 FROM fencelock_waiter)
GROUP BY session";

pub(crate) const LIST: &str = "
SELECT l.name FROM fencelock_lock l WHERE l.space = ?1 AND l.name > ?2 AND l.name >= ?3 AND l.name < ?5
  AND substr(l.name, 1, length(?3)) = ?3
  AND (EXISTS (SELECT 1 FROM fencelock_holder h WHERE h.lock = l.id)
    OR EXISTS (SELECT 1 FROM fencelock_waiter w WHERE w.lock = l.id))
ORDER BY l.name LIMIT ?4";

#[cfg(test)]
mod tests {
    //! Planted to see it go red: what a session holds found by `session = ?1`; the layout of those statements before.
    use rusqlite::Connection;

    /// What may read a whole table, and why.
    const MAY_SCAN: [(&str, &str); 8] = [
        ("HOLDERS_BURY", "once in the life of a session"),
        ("LEASES", "sweep, on a snapshot first"),
        ("SESSIONS", "sweep, on a snapshot first"),
        ("SESSION_DELETE", "once in the life of a session"),
        ("TABLES", "the schema, when a connection is opened"),
        ("WAITERS_BURY", "once in the life of a session"),
        ("WATCHERS_BURY", "once in the life of a session"),
        ("WRITES_FORGET", "the oldest few"),
    ];

    /// All statements of this file, by name.
    fn statements() -> Vec<(&'static str, &'static str)> {
        let (source, _) = include_str!("sql.rs").split_once("#[cfg(test)]").unwrap();
        let constant = |text: &'static str| {
            let (name, rest) = text.split_once(": &str =")?;
            let (_, rest) = rest.split_once('"')?;
            Some((name, rest.split_once("\";")?.0))
        };
        source.split("pub(crate) const ").filter_map(constant).filter(|(name, _)| *name != "SCHEMA").collect()
    }

    #[test]
    fn no_call_costs_more_for_what_others_hold() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(super::SCHEMA).unwrap();
        let all = statements();
        assert!(all.len() > 60 && all.iter().any(|(name, _)| *name == "HOLDER_LAPSED"), "{} statements", all.len());
        let mut scan = Vec::new();
        for (name, sql) in all {
            let mut plan = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap_or_else(|e| panic!("{name}: {e}"));
            let mut steps = plan.raw_query();
            while let Some(step) = steps.next().unwrap() {
                let step: String = step.get(3).unwrap();
                if step.starts_with("SCAN") && step != "SCAN CONSTANT ROW" {
                    scan.push((name, step));
                }
            }
        }
        let unexpected = scan.iter().filter(|(name, _)| MAY_SCAN.iter().all(|(may, _)| may != name));
        assert_eq!(unexpected.collect::<Vec<_>>(), Vec::<&(&str, String)>::new());
    }
}
