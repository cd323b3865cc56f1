//! `…/scale`: the number of replicas, for all kinds that have one.

use super::api::Api;
use crate::registry::request::{Method, UpdateInputs, WriteOptions, WriteResult};
use berth_objects::access::gr;
use berth_objects::body::WriteBody;
use berth_objects::catalog::ServedResource;
use berth_objects::columns::TableColumn;
use berth_objects::columns::text::selector_text;
use berth_objects::custom::scale::ScalePaths;
use berth_objects::decode;
use berth_objects::field::{ErrorType, FieldError};
use berth_objects::schema::GroupVersionKind;
use berth_objects::status::{ApiError, StatusSubject};
use berth_objects::view::{FieldView, child_mut, meta};
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

/// The kind and the columns of a `Scale`, which is not stored.
pub(crate) fn resource() -> &'static ServedResource {
    static SCALE: LazyLock<ServedResource> = LazyLock::new(|| {
        let mut scale = ServedResource::new(gr("autoscaling", "scales"), "v1", "Scale");
        let columns = [
            "Name",
            "Desired integer .spec.replicas",
            "Available integer .status.replicas",
            "Age",
        ];
        let columns = columns.into_iter();
        let columns = columns.filter_map(|line| TableColumn::parse(line.split(' '), false));
        scale.columns = columns.collect();
        scale
    });
    &SCALE
}

/// The paths of the replicas, their number in the status and the selector of an object.
fn paths(resource: &ServedResource) -> (&str, &str, Option<&str>) {
    custom_paths(resource).map_or(("/spec/replicas", "/status/replicas", None), |scale| {
        let selector = scale.selector.as_ref().map(|path| path.pointer.as_str());
        (&scale.spec.pointer, &scale.status.pointer, selector)
    })
}

/// The number of replicas that represents an absent value in a `Scale` during a patch, as in kube-apiserver.
const NO_REPLICAS: i64 = i32::MIN as i64;

/// The paths of the subresource of a custom resource.
fn custom_paths(resource: &ServedResource) -> Option<&ScalePaths> {
    let custom = resource.custom.as_ref()?;
    custom.scale.as_ref()
}

/// Checks that an object has the fields that its `Scale` shows.
///
/// # Errors
/// 500 for a custom resource without a number of replicas, or with fields of other types.
pub(crate) fn check(resource: &ServedResource, object: &Value) -> Result<(), ApiError> {
    match custom_paths(resource) {
        Some(paths) if !has_replicas(paths, object)? => {
            let path = &paths.spec.stated;
            let message = format!("the spec replicas field {path:?} does not exist");
            Err(ApiError::internal(message))
        }
        _ => Ok(()),
    }
}

/// Returns whether a custom resource states its replicas.
///
/// # Errors
/// 500 for fields of other types.
fn has_replicas(paths: &ScalePaths, object: &Value) -> Result<bool, ApiError> {
    let replicas = paths.spec.number(object);
    let replicas = replicas.map_err(ApiError::internal_plain)?;
    let status = paths.status.number(object);
    status.map_err(ApiError::internal_plain)?;
    if let Some(selector) = &paths.selector {
        selector.text(object).map_err(ApiError::internal_plain)?;
    }
    Ok(replicas.is_some())
}

/// The `Scale` of a stored object that a patch changes.
///
/// # Errors
/// 500 for a custom resource with fields of other types.
pub(crate) fn to_patch(resource: &ServedResource, object: &Value) -> Result<Value, ApiError> {
    let mut scale = of(resource, object);
    if let Some(paths) = custom_paths(resource)
        && !has_replicas(paths, object)?
    {
        scale["spec"]["replicas"] = NO_REPLICAS.into();
    }
    Ok(scale)
}

/// The `Scale` of a stored object.
pub(crate) fn of(resource: &ServedResource, object: &Value) -> Value {
    let (spec_path, status_path, selector_path) = paths(resource);
    let mut metadata = Map::new();
    for field in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
    ] {
        if let Some(value) = object.pointer("/metadata").and_then(|m| m.get(field)) {
            metadata.insert(field.to_owned(), value.clone());
        }
    }
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64);
    let mut spec = Map::new();
    // Zero is left out, as upstream does.
    if let Some(replicas) = number(spec_path).filter(|r| *r != 0) {
        spec.insert("replicas".to_owned(), replicas.into());
    }
    let mut status = Map::new();
    let replicas = number(status_path).unwrap_or(0);
    status.insert("replicas".to_owned(), replicas.into());
    let selector = match (selector_path, &resource.custom) {
        (Some(path), _) => object
            .pointer(path)
            .and_then(Value::as_str)
            .unwrap_or("")
            .to_owned(),
        (None, Some(_)) => String::new(),
        (None, None) => selector_text(object.pointer("/spec/selector")),
    };
    if !selector.is_empty() {
        status.insert("selector".to_owned(), selector.into());
    }
    json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": spec,
        "status": status,
    })
}

