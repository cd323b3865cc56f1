//! The checks that tables cannot express for the volume sources that name a device or service outside the cluster.

use super::volumes::validate_local_path;
use crate::validation::engine::run_alone;
use crate::validation::errors::{ErrorPath, Errors};
use crate::validation::names;
use crate::validation::owner::{Code, Owner};
use crate::view::FieldView;
use serde_json::Value;

/// The longest name of a CSI driver, in bytes.
const DRIVER_BYTES_MAX: usize = 63;
const QUOBYTE_PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";

pub(crate) fn absolute_path(e: &mut Errors, _: &Owner, value: &Value, path: &ErrorPath) {
    if let Some(text) = value.as_str().filter(|t| !t.starts_with('/')) {
        e.invalid(path, text, "must be an absolute path");
    }
}

pub(crate) fn cinder_secret(e: &mut Errors, _: &Owner, source: &Value, path: &ErrorPath) {
    if source
        .field("secretRef")
        .is_some_and(|s| s.text("name").is_empty())
    {
        e.required(&path.child("secretRef.name"), "");
    }
}

pub(crate) fn csi_driver(e: &mut Errors, _: &Owner, driver: &Value, path: &ErrorPath) {
    validate_driver_name(e, driver.as_str().unwrap_or(""), path);
}

pub(crate) fn iscsi_name(e: &mut Errors, _: &Owner, name: &Value, path: &ErrorPath) {
    let name = name.as_str().unwrap_or("");
    let known = ["iqn", "eui", "naa"].iter().any(|p| name.starts_with(p));
    if !name.is_empty() && !known {
        e.invalid(
            path,
            name,
            "must be valid format starting with iqn, eui, or naa",
        );
    }
}

pub(crate) fn secret_name(e: &mut Errors, _: &Owner, secret: &Value, path: &ErrorPath) {
    if !secret.is_null() {
        e.check_name(
            &path.child("name"),
            secret.text("name"),
            names::dns_subdomain,
        );
    }
}

pub(crate) fn flocker(errors: &mut Errors, _: &Owner, source: &Value, path: &ErrorPath) {
    let (name, uuid) = (source.text("datasetName"), source.text("datasetUUID"));
    if name.is_empty() && uuid.is_empty() {
        errors.required(path, "one of datasetName and datasetUUID is required");
    }
    if !name.is_empty() && !uuid.is_empty() {
        errors.invalid(
            path,
            "resource",
            "datasetName and datasetUUID can not be specified simultaneously",
        );
    }
    if name.contains('/') {
        errors.invalid(&path.child("datasetName"), name, "must not contain '/'");
    }
}

pub(crate) fn flex_options(errors: &mut Errors, owner: &Owner, _: &Value, path: &ErrorPath) {
    for (key, _) in owner.value.entries("options") {
        let domain = key.split('/').next().unwrap_or(key).to_lowercase();
        let domain = format!(".{domain}");
        if domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io") {
            let detail = "kubernetes.io and k8s.io namespaces are reserved";
            errors.invalid(&path.key(key), key, detail);
        }
    }
}

pub(crate) fn iscsi(errors: &mut Errors, owner: &Owner, source: &Value, path: &ErrorPath) {
    if (source.flag("chapAuthDiscovery") || source.flag("chapAuthSession"))
        && source.field("secretRef").is_none()
    {
        errors.required(&path.child("secretRef"), "");
    }
    let volume = owner.parent.map_or("", |p| p.value.text("name"));
    let portal = source.text("targetPortal");
    if source.field("initiatorName").is_some() && volume.len() + 1 + portal.len() > 64 {
        errors.invalid(
            &path.parent().child("name"),
            volume,
            "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.",
        );
    }
}

