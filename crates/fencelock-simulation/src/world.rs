//! One history: a store, its clients and what they do, trouble, and quiet at the end. Everything follows from the seed.
use crate::{
    clock::{MS, Nanos, SEC, Time, nanos},
    history::{Event, History, WORLD, What},
    line::Line,
    nemesis::Nemesis,
    plan::{Class, Node, Plan, Sort},
    work::{self, Resource},
};
use fastrand::Rng;
use fencelock_core::{
    Chaos, Client, Engine, Gate, Ticket,
    memory::{Link, MemoryEngine, MemoryServer},
};
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    runtime::{Builder, Handle},
    sync::Notify,
    task::JoinSet,
};

/// How long there may be trouble: everybody goes on until then.
pub(crate) const TROUBLE: Nanos = 600 * SEC;
/// What the world's wall clock shows at its beginning, in µs: some day.
const WALL: i64 = 1_700_000_000_000_000;

/// A process: all that stops when it is stopped.
pub(crate) struct Process {
    pub(crate) id: u8,
    pub(crate) node: Node,
    pub(crate) client: Client,
    pub(crate) gate: Gate,
    pub(crate) line: Arc<Line>,
}
/// What everybody has in common.
pub(crate) struct Shared {
    pub(crate) plan: Plan,
    pub(crate) history: History,
    pub(crate) resources: Vec<Mutex<Resource>>,
    /// The size of each semaphore, as its admin has set it last.
    pub(crate) sizes: Vec<AtomicU32>,
    pub(crate) tickets: Mutex<Vec<(u8, Ticket)>>,
    /// Until when something stays taken that was released (`at_least`).
    pub(crate) stays: AtomicU64,
    /// No work and no trouble is begun any more.
    pub(crate) closing: AtomicBool,
    pub(crate) closes: Notify,
    pub(crate) nemesis: Nemesis,
}
impl Shared {
    pub(crate) fn log(&self, client: u8, what: What) {
        self.history.log(client, what);
    }
    /// Nothing is begun any more.
    pub(crate) async fn closed(&self) {
        let mut closes = std::pin::pin!(self.closes.notified());
        closes.as_mut().enable();
        if !self.is_closing() {
            closes.await;
        }
    }
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Relaxed)
    }
    /// What the wall clock would show that nobody has set, in µs.
    pub(crate) fn wall(&self) -> i64 {
        WALL + i64::try_from(self.history.now() / 1_000).unwrap_or(0)
    }
    pub(crate) fn tickets(&self) -> MutexGuard<'_, Vec<(u8, Ticket)>> {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The whole history of a seed.
pub(crate) fn history(seed: u64) -> (Plan, Vec<Event>) {
    fastrand::seed(seed); // the jitter of renewals
    let plan = Plan::new(seed);
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.unwrap_or_else(|error| panic!("no runtime: {error}"));
    let events = runtime.block_on(run(plan.clone()));
    (plan, events)
}

async fn run(plan: Plan) -> Vec<Event> {
    let time = Time::start();
    let mut rng = Rng::with_seed(plan.seed);
    let server = MemoryServer::new(time.server());
    server.set_wall(WALL);
    if plan.lost_pushes > 0.0 {
        server.lose_pushes(plan.lost_pushes, rng.u64(..));
    }
    let processes: Vec<_> =
        (0u8..).zip(&plan.nodes).map(|(id, node)| process(id, *node, &plan, time, &server)).collect();
    let admin = Client::builder(Arc::new(MemoryEngine::on(server.clone()))).clock(time.server()).keeper_here().seed(77);
    let admin = admin.build().unwrap_or_else(|error| panic!("{error}"));
    for place in plan.places.iter().filter(|place| place.sort == Sort::Semaphore) {
        let stored = admin.semaphore(&place.name, place.size).resize(place.size, place.size).await;
        stored.unwrap_or_else(|error| panic!("{error}"));
    }
    let shared = Arc::new(Shared {
        history: History::new(time),
        resources: plan.places.iter().map(|_| Mutex::default()).collect(),
        sizes: plan.places.iter().map(|place| AtomicU32::new(place.size)).collect(),
        tickets: Mutex::default(),
        stays: AtomicU64::new(0),
        closing: AtomicBool::new(false),
        closes: Notify::new(),
        nemesis: Nemesis::new(&processes, server.clone(), admin.clone()),
        plan,
    });
    let processes: Vec<_> = processes.into_iter().map(Arc::new).collect();
    let mut tasks = JoinSet::new();
    let mut observers = JoinSet::new();
    for process in &processes {
        for _ in 0..process.node.tasks {
            let task = work::work(process.clone(), shared.clone(), rng.u64(..));
            tasks.spawn(process.gate.clone().through(task));
        }
        for (name, place) in (0u8..).zip(&shared.plan.places) {
            if place.sort == Sort::Election && process.node.observes {
                let task = work::observe(process.clone(), shared.clone(), name);
                observers.spawn(process.gate.clone().through(task));
            }
        }
    }
    let trouble = tokio::spawn(crate::nemesis::trouble(shared.clone(), rng.u64(..)));
    if !matches!(shared.plan.class, Class::Faulty | Class::Disaster) {
        drop(tokio::spawn(crate::nemesis::audit(shared.clone())));
    }
    tokio::time::sleep(Duration::from_nanos(TROUBLE)).await;
    shared.closing.store(true, Relaxed);
    trouble.abort();
    shared.nemesis.calm(&shared);
    shared.closes.notify_waiters();
    finish(&shared, &processes, &admin, &server, tasks).await;
    observers.abort_all();
    shared.history.take()
}

