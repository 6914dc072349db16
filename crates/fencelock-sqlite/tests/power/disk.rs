//! A folder that loses power: what the shim saw synced, what is there now, and something between the two that a file system may
//! leave (the contract stands at the head of `shim.c`).
use fastrand::Rng;
use rustix::fs::{CWD, Mode, mkfifoat};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

pub(crate) struct Disk {
    pub(crate) root: PathBuf,
    pub(crate) shadow: PathBuf,
    /// Where the database is. Its folder is made by the engine when it is not the root.
    pub(crate) database: PathBuf,
}
/// What lies under a name.
enum Node {
    File(Vec<u8>),
    Fifo,
    Folder(BTreeMap<String, Node>),
}
/// What a cut took.
#[derive(Default)]
pub(crate) struct Damage {
    /// Sectors that were written and are not there.
    pub(crate) sectors: usize,
    /// Names that came back or went away.
    pub(crate) names: usize,
}
impl Disk {
    /// Two folders in `folder`, one of them the disk.
    pub(crate) fn new(folder: &Path, database: &str) -> Self {
        let root = folder.join("disk");
        let disk = Self { database: root.join(database), root, shadow: folder.join("shadow") };
        fs::create_dir(&disk.root).unwrap();
        fs::create_dir(&disk.shadow).unwrap();
        disk.all_is_synced();
        disk
    }
    /// Nobody has it open any more. What is left is put in place; whoever reads it afterwards reads what is on the disk.
    pub(crate) fn cut(&self, rng: &mut Rng) -> Damage {
        let mut damage = Damage::default();
        let left = self.folder(&self.root, rng, &mut damage);
        fs::remove_dir_all(&self.root).unwrap();
        write(&self.root, &Node::Folder(left));
        self.all_is_synced();
        damage
    }
    /// Some file of the database was synced under the shim's eyes.
    pub(crate) fn has_seen_syncs(&self) -> bool {
        let synced = |name: &str| {
            let meta = fs::metadata(self.database.with_file_name(name));
            meta.is_ok_and(|meta| self.shadow.join(meta.ino().to_string()).exists())
        };
        synced("locks.db") && synced("locks.db-wal")
    }
    fn folder(&self, path: &Path, rng: &mut Rng, damage: &mut Damage) -> BTreeMap<String, Node> {
        let (synced, now) = (self.synced_names(path), names(path));
        let mut left = BTreeMap::new();
        for name in synced.keys().chain(now.keys()).cloned().collect::<BTreeSet<_>>() {
            let (old, new) = (synced.get(&name), now.get(&name));
            let same = matches!((old, new), (Some(old), Some(new)) if old.0 == new.0);
            let keep_new = new.is_some() && (same || rng.bool());
            damage.names += usize::from(new.is_some() && !keep_new);
            if keep_new {
                let path = path.join(&name);
                left.insert(name, self.survivor(&path, rng, damage));
            } else if let Some((inode, 'f')) = old.filter(|_| new.is_some() || rng.bool()) {
                // Removed since, or another one's name now: back as it was.
                damage.names += 1;
                left.insert(name, Node::File(self.synced_bytes(*inode)));
            }
        }
        left
    }
    /// One that is there, name and all.
    fn survivor(&self, path: &Path, rng: &mut Rng, damage: &mut Damage) -> Node {
        let meta = fs::symlink_metadata(path).unwrap();
        if meta.is_dir() {
            return Node::Folder(self.folder(path, rng, damage));
        }
        if meta.file_type().is_fifo() {
            return Node::Fifo;
        }
        let (synced, now) = (self.synced_bytes(meta.ino()), fs::read(path).unwrap());
        Node::File(tear(&synced, &now, rng, damage))
    }
    fn synced_bytes(&self, inode: u64) -> Vec<u8> {
        fs::read(self.shadow.join(inode.to_string())).unwrap_or_default()
    }
    /// Inode and type by name, as of the folder's last sync.
    fn synced_names(&self, path: &Path) -> BTreeMap<String, (u64, char)> {
        let inode = fs::metadata(path).unwrap().ino();
        let listing = fs::read_to_string(self.shadow.join(format!("{inode}.d"))).unwrap_or_default();
        let entry = |line: &str| {
            let mut words = line.splitn(3, ' ');
            let (inode, kind) = (words.next()?.parse().ok()?, words.next()?.chars().next()?);
            Some((words.next()?.to_owned(), (inode, kind)))
        };
        listing.lines().filter_map(entry).collect()
    }
    /// After the start of a host everything that can be read is on the disk.
    fn all_is_synced(&self) {
        fs::remove_dir_all(&self.shadow).unwrap();
        fs::create_dir(&self.shadow).unwrap();
        self.record(&self.root);
    }
    fn record(&self, path: &Path) {
        let mut listing = String::new();
        for (name, (inode, kind)) in names(path) {
            listing.push_str(&format!("{inode} {kind} {name}\n"));
            match kind {
                'f' => drop(fs::copy(path.join(name), self.shadow.join(inode.to_string())).unwrap()),
                'd' => self.record(&path.join(name)),
                _ => {}
            }
        }
        let inode = fs::metadata(path).unwrap().ino();
        fs::write(self.shadow.join(format!("{inode}.d")), listing).unwrap();
    }
}
fn names(path: &Path) -> BTreeMap<String, (u64, char)> {
    let entry = |entry: fs::DirEntry| {
        let meta = entry.metadata().unwrap();
        let kind = if meta.is_file() { 'f' } else { ['o', 'd'][usize::from(meta.is_dir())] };
        (entry.file_name().into_string().unwrap(), (meta.ino(), kind))
    };
    fs::read_dir(path).unwrap().map(|e| entry(e.unwrap())).collect()
}
fn write(path: &Path, node: &Node) {
    match node {
        Node::File(bytes) => fs::write(path, bytes).unwrap(),
        Node::Fifo => mkfifoat(CWD, path, Mode::from_raw_mode(0o644)).unwrap(),
        Node::Folder(names) => {
            fs::create_dir(path).unwrap();
            names.iter().for_each(|(name, node)| write(&path.join(name), node));
        }
    }
}

