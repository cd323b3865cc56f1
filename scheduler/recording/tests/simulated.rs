//! Recordings of runs of the simulator, with all faults, replay to the same decisions and calls; damaged ones name the
//! byte and replay up to it.

// A test writes files.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use berth_framework::FeatureGates;
use berth_framework::registry::Registry;
use berth_recording::{
    Entry, FILE_HEADER_LEN, Follow, Limits, Pseudonyms, Recorder, RecorderOptions,
    ReplayDifference, Replayed, ReplayedTexts, RunEntries, Start, Stop, Until, replay, runs,
};
use berth_scheduler::evaluator::EvaluatorKind;
use berth_scheduler::profile::ProfileSpec;
use berth_scheduler::{Reconfiguration, Scheduler, SchedulerOptions};
use berth_simulator::{CONFIGURATION_SEEDS, Faults, Script, Subject, run};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use tempfile::TempDir;

/// Nothing is removed, and there is one file.
const NO_LIMITS: Limits = Limits {
    bytes: u64::MAX,
    file_bytes: u64::MAX,
};
/// Faults without which one scheduler runs from the beginning to the end.
const ONE_SCHEDULER: &str = "calls,watches";

/// The options that a recording of the simulator does not contain.
#[derive(Clone)]
struct Setup {
    profiles: Vec<ProfileSpec>,
    features: FeatureGates,
    evaluator: EvaluatorKind,
    seed: u64,
    flush: berth_api::Duration,
    percentage: Option<i32>,
    backoffs: (berth_api::Duration, berth_api::Duration),
}

impl Setup {
    fn scheduler(&self, subject: &Subject, start: &Start) -> Scheduler {
        let options = SchedulerOptions {
            profiles: self.profiles.clone(),
            features: self.features,
            evaluator: self.evaluator,
            seed: self.seed,
            pod_max_in_unschedulable_pods_duration: self.flush,
            percentage_of_nodes_to_score: self.percentage,
            pod_initial_backoff: self.backoffs.0,
            pod_max_backoff: self.backoffs.1,
            ..SchedulerOptions::default()
        };
        let now = berth_api::Time::from_nanos(start.at_nanos);
        Scheduler::new(options, &subject.registry, now).expect("the options of the run")
    }
}

fn scratch() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn one_scheduler() -> Faults {
    ONE_SCHEDULER.parse().expect("faults")
}

/// Runs a seed; each of its schedulers is recorded as a separate run.
fn record(
    seed: u64,
    steps: usize,
    faults: Faults,
    limits: Limits,
    dir: &Path,
) -> (Subject, Vec<Setup>) {
    record_with(seed, steps, faults, limits, dir, || None)
}

fn record_with(
    seed: u64,
    steps: usize,
    faults: Faults,
    limits: Limits,
    dir: &Path,
    pseudonyms: fn() -> Option<Pseudonyms>,
) -> (Subject, Vec<Setup>) {
    let mut subject = Subject::in_tree().expect("plugins");
    let setups = Arc::new(Mutex::new(Vec::new()));
    let threads: Arc<Mutex<Vec<JoinHandle<()>>>> = Arc::default();
    let (all, joined, path) = (setups.clone(), threads.clone(), dir.to_owned());
    subject.observe = Some(Arc::new(move |options: &SchedulerOptions, now| {
        let mut setups = all.lock().expect("no panic");
        setups.push(Setup {
            profiles: options.profiles.clone(),
            features: options.features,
            evaluator: options.evaluator,
            seed: options.seed,
            flush: options.pod_max_in_unschedulable_pods_duration,
            percentage: options.percentage_of_nodes_to_score,
            backoffs: (options.pod_initial_backoff, options.pod_max_backoff),
        });
        let start = Start {
            version: "test".into(),
            at_nanos: now.as_nanos(),
            seed: options.seed,
            evaluator: options.evaluator.to_string(),
            pod_max_in_unschedulable_pods_nanos: 0,
            release: String::new(),
            min_compatibility_minor: 0,
            feature_gates: String::new(),
            configuration: String::new(),
            pseudonyms: false,
        };
        let options = RecorderOptions {
            dir: path.clone(),
            limits,
            run: setups.len() as u64 - 1,
            pseudonyms: pseudonyms(),
        };
        let (recorder, _, thread) = Recorder::start(options, start).expect("files");
        joined.lock().expect("no panic").push(thread);
        Some(Box::new(recorder))
    }));
    let script = Script::draw(seed, steps, faults);
    // Violations are the subject of other tests: the recording ends where the run ends.
    let _ = run(&subject, &script);
    for thread in threads.lock().expect("no panic").drain(..) {
        thread.join().expect("the recorder has written everything");
    }
    let setups = setups.lock().expect("no panic").clone();
    (subject, setups)
}

