//! Every kind of change of a pod, with every other.

use super::updates::{NOT_SPEC, exists, is_node};
use super::*;

/// Changes the spec of a pod.
type Apply = fn(&mut Value);

/// A change of a part of a pod, and its errors.
struct Change {
    name: &'static str,
    apply: Apply,
    /// For a gated pod: the prefixes of the errors.
    gated: &'static [&'static str],
    /// Whether the change is forbidden for all pods.
    forbidden: bool,
    /// Whether the change is forbidden for pods that were not gated.
    needs_gate: bool,
}

const SAME: Change = Change {
    name: "same",
    apply: |_| {},
    gated: &[],
    forbidden: false,
    needs_gate: false,
};

const NARROWED: Change = Change {
    needs_gate: true,
    ..SAME
};

const SELECTOR: &str = "spec.nodeSelector: Invalid value";
const ALL_TERMS: &str = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Invalid value";
const TERM_0: &str = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]: Invalid value";
const TERM_1: &str = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[1]: Invalid value";

const SELECTORS: &[Change] = &[
    SAME,
    Change {
        name: "key added",
        apply: |s| s["nodeSelector"]["disk"] = json!("ssd"),
        ..NARROWED
    },
    Change {
        name: "value changed",
        apply: |s| s["nodeSelector"]["zone"] = json!("b"),
        gated: &[SELECTOR],
        ..NARROWED
    },
    Change {
        name: "key deleted, another added",
        apply: |s| s["nodeSelector"] = json!({"arch": "arm", "disk": "ssd"}),
        gated: &[SELECTOR],
        ..NARROWED
    },
    Change {
        name: "all deleted",
        apply: |s| s["nodeSelector"] = Value::Null,
        gated: &[SELECTOR],
        ..NARROWED
    },
];

/// The required terms of a spec.
fn terms(spec: &mut Value) -> &mut Vec<Value> {
    let terms = spec.pointer_mut(
        "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms",
    );
    terms.and_then(Value::as_array_mut).expect("terms")
}

/// A list of requirements of a term.
fn requirements<'a>(spec: &'a mut Value, term: usize, list: &str) -> &'a mut Vec<Value> {
    let list = &mut terms(spec)[term][list];
    if list.is_null() {
        *list = json!([]);
    }
    list.as_array_mut().expect("a list")
}

