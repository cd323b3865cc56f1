//! Decisions of another scheduler, as a watch shows them, compared with a core with the in-tree plugins.

use super::*;
use berth_api::pod::TopologySpreadConstraint;
use berth_api::{Kind, LabelSelector, Labels, TaintEffect};
use berth_framework::testing::{NodeBuilder, PodBuilder, node, pod};
use berth_scheduler::SchedulerOptions;
use std::io::Read;

struct World {
    scheduler: Scheduler,
    shadow: Shadow,
    shared: SharedReport,
    now: Time,
}

impl World {
    fn new(nodes: Vec<NodeBuilder>, cases: Option<Cases>) -> Self {
        let now = Time::from_secs(1_000);
        let registry = berth_plugins::in_tree();
        let options = SchedulerOptions::default();
        let mut scheduler = Scheduler::new(options, &registry, now).expect("the default profile");
        let nodes = nodes.into_iter().map(NodeBuilder::object).collect();
        scheduler.apply(ClusterChange::Replaced(Kind::Node, nodes), now);
        let shared = SharedReport::since(now);
        Self {
            scheduler,
            shadow: Shadow::new(shared.clone(), cases, Extenders::default()),
            shared,
            now,
        }
    }

    /// The watch shows a pod.
    fn shows(&mut self, pod: PodBuilder) {
        let change = ClusterChange::Applied(pod.scheduler("default-scheduler").object());
        self.shadow.before(&mut self.scheduler, &change, self.now);
        self.scheduler.apply(change, self.now);
    }

    fn waits(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
        self.shadow.look_again(&mut self.scheduler, self.now);
    }

    fn report(&self) -> ShadowReport {
        self.shared.get()
    }
}

const NONE: &str = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption \
                    victims found for incoming pod.";

fn failed(pod: PodBuilder, message: &str) -> PodBuilder {
    pod.condition("PodScheduled", "False", "Unschedulable", message)
}

fn small() -> NodeBuilder {
    node("n").capacity("1", "4Gi", "110")
}

#[test]
fn a_node_has_the_rank_of_its_score() {
    let full = pod("other").request("cpu", "1").on("full");
    let nodes = ["full", "empty"].map(|name| node(name).capacity("2", "4Gi", "110"));
    for (chosen, rank) in [("empty", [1, 0, 0, 0]), ("full", [0, 1, 0, 0])] {
        let mut world = World::new(nodes.to_vec(), None);
        world.shows(full.clone());
        world.shows(pod("p").request("cpu", "500m"));
        world.shows(pod("p").request("cpu", "500m").version(2).on(chosen));
        let report = world.report();
        assert_eq!(
            (report.bound, report.feasible, report.unseen),
            (1, 1, 1),
            "{chosen}"
        );
        assert_eq!(report.ranks, rank, "{chosen}");
        assert_eq!(report.deficit_sum > 0, chosen == "full");
        assert_eq!(report.agreement(), Some(100.0));
    }
}

#[test]
fn a_node_that_is_not_feasible_is_a_disagreement() {
    let tainted = node("tainted").taint("a", "b", TaintEffect::NoSchedule);
    for (nodes, infeasible, only_other) in [
        (vec![tainted.clone(), node("free")], 1, 0),
        (vec![tainted], 0, 1),
    ] {
        let mut world = World::new(nodes, None);
        world.shows(pod("p"));
        world.shows(pod("p").version(2).on("tainted"));
        let report = world.report();
        let counts = (report.node_infeasible, report.only_other_finds);
        assert_eq!(counts, (infeasible, only_other));
        assert_eq!(report.agreement(), Some(0.0));
        assert_eq!(report.disagreements[0].other, "bound to tainted");
    }
}

