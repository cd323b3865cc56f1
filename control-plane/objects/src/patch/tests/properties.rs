//! Properties of every patch.

use super::*;
use proptest::prelude::*;
use serde_json::Map;

/// Any JSON value, small; member names and texts are drawn so that rules, keys and directives meet.
fn any_json() -> impl Strategy<Value = Value> {
    let name = prop::sample::select(vec![
        "metadata",
        "spec",
        "status",
        "containers",
        "env",
        "name",
        "ports",
        "port",
        "containerPort",
        "protocol",
        "finalizers",
        "volumes",
        "conditions",
        "type",
        "labels",
        "a",
        "$patch",
        "$retainKeys",
        "$setElementOrder/containers",
        "$setElementOrder/finalizers",
        "$setElementOrder/ports",
        "$deleteFromPrimitiveList/finalizers",
        "securityContext",
    ]);
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3_i64..3).prop_map(Value::from),
        (-9_i32..9).prop_map(|n| Value::from(f64::from(n) / 4.0)),
        prop::sample::select(vec![
            "", "a", "b", "delete", "replace", "merge", "name", "TCP"
        ])
        .prop_map(Value::from),
    ];
    scalar.prop_recursive(6, 60, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name.clone(), inner, 0..5)
                .prop_map(|map| map.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()),
        ]
    })
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(object) => object
            .iter()
            .filter(|(_, v)| !v.is_null())
            .map(|(k, v)| (k.clone(), without_nulls(v)))
            .collect(),
        other => other.clone(),
    }
}

fn object(value: Value) -> Value {
    if value.is_object() {
        value
    } else {
        json!({ "spec": value })
    }
}

/// The merge patch that turns one object into another.
///
/// A merge patch cannot set a member to null, so nulls of `to` are left out of the outcome.
fn create_merge_patch(from: &Value, to: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (from, to) else {
        return to.clone();
    };
    let mut patch = Map::new();
    for key in from.keys() {
        if to.get(key).is_none_or(Value::is_null) {
            patch.insert(key.clone(), Value::Null);
        }
    }
    for (key, new) in to {
        match from.get(key) {
            Some(old) if old == new => {}
            Some(old @ Value::Object(_)) if new.is_object() => {
                patch.insert(key.clone(), create_merge_patch(old, new));
            }
            _ if new.is_null() => {}
            _ => {
                patch.insert(key.clone(), new.clone());
            }
        }
    }
    Value::Object(patch)
}

proptest! {
    // A failing case prints its seed, which proptest keeps in a file to try first from then on.
    #[test]
    fn a_created_merge_patch_leads_to_its_target(from in any_json(), to in any_json()) {
        let (from, to) = (object(from), without_nulls(&object(to)));
        let patch = create_merge_patch(&from, &to);
        prop_assert_eq!(pod(PatchType::Merge, &from, &patch), Ok(to));
    }

    #[test]
    fn no_patch_panics(current in any_json(), patch in any_json()) {
        for patch_type in [PatchType::Json, PatchType::Merge, PatchType::Strategic] {
            let _ = pod(patch_type, &current, &patch);
        }
    }

    #[test]
    fn an_empty_strategic_patch_changes_nothing(current in any_json()) {
        let current = object(current);
        prop_assert_eq!(pod(PatchType::Strategic, &current, &json!({})), Ok(current));
    }

    #[test]
    fn a_strategic_patch_twice_is_once(
        images in prop::collection::btree_map("[a-d]", "[xy]", 0..4),
        patch in prop::collection::btree_map("[a-f]", "[xyz]", 0..6),
    ) {
        let list = |map: &std::collections::BTreeMap<String, String>| -> Value {
            map.iter().map(|(name, image)| json!({"name": name, "image": image})).collect()
        };
        let current = spec(json!({"containers": list(&images)}));
        let patch = spec(json!({"containers": list(&patch)}));
        let once = pod(PatchType::Strategic, &current, &patch).expect("a valid patch");
        prop_assert_eq!(pod(PatchType::Strategic, &once, &patch), Ok(once));
    }
}
