//! The checks that `facts/rules/storage.txt` cannot express for volumes, claims on them, and their classes.

use super::differences::with_differences;
use super::engine::{run_field, run_type};
use super::errors::{ErrorPath, Errors, IS_IMMUTABLE, Shown};
use super::internal::InternalPart;
use super::owner::Owner;
use super::{amounts, names};
use crate::enumerations::values;
use crate::strategy::{KindStrategy, Subresource, keep_other_half};
use crate::view::{FieldView, copy_field, existing, is_zero, remove, set};
use serde_json::{Value, json};

/// The error about another spec of a claim.
const CLAIM_FIXED: &str = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
/// The error about another source of a volume.
const SOURCE_FIXED: &str = "spec.persistentvolumesource is immutable after creation";
const ACCESS_MODES: &[&str] = &values!(core.v1.PersistentVolumeSpec.accessModes);
const VOLUME: &str = "core.v1.PersistentVolumeSpec";
/// The sources of a volume, and the names under which errors report them, in the order of checks.
const SOURCES: [(&str, &str); 22] = [
    ("hostPath", "hostPath"),
    ("gcePersistentDisk", "persistentDisk"),
    ("awsElasticBlockStore", "awsElasticBlockStore"),
    ("glusterfs", "glusterfs"),
    ("flocker", "flocker"),
    ("nfs", "nfs"),
    ("rbd", "rbd"),
    ("quobyte", "quobyte"),
    ("cephfs", "cephfs"),
    ("iscsi", "iscsi"),
    ("cinder", "cinder"),
    ("fc", "fc"),
    ("flexVolume", "flexVolume"),
    ("azureFile", "azureFile"),
    ("vsphereVolume", "vsphereVolume"),
    ("photonPersistentDisk", "photonPersistentDisk"),
    ("portworxVolume", "portworxVolume"),
    ("azureDisk", "azureDisk"),
    ("scaleIO", "scaleIO"),
    ("local", "local"),
    ("storageos", "storageos"),
    ("csi", "csi"),
];
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
/// The states of the resize of a volume.
const RESIZES: [&str; 5] = [
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];

pub(crate) fn pv_secret(e: &mut Errors, _: &Owner, secret: &Value, path: &ErrorPath) {
    if secret.is_object() {
        e.check_name(
            &path.child("name"),
            secret.text("name"),
            names::dns_subdomain,
        );
        e.check_name(
            &path.child("namespace"),
            secret.text("namespace"),
            names::dns_label,
        );
    }
}

pub(crate) fn no_backsteps(e: &mut Errors, _: &Owner, text: &Value, at: &ErrorPath) {
    let text = text.as_str().unwrap_or("");
    if !text.is_empty() {
        super::pod::volumes::validate_no_backsteps(e, text, at);
    }
}

pub(crate) fn provisioner(e: &mut Errors, _: &Owner, provisioner: &Value, path: &ErrorPath) {
    let provisioner = provisioner.as_str().unwrap_or("");
    e.each_invalid(
        path,
        provisioner,
        names::qualified_name(&provisioner.to_lowercase()),
    );
}

pub(crate) fn volume_attributes(e: &mut Errors, _: &Owner, spec: &Value, path: &ErrorPath) {
    let Some(class) = spec.maybe_text("volumeAttributesClassName") else {
        return;
    };
    let at = path.child("volumeAttributesClassName");
    if class.is_empty() {
        e.required(&at, "an empty string is disallowed");
    } else {
        e.each_invalid(&at, class, names::dns_subdomain(class));
    }
    if spec.field("csi").is_none() {
        let detail = "has to be specified when using volumeAttributesClassName";
        e.required(&path.child("csi"), detail);
    }
}

