//! Patches, by example. Every case names its situation.

use super::*;
use proptest::prelude::*;
use serde_json::json;

fn pod(patch_type: PatchType, current: &Value, patch: &Value) -> Result<Value, PatchError> {
    of_kind(patch_type, ("", "v1", "Pod"), current, patch)
}

fn of_kind(
    patch_type: PatchType,
    (group, version, kind): (&str, &str, &str),
    current: &Value,
    patch: &Value,
) -> Result<Value, PatchError> {
    apply(
        patch_type,
        group,
        version,
        kind,
        current,
        patch.to_string().as_bytes(),
    )
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
    let error = apply(PatchType::Json, "", "v1", "Pod", &current, b"[{").expect_err("bad JSON");
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
        let patched =
            apply_reporting(patch_type, "", "v1", "Pod", &json!({}), patch).expect("patch");
        assert_eq!(patched.duplicate_fields, ["spec.priority"]);
        assert_eq!(patched.object, json!({"spec": {"priority": 2}}));
    }
}

fn spec(spec: Value) -> Value {
    json!({ "spec": spec })
}

#[test]
fn strategic_patches_of_pods() {
    let cases = [
        (
            "containers merge by name",
            spec(
                json!({"containers": [{"name": "a", "image": "a:1", "tty": true}, {"name": "b", "image": "b:1"}]}),
            ),
            spec(
                json!({"containers": [{"name": "b", "image": "b:2"}, {"name": "c", "image": "c:1"}]}),
            ),
            spec(
                json!({"containers": [{"name": "a", "image": "a:1", "tty": true}, {"name": "b", "image": "b:2"}, {"name": "c", "image": "c:1"}]}),
            ),
        ),
        (
            "an environment entry is removed, as apply does",
            spec(
                json!({"containers": [{"name": "a", "image": "i", "env": [{"name": "KEEP", "value": "1"}, {"name": "GONE", "value": "2"}]}]}),
            ),
            spec(json!({
                "$setElementOrder/containers": [{"name": "a"}],
                "containers": [{"name": "a", "$setElementOrder/env": [{"name": "KEEP"}], "env": [{"name": "GONE", "$patch": "delete"}]}],
            })),
            spec(
                json!({"containers": [{"name": "a", "image": "i", "env": [{"name": "KEEP", "value": "1"}]}]}),
            ),
        ),
        (
            "one scheduling gate is removed",
            spec(
                json!({"schedulingGates": [{"name": "example.com/foo"}, {"name": "example.com/bar"}]}),
            ),
            spec(json!({"schedulingGates": [{"name": "example.com/foo", "$patch": "delete"}]})),
            spec(json!({"schedulingGates": [{"name": "example.com/bar"}]})),
        ),
        (
            "all scheduling gates are removed with null",
            spec(json!({"schedulingGates": [{"name": "x"}], "nodeName": "n"})),
            spec(json!({"schedulingGates": null})),
            spec(json!({"nodeName": "n"})),
        ),
        (
            "a volume changes its source: retainKeys",
            spec(
                json!({"volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "hostPath": {"path": "/"}}]}),
            ),
            spec(
                json!({"volumes": [{"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "c"}}]}),
            ),
            spec(
                json!({"volumes": [{"name": "v", "configMap": {"name": "c"}}, {"name": "w", "hostPath": {"path": "/"}}]}),
            ),
        ),
        (
            "tolerations are atomic",
            spec(json!({"tolerations": [{"key": "a"}, {"key": "b"}]})),
            spec(json!({"tolerations": [{"key": "c"}]})),
            spec(json!({"tolerations": [{"key": "c"}]})),
        ),
        (
            "a null below a new member is nothing",
            json!({}),
            spec(json!({"securityContext": {"runAsUser": null, "fsGroup": 1}, "nodeName": null})),
            spec(json!({"securityContext": {"fsGroup": 1}})),
        ),
        (
            "order is set, entries of others keep their place",
            spec(json!({"containers": [{"name": "a"}, {"name": "sidecar"}, {"name": "b"}]})),
            spec(json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]})),
            // The sidecar stood before b, so it still does.
            spec(json!({"containers": [{"name": "sidecar"}, {"name": "b"}, {"name": "a"}]})),
        ),
        (
            "order with a new entry",
            spec(json!({"containers": [{"name": "a"}, {"name": "b"}]})),
            spec(json!({
                "$setElementOrder/containers": [{"name": "new"}, {"name": "b"}, {"name": "a"}],
                "containers": [{"name": "new", "image": "i"}],
            })),
            spec(
                json!({"containers": [{"name": "new", "image": "i"}, {"name": "b"}, {"name": "a"}]}),
            ),
        ),
        (
            "replace in an entry replaces the list",
            spec(json!({"containers": [{"name": "a"}, {"name": "b"}]})),
            spec(json!({"containers": [{"name": "c", "image": "i"}, {"$patch": "replace"}]})),
            spec(json!({"containers": [{"name": "c", "image": "i"}]})),
        ),
        (
            "replace in an object replaces the object",
            spec(json!({"securityContext": {"runAsUser": 1, "fsGroup": 2}})),
            spec(json!({"securityContext": {"$patch": "replace", "fsGroup": 3}})),
            spec(json!({"securityContext": {"fsGroup": 3}})),
        ),
        (
            "delete in an object empties it",
            spec(json!({"securityContext": {"runAsUser": 1}})),
            spec(json!({"securityContext": {"$patch": "delete"}})),
            spec(json!({"securityContext": {}})),
        ),
        (
            "deleting what is not there is nothing",
            spec(json!({"nodeName": "n"})),
            spec(
                json!({"securityContext": {"$patch": "delete"}, "containers": [{"name": "x", "$patch": "delete"}]}),
            ),
            spec(json!({"nodeName": "n", "containers": []})),
        ),
        (
            "nested lists of a new container carry no directives",
            spec(json!({"containers": []})),
            spec(
                json!({"containers": [{"name": "a", "$setElementOrder/env": [{"name": "X"}], "env": [{"name": "X", "value": "1"}, {"name": "Y", "$patch": "delete"}]}]}),
            ),
            spec(json!({"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}]}]})),
        ),
        (
            "volume mounts merge by path, devices by path; what is new comes first",
            spec(
                json!({"containers": [{"name": "a", "volumeMounts": [{"mountPath": "/x", "name": "v"}], "volumeDevices": [{"devicePath": "/d", "name": "v"}]}]}),
            ),
            spec(
                json!({"containers": [{"name": "a", "volumeMounts": [{"mountPath": "/x", "readOnly": true}], "volumeDevices": [{"devicePath": "/e", "name": "w"}]}]}),
            ),
            spec(
                json!({"containers": [{"name": "a", "volumeMounts": [{"mountPath": "/x", "name": "v", "readOnly": true}], "volumeDevices": [{"devicePath": "/e", "name": "w"}, {"devicePath": "/d", "name": "v"}]}]}),
            ),
        ),
        (
            "two spread constraints of one topology key",
            spec(json!({"topologySpreadConstraints": [
                {"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1},
                {"topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 1},
            ]})),
            spec(
                json!({"topologySpreadConstraints": [{"topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 5}]}),
            ),
            spec(json!({"topologySpreadConstraints": [
                {"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1},
                {"topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 5},
            ]})),
        ),
        (
            "finalizers unite",
            json!({"metadata": {"finalizers": ["a", "b"]}}),
            json!({"metadata": {"finalizers": ["c", "b"]}}),
            json!({"metadata": {"finalizers": ["c", "a", "b"]}}),
        ),
        (
            "a finalizer is deleted, another added, in order",
            json!({"metadata": {"finalizers": ["a", "b"]}}),
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "$setElementOrder/finalizers": ["b", "c"], "finalizers": ["c"]}}),
            json!({"metadata": {"finalizers": ["b", "c"]}}),
        ),
        (
            "owner references merge by uid",
            json!({"metadata": {"ownerReferences": [{"uid": "1", "name": "a", "controller": true}]}}),
            json!({"metadata": {"ownerReferences": [{"uid": "1", "controller": false}, {"uid": "2", "name": "b"}]}}),
            json!({"metadata": {"ownerReferences": [{"uid": "1", "name": "a", "controller": false}, {"uid": "2", "name": "b"}]}}),
        ),
        (
            "labels merge, null removes one",
            json!({"metadata": {"labels": {"a": "1", "b": "2"}}}),
            json!({"metadata": {"labels": {"a": null, "c": "3"}}}),
            json!({"metadata": {"labels": {"b": "2", "c": "3"}}}),
        ),
        (
            "conditions merge by type",
            json!({"status": {"conditions": [{"type": "PodScheduled", "status": "False", "lastProbeTime": null}, {"type": "Ready", "status": "False"}]}}),
            json!({"status": {"conditions": [{"type": "PodScheduled", "reason": "Unschedulable"}], "nominatedNodeName": "n"}}),
            json!({"status": {"conditions": [{"type": "PodScheduled", "status": "False", "lastProbeTime": null, "reason": "Unschedulable"}, {"type": "Ready", "status": "False"}], "nominatedNodeName": "n"}}),
        ),
    ];
    for (name, current, patch, expect) in cases {
        assert_eq!(
            pod(PatchType::Strategic, &current, &patch),
            Ok(expect),
            "{name}"
        );
    }
}

#[test]
fn strategic_patches_of_other_kinds() {
    let tcp = json!({"name": "dns-tcp", "port": 53, "protocol": "TCP"});
    let udp = json!({"name": "dns", "port": 53, "protocol": "UDP"});
    let cases = [
        (
            "a port's protocol and name change: ports merge by port",
            ("", "v1", "Service"),
            spec(json!({"ports": [{"port": 80, "protocol": "TCP", "nodePort": 30000}]})),
            spec(json!({"ports": [{"port": 80, "protocol": "UDP", "name": "web"}]})),
            spec(
                json!({"ports": [{"port": 80, "protocol": "UDP", "nodePort": 30000, "name": "web"}]}),
            ),
        ),
        (
            "one port in two protocols: the protocol decides",
            ("", "v1", "Service"),
            spec(json!({"ports": [tcp, udp]})),
            spec(json!({"ports": [{"port": 53, "protocol": "UDP", "targetPort": 5353}]})),
            spec(
                json!({"ports": [tcp, {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 5353}]}),
            ),
        ),
        (
            "a second protocol is added beside the first",
            ("", "v1", "Service"),
            spec(json!({"ports": [tcp]})),
            spec(
                json!({"ports": [tcp, udp], "$setElementOrder/ports": [{"port": 53}, {"port": 53}]}),
            ),
            spec(json!({"ports": [tcp, udp]})),
        ),
        (
            "the default protocol is meant when none is given",
            ("", "v1", "Service"),
            spec(json!({"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53}]})),
            spec(json!({"ports": [{"port": 53, "protocol": "TCP", "name": "t"}]})),
            spec(
                json!({"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP", "name": "t"}]}),
            ),
        ),
        (
            "a deployment's strategy changes: retainKeys in an object",
            ("apps", "v1", "Deployment"),
            spec(json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}})),
            spec(json!({"strategy": {"$retainKeys": ["type"], "type": "Recreate"}})),
            spec(json!({"strategy": {"type": "Recreate"}})),
        ),
        (
            "containers of a template",
            ("apps", "v1", "Deployment"),
            spec(
                json!({"template": {"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b"}]}}}),
            ),
            spec(json!({"template": {"spec": {"containers": [{"name": "a", "image": "2"}]}}})),
            spec(
                json!({"template": {"spec": {"containers": [{"name": "a", "image": "2"}, {"name": "b"}]}}}),
            ),
        ),
        (
            "taints are atomic",
            ("", "v1", "Node"),
            spec(json!({"taints": [{"key": "a", "effect": "NoSchedule"}]})),
            spec(json!({"taints": [{"key": "b", "effect": "NoSchedule"}]})),
            spec(json!({"taints": [{"key": "b", "effect": "NoSchedule"}]})),
        ),
        (
            "a node's addresses merge by type",
            ("", "v1", "Node"),
            json!({"status": {"addresses": [{"type": "Hostname", "address": "n"}, {"type": "InternalIP", "address": "1"}]}}),
            json!({"status": {"addresses": [{"type": "InternalIP", "address": "2"}]}}),
            json!({"status": {"addresses": [{"type": "Hostname", "address": "n"}, {"type": "InternalIP", "address": "2"}]}}),
        ),
        (
            "a consumer leaves a claim",
            ("resource.k8s.io", "v1", "ResourceClaim"),
            json!({"status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "1"}, {"resource": "pods", "name": "q", "uid": "2"}]}}),
            json!({"status": {"reservedFor": [{"uid": "1", "$patch": "delete"}]}}),
            json!({"status": {"reservedFor": [{"resource": "pods", "name": "q", "uid": "2"}]}}),
        ),
        (
            "a budget's selector is replaced",
            ("policy", "v1", "PodDisruptionBudget"),
            spec(json!({"selector": {"matchLabels": {"a": "1"}}, "minAvailable": 1})),
            spec(json!({"selector": {"matchLabels": {"b": "2"}}})),
            spec(json!({"selector": {"matchLabels": {"b": "2"}}, "minAvailable": 1})),
        ),
        (
            "content without a type keeps what looks like a directive",
            ("apps", "v1", "ControllerRevision"),
            json!({"revision": 1}),
            json!({"data": {"spec": {"template": {"$patch": "replace", "spec": null}}}}),
            json!({"revision": 1, "data": {"spec": {"template": {"$patch": "replace", "spec": null}}}}),
        ),
        (
            "a kind without a known type: lists are replaced",
            ("example.com", "v1", "Widget"),
            spec(json!({"parts": [{"name": "a"}], "size": {"x": 1}})),
            spec(json!({"parts": [{"name": "b"}], "size": {"y": 2}})),
            spec(json!({"parts": [{"name": "b"}], "size": {"x": 1, "y": 2}})),
        ),
    ];
    for (name, kind, current, patch, expect) in cases {
        assert_eq!(
            of_kind(PatchType::Strategic, kind, &current, &patch),
            Ok(expect),
            "{name}"
        );
    }
}

#[test]
fn strategic_patches_that_are_refused() {
    let current = json!({
        "metadata": {"finalizers": ["a"]},
        "spec": {"containers": [{"name": "a"}], "volumes": [{"name": "v", "emptyDir": {}}]},
    });
    let cases = [
        ("not an object", json!([]), 400),
        (
            "unknown directive in an object",
            spec(json!({"$patch": "frob"})),
            400,
        ),
        (
            "merge is no directive of an entry",
            spec(json!({"containers": [{"name": "a", "$patch": "merge"}]})),
            400,
        ),
        (
            "an entry without its key",
            spec(json!({"containers": [{"image": "i"}]})),
            422,
        ),
        (
            "a deletion without its key",
            spec(json!({"containers": [{"$patch": "delete"}]})),
            422,
        ),
        (
            "an entry that is no object",
            spec(json!({"containers": ["a"]})),
            422,
        ),
        (
            "retainKeys that is no list",
            spec(json!({"volumes": [{"name": "v", "$retainKeys": "name"}]})),
            400,
        ),
        (
            "retainKeys without what the patch sets",
            spec(
                json!({"volumes": [{"name": "v", "$retainKeys": ["name"], "hostPath": {"path": "/"}}]}),
            ),
            400,
        ),
        (
            "an order that is no list",
            spec(json!({"$setElementOrder/containers": {}})),
            400,
        ),
        (
            "an order without keys",
            spec(json!({"$setElementOrder/containers": [{"image": "a"}]})),
            400,
        ),
        (
            "an order that contradicts the list",
            spec(
                json!({"$setElementOrder/containers": [{"name": "b"}], "containers": [{"name": "a", "image": "i"}]}),
            ),
            400,
        ),
        (
            "scalars to delete that are no list",
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": "a"}}),
            400,
        ),
    ];
    for (name, patch, code) in cases {
        let error = pod(PatchType::Strategic, &current, &patch).expect_err(name);
        assert_eq!(error.code(), code, "{name}: {error}");
    }
}

#[test]
fn long_lists_merge_in_linear_time() {
    let entries = |n: usize, image: &str| -> Vec<Value> {
        (0..n)
            .map(|i| json!({"name": format!("c{i}"), "image": image}))
            .collect()
    };
    let current = spec(json!({"containers": entries(20_000, "1")}));
    let order: Vec<Value> = (0..20_000)
        .rev()
        .map(|i| json!({"name": format!("c{i}")}))
        .collect();
    let mut patch_entries = entries(20_000, "2");
    patch_entries.reverse();
    let patch =
        spec(json!({"$setElementOrder/containers": order, "containers": patch_entries.clone()}));
    // Quadratic work would be 400 million comparisons and take minutes.
    assert_eq!(
        pod(PatchType::Strategic, &current, &patch),
        Ok(spec(json!({"containers": patch_entries})))
    );
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

proptest! {
    // A failing case prints its seed and is kept beside this file.
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
