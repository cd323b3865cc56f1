//! `pods/resize` and `pods/ephemeralcontainers`: the answers of kube-apiserver 1.36 to the same requests.

use super::*;

const STRATEGIC: &str = "application/strategic-merge-patch+json";

fn container(fields: Value) -> Value {
    let mut container = json!({"name": "c"});
    for (field, value) in fields.as_object().into_iter().flatten() {
        container[field] = value.clone();
    }
    json!({"spec": {"containers": [container]}})
}

#[tokio::test]
async fn a_resize_changes_cpu_and_memory_only() {
    let cluster = Cluster::start().await;
    let mut big = pod("big");
    big["spec"]["containers"][0]["resources"] =
        json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}});
    cluster.create(PODS, &big).await;
    let path = format!("{PODS}/big/resize");
    let changed = container(json!({"resources": {"requests": {"cpu": "1500m"}}, "image": "other"}));
    let reply = cluster.send_as("PATCH", &path, STRATEGIC, &changed).await;
    let resized = reply.json();
    assert_eq!(reply.status, 200, "{resized}");
    assert_eq!(
        at(&resized, "/spec/containers/0/resources/requests/cpu"),
        "1500m"
    );
    assert_eq!(
        at(&resized, "/spec/containers/0/image"),
        "registry.example/a:1"
    );
    assert_eq!(at(&resized, "/metadata/generation"), 2);
    let cases = [
        (
            container(json!({"resources": {"requests": {"cpu": "3"}}})),
            "spec.containers[0].resources.requests: Invalid value: \"3\": must be less than or equal to cpu limit of 2",
        ),
        (
            container(json!({"resources": {"limits": {"cpu": null}}})),
            "spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed",
        ),
        (
            container(json!({"resources": {"requests": {"ephemeral-storage": "1Gi"}}})),
            "spec: Forbidden: only cpu and memory resources are mutable",
        ),
        (
            container(
                json!({"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]}),
            ),
            "spec: Forbidden: only cpu and memory resources are mutable",
        ),
        (
            container(json!({"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}})),
            "spec: Invalid value: \"Burstable\": Pod QOS Class may not change as a result of resizing",
        ),
        (
            json!({"spec": {"containers": [{"name": "new", "image": "i"}]}}),
            "spec.containers: Forbidden: containers may not be added or removed on resize",
        ),
    ];
    for (change, message) in cases {
        let reply = cluster.send_as("PATCH", &path, STRATEGIC, &change).await;
        assert_eq!(reply.status, 422, "{change}");
        assert_eq!(
            text(&reply.json(), "/message"),
            format!("Pod \"big\" is invalid: {message}"),
            "{change}"
        );
    }
    // Without the subresource, resources stay as they are.
    let reply = cluster
        .send_as("PATCH", &format!("{PODS}/big"), STRATEGIC, &changed)
        .await;
    assert_eq!(
        reply.status,
        200,
        "only the image differs: {}",
        reply.text()
    );
    let smaller = container(json!({"resources": {"requests": {"cpu": "1"}}}));
    let reply = cluster
        .send_as("PATCH", &format!("{PODS}/big"), STRATEGIC, &smaller)
        .await;
    assert_eq!(reply.status, 422, "{}", reply.text());
    let missing = cluster
        .send_as("PATCH", &format!("{PODS}/nope/resize"), STRATEGIC, &smaller)
        .await;
    assert_eq!(text(&missing.json(), "/message"), "pods \"nope\" not found");
}

#[tokio::test]
async fn ephemeral_containers_are_added_and_never_changed() {
    let cluster = Cluster::start().await;
    cluster.create(PODS, &pod("p")).await;
    let path = format!("{PODS}/p/ephemeralcontainers");
    let add = |container: Value| json!({"spec": {"ephemeralContainers": [container]}});
    let debug = add(json!({"name": "d", "image": "i"}));
    let reply = cluster.send_as("PATCH", &path, STRATEGIC, &debug).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(at(&reply.json(), "/metadata/generation"), 2);
    let cases = [
        (
            add(json!({"$patch": "delete", "name": "d"})),
            "spec.ephemeralContainers: Forbidden: existing ephemeral containers \"d\" may not be removed\n",
        ),
        (
            add(json!({"name": "d", "image": "other"})),
            "spec.ephemeralContainers: Forbidden: existing ephemeral containers \"d\" may not be changed\n",
        ),
        (
            add(json!({"name": "c", "image": "i"})),
            "spec.ephemeralContainers[0].name: Duplicate value: \"c\"",
        ),
        (
            add(json!({"name": "e", "image": "i", "targetContainerName": "zz"})),
            "spec.ephemeralContainers[0].targetContainerName: Not found: \"zz\"",
        ),
    ];
    for (change, message) in cases {
        let reply = cluster.send_as("PATCH", &path, STRATEGIC, &change).await;
        assert_eq!(reply.status, 422, "{change}");
        assert_eq!(
            text(&reply.json(), "/message"),
            format!("Pod \"p\" is invalid: {message}")
        );
    }
    let other = json!({"metadata": {"labels": {"x": "y"}}, "spec": {"activeDeadlineSeconds": 5}});
    let reply = cluster.send_as("PATCH", &path, STRATEGIC, &other).await;
    assert_eq!(
        reply.status,
        200,
        "other fields are ignored: {}",
        reply.text()
    );
    assert_eq!(at(&reply.json(), "/metadata/generation"), 2);
}
