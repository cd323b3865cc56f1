//! The rules of persistent volumes, claims on them, and storage classes.

use super::amounts;
use super::errors::{Errors, IS_IMMUTABLE, Path};
use super::names;
use super::normal;
use super::pod::scheduling::validate_node_selector;
use super::selectors::validate_label_selector;
use super::view::{View, child, existing, set, set_if_absent, set_if_zero};
use crate::field::FieldError;
use crate::strategy::{RequestContext, Strategy, Subresource, keep_other_half};
use serde_json::Value;

const ACCESS_MODES: &[&str] = &[
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];
const VOLUME_MODES: &[&str] = &["Block", "Filesystem"];
const RECLAIM_POLICIES: &[&str] = &["Delete", "Recycle", "Retain"];
const BINDING_MODES: &[&str] = &["Immediate", "WaitForFirstConsumer"];

/// Errors of the spec of a claim, of its own or inside a pod.
pub(crate) fn validate_claim_spec(errors: &mut Errors, spec: &Value, path: &Path) {
    let modes = spec.strings("accessModes");
    let modes_path = path.child("accessModes");
    if modes.is_empty() {
        errors.required(&modes_path, "at least 1 access mode is required");
    }
    validate_label_selector(errors, spec.field("selector"), &path.child("selector"));
    validate_access_modes(errors, &modes, &modes_path);
    match spec.at(&["resources", "requests", "storage"]) {
        None => errors.required(&path.child("resources").key("storage"), ""),
        Some(amount) => {
            let at = path.child("resources").key("storage");
            if let Some(quantity) = amounts::validate(errors, "storage", amount, &at)
                && quantity.is_zero()
            {
                errors.invalid(&at, &quantity.to_string(), "must be greater than zero");
            }
        }
    }
    if let Some(class) = spec.maybe_text("storageClassName")
        && !class.is_empty()
    {
        let at = path.child("storageClassName");
        errors.each_invalid(&at, class, names::dns_subdomain(class));
    }
    if let Some(mode) = spec.maybe_text("volumeMode")
        && !VOLUME_MODES.contains(&mode)
    {
        errors.not_supported(&path.child("volumeMode"), mode, VOLUME_MODES);
    }
}

fn validate_access_modes(errors: &mut Errors, modes: &[&str], path: &Path) {
    for mode in modes {
        if !ACCESS_MODES.contains(mode) {
            errors.not_supported(path, mode, ACCESS_MODES);
        }
    }
    if modes.contains(&"ReadWriteOncePod") && modes.iter().any(|m| *m != "ReadWriteOncePod") {
        errors.forbidden(path, "may not use ReadWriteOncePod with other access modes");
    }
}

/// The strategy of claims on persistent volumes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ClaimStrategy;

impl Strategy for ClaimStrategy {
    fn default(&self, object: &mut Value) {
        normal::normalize(object, ("", "v1", "PersistentVolumeClaim"));
        if let Some(spec) = child(object, "spec") {
            set_if_absent(spec, "volumeMode", "Filesystem");
            default_data_sources(spec);
        }
        if let Some(status) = child(object, "status") {
            set_if_zero(status, "phase", "Pending");
        }
    }

    fn prepare_for_create(&self, object: &mut Value, _cx: &RequestContext) {
        set(object, "status", serde_json::json!({"phase": "Pending"}));
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let empty = Value::Null;
        let spec = object.field("spec").unwrap_or(&empty);
        validate_claim_spec(&mut errors, spec, &Path::new("spec"));
        errors.into_vec()
    }

