//! Spreads pods over the domains of a node label: zones, hosts, racks.
//!
//! ```text
//! topologyKey: zone, maxSkew: 1, pods per zone 3/2/2   → DoNotSchedule: not into the first zone
//!                                                      → ScheduleAnyway: the first zone last
//! ```
//!
//! - `constraints`: what a pod asks for, or the defaults of the profile for pods that ask for nothing;
//! - `filter`: `DoNotSchedule`; a domain may have at most `maxSkew` more pods than the emptiest one;
//! - `score`: `ScheduleAnyway`.
//!
//! Only pods of the same namespace that are not being deleted count, on nodes that the constraint's policies let count.

mod args;
mod constraints;
mod default_selector;
mod filter;
mod hints;
mod score;

pub use args::PodTopologySpreadArgs;

use berth_framework::FeatureGates;
use berth_framework::event::{ActionType, EventRegistration, EventResource};
use berth_framework::plugin::{EnqueueExtensions, Plugin};
use std::sync::Arc;

/// The plugin's name.
pub const NAME: &str = "PodTopologySpread";

/// The reason on a node whose domain has too many pods.
pub const REASON_SKEW: &str = "node(s) didn't match pod topology spread constraints";
/// The reason on a node that is in no domain.
pub const REASON_NO_DOMAIN: &str =
    "node(s) didn't match pod topology spread constraints (missing required label)";

/// Spreads pods.
#[derive(Debug, Default)]
pub struct PodTopologySpread {
    args: PodTopologySpreadArgs,
}

impl PodTopologySpread {
    /// The plugin with these arguments.
    pub fn new(args: PodTopologySpreadArgs) -> Self {
        Self { args }
    }
}

impl Plugin for PodTopologySpread {
    fn name(&self) -> &str {
        NAME
    }
}

impl EnqueueExtensions for PodTopologySpread {
    fn events(self: Arc<Self>, features: &FeatureGates) -> Vec<EventRegistration> {
        let features = *features;
        let (plugin, gates) = (self.clone(), features);
        vec![
            EventRegistration::with_hint(
                EventResource::Pod,
                ActionType::ADD
                    | ActionType::UPDATE_POD_LABEL
                    | ActionType::UPDATE_POD_TOLERATION
                    | ActionType::DELETE,
                move |cluster, pod, change| plugin.after_pod_change(cluster, &gates, pod, &change),
            ),
            EventRegistration::with_hint(
                EventResource::Node,
                ActionType::ADD
                    | ActionType::DELETE
                    | ActionType::UPDATE_NODE_LABEL
                    | ActionType::UPDATE_NODE_TAINT,
                move |cluster, pod, change| {
                    self.after_node_change(cluster, &features, pod, &change)
                },
            ),
        ]
    }
}

#[cfg(test)]
mod score_tests;
#[cfg(test)]
mod tests;
