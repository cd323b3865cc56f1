//! The rules of the evaluator, with fake plugins on small clusters. Here: PreFilter.

mod nominated;
mod scoring;
mod search;

use super::*;
use berth_api::Str;
use berth_framework::plugin::PreFilterResult;
use berth_framework::testing::{FakePlugin, fake, node, pod};
use berth_framework::{Code, NodeView, Slot, Status};
use berth_profile::testing::registered;
use berth_profile::{Profile, ProfileSpec};
use berth_telemetry::NoStopwatch;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A cluster, a profile of fakes, and the pod to place.
struct World {
    cluster: Cluster,
    profile: Profile,
    pod: Arc<PodInfo>,
    nominated: Nominated,
    evaluation: Evaluation,
    features: FeatureGates,
    start: usize,
    rng: fastrand::Rng,
}

#[derive(Default)]
struct Nominated(Vec<(Str, Arc<PodInfo>)>);

impl NominatedPods for Nominated {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn on_node(&self, node: &Str, each: &mut dyn FnMut(&Arc<PodInfo>)) {
        self.0
            .iter()
            .filter(|(n, _)| n == node)
            .for_each(|(_, pod)| each(pod));
    }

    fn node_of(&self, uid: &str) -> Option<&Str> {
        let mut all = self.0.iter();
        all.find(|(_, pod)| pod.pod.uid() == uid)
            .map(|(node, _)| node)
    }

    fn changes_end(&self) -> u64 {
        0
    }

    fn changed_since(&self, _since: u64, _each: &mut dyn FnMut(&Str)) -> bool {
        false
    }

    fn with_claim(&self, _namespace: &Str, _name: &Str, _each: &mut dyn FnMut(&Str)) {}
}

fn profile_of(plugins: impl IntoIterator<Item = FakePlugin>) -> Profile {
    profile_with(plugins, |_| {})
}

fn profile_with(
    plugins: impl IntoIterator<Item = FakePlugin>,
    change: impl FnOnce(&mut ProfileSpec),
) -> Profile {
    let base = [
        fake("Sort").less(|a, b| a.timestamp < b.timestamp),
        fake("Binder").bind(|_, _, _, _, _| berth_framework::Step::success()),
    ];
    let plugins = base.into_iter().chain(plugins);
    let (registry, mut spec) = registered(plugins.map(FakePlugin::build));
    change(&mut spec);
    Profile::build(&spec, &registry, &FeatureGates::default()).unwrap()
}

impl World {
    fn new(nodes: usize, plugins: impl IntoIterator<Item = FakePlugin>) -> Self {
        let mut cluster = Cluster::default();
        for i in 0..nodes {
            cluster.nodes.set_node(node(&format!("n{i}")).arc());
        }
        Self {
            cluster,
            profile: profile_of(plugins),
            pod: pod("p").info(),
            nominated: Nominated::default(),
            evaluation: Evaluation::default(),
            features: FeatureGates::default(),
            start: 0,
            rng: fastrand::Rng::with_seed(3),
        }
    }

    fn evaluator(&mut self) -> Evaluator<'_> {
        Evaluator {
            profile: &self.profile,
            features: &self.features,
            now: Time::EPOCH,
            cluster: &mut self.cluster,
            nominated: &self.nominated,
            pod: &self.pod,
            evaluation: &mut self.evaluation,
            work: None,
            stopwatch: &NoStopwatch,
        }
    }

    fn find(&mut self, percentage: Option<i32>) -> Found {
        let (mut start, mut rng) = (self.start, self.rng.clone());
        let found = self.evaluator().find(percentage, &mut start, &mut rng);
        (self.start, self.rng) = (start, rng);
        found
    }

    /// The plugins that rejected the pod, by name: those that failed it, and those that wait.
    fn rejectors(&mut self) -> (Vec<Str>, Vec<Str>) {
        match self.find(None) {
            Found::Unfit(error) => {
                let diagnosis = error.diagnosis;
                (diagnosis.unschedulable_plugins, diagnosis.pending_plugins)
            }
            _ => Default::default(),
        }
    }

    /// The chosen node's name, the FitError's text, or the error's.
    fn outcome(&mut self) -> String {
        match self.find(None) {
            Found::Placed(placement) => placement.name.to_string(),
            Found::Unfit(error) => error.to_string(),
            Found::NoNodes(status) | Found::Failed(status) => status.message(),
        }
    }
}

fn names(names: &[&str]) -> PreFilterResult {
    PreFilterResult::Nodes(names.iter().map(|n| (*n).into()).collect())
}

