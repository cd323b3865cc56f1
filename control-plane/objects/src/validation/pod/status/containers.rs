//! The checks of the status of the containers of a pod: users, resources and extended resources.

use crate::validation::errors::{ErrorPath, Errors};
use crate::validation::names;
use crate::view::FieldView;
use serde_json::Value;
use std::collections::{HashMap, HashSet};

const ID_MAX: i64 = i32::MAX as i64;
const HEALTH: [&str; 3] = ["Healthy", "Unhealthy", "Unknown"];
const MESSAGE_BYTES_MAX: usize = 1_024;
const NOT_A_CLAIM: &str = "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty";

/// Errors of the statuses of all containers.
pub(super) fn validate(errors: &mut Errors, status: &Value, spec: &Value, path: &ErrorPath) {
    let lists = [
        ("containerStatuses", "containers"),
        ("initContainerStatuses", "initContainers"),
        ("ephemeralContainerStatuses", "ephemeralContainers"),
    ];
    let os = spec.part("os").maybe_text("name").unwrap_or("linux");
    for (list, _) in lists {
        for (i, container) in status.items(list).iter().enumerate() {
            let path = path.child(list).index(i).child("user").child("linux");
            let Some(user) = container.at(&["user", "linux"]) else {
                continue;
            };
            match os {
                "windows" => errors.forbidden(&path, "cannot be set for a windows pod"),
                "linux" => validate_user(errors, user, &path),
                _ => {}
            }
        }
    }
    for (list, of) in lists {
        let containers: HashMap<&str, &Value> = spec
            .items(of)
            .iter()
            .map(|container| (container.text("name"), container))
            .collect();
        for (i, container) in status.items(list).iter().enumerate() {
            let path = path.child(list).index(i).child("allocatedResourcesStatus");
            let resources = container.items("allocatedResourcesStatus");
            // Ephemeral containers request no resources.
            if of == "ephemeralContainers" {
                if !resources.is_empty() {
                    errors.forbidden(&path, "must not be specified in container status");
                }
                continue;
            }
            // A status of a container that the spec does not have is reported elsewhere.
            let requested = containers.get(container.text("name"));
            let requested = requested.map(|container| RequestedResources::of(container));
            for (j, resource) in resources.iter().enumerate() {
                allocated(errors, resource, requested.as_ref(), &path.index(j));
            }
        }
    }
}

fn validate_user(errors: &mut Errors, user: &Value, path: &ErrorPath) {
    let mut check = |id: i64, path: &ErrorPath| {
        if !(0..=ID_MAX).contains(&id) {
            errors.invalid(path, id, names::inclusive_range(0, ID_MAX));
        }
    };
    for field in ["uid", "gid"] {
        check(user.int(field), &path.child(field));
    }
    for (i, group) in user.items("supplementalGroups").iter().enumerate() {
        let at = path.child("supplementalGroups").index(i);
        check(group.as_i64().unwrap_or(0), &at);
    }
}

/// The resources that a container requests.
struct RequestedResources<'a> {
    requests: &'a Value,
    /// The used claims by name, followed by a slash and the request if only one request is used.
    claims: HashSet<String>,
}

impl<'a> RequestedResources<'a> {
    fn of(container: &'a Value) -> Self {
        let resources = container.part("resources");
        let claims = resources.items("claims").iter();
        let claims = claims.map(|claim| match claim.text("request") {
            "" => claim.text("name").to_owned(),
            request => format!("{}/{request}", claim.text("name")),
        });
        Self {
            requests: resources.part("requests"),
            claims: claims.collect(),
        }
    }
}

fn allocated(
    errors: &mut Errors,
    resource: &Value,
    requested: Option<&RequestedResources<'_>>,
    path: &ErrorPath,
) {
    let name = resource.text("name");
    if let Some(requested) = requested {
        // A name with this prefix refers to a claim of the container.
        let (is_known, fault) = if let Some(claim) = name.strip_prefix("claim:") {
            (requested.claims.contains(claim), NOT_A_CLAIM)
        } else {
            let is_known = requested.requests.field(name).is_some();
            (
                is_known,
                "must match one of the container's resource requests",
            )
        };
        if !is_known {
            errors.invalid(&path.child("name"), name, fault);
        }
    }
    let mut seen = HashSet::new();
    for (i, resource) in resource.items("resources").iter().enumerate() {
        let path = path.child("resources").index(i);
        let health = resource.text("health");
        if !HEALTH.contains(&health) {
            errors.not_supported(&path.child("health"), health, &HEALTH);
        }
        let at = path.child("message");
        match resource.maybe_text("message") {
            Some("") => errors.required(&at, "must be non-empty if specified"),
            Some(text) if text.len() > MESSAGE_BYTES_MAX => {
                errors.too_long(&at, MESSAGE_BYTES_MAX);
            }
            _ => {}
        }
        let id = resource.text("resourceID");
        if !seen.insert(id) {
            errors.duplicate(&path.child("resourceID"), id);
        }
    }
}

/// Errors of the requests of a claim that represent extended resources of containers.
pub(super) fn validate_mappings(
    errors: &mut Errors,
    status: &Value,
    spec: &Value,
    path: &ErrorPath,
) {
    let lists = ["initContainers", "containers"].into_iter();
    let containers: HashMap<&str, &Value> = lists
        .flat_map(|list| spec.items(list))
        .map(|container| (container.text("name"), container))
        .collect();
    let mappings = status.items("requestMappings");
    let at = path.child("requestMappings");
    if mappings.is_empty() {
        errors.required(&at, "at least one request mapping is required");
    }
    let mut seen = HashSet::new();
    for (i, mapping) in mappings.iter().enumerate() {
        let at = at.index(i);
        let key = ["containerName", "resourceName", "requestName"].map(|f| (f, mapping.text(f)));
        let [(_, container), (_, resource), (_, request)] = key;
        match containers.get(container) {
            None => errors.invalid(
                &at.child("containerName"),
                container,
                "must match the name of an entry in spec.initContainers.name or spec.containers.name",
            ),
            // The container has to request the resource that the device provides.
            Some(spec) => {
                let requests = spec.part("resources").part("requests");
                if requests.field(resource).is_none() {
                    errors.invalid(
                        &at.child("resourceName"),
                        resource,
                        "must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests",
                    );
                }
            }
        }
        let faults = names::dns_label(request);
        errors.each_invalid(&path.child("requestName"), request, faults);
        if !seen.insert(key) {
            for (field, text) in key {
                errors.duplicate(&at.child(field), text);
            }
        }
    }
    let name = status.text("resourceClaimName");
    errors.check_name(&path.child("resourceClaimName"), name, names::dns_subdomain);
}