pub(crate) fn access_modes(errors: &mut Errors, _: &Owner, modes: &Value, path: &ErrorPath) {
    let modes = modes
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    let modes: Vec<&str> = modes.collect();
    for mode in modes.iter().filter(|mode| !ACCESS_MODES.contains(mode)) {
        errors.not_supported(path, mode, ACCESS_MODES);
    }
    if modes.contains(&"ReadWriteOncePod") && modes.iter().any(|m| *m != "ReadWriteOncePod") {
        errors.forbidden(path, "may not use ReadWriteOncePod with other access modes");
    }
}

/// A valid size greater than zero.
fn positive(errors: &mut Errors, name: &str, amount: &Value, path: &ErrorPath) {
    if let Some(quantity) = amounts::validate(errors, name, amount, path)
        && quantity.is_zero()
    {
        errors.invalid(path, &quantity.to_string(), "must be greater than zero");
    }
}

pub(crate) fn claim_size(errors: &mut Errors, _: &Owner, resources: &Value, path: &ErrorPath) {
    let at = path.key("storage");
    let Some(amount) = resources.part("requests").field("storage") else {
        errors.required(&at, "");
        return;
    };
    match amounts::get(resources, "requests", "storage") {
        Some(size) if size.sign() <= 0 => {
            errors.invalid(&at, &size.to_string(), "must be greater than zero");
        }
        _ => drop(amounts::validate(errors, "storage", amount, &at)),
    }
}

/// A claim may be bound once, get a class where it had none, ask for more, and change its attributes when it is bound.
pub(crate) fn claim_update(errors: &mut Errors, owner: &Owner, claim: &Value, _: &ErrorPath) {
    let Some(old) = owner.old else {
        return;
    };
    let (spec, old_spec) = (claim.part("spec"), old.part("spec"));
    let mut rest = spec.clone();
    if old_spec.text("volumeName").is_empty() {
        copy_field(&mut rest, old_spec, "volumeName");
    }
    let class = |claim: &Value| {
        let annotations = claim.part("metadata").part("annotations");
        annotations.text(CLASS_ANNOTATION).to_owned()
    };
    let (before, after) = (class(old), class(claim));
    let moves_to_field = !before.is_empty()
        && old_spec.field("storageClassName").is_none()
        && spec.maybe_text("storageClassName") == Some(&before)
        && (after.is_empty() || after == before);
    if moves_to_field || (old_spec.field("storageClassName").is_none() && before.is_empty()) {
        copy_field(&mut rest, old_spec, "storageClassName");
    }
    if !moves_to_field && before != after {
        let at = ErrorPath::new("metadata")
            .child("annotations")
            .child(CLASS_ANNOTATION);
        errors.invalid(&at, &after, IS_IMMUTABLE);
    }
    let path = ErrorPath::new("spec");
    let size = |holder: &Value, list| amounts::get(holder, list, "storage").unwrap_or_default();
    let asked = |spec: &Value| size(spec.part("resources"), "requests");
    let bound = claim.part("status").text("phase") == "Bound";
    if bound || asked(spec) == asked(old_spec) {
        let storage = old_spec.part("resources").part("requests").part("storage");
        if let Some(requests) =
            existing(&mut rest, "resources").and_then(|r| existing(r, "requests"))
        {
            set(requests, "storage", storage.clone());
        }
    }
    let attributes = "volumeAttributesClassName";
    if bound {
        copy_field(&mut rest, old_spec, attributes);
    }
    if rest != *old_spec {
        errors.forbidden(
            &path,
            with_differences(
                CLAIM_FIXED,
                InternalPart::PersistentVolumeClaimSpec,
                old_spec,
                &rest,
                &path,
            ),
        );
    }
    let has = size(old.part("status"), "capacity");
    if asked(spec) < asked(old_spec) && asked(spec) <= has {
        errors.forbidden(
            &path.child("resources.requests.storage"),
            "field can not be less than status.capacity",
        );
    }
    if spec.field("volumeMode") != old_spec.field("volumeMode") {
        let shown = spec
            .field("volumeMode")
            .map_or_else(Shown::null, Shown::from);
        errors.invalid(&ErrorPath::new("volumeMode"), shown, IS_IMMUTABLE);
    }
    if old
        .part("status")
        .field("currentVolumeAttributesClassName")
        .is_some()
    {
        let detail = match spec.maybe_text(attributes) {
            None => {
                "update to nil is forbidden when status.currentVolumeAttributesClassName is not nil"
            }
            Some("") => {
                "update to empty string is forbidden when status.currentVolumeAttributesClassName is not nil"
            }
            Some(_) => return,
        };
        errors.forbidden(&path.child(attributes), detail);
    }
}

