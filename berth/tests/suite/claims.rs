//! Pods with resource claims (DRA) on a running cluster, up to readiness: generated claims, missing claims, and the
//! messages for users.

use crate::e2e::{Api, Cluster, Kubectl, eventually, scheduled, seconds};
use berth_client::request::{self, Resource};
use serde_json::{Value, json};

const CLAIMS: Resource = Resource {
    group: "resource.k8s.io",
    version: "v1",
    plural: "resourceclaims",
};
const TEMPLATES: Resource = Resource {
    group: "resource.k8s.io",
    version: "v1",
    plural: "resourceclaimtemplates",
};
const CLASSES: Resource = Resource {
    group: "resource.k8s.io",
    version: "v1",
    plural: "deviceclasses",
};

const NOT_READY: &str = "NotReadyForScheduling";

fn devices() -> Value {
    json!({"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}})
}

fn claim(name: &str) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": devices(),
    })
}

fn template(name: &str) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": devices()},
    })
}

struct World {
    cluster: Cluster,
    api: Api,
}

impl World {
    fn start() -> Self {
        let cluster = Cluster::up("claims", &["--nodes", "2"]);
        let api = Api::of(&cluster);
        let class = json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": "gpu"},
            "spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]},
        });
        let stored = api.send(&request::create(CLASSES, "", &class));
        assert_eq!(stored["spec"], class["spec"], "stored as it is");
        Self { cluster, api }
    }

    fn pod(&self, name: &str, claims: Value) {
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "containers": [{"name": "c", "image": "registry.example/c:1"}],
                "resourceClaims": claims,
            },
        });
        let pods = berth_client::request::PODS;
        self.api.send(&request::create(pods, "default", &pod));
    }

    fn create(&self, resource: Resource, object: &Value) {
        self.api.send(&request::create(resource, "default", object));
    }

    /// The pod once its condition states that it is not ready for scheduling.
    fn not_ready(&self, name: &str) -> Value {
        eventually("its status states that it is not ready", || {
            let pod = self.api.pod(name);
            (scheduled(&pod)["reason"] == NOT_READY).then_some(pod)
        })
    }

    /// The message of the pod after its attempt.
    fn tried(&self, name: &str) -> String {
        eventually("it was tried", || {
            let condition = scheduled(&self.api.pod(name));
            let message = condition["message"].as_str().unwrap_or_default();
            (condition["reason"] == "Unschedulable").then(|| message.to_owned())
        })
    }
}

#[test]
fn pods_wait_for_their_claims() {
    let world = World::start();
    a_missing_claim_is_reported_and_found(&world);
    a_claim_from_a_template_is_made_before_a_report(&world);
    both_sides_report_a_missing_template(&world);
    kubectl_shows_claims_and_who_waits(&world);
}

/// Q-28, Q-101, Q-102, Q-106: after five seconds the condition of the pod states which claim it waits for; the claim
/// lets it in.
fn a_missing_claim_is_reported_and_found(world: &World) {
    let World { cluster, api } = world;
    world.pod(
        "by-name",
        json!([{"name": "gpu", "resourceClaimName": "mine"}]),
    );
    let pod = world.not_ready("by-name");
    let condition = scheduled(&pod);
    let why = "Waiting for resource claim \"mine\" to be present";
    assert_eq!(
        (&condition["status"], &condition["message"]),
        (&json!("False"), &json!(why))
    );
    let waited =
        seconds(&condition["lastTransitionTime"]) - seconds(&pod["metadata"]["creationTimestamp"]);
    assert!(waited >= 4, "{waited} s");
    let event = eventually("it is an event, too", || api.event("by-name", NOT_READY));
    assert_eq!(
        (&event["type"], &event["message"]),
        (&json!("Warning"), &json!(why))
    );
    assert_eq!(cluster.pending("gated"), 1.0);
    world.create(CLAIMS, &claim("another"));
    world.create(CLAIMS, &claim("mine"));
    let why = world.tried("by-name");
    assert!(why.contains("cannot allocate all claims"), "{why}");
    let narrowed = cluster.metric(
        "scheduler_pre_queueing_hint_evaluations_total",
        "plugin=\"DynamicResources\",result=\"narrowed\"",
    );
    assert!(narrowed >= 2.0, "{narrowed}");
}

