//! Validation of the volume sources that name a device or service outside the cluster.

use super::volumes::{validate_descending_path, validate_local_path};
use crate::validation::errors::{Errors, Path};
use crate::validation::names;
use crate::validation::selectors;
use crate::validation::view::View;
use serde_json::Value;

/// Errors of one source; `path` is that of the volume.
pub(crate) fn validate(
    errors: &mut Errors,
    source: &str,
    value: &Value,
    volume_name: &str,
    path: &Path,
) {
    let at = path.child(source);
    match source {
        "gitRepo" => {
            require(errors, value, &["repository"], &at);
            validate_descending_path(errors, value.text("directory"), &at.child("directory"));
        }
        "gcePersistentDisk" => {
            let at = path.child("persistentDisk");
            require(errors, value, &["pdName"], &at);
            validate_partition(errors, value, &at);
        }
        "awsElasticBlockStore" => {
            require(errors, value, &["volumeID"], &at);
            validate_partition(errors, value, &at);
        }
        "nfs" => {
            require(errors, value, &["server", "path"], &at);
            let exported = value.text("path");
            if !exported.starts_with('/') {
                errors.invalid(&at.child("path"), exported, "must be an absolute path");
            }
        }
        "iscsi" => validate_iscsi(errors, value, volume_name, path),
        "glusterfs" => require(errors, value, &["endpoints", "path"], &at),
        "flocker" => {
            let (name, uuid) = (value.text("datasetName"), value.text("datasetUUID"));
            if name.is_empty() && uuid.is_empty() {
                errors.required(&at, "one of datasetName and datasetUUID is required");
            }
            if !name.is_empty() && !uuid.is_empty() {
                errors.invalid(
                    &at,
                    "resource",
                    "datasetName and datasetUUID can not be specified simultaneously",
                );
            }
            if name.contains('/') {
                errors.invalid(&at.child("datasetName"), name, "must not contain '/'");
            }
        }
        "rbd" => {
            if value.items("monitors").is_empty() {
                errors.required(&at.child("monitors"), "");
            }
            require(errors, value, &["image"], &at);
        }
        "cinder" => {
            require(errors, value, &["volumeID"], &at);
            if let Some(secret) = value.field("secretRef")
                && secret.text("name").is_empty()
            {
                errors.required(&at.child("secretRef").child("name"), "");
            }
        }
        "cephfs" if value.items("monitors").is_empty() => {
            errors.required(&at.child("monitors"), "");
        }
        "quobyte" => validate_quobyte(errors, value, &at),
        "fc" => validate_fc(errors, value, &at),
        "flexVolume" => {
            require(errors, value, &["driver"], &at);
            for (key, _) in value.entries("options") {
                let domain = key.split('/').next().unwrap_or(key).to_lowercase();
                let domain = format!(".{domain}");
                if domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io") {
                    errors.invalid(
                        &at.child("options").key(key),
                        key,
                        "kubernetes.io and k8s.io namespaces are reserved",
                    );
                }
            }
        }
        "azureFile" => require(errors, value, &["secretName", "shareName"], &at),
        "vsphereVolume" => require(errors, value, &["volumePath"], &at),
        "photonPersistentDisk" => require(errors, value, &["pdID"], &at),
        "portworxVolume" => require(errors, value, &["volumeID"], &at),
        "azureDisk" => validate_azure_disk(errors, value, &at),
        "storageos" => require(errors, value, &["volumeName"], &at),
        "scaleIO" => require(errors, value, &["gateway", "system", "volumeName"], &at),
        "csi" => {
            validate_driver_name(errors, value.text("driver"), &at.child("driver"));
            if let Some(secret) = value.field("nodePublishSecretRef") {
                let name = secret.text("name");
                let at = at.child("nodePublishSecretRef").child("name");
                errors.check_name(&at, name, names::dns_subdomain);
            }
        }
        "image" => {
            require(errors, value, &["reference"], &at);
            let policy = value.text("pullPolicy");
            let known = &["Always", "IfNotPresent", "Never"];
            if policy.is_empty() {
                errors.required(&at.child("pullPolicy"), "");
            } else if !known.contains(&policy) {
                errors.not_supported(&at.child("pullPolicy"), policy, known);
            }
        }
        _ => {}
    }
}

fn require(errors: &mut Errors, value: &Value, fields: &[&str], path: &Path) {
    for field in fields {
        if value.text(field).is_empty() {
            errors.required(&path.child(field), "");
        }
    }
}

fn validate_partition(errors: &mut Errors, value: &Value, path: &Path) {
    let partition = value.int("partition");
    if !(0..=255).contains(&partition) {
        errors.invalid(
            &path.child("partition"),
            partition,
            names::inclusive_range(1, 255),
        );
    }
}

fn validate_lun(errors: &mut Errors, lun: i64, path: &Path) {
    if !(0..=255).contains(&lun) {
        errors.invalid(&path.child("lun"), lun, names::inclusive_range(0, 255));
    }
}