/// The end: everybody ends what he does, what is left behind is cleared away, and then nothing may be there.
async fn finish(
    shared: &Arc<Shared>,
    processes: &[Arc<Process>],
    admin: &Client,
    server: &Arc<MemoryServer>,
    mut tasks: JoinSet<()>,
) {
    let killed = shared.nemesis.killed();
    let lost: usize =
        processes.iter().filter(|process| killed.contains(&process.id)).map(|p| usize::from(p.node.tasks)).sum();
    let ended = tokio::time::timeout(Duration::from_nanos(patience(&shared.plan)), async {
        while tasks.len() > lost {
            tasks.join_next().await;
        }
    });
    if ended.await.is_err() {
        shared.log(WORLD, What::Stuck { tasks: u32::try_from(tasks.len() - lost).unwrap_or(u32::MAX) });
    }
    let after = quiet(shared, !killed.is_empty());
    tokio::time::sleep(Duration::from_nanos(after)).await;
    let (held, queued) = server.census();
    let clients: usize = processes.iter().filter(|p| !killed.contains(&p.id)).map(|p| p.client.held()).sum();
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    shared.log(WORLD, What::Census { held: count(held), queued: count(queued), clients: count(clients), after });
    for (name, place) in (0u8..).zip(&shared.plan.places) {
        if place.sort == Sort::Cell {
            let value = admin.cell(&place.name).load().await.ok().and_then(|now| now.value);
            shared.log(WORLD, What::CellIs { name, value: work::number(value.as_deref()) });
        }
    }
}
/// How long it may take until everybody has ended, one after the other.
fn patience(plan: &Plan) -> Nanos {
    let tasks: u64 = plan.nodes.iter().map(|node| u64::from(node.tasks)).sum();
    60 * SEC + 2 * plan.ttl + (tasks + 2) * (200 * SEC + 3 * plan.ttl)
}
/// After so long nothing is left: what somebody had withdraws takes some messages, what nobody withdraws its lease.
fn quiet(shared: &Shared, killed: bool) -> Nanos {
    let plan = &shared.plan;
    let leases = killed || plan.class == Class::Disaster || !shared.tickets().is_empty();
    let stays = shared.stays.load(Relaxed).saturating_sub(shared.history.now());
    let messages = stays + 5 * SEC + 12 * plan.delay;
    if leases { messages + 3 * plan.ttl } else { messages }
}

fn process(id: u8, node: Node, plan: &Plan, time: Time, server: &Arc<MemoryServer>) -> Process {
    let mut rng = Rng::with_seed(node.seed);
    let (delay, clock) = (Duration::from_nanos(plan.delay), time.client(node.drift));
    let link = Link::new(Handle::current(), delay).lose_replies(plan.lost_replies).seed(rng.u64(..));
    let memory = MemoryEngine::on(server.clone()).default_ttl(Duration::from_nanos(plan.ttl));
    let memory = memory.clock(clock.clone()).over(link);
    let memory = if node.session { memory.with_session(Duration::from_nanos(plan.ttl)) } else { memory };
    let mut engine: Arc<dyn Engine> = Arc::new(memory);
    if node.chaos {
        let chaos = Chaos::new(engine).seed(rng.u64(..)).repeat(plan.twice).lose_replies(plan.lost_replies / 2.0);
        engine = Arc::new(chaos.delay(Duration::from_nanos((plan.delay / 2).min(50 * MS))));
    }
    let line = Arc::new(Line::new(engine, node.breaks, node.quiet));
    let gate = Gate::default().shuffled(rng.u64(..));
    let builder = Client::builder(line.clone()).clock(clock).keeper_here().gate(gate.clone());
    let client = builder.seed(node.seed).build().unwrap_or_else(|error| panic!("{error}"));
    Process { id, node, client, gate, line }
}

/// Sleeps for so long of true time.
pub(crate) async fn sleep(d: Nanos) {
    tokio::time::sleep(Duration::from_nanos(d)).await;
}
pub(crate) fn duration(d: Nanos) -> Duration {
    Duration::from_nanos(d)
}
pub(crate) fn whole(d: Duration) -> Nanos {
    nanos(d)
}
