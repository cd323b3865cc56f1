//! Validation of containers: the regular ones, init containers and ephemeral ones.

use super::spec::SpecContext;
use super::{env, handlers, mounts, resources, security};
use crate::validation::errors::{Errors, Path};
use crate::validation::names;
use crate::validation::view::View;
use serde_json::Value;
use std::collections::HashSet;

const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
const PULL_POLICIES: &[&str] = &["Always", "IfNotPresent", "Never"];
const RESTART_POLICIES: &[&str] = &["Always", "Never", "OnFailure"];

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

/// Errors of `spec.containers`.
pub(crate) fn validate_containers(errors: &mut Errors, cx: &SpecContext<'_>, path: &Path) {
    let containers = cx.spec.items("containers");
    if containers.is_empty() {
        errors.required(path, "");
        return;
    }
    let mut names = HashSet::new();
    for (i, container) in containers.iter().enumerate() {
        let path = path.index(i);
        validate_common(errors, cx, container, &path);
        let name = container.text("name");
        if !names.insert(name) {
            errors.duplicate(&path.child("name"), name);
        }
        handlers::validate_all(errors, container, cx.grace_period, &path);
        validate_restart_policy(errors, container, &path);
    }
    validate_host_ports(errors, containers.iter().enumerate(), path);
}

/// Errors of `spec.initContainers`.
pub(crate) fn validate_init_containers(errors: &mut Errors, cx: &SpecContext<'_>, path: &Path) {
    let mut names: HashSet<&str> = cx
        .spec
        .items("containers")
        .iter()
        .map(|c| c.text("name"))
        .collect();
    for (i, container) in cx.spec.items("initContainers").iter().enumerate() {
        let list = path;
        let path = path.index(i);
        validate_common(errors, cx, container, &path);
        validate_restart_policy(errors, container, &path);
        let name = container.text("name");
        if names.contains(name) {
            errors.duplicate(&path.child("name"), name);
        } else if !name.is_empty() {
            names.insert(name);
        }
        // Upstream checks each init container alone and counts it as the first.
        validate_host_ports(errors, std::iter::once((0, container)), list);
        if super::requests::is_sidecar(container) {
            handlers::validate_all(errors, container, cx.grace_period, &path);
        } else {
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
        }
    }
}

/// Errors of `spec.ephemeralContainers`.
pub(crate) fn validate_ephemeral_containers(
    errors: &mut Errors,
    cx: &SpecContext<'_>,
    path: &Path,
) {
    let others: HashSet<&str> = ["containers", "initContainers"]
        .iter()
        .flat_map(|list| cx.spec.items(list))
        .map(|c| c.text("name"))
        .collect();
    let mut names = others.clone();
    for (i, container) in cx.spec.items("ephemeralContainers").iter().enumerate() {
        let path = path.index(i);
        validate_common(errors, cx, container, &path);
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
                Some(Value::Object(map)) => *field != "resources" || !map.is_empty(),
                Some(_) => true,
                None => false,
            };
            if set {
                errors.forbidden(
                    &path.child(field),
                    "cannot be set for an Ephemeral Container",
                );
            }
        }
        for (j, mount) in container.items("volumeMounts").iter().enumerate() {
            for field in ["subPath", "subPathExpr"] {
                if !mount.text(field).is_empty() {
                    errors.forbidden(
                        &path.child("volumeMounts").index(j).child(field),
                        "cannot be set for an Ephemeral Container",
                    );
                }
            }
        }
    }
}

/// Errors that only pods have, not templates: spaces around the image.
pub(crate) fn validate_image_space(errors: &mut Errors, container: &Value, path: &Path) {
    let image = container.text("image");
    if image.trim() != image {
        errors.invalid(
            &path.child("image"),
            image,
            "must not have leading or trailing whitespace",
        );
    }
}

fn validate_common(errors: &mut Errors, cx: &SpecContext<'_>, container: &Value, path: &Path) {
    let name = container.text("name");
    if name.is_empty() {
        errors.required(&path.child("name"), "");
    } else {
        errors.each_invalid(&path.child("name"), name, names::dns_label(name));
    }
    if container.text("image").is_empty() {
        errors.required(&path.child("image"), "");
    }
    let policy_path = path.child("terminationMessagePolicy");
    match container.text("terminationMessagePolicy") {
        "File" | "FallbackToLogsOnError" => {}
        "" => errors.required(&policy_path, ""),
        other => errors.not_supported(&policy_path, other, &["File", "FallbackToLogsOnError"]),
    }
    validate_ports(errors, container.items("ports"), &path.child("ports"));
    env::validate_env(errors, container.items("env"), &path.child("env"));
    env::validate_env_from(errors, container.items("envFrom"), &path.child("envFrom"));
    mounts::validate_mounts(errors, cx, container, &path.child("volumeMounts"));
    mounts::validate_devices(errors, cx, container, &path.child("volumeDevices"));
    let pull_path = path.child("imagePullPolicy");
    match container.text("imagePullPolicy") {
        "" => errors.required(&pull_path, ""),
        policy if PULL_POLICIES.contains(&policy) => {}
        other => errors.not_supported(&pull_path, other, PULL_POLICIES),
    }
    resources::validate_container(
        errors,
        container.field("resources"),
        &cx.claim_names,
        &path.child("resources"),
    );
    validate_resize_policy(errors, cx, container, &path.child("resizePolicy"));
    if let Some(context) = container.field("securityContext") {
        security::validate_container(
            errors,
            context,
            cx.host_users,
            &path.child("securityContext"),
        );
    }
}

