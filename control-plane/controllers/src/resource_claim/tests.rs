//! The handling of pods and their claims, on an otherwise empty server.

use super::super::runtime::Handle;
use super::super::testing::{Fake, eventually, pass};
use super::*;
use berth_objects::access::{Access, DeleteOptions, StoredObject};
use berth_objects::object::{EVENT, annotation, has_finalizer, set, uid};
use berth_objects::pod::made_for;
use serde_json::json;
use std::sync::Arc;

struct Run {
    api: Arc<Fake>,
    handle: Handle,
}

fn run() -> Run {
    let api = Fake::new();
    let mut handle = Handle::new();
    handle.start(ResourceClaims, api.clone(), api.clock());
    Run { api, handle }
}

impl Run {
    fn create(&self, kind: ControllerKind, object: Value) -> StoredObject {
        let created = self.api.create(kind.resource, object);
        created.expect("it is accepted")
    }

    fn template(&self, name: &str) {
        let template = json!({
            "metadata": {"name": name, "namespace": "n"},
            "spec": {
                "metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}},
                "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
            },
        });
        self.create(RESOURCE_CLAIM_TEMPLATE, template);
    }

    fn pod(&self, name: &str, claims: Value) -> StoredObject {
        let spec = json!({"resourceClaims": claims});
        self.create(
            POD,
            json!({"metadata": {"name": name, "namespace": "n"}, "spec": spec}),
        )
    }

    fn get(&self, kind: ControllerKind, name: &str) -> Option<StoredObject> {
        self.api.get(kind.resource, "n", name).ok()
    }

    /// The claim that the pod's status names for an entry.
    fn claim_of(&self, pod: &str, entry: &str) -> Option<StoredObject> {
        let pod = self.get(POD, pod)?;
        self.get(RESOURCE_CLAIM, made_for(&pod, entry)??)
    }

    fn claims(&self) -> usize {
        self.api.list(RESOURCE_CLAIM.resource, None).len()
    }

    /// Gives a claim devices, as a scheduler does, for these pods.
    fn allocate(&self, claim: &str, pods: &[&str]) {
        let holders: Vec<Value> = pods
            .iter()
            .map(|name| {
                let pod = self.get(POD, name).expect("a pod");
                json!({"resource": "pods", "name": name, "uid": uid(&pod)})
            })
            .collect();
        self.api
            .edit(RESOURCE_CLAIM.resource, ("n", claim), |claim| {
                set(
                    claim,
                    &["metadata", "finalizers"],
                    json!([DELETE_PROTECTION]),
                );
            });
        self.api
            .edit_status(RESOURCE_CLAIM.resource, ("n", claim), |claim| {
                set(
                    claim,
                    &["status"],
                    json!({"allocation": {"devices": {}}, "reservedFor": holders, "devices": []}),
                );
            });
    }

    fn delete(&self, kind: ControllerKind, name: &str) {
        let options = DeleteOptions::default();
        let deleted = self.api.delete(kind.resource, "n", name, &options);
        deleted.expect("it is there");
    }

    fn events(&self) -> Vec<String> {
        let events = self.api.list(EVENT.resource, None);
        let text = |event: &StoredObject, field: &str| {
            event[field].as_str().unwrap_or_default().to_owned()
        };
        let events = events.iter();
        events
            .map(|event| format!("{} {}", text(event, "reason"), text(event, "message")))
            .collect()
    }
}

fn from_template(entry: &str, template: &str) -> Value {
    json!({"name": entry, "resourceClaimTemplateName": template})
}

fn by_name(claim: &str) -> Value {
    json!({"name": claim, "resourceClaimName": claim})
}

