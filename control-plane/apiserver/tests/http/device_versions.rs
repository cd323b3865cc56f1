//! The versions of resource.k8s.io: all show the same objects.

use super::*;

fn path(version: &str, plural: &str) -> String {
    match plural {
        "resourceclaims" => {
            format!("/apis/resource.k8s.io/{version}/namespaces/default/resourceclaims")
        }
        _ => format!("/apis/resource.k8s.io/{version}/{plural}"),
    }
}

#[tokio::test]
async fn claims_and_slices_are_shown_in_each_version() {
    let cluster = Cluster::start().await;
    let group = cluster.get("/apis/resource.k8s.io").await.json();
    let versions: Vec<&str> = at(&group, "/versions")
        .as_array()
        .into_iter()
        .flatten()
        .map(|v| text(v, "/version"))
        .collect();
    assert_eq!(versions, ["v1", "v1beta2", "v1beta1"]);
    let exact = json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1});
    let claim = |version: &str, name: &str, request: Value| {
        json!({
            "apiVersion": format!("resource.k8s.io/{version}"), "kind": "ResourceClaim",
            "metadata": {"name": name}, "spec": {"devices": {"requests": [request]}},
        })
    };
    let flat = json!({"name": "r", "deviceClassName": "gpu"});
    let nested = json!({"name": "r", "exactly": {"deviceClassName": "gpu"}});
    for (version, request) in [("v1", &nested), ("v1beta2", &nested), ("v1beta1", &flat)] {
        let name = format!("c-{version}");
        let created = cluster
            .create(
                &path(version, "resourceclaims"),
                &claim(version, &name, request.clone()),
            )
            .await;
        assert_eq!(
            created["apiVersion"],
            json!(format!("resource.k8s.io/{version}"))
        );
        for other in ["v1", "v1beta2", "v1beta1"] {
            let shown = cluster
                .get(&format!("{}/{name}", path(other, "resourceclaims")))
                .await
                .json();
            assert_eq!(
                shown["apiVersion"],
                json!(format!("resource.k8s.io/{other}"))
            );
            let pointer = match other {
                "v1beta1" => "/spec/devices/requests/0",
                _ => "/spec/devices/requests/0/exactly",
            };
            let mut request = at(&shown, pointer).clone();
            request.as_object_mut().map(|r| r.remove("name"));
            assert_eq!(request, exact, "{version} as {other}: {shown}");
        }
    }
    let device = json!({"name": "d", "basic": {"attributes": {"model": {"string": "a"}}}});
    let slice = json!({
        "apiVersion": "resource.k8s.io/v1beta1", "kind": "ResourceSlice", "metadata": {"name": "s"},
        "spec": {"driver": "gpu.example.com", "nodeName": "n", "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}, "devices": [device]},
    });
    cluster
        .create(&path("v1beta1", "resourceslices"), &slice)
        .await;
    for (version, pointer) in [
        ("v1beta1", "/spec/devices/0/basic/attributes/model/string"),
        ("v1beta2", "/spec/devices/0/attributes/model/string"),
        ("v1", "/spec/devices/0/attributes/model/string"),
    ] {
        let list = path(version, "resourceslices");
        let list = cluster
            .get(&format!("{list}?fieldSelector=spec.nodeName%3Dn"))
            .await
            .json();
        assert_eq!(
            text(at(&list, "/items/0"), pointer),
            "a",
            "{version}: {list}"
        );
    }
    // A change in one version is one in all.
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    let patched = cluster
        .merge(
            &format!("{}/c-v1", path("v1beta1", "resourceclaims")),
            &patch,
        )
        .await;
    assert_eq!(patched.status, 200, "{}", patched.text());
    let watch = format!(
        "{}?watch=1&timeoutSeconds=1",
        path("v1beta2", "resourceclaims")
    );
    let events = cluster.get(&watch).await.events();
    let changed = events
        .iter()
        .find(|event| text(event, "/object/metadata/name") == "c-v1")
        .cloned()
        .unwrap_or_default();
    assert_eq!(text(&changed, "/object/metadata/labels/a"), "b");
    assert_eq!(
        at(&changed, "/object/spec/devices/requests/0/exactly"),
        &exact
    );
}
