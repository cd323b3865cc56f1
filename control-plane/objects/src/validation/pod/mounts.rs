//! Validation of volume mounts and block devices in containers.

use super::volumes::{SoundVolumes, has_backsteps, validate_descending_path};
use crate::enumerations::values;
use crate::validation::errors::{ErrorPath, Errors};
use crate::validation::owner::Owner;
use crate::view::FieldView;
use serde_json::Value;
use std::collections::HashSet;

const PROPAGATIONS: &[&str] = &values!(core.v1.VolumeMount.mountPropagation);
const RECURSIVE_READ_ONLY: &[&str] = &["Disabled", "Enabled", "IfPossible"];

/// The texts that the entries of a list have in two fields.
fn texts<'a>(list: &'a [Value], fields: [&str; 2]) -> [HashSet<&'a str>; 2] {
    fields.map(|field| list.iter().map(|entry| entry.text(field)).collect())
}

/// Errors of `volumeMounts` of a container.
pub(crate) fn mounts(errors: &mut Errors, owner: &Owner, list: &Value, path: &ErrorPath) {
    let container = owner.value;
    let volumes = SoundVolumes::around(owner);
    let [device_names, device_paths] =
        texts(container.items("volumeDevices"), ["name", "devicePath"]);
    let mut seen = HashSet::new();
    for (i, mount) in list.as_array().into_iter().flatten().enumerate() {
        let entry = path.index(i);
        let name = mount.text("name");
        let mount_path = mount.text("mountPath");
        if name.is_empty() {
            errors.required(&entry.child("name"), "");
        }
        if volumes.find(name).is_none() {
            errors.not_found(&entry.child("name"), name, "");
        }
        if mount_path.is_empty() {
            errors.required(&entry.child("mountPath"), "");
        }
        if !seen.insert(mount_path) {
            errors.invalid(&entry.child("mountPath"), mount_path, "must be unique");
        }
        if device_names.contains(name) {
            errors.invalid(
                &entry.child("name"),
                name,
                "must not already exist in volumeDevices",
            );
        }
        if device_paths.contains(mount_path) {
            errors.invalid(
                &entry.child("mountPath"),
                mount_path,
                "must not already exist as a path in volumeDevices",
            );
        }
        let (sub_path, sub_path_expr) = (mount.text("subPath"), mount.text("subPathExpr"));
        if !sub_path.is_empty() {
            validate_descending_path(errors, sub_path, &path.child("subPath"));
        }
        if !sub_path_expr.is_empty() {
            if !sub_path.is_empty() {
                errors.invalid(
                    &entry.child("subPathExpr"),
                    sub_path_expr,
                    "subPathExpr and subPath are mutually exclusive",
                );
            }
            validate_descending_path(errors, sub_path_expr, &path.child("subPathExpr"));
        }
        let propagation = mount.maybe_text("mountPropagation");
        if let Some(propagation) = propagation {
            let path = path.child("mountPropagation");
            if !PROPAGATIONS.contains(&propagation) {
                errors.not_supported(&path, propagation, PROPAGATIONS);
            }
            let privileged = container
                .field("securityContext")
                .is_some_and(|s| s.flag("privileged"));
            if propagation == "Bidirectional" && !privileged {
                errors.forbidden(
                    &path,
                    "Bidirectional mount propagation is available only to privileged containers",
                );
            }
        }
        let recursive = path.child("recursiveReadOnly");
        match mount.maybe_text("recursiveReadOnly") {
            None | Some("Disabled") => {}
            Some("Enabled" | "IfPossible") => {
                if !mount.flag("readOnly") {
                    errors.forbidden(&recursive, "may only be specified when readOnly is true");
                }
                if propagation.is_some_and(|p| p != "None") {
                    errors.forbidden(
                        &recursive,
                        "may only be specified when mountPropagation is None or not specified",
                    );
                }
            }
            Some(other) => errors.not_supported(&recursive, other, RECURSIVE_READ_ONLY),
        }
    }
}

/// Errors of `volumeDevices` of a container.
pub(crate) fn devices(errors: &mut Errors, owner: &Owner, list: &Value, path: &ErrorPath) {
    let volumes = SoundVolumes::around(owner);
    let [mounted, mount_paths] = texts(owner.value.items("volumeMounts"), ["name", "mountPath"]);
    let mut names = HashSet::new();
    let mut paths = HashSet::new();
    for (i, device) in list.as_array().into_iter().flatten().enumerate() {
        let entry = path.index(i);
        let name = device.text("name");
        let device_path = device.text("devicePath");
        if name.is_empty() {
            errors.required(&entry.child("name"), "");
        }
        if names.contains(name) {
            errors.invalid(&entry.child("name"), name, "must be unique");
        }
        match volumes.find(name) {
            Some(volume) => {
                let is_claim = volume.field("persistentVolumeClaim").is_some()
                    || volume.field("ephemeral").is_some();
                if !is_claim {
                    errors.invalid(
                        &entry.child("name"),
                        name,
                        "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
                    );
                }
            }
            None => errors.not_found(&entry.child("name"), name, ""),
        }
        if device_path.is_empty() {
            errors.required(&entry.child("devicePath"), "");
        }
        if paths.contains(device_path) {
            errors.invalid(&entry.child("devicePath"), device_path, "must be unique");
        }
        if has_backsteps(device_path) {
            errors.invalid(
                &entry.child("devicePath"),
                device_path,
                "can not contain backsteps ('..')",
            );
        } else {
            paths.insert(device_path);
        }
        if mounted.contains(name) {
            errors.invalid(
                &entry.child("name"),
                name,
                "must not already exist in volumeMounts",
            );
        }
        if mount_paths.contains(device_path) {
            errors.invalid(
                &entry.child("devicePath"),
                device_path,
                "must not already exist as a path in volumeMounts",
            );
        }
        if !name.is_empty() {
            names.insert(name);
        }
    }
}
