use super::*;
use serde_json::{Value, json};

fn node(name: &str, more: Value) -> Value {
    let mut node = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "zone": "a"}},
        "status": {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "3"}},
    });
    merge(&mut node, more);
    node
}

fn pod(name: &str, spec: Value) -> Value {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name, "labels": {"app": name}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "500m"}}}]},
    });
    merge(&mut pod, json!({"spec": spec}));
    pod
}

fn merge(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more,
    }
}

/// A step of a log.
enum Step {
    Node(Value),
    NodeGone(&'static str),
    Pod(Value),
    Bind(&'static str, &'static str),
    PodGone(&'static str),
}

use Step::{Bind, NodeGone, PodGone};

fn found(steps: Vec<Step>, surroundings: &Surroundings) -> Vec<String> {
    let read = |value: Value| serde_json::from_value(value);
    let log = (1..)
        .zip(steps)
        .map(|(revision, step)| LogEntry {
            revision,
            change: match step {
                Step::Node(node) => ObjectChange::Node(Arc::new(
                    serde_json::from_value(node).expect("the test writes nodes"),
                )),
                NodeGone(name) => ObjectChange::NodeGone(name.into()),
                Step::Pod(pod) => {
                    ObjectChange::Pod(Arc::new(read(pod).expect("the test writes pods")))
                }
                Bind(pod, node) => ObjectChange::Bound {
                    uid: pod.into(),
                    node: node.into(),
                },
                PodGone(uid) => ObjectChange::PodGone(uid.into()),
            },
        })
        .collect();
    let verdict = verify(log, surroundings);
    verdict.violations.into_iter().map(|v| v.rule).collect()
}

/// Node `n`, then these steps.
fn on_n(more: Value, steps: Vec<Step>) -> Vec<Step> {
    let mut all = vec![Step::Node(node("n", more))];
    all.extend(steps);
    all
}

fn plain(name: &str) -> Step {
    Step::Pod(pod(name, json!({})))
}

fn with(name: &str, spec: Value) -> Step {
    Step::Pod(pod(name, spec))
}

fn avoids(app: &str, key: &str) -> Value {
    json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key},
    ]}}})
}

fn joins(app: &str) -> Value {
    json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "zone"},
    ]}}})
}

fn port(number: u16) -> Value {
    json!({"containers": [{"name": "c", "ports": [{"hostPort": number}]}]})
}

fn cpu(amount: &str) -> Value {
    json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": amount}}}]})
}

