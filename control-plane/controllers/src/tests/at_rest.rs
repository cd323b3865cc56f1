//! A cluster at rest costs nothing, also if objects are stuck: the reconciles of each controller are counted in
//! clusters with every kind of wait for a condition that never holds.

use super::*;
use crate::runtime::Activity;
use berth_objects::object::{
    CLAIM, CRON_JOB, ControllerKind, DAEMON_SET, DISRUPTION_BUDGET, ENDPOINTS, JOB, SERVICE,
    STATEFUL_SET,
};
use std::collections::BTreeMap;

/// The observed time in seconds. Backoffs have reached their maximum at its start.
const WINDOW: f64 = 1200.0;
/// A key that fails again and again is worked on once a minute.
const RETRIES: u64 = 21;

/// Runs and wake-ups of each controller.
type Counts = BTreeMap<&'static str, (u64, u64)>;

fn counts(handles: [&Handle; 2]) -> Counts {
    let mut counts = Counts::new();
    let activities: Vec<Activity> = handles.iter().flat_map(|h| h.activity()).collect();
    for activity in activities {
        let count = counts.entry(activity.controller).or_default();
        count.0 += activity.runs;
        count.1 += activity.wakeups;
    }
    counts
}

impl World {
    /// The work of the controllers in that time.
    async fn observe(&self) -> Counts {
        let before = counts([&self.controllers, &self.kubelets]);
        pass(WINDOW).await;
        let mut after = counts([&self.controllers, &self.kubelets]);
        for (name, count) in &mut after {
            let old = before.get(name).copied().unwrap_or_default();
            *count = (count.0 - old.0, count.1 - old.1);
        }
        after
    }

    fn create(&self, kind: ControllerKind, namespace: &str, name: &str, spec: Value) {
        let object = kind.object(json!({
            "metadata": {"name": name, "namespace": namespace}, "spec": spec,
        }));
        let created = self.api.create(kind.resource, object);
        created.unwrap_or_else(|error| panic!("{} {name}: {error}", kind.kind));
    }

    fn namespace(&self, name: &str) {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.api.create(NAMESPACE.resource, namespace).unwrap();
    }

    /// One workload of each kind.
    fn workloads(&self, namespace: &str, spec: &Value) {
        let template = |policy: &str| {
            let mut spec = spec.clone();
            spec["restartPolicy"] = policy.into();
            json!({"metadata": {"labels": {"app": "a"}}, "spec": spec})
        };
        let selector = json!({"matchLabels": {"app": "a"}});
        let set = |more: Value| {
            let mut spec = json!({"selector": selector, "template": template("Always")});
            for (field, value) in more.as_object().into_iter().flatten() {
                spec[field] = value.clone();
            }
            spec
        };
        let progress = json!({"replicas": 2, "progressDeadlineSeconds": 5});
        self.create(DEPLOYMENT, namespace, "d", set(progress));
        let named = json!({"replicas": 2, "serviceName": "s"});
        self.create(STATEFUL_SET, namespace, "s", set(named));
        self.create(DAEMON_SET, namespace, "ds", set(json!({})));
        let job = json!({"template": template("Never")});
        self.create(JOB, namespace, "j", job.clone());
        let cron = json!({"schedule": "0 0 1 1 *", "jobTemplate": {"spec": job}});
        self.create(CRON_JOB, namespace, "c", cron);
    }
}

/// A pod that a simulated node runs.
fn plain() -> Value {
    json!({"nodeName": "berth-node-1", "containers": [{"name": "c", "image": "i:1"}]})
}

/// Each controller that does more than the table allows.
fn excess(what: &str, counts: &Counts, allowed: &[(&str, u64)]) -> Vec<String> {
    counts
        .iter()
        .filter_map(|(name, (runs, wakeups))| {
            let max = allowed.iter().find(|(n, _)| n == name).map_or(0, |a| a.1);
            (*runs > max)
                .then(|| format!("{what}: {name}: {runs} runs, {wakeups} wake-ups, allowed {max}"))
        })
        .collect()
}

