//! The part of the NodeRestriction admission plugin that other checks do not cover: a node creates and deletes only the
//! ResourceSlices of its own devices.

use crate::auth::RequestUser;
use berth_objects::access::gr;
use berth_objects::catalog::ServedResource;
use berth_objects::status::ApiError;
use berth_objects::view::FieldView;
use serde_json::Value;

/// Checks the creation or the deletion of an object; `verb` is how messages name it.
///
/// # Errors
/// 403 if the object belongs to another node.
pub(crate) fn check(
    user: &RequestUser,
    resource: &ServedResource,
    verb: &str,
    object: &Value,
) -> Result<(), ApiError> {
    if resource.resource != gr("resource.k8s.io", "resourceslices") {
        return Ok(());
    }
    let is_node = user.groups.iter().any(|group| group == "system:nodes");
    let Some(node) = user.name.strip_prefix("system:node:").filter(|_| is_node) else {
        return Ok(());
    };
    if object.part("spec").text("nodeName") == node {
        return Ok(());
    }
    let name = object.part("metadata").text("name");
    let message =
        format!("can only {verb} ResourceSlice with the same NodeName as the requesting node");
    Err(ApiError::forbidden(resource.subject(name), &message))
}
