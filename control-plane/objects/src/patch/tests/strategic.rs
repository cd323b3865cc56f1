//! Strategic merge patches, by example.

use super::*;

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
            // The sidecar was before b, and still is.
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
    for (name, (group, version, kind), current, patch, expect) in cases {
        assert_eq!(
            of_kind(PatchType::Strategic, group, version, kind, &current, &patch),
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
