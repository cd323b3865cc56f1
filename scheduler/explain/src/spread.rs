//! The spread of each workload over the domains of its topology spread constraints, as it will be after a rollout:
//! without terminating pods and without pods of former revisions.
//!
//! During a rollout the scheduler counts old and new pods together. The new pods fill the gaps between the old ones, so
//! the spread is balanced until the old pods have ended. Nothing moves pods afterwards.
//!
//! ```text
//!               zone a   zone b   zone c   skew, 1 allowed
//! counted now      2        2        2     0
//! old pods end     2        1        0     2
//! ```

use crate::owner::owner_of;
use crate::snapshot::Snapshot;
use berth_api::node_selector::CompiledNodeSelector;
use berth_api::pod::TopologySpreadConstraint;
use berth_api::selector::{Operator, Requirement};
use berth_api::taint::first_untolerated;
use berth_api::{Node, Pod, Selector, Str, TaintEffect};
use berth_framework::Cluster;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The labels with which controllers mark the revision of their pods.
const REVISION_LABELS: [&str; 2] = ["pod-template-hash", "controller-revision-hash"];

/// The pods of a workload in a domain.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DomainPods {
    /// The value of the node label.
    pub domain: String,
    /// The pods that the scheduler counts.
    pub now: usize,
    /// The pods without pods of former revisions.
    pub after: usize,
}

/// The spread of the pods of a workload for one of their constraints.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadSpread {
    /// Kind, namespace and name, such as `Deployment default/web`.
    pub workload: String,
    /// The node label whose values are the domains.
    pub topology_key: String,
    /// The allowed skew.
    pub max_skew: usize,
    /// Whether the constraint is `DoNotSchedule`.
    pub is_required: bool,
    /// The greatest difference between a domain and the domain with the fewest pods, as the scheduler counts.
    pub skew: usize,
    /// The same without pods of former revisions.
    pub skew_after: usize,
    /// The domains, by name.
    pub domains: Vec<DomainPods>,
    /// The fewest pods, `namespace/name`, whose deletion lets their controller restore the allowed skew.
    pub surplus: Vec<String>,
}

impl WorkloadSpread {
    /// Returns whether the workload exceeds its allowed skew after the rollout.
    pub fn is_exceeded(&self) -> bool {
        self.skew_after > self.max_skew
    }
}

/// The spread of all workloads: the answer of `/explain/spread`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SpreadAnswer {
    /// The workloads with topology spread constraints, the workloads beyond their allowed skew first.
    pub workloads: Vec<WorkloadSpread>,
}

/// Returns whether any pod with a node has topology spread constraints: otherwise no workload has a spread.
pub fn has_constraints(cluster: &Cluster) -> bool {
    cluster.nodes.totals().with_spread_constraints() > 0
}

/// Explains the spread of the workloads of a cluster.
pub fn explain_spread(snapshot: &Snapshot) -> SpreadAnswer {
    SpreadAnswer {
        workloads: spreads(&snapshot.cluster),
    }
}

/// The spreads of all workloads with constraints. Workloads beyond their allowed skew are first, ordered by the number
/// of pods to delete.
pub fn spreads(cluster: &Cluster) -> Vec<WorkloadSpread> {
    let mut workloads: BTreeMap<(Str, Str, Str), Vec<&Pod>> = BTreeMap::new();
    for view in cluster.nodes.iter() {
        for info in view.pods() {
            let pod = &info.pod;
            if pod.is_terminating() || pod.spec.topology_spread_constraints.is_empty() {
                continue;
            }
            if let Some((kind, name)) = owner_of(cluster, pod) {
                let key = (kind, pod.namespace().clone(), name);
                workloads.entry(key).or_default().push(pod);
            }
        }
    }
    let mut all = Vec::new();
    for ((kind, namespace, name), pods) in &workloads {
        let Some(newest) = pods.iter().max_by_key(|pod| age_key(pod)) else {
            continue;
        };
        for constraint in &newest.spec.topology_spread_constraints {
            let workload = format!("{kind} {namespace}/{name}");
            all.extend(spread_of(cluster, workload, newest, pods, constraint));
        }
    }
    all.sort_by_key(|spread| (!spread.is_exceeded(), spread.surplus.len()));
    all
}

/// Orders pods by creation time, then by name, so that the order is deterministic.
fn age_key<'a>(pod: &&'a Pod) -> (Option<berth_api::Time>, &'a Str) {
    (pod.metadata.creation_timestamp, pod.name())
}

