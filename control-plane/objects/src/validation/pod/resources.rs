//! Validation of requests, limits and claims of containers and of whole pods.

use super::requests;
use crate::validation::errors::{ErrorPath, Errors};
use crate::validation::owner::{EntryIndexes, Owner};
use crate::validation::{amounts, names};
use crate::view::FieldView;
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// Names of standard resources.
pub(crate) const STANDARD: &[&str] = &[
    "cpu",
    "memory",
    "ephemeral-storage",
    "storage",
    "pods",
    "resourcequotas",
    "services",
    "services.nodeports",
    "services.loadbalancers",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
];

type NameRule = fn(&mut Errors, &str, &ErrorPath);

/// The claims of the pod spec around an object, by their names.
fn claims_around(owner: &Owner) -> EntryIndexes {
    let spec = owner.enclosing_owner("core.v1.PodSpec");
    spec.map_or_else(EntryIndexes::default, |spec| {
        spec.entries_by_name("resourceClaims")
    })
}

/// Errors of `resources` of a container.
pub(super) fn validate_container(
    errors: &mut Errors,
    owner: &Owner,
    resources: &Value,
    path: &ErrorPath,
) {
    let claims = claims_around(owner);
    validate(errors, resources, validate_container_name, &claims, path);
}

/// Errors of `spec.resources`, and of containers that ask for more than it allows. A resource that the pod does not name is
/// not compared.
pub(super) fn validate_pod(errors: &mut Errors, owner: &Owner, path: &ErrorPath) {
    let spec = owner.value;
    let Some(resources) = spec.field("resources") else {
        return;
    };
    if spec.part("os").text("name") == "windows" {
        errors.forbidden(path, "may not be set for a windows pod");
        return;
    }
    if resources.field("claims").is_some() {
        errors.forbidden(
            &path.child("claims"),
            "claims may not be set for Resources at pod-level",
        );
    }
    let claims = claims_around(owner);
    validate(errors, resources, validate_pod_name, &claims, path);
    for list in ["requests", "limits"] {
        for (name, asked) in requests::aggregate(spec, list) {
            // Only huge pages cannot be overcommitted: their limits are amounts that the containers take.
            let is_compared = list == "requests" || amounts::is_huge_page(&name);
            if let Some(whole) = amounts::get(resources, list, &name)
                && is_compared
                && asked > whole
            {
                errors.invalid(
                    &path.child(list).key(&name),
                    &whole.to_string(),
                    format!(
                        "must be greater than or equal to aggregate container {list} of {asked}"
                    ),
                );
            }
        }
    }
    for (i, container) in spec.items("containers").iter().enumerate() {
        for (name, limit) in container.part("resources").entries("limits") {
            let (Some(limit), Some(whole)) = (
                amounts::parse(limit),
                amounts::get(resources, "limits", name),
            ) else {
                continue;
            };
            if limit > whole {
                errors.invalid(
                    &path.child("containers").index(i).key(name).child("limits"),
                    &limit.to_string(),
                    format!("must be less than or equal to pod limits of {whole}"),
                );
            }
        }
    }
}

/// Errors of `spec.overhead`.
pub(crate) fn validate_overhead(
    errors: &mut Errors,
    _: &Owner,
    overhead: &Value,
    path: &ErrorPath,
) {
    if !overhead.is_null() {
        let limits = serde_json::json!({"limits": overhead});
        let claims = EntryIndexes::default();
        validate(errors, &limits, validate_container_name, &claims, path);
    }
}

fn validate(
    errors: &mut Errors,
    resources: &Value,
    name_rule: NameRule,
    known_claims: &EntryIndexes,
    path: &ErrorPath,
) {
    let (limits_path, requests_path) = (path.child("limits"), path.child("requests"));
    let mut has_cpu_or_memory = false;
    let mut has_huge_pages = false;
    for (name, value) in resources.entries("limits") {
        let path = limits_path.key(name);
        name_rule(errors, name, &path);
        let quantity = amounts::validate(errors, name, value, &path);
        if amounts::is_huge_page(name) {
            has_huge_pages = true;
            validate_huge_pages(errors, name, quantity, &path);
        }
        has_cpu_or_memory |= matches!(name, "cpu" | "memory");
    }
    for (name, value) in resources.entries("requests") {
        let path = requests_path.key(name);
        name_rule(errors, name, &path);
        let quantity = amounts::validate(errors, name, value, &path);
        let overcommit = amounts::is_overcommit_allowed(name);
        match (amounts::get(resources, "limits", name), quantity) {
            (Some(limit), Some(quantity)) if quantity != limit && !overcommit => errors.invalid(
                &requests_path,
                &quantity.to_string(),
                format!("must be equal to {name} limit of {limit}"),
            ),
            (Some(limit), Some(quantity)) if quantity > limit => errors.invalid(
                &requests_path,
                &quantity.to_string(),
                format!("must be less than or equal to {name} limit of {limit}"),
            ),
            (None, _) if !overcommit => errors.required(
                &limits_path,
                "Limit must be set for non overcommitable resources",
            ),
            _ => {}
        }
        if amounts::is_huge_page(name) {
            has_huge_pages = true;
            validate_huge_pages(errors, name, quantity, &path);
        }
        has_cpu_or_memory |= matches!(name, "cpu" | "memory");
    }
    if has_huge_pages && !has_cpu_or_memory {
        errors.forbidden(path, "HugePages require cpu or memory");
    }
    validate_claims(
        errors,
        resources.items("claims"),
        known_claims,
        &path.child("claims"),
    );
}

