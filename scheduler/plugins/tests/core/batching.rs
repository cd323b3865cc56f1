//! Similar pods, scheduled one after the other: kube-scheduler may reuse the results of the first pod for the second
//! (KEP-5598). Berth evaluates each pod from kept answers. Each pod gets the same node as without kept answers,
//! whatever changed in between.

use crate::drivers::{driver_with, with_spec};
use berth_api::TaintEffect;
use berth_framework::testing::{PodBuilder, node, pod};
use berth_scheduler::evaluator::EvaluatorKind;
use berth_scheduler::profile::{PluginConfig, ProfileSpec};
use berth_scheduler::queue::QueuedIn;
use berth_scheduler::testing::Driver;
use serde_json::json;

/// A scheduler whose pods kube-scheduler could batch: default spread constraints would keep it from that.
fn world(evaluator: EvaluatorKind) -> Driver {
    driver_with(|options| {
        options.evaluator = evaluator;
        let first = ProfileSpec {
            plugin_config: vec![PluginConfig {
                name: "PodTopologySpread".to_owned(),
                args: json!({"defaultingType": "List"}),
            }],
            ..ProfileSpec::default()
        };
        let mut second = first.clone();
        second.scheduler_name = "second".to_owned();
        options.profiles = vec![first, second];
    })
}

fn worker(name: &str) -> PodBuilder {
    pod(name).request("cpu", "1").request("memory", "1Gi")
}

/// Nodes that LeastAllocated prefers in this order: big, middle, small, tiny.
fn nodes(w: &mut Driver, pods: &str) {
    for (name, cpu) in [
        ("big", "64"),
        ("middle", "8"),
        ("small", "4"),
        ("tiny", "2"),
    ] {
        w.node(node(name).capacity(cpu, "64Gi", pods));
    }
}

