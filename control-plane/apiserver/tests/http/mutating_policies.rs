//! MutatingAdmissionPolicies. The texts equal kube-apiserver 1.36's.

use super::*;
use crate::webhooks::receiver::{Webhook, patch, rule};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

/// A policy for the creation and the update of config maps.
fn policy(name: &str, more: Value) -> Value {
    let mut spec = json!({
        "matchConstraints": {"resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
            "operations": ["CREATE", "UPDATE"],
        }]},
        "reinvocationPolicy": "Never",
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": name}, "spec": spec,
    })
}

fn merging(expression: &str) -> Value {
    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
}

fn patching(expression: &str) -> Value {
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

impl Cluster {
    async fn mutate(&self, name: &str, spec: Value, binding: Value) {
        let path = format!("{GROUP}/mutatingadmissionpolicies");
        self.create(&path, &policy(name, spec)).await;
        let mut spec = json!({"policyName": name});
        for (field, value) in binding.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        let binding = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
            "metadata": {"name": format!("{name}-binding")}, "spec": spec,
        });
        let path = format!("{GROUP}/mutatingadmissionpolicybindings");
        self.create(&path, &binding).await;
    }
}

#[tokio::test]
async fn a_policy_merges_an_object_into_that_of_a_request() {
    let cluster = Cluster::start().await;
    let spec = json!({
        "variables": [{"name": "team", "expression": "object.metadata.name + '-team'"}],
        "matchConditions": [{"name": "not-mine", "expression": "!object.metadata.name.startsWith('mine')"}],
        "mutations": [merging("Object{metadata: Object.metadata{labels: {'team': variables.team}}, data: {'added': request.operation}}")],
    });
    cluster.mutate("team", spec, Value::Null).await;
    let created = cluster
        .create(CONFIG_MAPS, &config_map("a", json!({"x": "y"})))
        .await;
    assert_eq!(
        at(&created, "/metadata/labels"),
        &json!({"team": "a-team", "x": "y"})
    );
    assert_eq!(at(&created, "/data"), &json!({"a": "b", "added": "CREATE"}));
    // The fields that a policy changes have no manager.
    let managed = at(&created, "/metadata/managedFields").to_string();
    assert!(!managed.contains("f:team"), "{managed}");
    let updated = cluster
        .merge(&format!("{CONFIG_MAPS}/a"), &json!({"data": {"a": "c"}}))
        .await;
    let updated = updated.json();
    assert_eq!(at(&updated, "/data"), &json!({"a": "c", "added": "UPDATE"}));
    let mine = cluster
        .create(CONFIG_MAPS, &config_map("mine", json!({})))
        .await;
    assert_eq!(at(&mine, "/data"), &json!({"a": "b"}));
}

#[tokio::test]
async fn a_policy_patches_the_object_of_a_request() {
    let cluster = Cluster::start().await;
    let spec = json!({
        "mutations": [
            patching("[JSONPatch{op: 'test', path: '/data/a', value: 'other'}, JSONPatch{op: 'add', path: '/data/never', value: 'x'}]"),
            patching("[JSONPatch{op: 'add', path: '/metadata/labels', value: {}}, JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('example.com/x'), value: 'y'}]"),
            patching("'a' in object.data ? [JSONPatch{op: 'copy', from: '/data/a', path: '/data/copy'}] : []"),
        ],
    });
    cluster.mutate("patch", spec, Value::Null).await;
    let created = cluster
        .create(CONFIG_MAPS, &config_map("a", json!({})))
        .await;
    assert_eq!(at(&created, "/data"), &json!({"a": "b", "copy": "b"}));
    assert_eq!(
        at(&created, "/metadata/labels"),
        &json!({"example.com/x": "y"})
    );
}

