//! Planted to see them go red, at 20 points: the mark raised with `synchronous=NORMAL`; tokens without a mark, or up to 2^32 above
//! it; META_BOOT that leaves the floor; `synchronous=OFF`; cells that count their versions; idle records deleted without the floor;
//! sync=full that `connect`, `prepare` or `raise_mark` forgets; holders of another boot dead by decree, in `judge` and in the
//! sweep, good by the lost boot's clock, or observed anew by every look. A disk that lies is a trial of its own. Green, and
//! rightly: `prepare` without a sync, since no token comes before the mark's sync, which takes all before it along.
//!
//! Power cuts. The workers run with a shim before libc (`shim.c`) that keeps what was synced, says which boot it is and what the
//! wall clock shows; they are stopped and killed, and of what they wrote since the last sync some is put back and some is not.
//! 200 points with FENCELOCK_PROVE=1, 20 without; FENCELOCK_SEED=n: that point alone, with its decisions (but not the moment of
//! its cuts). At every other point the engine makes the database's folder, too, and POSIX lets a cut take away what was not synced
//! of it (seen red before the engine synced the folder above).
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod disk;
mod judge;
mod point;
mod worker;

use fencelock_testkit::processes::{bar, full, trials};
use judge::Figures;
use point::{Point, Seen, Shim};
use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if words.get(1).is_some_and(|word| word == "worker") {
        return worker::main(&words[2..]);
    }
    trials(&[
        ("what_a_cut_may_leave_of_a_file", torn),
        ("tokens_rise_over_power_cuts", points),
        ("a_disk_that_lies_is_seen", control),
    ])
}

fn points() {
    let one = std::env::var("FENCELOCK_SEED").ok().map(|seed| seed.parse::<u64>().unwrap());
    let seeds = one.map_or(if full() { 0..200 } else { 0..20 }, |seed| seed..seed + 1);
    println!("\nseeds {seeds:?}");
    let (started, shim) = (Instant::now(), Shim::build());
    let (next, red) = (AtomicU64::new(seeds.start), AtomicU64::new(0));
    let seen = Mutex::new((Figures::default(), Vec::new()));
    // They wait more than they work.
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    // A few red points say it all.
                    if seed >= seeds.end || red.load(Ordering::Relaxed) >= 5 {
                        return;
                    }
                    let new_folder = seed % 2 == 0;
                    let Seen { wrong, figures } = Point { seed, shim: &shim, lies: false, new_folder }.run();
                    red.fetch_add((!wrong.is_empty()).into(), Ordering::Relaxed);
                    let mut seen = seen.lock().unwrap();
                    seen.0.add(&figures);
                    seen.1.extend(wrong.into_iter().map(|what| format!("FENCELOCK_SEED={seed}: {what}")));
                }
            });
        }
    });
    let (figures, wrong) = seen.into_inner().unwrap();
    let points = seeds.end - seeds.start;
    let Figures { cuts, tokens, forgetful, sectors, names, in_the_way, longest, without_rtc, sprung } = figures;
    assert!(wrong.is_empty(), "{} wrong at {points} points:\n{}", wrong.len(), wrong.join("\n"));
    let clocks = format!("{without_rtc} workers began in 1970, {sprung} boots gave tokens after a jump from there");
    let figure = format!("{points} points, {cuts} cuts in {:.1?}, {tokens} tokens, {clocks}", started.elapsed());
    bar("power", figure, "200 points: opens, no token back or twice", points >= 200);
    assert!(one.is_some() || without_rtc > 0, "the shim does not move the wall clock");
    assert!(one.is_some() || sprung > 0, "no boot sprang from 1970 to this century and went on");
    let took = format!("{forgetful} cuts took tokens out of it, {sectors} sectors and {names} names gone or back");
    let enough = one.is_some() || forgetful * 5 >= cuts;
    bar("power: what was lost", took, "a fifth of the cuts took tokens", enough);
    assert!(enough, "the cuts take too little for this to show anything");
    let blocked = format!("{longest:?} at most, {in_the_way} holds of 30 s seen and bounded");
    // A lost waiter that stands before is found at the look once a second, and the one behind may wait for its turn.
    let limit = worker::SHORT + Duration::from_millis(1_250);
    bar("power: a lost hold of 250 ms blocks", blocked, "<= ttl + a look (1 s) + a turn (250 ms)", longest <= limit);
}
/// Nothing is on the disk that was not read back: what was given is given again, and the judge must say so.
fn control() {
    let shim = Shim::build();
    let seen = (0..10).find_map(|seed| {
        let wrong = Point { seed, shim: &shim, lies: true, new_folder: false }.run().wrong;
        wrong.iter().find(|what| what.contains(" after ")).cloned()
    });
    println!("\ncontrol: {}", seen.as_deref().unwrap_or("nothing"));
    assert!(seen.is_some(), "a disk that lies was not seen at 10 points");
}
fn torn() {
    let (old, new) = ([1u8; 5_000], [2u8; 9_000]);
    let (mut kept, mut lost) = (0, 0);
    for seed in 0..2_000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut tear = |synced: &[u8], now: &[u8]| disk::tear(synced, now, &mut rng, &mut disk::Damage::default());
        let grown = tear(&old, &new);
        assert!((5_000..=9_000).contains(&grown.len()));
        assert!(grown.chunks(512).take(9).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
        assert!(grown[..5_000].iter().all(|byte| matches!(byte, 1 | 2)), "what was synced is old or new");
        kept += usize::from(grown == new);
        lost += usize::from(grown == old);
        assert_eq!(tear(&old, &old), old, "what was synced and not touched stays");
        assert!(matches!(tear(&new, &old).len(), 5_000 | 9_000), "cut short whole, or not at all");
    }
    assert!(kept > 100 && lost > 100, "all and nothing are possible, too: {kept} {lost}");
}
