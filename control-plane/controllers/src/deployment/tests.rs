//! The Deployment controller with the ReplicaSet controller and instant kubelets: rollouts from start to end.

use super::*;
use crate::replicaset::ReplicaSets;
use crate::runtime::Handle;
use crate::testing::{Fake, eventually, pass};
use berth_objects::access::{Access, StoredObject};
use berth_objects::object::{EVENT, annotation, condition, items, name, seconds};
use serde_json::{Value, json};
use std::sync::Arc;

struct World {
    api: Arc<Fake>,
    handle: Handle,
    /// The delay until pods become ready, if they do.
    becomes_ready: bool,
}

impl World {
    fn new() -> Self {
        let api = Fake::new();
        let mut handle = Handle::new();
        handle.start(ReplicaSets::new(REPLICA_SET), api.clone(), api.clock());
        handle.start(Deployments::default(), api.clone(), api.clock());
        Self {
            api,
            handle,
            becomes_ready: true,
        }
    }

    fn create(&self, replicas: u32, strategy: Value) {
        let deployment = json!({
            "metadata": {"name": "web", "namespace": "n"},
            "spec": {"replicas": replicas, "strategy": strategy, "revisionHistoryLimit": 2,
                     "progressDeadlineSeconds": 600, "selector": {"matchLabels": {"app": "web"}},
                     "template": {"metadata": {"labels": {"app": "web"}},
                                  "spec": {"containers": [{"name": "c", "image": "web:1"}]}}},
        });
        self.api.create(DEPLOYMENT.resource, deployment).unwrap();
    }

    fn edit(&self, change: impl Fn(&mut Value)) {
        self.api.edit(DEPLOYMENT.resource, ("n", "web"), |d| {
            change(&mut d["spec"])
        });
    }

    fn roll_to(&self, image: &str) {
        self.edit(|s| s["template"]["spec"]["containers"][0]["image"] = image.into());
    }

    fn deployment(&self) -> StoredObject {
        self.api.get(DEPLOYMENT.resource, "n", "web").unwrap()
    }

    fn sets(&self) -> Vec<StoredObject> {
        self.api.list(REPLICA_SET.resource, Some("n"))
    }

    fn pods(&self) -> Vec<StoredObject> {
        self.api.list(POD.resource, Some("n"))
    }

    /// The images of the pods that are not being deleted, with how many there are.
    fn images(&self) -> std::collections::BTreeMap<String, usize> {
        let mut images = std::collections::BTreeMap::new();
        for pod in self.pods().iter().filter(|p| !is_deleting(p)) {
            let image = items(&pod["spec"]["containers"])[0]["image"]
                .as_str()
                .unwrap();
            *images.entry(image.to_owned()).or_default() += 1;
        }
        images
    }

    fn progress(&self) -> (String, String) {
        let deployment = self.deployment();
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        condition(&deployment["status"], "Progressing")
            .map(|c| (text(&c["reason"]), text(&c["message"])))
            .unwrap_or_default()
    }

    fn messages(&self) -> Vec<String> {
        let mut events: Vec<_> = self
            .api
            .list(EVENT.resource, Some("n"))
            .into_iter()
            .filter(|e| e["reason"] == "ScalingReplicaSet")
            .collect();
        events.sort_by_key(|e| {
            e["metadata"]["resourceVersion"]
                .as_str()
                .unwrap()
                .parse::<u64>()
                .unwrap()
        });
        events
            .iter()
            .map(|e| e["message"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Readies pods that are not, a hundred milliseconds later each round, until `done` or ten minutes.
    async fn until(&self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        for _ in 0..6000 {
            if done(self) {
                return;
            }
            pass(0.1).await;
            let now = seconds(self.api.clock().now());
            for pod in self
                .pods()
                .iter()
                .filter(|p| self.becomes_ready && !pod::is_ready(p))
            {
                self.api.edit_status(POD.resource, ("n", name(pod)), |p| {
                    p["status"] = json!({"phase": "Running", "conditions": [{"type": "Ready",
                        "status": "True", "lastTransitionTime": now}]});
                });
            }
        }
        panic!(
            "{what}: not within ten minutes; {:#}",
            self.deployment()["status"]
        );
    }

    async fn until_complete(&self, what: &str) {
        // The condition of `kubectl rollout status`.
        self.until(what, |w| {
            let d = w.deployment();
            let (spec, status) = (&d["spec"], &d["status"]);
            let zero = json!(0);
            let number = |v: &Value| if v.is_null() { zero.clone() } else { v.clone() };
            status["observedGeneration"] == d["metadata"]["generation"]
                && number(&status["updatedReplicas"]) == spec["replicas"]
                && number(&status["replicas"]) == spec["replicas"]
                && number(&status["availableReplicas"]) == spec["replicas"]
                && w.progress().0 == "NewReplicaSetAvailable"
        })
        .await;
    }
}

fn rolling(surge: Value, unavailable: Value) -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}})
}

