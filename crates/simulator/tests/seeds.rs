//! Many seeds with the in-tree plugins: not one may show a violation.

use berth_simulator::{Campaign, Faults, Progress, Script, Subject, Tally};

/// Seeds with faults, without faults, and the steps of each.
const SEEDS: (std::ops::Range<u64>, std::ops::Range<u64>, usize) =
    (0..2_000, 100_000..100_500, 500);

/// Plays the seeds on all processors. A failure names its seed, at once and again with the shortest script.
fn play(seeds: std::ops::Range<u64>, steps: usize, faults: Faults) -> Tally {
    let subject = Subject::in_tree().unwrap_or_else(|e| panic!("{e}"));
    let campaign = Campaign {
        first: seeds.start,
        seeds: seeds.end - seeds.start,
        steps,
        faults,
        shrink_runs_max: 1_000,
        ..Campaign::default()
    };
    let told = |progress: Progress<'_>| match progress {
        Progress::Passed(_) => {}
        Progress::Slow(seed) => eprintln!("seed {seed} takes very long"),
        Progress::Failed(seed, failure) => eprintln!("seed {seed}, {failure}"),
    };
    let outcome = campaign.play(&subject, told);
    outcome.unwrap_or_else(|found| panic!("{found}"))
}

#[test]
fn no_violation_while_everything_fails_now_and_then() {
    let (seeds, _, steps) = SEEDS;
    let tally = play(seeds, steps, Faults::ALL);
    // The runs have met what they are for.
    for (what, count, least) in [
        ("bindings", tally.bindings, 5_000),
        ("faults", tally.faults, 5_000),
        ("restarts", tally.restarts, 500),
        ("preemptions", tally.preemptions, 500),
        ("fail-overs", tally.failovers, 200),
        ("refused bindings", tally.refused, 200),
        ("writes of volumes and claims", tally.volumes, 200),
    ] {
        assert!(count >= least, "only {count} {what}: {tally:?}");
    }
}

#[test]
fn no_violation_while_nothing_fails() {
    let (_, seeds, steps) = SEEDS;
    let tally = play(seeds, steps, Faults::NONE);
    assert_eq!((tally.faults, tally.restarts, tally.failovers), (0, 0, 0));
    assert!(tally.bindings > 2_000, "{tally:?}");
}

/// A scheduler that stops leading clears the nomination of a pod while the new leader, without asynchronous calls, is
/// still writing that pod's status: the new leader evicted a second victim and kept the first nomination.
#[test]
fn a_nomination_that_another_scheduler_clears_is_noticed() {
    let seed = 457_007;
    play(seed..seed + 1, 500, Faults::ALL);
}

#[test]
fn a_seed_replays_exactly() {
    let subject = Subject::in_tree().unwrap_or_else(|e| panic!("{e}"));
    for seed in [3, 14, 159] {
        let script = Script::draw(seed, 300, Faults::ALL);
        let mut stories = [String::new(), String::new()];
        for story in &mut stories {
            let mut listener = |line: &str| {
                story.push_str(line);
                story.push('\n');
            };
            berth_simulator::tell(&subject, &script, &mut listener)
                .unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
        }
        assert!(
            stories[0] == stories[1],
            "seed {seed} went another way the second time"
        );
    }
}
