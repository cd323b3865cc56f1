//! Validation of volumes: exactly one source each, and the checks that tables cannot express for the sources of the
//! cluster itself.

use super::{env, volume_sources};
use crate::enumerations::values;
use crate::validation::engine::{run_field, run_type};
use crate::validation::errors::{ErrorPath, Errors, quote};
use crate::validation::owner::{EntryIndexes, NamedEntries, Owner};
use crate::validation::selectors::validate_labels;
use crate::validation::{amounts, names};
use crate::view::FieldView;
use rustc_hash::FxHashMap;
use serde_json::Value;
use std::collections::HashSet;

const TYPE: &str = "core.v1.Volume";
/// The key of the volumes without errors.
const SOUND: &str = "volumes without errors";
const HOST_PATH_TYPES: &[&str] = &values!(core.v1.HostPathVolumeSource.type);

/// The sources of volumes in upstream's order, and the field of the error for a second source.
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

pub(crate) fn size_limit(e: &mut Errors, _: &Owner, limit: &Value, path: &ErrorPath) {
    if !limit.is_null() && amounts::parse(limit).is_none_or(|q| q.sign() < 0) {
        e.forbidden(path, "SizeLimit field must be a valid resource quantity");
    }
}

pub(crate) fn local_path(e: &mut Errors, _: &Owner, value: &Value, path: &ErrorPath) {
    validate_local_path(e, value.as_str().unwrap_or(""), path);
}

pub(crate) fn descending_path(e: &mut Errors, _: &Owner, value: &Value, path: &ErrorPath) {
    validate_descending_path(e, value.as_str().unwrap_or(""), path);
}

pub(crate) fn downward_files(e: &mut Errors, owner: &Owner, files: &Value, path: &ErrorPath) {
    for file in files.as_array().into_iter().flatten() {
        run_type(
            e,
            "core.v1.DownwardAPIVolumeFile",
            file,
            owner,
            &path.parent(),
        );
    }
}

pub(crate) fn token_seconds(e: &mut Errors, _: &Owner, seconds: &Value, path: &ErrorPath) {
    let seconds = seconds.as_i64().unwrap_or(0);
    if seconds < 600 {
        e.invalid(
            path,
            seconds,
            "may not specify a duration less than 10 minutes",
        );
    }
    if seconds > 1 << 32 {
        e.invalid(
            path,
            seconds,
            "may not specify a duration larger than 2^32 seconds",
        );
    }
}

pub(crate) fn claim_template_labels(e: &mut Errors, _: &Owner, template: &Value, path: &ErrorPath) {
    let labels = path.child("metadata.labels");
    validate_labels(e, template.part("metadata"), "labels", &labels);
}

fn pod_name<'a>(owner: &Owner<'a>) -> &'a str {
    let pod = owner.enclosing("core.v1.Pod");
    pod.map_or("", |pod| pod.part("metadata").text("name"))
}

pub(crate) fn volumes(errors: &mut Errors, owner: &Owner, list: &Value, path: &ErrorPath) {
    let volumes = list.as_array().map_or(&[][..], Vec::as_slice);
    let pod_name = pod_name(owner);
    let created: HashSet<String> = volumes
        .iter()
        .filter(|v| !pod_name.is_empty() && v.field("ephemeral").is_some())
        .map(|v| format!("{pod_name}-{}", v.text("name")))
        .collect();
    let mut sound = FxHashMap::default();
    for (i, volume) in volumes.iter().enumerate() {
        let path = path.index(i);
        let name = volume.text("name");
        let mut own = Errors::new();
        validate_one(&mut own, owner, volume, &path);
        // A name is only reserved by a volume without errors, as in kube-apiserver.
        if sound.contains_key(name) {
            own.duplicate(&path.child("name"), name);
        }
        if own.is_empty() {
            sound.insert(name.into(), i);
        }
        errors.extend(own);
        let claim = volume.part("persistentVolumeClaim").text("claimName");
        // The claim of an ephemeral volume exists only after the pod was created.
        if created.contains(claim) {
            errors.invalid(
                &path.child("persistentVolumeClaim.claimName"),
                claim,
                "must not reference a PVC that gets created for an ephemeral volume",
            );
        }
    }
    // Containers refer to them.
    owner.kept_entries(SOUND, || sound);
}

/// The volumes of a pod spec that have no errors, by their names.
pub(super) struct SoundVolumes<'a> {
    volumes: &'a [Value],
    indexes: EntryIndexes,
}

impl<'a> SoundVolumes<'a> {
    /// The volumes of the pod spec around an object.
    pub(super) fn around(owner: &Owner<'a>) -> Self {
        let Some(spec) = owner.enclosing_owner("core.v1.PodSpec") else {
            return Self {
                volumes: &[],
                indexes: EntryIndexes::default(),
            };
        };
        let volumes = spec.value.items("volumes");
        // The volumes are checked before the containers, so their faults are reported already.
        let indexes = spec.kept_entries(SOUND, || {
            let mut sound = FxHashMap::default();
            for (i, volume) in volumes.iter().enumerate() {
                let mut own = Errors::new();
                validate_one(&mut own, &spec, volume, &ErrorPath::default());
                if own.is_empty() {
                    sound.entry(volume.text("name").into()).or_insert(i);
                }
            }
            sound
        });
        Self { volumes, indexes }
    }

    pub(super) fn find(&self, name: &str) -> Option<&'a Value> {
        self.volumes.get(*self.indexes.get(name)?)
    }
}

