//! Validation of volumes: exactly one source each, and the rules of each source.

use super::env;
use super::volume_sources as sources;
use crate::validation::errors::{Errors, Path, quote};
use crate::validation::names;
use crate::validation::view::View;
use serde_json::Value;
use std::collections::{HashMap, HashSet};

const HOST_PATH_TYPES: &[&str] = &[
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
];
const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

/// The sources of volumes in the order in which upstream looks at them, and the name under which a second one
/// is reported.
const SOURCES: &[(&str, &str)] = &[
    ("emptyDir", "emptyDir"),
    ("hostPath", "hostPath"),
    ("gitRepo", "gitRepo"),
    ("gcePersistentDisk", "gcePersistentDisk"),
    ("awsElasticBlockStore", "awsElasticBlockStore"),
    ("secret", "secret"),
    ("nfs", "nfs"),
    ("iscsi", "iscsi"),
    ("glusterfs", "glusterfs"),
    ("flocker", "flocker"),
    ("persistentVolumeClaim", "persistentVolumeClaim"),
    ("rbd", "rbd"),
    ("cinder", "cinder"),
    ("cephfs", "cephFS"),
    ("quobyte", "quobyte"),
    ("downwardAPI", "downwarAPI"),
    ("fc", "fc"),
    ("flexVolume", "flexVolume"),
    ("configMap", "configMap"),
    ("azureFile", "azureFile"),
    ("vsphereVolume", "vsphereVolume"),
    ("photonPersistentDisk", "photonPersistentDisk"),
    ("portworxVolume", "portworxVolume"),
    ("azureDisk", "azureDisk"),
    ("storageos", "storageos"),
    ("projected", "projected"),
    ("scaleIO", "scaleIO"),
    ("csi", "csi"),
    ("ephemeral", "ephemeral"),
    ("image", "image"),
];

/// Volumes by name.
pub(crate) type Volumes<'a> = HashMap<&'a str, &'a Value>;

/// Errors of `spec.volumes`; returns the volumes that are sound, for mounts to refer to. `pod_name` is empty in a
/// template.
pub(crate) fn validate<'a>(
    errors: &mut Errors,
    volumes: &'a [Value],
    pod_name: &str,
    path: &Path,
) -> Volumes<'a> {
    let created: HashSet<String> = volumes
        .iter()
        .filter(|v| !pod_name.is_empty() && v.field("ephemeral").is_some())
        .map(|v| format!("{pod_name}-{}", v.text("name")))
        .collect();
    let mut sound = Volumes::new();
    for (i, volume) in volumes.iter().enumerate() {
        let path = path.index(i);
        let name_path = path.child("name");
        let name = volume.text("name");
        let mut own = Errors::new();
        validate_source(&mut own, volume, name, pod_name, &path);
        own.check_name(&name_path, name, names::dns_label);
        if sound.contains_key(name) {
            own.duplicate(&name_path, name);
        }
        if own.is_empty() {
            sound.insert(name, volume);
        }
        errors.extend(own);
        if let Some(claim) = volume.field("persistentVolumeClaim") {
            let claim = claim.text("claimName");
            if created.contains(claim) {
                errors.invalid(
                    &path.child("persistentVolumeClaim").child("claimName"),
                    claim,
                    "must not reference a PVC that gets created for an ephemeral volume",
                );
            }
        }
    }
    sound
}

fn validate_source(errors: &mut Errors, volume: &Value, name: &str, pod_name: &str, path: &Path) {
    let mut given = false;
    for (source, reported_as) in SOURCES {
        let Some(value) = volume.field(source) else {
            continue;
        };
        if given {
            errors.forbidden(
                &path.child(reported_as),
                "may not specify more than 1 volume type",
            );
            continue;
        }
        given = true;
        let at = path.child(source);
        match *source {
            "emptyDir" => validate_empty_dir(errors, value, &at),
            "hostPath" => validate_host_path(errors, value, &at),
            "secret" => validate_files(errors, value, "secretName", &at),
            "configMap" => validate_files(errors, value, "name", &at),
            "downwardAPI" => {
                validate_mode(errors, value, "defaultMode", &at);
                for item in value.items("items") {
                    validate_downward_file(errors, item, &at);
                }
            }
            "projected" => validate_projected(errors, value, &at),
            "persistentVolumeClaim" => {
                if value.text("claimName").is_empty() {
                    errors.required(&at.child("claimName"), "");
                }
            }
            "ephemeral" => validate_ephemeral(errors, value, name, pod_name, path),
            other => sources::validate(errors, other, value, name, path),
        }
    }
    if !given {
        errors.required(path, "must specify a volume type");
    }
}

