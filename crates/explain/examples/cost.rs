//! What asking costs: `cargo run --release -p berth-explain --example cost -- [NODES] [WAITING]`.
//!
//! The cluster is half full; the waiting pods are of ten kinds, each of which lacks something else. The figures are the
//! times of the two parts of an answer: the copy, during which nothing is scheduled, and the computation, which runs on
//! another thread.

// It measures, so it asks the clock.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use berth_api::{Labels, Object, Pod, TaintEffect, Time};
use berth_explain::{PodFacts, QueueFacts, Snapshot, explain_node, explain_pod, explain_queue};
use berth_framework::testing::{node, pod};
use berth_scheduler::{ClusterChange, Outcome, Scheduler, SchedulerOptions};
use std::time::{Duration, Instant};

const NOW: Time = Time::from_secs(1_000);
/// How many pods are asked about.
const QUESTIONS: usize = 200;

fn waiting(at: usize) -> Pod {
    let made = pod(&format!("w{at}")).label("app", &format!("app-{}", at % 10));
    let made = match at % 10 {
        0..=4 => made.request("cpu", &format!("{}", 5 + at % 5)),
        5 => made.request("memory", "64Gi"),
        6 => made.request("example.com/gpu", "1"),
        7 => made.gate("example.com/gate"),
        8 => made.with(|pod| {
            pod.spec.node_selector = Some(Labels::from_pairs([("disk", "none")]));
        }),
        _ => made.request("cpu", "3500m").with(|pod| {
            let spread = r#"{"spec":{"topologySpreadConstraints":[{"maxSkew":1,"minDomains":9,"topologyKey":"zone",
                "whenUnsatisfiable":"DoNotSchedule","labelSelector":{"matchLabels":{"app":"app-9"}}}]}}"#;
            let spread: Pod = serde_json::from_str(spread).expect("a pod");
            pod.spec.topology_spread_constraints = spread.spec.topology_spread_constraints.clone();
        }),
    };
    made.with(|pod| pod.spec.preemption_policy = Some("Never".into()))
        .build()
}

fn report(what: &str, mut took: Vec<Duration>) {
    took.sort_unstable();
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
    let mean = took.iter().sum::<Duration>() / took.len() as u32;
    println!(
        "{what:<34} mean {mean:>10.1?}   p50 {:>10.1?}   p99 {:>10.1?}   max {:>10.1?}",
        at(0.5),
        at(0.99),
        at(1.0)
    );
}

fn main() {
    let mut numbers = std::env::args()
        .skip(1)
        .filter_map(|text| text.parse().ok());
    let nodes: usize = numbers.next().unwrap_or(5_000);
    let pods: usize = numbers.next().unwrap_or(10_000);
    let options = SchedulerOptions::default();
    let mut scheduler =
        Scheduler::new(options, &berth_plugins::in_tree(), NOW).unwrap_or_else(|e| panic!("{e}"));
    let mut apply = |object: Object| scheduler.apply(ClusterChange::Applied(object), NOW);
    for at in 0..nodes {
        let name = format!("n{at}");
        let made = node(&name)
            .capacity("4", "32Gi", "110")
            .label("kubernetes.io/hostname", &name)
            .label("zone", ["a", "b", "c"][at % 3]);
        let made = match at % 10 {
            0 => made.taint("dedicated", "db", TaintEffect::NoSchedule),
            _ => made,
        };
        apply(made.object());
        for pod_at in 0..4 {
            let made = pod(&format!("b{at}-{pod_at}"))
                .on(&name)
                .label("app", "bound");
            apply(
                made.request("cpu", "500m")
                    .request("memory", "1Gi")
                    .object(),
            );
        }
    }
    for at in 0..pods {
        apply(Object::Pod(waiting(at).into()));
    }
    let begun = Instant::now();
    let mut attempts = 0;
    while let Outcome::Done { .. } = scheduler.schedule_one(NOW) {
        scheduler.take_outputs(NOW);
        attempts += 1;
    }
    println!(
        "{nodes} nodes, {} bound pods, {pods} waiting pods; {attempts} attempts in {:.1?}",
        nodes * 4,
        begun.elapsed()
    );
    let (mut copied, mut computed, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    for at in 0..QUESTIONS {
        let name = format!("w{}", at * 97 % pods);
        let begun = Instant::now();
        let facts = PodFacts::take(&scheduler, "default", &name).expect("the pod");
        let mut snapshot = Snapshot::take(&scheduler, NOW);
        copied.push(begun.elapsed());
        let computing = Instant::now();
        let answer = explain_pod(&mut snapshot, &facts);
        let json = serde_json::to_vec(&answer).expect("JSON");
        computed.push(computing.elapsed());
        whole.push(begun.elapsed());
        assert!(!json.is_empty());
    }
    report("pod: copy (nothing is scheduled)", copied);
    report("pod: computation", computed);
    report("pod: whole", whole);
    let (mut taken, mut queue, mut of_node) = (Vec::new(), Vec::new(), Vec::new());
    for at in 0..QUESTIONS / 10 {
        let begun = Instant::now();
        let facts = QueueFacts::take(&scheduler, NOW);
        taken.push(begun.elapsed());
        explain_queue(&facts);
        queue.push(begun.elapsed());
        let begun = Instant::now();
        let mut snapshot = Snapshot::take(&scheduler, NOW);
        explain_node(&mut snapshot, &facts, &format!("n{}", at * 131 % nodes)).expect("a node");
        of_node.push(begun.elapsed());
    }
    report("queue: copy (nothing is scheduled)", taken);
    report("queue: whole", queue);
    report("node: whole", of_node);
}
