//! Validation of a pod spec as a whole, in a pod or in a template.

use super::{annotations, containers, resources, security};
use crate::validation::addresses::validate_ip;
use crate::validation::errors::{ErrorPath, Errors, Shown, json_text, struct_text};
use crate::validation::owner::Owner;
use crate::validation::selectors::validate_labels;
use crate::validation::{metadata, names};
use crate::view::FieldView;
use serde_json::Value;

/// Limits of libc on DNS settings.
const NAME_SERVERS_MAX: usize = 3;
const SEARCH_PATHS_MAX: usize = 32;
const SEARCH_BYTES_MAX: usize = 2048;
/// The longest host name of Linux, in bytes.
const HOST_NAME_BYTES_MAX: usize = 64;

pub(crate) fn pod_annotations(e: &mut Errors, _: &Owner, pod: &Value, _: &ErrorPath) {
    let path = ErrorPath::new("metadata.annotations");
    annotations::validate(e, pod.part("metadata"), pod.part("spec"), &path);
}

pub(crate) fn pod_rest(e: &mut Errors, _: &Owner, pod: &Value, _: &ErrorPath) {
    rest(e, pod)
}

pub(crate) fn template_metadata(e: &mut Errors, _: &Owner, template: &Value, path: &ErrorPath) {
    let meta = template.part("metadata");
    validate_labels(e, meta, "labels", &path.child("labels"));
    metadata::validate_annotations(e, meta, &path.child("annotations"));
    annotations::validate(e, meta, template.part("spec"), &path.child("annotations"));
}

pub(crate) fn template_rest(e: &mut Errors, _: &Owner, template: &Value, path: &ErrorPath) {
    let (meta, spec) = (template.part("metadata"), template.part("spec"));
    let path = path.child("spec");
    annotations::validate_profiles_match(e, meta, spec, &path);
    if !spec.items("ephemeralContainers").is_empty() {
        let at = path.child("ephemeralContainers");
        e.forbidden(&at, "ephemeral containers not allowed in pod template");
    }
}

pub(crate) fn os(e: &mut Errors, owner: &Owner, _: &Value, path: &ErrorPath) {
    security::validate_os(e, owner.value, path)
}

pub(crate) fn pod_resources(e: &mut Errors, owner: &Owner, _: &Value, path: &ErrorPath) {
    resources::validate_pod(e, owner, path)
}

pub(crate) fn preemption_policy(e: &mut Errors, _: &Owner, policy: &Value, path: &ErrorPath) {
    match policy.as_str() {
        None | Some("PreemptLowerPriority" | "Never") => {}
        Some("") => e.required(path, ""),
        Some(other) => e.not_supported(path, other, &["PreemptLowerPriority", "Never"]),
    }
}

/// Errors of a new pod only.
pub(super) fn validate_new(pod: &Value) -> Errors {
    let mut errors = Errors::new();
    let spec = pod.part("spec");
    if !spec.items("ephemeralContainers").is_empty() {
        errors.forbidden(
            &ErrorPath::new("spec.ephemeralContainers"),
            "cannot be set on create",
        );
    }
    if !spec.text("nodeName").is_empty() && !spec.items("schedulingGates").is_empty() {
        errors.forbidden(
            &ErrorPath::new("spec.nodeName"),
            "cannot be set until all schedulingGates have been cleared",
        );
    }
    let path = ErrorPath::new("spec");
    annotations::validate_profiles_match(&mut errors, pod.part("metadata"), spec, &path);
    errors
}

/// Errors that pods have and templates have not.
fn rest(errors: &mut Errors, pod: &Value) {
    let spec = pod.part("spec");
    let path = ErrorPath::new("spec");
    if spec.text("serviceAccountName").is_empty() {
        for (i, volume) in spec.items("volumes").iter().enumerate() {
            for (j, source) in volume.part("projected").items("sources").iter().enumerate() {
                if source.field("serviceAccountToken").is_some() {
                    let at = path
                        .child("volumes")
                        .index(i)
                        .child("projected.sources")
                        .index(j);
                    errors.forbidden(
                        &at.child("serviceAccountToken"),
                        "must not be specified when serviceAccountName is not set",
                    );
                }
            }
        }
    }
    for list in ["containers", "initContainers"] {
        for (i, container) in spec.items(list).iter().enumerate() {
            containers::validate_image_space(errors, container, &path.child(list).index(i));
        }
    }
}