/// The first of three pods with a spread constraint is shown last but one: its zone was feasible when it was decided.
#[test]
fn bindings_in_another_order_are_no_disagreement() {
    let zone = |name: &str, zone: &str| node(name).label("zone", zone);
    let spread = |name: &str| {
        pod(name).label("app", "web").with(|pod| {
            pod.spec.template.topology_spread_constraints = vec![TopologySpreadConstraint {
                max_skew: 1,
                topology_key: "zone".into(),
                when_unsatisfiable: "DoNotSchedule".into(),
                label_selector: Some(LabelSelector {
                    match_labels: Labels::from_pairs([("app", "web")]),
                    ..LabelSelector::default()
                }),
                ..TopologySpreadConstraint::default()
            }];
        })
    };
    let mut world = World::new(vec![zone("a", "a"), zone("b", "b")], None);
    for name in ["first", "second", "third"] {
        world.shows(spread(name));
    }
    // Decided in the order first, second, third.
    for (name, node) in [("third", "a"), ("first", "a"), ("second", "b")] {
        world.shows(spread(name).version(2).on(node));
    }
    let report = world.report();
    assert_eq!((report.bound, report.feasible, report.reordered), (3, 2, 1));
    assert_eq!(report.agreement(), Some(100.0));
}

#[test]
fn a_pod_that_neither_places_is_compared_by_its_reasons() {
    let huge = || pod("huge").request("cpu", "2");
    for (message, same, other) in [
        (NONE, 1, 0),
        (
            "0/1 nodes are available: 1 node(s) were unschedulable.",
            0,
            1,
        ),
    ] {
        let mut world = World::new(vec![small()], None);
        world.shows(huge());
        world.shows(failed(huge().version(2), message));
        for _ in 0..3 {
            world.waits(15);
        }
        let report = world.report();
        assert_eq!(
            (report.same_reasons, report.other_reasons, report.open),
            (same, other, 0)
        );
        // Neither places the pod, so they agree about feasibility.
        assert_eq!(report.agreement(), Some(100.0));
    }
}

#[test]
fn a_pod_that_only_berth_places_is_looked_at_again_before_it_counts() {
    let fits = || pod("p").request("cpu", "1");
    // It is bound a moment later: the other scheduler had decided before room was made.
    let mut world = World::new(vec![small()], None);
    world.shows(fits());
    world.shows(failed(fits().version(2), NONE));
    assert_eq!(world.report().open, 1);
    assert!(world.shadow.next_look().is_some());
    world.waits(1);
    world.shows(fits().version(3).on("n"));
    let report = world.report();
    assert_eq!(
        (report.later, report.only_berth_finds, report.open),
        (1, 0, 0)
    );

    // Room was made in the watch only: the pod does not fit a moment later.
    let mut world = World::new(vec![small()], None);
    world.shows(fits());
    world.shows(failed(fits().version(2), NONE));
    world.shows(pod("late"));
    world.shows(pod("late").request("cpu", "1").version(2).on("n"));
    world.waits(1);
    assert_eq!((world.report().later, world.report().open), (1, 0));

    // It stays like that.
    let mut world = World::new(vec![small()], None);
    world.shows(fits());
    world.shows(failed(fits().version(2), NONE));
    for seconds in [1, 4, 10] {
        assert_eq!(world.report().only_berth_finds, 0);
        world.waits(seconds);
    }
    let report = world.report();
    assert_eq!((report.later, report.only_berth_finds), (0, 1));
    assert_eq!(report.disagreements[0].berth, "1 feasible nodes, such as n");
    assert_eq!(world.shadow.next_look(), None);
}

/// A pod that the other scheduler evicts.
fn victim(pod: PodBuilder) -> PodBuilder {
    pod.condition("DisruptionTarget", "True", "PreemptionByScheduler", "")
}

