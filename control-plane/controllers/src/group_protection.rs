//! Protects groups in use: removes the finalizer of a deleted PodGroup when all its pods have ended, and of a deleted
//! CompositePodGroup when it is the parent of no group. A tree is therefore deleted from its pods up. The admission
//! plugin PodGroupProtection sets the finalizers.

use super::runtime::{CacheDifference, Controller, ControllerContext, Index, Watch, watching};
use berth_objects::access::{AccessError, GroupResource, unless_not_found};
use berth_objects::groups::{COMPOSITE_PROTECTION, GROUP_PROTECTION, parent_of};
use berth_objects::object::{
    COMPOSITE_POD_GROUP, ControllerKey, ControllerKind, POD, POD_GROUP, has_finalizer, is_deleting,
    namespace, remove_finalizer, uid,
};
use berth_objects::pod;
use serde_json::Value;

/// Protects PodGroups that pods name. Its keys are PodGroups.
#[derive(Debug)]
pub(super) struct GroupProtection;

/// Protects CompositePodGroups that are parents. Its keys are CompositePodGroups.
#[derive(Debug)]
pub(super) struct CompositeProtection;

/// The key of the group that an object belongs to.
fn parent(object: &Value) -> Option<ControllerKey> {
    let (_, _, name) = parent_of(object)?;
    Some(ControllerKey::new(namespace(object), name))
}

/// Removes the finalizer of a group that is being deleted and not in use.
fn release(
    cx: &mut ControllerContext<ControllerKey>,
    kind: ControllerKind,
    finalizer: &str,
    key: &ControllerKey,
    is_in_use: impl Fn(&ControllerContext<ControllerKey>) -> bool,
) -> Result<(), AccessError> {
    let Some(group) = cx.cache(kind).get(key).cloned() else {
        return Ok(());
    };
    if !is_deleting(&group) || !has_finalizer(&group, finalizer) || is_in_use(cx) {
        return Ok(());
    }
    let mut released = Value::clone(&group);
    remove_finalizer(&mut released, finalizer);
    unless_not_found(cx.update(kind, released))
}

/// Returns whether an object of a kind that is not ignored belongs to a group.
fn has_member(
    cx: &ControllerContext<ControllerKey>,
    kind: ControllerKind,
    index: Index,
    key: &ControllerKey,
    counts: impl Fn(&Value) -> bool,
) -> bool {
    let mut members = cx.cache(kind).by(index, &key.name);
    members.any(|member| namespace(member) == &*key.namespace && counts(member))
}

impl Controller for GroupProtection {
    type Key = ControllerKey;
    const NAME: &'static str = "podgroup-protection-controller";
    const WATCHES: &'static [Watch] =
        &[watching(POD_GROUP, &[]), watching(POD, &[Index::PodGroup])];

    fn observe(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        kind: GroupResource,
        diff: &CacheDifference,
    ) {
        if kind == POD_GROUP.resource {
            if let Some(group) = diff.new.as_ref().filter(|group| is_deleting(group)) {
                cx.enqueue(ControllerKey::of(group));
            }
            return;
        }
        let is_over = |pod: &Value| {
            let is_other = diff.old.as_ref().is_some_and(|old| uid(old) != uid(pod));
            is_other || pod::is_terminal(pod)
        };
        if diff.new.as_ref().is_none_or(|pod| is_over(pod)) {
            for group in [&diff.old, &diff.new]
                .into_iter()
                .flatten()
                .filter_map(|pod| parent(pod))
            {
                cx.enqueue(group);
            }
        }
    }

    fn reconcile(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        key: &ControllerKey,
    ) -> Result<(), AccessError> {
        release(cx, POD_GROUP, GROUP_PROTECTION, key, |cx| {
            has_member(cx, POD, Index::PodGroup, key, |pod| !pod::is_terminal(pod))
        })
    }
}

impl Controller for CompositeProtection {
    type Key = ControllerKey;
    const NAME: &'static str = "compositepodgroup-protection-controller";
    const WATCHES: &'static [Watch] = &[
        watching(COMPOSITE_POD_GROUP, &[Index::ParentGroup]),
        watching(POD_GROUP, &[Index::ParentGroup]),
    ];

    fn observe(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        kind: GroupResource,
        diff: &CacheDifference,
    ) {
        if kind == COMPOSITE_POD_GROUP.resource
            && let Some(group) = diff.new.as_ref().filter(|group| is_deleting(group))
        {
            cx.enqueue(ControllerKey::of(group));
        }
        if let Some(parent) = diff.old.as_ref().and_then(|child| parent(child)) {
            cx.enqueue(parent);
        }
    }

    fn reconcile(
        &mut self,
        cx: &mut ControllerContext<ControllerKey>,
        key: &ControllerKey,
    ) -> Result<(), AccessError> {
        release(cx, COMPOSITE_POD_GROUP, COMPOSITE_PROTECTION, key, |cx| {
            [COMPOSITE_POD_GROUP, POD_GROUP]
                .into_iter()
                .any(|kind| has_member(cx, kind, Index::ParentGroup, key, |_| true))
        })
    }
}
