//! Explanations are true: random clusters and pods, with the scheduler itself as the judge.
//!
//! Every failure names its seed; `BERTH_EXPLAIN_SEEDS` sets how many are run.

// A test reads its environment.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use berth_api::{Kind, Object, Pod, TaintEffect, Time, Toleration};
use berth_explain::answer::{PodAnswer, PodState, Remedy};
use berth_explain::what_if::{World, key_of};
use berth_explain::{
    Change, Edit, PodFacts, QueueFacts, Snapshot, explain_node, explain_pod, explain_queue,
};
use berth_framework::CallError;
use berth_framework::call::CallErrorKind;
use berth_framework::testing::{PodBuilder, node, pod};
use berth_scheduler::{ClusterChange, CycleResult, Outcome, Scheduler, SchedulerOptions};
use fastrand::Rng;
use std::collections::BTreeSet;

const NOW: Time = Time::from_secs(1_000);

fn seeds() -> u64 {
    let given = std::env::var("BERTH_EXPLAIN_SEEDS").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(400)
}

/// Objects of a cluster. Pods are named after `metadata.name`, in namespace `default`.
#[derive(Clone, Default)]
struct Objects(Vec<Object>);

impl Objects {
    fn same(a: &Object, b: &Object) -> bool {
        let (of_a, of_b) = (a.metadata(), b.metadata());
        a.kind() == b.kind() && of_a.name == of_b.name && of_a.namespace == of_b.namespace
    }

    fn set(&mut self, object: Object) {
        self.0.retain(|other| !Self::same(other, &object));
        self.0.push(object);
    }

    fn edited(&self, edits: &[Edit]) -> Self {
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

    /// The cluster with a scheduler, before it has tried a pod. Its calls are carried out: victims of preemption are
    /// deleted.
    fn world(&self) -> World {
        let options = SchedulerOptions {
            seed: 7,
            ..SchedulerOptions::default()
        };
        let objects = self.0.iter().map(|object| (key_of(object), object.clone()));
        let world = World::new(options, &berth_plugins::in_tree(), objects.collect(), NOW);
        world.unwrap_or_else(|e| panic!("{e}"))
    }

    /// The cluster after the changes of a remedy.
    fn remedied(&self, remedy: &Remedy) -> Self {
        let mut objects = self.clone();
        for change in &remedy.changes {
            let world = objects.world();
            let facts = PodFacts::take(world.scheduler(), "default", "p").expect("the pod");
            let cluster = world.scheduler().cache().cluster();
            let edits = change.edits(cluster, facts.pod());
            objects = objects.edited(&edits.unwrap_or_else(|| panic!("{change:?} has no effect")));
        }
        objects
    }

    /// A scheduler that knows the cluster and has tried every waiting pod once. Returns the node of the pod `p`, if it
    /// was given one.
    fn run(&self) -> (Scheduler, Option<String>) {
        let options = SchedulerOptions {
            seed: 7,
            ..SchedulerOptions::default()
        };
        let mut scheduler = Scheduler::new(options, &berth_plugins::in_tree(), NOW)
            .unwrap_or_else(|e| panic!("{e}"));
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
                Outcome::Done { pod, result } => {
                    if let (CycleResult::Placed { node }, true) = (result, pod.name == "p") {
                        placed = Some(node.to_string());
                    }
                }
                Outcome::Idle { .. } | Outcome::Parked(_) => break,
            }
            scheduler.take_outputs(NOW);
        }
        (scheduler, placed)
    }
}

fn explain(scheduler: &Scheduler, name: &str) -> (PodAnswer, Snapshot, PodFacts) {
    let facts = PodFacts::take(scheduler, "default", name).expect("the pod is known");
    let mut snapshot = Snapshot::take(scheduler, NOW);
    let answer = explain_pod(&mut snapshot, &facts);
    (answer, Snapshot::take(scheduler, NOW), facts)
}

