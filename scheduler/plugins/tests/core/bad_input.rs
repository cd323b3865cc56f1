//! Invalid values in a pod or in an object that it needs affect that pod alone: it gets kube-scheduler's own status or
//! error, and scheduling continues for all other pods.

use crate::drivers::driver;
use berth_api::{Kind, Object, Pod};
use berth_framework::testing::{NodeBuilder, PodBuilder, node, pod};
use serde_json::{Value, json};

/// A pod with these fields in its spec.
fn with_spec(pod: PodBuilder, fields: &Value) -> PodBuilder {
    let Value::Object(fields) = fields.clone() else {
        panic!("fields are an object");
    };
    pod.with(|p| {
        let mut spec = serde_json::Map::new();
        let requests = p.spec.containers.clone();
        spec.extend(fields);
        let scheduler = p.spec.scheduler_name.clone();
        p.spec = serde_json::from_value(Value::Object(spec)).unwrap_or_else(|e| panic!("{e}"));
        p.spec.scheduler_name = scheduler;
        if p.spec.containers.is_empty() {
            p.spec.containers = requests;
        }
    })
}

fn claim(claim: &str) -> Value {
    json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]})
}

fn requests(resource: &str, amount: &str) -> Value {
    let requests = json!({resource: amount});
    json!({"containers": [{"name": "c", "resources": {"requests": requests}}]})
}

fn node_affinity(expression: &Value) -> Value {
    json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [expression]}],
    }}}})
}

fn pod_affinity(kind: &str, selector: &Value) -> Value {
    json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
    ]}}})
}

fn spread(selector: &Value) -> Value {
    json!({"topologySpreadConstraints": [{
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector,
    }]})
}

/// The whole message for a pod that no node of one takes.
fn nowhere(reason: &str) -> String {
    format!("0/1 nodes are available: {reason}.")
}

/// Pods with invalid fields are rejected with the reason, and other pods are scheduled.
#[test]
fn bad_pods_get_their_own_status_and_others_go_on() {
    let bad =
        json!({"matchExpressions": [{"key": "app", "operator": "Resembles", "values": ["web"]}]});
    let bad_key = json!({"matchLabels": {"not a key": "web"}});
    let useless =
        "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
    let filtered = |reason: &str| {
        let nowhere = nowhere(&format!("1 {reason}"));
        format!("{nowhere} no new claims to deallocate, {useless}")
    };
    for (name, spec, expected) in [
        (
            "a claim that does not exist",
            claim("none"),
            nowhere("persistentvolumeclaim \"none\" not found"),
        ),
        (
            "a node selector operator that does not exist",
            node_affinity(&json!({"key": "zone", "operator": "Resembles", "values": ["a"]})),
            filtered("node(s) didn't match Pod's node affinity/selector"),
        ),
        (
            "a node selector that compares with a word",
            node_affinity(&json!({"key": "zone", "operator": "Gt", "values": ["many"]})),
            filtered("node(s) didn't match Pod's node affinity/selector"),
        ),
        (
            "no node selector term at all",
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": []
            }}}}),
            filtered("node(s) didn't match Pod's node affinity/selector"),
        ),
        (
            "a pod affinity selector operator that does not exist",
            pod_affinity("podAffinity", &bad),
            nowhere(
                "parsing pod: requiredAffinityTerms: \"Resembles\" is not a valid label selector operator",
            ),
        ),
        (
            "a pod anti-affinity selector with a bad key",
            pod_affinity("podAntiAffinity", &bad_key),
            nowhere(
                "parsing pod: requiredAntiAffinityTerms: key: Invalid value: \"not a key\": name part must consist of \
                 alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
                 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                 '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
            ),
        ),
        (
            "a spread constraint with a bad selector",
            spread(&bad),
            "error: running PreFilter plugin \"PodTopologySpread\": get constraints from pod: obtaining pod's hard \
             topology spread constraints: \"Resembles\" is not a valid label selector operator"
                .to_owned(),
        ),
        (
            "as much as there can be",
            requests("cpu", "9223372036854775807"),
            filtered("Insufficient cpu"),
        ),
        (
            "more than there can be",
            requests("memory", "9223372036854775807Ei"),
            filtered("Insufficient memory"),
        ),
        (
            "a device that does not exist",
            requests("example.com/gpu", "9223372036854775807"),
            filtered("Insufficient example.com/gpu"),
        ),
    ] {
        let mut w = driver();
        w.node(node("n1"));
        w.pod(with_spec(pod("bad"), &spec));
        w.pod(pod("good").request("cpu", "1"));
        let tried = w.attempts();
        let stated = tried.iter().find_map(|t| t.strip_prefix("bad: "));
        assert_eq!(stated.unwrap_or_default(), expected, "{name}");
        assert!(tried.contains(&"good on n1".to_owned()), "{name}: {tried:?}");
    }
}

