//! What is kept per node beside the columns.

use crate::pod_info::{HostPort, PodInfo};
use berth_api::{Node, Str};
use std::sync::Arc;

/// One node.
#[derive(Debug, Default)]
pub(super) struct Row {
    pub(super) name: Str,
    pub(super) node: Option<Arc<Node>>,
    pub(super) pods: Vec<Arc<PodInfo>>,
    /// How many of `pods` have affinity or anti-affinity to pods.
    pub(super) with_affinity: usize,
    /// How many of `pods` have a required anti-affinity term.
    pub(super) with_required_anti_affinity: usize,
    /// Every host port that is taken, once per pod that takes it.
    pub(super) used_ports: Vec<HostPort>,
    /// The scalar resources that the node offers, a zero amount included.
    pub(super) allocatable_scalars: Vec<Str>,
    pub(super) epoch: u32,
    pub(super) generation: u64,
}

impl Row {
    pub(super) fn push_pod(&mut self, pod: Arc<PodInfo>) {
        self.with_affinity += usize::from(pod.has_affinity());
        self.with_required_anti_affinity += usize::from(pod.has_required_anti_affinity());
        self.used_ports.extend(pod.host_ports.iter().cloned());
        self.pods.push(pod);
    }

    pub(super) fn take_pod(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        let at = self.pods.iter().position(|p| p.pod.uid().as_str() == uid)?;
        let pod = self.pods.swap_remove(at);
        self.with_affinity -= usize::from(pod.has_affinity());
        self.with_required_anti_affinity -= usize::from(pod.has_required_anti_affinity());
        for port in &pod.host_ports {
            if let Some(at) = self.used_ports.iter().position(|used| used == port) {
                self.used_ports.swap_remove(at);
            }
        }
        Some(pod)
    }
}
