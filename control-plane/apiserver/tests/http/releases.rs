//! The API of each release: which resources and fields a server has.

use super::*;
use berth_api::Release;
use berth_objects::releases::ApiRelease;

const NODES: &str = "/api/v1/nodes";
const DRIVERS: &str = "/apis/storage.k8s.io/v1/csidrivers";
const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
const PREEMPTION: &str = "InPlacePodVerticalScalingSchedulerPreemption";

async fn cluster_of(api: ApiRelease) -> Cluster {
    Cluster::with(ServerOptions {
        api,
        ..ServerOptions::default()
    })
    .await
}

fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "spec": {"podPreemptionPolicy": {"disableResizePreemption": ["example.com/no"]}},
    })
}

fn slice(name: &str, device: Value) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": "n",
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": [device],
        },
    })
}

/// The names of the resources of a group version, `None` when it is not served.
async fn resources(cluster: &Cluster, group_version: &str) -> Option<Vec<String>> {
    let reply = cluster.get(&format!("/apis/{group_version}")).await;
    let listed = reply.json();
    let names = at(&listed, "/resources").as_array()?;
    Some(names.iter().map(|r| text(r, "/name").to_owned()).collect())
}

/// API-75: DeviceTaintRules are in resource.k8s.io/v1 since 1.37, and in v1beta2 in every release, with the same
/// objects. 1.38 does not serve v1beta1.
#[tokio::test]
async fn each_release_has_its_resources() {
    for release in Release::ALL {
        let cluster = cluster_of(ApiRelease::of(release)).await;
        let is_in_v1 = release >= Release::V1_37;
        let of_v1 = resources(&cluster, "resource.k8s.io/v1")
            .await
            .unwrap_or_default();
        assert_eq!(
            of_v1.contains(&"devicetaintrules".to_owned()),
            is_in_v1,
            "{release}: {of_v1:?}"
        );
        assert!(
            of_v1.contains(&"resourceslices".to_owned()),
            "{release}: {of_v1:?}"
        );
        let group = cluster.get("/apis/resource.k8s.io").await.json();
        let versions = at(&group, "/versions").as_array().into_iter().flatten();
        let versions: Vec<&str> = versions.map(|v| text(v, "/version")).collect();
        let expected: &[&str] = match release {
            Release::V1_36 | Release::V1_37 => &["v1", "v1beta2", "v1beta1"],
            // Upstream marks v1beta1 as removed in 1.38.
            Release::V1_38 => &["v1", "v1beta2"],
        };
        assert_eq!(versions, expected, "{release}");
        let removed = resources(&cluster, "resource.k8s.io/v1beta1").await;
        assert_eq!(
            removed.is_some(),
            release < Release::V1_38,
            "{release}: {removed:?}"
        );
        let version = cluster.get("/version").await.json();
        assert_eq!(text(&version, "/minor"), release.minor().to_string());
        let rule = |version: &str, name: &str| {
            json!({
                "apiVersion": format!("resource.k8s.io/{version}"), "kind": "DeviceTaintRule",
                "metadata": {"name": name},
                "spec": {
                    "deviceSelector": {"driver": "gpu.example.com"},
                    "taint": {"key": "example.com/broken", "effect": "NoSchedule"},
                },
            })
        };
        let beta = "/apis/resource.k8s.io/v1beta2/devicetaintrules";
        cluster.create(beta, &rule("v1beta2", "a")).await;
        let path = "/apis/resource.k8s.io/v1/devicetaintrules";
        let reply = cluster.post(path, &rule("v1", "b")).await;
        assert_eq!(
            reply.status,
            if is_in_v1 { 201 } else { 404 },
            "{release}: {}",
            reply.text()
        );
        if is_in_v1 {
            for (version, list) in [("v1", path), ("v1beta2", beta)] {
                let list = cluster.get(list).await.json();
                assert_eq!(names(&list), ["a", "b"], "{release} {version}");
                for item in at(&list, "/items").as_array().into_iter().flatten() {
                    let expected = format!("resource.k8s.io/{version}");
                    let shown = item.get("apiVersion").and_then(Value::as_str);
                    assert!(shown.is_none_or(|v| v == expected), "{release} {item}");
                    assert_eq!(text(item, "/spec/taint/key"), "example.com/broken");
                }
            }
        }
    }
}

/// API-75, API-76: a field that the release does not have is unknown; one whose gate is off is dropped without a word;
/// with the gate it is stored.
#[tokio::test]
async fn each_release_has_its_fields() {
    let strict = format!("{NODES}?fieldValidation=Strict");
    for release in Release::ALL {
        let is_known = release >= Release::V1_37;
        for gate in [false, true] {
            let api = ApiRelease::of(release).with_gate(PREEMPTION, gate);
            let cluster = cluster_of(api).await;
            let reply = cluster.post(&strict, &node("n")).await;
            let case = format!("{release}, gate {gate}: {}", reply.text());
            if !is_known {
                assert_eq!(reply.status, 400, "{case}");
                let message = "unknown field \"spec.podPreemptionPolicy\"";
                assert!(text(&reply.json(), "/message").ends_with(message), "{case}");
                cluster.create(NODES, &node("n")).await;
            } else {
                assert_eq!(reply.status, 201, "{case}");
            }
            let stored = cluster.get(&format!("{NODES}/n")).await.json();
            let kept = at(&stored, "/spec/podPreemptionPolicy");
            assert_eq!(kept.is_object(), is_known && gate, "{case}");
            let document = cluster.get("/openapi/v3/api/v1").await.json();
            let pointer =
                "/components/schemas/io.k8s.api.core.v1.NodeSpec/properties/podPreemptionPolicy";
            assert_eq!(at(&document, pointer).is_object(), is_known, "{case}");
        }
    }
}