#[tokio::test(start_paused = true)]
async fn thirty_replicas_are_created_scaled_rolled_and_rolled_back() {
    let world = World::new();
    world.create(30, rolling(json!("25%"), json!("25%")));
    world.until_complete("created").await;
    let set = &world.sets()[0];
    let hash = set["metadata"]["labels"]["pod-template-hash"]
        .as_str()
        .unwrap();
    assert_eq!(name(set), format!("web-{hash}"));
    assert_eq!(
        set["spec"]["selector"]["matchLabels"]["pod-template-hash"],
        hash
    );
    assert_eq!(world.pods().len(), 30);
    assert!(
        world
            .pods()
            .iter()
            .all(|p| p["metadata"]["labels"]["pod-template-hash"] == hash)
    );
    assert_eq!(
        world.progress().1,
        format!("ReplicaSet \"web-{hash}\" has successfully progressed.")
    );
    assert_eq!(
        world.messages(),
        [format!("Scaled up replica set web-{hash} from 0 to 30")]
    );
    assert_eq!(
        annotation(&world.deployment(), "deployment.kubernetes.io/revision"),
        Some("1")
    );

    world.edit(|s| s["replicas"] = 10.into());
    world.until_complete("scaled").await;
    assert_eq!(
        world.messages()[1],
        format!("Scaled down replica set web-{hash} from 30 to 10")
    );

    // Never more than 10 + 3 pods, never fewer than 10 - 2 available.
    world.roll_to("web:2");
    let mut bounds_kept = true;
    world
        .until("rolled", |w| {
            let pods: Vec<_> = w.pods().into_iter().filter(|p| !is_deleting(p)).collect();
            let ready = pods.iter().filter(|p| pod::is_ready(p)).count();
            bounds_kept &= pods.len() <= 13 && ready >= 8;
            w.images() == [("web:2".to_owned(), 10)].into()
                && w.progress().0 == "NewReplicaSetAvailable"
        })
        .await;
    assert!(bounds_kept);
    assert_eq!(
        annotation(&world.deployment(), "deployment.kubernetes.io/revision"),
        Some("2")
    );

    // As `kubectl rollout undo`: the old template again, which brings back its replica set as revision 3.
    world.roll_to("web:1");
    world
        .until("rolled back", |w| {
            w.images() == [("web:1".to_owned(), 10)].into()
        })
        .await;
    world.until_complete("rolled back").await;
    assert_eq!(world.sets().len(), 2);
    let back = world
        .sets()
        .into_iter()
        .find(|s| name(s) == format!("web-{hash}"))
        .unwrap();
    assert_eq!(
        annotation(&back, "deployment.kubernetes.io/revision"),
        Some("3")
    );
    assert_eq!(
        annotation(&back, "deployment.kubernetes.io/revision-history"),
        Some("1")
    );

    // The history keeps two old replica sets.
    for image in ["web:3", "web:4", "web:5"] {
        world.roll_to(image);
        world
            .until(image, |w| w.images() == [(image.to_owned(), 10)].into())
            .await;
        world.until_complete(image).await;
    }
    world.until("cleaned up", |w| w.sets().len() == 3).await;
    world.handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn recreate_starts_new_pods_after_the_last_old_one_is_deleted() {
    let world = World::new();
    world.create(3, json!({"type": "Recreate"}));
    world.until_complete("created").await;
    // A finalizer delays the deletion of an old pod.
    let held = world.pods()[0].clone();
    world.api.edit(POD.resource, ("n", name(&held)), |p| {
        p["metadata"]["finalizers"] = json!(["test/hold"]);
    });
    world.roll_to("web:2");
    world
        .until("the others are gone", |w| w.pods().len() == 1)
        .await;
    pass(60.0).await;
    assert_eq!(
        world.pods().len(),
        1,
        "no new pod while an old one is there"
    );
    world.api.edit(POD.resource, ("n", name(&held)), |p| {
        p["metadata"]["finalizers"] = json!([])
    });
    world
        .until("recreated", |w| {
            w.images() == [("web:2".to_owned(), 3)].into()
        })
        .await;
    world.until_complete("recreated").await;
    world.handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_deployment_is_scaled_but_not_rolled() {
    let world = World::new();
    world.create(4, rolling(json!(1), json!(0)));
    world.until_complete("created").await;
    world.edit(|s| s["paused"] = true.into());
    world
        .until("paused", |w| w.progress().0 == "DeploymentPaused")
        .await;
    world.roll_to("web:2");
    world.edit(|s| s["replicas"] = 6.into());
    world
        .until("scaled", |w| w.images() == [("web:1".to_owned(), 6)].into())
        .await;
    pass(30.0).await;
    assert_eq!(world.sets().len(), 1);
    world.edit(|s| s["paused"] = false.into());
    world
        .until("rolled", |w| w.images() == [("web:2".to_owned(), 6)].into())
        .await;
    world.until_complete("rolled").await;
    world.handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn scaling_in_the_middle_of_a_rollout_keeps_the_proportion() {
    let mut world = World::new();
    world.create(10, rolling(json!(3), json!(2)));
    world.until_complete("created").await;
    world.becomes_ready = false;
    world.roll_to("web:2");
    // 8 old pods stay available, 5 new pods fill up to 13.
    let half = [("web:1".to_owned(), 8), ("web:2".to_owned(), 5)].into();
    world.until("half way", |w| w.images() == half).await;
    pass(5.0).await;
    // 15 + 3 = 18 allowed: 8 · 18/13 = 11, 5 · 18/13 = 7.
    world.edit(|s| s["replicas"] = 15.into());
    let scaled = [("web:1".to_owned(), 11), ("web:2".to_owned(), 7)].into();
    world.until("scaled", |w| w.images() == scaled).await;
    world.becomes_ready = true;
    world
        .until("rolled", |w| {
            w.images() == [("web:2".to_owned(), 15)].into()
        })
        .await;
    world.until_complete("rolled").await;
    world.handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_rollout_that_does_not_move_times_out_and_may_still_succeed() {
    let mut world = World::new();
    world.becomes_ready = false;
    world.create(2, rolling(json!(1), json!(0)));
    pass(590.0).await;
    assert_ne!(world.progress().0, "ProgressDeadlineExceeded");
    pass(20.0).await;
    let (reason, message) = world.progress();
    assert_eq!(reason, "ProgressDeadlineExceeded");
    assert!(
        message.ends_with("\" has timed out progressing."),
        "{message}"
    );
    let available = world.deployment()["status"]["conditions"]
        .as_array()
        .and_then(|c| c.iter().find(|c| c["type"] == "Available").cloned())
        .unwrap();
    assert_eq!(available["reason"], "MinimumReplicasUnavailable");
    world.becomes_ready = true;
    world.until_complete("late but well").await;
    world.handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_taken_name_leads_to_another_hash() {
    let world = World::new();
    let template = json!({"metadata": {"labels": {"app": "web"}},
                          "spec": {"containers": [{"name": "c", "image": "web:1"}]}});
    let taken = format!("web-{}", template::hash(&template, None));
    let stranger = json!({"metadata": {"name": taken, "namespace": "n"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "other"}}, "template": {}}});
    world.api.create(REPLICA_SET.resource, stranger).unwrap();
    world.create(2, rolling(json!(1), json!(0)));
    world.until_complete("created").await;
    assert_eq!(world.deployment()["status"]["collisionCount"], 1);
    assert_eq!(world.sets().len(), 2);
    world.handle.stop().await;
}

#[tokio::test(start_paused = true)]
async fn replica_sets_that_match_are_adopted() {
    let world = World::new();
    let template = json!({"metadata": {"labels": {"app": "web"}},
                          "spec": {"containers": [{"name": "c", "image": "web:1"}]}});
    let orphan = json!({"metadata": {"name": "old", "namespace": "n", "labels": {"app": "web"}},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template}});
    world.api.create(REPLICA_SET.resource, orphan).unwrap();
    eventually("two pods", || world.pods().len() == 2).await;
    world.create(2, rolling(json!(1), json!(0)));
    world.until_complete("adopted").await;
    assert_eq!(
        world.sets().len(),
        1,
        "the same template needs no other replica set"
    );
    assert_eq!(world.pods().len(), 2);
    world.handle.stop().await;
}

/// The number of runs of the Deployment controller.
fn runs(world: &World) -> u64 {
    let activity = world.handle.activity();
    let own = activity
        .iter()
        .find(|a| a.controller == Deployments::NAME)
        .expect("it runs");
    own.runs
}

#[tokio::test(start_paused = true)]
async fn a_rollout_that_ended_once_is_not_watched_for_its_deadline() {
    let world = World::new();
    world.create(2, Value::Null);
    world.edit(|s| s["progressDeadlineSeconds"] = 5.into());
    world.until_complete("the first rollout").await;
    // Replacements are refused, as by a quota, for longer than the deadline.
    world.api.set_fault(|verb, kind, _| {
        (verb == "create" && kind == POD.resource)
            .then(|| crate::testing::refused(403, "Forbidden", "exceeded quota: q"))
    });
    for pod in world.api.list(POD.resource, Some("n")) {
        let options = berth_objects::access::DeleteOptions::default();
        let deleted = world.api.delete(POD.resource, "n", name(&pod), &options);
        deleted.expect("it is deleted");
    }
    pass(60.0).await;
    let before = runs(&world);
    pass(3600.0).await;
    assert_eq!(runs(&world), before, "nothing changes");
    let progressing = condition(&world.deployment()["status"], "Progressing").cloned();
    assert_eq!(
        progressing.unwrap_or_default()["reason"],
        "NewReplicaSetAvailable"
    );
}