/// C-15, C-17, F-8, edge cases 201 and 202.
#[test]
fn pre_filter_narrows_skips_and_rejects() {
    type Answer = fn() -> PreFilterResult;
    let cases: [(&str, Answer, Answer, &str, &[&str]); 9] = [
        (
            "all nodes",
            || PreFilterResult::AllNodes,
            || PreFilterResult::AllNodes,
            "0/3 nodes are available: 3 no.",
            &["Z"],
        ),
        (
            "one set",
            || names(&["n1", "n0"]),
            || PreFilterResult::AllNodes,
            "0/3 nodes are available: 1 node(s) didn't satisfy plugin(s) [A], 2 no.",
            &["A", "Z"],
        ),
        (
            "unknown names are ignored",
            || names(&["nope", "n0"]),
            || PreFilterResult::AllNodes,
            "0/3 nodes are available: 1 no, 2 node(s) didn't satisfy plugin(s) [A].",
            &["A", "Z"],
        ),
        (
            "two sets",
            || names(&["n0", "n1"]),
            || names(&["n1", "n2"]),
            "0/3 nodes are available: 1 no, 2 node(s) didn't satisfy plugin(s) [A B].",
            &["A", "B", "Z"],
        ),
        (
            "disjoint sets",
            || names(&["n0"]),
            || names(&["n1"]),
            "0/3 nodes are available: node(s) didn't satisfy plugin(s) [A B] simultaneously.",
            &["A", "B"],
        ),
        (
            "an empty set",
            || PreFilterResult::AllNodes,
            || names(&[]),
            "0/3 nodes are available: node(s) didn't satisfy plugin B.",
            &["B"],
        ),
        (
            "unresolvable stops",
            || PreFilterResult::Reject(Status::unresolvable("never")),
            || names(&[]),
            "0/3 nodes are available: never.",
            &["A"],
        ),
        (
            "unschedulable goes on",
            || PreFilterResult::Reject(Status::unschedulable("a")),
            || PreFilterResult::Reject(Status::unschedulable("b")),
            "0/3 nodes are available: b.",
            &["B"],
        ),
        (
            "an error",
            || PreFilterResult::Reject(Status::error("broken")),
            || names(&[]),
            "running PreFilter plugin \"A\": broken",
            &[],
        ),
    ];
    for (situation, a, b, text, rejectors) in cases {
        let mut world = World::new(
            3,
            [
                fake("A").pre_filter(move |_, _, _| a()),
                fake("B").pre_filter(move |_, _, _| b()),
                fake("Z").filter(|_, _, _| Status::unschedulable("no")),
            ],
        );
        match world.find(None) {
            Found::Unfit(error) => {
                assert_eq!(error.to_string(), text, "{situation}");
                assert_eq!(
                    error.diagnosis.unschedulable_plugins, rejectors,
                    "{situation}"
                );
            }
            Found::Failed(status) => assert_eq!(status.message(), text, "{situation}"),
            other => panic!("{situation}: {other:?}"),
        }
    }
}

/// F-8, case 202: neither Pending nor Wait is an answer of PreFilter.
#[test]
fn pre_filter_must_not_wait() {
    for code in [Code::Pending, Code::Wait] {
        let plugin = fake("A")
            .pre_filter(move |_, _, _| PreFilterResult::Reject(Status::new(code, ["soon".into()])));
        assert_eq!(
            World::new(1, [plugin]).outcome(),
            "running PreFilter plugin \"A\": soon",
            "{code}"
        );
    }
}

/// F-8, F-22, case 201: a plugin whose PreFilter returns Skip runs no Filter, and receives no nominated pods.
#[test]
fn a_skipped_pre_filter_skips_the_filter() {
    let plugin = fake("A")
        .pre_filter(|_, _, _| PreFilterResult::Skip)
        .add_pod(|_, _, _| Status::error("called though it skipped"))
        .remove_pod(|_, _, _| Status::error("called though it skipped"))
        .filter(|_, _, _| Status::unschedulable("asked though it skipped"));
    let mut world = World::new(1, [plugin]);
    let nominee = pod("other").priority(1).info();
    world.nominated.0.push(("n0".into(), nominee));
    assert_eq!(world.outcome(), "n0");
}

/// F-8, case 202: after Unschedulable the other plugins still prepare the state that PostFilter needs; after
/// UnschedulableAndUnresolvable and errors no further plugin runs.
#[test]
fn pre_filter_goes_on_while_room_could_be_made() {
    for (answer, ran) in [
        (Status::unschedulable("full"), true),
        (Status::unresolvable("never"), false),
        (Status::error("oops"), false),
    ] {
        let first = answer.clone();
        let plugins = [
            fake("A").pre_filter(move |_, _, _| PreFilterResult::Reject(first.clone())),
            fake("B").pre_filter(|_, state, _| {
                state.write(7_u8);
                PreFilterResult::AllNodes
            }),
        ];
        let mut world = World::new(1, plugins);
        world.outcome();
        let prepared = world.evaluation.state.read::<u8>().is_some();
        assert_eq!(prepared, ran, "{answer:?}");
    }
}

/// F-7.
#[test]
fn calls_are_counted_for_the_metrics() {
    let mut world = World::new(
        3,
        [
            fake("A")
                .pre_filter(|_, _, _| PreFilterResult::Skip)
                .filter(|_, _, _| Status::success()),
            fake("B").filter(|_, _, _| Status::success()),
            fake("C").score(|_, _, _| Ok(0)),
        ],
    );
    world.outcome();
    let tally = &world.evaluation.tally;
    assert_eq!(tally.pre_filter.iter().sum::<u32>(), 0);
    assert_eq!(tally.filter.iter().sum::<u32>(), 3);
    assert_eq!(tally.score.iter().sum::<u32>(), 3);
    assert_eq!(tally.spans.len(), 4, "PreFilter, Filter, PreScore, Score");
}
