//! Validation of a pod spec, in a pod or in a template, in upstream's order.

use super::volumes::Volumes;
use super::{annotations, containers, resources, scheduling, security, volumes};
use crate::validation::errors::{Errors, Path, Shown, quote_json};
use crate::validation::metadata;
use crate::validation::names;
use crate::validation::selectors::validate_labels;
use crate::validation::view::View;
use serde_json::Value;
use std::collections::{BTreeSet, HashSet};

const RESTART_POLICIES: &[&str] = &["Always", "OnFailure", "Never"];
const DNS_POLICIES: &[&str] = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
/// Limits of libc on DNS settings.
const NAME_SERVERS_MAX: usize = 3;
const SEARCH_PATHS_MAX: usize = 32;
const SEARCH_BYTES_MAX: usize = 2048;

/// What validating a part of a spec needs to know of the whole.
pub(crate) struct SpecContext<'a> {
    /// The spec.
    pub(crate) spec: &'a Value,
    /// `terminationGracePeriodSeconds`.
    pub(crate) grace_period: Option<i64>,
    /// Whether the pod shares the host's user namespace.
    pub(crate) host_users: bool,
    /// Names of `resourceClaims`.
    pub(crate) claim_names: BTreeSet<&'a str>,
    /// The volumes without errors.
    pub(crate) volumes: Volumes<'a>,
}

/// Errors of a new pod, without those of its metadata that every kind has.
pub(crate) fn validate_new_pod(pod: &Value) -> Errors {
    let mut errors = Errors::new();
    let empty = Value::Null;
    let spec = pod.field("spec").unwrap_or(&empty);
    let metadata = pod.field("metadata").unwrap_or(&empty);
    let path = Path::new("spec");
    validate_pod(&mut errors, pod);
    if !spec.items("ephemeralContainers").is_empty() {
        errors.forbidden(
            &path.child("ephemeralContainers"),
            "cannot be set on create",
        );
    }
    if !spec.text("nodeName").is_empty() && !spec.items("schedulingGates").is_empty() {
        errors.forbidden(
            &path.child("nodeName"),
            "cannot be set until all schedulingGates have been cleared",
        );
    }
    annotations::validate_profiles_match(&mut errors, metadata, spec, &path);
    errors
}