    fn validate_update(
        &self,
        new: &Value,
        old: &Value,
        subresource: Subresource,
    ) -> Vec<FieldError> {
        if subresource == Subresource::Status {
            return Vec::new();
        }
        let mut errors = Errors::new();
        let empty = Value::Null;
        let path = Path::new("spec");
        let spec = new.field("spec").unwrap_or(&empty);
        let old_spec = old.field("spec").unwrap_or(&empty);
        validate_claim_spec(&mut errors, spec, &path);
        // A claim may be bound once, get a class where it had none, ask for more, and change its attributes.
        let mut rest = spec.clone();
        let mut may_be_set = vec!["volumeAttributesClassName"];
        if old_spec.text("volumeName").is_empty() {
            may_be_set.push("volumeName");
        }
        if old_spec.field("storageClassName").is_none() {
            may_be_set.push("storageClassName");
        }
        for field in may_be_set {
            super::view::copy_field(&mut rest, old_spec, field);
        }
        let bound = old.at(&["status", "phase"]).and_then(Value::as_str) == Some("Bound");
        let asked = |spec: &Value| {
            spec.field("resources")
                .and_then(|r| amounts::get(r, "requests", "storage"))
        };
        if bound || asked(spec) == asked(old_spec) {
            if asked(spec) < asked(old_spec) {
                errors.forbidden(
                    &path.child("resources").child("requests").child("storage"),
                    "field can not be less than status.capacity",
                );
            }
            super::view::copy_field(&mut rest, old_spec, "resources");
        }
        if rest != *old_spec {
            errors.forbidden(
                &path,
                "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
            );
        }
        errors.into_vec()
    }
}