fn validate_iscsi(errors: &mut Errors, value: &Value, volume_name: &str, volume_path: &Path) {
    let path = volume_path.child("iscsi");
    require(errors, value, &["targetPortal", "iqn"], &path);
    let is_known = |name: &str| ["iqn", "eui", "naa"].iter().any(|p| name.starts_with(p));
    for (field, reported_as) in [("iqn", "iqn"), ("initiatorName", "initiatorname")] {
        let name = value.text(field);
        if !name.is_empty() && !is_known(name) {
            errors.invalid(
                &path.child(reported_as),
                name,
                "must be valid format starting with iqn, eui, or naa",
            );
        }
    }
    validate_lun(errors, value.int("lun"), &path);
    if (value.flag("chapAuthDiscovery") || value.flag("chapAuthSession"))
        && value.field("secretRef").is_none()
    {
        errors.required(&path.child("secretRef"), "");
    }
    let portal = value.text("targetPortal");
    if value.field("initiatorName").is_some() && volume_name.len() + 1 + portal.len() > 64 {
        errors.invalid(
            &volume_path.child("name"),
            volume_name,
            "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.",
        );
    }
}

fn validate_quobyte(errors: &mut Errors, value: &Value, path: &Path) {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let registry = value.text("registry");
    if registry.is_empty() {
        errors.required(&path.child("registry"), PAIRS);
    } else if value.text("tenant").len() >= 65 {
        errors.required(
            &path.child("tenant"),
            "must be a UUID and may not exceed a length of 64 characters",
        );
    } else {
        for pair in registry.split(',') {
            if pair.rsplit_once(':').is_none() {
                errors.invalid(&path.child("registry"), registry, PAIRS);
            }
        }
    }
    require(errors, value, &["volume"], path);
}

fn validate_fc(errors: &mut Errors, value: &Value, path: &Path) {
    let names = value.items("targetWWNs");
    let has_ids = !value.items("wwids").is_empty();
    if names.is_empty() && !has_ids {
        errors.required(
            &path.child("targetWWNs"),
            "must specify either targetWWNs or wwids, but not both",
        );
    }
    if names.is_empty() {
        return;
    }
    if has_ids {
        errors.invalid(
            &path.child("targetWWNs"),
            &Value::Array(names.to_vec()),
            "targetWWNs and wwids can not be specified simultaneously",
        );
    }
    match value.maybe_int("lun") {
        None => errors.required(
            &path.child("lun"),
            "lun is required if targetWWNs is specified",
        ),
        Some(lun) => validate_lun(errors, lun, path),
    }
}

fn validate_azure_disk(errors: &mut Errors, value: &Value, path: &Path) {
    require(errors, value, &["diskName", "diskURI"], path);
    for (field, known) in [
        ("cachingMode", ["None", "ReadOnly", "ReadWrite"]),
        ("kind", ["Dedicated", "Managed", "Shared"]),
    ] {
        if let Some(given) = value.maybe_text(field)
            && !known.contains(&given)
        {
            errors.not_supported(&path.child(field), given, &known);
        }
    }
    let uri = value.text("diskURI");
    let wanted: Option<(&str, &str)> = match value.maybe_text("kind") {
        Some("Managed") => Some((
            "/subscriptions/",
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",
        )),
        Some(_) => Some((
            "https://",
            "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd",
        )),
        None => None,
    };
    if let Some((prefix, form)) = wanted
        && !uri.starts_with(prefix)
    {
        errors.not_supported(&path.child("diskURI"), uri, &[form]);
    }
}

/// Errors of the name of a CSI driver.
pub(crate) fn validate_driver_name(errors: &mut Errors, driver: &str, path: &Path) {
    if driver.is_empty() {
        errors.required(path, "");
    }
    if driver.len() > 63 {
        errors.too_long(path, 63);
    }
    let lower = driver.to_lowercase();
    errors.each_invalid(path, driver, names::dns_subdomain(&lower));
}

/// Errors of a projected trust bundle: by name, or by signer and selector.
pub(crate) fn validate_trust_bundle(errors: &mut Errors, bundle: &Value, path: &Path) {
    match (bundle.maybe_text("name"), bundle.maybe_text("signerName")) {
        (Some(_), Some(_)) => {
            errors.invalid(path, bundle, "only one of name and signerName may be used");
        }
        (Some(name), None) => {
            let at = path.child("name");
            if name.is_empty() {
                errors.required(&at, "must be a valid object name");
            }
            let last = name.rsplit(':').next().unwrap_or(name);
            for message in names::dns_subdomain(last) {
                errors.invalid(
                    &at,
                    name,
                    format!("not a valid clustertrustbundlename: {message}"),
                );
            }
            if let Some(selector) = bundle.field("labelSelector") {
                errors.invalid(
                    &path.child("labelSelector"),
                    selector,
                    "labelSelector must be unset if name is specified",
                );
            }
        }
        (None, Some(signer)) => {
            if signer.is_empty() {
                errors.required(&path.child("signerName"), "must be a valid signer name");
            }
            selectors::validate_label_selector(
                errors,
                bundle.field("labelSelector"),
                &path.child("labelSelector"),
            );
        }
        (None, None) => errors.required(path, "either name or signerName must be specified"),
    }
    let file = bundle.text("path");
    if file.is_empty() {
        errors.required(&path.child("path"), "");
    }
    validate_local_path(errors, file, &path.child("path"));
}
