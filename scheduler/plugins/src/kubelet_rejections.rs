//! Lowers the scores of nodes whose kubelets recently rejected pods of the same template, and excludes such nodes after
//! several rejections.
//!
//! ```text
//! the kubelet of n1 rejected a pod of the Deployment with OutOfcpu   → n1 scores 67, n2 scores 100
//! it rejected 3 such pods within 10 minutes                          → n1 is not feasible for 5 minutes
//! a pod is removed from n1, or its allocatable resources change      → n1 is like any other node
//! ```
//!
//! The rejections are part of the cluster ([`Rejections`](berth_framework::cluster::Rejections)), so that both
//! evaluators, explanations and replays read the same state. kube-scheduler has no such plugin, so it is not in the
//! default profile.

mod args;

use args::KubeletRejectionsArgs;
use berth_api::{Str, Time};
use berth_framework::cluster::{REJECTION_WEIGHT, RejectionPolicy};
use berth_framework::event::{ActionType, EventRegistration, EventResource, Touched};
use berth_framework::plugin::{Context, EnqueueExtensions, MAX_NODE_SCORE};
use berth_framework::registry::{ArgsKind, Extensions, Registration};
use berth_framework::requirement::{NodeFilter, NodeScore};
use berth_framework::{FeatureGates, Lack, NodeTable, NodeView, PodInfo, ReasonCode, Slot, Status};
use std::sync::Arc;

/// The plugin's name.
pub const NAME: &str = "KubeletRejections";

/// The reason on an excluded node.
pub const REASON: &str = "node(s) had kubelets that rejected such pods";

/// The kubelets that rejected pods.
#[derive(Debug)]
pub struct KubeletRejections {
    /// The weight of rejections at which a node scores zero.
    weight_max: i64,
}

impl KubeletRejections {
    fn new(policy: &RejectionPolicy) -> Self {
        let rejections = i64::try_from(policy.exclude_after).unwrap_or(i64::MAX);
        Self {
            weight_max: rejections.saturating_mul(REJECTION_WEIGHT.into()).max(1),
        }
    }

    /// The score of a node with rejections of this weight: [`MAX_NODE_SCORE`] without rejections, zero with the number
    /// of recent rejections that excludes the node.
    fn score(&self, weight: u32) -> i64 {
        let weight = i64::from(weight).min(self.weight_max);
        MAX_NODE_SCORE - weight * MAX_NODE_SCORE / self.weight_max
    }
}

/// The plugin's entry in the registry.
pub fn registration() -> Registration {
    Registration::new(NAME, |cx| {
        let policy = KubeletRejectionsArgs::decode(cx)?.policy();
        Ok(Extensions::of(KubeletRejections::new(&policy))
            .node_filter()
            .node_score()
            .events()
            .fragment_version(|cx| Some(cx.cluster.rejections().version()))
            .remembers_rejections(policy)
            .build())
    })
    .args(ArgsKind::Typed(args::complete))
}

/// A node that is excluded for a pod.
#[derive(Debug, Hash)]
pub struct ExcludedNode {
    node: Str,
    rejections: usize,
    reason: Str,
    until: Time,
}

/// The entry of a node in a list that is sorted by names.
fn entry_of<'a, T>(list: &'a [T], name: &str, name_of: impl Fn(&T) -> &Str) -> Option<&'a T> {
    let at = list.binary_search_by(|entry| name_of(entry).as_str().cmp(name));
    list.get(at.ok()?)
}

impl NodeFilter for KubeletRejections {
    /// The excluded nodes, sorted by name.
    type Requirement = Vec<ExcludedNode>;

    const READS_PODS: bool = false;

    fn requirement(
        &self,
        cx: &Context<'_>,
        pod: &PodInfo,
    ) -> Result<Option<Vec<ExcludedNode>>, Status> {
        let excluded = cx.cluster.rejections().of(pod).filter_map(|of| {
            Some(ExcludedNode {
                node: of.node.clone(),
                rejections: of.count,
                reason: of.reason.clone(),
                until: of.excluded_until?,
            })
        });
        let excluded: Vec<ExcludedNode> = excluded.collect();
        Ok((!excluded.is_empty()).then_some(excluded))
    }

    /// Preemption does not help, because the reason of the kubelet is unknown to the scheduler.
    fn check(&self, excluded: &Vec<ExcludedNode>, node: NodeView<'_>) -> Status {
        match entry_of(excluded, node.name(), |excluded| &excluded.node) {
            None => Status::success(),
            Some(_) => Status::unresolvable(ReasonCode::KubeletRejections.reason(REASON)),
        }
    }

    fn lacks(&self, excluded: &Vec<ExcludedNode>, node: NodeView<'_>) -> Vec<Lack> {
        let excluded = entry_of(excluded, node.name(), |excluded| &excluded.node);
        let lack = excluded.map(|excluded| Lack::KubeletRejections {
            rejections: excluded.rejections,
            reason: excluded.reason.clone(),
            until: excluded.until,
        });
        lack.into_iter().collect()
    }
}

impl NodeScore for KubeletRejections {
    /// The scores of the nodes with rejections, sorted by name.
    type Preference = Vec<(Str, i64)>;