/// PL-155: a claim of the pod's own, as the template has it, and named in the status.
#[tokio::test(start_paused = true)]
async fn a_template_makes_a_claim_of_the_pods_own() {
    let run = run();
    run.template("gpu");
    run.pod(
        "p",
        json!([
            from_template("a", "gpu"),
            from_template("b", "gpu"),
            by_name("other")
        ]),
    );
    let has = |entry: &str| run.claim_of("p", entry).is_some();
    eventually("both are there", || has("a") && has("b")).await;
    let (pod, claim) = (
        run.get(POD, "p").expect("a pod"),
        run.claim_of("p", "a").expect("a claim"),
    );
    assert!(name(&claim).starts_with("p-a-"), "{claim}");
    assert_eq!(
        owning_pod(&claim),
        Some((ControllerKey::new("n", "p"), uid(&pod)))
    );
    assert_eq!(annotation(&claim, POD_CLAIM_NAME), Some("a"));
    assert_eq!(annotation(&claim, "note"), Some("b"));
    assert_eq!(claim["metadata"]["labels"], json!({"team": "a"}));
    let template = run.get(RESOURCE_CLAIM_TEMPLATE, "gpu").expect("a template");
    assert_eq!(claim["spec"], template["spec"]["spec"]);
    pass(60.0).await;
    assert_eq!(run.claims(), 2, "no more than that");
    assert_eq!(run.events(), [""; 0]);
    // A claim that is deleted is created again.
    let before = name(&claim).to_owned();
    run.delete(RESOURCE_CLAIM, &before);
    eventually("it is made anew", || {
        run.claim_of("p", "a")
            .is_some_and(|claim| name(&claim) != before)
    })
    .await;
    run.handle.stop().await;
}

/// An object whose creation could not be recorded is found again.
#[tokio::test(start_paused = true)]
async fn a_claim_is_not_made_twice() {
    let run = run();
    run.template("gpu");
    let mut failures = 3;
    run.api.set_fault(move |verb, kind, _| {
        let fails = verb == "update_status" && kind == POD.resource && failures > 0;
        failures -= u32::from(fails);
        fails
            .then(|| super::super::testing::refused(409, "Conflict", "another component was first"))
    });
    run.pod("p", json!([from_template("a", "gpu")]));
    eventually("it is linked", || run.claim_of("p", "a").is_some()).await;
    assert_eq!(run.claims(), 1);
    run.handle.stop().await;
}

/// An event on the pod names the missing template. The controller creates the claim as soon as the template exists.
#[tokio::test(start_paused = true)]
async fn a_missing_template_is_reported() {
    let run = run();
    run.pod("p", json!([from_template("a", "gpu")]));
    let why = "FailedResourceClaimCreation PodResourceClaim a: resource claim template \"gpu\": \
               resourceclaimtemplate.resource.k8s.io \"gpu\" not found";
    eventually("it is reported", || {
        run.events().iter().any(|event| event == why)
    })
    .await;
    run.template("gpu");
    eventually("it has its claim", || run.claim_of("p", "a").is_some()).await;
    run.handle.stop().await;
}