/// Collects the differences, and takes over the configurations of the simulator by their numbers.
struct Report<'a> {
    subject: &'a Subject,
    differences: &'a mut Vec<String>,
}

impl Follow for Report<'_> {
    fn differs(&mut self, difference: &ReplayDifference) {
        self.differences.push(difference.to_string());
    }

    fn reconfiguration(&mut self, number: &str) -> Result<(Reconfiguration, Registry), String> {
        let number = number.parse().map_err(|_| format!("no number: {number}"))?;
        let registry = self.subject.registry.clone();
        Ok((self.subject.configuration(number), registry))
    }
}

fn replayed(
    dir: &Path,
    at: usize,
    subject: &Subject,
    setup: &Setup,
    until: &Until,
) -> (Replayed, Vec<String>) {
    let run = &runs(dir).expect("a recording")[at];
    let mut entries = RunEntries::of(run);
    let Some(Ok(first)) = entries.next() else {
        panic!("no first entry");
    };
    let Entry::Start(start) = first.entry else {
        panic!("{first:?}");
    };
    let mut scheduler = setup.scheduler(subject, &start);
    let mut differences = Vec::new();
    let mut texts = ReplayedTexts::default();
    let mut report = Report {
        subject,
        differences: &mut differences,
    };
    let result = replay(entries, &mut scheduler, until, &mut texts, &mut report);
    (result, differences)
}

#[test]
fn every_scheduler_of_a_run_replays_to_the_same_decisions_and_calls() {
    let mut decisions = 0;
    for seed in 0..25 {
        let dir = scratch();
        let (subject, setups) = record(seed, 300, Faults::ALL, NO_LIMITS, dir.path());
        for (at, setup) in setups.iter().enumerate() {
            let (result, differences) =
                replayed(dir.path(), at, &subject, setup, &Until::default());
            assert_eq!(differences, [""; 0], "seed {seed}, scheduler {at}");
            assert_eq!(result.stop, Stop::End, "seed {seed}, scheduler {at}");
            decisions += result.decisions;
        }
    }
    assert!(decisions > 500, "{decisions}");
}

/// A recording contains the configurations that were taken over, and the replayed scheduler takes them over, too.
#[test]
fn a_scheduler_that_takes_over_configurations_replays_to_the_same_decisions_and_calls() {
    let (mut decisions, mut taken_over) = (0, 0);
    for seed in CONFIGURATION_SEEDS.start..CONFIGURATION_SEEDS.start + 10 {
        let dir = scratch();
        let (subject, setups) = record(seed, 300, Faults::ALL, NO_LIMITS, dir.path());
        for (at, setup) in setups.iter().enumerate() {
            let (result, differences) =
                replayed(dir.path(), at, &subject, setup, &Until::default());
            assert_eq!(differences, [""; 0], "seed {seed}, scheduler {at}");
            assert_eq!(result.stop, Stop::End, "seed {seed}, scheduler {at}");
            decisions += result.decisions;
            let run = &runs(dir.path()).expect("a recording")[at];
            let entries = RunEntries::of(run).flatten().map(|found| found.entry);
            taken_over += entries
                .filter(|e| matches!(e, Entry::Reconfigure(_)))
                .count();
        }
    }
    assert!(
        decisions > 100 && taken_over > 50,
        "{decisions} {taken_over}"
    );
}

