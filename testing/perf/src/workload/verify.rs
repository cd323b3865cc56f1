//! The verifier: checks that a scheduler may make the bindings of a run.
//!
//! It reads the log of the watches in the order of resourceVersions, which both etcd and the embedded store count for
//! all kinds together, and knows only the writes of the scheduler. It judges with `berth-oracle`, and shares no
//! scheduling logic with the scheduler.
//!
//! A scheduler receives changes with a delay. So a rule about the node alone holds if any version of the node that
//! existed since the creation of the pod satisfies it. Rules about other pods are exact where a delay cannot break
//! them: the scheduler makes the bindings itself, and deleted pods only free resources. Spread constraints depend on
//! the order of decisions, which is not in the log; they are checked on the final state where that is conclusive.

mod near;
mod node;
mod spread;
mod volumes;

pub use volumes::Surroundings;

use berth_api::{Labels, Node, Pod, ResourceList};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

/// A change of the log.
#[derive(Debug, Clone)]
pub struct LogEntry {
    /// The resourceVersion as a number.
    pub revision: u64,
    /// The change.
    pub change: ObjectChange,
}

impl LogEntry {
    /// A change at a resourceVersion; a version that is no number is sorted first.
    pub fn new(version: &str, change: ObjectChange) -> Self {
        Self {
            revision: version.parse().unwrap_or(0),
            change,
        }
    }
}

/// The change.
#[derive(Debug, Clone)]
pub enum ObjectChange {
    /// A pod is new, or its labels, spec or phase changed.
    Pod(Arc<Pod>),
    /// A pod has this node.
    Bound {
        /// The pod.
        uid: Arc<str>,
        /// The node.
        node: Arc<str>,
    },
    /// A pod was deleted, by UID.
    PodGone(Arc<str>),
    /// A node is new or changed.
    Node(Arc<Node>),
    /// A node was deleted, by name.
    NodeGone(Arc<str>),
}

/// A broken rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// `namespace/name` of the pod.
    pub pod: String,
    /// The node that the pod was bound to.
    pub node: String,
    /// The rule that was broken.
    pub rule: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "pod {} bound to node {}: {}",
            self.pod, self.node, self.rule
        )
    }
}

/// The findings of the verifier.
#[derive(Debug, Clone, Default)]
pub struct VerifierVerdict {
    /// The number of bindings that were checked.
    pub bindings: usize,
    /// The violations, in the order of the log.
    pub violations: Vec<Violation>,
}

/// Checks all bindings of a log.
pub fn verify(mut log: Vec<LogEntry>, surroundings: &Surroundings) -> VerifierVerdict {
    // The watches of pods and nodes are each in order; together they are sorted by revision.
    log.sort_by_key(|entry| entry.revision);
    let mut world = LogWorld::new(&log, surroundings);
    let mut verdict = VerifierVerdict::default();
    for entry in log {
        world.apply(entry, &mut verdict);
    }
    verdict.violations.extend(spread::check(&world));
    verdict.violations.extend(volumes::devices(surroundings));
    verdict
}

/// A version of a node; none after its deletion.
#[derive(Debug, Clone)]
struct NodeVersion {
    from: u64,
    node: Option<Arc<Node>>,
}

/// A pod of the log.
#[derive(Debug, Clone)]
struct PlacedEntry {
    pod: Arc<Pod>,
    /// Every set of labels that the pod had.
    versions: Vec<Arc<Pod>>,
    created: u64,
    node: Option<Arc<str>>,
    /// Whether the pod had its node at its first version.
    by_creator: bool,
    bound: u64,
    gone: Option<u64>,
}

/// A node label with a value: a domain.
type LabelDomain = (String, String);

/// The pods of a node, without deleted ones.
#[derive(Debug, Default)]
struct NodePods {
    uids: HashSet<Arc<str>>,
    /// The sum of their requests, computed on first use because thousands of pods may be bound to one node. It is
    /// recomputed after a pod was deleted or resized.
    requested: Option<ResourceList>,
}

/// The cluster at a point of the log.
struct LogWorld<'a> {
    surroundings: &'a Surroundings,
    nodes: HashMap<Arc<str>, Vec<NodeVersion>>,
    pods: HashMap<Arc<str>, PlacedEntry>,
    on_node: HashMap<Arc<str>, NodePods>,
    /// Node labels that terms of pods refer to.
    keys: HashSet<String>,
    /// The pods of each domain, without deleted ones.
    in_domain: HashMap<LabelDomain, HashSet<Arc<str>>>,
    /// The pods of each domain with required anti-affinity to that label.
    guarded: HashMap<LabelDomain, HashSet<Arc<str>>>,
    /// Every pod that was in a domain at any time of the log, with the revision at which it was bound.
    ever: HashMap<LabelDomain, Vec<(Arc<str>, u64)>>,
    /// The revision of each pod's deletion, over the whole log.
    end: HashMap<Arc<str>, u64>,
    /// The first version of each pod, over the whole log.
    first: HashMap<Arc<str>, Arc<Pod>>,
    /// The last change of a node or deletion of a pod.
    unsettled: u64,
}

