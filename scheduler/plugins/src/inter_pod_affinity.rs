//! Affinity and anti-affinity between pods: which topology domains a pod requires, excludes or prefers because of the
//! pods that run there.
//!
//! ```text
//! podAffinity:     app=cache, topologyKey zone        → only zones where some pod app=cache runs
//! podAntiAffinity: app=web,   topologyKey hostname    → no node where a pod app=web runs
//! ```
//!
//! - Required terms are counted once per cycle, by topology key and value (`filter`); a node is then checked by its
//!   labels. Required anti-affinity of running pods counts too.
//! - All required affinity terms must be matched by the same pod. If no pod in the cluster matches them, a pod that
//!   matches its own terms is admitted as the first of its series.
//! - Preferences of the pod, and of running pods, add and subtract points (`score`).
//!
//! As kube-scheduler 1.36, a `namespaceSelector` that an empty set of labels satisfies (only `NotIn` and
//! `DoesNotExist`) means every namespace in the pod's own terms.

mod args;
mod counts;
mod filter;
#[cfg(test)]
mod hint_tests;
mod hints;
mod incoming;
mod keys;
mod ledger;
mod score;
mod terms;
#[cfg(test)]
mod tests;

pub use args::InterPodAffinityArgs;

use berth_api::Kind;
use berth_framework::FeatureGates;
use berth_framework::event::{ActionType, EventRegistration, EventResource};
use berth_framework::features::Behaviour;
use berth_framework::plugin::EnqueueExtensions;
use berth_framework::registry::{ArgsKind, Extensions, Registration};
use std::sync::Arc;

/// The plugin's name.
pub const NAME: &str = "InterPodAffinity";

/// The reason on a node without a required pod in its domain.
pub const REASON_AFFINITY: &str = "node(s) didn't match pod affinity rules";
/// The reason on a node with an excluded pod in its domain.
pub const REASON_ANTI_AFFINITY: &str = "node(s) didn't match pod anti-affinity rules";
/// The reason on a node with a pod in its domain that excludes this pod.
pub const REASON_EXISTING_ANTI_AFFINITY: &str =
    "node(s) didn't satisfy existing pods anti-affinity rules";

/// Brings pods together and keeps them apart.
#[derive(Debug, Default)]
pub struct InterPodAffinity {
    args: InterPodAffinityArgs,
}

impl InterPodAffinity {
    /// The plugin with these arguments.
    pub fn new(args: InterPodAffinityArgs) -> Self {
        Self { args }
    }
}

/// The plugin's entry in the registry.
pub fn registration() -> Registration {
    Registration::new(NAME, |cx| {
        let args = InterPodAffinityArgs::decode(cx.args)?;
        Ok(Extensions::of(InterPodAffinity::new(args))
            .pre_filter()
            .filter()
            .pre_score()
            .score()
            .events()
            .domains()
            .fragment_version(|cx| {
                let labels = cx.cluster.nodes.totals().affinity_version();
                Some(cx.cluster.namespaces().version() + labels)
            })
            .build())
    })
    .args(ArgsKind::Typed(args::complete))
    .by_default(Some(2))
}

impl EnqueueExtensions for InterPodAffinity {
    fn events(self: Arc<Self>, features: &FeatureGates) -> Vec<EventRegistration> {
        // Until 1.36, only a pod that ceases to match all anti-affinity terms helps (PL-89).
        let each_term = features.has(Behaviour::EachAntiAffinityTermWakes);
        vec![
            EventRegistration::with_hint(
                EventResource::Pod,
                ActionType::ADD | ActionType::UPDATE_POD_LABEL | ActionType::DELETE,
                move |_, pod, change| hints::after_pod_change(pod, &change, each_term),
            )
            .supplemented_by(|cluster, pod, change| hints::missed_of_pods(cluster, pod, &change))
            .found_by(keys::waits_for_pods, |_, change| {
                keys::touched_by_pod(&change)
            }),
            EventRegistration::with_hint(
                EventResource::Node,
                ActionType::ADD | ActionType::UPDATE_NODE_LABEL,
                |_, pod, change| hints::after_node_change(pod, &change),
            )
            .supplemented_by(|cluster, pod, change| hints::missed_of_nodes(cluster, pod, &change))
            .found_by(keys::waits_for_nodes, |cluster, change| {
                keys::touched_by_node(cluster, &change)
            }),
            // kube-scheduler does not register for namespaces; its pods wait for the flush of unschedulable pods.
            EventRegistration::supplementary(
                EventResource::of_kind(Kind::Namespace),
                ActionType::ADD | ActionType::UPDATE | ActionType::DELETE,
                |cluster, pod, change| hints::missed_of_namespaces(cluster, pod, &change),
            )
            .found_by(keys::waits_for_namespaces, |_, change| {
                keys::touched_by_namespace(&change)
            }),
        ]
    }
}
