//! The fields that may change in a pod that exists.

use super::*;

/// The prefix of the error for immutable fields.
pub(super) const NOT_SPEC: &str = "spec: Forbidden: pod updates may not change fields other than";

/// A requirement that a label exists.
pub(super) fn exists(key: &str) -> Value {
    json!({"key": key, "operator": "Exists"})
}

/// A requirement that this is the node.
pub(super) fn is_node(name: &str) -> Value {
    json!({"key": "metadata.name", "operator": "In", "values": [name]})
}

/// API-9a, API-10 to API-12, cases 10 to 19: the errors, in the words of the API server, about placement that is not
/// narrowed.
#[test]
fn a_gated_pod_may_only_be_narrowed() {
    let gated = |mut spec: Value| {
        spec["schedulingGates"] = json!([{"name": "g"}]);
        spec
    };
    let selector = |s: Value| json!({"nodeSelector": s});
    check_update(
        gated(selector(json!({"a": "1"}))),
        gated(selector(json!({"a": "1", "b": "2"}))),
        &[],
    );
    // The last gate may be removed in the same request.
    check_update(gated(json!({})), selector(json!({"a": "1"})), &[]);
    check_update(json!({}), selector(json!({"a": "1"})), &[FIXED]);
    check_update(
        gated(selector(json!({"a": "1"}))),
        gated(selector(json!({"a": "2"}))),
        &[
            "spec.nodeSelector: Invalid value: {\"a\":\"2\"}: only additions to spec.nodeSelector are allowed (no mutations or deletions)",
        ],
    );
    let required = |terms: Value| {
        gated(json!({"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}}))
    };
    let a = json!({"key": "a", "operator": "Exists"});
    let b = json!({"key": "b", "operator": "In", "values": ["x"]});
    let fields = json!([{"key": "metadata.name", "operator": "In", "values": ["n"]}]);
    const TERMS: &str = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let narrowed = "only additions are allowed (no mutations or deletions)";
    let shown_a = "{\"Key\":\"a\",\"Operator\":\"Exists\",\"Values\":null}";
    let shown_b = "{\"Key\":\"b\",\"Operator\":\"In\",\"Values\":[\"x\"]}";
    check_update(
        gated(json!({})),
        required(json!([{"matchExpressions": [a]}])),
        &[],
    );
    check_update(
        required(json!([{"matchExpressions": [a]}])),
        required(json!([{"matchExpressions": [a, b], "matchFields": fields}])),
        &[],
    );
    check_update(
        required(json!([{"matchExpressions": [a]}])),
        required(json!([{"matchExpressions": [b, a]}])),
        &[&format!(
            "{TERMS}[0]: Invalid value: {{\"MatchExpressions\":[{shown_b},{shown_a}],\"MatchFields\":null}}: {narrowed}"
        )],
    );
    check_update(
        required(json!([{"matchExpressions": [a]}])),
        required(json!([{"matchExpressions": [a]}, {"matchFields": fields}])),
        &[&format!(
            "{TERMS}: Invalid value: [{{\"MatchExpressions\":[{shown_a}],\"MatchFields\":null}},{{\"MatchExpressions\":null,\"MatchFields\":[{{\"Key\":\"metadata.name\",\"Operator\":\"In\",\"Values\":[\"n\"]}}]}}]: no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        )],
    );
    check_update(
        required(json!([{"matchExpressions": [a]}])),
        gated(json!({})),
        &[&format!(
            "{TERMS}: Invalid value: null: no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        )],
    );
    check_update(
        required(json!([{}])),
        required(json!([{"matchExpressions": [a]}])),
        &[&format!(
            "{TERMS}[0]: Invalid value: {{\"MatchExpressions\":[{shown_a}],\"MatchFields\":null}}: {narrowed}"
        )],
    );
    check_update(
        gated(json!({})),
        gated(
            json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "zone", "labelSelector": {}}]}}}),
        ),
        &[FIXED],
    );
}

/// API-12, API-13, case 23: the changes that are valid whether the pod is gated or not, and the errors of the others.
#[test]
fn what_may_change_in_any_pod() {
    let image = |image: &str| with_container(json!({"image": image}));
    check_update(image("a:1"), image("a:2"), &[]);
    check_update(
        image("a:1"),
        json!({"containers": []}),
        &[
            "spec.containers: Required value",
            "spec.containers: Forbidden: pod updates may not add or remove containers",
        ],
    );
    check_update(json!({}), json!({"activeDeadlineSeconds": 5}), &[]);
    check_update(
        json!({"activeDeadlineSeconds": 5}),
        json!({"activeDeadlineSeconds": 6}),
        &[
            "spec.activeDeadlineSeconds: Invalid value: 6: must be less than or equal to previous value",
        ],
    );
    check_update(
        json!({"activeDeadlineSeconds": 5}),
        json!({}),
        &[
            "spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer to nil value",
        ],
    );
    let toleration = |seconds: i64| json!({"tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}]});
    check_update(toleration(1), toleration(2), &[]);
    check_update(json!({}), toleration(1), &[]);
    check_update(
        toleration(1),
        json!({}),
        &[
            "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds",
        ],
    );
    check_update(
        json!({"terminationGracePeriodSeconds": -1}),
        json!({"terminationGracePeriodSeconds": 1}),
        &[],
    );
    check_update(
        json!({}),
        json!({"terminationGracePeriodSeconds": 1}),
        &[FIXED],
    );
    // An equivalent notation is not a change.
    check_update(
        with_container(json!({"resources": {"requests": {"cpu": "1"}}})),
        {
            let mut spec = with_container(json!({"resources": {"requests": {"cpu": "1000m"}}}));
            spec["hostNetwork"] = json!(false);
            spec["nodeSelector"] = json!({});
            spec
        },
        &[],
    );
}

/// API-11, cases 13, 16 and 18: without required terms, any terms may be added; an absent affinity may be added with
/// node affinity only.
#[test]
fn what_was_not_required_may_be() {
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [{"matchExpressions": [exists("a")]}, {"matchFields": [is_node("n")]}]}});
    let preferred = json!({"preferredDuringSchedulingIgnoredDuringExecution":
        [{"weight": 1, "preference": {"matchExpressions": [exists("a")]}}]});
    let mut both = required.clone();
    both["preferredDuringSchedulingIgnoredDuringExecution"] =
        preferred["preferredDuringSchedulingIgnoredDuringExecution"].clone();
    let near = json!({"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {}}}]});
    let with = |affinity: Value| json!({"schedulingGates": [{"name": "g"}], "affinity": affinity});
    for (name, old, new, allowed) in [
        (
            "nothing, required",
            json!(null),
            json!({"nodeAffinity": required}),
            true,
        ),
        (
            "nothing, preferred",
            json!(null),
            json!({"nodeAffinity": preferred}),
            true,
        ),
        (
            "nothing, both",
            json!(null),
            json!({"nodeAffinity": both}),
            true,
        ),
        (
            "nothing, empty",
            json!(null),
            json!({"nodeAffinity": {}}),
            true,
        ),
        (
            "nothing, and pods",
            json!(null),
            json!({"nodeAffinity": required, "podAffinity": near}),
            false,
        ),
        (
            "nothing, and pods kept away",
            json!(null),
            json!({"nodeAffinity": required, "podAntiAffinity": near}),
            false,
        ),
        (
            "nothing, pods alone",
            json!(null),
            json!({"podAffinity": near}),
            false,
        ),
        // Upstream distinguishes an empty node affinity from an absent one.
        ("nothing, an empty affinity", json!(null), json!({}), false),
        ("empty", json!({}), json!({"nodeAffinity": both}), true),
        (
            "no required",
            json!({"nodeAffinity": preferred}),
            json!({"nodeAffinity": both}),
            true,
        ),
        (
            "no required, no preferred any more",
            json!({"nodeAffinity": preferred}),
            json!({"nodeAffinity": required}),
            true,
        ),
        (
            "no required, nothing any more",
            json!({"nodeAffinity": preferred}),
            json!(null),
            true,
        ),
        (
            "pods",
            json!({"podAffinity": near}),
            json!({"podAffinity": near, "nodeAffinity": required}),
            true,
        ),
        (
            "pods, gone",
            json!({"podAffinity": near}),
            json!({"nodeAffinity": required}),
            false,
        ),
    ] {
        let errors = rules().validate_update(&pod(with(new)), &pod(with(old)), Subresource::Main);
        let errors = printed(&errors);
        let forbidden = errors.len() == 1 && errors[0].starts_with(NOT_SPEC);
        assert!(
            if allowed {
                errors.is_empty()
            } else {
                forbidden
            },
            "{name}: {errors:?}"
        );
    }
}

/// API-12: the first line is followed by the differences.
#[test]
fn what_differs_is_shown() {
    let old = pod(json!({"hostname": "a", "nodeSelector": {"a": "1"}}));
    let new = pod(json!({"nodeSelector": {"a": "2"}, "priority": 3}));
    let errors = rules().validate_update(&new, &old, Subresource::Main);
    let detail = errors.last().map(|e| e.detail.clone()).unwrap_or_default();
    let (first, differences) = detail.split_once('\n').unwrap_or_default();
    assert!(first.starts_with("pod updates may not change fields other than"));
    let changed: Vec<&str> = differences
        .lines()
        .filter(|line| !line.starts_with(' '))
        .collect();
    assert_eq!(
        changed,
        [
            "@@ -40,7 +40,7 @@",
            "-  \"a\": \"1\"",
            "+  \"a\": \"2\"",
            "@@ -66,7 +66,7 @@",
            "- \"Hostname\": \"a\",",
            "+ \"Hostname\": \"\",",
            "@@ -74,7 +74,7 @@",
            "- \"Priority\": null,",
            "+ \"Priority\": 3,",
        ]
    );
}