/// A preemption of the other scheduler: the victims, and the nomination between them.
#[test]
fn preemptions_are_compared_by_node_and_victims() {
    let low = |name: &str, node: &str, priority: i32| {
        let made = pod(name).request("cpu", "500m").priority(priority);
        made.on(node).phase("Running")
    };
    let high = || pod("high").request("cpu", "500m").priority(100);
    let none = report::ComparedPreemptions::default();
    for (what, evicted, on, expected) in [
        (
            "the least important pod",
            &["m-low"][..],
            "m",
            report::ComparedPreemptions {
                same_node: 1,
                ..none
            },
        ),
        (
            "on a node where only more important pods are",
            &["n-mid"],
            "n",
            report::ComparedPreemptions {
                other_node: 1,
                ..none
            },
        ),
        (
            "a more important pod than necessary",
            &["m-mid"],
            "m",
            report::ComparedPreemptions {
                other_victims: 1,
                ..none
            },
        ),
        (
            "on a node that the pod does not tolerate",
            &["tainted-low"],
            "tainted",
            report::ComparedPreemptions {
                node_infeasible: 1,
                ..none
            },
        ),
        (
            "no victim is visible",
            &[],
            "m",
            report::ComparedPreemptions {
                superseded: 1,
                ..none
            },
        ),
    ] {
        let nodes = ["m", "n", "tainted"].map(|name| node(name).capacity("1", "4Gi", "110"));
        let [m, n, tainted] = nodes;
        let tainted = tainted.taint("a", "b", TaintEffect::NoSchedule);
        let mut world = World::new(vec![m, n, tainted], None);
        let pods = [
            low("m-low", "m", 1),
            low("m-mid", "m", 2),
            low("n-mid", "n", 2),
            low("n-high", "n", 50),
            low("tainted-low", "tainted", 1),
            low("tainted-mid", "tainted", 2),
        ];
        pods.iter().for_each(|pod| world.shows(pod.clone()));
        world.shows(high());
        for name in evicted {
            let pod = pods
                .iter()
                .find(|pod| &*(*pod).clone().build().metadata.name == *name);
            world.shows(victim(pod.expect("the victim").clone().version(2)));
        }
        world.shows(high().version(2).nominated(on));
        assert!(world.shadow.next_look().is_some(), "{what}");
        world.waits(5);
        let report = world.report();
        assert_eq!(report.preemptions, expected, "{what}: {report:?}");
        let is_disagreement = expected.other_victims + expected.node_infeasible;
        assert_eq!(report.disagreements.len() as u64, is_disagreement, "{what}");
        assert_eq!(world.shadow.next_look(), None, "{what}");
    }
}

/// An extender that is never called.
struct Configured(ExtenderSpec);

impl berth_framework::extender::Extender for Configured {
    fn spec(&self) -> &ExtenderSpec {
        &self.0
    }
}

fn configured(spec: ExtenderSpec) -> Extenders {
    let extender: Arc<dyn berth_framework::extender::Extender> = Arc::new(Configured(spec));
    Extenders::new([extender])
}

/// At its start, a shadow logs the parts that it does not compare.
#[test]
fn a_line_for_each_extender_states_what_is_left_out() {
    let spec = |filters, prioritizes, preempts| ExtenderSpec {
        name: "http://gpus".into(),
        filters,
        prioritizes,
        preempts,
        ..ExtenderSpec::default()
    };
    for (spec, end) in [
        (
            spec(true, true, true),
            "the nodes that it rejects, its scores, preemptions in which it takes part",
        ),
        (spec(false, true, false), "its scores"),
        (spec(false, false, false), "nothing"),
    ] {
        let lines = left_out(&configured(spec));
        let [line] = &lines[..] else {
            panic!("{lines:?}");
        };
        assert!(line.contains("extender http://gpus, because"), "{line}");
        assert!(line.ends_with(&format!("comparisons: {end}")), "{line}");
    }
    assert!(left_out(&Extenders::default()).is_empty());
}