/// What a random cluster may contain.
#[derive(Clone, Copy)]
struct Features {
    /// Terms that look at other nodes: spread, affinity and anti-affinity to pods.
    domains: bool,
    volumes: bool,
    /// Resource claims.
    devices: bool,
    /// The pod may preempt others.
    preemption: bool,
}

impl Features {
    const NONE: Self = Self {
        domains: false,
        volumes: false,
        devices: false,
        preemption: false,
    };
}

fn random(rng: &mut Rng, features: Features) -> Objects {
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
            let edits = Change::CreateClaim {
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

/// Each remedy, applied to the cluster, lets the pod be placed: on the node that is named, where one is. Preemption is
/// carried out.
#[test]
fn every_remedy_frees_the_pod() {
    let (mut proposed, mut pairs, mut pending, mut preempting) = (0, 0, 0, 0);
    let mut kinds = BTreeSet::new();
    for seed in 0..seeds() {
        let rng = &mut Rng::with_seed(seed);
        let features = Features {
            domains: rng.bool(),
            volumes: rng.usize(..3) == 0,
            devices: rng.usize(..6) == 0,
            preemption: rng.bool(),
        };
        let objects = random(rng, features);
        let mut world = objects.world();
        world.run();
        if world.node_of("default/p").is_some() {
            continue;
        }
        pending += 1;
        let facts = PodFacts::take(world.scheduler(), "default", "p").expect("the pod is known");
        let mut snapshot = Snapshot::take(world.scheduler(), world.now());
        let answer = explain_pod(&mut snapshot, &facts);
        let feasible = answer
            .verdict
            .as_ref()
            .map_or(0, |verdict| verdict.feasible);
        let is_gated = answer.state == PodState::Gated;
        assert!(feasible == 0 || is_gated, "seed {seed}: {answer:?}");
        for remedy in &answer.remedies {
            let mut world = objects.remedied(remedy).world();
            world.run();
            let Some(placed) = world.node_of("default/p") else {
                panic!(
                    "seed {seed}: {:?} does not free the pod: {answer:#?}",
                    remedy.text
                );
            };
            if let Some(node) = &remedy.node {
                assert_eq!(placed, node, "seed {seed}: {:?}", remedy.text);
            }
            proposed += 1;
            preempting += usize::from(!remedy.victims.is_empty());
            pairs += usize::from(remedy.changes.len() == 2);
            // No part of a pair is enough: the other one would be useless.
            if let [first, second] = &remedy.changes[..]
                && !first.is_new_node()
                && !second.is_new_node()
            {
                let only = |change: &Change| Remedy {
                    changes: vec![change.clone()],
                    ..Remedy::default()
                };
                let mut world = objects.remedied(&only(first)).world();
                world.run();
                let is_placed = world.node_of("default/p").is_some();
                // After the first change, the pod may preempt others. Then that is proposed, and comes first.
                // After the first change, the pod may preempt others.
                let text = &remedy.text;
                assert!(!is_placed || features.preemption, "seed {seed}: {text:?}");
            }
            for change in &remedy.changes {
                let debug = format!("{change:?}");
                kinds.insert(debug.split([' ', '{']).next().map(str::to_owned));
            }
        }
    }
    // A property over nothing proves nothing.
    assert!(
        pending >= 20 && proposed >= 40 && pairs >= 20 && preempting >= 3,
        "{pending} pending, {proposed} proposed, {pairs} pairs, {preempting} with preemption"
    );
    let names = [
        "AddNode",
        "CreateClaim",
        "CreateResourceClaim",
        "CreateVolume",
        "DeletePods",
        "LabelNode",
        "RaisePriority",
        "RemoveHostPorts",
        "RemoveNodeAffinity",
        "RemoveNodeSelector",
        "RemovePodAffinity",
        "RemovePodAntiAffinity",
        "RemoveSchedulingGates",
        "RemoveTaint",
        "RelaxSpread",
        "RequestLess",
        "Tolerate",
        "Uncordon",
    ];
    let missing = names
        .iter()
        .filter(|name| !kinds.contains(&Some((**name).to_owned())));
    let missing: Vec<_> = missing.collect();
    assert!(missing.is_empty(), "never proposed: {missing:?}");
}

/// Everything on a node that can be provided by itself.
fn atoms(objects: &Objects, name: &str) -> Vec<Vec<Edit>> {
    let mut atoms = Vec::new();
    for object in &objects.0 {
        match object {
            Object::Node(node) if *node.name() == *name => {
                let mut edit = |change: &mut dyn FnMut(&mut berth_api::Node)| {
                    let mut changed = (**node).clone();
                    change(&mut changed);
                    if changed != **node {
                        atoms.push(vec![Edit::Set(Object::Node(changed.into()))]);
                    }
                };
                for key in ["gpu", "team"] {
                    edit(&mut |node| node.spec.taints.retain(|taint| taint.key != key));
                }
                edit(&mut |node| node.spec.unschedulable = false);
                edit(&mut |node| node.metadata.labels = node.metadata.labels.with("disk", "ssd"));
                for (resource, amount) in [("cpu", "99"), ("memory", "99Gi"), ("pods", "99")] {
                    edit(&mut |node| {
                        let amount = amount.parse().expect("a quantity");
                        node.status.allocatable.set(resource.into(), amount);
                    });
                }
            }
            _ => {}
        }
    }
    // All pods of the node release the port.
    let releases: Vec<Edit> = objects
        .0
        .iter()
        .filter_map(|object| match object {
            Object::Pod(pod) if pod.spec.node_name == *name => {
                let mut changed = (**pod).clone();
                for container in &mut changed.spec.containers {
                    container.ports.clear();
                }
                (changed != **pod).then(|| Edit::Set(Object::Pod(changed.into())))
            }
            _ => None,
        })
        .collect();
    if !releases.is_empty() {
        atoms.push(releases);
    }
    atoms
}

/// Merges edits of one node: each changes another field.
fn merged(objects: &Objects, name: &str, atoms: &[&Vec<Edit>]) -> Objects {
    let mut edited = objects.clone();
    for edits in atoms {
        for edit in *edits {
            let Edit::Set(object) = edit else { continue };
            let Object::Node(changed) = object else {
                edited.set(object.clone());
                continue;
            };
            let find = |objects: &Objects| {
                objects.0.iter().find_map(|object| match object {
                    Object::Node(node) if *node.name() == *name => Some((**node).clone()),
                    _ => None,
                })
            };
            let before = find(objects).expect("the node");
            let mut now = find(&edited).expect("the node");
            if changed.spec.taints != before.spec.taints {
                let kept = |taint: &berth_api::Taint| changed.spec.taints.contains(taint);
                now.spec.taints.retain(kept);
            }
            now.spec.unschedulable &= changed.spec.unschedulable;
            if changed.metadata.labels != before.metadata.labels {
                now.metadata.labels = changed.metadata.labels.clone();
            }
            for (resource, amount) in changed.status.allocatable.iter() {
                if before.status.allocatable.get(resource) != Some(amount) {
                    now.status.allocatable.set(resource.clone(), *amount);
                }
            }
            edited.set(Object::Node(now.into()));
        }
    }
    edited
}

/// How few things have to be provided for the pod to fit on the node: all sets are tried.
fn least(objects: &Objects, name: &str) -> Option<usize> {
    let atoms = atoms(objects, name);
    let mut sets: Vec<u32> = (0..1 << atoms.len()).collect();
    sets.sort_by_key(|set| set.count_ones());
    let others: BTreeSet<String> = objects
        .0
        .iter()
        .filter_map(|object| match object {
            Object::Node(node) if *node.name() != *name => Some(node.name().to_string()),
            _ => None,
        })
        .collect();
    sets.into_iter()
        .find(|set| {
            let chosen: Vec<&Vec<Edit>> = (0..atoms.len())
                .filter(|at| set & (1 << at) != 0)
                .map(|at| &atoms[at])
                .collect();
            let (_, placed) = merged(objects, name, &chosen).run();
            placed.is_some_and(|node| !others.contains(&node))
        })
        .map(|set| set.count_ones() as usize)
}

/// The closest node needs as few things as any node: all nodes and all sets of things are tried.
#[test]
fn the_closest_node_is_the_closest_one() {
    let mut compared = 0;
    for seed in 0..seeds() / 5 {
        let rng = &mut Rng::with_seed(10_000 + seed);
        let features = Features::NONE;
        let mut objects = random(rng, features);
        // Gates are not the question here.
        let ungated = objects.0.iter().find_map(|object| match object {
            Object::Pod(pod) if pod.name() == "p" => Some(PodBuilder::of(pod).ungated().object()),
            _ => None,
        });
        objects.set(ungated.expect("the pod"));
        let (scheduler, placed) = objects.run();
        if placed.is_some() {
            continue;
        }
        let (answer, _, _) = explain(&scheduler, "p");
        let first = answer.closest.first().expect("a node");
        let names: Vec<String> = objects
            .0
            .iter()
            .filter(|object| object.kind() == Kind::Node)
            .map(|object| object.metadata().name.to_string())
            .collect();
        let by_node: Vec<(String, Option<usize>)> = names
            .iter()
            .map(|name| (name.clone(), least(&objects, name)))
            .collect();
        let best = by_node.iter().filter_map(|(_, least)| *least).min();
        let of_first = by_node.iter().find(|(name, _)| *name == first.node);
        assert_eq!(
            (Some(first.lacks.len()), best),
            (
                of_first.and_then(|(_, least)| *least),
                Some(first.lacks.len())
            ),
            "seed {}: {first:?}, all: {by_node:?}",
            10_000 + seed
        );
        compared += 1;
    }
    assert!(compared >= 5, "{compared} compared");
}

/// A decision is computed again with the same result, and the chosen node has the greatest total.
#[test]
fn a_decision_is_explained_by_its_scores() {
    let mut exact = 0;
    for seed in 0..seeds() / 3 {
        let rng = &mut Rng::with_seed(20_000 + seed);
        let features = Features {
            domains: rng.bool(),
            ..Features::NONE
        };
        let mut objects = random(rng, features);
        for at in 0..5 {
            let more = pod(&format!("w{at}"))
                .request("cpu", ["100m", "300m"][rng.usize(..2)])
                .label("app", "web");
            objects.set(more.object());
        }
        let (scheduler, _) = objects.run();
        let decided: Vec<(String, String)> = scheduler
            .decisions()
            .map(|d| (d.pod.pod.name().to_string(), d.node.to_string()))
            .collect();
        for (name, node) in decided {
            let (answer, _, _) = explain(&scheduler, &name);
            let table = answer.decision.expect("a decision");
            assert!(table.is_exact, "seed {seed}, {name}: {:?}", answer.notes);
            assert_eq!(table.node, node);
            let chosen = table.nodes.first().expect("a node");
            assert!(
                chosen.is_chosen && chosen.node == node,
                "seed {seed}: {table:?}"
            );
            assert!(table.nodes.iter().all(|other| other.total <= chosen.total));
            for listed in &table.nodes {
                let sum: i64 = listed.scores.iter().map(|score| score.weighted).sum();
                assert_eq!(sum, listed.total, "seed {seed}: {listed:?}");
            }
            exact += 1;
        }
    }
    assert!(exact >= 20, "{exact}");
}

/// Trying changes leaves the copy as it was: a second answer from it is equal to the first.
#[test]
fn trying_changes_leaves_no_trace() {
    for seed in 0..seeds() / 5 {
        let rng = &mut Rng::with_seed(30_000 + seed);
        let features = Features {
            domains: true,
            volumes: true,
            devices: true,
            preemption: true,
        };
        let (scheduler, placed) = random(rng, features).run();
        if placed.is_some() {
            continue;
        }
        let facts = PodFacts::take(&scheduler, "default", "p").expect("the pod is known");
        let mut snapshot = Snapshot::take(&scheduler, NOW);
        let first = explain_pod(&mut snapshot, &facts);
        let second = explain_pod(&mut snapshot, &facts);
        assert_eq!(first, second, "seed {seed}");
    }
}

/// The queue and the nodes are explained with what the scheduler has.
#[test]
fn queue_and_nodes_are_explained() {
    let mut objects = Objects::default();
    objects.set(node("n1").capacity("2", "4Gi", "10").object());
    objects.set(
        pod("a")
            .on("n1")
            .request("cpu", "1500m")
            .phase("Running")
            .object(),
    );
    objects.set(pod("p").request("cpu", "1").object());
    objects.set(pod("gated").gate("example.com/gate").object());
    let (scheduler, _) = objects.run();
    let facts = QueueFacts::take(&scheduler, NOW);
    let queue = explain_queue(&facts);
    assert_eq!((queue.unschedulable, queue.gated), (1, 1));
    let reasons: BTreeSet<&str> = queue.groups.iter().map(|g| g.reason.as_str()).collect();
    assert_eq!(
        reasons,
        BTreeSet::from(["NodeResourcesFit", "SchedulingGates"])
    );
    let mut snapshot = Snapshot::take(&scheduler, NOW);
    let answer = explain_node(&mut snapshot, &facts, "n1").expect("the node");
    assert_eq!(answer.pod_count, 1);
    let cpu = answer
        .resources
        .iter()
        .find(|r| r.name == "cpu")
        .expect("CPU");
    assert_eq!((cpu.free.as_str(), cpu.requested_percent), ("500m", 75.0));
    assert_eq!(answer.fragmentation_percent, 75.0);
    let lacks: Vec<&str> = answer
        .closest_to
        .iter()
        .filter(|kind| kind.example == "default/p")
        .flat_map(|kind| &kind.lacks)
        .map(|lack| lack.text.as_str())
        .collect();
    assert_eq!(lacks, ["500m CPU short"]);
    assert!(explain_node(&mut snapshot, &facts, "n2").is_none());
}

/// The answers that the documentation shows, in short.
#[test]
fn remedies_of_a_pod_that_lacks_cpu() {
    let mut objects = Objects::default();
    objects.set(node("n1").capacity("2", "4Gi", "10").object());
    objects.set(
        node("n2")
            .capacity("4", "4Gi", "10")
            .taint("gpu", "true", TaintEffect::NoSchedule)
            .object(),
    );
    objects.set(
        pod("a")
            .on("n1")
            .request("cpu", "1500m")
            .phase("Running")
            .object(),
    );
    objects.set(pod("p").request("cpu", "1").object());
    let (scheduler, _) = objects.run();
    let (answer, _, _) = explain(&scheduler, "p");
    assert_eq!(answer.state, PodState::Unschedulable);
    let closest: Vec<(&str, &str)> = answer
        .closest
        .iter()
        .map(|node| (node.node.as_str(), node.lacks[0].text.as_str()))
        .collect();
    assert_eq!(
        closest,
        [
            ("n2", "taint gpu=true:NoSchedule not tolerated"),
            ("n1", "500m CPU short")
        ]
    );
    let texts: Vec<&str> = answer.remedies.iter().map(|r| r.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "add a toleration for taint gpu=true:NoSchedule to the pod; the pod fits on n2 then",
            "remove taint gpu=true:NoSchedule from node n2",
            "request 500m CPU less; the pod fits on n1 then",
            "delete pod(s) default/a on node n1, or scale their owners down",
            "raise the priority of the pod to 1, so that it preempts default/a; the pod fits on n1 then",
            "add a node like n1",
        ]
    );
    assert_eq!(answer.remedies[1].node.as_deref(), Some("n2"));
    assert!(matches!(
        answer.remedies[2].changes[..],
        [Change::RequestLess { .. }]
    ));
}

/// What no single change provides is provided by two.
#[test]
fn remedies_of_a_pod_that_lacks_two_things() {
    let mut objects = Objects::default();
    let cordoned = node("n1").capacity("2", "4Gi", "10").unschedulable(true);
    objects.set(
        cordoned
            .taint("gpu", "true", TaintEffect::NoSchedule)
            .object(),
    );
    objects.set(pod("p").request("cpu", "1").object());
    let (scheduler, _) = objects.run();
    let (answer, _, _) = explain(&scheduler, "p");
    let texts: Vec<&str> = answer.remedies.iter().map(|r| r.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "uncordon node n1, and add a toleration for taint gpu=true:NoSchedule to the pod",
            "uncordon node n1, and remove taint gpu=true:NoSchedule from node n1",
            "add a toleration for taint gpu=true:NoSchedule to the pod, and add a node like n1",
        ]
    );
    objects.set(
        pod("p")
            .request("cpu", "3")
            .gate("example.com/quota")
            .object(),
    );
    objects.set(node("n1").capacity("2", "4Gi", "10").object());
    let (scheduler, _) = objects.run();
    let (answer, _, _) = explain(&scheduler, "p");
    assert_eq!(answer.state, PodState::Gated);
    assert_eq!(
        answer.remedies[0].text,
        "remove the scheduling gate(s) example.com/quota, and request 1 CPU less; the pod fits on n1 then"
    );
}