fn validate_ports(errors: &mut Errors, ports: &[Value], path: &Path) {
    let mut seen = HashSet::new();
    for (i, port) in ports.iter().enumerate() {
        let path = path.index(i);
        let name = port.text("name");
        if !name.is_empty() {
            let messages = names::port_name(name);
            if !messages.is_empty() {
                errors.each_invalid(&path.child("name"), name, messages);
            } else if !seen.insert(name) {
                errors.duplicate(&path.child("name"), name);
            }
        }
        let container_port = port.int("containerPort");
        if container_port == 0 {
            errors.required(&path.child("containerPort"), "");
        } else {
            for message in names::port_number(container_port) {
                errors.invalid(&path.child("containerPort"), container_port, message);
            }
        }
        let host_port = port.int("hostPort");
        if host_port != 0 {
            for message in names::port_number(host_port) {
                errors.invalid(&path.child("hostPort"), host_port, message);
            }
        }
        match port.text("protocol") {
            "" => errors.required(&path.child("protocol"), ""),
            known if PROTOCOLS.contains(&known) => {}
            other => errors.not_supported(&path.child("protocol"), other, PROTOCOLS),
        }
    }
}

/// Each combination of protocol, address and host port may stand only once in these containers.
fn validate_host_ports<'a>(
    errors: &mut Errors,
    containers: impl Iterator<Item = (usize, &'a Value)>,
    path: &Path,
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
                let path = path.index(i).child("ports").index(j).child("hostPort");
                errors.duplicate(&path, &key);
            } else {
                seen.insert(key);
            }
        }
    }
}

fn validate_resize_policy(
    errors: &mut Errors,
    cx: &SpecContext<'_>,
    container: &Value,
    path: &Path,
) {
    let mut seen = HashSet::new();
    for (i, policy) in container.items("resizePolicy").iter().enumerate() {
        let resource = policy.text("resourceName");
        if !seen.insert(resource) {
            errors.duplicate(&path.index(i), resource);
        }
        match resource {
            "cpu" | "memory" => {}
            "" => errors.required(path, ""),
            other => errors.not_supported(path, other, &["cpu", "memory"]),
        }
        let restart = policy.text("restartPolicy");
        match restart {
            "NotRequired" | "RestartContainer" => {}
            "" => errors.required(path, ""),
            other => errors.not_supported(path, other, &["NotRequired", "RestartContainer"]),
        }
        if cx.spec.text("restartPolicy") == "Never" && restart != "NotRequired" {
            errors.invalid(
                path,
                restart,
                "must be 'NotRequired' when `restartPolicy` is 'Never'",
            );
        }
    }
}

/// Errors of a container's own restart policy and its rules (KEP-5307).
fn validate_restart_policy(errors: &mut Errors, container: &Value, path: &Path) {
    let policy_path = path.child("restartPolicy");
    let rules = container.items("restartPolicyRules");
    match container.maybe_text("restartPolicy") {
        None if !rules.is_empty() => errors.required(
            &policy_path,
            "must specify restartPolicy when restart rules are used",
        ),
        None => {}
        Some(policy) if RESTART_POLICIES.contains(&policy) => {}
        Some(other) => errors.not_supported(&policy_path, other, RESTART_POLICIES),
    }
    let path = path.child("restartPolicyRules");
    errors.check_at_most(&path, rules.len(), 20);
    for (i, rule) in rules.iter().enumerate() {
        let path = path.index(i);
        match rule.text("action") {
            "Restart" => {}
            "" => errors.required(&path.child("action"), "must be specified"),
            other => errors.not_supported(&path.child("action"), other, &["Restart"]),
        }
        let Some(codes) = rule.field("exitCodes") else {
            errors.required(&path.child("exitCodes"), "must be specified");
            continue;
        };
        let path = path.child("exitCodes");
        match codes.text("operator") {
            "In" | "NotIn" => {}
            "" => errors.required(&path.child("operator"), "must be specified"),
            other => errors.not_supported(&path.child("operator"), other, &["In", "NotIn"]),
        }
        let values = codes.items("values").len();
        errors.check_at_most(&path.child("values"), values, 255);
    }
}
