//! The units in which pods are evicted: a pod alone, or all pods of a group whose disruption mode is `all`; and the
//! disruption budgets that evictions use up.

use super::victims::started;
use berth_api::{Pod, Selector, Str, Time};
use berth_framework::cluster::{GroupKey, GroupKind};
use berth_framework::features::Behaviour;
use berth_framework::{Cluster, FeatureGates, PodInfo, Slot};
use rustc_hash::FxHashMap;
use std::cmp::{Ordering, Reverse};
use std::sync::Arc;

/// Pods that are evicted together or not at all.
#[derive(Debug, Clone)]
pub(super) struct Unit {
    /// The pods with their nodes; at least one.
    pub(super) pods: Vec<(Slot, Arc<PodInfo>)>,
    /// The priority: for pods of a group, the priority of its root group.
    pub(super) priority: i32,
    /// Whether it is a composite group, a pod group, or a pod.
    rank: u8,
}

/// Priority, kind, number of pods, start, and UID of the first pod.
type Importance = (Reverse<i32>, u8, Reverse<usize>, Time, Option<Str>);

impl Unit {
    /// The start of the first pod that started.
    fn started(&self) -> Time {
        let starts = self.pods.iter().map(|(_, pod)| started(&pod.pod));
        starts.min().unwrap_or(Time::MAX)
    }

    /// The more important unit first: by priority and kind, then groups with more pods, then the earlier start.
    fn importance(&self) -> Importance {
        let size = match self.rank {
            2 => 0,
            _ => self.pods.len(),
        };
        let uid = self.pods.first().map(|(_, pod)| pod.pod.uid().clone());
        (
            Reverse(self.priority),
            self.rank,
            Reverse(size),
            self.started(),
            uid,
        )
    }
}

/// The priority of a pod as a victim: the priority of its root group, if it has one.
pub(super) fn priority_of(cluster: &Cluster, pod: &Pod) -> i32 {
    let leaf = GroupKey::of_pod(pod).filter(|_| !cluster.groups().is_empty());
    let root = leaf.and_then(|leaf| cluster.groups().root_of(&leaf).ok());
    let spec = root.and_then(|root| cluster.groups().spec(&root));
    spec.map_or(pod.priority(), |spec| spec.priority())
}

/// The group with which a pod is evicted.
pub(super) fn whole_of(cluster: &Cluster, pod: &Pod) -> Option<GroupKey> {
    let leaf = GroupKey::of_pod(pod)?;
    cluster.groups().disrupted_as_a_whole(&leaf)
}

fn rank_of(pod: &Pod, whole: Option<&GroupKey>) -> u8 {
    match whole {
        Some(group) if group.kind == GroupKind::CompositePodGroup => 0,
        Some(_) => 1,
        None if pod.pod_group_name().is_some() => 1,
        None => 2,
    }
}

/// The units of lower priority that have a pod on a node, with their pods on other nodes, the most important first.
pub(super) fn units_on(cluster: &Cluster, priority: i32, node: Slot) -> Vec<Unit> {
    let mut units: Vec<Unit> = Vec::new();
    let mut wholes: Vec<GroupKey> = Vec::new();
    let pods = cluster.nodes.get(node).map(|view| view.pods());
    for pod in pods.unwrap_or_default() {
        let own = priority_of(cluster, &pod.pod);
        if own >= priority {
            continue;
        }
        let whole = whole_of(cluster, &pod.pod);
        let rank = rank_of(&pod.pod, whole.as_ref());
        let pods = match whole {
            None => vec![(node, pod.clone())],
            Some(whole) if wholes.contains(&whole) => continue,
            Some(whole) => {
                let pods = pods_of(cluster, &whole);
                wholes.push(whole);
                pods
            }
        };
        units.push(Unit {
            pods,
            priority: own,
            rank,
        });
    }
    units.sort_by_cached_key(Unit::importance);
    units
}

