//! The checks of the status of a pod.

mod containers;

use super::annotations;
use super::requests::is_sidecar;
use crate::validation::addresses::validate_ip;
use crate::validation::errors::{
    ErrorPath, Errors, IS_IMMUTABLE, Shown, json_text, list_text, struct_text,
};
use crate::validation::names;
use crate::view::FieldView;
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// The message about a generation below zero.
const IS_NEGATIVE: &str = "must be a non-negative integer";
/// Condition types that need no check because they are Kubernetes' own.
const SYSTEM_CONDITIONS: &[&str] = &["PodScheduled", "Ready", "Initialized"];

/// Errors of a write of a pod's status, without common errors of its metadata.
pub(crate) fn validate(new: &Value, old: &Value) -> Errors {
    let mut errors = Errors::new();
    let metadata_path = ErrorPath::new("metadata");
    let spec = new.part("spec");
    annotations::validate_update(
        &mut errors,
        new.part("metadata"),
        old.part("metadata"),
        spec,
        &metadata_path.child("annotations"),
    );
    let path = ErrorPath::new("status");
    let (before, after) = (old.part("status"), new.part("status"));
    for (i, condition) in after.items("conditions").iter().enumerate() {
        let kind = condition.text("type");
        let at = path.child("conditions").index(i);
        let generation = condition.int("observedGeneration");
        if generation < 0 {
            errors.invalid(&at.child("observedGeneration"), generation, IS_NEGATIVE);
        }
        if !SYSTEM_CONDITIONS.contains(&kind) {
            // Upstream writes the name so.
            errors.each_invalid(&at.child("Type"), kind, names::qualified_name(kind));
        }
    }
    let nominated = after.text("nominatedNodeName");
    if !nominated.is_empty() && nominated != before.text("nominatedNodeName") {
        let at = path.child("nominatedNodeName");
        errors.each_invalid(&at, nominated, names::dns_subdomain(nominated));
        if !old.part("spec").text("nodeName").is_empty() {
            let detail = "may not be set on pods that are already bound to a node";
            errors.forbidden(&at, detail);
        }
    }
    let generation = after.int("observedGeneration");
    if generation < 0 {
        errors.invalid(&path.child("observedGeneration"), generation, IS_NEGATIVE);
    }
    if after.text("qosClass") != before.text("qosClass") {
        errors.invalid(
            &path.child("qosClass"),
            after.text("qosClass"),
            IS_IMMUTABLE,
        );
    }
    for list in [
        "containerStatuses",
        "initContainerStatuses",
        "ephemeralContainerStatuses",
    ] {
        validate_transitions(&mut errors, after, before, spec, list, &path);
    }
    validate_claims(
        &mut errors,
        after,
        spec,
        &path.child("resourceClaimStatuses"),
    );
    if let Some(status) = after.field("extendedResourceClaimStatus") {
        let at = path.child("extendedResourceClaimStatus");
        containers::validate_mappings(&mut errors, status, spec, &at);
    }
    validate_ips(&mut errors, after, before, "podIPs", &path);
    let host_ips = after.items("hostIPs");
    if let Some(first) = host_ips.first()
        && first.text("ip") != after.text("hostIP")
    {
        errors.invalid(
            &path.child("hostIPs").index(0).child("ip"),
            first.text("ip"),
            "must be equal to `hostIP`",
        );
    }
    validate_ips(&mut errors, after, before, "hostIPs", &path);
    containers::validate(&mut errors, after, spec, &path);
    errors
}

/// A container that ended for good stays ended.
fn validate_transitions(
    errors: &mut Errors,
    after: &Value,
    before: &Value,
    spec: &Value,
    list: &str,
    path: &ErrorPath,
) {
    // Ephemeral containers are never restarted.
    let policy = if list == "ephemeralContainerStatuses" {
        "Never"
    } else {
        spec.text("restartPolicy")
    };
    if policy == "Always" || (list != "ephemeralContainerStatuses" && restarts_all(spec)) {
        return;
    }
    // Of equal names, the first container decides.
    let mut own_policies: HashMap<&str, bool> = HashMap::new();
    for container in ["containers", "initContainers"]
        .iter()
        .flat_map(|list| spec.items(list))
    {
        let has_own = is_sidecar(container) || !container.items("restartPolicyRules").is_empty();
        own_policies
            .entry(container.text("name"))
            .or_insert(has_own);
    }
    let running: HashSet<&str> = after
        .items(list)
        .iter()
        .filter(|new| new.at(&["state", "terminated"]).is_none())
        .map(|new| new.text("name"))
        .collect();
    for (i, old) in before.items(list).iter().enumerate() {
        let Some(terminated) = old.at(&["state", "terminated"]) else {
            continue;
        };
        if terminated.int("exitCode") != 0 && policy == "OnFailure" {
            continue;
        }
        let name = old.text("name");
        if own_policies.get(name) == Some(&true) {
            continue;
        }
        if running.contains(name) {
            errors.forbidden(
                &path.child(list).index(i).child("state"),
                "may not be transitioned to non-terminated state",
            );
        }
    }
}

/// Returns whether the exit of a container may restart all containers of the pod, independently of their own policies.
fn restarts_all(spec: &Value) -> bool {
    let lists = ["containers", "initContainers"].iter();
    let mut rules = lists
        .flat_map(|list| spec.items(list))
        .flat_map(|container| container.items("restartPolicyRules"));
    rules.any(|rule| rule.text("action") == "RestartAllContainers")
}

fn validate_claims(errors: &mut Errors, status: &Value, spec: &Value, path: &ErrorPath) {
    let claims = spec.items("resourceClaims").iter();
    let claims: HashSet<&str> = claims.map(|claim| claim.text("name")).collect();
    let mut seen = HashSet::new();
    for (i, claim) in status.items("resourceClaimStatuses").iter().enumerate() {
        let path = path.index(i);
        let at = path.child("name");
        let name = claim.text("name");
        if !claims.contains(name) {
            errors.invalid(
                &at,
                name,
                "must match the name of an entry in `spec.resourceClaims`",
            );
        }
        if !seen.insert(name) {
            errors.duplicate(&at, name);
        }
        if let Some(claim) = claim.maybe_text("resourceClaimName") {
            let at = path.child("resourceClaimName");
            errors.each_invalid(&at, claim, names::dns_subdomain(claim));
        }
    }
}

/// Each new address is valid, and there is one of each family at most.
fn validate_ips(
    errors: &mut Errors,
    status: &Value,
    before: &Value,
    list: &'static str,
    path: &ErrorPath,
) {
    let path = path.child(list);
    let ips: Vec<&str> = status.items(list).iter().map(|ip| ip.text("ip")).collect();
    let known = before.items(list).iter();
    let known: HashSet<&str> = known.map(|ip| ip.text("ip")).collect();
    for (i, ip) in ips.iter().enumerate() {
        if !known.contains(ip) {
            validate_ip(errors, ip, &path.index(i));
        }
    }
    if ips.len() < 2 {
        return;
    }
    let families: HashSet<bool> = ips
        .iter()
        .filter_map(|ip| names::parse_ip(ip))
        .map(|ip| ip.is_ipv4())
        .collect();
    if families.len() != 2 || ips.len() > 2 {
        // Upstream prints the name of its internal type.
        let shown = ips.iter().map(|ip| struct_text(&[("IP", json_text(*ip))]));
        let detail = "may specify no more than one IP for each IP family";
        errors.invalid(&path, Shown(list_text(shown)), detail);
    }
}
