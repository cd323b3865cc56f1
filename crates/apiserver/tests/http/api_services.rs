//! APIServices: one for each group version that is served.

use super::*;

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

#[tokio::test]
async fn aggregated_servers_are_refused() {
    let cluster = Cluster::start().await;
    let service = |name: &str, spec: Value| {
        json!({
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": name},
            "spec": spec,
        })
    };
    for (name, spec, expect) in [
        (
            "v1.metrics.example.com",
            json!({"group": "metrics.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100, "service": {"namespace": "a", "name": "b"}}),
            "spec.service: Forbidden: aggregated API servers are not supported",
        ),
        (
            "x",
            json!({"group": "a.b", "version": "v1", "groupPriorityMinimum": 20001}),
            "[metadata.name: Invalid value: \"x\": must be `spec.version+\".\"+spec.group`: \"v1.a.b\", spec.groupPriorityMinimum: Invalid value: 20001: must be positive and less than 20000, spec.versionPriority: Invalid value: 0: must be positive and less than 1000]",
        ),
    ] {
        let reply = cluster.post(SERVICES, &service(name, spec)).await;
        assert_eq!(reply.status, 422, "{}", reply.text());
        let status = reply.json();
        assert!(text(&status, "/message").ends_with(expect), "{status}");
    }
}
