//! Objects that are stored in another shape than they are shown: those of older versions and other groups, and custom
//! resources, which are stored in their storage version.

use super::api::Api;
use super::resource::ServedResource;
use super::{autoscalers, devices_beta, events, groups_alpha};
use crate::access::StoredObject;
use crate::custom::CustomType;
use crate::raw_json;
use crate::status::ApiError;
use crate::storage::ObjectVersion;
use crate::validation::view::FieldView;
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;

/// The way in which a resource differs from the one as which its objects are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conversion {
    /// Events of events.k8s.io/v1.
    Events,
    /// HorizontalPodAutoscalers of autoscaling/v1.
    Autoscalers,
    /// The kinds of resource.k8s.io/v1beta1.
    DevicesBeta,
    /// The kinds of scheduling.k8s.io/v1alpha2.
    GroupsAlpha,
    /// Those of resource.k8s.io/v1beta2 and scheduling.k8s.io/v1alpha3, which differ in nothing but the version.
    Version,
}

impl Conversion {
    /// The conversion of this group and version, if its objects are stored in another shape.
    pub(super) fn of(group: &str, version: &str, plural: &str) -> Option<Self> {
        match (group, version, plural) {
            ("events.k8s.io", "v1", "events") => Some(Self::Events),
            ("autoscaling", "v1", "horizontalpodautoscalers") => Some(Self::Autoscalers),
            ("resource.k8s.io", "v1beta1", _) => Some(Self::DevicesBeta),
            ("resource.k8s.io", "v1beta2", _) => Some(Self::Version),
            ("scheduling.k8s.io", "v1alpha2", _) => Some(Self::GroupsAlpha),
            ("scheduling.k8s.io", "v1alpha3", "podgroups" | "workloads") => Some(Self::Version),
            _ => None,
        }
    }
}

/// An object as it is stored, from the shape of `resource`. Custom resources are written in the version of the request,
/// and converted last.
pub(super) fn to_stored(resource: &ServedResource, object: Value) -> Value {
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
pub(super) fn from_stored<'a>(resource: &ServedResource, object: &'a Value) -> Cow<'a, Value> {
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

/// An object in the shape of `resource`.
///
/// # Errors
/// 500 when it is a custom resource that its webhook does not convert.
pub(crate) fn show(
    api: &Api,
    resource: &ServedResource,
    object: &Value,
) -> Result<Value, ApiError> {
    let wanted = resource.api_version();
    let converted = match &resource.custom {
        Some(custom) => converted(api, custom, vec![object.clone()], &wanted)?.pop(),
        None => None,
    };
    Ok(from_stored(resource, converted.as_ref().unwrap_or(object)).into_owned())
}

/// Stored objects in the version of a custom resource. Those of other resources stay as they are stored.
///
/// # Errors
/// 500 when the webhook of the definition does not convert them.
pub(crate) fn in_version(
    api: &Api,
    resource: &ServedResource,
    mut versions: Vec<Arc<ObjectVersion>>,
) -> Result<Vec<Arc<ObjectVersion>>, ApiError> {
    let Some(custom) = resource.custom.as_ref().filter(|c| c.converter.is_some()) else {
        return Ok(versions);
    };
    let wanted = resource.api_version();
    let objects: Vec<(usize, Value)> = (0..)
        .zip(&versions)
        .map(|(i, version)| (i, version.object()))
        .filter(|(_, object)| object.text("apiVersion") != wanted)
        .map(|(i, object)| (i, Value::clone(&object)))
        .collect();
    let (places, objects): (Vec<usize>, Vec<Value>) = objects.into_iter().unzip();
    let converted = converted(api, custom, objects, &wanted)?;
    for (i, object) in places.into_iter().zip(converted) {
        if let Some(version) = versions.get_mut(i) {
            *version = ObjectVersion::unstored(object);
        }
    }
    Ok(versions)
}

/// A stored object as a write of `resource` reads it.
///
/// # Errors
/// As [`show`].
pub(super) fn read_for_write(
    api: &Api,
    resource: &ServedResource,
    current: &ObjectVersion,
) -> Result<StoredObject, ApiError> {
    match resource.custom {
        Some(_) => show(api, resource, &current.object()).map(Arc::new),
        None => Ok(current.object()),
    }
}

/// An object that a write of `resource` has computed, as it goes into the store.
///
/// # Errors
/// As [`show`].
pub(super) fn to_storage(
    api: &Api,
    resource: &ServedResource,
    mut object: Value,
) -> Result<Value, ApiError> {
    let Some(custom) = &resource.custom else {
        return Ok(object);
    };
    let wanted = &custom.stored_version;
    if custom.converter.is_some() {
        object = converted(api, custom, vec![object], wanted)?
            .pop()
            .unwrap_or_default();
    }
    object["apiVersion"] = wanted.as_str().into();
    Ok(object)
}

/// Objects in another version of their definition. Those that have it, and those of definitions without a webhook, stay
/// as they are.
fn converted(
    api: &Api,
    custom: &CustomType,
    objects: Vec<Value>,
    wanted: &str,
) -> Result<Vec<Value>, ApiError> {
    let is_other = |object: &Value| object.text("apiVersion") != wanted;
    match &custom.converter {
        Some(converter) if objects.iter().any(is_other) => converter
            .convert(api, objects, wanted)
            .map_err(ApiError::internal_plain),
        _ => Ok(objects),
    }
}
