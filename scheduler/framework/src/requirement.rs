//! The requirement of a pod on its node, declared once.
//!
//! A plugin that checks nodes individually reads a pod into one value, its **requirement** ([`NodeFilter`]) or its
//! **preference** ([`NodeScore`]), and answers from that value and the node. The rest is derived:
//!
//! | extension point | derived as |
//! |---|---|
//! | PreFilter | reads the requirement once per pod; Skip without one |
//! | Filter | checks each node against the requirement; lists what a node lacks |
//! | PreScore | reads the preference once per pod; Skip without one |
//! | Score, NormalizeScore | rates each node by the preference, and scales the rates |
//! | [`Keep`] | pods with equal requirements and preferences share the answers about a node |
//!
//! So an answer cannot depend on a part of the pod that the answer cache does not compare. A plugin with other needs
//! implements the extension points of [`plugin`](crate::plugin) itself.

use crate::keep::{FollowOutcome, Fragment, Keep, Kept};
use crate::lack::Lack;
use crate::plugin::{
    Context, Filter, MAX_NODE_SCORE, PreFilter, PreFilterResult, PreScore, Score, default_normalize,
};
use crate::pod_info::PodInfo;
use crate::state::CycleState;
use crate::status::Status;
use crate::table::{Columns, NodeTable, NodeView, Slot};
use berth_api::Str;
use std::hash::Hash;
use std::sync::Arc;

/// Filters nodes by a requirement. Implements [`PreFilter`] and [`Filter`]; register it with
/// [`node_filter`](crate::registry::ExtensionsBuilder::node_filter).
pub trait NodeFilter: Send + Sync + 'static {
    /// The values that the plugin reads from the pod, and from the cluster other than the checked node. Pods with equal
    /// requirements get equal answers about a node.
    type Requirement: Hash + Send + 'static;

    /// Whether answers depend on the pods of the node, or on pods that are nominated to it, and not on the node object
    /// alone.
    const READS_PODS: bool = true;

    /// Returns whether answers depend on the [amounts](crate::table::Columns::amounts) of the node alone.
    fn reads_amounts_alone(&self, _requirement: &Self::Requirement) -> bool {
        false
    }

    /// Reads the requirement of a pod; `None` if every node meets it.
    ///
    /// # Errors
    /// PreFilter rejects the pod with this status.
    fn requirement(
        &self,
        cx: &Context<'_>,
        pod: &PodInfo,
    ) -> Result<Option<Self::Requirement>, Status>;

    /// Checks a node against the requirement: Success, or a rejection as in [`Filter::filter`].
    fn check(&self, requirement: &Self::Requirement, node: NodeView<'_>) -> Status;

    /// The values behind a rejection by [`NodeFilter::check`]; see [`Filter::lacking`].
    fn lacks(&self, _requirement: &Self::Requirement, _node: NodeView<'_>) -> Vec<Lack> {
        Vec::new()
    }

    /// A quick test for passes over many nodes: `true` for slots whose node meets the requirement. The slots for which
    /// it is `false` are checked.
    fn quick_check<'a>(
        &'a self,
        _requirement: &'a Self::Requirement,
        _nodes: &'a NodeTable,
    ) -> impl Fn(Slot) -> bool + 'a {
        |_| false
    }

    /// The same in one pass over rows of equal amounts, if the plugin
    /// [reads amounts alone](NodeFilter::reads_amounts_alone): sets `fits` to false for the rows whose nodes are checked
    /// individually. See [`Filter::filter_amounts`].
    fn check_amounts(
        &self,
        _requirement: &Self::Requirement,
        _amounts: &Columns,
        fits: &mut [bool],
    ) {
        fits.fill(false);
    }

    /// The names of the only nodes that can meet the requirement, sorted, if the requirement names nodes.
    fn only_nodes(&self, _requirement: &Self::Requirement) -> Option<Vec<Str>> {
        None
    }
}

