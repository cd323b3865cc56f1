//! The controllers and simulated kubelets on the real API, in virtual time, with manifests.

mod at_rest;

use super::runtime::WallClock;
use super::testing::{eventually, pass};
use super::{ControllerOptions, Handle, spawn};
use crate::kubelet;
use berth_apiserver::{RunningServer, Server, ServerOptions};
use berth_objects::access::{
    Access, AccessError, DeleteOptions, GroupResource, Propagation, StoredObject,
};
use berth_objects::object::{
    CONFIG_MAP, DEPLOYMENT, EVENT, LEASE, NAMESPACE, NODE, POD, REPLICA_SET, RESOURCE_QUOTA,
    SERVICE_ACCOUNT, condition, condition_is_true, is_deleting, items, name, set,
};
use serde_json::{Value, json};
use std::sync::Arc;

struct World {
    server: RunningServer,
    api: Arc<dyn Access>,
    controllers: Handle,
    kubelets: Handle,
}

impl World {
    async fn new(nodes: usize) -> Self {
        let clock = WallClock::virtual_from("2026-01-01T00:00:00Z".parse().unwrap());
        let of_server = clock.clone();
        let now = Arc::new(move || of_server.now());
        let server = Server::start_with_clock(ServerOptions::default(), now)
            .await
            .unwrap();
        let api = server.api("test");
        let options = ControllerOptions {
            root_ca: Some(server.ca_pem().to_owned()),
            clock: clock.clone(),
            ..ControllerOptions::default()
        };
        let controllers = spawn(api.clone(), options);
        let options = kubelet::KubeletOptions {
            nodes,
            clock,
            ..kubelet::KubeletOptions::default()
        };
        let kubelets = kubelet::spawn(api.clone(), options).await.unwrap();
        Self {
            server,
            api,
            controllers,
            kubelets,
        }
    }

    async fn stop(self) {
        self.kubelets.stop().await;
        self.controllers.stop().await;
        self.server.shutdown().await;
    }

