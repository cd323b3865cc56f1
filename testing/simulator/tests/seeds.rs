//! Many seeds with the in-tree plugins: none may show a violation.

use berth_simulator::{
    CONFIGURATION_SEEDS, Campaign, Faults, GROUP_SEEDS, Progress, QUOTA_SEEDS, REJECTION_SEEDS,
    Script, Subject, Tally,
};
use std::hash::{BuildHasher, RandomState};

/// Plays the seeds on all processors. A failure reports its seed immediately, and again with the shortest script.
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
    let notified = |progress: Progress<'_>| match progress {
        Progress::Passed(_) => {}
        Progress::Slow(seed) => eprintln!("seed {seed} takes very long"),
        Progress::Failed(seed, failure) => eprintln!("seed {seed}, {failure}"),
    };
    let outcome = campaign.play(&subject, notified);
    outcome.unwrap_or_else(|found| panic!("{found}"))
}

/// A smoke run, so that `cargo test` is fast; `.ci/run` also plays the campaign.
#[test]
fn no_violation_in_a_few_seeds() {
    let tally = play(0..150, 500, Faults::ALL);
    // The runs must cover the intended situations.
    for (what, count, least) in [
        ("bindings", tally.bindings, 400),
        ("faults", tally.faults, 400),
        ("restarts", tally.restarts, 40),
        ("preemptions", tally.preemptions, 40),
        ("fail-overs", tally.failovers, 15),
        ("refused bindings", tally.refused, 15),
        ("writes of volumes and claims", tally.volumes, 15),
        ("allocations of devices", tally.devices, 100),
    ] {
        assert!(count >= least, "only {count} {what}: {tally:?}");
    }
    let tally = play(100_000..100_050, 500, Faults::NONE);
    assert_eq!((tally.faults, tally.restarts, tally.failovers), (0, 0, 0));
    assert!(tally.bindings > 200, "{tally:?}");
    let first = GROUP_SEEDS.start;
    let tally = play(first..first + 60, 500, Faults::ALL);
    assert!(tally.groups > 40, "{tally:?}");
    assert!(tally.group_preemptions > 10, "{tally:?}");
}

/// Schedulers apply other configurations while pods wait, are attempted and are bound.
#[test]
fn no_violation_while_configurations_change() {
    let first = CONFIGURATION_SEEDS.start;
    let tally = play(first..first + 60, 500, Faults::ALL);
    assert!(tally.configurations > 500, "{tally:?}");
    assert!(tally.bindings > 100, "{tally:?}");
}

/// Deferred quotas, with gangs, failed calls, restarts and fail-overs.
#[test]
fn no_violation_with_quotas() {
    let first = QUOTA_SEEDS.start;
    let tally = play(first..first + 80, 500, Faults::ALL);
    assert!(tally.quota_admissions > 500, "{tally:?}");
    assert!(tally.bindings > 100, "{tally:?}");
    assert!(tally.failovers > 5, "{tally:?}");
    play(first + 100_000..first + 100_040, 500, Faults::NONE);
}

/// PL-360: kubelets reject pods. The nodes are excluded for a while, and no pod is lost.
#[test]
fn no_violation_while_kubelets_reject_pods() {
    let first = REJECTION_SEEDS.start;
    let tally = play(first..first + 80, 500, Faults::ALL);
    assert!(tally.rejections > 200, "{tally:?}");
    assert!(tally.bindings > 200, "{tally:?}");
}

/// The seeds of one kind that `.ci/run` plays.
struct Family {
    name: &'static str,
    seeds: std::ops::Range<u64>,
    /// The number of the first seeds that are played with faults.
    faults: u64,
    /// The number of seeds, from the 100,000th on, that are played without faults.
    no_faults: u64,
    /// The number of further seeds in each run, with faults.
    fresh: u64,
}

fn families() -> [Family; 5] {
    let family = |name, seeds, faults, no_faults, fresh| Family {
        name,
        seeds,
        faults,
        no_faults,
        fresh,
    };
    [
        family("pods", 0..GROUP_SEEDS.start, 1_000, 200, 500),
        family("groups", GROUP_SEEDS, 600, 150, 300),
        family("configurations", CONFIGURATION_SEEDS, 400, 150, 300),
        family("quotas", QUOTA_SEEDS, 300, 100, 200),
        family("rejections by kubelets", REJECTION_SEEDS, 300, 100, 200),
    ]
}

#[test]
#[ignore = "long; a step of .ci/run"]
fn no_violation_in_the_campaign() {
    for family in families() {
        let first = family.seeds.start;
        play(first..first + family.faults, 500, Faults::ALL);
        let first = first + 100_000;
        play(first..first + family.no_faults, 500, Faults::NONE);
    }
}

