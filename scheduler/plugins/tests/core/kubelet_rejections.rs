//! Rejections of kubelets with the whole scheduler: the node of the next pod of a controller, and the woken pods. Debug
//! builds compare both evaluators in each decision.

use crate::drivers::driver_with;
use berth_api::OwnerReference;
use berth_framework::testing::{NodeBuilder, PodBuilder, node, pod};
use berth_scheduler::ScheduleOutcome;
use berth_scheduler::metrics::Metric;
use berth_scheduler::profile::{EnabledPlugin, PluginConfig, ProfileSpec};
use berth_scheduler::queue::QueuedIn;
use berth_scheduler::testing::Driver;
use serde_json::{Value, json};

const PLUGIN: &str = "KubeletRejections";

fn profile(args: &Value) -> ProfileSpec {
    let mut profile = ProfileSpec::default();
    let enabled = &mut profile.plugins.multi_point.enabled;
    enabled.push(EnabledPlugin::weighted(PLUGIN, 3));
    profile.plugin_config.push(PluginConfig {
        name: PLUGIN.to_owned(),
        args: args.clone(),
    });
    profile
}

fn sized(name: &str, cpu: &str) -> NodeBuilder {
    node(name).capacity(cpu, "100Gi", "100")
}

/// A scheduler with the plugin. It never tries pods without an event.
fn with_plugin(args: &Value) -> Driver {
    driver_with(|options| {
        options.profiles = vec![profile(args)];
        options.pod_max_in_unschedulable_pods_duration =
            berth_api::Duration::from_secs(100 * 365 * 24 * 3600);
    })
}

/// A pod of a Job that requests a CPU.
fn of_job(name: &str) -> PodBuilder {
    pod(name).request("cpu", "1").with(|pod| {
        let owner = OwnerReference {
            kind: "Job".into(),
            name: "batch".into(),
            uid: "uid-batch".into(),
            controller: Some(true),
            ..OwnerReference::default()
        };
        pod.metadata.owner_references = vec![owner].into();
    })
}

/// The kubelet rejects a pod, and the Job creates the next one. Returns the node of the next one, or why it has none.
fn rejected(w: &mut Driver, name: &str, next: &str) -> String {
    w.change(name, |pod| {
        pod.phase("Failed")
            .with(|pod| pod.status.reason = "OutOfcpu".into())
    });
    place(w, of_job(next))
}

fn place(w: &mut Driver, pod: PodBuilder) -> String {
    w.pod(pod);
    let outcome = w.attempt();
    w.answer_all();
    outcome
}

/// The kubelet of the node of each pod rejects it. Returns the nodes.
fn nodes_of_pods(w: &mut Driver, pods: usize) -> Vec<String> {
    let first = place(w, of_job("p0"));
    let next = (1..pods).map(|n| rejected(w, &format!("p{}", n - 1), &format!("p{n}")));
    std::iter::once(first)
        .chain(next.collect::<Vec<_>>())
        .collect()
}

/// PL-358, PL-359: the better node is avoided after its first rejection, because of the score, and after three
/// rejections if they do not count in scores. Without the plugin, the loop continues.
#[test]
fn the_next_pods_get_another_node() {
    let with_weight = |weight: Option<i64>| {
        let mut w = driver_with(|options| {
            let mut profile = profile(&Value::Null);
            match weight {
                Some(weight) => profile.plugins.multi_point.enabled[0].weight = Some(weight),
                None => profile.plugins.multi_point.enabled.clear(),
            }
            options.profiles = vec![profile];
        });
        w.node(sized("best", "64")).node(sized("other", "16"));
        // The nodes differ: the other one has a pod.
        w.pod(pod("there").request("cpu", "8").on("other"));
        nodes_of_pods(&mut w, 6)
    };
    let best = || "on best".to_owned();
    let other = || "on other".to_owned();
    assert_eq!(with_weight(None), vec![best(); 6]);
    let mut expected = vec![other(); 6];
    expected[0] = best();
    assert_eq!(with_weight(Some(100))[..2], expected[..2]);
    let mut w = with_plugin(&json!({"halfLife": "1s"}));
    w.node(sized("best", "64")).node(sized("other", "16"));
    w.pod(pod("there").request("cpu", "8").on("other"));
    let mut nodes = vec![place(&mut w, of_job("p0"))];
    for n in 1..5 {
        // The rejections do not count in scores any more when the next one is remembered.
        let name = format!("p{}", n - 1);
        w.change(&name, |pod| {
            pod.phase("Failed")
                .with(|pod| pod.status.reason = "OutOfcpu".into())
        });
        w.wait(10);
        nodes.push(place(&mut w, of_job(&format!("p{n}"))));
    }
    assert_eq!(nodes, [best(), best(), best(), other(), other()]);
    assert_eq!(w.metric(Metric::RejectedByKubelet, &["OutOfcpu"]), 4.0);
}

