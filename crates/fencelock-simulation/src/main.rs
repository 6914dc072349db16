//! `cargo xtask simulate`: seeds, their verdicts, and the mutants that prove that the judge can see.
mod sweep;

use fencelock_simulation::{MUST_HAPPEN, tell};
use std::{process::ExitCode, time::Instant};
use sweep::sweep;

const USAGE: &str = "\
usage: fencelock-simulation [--from N] [--seeds M]     runs M seeds (20000) from N (0)
                            --seed N                   tells the history of one seed
                            --mutants [--limit M]      each mutant over at most M seeds (5000) until it is caught
                            --mutant NAME --seed N     tells the history of one seed with this rule left out";

/// In runs of so many seeds everything that can happen has happened.
const MANY: u64 = 20_000;

#[derive(Debug, Default)]
struct Options {
    seed: Option<u64>,
    from: u64,
    seeds: Option<u64>,
    mutants: bool,
    mutant: Option<String>,
    limit: Option<u64>,
}
impl Options {
    fn parse(mut words: impl Iterator<Item = String>) -> Option<Self> {
        let mut options = Self::default();
        while let Some(word) = words.next() {
            let mut number = || words.next()?.replace('_', "").parse::<u64>().ok();
            match word.as_str() {
                "--seed" => options.seed = Some(number()?),
                "--from" => options.from = number()?,
                "--seeds" => options.seeds = Some(number()?),
                "--limit" => options.limit = Some(number()?),
                "--mutants" => options.mutants = true,
                "--mutant" => options.mutant = Some(words.next()?),
                _ => return None,
            }
        }
        Some(options)
    }
}

fn main() -> ExitCode {
    let Some(options) = Options::parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    if options.mutants {
        return mutants::all(options.limit.unwrap_or(5_000));
    }
    if let Some(name) = &options.mutant
        && !mutants::choose(name)
    {
        eprintln!("no mutant is called {name:?} in this build");
        return ExitCode::from(2);
    }
    let fine = match options.seed {
        Some(seed) => one(seed),
        None => many(options.from, options.seeds.unwrap_or(MANY)),
    };
    if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
fn one(seed: u64) -> bool {
    let (verdict, story) = tell(seed);
    println!("{story}");
    for breach in &verdict.breaches {
        println!("FENCELOCK seed {seed}: {breach}");
    }
    let again = tell(seed).0.fingerprint;
    println!("history {:016x}, and once more {again:016x}", verdict.fingerprint);
    if verdict.breaches.is_empty() {
        println!("seed {seed}: nothing was wrong in {} s of its clock", verdict.simulated / 1_000_000_000);
    }
    verdict.breaches.is_empty() && again == verdict.fingerprint
}
fn many(from: u64, seeds: u64) -> bool {
    let began = Instant::now();
    let sum = sweep(from, seeds, None);
    for (seed, what) in &sum.failed {
        println!("FENCELOCK seed {seed}: {what}");
        println!("  replay: cargo xtask simulate --seed {seed}");
    }
    let took = began.elapsed();
    println!("coverage of {seeds} seeds:");
    for (what, times) in &sum.coverage {
        println!("  {times:>10} {what}");
    }
    let never: Vec<&str> = MUST_HAPPEN.iter().copied().filter(|what| !sum.coverage.contains_key(what)).collect();
    let bites = seeds < MANY || never.is_empty();
    let fine = sum.failed.is_empty();
    let rate = seeds as f64 / took.as_secs_f64().max(0.001);
    measured(
        "simulation: seeds without a breach",
        &format!("{} of {seeds} from {from} ({rate:.0}/s)", seeds - sum.failed.len() as u64),
        "all",
        fine,
    );
    let each = sum.shortest / 1_000_000_000;
    measured("simulation: simulated time, shortest seed", &format!("{each} s"), "≥ 600 s", each >= 600);
    measured("simulation: histories that differ when repeated", &sum.differ.to_string(), "0", sum.differ == 0);
    measured(
        "simulation: things that must happen and did not",
        &format!("{} ({})", never.len(), never.join(", ")),
        "0",
        bites,
    );
    fine && bites && sum.differ == 0 && each >= 600
}
fn measured(bar: &str, figure: &str, limit: &str, fine: bool) {
    println!("MEASURED | {bar} | {figure} | {limit} | {}", if fine { "ok" } else { "MISSED" });
}

#[cfg(not(feature = "mutants"))]
mod mutants {
    use std::process::ExitCode;

    pub(crate) fn all(_: u64) -> ExitCode {
        eprintln!("this build has no mutants: cargo xtask simulate has");
        ExitCode::from(2)
    }
    pub(crate) fn choose(_: &str) -> bool {
        false
    }
}
#[cfg(feature = "mutants")]
mod mutants {
    use super::{
        measured,
        sweep::{Sum, sweep},
    };
    use fencelock_core::mutants::{self, Mutant};
    use fencelock_simulation::{heartbeat_creates_nothing, stop_is_ordered};
    use std::process::ExitCode;

    type Probe = (Mutant, &'static str, fn() -> bool);
    /// What no seed shows: it takes two threads, or a message slower than all that clears it away. It is asked directly.
    const PROBES: &[Probe] = &[
        (Mutant::HeartbeatThatCreates, "probe: heartbeat_creates_nothing", heartbeat_creates_nothing),
        (Mutant::StopNotOrdered, "probe: stop_is_ordered", stop_is_ordered),
    ];

    fn named(name: &str) -> Option<Mutant> {
        Mutant::ALL.iter().copied().find(|mutant| format!("{mutant:?}") == name)
    }
    pub(crate) fn choose(name: &str) -> bool {
        let mutant = named(name);
        mutants::choose(mutant);
        mutant.is_some()
    }
    /// Each over seeds until it is caught.
    pub(crate) fn all(limit: u64) -> ExitCode {
        println!("{:<24} {:>8}  {:<9} {:>6}", "mutant", "seed", "checker", "seeds");
        let (mut caught, mut missed) = (0, Vec::new());
        for mutant in Mutant::ALL {
            mutants::choose(Some(*mutant));
            let name = format!("{mutant:?}");
            if let Some((_, probe, right)) = PROBES.iter().find(|(known, ..)| known == mutant)
                && !right()
            {
                caught += 1;
                println!("{name:<24} {:>8}  {probe}", "-");
                continue;
            }
            let sum: Sum = sweep(0, limit, Some(1));
            match sum.failed.first() {
                Some((seed, breach)) => {
                    caught += 1;
                    println!("{name:<24} {seed:>8}  {:<9} {:>6}", breach.checker, seed + 1);
                }
                None => {
                    missed.push(name.clone());
                    println!("{name:<24} {:>8}  {:<9} {limit:>6}", "-", "NOT CAUGHT");
                }
            }
        }
        mutants::choose(None);
        let all = Mutant::ALL.len();
        let figure = format!("{caught} of {} ({})", Mutant::ALL.len(), missed.join(", "));
        measured("simulation: mutants caught", &figure, &format!("{all}"), missed.is_empty());
        if missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
