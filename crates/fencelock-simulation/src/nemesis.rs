//! Trouble: what stops, what breaks, what an operator does, and what a store loses.
use crate::{
    clock::{Nanos, SEC, nanos},
    history::{Fault, WORLD, What},
    line::Line,
    plan::{Class, Sort, between, chance},
    world::{Process, Shared, sleep},
};
use fastrand::Rng;
use fencelock_core::{Client, Gate, memory::MemoryServer};
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering::Relaxed},
};

/// What can be done to everybody.
pub(crate) struct Nemesis {
    targets: Vec<Target>,
    server: Arc<MemoryServer>,
    pub(crate) admin: Client,
    state: Mutex<State>,
}
struct Target {
    gate: Gate,
    line: Arc<Line>,
}
#[derive(Default)]
struct State {
    /// What somebody suffers from now; one thing at a time.
    under: BTreeSet<(u8, u8)>,
    killed: BTreeSet<u8>,
    calm: bool,
    /// By how much the wall clock was set, in µs.
    wall: i64,
}
const fn code(fault: Fault) -> u8 {
    match fault {
        Fault::Pause => 0,
        Fault::Cut => 1,
        Fault::Deaf => 2,
        Fault::Kill => 3,
    }
}

impl Nemesis {
    pub(crate) fn new(processes: &[Process], server: Arc<MemoryServer>, admin: Client) -> Self {
        let target = |process: &Process| Target { gate: process.gate.clone(), line: process.line.clone() };
        Self { targets: processes.iter().map(target).collect(), server, admin, state: Mutex::default() }
    }
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    pub(crate) fn killed(&self) -> BTreeSet<u8> {
        self.state().killed.clone()
    }
    fn set(&self, fault: Fault, who: u8, on: bool) {
        let Target { gate, line } = &self.targets[usize::from(who)];
        match (fault, on) {
            (Fault::Pause, true) => gate.shut(),
            (Fault::Pause, false) => gate.open(),
            (Fault::Cut, true) => line.cut(),
            (Fault::Cut, false) => line.heal(),
            (Fault::Deaf, on) => line.deaf(on),
            (Fault::Kill, _) => {
                gate.shut();
                line.cut();
            }
        }
    }
    /// Somebody is struck, for a while; a killed process for good.
    pub(crate) fn strike(shared: &Arc<Shared>, fault: Fault, who: u8, d: Nanos) {
        let this = &shared.nemesis;
        {
            let mut state = this.state();
            // The others must be able to go on.
            let last = fault == Fault::Kill && state.killed.len() + 2 > this.targets.len();
            if state.calm || last || state.killed.contains(&who) || !state.under.insert((who, code(fault))) {
                return;
            }
            if fault == Fault::Kill {
                state.killed.insert(who);
            }
        }
        shared.log(WORLD, What::Began { fault, who });
        this.set(fault, who, true);
        if fault != Fault::Kill {
            let shared = shared.clone();
            drop(tokio::spawn(async move {
                sleep(d).await;
                Self::relieve(&shared, fault, who);
            }));
        }
    }
    fn relieve(shared: &Shared, fault: Fault, who: u8) {
        let this = &shared.nemesis;
        {
            let mut state = this.state();
            if state.killed.contains(&who) || !state.under.remove(&(who, code(fault))) {
                return;
            }
        }
        shared.log(WORLD, What::Ended { fault, who });
        this.set(fault, who, false);
    }
    /// Everything is healed, and stays so.
    pub(crate) fn calm(&self, shared: &Shared) {
        self.state().calm = true;
        let under = self.state().under.clone();
        for (who, fault) in under {
            let fault = [Fault::Pause, Fault::Cut, Fault::Deaf, Fault::Kill][usize::from(fault)];
            Self::relieve(shared, fault, who);
        }
        shared.log(WORLD, What::Calm);
    }
    /// Steps of the wall clock add up.
    fn step(shared: &Shared, by: i64) {
        let this = &shared.nemesis;
        this.state().wall += by;
        let off = this.state().wall;
        shared.log(WORLD, What::Wall { by });
        this.server.set_wall(shared.wall() + off);
    }
    /// An operator takes away whatever he finds.
    async fn force(&self, shared: &Shared, name: u8) {
        let place = &shared.plan.places[usize::from(name)].name;
        let Ok(status) = self.admin.inspect(place).await else { return };
        let Some(holder) = status.holders.first() else { return };
        shared.log(WORLD, What::Forced { name, hold: holder.hold });
        drop(self.admin.force_release(place, holder.token).await);
    }
    async fn resize(&self, shared: &Shared, name: u8, rng: &mut Rng) {
        let (from, to) = (shared.sizes[usize::from(name)].load(Relaxed), rng.u32(2..7));
        let place = &shared.plan.places[usize::from(name)].name;
        if self.admin.semaphore(place, from).resize(from, to).await.is_ok() {
            shared.sizes[usize::from(name)].store(to, Relaxed);
            shared.log(WORLD, What::Resized { name, to });
        }
    }
}