/// `dataSource` and `dataSourceRef` say the same where they can.
fn default_data_sources(spec: &mut Value) {
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

/// The strategy of persistent volumes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct VolumeStrategy;

impl Strategy for VolumeStrategy {
    fn default(&self, object: &mut Value) {
        normal::normalize(object, ("", "v1", "PersistentVolume"));
        if let Some(spec) = child(object, "spec") {
            set_if_zero(spec, "persistentVolumeReclaimPolicy", "Retain");
            set_if_absent(spec, "volumeMode", "Filesystem");
            if let Some(host_path) = existing(spec, "hostPath") {
                set_if_absent(host_path, "type", "");
            }
        }
        if let Some(status) = child(object, "status") {
            set_if_zero(status, "phase", "Pending");
        }
    }

    fn prepare_for_create(&self, object: &mut Value, cx: &RequestContext) {
        set(
            object,
            "status",
            serde_json::json!({"phase": "Pending", "lastPhaseTransitionTime": cx.now}),
        );
    }

    fn prepare_for_update(
        &self,
        new: &mut Value,
        old: &Value,
        subresource: Subresource,
        cx: &RequestContext,
    ) {
        keep_other_half(new, old, subresource);
        let phase = |o: &Value| o.at(&["status", "phase"]).cloned();
        if subresource == Subresource::Status
            && phase(new) != phase(old)
            && let Some(status) = existing(new, "status")
        {
            set(status, "lastPhaseTransitionTime", cx.now.clone());
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        validate_volume(&mut errors, object);
        errors.into_vec()
    }

    fn validate_update(
        &self,
        new: &Value,
        old: &Value,
        subresource: Subresource,
    ) -> Vec<FieldError> {
        if subresource == Subresource::Status {
            return Vec::new();
        }
        let mut errors = Errors::new();
        validate_volume(&mut errors, new);
        let path = Path::new("spec");
        let empty = Value::Null;
        let spec = new.field("spec").unwrap_or(&empty);
        let old_spec = old.field("spec").unwrap_or(&empty);
        if source_of(spec) != source_of(old_spec) {
            errors.forbidden(
                &path.child("persistentvolumesource"),
                "spec.persistentvolumesource is immutable after creation",
            );
        }
        if spec.field("volumeMode") != old_spec.field("volumeMode") {
            let shown = spec.field("volumeMode").unwrap_or(&Value::Null);
            errors.invalid(&path.child("volumeMode"), shown, IS_IMMUTABLE);
        }
        if old_spec.field("nodeAffinity").is_some()
            && spec.field("nodeAffinity") != old_spec.field("nodeAffinity")
        {
            let shown = spec.field("nodeAffinity").unwrap_or(&Value::Null);
            errors.invalid(&path.child("nodeAffinity"), shown, IS_IMMUTABLE);
        }
        errors.into_vec()
    }
}

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

fn source_of(spec: &Value) -> Vec<(&str, &Value)> {
    let Some(map) = spec.as_object() else {
        return Vec::new();
    };
    map.iter()
        .filter(|(name, _)| !NOT_SOURCES.contains(&name.as_str()))
        .map(|(name, value)| (name.as_str(), value))
        .collect()
}

fn validate_volume(errors: &mut Errors, object: &Value) {
    let path = Path::new("spec");
    let empty = Value::Null;
    let spec = object.field("spec").unwrap_or(&empty);
    let modes = spec.strings("accessModes");
    if modes.is_empty() {
        errors.required(&path.child("accessModes"), "");
    }
    validate_access_modes(errors, &modes, &path.child("accessModes"));
    let capacity = spec.entries("capacity");
    let at = path.child("capacity");
    if capacity.is_empty() {
        errors.required(&at, "");
    }
    if !capacity.is_empty() && (capacity.len() > 1 || spec.at(&["capacity", "storage"]).is_none()) {
        let shown = spec.field("capacity").unwrap_or(&Value::Null);
        errors.not_supported(&at, &shown.to_string(), &["storage"]);
    }
    for (name, amount) in capacity {
        if let Some(quantity) = amounts::validate(errors, name, amount, &at.key(name))
            && quantity.is_zero()
        {
            errors.invalid(
                &at.key(name),
                &quantity.to_string(),
                "must be greater than zero",
            );
        }
    }
    let policy = spec.text("persistentVolumeReclaimPolicy");
    if !policy.is_empty() && !RECLAIM_POLICIES.contains(&policy) {
        errors.not_supported(
            &path.child("persistentVolumeReclaimPolicy"),
            policy,
            RECLAIM_POLICIES,
        );
    }
    if let Some(affinity) = spec.field("nodeAffinity") {
        let at = path.child("nodeAffinity").child("required");
        match affinity.field("required") {
            Some(selector) => validate_node_selector(errors, selector, &at),
            None => errors.required(&at, "must specify required node constraints"),
        }
    }
    match source_of(spec).len() {
        0 => errors.required(&path, "must specify a volume type"),
        1 => {}
        _ => {
            let second = source_of(spec).get(1).map_or("", |(name, _)| *name);
            errors.forbidden(
                &path.child(second),
                "may not specify more than 1 volume type",
            );
        }
    }
    let class = spec.text("storageClassName");
    if !class.is_empty() {
        let at = path.child("storageClassName");
        errors.each_invalid(&at, class, names::dns_subdomain(class));
    }
    if let Some(mode) = spec.maybe_text("volumeMode")
        && !VOLUME_MODES.contains(&mode)
    {
        errors.not_supported(&path.child("volumeMode"), mode, VOLUME_MODES);
    }
}

/// The strategy of storage classes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StorageClassStrategy;

impl Strategy for StorageClassStrategy {
    fn default(&self, object: &mut Value) {
        normal::normalize(object, ("storage.k8s.io", "v1", "StorageClass"));
        set_if_absent(object, "reclaimPolicy", "Delete");
        set_if_absent(object, "volumeBindingMode", "Immediate");
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let provisioner = object.text("provisioner");
        let at = Path::new("provisioner");
        if provisioner.is_empty() {
            errors.required(&at, "");
        } else {
            let lower = provisioner.to_lowercase();
            errors.each_invalid(&at, provisioner, names::qualified_name(&lower));
        }
        if let Some(policy) = object.maybe_text("reclaimPolicy")
            && !matches!(policy, "Delete" | "Retain")
        {
            errors.not_supported(&Path::new("reclaimPolicy"), policy, &["Delete", "Retain"]);
        }
        match object.maybe_text("volumeBindingMode") {
            None => errors.required(&Path::new("volumeBindingMode"), ""),
            Some(mode) if BINDING_MODES.contains(&mode) => {}
            Some(other) => {
                errors.not_supported(&Path::new("volumeBindingMode"), other, BINDING_MODES);
            }
        }
        errors.into_vec()
    }

    fn validate_update(
        &self,
        new: &Value,
        old: &Value,
        _subresource: Subresource,
    ) -> Vec<FieldError> {
        let mut errors = Errors::new();
        for field in ["provisioner", "reclaimPolicy", "volumeBindingMode"] {
            if new.field(field) != old.field(field) {
                errors.forbidden(
                    &Path::new(field),
                    format!("updates to {field} are forbidden."),
                );
            }
        }
        if new.field("parameters") != old.field("parameters") {
            errors.forbidden(
                &Path::new("parameters"),
                "updates to parameters are forbidden.",
            );
        }
        let mut all = errors.into_vec();
        all.extend(self.validate(new));
        all
    }
}
