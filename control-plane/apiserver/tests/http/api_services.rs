//! APIServices: one for each group version that is served.

use super::*;
use crate::webhooks::receiver::Webhook;

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

#[tokio::test]
async fn each_served_group_version_has_a_local_service() {
    let cluster = Cluster::start().await;
    let groups = cluster.get("/apis").await.json();
    let mut expect = vec!["v1.".to_owned()];
    for group in at(&groups, "/groups").as_array().into_iter().flatten() {
        let name = text(group, "/name");
        for version in at(group, "/versions").as_array().into_iter().flatten() {
            if name != "apiregistration.k8s.io" {
                expect.push(format!("{}.{name}", text(version, "/version")));
            }
        }
    }
    expect.sort();
    let services = cluster.get(SERVICES).await.json();
    assert_eq!(names(&services), expect);
    let apps = cluster.get(&format!("{SERVICES}/v1.apps")).await.json();
    assert_eq!(
        *at(&apps, "/spec"),
        json!({"group": "apps", "version": "v1", "groupPriorityMinimum": 17800, "versionPriority": 15})
    );
    assert_eq!(text(&apps, "/status/conditions/0/status"), "True");
    assert_eq!(text(&apps, "/status/conditions/0/reason"), "Local");
    let ask = Ask {
        path: SERVICES.to_owned(),
        accept: "application/json;as=Table;v=v1;g=meta.k8s.io".to_owned(),
        ..Ask::default()
    };
    let table = cluster.ask(ask).await.json();
    let cells = at(&table, "/rows/0/cells").as_array().cloned();
    let cells: Vec<Value> = cells.into_iter().flatten().take(3).collect();
    assert_eq!(cells, [json!("v1."), json!("Local"), json!("True")]);
}

#[tokio::test]
async fn the_services_of_custom_resources_come_and_go_with_them() {
    let cluster = Cluster::start().await;
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    });
    let path = format!("{SERVICES}/v1.example.com");
    assert_eq!(cluster.get(&path).await.status, 404);
    cluster.create(DEFINITIONS, &definition).await;
    cluster.answers(&path, 200).await;
    let service = cluster.get(&path).await.json();
    assert_eq!(*at(&service, "/spec/groupPriorityMinimum"), json!(1000));
    let definition = format!("{DEFINITIONS}/widgets.example.com");
    cluster.delete(&definition, &Value::Null).await;
    cluster.answers(&path, 404).await;
}

fn service(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": name},
        "spec": spec,
    })
}