#[test]
fn each_broken_rule_is_detected() {
    let taint = json!({"spec": {"taints": [{"key": "t", "effect": "NoSchedule"}]}});
    let cordoned = json!({"spec": {"unschedulable": true}});
    let tolerates = json!({"tolerations": [{"key": "t", "operator": "Exists"}]});
    let wants_zone_b = json!({"nodeSelector": {"zone": "b"}});
    let none: &[&str] = &[];
    for (situation, steps, expect) in [
        (
            "a pod that fits",
            on_n(json!({}), vec![plain("p"), Bind("p", "n")]),
            none,
        ),
        (
            "two bindings to different nodes",
            vec![
                Step::Node(node("n", json!({}))),
                Step::Node(node("m", json!({}))),
                plain("p"),
                Bind("p", "n"),
                Bind("p", "m"),
            ],
            &["it was bound to node n before"],
        ),
        (
            "the same binding seen twice",
            on_n(json!({}), vec![plain("p"), Bind("p", "n"), Bind("p", "n")]),
            none,
        ),
        (
            "a node that never existed",
            vec![plain("p"), Bind("p", "n")],
            &["the node does not exist"],
        ),
        (
            "a node that was deleted before the pod was created",
            on_n(
                json!({}),
                vec![NodeGone("n"), plain("q"), plain("p"), Bind("p", "n")],
            ),
            &["the node does not exist"],
        ),
        (
            "a node that was deleted while the binding was on its way",
            on_n(json!({}), vec![plain("p"), NodeGone("n"), Bind("p", "n")]),
            none,
        ),
        (
            "a gated pod",
            on_n(
                json!({}),
                vec![
                    with("p", json!({"schedulingGates": [{"name": "g"}]})),
                    Bind("p", "n"),
                ],
            ),
            &["the pod has scheduling gate g"],
        ),
        (
            "exactly all CPU",
            on_n(
                json!({}),
                vec![
                    with("p", cpu("1500m")),
                    plain("q"),
                    Bind("p", "n"),
                    Bind("q", "n"),
                ],
            ),
            none,
        ),
        (
            "more CPU than there is",
            on_n(
                json!({}),
                vec![
                    with("p", cpu("1501m")),
                    plain("q"),
                    Bind("p", "n"),
                    Bind("q", "n"),
                ],
            ),
            &["cpu is exceeded: 1501m are used and 500m requested of 2000m"],
        ),
        (
            "CPU that a deleted pod has left",
            on_n(
                json!({}),
                vec![
                    with("p", cpu("2")),
                    plain("q"),
                    Bind("p", "n"),
                    PodGone("p"),
                    Bind("q", "n"),
                ],
            ),
            none,
        ),
        (
            "CPU that a resized pod takes",
            on_n(
                json!({}),
                vec![
                    with("p", cpu("1")),
                    plain("q"),
                    Bind("p", "n"),
                    with("p", cpu("1501m")),
                    Bind("q", "n"),
                ],
            ),
            &["cpu is exceeded: 1501m are used and 500m requested of 2000m"],
        ),
        (
            "CPU that a resized pod has left",
            on_n(
                json!({}),
                vec![
                    with("p", cpu("2")),
                    plain("q"),
                    Bind("p", "n"),
                    with("p", cpu("1")),
                    Bind("q", "n"),
                ],
            ),
            none,
        ),
        (
            "an init container that needs more than the others",
            on_n(
                json!({}),
                vec![
                    with(
                        "p",
                        json!({"initContainers": [{"name": "i", "resources": {"requests": {"cpu": "2100m"}}}]}),
                    ),
                    Bind("p", "n"),
                ],
            ),
            &["cpu is exceeded: 0m are used and 2100m requested of 2000m"],
        ),
        (
            "more pods than the node takes",
            on_n(
                json!({"status": {"allocatable": {"pods": "1"}}}),
                vec![plain("p"), plain("q"), Bind("p", "n"), Bind("q", "n")],
            ),
            &["the node has room for 1 pods, and this is pod 2"],
        ),
        (
            "a resource that the node does not have",
            on_n(
                json!({}),
                vec![
                    with(
                        "p",
                        json!({"containers": [{"name": "c", "resources": {"requests": {"example.com/gpu": "1"}}}]}),
                    ),
                    Bind("p", "n"),
                ],
            ),
            &["example.com/gpu is exceeded: 0m are used and 1000m requested of 0m"],
        ),
        (
            "a taint",
            on_n(taint.clone(), vec![plain("p"), Bind("p", "n")]),
            &["the taint t is not tolerated"],
        ),
        (
            "a taint that is tolerated",
            on_n(taint.clone(), vec![with("p", tolerates), Bind("p", "n")]),
            none,
        ),
        (
            "a taint that the scheduler had not seen yet",
            on_n(
                json!({}),
                vec![plain("p"), Step::Node(node("n", taint)), Bind("p", "n")],
            ),
            none,
        ),
        (
            "a cordoned node",
            on_n(cordoned, vec![plain("p"), Bind("p", "n")]),
            &["the node is cordoned"],
        ),
        (
            "a node selector",
            on_n(json!({}), vec![with("p", wants_zone_b), Bind("p", "n")]),
            &["the node selector does not match"],
        ),
        (
            "a host port in use",
            on_n(
                json!({}),
                vec![
                    with("p", port(80)),
                    with("q", port(80)),
                    with("r", port(81)),
                    Bind("p", "n"),
                    Bind("q", "n"),
                    Bind("r", "n"),
                ],
            ),
            &["host port 80 is in use"],
        ),
        (
            "its own anti-affinity",
            on_n(
                json!({}),
                vec![
                    plain("q"),
                    with("p", avoids("q", "zone")),
                    Bind("q", "n"),
                    Bind("p", "n"),
                ],
            ),
            &["its anti-affinity is broken by pod ns/q in the same zone"],
        ),
        (
            "the anti-affinity of another pod",
            on_n(
                json!({}),
                vec![
                    plain("q"),
                    with("p", avoids("q", "zone")),
                    Bind("p", "n"),
                    Bind("q", "n"),
                ],
            ),
            &["the anti-affinity of pod ns/p in the same zone is broken"],
        ),
        (
            "affinity without company",
            on_n(json!({}), vec![with("p", joins("q")), Bind("p", "n")]),
            &["its affinity finds no matching pod in the same zone"],
        ),
        (
            "affinity with company whose binding is written later",
            on_n(
                json!({}),
                vec![
                    plain("q"),
                    with("p", joins("q")),
                    Bind("p", "n"),
                    Bind("q", "n"),
                ],
            ),
            none,
        ),
        (
            "the first pod of a group that asks for itself",
            on_n(json!({}), vec![with("p", joins("p")), Bind("p", "n")]),
            none,
        ),
    ] {
        assert_eq!(
            found(steps, &Surroundings::default()),
            expect,
            "{situation}"
        );
    }
}