/// Q-102, case 126: the claim is created and linked within five seconds, so the wait is not written.
fn a_claim_from_a_template_is_made_before_a_report(world: &World) {
    let api = &world.api;
    world.create(TEMPLATES, &template("gpu"));
    world.pod(
        "by-template",
        json!([{"name": "gpu", "resourceClaimTemplateName": "gpu"}]),
    );
    world.tried("by-template");
    let pod = api.pod("by-template");
    let made = &pod["status"]["resourceClaimStatuses"][0];
    assert_eq!(made["name"], "gpu");
    let name = made["resourceClaimName"].as_str().expect("a claim");
    assert!(name.starts_with("by-template-gpu-"), "{name}");
    let made = api.send(&request::get(CLAIMS, "default", name));
    let owner = &made["metadata"]["ownerReferences"][0];
    assert_eq!(owner["uid"], pod["metadata"]["uid"]);
    assert_eq!(
        made["spec"]["devices"]["requests"][0]["exactly"]["count"], 1,
        "{made}"
    );
    assert_eq!(api.events("by-template", NOT_READY), [Value::Null; 0]);
    // The claim is deleted with the pod.
    let uid = pod["metadata"]["uid"].as_str().expect("a UID");
    api.send(&request::delete_pod(
        &"default".into(),
        &"by-template".into(),
        &uid.into(),
    ));
    eventually("the claim is gone", || {
        let claims = api.send(&request::list(CLAIMS, "", 500, ""));
        let claims = claims["items"].as_array().expect("a list").clone();
        claims
            .iter()
            .all(|claim| claim["metadata"]["name"] != name)
            .then_some(())
    });
}

/// The controller reports the missing template, the scheduler the waiting pod; both end when the template is created.
fn both_sides_report_a_missing_template(world: &World) {
    let api = &world.api;
    world.pod(
        "early",
        json!([{"name": "gpu", "resourceClaimTemplateName": "late"}]),
    );
    let condition = scheduled(&world.not_ready("early"));
    assert_eq!(
        condition["message"],
        "Waiting for a resource claim to be created from ResourceClaimTemplate \"late\""
    );
    let failed = eventually("the controller reports why", || {
        api.event("early", "FailedResourceClaimCreation")
    });
    let why = failed["message"].as_str().unwrap_or_default();
    assert!(
        why.contains("resourceclaimtemplate.resource.k8s.io \"late\" not found"),
        "{why}"
    );
    world.create(TEMPLATES, &template("late"));
    world.tried("early");
}

/// The output for a user.
fn kubectl_shows_claims_and_who_waits(world: &World) {
    let Some(kubectl) = Kubectl::find(&world.cluster) else {
        return;
    };
    world.pod(
        "seen",
        json!([{"name": "gpu", "resourceClaimName": "unseen"}]),
    );
    world.not_ready("seen");
    let why = "Waiting for resource claim \"unseen\" to be present";
    let described = eventually("it is described", || {
        let text = kubectl.ok(&["describe", "pod", "seen"]);
        let events = text.split_once("Events:")?.1;
        (events.contains(NOT_READY) && events.contains(why)).then_some(text)
    });
    assert!(described.contains("unseen"), "{described}");
    let claims = kubectl.ok(&["get", "resourceclaims"]);
    let header: Vec<&str> = claims
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    assert_eq!(header, ["NAME", "STATE", "AGE"], "{claims}");
    let mine = claims
        .lines()
        .find(|line| line.starts_with("mine "))
        .unwrap_or_default();
    assert!(mine.contains("pending"), "{claims}");
    for resource in ["resourceclaimtemplates", "deviceclasses"] {
        let listed = kubectl.ok(&["get", resource, "-o", "name"]);
        assert!(!listed.is_empty(), "{resource}");
    }
    let refused = kubectl.fails(&[
        "patch",
        "resourceclaim",
        "mine",
        "--type=merge",
        "-p",
        r#"{"spec":{"devices":null}}"#,
    ]);
    assert!(refused.contains("immutable"), "{refused}");
}
