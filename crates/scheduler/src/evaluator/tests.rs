//! The rules of sections 4.3 and 5.3, with fake plugins on small clusters.

use super::*;
use crate::profile::{Profile, ProfileSpec};
use berth_framework::plugin::{DryRun, PreFilterResult};
use berth_framework::registry::{Extensions, Registry};
use berth_framework::testing::{FakePlugin, fake, node, pod};
use berth_framework::{Code, NodeView, Slot, Status};
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
    profile_with(plugins, |_| {})
}

fn profile_with(
    plugins: impl IntoIterator<Item = FakePlugin>,
    change: impl FnOnce(&mut ProfileSpec),
) -> Profile {
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
    let mut spec = ProfileSpec::of_plugins("default-scheduler", names.iter().map(String::as_str));
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
            stopwatch: &NoStopwatch,
        }
    }

    fn find(&mut self, percentage: Option<i32>) -> Found {
        let (mut start, mut rng) = (self.start, self.rng.clone());
        let found = self.evaluator().find(percentage, &mut start, &mut rng);
        (self.start, self.rng) = (start, rng);
        found
    }

    /// What stood in the pod's way, by name: those that turned it down, and those that wait.
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

/// F-8, case 202: neither Pending nor Wait is an answer of PreFilter (section 10, quirk 13).
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

/// F-8, F-22, case 201: a plugin that has nothing to say about the pod is not asked about nodes, nor told of nominated
/// pods.
#[test]
fn a_skipped_pre_filter_skips_the_filter() {
    let plugin = fake("A")
        .pre_filter(|_, _, _| PreFilterResult::Skip)
        .add_pod(|_, _, _| Status::error("told though it skipped"))
        .remove_pod(|_, _, _| Status::error("told though it skipped"))
        .filter(|_, _, _| Status::unschedulable("asked though it skipped"));
    let mut world = World::new(1, [plugin]);
    let nominee = pod("other").priority(1).info();
    world.nominated.0.push(("n0".into(), nominee));
    assert_eq!(world.outcome(), "n0");
}

/// F-8, case 202: after Unschedulable the others still prepare what PostFilter needs; after
/// UnschedulableAndUnresolvable and errors nobody is asked any more.
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
        (
            "another one",
            1,
            vec![fake("A").filter(|_, _, _| Status::new(Code::Wait, ["later".into()]))],
            "running \"A\" filter plugin: later",
        ),
    ] {
        assert_eq!(World::new(nodes, plugins).outcome(), outcome, "{situation}");
    }
}

/// F-4, F-9, C-23: every node's answer is kept with who gave it, and everybody who said no is noted, by the kind of the
/// answer.
#[test]
fn every_rejection_is_kept() {
    let says = |name: &'static str, node: &'static str, status: Status| {
        fake(name).filter(move |_, _, view| match view.name() == node {
            true => status.clone(),
            false => Status::success(),
        })
    };
    let plugins = || {
        [
            says("B", "n1", Status::unschedulable("b")),
            says("A", "n0", Status::unresolvable("a")),
            says("C", "n2", Status::pending("c")),
            says("D", "n2", Status::unschedulable("not asked")),
        ]
    };
    let mut world = World::new(3, plugins());
    let Found::Unfit(error) = world.find(None) else {
        panic!("nothing fits");
    };
    for (index, plugin, code) in [
        (0, "A", Code::UnschedulableAndUnresolvable),
        (1, "B", Code::Unschedulable),
        (2, "C", Code::Pending),
    ] {
        let status = error.diagnosis.statuses.get(Slot::from_index(index));
        let by = status.plugin().map(Str::as_str);
        assert_eq!((by, status.code()), (Some(plugin), code));
    }
    let (turned_down, wait) = World::new(3, plugins()).rejectors();
    assert_eq!(
        (turned_down, wait),
        (vec!["A".into(), "B".into()], vec!["C".into()])
    );
}

/// C-23, case 203: an error ends the search where it happens, whatever other nodes said before or would say.
#[test]
fn an_error_fails_the_cycle_though_other_nodes_fit() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let plugins = [
        fake("A").filter(move |_, _, node| {
            count.fetch_add(1, Ordering::Relaxed);
            match node.name().as_str() {
                "n1" => Status::error("bad"),
                _ => Status::success(),
            }
        }),
        fake("S").score(|_, _, _| Ok(0)),
    ];
    let mut world = World::new(5, plugins);
    let Found::Failed(status) = world.find(None) else {
        panic!("it fails");
    };
    assert_eq!(status.message(), "running \"A\" filter plugin: bad");
    assert_eq!(asked.load(Ordering::Relaxed), 2, "nobody after it is asked");
    // C-22: the next search begins where this one broke off.
    assert_eq!(world.start, 1);
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
        let scores = placement.scores.map(|s| s.nodes).unwrap_or_default();
        let visited: Vec<usize> = scores.iter().map(|(node, _)| node.index()).collect();
        let begun = starts.last().copied().unwrap_or(0);
        let round: Vec<usize> = (begun..begun + 120).map(|at| at % 300).collect();
        assert_eq!(visited, round, "C-21, C-23: in the order of the visit");
        starts.push(world.start);
    }
    assert_eq!(starts, [120, 240, 60, 180]);
}

