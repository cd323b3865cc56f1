//! Scoring by extenders (F-41).

use berth_api::Str;
use berth_framework::extender::{ExtenderSpec, MAX_EXTENDER_PRIORITY};
use berth_framework::plugin::MAX_NODE_SCORE;
use rustc_hash::FxHashMap;

/// The scores of nodes so far, by name.
pub(crate) type Totals = FxHashMap<Str, i64>;

/// Adds the scores of an extender: score × weight × ([`MAX_NODE_SCORE`] / [`MAX_EXTENDER_PRIORITY`]), as in
/// kube-scheduler. Scores of a node that is listed twice are added; a node that is no candidate is ignored.
pub(crate) fn add_scores(totals: &mut Totals, spec: &ExtenderSpec, given: Vec<(Str, i64)>) {
    let scale = MAX_NODE_SCORE / MAX_EXTENDER_PRIORITY;
    for (name, score) in given {
        if let Some(total) = totals.get_mut(&name) {
            let counted = score.saturating_mul(spec.weight).saturating_mul(scale);
            *total = total.saturating_add(counted);
        }
    }
}
