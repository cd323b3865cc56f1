//! Merging of writes, and objects that show a write.

use super::*;
use crate::testing::node;
use berth_api::{CustomKind, Kind};
use serde_json::json;

static NOTE: CallType = CallType::new("note", Kind::Node).merging(Merge::Patches);

fn note(key: &'static str, value: &'static str) -> Write {
    let body = json!({"metadata": {"annotations": {key: value}}});
    Write::patch(&NOTE, "", "n", body).seen_as(move |object| match object {
        Object::Node(node) => {
            let mut node = berth_api::Node::clone(node);
            node.metadata.annotations = node.metadata.annotations.with(key, value);
            Object::Node(Arc::new(node))
        }
        other => other.clone(),
    })
}

/// D-7: two patches that wait become one, and the object looks as after both.
#[test]
fn patches_become_one() {
    for (older, newer, body) in [
        (note("a", "1"), note("b", "2"), json!({"a": "1", "b": "2"})),
        (note("a", "1"), note("a", "2"), json!({"a": "2"})),
    ] {
        let both = newer.clone().after(&older).expect("patches merge");
        let expected = json!({"metadata": {"annotations": body}});
        assert_eq!(both.action(), &Action::Patch(expected));
        let stored = node("n").object();
        let after = both.applied_to(&stored);
        assert_eq!(after, newer.applied_to(&older.applied_to(&stored)));
        assert!(both.is_shown_by(&after) && !both.is_shown_by(&stored));
    }
    let status = note("b", "2").to_subresource("status");
    let error = status.after(&note("a", "1")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "one call cannot patch two subresources, \"\" and \"status\""
    );
    let gone = Write::new(&NOTE, "", "n", Action::Delete);
    assert!(gone.after(&note("a", "1")).is_err());
}

#[test]
fn the_newer_patch_of_a_field_takes_precedence() {
    for (patch, newer, both) in [
        (
            json!({"a": {"b": 1}}),
            json!({"a": {"c": 2}}),
            json!({"a": {"b": 1, "c": 2}}),
        ),
        (
            json!({"a": {"b": 1}}),
            json!({"a": null}),
            json!({"a": null}),
        ),
        (
            json!({"a": null}),
            json!({"a": {"b": 1}}),
            json!({"a": {"b": 1}}),
        ),
        (json!({"a": [1, 2]}), json!({"a": [3]}), json!({"a": [3]})),
    ] {
        let mut merged = patch.clone();
        merge_patches(&mut merged, &newer);
        assert_eq!(merged, both, "{patch} then {newer}");
    }
}

/// D-8: objects that are kept whole show a patch by themselves.
#[test]
fn a_custom_object_shows_its_patch() {
    static KIND: CustomKind = CustomKind {
        plural: "racks",
        version: "v1",
        group: "example.com",
    };
    static RACK: CallType = CallType::new("rack", Kind::Custom(KIND));
    let object = |spec: Value| {
        let json = json!({"metadata": {"name": "r", "uid": "u"}, "spec": spec}).to_string();
        Kind::Custom(KIND).decode(json.as_bytes()).expect("a rack")
    };
    let write = Write::patch(&RACK, "", "r", json!({"spec": {"pods": 2, "note": null}}));
    for (spec, shown) in [
        (json!({"pods": 2}), true),
        (json!({"pods": 2, "other": true}), true),
        (json!({"pods": 3}), false),
        (json!({"pods": 2, "note": "x"}), false),
    ] {
        let stored = object(spec.clone());
        assert_eq!(write.is_shown_by(&stored), shown, "{spec}");
        let applied = write.applied_to(&stored);
        assert!(write.is_shown_by(&applied), "{spec}");
        let Object::Custom(applied) = applied else {
            panic!("{applied:?}");
        };
        let other = applied.value.pointer("/spec/other");
        assert_eq!(other, spec.get("other"), "only the patch changes {spec}");
    }
    let other = ObjectMeta {
        uid: "another".into(),
        ..ObjectMeta::default()
    };
    assert!(!write.of(&other).is_shown_by(&object(json!({"pods": 2}))));
}

/// PL-145: a newer update replaces the assumption, an older one does not.
#[test]
fn a_write_is_valid_for_its_version_and_earlier_ones() {
    let meta = |uid: &str, version: &str| ObjectMeta {
        uid: uid.into(),
        resource_version: version.into(),
        ..ObjectMeta::default()
    };
    let write = note("a", "1").of_version(&meta("u", "5"));
    for (uid, version, holds) in [
        ("u", "5", true),
        ("u", "4", true),
        ("u", "6", false),
        ("v", "5", false),
    ] {
        assert_eq!(
            write.comes_after(&meta(uid, version)),
            holds,
            "{uid} {version}"
        );
    }
    assert!(note("a", "1").comes_after(&meta("u", "9")), "any version");
    assert_eq!(write.key().uid, "u");
    assert_eq!(note("a", "1").key().uid, "/n", "its name stands for it");
}