const AFFINITIES: &[Change] = &[
    SAME,
    Change {
        name: "expression appended",
        apply: |s| requirements(s, 0, "matchExpressions").push(exists("more")),
        ..NARROWED
    },
    Change {
        name: "field appended",
        apply: |s| requirements(s, 0, "matchFields").push(is_node("n2")),
        ..NARROWED
    },
    Change {
        name: "first field of a term",
        apply: |s| requirements(s, 1, "matchFields").push(is_node("n2")),
        ..NARROWED
    },
    Change {
        name: "expression put first",
        apply: |s| requirements(s, 0, "matchExpressions").insert(0, exists("more")),
        gated: &[TERM_0],
        ..NARROWED
    },
    Change {
        name: "expressions in another order",
        apply: |s| requirements(s, 0, "matchExpressions").reverse(),
        gated: &[TERM_0],
        ..NARROWED
    },
    Change {
        name: "value added to an expression",
        apply: |s| requirements(s, 0, "matchExpressions")[1]["values"] = json!(["x", "y"]),
        gated: &[TERM_0],
        ..NARROWED
    },
    Change {
        name: "expression dropped",
        apply: |s| drop(requirements(s, 0, "matchExpressions").pop()),
        gated: &[TERM_0],
        ..NARROWED
    },
    Change {
        name: "field changed, expression appended",
        apply: |s| {
            requirements(s, 0, "matchFields")[0] = is_node("other");
            requirements(s, 0, "matchExpressions").push(exists("more"));
        },
        gated: &[TERM_0],
        ..NARROWED
    },
    Change {
        name: "terms in another order",
        apply: |s| terms(s).reverse(),
        gated: &[TERM_0, TERM_1],
        ..NARROWED
    },
    Change {
        name: "term added",
        apply: |s| terms(s).push(json!({"matchExpressions": [exists("more")]})),
        gated: &[ALL_TERMS],
        ..NARROWED
    },
    Change {
        name: "term dropped, the other narrowed",
        apply: |s| {
            terms(s).pop();
            requirements(s, 0, "matchExpressions").push(exists("more"));
        },
        gated: &[ALL_TERMS],
        ..NARROWED
    },
    Change {
        name: "no required terms any more",
        apply: |s| {
            s["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
                Value::Null;
        },
        gated: &[ALL_TERMS],
        ..NARROWED
    },
    Change {
        name: "no node affinity any more",
        apply: |s| s["affinity"]["nodeAffinity"] = Value::Null,
        gated: &[ALL_TERMS],
        ..NARROWED
    },
    Change {
        name: "preferences changed",
        apply: |s| {
            s["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] =
                json!([{"weight": 7, "preference": {"matchFields": [is_node("n9")]}}]);
        },
        ..NARROWED
    },
    Change {
        name: "preferences dropped",
        apply: |s| {
            s["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] =
                Value::Null;
        },
        ..NARROWED
    },
];

const FORBIDDEN: Change = Change {
    forbidden: true,
    ..SAME
};

const OTHERS: &[Change] = &[
    SAME,
    Change {
        name: "another image",
        apply: |s| s["containers"][0]["image"] = json!("registry.example/a:2"),
        ..SAME
    },
    Change {
        name: "pod anti-affinity",
        apply: |s| {
            s["affinity"]["podAntiAffinity"] = json!({"requiredDuringSchedulingIgnoredDuringExecution":
                [{"topologyKey": "zone", "labelSelector": {}}]});
        },
        ..FORBIDDEN
    },
    Change {
        name: "no pod affinity any more",
        apply: |s| s["affinity"]["podAffinity"] = Value::Null,
        ..FORBIDDEN
    },
    Change {
        name: "more resources",
        apply: |s| s["containers"][0]["resources"] = json!({"requests": {"cpu": "2"}}),
        ..FORBIDDEN
    },
    Change {
        name: "another priority",
        apply: |s| s["priority"] = json!(7),
        ..FORBIDDEN
    },
    Change {
        name: "a shorter grace period",
        apply: |s| s["terminationGracePeriodSeconds"] = json!(1),
        ..FORBIDDEN
    },
];

/// A name, the change, and the error if there is one.
const TOLERATIONS: &[(&str, Apply, Option<&str>)] = &[
    ("same", |_| {}, None),
    (
        "appended",
        |s| {
            let all = s["tolerations"].as_array_mut().expect("tolerations");
            all.push(json!({"key": "more", "operator": "Exists"}));
        },
        None,
    ),
    (
        "put first, another time",
        |s| {
            let all = s["tolerations"].as_array_mut().expect("tolerations");
            all[0]["tolerationSeconds"] = json!(9);
            all.insert(0, json!({"key": "more", "operator": "Exists"}));
        },
        None,
    ),
    (
        "another value",
        |s| s["tolerations"][0]["value"] = json!("other"),
        Some(
            "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds",
        ),
    ),
    (
        "dropped",
        |s| s["tolerations"] = json!([]),
        Some(
            "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds",
        ),
    ),
];

/// As above, and whether there are other errors.
const DEADLINES: &[(&str, Apply, Option<&str>, bool)] = &[
    ("same", |_| {}, None, true),
    (
        "sooner",
        |s| s["activeDeadlineSeconds"] = json!(50),
        None,
        true,
    ),
    (
        "none",
        |s| s["activeDeadlineSeconds"] = Value::Null,
        Some(
            "spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer to nil value",
        ),
        true,
    ),
    (
        "later",
        |s| s["activeDeadlineSeconds"] = json!(150),
        Some(
            "spec.activeDeadlineSeconds: Invalid value: 150: must be less than or equal to previous value",
        ),
        false,
    ),
];

const GATES: &[(&str, &[&str], Option<&str>)] = &[
    ("same", &["g1", "g2"], None),
    ("one gone", &["g2"], None),
    ("all gone", &[], None),
    ("another order", &["g2", "g1"], None),
    (
        "renamed",
        &["g1", "g3"],
        Some(
            "spec.schedulingGates[1].name: Forbidden: only deletion is allowed, but found new scheduling gate 'g3'",
        ),
    ),
];

fn everything() -> Value {
    json!({
        "nodeSelector": {"zone": "a", "arch": "arm"},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {
                        "matchExpressions": [
                            {"key": "a", "operator": "Exists"},
                            {"key": "b", "operator": "In", "values": ["x"]},
                        ],
                        "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
                    },
                    {"matchExpressions": [{"key": "c", "operator": "DoesNotExist"}]},
                ]},
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "preference": {"matchExpressions": [{"key": "d", "operator": "Exists"}]}},
                ],
            },
            "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {}}},
            ]},
        },
        "tolerations": [{"key": "t", "value": "v", "effect": "NoExecute", "tolerationSeconds": 5}],
        "activeDeadlineSeconds": 100,
    })
}

