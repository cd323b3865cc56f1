//! `InterPodAffinityArgs`.

use crate::args::{Problems, decode, set_default};
use berth_framework::FeatureGates;
use berth_framework::registry::ArgsError;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The arguments, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterPodAffinityArgs {
    /// The points of a required affinity term of a running pod that matches the new pod, 0 to 100.
    pub hard_pod_affinity_weight: i64,
    /// Whether preferences of running pods are ignored for pods without preferences.
    pub ignore_preferred_terms_of_existing_pods: bool,
}

impl Default for InterPodAffinityArgs {
    fn default() -> Self {
        Self {
            hard_pod_affinity_weight: 1,
            ignore_preferred_terms_of_existing_pods: false,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct InterPodAffinityWire {
    hard_pod_affinity_weight: Option<i64>,
    ignore_preferred_terms_of_existing_pods: Option<bool>,
}

impl InterPodAffinityArgs {
    /// Reads the arguments.
    ///
    /// # Errors
    /// The fault of the arguments.
    pub fn decode(args: &Value) -> Result<Self, ArgsError> {
        let wire: InterPodAffinityWire = decode(args, "InterPodAffinityArgs")?;
        let defaults = Self::default();
        let weight = wire
            .hard_pod_affinity_weight
            .unwrap_or(defaults.hard_pod_affinity_weight);
        let mut problems = Problems::default();
        if !(0..=100).contains(&weight) {
            problems.invalid(
                "hardPodAffinityWeight",
                weight,
                "not in valid range [0, 100]",
            );
        }
        problems.or(Self {
            hard_pod_affinity_weight: weight,
            ignore_preferred_terms_of_existing_pods: wire
                .ignore_preferred_terms_of_existing_pods
                .unwrap_or(defaults.ignore_preferred_terms_of_existing_pods),
        })
    }
}
/// Fills in the defaults.
pub(super) fn complete(fields: &mut Map<String, Value>, _features: &FeatureGates) {
    let defaults = InterPodAffinityArgs::default();
    set_default(fields, "hardPodAffinityWeight", || {
        json!(defaults.hard_pod_affinity_weight)
    });
    set_default(fields, "ignorePreferredTermsOfExistingPods", || {
        json!(defaults.ignore_preferred_terms_of_existing_pods)
    });
}
