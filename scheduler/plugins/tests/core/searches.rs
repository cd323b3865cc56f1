//! Pods with very many items of a kind that the API allows, in the default profile. An ordinary pod must be bound in
//! each case. A limit for each item (a selector, a term, a port) does not limit an attempt, because nothing limits the
//! sum.
//!
//! Steps are counted, not time: each case states the number of attempts after which the ordinary pod has its node.

use crate::drivers::{driver, driver_with};
use berth_api::{Duration, Kind};
use berth_framework::testing::{PodBuilder, node, pod};
use berth_scheduler::profile::{PluginConfig, ProfileSpec};
use berth_scheduler::queue::QueuedIn;
use berth_scheduler::testing::Driver;
use serde_json::{Value, json};

/// Nested loops over literals that compare strings: much cost in a short expression. `depth` loops of 20 rounds.
fn costly(depth: usize) -> String {
    let list: Vec<String> = (1..=20).map(|i| i.to_string()).collect();
    let list = list.join(",");
    let mut expression = "\"aaaaaaaaaaaaaaaaaaaa\" != \"aaaaaaaaaaaaaaaaaaab\"".to_owned();
    for level in 0..depth {
        expression = format!("[{list}].all(v{level}, {expression})");
    }
    expression
}

/// Three nodes, and slices with devices that all of them see.
fn world(filter_timeout: &str, slices: usize, devices: usize) -> Driver {
    let mut w = driver_with(|options| {
        let args = json!({"filterTimeout": filter_timeout});
        options.profiles = vec![ProfileSpec {
            plugin_config: vec![PluginConfig {
                name: "DynamicResources".to_owned(),
                args,
            }],
            ..ProfileSpec::default()
        }];
    });
    for name in ["n1", "n2", "n3"] {
        w.node(node(name).capacity("8", "8Gi", "110"));
    }
    w.object(Kind::DeviceClass, json!({"metadata": {"name": "gpu"}}));
    for slice in 0..slices {
        let devices: Vec<Value> = (0..devices)
            .map(|d| json!({"name": format!("d{d}")}))
            .collect();
        w.object(
            Kind::ResourceSlice,
            json!({"metadata": {"name": format!("s{slice}")}, "spec": {
                "driver": "gpu.example.com", "allNodes": true, "devices": devices,
                "pool": {"name": format!("p{slice}"), "generation": 1, "resourceSliceCount": 1},
            }}),
        );
    }
    w
}

/// A claim for a device that an expression selects.
fn claim(name: &str, expression: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}")},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {
            "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1,
            "selectors": [{"cel": {"expression": expression}}],
        }}]}},
    })
}

fn using(name: &str, claim: &str) -> PodBuilder {
    let entries = json!([{"name": "c", "resourceClaimName": claim}]);
    pod(name).with(|pod| {
        pod.spec.resource_claims = serde_json::from_value(entries).expect("claims");
    })
}

fn ordinary(name: &str) -> PodBuilder {
    pod(name).request("cpu", "1")
}

/// PL-159, Q-112: a claim whose selectors cost more than the attempt may. The pod gets its reason, waits longer each
/// time, beyond the longest backoff, and an ordinary pod is bound at the next attempt.
#[test]
fn a_claim_does_not_delay_other_pods() {
    // No device is selected: all of them are evaluated.
    let mut w = world("25ms", 10, 16);
    w.object(
        Kind::ResourceClaim,
        claim("c", &format!("!({})", costly(2))),
    );
    w.pod(using("greedy", "c"));
    let mut waited = Vec::new();
    for attempt in 0..12 {
        let message = w.attempt_named();
        assert_eq!(
            message,
            "greedy: error: running \"DynamicResources\" filter plugin: node n1: timed out trying to allocate devices",
            "attempt {attempt}"
        );
        w.answer_all();
        let condition = w.pods["greedy"].condition("PodScheduled");
        let reason = condition.map(|c| c.reason.to_string());
        assert_eq!(reason.as_deref(), Some("SchedulerError"));
        let name = format!("ordinary-{attempt}");
        w.pod(ordinary(&name));
        assert!(w.attempt_named().starts_with(&format!("{name} on n")));
        w.answer_all();
        w.deleted(&name);
        let began = w.now;
        while w.place_of("greedy") == Some(QueuedIn::ErrorBackoff) {
            w.wait(1);
        }
        waited.push(w.now.since(began).as_secs());
    }
    assert!(waited.is_sorted(), "{waited:?}");
    assert_eq!(waited.last(), Some(&301), "{waited:?}");
}