/// A node that offers nothing, or more than can be counted, does not affect other nodes.
#[test]
fn bad_nodes_do_not_keep_others_from_work() {
    let limits = |cpu: &str| {
        node("odd").with(|n| {
            n.status.allocatable = serde_json::from_value(json!({
                "cpu": cpu, "memory": "9223372036854775807Ei", "pods": "9223372036854775807",
                "example.com/gpu": "9223372036854775807",
            }))
            .unwrap_or_else(|e| panic!("{e}"));
        })
    };
    let cases: [(&str, NodeBuilder, &str); 4] = [
        (
            "nothing allocatable",
            node("odd").with(|n| n.status = Default::default()),
            "Too many pods",
        ),
        (
            "no pods allocatable",
            node("odd").with(|n| {
                n.status.allocatable = serde_json::from_value(json!({"cpu": "8", "memory": "8Gi"}))
                    .unwrap_or_default();
            }),
            "Too many pods",
        ),
        (
            "negative CPUs",
            node("odd").capacity("-1", "1Gi", "10"),
            "Insufficient cpu",
        ),
        (
            "more CPUs than can be counted",
            limits("9223372036854775807"),
            "",
        ),
    ];
    for (name, odd, reason) in cases {
        let mut w = driver();
        w.node(odd);
        w.pod(pod("first").request("cpu", "1"));
        let text = w.attempt_named();
        if reason.is_empty() {
            assert_eq!(text, "first on odd", "{name}");
        } else {
            assert!(
                text.starts_with("first: 0/1 nodes are available: 1 ") && text.contains(reason),
                "{name}: {text}"
            );
        }
        w.node(node("n1"));
        w.pod(pod("second").request("cpu", "1").request("memory", "1Gi"));
        w.wait(10);
        let tried = w.attempts();
        let placed = tried.iter().filter(|t| t.contains(" on ")).count();
        assert_eq!(
            placed,
            1 + usize::from(!reason.is_empty()),
            "{name}: {tried:?}"
        );
    }
}

/// Q-87b: the resource usage of an unparsable pod on its node is unknown, so no pod is placed or evicted there until
/// the pod can be parsed.
#[test]
fn a_node_with_a_pod_that_cannot_be_read_gets_no_pods() {
    let mut w = driver();
    w.node(node("n").capacity("4", "8Gi", "110"));
    let known = pod("unread").build();
    let substitute = Pod::in_place_of_unreadable(known.metadata.clone(), "n".into());
    w.applied(Object::Pod(substitute.into()));
    w.pod(pod("p").priority(1_000_000));
    let text = w.attempt_named();
    assert!(text.contains("1 Too many pods"), "{text}");
    assert_eq!(w.deletions(), Vec::<String>::new());
    // It can be read: it is another version of the object, or has another UID.
    w.applied(Object::Pod(
        pod("unread").version(2).on("n").request("cpu", "1").arc(),
    ));
    w.wait(60);
    assert_eq!(w.attempt_named(), "p on n");
}

/// Q-87a: out-of-range times do not change the resource usage of a pod on its node.
#[test]
fn a_pod_with_a_time_out_of_range_counts_on_its_node() {
    for time in ["9999-12-31T23:59:59Z", "0001-01-02T00:00:00Z"] {
        let mut w = driver();
        w.node(node("n1").capacity("4", "8Gi", "110"));
        w.object(
            Kind::Pod,
            json!({
                "metadata": {"name": "full", "namespace": "default", "uid": "full", "creationTimestamp": time},
                "spec": {"nodeName": "n1", "containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]},
                "status": {"startTime": time, "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": time}]},
            }),
        );
        w.pod(pod("p").request("cpu", "2"));
        let text = w.attempt_named();
        assert!(text.contains("1 Insufficient cpu"), "{time}: {text}");
    }
}