/// The smallest piece that a disk writes or does not.
const SECTOR: usize = 512;
/// What was synced, and of what came later this and that.
pub(crate) fn tear(synced: &[u8], now: &[u8], rng: &mut Rng, damage: &mut Damage) -> Vec<u8> {
    let (short, long) = (synced.len().min(now.len()), synced.len().max(now.len()));
    // Pages of SQLite, or pages torn inside; from nothing to everything.
    let piece = if rng.bool() { 8 * SECTOR } else { SECTOR };
    let (length, kept) = match rng.u8(0..10) {
        0 | 1 => (synced.len(), 0.0),
        2 => (now.len(), 1.0),
        3 => (now.len(), rng.f64()),
        4 => (long, 0.0),
        // A file is cut short whole, or not at all.
        5..7 if now.len() < synced.len() => (now.len(), rng.f64()),
        _ if now.len() < synced.len() => (synced.len(), rng.f64()),
        _ => (rng.usize(short..=long), rng.f64()),
    };
    // The first so many pieces, or each one by lot.
    let in_order = rng.u8(0..3) == 0;
    let pieces = length.div_ceil(piece);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a share")]
    let first = (pieces as f64 * kept) as usize;
    // Where blocks were given to a file and never written, some file systems show what was in them before.
    let garbage = rng.u8(0..4) == 0;
    let mut left = vec![0; length];
    for (at, out) in left.chunks_mut(piece).enumerate() {
        let (start, end) = (at * piece, at * piece + out.len());
        let part = |of: &[u8]| of.get(start..end.min(of.len())).unwrap_or_default().to_vec();
        let (old, new) = (part(synced), part(now));
        out[..old.len()].copy_from_slice(&old);
        if if in_order { at < first } else { rng.f64() < kept } {
            out[..new.len()].copy_from_slice(&new);
        } else if garbage && old.is_empty() {
            out.fill_with(|| rng.u8(..));
        }
        damage.sectors +=
            out.chunks(SECTOR).zip(new.chunks(SECTOR)).filter(|(left, new)| !left.starts_with(new)).count();
    }
    damage.sectors += now.len().saturating_sub(length).div_ceil(SECTOR);
    left
}
