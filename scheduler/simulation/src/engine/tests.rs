//! Situations with a known outcome. Calls take 20 ms and containers start after a second unless stated.

mod buffers;
mod controllers;
mod evictions;
mod gates;
mod node_groups;

use super::*;
use crate::distribution::Distribution;
use crate::report::PodRow;
use crate::trace::{
    Gate, GateRemoval, NodeGroup, NodeShape, Outage, PodShape, Quota, TraceGroup, TraceNode,
    TracePod,
};
use berth_api::{Labels, Node, Pod, Quantity, ResourceList, Taint};

fn amounts(pairs: &[(&str, &str)]) -> ResourceList {
    ResourceList::from_pairs(pairs.iter().map(|(name, amount)| {
        let amount: Quantity = amount.parse().expect("a quantity");
        (*name, amount)
    }))
}

fn node(cpu: &str) -> Node {
    NodeShape {
        resources: amounts(&[("cpu", cpu), ("memory", "16Gi")]),
        ..NodeShape::default()
    }
    .node()
}

fn pod_of(cpu: &str, priority: i32) -> Pod {
    PodShape {
        requests: amounts(&[("cpu", cpu)]),
        priority: Some(priority),
        ..PodShape::default()
    }
    .pod()
}

/// A pod with this CPU request and arrival that runs for `seconds`.
fn pod(name: &str, cpu: &str, arrival: u64, seconds: u64) -> TracePod {
    TracePod {
        arrival: Duration::from_secs(arrival),
        duration: Some(Distribution::Constant(Duration::from_secs(seconds))),
        ..TracePod::new(name, pod_of(cpu, 0))
    }
}

fn trace(nodes: &[&str], pods: Vec<TracePod>) -> Trace {
    let nodes = nodes.iter().enumerate();
    Trace {
        nodes: nodes
            .map(|(at, cpu)| TraceNode::new(format!("n{at}"), node(cpu)))
            .collect(),
        pods,
        ..Trace::default()
    }
}

fn options(seed: u64) -> SimulationOptions {
    let gates = [
        berth_framework::Feature::GenericWorkload,
        berth_framework::Feature::GangScheduling,
    ];
    let features = gates.iter().fold(
        berth_framework::FeatureGates::default(),
        |features, gate| features.with(*gate, true),
    );
    SimulationOptions {
        scheduler: SchedulerOptions {
            features,
            ..SchedulerOptions::default()
        },
        config: "default".to_owned(),
        seed,
        until: None,
        pods: true,
        retry_without_events: false,
    }
}

fn play(trace: &Trace) -> Run {
    let run = try_play(trace).unwrap_or_else(|e| panic!("{e}"));
    let summary = &run.summary;
    let ends = summary.finished + summary.running + summary.waiting + summary.lost;
    assert_eq!(summary.arrived, ends, "every pod has one end: {summary:?}");
    run
}

fn try_play(trace: &Trace) -> Result<Run, SimulationError> {
    simulate(trace, options(1), &berth_plugins::in_tree(), &mut |_| {})
}

fn row<'r>(run: &'r Run, name: &str) -> &'r PodRow {
    let found = run.pods.iter().find(|pod| pod.name == name);
    found.unwrap_or_else(|| panic!("no pod {name}"))
}

#[track_caller]
fn assert_times(run: &Run, name: &str, bound: f64, ended: f64) {
    let row = row(run, name);
    let close = |got: Option<f64>, wanted: f64| got.is_some_and(|got| (got - wanted).abs() < 1e-6);
    assert!(
        close(row.bound, bound) && close(row.ended, ended),
        "{row:?}"
    );
}

#[test]
fn pods_wait_for_room_and_take_it_when_it_is_given_back() {
    let run = play(&trace(
        &["1"],
        vec![pod("a", "1", 0, 60), pod("b", "1", 10, 60)],
    ));
    // Bound after 20 ms, started a second later, ended after a minute. The node is empty then, and b is bound 20 ms
    // later.
    assert_times(&run, "a", 0.02, 61.02);
    assert_times(&run, "b", 61.04, 122.04);
    assert_eq!((run.summary.finished, run.summary.nodes_used_max), (2, 1));
    assert!((run.waiting.to_binding.max - 51.04).abs() < 1e-6);
    assert!((run.waiting.to_start.max - 52.04).abs() < 1e-6);
    // One of 16 GiB and one core: 122 of 122.04 seconds of the core, without the two bindings.
    let cpu = &run.summary.resources["cpu"];
    assert!(
        (cpu.utilization_mean - 122.0 / 122.04).abs() < 1e-6,
        "{cpu:?}"
    );
    assert_eq!((cpu.utilization_max, cpu.utilization_end), (1.0, 0.0));
}

