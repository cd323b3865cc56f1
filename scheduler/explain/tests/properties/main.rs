//! Checks explanations of random clusters and pods against the scheduler.
//!
//! Every failure prints its seed; `BERTH_EXPLAIN_SEEDS` sets the number of seeds.

// A test reads its environment.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod devices;
mod objects;
mod quotas;
mod situations;

use berth_api::{Kind, Object};
use berth_explain::answer::PodState;
use berth_explain::{Edit, PodFacts, Snapshot, explain_pod};
use berth_framework::testing::{PodBuilder, pod};
use fastrand::Rng;
use objects::{Features, NOW, Objects, explain, random};
use std::collections::BTreeSet;

fn seeds() -> u64 {
    let given = std::env::var("BERTH_EXPLAIN_SEEDS").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(400)
}

/// Each remedy, applied to the cluster, lets the pod be placed: on the named node, if there is one. Preemption is
/// performed.
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
        for lack in answer.closest.iter().flat_map(|node| &node.lacks) {
            assert!(lack.value.is_some(), "seed {seed}: {lack:?}");
        }
        for (at, remedy) in answer.remedies.iter().enumerate() {
            let Some(placed) = objects.placed_after(&remedy.changes) else {
                panic!(
                    "seed {seed}: {:?} does not free the pod: {answer:#?}",
                    remedy.text
                );
            };
            if let Some(node) = &remedy.node {
                assert_eq!(placed, *node, "seed {seed}: {:?}", remedy.text);
            }
            proposed += 1;
            preempting += usize::from(!remedy.victims.is_empty());
            pairs += usize::from(remedy.changes.len() == 2);
            // If one change of a pair is enough, by itself or with preemption, it is listed before.
            if let [first, second] = &remedy.changes[..]
                && !first.is_new_node()
                && !second.is_new_node()
            {
                for part in [first, second] {
                    let part = std::slice::from_ref(part);
                    let mut before = answer.remedies[..at].iter();
                    assert!(
                        objects.placed_after(part).is_none() || before.any(|r| r.changes == part),
                        "seed {seed}: {part:?} of {:?} is enough: {answer:#?}",
                        remedy.text
                    );
                }
            }
            for change in &remedy.changes {
                let debug = format!("{change:?}");
                kinds.insert(debug.split([' ', '{']).next().map(str::to_owned));
            }
        }
    }
    // Guards against a vacuous property.
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

/// The lacks of a node that single changes can provide.
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

/// The smallest number of changes to make for the pod to fit on the node: all sets are tried.
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

/// Answers leave the copy unchanged, and a renewed copy is like a new one: later answers are equal to the first.
#[test]
fn an_answer_leaves_no_trace_in_the_copy() {
    let mut used: Option<Snapshot> = None;
    let (mut waiting, mut decided) = (0, 0);
    for seed in 0..seeds() / 5 {
        let rng = &mut Rng::with_seed(30_000 + seed);
        let features = Features {
            domains: true,
            volumes: true,
            devices: true,
            preemption: true,
        };
        let mut objects = random(rng, features);
        for at in 0..3 {
            objects.set(pod(&format!("w{at}")).label("app", "web").object());
        }
        let (scheduler, placed) = objects.run();
        let decisions = scheduler.decisions();
        let mut names: Vec<&str> = decisions.map(|d| d.pod.pod.name().as_str()).collect();
        decided += names.len();
        if placed.is_none() {
            names.push("p");
            waiting += 1;
        }
        let facts = names
            .iter()
            .map(|name| PodFacts::take(&scheduler, "default", name));
        let facts: Vec<PodFacts> = facts.map(|facts| facts.expect("a known pod")).collect();
        let ask = |snapshot: &mut Snapshot| -> Vec<_> {
            facts
                .iter()
                .map(|facts| explain_pod(snapshot, facts))
                .collect()
        };
        let mut snapshot = Snapshot::take(&scheduler, NOW);
        let first = ask(&mut snapshot);
        assert_eq!(first, ask(&mut snapshot), "seed {seed}");
        if let Some(mut renewed) = used.replace(snapshot) {
            renewed.renew(&scheduler, NOW);
            assert_eq!(first, ask(&mut renewed), "seed {seed}: renewed");
        }
    }
    assert!(waiting >= 20 && decided >= 20, "{waiting} {decided}");
}
