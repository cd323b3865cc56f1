//! The rules of sections 4.3 and 5.3, with fake plugins on small clusters.

use super::*;
use crate::profile::{Profile, ProfileSpec};
use berth_framework::plugin::{DryRun, PreFilterResult};
use berth_framework::registry::{Extensions, Registry};
use berth_framework::testing::{FakePlugin, fake, node, pod};
use berth_framework::{Slot, Status};
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
}

fn profile_of(plugins: impl IntoIterator<Item = FakePlugin>) -> Profile {
    let mut registry = Registry::default();
    let mut names: Vec<String> = Vec::new();
    let base = [
        fake("Sort").less(|a, b| a.timestamp < b.timestamp),
        fake("Binder").bind(|_, _, _, _, _| berth_framework::Step::success()),
    ];
    for plugin in base.into_iter().chain(plugins) {
        let extensions: Extensions = plugin.build();
        let name = extensions.name.clone();
        names.push(name.clone());
        registry
            .register(&name, move |_| Ok(extensions.clone()))
            .unwrap_or_else(|e| panic!("{e}"));
    }
    let spec = ProfileSpec::of_plugins("default-scheduler", names.iter().map(String::as_str));
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
            stopwatch: &NoStopwatch,
        }
    }

    fn find(&mut self, percentage: Option<i32>) -> Found {
        let (mut start, mut rng) = (self.start, self.rng.clone());
        let found = self.evaluator().find(percentage, &mut start, &mut rng);
        (self.start, self.rng) = (start, rng);
        found
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

/// C-15, C-17, F-8, edge cases 201 and 202, plugins 0.5.
#[test]
fn pre_filter_narrows_skips_and_turns_down() {
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

/// Pending from PreFilter is an error (section 10, quirk 13).
#[test]
fn pre_filter_must_not_wait() {
    let plugin = fake("A").pre_filter(|_, _, _| PreFilterResult::Reject(Status::pending("soon")));
    assert_eq!(
        World::new(1, [plugin]).outcome(),
        "running PreFilter plugin \"A\": soon"
    );
}

#[test]
fn a_skipped_pre_filter_skips_the_filter() {
    let plugin = fake("A")
        .pre_filter(|_, _, _| PreFilterResult::Skip)
        .filter(|_, _, _| Status::unschedulable("asked though it skipped"));
    assert_eq!(World::new(1, [plugin]).outcome(), "n0");
}

/// F-9, C-12, C-23, edge cases 197, 203, plugins 0.5.
#[test]
fn filters_answer_in_order_and_errors_end_the_cycle() {
    let no = || fake("B").filter(|_, _, _| Status::unschedulable("b"));
    for (situation, nodes, plugins, outcome) in [
        (
            "no nodes",
            0,
            vec![no()],
            "no nodes available to schedule pods",
        ),
        (
            "the first no decides",
            1,
            vec![fake("A").filter(|_, _, _| Status::unresolvable("a")), no()],
            "0/1 nodes are available: 1 a.",
        ),
        (
            "an error",
            2,
            vec![
                fake("A").filter(|_, _, node| {
                    if node.name() == "n1" {
                        Status::error("bad")
                    } else {
                        Status::success()
                    }
                }),
                fake("S").score(|_, _, _| Ok(0)),
            ],
            "running \"A\" filter plugin: bad",
        ),
        (
            "a code that filters must not use",
            1,
            vec![fake("A").filter(|_, _, _| Status::skip())],
            "running \"A\" filter plugin: ",
        ),
    ] {
        assert_eq!(World::new(nodes, plugins).outcome(), outcome, "{situation}");
    }
}

/// An error where kube-scheduler would have stopped before: 100 nodes are enough for it among 240.
#[test]
fn an_error_beyond_upstreams_search_only_excludes_its_node() {
    let plugins = || {
        [
            fake("A").filter(|_, _, node| {
                if node.name() == "n200" {
                    Status::error("bad")
                } else {
                    Status::success()
                }
            }),
            fake("S").score(|_, _, node| Ok(i64::from(node.name() == "n239"))),
        ]
    };
    let mut world = World::new(240, plugins());
    let Found::Placed(placement) = world.find(None) else {
        panic!("not placed")
    };
    assert_eq!(placement.name, "n239");
    assert_eq!(
        (
            placement.feasible,
            placement.evaluated,
            placement.excluded.len()
        ),
        (239, 240, 1)
    );
}

/// C-19, C-21, C-22, C-27, edge case 200.
#[test]
fn with_a_percentage_the_search_goes_round() {
    let plugins = [fake("S").score(|_, _, _| Ok(0))];
    let mut world = World::new(300, plugins);
    let mut starts = Vec::new();
    for _ in 0..4 {
        let Found::Placed(placement) = world.find(Some(40)) else {
            panic!("not placed")
        };
        assert_eq!((placement.feasible, placement.evaluated), (120, 120));
        starts.push(world.start);
    }
    assert_eq!(starts, [120, 240, 60, 180]);
}

/// C-20.
#[test]
fn without_scores_one_feasible_node_is_enough() {
    let calls = Arc::new(AtomicUsize::new(0));
    let seen = calls.clone();
    let plugin = fake("A").filter(move |_, _, _| {
        seen.fetch_add(1, Ordering::Relaxed);
        Status::success()
    });
    let mut world = World::new(10, [plugin]);
    assert_eq!(world.outcome(), "n0");
    assert_eq!(world.outcome(), "n1");
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}

/// C-16, edge case 204.
#[test]
fn the_nominated_node_is_tried_first() {
    let only = |name: &'static str| {
        fake("A").filter(move |_, _, node| {
            if node.name() == name {
                Status::success()
            } else {
                Status::unschedulable("no")
            }
        })
    };
    let prefer_n2 = || fake("S").score(|_, _, node| Ok(i64::from(node.name() == "n2")));
    for (situation, filter, nominated, placed, evaluated) in [
        (
            "feasible",
            fake("A").filter(|_, _, _| Status::success()),
            "n1",
            "n2",
            1,
        ),
        ("infeasible", only("n0"), "n1", "n0", 3),
        ("gone", only("n0"), "n9", "n0", 3),
    ] {
        let mut world = World::new(3, [filter, prefer_n2()]);
        world.pod = pod("p").nominated(nominated).info();
        let Found::Placed(placement) = world.find(None) else {
            panic!("{situation}")
        };
        let placed = if situation == "feasible" {
            "n1"
        } else {
            placed
        };
        assert_eq!(
            (placement.name.as_str(), placement.evaluated),
            (placed, evaluated),
            "{situation}"
        );
    }
}

/// Filters by the number of pods that the plugin has been told of, and counts its calls.
fn one_pod_a_node(calls: &Arc<AtomicUsize>) -> FakePlugin {
    let seen = calls.clone();
    fake("A")
        .pre_filter(|_, state, _| {
            state.write(0_i32);
            PreFilterResult::AllNodes
        })
        .add_pod(|state, _, node| {
            *state.read_mut::<i32>().unwrap_or(&mut 0) += 1;
            if node.pods().is_empty() {
                Status::error("told before the table")
            } else {
                Status::success()
            }
        })
        .remove_pod(|state, _, node| {
            *state.read_mut::<i32>().unwrap_or(&mut 0) -= 1;
            if node.pods().is_empty() {
                Status::success()
            } else {
                Status::error("told before the table")
            }
        })
        .filter(move |state, _, node| {
            seen.fetch_add(1, Ordering::Relaxed);
            if state.read::<i32>() == Some(&0) && node.pods().is_empty() {
                Status::success()
            } else {
                Status::unschedulable("taken")
            }
        })
}

/// C-18, edge case 205, plugins 0.5 and 15.14.
#[test]
fn nominated_pods_of_no_lower_priority_count() {
    for (situation, nominee, outcome, filter_calls) in [
        ("nobody", None, "n0", 1),
        (
            "higher",
            Some(pod("other").priority(20)),
            "0/1 nodes are available: 1 taken.",
            1,
        ),
        (
            "equal",
            Some(pod("other").priority(10)),
            "0/1 nodes are available: 1 taken.",
            1,
        ),
        ("lower", Some(pod("other").priority(9)), "n0", 1),
        ("itself", Some(pod("p").priority(10)), "n0", 1),
    ] {
        let calls = Arc::new(AtomicUsize::new(0));
        let mut world = World::new(1, [one_pod_a_node(&calls)]);
        world.pod = pod("p").priority(10).info();
        world
            .nominated
            .0
            .extend(nominee.map(|p| ("n0".into(), p.info())));
        assert_eq!(world.outcome(), outcome, "{situation}");
        assert_eq!(calls.load(Ordering::Relaxed), filter_calls, "{situation}");
        assert_eq!(
            world.evaluation.state.read::<i32>(),
            Some(&0),
            "{situation}: taken back"
        );
        assert!(
            world.cluster.nodes.iter().all(|n| n.pods().is_empty()),
            "{situation}: taken back"
        );
    }
}

/// Both passes must succeed: a filter that needs the nominated pod fails the second.
#[test]
fn the_second_pass_is_without_the_nominated_pods() {
    let calls = Arc::new(AtomicUsize::new(0));
    let seen = calls.clone();
    let needs_company = fake("A").filter(move |_, _, node| {
        seen.fetch_add(1, Ordering::Relaxed);
        if node.pods().is_empty() {
            Status::unschedulable("alone")
        } else {
            Status::success()
        }
    });
    let mut world = World::new(1, [needs_company]);
    world
        .nominated
        .0
        .push(("n0".into(), pod("other").priority(1).info()));
    assert_eq!(world.outcome(), "0/1 nodes are available: 1 alone.");
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}

#[test]
fn dry_runs_nest_and_leave_no_trace() {
    let calls = Arc::new(AtomicUsize::new(0));
    let mut world = World::new(1, [one_pod_a_node(&calls)]);
    let resident = pod("resident").on("n0").info();
    world.cluster.nodes.add_pod(&"n0".into(), resident.clone());
    let slot = Slot::from_index(0);
    let mut evaluator = world.evaluator();
    evaluator.evaluation.state.write(1_i32);
    assert!(!evaluator.filter(slot).is_success());
    evaluator.begin();
    assert!(evaluator.remove_pod(slot, &resident).is_success());
    assert!(evaluator.filter(slot).is_success());
    evaluator.begin();
    assert!(evaluator.add_pod(slot, &resident).is_success());
    assert!(!evaluator.filter(slot).is_success());
    evaluator.rollback();
    assert!(evaluator.filter(slot).is_success());
    assert!(
        evaluator
            .remove_pod(slot, &resident)
            .message()
            .contains("no corresponding pod resident")
    );
    evaluator.rollback();
    assert!(!world.cluster.nodes.get(slot).unwrap().pods().is_empty());
    assert_eq!(world.evaluation.state.read::<i32>(), Some(&1));
}

/// C-24, C-27, edge case 198: there is nothing to choose, so that scores are not asked for.
#[test]
fn the_only_feasible_node_is_not_scored() {
    let plugins = [
        fake("A").filter(|_, _, node| {
            if node.name() == "n1" {
                Status::success()
            } else {
                Status::unschedulable("no")
            }
        }),
        fake("S").score(|_, _, _| Err(Status::error("asked for a score"))),
    ];
    let mut world = World::new(3, plugins);
    let Found::Placed(placement) = world.find(None) else {
        panic!("not placed")
    };
    assert_eq!(
        (
            placement.name.as_str(),
            placement.feasible,
            placement.evaluated
        ),
        ("n1", 1, 3)
    );
}

/// F-11, F-12, edge cases 206 and 207, plugins 0.5 and 15.13.
#[test]
fn scores_are_normalised_weighed_and_checked() {
    let error = |kind: &str| {
        let mut world = match kind {
            "score" => World::new(2, [fake("S").score(|_, _, _| Err(Status::error("oops")))]),
            "pre" => World::new(
                2,
                [fake("S")
                    .pre_score(|_, _, _| Status::error("oops"))
                    .score(|_, _, _| Ok(0))],
            ),
            "normalize" => World::new(
                2,
                [fake("S")
                    .score(|_, _, _| Ok(1))
                    .normalize(|_| Status::error("oops"))],
            ),
            "negative" => World::new(2, [fake("S").score(|_, _, _| Ok(-1))]),
            _ => World::new(2, [fake("S").score(|_, _, _| Ok(101))]),
        };
        world.outcome()
    };
    for (kind, text) in [
        (
            "score",
            "running Score plugins: plugin \"S\" failed with: oops",
        ),
        ("pre", "running PreScore plugin \"S\": oops"),
        (
            "normalize",
            "running Normalize on Score plugins: plugin \"S\" failed with: oops",
        ),
        (
            "negative",
            "applying score defaultWeights on Score plugins: plugin \"S\" returns an invalid score -1, it should in the range of [0, 100] after normalizing",
        ),
        (
            "too much",
            "applying score defaultWeights on Score plugins: plugin \"S\" returns an invalid score 101, it should in the range of [0, 100] after normalizing",
        ),
    ] {
        assert_eq!(error(kind), text);
    }
}

#[test]
fn totals_and_contributions_can_be_told() {
    let mut world = World::new(
        2,
        [
            fake("A")
                .score(|_, _, node| Ok(if node.name() == "n0" { 1 } else { 2 }))
                .normalize(|scores| {
                    berth_framework::plugin::default_normalize(100, false, scores);
                    Status::success()
                }),
            fake("B")
                .pre_score(|_, _, _| Status::skip())
                .score(|_, _, _| Err(Status::error("asked"))),
        ],
    );
    let feasible = [Slot::from_index(0), Slot::from_index(1)];
    let scores = world.evaluator().score(&feasible).unwrap();
    assert_eq!(scores.nodes, [(feasible[0], 50), (feasible[1], 100)]);
    assert_eq!(scores.skipped, ["B"]);
    assert_eq!(scores.plugins.len(), 1);
    assert_eq!(scores.plugins[0].weighted, [50, 100]);
    // Even a single node can be scored when somebody asks.
    assert_eq!(
        world.evaluator().score(&feasible[..1]).unwrap().nodes,
        [(feasible[0], 100)]
    );
}

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