/// Further seeds in each run. A failure reports its seed, and with it the command that replays it.
#[test]
#[ignore = "long; a step of .ci/run"]
fn no_violation_in_fresh_seeds() {
    for family in families() {
        let starts = family.seeds.end - family.seeds.start - family.fresh;
        let first = family.seeds.start + RandomState::new().hash_one(()) % starts;
        eprintln!("fresh seeds of {} from {first} on", family.name);
        play(first..first + family.fresh, 500, Faults::ALL);
    }
}

/// Seeds that once showed a defect, with a description of the defect.
#[test]
fn seeds_that_failed_once_pass() {
    for (seed, defect) in [
        (
            457_007,
            "the new leader kept a nomination that the old one clears",
        ),
        (
            476_150_009_639,
            "a report was written and cleared before the watch showed it, so the next attempt wrote nothing",
        ),
        (
            313_766_533_099,
            "a report that was due waited to be sent, and was sent after the pod had passed",
        ),
        (
            321_086_949_362,
            "a pod that had passed between two rejections was reported at the time of the first",
        ),
        (
            563_519_829_602,
            "a rejected pod kept the failed binding of the scheduler that led before as its condition",
        ),
        (
            22_822_395_362,
            "devices stayed assumed that the scheduler that led before had allocated to the claim",
        ),
        (
            592_471_052_527,
            "a pod was evicted after its allocation had timed out but was made, and its devices were given to another claim",
        ),
        (
            713_546_304_312,
            "devices were assumed again after another scheduler had allocated and freed the claim",
        ),
        (30_000_001_803, "the same"),
        (
            16_394_326_044,
            "the claim of a nominated pod got a volume, and kept answers about the node did not count it",
        ),
        (
            1_153_770_116,
            "the checker expected a scheduler to know in which version its write was made, although the answer had none",
        ),
        (
            220_461_457_366,
            "the checker took the write of another scheduler for a later one of this scheduler",
        ),
        (
            961_424_995_116,
            "the checker refused devices because two leaders had overdrawn the counters of another node",
        ),
        (
            568_747_077_496,
            "the same; here the new leader sees the claim of the former one only after its own write",
        ),
        (771_702_003_097, "the same"),
        (
            612_453_296_760,
            "a claim was deleted while its allocation was on its way, and pods that waited for the devices were not woken",
        ),
        (
            864_517_130_103,
            "a claim changed while its allocation was on its way, and pods that waited for the devices were not woken",
        ),
        (
            1_530_971,
            "a nomination moved to another node when the status was written, and pods that waited for the first were not woken",
        ),
        (
            1_633_484,
            "a pod that was given up put its devices back on a claim that had been freed and given other devices since",
        ),
        (
            1_808_050,
            "the removal of a report had no response, and the report of the next rejection was dropped as needless",
        ),
        (1_808_686, "the same"),
        (
            1_587_356,
            "the checker expected an end of a nomination that a former leader had written with the removal of a report",
        ),
        (
            2_565_137,
            "a status write was repeated after a timeout for a pod whose profile had been removed",
        ),
        (
            2_097_251,
            "the checker took the last victim of a preemption of a former configuration for a new one",
        ),
        (
            2_097_345,
            "a pod in the queue was rejected by PreEnqueue after a swap, and the report of an earlier rejection was repeated",
        ),
        (2_097_755, "the same"),
        (
            2_098_135,
            "the same after its profile had been removed and had returned",
        ),
        (
            2_097_449,
            "the checker expected no nomination of a pod that is being deleted while its profile is removed",
        ),
        (
            2_097_739,
            "the condition of a pod that was bound while no profile had its scheduler name was not corrected",
        ),
        (2_098_116, "the same"),
        (
            3_958_708,
            "no pod was woken when a pod ended whose binding was not shown yet and whose profile had been removed",
        ),
        (
            3_860_199,
            "the queue kept the set of members that state the reason of their group after a new configuration",
        ),
    ] {
        eprintln!("seed {seed}: {defect}");
        play(seed..seed + 1, 500, Faults::ALL);
    }
}

/// A scheduler that began to lead kept the assumption of an allocation that was refused, because the former leader had
/// allocated the claim and reserved it for the same pod.
#[test]
fn an_allocation_by_another_scheduler_ends_the_assumption() {
    play(794..795, 500, Faults::ALL);
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
            berth_simulator::notify(&subject, &script, &mut listener)
                .unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
        }
        assert!(
            stories[0] == stories[1],
            "seed {seed} went another way the second time"
        );
    }
}