    /// A deployment whose pods are bound to a node without a scheduler.
    fn deploy(&self, namespace: &str, replicas: u32) {
        let deployment = json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web", "namespace": namespace},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"nodeName": "berth-node-1",
                             "containers": [{"name": "c", "image": "registry.example/web:1"}]},
                },
            },
        });
        self.api.create(DEPLOYMENT.resource, deployment).unwrap();
    }

    fn edit(&self, kind: GroupResource, namespace: &str, name: &str, change: impl Fn(&mut Value)) {
        loop {
            let mut object = (*self.api.get(kind, namespace, name).unwrap()).clone();
            change(&mut object);
            match self.api.update(kind, object) {
                Err(error) if error.is_conflict() => {}
                other => {
                    other.unwrap();
                    return;
                }
            }
        }
    }

    fn delete(&self, kind: GroupResource, namespace: &str, name: &str, propagation: Propagation) {
        let options = DeleteOptions {
            propagation,
            ..DeleteOptions::default()
        };
        self.api.delete(kind, namespace, name, &options).unwrap();
    }

    fn pods(&self, namespace: &str) -> Vec<StoredObject> {
        self.api.list(POD.resource, Some(namespace))
    }

    fn sets(&self, namespace: &str) -> Vec<StoredObject> {
        self.api.list(REPLICA_SET.resource, Some(namespace))
    }

    fn deployment(&self) -> Result<StoredObject, AccessError> {
        self.api.get(DEPLOYMENT.resource, "default", "web")
    }

    /// The condition of `kubectl rollout status`, and that no other pod is left.
    async fn until_rolled_out(&self, image: &str, replicas: usize) {
        eventually(image, || {
            let Ok(deployment) = self.deployment() else {
                return false;
            };
            let status = &deployment["status"];
            let pods = self.pods("default");
            status["observedGeneration"] == deployment["metadata"]["generation"]
                && [
                    "replicas",
                    "updatedReplicas",
                    "readyReplicas",
                    "availableReplicas",
                ]
                .iter()
                .all(|f| status[*f] == replicas)
                && status["unavailableReplicas"].is_null()
                && condition_is_true(status, "Available")
                && condition(status, "Progressing")
                    .is_some_and(|c| c["reason"] == "NewReplicaSetAvailable")
                && pods.len() == replicas
                && pods
                    .iter()
                    .all(|p| items(&p["spec"]["containers"])[0]["image"] == image)
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_deployment_of_thirty_lives_from_creation_to_cascading_deletion() {
    let world = World::new(3).await;
    world.deploy("default", 30);
    world.until_rolled_out("registry.example/web:1", 30).await;
    let pods = world.pods("default");
    assert!(
        pods.iter()
            .all(|p| condition_is_true(&p["status"], "Ready"))
    );
    let mut addresses: Vec<_> = pods
        .iter()
        .map(|p| p["status"]["podIP"].to_string())
        .collect();
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), 30);

    world.edit(DEPLOYMENT.resource, "default", "web", |d| {
        d["spec"]["replicas"] = 12.into()
    });
    world.until_rolled_out("registry.example/web:1", 12).await;

    let image = "registry.example/web:2";
    world.edit(DEPLOYMENT.resource, "default", "web", |d| {
        d["spec"]["template"]["spec"]["containers"][0]["image"] = image.into();
    });
    world.until_rolled_out(image, 12).await;
    assert_eq!(world.sets("default").len(), 2);

    // The cluster is at rest: no version changes, except for the kubelets' leases.
    pass(30.0).await;
    let versions = || -> Vec<String> {
        [DEPLOYMENT, REPLICA_SET, POD, NODE, EVENT, NAMESPACE]
            .iter()
            .flat_map(|k| world.api.list(k.resource, None))
            .map(|o| o["metadata"]["resourceVersion"].to_string())
            .collect()
    };
    let before = versions();
    pass(60.0).await;
    assert_eq!(versions(), before, "controllers write without need");

    world.delete(
        DEPLOYMENT.resource,
        "default",
        "web",
        Propagation::Background,
    );
    eventually("nothing is left", || {
        world.pods("default").is_empty() && world.sets("default").is_empty()
    })
    .await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn foreground_and_orphaning_deletion_work_on_the_real_api() {
    let world = World::new(1).await;
    world.deploy("default", 3);
    world.until_rolled_out("registry.example/web:1", 3).await;
    world.delete(DEPLOYMENT.resource, "default", "web", Propagation::Orphan);
    eventually("the deployment is gone", || world.deployment().is_err()).await;
    pass(10.0).await;
    assert_eq!(
        (world.sets("default").len(), world.pods("default").len()),
        (1, 3)
    );
    // A new deployment with the same selector takes them over.
    world.deploy("default", 3);
    world.until_rolled_out("registry.example/web:1", 3).await;
    assert_eq!(world.sets("default").len(), 1);
    world.delete(
        DEPLOYMENT.resource,
        "default",
        "web",
        Propagation::Foreground,
    );
    assert!(world.deployment().is_ok_and(|d| is_deleting(&d)));
    eventually("all is gone", || {
        world.deployment().is_err()
            && world.sets("default").is_empty()
            && world.pods("default").is_empty()
    })
    .await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_is_furnished_when_it_comes_and_emptied_when_it_goes() {
    let world = World::new(1).await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}});
    world.api.create(NAMESPACE.resource, namespace).unwrap();
    eventually("it is furnished", || {
        world
            .api
            .get(SERVICE_ACCOUNT.resource, "team", "default")
            .is_ok()
            && world
                .api
                .get(CONFIG_MAP.resource, "team", "kube-root-ca.crt")
                .is_ok_and(|m| m["data"]["ca.crt"] == world.server.ca_pem())
    })
    .await;
    world.deploy("team", 5);
    let all_run = || {
        let pods = world.pods("team");
        pods.len() == 5 && pods.iter().all(|p| p["status"]["phase"] == "Running")
    };
    eventually("pods run", all_run).await;
    world.delete(NAMESPACE.resource, "", "team", Propagation::Background);
    eventually("it is gone", || {
        world.api.get(NAMESPACE.resource, "", "team").is_err()
    })
    .await;
    for kind in world.api.kinds().iter().filter(|k| k.namespaced) {
        let left = world.api.list(kind.resource, Some("team"));
        assert!(left.is_empty(), "{}: {left:?}", kind.resource.resource);
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn gated_and_unbound_pods_are_left_alone() {
    let world = World::new(1).await;
    for (name, gates) in [
        ("gated", json!([{"name": "example.com/gate"}])),
        ("unbound", json!([])),
    ] {
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"schedulingGates": gates, "containers": [{"name": "c", "image": "i"}]}});
        world.api.create(POD.resource, pod).unwrap();
    }
    let before = world.pods("default");
    pass(600.0).await;
    assert_eq!(world.pods("default"), before);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_node_takes_its_lease_and_pods_along() {
    let world = World::new(2).await;
    world.deploy("default", 2);
    world.until_rolled_out("registry.example/web:1", 2).await;
    world.delete(NODE.resource, "", "berth-node-1", Propagation::Background);
    eventually("the lease is gone", || {
        world
            .api
            .get(LEASE.resource, "kube-node-lease", "berth-node-1")
            .is_err()
    })
    .await;
    world.edit(DEPLOYMENT.resource, "default", "web", |d| {
        set(
            d,
            &["spec", "template", "spec", "nodeName"],
            "berth-node-2".into(),
        );
    });
    eventually("the pods are made anew elsewhere", || {
        let pods = world.pods("default");
        pods.len() == 2 && pods.iter().all(|p| p["spec"]["nodeName"] == "berth-node-2")
    })
    .await;
    let kept: Vec<String> = world
        .api
        .list(NODE.resource, None)
        .iter()
        .map(|n| name(n).to_owned())
        .collect();
    assert_eq!(kept, ["berth-node-2"]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn quotas_are_counted_and_bound_what_controllers_create() {
    let world = World::new(1).await;
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "default"},
        "spec": {"hard": {"pods": "3", "count/deployments.apps": "5", "configmaps": "10"}}});
    world.api.create(RESOURCE_QUOTA.resource, quota).unwrap();
    let used = |name: &str| {
        let quota = world
            .api
            .get(RESOURCE_QUOTA.resource, "default", "q")
            .unwrap();
        quota["status"]["used"][name].clone()
    };
    // The namespace has `kube-root-ca.crt` already.
    eventually("the quota is counted", || used("configmaps") == "1").await;
    assert_eq!(used("pods"), "0");
    world.deploy("default", 5);
    let failed = || {
        let sets = world.api.list(REPLICA_SET.resource, Some("default"));
        let set = sets.first()?;
        let failure = condition(&set["status"], "ReplicaFailure")?;
        Some(failure["message"].as_str()?.to_owned())
    };
    eventually("the set fails to create its fourth pod", || {
        failed().is_some()
    })
    .await;
    let message = failed().unwrap();
    assert!(
        message.ends_with(
            "is forbidden: exceeded quota: q, requested: pods=1, used: pods=3, limited: pods=3"
        ),
        "{message}"
    );
    assert_eq!(world.pods("default").len(), 3);
    assert_eq!(
        (used("pods"), used("count/deployments.apps")),
        ("3".into(), "1".into())
    );
    world.edit(DEPLOYMENT.resource, "default", "web", |d| {
        set(d, &["spec", "replicas"], 1.into());
    });
    eventually("deleted pods are not counted", || used("pods") == "1").await;
    world.stop().await;
}