fn check(what: &str, counts: &Counts, allowed: &[(&str, u64)]) {
    let excess = excess(what, counts, allowed);
    assert!(excess.is_empty(), "{excess:#?}");
}

/// The work of a cluster of two nodes in that time: heartbeats every 10 s, conditions every 5 minutes, and the checks
/// of both.
const RESTING: [(&str, u64); 2] = [("kubelet", 270), ("node-controller", 80)];

#[tokio::test(start_paused = true)]
async fn a_healthy_cluster_only_renews_its_leases() {
    let world = World::new(2).await;
    world.workloads("default", &plain());
    pass(WINDOW).await;
    check("healthy", &world.observe().await, &RESTING);
    world.stop().await;
}

/// The controllers that retry once a minute, with how many keys each.
fn retrying(keys: &[(&'static str, u64)]) -> Vec<(&'static str, u64)> {
    let mut allowed = RESTING.to_vec();
    for (name, keys) in keys {
        let retries = keys * RETRIES;
        match allowed.iter_mut().find(|(known, _)| known == name) {
            Some((_, max)) => *max += retries,
            None => allowed.push((name, retries)),
        }
    }
    allowed
}

#[tokio::test(start_paused = true)]
async fn stuck_clusters_are_at_rest() {
    let workloads = [
        ("replicaset-controller", 1),
        ("statefulset-controller", 1),
        ("daemonset-controller", 1),
        ("job-controller", 1),
    ];
    type Prepare = fn(&World);
    type Case<'a> = (&'a str, Prepare, Vec<(&'static str, u64)>);
    let of_workloads = |more: &[(&'static str, u64)]| {
        let mut keys = workloads.to_vec();
        keys.extend(more);
        retrying(&keys)
    };
    let cases: [Case<'_>; 8] = [
        (
            "a quota that is used up",
            |world| {
                let quota = json!({"hard": {"pods": "0"}});
                world.create(RESOURCE_QUOTA, "default", "q", quota);
                world.workloads("default", &plain());
            },
            of_workloads(&[("resourcequota-controller", 1)]),
        ),
        (
            "a policy that denies pods",
            |world| {
                deny(world, "pods", "CREATE");
                world.workloads("default", &plain());
            },
            of_workloads(&[]),
        ),
        (
            "an image that cannot be pulled",
            |world| {
                let mut spec = plain();
                spec["containers"][0]["image"] = "foo:non-existent".into();
                world.workloads("default", &spec);
            },
            RESTING.to_vec(),
        ),
        (
            "pods that are rejected by their node",
            |world| {
                let mut spec = plain();
                spec["containers"][0]["resources"] = json!({"requests": {"cpu": "1000"}});
                world.workloads("default", &spec);
            },
            // A new pod each minute, each with the steps of its life.
            retrying(&[
                ("replicaset-controller", 6),
                ("statefulset-controller", 2),
                ("daemonset-controller", 2),
                ("job-controller", 1),
                ("kubelet", 10),
                ("deployment-controller", 6),
                ("garbage-collector-controller", 6),
            ]),
        ),
        (
            "pods that no scheduler binds, and deadlines that are over",
            |world| {
                let mut spec = plain();
                spec.as_object_mut().unwrap().remove("nodeName");
                world.workloads("default", &spec);
                let mut job = json!({"template": {"spec": spec}, "activeDeadlineSeconds": 5});
                job["template"]["spec"]["restartPolicy"] = "Never".into();
                world.create(JOB, "default", "late", job);
            },
            RESTING.to_vec(),
        ),
        (
            "claims that are missing or wait for a volume",
            |world| {
                let mut spec = plain();
                spec["volumes"] =
                    json!([{"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}]);
                spec["resourceClaims"] =
                    json!([{"name": "r", "resourceClaimTemplateName": "none"}]);
                world.workloads("default", &spec);
                let claim = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "none",
                    "resources": {"requests": {"storage": "1Gi"}}});
                world.create(CLAIM, "default", "waits", claim.clone());
                let mut named = json!({"serviceName": "s", "replicas": 2, "podManagementPolicy": "Parallel",
                    "selector": {"matchLabels": {"app": "b"}},
                    "template": {"metadata": {"labels": {"app": "b"}}, "spec": plain()}});
                named["template"]["spec"]
                    .as_object_mut()
                    .unwrap()
                    .remove("nodeName");
                named["volumeClaimTemplates"] = json!([{"metadata": {"name": "v"}, "spec": claim}]);
                world.create(STATEFUL_SET, "default", "b", named);
            },
            // Each pod waits for the template of its claim.
            retrying(&[("resource_claim", 8)]),
        ),
        (
            "a node that was deleted and one that is silent",
            |world| {
                world.edit(NODE.resource, "", "berth-node-2", |node| {
                    node["metadata"]["annotations"] = json!({kubelet::NODE_READY: "Unknown"});
                });
                let mut spec = plain();
                spec["nodeName"] = "berth-node-2".into();
                spec["tolerations"] = json!([{"operator": "Exists"}]);
                world.workloads("default", &spec);
                let held = json!({"apiVersion": "v1", "kind": "Pod",
                    "metadata": {"name": "held", "namespace": "default", "finalizers": ["example.com/held"]},
                    "spec": plain()});
                world.api.create(POD.resource, held).unwrap();
                world.delete(NODE.resource, "", "berth-node-1", Propagation::Background);
            },
            RESTING.to_vec(),
        ),
        (
            "deletions that are denied or wait, and objects that need nothing",
            |world| {
                world.namespace("going");
                let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": "kept", "namespace": "going"}});
                world.api.create(CONFIG_MAP.resource, map).unwrap();
                deny(world, "configmaps", "DELETE");
                world.delete(NAMESPACE.resource, "", "going", Propagation::Background);
                world.namespace("held");
                let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": "kept", "namespace": "held", "finalizers": ["example.com/held"]}});
                world.api.create(CONFIG_MAP.resource, map).unwrap();
                world.delete(NAMESPACE.resource, "", "held", Propagation::Background);
                let budget =
                    json!({"maxUnavailable": 1, "selector": {"matchLabels": {"app": "a"}}});
                world.create(DISRUPTION_BUDGET, "default", "b", budget);
                let service = json!({"ports": [{"port": 80}]});
                world.create(SERVICE, "default", "bare", service);
                let endpoints = json!({"apiVersion": "v1", "kind": "Endpoints",
                    "metadata": {"name": "bare", "namespace": "default"},
                    "subsets": [{"addresses": [{"ip": "10.1.2.3"}], "ports": [{"port": 80}]}]});
                world.api.create(ENDPOINTS.resource, endpoints).unwrap();
            },
            // The contents of `held` are examined every 8 s.
            retrying(&[("namespace-controller", 10)]),
        ),
    ];
    let mut too_many = Vec::new();
    for (what, prepare, allowed) in cases {
        let world = World::new(2).await;
        prepare(&world);
        pass(WINDOW).await;
        too_many.extend(excess(what, &world.observe().await, &allowed));
        world.stop().await;
    }
    assert!(too_many.is_empty(), "{too_many:#?}");
}

/// Denies an operation on a resource in every namespace.
fn deny(world: &World, resource: &str, operation: &str) {
    let create = |resource: &str, kind: &str, object: Value| {
        let mut object = object;
        object["apiVersion"] = "admissionregistration.k8s.io/v1".into();
        object["kind"] = kind.into();
        let kind = berth_objects::access::gr(
            "admissionregistration.k8s.io",
            match resource {
                "policies" => "validatingadmissionpolicies",
                _ => "validatingadmissionpolicybindings",
            },
        );
        world.api.create(kind, object).unwrap();
    };
    create(
        "policies",
        "ValidatingAdmissionPolicy",
        json!({"metadata": {"name": "deny"}, "spec": {
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
                "operations": [operation], "resources": [resource]}]},
            "validations": [{"expression": "false", "message": "no"}]}}),
    );
    create(
        "bindings",
        "ValidatingAdmissionPolicyBinding",
        json!({"metadata": {"name": "deny"}, "spec": {"policyName": "deny", "validationActions": ["Deny"]}}),
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_with_many_definitions_is_at_rest() {
    let world = World::new(1).await;
    let definitions =
        berth_objects::access::gr("apiextensions.k8s.io", "customresourcedefinitions");
    let name = |i: usize| format!("things{i}");
    for i in 0..300 {
        let names = json!({"plural": name(i), "singular": format!("thing{i}"),
            "kind": format!("Thing{i}"), "listKind": format!("Thing{i}List")});
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{}.example.com", name(i))},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": names,
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}}}]},
        });
        world.api.create(definitions, definition).unwrap();
    }
    let served = |i: usize| {
        let kinds = world.api.kinds();
        kinds.iter().any(|k| k.resource.resource == name(i))
    };
    eventually("all are served", || (0..300).all(served)).await;
    pass(600.0).await;
    let counts = world.observe().await;
    check("definitions", &counts, &RESTING);
    let wakeups = |counts: &Counts| counts["garbage-collector-controller"].1;
    let resting = wakeups(&counts);
    // The watches of kinds that are no longer served end, too.
    for i in 0..150 {
        let definition = format!("{}.example.com", name(i));
        world.delete(definitions, "", &definition, Propagation::Background);
    }
    eventually("half of them are served", || !(0..150).any(served)).await;
    pass(60.0).await;
    let counts = world.observe().await;
    check("fewer definitions", &counts, &RESTING);
    assert!(
        wakeups(&counts) <= resting + 10,
        "{} wake-ups, {resting} before",
        wakeups(&counts)
    );
    world.stop().await;
}

