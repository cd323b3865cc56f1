//! Changes after which a group can start. Each is tried on the copy of the cluster.

use super::trial::{Findings, Trial, WaitingMember};
use super::{is_gated, pod_names, victims_of};
use crate::answer::{GroupChange, GroupRemedy, PodName};
use crate::change::{Edit, TriedChange};
use crate::facts::{GroupFacts, MemberFact};
use crate::limits::PRIORITIES_TRIED_MAX;
use crate::overlay::with_edits;
use crate::quota;
use crate::snapshot::Snapshot;
use crate::words::count;
use berth_api::groups::GroupSpec;
use berth_api::{CompositePodGroup, Object, Pod, PodGroup};
use berth_framework::PodInfo;
use berth_framework::cluster::{GroupKey, GroupKind};
use berth_scheduler::profile::Profile;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The numbers of new nodes that are tried until one is sufficient. A binary search between it and the previous one
/// finds the smallest sufficient number.
const NEW_NODES: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// The number of models for new nodes.
const LIKE_MAX: usize = 3;
/// The number of cordoned nodes that are tried alone.
const CORDONED_ALONE_MAX: usize = 4;
/// The number of cordoned nodes that are tried together.
const CORDONED_MAX: usize = 32;
/// The number of lower minimums of a composite group that are tried.
const MINIMUMS_TRIED_MAX: usize = 4;
/// The number of missing members that are tried.
const NEW_MEMBERS_MAX: usize = 256;
/// The highest priority of a class that users may create.
const PRIORITY_MAX: i32 = 1_000_000_000;
/// The number of names in a text.
const NAMES_MAX: usize = 5;

/// A group whose members wait.
pub(super) struct GroupCase<'a> {
    pub(super) facts: &'a GroupFacts,
    pub(super) profile: &'a Arc<Profile>,
    /// The root of its hierarchy.
    pub(super) root: &'a GroupKey,
    pub(super) waiting: &'a [WaitingMember],
    pub(super) findings: &'a Findings,
    /// Whether the waiting members can be placed without a change.
    pub(super) fits: bool,
}

fn names(names: &[String]) -> String {
    let listed = names.iter().take(NAMES_MAX).map(String::as_str);
    let listed: Vec<&str> = listed.collect();
    match names.len().saturating_sub(NAMES_MAX) {
        0 => listed.join(", "),
        more => format!("{} and {more} more", listed.join(", ")),
    }
}

/// The object of a group with another spec.
fn with_spec(
    snapshot: &Snapshot,
    key: &GroupKey,
    change: impl FnOnce(&mut GroupSpec),
) -> Option<Edit> {
    let group = snapshot.cluster.groups().get(key)?;
    let mut spec = group.spec.clone();
    change(&mut spec);
    let (metadata, status) = (group.metadata.clone(), group.status.clone());
    Some(Edit::Set(match key.kind {
        GroupKind::PodGroup => Object::PodGroup(Arc::new(PodGroup {
            metadata,
            spec,
            status,
        })),
        GroupKind::CompositePodGroup => Object::CompositePodGroup(Arc::new(CompositePodGroup {
            metadata,
            spec,
            status,
        })),
    }))
}

