//! Objects that are stored in another shape than they are shown: those of older versions and other groups, and custom
//! resources, which are stored in their storage version.

use super::resource::Resource;
use super::{autoscalers, events};
use serde_json::Value;
use std::borrow::Cow;

/// How a resource differs from the one as which its objects are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conversion {
    /// Events of events.k8s.io/v1.
    Events,
    /// HorizontalPodAutoscalers of autoscaling/v1.
    Autoscalers,
}

impl Conversion {
    /// The conversion of this group and version, if its objects are stored in another shape.
    pub(super) fn of(group: &str, version: &str, plural: &str) -> Option<Self> {
        match (group, version, plural) {
            ("events.k8s.io", "v1", "events") => Some(Self::Events),
            ("autoscaling", "v1", "horizontalpodautoscalers") => Some(Self::Autoscalers),
            _ => None,
        }
    }
}

/// An object as it is stored, from the shape of `resource`.
pub(super) fn to_stored(resource: &Resource, mut object: Value) -> Value {
    if let Some(custom) = &resource.custom {
        object["apiVersion"] = custom.stored_version.as_str().into();
    }
    match resource.conversion {
        None => object,
        Some(Conversion::Events) => events::from_events_v1(object),
        Some(Conversion::Autoscalers) => autoscalers::from_v1(object),
    }
}

/// A stored object in the shape of `resource`.
pub(super) fn from_stored<'a>(resource: &Resource, object: &'a Value) -> Cow<'a, Value> {
    if let Some(custom) = &resource.custom {
        return Cow::Owned(custom.shown(object, &resource.api_version()));
    }
    match resource.conversion {
        None => Cow::Borrowed(object),
        Some(Conversion::Events) => Cow::Owned(events::to_events_v1(object)),
        Some(Conversion::Autoscalers) => Cow::Owned(autoscalers::to_v1(object)),
    }
}