pub(crate) fn capacity(errors: &mut Errors, _: &Owner, capacity: &Value, path: &ErrorPath) {
    let map = capacity.as_object();
    if map.is_some_and(|m| m.len() > 1 || !m.contains_key("storage")) {
        errors.not_supported(path, &capacity.to_string(), &["storage"]);
    }
    for (name, amount) in map.into_iter().flatten() {
        positive(errors, name, amount, &path.key(name));
    }
}

/// The source of a volume; more than one is an error.
pub(crate) fn volume_source(errors: &mut Errors, owner: &Owner, spec: &Value, path: &ErrorPath) {
    let mut given = false;
    for (source, reported_as) in SOURCES {
        let Some(value) = spec.field(source) else {
            continue;
        };
        if given && source != "flexVolume" {
            let name = if source == "cephfs" { "cephFS" } else { source };
            let detail = "may not specify more than 1 volume type";
            errors.forbidden(&path.child(name), detail);
            continue;
        }
        given = true;
        if source == reported_as {
            run_field(errors, VOLUME, source, spec, owner, path);
        } else {
            let kind = "core.v1.GCEPersistentDiskVolumeSource";
            run_type(errors, kind, value, owner, &path.child(reported_as));
        }
        if source == "local" && spec.field("nodeAffinity").is_none() {
            let at = path.child("nodeAffinity");
            errors.required(&at, "Local volume requires node affinity");
        }
    }
    if !given {
        errors.required(path, "must specify a volume type");
    }
    // Recycling the root of the host would delete its files.
    let host_path = spec.part("hostPath").text("path");
    let is_root = !host_path.is_empty() && host_path.split('/').all(|p| matches!(p, "" | "."));
    if is_root && spec.text("persistentVolumeReclaimPolicy") == "Recycle" {
        let at = path.child("persistentVolumeReclaimPolicy");
        errors.forbidden(&at, "may not be 'recycle' for a hostPath mount of '/'");
    }
}

/// A volume that an attachment describes itself.
pub(super) fn validate_inline(errors: &mut Errors, owner: &Owner, spec: &Value, path: &ErrorPath) {
    let context = "in the context of inline volumes";
    let not_given = |errors: &mut Errors, field: &'static str| {
        if !is_zero(spec.field(field)) {
            let detail = format!("may not be specified {context}");
            errors.forbidden(&path.child(field), detail);
        }
    };
    // An inline volume belongs to its attachment: no claim can use it.
    not_given(errors, "claimRef");
    not_given(errors, "capacity");
    if spec.field("csi").is_none() {
        let detail = format!("has to be specified {context}");
        errors.required(&path.child("csi"), detail);
    }
    let (modes, at) = (spec.part("accessModes"), path.child("accessModes"));
    if is_zero(Some(modes)) {
        errors.required(&at, "");
    }
    access_modes(errors, owner, modes, &at);
    if !matches!(spec.text("persistentVolumeReclaimPolicy"), "" | "Retain") {
        let at = path.child("persistentVolumeReclaimPolicy");
        errors.forbidden(&at, format!("may only be Retain {context}"));
    }
    not_given(errors, "nodeAffinity");
    volume_source(errors, owner, spec, path);
    not_given(errors, "storageClassName");
    if !matches!(spec.text("volumeMode"), "" | "Filesystem") {
        let detail = format!("may not specify volumeMode other than Filesystem {context}");
        errors.forbidden(&path.child("volumeMode"), detail);
    }
}

