//! Checks explanations of groups against the scheduler.
//!
//! Every failure prints its seed; `BERTH_EXPLAIN_SEEDS` sets the number of seeds.

// A test reads its environment.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use berth_api::pod::SchedulingGate;
use berth_api::{Kind, Node, Object, Pod, Time};
use berth_explain::answer::{GroupAnswer, GroupChange, GroupRemedy, GroupState};
use berth_explain::what_if::{WhatIfWorld, key_of};
use berth_explain::{
    GroupFacts, PodFacts, QueueFacts, Snapshot, explain_group, explain_pod, explain_queue, text,
};
use berth_framework::Feature;
use berth_framework::cluster::GroupKind;
use berth_framework::testing::{NodeBuilder, PodBuilder, node, pod};
use berth_scheduler::SchedulerOptions;
use fastrand::Rng;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

const NOW: Time = Time::from_secs(1_000);

fn seeds() -> u64 {
    let given = std::env::var("BERTH_EXPLAIN_SEEDS").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(120)
}

/// The objects of a cluster.
#[derive(Clone, Default)]
struct Objects(Vec<Object>);

impl Objects {
    fn add(&mut self, object: Object) {
        self.0.push(object);
    }

    fn pod(&mut self, builder: PodBuilder) {
        self.add(builder.object());
    }

    fn node(&mut self, builder: NodeBuilder) {
        self.add(builder.object());
    }

    fn group(&mut self, name: &str, spec: Value) {
        let json = json!({
            "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}")},
            "spec": spec,
        });
        let object = Kind::PodGroup.decode(json.to_string().as_bytes());
        self.add(object.expect("a group"));
    }

    fn world(&self) -> WhatIfWorld {
        let mut options = SchedulerOptions {
            seed: 7,
            ..SchedulerOptions::default()
        };
        options.features = options
            .features
            .with(Feature::GenericWorkload, true)
            .with(Feature::TopologyAwareWorkloadScheduling, true);
        let objects = self.0.iter().map(|object| (key_of(object), object.clone()));
        let world = WhatIfWorld::new(options, &berth_plugins::in_tree(), objects.collect(), NOW);
        world.unwrap_or_else(|e| panic!("{e}"))
    }

    /// The cluster in which the scheduler has tried everything.
    fn run(&self) -> WhatIfWorld {
        let mut world = self.world();
        world.run();
        world
    }

    fn edit_pods(&mut self, which: impl Fn(&Pod) -> bool, edit: impl Fn(&mut Pod)) {
        for object in &mut self.0 {
            if let Object::Pod(pod) = object
                && which(pod)
            {
                edit(Arc::make_mut(pod));
            }
        }
    }

    fn node_named(&self, name: &str) -> Node {
        let mut nodes = self.0.iter().filter_map(|object| match object {
            Object::Node(node) if *node.name() == *name => Some(Node::clone(node)),
            _ => None,
        });
        nodes.next().expect("the node of a remedy exists")
    }

    fn edit_group(&mut self, edit: impl Fn(&mut berth_api::groups::GroupSpec)) {
        for object in &mut self.0 {
            if let Object::PodGroup(group) = object {
                edit(&mut Arc::make_mut(group).spec);
            }
        }
    }

    /// The cluster after a remedy.
    fn after(&self, remedy: &GroupRemedy) -> Self {
        let mut objects = self.clone();
        let value = remedy.value.unwrap_or(0);
        let as_i32 = i32::try_from(value).expect("a small number");
        let is_member = |pod: &Pod| pod.pod_group_name().is_some();
        match remedy.change {
            GroupChange::RemoveSchedulingGates => objects.edit_pods(is_member, |pod| {
                if remedy.names.contains(&pod.name().to_string()) {
                    pod.spec.scheduling_gates.clear();
                }
            }),
            GroupChange::CreatePods => {
                let cpu = objects.cpu_of_members();
                for at in 0..value {
                    objects.pod(member(&format!("more-{at}"), cpu).priority(5));
                }
            }
            GroupChange::Uncordon => {
                for name in &remedy.names {
                    let mut node = objects.node_named(name);
                    node.spec.unschedulable = false;
                    objects
                        .0
                        .retain(|o| !matches!(o, Object::Node(n) if *n.name() == **name));
                    objects.add(Object::Node(Arc::new(node)));
                }
            }
            GroupChange::LowerMinCount => objects.edit_group(|spec| {
                let gang = spec.scheduling_policy.gang.as_mut();
                gang.expect("a gang").min = as_i32;
            }),
            GroupChange::DropTopology => {
                objects.edit_group(|spec| spec.scheduling_constraints.topology.clear());
            }
            GroupChange::RaisePriority => {
                objects.edit_group(|spec| spec.priority = Some(as_i32));
                objects.edit_pods(is_member, |pod| pod.spec.priority = Some(as_i32));
            }
            GroupChange::RaiseQuota | GroupChange::EndPods => {
                panic!("random clusters have no quotas")
            }
            GroupChange::AddNodes => {
                let like = remedy.like.as_deref().expect("a model");
                for at in 0..value {
                    let mut node = objects.node_named(like);
                    node.metadata.name = format!("added-{at}").into();
                    node.metadata.uid = format!("added-{at}").into();
                    node.spec.unschedulable = false;
                    objects.add(Object::Node(Arc::new(node)));
                }
            }
        }
        objects
    }

    fn cpu_of_members(&self) -> u64 {
        let mut requests = self.0.iter().filter_map(|object| match object {
            Object::Pod(pod) if pod.pod_group_name().is_some() => {
                let info = berth_framework::PodInfo::new(pod.clone());
                Some(info.requests.milli_cpu)
            }
            _ => None,
        });
        u64::try_from(requests.next().unwrap_or(0) / 1000).expect("not negative")
    }

    fn min(&self) -> usize {
        let mut groups = self.0.iter().filter_map(|object| match object {
            Object::PodGroup(group) => Some(group.spec.min()),
            _ => None,
        });
        groups.next().unwrap_or(0)
    }
}

