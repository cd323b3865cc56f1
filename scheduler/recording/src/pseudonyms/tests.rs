//! The replaced and the kept parts, and the relations of objects.

use super::*;
use berth_api::{LabelSelector, Selector};
use serde_json::json;

fn pseudonyms() -> Pseudonyms {
    Pseudonyms::new().expect("random numbers")
}

fn replaced(pseudonyms: &mut Pseudonyms, kind: Kind, json: &Value) -> Value {
    let object = kind
        .decode(json.to_string().as_bytes())
        .unwrap_or_else(|e| panic!("{e}: {json}"));
    let object = pseudonyms.object(&object).expect("it can be read");
    serde_json::to_value(object).expect("JSON")
}

#[test]
fn a_name_is_replaced_word_by_word() {
    let mut of = pseudonyms();
    let pod = of.name("web-7d9f-abcde");
    assert_eq!(of.name("web-7d9f-abcde"), pod, "always the same");
    let volume = of.name("data");
    assert_eq!(of.name("web-7d9f-abcde-data"), format!("{pod}-{volume}"));
    assert_eq!(pod.len(), 3 * WORD_LEN + 2);
    assert!(pod.bytes().all(|b| b == b'-' || b.is_ascii_lowercase()));
    assert_ne!(of.name("web-7d9f-abcdf"), pod);
    assert_ne!(pseudonyms().name("web-7d9f-abcde"), pod, "another key");
    let long = "a-b-c-d-e-f-g-h-i-j";
    assert_eq!(of.name(long).len(), 10 * WORD_LEN + 9);
    assert_eq!(of.label(long).len(), WHOLE_LEN, "labels are short");
    for kept in [
        "",
        "default",
        "true",
        "17",
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
        "registry.k8s.io/pause:3.10",
    ] {
        assert_eq!(of.name(kept), kept);
    }
    for replaced in ["example.com/zone", "notkubernetes.io/x", "1.2", "Default"] {
        assert_ne!(of.name(replaced), replaced);
    }
    let mut keeping = pseudonyms().keeping(["example.com", "team"]);
    for kept in ["example.com/zone", "a.example.com/zone", "team"] {
        assert_eq!(keeping.name(kept), kept);
    }
    for replaced in ["example.org/zone", "team-a", "example.com"] {
        let is_kept = keeping.name(replaced) == replaced;
        assert_eq!(is_kept, replaced == "example.com", "{replaced}");
    }
    // An image without a tag is equal to the image tagged as latest.
    let image = of.name("registry.example/team/app");
    assert_eq!(
        of.name("registry.example/team/app:latest"),
        image + ":latest"
    );
}