#[tokio::test]
async fn containers_of_pods_are_merged_by_their_names() {
    let cluster = Cluster::start().await;
    let spec = json!({
        "matchConstraints": {"resourceRules": [rule("", "pods", "CREATE")]},
        "mutations": [merging("Object{spec: Object.spec{initContainers: [Object.spec.initContainers{name: 'mesh', image: 'registry.example/mesh:1', restartPolicy: 'Always'}], containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, env: [Object.spec.containers.env{name: 'A', value: 'b'}]})}}")],
    });
    cluster.mutate("sidecar", spec, Value::Null).await;
    let created = cluster.create(PODS, &pod("p")).await;
    assert_eq!(text(&created, "/spec/initContainers/0/name"), "mesh");
    assert_eq!(
        text(&created, "/spec/initContainers/0/imagePullPolicy"),
        "IfNotPresent"
    );
    assert_eq!(
        text(&created, "/spec/containers/0/image"),
        "registry.example/a:1"
    );
    assert_eq!(
        at(&created, "/spec/containers/0/env"),
        &json!([{"name": "A", "value": "b"}])
    );
}

#[tokio::test]
async fn parameters_are_those_of_the_binding() {
    let cluster = Cluster::start().await;
    let mut parameter = config_map("settings", json!({}));
    parameter["data"] = json!({"suffix": "!"});
    cluster
        .create("/api/v1/namespaces/kube-system/configmaps", &parameter)
        .await;
    let spec = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "mutations": [merging("Object{data: {'a': object.data.a + params.data.suffix}}")],
    });
    let reference =
        json!({"name": "settings", "namespace": "kube-system", "parameterNotFoundAction": "Deny"});
    let binding = json!({
        "paramRef": reference,
        "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}},
    });
    cluster.mutate("suffix", spec, binding).await;
    let created = cluster
        .create(CONFIG_MAPS, &config_map("a", json!({})))
        .await;
    assert_eq!(text(&created, "/data/a"), "b!");
    let path = "/api/v1/namespaces/kube-system/configmaps";
    let other = cluster.create(path, &config_map("b", json!({}))).await;
    assert_eq!(text(&other, "/data/a"), "b", "another namespace");
    let gone = format!("{path}/settings");
    cluster.delete(&gone, &Value::Null).await;
    let refused = cluster.post(CONFIG_MAPS, &config_map("c", json!({}))).await;
    assert_eq!(refused.status, 403);
    let status = refused.json();
    assert_eq!(
        text(&status, "/message"),
        "policy 'suffix' with binding 'suffix-binding' denied request: failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
    );
    assert_eq!(text(&status, "/reason"), "Forbidden");
}

#[tokio::test]
async fn a_failing_policy_rejects_the_request_or_is_ignored() {
    let by = "policy 'p' with binding 'p-binding' denied request: ";
    for (mutation, expect) in [
        (
            merging("Object{data: {'a': object.missing}}"),
            "expression 'Object{data: {'a': object.missing}}' resulted in error: no such key: missing",
        ),
        (
            merging("Object{data: Object.metadata{}}"),
            "type mismatch: unexpected type name \"Object.metadata\", expected \"Object.data\", which matches field name path from root Object type",
        ),
        (
            merging("Object{spec: Object.spec{}}"),
            "error applying patch: failed to convert patch object to typed object: .spec: field not declared in schema",
        ),
        (
            patching("[JSONPatch{op: 'remove', path: '/data/missing'}]"),
            "JSON Patch: operation 0: ",
        ),
    ] {
        for policy in ["Fail", "Ignore"] {
            let cluster = Cluster::start().await;
            let spec = json!({"failurePolicy": policy, "mutations": [mutation]});
            cluster.mutate("p", spec, Value::Null).await;
            let reply = cluster.post(CONFIG_MAPS, &config_map("a", json!({}))).await;
            if policy == "Ignore" {
                assert_eq!(reply.status, 201, "{}", reply.text());
                continue;
            }
            assert_eq!(reply.status, 403, "{}", reply.text());
            let status = reply.json();
            let message = text(&status, "/message");
            let rest = message.strip_prefix(by).unwrap_or("");
            assert!(rest.starts_with(expect), "{message}");
            assert_eq!(text(&status, "/reason"), "Invalid");
            assert_eq!(text(&status, "/details/causes/0/message"), message);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_is_evaluated_again_when_the_object_is_changed_after_it() {
    let webhook = Webhook::start().await;
    webhook.answer("/add", |review| {
        let data = at(review, "/request/object/data");
        if data.get("late").is_some() {
            json!({"allowed": true})
        } else {
            patch(json!([{"op": "add", "path": "/data/late", "value": "x"}]))
        }
    });
    for (reinvocation, expect) in [("Never", "1"), ("IfNeeded", "2")] {
        let cluster = Cluster::start().await;
        let spec = json!({
            "reinvocationPolicy": reinvocation,
            "mutations": [merging("Object{data: {'keys': string(object.data.filter(k, k != 'keys').size())}}")],
        });
        cluster.mutate("count", spec, Value::Null).await;
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "test"}, "webhooks": [webhook.hook("/add", Value::Null)],
        });
        let path = format!("{GROUP}/mutatingwebhookconfigurations");
        cluster.create(&path, &configuration).await;
        let created = cluster
            .create(CONFIG_MAPS, &config_map("a", json!({})))
            .await;
        assert_eq!(text(&created, "/data/late"), "x");
        assert_eq!(text(&created, "/data/keys"), expect, "{reinvocation}");
    }
}