/// API-7 to API-13, cases 10 to 19 and 23: every kind of change is combined with every other. The errors of all changes
/// are returned, in the order deadline, tolerations, gates, node selector, node affinity, spec; only a deadline that is
/// increased or removed ends the validation. The old pod decides whether the pod is gated, so an update may remove the
/// last gate and narrow the pod at the same time.
#[test]
fn every_change_meets_every_other() {
    let mut tried = 0;
    let mut check = |gated: bool, gate: usize, picks: [usize; 5]| {
        let [selector, affinity, other, toleration, deadline] = picks;
        let (selector, affinity) = (&SELECTORS[selector], &AFFINITIES[affinity]);
        let other = &OTHERS[other];
        let (toleration_name, tolerate, toleration_error) = TOLERATIONS[toleration];
        let (deadline_name, set_deadline, deadline_error, goes_on) = DEADLINES[deadline];
        let mut old = everything();
        let mut new = everything();
        let mut gate_error = None;
        let mut gate_name = "never gated";
        if gated {
            old["schedulingGates"] = json!([{"name": "g1"}, {"name": "g2"}]);
            let (name, after, error) = GATES[gate];
            let after: Vec<Value> = after.iter().map(|n| json!({"name": n})).collect();
            new["schedulingGates"] = json!(after);
            (gate_name, gate_error) = (name, error);
        }
        let (mut old, mut new) = (pod(old), pod(new));
        for change in [
            selector.apply,
            affinity.apply,
            other.apply,
            tolerate,
            set_deadline,
        ] {
            change(&mut new["spec"]);
        }
        rules().default(&mut old);
        rules().default(&mut new);
        let mut expected: Vec<&str> = deadline_error.into_iter().collect();
        if goes_on {
            expected.extend(toleration_error);
            expected.extend(gate_error);
            let changes = [selector, affinity, other];
            if gated {
                expected.extend(changes.iter().flat_map(|c| c.gated));
            }
            if changes
                .iter()
                .any(|c| c.forbidden || (c.needs_gate && !gated))
            {
                expected.push(NOT_SPEC);
            }
        }
        let errors = printed(&rules().validate_update(&new, &old, Subresource::Main));
        let names = [
            selector.name,
            affinity.name,
            other.name,
            toleration_name,
            deadline_name,
        ];
        let fits = errors.len() == expected.len()
            && errors.iter().zip(&expected).all(|(e, x)| e.starts_with(x));
        assert!(
            fits,
            "{gate_name}, {names:?}: {errors:#?} instead of {expected:#?}"
        );
        tried += 1;
    };
    // Placement and gates in every combination; with each, the others take turns.
    for selector in 0..SELECTORS.len() {
        for affinity in 0..AFFINITIES.len() {
            for other in 0..OTHERS.len() {
                for (i, gated) in [false, true, true, true, true, true]
                    .into_iter()
                    .enumerate()
                {
                    let turn = selector * 7 + affinity * 5 + other * 3 + i;
                    let (toleration, deadline) = (turn % TOLERATIONS.len(), turn % DEADLINES.len());
                    let gate = i.saturating_sub(1);
                    check(gated, gate, [selector, affinity, other, 0, 0]);
                    check(
                        gated,
                        gate,
                        [selector, affinity, other, toleration, deadline],
                    );
                }
            }
        }
    }
    assert_eq!(
        tried,
        2 * 6 * SELECTORS.len() * AFFINITIES.len() * OTHERS.len()
    );
}