fn member(name: &str, cpu: u64) -> PodBuilder {
    pod(name).request("cpu", &cpu.to_string()).member_of("g")
}

fn explain(world: &WhatIfWorld) -> GroupAnswer {
    let facts = GroupFacts::take(world.scheduler(), GroupKind::PodGroup, "default", "g");
    let facts = facts.expect("the group is known");
    let mut snapshot = Snapshot::take(world.scheduler(), world.now());
    assert!(snapshot.is_enough_for_group(&facts));
    let answer = explain_group(&mut snapshot, &facts);
    let again = explain_group(&mut snapshot, &facts);
    assert_eq!(answer, again, "what was tried was not reverted");
    answer
}

/// The number of members of the group that have a node.
fn placed(world: &WhatIfWorld) -> usize {
    let pods = world.scheduler().cache().stored_pods();
    let placed = pods.filter(|pod| pod.pod_group_name().is_some() && pod.is_assigned());
    placed.count()
}

fn gang(min: usize) -> Value {
    json!({"schedulingPolicy": {"gang": {"minCount": min}}, "priority": 5})
}

fn random(rng: &mut Rng) -> Objects {
    let mut objects = Objects::default();
    for at in 0..rng.usize(1..6) {
        let name = format!("n{at}");
        let cpu = rng.u64(2..7);
        let rack = ["a", "b"][rng.usize(..2)];
        let mut builder = node(&name)
            .allocatable("cpu", &cpu.to_string())
            .label("rack", rack);
        if rng.usize(..6) == 0 {
            builder = builder.unschedulable(true);
        }
        objects.node(builder);
        for number in 0..rng.u64(..3) {
            let priority = [0, 5, 50][rng.usize(..3)];
            let name = format!("r{at}-{number}");
            let running = pod(&name).request("cpu", "1").priority(priority);
            objects.pod(running.on(&format!("n{at}")));
        }
    }
    let min = rng.usize(2..6);
    let mut spec = gang(min);
    if rng.usize(..3) == 0 {
        spec["schedulingConstraints"] = json!({"topology": [{"key": "rack"}]});
    }
    objects.group("g", spec);
    let members = (min + rng.usize(..3)).saturating_sub(1);
    let cpu = rng.u64(1..4);
    let is_gated = rng.usize(..6) == 0;
    for at in 0..members {
        objects.pod(member(&format!("m{at}"), cpu).priority(5));
    }
    if is_gated {
        objects.edit_pods(
            |pod| *pod.name() == "m0",
            |pod| {
                pod.spec.scheduling_gates = vec![SchedulingGate {
                    name: "example.com/quota".into(),
                }];
            },
        );
    }
    objects
}

