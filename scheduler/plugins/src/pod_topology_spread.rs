//! Spreads pods over the domains of a node label: zones, hosts, racks.
//!
//! ```text
//! topologyKey: zone, maxSkew: 1, pods per zone 3/2/2   → DoNotSchedule: not into the first zone
//!                                                      → ScheduleAnyway: the first zone last
//! ```
//!
//! - `constraints`: the constraints of the pod, or the defaults of the profile for pods without constraints;
//! - `filter`: `DoNotSchedule`; a domain may have at most `maxSkew` more pods than the emptiest one;
//! - `score`: `ScheduleAnyway`;
//! - `ledger`: both, with domain counts that follow changes of pods and nodes.
//!
//! Only pods of the same namespace that are not terminating count, on nodes that the policies of the constraint
//! include.

mod args;
mod constraints;
mod default_selector;
mod filter;
mod hints;
mod keys;
mod ledger;
mod score;
mod tally;

pub use args::PodTopologySpreadArgs;

use berth_api::Kind;
use berth_framework::FeatureGates;
use berth_framework::event::{ActionType, EventRegistration, EventResource};
use berth_framework::plugin::EnqueueExtensions;
use berth_framework::registry::{ArgsKind, Extensions, Registration};
use std::sync::Arc;

/// The plugin's name.
pub const NAME: &str = "PodTopologySpread";

/// The reason on a node whose domain has too many pods.
pub const REASON_SKEW: &str = "node(s) didn't match pod topology spread constraints";
/// The reason on a node that is in no domain.
pub const REASON_NO_DOMAIN: &str =
    "node(s) didn't match pod topology spread constraints (missing required label)";

/// The kinds whose selectors determine the pods counted by the default constraints.
const SELECTING_KINDS: [Kind; 4] = [
    Kind::Service,
    Kind::ReplicationController,
    Kind::ReplicaSet,
    Kind::StatefulSet,
];

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

/// The plugin's entry in the registry.
pub fn registration() -> Registration {
    Registration::new(NAME, |cx| {
        let args = PodTopologySpreadArgs::decode(cx.args)?;
        Ok(Extensions::of(PodTopologySpread::new(args))
            .pre_filter()
            .filter()
            .pre_score()
            .score()
            .events()
            .domains()
            // Default constraints have the selectors of services and controllers.
            .fragment_version(|cx| Some(cx.cluster.workloads().version()))
            .build())
    })
    .args(ArgsKind::Typed(args::complete))
    .by_default(Some(2))
}

impl EnqueueExtensions for PodTopologySpread {
    fn events(self: Arc<Self>, features: &FeatureGates) -> Vec<EventRegistration> {
        let features = *features;
        let [plugin, for_pods, for_nodes, defaults] = [(); 4].map(|()| self.clone());
        let mut events = vec![
            EventRegistration::with_hint(
                EventResource::Pod,
                ActionType::ADD
                    | ActionType::UPDATE_POD_LABEL
                    | ActionType::UPDATE_POD_TOLERATION
                    | ActionType::DELETE,
                move |cluster, pod, change| {
                    plugin.after_pod_change(cluster, &features, pod, &change)
                },
            )
            .found_by(
                move |pod| for_pods.waits_for_pods(&features, pod),
                |_, change| keys::touched_by_pod(&change),
            ),
            // A deleted node can remove the domain with the lowest count (PL-108).
            EventRegistration::with_hint(
                EventResource::Node,
                ActionType::ADD
                    | ActionType::DELETE
                    | ActionType::UPDATE_NODE_LABEL
                    | ActionType::UPDATE_NODE_TAINT,
                move |cluster, pod, change| {
                    self.after_node_change(cluster, &features, pod, &change)
                },
            )
            .found_by(
                move |pod| for_nodes.waits_for_nodes(&features, pod),
                |_, change| keys::touched_by_node(&change),
            ),
        ];
        // Default constraints depend on services and controllers, for which kube-scheduler's plugin does not register.
        if defaults.has_hard_defaults() {
            events.extend(SELECTING_KINDS.map(|kind| {
                let plugin = defaults.clone();
                EventRegistration::supplementary(
                    EventResource::of_kind(kind),
                    ActionType::ADD | ActionType::UPDATE | ActionType::DELETE,
                    move |_, pod, change| Ok(plugin.missed_of_selectors(pod, &change)),
                )
                .found_by(keys::waits_for_selectors, |_, change| {
                    keys::touched_by_selector(&change)
                })
            }));
        }
        events
    }
}

#[cfg(test)]
mod score_tests;
#[cfg(test)]
mod tests;