/// PL-354, PL-360: with all nodes excluded, the pod waits. It is queued at the end of the exclusion by the time alone.
#[test]
fn the_end_of_an_exclusion_wakes_the_pod() {
    let mut w = with_plugin(&json!({"excludeAfter": 2, "excludeFor": "2m"}));
    w.node(sized("only", "64"));
    let nodes = nodes_of_pods(&mut w, 3);
    assert_eq!(nodes[..2], ["on only", "on only"]);
    assert_eq!(
        nodes[2],
        "0/1 nodes are available: 1 node(s) had kubelets that rejected such pods. no new claims to deallocate, preemption: 0/1 nodes are available: \
         1 Preemption is not helpful for scheduling."
    );
    assert_eq!(w.place_of("p2"), Some(QueuedIn::Unschedulable));
    w.wait(119);
    assert_eq!(w.attempt(), "idle");
    let ScheduleOutcome::Idle { next_wake } = w.schedule() else {
        panic!("no pod is queued");
    };
    let wake = next_wake.expect("the end of the exclusion");
    assert!(wake.since(w.now) <= berth_api::Duration::from_secs(1));
    w.wait(1);
    assert_eq!(w.attempt_named(), "p2 on only");
    // One more rejection within the window excludes the node again.
    w.answer_all();
    assert!(rejected(&mut w, "p2", "p3").starts_with("0/1 nodes"));
}

/// PL-355, PL-360: a change of the node's allocatable, a pod that leaves it, its deletion, and a new node queue the pod.
#[test]
fn a_change_of_the_node_wakes_the_pod() {
    type Change = fn(&mut Driver);
    let changes: [(&str, Change, &str); 6] = [
        (
            "the labels change",
            |w| {
                w.node(sized("only", "64").label("a", "b"));
            },
            "idle",
        ),
        (
            "the allocatable resources change",
            |w| {
                w.node(sized("only", "32"));
            },
            "p2 on only",
        ),
        ("a pod is deleted", |w| w.deleted("there"), "p2 on only"),
        (
            "a pod ends",
            |w| w.change("there", |pod| pod.phase("Succeeded")),
            "p2 on only",
        ),
        (
            "another pod is rejected",
            |w| {
                w.change("there", |pod| {
                    pod.phase("Failed")
                        .with(|pod| pod.status.reason = "OutOfpods".into())
                });
            },
            "idle",
        ),
        (
            "a new node",
            |w| {
                w.node(sized("new", "64"));
            },
            "p2 on new",
        ),
    ];
    for (situation, change, expected) in changes {
        let mut w = with_plugin(&json!({"excludeAfter": 2, "excludeFor": "1h", "window": "1h"}));
        w.node(sized("only", "64"));
        w.pod(pod("there").request("cpu", "1").on("only"));
        let nodes = nodes_of_pods(&mut w, 3);
        assert!(nodes[2].starts_with("0/1 nodes"), "{situation}: {nodes:?}");
        w.wait(30);
        assert_eq!(w.attempt_named(), "idle", "{situation}");
        change(&mut w);
        w.wait(30);
        assert_eq!(w.attempt_named(), expected, "{situation}");
    }
}

/// PL-355: a node that was deleted and created again is not excluded.
#[test]
fn a_node_that_is_created_again_is_free() {
    let mut w = with_plugin(&json!({"excludeAfter": 1, "excludeFor": "1h"}));
    w.node(sized("only", "64"));
    let nodes = nodes_of_pods(&mut w, 2);
    assert!(nodes[1].starts_with("0/1 nodes"), "{nodes:?}");
    let only = w.scheduler.cache().node("only").cloned().expect("a node");
    w.gone(berth_api::Object::Node(only));
    w.wait(30);
    w.node(sized("only", "64"));
    assert_eq!(w.attempt_named(), "p1 on only");
}

/// PL-356: another configuration without the plugin forgets the rejections, and queues the pod.
#[test]
fn without_the_plugin_no_node_is_excluded() {
    let mut w = with_plugin(&json!({"excludeAfter": 1, "excludeFor": "1h"}));
    w.node(sized("only", "64"));
    let nodes = nodes_of_pods(&mut w, 2);
    assert!(nodes[1].starts_with("0/1 nodes"), "{nodes:?}");
    let options = berth_scheduler::SchedulerOptions::default();
    let reconfiguration = berth_scheduler::Reconfiguration {
        profiles: vec![ProfileSpec::default()],
        percentage_of_nodes_to_score: None,
        pod_initial_backoff: options.pod_initial_backoff,
        pod_max_backoff: options.pod_max_backoff,
        extenders: Default::default(),
        source: "".into(),
    };
    let now = w.now;
    let registry = berth_plugins::in_tree();
    w.scheduler
        .reconfigure(&reconfiguration, &registry, now)
        .unwrap_or_else(|e| panic!("{e}"));
    w.take();
    w.wait(30);
    assert_eq!(w.attempt_named(), "p1 on only");
}