#[test]
fn months_without_an_event_cost_nothing() {
    let year = 365 * 86_400;
    let mut steps = 0;
    let long = trace(
        &["2"],
        vec![
            pod("a", "1", 0, 10 * year),
            pod("huge", "3", 5, 60),
            pod("b", "1", 5 * year, 60),
        ],
    );
    let run = simulate(&long, options(1), &berth_plugins::in_tree(), &mut |_| {
        steps += 1
    })
    .unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((run.summary.finished, run.summary.never_bound), (2, 1));
    assert!(run.summary.attempts < 10, "{:?}", run.summary);
    assert_eq!(steps, 1, "fewer than 4,096 steps");
    assert!(run.series.at.len() <= 1_000);
}

#[test]
fn preemption_evicts_a_pod_and_its_replacement_waits() {
    let low = TracePod {
        recreated: true,
        ..pod("low", "2", 0, 600)
    };
    let high = TracePod {
        pod: pod_of("2", 100).into(),
        ..pod("high", "2", 100, 60)
    };
    let run = play(&trace(&["2"], vec![low, high]));
    assert_eq!((run.summary.preempted, run.summary.finished), (1, 2));
    // low ran from 1.02 s on and was deleted 20 ms after the attempt for high.
    assert!(
        (run.summary.lost_work_seconds - 99.0).abs() < 0.1,
        "{:?}",
        run.summary
    );
    assert!((run.summary.lost_work["cpu"] - 198.0).abs() < 0.2);
    let (low, high) = (row(&run, "low"), row(&run, "high"));
    assert_eq!((low.evictions, high.evictions), (1, 0));
    assert!(low.ended > high.ended, "{low:?} {high:?}");
    assert_eq!(run.by_priority.keys().collect::<Vec<_>>(), [&0, &100]);
}

#[test]
fn a_pod_without_a_controller_is_lost_with_its_node() {
    let outage = Outage {
        at: Duration::from_secs(30),
        length: Some(Duration::from_secs(30)),
        drain: false,
    };
    let mut of = trace(
        &["1"],
        vec![
            pod("bare", "500m", 0, 600),
            TracePod {
                recreated: true,
                ..pod("owned", "500m", 0, 600)
            },
        ],
    );
    of.nodes[0].outages = vec![outage.clone()];
    let run = play(&of);
    assert_eq!(
        (
            run.summary.lost,
            run.summary.finished,
            run.summary.disrupted
        ),
        (1, 1, 2)
    );
    let owned = row(&run, "owned");
    // The node returns after a minute; the pod is recreated a second after the failure, and waits until then.
    assert!(
        owned.ended.is_some_and(|end| (661.0..664.0).contains(&end)),
        "{owned:?}"
    );
    assert_eq!(row(&run, "bare").outcome, "lost");
    // A drain evicts the pods in the same way, and the node stays.
    of.nodes[0].outages = vec![Outage {
        drain: true,
        ..outage
    }];
    let run = play(&of);
    assert_eq!((run.summary.lost, run.summary.finished), (1, 1));
    assert!((run.summary.nodes_mean - 1.0).abs() < 1e-9);
}

#[test]
fn quotas_hold_pods_until_there_is_room() {
    let mut of = trace(
        &["8"],
        vec![
            pod("a", "2", 0, 60),
            pod("b", "2", 1, 60),
            pod("c", "1", 2, 60),
        ],
    );
    of.quotas = vec![Quota {
        namespace: "default".into(),
        hard: amounts(&[("cpu", "3")]),
    }];
    let run = play(&of);
    assert_times(&run, "a", 0.02, 61.02);
    // c fits while a runs; b is created when a has ended.
    assert_times(&run, "c", 2.02, 63.02);
    assert_times(&run, "b", 61.04, 122.04);
    assert_eq!(row(&run, "b").attempts, 1, "it did not exist before");
}