fn validate_one(errors: &mut Errors, owner: &Owner, volume: &Value, path: &ErrorPath) {
    let mut given = false;
    for (source, reported_as) in SOURCES {
        if volume.field(source).is_none() {
            continue;
        }
        // The first source is valid; each further source is an error.
        if given {
            errors.forbidden(
                &path.child(reported_as),
                "may not specify more than 1 volume type",
            );
            continue;
        }
        given = true;
        let named = NamedEntries::default();
        let holder = Owner {
            type_name: TYPE,
            value: volume,
            old: None,
            parent: Some(owner),
            place: None,
            named: &named,
            code: owner.code,
        };
        run_field(errors, TYPE, source, volume, &holder, path);
        if *source == "ephemeral" {
            ephemeral_name(errors, owner, volume, path);
        }
    }
    if !given {
        errors.required(path, "must specify a volume type");
    }
    errors.check_name(&path.child("name"), volume.text("name"), names::dns_label);
}

/// The claim of an ephemeral volume is named after the pod and the volume.
fn ephemeral_name(errors: &mut Errors, owner: &Owner, volume: &Value, path: &ErrorPath) {
    let (pod_name, name) = (pod_name(owner), volume.text("name"));
    if pod_name.is_empty() || name.is_empty() {
        return;
    }
    let claim = format!("{pod_name}-{name}");
    for message in names::dns_subdomain(&claim) {
        let detail = format!("PVC name {}: {message}", quote(&claim));
        errors.invalid(&path.child("name"), name, detail);
    }
}

pub(crate) fn host_path(errors: &mut Errors, _: &Owner, source: &Value, path: &ErrorPath) {
    let host_path = source.text("path");
    if host_path.is_empty() {
        errors.required(&path.child("path"), "");
        return;
    }
    validate_no_backsteps(errors, host_path, &path.child("path"));
    let kind = source.text("type");
    if !HOST_PATH_TYPES.contains(&kind) {
        errors.not_supported(&path.child("type"), kind, HOST_PATH_TYPES);
    }
}

pub(crate) fn downward_source(errors: &mut Errors, _: &Owner, file: &Value, path: &ErrorPath) {
    match (file.field("fieldRef"), file.field("resourceFieldRef")) {
        (Some(reference), other) => {
            env::validate_field_ref(
                errors,
                reference,
                env::VOLUME_FIELDS,
                &path.child("fieldRef"),
            );
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
        (None, None) => errors.required(path, "one of fieldRef and resourceFieldRef is required"),
    }
}

/// Errors of the sources of a projected volume; some are reported at the volume.
pub(crate) fn projected(errors: &mut Errors, owner: &Owner, sources: &Value, list: &ErrorPath) {
    const CONFLICT: &str = "conflicting duplicate paths";
    const TYPE: &str = "core.v1.VolumeProjection";
    let volume = list.parent();
    let mut paths: HashSet<&str> = HashSet::new();
    for (i, source) in sources.as_array().into_iter().flatten().enumerate() {
        let path = list.index(i);
        let mut given = 0;
        for kind in ["secret", "configMap"] {
            let Some(files) = source.field(kind) else {
                continue;
            };
            given += 1;
            run_field(errors, TYPE, kind, source, owner, &path);
            for (j, item) in files.items("items").iter().enumerate() {
                let at = path.child(kind).child("items").index(j);
                run_type(errors, "core.v1.KeyToPath", item, owner, &at);
                let file = item.text("path");
                if !file.is_empty() && !paths.insert(file) {
                    errors.invalid(&volume, files.text("name"), CONFLICT);
                }
            }
        }
        if let Some(downward) = source.field("downwardAPI") {
            given += 1;
            for item in downward.items("items") {
                let at = path.child("downwardAPI");
                run_type(errors, "core.v1.DownwardAPIVolumeFile", item, owner, &at);
                let file = item.text("path");
                if !file.is_empty() && !paths.insert(file) {
                    errors.invalid(&volume, file, CONFLICT);
                }
            }
        }
        if let Some(token) = source.field("serviceAccountToken") {
            given += 1;
            run_field(errors, TYPE, "serviceAccountToken", source, owner, &path);
            match token.text("path") {
                "" => errors.required(&volume.child("path"), ""),
                file => validate_local_path(errors, file, &volume.child("path")),
            }
        }
        if let Some(bundle) = source.field("clusterTrustBundle") {
            given += 1;
            let at = path.child("clusterTrustBundle");
            volume_sources::validate_trust_bundle(errors, owner.code, bundle, &at);
            let file = bundle.text("path");
            if !paths.insert(file) {
                errors.invalid(&volume, file, CONFLICT);
            }
        }
        if given > 1 {
            errors.forbidden(&path, "may not specify more than 1 volume type per source");
        }
    }
}

/// Returns whether a path has an element `..`.
pub(super) fn has_backsteps(path: &str) -> bool {
    path.split('/').any(|part| part == "..")
}

pub(crate) fn validate_no_backsteps(errors: &mut Errors, value: &str, path: &ErrorPath) {
    if has_backsteps(value) {
        errors.invalid(path, value, "must not contain '..'");
    }
}

/// Errors of a path that must lead downwards: relative, without `..`.
pub(super) fn validate_descending_path(errors: &mut Errors, value: &str, path: &ErrorPath) {
    if value.starts_with('/') {
        errors.invalid(path, value, "must be a relative path");
    }
    validate_no_backsteps(errors, value, path);
}

/// Errors of the path of a file in a volume: leading downwards, and not beginning with `..`.
pub(super) fn validate_local_path(errors: &mut Errors, value: &str, path: &ErrorPath) {
    validate_descending_path(errors, value, path);
    if value.starts_with("..") && !value.starts_with("../") && !has_backsteps(value) {
        errors.invalid(path, value, "must not start with '..'");
    }
}
