//! Validation of environment variables and of references to fields and keys.

use crate::validation::errors::{ErrorPath, Errors};
use crate::validation::owner::Owner;
use crate::validation::{amounts, names};
use crate::view::FieldView;
use serde_json::Value;

/// Fields of the pod that an environment variable may show.
const ENV_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// Fields of the pod that a file may show.
pub(crate) const VOLUME_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];

/// All fields of the pod that can be named anywhere.
const KNOWN_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

const RESOURCE_FIELDS: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

const BYTE_DIVISORS: &[&str] = &[
    "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei",
];

pub(crate) fn env_field(e: &mut Errors, _: &Owner, reference: &Value, path: &ErrorPath) {
    if !reference.is_null() {
        validate_field_ref(e, reference, ENV_FIELDS, path);
    }
}

pub(crate) fn env_resource(e: &mut Errors, _: &Owner, reference: &Value, path: &ErrorPath) {
    if !reference.is_null() {
        validate_resource_ref(e, reference, false, path);
    }
}

pub(crate) fn value_from(errors: &mut Errors, owner: &Owner, from: &Value, path: &ErrorPath) {
    if from.is_null() {
        return;
    }
    let sources = from.as_object().map_or(0, serde_json::Map::len);
    let detail = if sources == 0 {
        "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
    } else if !owner.value.text("value").is_empty() {
        "may not be specified when `value` is not empty"
    } else if sources > 1 {
        "may not have more than one field specified at a time"
    } else {
        return;
    };
    errors.invalid(path, "", detail);
}

/// Upstream reports the list.
pub(crate) fn env_from(errors: &mut Errors, _: &Owner, source: &Value, path: &ErrorPath) {
    let given = ["configMapRef", "secretRef"]
        .iter()
        .filter(|f| source.field(f).is_some());
    match given.count() {
        0 => errors.invalid(
            &path.parent(),
            "",
            "must specify one of: `configMapRef` or `secretRef`",
        ),
        1 => {}
        _ => errors.invalid(
            &path.parent(),
            "",
            "may not have more than one field specified at a time",
        ),
    }
}

/// Errors of a reference to a field of the pod; `allowed` are the permitted fields.
pub(crate) fn validate_field_ref(
    errors: &mut Errors,
    reference: &Value,
    allowed: &[&str],
    path: &ErrorPath,
) {
    let api_version = reference.text("apiVersion");
    if api_version.is_empty() {
        errors.required(&path.child("apiVersion"), "");
        return;
    }
    let field = reference.text("fieldPath");
    if field.is_empty() {
        errors.required(&path.child("fieldPath"), "");
        return;
    }
    let subscripted = field
        .strip_suffix("']")
        .and_then(|f| f.split_once("['"))
        .filter(|(name, _)| !name.is_empty());
    let problem = if api_version != "v1" {
        Some(format!("unsupported pod version: {api_version}"))
    } else {
        match subscripted {
            Some(("metadata.annotations" | "metadata.labels", _)) => None,
            Some((name, _)) => Some(format!("field label does not support subscript: {name}")),
            None if KNOWN_FIELDS.contains(&field) || field == "spec.host" => None,
            None => Some(format!("field label not supported: {field}")),
        }
    };
    if let Some(problem) = problem {
        errors.invalid(
            &path.child("fieldPath"),
            field,
            format!("error converting fieldPath: {problem}"),
        );
        return;
    }
    match subscripted {
        Some(("metadata.annotations", key)) => {
            let key = key.to_lowercase();
            errors.each_invalid(path, &key, names::qualified_name(&key));
        }
        Some((_, key)) => errors.each_invalid(path, key, names::qualified_name(key)),
        None => {
            let field = if field == "spec.host" {
                "spec.nodeName"
            } else {
                field
            };
            if !allowed.contains(&field) {
                errors.not_supported(&path.child("fieldPath"), field, allowed);
            }
        }
    }
}

/// Errors of a reference to a resource of a container; in a `volume` the container has to be named.
pub(crate) fn validate_resource_ref(
    errors: &mut Errors,
    reference: &Value,
    volume: bool,
    path: &ErrorPath,
) {
    let resource = reference.text("resource");
    let is_huge_pages =
        resource.starts_with("requests.hugepages-") || resource.starts_with("limits.hugepages-");
    if volume && reference.text("containerName").is_empty() {
        errors.required(&path.child("containerName"), "");
    } else if resource.is_empty() {
        errors.required(&path.child("resource"), "");
    } else if !RESOURCE_FIELDS.contains(&resource) && !is_huge_pages {
        errors.not_supported(&path.child("resource"), resource, RESOURCE_FIELDS);
    }
    let Some(divisor) = reference.field("divisor").and_then(amounts::parse) else {
        return;
    };
    // An absent divisor is zero, and means 1.
    if divisor.is_zero() {
        return;
    }
    let (allowed, kind): (&[&str], &str) = match resource {
        "limits.cpu" | "requests.cpu" => (&["1m", "1"], "cpu"),
        "limits.memory" | "requests.memory" => (BYTE_DIVISORS, "memory"),
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => {
            (BYTE_DIVISORS, "local ephemeral storage")
        }
        _ if is_huge_pages => (BYTE_DIVISORS, "hugepages"),
        _ => return,
    };
    if !allowed.contains(&divisor.to_string().as_str()) {
        let list = if kind == "cpu" {
            "1m and 1".to_owned()
        } else {
            BYTE_DIVISORS.join(", ")
        };
        errors.invalid(
            &path.child("divisor"),
            resource,
            format!("only divisor's values {list} are supported with the {kind} resource"),
        );
    }
}
