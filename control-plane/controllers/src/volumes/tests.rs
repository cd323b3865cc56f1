//! The handling of volumes and claims, on an otherwise empty server.

use super::super::runtime::Handle;
use super::super::testing::{Fake, eventually, pass};
use super::*;
use berth_objects::access::{Access, DeleteOptions};
use berth_objects::object::{NODE, annotation};
use std::sync::Arc;

struct Run {
    api: Arc<Fake>,
    handle: Handle,
}

fn run() -> Run {
    let api = Fake::new();
    let mut handle = Handle::new();
    handle.start(Volumes, api.clone(), api.clock());
    Run { api, handle }
}

impl Run {
    fn class(&self, name: &str, provisioner: &str, mode: &str) {
        let class = json!({
            "metadata": {"name": name},
            "provisioner": provisioner,
            "volumeBindingMode": mode,
            "reclaimPolicy": "Delete",
        });
        self.create(STORAGE_CLASS, class);
    }

    fn create(&self, kind: ControllerKind, object: Value) {
        self.api
            .create(kind.resource, object)
            .expect("it is accepted");
    }

    fn volume(&self, name: &str, class: &str, more: Value) {
        let mut spec = json!({
            "capacity": {"storage": "5Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class,
            "persistentVolumeReclaimPolicy": "Retain",
        });
        for (field, value) in more.as_object().expect("fields") {
            spec[field] = value.clone();
        }
        let volume =
            json!({"metadata": {"name": name}, "spec": spec, "status": {"phase": "Pending"}});
        self.create(VOLUME, volume);
    }

    fn claim(&self, name: &str, class: &str, more: Value) {
        let mut spec = json!({
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": class,
            "volumeMode": "Filesystem",
        });
        for (field, value) in more.as_object().expect("fields") {
            spec[field] = value.clone();
        }
        let metadata = json!({"name": name, "namespace": "n"});
        let claim = json!({"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}});
        self.create(CLAIM, claim);
    }

    fn get(&self, kind: ControllerKind, name: &str) -> Option<StoredObject> {
        let namespace = if kind == CLAIM { "n" } else { "" };
        self.api.get(kind.resource, namespace, name).ok()
    }

    fn phase(&self, kind: ControllerKind, name: &str) -> String {
        let object = self.get(kind, name);
        object.map_or("gone".to_owned(), |o| text(&o, "/status/phase").to_owned())
    }

    /// The phases of the claim and of its volume, and the volume's name.
    fn pair(&self, claim: &str) -> (String, String, String) {
        let found = self.get(CLAIM, claim).expect("the claim is there");
        let volume = text(&found, "/spec/volumeName");
        let volume_phase = self.phase(VOLUME, volume);
        (self.phase(CLAIM, claim), volume.to_owned(), volume_phase)
    }

    async fn is_bound(&self, claim: &str, volume: &str) {
        let bound = ("Bound".to_owned(), volume.to_owned(), "Bound".to_owned());
        eventually("claim and volume are bound", || self.pair(claim) == bound).await;
        let claim = self.get(CLAIM, claim).expect("the claim is there");
        assert_eq!(annotation(&claim, BIND_COMPLETED), Some("yes"));
        let capacity = &self.get(VOLUME, volume).expect("the volume is there")["spec"]["capacity"];
        assert_eq!(claim["status"]["capacity"], *capacity);
    }

    fn select(&self, claim: &str, node: &str) {
        self.api.edit(CLAIM.resource, ("n", claim), |c| {
            set_annotation(c, SELECTED_NODE, node);
        });
    }

    fn delete(&self, kind: ControllerKind, name: &str) {
        let namespace = if kind == CLAIM { "n" } else { "" };
        let options = DeleteOptions::default();
        let deleted = self.api.delete(kind.resource, namespace, name, &options);
        deleted.expect("it is there");
    }

    fn event(&self, reason: &str) -> bool {
        let events = self.api.list(berth_objects::object::EVENT.resource, None);
        events.iter().any(|event| event["reason"] == reason)
    }
}

use berth_objects::object::set_annotation;

#[tokio::test(start_paused = true)]
async fn a_claim_takes_the_smallest_volume_that_will_do() {
    let run = run();
    run.class("now", "kubernetes.io/no-provisioner", "Immediate");
    run.volume("large", "now", json!({}));
    run.volume("small", "now", json!({"capacity": {"storage": "1Gi"}}));
    eventually("free volumes are available", || {
        run.phase(VOLUME, "large") == "Available" && run.phase(VOLUME, "small") == "Available"
    })
    .await;
    run.claim("c", "now", json!({}));
    run.is_bound("c", "small").await;
    // The next claim is created before its volume.
    run.claim(
        "d",
        "now",
        json!({"resources": {"requests": {"storage": "8Gi"}}}),
    );
    pass(5.0).await;
    assert_eq!(run.phase(CLAIM, "d"), "Pending");
    run.volume("huge", "now", json!({"capacity": {"storage": "9Gi"}}));
    run.is_bound("d", "huge").await;
    assert_eq!(run.phase(VOLUME, "large"), "Available");
    run.handle.stop().await;
}

/// The scheduler has assigned the volume: the controller completes the binding.
#[tokio::test(start_paused = true)]
async fn what_the_scheduler_begins_is_completed() {
    let run = run();
    run.class(
        "local",
        "kubernetes.io/no-provisioner",
        "WaitForFirstConsumer",
    );
    run.volume("v", "local", json!({}));
    run.claim("c", "local", json!({}));
    eventually("the claim states what it waits for", || {
        run.event("WaitForFirstConsumer")
    })
    .await;
    assert_eq!(run.phase(CLAIM, "c"), "Pending");
    let claim = run.get(CLAIM, "c").expect("the claim is there");
    run.api.edit(VOLUME.resource, ("", "v"), |v| {
        v["spec"]["claimRef"] = reference(&claim);
    });
    run.is_bound("c", "v").await;
    run.handle.stop().await;
}

/// A claim can name its volume, and a volume can name its claim.
#[tokio::test(start_paused = true)]
async fn owners_may_choose() {
    let run = run();
    run.volume(
        "for-c",
        "",
        json!({"claimRef": {"namespace": "n", "name": "c"}}),
    );
    run.volume("any", "", json!({}));
    run.volume("wanted", "", json!({"capacity": {"storage": "9Gi"}}));
    eventually("a volume is meant for a claim to come", || {
        run.phase(VOLUME, "for-c") == "Available"
    })
    .await;
    run.claim("c", "", json!({}));
    run.claim("d", "", json!({"volumeName": "wanted"}));
    run.is_bound("c", "for-c").await;
    run.is_bound("d", "wanted").await;
    let volume = run.get(VOLUME, "for-c").expect("the volume is there");
    assert_eq!(
        annotation(&volume, BOUND_BY_CONTROLLER),
        None,
        "its owner did"
    );
    run.handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_made_where_the_node_is() {
    let zone = |key: &str, value: &str| json!([{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}]);
    for (situation, labels, terms) in [
        (
            "in its zone",
            json!({"topology.kubernetes.io/zone": "z", "kubernetes.io/hostname": "h"}),
            zone("topology.kubernetes.io/zone", "z"),
        ),
        (
            "on itself",
            json!({"kubernetes.io/hostname": "h"}),
            zone("kubernetes.io/hostname", "h"),
        ),
        ("anywhere", json!({}), Value::Null),
    ] {
        let run = run();
        run.class("sim", SIMULATED, "WaitForFirstConsumer");
        run.create(NODE, json!({"metadata": {"name": "n1", "labels": labels}}));
        run.claim("c", "sim", json!({}));
        pass(5.0).await;
        assert_eq!(
            run.api.list(VOLUME.resource, None).len(),
            0,
            "{situation}: no pod needs it"
        );
        run.select("c", "n1");
        eventually("the claim is bound", || run.phase(CLAIM, "c") == "Bound").await;
        let claim = run.get(CLAIM, "c").expect("the claim is there");
        let volume_name = format!("pvc-{}", berth_objects::object::uid(&claim));
        run.is_bound("c", &volume_name).await;
        let volume = run.get(VOLUME, &volume_name).expect("the volume is there");
        let spec = &volume["spec"];
        assert_eq!(
            spec["nodeAffinity"]["required"]["nodeSelectorTerms"], terms,
            "{situation}"
        );
        assert_eq!(spec["capacity"]["storage"], "1Gi");
        assert_eq!(spec["csi"]["driver"], SIMULATED);
        // The volume is deleted with its claim.
        run.delete(CLAIM, "c");
        eventually("the volume is deleted", || {
            run.get(VOLUME, &volume_name).is_none()
        })
        .await;
        run.handle.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_class_that_does_not_wait_is_provisioned_at_once() {
    let run = run();
    run.claim("c", "sim", json!({}));
    eventually("the class is missed", || run.event("ProvisioningFailed")).await;
    run.class("sim", SIMULATED, "Immediate");
    eventually("the claim is bound", || run.phase(CLAIM, "c") == "Bound").await;
    assert!(run.event("ProvisioningSucceeded"));
    run.handle.stop().await;
}

/// The controller removes the annotation, which notifies the scheduler.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_gone_is_given_back() {
    let run = run();
    run.class("sim", SIMULATED, "WaitForFirstConsumer");
    run.claim("c", "sim", json!({}));
    run.select("c", "gone");
    eventually("the annotation goes", || {
        let claim = run.get(CLAIM, "c").expect("the claim is there");
        annotation(&claim, SELECTED_NODE).is_none()
    })
    .await;
    assert!(run.event("ProvisioningFailed"));
    run.handle.stop().await;
}

/// Other provisioners are asked, and their volumes are bound.
#[tokio::test(start_paused = true)]
async fn others_are_asked_to_provision() {
    let run = run();
    run.class("csi", "csi.example.com", "WaitForFirstConsumer");
    run.claim("c", "csi", json!({}));
    run.select("c", "n1");
    eventually("the provisioner is asked", || {
        let claim = run.get(CLAIM, "c").expect("the claim is there");
        let key = "volume.kubernetes.io/storage-provisioner";
        annotation(&claim, key) == Some("csi.example.com") && run.event("ExternalProvisioning")
    })
    .await;
    let claim = run.get(CLAIM, "c").expect("the claim is there");
    run.volume("made", "csi", json!({"claimRef": reference(&claim)}));
    run.is_bound("c", "made").await;
    run.handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_released_and_a_claim_lost_without_the_other() {
    let run = run();
    run.volume("v", "", json!({}));
    run.volume("w", "", json!({"capacity": {"storage": "9Gi"}}));
    run.claim("c", "", json!({}));
    run.claim(
        "d",
        "",
        json!({"resources": {"requests": {"storage": "8Gi"}}}),
    );
    run.is_bound("c", "v").await;
    run.is_bound("d", "w").await;
    run.delete(CLAIM, "c");
    eventually("the volume is released", || {
        run.phase(VOLUME, "v") == "Released"
    })
    .await;
    run.delete(VOLUME, "w");
    eventually("the claim is lost", || run.phase(CLAIM, "d") == "Lost").await;
    assert!(run.event("ClaimLost"));
    // A new claim of the same name is another claim.
    run.claim("c", "", json!({}));
    pass(5.0).await;
    assert_eq!(run.phase(CLAIM, "c"), "Pending");
    assert_eq!(run.phase(VOLUME, "v"), "Released");
    assert!(run.event("FailedBinding"));
    run.handle.stop().await;
}

/// A volume that is reserved for a claim with another volume is released.
#[tokio::test(start_paused = true)]
async fn a_volume_too_many_is_given_back() {
    let run = run();
    run.volume("v", "", json!({}));
    run.claim("c", "", json!({}));
    run.is_bound("c", "v").await;
    let claim = run.get(CLAIM, "c").expect("the claim is there");
    for (volume, by_controller) in [("w", true), ("x", false)] {
        let mut fields = json!({
            "metadata": {"name": volume},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "claimRef": reference(&claim),
            },
        });
        if by_controller {
            set_annotation(&mut fields, BOUND_BY_CONTROLLER, "yes");
        }
        run.create(VOLUME, fields);
        eventually("it is free again", || {
            run.phase(VOLUME, volume) == "Available"
        })
        .await;
        let given_back = run.get(VOLUME, volume).expect("the volume is there");
        let claim_ref = &given_back["spec"]["claimRef"];
        assert_eq!(claim_ref.is_null(), by_controller, "{volume}: {claim_ref}");
        assert!(claim_ref["uid"].is_null(), "{volume}: {claim_ref}");
    }
    run.is_bound("c", "v").await;
    run.handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn claims_and_volumes_in_use_are_kept() {
    let mut run = run();
    let (api, clock) = (run.api.clone(), run.api.clock());
    let handle = &mut run.handle;
    handle.start(protection::ClaimProtection, api.clone(), clock.clone());
    handle.start(protection::VolumeProtection, api.clone(), clock);
    run.volume("v", "c", json!({}));
    run.claim("data", "c", json!({}));
    run.is_bound("data", "v").await;
    let protected = |kind: ControllerKind, name: &str, finalizer: &str| {
        let found = run.get(kind, name);
        found.is_some_and(|o| berth_objects::object::has_finalizer(&o, finalizer))
    };
    eventually("both have finalizers", || {
        protected(CLAIM, "data", "kubernetes.io/pvc-protection")
            && protected(VOLUME, "v", "kubernetes.io/pv-protection")
    })
    .await;
    let pod = json!({
        "metadata": {"name": "p", "namespace": "n"},
        "spec": {"nodeName": "node-1", "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]},
    });
    api.create(berth_objects::object::POD.resource, pod)
        .unwrap();
    run.delete(VOLUME, "v");
    run.delete(CLAIM, "data");
    pass(5.0).await;
    let is_deleting = |kind: ControllerKind, name: &str| {
        let found = run.get(kind, name);
        found.is_some_and(|o| berth_objects::object::is_deleting(&o))
    };
    assert!(is_deleting(CLAIM, "data") && is_deleting(VOLUME, "v"));
    let options = DeleteOptions {
        grace_period_seconds: Some(0),
        ..DeleteOptions::default()
    };
    let pods = berth_objects::object::POD.resource;
    api.delete(pods, "n", "p", &options).unwrap();
    eventually("both are deleted", || {
        run.get(CLAIM, "data").is_none() && run.get(VOLUME, "v").is_none()
    })
    .await;
    run.handle.stop().await;
}
