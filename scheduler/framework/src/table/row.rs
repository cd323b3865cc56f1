//! The fields of a node that are not in columns.

use super::ports::UsedPorts;
use crate::pod_info::PodInfo;
use berth_api::{Node, Str};
use std::sync::Arc;

/// One node.
#[derive(Debug, Clone, Default)]
pub(super) struct NodeRow {
    pub(super) name: Str,
    pub(super) node: Option<Arc<Node>>,
    pub(super) pods: Vec<Arc<PodInfo>>,
    /// The number of `pods` that have affinity or anti-affinity to pods.
    pub(super) with_affinity: usize,
    /// The number of `pods` that have a disk in their spec.
    pub(super) with_disks: usize,
    /// The number of `pods` that cannot be read.
    pub(super) unreadable: usize,
    /// The host ports in use.
    pub(super) used_ports: UsedPorts,
    /// The scalar resources that the node offers, a zero amount included.
    pub(super) allocatable_scalars: Vec<Str>,
    pub(super) generation: u64,
}

/// Returns whether a pod has a disk in its spec that pods may not be able to share.
pub(super) fn has_disk(pod: &PodInfo) -> bool {
    pod.pod.spec.volumes.iter().any(|volume| {
        volume.gce_persistent_disk.is_some()
            || volume.aws_elastic_block_store.is_some()
            || volume.iscsi.is_some()
            || volume.rbd.is_some()
    })
}

impl NodeRow {
    pub(super) fn push_pod(&mut self, pod: Arc<PodInfo>) {
        self.with_affinity += usize::from(pod.has_affinity());
        self.with_disks += usize::from(has_disk(&pod));
        self.unreadable += usize::from(pod.pod.status.is_unreadable);
        for port in &pod.host_ports {
            self.used_ports.add(port);
        }
        self.pods.push(pod);
    }

    /// The place of a pod. The pod that was added last is searched for most often.
    fn position(&self, uid: &str) -> Option<usize> {
        self.pods.iter().rposition(|p| p.pod.uid().as_str() == uid)
    }

    /// Replaces a pod with a version that counts as the same.
    pub(super) fn replace_pod(&mut self, pod: &Arc<PodInfo>) -> bool {
        let Some(at) = self.position(pod.pod.uid()) else {
            return false;
        };
        let before = &self.pods[at];
        let same = pod.counts_as(before);
        if same {
            // The computed values stay the same object, because the census finds them by their address.
            self.pods[at] = if Arc::ptr_eq(pod.computed(), before.computed()) {
                pod.clone()
            } else {
                Arc::new(pod.with_computed_of(before))
            };
        }
        same
    }

    /// Removes a pod; the last one takes its place. Also returns the place, for [`NodeRow::put_back`].
    pub(super) fn take_pod(&mut self, uid: &str) -> Option<(Arc<PodInfo>, usize)> {
        let at = self.position(uid)?;
        let pod = self.pods.swap_remove(at);
        self.with_affinity -= usize::from(pod.has_affinity());
        self.with_disks -= usize::from(has_disk(&pod));
        self.unreadable -= usize::from(pod.pod.status.is_unreadable);
        for port in &pod.host_ports {
            self.used_ports.remove(port);
        }
        Some((pod, at))
    }

    /// Restores a pod at its place, and the order of the others.
    pub(super) fn put_back(&mut self, pod: Arc<PodInfo>, at: usize) {
        self.push_pod(pod);
        let last = self.pods.len() - 1;
        self.pods.swap(at.min(last), last);
    }
}