/// With the host's network, a port of a container is a port of the host.
pub(crate) fn host_network(errors: &mut Errors, owner: &Owner, spec: &Value, path: &ErrorPath) {
    if !spec.flag("hostNetwork") {
        return;
    }
    let is_pod = owner.enclosing("core.v1.Pod").is_some();
    for (i, container) in spec.items("containers").iter().enumerate() {
        for (j, port) in container.items("ports").iter().enumerate() {
            let (host, own) = (port.int("hostPort"), port.int("containerPort"));
            if (is_pod || host != 0) && host != own {
                let at = path.child("containers").index(i).child("ports").index(j);
                errors.invalid(
                    &at.child("hostPort"),
                    host,
                    "must match `containerPort` when `hostNetwork` is true",
                );
            }
        }
    }
}

pub(crate) fn host_users(errors: &mut Errors, _: &Owner, spec: &Value, path: &ErrorPath) {
    if spec.maybe_flag("hostUsers") != Some(false) {
        return;
    }
    for (field, reported_as) in [
        ("hostNetwork", "hostNetwork"),
        ("hostPID", "HostPID"),
        ("hostIPC", "HostIPC"),
    ] {
        if spec.flag(field) {
            errors.forbidden(
                &path.child(reported_as),
                "when `pod.Spec.HostUsers` is false",
            );
        }
    }
}

pub(crate) fn hostname_override(
    errors: &mut Errors,
    owner: &Owner,
    name: &Value,
    path: &ErrorPath,
) {
    let Some(name) = name.as_str() else {
        return;
    };
    if owner.value.flag("hostNetwork") {
        errors.forbidden(path, "may not be set when `hostNetwork` is true");
    }
    if owner.value.flag("setHostnameAsFQDN") {
        errors.forbidden(path, "may not be set when `setHostnameAsFQDN` is true");
    }
    if name.len() > HOST_NAME_BYTES_MAX {
        errors.too_long(path, HOST_NAME_BYTES_MAX);
    }
    errors.each_invalid(path, name, names::dns_subdomain(name));
}

pub(crate) fn dns_config(errors: &mut Errors, owner: &Owner, config: &Value, path: &ErrorPath) {
    if owner.value.text("dnsPolicy") == "None" {
        if config.is_null() {
            errors.required(path, "must provide `dnsConfig` when `dnsPolicy` is None");
            return;
        }
        if config.items("nameservers").is_empty() {
            errors.required(
                &path.child("nameservers"),
                "must provide at least one DNS nameserver when `dnsPolicy` is None",
            );
            return;
        }
    }
    let servers = config.strings("nameservers");
    let at = path.child("nameservers");
    if servers.len() > NAME_SERVERS_MAX {
        let detail = format!("must not have more than {NAME_SERVERS_MAX} nameservers");
        errors.invalid(&at, config.part("nameservers"), detail);
    }
    for (i, server) in servers.iter().enumerate() {
        validate_ip(errors, server, &at.index(i));
    }
    let searches = config.strings("searches");
    let at = path.child("searches");
    let shown = config.part("searches");
    if searches.len() > SEARCH_PATHS_MAX {
        let detail = format!("must not have more than {SEARCH_PATHS_MAX} search paths");
        errors.invalid(&at, shown, detail);
    }
    if searches.join(" ").len() > SEARCH_BYTES_MAX {
        let detail = format!(
            "must not have more than {SEARCH_BYTES_MAX} characters (including spaces) in the search list"
        );
        errors.invalid(&at, shown, detail);
    }
    for (i, search) in searches.iter().enumerate().filter(|(_, s)| **s != ".") {
        let search = search.strip_suffix('.').unwrap_or(search);
        errors.each_invalid(
            &at.index(i),
            search,
            names::dns_subdomain_with_underscore(search),
        );
    }
    for (i, option) in config.items("options").iter().enumerate() {
        if option.text("name").is_empty() {
            errors.required(&path.child("options").index(i), "must not be empty");
        }
    }
}

pub(crate) fn claim_name(errors: &mut Errors, owner: &Owner, name: &Value, path: &ErrorPath) {
    let name = name.as_str().unwrap_or("");
    if owner.repeats("name") {
        errors.duplicate(path, name);
    } else {
        errors.each_invalid(path, name, names::dns_label(name));
    }
}

pub(crate) fn claim_source(errors: &mut Errors, _: &Owner, claim: &Value, path: &ErrorPath) {
    let given =
        ["resourceClaimName", "resourceClaimTemplateName"].map(|f| claim.field(f).is_some());
    let detail = match given {
        [true, true] => {
            "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
        }
        [false, false] => "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
        _ => return,
    };
    // Upstream prints the names of its internal type.
    let text = |field: &str| json_text(claim.maybe_text(field));
    let shown = struct_text(&[
        ("Name", json_text(claim.text("name"))),
        ("ResourceClaimName", text("resourceClaimName")),
        (
            "ResourceClaimTemplateName",
            text("resourceClaimTemplateName"),
        ),
    ]);
    errors.invalid(path, Shown(shown), detail);
}
