//! The pods of a cluster in addition to the measured pods: bound pods and waiting pods.

use super::Row;
use super::world::CoreWorld;
use crate::{generate, memory};
use berth_api::{Object, Pod};
use serde_json::json;
use std::sync::Arc;

/// The size of a cluster.
#[derive(Debug, Clone, Copy, Default)]
pub struct ClusterScale {
    /// Nodes.
    pub nodes: usize,
    /// Pods to schedule.
    pub pods: usize,
    /// Running pods on the nodes, of two thousand Deployments, in addition to the pods of the row.
    pub bound: usize,
    /// Pods with scheduling gates.
    pub gated: usize,
    /// Pods that no node accepts and that were attempted already.
    pub unschedulable: usize,
}

/// The first number of the pods of the crowd, so that names are unique.
const CROWD_FROM: usize = 20_000_000;

impl CoreWorld {
    /// Adds the bound and waiting pods of the scale, without the nodes and the pods of the row.
    pub(super) fn crowd(&mut self, scale: &ClusterScale) {
        let templates = memory::templates(scale.bound);
        for namespace in memory::namespaces().take(scale.bound) {
            self.show_object(namespace);
        }
        for index in 0..scale.bound {
            let template = &templates[index % templates.len()];
            // A preemption can evict it.
            if let Object::Pod(pod) = memory::pod(template, index, scale.nodes) {
                self.add(pod);
            }
        }
        for index in 0..scale.gated {
            self.add(gated(CROWD_FROM + index));
        }
        for index in 0..scale.unschedulable {
            self.add(too_large(CROWD_FROM + scale.gated + index));
        }
        if scale.gated + scale.unschedulable > 0 {
            self.settle();
        }
    }
}

/// A pod with a scheduling gate.
pub(super) fn gated(index: usize) -> Arc<Pod> {
    generate::pod(index, |pod| {
        pod["spec"]["schedulingGates"] = json!([{"name": "example.com/quota"}]);
    })
}

fn too_large(index: usize) -> Arc<Pod> {
    generate::pod(index, |pod| {
        let amounts = json!({"cpu": "5000", "memory": "1Gi"});
        pod["spec"]["containers"][0]["resources"] = json!({"requests": amounts, "limits": amounts});
    })
}

/// The pods of a row before the measurement, including the bound pods of the scale.
pub(super) fn existing(row: Row, scale: &ClusterScale) -> usize {
    row.existing(scale.nodes, scale.pods) + scale.bound
}