pub(crate) fn quobyte(errors: &mut Errors, _: &Owner, source: &Value, path: &ErrorPath) {
    let registry = source.text("registry");
    if registry.is_empty() {
        errors.required(&path.child("registry"), QUOBYTE_PAIRS);
    } else if source.text("tenant").len() >= 65 {
        errors.required(
            &path.child("tenant"),
            "must be a UUID and may not exceed a length of 64 characters",
        );
    } else {
        for _ in registry.split(',').filter(|pair| !pair.contains(':')) {
            errors.invalid(&path.child("registry"), registry, QUOBYTE_PAIRS);
        }
    }
}

pub(crate) fn fibre_channel(errors: &mut Errors, _: &Owner, source: &Value, path: &ErrorPath) {
    let names = source.items("targetWWNs");
    let has_ids = !source.items("wwids").is_empty();
    let at = path.child("targetWWNs");
    if names.is_empty() {
        if !has_ids {
            errors.required(&at, "must specify either targetWWNs or wwids, but not both");
        }
        return;
    }
    if has_ids {
        errors.invalid(
            &at,
            source.part("targetWWNs"),
            "targetWWNs and wwids can not be specified simultaneously",
        );
    }
    match source.maybe_int("lun") {
        None => errors.required(
            &path.child("lun"),
            "lun is required if targetWWNs is specified",
        ),
        Some(lun) if !(0..=255).contains(&lun) => {
            errors.invalid(&path.child("lun"), lun, names::inclusive_range(0, 255));
        }
        Some(_) => {}
    }
}

pub(crate) fn azure_uri(errors: &mut Errors, owner: &Owner, uri: &Value, path: &ErrorPath) {
    let (prefix, form) = match owner.value.maybe_text("kind") {
        Some("Managed") => (
            "/subscriptions/",
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",
        ),
        Some(_) => (
            "https://",
            "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd",
        ),
        None => return,
    };
    let uri = uri.as_str().unwrap_or("");
    if !uri.starts_with(prefix) {
        errors.not_supported(path, uri, &[form]);
    }
}

/// Errors of the name of a CSI driver.
pub(crate) fn validate_driver_name(errors: &mut Errors, driver: &str, path: &ErrorPath) {
    if driver.is_empty() {
        errors.required(path, "");
        return;
    }
    if driver.len() > DRIVER_BYTES_MAX {
        errors.too_long(path, DRIVER_BYTES_MAX);
    }
    errors.each_invalid(path, driver, names::dns_subdomain(&driver.to_lowercase()));
}

/// Errors of a projected trust bundle: by name, or by signer and selector.
pub(super) fn validate_trust_bundle(
    errors: &mut Errors,
    code: &Code,
    bundle: &Value,
    path: &ErrorPath,
) {
    let selector = bundle.field("labelSelector");
    let at = path.child("labelSelector");
    match (bundle.maybe_text("name"), bundle.maybe_text("signerName")) {
        (Some(_), Some(_)) => {
            errors.invalid(path, bundle, "only one of name and signerName may be used");
        }
        (Some(name), None) => {
            let name_path = path.child("name");
            if name.is_empty() {
                errors.required(&name_path, "must be a valid object name");
            }
            // The part before the colon is the signer, which has its own form.
            let last = name.rsplit(':').next().unwrap_or(name);
            for message in names::dns_subdomain(last) {
                let detail = format!("not a valid clustertrustbundlename: {message}");
                errors.invalid(&name_path, name, detail);
            }
            if let Some(selector) = selector {
                errors.invalid(
                    &at,
                    selector,
                    "labelSelector must be unset if name is specified",
                );
            }
        }
        (None, Some(signer)) => {
            if signer.is_empty() {
                errors.required(&path.child("signerName"), "must be a valid signer name");
            }
            if let Some(selector) = selector {
                run_alone(errors, code, "meta.v1.LabelSelector", selector, &at);
            }
        }
        (None, None) => errors.required(path, "either name or signerName must be specified"),
    }
    let file = bundle.text("path");
    if file.is_empty() {
        errors.required(&path.child("path"), "");
    }
    validate_local_path(errors, file, &path.child("path"));
}