/// Tries all existing pods and returns the results.
fn try_all(w: &mut Driver) -> String {
    let outcomes = w.attempts();
    w.answer_all();
    let short = |outcome: String| match outcome.split_once(':') {
        Some((pod, _)) => format!("{pod} nowhere"),
        None => outcome,
    };
    outcomes
        .into_iter()
        .map(short)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Runs a scenario with each evaluator: all give the same result, and the expected one.
fn story(situation: &str, expected: &[&str], notify: impl Fn(&mut Driver) -> Vec<String>) {
    for evaluator in [EvaluatorKind::Plain, EvaluatorKind::Incremental] {
        let notified = notify(&mut world(evaluator));
        assert_eq!(notified, expected, "{situation}, {evaluator}");
    }
}

/// C-54 to C-57, case 231: events between two pods of equal shape.
#[test]
fn every_pod_gets_the_node_that_is_best_now() {
    story(
        "one pod a node, until no node is left",
        &["a on big, b on middle, c on small, d on tiny, e nowhere"],
        |w| {
            nodes(w, "1");
            for name in ["a", "b", "c", "d", "e"] {
                w.pod(worker(name));
            }
            vec![try_all(w)]
        },
    );
    story(
        "the node is not full: the next pod goes where it is best for it now",
        &["a on big, b on big, c on big"],
        |w| {
            nodes(w, "9");
            for name in ["a", "b", "c"] {
                w.pod(worker(name));
            }
            vec![try_all(w)]
        },
    );
    story(
        "a pod of another shape",
        &["a on big, b on middle, c on small"],
        |w| {
            nodes(w, "1");
            w.pod(worker("a"));
            w.pod(worker("b").request("cpu", "3"));
            w.pod(worker("c"));
            vec![try_all(w)]
        },
    );
    story(
        "the one between fits nowhere",
        &["a on big, b nowhere, c on middle"],
        |w| {
            nodes(w, "1");
            w.pod(worker("a"));
            w.pod(pod("b").request("cpu", "99"));
            w.pod(worker("c"));
            vec![try_all(w)]
        },
    );
    story(
        "one of another profile between",
        &["a on big, b on middle, c on small"],
        |w| {
            nodes(w, "1");
            w.pod(worker("a"));
            w.pod(worker("b").scheduler("second"));
            w.pod(worker("c"));
            vec![try_all(w)]
        },
    );
    story(
        "a long pause, in which a better node came",
        &["a on big", "b on huge"],
        |w| {
            nodes(w, "1");
            w.pod(worker("a"));
            let first = try_all(w);
            w.wait(1);
            w.node(node("huge").capacity("64", "64Gi", "1"));
            w.pod(worker("b"));
            vec![first, try_all(w)]
        },
    );
    story(
        "no pause at all, and a better node came",
        &["a on big", "b on huge"],
        |w| {
            nodes(w, "1");
            w.pod(worker("a"));
            let first = try_all(w);
            w.node(node("huge").capacity("64", "64Gi", "1"));
            w.pod(worker("b"));
            vec![first, try_all(w)]
        },
    );
    story(
        "the next best node was taken by another pod",
        &["a on big", "b on small"],
        |w| {
            nodes(w, "1");
            w.pod(worker("a"));
            let first = try_all(w);
            w.pod(worker("stranger").scheduler("nobody").on("middle"));
            w.pod(worker("b"));
            vec![first, try_all(w)]
        },
    );
    story(
        "the node that was chosen has gone, and so has the next best",
        &["a on big", "b on small"],
        |w| {
            nodes(w, "1");
            w.pod(worker("a"));
            let first = try_all(w);
            for name in ["big", "middle"] {
                w.gone(node(name).object());
            }
            w.pod(worker("b"));
            vec![first, try_all(w)]
        },
    );
    story(
        "the first pod has gone again",
        &["a on big", "b on big"],
        |w| {
            nodes(w, "1");
            w.pod(worker("a"));
            let first = try_all(w);
            w.deleted("a");
            w.pod(worker("b"));
            vec![first, try_all(w)]
        },
    );
}

/// C-54, C-55: a pod that differs from its neighbours in any field that a plugin reads is evaluated separately.
#[test]
fn pods_that_differ_in_anything_that_counts_are_judged_apart() {
    let spec = |fields: serde_json::Value| move |p: PodBuilder| with_spec(p, &fields);
    type Variant = Box<dyn Fn(PodBuilder) -> PodBuilder>;
    let ssd = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]}});
    let disk = json!({"volumes": [{"name": "d", "gcePersistentDisk": {"pdName": "disk"}}]});
    let variants: Vec<(&str, Variant, &str)> = vec![
        ("nothing", Box::new(|p| p), "big"),
        ("labels", Box::new(|p| p.label("app", "shunned")), "middle"),
        (
            "the node selector",
            Box::new(spec(json!({"nodeSelector": {"disk": "ssd"}}))),
            "small",
        ),
        (
            "node affinity",
            Box::new(spec(json!({"affinity": {"nodeAffinity": ssd}}))),
            "small",
        ),
        ("host ports", Box::new(|p| p.host_port(80)), "middle"),
        (
            "requests",
            Box::new(|p| p.request("example.com/gpu", "1")),
            "tiny",
        ),
        (
            "overhead",
            Box::new(spec(json!({"overhead": {"example.com/gpu": "1"}}))),
            "tiny",
        ),
        (
            "tolerations",
            Box::new(|p| {
                p.toleration(
                    serde_json::from_value(json!({"key": "dedicated", "operator": "Exists"}))
                        .expect("a toleration"),
                )
            }),
            "tainted",
        ),
        ("volumes", Box::new(spec(disk.clone())), "middle"),
        ("the profile", Box::new(|p| p.scheduler("second")), "big"),
    ];
    for (what, variant, there) in variants {
        let expected = format!("before on big, variant on {there}, after on big");
        story(what, &[&expected], |w| {
            w.node(node("big").capacity("160", "640Gi", "99"));
            w.node(node("middle").capacity("80", "640Gi", "99"));
            w.node(
                node("small")
                    .capacity("10", "640Gi", "99")
                    .label("disk", "ssd"),
            );
            w.node(
                node("tiny")
                    .capacity("5", "640Gi", "99")
                    .allocatable("example.com/gpu", "1"),
            );
            w.node(node("tainted").capacity("999", "999Gi", "99").taint(
                "dedicated",
                "x",
                TaintEffect::NoSchedule,
            ));
            // The best node has a port in use, a disk, and a pod with anti-affinity to an app.
            let shuns = json!({"affinity": {"podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "kubernetes.io/hostname",
                     "labelSelector": {"matchLabels": {"app": "shunned"}}}]}}});
            w.node(
                node("big")
                    .capacity("160", "640Gi", "99")
                    .label("kubernetes.io/hostname", "big"),
            );
            w.pod(spec(shuns)(pod("shy")).on("big"));
            w.pod(pod("server").host_port(80).on("big"));
            w.pod(spec(disk.clone())(pod("reader")).on("big"));
            w.pod(worker("before"));
            w.pod(variant(worker("variant")));
            w.pod(worker("after"));
            vec![try_all(w)]
        });
    }
}

/// Case 140, C-54: a pod that changes in the queue is evaluated in its latest version, in every part of the queue.
#[test]
fn a_pod_is_judged_as_it_is_now() {
    let picky = |p: PodBuilder| with_spec(p, &json!({"nodeSelector": {"disk": "ssd"}}));
    for (place, shut) in [
        (QueuedIn::Active, false),
        (QueuedIn::Unschedulable, true),
        (QueuedIn::Backoff, true),
        (QueuedIn::Gated, false),
    ] {
        let situation = format!("{place:?}");
        story(&situation, &["a on big, p on small"], |w| {
            let closed = |name: &str| node(name).unschedulable(shut);
            w.node(closed("big").capacity("16", "64Gi", "9"));
            w.node(
                closed("small")
                    .capacity("4", "64Gi", "9")
                    .label("disk", "ssd"),
            );
            w.pod(match place {
                QueuedIn::Gated => worker("p").gate("wait"),
                _ => worker("p"),
            });
            if shut {
                assert_eq!(try_all(w), "p nowhere");
            }
            if place == QueuedIn::Backoff {
                w.change("p", |p| p.label("touched", "yes"));
                w.node(node("tiny").capacity("1", "1Gi", "9"));
            }
            assert_eq!(w.place_of("p"), Some(place));
            w.change("p", picky);
            if place == QueuedIn::Gated {
                w.change("p", PodBuilder::ungated);
            }
            w.node(node("big").capacity("16", "64Gi", "9"));
            w.node(
                node("small")
                    .capacity("4", "64Gi", "9")
                    .label("disk", "ssd"),
            );
            w.pod(worker("a").priority(1));
            w.wait(10);
            vec![try_all(w)]
        });
    }
}