/// PL-156: pods that ended or were deleted lose their reservations. Devices without a reservation are free again.
#[tokio::test(start_paused = true)]
async fn a_claim_is_let_go_by_pods_that_need_it_no_more() {
    let run = run();
    run.create(
        RESOURCE_CLAIM,
        json!({"metadata": {"name": "shared", "namespace": "n"}}),
    );
    for name in ["ends", "goes", "runs"] {
        run.pod(name, json!([by_name("shared")]));
    }
    run.allocate("shared", &["ends", "goes", "runs"]);
    let claim = || {
        run.get(RESOURCE_CLAIM, "shared")
            .expect("the claim is there")
    };
    let holders = || {
        let claim = claim();
        let holders = items(&claim["status"]["reservedFor"]).iter();
        holders
            .map(|holder| holder["name"].as_str().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    pass(10.0).await;
    assert_eq!(holders(), ["ends", "goes", "runs"]);
    run.api.edit_status(POD.resource, ("n", "ends"), |pod| {
        set(pod, &["status", "phase"], "Succeeded".into())
    });
    run.delete(POD, "goes");
    eventually("they hold it no more", || holders() == ["runs"]).await;
    assert!(claim()["status"]["allocation"].is_object());
    run.delete(POD, "runs");
    eventually("the devices are free", || {
        claim()["status"]["allocation"].is_null()
    })
    .await;
    assert!(!has_finalizer(&claim(), DELETE_PROTECTION));
    assert_eq!(claim()["status"], json!({}));
    run.handle.stop().await;
}

/// A claim that is being deleted is removed when no pod reserves it. A generated claim is deleted when its pod has
/// ended.
#[tokio::test(start_paused = true)]
async fn claims_go_when_they_are_not_needed() {
    let run = run();
    run.template("gpu");
    run.create(
        RESOURCE_CLAIM,
        json!({"metadata": {"name": "shared", "namespace": "n"}}),
    );
    run.pod("p", json!([by_name("shared"), from_template("a", "gpu")]));
    eventually("it has its claim", || run.claim_of("p", "a").is_some()).await;
    run.allocate("shared", &["p"]);
    run.delete(RESOURCE_CLAIM, "shared");
    pass(10.0).await;
    assert!(run.get(RESOURCE_CLAIM, "shared").is_some(), "it is held");
    run.api.edit_status(POD.resource, ("n", "p"), |pod| {
        set(pod, &["status", "phase"], "Failed".into())
    });
    eventually("both are gone", || run.claims() == 0).await;
    run.handle.stop().await;
}

/// A pod that was placed on a node by hand holds its claims, too.
#[tokio::test(start_paused = true)]
async fn a_pod_placed_by_hand_holds_its_claims() {
    let run = run();
    run.create(
        RESOURCE_CLAIM,
        json!({"metadata": {"name": "shared", "namespace": "n"}}),
    );
    let pod = run.pod("p", json!([by_name("shared")]));
    run.allocate("shared", &[]);
    let holder =
        || run.get(RESOURCE_CLAIM, "shared").expect("a claim")["status"]["reservedFor"][0].clone();
    pass(10.0).await;
    assert_eq!(holder(), Value::Null, "that is for the scheduler");
    run.api.edit(POD.resource, ("n", "p"), |pod| {
        set(pod, &["spec", "nodeName"], "n1".into())
    });
    let expected = json!({"resource": "pods", "name": "p", "uid": uid(&pod)});
    eventually("it is held", || holder() == expected).await;
    run.handle.stop().await;
}

/// The pods of a group share a claim of the group: it is made once, owned and held by the group, and free when the
/// group was deleted, not when its pods were.
#[tokio::test(start_paused = true)]
async fn a_claim_of_a_group_is_made_once_for_all_its_pods() {
    let run = run();
    run.template("gpu");
    let group = run.create(
        POD_GROUP,
        json!({
            "metadata": {"name": "g", "namespace": "n"},
            "spec": {"resourceClaims": [from_template("a", "gpu")]},
        }),
    );
    let member = |name: &str| {
        let spec = json!({
            "schedulingGroup": {"podGroupName": "g"},
            "resourceClaims": [from_template("a", "gpu"), from_template("own", "gpu")],
        });
        run.create(
            POD,
            json!({"metadata": {"name": name, "namespace": "n"}, "spec": spec}),
        )
    };
    member("p");
    member("q");
    let has = |pod: &str, entry: &str| run.claim_of(pod, entry).is_some();
    eventually("both have both", || {
        ["p", "q"]
            .iter()
            .all(|pod| has(pod, "a") && has(pod, "own"))
    })
    .await;
    let shared = run.claim_of("p", "a").expect("a claim");
    assert_eq!(
        name(&shared),
        name(&run.claim_of("q", "a").expect("a claim"))
    );
    assert!(name(&shared).starts_with("g-a-"), "{shared}");
    let owner = controller_of(&shared).expect("an owner");
    assert_eq!(
        (&owner["kind"], owner["uid"].as_str()),
        (&json!("PodGroup"), Some(uid(&group)))
    );
    assert_eq!(run.claims(), 3, "the shared one, and one of each pod");
    let statuses = &run.get(POD_GROUP, "g").expect("a group")["status"]["resourceClaimStatuses"];
    assert_eq!(
        *statuses,
        json!([{"name": "a", "resourceClaimName": name(&shared)}])
    );
    // A pod that was bound without the scheduler reserves it for the group.
    let claim = name(&shared).to_owned();
    run.allocate(&claim, &[]);
    run.api.edit(POD.resource, ("n", "p"), |pod| {
        set(pod, &["spec", "nodeName"], "node".into());
    });
    let holders = || {
        run.get(RESOURCE_CLAIM, &claim)
            .map(|c| c["status"]["reservedFor"].clone())
    };
    let held = json!([{
        "apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": uid(&group),
    }]);
    eventually("the group holds it", || holders() == Some(held.clone())).await;
    run.delete(POD, "p");
    run.delete(POD, "q");
    pass(60.0).await;
    assert_eq!(holders(), Some(held));
    run.delete(POD_GROUP, "g");
    eventually("it is free", || holders() == Some(json!(null))).await;
    run.handle.stop().await;
}