/// API-75: an applied configuration has only fields of the release.
#[tokio::test]
async fn an_applied_field_of_another_release_is_not_declared() {
    for release in Release::ALL {
        let cluster = cluster_of(ApiRelease::of(release).with_gate(PREEMPTION, true)).await;
        let path = format!("{NODES}/n?fieldManager=t");
        let reply = cluster
            .send_as("PATCH", &path, "application/apply-patch+yaml", &node("n"))
            .await;
        match release {
            Release::V1_36 => {
                assert_eq!(reply.status, 500, "{}", reply.text());
                let message = text(&reply.json(), "/message").to_owned();
                let fault = ".spec.podPreemptionPolicy: field not declared in schema";
                assert!(message.ends_with(fault), "{message}");
            }
            Release::V1_37 | Release::V1_38 => {
                assert_eq!(reply.status, 201, "{release}: {}", reply.text());
                let kept = "/spec/podPreemptionPolicy/disableResizePreemption";
                assert_eq!(at(&reply.json(), kept), &json!(["example.com/no"]));
            }
        }
    }
}

/// API-76: the release determines the default of a gate. VolumeLimitScaling is on since 1.37.
#[tokio::test]
async fn gates_have_the_defaults_of_the_release() {
    for (release, gate, is_kept) in [
        (Release::V1_36, None, false),
        (Release::V1_36, Some(true), true),
        (Release::V1_37, None, true),
        (Release::V1_37, Some(false), false),
        (Release::V1_38, None, true),
    ] {
        let mut api = ApiRelease::of(release);
        if let Some(on) = gate {
            api = api.with_gate("VolumeLimitScaling", on);
        }
        let cluster = cluster_of(api).await;
        let driver = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "ebs.example.com"},
            "spec": {"preventPodSchedulingIfMissing": true},
        });
        let created = cluster.create(DRIVERS, &driver).await;
        let expected = if is_kept { json!(true) } else { Value::Null };
        let kept = at(&created, "/spec/preventPodSchedulingIfMissing");
        assert_eq!(kept, &expected, "{release} {gate:?}");
    }
}

/// API-76: a field that is stored stays through updates when its gate is off, also when it is changed.
#[tokio::test]
async fn a_stored_field_survives_its_gate() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = |on| ServerOptions {
        api: ApiRelease::of(Release::V1_37).with_gate(PREEMPTION, on),
        data_dir: Some(dir.path().to_owned()),
        ..ServerOptions::default()
    };
    let cluster = Cluster::with(options(true)).await;
    cluster.create(NODES, &node("with")).await;
    cluster.server.shutdown().await;
    let cluster = Cluster::with(options(false)).await;
    cluster.create(NODES, &node("without")).await;
    let policy = json!({"spec": {"podPreemptionPolicy": {"disableResizePreemption": ["example.com/other"]}}});
    for (name, expected) in [
        (
            "with",
            json!({"disableResizePreemption": ["example.com/other"]}),
        ),
        ("without", Value::Null),
    ] {
        let patched = cluster.merge(&format!("{NODES}/{name}"), &policy).await;
        assert_eq!(patched.status, 200, "{}", patched.text());
        assert_eq!(
            at(&patched.json(), "/spec/podPreemptionPolicy"),
            &expected,
            "{name}"
        );
    }
    cluster.server.shutdown().await;
}

/// API-75: the fields of devices that use resources of their node were renamed in 1.37.
#[tokio::test]
async fn renamed_fields_belong_to_their_releases() {
    let old = json!({"cpu": {"allocationMultiplier": "2"}});
    let new = json!({"cpu": {"mapping": {"deviceMultiplier": "2"}}});
    for release in Release::ALL {
        let api = ApiRelease::of(release).with_gate("DRANodeAllocatableResources", true);
        let cluster = cluster_of(api).await;
        let device = json!({"name": "d", "nodeAllocatableResourceMappings": old, "nodeAllocatableResources": new});
        let created = cluster.create(SLICES, &slice("s", device)).await;
        let device = at(&created, "/spec/devices/0");
        let is_old = release == Release::V1_36;
        let (had, has) = (
            "nodeAllocatableResourceMappings",
            "nodeAllocatableResources",
        );
        assert_eq!(device.get(had), is_old.then_some(&old), "{release}");
        assert_eq!(device.get(has), (!is_old).then_some(&new), "{release}");
    }
}

/// API-77.
#[tokio::test]
async fn device_names_with_two_slashes_are_refused_since_1_38() {
    let device = json!({"name": "d", "attributes": {"a/b/c": {"int": 1}}});
    for release in Release::ALL {
        let cluster = cluster_of(ApiRelease::of(release)).await;
        let reply = cluster.post(SLICES, &slice("s", device.clone())).await;
        let expected = if release >= Release::V1_38 { 422 } else { 201 };
        assert_eq!(reply.status, expected, "{release}: {}", reply.text());
    }
}