#[test]
fn a_group_starts_when_all_its_pods_have_room() {
    let member = |name: &str| TracePod {
        pod: PodShape {
            requests: amounts(&[("cpu", "1")]),
            group: Some("ring".into()),
            ..PodShape::default()
        }
        .pod()
        .into(),
        ..pod(name, "1", 5, 60)
    };
    let mut of = trace(
        &["2"],
        vec![pod("first", "1", 0, 60), member("m0"), member("m1")],
    );
    let error = try_play(&of).expect_err("the group is not defined");
    assert!(error.to_string().contains("default/ring"), "{error}");
    of.groups = vec![TraceGroup {
        namespace: "default".into(),
        name: "ring".into(),
        minimum: 2,
        topology: None,
        priority: None,
        priority_class: None,
    }];
    let run = play(&of);
    assert_eq!(run.summary.finished, 3);
    for name in ["m0", "m1"] {
        let member = row(&run, name);
        assert!(member.bound.is_some_and(|at| at >= 61.02), "{member:?}");
    }
}

fn group_of(minimum: u32, maximum: u32) -> NodeGroup {
    NodeGroup {
        slices: Vec::new(),
        name: "pool".into(),
        node: node("2").into(),
        minimum,
        maximum,
        boot: Distribution::Constant(Duration::from_secs(60)),
        idle: Duration::from_secs(300),
        price_per_hour: 3.6,
    }
}

#[test]
fn a_node_group_grows_for_pods_that_wait_and_shrinks_when_nodes_are_idle() {
    let mut of = trace(&[], vec![pod("a", "2", 5, 600), pod("b", "2", 5, 600)]);
    of.node_groups = vec![group_of(0, 5)];
    let run = play(&of);
    // The pods are seen at 10 s, and the nodes join at 70 s.
    assert_eq!((run.summary.nodes_added, run.summary.nodes_removed), (2, 2));
    assert_eq!((run.summary.nodes_max, run.summary.finished), (2, 2));
    for name in ["a", "b"] {
        let row = row(&run, name);
        assert!(
            row.bound.is_some_and(|at| (70.0..81.0).contains(&at)),
            "{row:?}"
        );
    }
    // Each exists for 0.02 + 1 + 600 + 300 seconds, at 3.6 an hour, and up to ten seconds of backoff: without any node,
    // attempts fail with an error.
    let cost = run.summary.cost;
    assert!((1.802..1.823).contains(&cost), "{cost}");
    // The largest number is a limit.
    of.node_groups = vec![group_of(0, 1)];
    let run = play(&of);
    assert_eq!((run.summary.nodes_max, run.summary.finished), (1, 2));
    // Pods that fit on one new node cause one.
    of = trace(
        &[],
        (0..3)
            .map(|n| pod(&format!("p{n}"), "600m", 5, 600))
            .collect(),
    );
    of.node_groups = vec![group_of(0, 5)];
    assert_eq!(play(&of).summary.nodes_added, 1);
}

#[test]
fn a_node_group_does_not_grow_for_pods_that_a_new_node_would_not_help() {
    let on_ssd = PodShape {
        requests: amounts(&[("cpu", "1")]),
        node_selector: Labels::from_pairs([("disk", "ssd")]),
        ..PodShape::default()
    };
    let selecting = TracePod {
        pod: on_ssd.pod().into(),
        ..pod("ssd", "1", 0, 60)
    };
    let mut of = trace(&["1"], vec![selecting, pod("huge", "4", 0, 60)]);
    of.node_groups = vec![group_of(0, 5)];
    let run = play(&of);
    assert_eq!((run.summary.nodes_added, run.summary.never_bound), (0, 2));
    // With the label and a taint that the pod does not tolerate, neither; with the label alone, it does.
    let mut labelled = node("2");
    labelled.metadata.labels = Labels::from_pairs([("disk", "ssd")]);
    let mut tainted = labelled.clone();
    tainted.spec.taints = vec![Taint::new(
        "dedicated",
        "x",
        berth_api::TaintEffect::NoSchedule,
    )];
    for (node, added) in [(tainted, 0), (labelled, 1)] {
        of.node_groups[0].node = node.into();
        assert_eq!(play(&of).summary.nodes_added, added);
    }
}

#[test]
fn the_smallest_number_of_nodes_of_a_group_stays() {
    let mut of = trace(&[], vec![pod("a", "1", 5, 600)]);
    of.node_groups = vec![group_of(1, 5)];
    let run = play(&of);
    let summary = &run.summary;
    assert_eq!(
        (
            summary.nodes_added,
            summary.nodes_removed,
            summary.nodes_max
        ),
        (0, 0, 1)
    );
    assert_times(&run, "a", 5.02, 606.02);
}