pub(crate) fn volume_update(errors: &mut Errors, owner: &Owner, volume: &Value, _: &ErrorPath) {
    let Some(old) = owner.old else { return };
    let (spec, old) = (volume.part("spec"), old.part("spec"));
    let source = |spec: &Value, secret_may_come: bool| {
        let fields = SOURCES
            .iter()
            .filter_map(|(field, _)| Some(((*field).to_owned(), spec.field(field)?.clone())));
        let mut fields = Value::Object(fields.collect());
        if let Some(csi) = existing(&mut fields, "csi")
            && secret_may_come
        {
            remove(csi, "controllerExpandSecretRef");
        }
        fields
    };
    let secret = |spec: &Value| {
        spec.part("csi")
            .field("controllerExpandSecretRef")
            .is_some()
    };
    // The secret may be added once to a CSI volume that has none.
    let may_come = old.field("csi").is_some() && !secret(old);
    let (new_source, old_source) = (source(spec, may_come), source(old, false));
    if new_source != old_source {
        let text = with_differences(
            SOURCE_FIXED,
            InternalPart::PersistentVolumeSource,
            &old_source,
            &new_source,
            &ErrorPath::new("spec"),
        );
        errors.forbidden(&ErrorPath::new("spec.persistentvolumesource"), text);
    }
    if spec.field("volumeMode") != old.field("volumeMode") {
        let shown = spec
            .field("volumeMode")
            .map_or_else(Shown::null, Shown::from);
        errors.invalid(&ErrorPath::new("volumeMode"), shown, IS_IMMUTABLE);
    }
    let affinity = spec.field("nodeAffinity");
    if old.field("nodeAffinity").is_some() && affinity != old.field("nodeAffinity") {
        let shown = affinity.map_or_else(Shown::null, Shown::from);
        errors.invalid(&ErrorPath::new("nodeAffinity"), shown, IS_IMMUTABLE);
    }
    let class = "volumeAttributesClassName";
    if old.field(class).is_some() && spec.field(class).is_none() {
        let detail = "update from non-nil value to nil is forbidden";
        errors.forbidden(&ErrorPath::new("spec").child(class), detail);
    }
}

/// The sources of the data of a claim.
pub(crate) fn claim_sources(errors: &mut Errors, _: &Owner, spec: &Value, path: &ErrorPath) {
    for field in ["dataSource", "dataSourceRef"] {
        let Some(source) = spec.field(field) else {
            continue;
        };
        let path = path.child(field);
        for name in ["name", "kind"] {
            if source.text(name).is_empty() {
                errors.required(&path.child(name), "");
            }
        }
        let (group, kind) = (source.text("apiGroup"), source.text("kind"));
        if group.is_empty() && kind != "PersistentVolumeClaim" {
            let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
            errors.invalid(&path, kind, detail);
        }
        if !group.is_empty() {
            errors.each_invalid(&path.child("apiGroup"), group, names::dns_subdomain(group));
        }
        let namespace = source.text("namespace");
        if !namespace.is_empty() {
            let faults = names::dns_label(namespace);
            errors.each_invalid(&path.child("namespace"), namespace, faults);
        }
    }
    let (Some(source), Some(reference)) = (spec.field("dataSource"), spec.field("dataSourceRef"))
    else {
        return;
    };
    // Upstream shows a value without fields.
    let shown = || Shown("{}".to_owned());
    if !reference.text("namespace").is_empty() {
        let detail = "may not be specified when dataSourceRef.namespace is specified";
        errors.invalid(path, shown(), detail);
        return;
    }
    let same = |field| source.maybe_text(field) == reference.maybe_text(field);
    if !["apiGroup", "kind", "name"].into_iter().all(same) {
        errors.invalid(path, shown(), "must match dataSourceRef");
    }
}

