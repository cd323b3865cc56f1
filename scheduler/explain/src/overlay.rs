//! Tries edits on a snapshot and reverts them.

use crate::change::Edit;
use crate::snapshot::Snapshot;
use berth_api::{CompositePodGroup, Node, Object, Pod, PodGroup, Str};
use berth_framework::cluster::GroupKey;
use berth_framework::{Cluster, PodInfo};
use std::sync::Arc;

/// Edits made in a snapshot, to be reverted in reverse order.
enum Undo {
    SetNode(Arc<Node>),
    RemoveNode(Str),
    AddPod(Str, Arc<PodInfo>, Option<Arc<Pod>>),
    Set(Object),
    Unset(Object),
}

/// Runs `then` with the edits in the snapshot and for the changed pod, and reverts the edits.
pub(crate) fn with_edits<R>(
    snapshot: &mut Snapshot,
    pod: &Arc<PodInfo>,
    edits: &[Edit],
    then: impl FnOnce(&mut Snapshot, &Arc<PodInfo>) -> R,
) -> R {
    let mut undo = Vec::new();
    let mut changed = pod.clone();
    // The quotas are saved, because a pod that is admitted in the trial would keep its admission.
    let namespaces = edits.iter().filter_map(Edit::namespace_of_quotas);
    let quotas = snapshot.cluster.quotas().saved(namespaces);
    for edit in edits {
        match edit {
            Edit::Set(Object::Pod(pod)) => changed = Arc::new(PodInfo::new(pod.clone())),
            Edit::Set(Object::Node(node)) => {
                let before = snapshot.cluster.nodes.node(node.name());
                undo.push(match before.map(|view| view.node().clone()) {
                    Some(before) => Undo::SetNode(before),
                    None => Undo::RemoveNode(node.name().clone()),
                });
                snapshot.cluster.nodes.set_node(node.clone());
            }
            Edit::Set(object) => {
                undo.push(match stored(&snapshot.cluster, object) {
                    Some(before) => Undo::Set(before),
                    None => Undo::Unset(object.clone()),
                });
                snapshot.cluster.set(object);
            }
            Edit::Delete(pod) => {
                let node = pod.spec.node_name.clone();
                if let Ok(info) = snapshot.cluster.nodes.remove_pod(&node, pod.uid()) {
                    let known = snapshot.cluster.unset_pod(pod.uid());
                    undo.push(Undo::AddPod(node, info, known));
                }
            }
        }
    }
    let result = then(snapshot, &changed);
    let cluster = &mut snapshot.cluster;
    for undo in undo.into_iter().rev() {
        match undo {
            Undo::SetNode(node) => {
                cluster.nodes.set_node(node);
            }
            Undo::RemoveNode(name) => {
                cluster.nodes.remove_node(&name);
            }
            Undo::AddPod(node, info, known) => {
                cluster.nodes.add_pod(&node, info);
                if let Some(pod) = known {
                    cluster.set_pod(pod.uid().clone(), pod);
                }
            }
            Undo::Set(object) => {
                cluster.set(&object);
            }
            Undo::Unset(object) => {
                cluster.unset(&object);
            }
        }
    }
    cluster.quotas_mut().restore(quotas);
    result
}

impl Edit {
    /// The namespace whose quotas may admit pods after the edit; none for nodes and volumes.
    fn namespace_of_quotas(&self) -> Option<&Str> {
        match self {
            Self::Delete(pod) => Some(pod.namespace()),
            Self::Set(
                object @ (Object::Custom(_)
                | Object::PodGroup(_)
                | Object::CompositePodGroup(_)
                | Object::ResourceClaim(_)),
            ) => Some(&object.metadata().namespace),
            Self::Set(_) => None,
        }
    }
}

/// The object of the same kind and name, for kinds that changes set.
fn stored(cluster: &Cluster, object: &Object) -> Option<Object> {
    let meta = object.metadata();
    // Only kinds that changes set have a former object.
    match object {
        Object::PodGroup(_) => {
            let group = cluster.groups().get(&GroupKey::of_object(object)?)?;
            Some(Object::PodGroup(Arc::new(PodGroup {
                metadata: group.metadata.clone(),
                spec: group.spec.clone(),
                status: group.status.clone(),
            })))
        }
        Object::CompositePodGroup(_) => {
            let group = cluster.groups().get(&GroupKey::of_object(object)?)?;
            Some(Object::CompositePodGroup(Arc::new(CompositePodGroup {
                metadata: group.metadata.clone(),
                spec: group.spec.clone(),
                status: group.status.clone(),
            })))
        }
        Object::PersistentVolume(_) => {
            let known = cluster.storage().volumes().get(&meta.name)?;
            Some(Object::PersistentVolume(known.clone()))
        }
        Object::PersistentVolumeClaim(_) => {
            let claims = cluster.storage().claims();
            let known = claims.get(&meta.namespace, &meta.name)?;
            Some(Object::PersistentVolumeClaim(known.clone()))
        }
        Object::ResourceClaim(_) => {
            let known = cluster
                .devices()
                .claims()
                .get(&meta.namespace, &meta.name)?;
            Some(Object::ResourceClaim(known.clone()))
        }
        Object::Custom(custom) => {
            let known = cluster.custom(custom.kind)?;
            let known = known.get(&meta.namespace, &meta.name)?;
            Some(Object::Custom(known.clone()))
        }
        _ => None,
    }
}
