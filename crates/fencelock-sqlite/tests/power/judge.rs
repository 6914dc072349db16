//! What the workers wrote down, over all boots of one disk, and what must be true of it.
use crate::worker::{LONG, SHORT};
use rusqlite::{Connection, OptionalExtension};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::Path,
    time::Duration,
};

/// A token, or a cell's version, which is one.
struct Given {
    name: String,
    token: i64,
    /// When it was asked for and when it was here, on a clock that runs through all boots.
    asked: u64,
    got: u64,
    boot: u32,
}
#[derive(Default)]
pub(crate) struct Judge {
    given: Vec<Given>,
    /// The value of each version of each cell.
    values: HashMap<(String, i64), String>,
    /// The highest version that was told written.
    written: HashMap<String, i64>,
    /// What was held and not given back, for longer than any boot lasts.
    held: BTreeMap<String, i64>,
    /// Those of them that the last cut left in the database.
    left: BTreeMap<String, i64>,
    /// Cells that were removed once: their record may be cleaned away.
    removed: HashSet<String>,
    pub(crate) wrong: Vec<String>,
    pub(crate) figures: Figures,
}
/// What a point shows.
#[derive(Clone, Default)]
pub(crate) struct Figures {
    pub(crate) cuts: usize,
    pub(crate) tokens: usize,
    /// Cuts that took tokens out of the database that somebody had been given.
    pub(crate) forgetful: usize,
    pub(crate) sectors: usize,
    pub(crate) names: usize,
    /// Holders of a lost boot that were in the way.
    pub(crate) in_the_way: usize,
    pub(crate) longest: Duration,
    /// Workers that began in 1970.
    pub(crate) without_rtc: usize,
    /// Boots that began in 1970, jumped to this century, gave tokens after that, and were cut off.
    pub(crate) sprung: usize,
}
impl Figures {
    pub(crate) fn add(&mut self, other: &Self) {
        self.cuts += other.cuts;
        self.tokens += other.tokens;
        self.forgetful += other.forgetful;
        self.sectors += other.sectors;
        self.names += other.names;
        self.in_the_way += other.in_the_way;
        self.without_rtc += other.without_rtc;
        self.sprung += other.sprung;
        self.longest = self.longest.max(other.longest);
    }
}
/// What the database says after a cut.
#[derive(Default)]
struct Left {
    /// What `integrity_check` says.
    whole: String,
    id: String,
    mark: i64,
    /// Names whose tokens were higher.
    forgotten: usize,
    /// The holders of 30 s.
    held: BTreeMap<String, i64>,
}
/// How a boot was set up.
pub(crate) struct Boot<'a> {
    pub(crate) number: u32,
    pub(crate) id: &'a str,
    pub(crate) full: bool,
    /// A point of idle records that are deleted.
    pub(crate) cleaning: bool,
}

