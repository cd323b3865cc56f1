//! Annotations that mean something to the server: mirror pods, deletion cost, seccomp and AppArmor profiles.

use super::defaults::CONTAINER_LISTS;
use super::volumes::validate_descending_path;
use crate::validation::errors::{ErrorPath, Errors, quote};
use crate::view::FieldView;
use serde_json::Value;

/// Marks the mirror of a static pod.
const MIRROR: &str = "kubernetes.io/config.mirror";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Errors of a pod's or template's annotations.
pub(crate) fn validate(errors: &mut Errors, metadata: &Value, spec: &Value, path: &ErrorPath) {
    let annotations = metadata.labels("annotations");
    let get = |name: &str| {
        annotations
            .iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| *value)
    };
    if let Some(mirror) = get(MIRROR)
        && spec.text("nodeName").is_empty()
    {
        errors.invalid(
            &path.key(MIRROR),
            mirror,
            "must set spec.nodeName if mirror pod annotation is set",
        );
    }
    if let Some(cost) = get(DELETION_COST) {
        let padded = cost.starts_with('+') || (cost.len() > 1 && cost.starts_with('0'));
        if padded || cost.parse::<i32>().is_err() {
            errors.invalid(&path.key(DELETION_COST), cost, "must be a 32bit integer");
        }
    }
    if let Some(profile) = get(SECCOMP_POD) {
        validate_seccomp(errors, profile, &path.child(SECCOMP_POD));
    }
    for (key, value) in &annotations {
        if key.starts_with(SECCOMP_CONTAINER) {
            validate_seccomp(errors, value, &path.child(key));
        }
    }
    for (key, value) in &annotations {
        let Some(container) = key.strip_prefix(APP_ARMOR) else {
            continue;
        };
        let exists = CONTAINER_LISTS
            .iter()
            .flat_map(|list| spec.items(list))
            .any(|c| c.text("name") == container);
        if !exists {
            errors.invalid(&path.key(key), container, "container not found");
        }
        let is_known = matches!(*value, "" | "runtime/default" | "unconfined")
            || value.starts_with("localhost/");
        if !is_known {
            errors.invalid(
                &path.key(key),
                *value,
                format!("invalid AppArmor profile name: {}", quote(value)),
            );
        }
    }
}

fn validate_seccomp(errors: &mut Errors, profile: &str, path: &ErrorPath) {
    match profile {
        "runtime/default" | "docker/default" | "unconfined" => {}
        _ => match profile.strip_prefix("localhost/") {
            Some(local) => validate_descending_path(errors, local, path),
            None => errors.invalid(path, profile, "must be a valid seccomp profile"),
        },
    }
}

/// Errors of a change of annotations that may not change.
pub(crate) fn validate_update(
    errors: &mut Errors,
    new: &Value,
    old: &Value,
    spec: &Value,
    path: &ErrorPath,
) {
    let empty = Value::Null;
    let before = old.field("annotations").unwrap_or(&empty);
    let after = new.field("annotations").unwrap_or(&empty);
    for (key, value) in old.labels("annotations") {
        if after.maybe_text(key) == Some(value) {
            continue;
        }
        if key.starts_with(APP_ARMOR) {
            errors.forbidden(
                &path.key(key),
                "may not remove or update AppArmor annotations",
            );
        }
        if key == MIRROR {
            errors.forbidden(
                &path.key(key),
                "may not remove or update mirror pod annotation",
            );
        }
    }
    for (key, _) in new.labels("annotations") {
        if before.field(key).is_some() {
            continue;
        }
        if key.starts_with(APP_ARMOR) {
            errors.forbidden(&path.key(key), "may not add AppArmor annotations");
        }
        if key == MIRROR {
            errors.forbidden(&path.key(key), "may not add mirror pod annotation");
        }
    }
    // Annotations that did not change may still contradict the new spec.
    validate(errors, new, spec, path);
}

/// A profile that is stated in an annotation and in a field must be the same.
pub(crate) fn validate_profiles_match(
    errors: &mut Errors,
    metadata: &Value,
    spec: &Value,
    path: &ErrorPath,
) {
    let empty = Value::Null;
    let annotations = metadata.field("annotations").unwrap_or(&empty);
    let profile_of = |holder: &Value, field: &str| {
        holder
            .field("securityContext")
            .and_then(|c| c.field(field))
            .cloned()
    };
    let containers = || {
        CONTAINER_LISTS.iter().flat_map(|list| {
            spec.items(list)
                .iter()
                .enumerate()
                .map(move |(i, container)| (*list, i, container))
        })
    };
    if let (Some(profile), Some(annotation)) = (
        profile_of(spec, "seccompProfile"),
        annotations.maybe_text(SECCOMP_POD),
    ) {
        let at = path.child("securityContext").child("seccompProfile");
        require_match(errors, "seccomp", &profile, annotation, &at);
    }
    for (list, i, container) in containers() {
        let key = format!("{SECCOMP_CONTAINER}{}", container.text("name"));
        if let (Some(profile), Some(annotation)) = (
            profile_of(container, "seccompProfile"),
            annotations.maybe_text(&key),
        ) {
            let at = path.child(list).index(i).child("securityContext");
            require_match(
                errors,
                "seccomp",
                &profile,
                annotation,
                &at.child("seccompProfile"),
            );
        }
    }
    if spec
        .field("os")
        .is_some_and(|os| os.text("name") == "windows")
    {
        return;
    }
    let pod_profile = profile_of(spec, "appArmorProfile");
    for (list, i, container) in containers() {
        let key = format!("{APP_ARMOR}{}", container.text("name"));
        let profile = profile_of(container, "appArmorProfile").or_else(|| pod_profile.clone());
        if let (Some(profile), Some(annotation)) = (profile, annotations.maybe_text(&key)) {
            let at = path.child(list).index(i).child("securityContext");
            require_match(
                errors,
                "apparmor",
                &profile,
                annotation,
                &at.child("appArmorProfile"),
            );
        }
    }
}

fn require_match(
    errors: &mut Errors,
    kind: &str,
    profile: &Value,
    annotation: &str,
    path: &ErrorPath,
) {
    let local = annotation.strip_prefix("localhost/");
    let type_matches = match profile.text("type") {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => {
            annotation == "runtime/default" || (kind == "seccomp" && annotation == "docker/default")
        }
        "Localhost" => local.is_some(),
        _ => true,
    };
    if !type_matches {
        errors.forbidden(
            &path.child("type"),
            format!("{kind} type in annotation and field must match"),
        );
    } else if profile.text("type") == "Localhost" && local != profile.maybe_text("localhostProfile")
    {
        errors.forbidden(
            &path.child("localhostProfile"),
            format!("{kind} profile in annotation and field must match"),
        );
    }
}