/// The names of the simulator are in no recording with pseudonyms, and it replays to the same decisions and calls.
#[test]
fn a_run_with_pseudonyms_replays_to_the_same_decisions_and_calls() {
    let mut decisions = 0;
    for seed in 0..25 {
        let dir = scratch();
        // The plugins of the simulator compare these.
        let pseudonyms = || {
            let pseudonyms = Pseudonyms::new().expect("random numbers");
            let stages = ["reserve", "permit", "timer", "job"];
            let compared = ["example.com", "app", "blue"].into_iter().chain(stages);
            Some(pseudonyms.keeping(compared))
        };
        let (subject, setups) = record_with(
            seed,
            300,
            one_scheduler(),
            NO_LIMITS,
            dir.path(),
            pseudonyms,
        );
        for (at, setup) in setups.iter().enumerate() {
            let (result, differences) =
                replayed(dir.path(), at, &subject, setup, &Until::default());
            assert_eq!(differences, [""; 0], "seed {seed}, scheduler {at}");
            assert_eq!(result.stop, Stop::End, "seed {seed}, scheduler {at}");
            decisions += result.decisions;
        }
        let names = scratch();
        record(seed, 300, one_scheduler(), NO_LIMITS, names.path());
        let of = |dir: &TempDir| -> Vec<String> {
            let run = &runs(dir.path()).expect("a recording")[0];
            let objects =
                RunEntries::of(run).filter_map(|found| match found.expect("whole").entry {
                    Entry::Item(object) | Entry::Apply(object) => Some(object),
                    _ => None,
                });
            objects.map(|o| o.metadata().name.to_string()).collect()
        };
        let (names, pseudonyms) = (of(&names), of(&dir));
        assert_eq!(names.len(), pseudonyms.len(), "seed {seed}");
        let kept = names.iter().zip(&pseudonyms).find(|(name, pseudonym)| {
            let is_known = ["default", "kube-system", "app", "blue"].contains(&name.as_str());
            name == pseudonym && !is_known
        });
        assert!(kept.is_none(), "seed {seed}: {kept:?}");
    }
    assert!(decisions > 500, "{decisions}");
}

/// Another core is noticed: the comparison can fail.
#[test]
fn a_core_with_another_seed_or_profile_differs() {
    let dir = scratch();
    let (subject, setups) = record(3, 500, one_scheduler(), NO_LIMITS, dir.path());
    let mut other = setups[0].clone();
    other.profiles.reverse();
    for profile in &mut other.profiles {
        let disabled = &mut profile.plugins.multi_point.disabled;
        disabled.push("NodeResourcesFit".to_owned());
    }
    let (result, differences) = replayed(dir.path(), 0, &subject, &other, &Until::default());
    assert!(result.differences > 0);
    assert_eq!(result.differences, differences.len() as u64);
}

#[test]
fn a_replay_stops_where_it_is_asked_to() {
    let dir = scratch();
    let (subject, setups) = record(5, 300, one_scheduler(), NO_LIMITS, dir.path());
    let (whole, _) = replayed(dir.path(), 0, &subject, &setups[0], &Until::default());
    let until = Until {
        entry: Some(whole.entries / 2),
        ..Until::default()
    };
    let (half, _) = replayed(dir.path(), 0, &subject, &setups[0], &until);
    assert_eq!(half.stop, Stop::Until);
    assert!(half.entries <= whole.entries / 2 + 8 && half.inputs > 0);

    let run = &runs(dir.path()).expect("a recording")[0];
    let decided = RunEntries::of(run).find_map(|found| match found.expect("no damage").entry {
        Entry::Decided(pod, _) => Some(pod),
        _ => None,
    });
    let pod = decided.expect("a decision");
    let until = Until {
        pod: Some(pod.to_string()),
        ..Until::default()
    };
    let (broken, _) = replayed(dir.path(), 0, &subject, &setups[0], &until);
    assert_eq!(broken.stop, Stop::Pod(pod));
    assert!(broken.entries < whole.entries);
}