fn validate_huge_pages(
    errors: &mut Errors,
    name: &str,
    quantity: Option<berth_api::Quantity>,
    path: &ErrorPath,
) {
    if let Some(quantity) = quantity
        && !amounts::is_whole_huge_pages(name, quantity)
    {
        errors.invalid(
            path,
            &quantity.to_string(),
            format!("{quantity} is not positive integer multiple of {name}"),
        );
    }
}

pub(crate) fn validate_name(errors: &mut Errors, name: &str, path: &ErrorPath) -> bool {
    let messages = names::qualified_name(name);
    if !messages.is_empty() {
        errors.each_invalid(path, name, messages);
        return false;
    }
    let standard = STANDARD.contains(&name)
        || amounts::is_huge_page(name)
        || name.starts_with("requests.hugepages-");
    if !name.contains('/') && !standard {
        errors.invalid(
            path,
            name,
            "must be a standard resource type or fully qualified",
        );
        return false;
    }
    true
}

pub(crate) fn validate_container_name(errors: &mut Errors, name: &str, path: &ErrorPath) {
    validate_name(errors, name, path);
    if !name.contains('/') {
        let known =
            matches!(name, "cpu" | "memory" | "ephemeral-storage") || amounts::is_huge_page(name);
        if !known {
            errors.invalid(path, name, "must be a standard resource for containers");
        }
    } else if !amounts::is_native(name) && !amounts::is_extended(name) {
        errors.invalid(path, name, "doesn't follow extended resource name standard");
    }
}

fn validate_pod_name(errors: &mut Errors, name: &str, path: &ErrorPath) {
    if validate_name(errors, name, path) && !requests::is_pod_level(name) {
        errors.not_supported(path, name, &["cpu", "hugepages-", "memory"]);
    }
}

/// Claims that a container uses must be listed in the pod, each at most once as a whole or per request.
fn validate_claims(
    errors: &mut Errors,
    claims: &[Value],
    known_claims: &EntryIndexes,
    path: &ErrorPath,
) {
    let mut seen: HashSet<String> = HashSet::new();
    // The number of requests of each claim that are used.
    let mut requests: HashMap<&str, usize> = HashMap::new();
    for (i, claim) in claims.iter().enumerate() {
        let path = path.index(i);
        let name = claim.text("name");
        if name.is_empty() {
            errors.required(&path, "");
            continue;
        }
        if seen.contains(name) {
            errors.duplicate(&path, name);
        } else {
            let request = claim.text("request");
            let key = if request.is_empty() {
                name.to_owned()
            } else {
                errors.each_invalid(&path.child("request"), request, names::dns_label(request));
                format!("{name}/{request}")
            };
            let used = requests.entry(name).or_default();
            if seen.contains(&key) {
                errors.duplicate(&path, &key);
            } else if request.is_empty() {
                for _ in 0..*used {
                    errors.duplicate(&path, name);
                }
            } else {
                *used += 1;
            }
            seen.insert(key);
        }
        // The text lists all claims: it is not formed for errors that are not reported.
        if !known_claims.contains_key(name) && !errors.is_full() {
            let mut detail = "must be one of the names in pod.spec.resourceClaims".to_owned();
            let mut known: Vec<&str> = known_claims.keys().map(|name| &**name).collect();
            known.retain(|name| !name.is_empty());
            known.sort_unstable();
            if known.is_empty() {
                detail.push_str(" which is empty");
            } else {
                detail.push_str(": ");
                detail.push_str(&known.join(", "));
            }
            errors.not_found(&path, name, detail);
        }
    }
}
