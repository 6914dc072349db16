//! Trials from families and cases.
use crate::{
    case::{Case, Ground, all_cases},
    context::{Context, Void},
    fixture::{Family, Fixture},
    peer, stalls,
};
use fencelock_core::{BootClock, Capabilities, Clock};
use libtest_mimic::{Arguments, Failed, Trial};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{
    cmp::Reverse,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    process::ExitCode,
    sync::{Arc, mpsc},
    thread::available_parallelism,
    time::{Duration, Instant},
};
use tokio::{
    runtime::{Builder, Runtime},
    time::sleep,
};

/// In full they work ten times as much: no more than there are processors, so that a hundred clients reach their server in time.
fn full_threads() -> usize {
    available_parallelism().map_or(1, usize::from).min(4)
}
/// So long after the last trial a store may still hold something.
const QUIET: Duration = Duration::from_secs(20);

/// In full, or at a tenth: `FENCELOCK_PROVE=1`, which `cargo xtask prove` sets.
pub fn full() -> bool {
    std::env::var_os("FENCELOCK_PROVE").is_some_and(|v| v == "1")
}
/// `n` in full, else a tenth of it and at least one.
pub fn tenth(n: usize) -> usize {
    if full() { n } else { (n / 10).max(1) }
}

/// The whole of a binary that proves engines: every case that applies to them, and an exit code.
///
/// It takes the arguments of `cargo test`: a part of a name, `--exact`, `--list`, `--test-threads`.
pub fn main(families: &[&'static dyn Family]) -> ExitCode {
    run(families, Vec::new())
}

/// So often a trial may prove nothing.
const AGAIN: usize = 5;
/// So long a family may take in the quick size.
const BRIEF: Duration = Duration::from_secs(60);

/// As [`main`], with more trials beside the cases.
pub fn run(families: &[&'static dyn Family], more: Vec<Trial>) -> ExitCode {
    #[cfg(feature = "mutants")]
    mutate();
    if let Some(code) = peer::worker(families) {
        return code;
    }
    // Each client of each trial has connections, threads and timers.
    let limits = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, ..limits });
    stalls::watch();
    let args = Arguments::from_args();
    let whole =
        args.filter.is_none() && args.skip.is_empty() && args.test_threads.is_none() && !args.ignored && !args.list;
    let at_once = |n: usize| Arguments { test_threads: args.test_threads.or(Some(n)), ..args.clone() };
    let mut well = more.is_empty() || libtest(&at_once(1), more);
    // One family after the other, so that each has its own time.
    for family in families {
        let mut cases: Vec<_> = all_cases().filter(|case| applies(*family, case)).collect();
        if whole && family.is_variant() && !full() {
            cases.retain(|case| is_third(case.id));
        }
        // What may take long begins first, so that nothing is waited for alone in the end.
        cases.sort_by_key(|case| Reverse(case.limit));
        if cases.is_empty() {
            eprintln!("error: no case applies to {}: its scopes are {:?}", family.name(), family.scopes());
            return ExitCode::FAILURE;
        }
        if !cases.iter().any(|case| wanted(&args, &name(*family, case))) {
            continue; // nothing is started for nobody
        }
        let store = Arc::new(Store::start(*family));
        let usual = if full() { full_threads() } else { family.at_once() };
        let (began, n) = (BootClock.now(), cases.len());
        let trials = |cases: Vec<_>| cases.into_iter().map(|case| store.clone().trial(case)).collect();
        // Who measures is not measured beside others.
        let (measure, together): (Vec<_>, Vec<_>) = cases.into_iter().partition(|case| full() && case.measures());
        well &= libtest(&at_once(usual), trials(together));
        if !measure.is_empty() {
            well &= libtest(&Arguments { test_threads: Some(1), ..args.clone() }, trials(measure));
        }
        let took = began.until(BootClock.now());
        well &= args.list || store.is_clean();
        if whole {
            tell_time(*family, n, took);
        }
    }
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
/// A third of all ids, the same in every run.
fn is_third(id: &str) -> bool {
    id.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into())).is_multiple_of(3)
}
fn libtest(args: &Arguments, trials: Vec<Trial>) -> bool {
    !libtest_mimic::run(args, trials).has_failed()
}
/// From the first trial of a family to the end of the last. Told, not judged: in full it takes as long as it takes, and in the quick size no
/// time is judged.
fn tell_time(family: &dyn Family, n: usize, took: Duration) {
    let (limit, ok) =
        if full() { ("none in full".to_owned(), true) } else { (format!("<= {} s", BRIEF.as_secs()), took <= BRIEF) };
    let verdict = if ok { "ok" } else { "MISSED" };
    println!(
        "MEASURED | suite: trials of {} | {n} trials, {:.1} s | {limit} | {verdict}",
        family.name(),
        took.as_secs_f64()
    );
}
/// What is ignored, and why: the family, the case, and what it lacks. What a family can do less than before shows here.
pub fn ignored(families: &[&'static dyn Family]) -> Vec<(&'static str, &'static str, &'static str)> {
    let of = |family: &&'static dyn Family| {
        let store = Store::start(*family);
        let cases = all_cases().filter(|case| applies(*family, case));
        let ignored = cases.filter_map(|case| Some((family.name(), case.id, store.missing(case)?)));
        ignored.collect::<Vec<_>>()
    };
    families.iter().flat_map(of).collect()
}
/// `FENCELOCK_MUTANT=NoWakeUp`: a fault of core lives in this run, workers included, and a trial has to see it.
#[cfg(feature = "mutants")]
fn mutate() {
    use fencelock_core::mutants::{Mutant, choose};
    if let Some(name) = std::env::var_os("FENCELOCK_MUTANT") {
        let chosen = Mutant::ALL.iter().copied().find(|mutant| format!("{mutant:?}") == name.to_string_lossy());
        choose(Some(chosen.unwrap_or_else(|| panic!("no mutant is called {name:?}: {:?}", Mutant::ALL))));
    }
}
/// A ttl may run out on a machine that stood still for a part of it.
fn excuse(family: &dyn Family) -> Duration {
    family.short_ttl() / 10
}
fn applies(family: &dyn Family, case: &Case) -> bool {
    case.scope().is_some_and(|scope| family.scopes().contains(&scope))
}
fn name(family: &dyn Family, case: &Case) -> String {
    format!("{}::{}", family.name(), case.id)
}
/// As libtest reads them.
fn wanted(args: &Arguments, name: &str) -> bool {
    let fits = |pattern: &str| if args.exact { name == pattern } else { name.contains(pattern) };
    args.filter.as_deref().is_none_or(fits) && !args.skip.iter().any(|pattern| fits(pattern))
}

