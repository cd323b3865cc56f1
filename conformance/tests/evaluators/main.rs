//! The two evaluators on random clusters and events: every decision is made by both, and they must agree.
//!
//! What single recorded decisions do not show is here: nominated and other pending pods, preemption through ports,
//! spread, anti-affinity and volumes, services with default spreading, two profiles, a percentage of nodes to score,
//! nodes that go and return under the same name with other labels.
//!
//! A failure names its seed; with that as [`ONLY`] it is run alone.

mod draw;
mod world;

use world::World;

/// How many clusters a run of all tests looks at, and how many events each sees.
const SEEDS: u64 = 200;
const STEPS: usize = 120;

/// A seed to run alone.
const ONLY: Option<u64> = None;

#[test]
fn both_evaluators_decide_the_same_whatever_happens() {
    let seeds = ONLY.map_or(0..SEEDS, |seed| seed..seed + 1);
    let count = seeds.end - seeds.start;
    let (mut kept, mut plain, mut placed, mut unfit) = (0, 0, 0, 0);
    for seed in seeds {
        let world = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            for _ in 0..STEPS {
                world.step();
            }
            world
        });
        let world = world.unwrap_or_else(|cause| {
            eprintln!("seed {seed}: run it alone with ONLY = Some({seed})");
            std::panic::resume_unwind(cause)
        });
        let counts = world.core.keeper().counts();
        kept += counts.kept;
        plain += counts.plain;
        placed += world.placed;
        unfit += world.unfit;
    }
    eprintln!(
        "{count} clusters: {placed} pods placed, {unfit} turned down; {kept} decisions from kept answers, {plain} plain"
    );
    if count == SEEDS {
        assert!(
            placed > 3_000 && unfit > 2_000,
            "{placed} placed, {unfit} turned down"
        );
        assert!(kept > 50_000, "{kept} decisions from kept answers");
        assert!(
            plain > 1_000,
            "{plain} decisions left to the plain evaluator"
        );
    }
}
