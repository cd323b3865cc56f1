//! Validation of the lists of containers: regular, init and ephemeral containers.

use super::{handlers, requests, resources};
use crate::validation::engine::{run_alone, run_type};
use crate::validation::errors::{ErrorPath, Errors};
use crate::validation::names;
use crate::validation::owner::{Code, Owner};
use crate::view::FieldView;
use serde_json::Value;
use std::collections::HashSet;

const CONTAINER: &str = "core.v1.Container";
const RESTART_POLICIES: &[&str] = &["Always", "Never", "OnFailure"];
const RESTART_RULES_MAX: usize = 20;

/// Fields that an ephemeral container may not set.
const NOT_FOR_EPHEMERAL: &[&str] = &[
    "ports",
    "resources",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
];

pub(crate) fn container_resources(e: &mut Errors, owner: &Owner, value: &Value, path: &ErrorPath) {
    resources::validate_container(e, owner, value, path);
}

pub(crate) fn port_name_once(e: &mut Errors, owner: &Owner, name: &Value, path: &ErrorPath) {
    let name = name.as_str().unwrap_or("");
    let valid = !name.is_empty() && names::port_name(name).is_empty();
    if valid && owner.repeats("name") {
        e.duplicate(path, name);
    }
}

pub(crate) fn regular(errors: &mut Errors, owner: &Owner, list: &Value, path: &ErrorPath) {
    let containers = list.as_array().map_or(&[][..], Vec::as_slice);
    if containers.is_empty() {
        errors.required(path, "");
        return;
    }
    let mut names = HashSet::new();
    for (i, container) in containers.iter().enumerate() {
        let path = path.index(i);
        run_type(errors, CONTAINER, container, owner, &path);
        let name = container.text("name");
        if !names.insert(name) {
            errors.duplicate(&path.child("name"), name);
        }
        handlers::validate_all(errors, owner, container, &path);
        restart_policy(errors, owner.code, container, &path);
    }
    host_ports(errors, containers.iter().enumerate(), path);
}

pub(crate) fn init(errors: &mut Errors, owner: &Owner, list: &Value, path: &ErrorPath) {
    let containers = owner.value.items("containers").iter();
    let mut names: HashSet<&str> = containers.map(|c| c.text("name")).collect();
    for (i, container) in list.as_array().into_iter().flatten().enumerate() {
        let list = path;
        let path = path.index(i);
        run_type(errors, CONTAINER, container, owner, &path);
        restart_policy(errors, owner.code, container, &path);
        let name = container.text("name");
        if names.contains(name) {
            errors.duplicate(&path.child("name"), name);
        } else if !name.is_empty() {
            names.insert(name);
        }
        // Upstream checks each init container alone and counts it as the first.
        host_ports(errors, std::iter::once((0, container)), list);
        if requests::is_sidecar(container) {
            handlers::validate_all(errors, owner, container, &path);
            continue;
        }
        for field in [
            "lifecycle",
            "livenessProbe",
            "readinessProbe",
            "startupProbe",
        ] {
            if container.field(field).is_some() {
                errors.forbidden(
                    &path.child(field),
                    "may not be set for init containers without restartPolicy=Always",
                );
            }
        }
        for (j, policy) in container.items("resizePolicy").iter().enumerate() {
            let restart = policy.text("restartPolicy");
            if restart == "RestartContainer" {
                let at = path.child("resizePolicy").index(j).child("restartPolicy");
                let detail = "must not be set to 'RestartContainer' for non-sidecar initContainers";
                errors.invalid(&at, restart, detail);
            }
        }
    }
}