/// Each remedy, applied to the cluster, lets the group start, and a started group is shown as started.
#[test]
fn every_remedy_lets_the_group_start() {
    let (mut pending, mut proposed) = (0, 0);
    let mut kinds = BTreeSet::new();
    for seed in 0..seeds() {
        let rng = &mut Rng::with_seed(seed);
        let objects = random(rng);
        let world = objects.run();
        let answer = explain(&world);
        let (min, has) = (objects.min(), placed(&world));
        assert_eq!(answer.scheduled, has, "seed {seed}: {answer:#?}");
        if has >= min {
            continue;
        }
        assert_eq!(has, 0, "seed {seed}: a part of a gang has started");
        pending += 1;
        assert_ne!(answer.state, GroupState::Started, "seed {seed}");
        if answer.state == GroupState::Unschedulable {
            let places = answer.places.expect("it was tried");
            assert!(places < min, "seed {seed}: {answer:#?}");
        }
        for remedy in &answer.remedies {
            let mut changed = objects.after(remedy);
            if answer.notes.iter().any(|note| note.contains("gates")) {
                changed.edit_pods(|_| true, |pod| pod.spec.scheduling_gates.clear());
            }
            let world = changed.run();
            assert!(
                placed(&world) >= changed.min(),
                "seed {seed}: {:?} does not let the group start: {answer:#?}",
                remedy.text
            );
            if remedy.change == GroupChange::AddNodes && remedy.value > Some(1) {
                let fewer = GroupRemedy {
                    value: remedy.value.map(|nodes| nodes - 1),
                    ..remedy.clone()
                };
                let objects = objects.after(&fewer);
                let world = objects.run();
                // With fewer nodes it can still start by evicting pods.
                let evicts = world.objects().len() < objects.0.len();
                let text = &remedy.text;
                let are_enough = placed(&world) >= min && !evicts;
                assert!(!are_enough, "seed {seed}: {text:?} are too many");
            }
            proposed += 1;
            kinds.insert(format!("{:?}", remedy.change));
        }
    }
    // Guards against a vacuous property.
    assert!(
        pending >= 40 && proposed >= 60,
        "{pending} pending, {proposed} proposed"
    );
    let all = [
        "AddNodes",
        "CreatePods",
        "DropTopology",
        "LowerMinCount",
        "RaisePriority",
        "RemoveSchedulingGates",
        "Uncordon",
    ];
    let missing = all.iter().filter(|kind| !kinds.contains(**kind));
    let missing: Vec<_> = missing.collect();
    assert!(missing.is_empty(), "never proposed: {missing:?}");
}

/// Preemption that would help is shown with its victims; the scheduler evicts these.
#[test]
fn preemption_is_shown_before_it_is_done() {
    let mut objects = Objects::default();
    objects.node(node("n1").allocatable("cpu", "4"));
    for at in 0..4 {
        let running = pod(&format!("low-{at}")).request("cpu", "1").priority(0);
        objects.pod(running.on("n1"));
    }
    objects.group("g", gang(2));
    for name in ["a", "b"] {
        objects.pod(member(name, 1).priority(5));
    }
    let mut world = objects.world();
    let answer = explain(&world);
    let preemption = answer.preemption.expect("it would help");
    let mut victims: Vec<String> = preemption
        .victims
        .iter()
        .map(|victim| format!("{}/{}", victim.namespace, victim.name))
        .collect();
    victims.sort();
    assert_eq!(victims.len(), 2);
    world.run();
    assert_eq!(placed(&world), 2);
    let before = world.usage();
    let report = world.report(before, Vec::new());
    let mut evicted: Vec<String> = report.evicted.into_iter().map(|pod| pod.pod).collect();
    evicted.sort();
    assert_eq!(evicted, victims);
}

