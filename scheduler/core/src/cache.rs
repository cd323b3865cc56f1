//! The scheduler's view of the cluster: the stored objects, with the scheduler's own decisions that the API does not
//! show yet.
//!
//! A pod is **assumed** on its node from the decision until an update shows it bound, or until it is forgotten because
//! binding failed. All parts of the core see the **effective** pod: the stored object with our unconfirmed writes
//! applied.
//!
//! **Architecture invariant:** the cache *is* the snapshot. It is not copied; one thread changes it, between decisions.

mod assumed;
mod names;
mod node_events;
#[cfg(test)]
mod tests;

pub use node_events::node_update_events;

use berth_api::{Kind, Node, Object, ObjectMeta, Pod, Str};
use berth_dispatcher::{VersionNumber, Writes, version_number};
use berth_framework::write::PodEdit;
use berth_framework::{Cluster, PodInfo, Write};
use names::PodsByName;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The reason why a pod cannot be assumed or forgotten (C-6).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CacheError {
    /// It has a node already.
    #[error("pod {uid}({pod}) is in the cache, so can't be assumed")]
    Known {
        /// The pod's identity.
        uid: Str,
        /// `namespace/name`.
        pod: String,
    },
    /// It is assumed elsewhere.
    #[error("pod {uid}({pod}) was assumed on {wanted} but assigned to {node}")]
    Elsewhere {
        /// The pod's identity.
        uid: Str,
        /// `namespace/name`.
        pod: String,
        /// The expected node.
        wanted: Str,
        /// The actual node.
        node: Str,
    },
    /// It is not assumed but bound.
    #[error("pod {uid}({pod}) wasn't assumed so cannot be forgotten")]
    NotAssumed {
        /// The pod's identity.
        uid: Str,
        /// `namespace/name`.
        pod: String,
    },
}

/// The reason why a pod is counted on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    /// From the stored object.
    Stored,
    /// We decided so.
    Assumed,
    /// The API has answered that the object is on the node since this version. The stored object is older.
    Confirmed(VersionNumber),
}

impl Why {
    /// Returns whether the stored object does not show the node.
    fn is_unshown(self) -> bool {
        self != Self::Stored
    }
}

fn is_assumed(counted: &Option<(Str, Why)>) -> bool {
    matches!(counted, Some((_, Why::Assumed)))
}

/// The node that counts a pod although the stored object does not show it.
fn unshown_node(counted: &Option<(Str, Why)>) -> Option<&Str> {
    let unshown = counted.as_ref().filter(|(_, why)| why.is_unshown());
    unshown.map(|(node, _)| node)
}

/// Returns whether the object is of that version or a later one.
fn has_reached(pod: &Pod, version: VersionNumber) -> bool {
    version_number(&pod.metadata.resource_version).is_some_and(|shown| shown >= version)
}

#[derive(Debug, Default)]
struct Known {
    /// The object as the API shows it; absent once it is deleted.
    stored: Option<Arc<Pod>>,
    /// The node that counts the pod, and the reason.
    counted: Option<(Str, Why)>,
    /// Our writes that the stored object does not show. Most pods have none.
    writes: Option<Box<Writes>>,
}

fn boxed(writes: Writes) -> Option<Box<Writes>> {
    (!writes.is_empty()).then(|| Box::new(writes))
}

/// The effect of a change of a stored pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodChange {
    /// The effective pod before; `None` when it is new.
    pub old: Option<Arc<Pod>>,
    /// The effective pod now.
    pub new: Arc<Pod>,
}

/// The cluster as seen by the scheduler.
#[derive(Debug, Default)]
pub struct Cache {
    cluster: Cluster,
    known: FxHashMap<Str, Known>,
    /// The stored pods by namespace and name.
    by_name: PodsByName,
    /// Objects of other kinds, by kind, namespace and name, as the API shows them.
    others: FxHashMap<Key, Object>,
    /// The assumed writes to these objects.
    assumed_writes: FxHashMap<Key, Write>,
    assumed: usize,
    /// The edits by plugins of assumed pods, by UID.
    edits: FxHashMap<Str, Vec<PodEdit>>,
}

/// Kind, namespace and name of an object.
type Key = (Kind, Str, Str);

fn key_of(object: &Object) -> Key {
    let metadata = object.metadata();
    (
        object.kind(),
        metadata.namespace.clone(),
        metadata.name.clone(),
    )
}

impl Cache {
    /// The whole cluster, including assumed pods.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The whole cluster, for changes that are assumed and reverted.
    pub fn cluster_mut(&mut self) -> &mut Cluster {
        &mut self.cluster
    }

    /// From now on, PreEnqueue rejects the pod, because its victims are being evicted.
    pub(crate) fn begins_to_preempt(&mut self, uid: &Str) {
        self.cluster.preempting.insert(uid.clone());
    }

