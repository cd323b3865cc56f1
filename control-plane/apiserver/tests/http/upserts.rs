//! PUT of an object that does not exist, access for administration, the checks of the server's health, and events by
//! their source.

use super::*;

/// API-71.
#[tokio::test]
async fn a_put_creates_objects_of_some_kinds() {
    let cluster = Cluster::start().await;
    let role = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let reference =
        |kind: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "x"});
    let (namespaced, rbac) = ("namespaces/default/", "/apis/rbac.authorization.k8s.io/v1/");
    let cases = [
        (
            "/apis/coordination.k8s.io/v1/namespaces/default/leases".to_owned(),
            "coordination.k8s.io/v1",
            "Lease",
            json!({"spec": {}}),
        ),
        (
            "/api/v1/namespaces/default/services".to_owned(),
            "v1",
            "Service",
            json!({"spec": {"ports": [{"port": 80}]}}),
        ),
        (
            "/api/v1/namespaces/default/endpoints".to_owned(),
            "v1",
            "Endpoints",
            json!({"subsets": [{"addresses": [{"ip": "10.1.1.1"}]}]}),
        ),
        (
            "/api/v1/namespaces/default/events".to_owned(),
            "v1",
            "Event",
            json!({"involvedObject": {"namespace": "default"}}),
        ),
        (
            "/api/v1/namespaces/default/limitranges".to_owned(),
            "v1",
            "LimitRange",
            json!({"spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}}),
        ),
        (
            format!("{rbac}{namespaced}roles"),
            "rbac.authorization.k8s.io/v1",
            "Role",
            json!({"rules": role}),
        ),
        (
            format!("{rbac}{namespaced}rolebindings"),
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
            json!({"roleRef": reference("Role")}),
        ),
        (
            format!("{rbac}clusterroles"),
            "rbac.authorization.k8s.io/v1",
            "ClusterRole",
            json!({"rules": role}),
        ),
        (
            format!("{rbac}clusterrolebindings"),
            "rbac.authorization.k8s.io/v1",
            "ClusterRoleBinding",
            json!({"roleRef": reference("ClusterRole")}),
        ),
        (
            "/apis/node.k8s.io/v1/runtimeclasses".to_owned(),
            "node.k8s.io/v1",
            "RuntimeClass",
            json!({"handler": "x"}),
        ),
    ];
    for (path, version, kind, content) in cases {
        let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "x"}});
        for (field, value) in content.as_object().into_iter().flatten() {
            object[field] = value.clone();
        }
        let path = format!("{path}/x");
        let created = cluster.send("PUT", &path, &object).await;
        assert_eq!(created.status, 201, "{kind}: {}", created.text());
        let uid = text(&created.json(), "/metadata/uid").to_owned();
        assert!(!uid.is_empty(), "{kind}");
        let mut again = created.json();
        again["metadata"]["labels"] = json!({"a": "b"});
        let updated = cluster.send("PUT", &path, &again).await;
        assert_eq!(updated.status, 200, "{kind}: {}", updated.text());
        assert_eq!(text(&updated.json(), "/metadata/uid"), uid, "{kind}");
    }
    let absent = cluster.send("PUT", &format!("{PODS}/p"), &pod("p")).await;
    assert_eq!(absent.status, 404, "{}", absent.text());
    let mut other =
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "y", "uid": "1"}});
    other["involvedObject"] = json!({"namespace": "default"});
    let conflict = cluster
        .send("PUT", "/api/v1/namespaces/default/events/y", &other)
        .await;
    assert_eq!(conflict.status, 409, "{}", conflict.text());
    // Nothing to patch.
    let patched = cluster
        .merge("/api/v1/namespaces/default/services/y", &json!({}))
        .await;
    assert_eq!(patched.status, 404, "{}", patched.text());
}