impl<'a> LogWorld<'a> {
    fn new(log: &[LogEntry], surroundings: &'a Surroundings) -> Self {
        let mut world = Self {
            surroundings,
            nodes: HashMap::new(),
            pods: HashMap::new(),
            on_node: HashMap::new(),
            keys: HashSet::new(),
            in_domain: HashMap::new(),
            guarded: HashMap::new(),
            ever: HashMap::new(),
            end: HashMap::new(),
            first: HashMap::new(),
            unsettled: 0,
        };
        world.read_ahead(log);
        world
    }

    /// Records the later entries that rules about affinity need: a binding that was decided before another one may be
    /// written after it.
    fn read_ahead(&mut self, log: &[LogEntry]) {
        let mut latest: HashMap<&str, &Arc<Node>> = HashMap::new();
        let mut placements: Vec<(Arc<str>, Arc<str>, u64)> = Vec::new();
        for entry in log {
            match &entry.change {
                ObjectChange::Pod(pod) => {
                    near::topology_keys(pod, &mut self.keys);
                    let uid: Arc<str> = pod.uid().as_str().into();
                    if pod.is_assigned() && !self.first.contains_key(&uid) {
                        let node = pod.spec.node_name.as_str().into();
                        placements.push((Arc::clone(&uid), node, entry.revision));
                    }
                    self.first.entry(uid).or_insert_with(|| Arc::clone(pod));
                }
                ObjectChange::Bound { uid, node } => {
                    placements.push((Arc::clone(uid), Arc::clone(node), entry.revision));
                }
                ObjectChange::PodGone(uid) => {
                    self.end.insert(Arc::clone(uid), entry.revision);
                }
                ObjectChange::Node(node) => {
                    latest.insert(node.name().as_str(), node);
                }
                ObjectChange::NodeGone(_) => {}
            }
        }
        for (uid, node, revision) in placements {
            let Some(node) = latest.get(&*node) else {
                continue;
            };
            for key in &self.keys {
                if let Some(value) = node.labels().get(key) {
                    self.ever
                        .entry((key.clone(), value.to_owned()))
                        .or_default()
                        .push((Arc::clone(&uid), revision));
                }
            }
        }
    }

    fn apply(&mut self, entry: LogEntry, verdict: &mut VerifierVerdict) {
        let revision = entry.revision;
        match entry.change {
            ObjectChange::Node(node) => {
                let name: Arc<str> = node.name().as_str().into();
                let versions = self.nodes.entry(name).or_default();
                // Nodes are created one after the other; only changes of existing nodes affect earlier decisions.
                if !versions.is_empty() {
                    self.unsettled = revision;
                }
                versions.push(NodeVersion {
                    from: revision,
                    node: Some(node),
                });
            }
            ObjectChange::NodeGone(name) => {
                self.unsettled = revision;
                self.nodes.entry(name).or_default().push(NodeVersion {
                    from: revision,
                    node: None,
                });
            }
            ObjectChange::PodGone(uid) => {
                self.unsettled = revision;
                self.remove(&uid);
                if let Some(placed) = self.pods.get_mut(&uid) {
                    placed.gone = Some(revision);
                }
            }
            ObjectChange::Pod(pod) => self.see(pod, revision),
            ObjectChange::Bound { uid, node } => self.bind(&uid, node, revision, verdict),
        }
    }

    fn see(&mut self, pod: Arc<Pod>, revision: u64) {
        let uid: Arc<str> = pod.uid().as_str().into();
        if let Some(placed) = self.pods.get_mut(&uid) {
            if let Some(node) = &placed.node
                && let Some(pods) = self.on_node.get_mut(node)
                && berth_oracle::requests(&placed.pod) != berth_oracle::requests(&pod)
            {
                pods.requested = None;
            }
            placed.versions.push(Arc::clone(&pod));
            placed.pod = pod;
            if placed.pod.is_terminal() {
                self.remove(&uid);
            }
            return;
        }
        let node: Option<Arc<str>> = pod
            .is_assigned()
            .then(|| pod.spec.node_name.as_str().into());
        let ended = pod.is_terminal();
        self.pods.insert(
            Arc::clone(&uid),
            PlacedEntry {
                versions: vec![Arc::clone(&pod)],
                pod,
                created: revision,
                node: node.clone(),
                by_creator: node.is_some(),
                bound: revision,
                gone: None,
            },
        );
        if let Some(node) = node
            && !ended
        {
            self.place(&uid, &node);
        }
    }

