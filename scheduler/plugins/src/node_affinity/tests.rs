//! Tests of NodeAffinity.

use super::*;
use crate::testing::{World, add, hint, node, pod, pod_info, unresolvable, update};
use berth_framework::CycleState;
use berth_framework::plugin::PreFilterResult;
use berth_framework::plugin::{PreFilter, PreScore};
use serde_json::{Value, json};

fn required(terms: Value) -> Value {
    json!({"affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
    }}})
}

fn preferring(terms: Value) -> Value {
    json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}})
}

fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
    json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
}

fn named(names: &[&str]) -> Value {
    let fields: Vec<Value> = names
        .iter()
        .map(|name| json!({"key": "metadata.name", "operator": "In", "values": [name]}))
        .collect();
    json!({"matchFields": fields})
}

fn labelled(labels: Value) -> Value {
    json!({"metadata": {"labels": labels}})
}

fn world() -> World {
    World::new()
        .node("a", labelled(json!({"zone": "a", "cpus": "8"})))
        .node("b", labelled(json!({"zone": "b", "cpus": "abc"})))
}

fn plugin(args: Value) -> NodeAffinity {
    NodeAffinity::new(NodeAffinityArgs::decode(&args).expect("arguments"))
}

fn enforcing(term: Value) -> NodeAffinity {
    plugin(json!({"addedAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}
    }}))
}

/// PL-20, PL-42: selector, terms, fields; which nodes fit, in the order a, b.
#[test]
fn required_affinity_decides_where_a_pod_fits() {
    let no = || unresolvable(REASON_POD);
    for (spec, expected) in [
        (json!({}), [None, None]),
        (json!({"nodeSelector": {}}), [None, None]),
        (json!({"nodeSelector": {"zone": "a"}}), [None, no()]),
        (
            json!({"nodeSelector": {"zone": "a", "rack": "1"}}),
            [no(), no()],
        ),
        (required(json!([])), [no(), no()]),
        (required(json!([{}])), [no(), no()]),
        (
            required(json!([{}, expression("zone", "In", &["b"])])),
            [no(), None],
        ),
        (
            required(json!([
                expression("zone", "In", &["a"]),
                expression("zone", "In", &["b"])
            ])),
            [None, None],
        ),
        // A label that is no number is on neither side of one.
        (
            required(json!([expression("cpus", "Gt", &["4"])])),
            [None, no()],
        ),
        (
            required(json!([expression("cpus", "Lt", &["4"])])),
            [no(), no()],
        ),
        (
            required(json!([expression("rack", "NotIn", &["1"])])),
            [None, None],
        ),
        (
            required(json!([expression("zone", "DoesNotExist", &[])])),
            [no(), no()],
        ),
        // The selector and the terms.
        (
            {
                let mut spec = required(json!([expression("zone", "Exists", &[])]));
                spec["nodeSelector"] = json!({"zone": "a"});
                spec
            },
            [None, no()],
        ),
        // All of a term, expressions and fields.
        (
            required(json!([{
                "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}],
                "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["a"]}],
            }])),
            [no(), None],
        ),
        // A term that does not parse matches nothing; another one may.
        (
            required(json!([expression("cpus", "Gt", &["-5"])])),
            [no(), no()],
        ),
        (
            required(json!([
                expression("cpus", "Gt", &["-5"]),
                expression("zone", "In", &["b"])
            ])),
            [no(), None],
        ),
    ] {
        let pod = pod_info("p", spec.clone());
        let got = world().filter(&NodeAffinity::default(), &pod);
        assert_eq!(got, Ok(expected.to_vec()), "{spec}");
    }
}

