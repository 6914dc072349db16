//! What a seed decides before anything happens.
use crate::clock::{Drift, MS, Nanos, SEC};
use fastrand::Rng;

/// What sort of trouble there is. Each sort is judged by what is promised under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    /// None, but for pushes that are lost: here order and times are judged most strictly.
    Calm,
    /// Replies are lost, calls arrive twice.
    Lossy,
    /// Messages take seconds.
    Slow,
    /// Processes stop, links break, operators take locks away.
    Faulty,
    /// The store loses what it had.
    Disaster,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Sort {
    Mutex,
    RwLock,
    Semaphore,
    Election,
    Cell,
}
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) name: String,
    pub(crate) sort: Sort,
    pub(crate) size: u32,
}
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    pub(crate) tasks: u8,
    pub(crate) drift: Drift,
    pub(crate) session: bool,
    /// See [`crate::line::Line`].
    pub(crate) breaks: bool,
    pub(crate) quiet: bool,
    pub(crate) chaos: bool,
    pub(crate) observes: bool,
    pub(crate) seed: u64,
}
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) class: Class,
    pub(crate) places: Vec<Place>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) ttl: Nanos,
    /// How long a message takes at most.
    pub(crate) delay: Nanos,
    pub(crate) lost_replies: f64,
    pub(crate) lost_pushes: f64,
    pub(crate) twice: f64,
    /// How often somebody who waits gives up.
    pub(crate) impatience: f64,
    /// Whoever waits at the end gives up.
    pub(crate) gives_up: bool,
    /// How often trouble comes while somebody holds.
    pub(crate) strikes: f64,
    /// Kills, and what else leaves things behind that only leases end.
    pub(crate) kills: bool,
    pub(crate) hold: Nanos,
    pub(crate) think: Nanos,
    pub(crate) seed: u64,
}

pub(crate) fn between(rng: &mut Rng, low: Nanos, high: Nanos) -> Nanos {
    rng.u64(low..=high.max(low))
}
pub(crate) fn chance(rng: &mut Rng, part: f64) -> bool {
    part > 0.0 && rng.f64() < part
}

impl Plan {
    pub(crate) fn new(seed: u64) -> Self {
        // Neighbours differ in their first numbers too.
        let mut rng = Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5eed);
        let class = match rng.u8(0..100) {
            0..20 => Class::Calm,
            20..40 => Class::Lossy,
            40..50 => Class::Slow,
            50..88 => Class::Faulty,
            _ => Class::Disaster,
        };
        let ttl = match rng.u8(0..4) {
            _ if class == Class::Slow => between(&mut rng, 60 * SEC, 150 * SEC),
            0 => between(&mut rng, SEC, 4 * SEC),
            1 | 2 => between(&mut rng, 4 * SEC, 12 * SEC),
            _ => between(&mut rng, 12 * SEC, 40 * SEC),
        };
        let delay = match class {
            Class::Slow => between(&mut rng, 300 * MS, 2_000 * MS),
            Class::Lossy | Class::Faulty if rng.u8(0..3) == 0 => between(&mut rng, 50 * MS, 500 * MS).min(ttl / 12),
            _ if rng.bool() => between(&mut rng, MS, 20 * MS).min(ttl / 30),
            _ => between(&mut rng, 20 * MS, 100 * MS).min(ttl / 30),
        };
        let troubled = !matches!(class, Class::Calm);
        let some = |rng: &mut Rng, most: f64| if troubled && rng.bool() { most * rng.f64() } else { 0.0 };
        let lost_replies = some(&mut rng, 0.3);
        let twice = some(&mut rng, 0.3);
        let lost_pushes = if rng.bool() { rng.f64() } else { 0.0 };
        let places = places(&mut rng);
        let nodes = nodes(&mut rng, class);
        let strikes = match class {
            Class::Faulty | Class::Disaster => 0.2 + 0.4 * rng.f64(),
            _ => 0.0,
        };
        Self {
            class,
            places,
            nodes,
            ttl,
            delay,
            lost_replies,
            lost_pushes,
            twice,
            impatience: match rng.u8(0..3) {
                _ if class == Class::Slow => 0.5,
                0 => 0.0,
                _ => 0.4 * rng.f64(),
            },
            // So that what a cancelled attempt leaves is seen before its lease ends.
            gives_up: rng.bool(),
            strikes,
            kills: matches!(class, Class::Faulty | Class::Disaster) && rng.u8(0..3) == 0,
            hold: between(&mut rng, SEC / 2, 5 * SEC),
            think: between(&mut rng, 12 * SEC, 60 * SEC),
            seed: rng.u64(..),
        }
    }
}
fn places(rng: &mut Rng) -> Vec<Place> {
    let many = 1 + rng.u8(0..3);
    let place = |n: u8, rng: &mut Rng| {
        let sort = match rng.u8(0..20) {
            0..8 => Sort::Mutex,
            8..12 => Sort::RwLock,
            12..16 => Sort::Semaphore,
            16..18 => Sort::Election,
            _ => Sort::Cell,
        };
        let size = rng.u32(2..6);
        Place { name: format!("place/{n}"), sort, size }
    };
    (0..many).map(|n| place(n, rng)).collect()
}
fn nodes(rng: &mut Rng, class: Class) -> Vec<Node> {
    let many = 2 + rng.u8(0..3);
    // An engine with sessions has one history: no copy that lags, in which a hold that was given back lives on with its session.
    let sessions = rng.u8(0..4) == 0 && class != Class::Disaster;
    let mut nodes = Vec::new();
    for _ in 0..many {
        let ppm = [0, 2_000, 9_000, 9_900][rng.usize(0..4)];
        let drift = Drift { ppm, wander: between(rng, SEC / 10, 3 * SEC), phase: between(rng, 0, 400 * SEC) };
        let session = sessions && rng.bool();
        nodes.push(Node {
            tasks: 1 + rng.u8(0..10) / 4,
            drift,
            session,
            breaks: rng.bool(),
            quiet: !session && rng.u8(0..6) == 0,
            chaos: class != Class::Calm && rng.u8(0..3) == 0,
            observes: rng.u8(0..3) == 0,
            seed: rng.u64(..),
        });
    }
    nodes
}
