//! The effect of an update of a node on scheduling.

use berth_api::{Node, Str};
use berth_framework::{ActionType, ClusterEvent, EventResource, Feature, FeatureGates};
use smallvec::SmallVec;

/// The events of one update of a node; none if no field that scheduling reads has changed.
pub fn node_update_events(
    old: &Node,
    new: &Node,
    features: &FeatureGates,
) -> SmallVec<[ClusterEvent; 2]> {
    [
        (
            old.status.allocatable != new.status.allocatable,
            ActionType::UPDATE_NODE_ALLOCATABLE,
        ),
        (old.labels() != new.labels(), ActionType::UPDATE_NODE_LABEL),
        (
            // A cordoned node rejects like a tainted one, and only uncordoning can help a pod.
            old.spec.taints != new.spec.taints
                || (old.spec.unschedulable && !new.spec.unschedulable),
            ActionType::UPDATE_NODE_TAINT,
        ),
        (
            conditions(old) != conditions(new),
            ActionType::UPDATE_NODE_CONDITION,
        ),
        (
            old.metadata.annotations != new.metadata.annotations,
            ActionType::UPDATE_NODE_ANNOTATION,
        ),
        (
            features.enabled(Feature::NodeDeclaredFeatures)
                && old.status.declared_features != new.status.declared_features,
            ActionType::UPDATE_NODE_DECLARED_FEATURE,
        ),
        (
            features.enabled(Feature::InPlacePodVerticalScalingSchedulerPreemption)
                && old.allows_resize_preemption() != new.allows_resize_preemption(),
            ActionType::UPDATE_NODE_PREEMPTION_POLICY,
        ),
    ]
    .into_iter()
    .filter(|(happened, _)| *happened)
    .map(|(_, action)| ClusterEvent::new(EventResource::Node, action))
    .collect()
}

/// Type and status of each condition, independent of their order: a heartbeat changes neither.
fn conditions(node: &Node) -> SmallVec<[(&Str, &Str); 8]> {
    let conditions = node.status.conditions.iter();
    let mut pairs: SmallVec<[_; 8]> = conditions.map(|c| (&c.kind, &c.status)).collect();
    pairs.sort_unstable();
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_api::TaintEffect;
    use berth_framework::testing::{NodeBuilder, node};

    /// Edge cases 189 to 191.
    #[test]
    fn only_what_scheduling_reads_is_an_event() {
        type Change = fn(NodeBuilder) -> NodeBuilder;
        let cases: [(&str, Change, Change, &[&str]); 9] = [
            ("nothing", |n| n, |n| n.version(2), &[]),
            (
                "a heartbeat",
                |n| {
                    n.condition("Ready", "True")
                        .condition("DiskPressure", "False")
                },
                |n| {
                    n.condition("DiskPressure", "False")
                        .condition("Ready", "True")
                },
                &[],
            ),
            (
                "not ready any more",
                |n| n.condition("Ready", "True"),
                |n| n.condition("Ready", "Unknown"),
                &["NodeUpdateNodeCondition"],
            ),
            ("cordoned", |n| n, |n| n.unschedulable(true), &[]),
            (
                "uncordoned",
                |n| n.unschedulable(true),
                |n| n,
                &["NodeUpdateNodeTaint"],
            ),
            (
                "a label and a taint",
                |n| n,
                |n| n.label("a", "b").taint("k", "v", TaintEffect::NoSchedule),
                &["NodeUpdateNodeLabel", "NodeUpdateNodeTaint"],
            ),
            (
                "more memory",
                |n| n,
                |n| n.allocatable("memory", "1Ti"),
                &["NodeUpdateNodeAllocatable"],
            ),
            (
                "an annotation",
                |n| n,
                |n| n.annotation("a", "b"),
                &["NodeUpdateNodeAnnotation"],
            ),
            (
                "a declared feature",
                |n| n,
                |n| n.with(|n| n.status.declared_features = vec!["F".into()]),
                &["NodeUpdateNodeDeclaredFeature"],
            ),
        ];
        for (situation, before, after, expected) in cases {
            let (old, new) = (before(node("n")).build(), after(node("n")).build());
            let events = node_update_events(&old, &new, &FeatureGates::default());
            let labels: Vec<String> = events.iter().map(ClusterEvent::label).collect();
            assert_eq!(labels, expected, "{situation}");
        }
    }
}