/// The scaling of raw scores to scores from 0 to [`MAX_NODE_SCORE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScoreScale {
    /// They are in that range.
    None,
    /// The greatest becomes [`MAX_NODE_SCORE`]; see [`default_normalize`].
    Greatest,
    /// The greatest becomes 0, and zero becomes [`MAX_NODE_SCORE`].
    GreatestReversed,
}

/// Scores nodes by a preference. Implements [`PreScore`] and [`Score`]; register it with
/// [`node_score`](crate::registry::ExtensionsBuilder::node_score).
pub trait NodeScore: Send + Sync + 'static {
    /// The values that the plugin reads from the pod, and from the cluster other than the rated node. Pods with equal
    /// preferences get equal scores.
    type Preference: Hash + Send + 'static;

    /// Whether scores depend on the pods of the node, and not on the node object alone.
    const READS_PODS: bool = true;

    /// The way in which raw scores are scaled.
    const SCALE: ScoreScale = ScoreScale::None;

    /// Returns whether scores depend on the [amounts](crate::table::Columns::amounts) of the node alone.
    fn reads_amounts_alone(&self, _preference: &Self::Preference) -> bool {
        false
    }

    /// Reads the preference of a pod; `None` if all nodes are equal to it.
    ///
    /// # Errors
    /// PreScore fails with this status.
    fn preference(
        &self,
        cx: &Context<'_>,
        pod: &PodInfo,
    ) -> Result<Option<Self::Preference>, Status>;

    /// Returns the function that rates nodes: the raw score of the node of a slot.
    fn rate<'a>(
        &'a self,
        preference: &'a Self::Preference,
        nodes: &'a NodeTable,
    ) -> impl Fn(Slot) -> i64 + 'a;

    /// The same in one pass over rows of equal amounts, if the plugin [reads amounts alone](NodeScore::reads_amounts_alone):
    /// sets the score of each row. An override must give the same scores as [`NodeScore::rate`]. Returns false if nodes
    /// have to be rated individually.
    fn rate_amounts(
        &self,
        _preference: &Self::Preference,
        _amounts: &Columns,
        _scores: &mut [i32],
    ) -> bool {
        false
    }
}

/// The requirement of the cycle's pod, from PreFilter to Filter.
struct RequiredState<P: NodeFilter>(P::Requirement);

/// The preference of the cycle's pod, from PreScore to Score.
struct Preferred<P: NodeScore>(P::Preference);

/// The requirement that PreFilter has read; `None` if it has not run, or every node meets it.
pub fn required<P: NodeFilter>(state: &CycleState) -> Option<&P::Requirement> {
    let required: &RequiredState<P> = state.read()?;
    Some(&required.0)
}

/// The preference that PreScore has read; `None` if it has not run, or all nodes are equal.
pub fn preferred<P: NodeScore>(state: &CycleState) -> Option<&P::Preference> {
    let preferred: &Preferred<P> = state.read()?;
    Some(&preferred.0)
}

/// Returns whether the slot holds a node.
fn holds_node(nodes: &NodeTable, slot: Slot) -> bool {
    nodes.is_node().get(slot.index()) == Some(&true)
}

impl<P: NodeFilter> PreFilter for P {
    fn pre_filter(
        &self,
        cx: &Context<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
    ) -> PreFilterResult {
        match self.requirement(cx, pod) {
            Err(status) => PreFilterResult::Reject(status),
            Ok(None) => PreFilterResult::Skip,
            Ok(Some(requirement)) => {
                let only = self.only_nodes(&requirement);
                state.write(RequiredState::<P>(requirement));
                only.map_or(PreFilterResult::AllNodes, PreFilterResult::Nodes)
            }
        }
    }
}

impl<P: NodeFilter> Filter for P {
    fn filter(
        &self,
        cx: &Context<'_>,
        state: &CycleState,
        pod: &PodInfo,
        node: NodeView<'_>,
    ) -> Status {
        let check = |requirement| {
            let nodes = &cx.cluster.nodes;
            if self.quick_check(requirement, nodes)(node.slot()) {
                Status::success()
            } else {
                self.check(requirement, node)
            }
        };
        if let Some(RequiredState(requirement)) = state.read::<RequiredState<P>>() {
            return check(requirement);
        }
        match self.requirement(cx, pod) {
            Err(status) => status,
            Ok(None) => Status::success(),
            Ok(Some(requirement)) => check(&requirement),
        }
    }