/// The revision of a pod, if its controller has revisions.
fn revision(pod: &Pod) -> Option<&Str> {
    let labels = pod.labels();
    REVISION_LABELS.iter().find_map(|key| labels.get_str(key))
}

/// The spread for one constraint; `None` if the constraint does not count the pods of the workload.
fn spread_of(
    cluster: &Cluster,
    workload: String,
    newest: &Pod,
    pods: &[&Pod],
    constraint: &TopologySpreadConstraint,
) -> Option<WorkloadSpread> {
    let selector = selector_of(constraint, newest)?;
    if !selector.matches(newest.labels()) {
        return None;
    }
    let inclusion = Inclusion::of(newest, constraint);
    let own: BTreeSet<&Str> = pods.iter().map(|pod| pod.uid()).collect();
    let mut domains: BTreeMap<&Str, DomainPods> = BTreeMap::new();
    // The remaining pods of the workload, by domain.
    let mut staying: BTreeMap<&Str, Vec<&Pod>> = BTreeMap::new();
    for view in cluster.nodes.iter() {
        let Some(domain) = view.labels().get_str(&constraint.topology_key) else {
            continue;
        };
        if !inclusion.includes(view.node()) {
            continue;
        }
        let counted = domains.entry(domain).or_insert_with(|| DomainPods {
            domain: domain.to_string(),
            ..DomainPods::default()
        });
        for info in view.pods() {
            let pod = &info.pod;
            let is_counted = pod.namespace() == newest.namespace()
                && !pod.is_terminating()
                && selector.matches(pod.labels());
            if !is_counted {
                continue;
            }
            counted.now += 1;
            let is_own = own.contains(pod.uid());
            if !is_own || revision(pod) == revision(newest) {
                counted.after += 1;
                if is_own {
                    staying.entry(domain).or_default().push(pod);
                }
            }
        }
    }
    let min_domains = constraint.min_domains.map_or(0, |n| n.max(0) as usize);
    let has_too_few = domains.len() < min_domains;
    let max_skew = constraint.max_skew.max(0) as usize;
    let counts = |of: fn(&DomainPods) -> usize| domains.values().map(of).collect::<Vec<_>>();
    let surplus = surplus(&domains, staying, max_skew, has_too_few);
    Some(WorkloadSpread {
        workload,
        topology_key: constraint.topology_key.to_string(),
        max_skew,
        is_required: constraint.when_unsatisfiable == "DoNotSchedule",
        skew: skew(&counts(|domain| domain.now), has_too_few),
        skew_after: skew(&counts(|domain| domain.after), has_too_few),
        domains: domains.into_values().collect(),
        surplus,
    })
}

/// The selector of a constraint with its `matchLabelKeys`.
fn selector_of(constraint: &TopologySpreadConstraint, pod: &Pod) -> Option<Selector> {
    let selector = Selector::from_label_selector(constraint.label_selector.as_ref()).ok()?;
    let keys = constraint.match_label_keys.iter();
    let requirements = keys.filter_map(|key| {
        let value = pod.labels().get_str(key)?;
        Requirement::new(key.clone(), Operator::In, vec![value.clone()], "").ok()
    });
    Some(selector.and(requirements.collect::<Vec<_>>()))
}

/// The nodes that count for a constraint of a pod.
struct Inclusion<'a> {
    pod: &'a Pod,
    /// The required node affinity, if the constraint honors it.
    terms: Option<CompiledNodeSelector>,
    honors_affinity: bool,
    honors_taints: bool,
}

impl<'a> Inclusion<'a> {
    fn of(pod: &'a Pod, constraint: &TopologySpreadConstraint) -> Self {
        let affinity = pod.spec.affinity.as_ref();
        let affinity = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
        let required = affinity.and_then(|affinity| affinity.required.as_ref());
        let policy = |policy: &Option<Str>| policy.as_ref().map(|policy| policy == "Honor");
        Self {
            pod,
            terms: required.map(CompiledNodeSelector::new),
            honors_affinity: policy(&constraint.node_affinity_policy).unwrap_or(true),
            honors_taints: policy(&constraint.node_taints_policy).unwrap_or(false),
        }
    }

    fn includes(&self, node: &Node) -> bool {
        let has_affinity = || {
            let labels = self.pod.spec.node_selector.as_ref();
            let mut labels = labels.into_iter().flat_map(|labels| labels.iter());
            let terms = self.terms.as_ref();
            labels.all(|(key, value)| node.labels().get(key) == Some(value.as_str()))
                && terms
                    .is_none_or(|terms| terms.matches(node.labels(), node.name()).unwrap_or(false))
        };
        let is_tolerated = || {
            let (taints, tolerations) = (&node.spec.taints, &self.pod.spec.tolerations);
            let forbids = TaintEffect::forbids_scheduling;
            first_untolerated(taints, tolerations, forbids, true).is_none()
        };
        (!self.honors_affinity || has_affinity()) && (!self.honors_taints || is_tolerated())
    }
}