    /// No victim of the pod is being evicted any more.
    pub(crate) fn ends_to_preempt(&mut self, uid: &str) {
        self.cluster.preempting.remove(uid);
    }

    /// The number of pods that are assumed, and not known to be bound.
    pub fn assumed_pods(&self) -> usize {
        self.assumed
    }

    /// The number of pods that are counted on nodes.
    pub fn counted_pods(&self) -> usize {
        self.known.values().filter(|k| k.counted.is_some()).count()
    }

    // --- pods ----------------------------------------------------------------------------------------------

    /// The pod as the API shows it.
    pub fn stored(&self, uid: &str) -> Option<&Arc<Pod>> {
        self.known.get(uid)?.stored.as_ref()
    }

    /// The pod of that name as the API shows it.
    pub fn stored_by_name(&self, namespace: &str, name: &str) -> Option<&Arc<Pod>> {
        self.by_name.get(namespace, name)
    }

    /// The pod with our unconfirmed writes applied.
    pub fn effective(&self, uid: &str) -> Option<&Arc<Pod>> {
        self.cluster.pods.get(uid)
    }

    /// The pods as the API shows them, in no particular order.
    pub fn stored_pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.known.values().filter_map(|k| k.stored.as_ref())
    }

    /// Returns whether the pod is assumed on a node that the API does not show yet.
    pub fn is_assumed(&self, uid: &str) -> bool {
        self.assumed_on(uid).is_some()
    }

    /// The node on which a pod is assumed.
    pub fn assumed_on(&self, uid: &str) -> Option<&Str> {
        unshown_node(&self.known.get(uid)?.counted)
    }

    /// The API has answered that a pod is bound, in this version: the pod is not assumed any more, though the stored
    /// object does not show its node yet. An object of this or a later version takes precedence.
    pub(crate) fn confirm(&mut self, uid: &str, version: VersionNumber) {
        let Some(known) = self.known.get_mut(uid) else {
            return;
        };
        if let Some((_, why @ Why::Assumed)) = &mut known.counted {
            *why = Why::Confirmed(version);
            self.assumed -= 1;
        }
    }

    /// Stores a new or changed pod object, with our writes that it does not show. A bound pod is counted on its node.
    /// If it was assumed, it is confirmed (C-7), also on a different node.
    pub fn set_pod(&mut self, pod: Arc<Pod>, writes: Writes) -> PodChange {
        let uid = pod.uid().clone();
        let old = self.cluster.pods.get(&uid).cloned();
        self.by_name.insert(&pod);
        let known = self.known.entry(uid.clone()).or_default();
        known.writes = boxed(writes);
        let before = known.stored.replace(pod.clone());
        if pod.is_assigned() {
            let node = pod.spec.node_name.clone();
            self.count_on(&uid, Some((node, Why::Stored)), &pod);
        } else {
            let counted = self.known.get(&uid).and_then(|k| k.counted.clone());
            match counted {
                // The stored object is newer than the binding and has no node, so the binding was undone. The API does
                // not do this by itself; the object takes precedence.
                Some((_, Why::Confirmed(version))) if has_reached(&pod, version) => {
                    self.count_on(&uid, None, &pod);
                }
                // An assumed pod keeps its node but is counted with its new labels and spec, because other pods may
                // select its labels.
                Some((node, why @ (Why::Assumed | Why::Confirmed(_)))) => {
                    let differs =
                        |old: &Arc<Pod>| old.labels() != pod.labels() || old.spec != pod.spec;
                    if before.as_ref().is_none_or(differs) {
                        let placed = self.placed(&pod, &node);
                        self.count_on(&uid, Some((node, why)), &placed);
                    }
                }
                // A pod cannot lose its node otherwise.
                Some((_, Why::Stored)) => self.count_on(&uid, None, &pod),
                None => {}
            }
        }
        self.refresh(&uid);
        let new = self.cluster.pods.get(&uid).cloned().unwrap_or(pod);
        PodChange { old, new }
    }

    /// The stored object was deleted. An assumed pod stays counted until it is forgotten. Returns the previous
    /// effective pod.
    pub fn remove_pod(&mut self, uid: &str) -> Option<Arc<Pod>> {
        let known = self.known.get_mut(uid)?;
        let stored = known.stored.take()?;
        known.writes = None;
        let effective = self.cluster.pods.get(uid).cloned();
        self.by_name.remove(&stored);
        if matches!(known.counted, Some((_, Why::Stored))) {
            self.count_on(uid, None, &stored);
        }
        self.refresh(uid);
        effective
    }

    /// Counts an effective pod on a node before the API shows it on this node.
    ///
    /// # Errors
    /// When it is already counted on a node.
    pub fn assume(&mut self, pod: &Arc<Pod>, node: &Str) -> Result<Arc<PodInfo>, CacheError> {
        let uid = pod.uid().clone();
        let known = self.known.entry(uid.clone()).or_default();
        if known.counted.is_some() {
            return Err(CacheError::Known {
                uid,
                pod: pod.key(),
            });
        }
        let mut placed = Pod::clone(pod);
        placed.spec.node_name = node.clone();
        let footprint = self.cluster.footprint;
        let info = Arc::new(PodInfo::counting(Arc::new(placed), footprint));
        known.counted = Some((node.clone(), Why::Assumed));
        self.assumed += 1;
        self.cluster.nodes.add_pod(node, info.clone());
        // The argument is the effective pod already, so only its node changes.
        if self.stored(&uid).is_some() {
            self.cluster.set_pod(uid, info.pod.clone());
        }
        Ok(info)
    }

    /// Stops counting an assumed pod. Returns it as it was counted; `None` when it was not counted anywhere.
    ///
    /// # Errors
    /// When it is bound, or assumed on another node.
    pub fn forget(&mut self, uid: &str, node: &Str) -> Result<Option<Arc<Pod>>, CacheError> {
        let Some(known) = self.known.get_mut(uid) else {
            return Ok(None);
        };
        let key = |known: &Known| known.stored.as_ref().map(|p| p.key()).unwrap_or_default();
        match &known.counted {
            None => return Ok(None),
            Some((at, _)) if at != node => {
                return Err(CacheError::Elsewhere {
                    uid: uid.into(),
                    pod: key(known),
                    wanted: node.clone(),
                    node: at.clone(),
                });
            }
            Some((_, Why::Stored)) => {
                return Err(CacheError::NotAssumed {
                    uid: uid.into(),
                    pod: key(known),
                });
            }
            Some((_, Why::Assumed)) => self.assumed -= 1,
            // The API has accepted the binding, and the watch may not have shown it yet.
            Some((_, Why::Confirmed(_))) => {}
        }
        known.counted = None;
        self.edits.remove(uid);
        let removed = self.cluster.nodes.remove_pod(node, uid);
        debug_assert!(removed.is_ok(), "an assumed pod is counted on its node");
        self.refresh(uid);
        Ok(removed.ok().map(|info| info.pod.clone()))
    }

    /// Counts a pod on this node and on no other.
    fn count_on(&mut self, uid: &str, place: Option<(Str, Why)>, pod: &Arc<Pod>) {
        let Some(known) = self.known.get_mut(uid) else {
            return;
        };
        let before = std::mem::replace(&mut known.counted, place.clone());
        let assumed = |place: &Option<(Str, Why)>| usize::from(is_assumed(place));
        self.assumed = self.assumed - assumed(&before) + assumed(&place);
        if unshown_node(&place).is_none() {
            self.edits.remove(uid);
        }
        let footprint = self.cluster.footprint;
        let nodes = &mut self.cluster.nodes;
        let info =
            place.map(|(node, _)| (node, Arc::new(PodInfo::counting(pod.clone(), footprint))));
        if let (Some((old, _)), Some((new, info))) = (&before, &info)
            && old == new
            && nodes.replace_pod(new, info)
        {
            return;
        }
        if let Some((node, _)) = before {
            let removed = nodes.remove_pod(&node, uid);
            debug_assert!(removed.is_ok(), "a counted pod is on its node");
        }
        if let Some((node, info)) = info {
            nodes.add_pod(&node, info);
        }
    }

    // --- our own writes ------------------------------------------------------------------------------------

    /// Our writes to the pod have changed: it is shown with them from now on.
    pub fn set_writes(&mut self, uid: &str, writes: Writes) {
        let writes = boxed(writes);
        if let Some(known) = self.known.get_mut(uid)
            && known.writes != writes
        {
            known.writes = writes;
            self.refresh(uid);
        }
    }

    /// Recomputes the effective pod.
    fn refresh(&mut self, uid: &str) {
        let Some(known) = self.known.get(uid) else {
            return;
        };
        let Some(stored) = &known.stored else {
            self.cluster.unset_pod(uid);
            if known.counted.is_none() {
                self.known.remove(uid);
            }
            return;
        };
        let assumed_on = unshown_node(&known.counted);
        let effective = if known.writes.is_none() && assumed_on.is_none() {
            stored.clone()
        } else {
            let mut pod = Pod::clone(stored);
            if let Some(writes) = &known.writes {
                writes.apply_to(&mut pod);
            }
            if let Some(node) = assumed_on {
                pod.spec.node_name = node.clone();
            }
            Arc::new(pod)
        };
        let uid = stored.uid().clone();
        self.cluster.set_pod(uid, effective);
    }

    // --- nodes ---------------------------------------------------------------------------------------------

    /// Stores a new or changed node. Returns the previous one.
    pub fn set_node(&mut self, node: Arc<Node>) -> Option<Arc<Node>> {
        let old = self.node(node.name()).cloned();
        self.cluster.nodes.set_node(node);
        old
    }

    /// The stored object of a node.
    pub fn node(&self, name: &str) -> Option<&Arc<Node>> {
        Some(self.cluster.nodes.node(name)?.node())
    }

    /// A node was deleted. Pods counted on it are kept, but hidden (C-8).
    pub fn remove_node(&mut self, name: &str) -> Option<Arc<Node>> {
        self.cluster.nodes.remove_node(name)
    }

    // --- other kinds ---------------------------------------------------------------------------------------

    /// Stores an object of a kind other than pods and nodes. Returns the previously visible object, unless it is new,
    /// and the visible object now: with its assumed write.
    pub fn set_object(&mut self, object: Object) -> (Option<Object>, Object) {
        let key = key_of(&object);
        let before = self.seen(&key);
        let effective = self.with_assumed_write(&object);
        if !self.cluster.set(&effective) {
            return (None, effective);
        }
        self.others.insert(key, object);
        (before, effective)
    }

    /// An object of a kind other than pods and nodes was deleted. Returns the previously visible object: devices that
    /// were assumed to be allocated are free again.
    pub fn remove_object(&mut self, kind: Kind, namespace: &Str, name: &Str) -> Option<Object> {
        let key = (kind, namespace.clone(), name.clone());
        let seen = self.seen(&key)?;
        let object = self.others.remove(&key)?;
        self.assumed_writes.remove(&key);
        self.cluster.unset(&object);
        Some(seen)
    }

    /// The stored object of a kind other than pods and nodes.
    pub fn object(&self, kind: Kind, namespace: &Str, name: &Str) -> Option<&Object> {
        self.others.get(&(kind, namespace.clone(), name.clone()))
    }

    /// Every object as the API shows it, in no particular order, pods last.
    pub fn stored_objects(&self) -> Vec<Object> {
        let nodes = self.cluster.nodes.iter();
        let nodes = nodes.filter_map(|node| self.node(node.name()).cloned());
        let others = self.others.values().cloned();
        let pods = self.stored_pods().cloned();
        nodes
            .map(Object::Node)
            .chain(others)
            .chain(pods.map(Object::Pod))
            .collect()
    }

    /// Namespace, name and UID of all stored objects of a kind, sorted.
    pub fn identities(&self, kind: Kind) -> Vec<(Str, Str, Str)> {
        let of = |meta: &ObjectMeta| {
            let ObjectMeta {
                namespace,
                name,
                uid,
                ..
            } = meta;
            (namespace.clone(), name.clone(), uid.clone())
        };
        let mut identities: Vec<_> = match kind {
            Kind::Pod => self.stored_pods().map(|pod| of(&pod.metadata)).collect(),
            Kind::Node => {
                let nodes = self.cluster.nodes.iter();
                nodes.map(|node| of(&node.node().metadata)).collect()
            }
            kind => {
                let others = self.others.iter().filter(|((k, _, _), _)| *k == kind);
                others.map(|(_, object)| of(object.metadata())).collect()
            }
        };
        identities.sort_unstable();
        identities
    }

    /// Checks the consistency of the cache: each pod is counted only on its node. Walks all pods: for tests and the
    /// simulator.
    ///
    /// # Errors
    /// The first inconsistency.
    pub fn check(&self) -> Result<(), String> {
        let mut counted = 0;
        let mut assumed = 0;
        for (uid, known) in &self.known {
            if let Some((node, why)) = &known.counted {
                counted += 1;
                assumed += usize::from(*why == Why::Assumed);
                // A pod on a deleted node is not visible.
                if let Some(view) = self.cluster.nodes.node(node)
                    && !view.pods().iter().any(|p| p.pod.uid() == uid)
                {
                    return Err(format!("pod {uid} is not on its node {node}"));
                }
            } else if known.stored.is_none() {
                return Err(format!("pod {uid} is remembered for nothing"));
            }
        }
        if assumed != self.assumed {
            return Err(format!("{assumed} pods are assumed, not {}", self.assumed));
        }
        self.check_writes()?;
        if let Some(uid) = self.edits.keys().find(|uid| !self.is_assumed(uid)) {
            return Err(format!("pod {uid} is edited, and not assumed"));
        }
        let on_nodes: usize = self.cluster.nodes.iter().map(|n| n.pods().len()).sum();
        if on_nodes > counted {
            return Err(format!(
                "{on_nodes} pods are on nodes, {counted} are counted"
            ));
        }
        Ok(())
    }
}