    fn bind(
        &mut self,
        uid: &Arc<str>,
        node: Arc<str>,
        revision: u64,
        verdict: &mut VerifierVerdict,
    ) {
        let Some(placed) = self.pods.get(uid).cloned() else {
            return;
        };
        let violation = |rule: String| Violation {
            pod: placed.pod.key(),
            node: node.to_string(),
            rule,
        };
        if let Some(before) = &placed.node {
            if *before != node {
                verdict
                    .violations
                    .push(violation(format!("it was bound to node {before} before")));
            }
            return;
        }
        verdict.bindings += 1;
        self.sum_requests(&node);
        let versions = self.versions_since(&node, placed.created, revision);
        if let Some(rule) = self.broken_rule(&placed, &versions, &node) {
            verdict.violations.push(violation(rule));
        }
        if let Some(placed) = self.pods.get_mut(uid) {
            placed.node = Some(Arc::clone(&node));
            placed.bound = revision;
        }
        self.place(uid, &node);
    }

    fn broken_rule(
        &self,
        placed: &PlacedEntry,
        versions: &[Arc<Node>],
        name: &Arc<str>,
    ) -> Option<String> {
        let Some(latest) = versions.last() else {
            return Some("the node does not exist".to_owned());
        };
        let pod = &placed.pod;
        if let Some(gate) = pod.spec.scheduling_gates.first() {
            return Some(format!("the pod has scheduling gate {}", gate.name));
        }
        node::broken_rule(pod, versions)
            .or_else(|| node::lacking(self, pod, name, versions))
            .or_else(|| near::broken_rule(self, placed, latest))
            .or_else(|| volumes::broken_rule(self, placed, name, latest))
    }

    /// The versions of a node that existed at some time between two revisions, in order.
    fn versions_since(&self, name: &Arc<str>, from: u64, to: u64) -> Vec<Arc<Node>> {
        let versions = self.nodes.get(name).map(Vec::as_slice).unwrap_or_default();
        versions
            .iter()
            .enumerate()
            .filter(|(index, version)| {
                let until = versions.get(index + 1).map_or(u64::MAX, |next| next.from);
                version.from <= to && until >= from
            })
            .filter_map(|(_, version)| version.node.clone())
            .collect()
    }

    /// The labels of namespaces by name; empty for unknown namespaces.
    fn namespaces(&self) -> impl Fn(&str) -> Labels {
        let namespaces = &self.surroundings.namespaces;
        |name| namespaces.get(name).cloned().unwrap_or_default()
    }

    fn latest_node(&self, name: &str) -> Option<&Arc<Node>> {
        self.nodes.get(name)?.last()?.node.as_ref()
    }

    fn pods_on(&self, node: &Arc<str>) -> impl Iterator<Item = &PlacedEntry> {
        let uids = self.on_node.get(node).into_iter();
        let uids = uids.flat_map(|pods| &pods.uids);
        uids.filter_map(|uid| self.pods.get(uid))
    }

    fn sum_requests(&mut self, node: &Arc<str>) {
        let pods = self.on_node.entry(Arc::clone(node)).or_default();
        pods.requested.get_or_insert_with(|| {
            let mut sum = ResourceList::default();
            for placed in pods.uids.iter().filter_map(|uid| self.pods.get(uid)) {
                sum.add_all(&berth_oracle::requests(&placed.pod));
            }
            sum
        });
    }

    /// The sum of the requests of a node's pods, as of [`sum_requests`](Self::sum_requests).
    fn requested_on(&self, node: &Arc<str>) -> ResourceList {
        let pods = self.on_node.get(node);
        pods.and_then(|pods| pods.requested.clone())
            .unwrap_or_default()
    }

    fn domains_of(&self, node: &str) -> Vec<LabelDomain> {
        let Some(node) = self.latest_node(node) else {
            return Vec::new();
        };
        let keys = self.keys.iter();
        keys.filter_map(|key| Some((key.clone(), node.labels().get(key)?.to_owned())))
            .collect()
    }

    fn place(&mut self, uid: &Arc<str>, node: &Arc<str>) {
        let Some(placed) = self.pods.get(uid) else {
            return;
        };
        let pods = self.on_node.entry(Arc::clone(node)).or_default();
        if pods.uids.insert(Arc::clone(uid))
            && let Some(sum) = &mut pods.requested
        {
            sum.add_all(&berth_oracle::requests(&placed.pod));
        }
        let guards = near::guarded_keys(&placed.pod);
        for domain in self.domains_of(node) {
            if guards.contains(&domain.0) {
                self.guarded
                    .entry(domain.clone())
                    .or_default()
                    .insert(Arc::clone(uid));
            }
            self.in_domain
                .entry(domain)
                .or_default()
                .insert(Arc::clone(uid));
        }
    }

    fn remove(&mut self, uid: &Arc<str>) {
        let Some(placed) = self.pods.get(uid) else {
            return;
        };
        let Some(node) = placed.node.clone() else {
            return;
        };
        if let Some(pods) = self.on_node.get_mut(&node) {
            pods.uids.remove(uid);
            pods.requested = None;
        }
        for domain in self.domains_of(&node) {
            for index in [&mut self.in_domain, &mut self.guarded] {
                if let Some(pods) = index.get_mut(&domain) {
                    pods.remove(uid);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