fn validate_empty_dir(errors: &mut Errors, source: &Value, path: &Path) {
    if let Some(limit) = source.field("sizeLimit") {
        let sound = crate::validation::amounts::parse(limit).is_some_and(|q| q.sign() >= 0);
        if !sound {
            errors.forbidden(
                &path.child("sizeLimit"),
                "SizeLimit field must be a valid resource quantity",
            );
        }
    }
}

fn validate_host_path(errors: &mut Errors, source: &Value, path: &Path) {
    let host_path = source.text("path");
    if host_path.is_empty() {
        errors.required(&path.child("path"), "");
        return;
    }
    validate_no_backsteps(errors, host_path, &path.child("path"));
    if let Some(kind) = source.maybe_text("type")
        && !HOST_PATH_TYPES.contains(&kind)
    {
        errors.not_supported(&path.child("type"), kind, HOST_PATH_TYPES);
    }
}

/// Errors of a secret or config map as a volume: its name, mode and items.
fn validate_files(errors: &mut Errors, source: &Value, name_field: &str, path: &Path) {
    if source.text(name_field).is_empty() {
        errors.required(&path.child(name_field), "");
    }
    validate_mode(errors, source, "defaultMode", path);
    for (i, item) in source.items("items").iter().enumerate() {
        validate_key_to_path(errors, item, &path.child("items").index(i));
    }
}

fn validate_mode(errors: &mut Errors, holder: &Value, field: &str, path: &Path) {
    if let Some(mode) = holder.maybe_int(field)
        && !(0..=0o777).contains(&mode)
    {
        errors.invalid(&path.child(field), mode, FILE_MODE);
    }
}

fn validate_key_to_path(errors: &mut Errors, item: &Value, path: &Path) {
    for field in ["key", "path"] {
        if item.text(field).is_empty() {
            errors.required(&path.child(field), "");
        }
    }
    validate_local_path(errors, item.text("path"), &path.child("path"));
    validate_mode(errors, item, "mode", path);
}

fn validate_downward_file(errors: &mut Errors, file: &Value, path: &Path) {
    if file.text("path").is_empty() {
        errors.required(&path.child("path"), "");
    }
    validate_local_path(errors, file.text("path"), &path.child("path"));
    match (file.field("fieldRef"), file.field("resourceFieldRef")) {
        (Some(reference), other) => {
            let at = path.child("fieldRef");
            env::validate_field_ref(errors, reference, env::VOLUME_FIELDS, &at);
            if other.is_some() {
                errors.invalid(
                    path,
                    "resource",
                    "fieldRef and resourceFieldRef can not be specified simultaneously",
                );
            }
        }
        (None, Some(reference)) => {
            env::validate_resource_ref(errors, reference, true, &path.child("resourceFieldRef"));
        }
        (None, None) => {
            errors.required(path, "one of fieldRef and resourceFieldRef is required");
        }
    }
    validate_mode(errors, file, "mode", path);
}