#[test]
fn spread_is_checked_at_the_end_if_conclusive() {
    let spread = json!({"topologySpreadConstraints": [{
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "p"}},
    }]});
    let labelled = |uid: &str| {
        let mut pod = pod("p", spread.clone());
        merge(&mut pod, json!({"metadata": {"uid": uid, "name": uid}}));
        Step::Pod(pod)
    };
    let nodes = || {
        vec![
            Step::Node(node("n", json!({}))),
            Step::Node(node("m", json!({"metadata": {"labels": {"zone": "b"}}}))),
        ]
    };
    let skewed = |mut steps: Vec<Step>, more: Vec<Step>| {
        steps.extend([labelled("1"), labelled("2"), Bind("1", "n"), Bind("2", "n")]);
        steps.extend(more);
        found(steps, &Surroundings::default())
    };
    let rule = "the spread constraint allows a skew of 1, and at the end there are 2 pods in this domain and 0 in the \
                smallest";
    assert_eq!(skewed(nodes(), vec![]), [rule]);
    // After a deletion the end proves nothing.
    assert!(skewed(nodes(), vec![PodGone("1")]).is_empty());
    let balanced = vec![labelled("3"), Bind("3", "m")];
    assert!(skewed(nodes(), balanced).is_empty());
}

#[test]
fn volumes_and_devices_are_allocated_once() {
    let mut surroundings = Surroundings::default();
    for (plural, object) in [
        (
            "persistentvolumeclaims",
            json!({"metadata": {"namespace": "ns", "name": "c"},
                   "spec": {"volumeName": "v", "accessModes": ["ReadWriteOncePod"]}}),
        ),
        (
            "persistentvolumes",
            json!({"metadata": {"name": "v"},
                   "spec": {"csi": {"driver": "d", "volumeHandle": "v"}, "nodeAffinity": {"required": {"nodeSelectorTerms":
                       [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}}}}),
        ),
        (
            "csinodes",
            json!({"metadata": {"name": "full"}, "spec": {"drivers": [{"name": "d", "allocatable": {"count": 0}}]}}),
        ),
    ] {
        surroundings.add(plural, &object);
    }
    let claim = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]});
    let zone_b = json!({"metadata": {"labels": {"zone": "b"}}});
    for (situation, steps, expect) in [
        (
            "one pod",
            on_n(json!({}), vec![with("p", claim.clone()), Bind("p", "n")]),
            &[][..],
        ),
        (
            "two pods of a claim that is for one",
            vec![
                Step::Node(node("n", json!({}))),
                Step::Node(node("m", json!({}))),
                with("p", claim.clone()),
                with("q", claim.clone()),
                Bind("p", "n"),
                Bind("q", "m"),
            ],
            &["claim ns/c is for one pod and used by ns/p"],
        ),
        (
            "a volume of another zone",
            on_n(zone_b, vec![with("p", claim.clone()), Bind("p", "n")]),
            &["volume v cannot be used on the node"],
        ),
        (
            "a node that can attach no more",
            vec![
                Step::Node(node("full", json!({}))),
                with("p", claim),
                Bind("p", "full"),
            ],
            &["more than 0 volumes of driver d are attached"],
        ),
    ] {
        assert_eq!(found(steps, &surroundings), expect, "{situation}");
    }
    let allocated = |name: &str| {
        json!({"metadata": {"namespace": "ns", "name": name},
               "status": {"allocation": {"devices": {"results": [{"driver": "d", "pool": "n", "device": "0"}]}}}})
    };
    let mut surroundings = Surroundings::default();
    surroundings.add("resourceclaims", &allocated("a"));
    assert!(found(vec![], &surroundings).is_empty());
    surroundings.add("resourceclaims", &allocated("b"));
    assert_eq!(
        found(vec![], &surroundings),
        ["device d/n/0 is allocated to claim ns/a, too"]
    );
}