impl GroupCase<'_> {
    /// The changes, the cheapest first.
    pub(super) fn remedies(
        &self,
        snapshot: &mut Snapshot,
        budget: &mut usize,
        notes: &mut Vec<String>,
    ) -> Vec<GroupRemedy> {
        let mut found = Vec::new();
        let root = self.root;
        let is_ready = snapshot.cluster.is_ready(root);
        let gated: Vec<&MemberFact> = self.facts.members.iter().filter(|m| is_gated(m)).collect();
        if !gated.is_empty() {
            // Without its gates the group would start, so no other change is necessary.
            if self.fits && is_ready {
                found.push(without_gates(&gated))
            } else {
                let text = "scheduling gates of members must be removed in any case";
                notes.push(text.to_owned());
            }
        }
        // A group with too few members cannot start on any cluster.
        if !is_ready {
            self.more_members(snapshot, budget, &mut found, notes);
            return found;
        }
        let quotas = self.quotas(snapshot);
        if self.fits {
            found.extend(quotas);
            return found;
        }
        if !quotas.is_empty() {
            let text = "a deferred quota must have room for the group in any case";
            notes.push(text.to_owned());
        }
        self.uncordoned(snapshot, budget, &mut found);
        self.lower_minimum(snapshot, budget, &mut found);
        self.no_topology(snapshot, budget, &mut found);
        self.higher_priority(snapshot, budget, &mut found);
        self.new_nodes(snapshot, budget, &mut found);
        found.sort_by_key(|remedy| remedy.cost);
        found
    }

    /// The changes with which deferred quotas admit the group. They do not consider whether it then fits on nodes.
    fn quotas(&self, snapshot: &mut Snapshot) -> Vec<GroupRemedy> {
        let quotas = snapshot.cluster.quotas();
        let waits = |member: &&WaitingMember| quotas.obstacle(&member.pod.pod).is_some();
        let Some(first) = self.waiting.iter().find(waits) else {
            return Vec::new();
        };
        let pod = first.pod.clone();
        let changes = quota::changes(snapshot, &pod).into_iter();
        let remedies = changes.filter_map(|change| {
            let (kind, names) = match &change {
                TriedChange::RaiseQuota { raises } => {
                    let quotas = raises.iter().map(|raise| raise.quota.clone());
                    (GroupChange::RaiseQuota, quotas.collect())
                }
                TriedChange::EndPods { pods } => {
                    let names = pods
                        .iter()
                        .map(|pod| format!("{}/{}", pod.namespace, pod.name));
                    (GroupChange::EndPods, names.collect())
                }
                _ => return None,
            };
            Some(GroupRemedy {
                text: change.text(),
                change: kind,
                cost: change.cost(),
                names,
                ..GroupRemedy::default()
            })
        });
        let mut remedies: Vec<GroupRemedy> = remedies.collect();
        remedies.sort_by_key(|remedy| remedy.cost);
        remedies
    }

    /// Returns whether the group can start after some edits.
    fn fits_after(
        &self,
        snapshot: &mut Snapshot,
        edits: &[Edit],
        waiting: &[WaitingMember],
        budget: &mut usize,
    ) -> bool {
        let Some(first) = waiting.first().filter(|_| *budget > 0) else {
            return false;
        };
        let fits = with_edits(snapshot, &first.pod, edits, |snapshot, _| {
            let mut trial = Trial::begin(snapshot, self.profile, self.root, waiting, budget);
            let fits = trial.run().is_ok();
            trial.end();
            fits
        });
        fits && *budget > 0
    }

    /// Adds the missing members, as copies of existing ones.
    fn more_members(
        &self,
        snapshot: &mut Snapshot,
        budget: &mut usize,
        found: &mut Vec<GroupRemedy>,
        notes: &mut Vec<String>,
    ) {
        let mut waiting = self.waiting.to_vec();
        let mut parts = Vec::new();
        let mut groups = Vec::new();
        let mut total = 0;
        let leaves = self.facts.tree.iter();
        for leaf in leaves.filter(|group| group.key.kind == GroupKind::PodGroup) {
            let missing = leaf.spec.min().saturating_sub(leaf.known);
            if missing == 0 {
                continue;
            }
            let mut of_leaf = self.waiting.iter().filter(|w| w.leaf == leaf.key);
            let Some(like) = of_leaf.next().filter(|_| missing <= NEW_MEMBERS_MAX) else {
                notes.push(format!(
                    "podgroup {} lacks {}; whether these fit is not known before one exists",
                    leaf.key.name,
                    count(missing as u64, "pod")
                ));
                return;
            };
            for at in 0..missing {
                let mut pod = Pod::clone(&like.pod.pod);
                pod.metadata.name = format!("{}-new-{at}", like.pod.pod.name()).into();
                pod.metadata.uid = format!("new-{}-{at}", like.pod.pod.uid()).into();
                // The nomination belongs to the copied member alone.
                pod.status.nominated_node_name = Default::default();
                waiting.push(WaitingMember {
                    leaf: leaf.key.clone(),
                    pod: Arc::new(PodInfo::new(Arc::new(pod))),
                    is_new: true,
                });
            }
            total += missing;
            groups.push(leaf.key.name.to_string());
            parts.push(format!(
                "{} like {} in podgroup {}",
                count(missing as u64, "more pod"),
                like.pod.pod.name(),
                leaf.key.name
            ));
        }
        if parts.is_empty() {
            return;
        }
        if self.fits_after(snapshot, &[], &waiting, budget) {
            found.push(GroupRemedy {
                text: format!("create {}", parts.join(" and ")),
                change: GroupChange::CreatePods,
                value: i64::try_from(total).ok(),
                names: groups,
                cost: 15,
                ..GroupRemedy::default()
            })
        } else {
            notes.push(format!(
                "{} would not fit together with the members that are there",
                parts.join(" and ")
            ))
        }
    }

    fn uncordoned(
        &self,
        snapshot: &mut Snapshot,
        budget: &mut usize,
        found: &mut Vec<GroupRemedy>,
    ) {
        let nodes = snapshot.cluster.nodes.iter();
        let cordoned = nodes.filter(|view| view.node().spec.unschedulable);
        let mut cordoned: Vec<String> = cordoned.map(|view| view.name().to_string()).collect();
        cordoned.sort_unstable();
        cordoned.truncate(CORDONED_MAX);
        // Single nodes are tried before all of them together.
        let alone = cordoned.iter().take(CORDONED_ALONE_MAX);
        let mut sets: Vec<Vec<String>> = alone.map(|node| vec![node.clone()]).collect();
        if cordoned.len() > 1 {
            sets.push(cordoned);
        }
        for nodes in sets {
            let edits = nodes.iter().filter_map(|node| {
                let change = TriedChange::Uncordon { node: node.clone() };
                change.edits(&snapshot.cluster, &self.waiting.first()?.pod.pod)
            });
            let edits: Vec<Edit> = edits.flatten().collect();
            if self.fits_after(snapshot, &edits, self.waiting, budget) {
                found.push(GroupRemedy {
                    text: match &nodes[..] {
                        [node] => format!("uncordon node {node}"),
                        nodes => format!("uncordon nodes {}", names(nodes)),
                    },
                    change: GroupChange::Uncordon,
                    cost: 20,
                    names: nodes,
                    ..GroupRemedy::default()
                });
                // The smallest set is enough.
                return;
            }
        }
    }

    fn lower_minimum(
        &self,
        snapshot: &mut Snapshot,
        budget: &mut usize,
        found: &mut Vec<GroupRemedy>,
    ) {
        let leaves = self.facts.tree.iter();
        let lower = leaves.filter_map(|leaf| {
            let places = self.findings.leaves.get(&leaf.key)?.placed.len();
            let min = leaf.scheduled + places;
            (min > 0 && min < leaf.spec.gang_min()?).then_some((&leaf.key, min))
        });
        for (key, min) in lower {
            let remedy = self.with_minimum(snapshot, key, min, budget);
            found.extend(remedy);
        }
        let root = self.root;
        if root.kind == GroupKind::CompositePodGroup
            && let Some(min) = self.facts.of(root).and_then(|root| root.spec.gang_min())
        {
            let minimums = (1..min).rev().take(MINIMUMS_TRIED_MAX);
            let mut remedies =
                minimums.filter_map(|min| self.with_minimum(snapshot, root, min, budget));
            found.extend(remedies.next());
        }
    }

    /// A lower minimum of one group.
    fn with_minimum(
        &self,
        snapshot: &mut Snapshot,
        key: &GroupKey,
        min: usize,
        budget: &mut usize,
    ) -> Option<GroupRemedy> {
        // The field has 32 bits.
        let value = i32::try_from(min).ok()?;
        let edit = with_spec(snapshot, key, |spec| {
            if let Some(gang) = &mut spec.scheduling_policy.gang {
                gang.min = value;
            }
        })?;
        let fits = self.fits_after(snapshot, &[edit], self.waiting, budget);
        let (field, name) = (
            match key.kind {
                GroupKind::PodGroup => "minCount",
                GroupKind::CompositePodGroup => "minGroupCount",
            },
            format!("{} {}", key.kind.as_str(), key.name),
        );
        fits.then(|| GroupRemedy {
            text: format!("lower {field} of {name} to {min}"),
            change: GroupChange::LowerMinCount,
            value: Some(i64::from(value)),
            names: vec![key.name.to_string()],
            cost: 40,
            ..GroupRemedy::default()
        })
    }

    fn no_topology(
        &self,
        snapshot: &mut Snapshot,
        budget: &mut usize,
        found: &mut Vec<GroupRemedy>,
    ) {
        let constrained = self.facts.tree.iter();
        let constrained: Vec<_> = constrained
            .filter(|group| group.spec.topology_key().is_some())
            .collect();
        let edits = constrained.iter().filter_map(|group| {
            with_spec(snapshot, &group.key, |spec| {
                spec.scheduling_constraints.topology.clear();
            })
        });
        let edits: Vec<Edit> = edits.collect();
        // All constraints are dropped together: the trials of subsets would grow exponentially.
        if edits.is_empty() || !self.fits_after(snapshot, &edits, self.waiting, budget) {
            return;
        }
        let groups = constrained.iter().map(|group| group.key.name.to_string());
        let groups: Vec<String> = groups.collect();
        found.push(GroupRemedy {
            text: format!(
                "create {} again without topology constraint",
                named(&groups)
            ),
            change: GroupChange::DropTopology,
            names: groups,
            cost: 200,
            ..GroupRemedy::default()
        });
    }

    /// A higher priority, with which the group preempts other pods.
    fn higher_priority(
        &self,
        snapshot: &mut Snapshot,
        budget: &mut usize,
        found: &mut Vec<GroupRemedy>,
    ) {
        let root = self.root;
        let Some(root) = self.facts.of(root) else {
            return;
        };
        let own = root.spec.priority();
        let running = snapshot.cluster.nodes.iter();
        let running = running.flat_map(|view| view.pods().iter().map(|pod| pod.pod.priority()));
        // Only a priority just above the priority of a running pod can make a difference.
        let above: BTreeSet<i32> = running
            .filter(|priority| (own..PRIORITY_MAX).contains(priority))
            .collect();
        for priority in above.into_iter().take(PRIORITIES_TRIED_MAX) {
            let priority = priority + 1;
            let Some(victims) = self.victims_with(snapshot, priority, budget) else {
                continue;
            };
            let listed: Vec<String> = victims
                .iter()
                .map(|pod| format!("{}/{}", pod.namespace, pod.name))
                .collect();
            found.push(GroupRemedy {
                text: format!(
                    "create the group and its pods again with priority {priority}, so that it preempts {}",
                    names(&listed)
                ),
                change: GroupChange::RaisePriority,
                value: Some(i64::from(priority)),
                victims,
                cost: 300,
                ..GroupRemedy::default()
            });
            return;
        }
    }

    /// The pods that the group preempts with this priority, if it can then start.
    fn victims_with(
        &self,
        snapshot: &mut Snapshot,
        priority: i32,
        budget: &mut usize,
    ) -> Option<Vec<PodName>> {
        let edits = self.facts.tree.iter().filter_map(|group| {
            with_spec(snapshot, &group.key, |spec| spec.priority = Some(priority))
        });
        let edits: Vec<Edit> = edits.collect();
        let waiting = self.waiting.iter().map(|member| {
            let mut pod = Pod::clone(&member.pod.pod);
            pod.spec.priority = Some(priority);
            WaitingMember {
                pod: Arc::new(PodInfo::new(Arc::new(pod))),
                ..member.clone()
            }
        });
        let waiting: Vec<WaitingMember> = waiting.collect();
        let first = waiting.first().filter(|_| *budget > 0)?;
        let results = with_edits(snapshot, &first.pod, &edits, |snapshot, _| {
            let mut trial = Trial::begin(snapshot, self.profile, self.root, &waiting, budget);
            let results = trial.make_room();
            trial.end();
            results
        });
        // The members are restored.
        for member in self.waiting {
            let pod = &member.pod.pod;
            snapshot.cluster.set_pod(pod.uid().clone(), pod.clone());
        }
        let result = results
            .into_iter()
            .find(|result| result.preemption.is_some());
        let preemption = result.filter(|_| *budget > 0)?.preemption?;
        Some(pod_names(snapshot, &victims_of(&preemption)))
    }

    fn new_nodes(&self, snapshot: &mut Snapshot, budget: &mut usize, found: &mut Vec<GroupRemedy>) {
        let Some(first) = self.waiting.first() else {
            return;
        };
        let mut best: Option<(usize, String)> = None;
        for like in self.models(snapshot) {
            // Only fewer nodes than with the best model are an improvement.
            let limit = best.as_ref().map_or(usize::MAX, |(fewest, _)| fewest - 1);
            let mut fits = |nodes: usize| {
                let new = |at: usize| TriedChange::AddNode {
                    like: like.clone(),
                    name: format!("new-{at}-{like}"),
                };
                let pod = &first.pod.pod;
                let edits = (0..nodes).filter_map(|at| new(at).edits(&snapshot.cluster, pod));
                let edits: Vec<Edit> = edits.flatten().collect();
                self.fits_after(snapshot, &edits, self.waiting, budget)
            };
            if let Some(nodes) = fewest(limit, &mut fits) {
                best = Some((nodes, like));
            }
        }
        let Some((nodes, like)) = best else {
            return;
        };
        found.push(GroupRemedy {
            text: match nodes {
                1 => format!("add a node like {like}"),
                nodes => format!("add {nodes} nodes like {like}"),
            },
            change: GroupChange::AddNodes,
            value: i64::try_from(nodes).ok(),
            like: Some(like),
            cost: 1000,
            ..GroupRemedy::default()
        });
    }

    /// The models for new nodes: the closest nodes for members without a node, one of each kind.
    fn models(&self, snapshot: &Snapshot) -> Vec<String> {
        let leaves = self.facts.tree.iter();
        let unfit = leaves
            .filter_map(|leaf| self.findings.leaves.get(&leaf.key))
            .flat_map(|leaf| &leaf.unfit);
        let mut kinds = BTreeSet::new();
        let mut models = Vec::new();
        for closest in unfit.flat_map(|(_, closest)| closest) {
            let Some(view) = snapshot.cluster.nodes.node(&closest.node) else {
                continue;
            };
            let kind = ["cpu", "memory", "pods"].map(|resource| view.allocatable_of(resource));
            if models.len() < LIKE_MAX && kinds.insert(kind) {
                models.push(closest.node.clone());
            }
        }
        models
    }
}

