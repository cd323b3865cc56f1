//! Patches, by example. Every case names its situation.

mod properties;
mod strategic;

use super::*;
use crate::schema::GroupVersionKind;
use serde_json::json;

fn pod(patch_type: PatchType, current: &Value, patch: &Value) -> Result<Value, PatchError> {
    of_kind(patch_type, "", "v1", "Pod", current, patch)
}

fn of_kind(
    patch_type: PatchType,
    group: &str,
    version: &str,
    kind: &str,
    current: &Value,
    patch: &Value,
) -> Result<Value, PatchError> {
    apply(
        patch_type,
        GroupVersionKind::new(group, version, kind),
        current,
        patch.to_string().as_bytes(),
    )
}

fn spec(spec: Value) -> Value {
    json!({ "spec": spec })
}

#[test]
fn json_patch_operations() {
    let current = json!({"a": {"b": [1, 2, 3]}, "x/y": {"m~n": "v"}});
    let cases = [
        (
            "add a member",
            json!([{"op": "add", "path": "/a/c", "value": 1}]),
            json!({"a": {"b": [1, 2, 3], "c": 1}, "x/y": {"m~n": "v"}}),
        ),
        (
            "add replaces a member",
            json!([{"op": "add", "path": "/a", "value": 1}]),
            json!({"a": 1, "x/y": {"m~n": "v"}}),
        ),
        (
            "add into a list",
            json!([{"op": "add", "path": "/a/b/1", "value": 9}]),
            json!({"a": {"b": [1, 9, 2, 3]}, "x/y": {"m~n": "v"}}),
        ),
        (
            "add at the end",
            json!([{"op": "add", "path": "/a/b/-", "value": 9}]),
            json!({"a": {"b": [1, 2, 3, 9]}, "x/y": {"m~n": "v"}}),
        ),
        (
            "add one past the last",
            json!([{"op": "add", "path": "/a/b/3", "value": 9}]),
            json!({"a": {"b": [1, 2, 3, 9]}, "x/y": {"m~n": "v"}}),
        ),
        (
            "remove",
            json!([{"op": "remove", "path": "/a/b/0"}]),
            json!({"a": {"b": [2, 3]}, "x/y": {"m~n": "v"}}),
        ),
        (
            "remove from the end",
            json!([{"op": "remove", "path": "/a/b/-1"}]),
            json!({"a": {"b": [1, 2]}, "x/y": {"m~n": "v"}}),
        ),
        (
            "replace",
            json!([{"op": "replace", "path": "/a/b/2", "value": {}}]),
            json!({"a": {"b": [1, 2, {}]}, "x/y": {"m~n": "v"}}),
        ),
        (
            "escaped names",
            json!([{"op": "replace", "path": "/x~1y/m~0n", "value": "w"}]),
            json!({"a": {"b": [1, 2, 3]}, "x/y": {"m~n": "w"}}),
        ),
        (
            "move",
            json!([{"op": "move", "from": "/a/b", "path": "/c"}]),
            json!({"a": {}, "c": [1, 2, 3], "x/y": {"m~n": "v"}}),
        ),
        (
            "copy",
            json!([{"op": "copy", "from": "/a/b/0", "path": "/c"}]),
            json!({"a": {"b": [1, 2, 3]}, "c": 1, "x/y": {"m~n": "v"}}),
        ),
        (
            "a test that holds, then the change",
            json!([{"op": "test", "path": "/a/b", "value": [1, 2.0, 3]}, {"op": "remove", "path": "/a"}]),
            json!({"x/y": {"m~n": "v"}}),
        ),
        (
            "what is not there is null",
            json!([{"op": "test", "path": "/nope", "value": null}]),
            current.clone(),
        ),
        ("no operations", json!([]), current.clone()),
    ];
    for (name, patch, expect) in cases {
        assert_eq!(pod(PatchType::Json, &current, &patch), Ok(expect), "{name}");
    }
}

