//! Stored objects in the version of a request, which the webhook of a definition may have to convert.

use super::api::Api;
use super::endpoints::endpoints;
use crate::storage::ObjectVersion;
use crate::webhook_client::Pending;
use berth_objects::access::StoredObject;
use berth_objects::catalog::ServedResource;
use berth_objects::custom::CustomType;
use berth_objects::custom::conversion::ConversionWebhook;
use berth_objects::status::ApiError;
use berth_objects::view::FieldView;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// A webhook responds within this time.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum number of concurrent calls for one list.
const CALLS_MAX: usize = 8;

/// A call that runs, with the objects that it converts.
struct ConversionCall {
    uid: String,
    objects: Vec<Value>,
    pending: Result<Pending, String>,
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
    Ok(resource.shown(converted.as_ref().unwrap_or(object)))
}

/// Stored objects in the version of a custom resource. Objects of other resources are not converted.
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

/// The stored form of an object that a write of `resource` has computed.
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
    custom.prune_for_storage(&mut object);
    Ok(object)
}

/// Objects in another version of their definition. Objects that have the version, and objects of definitions without a
/// webhook, are not changed.
fn converted(
    api: &Api,
    custom: &CustomType,
    objects: Vec<Value>,
    wanted: &str,
) -> Result<Vec<Value>, ApiError> {
    let is_other = |object: &Value| object.text("apiVersion") != wanted;
    match &custom.converter {
        Some(webhook) if objects.iter().any(is_other) => {
            convert(api, webhook, objects, wanted).map_err(ApiError::internal_plain)
        }
        _ => Ok(objects),
    }
}

/// Objects in another version, converted by calls of the webhook. None of them has the requested version yet.
///
/// # Errors
/// Why they cannot be converted.
fn convert(
    api: &Api,
    webhook: &Arc<ConversionWebhook>,
    objects: Vec<Value>,
    wanted: &str,
) -> Result<Vec<Value>, String> {
    let mut converted = Vec::with_capacity(objects.len());
    let mut batches = webhook.batches(objects, wanted)?.into_iter().peekable();
    let target = api.served.targets.of(webhook);
    let find = |namespace: &str, name: &str, port| endpoints(api, namespace, name, port);
    let call = |objects: Vec<Value>| {
        let uid = api.new_uid();
        let review = webhook.review(&uid, &objects, wanted);
        tracing::debug!(
            objects = objects.len(),
            wanted,
            "calling a conversion webhook"
        );
        let pending = api.webhook_calls.post(&find, &target, TIMEOUT, &review);
        ConversionCall {
            uid,
            objects,
            pending,
        }
    };
    while batches.peek().is_some() {
        let calls: Vec<ConversionCall> = batches.by_ref().take(CALLS_MAX).map(call).collect();
        for call in calls {
            let response = call.pending.and_then(Pending::wait);
            converted.extend(webhook.finish(&call.uid, &call.objects, response, wanted)?);
        }
    }
    Ok(converted)
}