/// PL-159: with the default timeout, a claim whose selector is just below the limit of the API, and 1,280 devices; and
/// one whose functions take more time than their cost.
#[test]
fn a_claim_just_below_the_limits_of_the_api_does_not_delay_other_pods() {
    let list: Vec<String> = (1..=20).map(|i| i.to_string()).collect();
    let list = list.join(",");
    let nest = |depth: usize, innermost: String| {
        let loops = (0..depth).fold(innermost, |inner, level| {
            format!("[{list}].all(v{level}, {inner})")
        });
        format!("!({loops})")
    };
    let text = "a".repeat(1_150);
    let compare = nest(3, format!("\"{text}a\" != \"{text}b\""));
    let split = nest(2, format!("\"{text}\".split(\"a\").size() != 0"));
    for expression in [compare, split] {
        let mut w = world("10s", 10, 128);
        w.object(Kind::ResourceClaim, claim("c", &expression));
        w.pod(using("greedy", "c"));
        let text = w.attempt_named();
        assert!(text.contains("timed out"), "{text}");
        w.answer_all();
        w.pod(ordinary("o"));
        assert!(w.attempt_named().starts_with("o on n"));
        assert_eq!(w.place_of("greedy"), Some(QueuedIn::ErrorBackoff));
    }
}

/// PL-159, Q-112: expressions are compiled before the search. Many long ones use up the attempt, too.
#[test]
fn claims_with_very_long_selectors_do_not_delay_other_pods() {
    let mut w = world("25ms", 1, 1);
    let long = format!("\"{}\" != \"\"", "a".repeat(9_000));
    w.object(Kind::ResourceClaim, claim("c", &long));
    w.pod(using("greedy", "c"));
    let text = w.attempt_named();
    assert_eq!(
        text,
        "greedy: error: running PreFilter plugin \"DynamicResources\": claim default/c: timed out compiling the selectors of the pod's claims"
    );
    w.answer_all();
    w.pod(ordinary("o"));
    assert!(w.attempt_named().starts_with("o on n"));
    assert_eq!(w.place_of("greedy"), Some(QueuedIn::ErrorBackoff));
}

/// PL-159: an attempt that used up its budget is repeated with more, and results are remembered: a claim that needs
/// several attempts gets its device.
#[test]
fn a_costly_claim_gets_its_device_after_some_attempts() {
    let mut w = world("250ms", 1, 128);
    // All devices together cost more than the 50,000 units by which the budget of attempts grows.
    let expression = format!("{} && device.driver == \"none\"", costly(2));
    w.object(Kind::ResourceClaim, claim("never", &expression));
    w.pod(using("p", "never"));
    let mut messages = Vec::new();
    for _ in 0..10 {
        messages.push(w.attempt_named());
        w.answer_all();
        w.advance(Duration::from_secs(600));
    }
    let is_timeout = |m: &&String| m.contains("timed out");
    let timeouts = messages.iter().take_while(is_timeout).count();
    assert!((1..9).contains(&timeouts), "{messages:?}");
    assert!(
        messages[timeouts].contains("cannot allocate all claims"),
        "{messages:?}"
    );
}

/// PL-159: the budget of the attempt ends after a feasible node was found. The pod is placed on it.
#[test]
fn a_node_that_was_found_is_taken_when_the_budget_ends() {
    let mut w = world("250ms", 0, 0);
    for (name, count) in [("n1", 1), ("n2", 64), ("n3", 64)] {
        let devices = (0..count).map(|d| {
            let attributes = json!({"good": {"bool": name == "n1"}});
            json!({"name": format!("d{d}"), "attributes": attributes})
        });
        let devices: Vec<Value> = devices.collect();
        w.object(
            Kind::ResourceSlice,
            json!({"metadata": {"name": name}, "spec": {
                "driver": "gpu.example.com", "nodeName": name, "devices": devices,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            }}),
        );
    }
    let expression = format!(
        "{} && device.attributes[\"gpu.example.com\"].good",
        costly(2)
    );
    w.object(Kind::ResourceClaim, claim("c", &expression));
    w.pod(using("p", "c"));
    assert_eq!(w.attempt_named(), "p on n1");
}