/// Now and then something happens that has nothing to do with what anybody does. What strikes a holder is up to him: see
/// `work::hold`.
pub(crate) async fn trouble(shared: Arc<Shared>, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let mut copy = None;
    let clients = u8::try_from(shared.plan.nodes.len()).unwrap_or(1);
    let places = u8::try_from(shared.plan.places.len()).unwrap_or(1);
    let class = shared.plan.class;
    loop {
        sleep(between(&mut rng, 5 * SEC, 70 * SEC)).await;
        let (nemesis, name, who) = (&shared.nemesis, rng.u8(0..places), rng.u8(0..clients));
        if shared.plan.places[usize::from(name)].sort == Sort::Semaphore && class != Class::Disaster && rng.bool() {
            nemesis.resize(&shared, name, &mut rng).await;
            continue;
        }
        if class == Class::Disaster && rng.u8(0..3) == 0 {
            match copy.take() {
                None => {
                    copy = Some(nemesis.server.snapshot());
                    shared.log(WORLD, What::Copied);
                }
                Some(lagging) if rng.bool() => {
                    shared.log(WORLD, What::FailedOver);
                    nemesis.server.restore(lagging);
                }
                Some(_) => {
                    shared.log(WORLD, What::DataLost);
                    nemesis.server.lose_data();
                }
            }
            continue;
        }
        if rng.u8(0..4) == 0 && class != Class::Calm {
            let by = [1_000_000, -1_000_000, 3_600_000_000, -3_600_000_000][rng.usize(0..4)];
            Nemesis::step(&shared, by);
            continue;
        }
        if !matches!(class, Class::Faulty | Class::Disaster) {
            continue;
        }
        let d = between(&mut rng, SEC / 10, 2 * shared.plan.ttl);
        match rng.u8(0..12) {
            0..3 => Nemesis::strike(&shared, Fault::Pause, who, d),
            3..5 => Nemesis::strike(&shared, Fault::Cut, who, d),
            5..7 => Nemesis::strike(&shared, Fault::Deaf, who, d),
            7 if shared.plan.kills && chance(&mut rng, 0.3) => Nemesis::strike(&shared, Fault::Kill, who, 0),
            8 if rng.u8(0..4) == 0 && shared.plan.nodes.iter().any(|node| node.session) => {
                shared.log(WORLD, What::SessionsEnded);
                nemesis.server.end_sessions();
            }
            _ => nemesis.force(&shared, name).await,
        }
    }
}
/// Now and then somebody looks at the store: a hold that nobody has must not stand there for long.
pub(crate) async fn audit(shared: Arc<Shared>) {
    while !shared.is_closing() {
        sleep(17 * SEC).await;
        for (name, place) in (0u8..).zip(&shared.plan.places) {
            let Ok(status) = shared.nemesis.admin.inspect(&place.name).await else { continue };
            for holder in status.holders {
                let since = shared.history.now().saturating_sub(nanos(holder.held_for));
                shared.log(WORLD, What::Stands { name, hold: holder.hold, since });
            }
        }
    }
}
