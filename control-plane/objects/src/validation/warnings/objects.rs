//! Warnings about objects without pod templates.

use super::deprecated;
use crate::validation::{amounts, names};
use crate::view::FieldView;
use serde_json::Value;

const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
const MOUNT_ANNOTATION: &str = "volume.beta.kubernetes.io/mount-options";
const INGRESS_ANNOTATION: &str = "kubernetes.io/ingress.class";
const TOPOLOGY_HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const CLASS_DEPRECATED: &str = r#"deprecated since v1.8; use "storageClassName" attribute instead"#;
/// Sources of volumes without effect, their names in warnings, and the release since which they have none.
const SOURCES: [(&str, &str, &str); 6] = [
    (
        "cephfs",
        "cephfs",
        "deprecated in v1.28, non-functional in v1.31+",
    ),
    (
        "photonPersistentDisk",
        "photonPersistentDisk",
        "deprecated in v1.11, non-functional in v1.16+",
    ),
    (
        "scaleIO",
        "scaleIO",
        "deprecated in v1.16, non-functional in v1.22+",
    ),
    (
        "storageos",
        "storageOS",
        "deprecated in v1.22, non-functional in v1.25+",
    ),
    (
        "glusterfs",
        "glusterfs",
        "deprecated in v1.25, non-functional in v1.26+",
    ),
    (
        "rbd",
        "rbd",
        "deprecated in v1.28, non-functional in v1.31+",
    ),
];

/// The warning about the name of an object whose pods are named after it.
pub(super) fn of_name(object: &Value, of: &str, warnings: &mut Vec<String>) {
    let name = object.part("metadata").text("name");
    let faults = names::dns_label(name);
    if !name.is_empty() && !faults.is_empty() {
        warnings.push(format!(
            "metadata.name: this is used in {of}, which can result in surprising behavior; a DNS label is recommended: [{}]",
            faults.join(" ")
        ));
    }
}

/// The kinds whose warnings do not depend on the change.
pub(super) fn warns_always(kind: &str) -> bool {
    matches!(
        kind,
        "Ingress" | "PersistentVolume" | "PersistentVolumeClaim" | "Service" | "StorageClass"
    )
}

/// The warnings about an object of a kind.
pub(super) fn of(kind: &str, object: &Value, warnings: &mut Vec<String>) {
    match kind {
        "Ingress" => of_ingress(object, warnings),
        "PersistentVolume" => of_volume(object, warnings),
        "PersistentVolumeClaim" => of_claim(object, warnings),
        "Service" => of_service(object, warnings),
        "StorageClass" => of_class(object, warnings),
        _ => {}
    }
}

fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.part("metadata").part("annotations").maybe_text(name)
}

fn of_ingress(ingress: &Value, warnings: &mut Vec<String>) {
    let class = ingress.part("spec").field("ingressClassName");
    if annotation(ingress, INGRESS_ANNOTATION).is_some() && class.is_none() {
        warnings.push(format!(
            "annotation {INGRESS_ANNOTATION:?} is deprecated, please use 'spec.ingressClassName' instead"
        ));
    }
}

fn of_volume(volume: &Value, warnings: &mut Vec<String>) {
    let spec = volume.part("spec");
    for (name, message) in [
        (CLASS_ANNOTATION, CLASS_DEPRECATED),
        (
            MOUNT_ANNOTATION,
            r#"deprecated since v1.31; use "mountOptions" attribute instead"#,
        ),
    ] {
        if annotation(volume, name).is_some() {
            warnings.push(format!("metadata.annotations[{name}]: {message}"));
        }
    }
    if spec.text("persistentVolumeReclaimPolicy") == "Recycle" {
        warnings.push("spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.".to_owned());
    }
    let terms = spec.part("nodeAffinity").part("required");
    for (i, term) in terms.items("nodeSelectorTerms").iter().enumerate() {
        for (j, expression) in term.items("matchExpressions").iter().enumerate() {
            let key = expression.text("key");
            if let Some(message) = deprecated(key) {
                warnings.push(format!(
                    "spec.nodeAffinity.required.nodeSelectorTerms[{i}].matchExpressions[{j}].key: {key} is {message}"
                ));
            }
        }
    }
    // Each source has been deprecated since its own release.
    for (source, name, since) in SOURCES {
        if spec.field(source).is_some() {
            warnings.push(format!("spec.{name}: {since}"));
        }
    }
}

fn of_claim(claim: &Value, warnings: &mut Vec<String>) {
    if annotation(claim, CLASS_ANNOTATION).is_some() {
        warnings.push(format!(
            "metadata.annotations[{CLASS_ANNOTATION}]: {CLASS_DEPRECATED}"
        ));
    }
    let resources = claim.part("spec").part("resources");
    for list in ["requests", "limits"] {
        let amount = amounts::get(resources, list, "storage");
        if let Some(amount) = amount.filter(|a| !a.rounded_to_milli().is_integer()) {
            let shown = amount.to_string();
            warnings.push(format!(
                "spec.resources.{list}[storage]: fractional byte value {shown:?} is invalid, must be an integer"
            ));
        }
    }
}

fn of_class(class: &Value, warnings: &mut Vec<String>) {
    for (i, term) in class.items("allowedTopologies").iter().enumerate() {
        for (j, expression) in term.items("matchLabelExpressions").iter().enumerate() {
            if let Some(message) = deprecated(expression.text("key")) {
                warnings.push(format!(
                    "allowedTopologies[{i}].matchLabelExpressions[{j}].key: {message}"
                ));
            }
        }
    }
}

fn of_service(service: &Value, warnings: &mut Vec<String>) {
    let spec = service.part("spec");
    if annotation(service, TOPOLOGY_HINTS).is_some() {
        warnings.push(format!(
            "annotation {TOPOLOGY_HINTS} is deprecated, please use service.kubernetes.io/topology-mode instead"
        ));
    }
    let is_headless = spec.strings("clusterIPs") == ["None"];
    let kind = spec.text("type");
    let external = !spec.items("externalIPs").is_empty();
    if is_headless {
        if !spec.text("loadBalancerIP").is_empty() {
            warnings.push("spec.loadBalancerIP is ignored for headless services".to_owned());
        }
        if external {
            warnings.push("spec.externalIPs is ignored for headless services".to_owned());
        }
        if spec.text("sessionAffinity") != "None" {
            warnings.push("spec.SessionAffinity is ignored for headless services".to_owned());
        }
    }
    for (i, ip) in spec.strings("externalIPs").into_iter().enumerate() {
        let canonical = ip.parse::<std::net::Ipv6Addr>().map(|ip| ip.to_string());
        if let Ok(canonical) = canonical
            && canonical != ip
        {
            warnings.push(format!(
                "spec.externalIPs[{i}]: IPv6 address {ip:?} should be in RFC 5952 canonical format ({canonical:?})"
            ));
        }
    }
    if external && !is_headless && kind != "ExternalName" {
        let message =
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters";
        warnings.push(message.to_owned());
    }
    if kind == "ExternalName" && external {
        warnings.push(r#"spec.externalIPs is ignored when spec.type is "ExternalName""#.to_owned());
    }
    if kind != "ExternalName" && !spec.text("externalName").is_empty() {
        let message = r#"spec.externalName is ignored when spec.type is not "ExternalName""#;
        warnings.push(message.to_owned());
    }
    if spec.text("trafficDistribution") == "PreferClose" {
        let message =
            r#"spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone""#;
        warnings.push(message.to_owned());
    }
}
