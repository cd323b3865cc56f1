//! The changes that may help a pod that was rejected.

use super::PodTopologySpread;
use super::constraints::{Constraint, DO_NOT_SCHEDULE, has_all_keys};
use crate::change::is_assigned_or_nominated;
use berth_api::{Node, Pod};
use berth_framework::event::{Change, Hint, HintError};
use berth_framework::{Cluster, FeatureGates};

/// Returns whether the changed pod may count for the waiting pod.
fn is_involved(changed: &Pod, waiting: &Pod) -> bool {
    changed.uid() == waiting.uid()
        || (is_assigned_or_nominated(changed) && changed.namespace() == waiting.namespace())
}

impl PodTopologySpread {
    fn hard_constraints(
        &self,
        cluster: &Cluster,
        features: &FeatureGates,
        pod: &Pod,
    ) -> Result<Vec<Constraint>, HintError> {
        self.constraints(cluster, features, pod, DO_NOT_SCHEDULE)
            .map_err(|error| HintError::Pod {
                place: "constraints of pod",
                pod: pod.key(),
                error: error.to_string(),
            })
    }

    /// A pod that is added, deleted, or counts differently.
    pub(super) fn after_pod_change(
        &self,
        cluster: &Cluster,
        features: &FeatureGates,
        pod: &Pod,
        change: &Change<'_>,
    ) -> Result<Hint, HintError> {
        let (old, new) = change.pods()?;
        // Pods of other namespaces, and pods without a node or a nomination, do not count.
        if [old, new]
            .into_iter()
            .flatten()
            .any(|changed| !is_involved(changed, pod))
        {
            return Ok(Hint::Skip);
        }
        let constraints = self.hard_constraints(cluster, features, pod)?;
        let (Some(old), Some(new)) = (old, new) else {
            let labels = new.or(old).map(Pod::labels);
            let counts = |c: &Constraint| labels.is_some_and(|labels| c.selector.matches(labels));
            return Ok(Hint::queue_if(constraints.iter().any(counts)));
        };
        // With `nodeTaintsPolicy: Honor`, the pod's tolerations determine which nodes count (PL-107).
        if new.uid() == pod.uid()
            && old.spec.tolerations != new.spec.tolerations
            && constraints.iter().any(|constraint| constraint.honor_taints)
        {
            return Ok(Hint::Queue);
        }
        let differs =
            |c: &Constraint| c.selector.matches(old.labels()) != c.selector.matches(new.labels());
        Ok(Hint::queue_if(
            old.labels() != new.labels() && constraints.iter().any(differs),
        ))
    }

    /// A node that joins or leaves a domain, or counts differently. With a deleted node the emptiest domain may
    /// disappear.
    pub(super) fn after_node_change(
        &self,
        cluster: &Cluster,
        features: &FeatureGates,
        pod: &Pod,
        change: &Change<'_>,
    ) -> Result<Hint, HintError> {
        let (old, new) = change.nodes()?;
        let constraints = self.hard_constraints(cluster, features, pod)?;
        let in_domains = |node: &Node| has_all_keys(&constraints, node.labels());
        let (Some(old), Some(new)) = (old, new) else {
            return Ok(Hint::queue_if(new.or(old).is_some_and(in_domains)));
        };
        if in_domains(old) != in_domains(new) {
            return Ok(Hint::Queue);
        }
        let moved =
            |c: &Constraint| old.labels().get(&c.topology_key) != new.labels().get(&c.topology_key);
        Ok(Hint::queue_if(
            in_domains(new)
                && (constraints.iter().any(moved) || old.spec.taints != new.spec.taints),
        ))
    }
}
