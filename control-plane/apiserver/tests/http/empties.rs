//! Empty lists and maps, which Go distinguishes from absent ones until an object is stored.

use super::*;

const INGRESSES: &str = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
const STORAGE_CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
const APPLY: &str = "application/apply-patch+yaml";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

fn object(api_version: &str, kind: &str, name: &str, content: Value) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    for (field, value) in content.as_object().into_iter().flatten() {
        object[field] = value.clone();
    }
    object
}

/// API-80.
#[tokio::test]
async fn empty_lists_and_maps_are_stored_as_absent() {
    let cluster = Cluster::start().await;
    let rbac = "rbac.authorization.k8s.io/v1";
    let backend = json!({"service": {"name": "a", "port": {"number": 80}}});
    let cases = [
        (
            INGRESSES,
            object(
                "networking.k8s.io/v1",
                "Ingress",
                "a",
                json!({"spec": {"defaultBackend": backend, "rules": []}}),
            ),
            "/spec/rules",
            None,
        ),
        (
            STORAGE_CLASSES,
            object(
                "storage.k8s.io/v1",
                "StorageClass",
                "a",
                json!({"provisioner": "a.example", "parameters": {}}),
            ),
            "/parameters",
            None,
        ),
        (
            CONFIG_MAPS,
            object("v1", "ConfigMap", "a", json!({"data": {}})),
            "/data",
            None,
        ),
        // Fields that Go always writes.
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            object(rbac, "ClusterRole", "a", json!({"rules": []})),
            "/rules",
            Some(Value::Null),
        ),
        (
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
            object(
                "discovery.k8s.io/v1",
                "EndpointSlice",
                "a",
                json!({"addressType": "IPv4", "endpoints": [], "ports": []}),
            ),
            "/endpoints",
            Some(Value::Null),
        ),
        (
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
            object(
                "discovery.k8s.io/v1",
                "EndpointSlice",
                "b",
                json!({"addressType": "IPv4", "endpoints": []}),
            ),
            "/ports",
            Some(Value::Null),
        ),
        (
            PODS,
            object(
                "v1",
                "Pod",
                "a",
                json!({"spec": {"containers": [{"name": "c", "image": "i", "command": []}]}}),
            ),
            "/spec/containers/0/command",
            None,
        ),
    ];
    for (path, sent, pointer, expected) in cases {
        let created = cluster.create(path, &sent).await;
        assert_eq!(
            created.pointer(pointer),
            expected.as_ref(),
            "{path} {pointer}"
        );
        let name = text(&sent, "/metadata/name");
        let read = cluster.get(&format!("{path}/{name}")).await.json();
        assert_eq!(
            read.pointer(pointer),
            expected.as_ref(),
            "{path} {pointer}: read"
        );
    }
}

/// API-80.
#[tokio::test]
async fn errors_show_empty_lists_as_they_were_sent() {
    let cluster = Cluster::start().await;
    let ingress = |spec: Value| {
        object(
            "networking.k8s.io/v1",
            "Ingress",
            "a",
            json!({"spec": spec}),
        )
    };
    let fault = "either `defaultBackend` or `rules` must be specified";
    for (spec, shown) in [(json!({}), "null"), (json!({"rules": []}), "[]")] {
        let reply = cluster.post(INGRESSES, &ingress(spec)).await;
        let message = text(&reply.json(), "/message").to_owned();
        let expected = format!("spec: Invalid value: {shown}: {fault}");
        assert!(message.contains(&expected), "{message}");
    }
    let created = json!({"rules": [{"host": "a.example"}]});
    cluster.create(INGRESSES, &ingress(created)).await;
    let patch = json!({"spec": {"rules": []}});
    let reply = cluster.merge(&format!("{INGRESSES}/a"), &patch).await;
    let message = text(&reply.json(), "/message").to_owned();
    assert!(message.contains("Invalid value: []"), "{message}");
    let config = ingress(json!({"rules": []}));
    let path = format!("{INGRESSES}/b?fieldManager=m");
    let config = config.to_string().replace("\"a\"", "\"b\"");
    let reply = cluster.send_as("PATCH", &path, APPLY, &config.into()).await;
    let message = text(&reply.json(), "/message").to_owned();
    assert!(message.contains("Invalid value: []"), "{message}");
}

