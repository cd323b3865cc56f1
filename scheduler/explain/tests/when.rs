//! The estimated start of a pod, with numbers worked by hand.

use berth_api::{Duration, OwnerReference, Time};
use berth_explain::answer::when::WhenAnswer;
use berth_explain::{WhenFacts, explain_when, text};
use berth_framework::testing::{PodBuilder, node, pod};
use berth_scheduler::{ClusterChange, Scheduler, SchedulerOptions};

const BEGIN: Time = Time::from_secs(10_000);

fn at(seconds: u64) -> Time {
    BEGIN + Duration::from_secs(seconds)
}

/// A scheduler with a node of four CPUs.
struct World {
    scheduler: Scheduler,
    version: u64,
}

impl World {
    fn new() -> Self {
        let registry = berth_plugins::in_tree();
        let scheduler = Scheduler::new(SchedulerOptions::default(), &registry, BEGIN);
        let mut world = Self {
            scheduler: scheduler.unwrap_or_else(|e| panic!("{e}")),
            version: 0,
        };
        let node = node("n").capacity("4", "16Gi", "110").version(1).object();
        world.scheduler.apply(ClusterChange::Applied(node), BEGIN);
        world
    }

    fn set(&mut self, pod: PodBuilder, now: Time) {
        self.version += 1;
        let object = pod.version(self.version).object();
        self.scheduler.apply(ClusterChange::Applied(object), now);
    }

    /// A pod runs from the beginning; the run time is in seconds.
    fn ran(&mut self, name: &str, pod: PodBuilder, seconds: u64) {
        let pod = running(pod.with(|p| p.metadata.name = name.into()).uid(name), 0);
        let last = pod.build();
        self.set(PodBuilder::of(&last), BEGIN);
        let gone = PodBuilder::of(&last).object();
        self.scheduler
            .apply(ClusterChange::Deleted(gone), at(seconds));
    }

    fn when(&self, name: &str, now: Time) -> WhenAnswer {
        let facts = WhenFacts::take(&self.scheduler, "default", name, now).expect("it is known");
        explain_when(&facts)
    }
}

/// On the node, since a time in seconds after the beginning.
fn running(pod: PodBuilder, since: u64) -> PodBuilder {
    let running = pod.on("n").phase("Running");
    running.with(|pod| pod.status.start_time = Some(at(since)))
}

/// A pod of a Job.
fn train(name: &str, cpu: &str) -> PodBuilder {
    pod(name).request("cpu", cpu).with(|pod| {
        let owner = OwnerReference {
            kind: "Job".into(),
            name: "train".into(),
            uid: "uid-train".into(),
            controller: Some(true),
            ..OwnerReference::default()
        };
        pod.metadata.owner_references = vec![owner].into();
    })
}

fn seconds(answer: &WhenAnswer) -> [Option<u64>; 2] {
    [&answer.earliest, &answer.latest].map(|start| start.as_ref().map(|start| start.seconds))
}

/// Ten pods have run for 100, 110, …, 190 s: the 10th percentile is 100 s, the 90th 180 s. A running pod of the
/// template started 50 s ago, so it ends in 50 to 130 s. After 145 s, five run times are longer: 150, 160, 170, 180 and
/// 190 s, with 150 s as the 10th percentile and 190 s as the 90th: the pod ends in 5 to 45 s.
#[test]
fn a_pod_starts_when_the_usual_run_time_is_over() {
    for (elapsed, expected) in [(50, [50, 130]), (145, [5, 45])] {
        let mut world = World::new();
        for number in 0..10 {
            world.ran(
                &format!("earlier-{number}"),
                train("x", "3"),
                100 + 10 * number,
            );
        }
        world.set(running(train("now", "3"), 1_000), at(1_000));
        world.set(pod("next").request("cpu", "2").created(0), at(1_000));
        let answer = world.when("next", at(1_000 + elapsed));
        let answered = seconds(&answer);
        // The pod leaves its backoff within a few seconds.
        for (answered, expected) in answered.into_iter().zip(expected) {
            let late = answered.map(|answered| answered.checked_sub(expected));
            assert!(matches!(late, Some(Some(0..=11))), "{elapsed}: {answer:?}");
        }
        assert_eq!(answer.running.by_run_times, 1);
        let earliest = answer.earliest.as_ref().expect("a start");
        assert_eq!(earliest.after.as_deref(), Some("default/now"));
        assert!(
            text::when(&answer).contains("default/now"),
            "{}",
            text::when(&answer)
        );
    }
}

