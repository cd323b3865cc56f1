//! Checks that were added after the oldest supported release. Each applies from its release on; a value that the stored
//! object already has is accepted.

use super::errors::{ErrorPath, Errors};
use super::pod::update::node_selector_terms;
use super::slice::ONE_TERM;
use crate::access::GroupResource;
use crate::field::FieldError;
use crate::releases::ApiRelease;
use crate::view::FieldView;
use berth_api::Release;
use serde_json::Value;

/// The errors of an object that is going to be stored.
pub fn validate(
    api: ApiRelease,
    resource: GroupResource,
    new: &Value,
    old: Option<&Value>,
) -> Vec<FieldError> {
    let mut errors = Errors::new();
    let is_slices = (resource.group, resource.resource) == ("resource.k8s.io", "resourceslices");
    if is_slices && api.release() >= Release::V1_38 {
        let known = old.map_or(&[][..], |old| old.part("spec").items("devices"));
        let devices = new.part("spec").items("devices");
        let at = ErrorPath::new("spec");
        let at = at.child("devices");
        for (i, device) in devices.iter().enumerate() {
            if !known.contains(device) {
                slice_device(&mut errors, device, &at.index(i));
            }
        }
    }
    errors.into_vec()
}

fn slice_device(errors: &mut Errors, device: &Value, path: &ErrorPath) {
    for field in ["attributes", "capacity"] {
        let at = path.child(field);
        for (name, _) in device.entries(field) {
            if name.matches('/').count() > 1 {
                errors.invalid(&at, name, "must contain at most one `/`");
            }
        }
    }
    let selector = device.part("nodeSelector");
    if selector.items("nodeSelectorTerms").len() > 1 {
        let at = path.child("nodeSelector");
        let at = at.child("nodeSelectorTerms");
        errors.invalid(&at, node_selector_terms(selector), ONE_TERM);
    }
}