/// New files are begun and the oldest removed; while none is missing, the replay is the same.
#[test]
fn a_recording_of_several_files_replays_and_is_bounded() {
    let len = |path: &PathBuf| std::fs::metadata(path).expect("a file").len();
    // Every block is followed by a new file.
    let limits = |bytes| Limits {
        bytes,
        file_bytes: 1,
    };
    let dir = scratch();
    let (subject, setups) = record(7, 4000, one_scheduler(), limits(u64::MAX), dir.path());
    let (whole, differences) = replayed(dir.path(), 0, &subject, &setups[0], &Until::default());
    assert_eq!(whole.stop, Stop::End);
    assert_eq!(differences, [""; 0]);
    let files = runs(dir.path()).expect("a recording")[0].files.clone();
    assert!(files.len() > 3, "{files:?}");
    let total: u64 = files.iter().map(|(_, path)| len(path)).sum();
    let largest = files
        .iter()
        .map(|(_, path)| len(path))
        .max()
        .expect("files");

    // A file that is missing in the middle is a damage.
    std::fs::remove_file(&files[1].1).expect("a file");
    let (broken, differences) = replayed(dir.path(), 0, &subject, &setups[0], &Until::default());
    let Stop::Damage(damage) = &broken.stop else {
        panic!("{:?}", broken.stop);
    };
    assert!(
        damage.what.contains("file 1 of the run is missing"),
        "{damage}"
    );
    assert_eq!(differences, [""; 0]);

    let dir = scratch();
    let bytes = total / 2;
    record(7, 4000, one_scheduler(), limits(bytes), dir.path());
    let left = runs(dir.path()).expect("a recording")[0].files.clone();
    assert!(left[0].0 > 0, "the first file is removed: {left:?}");
    let left: u64 = left.iter().map(|(_, path)| len(path)).sum();
    // The limit is enforced when a file begins; this file is added to it.
    assert!(left <= bytes + 2 * largest, "{left} of {bytes}");
}

#[test]
fn a_damaged_recording_names_the_byte_and_replays_up_to_it() {
    let dir = scratch();
    let (subject, setups) = record(9, 4000, one_scheduler(), NO_LIMITS, dir.path());
    let whole = replayed(dir.path(), 0, &subject, &setups[0], &Until::default()).0;
    let path = runs(dir.path()).expect("a recording")[0].files[0].1.clone();
    let bytes = std::fs::read(&path).expect("a file");
    // The second block begins where the first one ends.
    let stored = u32::from_le_bytes(
        bytes[FILE_HEADER_LEN + 8..FILE_HEADER_LEN + 12]
            .try_into()
            .expect("4 bytes"),
    );
    let first = FILE_HEADER_LEN + 36 + stored as usize;
    let second_len = u32::from_le_bytes(bytes[first + 8..first + 12].try_into().expect("4 bytes"));
    let second = first + 36 + second_len as usize;
    assert!(second < bytes.len(), "the recording has too few blocks");
    let flipped = |at: usize| {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x10;
        bytes
    };
    for (name, damaged, byte, what) in [
        (
            "truncated in a block",
            bytes[..second + 50].to_vec(),
            second,
            "ends in a block",
        ),
        (
            "truncated in a header",
            bytes[..second + 7].to_vec(),
            second,
            "after 7 of 36 bytes",
        ),
        (
            "a bit of the lines",
            flipped(second + 60),
            second,
            "checksum",
        ),
        (
            "a bit of the time",
            flipped(second + 30),
            second,
            "checksum",
        ),
        (
            "a bit of the mark",
            flipped(second),
            second,
            "no block begins",
        ),
        ("another file", flipped(0), 0, "not a recording"),
        ("nothing", Vec::new(), 0, "header is incomplete"),
    ] {
        std::fs::write(&path, &damaged).expect("a file");
        if byte == 0 {
            let run = &runs(dir.path()).expect("a recording")[0];
            let damage = RunEntries::of(run)
                .next()
                .expect("a result")
                .expect_err(name);
            assert_eq!(damage.byte, 0, "{name}");
            assert!(damage.what.contains(what), "{name}: {damage}");
            continue;
        }
        let (result, differences) =
            replayed(dir.path(), 0, &subject, &setups[0], &Until::default());
        let Stop::Damage(damage) = &result.stop else {
            panic!("{name}: {:?}", result.stop);
        };
        assert_eq!(damage.byte, byte as u64, "{name}");
        assert_eq!(damage.bytes_lost, (damaged.len() - byte) as u64, "{name}");
        assert!(damage.what.contains(what), "{name}: {damage}");
        assert_eq!(
            damage.first_lost,
            result.entries + 1,
            "{name}: the start comes first"
        );
        assert_eq!(differences, [""; 0], "{name}");
        assert!(
            result.inputs > 0 && result.entries < whole.entries,
            "{name}"
        );
    }
}