/// Each name of a cluster contains `secret`; none of them is left.
#[test]
fn no_name_is_left() {
    let term = json!({"matchExpressions": [{"key": "secret.com/k", "operator": "In", "values": ["secret"]}]});
    let selector =
        json!({"matchLabels": {"secret": "secret"}, "matchExpressions": term["matchExpressions"]});
    let metadata = json!({
        "name": "secret-1", "namespace": "secret-ns", "uid": "u", "generateName": "secret-",
        "labels": {"secret.com/app": "secret", "version": "3"}, "annotations": {"secret.com/note": "{\"secret\": 1}"},
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "secret-rs", "uid": "o"}],
    });
    for (kind, object) in [
        (
            Kind::Pod,
            json!({
                "metadata": metadata,
                "spec": {
                    "nodeName": "secret-node", "schedulerName": "default-scheduler",
                    "schedulingGates": [{"name": "secret.com/gate"}], "nodeSelector": {"secret": "secret"},
                    "tolerations": [{"key": "secret", "value": "secret", "effect": "NoSchedule"}],
                    "affinity": {
                        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                            term, {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["secret-node"]}]}]}},
                        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
                            "labelSelector": selector, "namespaces": ["secret-ns"], "namespaceSelector": selector,
                            "topologyKey": "secret.com/rack", "matchLabelKeys": ["secret"]}]},
                    },
                    "topologySpreadConstraints": [{"topologyKey": "secret.com/rack", "labelSelector": selector,
                        "matchLabelKeys": ["secret"], "whenUnsatisfiable": "DoNotSchedule"}],
                    "containers": [{"name": "secret", "image": "secret.example/secret:secret",
                        "ports": [{"hostPort": 80, "hostIP": "10.0.0.1"}], "resources": {"requests": {"cpu": "1"}}}],
                    "volumes": [{"name": "secret", "persistentVolumeClaim": {"claimName": "secret"}},
                        {"name": "secret-2", "csi": {"driver": "csi.example"}}, {"name": "secret-3", "ephemeral": {}},
                        {"name": "secret-4", "iscsi": {"iqn": "secret"}}, {"name": "secret-5", "gcePersistentDisk": {"pdName": "secret"}},
                        {"name": "secret-6", "rbd": {"monitors": ["secret"], "pool": "secret", "image": "secret"}}],
                    "resourceClaims": [{"name": "secret", "resourceClaimTemplateName": "secret"}],
                },
                "status": {"nominatedNodeName": "secret-node", "phase": "Pending",
                    "resourceClaimStatuses": [{"name": "secret", "resourceClaimName": "secret-claim"}],
                    "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                        "message": "0/3 nodes are available: 3 had untolerated taint {secret: secret}"}]},
            }),
        ),
        (
            Kind::Node,
            json!({
                "metadata": metadata,
                "spec": {"taints": [{"key": "secret.com/a", "value": "secret", "effect": "NoSchedule"}]},
                "status": {"allocatable": {"cpu": "4", "example.com/gpu": "1"}, "images": [{"names": ["secret.example/secret@sha256:00"]}]},
            }),
        ),
        (
            Kind::Service,
            json!({"metadata": metadata, "spec": {"selector": {"secret": "secret"}}}),
        ),
        (
            Kind::StatefulSet,
            json!({"metadata": metadata, "spec": {"selector": selector}}),
        ),
        (
            Kind::PodDisruptionBudget,
            json!({"metadata": metadata, "spec": {"selector": selector},
                "status": {"disruptedPods": {"secret-1": "2026-01-01T00:00:00Z"}}}),
        ),
        (
            Kind::PersistentVolume,
            json!({"metadata": metadata, "spec": {"storageClassName": "secret", "capacity": {"storage": "1Gi"},
                "claimRef": {"namespace": "secret-ns", "name": "secret"}, "csi": {"driver": "d", "volumeHandle": "secret"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}}),
        ),
        (
            Kind::PersistentVolumeClaim,
            json!({"metadata": metadata, "spec": {"storageClassName": "secret", "volumeName": "secret", "selector": selector}}),
        ),
        (
            Kind::StorageClass,
            json!({"metadata": metadata, "provisioner": "csi.example",
                "allowedTopologies": [{"matchLabelExpressions": [{"key": "secret", "values": ["secret"]}]}]}),
        ),
        (
            Kind::CsiNode,
            json!({"metadata": metadata, "spec": {"drivers": [{"name": "csi.example", "allocatable": {"count": 3}}]}}),
        ),
        (
            Kind::CsiStorageCapacity,
            json!({"metadata": metadata, "nodeTopology": selector, "storageClassName": "secret", "capacity": "1Gi"}),
        ),
        (
            Kind::VolumeAttachment,
            json!({"metadata": metadata, "spec": {"attacher": "csi.example", "nodeName": "secret", "source": {"persistentVolumeName": "secret"}}}),
        ),
        (
            Kind::DeviceClass,
            json!({"metadata": metadata, "spec": {"config": [{"opaque": {"driver": "d", "parameters": {"secret": "secret"}}}]}}),
        ),
        (
            Kind::ResourceClaim,
            json!({"metadata": metadata,
                "spec": {"devices": {
                    "requests": [{"name": "secret", "exactly": {"deviceClassName": "secret",
                        "tolerations": [{"key": "secret", "operator": "Exists"}]}}],
                    "constraints": [{"requests": ["secret/secret"], "matchAttribute": "a/b"}]}},
                "status": {
                    "allocation": {"devices": {"results": [{"request": "secret", "driver": "d", "pool": "secret", "device": "secret"}]},
                        "nodeSelector": {"nodeSelectorTerms": [term]}},
                    "reservedFor": [{"resource": "pods", "name": "secret", "uid": "u"}],
                    "devices": [{"driver": "d", "pool": "secret", "device": "secret",
                        "conditions": [{"type": "Ready", "status": "True", "message": "secret"}]}]}}),
        ),
        (
            Kind::ResourceSlice,
            json!({"metadata": metadata, "spec": {"driver": "d", "nodeName": "secret", "pool": {"name": "secret"},
                "devices": [{"name": "secret", "attributes": {"model": {"string": "a"}}, "capacity": {"memory": {"value": "1Gi"}},
                    "taints": [{"key": "secret", "value": "secret", "effect": "NoSchedule"}]}]}}),
        ),
    ] {
        let text = replaced(&mut pseudonyms(), kind, &object).to_string();
        assert!(!text.contains("secret"), "{kind:?}: {text}");
        assert!(!text.contains("10.0.0.1"), "{kind:?}: {text}");
    }
}