/// A costly admission policy is evaluated when objects are written, not later.
#[tokio::test(start_paused = true)]
async fn a_server_with_a_costly_admission_policy_is_at_rest() {
    let world = World::new(1).await;
    let list: Vec<String> = (1..=20).map(|i| i.to_string()).collect();
    let list = list.join(",");
    let costly = ["c", "b", "a"].iter().fold(
        "object.metadata.name != 'none'".to_owned(),
        |inner, variable| format!("[{list}].all({variable}, {inner})"),
    );
    let validations: Vec<Value> = (0..4).map(|_| json!({"expression": costly})).collect();
    let write = |plural: &'static str, kind: &str, spec: Value| {
        let object = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "costly"},
            "spec": spec,
        });
        let resource = berth_objects::access::gr("admissionregistration.k8s.io", plural);
        world.api.create(resource, object).unwrap();
    };
    write(
        "validatingadmissionpolicies",
        "ValidatingAdmissionPolicy",
        json!({"validations": validations, "matchConstraints": {"resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"],
        }]}}),
    );
    write(
        "validatingadmissionpolicybindings",
        "ValidatingAdmissionPolicyBinding",
        json!({"policyName": "costly", "validationActions": ["Deny"]}),
    );
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "default"}});
    let maps = berth_objects::access::gr("", "configmaps");
    world.api.create(maps, map).unwrap();
    pass(600.0).await;
    check("a costly policy", &world.observe().await, &RESTING);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_rollout_that_ended_and_lost_its_pods_is_at_rest() {
    let world = World::new(1).await;
    world.deploy("default", 2);
    world.edit(DEPLOYMENT.resource, "default", "web", |d| {
        d["spec"]["progressDeadlineSeconds"] = 5.into()
    });
    world.until_rolled_out("registry.example/web:1", 2).await;
    world.create(
        RESOURCE_QUOTA,
        "default",
        "q",
        json!({"hard": {"pods": "1"}}),
    );
    pass(10.0).await;
    for pod in world.pods("default") {
        world.delete(POD.resource, "default", name(&pod), Propagation::Background);
    }
    pass(WINDOW).await;
    assert_eq!(world.pods("default").len(), 1);
    let allowed = retrying(&[
        ("replicaset-controller", 1),
        ("resourcequota-controller", 1),
    ]);
    check("quota after a rollout", &world.observe().await, &allowed);
    world.stop().await;
}