/// A gang of six pods of 3 CPUs, in a zone with 1.3 CPUs on each of two nodes.
fn ring() -> Objects {
    let mut objects = Objects::default();
    for name in ["n1", "n2"] {
        objects.node(node(name).allocatable("cpu", "4"));
        let running = pod(&format!("on-{name}")).request("cpu", "2700m");
        objects.pod(running.on(name));
    }
    objects.group("g", gang(6));
    for at in 0..6 {
        objects.pod(member(&format!("ring-{at}"), 3).priority(0));
    }
    objects.edit_group(|spec| spec.priority = Some(0));
    objects
}

/// The number of nodes to add is the smallest with which the group starts.
#[test]
fn no_more_nodes_are_asked_for_than_are_needed() {
    let objects = ring();
    let answer = explain(&objects.run());
    let added = answer.remedies.iter();
    let mut added = added.filter(|remedy| remedy.change == GroupChange::AddNodes);
    let remedy = added.next().expect("nodes would help");
    assert_eq!(remedy.text, "add 6 nodes like n1");
    for (nodes, expected) in [(5, 0), (6, 6)] {
        let remedy = GroupRemedy {
            value: Some(nodes),
            ..remedy.clone()
        };
        assert_eq!(
            placed(&objects.after(&remedy).run()),
            expected,
            "{nodes} nodes"
        );
    }
}

/// The explanation of a member is that of its group: no change is proposed for the pod alone.
#[test]
fn a_member_is_explained_by_its_group() {
    let world = ring().run();
    let facts = PodFacts::take(world.scheduler(), "default", "ring-3").expect("the pod is known");
    let mut snapshot = Snapshot::take(world.scheduler(), world.now());
    assert!(snapshot.is_enough_for(&facts));
    let answer = explain_pod(&mut snapshot, &facts);
    assert_eq!(answer.group.as_ref(), Some(&explain(&world)));
    assert!(answer.remedies.is_empty() && answer.closest.is_empty() && answer.preemption.is_none());
    let shown = text::pod(&answer);
    for expected in [
        "Pod default/ring-3: Unschedulable\n  The pod is a member of PodGroup default/g and is scheduled with it. The group \
         has been unschedulable for ",
        "\nPodGroup default/g: Unschedulable\n",
        "\nWhat would let it start (each was tried on a copy of the cluster)\n",
        "add 6 nodes like n1\n",
    ] {
        assert!(shown.contains(expected), "{expected:?} is not in\n{shown}");
    }
    assert!(!shown.contains("What would free it"), "{shown}");
}

fn gang_of_four_with_room_for_three() -> Objects {
    let mut objects = Objects::default();
    objects.node(node("n1").allocatable("cpu", "2"));
    objects.node(node("n2").allocatable("cpu", "1"));
    objects.group("g", gang(4));
    for at in 0..4 {
        objects.pod(member(&format!("g-{at}"), 1).priority(5));
    }
    objects
}

/// The text lists the number of members, the number that fits, the lacks of each member, and the remedies.
#[test]
fn the_text_shows_room_and_remedies() {
    let world = gang_of_four_with_room_for_three().run();
    let answer = explain(&world);
    assert_eq!(answer.state, GroupState::Unschedulable);
    assert_eq!(answer.places, Some(3));
    let shown = text::group(&answer);
    for expected in [
        "PodGroup default/g: Unschedulable\n  The group has been unschedulable for ",
        "It needs 4 pods; 0 of 4 have a node. There is room for 3 more pods, and 4 more are needed.\n",
        "  needed           4 (gang)\n",
        "closest n1: 1 CPU short",
        "  1. lower minCount of podgroup g to 3\n",
        "add a node like n1\n",
        "Preemption: No preemption victims found for incoming preemptor\n",
    ] {
        assert!(shown.contains(expected), "{expected:?} is not in\n{shown}");
    }
}