/// Errors that a pod may have both when it is created and when it is changed.
pub(crate) fn validate_pod(errors: &mut Errors, pod: &Value) {
    let empty = Value::Null;
    let spec = pod.field("spec").unwrap_or(&empty);
    let metadata = pod.field("metadata").unwrap_or(&empty);
    let path = Path::new("spec");
    annotations::validate(errors, metadata, spec, &Path::new("metadata.annotations"));
    validate_spec(errors, spec, Some(metadata.text("name")), &path);
    if spec.text("serviceAccountName").is_empty() {
        for (i, volume) in spec.items("volumes").iter().enumerate() {
            let Some(projected) = volume.field("projected") else {
                continue;
            };
            for (j, source) in projected.items("sources").iter().enumerate() {
                if source.field("serviceAccountToken").is_some() {
                    let at = path.child("volumes").index(i).child("projected");
                    errors.forbidden(
                        &at.child("sources").index(j).child("serviceAccountToken"),
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

/// Errors of a pod template.
pub(crate) fn validate_template(errors: &mut Errors, template: &Value, path: &Path) {
    let empty = Value::Null;
    let meta = template.field("metadata").unwrap_or(&empty);
    let spec = template.field("spec").unwrap_or(&empty);
    validate_labels(errors, meta, "labels", &path.child("labels"));
    metadata::validate_annotations(errors, meta, &path.child("annotations"));
    annotations::validate(errors, meta, spec, &path.child("annotations"));
    let spec_path = path.child("spec");
    validate_spec(errors, spec, None, &spec_path);
    annotations::validate_profiles_match(errors, meta, spec, &spec_path);
    if !spec.items("ephemeralContainers").is_empty() {
        errors.forbidden(
            &spec_path.child("ephemeralContainers"),
            "ephemeral containers not allowed in pod template",
        );
    }
}

/// `pod_name` is `None` in a template.
fn validate_spec(errors: &mut Errors, spec: &Value, pod_name: Option<&str>, path: &Path) {
    let grace_period = spec.maybe_int("terminationGracePeriodSeconds");
    if grace_period.is_none() {
        errors.required(&path.child("terminationGracePeriodSeconds"), "");
    }
    let claims = spec.items("resourceClaims");
    let volumes = volumes::validate(
        errors,
        spec.items("volumes"),
        pod_name.unwrap_or(""),
        &path.child("volumes"),
    );
    let cx = SpecContext {
        spec,
        grace_period,
        host_users: spec.maybe_flag("hostUsers").unwrap_or(true),
        claim_names: claims
            .iter()
            .map(|c| c.text("name"))
            .filter(|name| !name.is_empty())
            .collect(),
        volumes,
    };
    validate_claims(errors, claims, &path.child("resourceClaims"));
    containers::validate_containers(errors, &cx, &path.child("containers"));
    containers::validate_init_containers(errors, &cx, &path.child("initContainers"));
    containers::validate_ephemeral_containers(errors, &cx, &path.child("ephemeralContainers"));
    resources::validate_pod(errors, spec, &cx.claim_names, &path.child("resources"));
    validate_host_network(errors, spec, pod_name.is_some(), path);
    validate_choice(errors, spec, "restartPolicy", RESTART_POLICIES, path);
    validate_choice(errors, spec, "dnsPolicy", DNS_POLICIES, path);
    validate_labels(errors, spec, "nodeSelector", &path.child("nodeSelector"));
    security::validate_pod(errors, spec, &path.child("securityContext"));
    scheduling::validate_affinity(errors, spec.field("affinity"), &path.child("affinity"));
    validate_dns_config(errors, spec, &path.child("dnsConfig"));
    for (i, gate) in spec.items("readinessGates").iter().enumerate() {
        let name = gate.text("conditionType");
        let at = path.child("readinessGates").index(i).child("conditionType");
        errors.each_invalid(&at, name, names::qualified_name(name));
    }
    scheduling::validate_gates(
        errors,
        spec.items("schedulingGates"),
        &path.child("schedulingGates"),
    );
    scheduling::validate_spread(
        errors,
        spec.items("topologySpreadConstraints"),
        &path.child("topologySpreadConstraints"),
    );
    validate_host_users(errors, spec, path);
    validate_names(errors, spec, path);
    scheduling::validate_tolerations(
        errors,
        spec.items("tolerations"),
        &path.child("tolerations"),
    );
    for (i, alias) in spec.items("hostAliases").iter().enumerate() {
        let at = path.child("hostAliases").index(i);
        validate_ip(errors, alias.text("ip"), &at.child("ip"));
        for (j, name) in alias.strings("hostnames").iter().enumerate() {
            let at = at.child("hostnames").index(j);
            errors.each_invalid(&at, name, names::dns_subdomain(name));
        }
    }
    for field in ["priorityClassName", "runtimeClassName"] {
        if let Some(name) = spec.maybe_text(field)
            && !(name.is_empty() && field == "priorityClassName")
        {
            errors.each_invalid(&path.child(field), name, names::dns_subdomain(name));
        }
    }
    if let Some(policy) = spec.maybe_text("preemptionPolicy") {
        validate_preemption_policy(errors, policy, &path.child("preemptionPolicy"));
    }
    resources::validate_overhead(errors, spec, &path.child("overhead"));
    security::validate_os(errors, spec, path);
}

fn validate_choice(errors: &mut Errors, spec: &Value, field: &str, known: &[&str], path: &Path) {
    let at = path.child(field);
    match spec.text(field) {
        "" => errors.required(&at, ""),
        value if known.contains(&value) => {}
        other => errors.not_supported(&at, other, known),
    }
}

/// Errors of `preemptionPolicy` of a pod or priority class.
pub(crate) fn validate_preemption_policy(errors: &mut Errors, policy: &str, path: &Path) {
    match policy {
        "PreemptLowerPriority" | "Never" => {}
        "" => errors.required(path, ""),
        other => errors.not_supported(path, other, &["PreemptLowerPriority", "Never"]),
    }
}

/// Errors of an address.
pub(crate) fn validate_ip(errors: &mut Errors, ip: &str, path: &Path) {
    if names::parse_ip(ip).is_none() {
        errors.invalid(path, ip, names::NOT_AN_IP);
    }
}

/// With the host's network, a port of a container is a port of the host.
fn validate_host_network(errors: &mut Errors, spec: &Value, is_pod: bool, path: &Path) {
    if !spec.flag("hostNetwork") {
        return;
    }
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

fn validate_host_users(errors: &mut Errors, spec: &Value, path: &Path) {
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

/// Names of the service account, the node and the host, and the deadline between them.
fn validate_names(errors: &mut Errors, spec: &Value, path: &Path) {
    for field in ["serviceAccountName", "nodeName"] {
        let name = spec.text(field);
        if !name.is_empty() {
            errors.each_invalid(&path.child(field), name, names::dns_subdomain(name));
        }
    }
    if let Some(seconds) = spec.maybe_int("activeDeadlineSeconds")
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        errors.invalid(
            &path.child("activeDeadlineSeconds"),
            seconds,
            names::inclusive_range(1, i64::from(i32::MAX)),
        );
    }
    for field in ["hostname", "subdomain"] {
        let name = spec.text(field);
        if !name.is_empty() {
            errors.each_invalid(&path.child(field), name, names::dns_label(name));
        }
    }
    if let Some(name) = spec.maybe_text("hostnameOverride") {
        let at = path.child("hostnameOverride");
        if spec.flag("hostNetwork") {
            errors.forbidden(&at, "may not be set when `hostNetwork` is true");
        }
        if spec.flag("setHostnameAsFQDN") {
            errors.forbidden(&at, "may not be set when `setHostnameAsFQDN` is true");
        }
        if name.len() > 64 {
            errors.too_long(&at, 64);
        }
        errors.each_invalid(&at, name, names::dns_subdomain(name));
    }
}

fn validate_dns_config(errors: &mut Errors, spec: &Value, path: &Path) {
    let config = spec.field("dnsConfig");
    if spec.text("dnsPolicy") == "None" {
        match config {
            None => {
                errors.required(path, "must provide `dnsConfig` when `dnsPolicy` is None");
                return;
            }
            Some(config) if config.items("nameservers").is_empty() => {
                errors.required(
                    &path.child("nameservers"),
                    "must provide at least one DNS nameserver when `dnsPolicy` is None",
                );
                return;
            }
            Some(_) => {}
        }
    }
    let Some(config) = config else {
        return;
    };
    let servers = config.strings("nameservers");
    let at = path.child("nameservers");
    if servers.len() > NAME_SERVERS_MAX {
        errors.invalid(
            &at,
            config.field("nameservers").unwrap_or(&Value::Null),
            format!("must not have more than {NAME_SERVERS_MAX} nameservers"),
        );
    }
    for (i, server) in servers.iter().enumerate() {
        validate_ip(errors, server, &at.index(i));
    }
    let searches = config.strings("searches");
    let at = path.child("searches");
    let shown = config.field("searches").unwrap_or(&Value::Null);
    if searches.len() > SEARCH_PATHS_MAX {
        errors.invalid(
            &at,
            shown,
            format!("must not have more than {SEARCH_PATHS_MAX} search paths"),
        );
    }
    if searches.join(" ").len() > SEARCH_BYTES_MAX {
        errors.invalid(
            &at,
            shown,
            format!(
                "must not have more than {SEARCH_BYTES_MAX} characters (including spaces) in the search list"
            ),
        );
    }
    for (i, search) in searches.iter().enumerate() {
        if *search != "." {
            let search = search.strip_suffix('.').unwrap_or(search);
            errors.each_invalid(
                &at.index(i),
                search,
                names::dns_subdomain_with_underscore(search),
            );
        }
    }
    for (i, option) in config.items("options").iter().enumerate() {
        if option.text("name").is_empty() {
            errors.required(&path.child("options").index(i), "must not be empty");
        }
    }
}

/// Errors of `spec.resourceClaims`: each has a name of its own and one source.
fn validate_claims(errors: &mut Errors, claims: &[Value], path: &Path) {
    let mut seen = HashSet::new();
    for (i, claim) in claims.iter().enumerate() {
        let path = path.index(i);
        let name = claim.text("name");
        if name.is_empty() {
            errors.required(&path.child("name"), "");
        } else if !seen.insert(name) {
            errors.duplicate(&path.child("name"), name);
        } else {
            errors.each_invalid(&path.child("name"), name, names::dns_label(name));
        }
        let sources = ["resourceClaimName", "resourceClaimTemplateName"]
            .map(|field| claim.maybe_text(field).map(|value| (field, value)));
        match sources {
            [Some(_), Some(_)] => errors.invalid(
                &path,
                show_claim(claim),
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            ),
            [None, None] => errors.invalid(
                &path,
                show_claim(claim),
                "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            ),
            _ => {}
        }
        for (field, value) in sources.into_iter().flatten() {
            errors.each_invalid(&path.child(field), value, names::dns_subdomain(value));
        }
    }
}

/// A claim as upstream prints it: with the names of its internal type.
fn show_claim(claim: &Value) -> Shown {
    let mut out = String::from("{\"Name\":");
    quote_json(&mut out, claim.text("name"));
    for (field, printed) in [
        ("resourceClaimName", "ResourceClaimName"),
        ("resourceClaimTemplateName", "ResourceClaimTemplateName"),
    ] {
        out.push_str(&format!(",\"{printed}\":"));
        match claim.maybe_text(field) {
            Some(value) => quote_json(&mut out, value),
            None => out.push_str("null"),
        }
    }
    out.push('}');
    Shown(out)
}