/// The pods of a group on nodes, by their age.
fn pods_of(cluster: &Cluster, group: &GroupKey) -> Vec<(Slot, Arc<PodInfo>)> {
    let leaves = cluster.groups().leaves(group);
    let members = leaves.iter().filter_map(|leaf| cluster.pods.members(leaf));
    let uids = members.flat_map(|members| members.scheduled());
    let placed = uids.filter_map(|uid| {
        let node = cluster.nodes.node(&cluster.pods.get(uid)?.spec.node_name)?;
        let mut pods = node.pods().iter();
        let pod = pods.find(|pod| pod.pod.uid() == uid)?;
        Some((node.slot(), pod.clone()))
    });
    let mut pods: Vec<(Slot, Arc<PodInfo>)> = placed.collect();
    pods.sort_by(|(_, a), (_, b)| by_age(&a.pod, &b.pod));
    pods
}

/// The units of lower priority, the most important first.
pub(super) fn units_below(cluster: &Cluster, priority: i32) -> Vec<Unit> {
    let lowest = cluster.nodes.totals().lowest_priority();
    // Without groups, the lowest priority in the cluster shows that there is no victim.
    if cluster.groups().is_empty() && lowest.is_none_or(|lowest| lowest >= priority) {
        return Vec::new();
    }
    let mut wholes: FxHashMap<GroupKey, usize> = FxHashMap::default();
    let mut units: Vec<Unit> = Vec::new();
    for node in cluster.nodes.iter() {
        for pod in node.pods() {
            let own = priority_of(cluster, &pod.pod);
            if own >= priority {
                continue;
            }
            let whole = whole_of(cluster, &pod.pod);
            let placed = (node.slot(), pod.clone());
            // The pods of a group with mode `all` form one unit, on any number of nodes (G-25).
            if let Some(at) = whole.as_ref().and_then(|whole| wholes.get(whole)) {
                units[*at].pods.push(placed);
                continue;
            }
            let rank = rank_of(&pod.pod, whole.as_ref());
            if let Some(whole) = whole {
                wholes.insert(whole, units.len());
            }
            units.push(Unit {
                pods: vec![placed],
                priority: own,
                rank,
            });
        }
    }
    for unit in &mut units {
        unit.pods.sort_by(|(_, a), (_, b)| by_age(&a.pod, &b.pod));
    }
    units.sort_by_cached_key(Unit::importance);
    units
}

fn by_age(a: &Pod, b: &Pod) -> Ordering {
    (started(a), a.uid()).cmp(&(started(b), b.uid()))
}

/// The disruptions that budgets still allow, while pods are chosen as victims.
pub(super) struct Budgets<'a> {
    features: &'a FeatureGates,
    /// The budgets with their selectors, by namespace.
    known: FxHashMap<Str, Vec<KnownBudget>>,
}

struct KnownBudget {
    selector: Option<Selector>,
    disrupted: Vec<Str>,
    left: i64,
}

impl<'a> Budgets<'a> {
    pub(super) fn new(cluster: &Cluster, features: &'a FeatureGates) -> Self {
        let mut known: FxHashMap<Str, Vec<KnownBudget>> = FxHashMap::default();
        for budget in cluster.budgets().iter() {
            let selector = Selector::from_label_selector(budget.spec.selector.as_ref()).ok();
            let of_namespace = known.entry(budget.metadata.namespace.clone()).or_default();
            of_namespace.push(KnownBudget {
                selector,
                disrupted: budget.status.disrupted_pods.keys().cloned().collect(),
                left: i64::from(budget.status.disruptions_allowed),
            });
        }
        Self { features, known }
    }

    /// Returns whether the eviction of the pods violates a budget. Each pod is counted in each of its budgets.
    pub(super) fn are_violated_by(&mut self, pods: &[(Slot, Arc<PodInfo>)]) -> bool {
        let features = self.features;
        let empty_protects = features.has(Behaviour::EmptyBudgetSelectorProtectsAllPods);
        let mut violates = false;
        for (_, info) in pods {
            let pod = &info.pod;
            if pod.labels().is_empty() && !empty_protects {
                continue;
            }
            for budget in self.known.get_mut(pod.namespace()).into_iter().flatten() {
                let selector = budget.selector.as_ref();
                let speaks = selector
                    .is_some_and(|s| (empty_protects || !s.is_empty()) && s.matches(pod.labels()));
                if !speaks || budget.disrupted.contains(pod.name()) {
                    continue;
                }
                budget.left -= 1;
                violates |= budget.left < 0;
            }
        }
        violates
    }
}