/// PL-20: of fields there are only names, and they are compared one at a time; anything else does not parse, and
/// matches nothing. Filter finds that by itself when PreFilter has not run (PL-48).
#[test]
fn names_are_the_only_fields() {
    let no = || unresolvable(REASON_POD);
    for (key, operator, values, expected) in [
        ("metadata.name", "In", json!(["a"]), [None, no()]),
        ("metadata.name", "NotIn", json!(["a"]), [no(), None]),
        ("metadata.name", "In", json!(["a", "b"]), [no(), no()]),
        ("metadata.name", "Exists", json!([]), [no(), no()]),
        ("metadata.uid", "In", json!(["a"]), [no(), no()]),
    ] {
        let field = json!({"key": key, "operator": operator, "values": values});
        let pod = pod_info("p", required(json!([{"matchFields": [field]}])));
        let got = world().filter_only(&NodeAffinity::default(), &pod);
        assert_eq!(got, expected, "{key} {operator} {values}");
    }
}

/// PL-43: node names narrow only when every term has one; contradictions reject the pod.
#[test]
fn terms_that_name_nodes_narrow_the_nodes() {
    #[derive(Debug, PartialEq)]
    enum Narrowed {
        Skip,
        All,
        Names(Vec<&'static str>),
        Conflict,
    }
    for (spec, expected) in [
        (json!({}), Narrowed::Skip),
        (json!({"nodeSelector": {}}), Narrowed::All),
        (required(json!([named(&["a"])])), Narrowed::Names(vec!["a"])),
        (
            required(json!([named(&["b"]), named(&["a"])])),
            Narrowed::Names(vec!["a", "b"]),
        ),
        (required(json!([named(&["a", "b"])])), Narrowed::Conflict),
        (
            required(json!([named(&["a", "b"]), named(&["b"])])),
            Narrowed::Names(vec!["b"]),
        ),
        (
            required(json!([named(&["a"]), expression("zone", "In", &["b"])])),
            Narrowed::All,
        ),
        (required(json!([])), Narrowed::All),
    ] {
        let pod = pod_info("p", spec.clone());
        let world = world();
        let result =
            NodeAffinity::default().pre_filter(&world.context(), &mut CycleState::default(), &pod);
        match (result, expected) {
            (PreFilterResult::Skip, Narrowed::Skip)
            | (PreFilterResult::AllNodes, Narrowed::All) => {}
            (PreFilterResult::Nodes(names), Narrowed::Names(expected)) => {
                assert_eq!(names, expected, "{spec}");
            }
            (PreFilterResult::Reject(status), Narrowed::Conflict) => {
                assert_eq!(status, Status::unresolvable(REASON_CONFLICT), "{spec}");
            }
            (got, expected) => panic!("{spec}: {got:?}, expected {expected:?}"),
        }
    }
}

/// PL-44: the profile's affinity is asked first and has a reason of its own.
#[test]
fn the_profile_can_add_required_affinity() {
    let enforced = || unresolvable(REASON_ENFORCED);
    for (spec, expected) in [
        (json!({}), [None, enforced()]),
        (
            json!({"nodeSelector": {"zone": "b"}}),
            [unresolvable(REASON_POD), enforced()],
        ),
    ] {
        let plugin = enforcing(expression("zone", "In", &["a"]));
        let got = world().filter(&plugin, &pod_info("p", spec.clone()));
        assert_eq!(got, Ok(expected.to_vec()), "{spec}");
    }
}

/// PL-45: weights of matching terms add up and are brought to 100 by the greatest.
#[test]
fn preferred_terms_add_up() {
    let term = |weight: i32, preference: Value| json!({"weight": weight, "preference": preference});
    let in_zone = |zone: &str| expression("zone", "In", &[zone]);
    let added = json!({"addedAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
        [term(2, in_zone("b"))]}});
    for (args, spec, scores) in [
        (json!(null), json!({}), None),
        // 5 + 3 = 8 of 8, and 3·100/8 = 37.
        (
            json!(null),
            preferring(json!([
                term(5, in_zone("a")),
                term(3, expression("cpus", "Exists", &[]))
            ])),
            Some(vec![100, 37]),
        ),
        // Weight 0 and an empty preference count nothing, yet the plugin is not skipped.
        (
            json!(null),
            preferring(json!([term(0, in_zone("a")), term(9, json!({}))])),
            Some(vec![0, 0]),
        ),
        (added.clone(), json!({}), Some(vec![0, 100])),
        // 1 for a; 2 for b.
        (
            added,
            preferring(json!([term(1, in_zone("a"))])),
            Some(vec![50, 100]),
        ),
    ] {
        let got = world().scores(&plugin(args), &pod_info("p", spec.clone()));
        assert_eq!(got, scores, "{spec}");
    }
}