    fn lacking(
        &self,
        cx: &Context<'_>,
        state: &CycleState,
        pod: &PodInfo,
        node: NodeView<'_>,
    ) -> Vec<Lack> {
        if let Some(RequiredState(requirement)) = state.read::<RequiredState<P>>() {
            return self.lacks(requirement, node);
        }
        let requirement = self.requirement(cx, pod).ok().flatten();
        requirement.map_or_else(Vec::new, |requirement| self.lacks(&requirement, node))
    }

    fn filter_many(
        &self,
        cx: &Context<'_>,
        state: &CycleState,
        pod: &PodInfo,
        nodes: &mut Vec<Slot>,
        reject: &mut dyn FnMut(Slot, Status),
    ) {
        let table = &cx.cluster.nodes;
        let mut check = |requirement: &P::Requirement| {
            let quick = self.quick_check(requirement, table);
            nodes.retain(|slot| {
                // Slots of deleted nodes are dropped without a status.
                if !holds_node(table, *slot) {
                    return false;
                }
                // A node that passes the quick check passes the full check.
                if quick(*slot) {
                    return true;
                }
                let status = table.get(*slot).map(|node| self.check(requirement, node));
                let status = status.filter(|status| !status.is_success());
                let fits = status.is_none();
                if let Some(status) = status {
                    reject(*slot, status);
                }
                fits
            });
        };
        if let Some(RequiredState(requirement)) = state.read::<RequiredState<P>>() {
            return check(requirement);
        }
        match self.requirement(cx, pod) {
            Ok(Some(requirement)) => check(&requirement),
            Ok(None) => nodes.retain(|slot| holds_node(table, *slot)),
            Err(status) => {
                for slot in nodes.drain(..).filter(|slot| holds_node(table, *slot)) {
                    reject(slot, status.clone());
                }
            }
        }
    }

    fn filter_amounts(&self, state: &CycleState, amounts: &Columns, fits: &mut [bool]) {
        match state.read::<RequiredState<P>>() {
            Some(RequiredState(requirement)) => self.check_amounts(requirement, amounts, fits),
            None => fits.fill(false),
        }
    }
}

impl<P: NodeScore> PreScore for P {
    fn pre_score(
        &self,
        cx: &Context<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        _nodes: &[Slot],
    ) -> Status {
        match self.preference(cx, pod) {
            Err(status) => status,
            Ok(None) => Status::skip(),
            Ok(Some(preference)) => {
                state.write(Preferred::<P>(preference));
                Status::success()
            }
        }
    }
}

impl<P: NodeScore> Score for P {
    fn score(
        &self,
        cx: &Context<'_>,
        state: &CycleState,
        pod: &PodInfo,
        node: NodeView<'_>,
    ) -> Result<i64, Status> {
        let nodes = &cx.cluster.nodes;
        if let Some(Preferred(preference)) = state.read::<Preferred<P>>() {
            return Ok(self.rate(preference, nodes)(node.slot()));
        }
        let preference = self.preference(cx, pod)?;
        Ok(preference.map_or(0, |preference| self.rate(&preference, nodes)(node.slot())))
    }

    fn score_many(
        &self,
        cx: &Context<'_>,
        state: &CycleState,
        pod: &PodInfo,
        nodes: &[Slot],
        scores: &mut Vec<i64>,
    ) -> Result<(), Status> {
        let table = &cx.cluster.nodes;
        if nodes.iter().any(|slot| !holds_node(table, *slot)) {
            return Err(Status::error("the node was deleted"));
        }
        let own;
        let preference = match state.read::<Preferred<P>>() {
            Some(Preferred(preference)) => Some(preference),
            None => {
                own = self.preference(cx, pod)?;
                own.as_ref()
            }
        };
        match preference {
            Some(preference) => {
                let rate = self.rate(preference, table);
                scores.extend(nodes.iter().map(|slot| rate(*slot)));
            }
            None => scores.resize(scores.len() + nodes.len(), 0),
        }
        Ok(())
    }