/// The smallest sufficient number up to `limit`, by binary search after the first sufficient one of `NEW_NODES`. A
/// greater number is sufficient whenever a smaller one is.
fn fewest(limit: usize, is_enough: &mut impl FnMut(usize) -> bool) -> Option<usize> {
    let mut too_few = 0;
    let mut enough = None;
    for number in NEW_NODES.map(|number| number.min(limit)) {
        if number <= too_few {
            break;
        }
        if is_enough(number) {
            enough = Some(number);
            break;
        }
        too_few = number;
    }
    let mut enough = enough?;
    while enough - too_few > 1 {
        let middle = too_few + (enough - too_few) / 2;
        if is_enough(middle) {
            enough = middle;
        } else {
            too_few = middle;
        }
    }
    Some(enough)
}

/// Groups by name.
fn named(groups: &[String]) -> String {
    match groups {
        [group] => format!("group {group}"),
        groups => format!("groups {}", names(groups)),
    }
}

fn without_gates(gated: &[&MemberFact]) -> GroupRemedy {
    let gates = gated
        .iter()
        .flat_map(|member| &member.pod.spec.scheduling_gates);
    let gates: BTreeSet<String> = gates.map(|gate| gate.name.to_string()).collect();
    let gates: Vec<String> = gates.into_iter().collect();
    let pods = gated.iter().map(|member| member.pod.name().to_string());
    let pods: Vec<String> = pods.collect();
    GroupRemedy {
        text: format!(
            "remove the scheduling gate(s) {} from the pod(s) {}",
            names(&gates),
            names(&pods)
        ),
        change: GroupChange::RemoveSchedulingGates,
        names: pods,
        cost: 10,
        ..GroupRemedy::default()
    }
}
