//! PodGroupProtection: groups that are in use are not deleted, and a group that is being deleted gets no new members.

use crate::registry::Api;
use berth_objects::catalog::{self, ServedResource};
use berth_objects::groups::parent_of;
use berth_objects::status::ApiError;
use berth_objects::view::FieldView;
use serde_json::Value;

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
    let found = catalog::find(parents.group, parents.resource)
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
