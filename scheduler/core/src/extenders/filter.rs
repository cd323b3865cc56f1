//! Filtering by an extender (F-39).

use berth_api::Str;
use berth_framework::extender::{EXTENDER, ExtenderCallError, Filtered};
use berth_framework::{ReasonCode, Status};
use rustc_hash::FxHashSet;

/// The nodes that remain after an extender.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Narrowed {
    /// The remaining nodes, in the order of the request.
    pub(crate) nodes: Vec<Str>,
    /// The statuses of the rejected nodes. Preemption does not help on a node if any of its statuses states that.
    pub(crate) statuses: Vec<(Str, Status)>,
}

/// Evaluates an answer about the nodes `asked`.
///
/// # Errors
/// When it names a node that was not in the request.
pub(crate) fn narrow(
    extender: &Str,
    asked: &[Str],
    stated: Filtered,
) -> Result<Narrowed, ExtenderCallError> {
    let known: FxHashSet<&Str> = asked.iter().collect();
    if let Some(stranger) = stated.nodes.iter().find(|name| !known.contains(name)) {
        return Err(ExtenderCallError::InvalidAnswer(format!(
            "extender {:?} claims a filtered node {:?} which is not found in the input node list",
            extender.as_str(),
            stranger.as_str()
        )));
    }
    let left: FxHashSet<&Str> = stated.nodes.iter().collect();
    let nodes = asked.iter().filter(|name| left.contains(name)).cloned();
    let unresolvable: FxHashSet<&Str> = stated
        .failed_and_unresolvable
        .iter()
        .map(|(name, _)| name)
        .collect();
    let hard = stated.failed_and_unresolvable.iter().map(|(name, reason)| {
        (
            name,
            Status::unresolvable(ReasonCode::Extender.reason(reason.clone())),
        )
    });
    // A node in both lists is unresolvable, as in kube-scheduler.
    let soft = stated
        .failed
        .iter()
        .filter(|(name, _)| !unresolvable.contains(name))
        .map(|(name, reason)| {
            (
                name,
                Status::unschedulable(ReasonCode::Extender.reason(reason.clone())),
            )
        });
    let statuses = hard
        .chain(soft)
        .map(|(name, status)| (name.clone(), status.by(EXTENDER)));
    Ok(Narrowed {
        nodes: nodes.collect(),
        statuses: statuses.collect(),
    })
}