    fn score_amounts(&self, state: &CycleState, amounts: &Columns, scores: &mut [i32]) -> bool {
        let preferred = state.read::<Preferred<P>>();
        preferred
            .is_some_and(|Preferred(preference)| self.rate_amounts(preference, amounts, scores))
    }

    fn normalize(
        &self,
        _cx: &Context<'_>,
        _state: &CycleState,
        _pod: &PodInfo,
        scores: &mut [(Slot, i64)],
    ) -> Status {
        if P::SCALE != ScoreScale::None {
            let is_reversed = P::SCALE == ScoreScale::GreatestReversed;
            default_normalize(MAX_NODE_SCORE, is_reversed, scores);
        }
        Status::success()
    }
}

fn kept_if(reads_amounts_alone: bool) -> Kept {
    if reads_amounts_alone {
        Kept::ByAmounts
    } else {
        Kept::ByFragment
    }
}

/// The kept answers of a [`NodeFilter`].
pub(crate) struct KeepFilter<P>(pub(crate) Arc<P>);

impl<P: NodeFilter> Keep for KeepFilter<P> {
    fn fragment(&self, cx: &Context<'_>, pod: &PodInfo, fragment: &mut Fragment) -> Kept {
        let Ok(requirement) = self.0.requirement(cx, pod) else {
            return Kept::Never;
        };
        // Only the named nodes are checked: that costs less than answers about all nodes.
        if requirement.iter().any(|r| self.0.only_nodes(r).is_some()) {
            return Kept::Never;
        }
        fragment.put(&requirement);
        kept_if(requirement.is_none_or(|read| self.0.reads_amounts_alone(&read)))
    }

    fn reads_pods(&self) -> bool {
        P::READS_PODS
    }
}

/// The kept answers of a [`NodeScore`].
pub(crate) struct KeepScore<P>(pub(crate) Arc<P>);

impl<P: NodeScore> Keep for KeepScore<P> {
    fn fragment(&self, cx: &Context<'_>, pod: &PodInfo, fragment: &mut Fragment) -> Kept {
        match self.0.preference(cx, pod) {
            Ok(preference) => {
                fragment.put(&preference);
                kept_if(preference.is_none_or(|read| self.0.reads_amounts_alone(&read)))
            }
            Err(_) => Kept::Never,
        }
    }

    fn reads_pods(&self) -> bool {
        P::READS_PODS
    }

    fn normalizes(&self) -> bool {
        P::SCALE != ScoreScale::None
    }
}

/// The kept answers of a plugin that filters and scores.
pub(crate) struct KeepBoth(pub(crate) [Arc<dyn Keep>; 2]);

impl Keep for KeepBoth {
    fn fragment(&self, cx: &Context<'_>, pod: &PodInfo, fragment: &mut Fragment) -> Kept {
        let [first, second] = &self.0;
        let of_first = first.fragment(cx, pod, fragment);
        if of_first == Kept::Never {
            return Kept::Never;
        }
        let end = fragment.as_bytes().len();
        let of_second = second.fragment(cx, pod, fragment);
        // Bytes of the first part never pass for bytes of the second.
        fragment.put(&end);
        of_first.min(of_second)
    }

    fn follow(
        &self,
        cx: &Context<'_>,
        state: &mut CycleState,
        changed: &mut Vec<Slot>,
    ) -> FollowOutcome {
        let mut both = self
            .0
            .each_ref()
            .map(|part| part.follow(cx, state, changed));
        both.sort_unstable();
        both[1]
    }

    fn reads_pods(&self) -> bool {
        self.0.iter().any(|part| part.reads_pods())
    }

    fn normalizes(&self) -> bool {
        self.0.iter().any(|part| part.normalizes())
    }
}