/// PL-46: a preferred term that does not parse fails the cycle.
#[test]
fn a_preferred_term_that_does_not_parse_is_an_error() {
    let spec = preferring(json!([{"weight": 1, "preference": expression("zone", "In", &[])}]));
    let world = world();
    let status = NodeAffinity::default().pre_score(
        &world.context(),
        &mut CycleState::default(),
        &pod_info("p", spec),
        &[],
    );
    assert_eq!(status.code(), berth_framework::Code::Error);
}

/// PL-47: only a node that newly matches wakes; a selector that does not parse is an error.
#[test]
fn a_node_that_comes_to_match_wakes() {
    let zone = |zone: &str| node("n", labelled(json!({"zone": zone})));
    let zone_and = |rack: &str| node("n", labelled(json!({"zone": "a", "rack": rack})));
    let wants = |zone: &str| json!({"nodeSelector": {"zone": zone}});
    let label = ActionType::UPDATE_NODE_LABEL;
    let plain = NodeAffinity::default;
    for (name, plugin, spec, action, change, expected) in [
        (
            "new and matching",
            plain(),
            wants("a"),
            ActionType::ADD,
            add(zone("a")),
            Ok(Hint::Queue),
        ),
        (
            "new, not matching",
            plain(),
            wants("b"),
            ActionType::ADD,
            add(zone("a")),
            Ok(Hint::Skip),
        ),
        (
            "comes to match",
            plain(),
            wants("a"),
            label,
            update(zone("b"), zone("a")),
            Ok(Hint::Queue),
        ),
        (
            "stops matching",
            plain(),
            wants("a"),
            label,
            update(zone("a"), zone("b")),
            Ok(Hint::Skip),
        ),
        (
            "another label",
            plain(),
            wants("a"),
            label,
            update(zone_and("1"), zone_and("2")),
            Ok(Hint::Skip),
        ),
        (
            "the profile forbids it",
            enforcing(expression("zone", "In", &["b"])),
            wants("a"),
            label,
            update(zone("b"), zone("a")),
            Ok(Hint::Skip),
        ),
        // As upstream: the pod matched before, only the profile did not.
        (
            "only the profile comes to match",
            enforcing(expression("zone", "In", &["a"])),
            json!({}),
            label,
            update(zone("b"), zone("a")),
            Ok(Hint::Skip),
        ),
        (
            "a term does not parse",
            plain(),
            required(json!([expression("zone", "In", &[])])),
            ActionType::ADD,
            add(zone("a")),
            Err(()),
        ),
    ] {
        let waiting = pod("p", spec);
        let got = hint(
            plugin,
            &World::new(),
            EventResource::Node,
            action,
            &waiting,
            change,
        );
        assert_eq!(got.map_err(|_| ()), expected, "{name}");
    }
}

/// PL-21: any term error refuses the arguments.
#[test]
fn arguments_are_parsed_strictly() {
    let bad = json!({"addedAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [expression("zone", "In", &["a"]), expression("zone", "In", &[])]},
        "preferredDuringSchedulingIgnoredDuringExecution":
            [{"weight": 1, "preference": expression("zone", "Near", &["a"])}],
    }});
    let error = NodeAffinityArgs::decode(&bad).expect_err("two problems");
    let paths: Vec<&str> = error
        .problems
        .iter()
        .map(|(path, _)| path.as_str())
        .collect();
    assert_eq!(
        paths,
        [
            "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution",
            "addedAffinity.preferredDuringSchedulingIgnoredDuringExecution",
        ]
    );
    assert!(NodeAffinityArgs::decode(&json!({"affinity": {}})).is_err());
}
