//! `DefaultPreemptionArgs`: the number of nodes on which victims are searched.

use crate::args::{Problems, decode, set_default};
use berth_framework::FeatureGates;
use berth_framework::registry::ArgsError;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The arguments, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DefaultPreemptionArgs {
    /// The percentage of the nodes where preemption may help.
    pub min_candidate_nodes_percentage: usize,
    /// The least number of nodes.
    pub min_candidate_nodes_absolute: usize,
}

impl Default for DefaultPreemptionArgs {
    fn default() -> Self {
        Self {
            min_candidate_nodes_percentage: 10,
            min_candidate_nodes_absolute: 100,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DefaultPreemptionWire {
    min_candidate_nodes_percentage: Option<i64>,
    min_candidate_nodes_absolute: Option<i64>,
}

impl DefaultPreemptionArgs {
    /// Reads the arguments.
    ///
    /// # Errors
    /// Every problem of the arguments.
    pub fn decode(args: &Value) -> Result<Self, ArgsError> {
        const PERCENTAGE: &str = "minCandidateNodesPercentage";
        const ABSOLUTE: &str = "minCandidateNodesAbsolute";
        let wire: DefaultPreemptionWire = decode(args, "DefaultPreemptionArgs")?;
        let mut problems = Problems::default();
        let percentage = wire.min_candidate_nodes_percentage.unwrap_or(10);
        let absolute = wire.min_candidate_nodes_absolute.unwrap_or(100);
        if !(0..=100).contains(&percentage) {
            problems.invalid(PERCENTAGE, percentage, "not in valid range [0, 100]");
        }
        if absolute < 0 {
            problems.invalid(ABSOLUTE, absolute, "not in valid range [0, inf)");
        }
        if percentage == 0 && absolute == 0 {
            let why = format!("cannot be zero at the same time as {ABSOLUTE}");
            problems.invalid(PERCENTAGE, percentage, why);
            let why = format!("cannot be zero at the same time as {PERCENTAGE}");
            problems.invalid(ABSOLUTE, absolute, why);
        }
        problems.or(Self {
            min_candidate_nodes_percentage: usize::try_from(percentage).unwrap_or_default(),
            min_candidate_nodes_absolute: usize::try_from(absolute).unwrap_or_default(),
        })
    }

    /// The number of candidates that are searched among `nodes` nodes.
    pub(super) fn candidates(&self, nodes: usize) -> usize {
        (nodes.saturating_mul(self.min_candidate_nodes_percentage) / 100)
            .max(self.min_candidate_nodes_absolute)
            .min(nodes)
    }
}

/// Fills in the defaults.
pub(super) fn complete(fields: &mut Map<String, Value>, _features: &FeatureGates) {
    let defaults = DefaultPreemptionArgs::default();
    set_default(fields, "minCandidateNodesPercentage", || {
        json!(defaults.min_candidate_nodes_percentage)
    });
    set_default(fields, "minCandidateNodesAbsolute", || {
        json!(defaults.min_candidate_nodes_absolute)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PL-110.
    #[test]
    fn the_numbers_have_bounds() {
        for (args, problem) in [
            (json!(null), ""),
            (json!({"minCandidateNodesPercentage": 0}), ""),
            (
                json!({"minCandidateNodesPercentage": 101}),
                "minCandidateNodesPercentage: Invalid value: 101: not in valid range [0, 100]",
            ),
            (
                json!({"minCandidateNodesAbsolute": -1}),
                "minCandidateNodesAbsolute: Invalid value: -1: not in valid range [0, inf)",
            ),
            (
                json!({"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0}),
                "minCandidateNodesPercentage: Invalid value: 0: cannot be zero at the same time as minCandidateNodesAbsolute, minCandidateNodesAbsolute: Invalid value: 0: cannot be zero at the same time as minCandidateNodesPercentage",
            ),
        ] {
            let got = DefaultPreemptionArgs::decode(&args)
                .err()
                .map(|e| e.to_string());
            assert_eq!(got.unwrap_or_default(), problem, "{args}");
        }
    }

    /// P-8: a percentage of the nodes, at least the absolute minimum, at most all.
    #[test]
    fn how_many_candidates_are_looked_for() {
        for (nodes, expected) in [(0, 0), (50, 50), (100, 100), (999, 100), (5_000, 500)] {
            assert_eq!(
                DefaultPreemptionArgs::default().candidates(nodes),
                expected,
                "{nodes}"
            );
        }
    }
}