/// The registration of `metrics.k8s.io/v1beta1` with a service of the namespace `default`.
fn metrics(name: &str, more: Value) -> Value {
    let mut spec = json!({
        "group": "metrics.k8s.io", "version": "v1beta1",
        "groupPriorityMinimum": 100, "versionPriority": 100,
        "service": {"namespace": "default", "name": name},
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    service("v1beta1.metrics.k8s.io", spec)
}

#[tokio::test]
async fn api_services_are_validated() {
    let cluster = Cluster::start().await;
    let base = |more: Value| {
        let mut spec = json!({"group": "a.b", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1});
        for (field, value) in more.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        spec
    };
    for (name, spec, expect) in [
        (
            "x",
            json!({"group": "a.b", "version": "v1", "groupPriorityMinimum": 20001}),
            "[metadata.name: Invalid value: \"x\": must be `spec.version+\".\"+spec.group`: \"v1.a.b\", spec.groupPriorityMinimum: Invalid value: 20001: must be positive and less than 20000, spec.versionPriority: Invalid value: 0: must be positive and less than 1000]",
        ),
        (
            "v1.a.b",
            base(json!({"service": {"port": 70000}})),
            "[spec.service.namespace: Required value, spec.service.name: Required value, spec.service.port: Invalid value: 70000: port is not valid: must be between 1 and 65535, inclusive]",
        ),
        (
            "v1.a.b",
            base(json!({"insecureSkipTLSVerify": true})),
            "spec.insecureSkipTLSVerify: Invalid value: true: local APIServices may not have insecureSkipTLSVerify",
        ),
        (
            "v1.a.b",
            base(
                json!({"service": {"namespace": "a", "name": "b"}, "insecureSkipTLSVerify": true, "caBundle": "Zm9v"}),
            ),
            "spec.insecureSkipTLSVerify: Invalid value: true: may not be true if caBundle is present",
        ),
    ] {
        let reply = cluster.post(SERVICES, &service(name, spec)).await;
        assert_eq!(reply.status, 422, "{}", reply.text());
        let status = reply.json();
        assert!(text(&status, "/message").ends_with(expect), "{status}");
    }
}

impl Cluster {
    /// Waits until the condition of `v1beta1.metrics.k8s.io` has a reason, and returns its status and message.
    async fn metrics_become(&self, reason: &str) -> (String, String) {
        let path = format!("{SERVICES}/v1beta1.metrics.k8s.io");
        let reached = async {
            loop {
                let service = self.get(&path).await.json();
                let condition = at(&service, "/status/conditions/0");
                if text(condition, "/reason") == reason {
                    let (status, message) =
                        (text(condition, "/status"), text(condition, "/message"));
                    return (status.to_owned(), message.to_owned());
                }
                tokio::task::yield_now().await;
            }
        };
        match timeout(PATIENCE, reached).await {
            Ok(found) => found,
            Err(_) => panic!("never {reason}: {}", self.get(&path).await.text()),
        }
    }
}

#[tokio::test]
async fn a_server_that_is_not_reachable_is_unavailable_and_nothing_else() {
    let cluster = Cluster::start().await;
    let created = cluster.create(SERVICES, &metrics("m", Value::Null)).await;
    assert_eq!(at(&created, "/spec/service/port"), &json!(443));
    let (status, message) = cluster.metrics_become("ServiceNotFound").await;
    assert_eq!(status, "False");
    assert_eq!(message, "service/m in \"default\" is not present");
    // Discovery lists the group, without resources.
    let groups = cluster.get("/apis").await.json();
    let mut groups = at(&groups, "/groups").as_array().into_iter().flatten();
    assert!(
        groups
            .any(|group| text(group, "/preferredVersion/groupVersion") == "metrics.k8s.io/v1beta1")
    );
    let group = cluster.get("/apis/metrics.k8s.io").await.json();
    assert_eq!(text(&group, "/kind"), "APIGroup");
    let ask = Ask {
        path: "/apis".to_owned(),
        accept: "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList".to_owned(),
        ..Ask::default()
    };
    let aggregated = cluster.ask(ask).await.json();
    let mut items = at(&aggregated, "/items").as_array().into_iter().flatten();
    let found = items.find(|item| text(item, "/metadata/name") == "metrics.k8s.io");
    let expect = json!([{"version": "v1beta1", "freshness": "Stale"}]);
    assert_eq!(found.map(|item| item["versions"].clone()), Some(expect));
    for path in [
        "/apis/metrics.k8s.io/v1beta1",
        "/apis/metrics.k8s.io/v1beta1/nodes",
    ] {
        let reply = cluster.get(path).await;
        assert_eq!(
            (reply.status, reply.text().as_str()),
            (503, "service unavailable\n")
        );
    }
    // The condition follows the service.
    let services = "/api/v1/namespaces/default/services";
    let object = |port: u16| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "m"},
            "spec": {"selector": {"a": "b"}, "ports": [{"name": "https", "port": port}]},
        })
    };
    cluster.create(services, &object(80)).await;
    let (_, message) = cluster.metrics_become("ServicePortError").await;
    assert_eq!(
        message,
        "service/m in \"default\" is not listening on port 443"
    );
    cluster
        .merge(
            &format!("{services}/m"),
            &json!({"spec": {"ports": [{"name": "https", "port": 443}]}}),
        )
        .await;
    let (_, message) = cluster.metrics_become("EndpointsNotFound").await;
    assert_eq!(
        message,
        "cannot find endpointslices for service/m in \"default\""
    );
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "m", "labels": {"kubernetes.io/service-name": "m"}},
        "endpoints": [{"addresses": ["192.0.2.1"], "conditions": {"ready": false}}],
        "ports": [{"name": "https", "port": 443, "protocol": "TCP"}],
    });
    cluster
        .create(
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
            &slice,
        )
        .await;
    let (_, message) = cluster.metrics_become("MissingEndpoints").await;
    assert_eq!(
        message,
        "endpointslices for service/m in \"default\" have no addresses with port name \"https\""
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_sent_on_to_a_server_that_is_reachable() {
    let (cluster, server) = (Cluster::start().await, Webhook::start().await);
    let path = "/apis/metrics.k8s.io/v1beta1";
    let list = json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "metrics.k8s.io/v1beta1",
        "resources": [{"name": "nodes", "singularName": "", "namespaced": false, "kind": "NodeMetrics", "verbs": ["list"]}],
    });
    let listed = list.clone();
    server.respond(path, move |_| (200, listed.to_string().into_bytes()));
    server.respond(&format!("{path}/nodes"), |_| {
        (200, br#"{"items":[]}"#.to_vec())
    });
    let object = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "gates"},
        "spec": {"type": "ExternalName", "externalName": "127.0.0.1"},
    });
    cluster
        .create("/api/v1/namespaces/default/services", &object)
        .await;
    let reference = json!({"namespace": "default", "name": "gates", "port": server.port});
    let more = json!({"service": reference, "caBundle": server.ca});
    cluster.create(SERVICES, &metrics("gates", more)).await;
    assert_eq!(cluster.metrics_become("Passed").await.0, "True");
    assert_eq!(cluster.get(path).await.json(), list);
    let reply = cluster.get(&format!("{path}/nodes")).await;
    assert_eq!((reply.status, reply.json()), (200, json!({"items": []})));
    assert_eq!(cluster.get(&format!("{path}/pods")).await.status, 404);
    let ask = Ask {
        path: "/apis".to_owned(),
        accept: "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList".to_owned(),
        ..Ask::default()
    };
    let aggregated = cluster.ask(ask).await.json();
    let mut items = at(&aggregated, "/items").as_array().into_iter().flatten();
    let found = items.find(|item| text(item, "/metadata/name") == "metrics.k8s.io");
    let versions = found
        .map(|item| item["versions"].clone())
        .unwrap_or_default();
    assert_eq!(text(&versions, "/0/freshness"), "Current");
    assert_eq!(text(&versions, "/0/resources/0/resource"), "nodes");
}