impl Judge {
    fn wrong(&mut self, boot: &Boot<'_>, what: String) {
        self.wrong.push(format!("boot {}: {what}", boot.number));
    }
    fn highest(&self) -> i64 {
        self.given.iter().map(|given| given.token).max().unwrap_or(0)
    }
    /// A boot is over. True: its first worker saw everything.
    pub(crate) fn read(&mut self, boot: &Boot<'_>, log: &str) -> bool {
        // What was known to be there when it began.
        let (written, mut left) = (self.written.clone(), std::mem::take(&mut self.left));
        let mut probing = true;
        for line in log.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| words[at].parse::<i64>().unwrap();
            let key = || (words[1].to_owned(), number(2));
            match words[0] {
                "G" => {
                    let ((name, token), [asked, got]) = (key(), [3, 4].map(|at: usize| words[at].parse().unwrap()));
                    self.given.push(Given { name, token, asked, got, boot: boot.number });
                    self.figures.tokens += 1;
                }
                "H" => drop(self.held.insert(words[1].to_owned(), number(2))),
                "R" => drop(self.held.remove(words[1])),
                "D" => drop(self.removed.insert(words[1].to_owned())),
                "V" | "L" => {
                    let ((name, version), value) = (key(), words[3]);
                    if words[0] == "V" {
                        let highest = self.written.entry(name.clone()).or_default();
                        *highest = version.max(*highest);
                    } else if boot.full && probing && version < written.get(&name).copied().unwrap_or(0) {
                        let gone = version == 0 && self.removed.contains(&name);
                        if !gone {
                            self.wrong(
                                boot,
                                format!("a synced write is gone: {line:?}, once {:?}", written.get(&name)),
                            );
                        }
                    }
                    let known = self.values.entry((name, version)).or_insert_with(|| value.to_owned());
                    // A removed cell whose record was cleaned away has version 0, as one that never was.
                    if known != value {
                        let known = known.clone();
                        self.wrong(boot, format!("one version has two values: {known:?} and {line:?}"));
                    }
                }
                "B" => {
                    self.figures.in_the_way += 1;
                    if u128::try_from(number(3)).is_ok_and(|left| left > LONG.as_millis()) {
                        self.wrong(boot, format!("a lost holder has more than its ttl left: {line:?}"));
                    }
                    if left.remove(words[1]) != Some(number(2)) {
                        self.wrong(boot, format!("not the holder that the cut left: {line:?}"));
                    }
                }
                "W" => {
                    let took = Duration::from_millis(words[2].parse().unwrap());
                    self.figures.longest = self.figures.longest.max(took);
                    if took > SHORT + Duration::from_secs(5) {
                        self.wrong(boot, format!("blocked for longer than a ttl: {line:?}"));
                    }
                }
                "P" => probing = false,
                // What the wall clock showed at the start of a worker: 1970?
                "C" => self.figures.without_rtc += usize::from(words[1].parse::<i64>().unwrap() < 1_000_000_000_000),
                _ => self.wrong(boot, format!("a worker said {line:?}")),
            }
        }
        if !probing && !left.is_empty() {
            self.wrong(boot, format!("taken from holders that were not observed for their ttl: {left:?}"));
        }
        !probing
    }
    /// What a cut left, in a copy: whoever opens the database changes it.
    pub(crate) fn inspect(&mut self, boot: &Boot<'_>, database: &Path, opened: bool) {
        let highest = self.highest();
        let mut fences = BTreeMap::<String, i64>::new();
        for Given { name, token, .. } in &self.given {
            let fence = fences.entry(name.clone()).or_default();
            *fence = token.max(fence).to_owned();
        }
        let look = || -> rusqlite::Result<Left> {
            let conn = Connection::open(database)?;
            let whole = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
            let tables = "SELECT count(*) FROM sqlite_schema WHERE name = 'fencelock_meta'";
            if conn.query_row(tables, [], |row| row.get::<_, i64>(0))? == 0 {
                return Ok(Left { whole, forgotten: fences.len(), ..Left::default() });
            }
            let meta = "SELECT boot, mark FROM fencelock_meta WHERE id = 1";
            let (id, mark) = conn.query_row(meta, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
            let mut fence = conn.prepare("SELECT fence FROM fencelock_lock WHERE name = ?1")?;
            let mut forgotten = 0;
            for (name, highest) in &fences {
                let stored: Option<i64> = fence.query_row([name], |row| row.get(0)).optional()?;
                forgotten += usize::from(stored.is_some_and(|fence| fence < *highest));
            }
            let holders = "SELECT name, token FROM fencelock_holder JOIN fencelock_lock ON id = lock WHERE ttl = ?1";
            let ttl = i64::try_from(LONG.as_nanos()).unwrap();
            let mut holders = conn.prepare(holders)?;
            let held = holders.query_map([ttl], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
            Ok(Left { whole, id, mark, forgotten, held })
        };
        self.figures.cuts += 1;
        match look() {
            Err(e) => self.wrong(boot, format!("what is left cannot be opened: {e}")),
            Ok(Left { whole, id, mark, forgotten, held }) => {
                self.figures.forgetful += usize::from(forgotten > 0);
                if boot.full && forgotten > 0 {
                    self.wrong(boot, format!("synced grants are gone: those of {forgotten} names"));
                }
                if whole != "ok" {
                    self.wrong(boot, format!("integrity_check says {whole:?}"));
                }
                if mark < highest {
                    self.wrong(boot, format!("the mark is {mark}, a token was {highest}"));
                }
                if opened && id != boot.id {
                    self.wrong(boot, format!("the boot is {id:?}, it was {:?}", boot.id));
                }
                if boot.full && !self.held.iter().all(|(name, token)| held.get(name) == Some(token)) {
                    self.wrong(boot, format!("synced holds are gone: of {:?} there are {held:?}", self.held));
                }
                self.left = held;
            }
        }
    }
    /// Of each name, who asked after another one had its token has a higher one; and no two are equal.
    pub(crate) fn order(&mut self) {
        let mut by_name = BTreeMap::<&str, Vec<&Given>>::new();
        for given in &self.given {
            by_name.entry(&given.name).or_default().push(given);
        }
        for (name, mut all) in by_name {
            let mut seen = HashSet::new();
            let twice = all.iter().find(|given| !seen.insert(given.token));
            if let Some(Given { token, boot, .. }) = twice {
                self.wrong.push(format!("boot {boot}: {name}: {token} was given twice"));
            }
            let mut ended = all.clone();
            ended.sort_by_key(|given| given.got);
            all.sort_by_key(|given| given.asked);
            let (mut ended, mut before): (_, Option<&Given>) = (ended.into_iter().peekable(), None);
            for given in all {
                while let Some(earlier) = ended.next_if(|earlier| earlier.got < given.asked) {
                    if before.is_none_or(|before| earlier.token > before.token) {
                        before = Some(earlier);
                    }
                }
                if let Some(before) = before.filter(|before| before.token >= given.token) {
                    let (token, boot) = (given.token, given.boot);
                    let back = format!("{token} after {} of boot {}", before.token, before.boot);
                    self.wrong.push(format!("boot {boot}: {name}: {back}"));
                    break;
                }
            }
        }
    }
}
