//! The events that queue a pod that VolumeBinding has rejected.

use super::tests::{capacity, driver, using};
use super::*;
use crate::testing::{
    World, add, claim, csi_node, delete, full_hint, hint, pod, storage_class, update, volume,
};
use serde_json::{Value, json};

/// PL-137: the events that wake a pod.
#[test]
fn what_wakes() {
    let ask = |spec: Value, resource: EventResource, action, change| {
        hint(
            VolumeBinding::default(),
            &World::new(),
            resource,
            action,
            &pod("p", spec),
            change,
        )
    };
    let class = |zone: &str| {
        storage_class(
            "s",
            json!({"allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": [zone]}]}]}),
        )
    };
    let of = |fields: Value| capacity(fields);
    let migrated = |plugins: &str| {
        csi_node(
            "n",
            json!({"metadata": {"annotations": {"storage.alpha.kubernetes.io/migrated-plugins": plugins}}}),
        )
    };
    let inline = || json!({"volumes": [{"name": "v", "csi": {"driver": "csi.example.com"}}]});
    let (added, updated) = (ActionType::ADD, ActionType::UPDATE);
    for (name, spec, resource, action, change, expected) in [
        (
            "a class",
            using(&["c"]),
            EventResource::StorageClass,
            added,
            add(class("a")),
            Hint::Queue,
        ),
        (
            "a class elsewhere",
            using(&["c"]),
            EventResource::StorageClass,
            updated,
            update(class("a"), class("b")),
            Hint::Queue,
        ),
        (
            "a class as before",
            using(&["c"]),
            EventResource::StorageClass,
            updated,
            update(class("a"), class("a")),
            Hint::Skip,
        ),
        (
            "its claim",
            using(&["c"]),
            EventResource::PersistentVolumeClaim,
            updated,
            update(claim("c", json!({})), claim("c", json!({}))),
            Hint::Queue,
        ),
        (
            "its ephemeral claim",
            json!({"volumes": [{"name": "v", "ephemeral": {}}]}),
            EventResource::PersistentVolumeClaim,
            added,
            add(claim("p-v", json!({}))),
            Hint::Queue,
        ),
        (
            "another claim",
            using(&["c"]),
            EventResource::PersistentVolumeClaim,
            added,
            add(claim("d", json!({}))),
            Hint::Skip,
        ),
        (
            "a volume",
            using(&["c"]),
            EventResource::PersistentVolume,
            updated,
            update(volume("v", json!({})), volume("v", json!({}))),
            Hint::Queue,
        ),
        (
            "a CSI node",
            using(&["c"]),
            EventResource::CsiNode,
            added,
            add(migrated("")),
            Hint::Queue,
        ),
        (
            "a CSI node takes over",
            using(&["c"]),
            EventResource::CsiNode,
            updated,
            update(migrated("a"), migrated("a,b")),
            Hint::Queue,
        ),
        (
            "a CSI node as before",
            using(&["c"]),
            EventResource::CsiNode,
            updated,
            update(migrated("a"), migrated("a")),
            Hint::Skip,
        ),
        (
            "its driver counts no more",
            inline(),
            EventResource::CsiDriver,
            updated,
            update(driver(json!(true)), driver(json!(false))),
            Hint::Queue,
        ),
        (
            "its driver begins to count",
            inline(),
            EventResource::CsiDriver,
            updated,
            update(driver(json!(false)), driver(json!(true))),
            Hint::Skip,
        ),
        (
            "a driver of no inline volume",
            using(&["c"]),
            EventResource::CsiDriver,
            updated,
            update(driver(json!(true)), driver(json!(false))),
            Hint::Skip,
        ),
        (
            "space",
            using(&["c"]),
            EventResource::CsiStorageCapacity,
            added,
            add(of(json!({}))),
            Hint::Queue,
        ),
        (
            "more space",
            using(&["c"]),
            EventResource::CsiStorageCapacity,
            updated,
            update(
                of(json!({"capacity": "1Gi"})),
                of(json!({"capacity": "2Gi"})),
            ),
            Hint::Queue,
        ),
        (
            "space is reported at last",
            using(&["c"]),
            EventResource::CsiStorageCapacity,
            updated,
            update(of(json!({})), of(json!({"capacity": "2Gi"}))),
            Hint::Queue,
        ),
        (
            "less space",
            using(&["c"]),
            EventResource::CsiStorageCapacity,
            updated,
            update(
                of(json!({"capacity": "2Gi"})),
                of(json!({"capacity": "1Gi"})),
            ),
            Hint::Skip,
        ),
    ] {
        assert_eq!(ask(spec, resource, action, change), Ok(expected), "{name}");
    }
}

/// PL-137: no hint of kube-scheduler reads claims when a driver stops reporting capacity, and none reads deleted
/// objects.
#[test]
fn drivers_and_csi_nodes_that_go_wake() {
    let pod = pod("p", using(&["c"]));
    for (name, changed, expected) in [
        (
            "counts no more",
            update(driver(json!(true)), driver(json!(false))),
            Hint::Queue,
        ),
        ("is deleted", delete(driver(json!(true))), Hint::Queue),
        (
            "begins to count",
            update(driver(json!(false)), driver(json!(true))),
            Hint::Skip,
        ),
        (
            "is deleted, and did not count",
            delete(driver(json!(false))),
            Hint::Skip,
        ),
        (
            "a CSINode is deleted",
            delete(csi_node("n", json!({}))),
            Hint::Queue,
        ),
    ] {
        let hint = full_hint(VolumeBinding::default(), &World::new(), &pod, &changed);
        assert_eq!(hint, expected, "{name}");
    }
}