/// The object with the replicas of a `Scale`.
///
/// # Errors
/// 422 for fewer than none; 400 for a custom resource that states none. The negative replicas of a custom resource are
/// found when it is validated.
pub(crate) fn put(
    resource: &ServedResource,
    object: &Value,
    scale: &Value,
) -> Result<Value, ApiError> {
    let replicas = scale.part("spec").int("replicas");
    if let Some(paths) = custom_paths(resource) {
        has_replicas(paths, object)?;
        if replicas == NO_REPLICAS {
            let path = &paths.spec.stated;
            let message = format!("the spec replicas field {path:?} cannot be empty");
            return Err(ApiError::bad_request(message));
        }
    } else if replicas < 0 {
        let error = FieldError {
            kind: ErrorType::Invalid,
            field: "spec.replicas".to_owned(),
            value: Some(replicas.to_string()),
            detail: "must be greater than or equal to 0".to_owned(),
        };
        let subject = StatusSubject {
            group: "autoscaling",
            resource: "Scale",
            name: meta(object, "name"),
        };
        return Err(ApiError::invalid(subject, &[error]));
    }
    // A `Scale` of a deleted object must not scale a new object with the same name.
    let given = meta(scale, "uid");
    let live = meta(object, "uid");
    if !given.is_empty() && given != live {
        let name = meta(object, "name");
        let key = resource.key(meta(object, "namespace"), name);
        return Err(crate::registry::request::uid_conflict(
            resource, &key, name, given, live,
        ));
    }
    let mut new = object.clone();
    set_replicas(resource, &mut new, replicas.into());
    // The version of the scale is the precondition of the update. Without one, any version is replaced: the object that
    // was read keeps its own.
    let version = meta(scale, "resourceVersion");
    if !version.is_empty() {
        let metadata = child_mut(&mut new, "metadata");
        metadata.insert("resourceVersion".to_owned(), version.into());
    }
    Ok(new)
}

/// Sets the replicas of an object; missing parent objects are created.
pub(super) fn set_replicas(resource: &ServedResource, object: &mut Value, value: Value) {
    let mut slot = object;
    for name in paths(resource).0.split('/').skip(1) {
        if !slot.is_object() {
            *slot = json!({});
        }
        slot = &mut slot[name];
    }
    *slot = value;
}

/// PUT `…/scale`.
///
/// # Errors
/// As an update.
pub(crate) fn update_scale(
    api: &Api,
    resource: &ServedResource,
    namespace: &str,
    name: &str,
    body: WriteBody<'_>,
    options: &WriteOptions,
) -> Result<WriteResult, ApiError> {
    let kind = GroupVersionKind::new("autoscaling", "v1", "Scale");
    let (scale, warnings) = decode::of_kind(kind, body, options.validation)?;
    let given = meta(&scale, "name");
    if !given.is_empty() && given != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    let change = UpdateInputs {
        resource,
        namespace,
        name,
        sub: "scale",
        options,
        by: Method::Put,
        is_decoded: false,
    };
    // Each attempt sets the replicas in the stored object, so other changes are kept.
    let written = api.update(&change, |stored| put(resource, stored, &scale))?;
    Ok(WriteResult {
        warnings,
        ..written
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_written_in_order_of_their_keys() {
        let selector = json!({
            "matchLabels": {"b": "1", "a": "2"},
            "matchExpressions": [
                {"key": "c", "operator": "In", "values": ["y", "x"]},
                {"key": "aa", "operator": "DoesNotExist"},
            ],
        });
        assert_eq!(selector_text(Some(&selector)), "a=2,!aa,b=1,c in (x,y)");
        assert_eq!(selector_text(Some(&json!({"app": "x"}))), "app=x");
        assert_eq!(selector_text(None), "");
    }
}
