//! Ownership without a server.

use super::*;
use crate::raw_json::managed_fields_to_json;
use crate::schema::GroupVersionKind;
use crate::schema::Schemas;
use serde_json::json;

fn typed(group: &str, kind: &str) -> Typed<'static> {
    let schemas = Schemas::get();
    Typed {
        model: schemas.model(),
        root: schemas.find(GroupVersionKind::new(group, "v1", kind)),
    }
}

fn author(manager: &str) -> Author<'_> {
    Author {
        manager,
        api_version: "v1",
        subresource: "",
        now: "2026-01-01T00:00:00Z",
        reset: &[],
    }
}

fn applied(typed: Typed<'_>, live: &Value, manager: &str, config: &Value) -> Value {
    match apply(typed, live, &json!({}), config, &author(manager), true) {
        Ok(object) => object,
        Err(e) => panic!("{e:?}"),
    }
}

#[test]
fn lists_merge_by_their_keys_in_the_order_of_the_configuration() {
    let services = typed("", "Service");
    let ports = |list: Value| json!({"metadata": {"name": "s"}, "spec": {"ports": list}});
    // (before, applied, after). A missing protocol is TCP.
    let cases = [
        (json!([]), json!([{"port": 1}]), json!([{"port": 1}])),
        (
            json!([{"port": 1, "protocol": "TCP", "name": "a"}]),
            json!([{"port": 1, "targetPort": 9}]),
            json!([{"port": 1, "protocol": "TCP", "name": "a", "targetPort": 9}]),
        ),
        (
            json!([{"port": 1, "protocol": "TCP"}]),
            json!([{"port": 1, "protocol": "UDP"}]),
            json!([{"port": 1, "protocol": "TCP"}, {"port": 1, "protocol": "UDP"}]),
        ),
        (
            json!([{"port": 1}, {"port": 2}, {"port": 3}]),
            json!([{"port": 3}, {"port": 1}]),
            json!([{"port": 2}, {"port": 3}, {"port": 1}]),
        ),
    ];
    for (before, config, expect) in cases {
        let live = ports(before);
        let after = applied(services, &live, "m", &ports(config.clone()));
        let mut found = after["spec"]["ports"].clone();
        let sort = |list: &mut Value| {
            if let Some(list) = list.as_array_mut() {
                list.sort_by_key(Value::to_string);
            }
        };
        let mut expect = expect;
        sort(&mut found);
        sort(&mut expect);
        assert_eq!(found, expect, "{config}");
    }
}

