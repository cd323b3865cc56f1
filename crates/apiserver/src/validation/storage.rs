//! What `facts/rules/storage.txt` cannot say of volumes, claims on them, and their classes.

use super::engine::Owner;
use super::errors::{Errors, Path};
use super::view::{View, copy_field, existing, set};
use super::{amounts, checks, names};
use crate::strategy::{Strategy, Subresource, keep_other_half};
use serde_json::{Value, json};

const ACCESS_MODES: &[&str] = &[
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];
/// Fields of a volume's spec that are not its source.
const NOT_SOURCES: &[&str] = &[
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

checks! {
    "access-modes" => access_modes,
    "capacity" => capacity,
    "claim-size" => claim_size,
    "claim-update" => claim_update,
    "provisioner" => |e, _, provisioner, path| {
        let provisioner = provisioner.as_str().unwrap_or("");
        e.each_invalid(path, provisioner, names::qualified_name(&provisioner.to_lowercase()));
    },
    "volume-source" => volume_source,
    "volume-update" => |e, owner, volume, _| {
        let source = |volume: &Value| format!("{:?}", sources(volume.part("spec")));
        if owner.old.is_some_and(|old| source(old) != source(volume)) {
            e.forbidden(
                &Path::new("spec.persistentvolumesource"),
                "spec.persistentvolumesource is immutable after creation",
            );
        }
    },
}

fn access_modes(errors: &mut Errors, _: &Owner, modes: &Value, path: &Path) {
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

/// A size is there, well formed and more than nothing.
fn positive(errors: &mut Errors, name: &str, amount: &Value, path: &Path) {
    if let Some(quantity) = amounts::validate(errors, name, amount, path)
        && quantity.is_zero()
    {
        errors.invalid(path, &quantity.to_string(), "must be greater than zero");
    }
}

fn claim_size(errors: &mut Errors, _: &Owner, resources: &Value, path: &Path) {
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

/// A claim may be bound once, get a class where it had none, ask for more, and change its attributes.
fn claim_update(errors: &mut Errors, owner: &Owner, claim: &Value, _: &Path) {
    let Some(old) = owner.old else {
        return;
    };
    let (spec, old_spec) = (claim.part("spec"), old.part("spec"));
    let mut rest = spec.clone();
    let mut may_be_set = vec!["volumeAttributesClassName"];
    if old_spec.text("volumeName").is_empty() {
        may_be_set.push("volumeName");
    }
    if old_spec.field("storageClassName").is_none() {
        may_be_set.push("storageClassName");
    }
    for field in may_be_set {
        copy_field(&mut rest, old_spec, field);
    }
    let path = Path::new("spec");
    let bound = old.part("status").text("phase") == "Bound";
    let asked = |spec: &Value| amounts::get(spec.part("resources"), "requests", "storage");
    if bound || asked(spec) == asked(old_spec) {
        if asked(spec) < asked(old_spec) {
            errors.forbidden(
                &path.child("resources.requests.storage"),
                "field can not be less than status.capacity",
            );
        }
        copy_field(&mut rest, old_spec, "resources");
    }
    if rest != *old_spec {
        errors.forbidden(
            &path,
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
        );
    }
}

fn capacity(errors: &mut Errors, _: &Owner, capacity: &Value, path: &Path) {
    let map = capacity.as_object();
    if map.is_some_and(|m| m.len() > 1 || !m.contains_key("storage")) {
        errors.not_supported(path, &capacity.to_string(), &["storage"]);
    }
    for (name, amount) in map.into_iter().flatten() {
        positive(errors, name, amount, &path.key(name));
    }
}

fn sources(spec: &Value) -> Vec<(&str, &Value)> {
    let fields = spec.as_object().into_iter().flatten();
    fields
        .filter(|(name, _)| !NOT_SOURCES.contains(&name.as_str()))
        .map(|(name, value)| (name.as_str(), value))
        .collect()
}

fn volume_source(errors: &mut Errors, _: &Owner, spec: &Value, path: &Path) {
    match sources(spec).as_slice() {
        [] => errors.required(path, "must specify a volume type"),
        [_] => {}
        [_, (second, _), ..] => {
            errors.forbidden(
                &path.child(second),
                "may not specify more than 1 volume type",
            );
        }
    }
}

/// `dataSource` and `dataSourceRef` say the same where they can.
pub(super) fn default_claim(spec: &mut Value) {
    match (
        spec.field("dataSource").cloned(),
        spec.field("dataSourceRef").cloned(),
    ) {
        (Some(source), None) => set(spec, "dataSourceRef", source),
        (None, Some(reference)) if reference.text("namespace").is_empty() => {
            let known = matches!(
                (reference.text("apiGroup"), reference.text("kind")),
                ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
            );
            if known {
                set(spec, "dataSource", reference);
            }
        }
        _ => {}
    }
}

/// The strategy of claims on persistent volumes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ClaimStrategy;

impl Strategy for ClaimStrategy {
    fn prepare_for_create(&self, object: &mut Value, _now: &str) {
        set(object, "status", json!({"phase": "Pending"}));
    }
}

/// The strategy of persistent volumes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct VolumeStrategy;

impl Strategy for VolumeStrategy {
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