#[test]
fn a_pod_with_a_node_in_its_spec_runs_from_its_arrival_on() {
    let mut running = pod_of("1", 0);
    running.spec.node_name = "n0".into();
    let running = TracePod {
        pod: running.into(),
        recreated: true,
        ..pod("old", "1", 0, 60)
    };
    let mut of = trace(&["1", "1"], vec![running, pod("new", "1", 0, 60)]);
    let run = play(&of);
    assert_times(&run, "old", 0.0, 60.0);
    assert_eq!(row(&run, "new").node.as_deref(), Some("n1"));
    // Its replacement may get another node.
    of.nodes[0].leaves = Some(Duration::from_secs(30));
    let run = play(&of);
    assert_eq!(row(&run, "old").node.as_deref(), Some("n1"));
    assert_eq!(run.summary.finished, 2);
}

/// Two nodes with 1 core free each; a pod that waits for 2 cores can use neither: half of the 4 cores are wasted.
#[test]
fn free_room_that_no_waiting_pod_can_use_is_fragmentation() {
    let mut of = trace(
        &["2", "2"],
        vec![
            pod("a", "1500m", 0, 600),
            pod("b", "1500m", 0, 600),
            pod("c", "1", 5, 600),
        ],
    );
    let run = play(&of);
    assert!(
        (run.series.fragmentation["cpu"][20] - 0.25).abs() < 1e-9,
        "{:?}",
        run.series.fragmentation
    );
    of.pods.truncate(2);
    let run = play(&of);
    assert!(
        run.series.fragmentation["cpu"]
            .iter()
            .all(|wasted| *wasted == 0.0)
    );
}

#[test]
fn fairness_compares_what_namespaces_received() {
    let of_team = |team: &str, name: &str, arrival: u64| TracePod {
        pod: PodShape {
            namespace: team.into(),
            requests: amounts(&[("cpu", "1")]),
            ..PodShape::default()
        }
        .pod()
        .into(),
        ..pod(name, "1", arrival, 100)
    };
    let run = play(&trace(
        &["1"],
        vec![of_team("a", "p", 0), of_team("b", "p", 0)],
    ));
    // One waited 101 seconds of 202, the other one not at all: shares of 1 and ½ have the index 0.9.
    let fairness = run.summary.fairness.expect("two namespaces");
    assert!((fairness - 0.9).abs() < 0.01, "{fairness}");
    assert_eq!(run.by_namespace.len(), 2);
}

#[test]
fn the_same_input_gives_the_same_report_and_another_seed_another_one() {
    let drawn = |pod: TracePod| TracePod {
        count: 40,
        every: Duration::from_secs(7),
        duration: Some(Distribution::Lognormal(Duration::from_secs(100), 1.0)),
        ..pod
    };
    let mut of = trace(
        &["4", "4", "4"],
        vec![drawn(pod("a", "1", 0, 1)), drawn(pod("b", "300m", 3, 1))],
    );
    of.world.api_latency = Distribution::Exponential(Duration::from_millis(50));
    let of = of;
    let play = |seed: u64| {
        simulate(&of, options(seed), &berth_plugins::in_tree(), &mut |_| {})
            .unwrap_or_else(|e| panic!("{e}"))
    };
    let (first, again, other) = (play(1), play(1), play(2));
    assert_eq!(first, again);
    assert!(first.pods != other.pods);
    assert_eq!((first.summary.arrived, first.summary.finished), (80, 80));
}

#[test]
fn mistakes_in_a_trace_are_named() {
    let of = trace(&[], vec![pod("a", "1", 0, 1)]);
    assert!(matches!(try_play(&of), Err(SimulationError::NoNodes)));
    let mut of = trace(&["1"], vec![pod("a", "1", 0, 1), pod("a", "1", 0, 1)]);
    let error = try_play(&of).expect_err("two pods have one name");
    assert!(error.to_string().contains("default/a"), "{error}");
    of.pods.pop();
    of.nodes.push(of.nodes[0].clone());
    let error = try_play(&of).expect_err("two nodes have one name");
    assert!(error.to_string().contains("n0"), "{error}");
}

/// The simulation ends at a time when asked to.
#[test]
fn a_simulation_can_be_cut_off() {
    let of = trace(&["1"], vec![pod("a", "1", 0, 60), pod("b", "1", 100, 60)]);
    let options = SimulationOptions {
        until: Some(Duration::from_secs(30)),
        ..options(1)
    };
    let run = simulate(&of, options, &berth_plugins::in_tree(), &mut |_| {})
        .unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(
        (run.seconds, run.summary.arrived, run.summary.running),
        (30.0, 1, 1)
    );
}
