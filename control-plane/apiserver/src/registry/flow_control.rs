//! Restores the mandatory FlowSchemas and PriorityLevelConfigurations.

use super::api::Api;
use crate::registry::request::WriteOptions;
use berth_objects::catalog::find;
use berth_objects::flow_control::{MANDATORY, bootstrap};
use berth_objects::status::ApiError;
use berth_objects::view::meta;

/// Creates the mandatory objects that were deleted.
///
/// # Errors
/// When a write is refused.
pub(super) fn restore(api: &Api) -> Result<(), ApiError> {
    for (plural, object) in bootstrap() {
        let name = meta(&object, "name").to_owned();
        let resource = find("flowcontrol.apiserver.k8s.io", plural);
        let resource = resource.ok_or_else(ApiError::no_such_resource)?;
        if MANDATORY.contains(&name.as_str()) && api.get(resource, "", &name).is_err() {
            api.create(resource, "", object, &WriteOptions::default())?;
        }
    }
    Ok(())
}
