//! The scores of VolumeBinding for the storage of nodes.

use super::tests::{bound, free, local, using, wanting, world};
use super::*;
use crate::testing::{World, pod_info, storage_class, volume};
use berth_api::{CsiDriver, CsiStorageCapacity, Release};
use berth_framework::Feature;
use berth_framework::plugin::{PreScore, Score};
use serde_json::{Value, json};

/// The default arguments of a release.
fn plugin(args: &Value, release: Release) -> VolumeBinding {
    let args = VolumeBindingArgs::decode(args, &FeatureGates::of(release));
    VolumeBinding::new(args.expect("valid arguments"))
}

/// The scores of the nodes a and b; none if PreScore skips the pod.
fn scores(plugin: &VolumeBinding, world: &World, claims: &[&str]) -> Option<Vec<i64>> {
    let (cx, pod) = (world.context(), pod_info("p", using(claims)));
    let mut state = CycleState::default();
    let _ = plugin.pre_filter(&cx, &mut state, &pod);
    let status = plugin.pre_score(&cx, &mut state, &pod, &[]);
    assert!(
        status.is_success() || status.is_skip(),
        "{}",
        status.message()
    );
    let score = |node| plugin.score(&cx, &state, &pod, node).expect("a score");
    status
        .is_success()
        .then(|| world.cluster.nodes.iter().map(score).collect())
}

/// A capacity of a class that the nodes of a zone can access.
fn capacity(name: &str, class: &str, zone: &str, fields: Value) -> CsiStorageCapacity {
    let mut fields = fields;
    fields["metadata"] = json!({"name": name, "namespace": "kube-system"});
    fields["storageClassName"] = json!(class);
    fields["nodeTopology"] = json!({"matchLabels": {"zone": zone}});
    serde_json::from_value(fields).expect("a capacity")
}

/// Nodes a and b; the driver of the classes csi and fast reports capacity.
fn tracked() -> World {
    let driver: CsiDriver = serde_json::from_value(json!({
        "metadata": {"name": "csi.example.com"},
        "spec": {"storageCapacity": true},
    }))
    .expect("a driver");
    let fast =
        json!({"provisioner": "csi.example.com", "volumeBindingMode": "WaitForFirstConsumer"});
    let blind =
        json!({"provisioner": "nfs.example.com", "volumeBindingMode": "WaitForFirstConsumer"});
    world()
        .with(driver)
        .with(storage_class("fast", fast))
        .with(storage_class("blind", blind))
}

/// With this capacity of the class csi in the zones a and b.
fn with_capacity(world: World, a: &str, b: &str) -> World {
    world
        .with(capacity("sa", "csi", "a", json!({"capacity": a})))
        .with(capacity("sb", "csi", "b", json!({"capacity": b})))
}