#[test]
fn fields_without_an_owner_are_removed() {
    let pods = typed("", "Pod");
    let pod =
        |containers: Value| json!({"metadata": {"name": "p"}, "spec": {"containers": containers}});
    let both = pod(json!([{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]));
    let mut live = applied(pods, &json!({}), "one", &both);
    // The server's defaults belong to no manager and are removed with their container.
    live["spec"]["containers"][1]["imagePullPolicy"] = "Always".into();
    let one = pod(json!([{"name": "a", "image": "1"}]));
    let after = applied(pods, &live, "one", &one);
    assert_eq!(after["spec"]["containers"], one["spec"]["containers"]);
    // An atomic list is replaced; a null keeps the members of other managers.
    let maps = typed("", "ConfigMap");
    let live = applied(
        maps,
        &json!({}),
        "one",
        &json!({"metadata": {"name": "c"}, "data": {"a": "1"}}),
    );
    let null = json!({"metadata": {"name": "c"}, "data": null});
    let after = applied(maps, &live, "two", &null);
    assert_eq!(after["data"], json!({"a": "1"}));
}

#[test]
fn the_oldest_managers_of_updates_are_merged() {
    let maps = typed("", "ConfigMap");
    let mut object = json!({"metadata": {"name": "c", "uid": "u"}, "data": {}});
    for i in 0..15_u32 {
        let mut new = object.clone();
        new["metadata"]["uid"] = "u".into();
        new["data"][format!("k{i:02}")] = "v".into();
        let now = format!("2026-01-01T00:00:{i:02}Z");
        let name = format!("m{i:02}");
        let author = Author {
            now: &now,
            ..author(&name)
        };
        let old = if i == 0 { json!({}) } else { object };
        after_update(maps, &old, &mut new, &author);
        object = new;
    }
    let managers = entries(&object);
    let names: Vec<&str> = managers.iter().map(|e| e.manager.as_str()).collect();
    assert_eq!(names.len(), UPDATE_MANAGERS_MAX, "{names:?}");
    assert!(names.contains(&ANCIENT) && names.contains(&"m14"));
    let mut owned = FieldSet::default();
    for entry in managers {
        owned.add(entry.set.into_set());
    }
    let keys = |set: &FieldSet| set.paths().iter().filter(|p| p.contains(".k")).count();
    assert_eq!(keys(&owned), 15, "no field loses its owner");
}

#[test]
fn an_update_that_does_not_send_the_owners_keeps_them() {
    let maps = typed("", "ConfigMap");
    let config = json!({"metadata": {"name": "c", "uid": "u"}, "data": {"a": "1"}});
    let live = applied(maps, &json!({}), "one", &config);
    let mut new = config;
    new["data"]["b"] = "2".into();
    after_update(maps, &live, &mut new, &author("two"));
    let names: Vec<String> = entries(&new).into_iter().map(|e| e.manager).collect();
    assert_eq!(names, ["one", "two"]);
    assert!(!differ_in_times_only(&live, &new));
    let mut later = new.clone();
    later["metadata"]["managedFields"][0]["time"] = "2027-01-01T00:00:00Z".into();
    assert!(differ_in_times_only(&new, &later));
}

#[test]
fn fields_of_unknown_objects_are_granular() {
    let free = Typed {
        model: Schemas::get().model(),
        root: None,
    };
    let config = json!({"spec": {"x": {"y": [1, 2]}}});
    let mut object = applied(free, &json!({}), "m", &config);
    managed_fields_to_json(&mut object);
    assert_eq!(
        object["metadata"]["managedFields"][0]["fieldsV1"],
        json!({"f:spec": {"f:x": {"f:y": {}}}})
    );
}

/// Stored objects have `fieldsV1` as text. Only the parts that a write affects are read.
#[test]
fn a_write_has_the_same_owners_whether_fields_are_stored_as_text_or_as_json() {
    let pods = typed("", "Pod");
    let mut stored = json!({
        "metadata": {"name": "p", "uid": "u", "labels": {"a": "1"}, "finalizers": ["x/y"]},
        "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "n"},
        "status": {"phase": "Pending", "conditions": [{"type": "Ready", "status": "False"}]},
    });
    after_update(pods, &json!({}), &mut stored, &author("creator"));
    let mut relabelled = stored.clone();
    relabelled["metadata"]["labels"]["b"] = "2".into();
    after_update(pods, &stored, &mut relabelled, &author("labeller"));
    let mut tree = relabelled.clone();
    managed_fields_to_json(&mut tree);
    assert_ne!(tree, relabelled);

    type Change = fn(&mut Value);
    let changes: [(&str, Change); 8] = [
        ("nothing", |_| {}),
        ("a field of one manager", |o| {
            o["spec"]["nodeName"] = "m".into()
        }),
        ("a field of the other manager", |o| {
            o["metadata"]["labels"]["b"] = "3".into()
        }),
        ("a new field", |o| o["spec"]["hostname"] = "h".into()),
        ("an entry of a list", |o| {
            o["spec"]["containers"][0]["image"] = "j".into()
        }),
        ("another entry of a list", |o| {
            o["status"]["conditions"][0]["type"] = "New".into()
        }),
        ("a removed map", |o| o["metadata"]["labels"] = Value::Null),
        ("an item of a set", |o| {
            o["metadata"]["finalizers"] = json!([])
        }),
    ];
    for (what, change) in changes {
        for manager in ["creator", "labeller", "third"] {
            let later = Author {
                now: "2026-01-02T00:00:00Z",
                ..author(manager)
            };
            let updated = |old: &Value| {
                let mut new = old.clone();
                change(&mut new);
                after_update(pods, old, &mut new, &later);
                managed_fields_to_json(&mut new);
                new
            };
            assert_eq!(updated(&relabelled), updated(&tree), "{what} by {manager}");
        }
    }
}