/// A group with a topology constraint shows the room of each domain, the best one first.
#[test]
fn the_best_domain_is_first() {
    let mut objects = Objects::default();
    for (name, rack, cpu) in [("n1", "a", "1"), ("n2", "b", "2"), ("n3", "c", "1")] {
        objects.node(node(name).allocatable("cpu", cpu).label("rack", rack));
    }
    let mut spec = gang(3);
    spec["schedulingConstraints"] = json!({"topology": [{"key": "rack"}]});
    objects.group("g", spec);
    for at in 0..3 {
        objects.pod(member(&format!("g-{at}"), 1).priority(5));
    }
    let answer = explain(&objects.run());
    let rooms: Vec<(&str, usize)> = answer
        .domains
        .iter()
        .map(|domain| (domain.name.as_str(), domain.places))
        .collect();
    assert_eq!(rooms, [("b", 2), ("a", 1), ("c", 1)]);
    assert_eq!(answer.places, Some(2));
    let texts: Vec<&str> = answer.remedies.iter().map(|r| r.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "lower minCount of podgroup g to 2",
            "create group g again without topology constraint",
            "add a node like n2"
        ]
    );
}

/// Groups that do not exist, and groups without enough members, are reported as such.
#[test]
fn what_a_group_waits_for_is_stated() {
    let mut objects = Objects::default();
    objects.node(node("n1").allocatable("cpu", "4"));
    objects.pod(member("g-0", 1).priority(5));
    let answer = explain(&objects.run());
    assert_eq!(
        (answer.state, answer.summary.as_str()),
        (
            GroupState::Missing,
            "The group does not exist, and 1 pod waits for it."
        )
    );
    objects.group("g", gang(3));
    let world = objects.run();
    let answer = explain(&world);
    assert_eq!(
        (answer.state, answer.summary.as_str()),
        (
            GroupState::WaitingForMembers,
            "The group waits for 2 more pods: it needs 3, 1 are known."
        )
    );
    let texts: Vec<&str> = answer.remedies.iter().map(|r| r.text.as_str()).collect();
    assert_eq!(texts, ["create 2 more pods like g-0 in podgroup g"]);
    let queue = explain_queue(&QueueFacts::take(world.scheduler(), world.now()));
    let owners: Vec<(&str, &str)> = queue
        .groups
        .iter()
        .map(|group| (group.owner.as_str(), group.message.as_str()))
        .collect();
    assert_eq!(
        owners,
        [(
            "PodGroup/g",
            "waiting for minCount pods from a gang to appear in scheduling queue"
        )]
    );
}

/// A gang that waits for a deferred quota: the amounts are those of the whole gang, and each proposed change starts it.
#[test]
fn a_gang_waits_for_a_deferred_quota() {
    let cluster = |limit: i64, runs: bool| {
        let mut objects = Objects::default();
        objects.node(node("n").capacity("16", "64Gi", "110"));
        let quota = json!({
            "metadata": {"name": "team-a", "namespace": "default", "uid": "uid-q"},
            "spec": {"hard": {"requests.cpu": limit}},
        });
        let kind = Kind::Custom(berth_framework::cluster::DEFERRED_QUOTA);
        objects.add(kind.decode(quota.to_string().as_bytes()).expect("a quota"));
        objects.group("g", json!({"schedulingPolicy": {"gang": {"minCount": 2}}}));
        if runs {
            objects.pod(pod("runs").request("cpu", "3").on("n").phase("Running"));
        }
        for name in ["a", "b"] {
            objects.pod(pod(name).request("cpu", "1").member_of("g"));
        }
        objects
    };
    let world = cluster(4, true).run();
    let answer = explain(&world);
    let texts: Vec<(&str, GroupChange)> = answer
        .remedies
        .iter()
        .map(|remedy| (remedy.text.as_str(), remedy.change))
        .collect();
    assert_eq!(
        texts,
        [
            (
                "raise requests.cpu of deferred quota team-a by 1 to 5",
                GroupChange::RaiseQuota
            ),
            (
                "wait for the end of default/runs, or delete it",
                GroupChange::EndPods
            ),
        ]
    );
    for changed in [cluster(5, true), cluster(4, false)] {
        assert_eq!(placed(&changed.run()), 2);
    }
}
