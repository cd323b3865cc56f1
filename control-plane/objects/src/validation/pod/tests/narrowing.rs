//! The invariant behind the rules for gated pods (KEP-3838): every accepted update narrows the placement of the pod.

use super::*;
use proptest::prelude::{Just, ProptestConfig, any, prop, prop_assert, prop_assert_eq, proptest};
use proptest::strategy::Strategy;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// A requirement of a small world: two labels with two values each, and two nodes.
fn requirement() -> impl Strategy<Value = Value> {
    let key = prop::sample::select(vec!["a", "b"]);
    let values = prop::sample::subsequence(vec!["1", "2"], 1..=2);
    (
        key,
        prop::sample::select(vec!["In", "NotIn", "Exists", "DoesNotExist"]),
        values,
    )
        .prop_map(|(key, operator, values)| match operator {
            "In" | "NotIn" => json!({"key": key, "operator": operator, "values": values}),
            _ => json!({"key": key, "operator": operator}),
        })
}

fn field() -> impl Strategy<Value = Value> {
    let operator = prop::sample::select(vec!["In", "NotIn"]);
    (operator, prop::sample::select(vec!["n1", "n2"])).prop_map(
        |(operator, name)| json!({"key": "metadata.name", "operator": operator, "values": [name]}),
    )
}

fn term() -> impl Strategy<Value = Value> {
    let expressions = prop::collection::vec(requirement(), 0..3);
    (expressions, prop::collection::vec(field(), 0..2)).prop_map(
        |(expressions, fields)| json!({"matchExpressions": expressions, "matchFields": fields}),
    )
}

/// The constraints that select the nodes of a pod: the selector, and the terms if there are any.
fn placement() -> impl Strategy<Value = Value> {
    let selector = prop::collection::btree_map("[ab]", "[12]", 0..3);
    (selector, prop::collection::vec(term(), 0..3)).prop_map(|(selector, terms)| {
        let mut spec = json!({"nodeSelector": selector});
        if !terms.is_empty() {
            spec["affinity"] = json!({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}});
        }
        spec
    })
}

/// A change that may be accepted: an element is added to a placement.
fn changed(old: Value) -> impl Strategy<Value = Value> {
    let more = prop::option::of((0..3_usize, requirement(), any::<bool>()));
    let selector = prop::collection::btree_map("[abc]", "[12]", 0..2);
    (Just(old), more, selector, prop::option::of(placement())).prop_map(
        |(mut new, more, selector, instead)| {
            if let Some(instead) = instead {
                return instead;
            }
            for (key, value) in selector {
                new["nodeSelector"][key] = json!(value);
            }
            let terms = new
                .pointer_mut("/affinity/nodeAffinity")
                .map(|a| &mut a[REQUIRED]["nodeSelectorTerms"]);
            if let (Some((at, requirement, last)), Some(terms)) = (more, terms)
                && let Some(expressions) = terms
                    .get_mut(at)
                    .and_then(|t| t["matchExpressions"].as_array_mut())
            {
                let place = if last { expressions.len() } else { 0 };
                expressions.insert(place, requirement);
            }
            new
        },
    )
}

fn meets(requirement: &Value, value: Option<&str>) -> bool {
    let listed = |v: &str| requirement.strings("values").contains(&v);
    match requirement.text("operator") {
        "In" => value.is_some_and(listed),
        "NotIn" => !value.is_some_and(listed),
        "Exists" => value.is_some(),
        _ => value.is_none(),
    }
}

/// Returns whether a pod may run on a node, by the definition alone.
fn may_run(spec: &Value, node: &str, labels: &[(&str, &str)]) -> bool {
    let value = |key: &str| labels.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
    let selector = spec.labels("nodeSelector");
    if !selector.iter().all(|(key, v)| value(key) == Some(*v)) {
        return false;
    }
    let Some(required) = spec.at(&["affinity", "nodeAffinity", REQUIRED]) else {
        return true;
    };
    required.items("nodeSelectorTerms").iter().any(|term| {
        let (expressions, fields) = (term.items("matchExpressions"), term.items("matchFields"));
        // A term without any requirement matches nothing.
        !(expressions.is_empty() && fields.is_empty())
            && expressions.iter().all(|r| meets(r, value(r.text("key"))))
            && fields.iter().all(|r| meets(r, Some(node)))
    })
}

/// Every node that there can be: its name and its labels.
fn nodes() -> Vec<(&'static str, Vec<(&'static str, &'static str)>)> {
    let mut nodes = Vec::new();
    for (n, name) in ["n1", "n2"].into_iter().cycle().take(54).enumerate() {
        let values = [n / 2 % 3, n / 6 % 3, n / 18 % 3].map(|v| [None, Some("1"), Some("2")][v]);
        let labels = ["a", "b", "c"].into_iter().zip(values);
        let labels = labels.filter_map(|(key, value)| Some((key, value?)));
        nodes.push((name, labels.collect()));
    }
    nodes
}

fn gated(mut spec: Value, is_gated: bool) -> Value {
    if is_gated {
        spec["schedulingGates"] = json!([{"name": "g"}]);
    }
    pod(spec)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// API-9 to API-11: an accepted update of a gated pod adds no eligible node, also if it removes the gate.
    #[test]
    fn what_is_accepted_only_narrows(
        (old, new) in placement().prop_flat_map(|old| (Just(old.clone()), changed(old))),
        stays in any::<bool>(),
    ) {
        let (old, new) = (gated(old, true), gated(new, stays));
        let errors = errors_of_update(&new, &old);
        if errors.is_empty() {
            for (node, labels) in nodes() {
                prop_assert!(
                    !may_run(&new["spec"], node, &labels) || may_run(&old["spec"], node, &labels),
                    "{} with {:?} is open now", node, labels
                );
            }
        }
    }

    /// API-12: without a gate none of these fields may change.
    #[test]
    fn without_a_gate_placement_is_fixed(
        (old, new) in placement().prop_flat_map(|old| (Just(old.clone()), changed(old))),
    ) {
        let (old, new) = (gated(old, false), gated(new, false));
        let errors = errors_of_update(&new, &old);
        if old == new {
            prop_assert_eq!(errors, Vec::<String>::new());
        } else {
            prop_assert_eq!(errors.len(), 1, "{:?}", errors);
            prop_assert!(errors[0].starts_with(FIXED));
        }
    }
}