/// API-80.
#[tokio::test]
async fn frozen_maps_that_are_absent_do_not_become_empty() {
    let cluster = Cluster::start().await;
    let class = object(
        "storage.k8s.io/v1",
        "StorageClass",
        "a",
        json!({"provisioner": "a.example", "parameters": {}}),
    );
    let plain = object(
        "storage.k8s.io/v1",
        "StorageClass",
        "a",
        json!({"provisioner": "a.example"}),
    );
    cluster.create(STORAGE_CLASSES, &class).await;
    let path = format!("{STORAGE_CLASSES}/a");
    let refused = "parameters: Forbidden: updates to parameters are forbidden.";
    let put = cluster.send("PUT", &path, &class).await;
    assert_eq!(put.status, 422, "{}", put.text());
    assert!(put.text().contains(refused), "{}", put.text());
    let empty = json!({"parameters": {}});
    let merged = cluster.merge(&path, &empty).await;
    assert!(merged.text().contains(refused), "{}", merged.text());
    let merged = cluster.send_as("PATCH", &path, STRATEGIC, &empty).await;
    assert!(merged.text().contains(refused), "{}", merged.text());
    let put = cluster.send("PUT", &path, &plain).await;
    assert_eq!(put.status, 200, "{}", put.text());

    let frozen = |content: Value| {
        let mut map = object("v1", "ConfigMap", "a", content);
        map["immutable"] = true.into();
        map
    };
    let path = format!("{CONFIG_MAPS}/a");
    cluster
        .create(CONFIG_MAPS, &frozen(json!({"data": {"a": "b"}})))
        .await;
    let put = frozen(json!({"data": {"a": "b"}, "binaryData": {}}));
    let put = cluster.send("PUT", &path, &put).await;
    let refused = "binaryData: Forbidden: field is immutable when `immutable` is set";
    assert!(put.text().contains(refused), "{}", put.text());
    assert_eq!(
        put.text().matches("binaryData: Forbidden").count(),
        1,
        "{}",
        put.text()
    );
    let put = cluster
        .send("PUT", &path, &frozen(json!({"data": {"a": "b"}})))
        .await;
    assert_eq!(put.status, 200, "{}", put.text());
}

/// API-80.
#[tokio::test]
async fn scaling_policies_have_defaults_unless_the_list_is_empty() {
    let cluster = Cluster::start().await;
    let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let autoscaler = |name: &str, rules: Value| {
        object(
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            name,
            json!({"spec": {
                "maxReplicas": 3,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"},
                "behavior": {"scaleUp": rules},
            }}),
        )
    };
    let created = cluster.create(path, &autoscaler("a", json!({}))).await;
    let policies = created.pointer("/spec/behavior/scaleUp/policies");
    assert_eq!(policies.and_then(Value::as_array).map(Vec::len), Some(2));
    let empty = json!({"policies": []});
    let refused =
        "spec.behavior.scaleUp.policies: Required value: must specify at least one Policy";
    let reply = cluster.post(path, &autoscaler("b", empty.clone())).await;
    assert!(reply.text().contains(refused), "{}", reply.text());
    let reply = cluster
        .send("PUT", &format!("{path}/a"), &autoscaler("a", empty))
        .await;
    assert!(reply.text().contains(refused), "{}", reply.text());
}