#[test]
fn facts_of_decisions_are_kept() {
    let mut of = pseudonyms();
    let node = json!({"metadata": {"name": "n", "uid": "u-1", "resourceVersion": "7", "labels": {"kubernetes.io/hostname": "n", "size": "12"}},
        "spec": {"unschedulable": true, "taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "4", "example.com/gpu": "1", "deviceclass.resource.kubernetes.io/mine": "2"}}});
    let made = replaced(&mut of, Kind::Node, &node);
    let name = of.name("n");
    assert_eq!(made["metadata"]["uid"], "u-1");
    assert_eq!(made["metadata"]["resourceVersion"], "7");
    assert_eq!(made["metadata"]["name"], *name);
    assert_eq!(made["metadata"]["labels"]["kubernetes.io/hostname"], *name);
    let size = of.label("size");
    assert_eq!(made["metadata"]["labels"][size], "12");
    assert_eq!(
        made["spec"]["taints"][0]["key"],
        "node.kubernetes.io/unschedulable"
    );
    assert_eq!(made["status"]["allocatable"]["example.com/gpu"], "1");
    let class = format!("{DEVICE_CLASS_PREFIX}{}", of.name("mine"));
    assert_eq!(made["status"]["allocatable"][class], "2");
    let driver = json!({"metadata": {"name": "csi.example"}, "spec": {"storageCapacity": true}});
    let made = replaced(&mut of, Kind::CsiDriver, &driver);
    assert_eq!(made["metadata"]["name"], "csi.example");
    let text =
        of.text("0/12 nodes are available: 7 Insufficient cpu, 5 had untolerated taint {a: b}.");
    assert!(
        text.starts_with(TEXT) && text.ends_with(": 0/12 5 7"),
        "{text}"
    );
}

#[test]
fn selectors_match_the_same_objects() {
    let mut of = pseudonyms();
    let expressions = json!([
        {"key": "team", "operator": "In", "values": ["red", "blue"]},
        {"key": "example.com/tier", "operator": "NotIn", "values": ["db"]},
        {"key": "old", "operator": "DoesNotExist"},
    ]);
    for (labels, matches) in [
        (json!({"app": "web", "team": "red"}), true),
        (json!({"app": "web", "team": "green"}), false),
        (json!({"app": "api", "team": "red"}), false),
        (
            json!({"app": "web", "team": "red", "example.com/tier": "db"}),
            false,
        ),
        (json!({"app": "web", "team": "red", "old": ""}), false),
    ] {
        let set = json!({"metadata": {"name": "s"}, "spec": {"selector": {"matchLabels": {"app": "web"}, "matchExpressions": expressions}}});
        let pod = json!({"metadata": {"name": "p", "labels": labels}});
        for mut made in [None, Some(&mut of)] {
            let mut of_kind = |kind: Kind, json: &Value| match &mut made {
                Some(of) => replaced(of, kind, json),
                None => json.clone(),
            };
            let selector = of_kind(Kind::StatefulSet, &set)["spec"]["selector"].clone();
            let selector: LabelSelector = serde_json::from_value(selector).expect("a selector");
            let selector = Selector::from_label_selector(Some(&selector)).expect("valid");
            let pod = of_kind(Kind::Pod, &pod);
            let pod: berth_api::Pod = serde_json::from_value(pod).expect("a pod");
            assert_eq!(selector.matches(pod.labels()), matches, "{labels}");
        }
    }
}

#[test]
fn a_configuration_keeps_what_plugins_are_and_loses_labels_and_addresses() {
    let mut of = pseudonyms();
    let mut config = json!({
        "profiles": [{"schedulerName": "mine", "pluginConfig": [
            {"name": "NodeAffinity", "args": {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": [{"matchExpressions": [{"key": "secret", "operator": "In", "values": ["secret"]}]}]}}}},
            {"name": "PodTopologySpread", "args": {"defaultConstraints": [{"topologyKey": "secret", "maxSkew": 1,
                "whenUnsatisfiable": "ScheduleAnyway"}]}},
            {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}]}],
        "extenders": [{"urlPrefix": "https://secret.example", "filterVerb": "filter"}],
    });
    of.configuration(&mut config);
    let text = config.to_string();
    assert!(!text.contains("secret"), "{text}");
    for kept in [
        "mine",
        "NodeAffinity",
        "ScheduleAnyway",
        "MostAllocated",
        "filter",
    ] {
        assert!(text.contains(kept), "{kept} is missing in {text}");
    }
    let key =
        &config["profiles"][0]["pluginConfig"][1]["args"]["defaultConstraints"][0]["topologyKey"];
    assert_eq!(*key, *of.label("secret"));
}

/// The answer of the API to a write is an input of the core, too.
#[test]
fn results_of_calls_are_replaced() {
    let mut of = pseudonyms();
    let body = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "secret", "uid": "u", "managedFields": [{"manager": "secret"}]}, "spec": {"volumeName": "secret"}});
    let result = of.result(&Ok(Response {
        resource_version: Some("9".into()),
        body: body.to_string().into_bytes().into(),
    }));
    let response = result.expect("a result");
    let text = String::from_utf8(response.body.to_vec()).expect("text");
    assert!(
        text.contains("\"PersistentVolumeClaim\"") && !text.contains("secret"),
        "{text}"
    );
    let error = CallError::new(
        berth_framework::call::CallErrorKind::NotFound,
        "pods \"secret\" not found",
    );
    let error = of.result(&Err(error)).expect_err("an error");
    assert!(!error.message.contains("secret"), "{}", error.message);
}