struct Store {
    family: &'static dyn Family,
    fixture: Arc<dyn Fixture>,
    can: Capabilities,
    cut: bool,
}
impl Store {
    fn start(family: &'static dyn Family) -> Self {
        let fixture: Arc<dyn Fixture> = Arc::from(family.start());
        let looked = runtime("look").block_on(fixture.engine(family.short_ttl()));
        let (can, cut) = (looked.engine.info().capabilities.clone(), looked.cut.is_some());
        Self { family, fixture, can, cut }
    }
    fn missing(&self, case: &Case) -> Option<&'static str> {
        let (fixture, sessions) = (&*self.fixture, self.family.scopes().contains(&"session"));
        case.missing(&Ground { family: self.family, can: &self.can, fixture, cut: self.cut, sessions })
    }
    fn trial(self: Arc<Self>, case: &'static Case) -> Trial {
        let name = name(self.family, case);
        match self.missing(case) {
            Some(why) => {
                let refused = Trial::test(format!("{name} ({why})"), move || Err(Failed::from(why)));
                refused.with_ignored_flag(true)
            }
            None => Trial::test(name.clone(), move || self.prove(&name, case)),
        }
    }
    fn prove(&self, name: &str, case: &Case) -> Result<(), Failed> {
        let excuse = excuse(self.family);
        for _ in 0..AGAIN {
            let began = BootClock.now();
            let why = match catch_unwind(AssertUnwindSafe(|| self.once(name, case))) {
                Ok(Ok(Ok(()))) => return Ok(()),
                Ok(Ok(Err(Void(why)))) => why,
                failed => {
                    let still = stalls::worst_since(began);
                    match failed {
                        _ if still >= excuse => format!("it failed on a machine that stood still for {still:?}"),
                        Ok(failed) => return failed.map(|_| ()),
                        Err(panic) => resume_unwind(panic),
                    }
                }
            };
            println!("{name} proves nothing, once more: {why}");
        }
        Err(Failed::from(format!("void {AGAIN} times: the machine is too busy")))
    }
    fn once(&self, name: &str, case: &Case) -> Result<Result<(), Void>, Failed> {
        let fixture = if case.own_store(self.cut) { Arc::from(self.family.start()) } else { self.fixture.clone() };
        let context = Context::new(self.family, fixture, case);
        let limit = if full() { 10 * case.limit } else { case.limit };
        let runtime = runtime(name);
        let running = (case.run)(context.clone());
        let case = runtime.spawn(async move {
            running.await;
            context.nothing_left().await;
        });
        // Waited for outside of the runtime: a case that blocks all of its threads is found out too.
        let (tx, rx) = mpsc::channel();
        runtime.spawn(async move { drop(tx.send(case.await)) });
        let ended = rx.recv_timeout(limit);
        runtime.shutdown_timeout(Duration::from_secs(1));
        match ended {
            Ok(Ok(())) => Ok(Ok(())),
            Ok(Err(failed)) if failed.is_panic() => match failed.into_panic().downcast::<Void>() {
                Ok(void) => Ok(Err(*void)),
                Err(panic) => resume_unwind(panic),
            },
            Ok(Err(failed)) => Err(Failed::from(failed)),
            Err(_) => Err(Failed::from(format!("{name} is stuck: not done within {limit:?}"))),
        }
    }
    fn is_clean(&self) -> bool {
        let began = Instant::now();
        let left = runtime("clean").block_on(async {
            loop {
                let left = self.fixture.clean().await;
                if left.is_empty() || began.elapsed() > QUIET {
                    return left;
                }
                sleep(Duration::from_millis(50)).await;
            }
        });
        for what in &left {
            eprintln!("error: left over in {} when all was quiet: {what}", self.family.name());
        }
        left.is_empty()
    }
}
/// Its threads bear the trial's name, which a panic tells.
fn runtime(name: &str) -> Runtime {
    let runtime = Builder::new_multi_thread().worker_threads(2).thread_name(name).enable_all().build();
    runtime.unwrap_or_else(|e| panic!("no runtime: {e}"))
}

