//! A group is placed where most of its pods can run (KEP-5732).
//!
//! ```text
//! a gang of at least 3 with 4 pods, room for 3 in rack a and for 4 in rack b     → rack b
//! ```

use berth_framework::Feature;
use berth_framework::plugin::{Context, GroupProposal, MAX_NODE_SCORE, PlacementScore};
use berth_framework::registry::{ArgsKind, Extensions, Registration};

/// The plugin's name.
pub const NAME: &str = "PodGroupPodsCount";

/// The number of pods of a group on a placement.
#[derive(Debug, Default)]
pub struct PodGroupPodsCount;

/// The plugin's entry in the registry.
pub fn registration() -> Registration {
    Registration::new(NAME, |_| {
        Ok(Extensions::of(PodGroupPodsCount).placement_score().build())
    })
    .args(ArgsKind::None)
    .by_default(Some(1))
    .gated_by(Feature::TopologyAwareWorkloadScheduling)
}

impl PlacementScore for PodGroupPodsCount {
    fn placement_score(&self, _cx: &Context<'_>, proposal: &GroupProposal<'_>) -> i64 {
        let pods = proposal.scheduled + proposal.pods.len();
        i64::try_from(pods).unwrap_or(i64::MAX)
    }

    /// The placement with most pods gets the highest score.
    fn normalize_placements(&self, scores: &mut [i64]) {
        let max = scores.iter().copied().max().unwrap_or(0);
        if max > 0 {
            for score in scores {
                *score = score.saturating_mul(MAX_NODE_SCORE) / max;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_placement_with_most_pods_gets_the_highest_score() {
        let mut scores = [3, 4, 0];
        PodGroupPodsCount.normalize_placements(&mut scores);
        assert_eq!(scores, [75, 100, 0]);
        let mut none = [0, 0];
        PodGroupPodsCount.normalize_placements(&mut none);
        assert_eq!(none, [0, 0]);
    }
}