/// The greatest difference to the domain with the fewest pods. If there are fewer domains than required, a domain
/// without pods counts.
fn skew(pods: &[usize], has_too_few_domains: bool) -> usize {
    let most = pods.iter().copied().max().unwrap_or(0);
    let fewest = if has_too_few_domains {
        0
    } else {
        pods.iter().copied().min().unwrap_or(0)
    };
    most - fewest
}

/// The pods to delete if each replacement is placed in the domain with the fewest pods. The first one is the newest pod
/// of the fullest domain, because it has done the least work.
fn surplus(
    domains: &BTreeMap<&Str, DomainPods>,
    mut staying: BTreeMap<&Str, Vec<&Pod>>,
    max_skew: usize,
    has_too_few_domains: bool,
) -> Vec<String> {
    let mut counts: BTreeMap<&Str, usize> = domains
        .iter()
        .map(|(name, pods)| (*name, pods.after))
        .collect();
    for pods in staying.values_mut() {
        pods.sort_by_key(age_key);
    }
    let mut deleted = Vec::new();
    loop {
        let values: Vec<usize> = counts.values().copied().collect();
        if skew(&values, has_too_few_domains) <= max_skew {
            return deleted;
        }
        let fewest = values.iter().copied().min().unwrap_or(0);
        let most = values.iter().copied().max().unwrap_or(0);
        // Moves between equal domains change nothing.
        if most <= fewest + 1 {
            return deleted;
        }
        let fullest = counts.iter().filter(|(_, count)| **count == most);
        let movable = fullest
            .filter_map(|(domain, _)| staying.get(domain).map(|pods| (*domain, pods)))
            .find(|(_, pods)| !pods.is_empty());
        let Some((from, _)) = movable else {
            return deleted;
        };
        let Some(pod) = staying.get_mut(from).and_then(Vec::pop) else {
            return deleted;
        };
        deleted.push(pod.key());
        let to = counts.iter().find(|(_, count)| **count == fewest);
        let to = to.map(|(domain, _)| *domain);
        if let Some(count) = counts.get_mut(from) {
            *count -= 1;
        }
        if let Some(count) = to.and_then(|to| counts.get_mut(to)) {
            *count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_api::{Kind, Object};
    use berth_framework::PodInfo;
    use serde_json::{Value, json};
    use std::sync::Arc;

    /// A cluster of nodes with their zones, and pods of the Deployment `web` with their nodes, revisions and seconds of
    /// creation.
    fn cluster(
        nodes: &[(&str, Value)],
        pods: &[(&str, &str, &str, u32)],
        constraint: Value,
    ) -> Cluster {
        let decode = |kind: Kind, value: Value| -> Object {
            kind.decode(value.to_string().as_bytes())
                .unwrap_or_else(|e| panic!("{value}: {e}"))
        };
        let mut cluster = Cluster::default();
        for (name, rest) in nodes {
            let mut node = json!({
                "metadata": {"name": name, "labels": {"zone": name}},
                "status": {"allocatable": {"cpu": "8", "pods": "110"}},
            });
            merge(&mut node, rest);
            let Object::Node(node) = decode(Kind::Node, node) else {
                panic!("no node");
            };
            cluster.nodes.set_node(node);
        }
        for revision in ["r1", "r2"] {
            let set = json!({"metadata": {"name": format!("web-{revision}"), "namespace": "default",
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web",
                                     "uid": "web", "controller": true}]}});
            cluster.set(&decode(Kind::ReplicaSet, set));
        }
        for (name, node, revision, second) in pods {
            let deleted = name.starts_with("ending").then_some("2026-01-01T00:00:00Z");
            let pod = json!({
                "metadata": {
                    "name": name, "namespace": "default", "uid": name,
                    "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
                    "deletionTimestamp": deleted,
                    "labels": {"app": "web", "pod-template-hash": revision},
                    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet",
                        "name": format!("web-{revision}"), "uid": revision, "controller": true}]},
                "spec": {"nodeName": node, "containers": [{"name": "c"}],
                         "topologySpreadConstraints": [constraint]},
            });
            let Object::Pod(pod) = decode(Kind::Pod, pod) else {
                panic!("no pod");
            };
            cluster
                .nodes
                .add_pod(&Str::new(node), Arc::new(PodInfo::new(pod)));
        }
        cluster
    }

    fn merge(into: &mut Value, from: &Value) {
        for (name, value) in from.as_object().into_iter().flatten() {
            match (&mut into[name], value) {
                (Value::Object(_), Value::Object(_)) => merge(&mut into[name], value),
                (field, value) => *field = value.clone(),
            }
        }
    }

    fn constraint(more: Value) -> Value {
        let mut constraint = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}}});
        merge(&mut constraint, &more);
        constraint
    }

    fn zones(names: &[&'static str]) -> Vec<(&'static str, Value)> {
        names.iter().map(|name| (*name, json!({}))).collect()
    }

    fn one(cluster: &Cluster) -> WorkloadSpread {
        let mut all = spreads(cluster);
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    #[test]
    fn former_revisions_and_ending_pods_do_not_count_after_a_rollout() {
        let pods = [
            ("new-1", "a", "r2", 10),
            ("new-2", "a", "r2", 11),
            ("new-3", "b", "r2", 12),
            ("old-1", "b", "r1", 1),
            ("old-2", "c", "r1", 2),
            ("old-3", "c", "r1", 3),
            ("ending", "c", "r1", 4),
        ];
        let spread = one(&cluster(
            &zones(&["a", "b", "c"]),
            &pods,
            constraint(json!({})),
        ));
        assert_eq!(spread.workload, "Deployment default/web");
        assert_eq!((spread.skew, spread.skew_after), (0, 2));
        let counts: Vec<(usize, usize)> = spread.domains.iter().map(|d| (d.now, d.after)).collect();
        assert_eq!(counts, [(2, 2), (2, 1), (2, 0)]);
        assert!(spread.is_exceeded() && spread.is_required);
        // One pod is enough: the newest one of the fullest zone.
        assert_eq!(spread.surplus, ["default/new-2"]);
        // With this constraint, only pods of the same revision count, also during the rollout.
        let keys = constraint(json!({"matchLabelKeys": ["pod-template-hash"]}));
        let spread = one(&cluster(&zones(&["a", "b", "c"]), &pods, keys));
        assert_eq!((spread.skew, spread.skew_after), (2, 2));
    }

    #[test]
    fn the_fewest_pods_are_deleted() {
        let pods = |counts: [u32; 3]| -> Vec<(String, &str)> {
            let zones = ["a", "b", "c"].into_iter().zip(counts);
            zones
                .flat_map(|(zone, count)| (0..count).map(move |at| (format!("{zone}{at}"), zone)))
                .collect()
        };
        for (counts, max_skew, deleted) in [
            ([6, 0, 0], 1, 4),
            ([6, 0, 0], 2, 3),
            ([6, 0, 0], 6, 0),
            ([3, 2, 2], 1, 0),
            ([4, 4, 1], 1, 2),
            ([5, 1, 0], 1, 3),
        ] {
            let pods = pods(counts);
            let pods: Vec<(&str, &str, &str, u32)> = pods
                .iter()
                .map(|(name, zone)| (name.as_str(), *zone, "r2", 1))
                .collect();
            let constraint = constraint(json!({"maxSkew": max_skew}));
            let spread = one(&cluster(&zones(&["a", "b", "c"]), &pods, constraint));
            assert_eq!(spread.surplus.len(), deleted, "{counts:?}, skew {max_skew}");
        }
    }

    #[test]
    fn only_nodes_of_the_constraint_count() {
        let tainted = json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}});
        let nodes = [("a", json!({})), ("b", json!({})), ("c", tainted)];
        let pods = [
            ("p1", "a", "r2", 1),
            ("p2", "b", "r2", 2),
            ("p3", "a", "r2", 3),
        ];
        for (more, expected) in [
            (json!({}), 2),
            (json!({"nodeTaintsPolicy": "Honor"}), 1),
            // There are two domains, fewer than the required three, so a domain without pods counts.
            (json!({"nodeTaintsPolicy": "Honor", "minDomains": 3}), 2),
        ] {
            let spread = one(&cluster(&nodes, &pods, constraint(more.clone())));
            assert_eq!(spread.skew_after, expected, "{more}");
        }
        // A constraint that does not select the pods themselves does not define their spread.
        let other = constraint(json!({"labelSelector": {"matchLabels": {"app": "other"}}}));
        assert!(spreads(&cluster(&nodes, &pods, other)).is_empty());
    }
}