fn validate_projected(errors: &mut Errors, projected: &Value, path: &Path) {
    validate_mode(errors, projected, "defaultMode", path);
    let mut paths: HashSet<&str> = HashSet::new();
    for (i, source) in projected.items("sources").iter().enumerate() {
        let source_path = path.child("sources").index(i);
        let mut given = 0;
        for kind in ["secret", "configMap"] {
            let Some(files) = source.field(kind) else {
                continue;
            };
            given += 1;
            let at = source_path.child(kind);
            let name = files.text("name");
            if name.is_empty() {
                errors.required(&at.child("name"), "");
            }
            for (j, item) in files.items("items").iter().enumerate() {
                validate_key_to_path(errors, item, &at.child("items").index(j));
                let file = item.text("path");
                if !file.is_empty() && !paths.insert(file) {
                    errors.invalid(path, name, "conflicting duplicate paths");
                }
            }
        }
        if let Some(downward) = source.field("downwardAPI") {
            given += 1;
            for item in downward.items("items") {
                validate_downward_file(errors, item, &source_path.child("downwardAPI"));
                let file = item.text("path");
                if !file.is_empty() && !paths.insert(file) {
                    errors.invalid(path, file, "conflicting duplicate paths");
                }
            }
        }
        if let Some(token) = source.field("serviceAccountToken") {
            given += 1;
            validate_token(
                errors,
                token,
                path,
                &source_path.child("serviceAccountToken"),
            );
        }
        if let Some(bundle) = source.field("clusterTrustBundle") {
            given += 1;
            let at = source_path.child("clusterTrustBundle");
            sources::validate_trust_bundle(errors, bundle, &at);
            let file = bundle.text("path");
            if !paths.insert(file) {
                errors.invalid(path, file, "conflicting duplicate paths");
            }
        }
        if given > 1 {
            errors.forbidden(
                &source_path,
                "may not specify more than 1 volume type per source",
            );
        }
    }
}

fn validate_token(errors: &mut Errors, token: &Value, volume_path: &Path, path: &Path) {
    let seconds = token.int("expirationSeconds");
    let at = path.child("expirationSeconds");
    if seconds < 600 {
        errors.invalid(
            &at,
            seconds,
            "may not specify a duration less than 10 minutes",
        );
    }
    if seconds > 1 << 32 {
        errors.invalid(
            &at,
            seconds,
            "may not specify a duration larger than 2^32 seconds",
        );
    }
    let file = token.text("path");
    if file.is_empty() {
        errors.required(&volume_path.child("path"), "");
    } else {
        validate_local_path(errors, file, &volume_path.child("path"));
    }
}

fn validate_ephemeral(
    errors: &mut Errors,
    source: &Value,
    name: &str,
    pod_name: &str,
    path: &Path,
) {
    let at = path.child("ephemeral");
    match source.field("volumeClaimTemplate") {
        None => errors.required(&at.child("volumeClaimTemplate"), ""),
        Some(template) => {
            let at = at.child("volumeClaimTemplate");
            if let Some(metadata) = template.field("metadata") {
                let labels = at.child("metadata").child("labels");
                crate::validation::selectors::validate_labels(errors, metadata, "labels", &labels);
            }
            match template.field("spec") {
                Some(spec) => {
                    crate::validation::volumes::validate_claim_spec(
                        errors,
                        spec,
                        &at.child("spec"),
                    );
                }
                None => errors.required(&at.child("spec"), ""),
            }
        }
    }
    if !pod_name.is_empty() && !name.is_empty() {
        let claim = format!("{pod_name}-{name}");
        for message in names::dns_subdomain(&claim) {
            errors.invalid(
                &path.child("name"),
                name,
                format!("PVC name {}: {message}", quote(&claim)),
            );
        }
    }
}

/// Whether a path has an element `..`.
pub(crate) fn has_backsteps(path: &str) -> bool {
    path.split('/').any(|part| part == "..")
}

fn validate_no_backsteps(errors: &mut Errors, value: &str, path: &Path) {
    if has_backsteps(value) {
        errors.invalid(path, value, "must not contain '..'");
    }
}

/// Errors of a path that must lead downwards: relative, without `..`.
pub(crate) fn validate_descending_path(errors: &mut Errors, value: &str, path: &Path) {
    if value.starts_with('/') {
        errors.invalid(path, value, "must be a relative path");
    }
    validate_no_backsteps(errors, value, path);
}

/// Errors of the path of a file in a volume: leading downwards, and not beginning with `..`.
pub(crate) fn validate_local_path(errors: &mut Errors, value: &str, path: &Path) {
    validate_descending_path(errors, value, path);
    if value.starts_with("..") && !value.starts_with("../") && !has_backsteps(value) {
        errors.invalid(path, value, "must not start with '..'");
    }
}