/// Without run times, only deadlines and ends of grace periods are known.
#[test]
fn deadlines_end_pods_and_other_ends_are_unknown() {
    type Change = fn(PodBuilder) -> PodBuilder;
    let cases: [(&str, Change, Option<u64>); 3] = [
        (
            "a deadline",
            |pod| pod.with(|pod| pod.spec.active_deadline_seconds = Some(300)),
            Some(200),
        ),
        ("it is being deleted", |pod| pod.deleting(at(130)), Some(30)),
        ("nothing is known", |pod| pod, None),
    ];
    for (situation, change, expected) in cases {
        let mut world = World::new();
        let pod_now = change(running(pod("now").request("cpu", "3"), 0));
        world.set(pod_now, at(0));
        world.set(pod("next").request("cpu", "2").created(0), at(100));
        let answer = world.when("next", at(100));
        let [earliest, latest] = seconds(&answer);
        match expected {
            Some(expected) => {
                assert_eq!(earliest, latest, "{situation}: {answer:?}");
                let late = latest.and_then(|latest| latest.checked_sub(expected));
                assert!(matches!(late, Some(0..=11)), "{situation}: {answer:?}");
                assert_eq!(answer.running.by_deadline, 1, "{situation}");
            }
            None => {
                assert_eq!([earliest, latest], [None, None], "{situation}");
                assert_eq!(
                    answer.unknown.as_deref(),
                    Some(
                        "1 running pod has no known end, and the pod does not start while it runs: \
                         0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: \
                         0/1 nodes are available: 1 No preemption victims found for incoming pod."
                    ),
                    "{situation}"
                );
                assert!(text::when(&answer).contains("not known"));
            }
        }
    }
}

/// Pods ahead of it start first, and end after their own run times: at 100 s, the pod of higher priority starts, and
/// its deadline of 60 s ends it at 160 s.
#[test]
fn pods_that_precede_it_start_first() {
    let mut world = World::new();
    let deadline = |pod: PodBuilder, seconds: i64| {
        pod.with(|pod| pod.spec.active_deadline_seconds = Some(seconds))
    };
    world.set(
        deadline(running(pod("now").request("cpu", "4"), 0), 100),
        at(0),
    );
    let first = pod("first").request("cpu", "4").priority(10);
    world.set(
        deadline(first, 60).with(|pod| pod.spec.preemption_policy = Some("Never".into())),
        at(0),
    );
    world.set(pod("next").request("cpu", "1"), at(0));
    let answer = world.when("next", at(0));
    let [earliest, _] = seconds(&answer);
    let late = earliest.and_then(|earliest| earliest.checked_sub(160));
    assert!(matches!(late, Some(0..=22)), "{answer:?}");
    let start = answer.earliest.expect("a start");
    assert_eq!(
        (start.ended_pods, start.after.as_deref()),
        (2, Some("default/first"))
    );
}

/// Pods that do not wait for room are not played.
#[test]
fn other_pods_have_a_reason() {
    let mut world = World::new();
    world.set(running(pod("bound"), 0), at(0));
    world.set(pod("gated").gate("example.com/quota"), at(0));
    world.set(pod("foreign").scheduler("other"), at(0));
    for (name, expected) in [
        ("bound", "the pod is on node n already"),
        (
            "gated",
            "the pod has scheduling gates (example.com/quota), and it is not known when their controllers remove them",
        ),
        ("foreign", "another scheduler, other, schedules the pod"),
    ] {
        let answer = world.when(name, at(0));
        assert_eq!(answer.unknown.as_deref(), Some(expected));
        assert_eq!(seconds(&answer), [None, None]);
    }
    assert!(WhenFacts::take(&world.scheduler, "default", "missing", at(0)).is_none());
}
