//! Objects whose stored form differs from their served form: objects of older versions and other groups, and custom
//! resources, which are stored in their storage version.

pub(crate) mod autoscalers;
mod devices_beta;
mod events;
pub mod groups_alpha;

use crate::catalog::{Conversion, ServedResource};
use crate::raw_json;
use serde_json::Value;
use std::borrow::Cow;

/// An object as it is stored, from the shape of `resource`. Custom resources are written in the version of the request,
/// and converted last.
fn to_stored(resource: &ServedResource, object: Value) -> Value {
    let mut object = match resource.conversion {
        None => object,
        Some(Conversion::Events) => events::from_events_v1(object),
        Some(Conversion::Autoscalers) => autoscalers::from_v1(object),
        Some(Conversion::DevicesBeta) => devices_beta::from_v1beta1(resource.kind, object),
        Some(Conversion::GroupsAlpha) => groups_alpha::from_v1alpha2(object),
        Some(Conversion::Version) => {
            let mut object = object;
            object["apiVersion"] = resource.stored_as().api_version().into();
            object
        }
    };
    if resource.has_raw_json() {
        raw_json::to_text(&mut object);
    }
    object
}

/// A stored object in the shape of `resource`.
fn from_stored<'a>(resource: &ServedResource, object: &'a Value) -> Cow<'a, Value> {
    if let Some(custom) = &resource.custom {
        return Cow::Owned(custom.shown(object, &resource.api_version()));
    }
    let mut shown = match resource.conversion {
        None => Cow::Borrowed(object),
        Some(Conversion::Events) => Cow::Owned(events::to_events_v1(object)),
        Some(Conversion::Autoscalers) => Cow::Owned(autoscalers::to_v1(object)),
        Some(Conversion::DevicesBeta) => {
            Cow::Owned(devices_beta::to_v1beta1(resource.kind, object))
        }
        Some(Conversion::GroupsAlpha) => Cow::Owned(groups_alpha::to_v1alpha2(object)),
        Some(Conversion::Version) => {
            let mut object = object.clone();
            object["apiVersion"] = resource.api_version().into();
            Cow::Owned(object)
        }
    };
    if resource.has_raw_json() {
        raw_json::to_json(shown.to_mut());
    }
    shown
}

impl ServedResource {
    /// A stored object as this resource shows it.
    pub fn shown(&self, object: &Value) -> Value {
        crate::conversion::from_stored(self, object).into_owned()
    }

    /// An object of this resource as it is stored.
    pub fn stored(&self, object: Value) -> Value {
        crate::conversion::to_stored(self, object)
    }
}