/// API-73.
#[tokio::test]
async fn access_for_administration_needs_a_label_of_the_namespace() {
    const LABEL: &str = "resource.kubernetes.io/admin-access";
    let cluster = Cluster::start().await;
    let spec = json!({"devices": {"requests": [
        {"name": "a", "exactly": {"deviceClassName": "gpu.example.com"}},
        {"name": "r", "exactly": {"deviceClassName": "gpu.example.com", "allocationMode": "All", "adminAccess": true}},
    ]}});
    let objects = |name: &str| {
        let kind = |kind: &str, spec: Value| {
            json!({
                "apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec,
            })
        };
        [
            ("resourceclaims", kind("ResourceClaim", spec.clone())),
            (
                "resourceclaimtemplates",
                kind("ResourceClaimTemplate", json!({"spec": spec})),
            ),
        ]
    };
    let path = |plural: &str| format!("/apis/resource.k8s.io/v1/namespaces/default/{plural}");
    for (plural, object) in objects("x") {
        let refused = cluster.post(&path(plural), &object).await;
        assert_eq!(refused.status, 422, "{plural}: {}", refused.text());
        let causes = refused.json();
        assert_eq!(
            (
                text(&causes, "/details/causes/0/field"),
                text(&causes, "/details/causes/0/message")
            ),
            (
                "spec.devices.requests[1].adminAccess",
                "Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace",
            ),
            "{plural}"
        );
    }
    for (value, status) in [("false", 422), ("true", 201)] {
        let labels = json!({"metadata": {"labels": {LABEL: value}}});
        cluster.merge("/api/v1/namespaces/default", &labels).await;
        for (plural, object) in objects("x") {
            let reply = cluster.post(&path(plural), &object).await;
            assert_eq!(reply.status, status, "{plural}: {}", reply.text());
        }
    }
    // An allocation needs the label, too.
    let removed = json!({"metadata": {"labels": {LABEL: null}}});
    cluster.merge("/api/v1/namespaces/default", &removed).await;
    let status = json!({"status": {"allocation": {"devices": {"results": [
        {"request": "r", "driver": "gpu.example.com", "pool": "p", "device": "d", "adminAccess": true}]}}}});
    let claim = format!("{}/x/status", path("resourceclaims"));
    let refused = cluster.merge(&claim, &status).await;
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert_eq!(
        text(&refused.json(), "/details/causes/0/field"),
        "status.allocation.devices.results[0].adminAccess"
    );
}

#[tokio::test]
async fn health_lists_its_checks() {
    let cluster = Cluster::start().await;
    let cases = [
        ("/readyz", "ok"),
        (
            "/readyz?verbose",
            "[+]ping ok\n[+]storage ok\n[+]shutdown ok\nreadyz check passed\n",
        ),
        (
            "/healthz?verbose=true",
            "[+]ping ok\n[+]storage ok\n[+]shutdown ok\nhealthz check passed\n",
        ),
        (
            "/livez?verbose&exclude=storage",
            "[+]ping ok\n[+]storage excluded: ok\n[+]shutdown ok\nlivez check passed\n",
        ),
        ("/livez/ping", "ok"),
    ];
    for (path, expect) in cases {
        let reply = cluster.get(path).await;
        assert_eq!(
            (reply.status, reply.text().as_str()),
            (200, expect),
            "{path}"
        );
    }
    assert_eq!(cluster.get("/livez/nothing").await.status, 404);
}

#[tokio::test]
async fn events_are_selected_by_their_source() {
    let cluster = Cluster::start().await;
    let old = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "old"}, "reason": "R",
        "involvedObject": {"namespace": "default"}, "source": {"component": "default-scheduler"}});
    cluster
        .create("/api/v1/namespaces/default/events", &old)
        .await;
    let new = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "new"},
        "regarding": {"namespace": "default"}, "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "default-scheduler", "reportingInstance": "i", "action": "Binding",
        "reason": "R", "type": "Normal"});
    cluster
        .create("/apis/events.k8s.io/v1/namespaces/default/events", &new)
        .await;
    let (core, events) = ("/api/v1", "/apis/events.k8s.io/v1");
    let cases = [
        (core, "source=default-scheduler", vec!["new", "old"]),
        (core, "reportingComponent=default-scheduler", vec!["new"]),
        (core, "source=other", vec![]),
        (core, "source!=default-scheduler", vec![]),
        (events, "reportingController=default-scheduler", vec!["new"]),
        (events, "reason=R", vec!["new", "old"]),
        (events, "regarding.namespace=default", vec!["new", "old"]),
    ];
    for (group, selector, expect) in cases {
        let path = format!(
            "{group}/namespaces/default/events?fieldSelector={}",
            selector.replace('!', "%21")
        );
        let reply = cluster.get(&path).await;
        assert_eq!(reply.status, 200, "{selector}: {}", reply.text());
        assert_eq!(names(&reply.json()), expect, "{group} {selector}");
    }
}