/// A job whose pods need no scheduler.
fn job(name: &str, command: Value, spec: Value) -> Value {
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"template": {"spec": {"nodeName": "berth-node-1", "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "busybox", "command": command}]}}},
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        job["spec"][field] = value.clone();
    }
    job
}

#[tokio::test(start_paused = true)]
async fn jobs_end_as_the_commands_of_their_containers_state() {
    let world = World::new(1).await;
    let on_exit = |action: &str, code: i32| {
        json!({"backoffLimit": 1, "podFailurePolicy": {"rules": [{"action": action,
            "onExitCodes": {"operator": "In", "values": [code]}}]}})
    };
    let first_succeeds = json!({"completionMode": "Indexed", "completions": 2, "parallelism": 2,
        "successPolicy": {"rules": [{"succeededCount": 1}]}});
    for (name, command, spec, condition_type, reason) in [
        (
            "succeeds",
            json!(["sleep", "2"]),
            json!({}),
            "Complete",
            "CompletionsReached",
        ),
        (
            "fails",
            json!(["sh", "-c", "sleep 1; exit 3"]),
            json!({"backoffLimit": 1}),
            "Failed",
            "BackoffLimitExceeded",
        ),
        (
            "gives-up",
            json!(["sh", "-c", "exit 42"]),
            on_exit("FailJob", 42),
            "Failed",
            "PodFailurePolicy",
        ),
        (
            "one-is-enough",
            json!(["true"]),
            first_succeeds,
            "Complete",
            "SuccessPolicy",
        ),
    ] {
        let kind = berth_objects::object::JOB.resource;
        world.api.create(kind, job(name, command, spec)).unwrap();
        eventually(name, || {
            let job = world.api.get(kind, "default", name).unwrap();
            condition(&job["status"], condition_type)
                .is_some_and(|c| c["status"] == "True" && c["reason"] == reason)
        })
        .await;
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn quotas_count_custom_resources_that_come_and_go() {
    let world = World::new(1).await;
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]},
    });
    let definitions =
        berth_objects::access::gr("apiextensions.k8s.io", "customresourcedefinitions");
    world.api.create(definitions, definition).unwrap();
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "default"},
        "spec": {"hard": {"count/things.example.com": "3"}}});
    world.api.create(RESOURCE_QUOTA.resource, quota).unwrap();
    let things = berth_objects::access::gr("example.com", "things");
    eventually("the kind is served", || {
        world.api.kinds().iter().any(|k| k.resource == things)
    })
    .await;
    let used = || {
        let quota = world
            .api
            .get(RESOURCE_QUOTA.resource, "default", "q")
            .unwrap();
        quota["status"]["used"]["count/things.example.com"].clone()
    };
    // The quota is older than the kind that it counts.
    eventually("none is counted", || used() == "0").await;
    for name in ["a", "b"] {
        let thing = json!({"apiVersion": "example.com/v1", "kind": "Thing",
            "metadata": {"name": name, "namespace": "default"}});
        world.api.create(things, thing).unwrap();
    }
    eventually("both are counted", || used() == "2").await;
    world.delete(things, "default", "a", Propagation::Background);
    eventually("one is left", || used() == "1").await;
    world.stop().await;
}