/// An extender may have rejected nodes that the plugins accept. It accepts no node that they reject.
#[test]
fn what_extenders_may_have_decided_is_not_compared() {
    for (what, managed, extended, only_berth) in [
        ("it manages a resource of the pod", "cpu", 1, 0),
        ("it manages another resource", "example.com/gpu", 0, 1),
    ] {
        let mut world = World::new(vec![small()], None);
        world.shadow.extenders = configured(ExtenderSpec {
            name: "gpus".into(),
            filters: true,
            prioritizes: true,
            managed_resources: vec![managed.into()],
            ..ExtenderSpec::default()
        });
        let fits = || pod("p").request("cpu", "1");
        world.shows(fits());
        world.shows(failed(fits().version(2), NONE));
        for seconds in [1, 4, 10] {
            world.waits(seconds);
        }
        let report = world.report();
        let counts = (report.extended, report.only_berth_finds);
        assert_eq!(counts, (extended, only_berth), "{what}");
        // Its node is compared, and ranked if the extender does not score nodes.
        world.shows(fits().version(3).on("n"));
        let report = world.report();
        let ranks = report.ranks.iter().sum::<u64>();
        assert_eq!((report.feasible, ranks), (1, only_berth), "{what}");
    }
}

#[test]
fn pods_of_other_schedulers_are_not_compared() {
    let mut world = World::new(vec![small()], None);
    for version in [1, 2] {
        let mut foreign = pod("p").scheduler("foreign").version(version);
        if version == 2 {
            foreign = foreign.on("n");
        }
        let change = ClusterChange::Applied(foreign.object());
        world
            .shadow
            .before(&mut world.scheduler, &change, world.now);
        world.scheduler.apply(change, world.now);
    }
    assert_eq!(world.report().bound, 0);
}

/// A saved case shows the same disagreement when it is replayed, and none once it is right.
#[test]
fn a_disagreement_is_saved_as_a_decision_case() {
    use berth_conformance::decisions::{Evaluators, replay};
    let dir = tempfile::tempdir().expect("a temporary directory");
    let config = berth_config::Config::new(
        berth_framework::FeatureGates::default(),
        &berth_plugins::in_tree(),
    );
    let cases = Cases::new(dir.path().to_owned(), config.to_value()).expect("a directory");
    let tainted = node("tainted").taint("a", "b", TaintEffect::NoSchedule);
    let mut world = World::new(vec![tainted, node("free")], Some(cases));
    world.shows(pod("p"));
    world.shows(pod("p").version(2).on("tainted"));
    let file = world.report().disagreements[0]
        .case
        .clone()
        .expect("a file");
    world.shadow.cases.take().expect("cases").wait();
    let bytes = std::fs::read(&file).expect("the case is written");
    let mut text = String::new();
    flate2::read::GzDecoder::new(&bytes[..])
        .read_to_string(&mut text)
        .expect("gzip");
    let shown = replay(text.as_bytes(), Evaluators::All, berth_api::Release::V1_36).to_string();
    assert!(
        shown.contains("bound to tainted, which is not feasible"),
        "{shown}"
    );
    let right = text.replace("\"bound\":\"tainted\"", "\"bound\":\"free\"");
    let shown = replay(right.as_bytes(), Evaluators::All, berth_api::Release::V1_36).to_string();
    assert!(shown.contains("1 passed, 0 failed"), "{shown}");
}

#[test]
fn what_post_filter_plugins_add_is_not_compared() {
    let ours = "0/6 nodes are available: 6 Insufficient cpu.";
    for (other, same) in [
        (ours, true),
        (NONE, false),
        (
            "0/6 nodes are available: 6 Insufficient cpu. no new claims to deallocate, preemption: 0/6 nodes are available: \
             6 Preemption is not helpful for scheduling.",
            true,
        ),
        (
            "0/6 nodes are available: 6 Insufficient cpu, 2 Too many pods.",
            false,
        ),
    ] {
        assert_eq!(super::same_reasons(other, ours), same, "{other}");
    }
}
