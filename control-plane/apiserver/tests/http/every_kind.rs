//! Every kind that a release serves, in every version, is stored whole and can be written back.

use super::*;
use berth_api::Release;
use berth_objects::groups::{self, GroupGates};
use berth_objects::releases::ApiRelease;

/// A CertificateSigningRequest contains a request that a key has signed; `signing_requests.rs` has such objects.
const ELSEWHERE: [&str; 1] = ["certificatesigningrequests"];

fn template(policy: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": "x"}},
        "spec": {"restartPolicy": policy, "containers": [{"name": "c", "image": "i"}]},
    })
}

fn claim(version: &str) -> Value {
    let request = match version {
        "v1beta1" => json!({"name": "a", "deviceClassName": "gpu.example.com"}),
        _ => json!({"name": "a", "exactly": {"deviceClassName": "gpu.example.com"}}),
    };
    json!({"devices": {"requests": [request]}})
}

/// The name of an object of a resource, and its fields other than the metadata.
fn sample(plural: &str, version: &str) -> (String, Value) {
    let selector = json!({"matchLabels": {"app": "x"}});
    let workload =
        |policy: &str| json!({"spec": {"selector": selector, "template": template(policy)}});
    let resource_rules = json!({"resourceRules": [{
        "apiGroups": ["none.example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nones"],
    }]});
    let role =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"});
    let fields = match plural {
        "apiservices" => json!({"spec": {
            "group": "x.example.com", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1,
            "insecureSkipTLSVerify": true, "service": {"name": "s", "namespace": "default"},
        }}),
        "clusterrolebindings" | "rolebindings" => json!({"roleRef": role}),
        "compositepodgroups" => json!({"spec": {
            "schedulingPolicy": {"gang": {"minGroupCount": 1}},
            "workloadRef": {"workloadName": "w", "templateName": "t"},
        }}),
        "configmaps" => json!({"data": {"a": "b"}}),
        "controllerrevisions" => json!({"revision": 1, "data": {"a": 1}}),
        "cronjobs" => json!({"spec": {
            "schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": template("Never")}},
        }}),
        "csistoragecapacities" => json!({"storageClassName": "s"}),
        "customresourcedefinitions" => json!({"spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}},
            }}}],
        }}),
        "daemonsets" | "deployments" | "replicasets" | "statefulsets" => workload("Always"),
        "devicetaintrules" => json!({"spec": {
            "deviceSelector": {"driver": "gpu.example.com"},
            "taint": {"key": "example.com/broken", "effect": "NoSchedule"},
        }}),
        "endpointslices" => {
            json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.1.2.3"]}]})
        }
        "events" if version == "v1" => json!({
            "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}, "reason": "Tried", "type": "Normal",
        }),
        "events.k8s.io" => json!({
            "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "example.com/c",
            "reportingInstance": "i", "action": "Try", "reason": "Tried", "type": "Normal",
            "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
        }),
        "flowschemas" => json!({"spec": {
            "priorityLevelConfiguration": {"name": "exempt"}, "matchingPrecedence": 1000,
        }}),
        "horizontalpodautoscalers" => json!({"spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}, "maxReplicas": 3,
        }}),
        "ingressclasses" => json!({"spec": {"controller": "example.com/c"}}),
        "ingresses" => {
            json!({"spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}})
        }
        "ipaddresses" => {
            json!({"spec": {"parentRef": {"resource": "services", "name": "s", "namespace": "default"}}})
        }
        "jobs" => json!({"spec": {"template": template("Never")}}),
        "leases" => json!({"spec": {"holderIdentity": "h"}}),
        "limitranges" => {
            json!({"spec": {"limits": [{"type": "PersistentVolumeClaim", "max": {"storage": "1Ti"}}]}})
        }
        "mutatingadmissionpolicies" => json!({"spec": {
            "matchConstraints": resource_rules, "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}}],
        }}),
        "mutatingadmissionpolicybindings" => json!({"spec": {"policyName": "none"}}),
        "networkpolicies" => json!({"spec": {"podSelector": {"matchLabels": {"app": "x"}}}}),
        "persistentvolumeclaims" => json!({"spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        }}),
        "persistentvolumes" => json!({"spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/a"},
        }}),
        "poddisruptionbudgets" => json!({"spec": {"minAvailable": 1, "selector": selector}}),
        "podgroups" => json!({"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}),
        "pods" => json!({"spec": {"containers": [{"name": "c", "image": "i"}]}}),
        "podtemplates" => json!({"template": template("Always")}),
        "priorityclasses" => json!({"value": 5}),
        "prioritylevelconfigurations" => json!({"spec": {
            "type": "Limited", "limited": {"nominalConcurrencyShares": 1, "limitResponse": {"type": "Reject"}},
        }}),
        "replicationcontrollers" => {
            json!({"spec": {"selector": {"app": "x"}, "template": template("Always")}})
        }
        "resourceclaims" => json!({"spec": claim(version)}),
        "resourceclaimtemplates" => json!({"spec": {"spec": claim(version)}}),
        "resourceslices" => {
            let device = match version {
                "v1beta1" => json!({"name": "d", "basic": {"attributes": {"a": {"int": 1}}}}),
                _ => json!({"name": "d", "attributes": {"a": {"int": 1}}}),
            };
            json!({"spec": {
                "driver": "gpu.example.com", "nodeName": "n", "devices": [device],
                "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            }})
        }
        "runtimeclasses" => json!({"handler": "h"}),
        "servicecidrs" => json!({"spec": {"cidrs": ["10.7.0.0/24"]}}),
        "services" => json!({"spec": {"ports": [{"port": 80}]}}),
        "storageclasses" => json!({"provisioner": "example.com/p"}),
        "validatingadmissionpolicies" => json!({"spec": {
            "matchConstraints": resource_rules, "validations": [{"expression": "true"}],
        }}),
        "validatingadmissionpolicybindings" => {
            json!({"spec": {"policyName": "none", "validationActions": ["Deny"]}})
        }
        "volumeattachments" => json!({"spec": {
            "attacher": "example.com", "nodeName": "n", "source": {"persistentVolumeName": "v"},
        }}),
        "volumeattributesclasses" => json!({"driverName": "example.com", "parameters": {"a": "b"}}),
        "workloads" => json!({"spec": {
            "podGroupTemplates": [{"name": "t", "schedulingPolicy": {"gang": {"minCount": 2}}}],
        }}),
        "csidrivers" | "csinodes" | "deviceclasses" => json!({"spec": {}}),
        _ => json!({}),
    };
    let name = match plural {
        "apiservices" => "v1.x.example.com".to_owned(),
        "customresourcedefinitions" => "things.example.com".to_owned(),
        "ipaddresses" => "10.0.0.77".to_owned(),
        plural => format!("{}-{version}", plural.replace('.', "-")),
    };
    (name, fields)
}

/// Returns whether a value contains all fields that were sent.
fn has(found: &Value, sent: &Value) -> bool {
    match (found, sent) {
        (_, Value::Object(sent)) if sent.is_empty() => true,
        (Value::Object(found), Value::Object(sent)) => {
            let mut fields = sent.iter();
            fields.all(|(name, sent)| found.get(name).is_some_and(|found| has(found, sent)))
        }
        (Value::Array(found), Value::Array(sent)) => {
            found.len() == sent.len()
                && found.iter().zip(sent).all(|(found, sent)| has(found, sent))
        }
        (found, sent) => found == sent,
    }
}

/// API-75: an object of every kind and version that a release serves is created, read back completely, and replaced by
/// itself.
#[tokio::test]
async fn every_kind_of_each_release_is_stored_whole_and_written_back() {
    for release in Release::ALL {
        let api = ApiRelease::of(release);
        let cluster = Cluster::with(ServerOptions {
            api,
            ..ServerOptions::default()
        })
        .await;
        let mut kinds = 0;
        let mut faults = Vec::new();
        for resource in groups::catalog(api, GroupGates::default()).resources() {
            let (group, plural) = (resource.resource.group, resource.resource.resource);
            let mut verbs = ["create", "get", "update"].iter();
            if !verbs.all(|verb| resource.offers(verb)) || ELSEWHERE.contains(&plural) {
                continue;
            }
            kinds += 1;
            let sampled = if group == "events.k8s.io" {
                group
            } else {
                plural
            };
            let (name, mut object) = sample(sampled, resource.version);
            object["apiVersion"] = resource.api_version().into();
            object["kind"] = resource.kind.into();
            object["metadata"] = json!({"name": name, "labels": {"of": "test"}});
            let prefix = if group.is_empty() { "/api" } else { "/apis" };
            let scope = if resource.namespaced {
                "/namespaces/default"
            } else {
                ""
            };
            let list = format!("{prefix}/{}{scope}/{plural}", resource.api_version());
            let created = cluster.post(&list, &object).await;
            if created.status != 201 {
                faults.push(format!("POST {list}: {}", created.text()));
                continue;
            }
            let path = format!("{list}/{name}");
            // A component may write the object between the two requests.
            let (found, replaced) = loop {
                let found = cluster.get(&path).await.json();
                let replaced = cluster.send("PUT", &path, &found).await;
                if replaced.status != 409 {
                    break (found, replaced);
                }
            };
            if !has(&found, &object) {
                faults.push(format!("GET {path}: {found} is not {object}"));
            }
            let after = replaced.json();
            let mut parts = ["spec", "template", "data"].iter();
            if replaced.status != 200 || !parts.all(|part| after.get(part) == found.get(part)) {
                faults.push(format!("PUT {path}: {}", replaced.text()));
            }
        }
        assert_eq!(faults, [""; 0], "{release}");
        assert!(kinds > 60, "{release} serves {kinds} kinds");
    }
}
