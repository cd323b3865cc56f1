//! What queueing hints ask of a change, whatever the plugin.

use berth_api::{Node, Pod};
use berth_framework::event::Change;

/// The pod before and after the change.
///
/// # Errors
/// When the change is about another kind of object; the queue then tries the pod again, to be safe.
pub(crate) fn pods<'a>(change: &Change<'a>) -> Result<(Option<&'a Pod>, Option<&'a Pod>), String> {
    let (old, new) = (change.old_pod(), change.new_pod());
    check(change, old.is_some(), new.is_some(), "a pod").map(|()| (old, new))
}

/// The node before and after the change.
///
/// # Errors
/// When the change is about another kind of object.
pub(crate) fn nodes<'a>(
    change: &Change<'a>,
) -> Result<(Option<&'a Node>, Option<&'a Node>), String> {
    let (old, new) = (change.old_node(), change.new_node());
    check(change, old.is_some(), new.is_some(), "a node").map(|()| (old, new))
}

fn check(change: &Change<'_>, old: bool, new: bool, expected: &str) -> Result<(), String> {
    let known = change.old.is_some() == old && change.new.is_some() == new;
    match change.new.or(change.old) {
        Some(_) if known => Ok(()),
        Some(object) => Err(format!("expected {expected}, got a {:?}", object.kind())),
        None => Err(format!("expected {expected}, got no object")),
    }
}

/// Whether a pod takes up room on a node, or is promised some.
pub(crate) fn is_assigned_or_nominated(pod: &Pod) -> bool {
    pod.is_assigned() || !pod.status.nominated_node_name.is_empty()
}

/// Whether both are versions of one pod.
pub(crate) fn is_same_pod(a: &Pod, b: &Pod) -> bool {
    a.uid() == b.uid()
}