/// C-17, C-22: with fewer possible nodes the search goes round among these, and the start moves on among all; the try
/// of a nominated node moves nothing.
#[test]
fn the_start_counts_among_the_possible_nodes() {
    let possible = fake("A").pre_filter(|_, _, _| names(&["n1", "n3", "n4"]));
    let mut world = World::new(5, [possible, fake("F").filter(|_, _, _| Status::success())]);
    let mut outcomes = Vec::new();
    for _ in 0..5 {
        outcomes.push((world.start, world.outcome()));
    }
    // One feasible node is enough, as nobody scores: the start moves on by one.
    let expected = [(0, "n1"), (1, "n3"), (2, "n4"), (3, "n1"), (4, "n3")];
    let outcomes: Vec<_> = outcomes.iter().map(|(at, o)| (*at, o.as_str())).collect();
    assert_eq!(outcomes, expected);
    assert_eq!(world.start, 0);
    world.pod = pod("p").nominated("n4").info();
    assert_eq!((world.outcome(), world.start), ("n4".to_owned(), 0));
}

/// Case 200: over several cycles each node is asked equally often.
#[test]
fn no_node_is_neglected() {
    let asked: Arc<[AtomicUsize]> = (0..300).map(|_| AtomicUsize::new(0)).collect();
    let count = asked.clone();
    let plugins = [
        fake("A").filter(move |_, _, node| {
            count[node.slot().index()].fetch_add(1, Ordering::Relaxed);
            Status::success()
        }),
        fake("S").score(|_, _, _| Ok(0)),
    ];
    let mut world = World::new(300, plugins);
    for _ in 0..15 {
        world.find(Some(40));
    }
    assert!(asked.iter().all(|n| n.load(Ordering::Relaxed) == 6));
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

/// C-18, case 205: both passes must succeed: a filter that needs the nominated pod fails the second.
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

/// C-18: a plugin that cannot cope with a nominated pod fails the cycle.
#[test]
fn a_nominated_pod_that_cannot_be_added_is_an_error() {
    let plugin = fake("A")
        .pre_filter(|_, _, _| PreFilterResult::AllNodes)
        .add_pod(|_, _, _| Status::error("no such pod"))
        .filter(|_, _, _| Status::success());
    let mut world = World::new(1, [plugin]);
    let nominee = pod("other").priority(1).info();
    world.nominated.0.push(("n0".into(), nominee));
    let text = "running AddPod on PreFilter plugin \"A\": no such pod";
    assert_eq!(world.outcome(), text);
    assert!(world.cluster.nodes.iter().all(|n| n.pods().is_empty()));
}

/// F-21: nothing is cloned, so what is supposed is taken back step by step.
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
            "normalised too high" => World::new(
                2,
                [fake("S").score(|_, _, _| Ok(1)).normalize(|scores| {
                    scores[1].1 = 101;
                    Status::success()
                })],
            ),
            "rejected" => World::new(
                2,
                [fake("S")
                    .pre_score(|_, _, _| Status::unschedulable("oops"))
                    .score(|_, _, _| Ok(0))],
            ),
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
        ("rejected", "running PreScore plugin \"S\": oops"),
        (
            "normalised too high",
            "applying score defaultWeights on Score plugins: plugin \"S\" returns an invalid score 101, it should in the range of [0, 100] after normalizing",
        ),
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

/// C-25: totals are sums of weighted scores, brought to scale before; nobody has a preference where nobody scores.
#[test]
fn totals_are_weighted_sums() {
    let high = |name: &'static str, score: i64| {
        fake(name).score(move |_, _, node| Ok(if node.name() == "n1" { score } else { 0 }))
    };
    let plugins = || {
        [
            high("A", 1000).normalize(|scores| {
                berth_framework::plugin::default_normalize(100, false, scores);
                Status::success()
            }),
            high("B", 3),
        ]
    };
    let mut world = World::new(2, plugins());
    world.profile = profile_with(plugins(), |spec| {
        spec.plugins.point_mut(crate::profile::Point::Score).enabled = vec![
            crate::profile::EnabledPlugin::weighted("A", 2),
            crate::profile::EnabledPlugin::weighted("B", 5),
        ];
    });
    let feasible = [Slot::from_index(0), Slot::from_index(1)];
    let scores = world.evaluator().score(&feasible).unwrap();
    assert_eq!(
        scores.nodes,
        [(feasible[0], 0), (feasible[1], 2 * 100 + 5 * 3)]
    );
    let mut world = World::new(2, [fake("F").filter(|_, _, _| Status::success())]);
    let scores = world.evaluator().score(&feasible).unwrap();
    assert_eq!(scores.nodes, [(feasible[0], 1), (feasible[1], 1)]);
}

/// F-12, case 207: where all have nothing to say, all nodes are equal, however many plugins only look at the nodes and
/// never score.
#[test]
fn nodes_are_equal_when_nobody_has_a_preference() {
    let skips = |name: &str| fake(name).pre_score(|_, _, _| Status::skip());
    let asked = |_: &CycleState, _: &PodInfo, _: NodeView<'_>| Err(Status::error("asked"));
    let mut world = World::new(3, [skips("A"), skips("B"), skips("C").score(asked)]);
    let feasible: Vec<Slot> = (0..3).map(Slot::from_index).collect();
    let scores = world.evaluator().score(&feasible).unwrap();
    assert!(scores.nodes.iter().all(|(_, total)| *total == 0));
    assert_eq!(scores.skipped, ["A", "B", "C"]);
    let mut chosen: Vec<String> = (0..60).map(|_| world.outcome()).collect();
    chosen.sort();
    chosen.dedup();
    assert_eq!(chosen, ["n0", "n1", "n2"], "C-26: each has a chance");
}

/// F-11, C-25.
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
