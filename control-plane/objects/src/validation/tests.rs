//! The rules of each kind but pods: defaults, creations and updates.

use super::*;
use crate::access::gr;
use crate::field::FieldError;
use crate::kinds::{CODE, strategy};
use crate::strategy::Subresource;
use serde_json::{Value, json};

const KINDS: &[(&str, &str)] = &[
    ("", "configmaps"),
    ("", "events"),
    ("", "namespaces"),
    ("", "nodes"),
    ("", "persistentvolumeclaims"),
    ("", "persistentvolumes"),
    ("", "pods"),
    ("", "replicationcontrollers"),
    ("", "secrets"),
    ("", "serviceaccounts"),
    ("", "services"),
    ("apps", "daemonsets"),
    ("apps", "deployments"),
    ("apps", "replicasets"),
    ("apps", "statefulsets"),
    ("batch", "jobs"),
    ("coordination.k8s.io", "leases"),
    ("policy", "poddisruptionbudgets"),
    ("resource.k8s.io", "deviceclasses"),
    ("resource.k8s.io", "resourceslices"),
    ("resource.k8s.io", "resourceclaims"),
    ("resource.k8s.io", "resourceclaimtemplates"),
    ("scheduling.k8s.io", "compositepodgroups"),
    ("scheduling.k8s.io", "podgroups"),
    ("scheduling.k8s.io", "priorityclasses"),
    ("scheduling.k8s.io", "workloads"),
    ("storage.k8s.io", "storageclasses"),
    ("example.com", "unknown"),
];

#[test]
fn all_code_that_the_rules_name_exists_and_their_conditions_can_be_read() {
    assert_eq!(CODE.missing(Schemas::get().model()), []);
}

fn run_all(kind: &(&'static str, &'static str), object: &Value) -> Value {
    let rules = strategy(gr(kind.0, kind.1));
    let mut created = object.clone();
    rules.default(&mut created);
    let defaulted = created.clone();
    rules.prepare_for_create(&mut created, "2026-01-01T00:00:00Z");
    rules.validate(&created);
    for subresource in [Subresource::Main, Subresource::Status] {
        let mut new = object.clone();
        rules.default(&mut new);
        rules.prepare_for_update(&mut new, &created, subresource, "2026-01-01T00:00:00Z");
        rules.validate_update(&new, &created, subresource);
        rules.validate_update(&created, &new, subresource);
    }
    rules.grace_period_seconds(&created, None);
    defaulted
}

#[test]
fn no_shape_of_an_object_makes_the_rules_panic() {
    let odd = [
        json!(null),
        json!(-1),
        json!("é\u{0}"),
        json!([[], {}, null, 1, "x"]),
        json!({"": {"a": [null]}}),
    ];
    let names = [
        "metadata",
        "spec",
        "status",
        "data",
        "labels",
        "template",
        "containers",
        "affinity",
        "tolerations",
        "volumes",
        "ports",
        "selector",
        "nodeSelector",
        "resources",
        "devices",
        "requests",
        "limits",
        "schedulingGates",
        "topologySpreadConstraints",
        "strategy",
        "value",
        "taints",
        "name",
    ];
    for kind in KINDS {
        for value in &odd {
            run_all(kind, value);
            for name in names {
                run_all(kind, &json!({name: value, "metadata": {"name": "x"}}));
                run_all(kind, &json!({"spec": {name: value}}));
                run_all(
                    kind,
                    &json!({"spec": {"template": {"spec": {name: value}}}}),
                );
                run_all(
                    kind,
                    &json!({"spec": {"containers": [{name: value}], "volumes": [{name: value}]}}),
                );
            }
        }
    }
}

#[test]
fn defaults_are_the_same_the_second_time() {
    let objects = [
        json!({"metadata": {"name": "x"}}),
        json!({"metadata": {"name": "x"}, "spec": {}}),
        json!({"metadata": {"name": "x"}, "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "ports": [{"port": 80}],
            "containers": [{"name": "c", "image": "a"}],
            "template": {"metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "a"}]}},
        }}),
    ];
    for kind in KINDS {
        for object in &objects {
            let once = run_all(kind, object);
            assert_eq!(run_all(kind, &once), once, "{kind:?}");
        }
    }
}

mod groups;
mod jobs;
mod kinds;
mod mistakes;
mod statuses;
mod steps;
