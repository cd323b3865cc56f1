//! The two evaluators on random clusters and events: every decision is made by both, and they must agree.
//!
//! Recorded decisions show a cluster at one time. In these tests clusters change: volumes of every kind and their
//! objects, devices and claims, disruption budgets, nominated and other pending pods, preemption because of ports,
//! spread, anti-affinity and volumes, services with default spreading, two profiles, a percentage of nodes to score,
//! and nodes that are deleted and created again under the same name with other labels.
//!
//! A failure names its seed; with that as [`ONLY`] it is run alone.

// A test may use threads; it is not part of the core.
#![allow(clippy::disallowed_methods)]

mod devices;
mod draw;
mod many;
mod storage;
mod world;

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use world::World;

/// The number of events in each cluster.
const STEPS: usize = 100;

/// A seed to run alone.
const ONLY: Option<u64> = None;

/// The results of several clusters.
#[derive(Debug, Default)]
struct Totals {
    clusters: u64,
    placed: u64,
    unfit: u64,
    failed: u64,
    writes: u64,
    evictions: u64,
    kept: u64,
    plain: u64,
}

impl Totals {
    fn add(&mut self, world: &World) {
        let counts = world.core.answer_cache().counts();
        self.clusters += 1;
        self.placed += world.placed;
        self.unfit += world.unfit;
        self.failed += world.failed;
        self.writes += world.writes;
        self.evictions += world.evictions;
        self.kept += counts.kept;
        self.plain += counts.plain;
    }

    fn and(mut self, other: &Self) -> Self {
        self.clusters += other.clusters;
        self.placed += other.placed;
        self.unfit += other.unfit;
        self.failed += other.failed;
        self.writes += other.writes;
        self.evictions += other.evictions;
        self.kept += other.kept;
        self.plain += other.plain;
        self
    }
}

fn play(seed: u64) -> World {
    let world = std::panic::catch_unwind(|| {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step();
        }
        world
    });
    world.unwrap_or_else(|cause| {
        eprintln!("seed {seed}: run it alone with ONLY = Some({seed})");
        std::panic::resume_unwind(cause)
    })
}

/// Plays the seeds on all processors, and checks that the clusters covered the intended situations.
fn play_all(seeds: Range<u64>) {
    let seeds = ONLY.map_or(seeds, |seed| seed..seed + 1);
    let next = AtomicU64::new(seeds.start);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let totals = thread::scope(|scope| {
        let worker = || {
            let mut totals = Totals::default();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds.end {
                    return totals;
                }
                totals.add(&play(seed));
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        let played = workers.into_iter().map(|worker| match worker.join() {
            Ok(totals) => totals,
            Err(cause) => std::panic::resume_unwind(cause),
        });
        played.fold(Totals::default(), |all, totals| all.and(&totals))
    });
    eprintln!("{totals:?}");
    if ONLY.is_none() {
        for (what, count, least) in [
            ("placed pods", totals.placed, 15),
            ("pods without a node", totals.unfit, 15),
            ("decisions from kept answers", totals.kept, 100),
            ("decisions of the plain evaluator", totals.plain, 10),
            ("writes of volumes and claims", totals.writes, 0),
            ("evictions", totals.evictions, 0),
        ] {
            let enough = count > 0 && count >= least * totals.clusters;
            assert!(enough, "only {count} {what}: {totals:?}");
        }
    }
}

/// A few clusters, so that `cargo test` is fast; `.ci/run` plays a thousand.
#[test]
fn both_evaluators_decide_the_same_whatever_happens() {
    play_all(0..60);
}

/// Clusters in which the evaluators once differed: answers shared by pods whose images no node had; dry runs kept
/// although devices shared by many nodes had been allocated, or although a pod had replaced an equal one.
#[test]
fn both_evaluators_decide_the_same_where_they_once_differed() {
    for seed in [732_324_982_144, 175_628_183_442, 632_033_968_882] {
        play(seed);
    }
}

/// Other clusters in each run.
#[test]
#[ignore = "long; a step of .ci/run"]
fn both_evaluators_decide_the_same_in_a_thousand_fresh_clusters() {
    let first = RandomState::new().hash_one(()) % (1 << 40);
    eprintln!("fresh seeds from {first} on");
    play_all(first..first + 1_000);
}
