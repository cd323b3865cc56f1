//! Clusters as lists of objects, some of them random, and the scheduler that checks them.

use berth_api::{Kind, Object, Pod, TaintEffect, Time, Toleration};
use berth_explain::answer::PodAnswer;
use berth_explain::what_if::{WhatIfWorld, key_of};
use berth_explain::{Edit, PodFacts, Snapshot, TriedChange, explain_pod};
use berth_framework::registry::Registry;
use berth_framework::testing::{PodBuilder, node, pod};
use berth_scheduler::{ClusterChange, CycleResult, ScheduleOutcome, Scheduler, SchedulerOptions};
use fastrand::Rng;

pub(crate) const NOW: Time = Time::from_secs(1_000);

/// Objects of a cluster. Pods are named after `metadata.name`, in namespace `default`.
#[derive(Clone, Default)]
pub(crate) struct Objects(pub(crate) Vec<Object>);

impl Objects {
    fn same(a: &Object, b: &Object) -> bool {
        let (of_a, of_b) = (a.metadata(), b.metadata());
        a.kind() == b.kind() && of_a.name == of_b.name && of_a.namespace == of_b.namespace
    }

    pub(crate) fn set(&mut self, object: Object) {
        self.0.retain(|other| !Self::same(other, &object));
        self.0.push(object);
    }

    pub(crate) fn edited(&self, edits: &[Edit]) -> Self {
        let mut objects = self.clone();
        for edit in edits {
            match edit {
                Edit::Set(object) => objects.set(object.clone()),
                Edit::Delete(pod) => {
                    let gone = Object::Pod(pod.clone());
                    objects.0.retain(|other| !Self::same(other, &gone));
                }
            }
        }
        objects
    }

    /// The cluster with a scheduler before its first attempt. Its calls are performed: victims of preemption are
    /// deleted.
    pub(crate) fn world(&self) -> WhatIfWorld {
        let options = SchedulerOptions {
            seed: 7,
            ..SchedulerOptions::default()
        };
        let objects = self.0.iter().map(|object| (key_of(object), object.clone()));
        let world = WhatIfWorld::new(options, &berth_plugins::in_tree(), objects.collect(), NOW);
        world.unwrap_or_else(|e| panic!("{e}"))
    }

    /// The cluster after changes; `None` if one of them does not apply to it.
    pub(crate) fn changed(&self, changes: &[TriedChange]) -> Option<Self> {
        let mut objects = self.clone();
        for change in changes {
            let world = objects.world();
            let facts = PodFacts::take(world.scheduler(), "default", "p").expect("the pod");
            let cluster = world.scheduler().cache().cluster();
            objects = objects.edited(&change.edits(cluster, facts.pod())?);
        }
        Some(objects)
    }

    /// The node of the pod `p` after changes and preemption.
    pub(crate) fn placed_after(&self, changes: &[TriedChange]) -> Option<String> {
        let mut world = self.changed(changes)?.world();
        world.run();
        world.node_of("default/p").map(ToString::to_string)
    }

    /// A scheduler with the cluster that has tried every waiting pod once. Returns the node of the pod `p`, if it has
    /// one.
    pub(crate) fn run(&self) -> (Scheduler, Option<String>) {
        self.run_with(&berth_plugins::in_tree())
    }

    /// The same with the default profile of these plugins.
    pub(crate) fn run_with(&self, plugins: &Registry) -> (Scheduler, Option<String>) {
        let options = SchedulerOptions {
            seed: 7,
            ..SchedulerOptions::default()
        };
        let mut scheduler = Scheduler::new(options, plugins, NOW).unwrap_or_else(|e| panic!("{e}"));
        let order = |object: &Object| match object.kind() {
            Kind::Pod => 2,
            Kind::Node => 1,
            _ => 0,
        };
        let mut objects = self.0.clone();
        objects.sort_by_key(order);
        for object in objects {
            scheduler.apply(ClusterChange::Applied(object), NOW);
        }
        let mut placed = None;
        for _ in 0..100 {
            match scheduler.schedule_one(NOW) {
                ScheduleOutcome::Done { pod, result } => {
                    if let (CycleResult::Placed { node }, true) = (result, pod.name == "p") {
                        placed = Some(node.to_string());
                    }
                }
                ScheduleOutcome::Idle { .. }
                | ScheduleOutcome::Parked(_)
                | ScheduleOutcome::Group { .. } => break,
            }
            scheduler.take_outputs(NOW);
        }
        (scheduler, placed)
    }
}