pub(crate) fn claim_status(errors: &mut Errors, _: &Owner, status: &Value, path: &ErrorPath) {
    let basic = |errors: &mut Errors, amount: &Value, path: &ErrorPath| {
        let negative = amounts::parse(amount).filter(|quantity| quantity.sign() < 0);
        if let Some(quantity) = negative {
            let detail = "must be a valid resource quantity";
            errors.invalid(path, quantity.value(), detail);
        }
        negative.is_none()
    };
    for (name, amount) in status.entries("capacity") {
        basic(errors, amount, &path.child("capacity").key(name));
    }
    let at = path.child("allocatedResourceStatuses");
    for (name, state) in status.labels("allocatedResourceStatuses") {
        resource_of_claim(errors, name, &at);
        if !RESIZES.contains(&state) {
            errors.not_supported(&at, name, &RESIZES);
        }
    }
    let at = path.child("allocatedResources");
    for (name, amount) in status.entries("allocatedResources") {
        if resource_of_claim(errors, name, &at) && basic(errors, amount, &at.key(name)) {
            amounts::validate(errors, "storage", amount, &at.key(name));
        }
    }
}

/// A claim has storage, and resources of other domains. Returns whether the name is one of these.
fn resource_of_claim(errors: &mut Errors, name: &str, path: &ErrorPath) -> bool {
    let faults = names::qualified_name(name);
    if !faults.is_empty() {
        errors.each_invalid(path, name, faults);
        return false;
    }
    if amounts::is_native(name) && name != "storage" {
        errors.not_supported(path, name, &["storage"]);
        return false;
    }
    true
}

/// Drops a `dataSource` that only `dataSourceRef` can state; then both are equal where possible. A claim that has a
/// source keeps it.
fn complete_sources(claim: &mut Value, old: Option<&Value>) {
    let Some(spec) = existing(claim, "spec") else {
        return;
    };
    let old = old.map_or(&Value::Null, |old| old.part("spec"));
    let has_source = old.field("dataSource").is_some() || old.field("dataSourceRef").is_some();
    let is_legacy = spec.field("dataSourceRef").is_none() && !has_source;
    let source = spec.part("dataSource");
    let is_plain = matches!(
        (source.text("apiGroup"), source.text("kind")),
        ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
    );
    if is_legacy && !is_plain {
        remove(spec, "dataSource");
    }
    match (
        spec.field("dataSource").cloned(),
        spec.field("dataSourceRef").cloned(),
    ) {
        (Some(source), None) => set(spec, "dataSourceRef", source),
        (None, Some(reference)) if reference.text("namespace").is_empty() => {
            set(spec, "dataSource", reference);
        }
        _ => {}
    }
}

/// The strategy of claims on persistent volumes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ClaimStrategy;

impl KindStrategy for ClaimStrategy {
    fn prepare_for_create(&self, object: &mut Value, _now: &str) {
        set(object, "status", json!({"phase": "Pending"}));
        complete_sources(object, None);
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value, part: Subresource, _now: &str) {
        keep_other_half(new, old, part);
        complete_sources(new, Some(old));
    }
}

/// The strategy of persistent volumes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct VolumeStrategy;

impl KindStrategy for VolumeStrategy {
    fn prepare_for_create(&self, object: &mut Value, now: &str) {
        let status = json!({"phase": "Pending", "lastPhaseTransitionTime": now});
        set(object, "status", status);
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value, part: Subresource, now: &str) {
        keep_other_half(new, old, part);
        let phase = |o: &Value| o.at(&["status", "phase"]).cloned();
        if part == Subresource::Status
            && phase(new) != phase(old)
            && let Some(status) = existing(new, "status")
        {
            set(status, "lastPhaseTransitionTime", now);
        }
    }
}