#[tokio::test]
async fn policies_are_validated() {
    let cluster = Cluster::start().await;
    let path = format!("{GROUP}/mutatingadmissionpolicies");
    for (spec, expect) in [
        (
            json!({}),
            "spec.mutations: Required value: mutations must contain at least one item",
        ),
        (
            json!({"mutations": [{"patchType": "Merge"}, {"patchType": "JSONPatch", "applyConfiguration": {"expression": "Object{}"}}]}),
            "[spec.mutations[0].patchType: Unsupported value: \"Merge\": supported values: \"ApplyConfiguration\", \"JSONPatch\", spec.mutations[1].jsonPatch: Required value: must be specified when patchType is JSONPatch, spec.mutations[1].applyConfiguration: Invalid value: \"{applyConfiguration}\": must not be specified when patchType is JSONPatch]",
        ),
        (
            json!({"mutations": [merging("'a'")]}),
            "spec.mutations[0].applyConfiguration.expression: Invalid value: \"'a'\": must evaluate to Object but got string",
        ),
        (
            json!({"mutations": [patching("[]"), patching("Object{}")]}),
            "spec.mutations[1].jsonPatch.expression: Invalid value: \"Object{}\": must evaluate to list(JSONPatch) but got Object]",
        ),
        (
            json!({"reinvocationPolicy": "Always", "mutations": [merging("Object{}")]}),
            "spec.reinvocationPolicy: Unsupported value: \"Always\": supported values: \"IfNeeded\", \"Never\"",
        ),
        (
            json!({"matchConstraints": {"resourceRules": [rule("", "pods", "DELETE")]}, "mutations": [merging("Object{}")]}),
            "spec.matchConstraints.resourceRules.operations: Unsupported value: \"DELETE\": supported values: \"*\", \"CONNECT\", \"CREATE\", \"UPDATE\"",
        ),
    ] {
        let reply = cluster.post(&path, &policy("p", spec)).await;
        assert_eq!(reply.status, 422, "{}", reply.text());
        let message = text(&reply.json(), "/message").to_owned();
        assert!(message.ends_with(expect), "{message}");
    }
    let stored = cluster
        .create(
            &path,
            &policy("p", json!({"mutations": [merging("Object{}")]})),
        )
        .await;
    assert_eq!(text(&stored, "/spec/failurePolicy"), "Fail");
    assert_eq!(
        at(&stored, "/spec/matchConstraints/matchPolicy"),
        &json!("Equivalent")
    );
}