#[test]
fn json_patches_that_do_not_fit() {
    let current = json!({"metadata": {"name": "p"}, "list": [1]});
    let unprocessable = [
        (
            "a test fails",
            json!([{"op": "test", "path": "/metadata/name", "value": "zzz"}]),
        ),
        (
            "a later operation fails: nothing is applied",
            json!([{"op": "remove", "path": "/list"}, {"op": "test", "path": "/metadata/name", "value": "q"}]),
        ),
        (
            "remove what is not there",
            json!([{"op": "remove", "path": "/spec"}]),
        ),
        (
            "replace what is not there",
            json!([{"op": "replace", "path": "/spec", "value": 1}]),
        ),
        (
            "add below what is not there",
            json!([{"op": "add", "path": "/spec/x", "value": 1}]),
        ),
        (
            "add past the end",
            json!([{"op": "add", "path": "/list/2", "value": 1}]),
        ),
        (
            "index with a leading zero",
            json!([{"op": "remove", "path": "/list/00"}]),
        ),
        (
            "index that is no number",
            json!([{"op": "remove", "path": "/list/x"}]),
        ),
        (
            "index beyond all bounds",
            json!([{"op": "remove", "path": "/list/99999999999999999999999"}]),
        ),
        (
            "unknown operation",
            json!([{"op": "frob", "path": "/list"}]),
        ),
        ("no operation", json!([{"path": "/list"}])),
        (
            "path without a slash",
            json!([{"op": "remove", "path": "list"}]),
        ),
        ("no path", json!([{"op": "remove"}])),
        (
            "move into itself",
            json!([{"op": "move", "from": "/metadata", "path": "/metadata/x"}]),
        ),
        (
            "copy without a source",
            json!([{"op": "copy", "path": "/x"}]),
        ),
    ];
    for (name, patch) in unprocessable {
        let error = pod(PatchType::Json, &current, &patch).expect_err(name);
        assert_eq!(error.code(), 422, "{name}: {error}");
        assert_eq!(error.reason(), "Invalid", "{name}");
        assert_eq!(
            error.status_message(),
            "the server rejected our request due to an error in our request",
            "{name}"
        );
    }
    for (name, patch) in [
        ("no list", json!({"op": "remove", "path": "/list"})),
        ("operation that is no object", json!(["remove"])),
    ] {
        let error = pod(PatchType::Json, &current, &patch).expect_err(name);
        assert_eq!(error.code(), 400, "{name}: {error}");
    }
    let error = apply(
        PatchType::Json,
        GroupVersionKind::new("", "v1", "Pod"),
        &current,
        b"[{",
    )
    .expect_err("bad JSON");
    assert_eq!((error.code(), error.reason()), (400, "BadRequest"));
}

#[test]
fn json_patches_have_limits() {
    let current = json!({"a": {"b": "x".repeat(1000)}});
    let operation = json!({"op": "test", "path": "/c", "value": null});
    let at_limit = Value::from(vec![operation.clone(); JSON_PATCH_OPERATIONS_MAX]);
    assert_eq!(
        pod(PatchType::Json, &current, &at_limit),
        Ok(current.clone())
    );
    let above = Value::from(vec![operation; JSON_PATCH_OPERATIONS_MAX + 1]);
    let error = pod(PatchType::Json, &current, &above).expect_err("too many");
    assert_eq!(
        (error.code(), error.reason()),
        (413, "RequestEntityTooLarge")
    );
    assert_eq!(
        error.status_message(),
        "The allowed maximum operations in a JSON patch is 10000, got 10001"
    );

    let doubling = Value::from(vec![
        json!({"op": "copy", "from": "/a", "path": "/a/c"});
        100
    ]);
    let error = pod(PatchType::Json, &current, &doubling).expect_err("a copy of copies");
    assert_eq!(error.code(), 422);
    let mut path = String::new();
    let deeper: Vec<Value> = (0..1000)
        .map(|_| {
            path.push_str("/a");
            json!({"op": "add", "path": path, "value": {}})
        })
        .collect();
    let error = pod(PatchType::Json, &json!({}), &Value::from(deeper)).expect_err("too deep");
    assert_eq!(error.code(), 422);
}

#[test]
fn merge_patches() {
    // The examples of RFC 7386, Appendix A, whose outcome is an object.
    let cases = [
        (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
        (
            json!({"a": "b"}),
            json!({"b": "c"}),
            json!({"a": "b", "b": "c"}),
        ),
        (json!({"a": "b"}), json!({"a": null}), json!({})),
        (
            json!({"a": "b", "b": "c"}),
            json!({"a": null}),
            json!({"b": "c"}),
        ),
        (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
        (
            json!({"a": {"b": "c"}}),
            json!({"a": {"b": "d", "c": null}}),
            json!({"a": {"b": "d"}}),
        ),
        (
            json!({"a": [{"b": "c"}]}),
            json!({"a": [1]}),
            json!({"a": [1]}),
        ),
        (
            json!({"e": null}),
            json!({"a": 1}),
            json!({"e": null, "a": 1}),
        ),
        (
            json!({}),
            json!({"a": {"bb": {"ccc": null}}}),
            json!({"a": {"bb": {}}}),
        ),
    ];
    for (current, patch, expect) in cases {
        assert_eq!(
            pod(PatchType::Merge, &current, &patch),
            Ok(expect),
            "{current} + {patch}"
        );
    }
    for patch in [json!([]), json!("x"), json!(null), json!(1)] {
        let error = pod(PatchType::Merge, &json!({}), &patch).expect_err("no object");
        assert_eq!(error.code(), 400, "{patch}");
    }
}

#[test]
fn fields_that_stand_twice_are_reported() {
    let patch = br#"{"spec": {"priority": 1, "priority": 2}}"#;
    for patch_type in [PatchType::Merge, PatchType::Strategic] {
        let patched = apply_reporting(
            patch_type,
            GroupVersionKind::new("", "v1", "Pod"),
            json!({}),
            patch,
        )
        .expect("patch");
        assert_eq!(patched.duplicate_fields, ["spec.priority"]);
        assert_eq!(patched.object, json!({"spec": {"priority": 2}}));
    }
}

#[test]
fn media_types() {
    for patch_type in [PatchType::Json, PatchType::Merge, PatchType::Strategic] {
        assert_eq!(
            PatchType::from_media_type(patch_type.media_type()),
            Some(patch_type)
        );
    }
    assert_eq!(PatchType::from_media_type("application/json"), None);
}