/// A pair is not proposed where preemption follows a single change, or none.
#[test]
fn preemption_after_one_change_takes_the_place_of_pairs() {
    let mut objects = Objects::default();
    let tainted = node("n1").capacity("2", "4Gi", "10");
    let tainted = tainted.taint("gpu", "true", TaintEffect::NoSchedule);
    objects.set(tainted.object());
    objects.set(pod("low").on("n1").request("cpu", "2").object());
    objects.set(pod("p").priority(10).request("cpu", "1").object());
    let (scheduler, _) = objects.run();
    let (answer, _, _) = explain(&scheduler, "p");
    let shown: Vec<(&str, usize)> = answer
        .remedies
        .iter()
        .map(|remedy| (remedy.text.as_str(), remedy.changes.len()))
        .collect();
    assert_eq!(
        shown,
        [
            (
                "add a toleration for taint gpu=true:NoSchedule to the pod; preemption then evicts default/low from n1",
                1
            ),
            (
                "remove taint gpu=true:NoSchedule from node n1; preemption then evicts default/low from n1",
                1
            ),
        ]
    );
    assert_eq!(answer.remedies[0].victims.len(), 1);

    // The same behind a gate: the gate is all that has to change.
    objects.set(node("n1").capacity("2", "4Gi", "10").object());
    let gated = pod("p").priority(10).request("cpu", "1");
    objects.set(gated.gate("example.com/quota").object());
    let (scheduler, _) = objects.run();
    let (answer, _, _) = explain(&scheduler, "p");
    assert_eq!(
        answer.remedies[0].text,
        "remove the scheduling gate(s) example.com/quota; preemption then evicts default/low from n1"
    );
}

/// The error of a refused call is in the answer.
#[test]
fn errors_of_calls_are_in_the_answer() {
    let mut objects = Objects::default();
    objects.set(node("n1").capacity("2", "4Gi", "10").object());
    objects.set(pod("p").request("cpu", "1").object());
    let options = SchedulerOptions::default();
    let scheduler = Scheduler::new(options, &berth_plugins::in_tree(), NOW);
    let mut scheduler = scheduler.unwrap_or_else(|e| panic!("{e}"));
    for object in objects.0 {
        scheduler.apply(ClusterChange::Applied(object), NOW);
    }
    scheduler.schedule_one(NOW);
    for (id, _) in scheduler.take_outputs(NOW).calls {
        let message = "admission webhook denied the request";
        let error = CallError::new(CallErrorKind::Refused, message);
        scheduler.complete(id, Err::<(), _>(error), NOW);
    }
    let (answer, _, _) = explain(&scheduler, "p");
    let failed = answer.calls.iter().find(|call| call.state == "Failed");
    let failed = failed.unwrap_or_else(|| panic!("{:?}", answer.calls));
    assert_eq!(failed.call_type, "pod_binding");
    assert_eq!(
        failed.error.as_deref(),
        Some("admission webhook denied the request")
    );
}