#[cfg(test)]
mod tests {
    //! What the suite itself must see: cases that fail, hang, block, and leave something behind.
    use super::*;
    use crate::{
        Connection,
        case::{Need, Running},
    };
    use async_trait::async_trait;
    use fencelock_core::{
        BootClock,
        memory::{MemoryEngine, MemoryServer},
    };
    use std::panic::{AssertUnwindSafe, catch_unwind};

    struct Memory;
    impl Family for Memory {
        fn name(&self) -> &'static str {
            "memory"
        }
        fn scopes(&self) -> &'static [&'static str] {
            &["any"]
        }
        fn start(&self) -> Box<dyn Fixture> {
            Box::new(Shared(MemoryServer::new(Arc::new(BootClock))))
        }
    }
    struct Shared(Arc<MemoryServer>);
    #[async_trait]
    impl Fixture for Shared {
        async fn engine(&self, ttl: Duration) -> Connection {
            Connection::new(Arc::new(MemoryEngine::on(self.0.clone()).default_ttl(ttl)))
        }
    }
    /// What is stuck is found out after `limit`: short where it is to be, else long.
    fn prove(limit: Duration, needs: &'static [Need], run: fn(Context) -> Running) -> Result<(), String> {
        let case = Case { id: "redisson/lock-unlock", path: "here", needs, limit, run };
        let store = Store::start(&Memory);
        match catch_unwind(AssertUnwindSafe(|| store.prove("a trial", &case))) {
            Ok(proved) => proved.map_err(|failed| failed.message().unwrap_or_default().to_owned()),
            Err(panic) => Err(panic.downcast_ref::<String>().cloned().unwrap_or_default()),
        }
    }

    #[test]
    fn what_a_case_does_wrong_is_told() {
        let (short, long) = (Duration::from_millis(300), Duration::from_secs(30));
        let good = |cx: Context| -> Running {
            Box::pin(async move {
                cx.client().await.mutex(cx.name("m")).lock().await.unwrap().release().await.unwrap();
            })
        };
        assert_eq!(prove(long, &[], good), Ok(()));
        let hangs = |_| -> Running { Box::pin(std::future::pending()) };
        assert!(prove(short, &[], hangs).unwrap_err().contains("a trial is stuck"));
        let blocks = |_| -> Running {
            Box::pin(async {
                tokio::spawn(async { std::thread::sleep(Duration::from_secs(2)) });
                std::thread::sleep(Duration::from_secs(2));
            })
        };
        assert!(prove(short, &[], blocks).unwrap_err().contains("a trial is stuck"));
        let panics = |cx: Context| -> Running { Box::pin(async move { panic!("in {}", cx.family().name()) }) };
        assert_eq!(prove(long, &[], panics), Err("in memory".to_owned()));
        // It waits for the leftover to go, and is stuck over it.
        let leaves = |cx: Context| -> Running {
            Box::pin(async move {
                let client = cx.client().await;
                std::mem::forget(client.mutex(cx.name("m")).lock().await.unwrap());
            })
        };
        assert!(prove(short, &[], leaves).is_err());
    }
    #[test]
    fn what_an_engine_lacks_is_told() {
        let store = Store::start(&Memory);
        let missing = |needs: &'static [Need]| {
            let case = Case { id: "x", path: "x", needs, limit: QUIET, run: |_| Box::pin(async {}) };
            store.missing(&case)
        };
        assert_eq!(missing(&[Need::Permits, Need::Tickets]), None);
        assert_eq!(missing(&[Need::Permits, Need::Crash]), Some("its clients can be neither killed nor cut off"));
        assert_eq!(missing(&[Need::Processes]), Some("its store lives in one process"));
        assert_eq!(missing(&[Need::Server]), Some("no server"));
    }
}
