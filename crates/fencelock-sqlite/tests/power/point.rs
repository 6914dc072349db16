//! One point: a disk, and three to five boots on it, each cut off at some moment.
use crate::{
    disk::Disk,
    judge::{Boot, Figures, Judge},
    worker::Orders,
};
use fastrand::Rng;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::{
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant, SystemTime},
};

/// A worker's first look at everything takes a second or two.
const PATIENCE: Duration = Duration::from_secs(20);

/// What was seen at a point.
pub(crate) struct Seen {
    pub(crate) wrong: Vec<String>,
    pub(crate) figures: Figures,
}
/// How the host's wall clock may stand.
#[derive(Clone, Copy, Debug)]
enum Wall {
    Real,
    /// Ahead, or behind.
    Days(i64),
    /// No RTC: seconds since 1970.
    Epoch(i64),
}
impl Wall {
    fn any(rng: &mut Rng) -> Self {
        match rng.u8(0..10) {
            0..=2 => Self::Real,
            3 | 4 => Self::Days(rng.i64(-30..0)),
            5 => Self::Days(rng.i64(1..30)),
            6 => Self::Days(rng.i64(1..4_000)),
            _ => Self::Epoch(rng.i64(0..1_000)),
        }
    }
    /// What it adds to the real time, in ns.
    fn ahead(self) -> i64 {
        const SECOND: i64 = 1_000_000_000;
        match self {
            Self::Real => 0,
            Self::Days(days) => days * 86_400 * SECOND,
            Self::Epoch(seconds) => {
                let real = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos();
                seconds * SECOND - i64::try_from(real).unwrap()
            }
        }
    }
}
/// A folder in memory, gone afterwards.
struct Place(PathBuf);
impl Place {
    fn new(seed: u64) -> Self {
        let base = if Path::new("/dev/shm").is_dir() { PathBuf::from("/dev/shm") } else { std::env::temp_dir() };
        let path = base.join(format!("fencelock-power-{}-{seed}", std::process::id()));
        fs::create_dir_all(path.join("host")).unwrap();
        Self(fs::canonicalize(path).unwrap())
    }
}
impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
/// Killed when it is dropped.
struct Process(Child);
impl Process {
    fn stop(&self) {
        let pid = Pid::from_child(&self.0);
        let _ = kill_process(pid, Signal::STOP);
        // It may have ended by itself; the child is reaped elsewhere.
        let _ = waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
    }
}
impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The shim, built once, gone afterwards.
pub(crate) struct Shim {
    folder: PathBuf,
}
impl Shim {
    pub(crate) fn build() -> Self {
        let folder = std::env::temp_dir().join(format!("fencelock-shim-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let shim = Self { folder };
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/power/shim.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]);
        let made = compiler.arg(shim.library()).arg(source).arg("-ldl").status().unwrap();
        assert!(made.success(), "cc: {made}");
        shim
    }
    fn library(&self) -> PathBuf {
        self.folder.join("shim.so")
    }
}
impl Drop for Shim {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

pub(crate) struct Point<'a> {
    pub(crate) seed: u64,
    pub(crate) shim: &'a Shim,
    /// The disk says that it has synced, and has not.
    pub(crate) lies: bool,
    /// The engine makes the database's folder.
    pub(crate) new_folder: bool,
}
impl Point<'_> {
    pub(crate) fn run(&self) -> Seen {
        let mut rng = Rng::with_seed(self.seed);
        let place = Place::new(self.seed + if self.lies { 1_000_000 } else { 0 });
        let disk = Disk::new(&place.0, if self.new_folder { "made/locks.db" } else { "locks.db" });
        let (full, cleaning) = (rng.u8(0..4) == 0, rng.u8(0..4) == 0);
        let retention = if cleaning || rng.bool() { 1 } else { 604_800 };
        let mut judge = Judge::default();
        let boots = rng.u32(3..=5);
        for number in 0..boots {
            // Each boot has numbers of its own: how much came to pass in another one does not change them.
            let mut rng = Rng::with_seed(self.seed * 1_000 + u64::from(number));
            let id = format!("power-{}-{number}", self.seed);
            let boot = Boot { number, id: &id, full, cleaning };
            let log = place.0.join(format!("log-{number}"));
            let orders = Orders {
                database: disk.database.to_str().unwrap().into(),
                log: log.to_str().unwrap().into(),
                full,
                retention,
                seed: rng.u64(..),
                boot: number,
                role: 0,
            };
            // The last one looks at everything; the others may end at any moment.
            let sprang = self.boot(&mut rng, &place.0, &disk, &boot, orders, number + 1 == boots);
            let said = fs::read_to_string(&log).unwrap();
            let opened = judge.read(&boot, &said);
            let after = sprang.and_then(|at| said.get(at..)).unwrap_or_default();
            judge.figures.sprung += usize::from(after.lines().any(|line| line.starts_with("G ")));
            let errors = fs::read_to_string(place.0.join(format!("log-{number}.err"))).unwrap();
            if !errors.is_empty() {
                judge.wrong.push(format!("boot {number}: a worker's errors: {errors}"));
            }
            if opened && !disk.has_seen_syncs() {
                judge.wrong.push(format!("boot {number}: nothing was synced (or the shim is not there)"));
            }
            if sprang.is_none() {
                judge.wrong.push(format!("boot {number}: not everything could be locked in {PATIENCE:?}"));
                break;
            }
            let damage = disk.cut(&mut rng);
            judge.figures.sectors += damage.sectors;
            judge.figures.names += damage.names;
            let copy = place.0.join(format!("copy-{number}"));
            fs::create_dir(&copy).unwrap();
            for name in ["locks.db", "locks.db-wal", "locks.db-journal", "locks.db-shm"] {
                // Not there: then it is not there in the copy.
                let _ = fs::copy(disk.database.with_file_name(name), copy.join(name));
            }
            judge.inspect(&boot, &copy.join("locks.db"), opened);
        }
        judge.order();
        Seen { wrong: judge.wrong, figures: judge.figures }
    }
    /// From the start to the cut: how much the log said when the clock sprang from 1970 to this century. `None`: it does not get on.
    fn boot(
        &self,
        rng: &mut Rng,
        place: &Path,
        disk: &Disk,
        boot: &Boot<'_>,
        orders: Orders,
        last: bool,
    ) -> Option<usize> {
        let host = place.join("host");
        fs::write(host.join("boot_id"), format!("{}\n", boot.id)).unwrap();
        // Its clock begins anew, or goes on where the lost one's was: leases must not care.
        let since = fencelock_core::Clock::now(&fencelock_core::BootClock).as_nanos();
        let begun = since - rng.u64(0..1_000_000_000);
        let offsets = format!("monotonic 0 0\nboottime {} {}\n", begun / 1_000_000_000, begun % 1_000_000_000);
        fs::write(host.join("timens_offsets"), if rng.bool() { offsets } else { String::new() }).unwrap();
        let clock = fs::File::options().write(true).create(true).truncate(false).open(host.join("clock")).unwrap();
        let set = |wall: Wall| clock.write_all_at(&wall.ahead().to_ne_bytes(), 0).unwrap();
        // Without an RTC a boot begins in 1970; then NTP comes.
        let wall = match boot.number {
            number if boot.cleaning => [Wall::Days(400), Wall::Real][number as usize % 2],
            0 if rng.bool() => Wall::Epoch(20),
            _ => Wall::any(rng),
        };
        set(wall);
        let log = PathBuf::from(&orders.log);
        fs::write(&log, "").unwrap();
        let errors = fs::File::create(log.with_extension("err")).unwrap();
        let workers = (0..rng.u32(1..=3)).map(|role| {
            let orders = Orders { role, seed: orders.seed.wrapping_add(role.into()), ..orders.clone() };
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.arg("worker").args(orders.words()).env("LD_PRELOAD", self.shim.library());
            command.env("FENCELOCK_POWER_DISK", &disk.root).env("FENCELOCK_POWER_SHADOW", &disk.shadow);
            command.env("FENCELOCK_POWER_HOST", &host).stdin(Stdio::null()).stdout(Stdio::null());
            if self.lies {
                command.env("FENCELOCK_POWER_LIES", "1");
            }
            Process(command.stderr(errors.try_clone().unwrap()).spawn().unwrap())
        });
        let workers: Vec<Process> = workers.collect();
        let mut rest = Duration::from_millis(rng.u64(0..90));
        if last || rng.u8(0..4) > 0 {
            // After the first look at everything.
            let started = Instant::now();
            let done = |log: &str| log.lines().any(|line| line == "P" || line.starts_with("E "));
            while !done(&fs::read_to_string(&log).unwrap()) {
                std::thread::sleep(Duration::from_millis(2));
                if started.elapsed() > PATIENCE {
                    return None;
                }
            }
            rest += Duration::from_millis(30);
        }
        let jumps: Vec<Wall> = match boot.cleaning {
            // What lies idle is deleted when a client begins; the tokens are ahead of the clock.
            true => (1..4).map(Wall::Days).collect(),
            false => (0..rng.u32(0..3)).map(|_| if rng.bool() { Wall::Real } else { Wall::any(rng) }).collect(),
        };
        rest += Duration::from_millis(if boot.cleaning { 150 } else { 0 });
        let (mut now, mut sprang) = (wall, usize::MAX);
        for jump in jumps {
            let nap = rest.mul_f64(rng.f64() / 2.0);
            std::thread::sleep(nap);
            rest -= nap;
            set(jump);
            if matches!((now, jump), (Wall::Epoch(_), Wall::Real | Wall::Days(_))) {
                sprang = sprang.min(fs::read_to_string(&log).unwrap().len());
            }
            now = jump;
        }
        std::thread::sleep(rest);
        // All at once: one that still ran would find another one dead, and bury it.
        workers.iter().for_each(Process::stop);
        drop(workers);
        Some(sprang)
    }
}