pub(crate) fn ephemeral(errors: &mut Errors, owner: &Owner, list: &Value, path: &ErrorPath) {
    const DETAIL: &str = "cannot be set for an Ephemeral Container";
    let others: HashSet<&str> = ["containers", "initContainers"]
        .iter()
        .flat_map(|list| owner.value.items(list))
        .map(|c| c.text("name"))
        .collect();
    let mut names = others.clone();
    for (i, container) in list.as_array().into_iter().flatten().enumerate() {
        let path = path.index(i);
        run_type(
            errors,
            "core.v1.EphemeralContainer",
            container,
            owner,
            &path,
            // The target must be a container that exists already, not another ephemeral one.
        );
        validate_image_space(errors, container, &path);
        let name = container.text("name");
        if !names.insert(name) {
            errors.duplicate(&path.child("name"), name);
        }
        let target = container.text("targetContainerName");
        if !target.is_empty() && !others.contains(target) {
            errors.not_found(&path.child("targetContainerName"), target, "");
        }
        for field in NOT_FOR_EPHEMERAL {
            let set = match container.field(field) {
                // An empty `resources` is the default that the server sets.
                Some(Value::Object(map)) => *field != "resources" || !map.is_empty(),
                Some(_) => true,
                None => false,
            };
            if set {
                errors.forbidden(&path.child(field), DETAIL);
            }
        }
        for (j, mount) in container.items("volumeMounts").iter().enumerate() {
            for field in ["subPath", "subPathExpr"] {
                if !mount.text(field).is_empty() {
                    errors.forbidden(&path.child("volumeMounts").index(j).child(field), DETAIL);
                }
            }
        }
    }
}

/// Errors that only pods have, not templates: spaces around the image.
pub(super) fn validate_image_space(errors: &mut Errors, container: &Value, path: &ErrorPath) {
    let image = container.text("image");
    if image.trim() != image {
        errors.invalid(
            &path.child("image"),
            image,
            "must not have leading or trailing whitespace",
        );
    }
}

/// Each combination of protocol, address and host port is unique in these containers.
fn host_ports<'a>(
    errors: &mut Errors,
    containers: impl Iterator<Item = (usize, &'a Value)>,
    path: &ErrorPath,
) {
    let mut seen = HashSet::new();
    for (i, container) in containers {
        for (j, port) in container.items("ports").iter().enumerate() {
            let host_port = port.int("hostPort");
            if host_port == 0 {
                continue;
            }
            let key = format!(
                "{}/{}/{host_port}",
                port.text("protocol"),
                port.text("hostIP")
            );
            if seen.contains(&key) {
                let at = path.index(i).child("ports").index(j);
                errors.duplicate(&at.child("hostPort"), &key);
            } else {
                seen.insert(key);
            }
        }
    }
}

pub(crate) fn resize_policy(errors: &mut Errors, owner: &Owner, list: &Value, path: &ErrorPath) {
    let spec = owner.enclosing("core.v1.PodSpec").unwrap_or(&Value::Null);
    let mut seen = HashSet::new();
    for (i, policy) in list.as_array().into_iter().flatten().enumerate() {
        let resource = policy.text("resourceName");
        if !seen.insert(resource) {
            errors.duplicate(&path.index(i), resource);
        }
        let restart = policy.text("restartPolicy");
        for (value, known) in [
            (resource, ["cpu", "memory"]),
            (restart, ["NotRequired", "RestartContainer"]),
        ] {
            if value.is_empty() {
                errors.required(path, "");
            } else if !known.contains(&value) {
                errors.not_supported(path, value, &known);
            }
        }
        if spec.text("restartPolicy") == "Never" && restart != "NotRequired" {
            errors.invalid(
                path,
                restart,
                "must be 'NotRequired' when pod `restartPolicy` is 'Never'",
            );
        }
    }
}

/// Errors of a container's own restart policy and its rules (KEP-5307).
fn restart_policy(errors: &mut Errors, code: &Code, container: &Value, path: &ErrorPath) {
    let policy_path = path.child("restartPolicy");
    let rules = container.items("restartPolicyRules");
    match container.maybe_text("restartPolicy") {
        None if !rules.is_empty() => errors.required(
            &policy_path,
            "must specify restartPolicy when restart rules are used",
        ),
        Some(other) if !RESTART_POLICIES.contains(&other) => {
            errors.not_supported(&policy_path, other, RESTART_POLICIES);
        }
        _ => {}
    }
    let path = path.child("restartPolicyRules");
    errors.check_at_most(&path, rules.len(), RESTART_RULES_MAX);
    for (i, rule) in rules.iter().enumerate() {
        run_alone(
            errors,
            code,
            "core.v1.ContainerRestartRule",
            rule,
            &path.index(i),
        );
    }
}