/// Terms that select nothing, each with an expression of its own.
fn terms(count: usize, wrap: impl Fn(Value) -> Value) -> Vec<Value> {
    let expressions = (0..count).map(|i| {
        let expression = json!({"key": format!("key-{i}"), "operator": "In", "values": ["a", "b"]});
        wrap(json!({"matchExpressions": [expression]}))
    });
    expressions.collect()
}

fn pod_terms(count: usize) -> Vec<Value> {
    terms(
        count,
        |selector| json!({"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}),
    )
}

fn ports(from: u64, count: u64) -> Value {
    let ports = (from..from + count).map(|p| json!({"containerPort": p, "hostPort": p}));
    Value::Array(ports.collect())
}

/// The part of a pod that is very large.
struct Situation {
    name: &'static str,
    spec: Value,
    /// The pods on the nodes.
    others: Value,
}

fn situations() -> Vec<Situation> {
    let affinity = |kind: &str, strength: &str, terms: Value| json!({"affinity": {kind: {format!("{strength}DuringSchedulingIgnoredDuringExecution"): terms}}});
    let weighted = |field: &str, terms: Vec<Value>| -> Value {
        let terms = terms
            .into_iter()
            .map(|term| json!({"weight": 1, field: term}));
        Value::Array(terms.collect())
    };
    let node_terms = |count| terms(count, |term| term);
    let required = json!({"nodeSelectorTerms": node_terms(20_000)});
    let many_values: Vec<String> = (0..20_000).map(|i| format!("value-{i}")).collect();
    let expressions: Vec<Value> = (0..5_000)
        .map(|i| json!({"key": format!("key-{i}"), "operator": "DoesNotExist"}))
        .collect();
    let constraints: Vec<Value> = (0..1_000)
        .map(|i| {
            json!({
                "maxSkew": 1, "topologyKey": format!("key-{i}"), "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app": "web"}},
            })
        })
        .collect();
    let hard: Vec<Value> = (0..1_000)
        .map(|i| {
            json!({
                "maxSkew": 1, "topologyKey": format!("key-{i}"), "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "web"}},
            })
        })
        .collect();
    let tolerations: Vec<Value> = (0..20_000)
        .map(|i| json!({"key": format!("key-{i}"), "operator": "Exists"}))
        .collect();
    let one_term = |selector: Value| json!([{"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}]);
    let of = |name, spec: Value| Situation {
        name,
        spec,
        others: json!({}),
    };
    let with_ports = |ports: Value| json!({"containers": [{"name": "main", "ports": ports}]});
    vec![
        of(
            "node selector terms",
            affinity("nodeAffinity", "required", required),
        ),
        of(
            "preferred node terms",
            affinity(
                "nodeAffinity",
                "preferred",
                weighted("preference", node_terms(20_000)),
            ),
        ),
        of(
            "affinity terms",
            affinity("podAffinity", "required", json!(pod_terms(2_000))),
        ),
        of(
            "anti-affinity terms",
            affinity("podAntiAffinity", "required", json!(pod_terms(2_000))),
        ),
        of(
            "preferred affinity terms",
            affinity(
                "podAffinity",
                "preferred",
                weighted("podAffinityTerm", pod_terms(2_000)),
            ),
        ),
        of(
            "values of a label selector",
            affinity(
                "podAntiAffinity",
                "required",
                one_term(json!({"matchExpressions": [
                {"key": "app", "operator": "In", "values": many_values}]})),
            ),
        ),
        of(
            "expressions of a label selector",
            affinity(
                "podAntiAffinity",
                "required",
                one_term(json!({"matchExpressions": expressions})),
            ),
        ),
        of(
            "spread constraints",
            json!({"topologySpreadConstraints": constraints}),
        ),
        of(
            "hard spread constraints",
            json!({"topologySpreadConstraints": hard}),
        ),
        of("tolerations", json!({"tolerations": tolerations})),
        Situation {
            name: "host ports",
            spec: with_ports(ports(20_000, 10_000)),
            others: with_ports(ports(1, 10_000)),
        },
        Situation {
            name: "anti-affinity terms of the pods on nodes",
            spec: json!({}),
            others: affinity("podAntiAffinity", "required", json!(pod_terms(2_000))),
        },
    ]
}

fn decoded(name: &str, spec: &Value) -> PodBuilder {
    let mut object = json!({
        "metadata": {
            "name": name, "namespace": "default", "uid": format!("uid-{name}"), "labels": {"app": "web"},
        },
        "spec": {"schedulerName": "default-scheduler", "containers": [{"name": "main"}]},
        "status": {"phase": "Pending"},
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        object["spec"][field] = value.clone();
    }
    let object = Kind::Pod.decode(object.to_string().as_bytes());
    let object = object.unwrap_or_else(|e| panic!("{name}: {e}"));
    PodBuilder::of(object.as_pod().expect("a pod"))
}

/// Pods with very many terms, ports or constraints: their attempt ends, and the ordinary pod is bound at the next one.
/// The sizes are such that work that grows with their square would not end soon.
#[test]
fn pods_with_very_many_items_do_not_delay_other_pods() {
    for Situation { name, spec, others } in situations() {
        let mut w = driver();
        for n in 0..5 {
            let host = format!("n{n}");
            w.node(
                node(&host)
                    .capacity("8", "8Gi", "110")
                    .label("kubernetes.io/hostname", &host),
            );
            w.pod(decoded(&format!("on-{host}"), &others).on(&host));
        }
        w.pod(decoded("greedy", &spec).priority(1));
        w.pod(ordinary("o"));
        let tried = [w.attempt_named(), w.attempt_named()];
        assert!(tried[0].starts_with("greedy"), "{name}: {tried:?}");
        assert!(tried[1].starts_with("o on n"), "{name}: {tried:?}");
    }
}

/// C-59, Q-112: a pod that is too large to be compared with all nodes. It is placed on an evaluated node; if it fits on
/// none of them, the next attempt continues with the other nodes, and ordinary pods are bound in between.
#[test]
fn a_large_pod_is_compared_with_some_nodes_in_an_attempt() {
    let tolerations: Vec<Value> = (0..40_000)
        .map(|i| json!({"key": format!("key-{i}"), "operator": "Exists"}))
        .collect();
    let spec = json!({"tolerations": tolerations});
    let mut w = driver();
    for n in 0..500 {
        w.node(node(&format!("n{n:03}")).capacity("8", "8Gi", "110"));
    }
    w.pod(decoded("fits", &spec));
    let text = w.attempt_named();
    assert!(text.starts_with("fits on n"), "{text}");
    w.answer_all();
    w.deleted("fits");
    // Among the next nodes, only the last one has enough CPU.
    w.node(node("n499").capacity("100", "8Gi", "110"));
    w.pod(decoded("waits", &spec).request("cpu", "50"));
    let mut attempts = 0;
    loop {
        attempts += 1;
        let text = w.attempt_named();
        w.answer_all();
        let name = format!("o-{attempts}");
        w.pod(ordinary(&name));
        assert!(w.attempt_named().starts_with(&format!("{name} on n")));
        w.answer_all();
        if text == "waits on n499" {
            break;
        }
        assert_eq!(
            text,
            "waits: error: the pod is too large to be compared with more nodes and pods in one attempt"
        );
        assert_eq!(w.place_of("waits"), Some(QueuedIn::ErrorBackoff));
        assert!(attempts < 5, "it is never compared with the last node");
        w.wait(300);
    }
}

/// A preemptor and nodes with pods of very many priorities and disruption budgets: its attempt ends, and the ordinary
/// pod is bound in the next one.
#[test]
fn a_preemptor_with_very_many_choices_does_not_delay_other_pods() {
    let mut w = driver();
    for n in 0..2 {
        w.node(node(&format!("n{n}")).capacity("300", "80Gi", "1000"));
        for p in 0..300 {
            let name = format!("p{n}-{p}");
            let app = format!("app-{p}");
            w.pod(
                ordinary(&name)
                    .priority(p)
                    .label("app", &app)
                    .on(&format!("n{n}")),
            );
        }
    }
    w.node(node("n9").capacity("1", "1Gi", "10"));
    for p in 0..300 {
        w.object(
            Kind::PodDisruptionBudget,
            json!({
                "metadata": {"name": format!("b{p}"), "namespace": "default", "uid": format!("b{p}")},
                "spec": {"selector": {"matchLabels": {"app": format!("app-{p}")}}},
                "status": {"disruptionsAllowed": i32::from(p % 2 == 0), "observedGeneration": 1},
            }),
        );
    }
    w.pod(pod("vip").priority(1_000).request("cpu", "250"));
    w.pod(ordinary("o"));
    let text = w.attempt_named();
    assert!(text.starts_with("vip: 0/3 nodes"), "{text}");
    assert_ne!(w.nominated("vip"), "", "room is made");
    assert_eq!(w.attempt_named(), "o on n9");
}