    const READS_PODS: bool = false;

    fn preference(
        &self,
        cx: &Context<'_>,
        pod: &PodInfo,
    ) -> Result<Option<Vec<(Str, i64)>>, Status> {
        let rejections = cx.cluster.rejections().of(pod);
        let scores = rejections.map(|of| (of.node.clone(), self.score(of.weight)));
        let scores: Vec<(Str, i64)> = scores.collect();
        Ok((!scores.is_empty()).then_some(scores))
    }

    fn rate<'a>(
        &'a self,
        scores: &'a Vec<(Str, i64)>,
        nodes: &'a NodeTable,
    ) -> impl Fn(Slot) -> i64 + 'a {
        move |slot| {
            let node = nodes.get(slot);
            let entry = node.and_then(|node| entry_of(scores, node.name(), |(name, _)| name));
            entry.map_or(MAX_NODE_SCORE, |(_, score)| *score)
        }
    }
}

impl EnqueueExtensions for KubeletRejections {
    /// The end of an exclusion is an event, whatever its cause. A new node is not excluded. A changed taint, for which
    /// the queue would otherwise register the plugin, does not help.
    fn events(self: Arc<Self>, _features: &FeatureGates) -> Vec<EventRegistration> {
        vec![
            EventRegistration::always(EventResource::KubeletRejections, ActionType::UPDATE)
                .touching(|_, _| Touched::everything()),
            EventRegistration::when(
                EventResource::Node,
                ActionType::ADD | ActionType::UPDATE_NODE_TAINT,
                |change| Ok(change.nodes()?.0.is_none()),
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, node, unresolvable};
    use berth_api::Duration;
    use berth_framework::testing::pod;
    use serde_json::json;

    fn plugin() -> KubeletRejections {
        KubeletRejections::new(&KubeletRejectionsArgs::default().policy())
    }

    /// Three nodes. The first one has rejected a pod of the template this many times, one every second.
    fn world(rejections: i64) -> World {
        let mut world = World::new();
        for name in ["rejects", "other", "another"] {
            world = world.node(name, json!({}));
        }
        let policy = KubeletRejectionsArgs::default().policy();
        let known = world.cluster.rejections_mut();
        known.set_policies([("default-scheduler".into(), policy)].into());
        let rejected = pod("first").request("cpu", "2").info();
        for second in 0..rejections {
            let now = Time::from_secs(1_000 + second);
            known.remember(&rejected, &"rejects".into(), &"OutOfcpu".into(), now);
        }
        world
    }

    /// PL-358: the node is rejected for the template once it is excluded, and preemption does not help.
    #[test]
    fn an_excluded_node_is_not_feasible() {
        let of_template = pod("next").request("cpu", "2").info();
        let other = pod("next").request("cpu", "1").info();
        for (rejections, pod, expected) in [
            (2, &of_template, None),
            (3, &of_template, unresolvable(REASON)),
            (3, &other, None),
        ] {
            let answers = world(rejections).filter_only(&plugin(), pod);
            assert_eq!(answers, [expected, None, None], "{rejections}");
        }
        let lacks = world(3).lacks(&plugin(), &Default::default(), &of_template);
        assert_eq!(
            lacks[0][0].to_string(),
            "the kubelet rejected 3 pods of the template, last with OutOfcpu; the node is excluded until 1970-01-01T00:21:42Z"
        );
        assert!(lacks[1].is_empty());
    }

    /// PL-359: 64 of 3 · 64 is a third: 100 - 33 = 67. After a half-life, 32 of 192: 100 - 16 = 84. Three at once: 0.
    #[test]
    fn rejections_lower_the_score() {
        let of_template = pod("next").request("cpu", "2").info();
        for (rejections, later, expected) in [
            (0, 0, None),
            (1, 0, Some(67)),
            (2, 0, Some(34)),
            (3, 0, Some(0)),
            (1, 299, Some(67)),
            (1, 300, Some(84)),
            (1, 600, Some(92)),
            (1, 7 * 300, None),
        ] {
            let mut world = world(rejections);
            let now = Time::from_secs(1_000) + Duration::from_secs(later);
            world.cluster.rejections_mut().advance(now);
            let scores = world.scores(&plugin(), &of_template);
            let expected = expected.map(|score| vec![score, 100, 100]);
            assert_eq!(scores, expected, "{rejections} after {later} s");
        }
    }

    /// PL-360: a new node helps, a changed one does not.
    #[test]
    fn a_new_node_wakes() {
        use crate::testing::{add, hint, update};
        use berth_framework::Hint;
        let tainted = || {
            node(
                "n",
                json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}),
            )
        };
        let open = || node("n", json!({}));
        for (action, change, expected) in [
            (ActionType::ADD, add(open()), Hint::Queue),
            (
                ActionType::UPDATE_NODE_TAINT,
                update(tainted(), open()),
                Hint::Skip,
            ),
        ] {
            let waiting = pod("p").build();
            let got = hint(
                plugin(),
                &World::new(),
                EventResource::Node,
                action,
                &waiting,
                change,
            );
            assert_eq!(got, Ok(expected), "{action:?}");
        }
    }
}
