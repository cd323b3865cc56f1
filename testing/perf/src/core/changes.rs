//! The changes between decisions in the rows that change their cluster.

use super::Row;
use super::world::CoreWorld;
use crate::generate;
use berth_api::{Node, Object, Pod, Str};
use berth_scheduler::ClusterChange;
use std::collections::HashMap;
use std::sync::Arc;

/// A cluster that changes before each decision.
pub(super) struct Changes {
    row: Row,
    nodes: usize,
    /// The number of nodes that are replaced.
    pool: usize,
    /// Decisions between two of them.
    interval: usize,
    rng: fastrand::Rng,
    /// The pods that existed before, in the order of their deletion.
    old: Vec<Arc<Pod>>,
    /// The pods of nodes that may be replaced.
    on_nodes: HashMap<Str, Vec<Str>>,
}

impl Changes {
    /// The changes of this row; `None` for a row without changes.
    pub(super) fn of(row: Row, nodes: usize, pods: usize, rng: fastrand::Rng) -> Option<Self> {
        let pool = match row {
            Row::RollingUpdate => 0,
            Row::NodePool => (nodes / 2).min(pods),
            _ => return None,
        };
        Some(Self {
            row,
            nodes,
            pool,
            interval: pods.checked_div(pool).unwrap_or(1),
            rng,
            old: Vec::new(),
            on_nodes: HashMap::new(),
        })
    }

    /// Returns whether the changes depend on the placement of pods.
    pub(super) fn follows_pods(&self) -> bool {
        self.row == Row::NodePool
    }

    /// Records a pod that exists or was assigned to a node.
    pub(super) fn note(&mut self, pod: &Arc<Pod>) {
        match self.row {
            Row::RollingUpdate => self.old.push(pod.clone()),
            _ => {
                let uids = self.on_nodes.entry(pod.spec.node_name.clone());
                uids.or_default().push(pod.uid().clone());
            }
        }
    }

    /// The changes before this decision; the last change is the pod to be scheduled.
    pub(super) fn before(&mut self, decision: usize, world: &mut CoreWorld) -> Vec<ClusterChange> {
        let mut changes = Vec::new();
        match self.row {
            Row::RollingUpdate => {
                if let Some(old) = self.old.get(decision) {
                    let mut deleted = Pod::clone(old);
                    deleted.metadata.deletion_timestamp = Some(world.now());
                    let deleted = Arc::new(deleted);
                    world.forget(old.uid());
                    changes.push(ClusterChange::Applied(Object::Pod(deleted.clone())));
                    changes.push(ClusterChange::Deleted(Object::Pod(deleted)));
                }
            }
            _ if decision.is_multiple_of(self.interval) && decision / self.interval < self.pool => {
                self.replace_node(decision / self.interval, world, &mut changes);
            }
            _ => {}
        }
        let (pod, _) = self.row.pod(decision, self.nodes, &mut self.rng);
        world.remember(&pod);
        changes.push(ClusterChange::Applied(Object::Pod(pod)));
        changes
    }

    /// Adds a new node, and cordons, drains and deletes an old one.
    fn replace_node(&mut self, at: usize, world: &mut CoreWorld, changes: &mut Vec<ClusterChange>) {
        let old = self.row.node(at);
        let cordoned: Arc<Node> = generate::node(at, |node| {
            node["spec"]["unschedulable"] = true.into();
            node["metadata"]["resourceVersion"] = format!("8{at}").into();
        });
        changes.push(ClusterChange::Applied(Object::Node(
            self.row.node(self.nodes + at),
        )));
        changes.push(ClusterChange::Applied(Object::Node(cordoned.clone())));
        for uid in self.on_nodes.remove(old.name()).unwrap_or_default() {
            if let Some(pod) = world.forget(&uid) {
                changes.push(ClusterChange::Deleted(Object::Pod(pod)));
            }
        }
        changes.push(ClusterChange::Deleted(Object::Node(cordoned)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::ClusterScale;
    use berth_scheduler::SchedulerOptions;

    /// The changes before all decisions: nodes added, changed and deleted, pods terminated and deleted, pods added.
    fn shown(row: Row) -> [usize; 6] {
        let scale = ClusterScale {
            nodes: 4,
            pods: 8,
            ..ClusterScale::default()
        };
        let mut world = CoreWorld::new(row, &scale, SchedulerOptions::default()).expect("a world");
        let rng = fastrand::Rng::with_seed(1);
        let mut changes = Changes::of(row, scale.nodes, scale.pods, rng).expect("a row of changes");
        for index in 0..row.existing(scale.nodes, scale.pods) {
            changes.note(&row.existing_pod(index, scale.nodes));
        }
        let mut counts = [0; 6];
        for change in (0..scale.pods).flat_map(|decision| changes.before(decision, &mut world)) {
            let kind = match change {
                ClusterChange::Applied(Object::Node(node)) if node.spec.unschedulable => 1,
                ClusterChange::Applied(Object::Node(_)) => 0,
                ClusterChange::Deleted(Object::Node(_)) => 2,
                ClusterChange::Applied(Object::Pod(pod)) if pod.is_terminating() => 3,
                ClusterChange::Deleted(Object::Pod(_)) => 4,
                _ => 5,
            };
            counts[kind] += 1;
        }
        counts
    }

    #[test]
    fn half_of_the_nodes_or_all_old_pods_are_replaced() {
        // Each of the two replaced nodes has one pod.
        assert_eq!(shown(Row::NodePool), [2, 2, 2, 0, 2, 8]);
        assert_eq!(shown(Row::RollingUpdate), [0, 0, 0, 8, 8, 8]);
    }
}
