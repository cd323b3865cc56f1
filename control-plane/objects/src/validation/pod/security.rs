//! Validation of security contexts of pods and containers.

use super::defaults::CONTAINER_LISTS;
use super::volumes::validate_descending_path;
use crate::enumerations::values;
use crate::validation::errors::{ErrorPath, Errors, Shown, json_text, struct_text};
use crate::validation::owner::Owner;
use crate::view::FieldView;
use serde_json::Value;
use std::collections::HashSet;

/// Longest path of an AppArmor profile on a node, in bytes.
const PROFILE_BYTES_MAX: usize = 4095;
const PROFILE_TYPES: &[&str] = &values!(core.v1.AppArmorProfile.type);
const SYSCTL_RULE: &str = "must have at most 253 characters and match regex \
^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
const NOT_ON_WINDOWS: &str = "cannot be set for a windows pod";

pub(crate) fn proc_mount(e: &mut Errors, owner: &Owner, mount: &Value, path: &ErrorPath) {
    let spec = owner.enclosing("core.v1.PodSpec").unwrap_or(&Value::Null);
    if mount == "Unmasked" && spec.maybe_flag("hostUsers").unwrap_or(true) {
        e.invalid(path, mount, "`hostUsers` must be false to use `Unmasked`");
    }
}

pub(crate) fn share_process_namespace(e: &mut Errors, owner: &Owner, _: &Value, path: &ErrorPath) {
    let spec = owner.enclosing("core.v1.PodSpec").unwrap_or(&Value::Null);
    if spec.flag("shareProcessNamespace") && spec.flag("hostPID") {
        e.invalid(
            &path.child("shareProcessNamespace"),
            true,
            "ShareProcessNamespace and HostPID cannot both be enabled",
        );
    }
}

pub(crate) fn privilege_escalation(
    errors: &mut Errors,
    _: &Owner,
    context: &Value,
    path: &ErrorPath,
) {
    if context.maybe_flag("allowPrivilegeEscalation") != Some(false) {
        return;
    }
    if context.flag("privileged") {
        errors.invalid(
            path,
            context,
            "cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
        );
    }
    if context
        .part("capabilities")
        .strings("add")
        .contains(&"CAP_SYS_ADMIN")
    {
        errors.invalid(
            path,
            context,
            "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN",
        );
    }
}

fn is_sysctl_name(name: &str) -> bool {
    let lower = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    name.len() <= 253
        && name.split(['.', '/']).all(|part| {
            part.bytes().next().is_some_and(lower)
                && part.bytes().next_back().is_some_and(lower)
                && part.bytes().all(|b| lower(b) || matches!(b, b'-' | b'_'))
        })
}

pub(crate) fn sysctls(errors: &mut Errors, owner: &Owner, list: &Value, path: &ErrorPath) {
    let spec = owner.enclosing("core.v1.PodSpec").unwrap_or(&Value::Null);
    let mut seen = HashSet::new();
    for (i, sysctl) in list.as_array().into_iter().flatten().enumerate() {
        let at = path.index(i).child("name");
        let name = sysctl.text("name");
        if name.is_empty() {
            errors.required(&at, "");
        } else if !is_sysctl_name(name) {
            errors.invalid(&at, name, SYSCTL_RULE);
        } else if seen.contains(name) {
            errors.duplicate(&at, name);
        }
        let dotted = name.replace('/', ".");
        let is_ipc = dotted.starts_with("kernel.shm")
            || dotted.starts_with("kernel.msg")
            || dotted == "kernel.sem"
            || dotted.starts_with("fs.mqueue.");
        if spec.flag("hostNetwork") && dotted.starts_with("net.") {
            errors.invalid(&at, name, "may not be specified when 'hostNetwork' is true");
        } else if spec.flag("hostIPC") && is_ipc {
            errors.invalid(&at, name, "may not be specified when 'hostIPC' is true");
        }
        seen.insert(name);
    }
}