pub(crate) fn explain(scheduler: &Scheduler, name: &str) -> (PodAnswer, Snapshot, PodFacts) {
    let facts = PodFacts::take(scheduler, "default", name).expect("the pod is known");
    let mut snapshot = Snapshot::take(scheduler, NOW);
    let answer = explain_pod(&mut snapshot, &facts);
    (answer, Snapshot::take(scheduler, NOW), facts)
}

/// The features of a random cluster.
#[derive(Clone, Copy)]
pub(crate) struct Features {
    /// Terms that depend on other nodes: spread, affinity and anti-affinity to pods.
    pub(crate) domains: bool,
    pub(crate) volumes: bool,
    /// Resource claims.
    pub(crate) devices: bool,
    /// The pod may preempt others.
    pub(crate) preemption: bool,
}

impl Features {
    pub(crate) const NONE: Self = Self {
        domains: false,
        volumes: false,
        devices: false,
        preemption: false,
    };
}

pub(crate) fn random(rng: &mut Rng, features: Features) -> Objects {
    let mut objects = Objects::default();
    let nodes = rng.usize(1..=5);
    for at in 0..nodes {
        let name = format!("n{at}");
        let mut made = node(&name)
            .capacity(
                ["1", "2", "4"][rng.usize(..3)],
                ["1Gi", "2Gi"][rng.usize(..2)],
                "4",
            )
            .label("kubernetes.io/hostname", &name)
            .label("zone", ["a", "b", "c"][rng.usize(..3)])
            .unschedulable(rng.usize(..6) == 0);
        if rng.bool() {
            made = made.label("disk", ["ssd", "hdd"][rng.usize(..2)]);
        }
        for key in ["gpu", "team"] {
            if rng.usize(..4) == 0 {
                made = made.taint(key, "true", TaintEffect::NoSchedule);
            }
        }
        objects.set(made.object());
    }
    for at in 0..rng.usize(0..=nodes * 3) {
        let mut made = pod(&format!("b{at}"))
            .on(&format!("n{}", rng.usize(..nodes)))
            .priority(rng.i32(0..3))
            .label("app", ["web", "db"][rng.usize(..2)])
            .request("cpu", ["500m", "1"][rng.usize(..2)])
            .request("memory", ["256Mi", "512Mi"][rng.usize(..2)]);
        if rng.usize(..4) == 0 {
            made = made.host_port(8080);
        }
        if features.domains && rng.usize(..6) == 0 {
            let key = ["zone", "disk"][rng.usize(..2)];
            made = made.with(|pod| pod.spec.affinity = apart(key));
        }
        objects.set(made.phase("Running").object());
    }
    objects.set(waiting(rng, features).object());
    if features.volumes && rng.bool() {
        // The claim is missing, without a volume, waits for its first consumer, or is used by another pod.
        let claim = r#"{"metadata":{"name":"data","namespace":"default","uid":"u-data"},
            "spec":{"storageClassName":"manual","accessModes":["ReadWriteOnce"],
                    "resources":{"requests":{"storage":"1Gi"}}},"status":{"phase":"Pending"}}"#;
        let mode = ["Immediate", "WaitForFirstConsumer"][rng.usize(..2)];
        let class = format!(
            r#"{{"metadata":{{"name":"manual"}},"provisioner":"kubernetes.io/no-provisioner",
                "volumeBindingMode":"{mode}"}}"#
        );
        for (kind, json) in [
            (Kind::PersistentVolumeClaim, claim),
            (Kind::StorageClass, class.as_str()),
        ] {
            let decoded = kind.decode(json.as_bytes());
            objects.set(decoded.unwrap_or_else(|e| panic!("{e}")));
        }
        if rng.bool() {
            let edits = TriedChange::CreateClaim {
                name: "data".to_owned(),
            };
            let world = objects.world();
            let facts = PodFacts::take(world.scheduler(), "default", "p").expect("the pod");
            let cluster = world.scheduler().cache().cluster();
            let edits = edits.edits(cluster, facts.pod()).expect("a claim");
            objects = objects.edited(&edits);
            for object in &mut objects.0 {
                if let Object::PersistentVolumeClaim(claim) = object {
                    let claim = std::sync::Arc::make_mut(claim);
                    claim.spec.access_modes = vec!["ReadWriteOncePod".into()];
                }
            }
            let user = pod("user").on("n0").phase("Running");
            let volume = r#"{"spec":{"volumes":[{"name":"d","persistentVolumeClaim":{"claimName":"data"}}]}}"#;
            let volume: Pod = serde_json::from_str(volume).expect("a pod");
            let user = user.with(|pod| pod.spec.volumes = volume.spec.volumes.clone());
            objects.set(user.object());
        }
    }
    objects
}