/// PL-148: the formula, with the default shape: 100 minus the utilization in percent, rounded down.
#[test]
fn nodes_are_scored_by_their_storage() {
    let half = || with_capacity(tracked(), "100Gi", "200Gi").with(wanting("c", "csi", "50Gi"));
    let volume_of = |name: &str, size: &str, zone: &str| free(&local(name, size, zone), json!({}));
    for (name, world, claims, expected) in [
        // 50 and 25 percent.
        ("one claim", half(), &["c"][..], Some(vec![50, 75])),
        // 100 of 100 and 100 of 200: the capacity counts once.
        (
            "two claims of a class",
            half().with(wanting("d", "csi", "50Gi")),
            &["c", "d"],
            Some(vec![0, 50]),
        ),
        // a: 20 of 100 is 80, 33 of 100 is 67; the mean of both is 73.5. b: 80 and 34.
        (
            "two classes, rounded half away from zero",
            with_capacity(tracked(), "100Gi", "100Gi")
                .with(capacity("fa", "fast", "a", json!({"capacity": "100Gi"})))
                .with(capacity("fb", "fast", "b", json!({"capacity": "50Gi"})))
                .with(wanting("c", "csi", "20Gi"))
                .with(wanting("d", "fast", "33Gi")),
            &["c", "d"],
            Some(vec![74, 57]),
        ),
        (
            "a third, rounded down",
            with_capacity(tracked(), "3Gi", "1Gi").with(wanting("c", "csi", "1Gi")),
            &["c"],
            Some(vec![67, 0]),
        ),
        // a: only the volume counts, 10 of 20. b: no volume there, so the capacity counts, 50 of 200.
        (
            "an existing volume and a new one",
            half()
                .with(volume_of("v", "20Gi", "a"))
                .with(volume_of("w", "10Gi", "b"))
                .with(wanting("d", "local", "10Gi")),
            &["c", "d"],
            Some(vec![50, 0]),
        ),
        // Sums of a class: 1 + 3 of 2 + 4.
        (
            "existing volumes of a class",
            tracked()
                .with(volume_of("v", "2Gi", "a"))
                .with(volume_of("w", "4Gi", "a"))
                .with(volume_of("x", "1Gi", "b"))
                .with(volume_of("y", "3Gi", "b"))
                .with(wanting("c", "local", "1Gi"))
                .with(wanting("d", "local", "3Gi")),
            &["c", "d"],
            Some(vec![34, 0]),
        ),
        (
            "a driver that does not report capacity",
            tracked().with(wanting("c", "blind", "1Gi")),
            &["c"],
            Some(vec![0, 0]),
        ),
        (
            "a class without reports does not count beside one with reports",
            half().with(wanting("d", "blind", "1Gi")),
            &["c", "d"],
            Some(vec![50, 75]),
        ),
        // maximumVolumeSize only limits; the first capacity by name that suffices counts: 50 of 60, not of 100.
        (
            "several capacities",
            half()
                .with(capacity("s0", "csi", "a", json!({"capacity": "40Gi"})))
                .with(capacity(
                    "s1",
                    "csi",
                    "a",
                    json!({"capacity": "60Gi", "maximumVolumeSize": "55Gi"}),
                )),
            &["c"],
            Some(vec![17, 75]),
        ),
        (
            "beyond 64 bits of hundredths",
            with_capacity(tracked(), "4000Pi", "8000Pi").with(wanting("c", "csi", "2000Pi")),
            &["c"],
            Some(vec![50, 75]),
        ),
        (
            "claims with volumes",
            tracked()
                .with(volume(
                    "v",
                    json!({"spec": {"capacity": {"storage": "1Gi"}}}),
                ))
                .with(bound("c", "v")),
            &["c"],
            None,
        ),
        ("no claims", half(), &[], None),
    ] {
        for release in [Release::V1_37, Release::V1_38] {
            let got = scores(&plugin(&json!(null), release), &world, claims);
            assert_eq!(got, expected, "{name} in {release}");
        }
    }
}

/// PL-148: the opposite shape packs.
#[test]
fn the_shape_decides_what_is_preferred() {
    let packs =
        json!({"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]});
    let world = with_capacity(tracked(), "100Gi", "200Gi").with(wanting("c", "csi", "50Gi"));
    let got = scores(&plugin(&packs, Release::V1_37), &world, &["c"]);
    assert_eq!(got, Some(vec![50, 25]));
}

/// PL-147: without the gate, which is off until 1.36, the plugin takes no part in scoring.
#[test]
fn nodes_are_not_scored_without_the_gate() {
    for (release, gate, expected) in [
        (Release::V1_36, None, false),
        (Release::V1_36, Some(true), true),
        (Release::V1_37, None, true),
        (Release::V1_37, Some(false), false),
        (Release::V1_38, None, true),
    ] {
        let mut features = FeatureGates::of(release);
        if let Some(on) = gate {
            features = features.with(Feature::StorageCapacityScoring, on);
        }
        let cx = berth_framework::registry::FactoryContext {
            args: &Value::Null,
            features: &features,
        };
        let made = registration().make(&cx).expect("a plugin");
        let is_there = (made.pre_score.is_some(), made.score.is_some());
        assert_eq!(is_there, (true, expected), "{release} {gate:?}");
    }
}