pub(crate) fn seccomp_local(errors: &mut Errors, owner: &Owner, local: &Value, at: &ErrorPath) {
    let kind = owner.value.text("type");
    match (kind, local.as_str()) {
        ("Localhost", None) => {
            errors.required(at, "must be set when seccomp type is Localhost");
        }
        ("Localhost", Some(local)) => validate_descending_path(errors, local, at),
        (_, Some(local)) => {
            let (kind, local) = (json_text(kind), json_text(local));
            let shown = struct_text(&[("Type", kind), ("LocalhostProfile", local)]);
            errors.invalid(
                at,
                Shown(shown),
                "can only be set when seccomp type is Localhost",
            );
        }
        (_, None) => {}
    }
}

pub(crate) fn app_armor(errors: &mut Errors, _: &Owner, profile: &Value, path: &ErrorPath) {
    const MISSING: &str = "must be set when AppArmor type is Localhost";
    let at = path.child("localhostProfile");
    let local = profile.maybe_text("localhostProfile");
    match (profile.text("type"), local) {
        ("Localhost", None) => errors.required(&at, MISSING),
        ("Localhost", Some(local)) => {
            // The kubelet compares the name with the profiles of the node as it is.
            if local.trim() != local {
                errors.invalid(&at, local, "must not be padded with whitespace");
            } else if local.is_empty() {
                errors.required(&at, MISSING);
            }
            if local.len() > PROFILE_BYTES_MAX {
                errors.too_long(&at, PROFILE_BYTES_MAX);
            }
        }
        ("RuntimeDefault" | "Unconfined", Some(local)) => {
            errors.invalid(
                &at,
                local,
                "can only be set when AppArmor type is Localhost",
            );
        }
        ("RuntimeDefault" | "Unconfined", None) => {}
        ("", _) => errors.required(
            &path.child("type"),
            "type is required when appArmorProfile is set",
        ),
        (other, _) => errors.not_supported(&path.child("type"), other, PROFILE_TYPES),
    }
}

/// Errors of `spec.os`, and of fields that do not exist on that system.
pub(super) fn validate_os(errors: &mut Errors, spec: &Value, os_path: &ErrorPath) {
    let Some(os) = spec.field("os") else {
        return;
    };
    let path = &os_path.parent();
    match os.text("name") {
        "" => errors.required(&os_path.child("name"), "cannot be empty"),
        "linux" => {
            let detail = "windows options cannot be set for a linux pod";
            forbid_in_contexts(
                errors,
                spec,
                &["windowsOptions"],
                &["windowsOptions"],
                detail,
                path,
            );
        }
        "windows" => {
            for field in ["hostUsers", "hostPID", "hostIPC", "shareProcessNamespace"] {
                let given = match spec.field(field) {
                    Some(Value::Bool(on)) => *on || !matches!(field, "hostPID" | "hostIPC"),
                    _ => false,
                };
                if given {
                    errors.forbidden(&path.child(field), NOT_ON_WINDOWS);
                }
            }
            let of_pod = [
                "appArmorProfile",
                "seLinuxOptions",
                "seccompProfile",
                "fsGroup",
                "fsGroupChangePolicy",
                "sysctls",
                "runAsUser",
                "runAsGroup",
                "supplementalGroups",
                "supplementalGroupsPolicy",
                "seLinuxChangePolicy",
            ];
            let of_container = [
                "appArmorProfile",
                "seLinuxOptions",
                "seccompProfile",
                "capabilities",
                "readOnlyRootFilesystem",
                "privileged",
                "allowPrivilegeEscalation",
                "procMount",
                "runAsUser",
                "runAsGroup",
            ];
            forbid_in_contexts(errors, spec, &of_pod, &of_container, NOT_ON_WINDOWS, path);
        }
        other => errors.not_supported(os_path, other, &["linux", "windows"]),
    }
}

fn forbid_in_contexts(
    errors: &mut Errors,
    spec: &Value,
    of_pod: &[&str],
    of_container: &[&str],
    detail: &str,
    path: &ErrorPath,
) {
    let mut forbid = |holder: &Value, fields: &[&str], path: &ErrorPath| {
        let Some(context) = holder.field("securityContext") else {
            return;
        };
        for field in fields {
            if context.field(field).is_some() {
                errors.forbidden(&path.child("securityContext").child(field), detail);
            }
        }
    };
    forbid(spec, of_pod, path);
    for list in CONTAINER_LISTS {
        for (i, container) in spec.items(list).iter().enumerate() {
            forbid(container, of_container, &path.child(list).index(i));
        }
    }
}
