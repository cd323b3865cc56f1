//! PodGroupProtection: groups that are in use are not deleted, and a group that is being deleted gets no new members.

use crate::access::{GroupResource, gr};
use crate::groups::GROUP;
use crate::registry::{self, Api, ServedResource};
use crate::status::ApiError;
use crate::validation::view::FieldView;
use serde_json::Value;

/// The finalizers of groups.
pub(crate) const GROUP_PROTECTION: &str = "scheduling.k8s.io/podgroup-protection";
pub(crate) const COMPOSITE_PROTECTION: &str = "scheduling.k8s.io/compositepodgroup-protection";

/// PodGroups.
pub(crate) const GROUPS: GroupResource = gr(GROUP, "podgroups");
/// CompositePodGroups.
pub(crate) const COMPOSITES: GroupResource = gr(GROUP, "compositepodgroups");

/// The finalizer that a new group gets.
pub(super) fn finalizer(resource: GroupResource) -> Option<&'static str> {
    match resource {
        GROUPS => Some(GROUP_PROTECTION),
        COMPOSITES => Some(COMPOSITE_PROTECTION),
        _ => None,
    }
}

/// The group that an object belongs to: its kind, where it is stored, and its name.
pub(crate) fn parent_of(object: &Value) -> Option<(&'static str, GroupResource, &str)> {
    let spec = object.part("spec");
    match object.text("kind") {
        "Pod" => {
            let name = spec.part("schedulingGroup").maybe_text("podGroupName")?;
            Some(("PodGroup", GROUPS, name))
        }
        "PodGroup" | "CompositePodGroup" => {
            let name = spec.maybe_text("parentCompositePodGroupName")?;
            Some(("CompositePodGroup", COMPOSITES, name))
        }
        _ => None,
    }
}

/// A new object must not belong to a group that is being deleted. The group may be created later.
///
/// # Errors
/// 403.
pub(super) fn check_parent(
    api: &Api,
    resource: &ServedResource,
    namespace: &str,
    object: &Value,
) -> Result<(), ApiError> {
    let Some((kind, parents, parent)) = parent_of(object) else {
        return Ok(());
    };
    let found = registry::find(parents.group, parents.resource)
        .and_then(|parents| api.get(parents, namespace, parent).ok());
    let is_deleting = found.is_some_and(|found| {
        let found = found.object();
        found.part("metadata").field("deletionTimestamp").is_some()
    });
    if !is_deleting {
        return Ok(());
    }
    let message = format!(
        "cannot create {} referencing {kind} \"{parent}\" because it is being deleted",
        resource.kind
    );
    let name = object.part("metadata").text("name");
    Err(ApiError::forbidden(resource.subject(name), &message))
}