/// API-80.
#[tokio::test]
async fn the_generation_of_some_kinds_counts_empty_lists() {
    let cluster = Cluster::start().await;
    let policies = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
    let policy = |spec: Value| {
        object(
            "networking.k8s.io/v1",
            "NetworkPolicy",
            "a",
            json!({"spec": spec}),
        )
    };
    let webhooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let webhook = |content: Value| {
        object(
            "admissionregistration.k8s.io/v1",
            "ValidatingWebhookConfiguration",
            "a",
            content,
        )
    };
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let mut long = template.clone();
    long["spec"]["tolerations"] = json!([]);
    let deployment = |template: &Value| {
        let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
        object("apps/v1", "Deployment", "a", json!({"spec": spec}))
    };
    let cases = [
        (
            policies,
            policy(json!({"podSelector": {}})),
            policy(json!({"podSelector": {}, "egress": []})),
            2,
        ),
        (
            webhooks,
            webhook(json!({})),
            webhook(json!({"webhooks": []})),
            2,
        ),
        (DEPLOYMENTS, deployment(&template), deployment(&long), 1),
    ];
    for (path, first, mut second, generation) in cases {
        let created = cluster.create(path, &first).await;
        second["metadata"]["resourceVersion"] = created["metadata"]["resourceVersion"].clone();
        let put = cluster.send("PUT", &format!("{path}/a"), &second).await;
        assert_eq!(put.status, 200, "{path}: {}", put.text());
        assert_eq!(put.json()["metadata"]["generation"], generation, "{path}");
    }
}

/// API-80.
#[tokio::test]
async fn an_applied_empty_list_has_an_owner() {
    let cluster = Cluster::start().await;
    let backend = json!({"service": {"name": "a", "port": {"number": 80}}});
    let config = object(
        "networking.k8s.io/v1",
        "Ingress",
        "a",
        json!({"spec": {"defaultBackend": backend, "rules": []}}),
    );
    let path = format!("{INGRESSES}/a?fieldManager=m");
    for status in [201, 200] {
        let reply = cluster.send_as("PATCH", &path, APPLY, &config).await;
        assert_eq!(reply.status, status, "{}", reply.text());
        let applied = reply.json();
        let owned = applied.pointer("/metadata/managedFields/0/fieldsV1/f:spec/f:rules");
        assert!(owned.is_some(), "{applied}");
        assert_eq!(applied.pointer("/spec/rules"), None);
    }
}

/// A Service without ports has a slice whose lists are null.
#[tokio::test]
async fn a_slice_without_ports_is_kept() {
    let cluster = Cluster::start().await;
    let _controllers = berth_controllers::spawn(
        cluster.server.api("controllers"),
        berth_controllers::ControllerOptions::default(),
    );
    let service = object(
        "v1",
        "Service",
        "a",
        json!({"spec": {"clusterIP": "None", "selector": {"app": "a"}}}),
    );
    cluster
        .create("/api/v1/namespaces/default/services", &service)
        .await;
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io/service-name%3Da";
    let slice_of = async |is_filled: bool| {
        let reached = async {
            loop {
                let list = cluster.get(slices).await.json();
                let items = list["items"].as_array().cloned().unwrap_or_default();
                let filled = |slice: &Value| slice["endpoints"].is_array() == is_filled;
                if let [slice] = &items[..]
                    && filled(slice)
                {
                    return slice.clone();
                }
                tokio::task::yield_now().await;
            }
        };
        match timeout(PATIENCE, reached).await {
            Ok(slice) => slice,
            Err(_) => panic!("no slice with endpoints: {is_filled}"),
        }
    };
    let empty = slice_of(false).await;
    assert_eq!(empty["ports"], Value::Null);
    let mut member = pod("p");
    member["metadata"]["labels"] = json!({"app": "a"});
    cluster.create(PODS, &member).await;
    let status = json!({"status": {
        "phase": "Running",
        "podIP": "10.1.1.1",
        "podIPs": [{"ip": "10.1.1.1"}],
        "conditions": [{"type": "Ready", "status": "True"}],
    }});
    let reply = cluster.merge(&format!("{PODS}/p/status"), &status).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let filled = slice_of(true).await;
    assert_eq!(filled["metadata"]["uid"], empty["metadata"]["uid"]);
}