/// Required anti-affinity to the pods of `app: web` in the same domain.
fn apart(topology_key: &str) -> Option<Box<berth_api::pod::Affinity>> {
    let spec = format!(
        r#"{{"spec":{{"affinity":{{"podAntiAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":[
            {{"topologyKey":"{topology_key}","labelSelector":{{"matchLabels":{{"app":"web"}}}}}}]}}}}}}}}"#
    );
    let decoded: Pod = serde_json::from_str(&spec).expect("a pod");
    decoded.spec.affinity.clone()
}

/// The waiting pod.
fn waiting(rng: &mut Rng, features: Features) -> PodBuilder {
    let mut made = pod("p")
        .priority(rng.i32(0..3))
        .label("app", ["web", "db"][rng.usize(..2)])
        .request("cpu", ["500m", "1500m", "3"][rng.usize(..3)])
        .request("memory", ["256Mi", "1536Mi"][rng.usize(..2)]);
    if !features.preemption {
        made = made.with(|pod| pod.spec.preemption_policy = Some("Never".into()));
    }
    if rng.usize(..3) == 0 {
        made = made.host_port(8080);
    }
    if rng.usize(..3) == 0 {
        made = made.toleration(Toleration {
            key: "gpu".into(),
            value: "true".into(),
            ..Toleration::default()
        });
    }
    let disk = rng.usize(..3) == 0;
    let kind = if features.domains { rng.usize(..5) } else { 9 };
    let volume = features.volumes && rng.bool();
    let (second_volume, device) = (rng.usize(..3) == 0, features.devices && rng.bool());
    let gate = rng.usize(..8) == 0;
    made.with(move |pod| {
        if gate {
            pod.spec.scheduling_gates.push(berth_api::pod::SchedulingGate {
                name: "example.com/gate".into(),
            });
        }
        if disk {
            pod.spec.node_selector = Some(berth_api::Labels::from_pairs([("disk", "ssd")]));
        }
        let spec = match kind {
            0 => r#"{"spec":{"topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"zone",
                "whenUnsatisfiable":"DoNotSchedule","labelSelector":{"matchLabels":{"app":"web"}}}]}}"#,
            1 => r#"{"spec":{"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[
                {"topologyKey":"zone","labelSelector":{"matchLabels":{"app":"db"}}}]}}}}"#,
            2 => r#"{"spec":{"affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[
                {"topologyKey":"zone","labelSelector":{"matchLabels":{"app":"web"}}}]}}}}"#,
            3 => r#"{"spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms":[{"matchExpressions":[{"key":"zone","operator":"In","values":["a"]}]}]}}}}}"#,
            _ => "{}",
        };
        let decoded: Pod = serde_json::from_str(spec).expect("a pod");
        pod.spec.affinity = decoded.spec.affinity.clone();
        pod.spec.topology_spread_constraints = decoded.spec.topology_spread_constraints.clone();
        if volume {
            let with_volume = r#"{"spec":{"volumes":[{"name":"d","persistentVolumeClaim":{"claimName":"data"}},
                {"name":"l","persistentVolumeClaim":{"claimName":"logs"}}]}}"#;
            let decoded: Pod = serde_json::from_str(with_volume).expect("a pod");
            pod.spec.volumes = decoded.spec.volumes.clone();
            pod.spec.volumes.truncate(1 + usize::from(second_volume));
        }
        if device {
            let with_claim = r#"{"spec":{"resourceClaims":[{"name":"gpu","resourceClaimName":"gpu"}]}}"#;
            let decoded: Pod = serde_json::from_str(with_claim).expect("a pod");
            pod.spec.resource_claims = decoded.spec.resource_claims.clone();
        }
    })
}
