//! ResourceQuota: the usage of an object, the quotas that count it, and their remaining amounts.
//!
//! Admission and the resource quota controller count with the same functions.

mod pods;

pub use pods::PodQuota;

use crate::access::GroupResource;
use crate::object::{self, time};
use crate::pod;
use crate::validation::amounts::{self, Amounts};
use crate::validation::pod::requests;
use crate::view::FieldView;
use berth_api::quantity::QuantityFormat;
use berth_api::requests::{SumOptions, pod_limits, pod_requests};
use berth_api::{Quantity, ResourceList};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Resources of pods. `pods` counts pods that have not ended, `count/pods` all pods.
const OF_PODS: [&str; 10] = [
    "pods",
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
];
/// Each container of a pod must state these where a quota counts them.
const STATED: [&str; 6] = [
    "cpu",
    "memory",
    "requests.cpu",
    "requests.memory",
    "limits.cpu",
    "limits.memory",
];
const OF_SERVICES: [&str; 3] = ["services", "services.loadbalancers", "services.nodeports"];
const OF_CLAIMS: [&str; 2] = ["persistentvolumeclaims", "requests.storage"];
const OF_CLASSES: &str = ".storageclass.storage.k8s.io/";
const OF_DEVICE_CLASSES: &str = ".deviceclass.resource.k8s.io/devices";
/// The number of devices that a request for all devices counts as: the maximum that it may get.
const DEVICES_MAX: i64 = 32;

fn units(number: i64) -> Quantity {
    Quantity::from_value(number, QuantityFormat::DecimalSI)
}

/// `count/pods`, `count/jobs.batch`.
fn count_name(kind: GroupResource) -> String {
    match kind.group {
        "" => format!("count/{}", kind.resource),
        group => format!("count/{}.{group}", kind.resource),
    }
}

/// Returns whether a quota on `name` counts objects of this kind.
pub fn tracks(kind: GroupResource, name: &str) -> bool {
    let is_own = match (kind.group, kind.resource) {
        ("", "pods") => {
            let request = name.strip_prefix("requests.");
            OF_PODS.contains(&name)
                || amounts::is_huge_page(request.unwrap_or(name))
                || request.is_some_and(|r| !amounts::is_native(r) || r.starts_with("deviceclass."))
        }
        ("", "services") => OF_SERVICES.contains(&name),
        ("", "persistentvolumeclaims") => {
            let suffix = name.split_once(OF_CLASSES).map(|(_, suffix)| suffix);
            OF_CLAIMS.contains(&suffix.unwrap_or(name))
        }
        ("", "configmaps" | "secrets" | "replicationcontrollers" | "resourcequotas") => {
            name == kind.resource
        }
        ("resource.k8s.io", "resourceclaims") => name.ends_with(OF_DEVICE_CLASSES),
        _ => false,
    };
    is_own || name == count_name(kind)
}

/// The resources that an object uses, by the names of quotas.
pub fn usage(kind: GroupResource, object: &Value, now: Timestamp) -> Amounts {
    let mut used = Amounts::from([(count_name(kind), units(1))]);
    let spec = object.part("spec");
    let mut put = |name: &str, amount: Quantity| {
        used.insert(name.to_owned(), amount);
    };
    match (kind.group, kind.resource) {
        ("", "pods") if is_counted(object, now) => {
            if let Ok(pod) = object::decoded_pod(object) {
                let requests = pod_requests(&pod, SumOptions::PLACED);
                used.extend(of_resources(&named(&requests), &named(&pod_limits(&pod))));
            }
        }
        ("", "services") => {
            let (ports, kind) = (spec.items("ports"), spec.text("type"));
            let balanced = kind == "LoadBalancer";
            let nodes = match kind {
                "LoadBalancer"
                    if spec.maybe_flag("allocateLoadBalancerNodePorts") == Some(false) =>
                {
                    ports.iter().filter(|p| p.int("nodePort") != 0).count()
                }
                "LoadBalancer" | "NodePort" => ports.len(),
                _ => 0,
            };
            put("services", units(1));
            put("services.loadbalancers", units(balanced.into()));
            put(
                "services.nodeports",
                units(i64::try_from(nodes).unwrap_or(i64::MAX)),
            );
        }
        ("", "persistentvolumeclaims") => {
            let class = object
                .part("metadata")
                .part("annotations")
                .maybe_text("volume.beta.kubernetes.io/storage-class")
                .unwrap_or(spec.text("storageClassName"));
            let asked = amounts::get(spec.part("resources"), "requests", "storage");
            let given = amounts::get(object.part("status"), "allocatedResources", "storage");
            let mut both = vec![("persistentvolumeclaims", units(1))];
            both.extend(asked.map(|q| ("requests.storage", given.map_or(q, |given| q.max(given)))));
            for (name, amount) in both {
                put(name, amount);
                if !class.is_empty() {
                    put(&format!("{class}{OF_CLASSES}{name}"), amount);
                }
            }
        }
        ("", "configmaps" | "secrets" | "replicationcontrollers" | "resourcequotas") => {
            put(kind.resource, units(1));
        }
        ("resource.k8s.io", "resourceclaims") => {
            for request in spec.part("devices").items("requests") {
                // Of alternatives, the most is counted for each class.
                let mut most = Amounts::new();
                let exact = request.field("exactly").into_iter();
                for option in exact.chain(request.items("firstAvailable")) {
                    let devices = match option.text("allocationMode") {
                        "All" => DEVICES_MAX,
                        _ => option.maybe_int("count").unwrap_or(1),
                    };
                    let name = format!("{}{OF_DEVICE_CLASSES}", option.text("deviceClassName"));
                    let slot = most.entry(name).or_default();
                    *slot = (*slot).max(units(devices));
                }
                requests::add(&mut used, &most);
            }
        }
        _ => {}
    }
    used
}

fn named(list: &ResourceList) -> Amounts {
    list.iter()
        .map(|(name, q)| (name.to_string(), *q))
        .collect()
}

/// Requests and limits by the names of quotas.
fn of_resources(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut used = Amounts::from([("pods".to_owned(), units(1))]);
    for (name, amount) in requests {
        if OF_PODS.contains(&name.as_str()) || amounts::is_huge_page(name) {
            used.insert(name.clone(), *amount);
        } else if !amounts::is_extended(name) {
            continue;
        }
        used.insert(format!("requests.{name}"), *amount);
    }
    for (name, amount) in limits {
        let name = format!("limits.{name}");
        if OF_PODS.contains(&name.as_str()) {
            used.insert(name, *amount);
        }
    }
    used
}

/// Returns whether the resources of a pod count: it has not ended, and its grace period is not over.
fn is_counted(pod: &Value, now: Timestamp) -> bool {
    let metadata = pod.part("metadata");
    let grace = metadata.maybe_int("deletionGracePeriodSeconds");
    let ends = time(metadata.part("deletionTimestamp")).zip(grace);
    let ends = ends.and_then(|(at, grace)| at.checked_add(SignedDuration::from_secs(grace)).ok());
    !pod::is_terminal(pod) && ends.is_none_or(|end| now <= end)
}

/// Returns whether an object is in all scopes of a quota.
pub fn is_in_scope(quota: &Value, kind: GroupResource, object: &Value) -> bool {
    let spec = quota.part("spec");
    let scopes = spec.strings("scopes").into_iter();
    let selector = spec.part("scopeSelector").items("matchExpressions");
    scopes
        .map(|scope| (scope, &Value::Null))
        .chain(selector.iter().map(|term| (term.text("scopeName"), term)))
        .all(|(scope, term)| match (kind.group, kind.resource) {
            ("", "pods") => is_pod_in(scope, term, object),
            ("", "persistentvolumeclaims") if scope == "VolumeAttributesClass" => {
                let status = object.part("status");
                let names = [
                    object.part("spec").text("volumeAttributesClassName"),
                    status.text("currentVolumeAttributesClassName"),
                    status
                        .part("modifyVolumeStatus")
                        .text("targetVolumeAttributesClassName"),
                ];
                matches_names(term, &names)
            }
            _ => false,
        })
}

fn is_pod_in(scope: &str, term: &Value, pod: &Value) -> bool {
    let spec = pod.part("spec");
    let is_best_effort = || match pod.part("status").text("qosClass") {
        // The status may not be set yet when the pod is created.
        "" => requests::qos_class(spec) == "BestEffort",
        class => class == "BestEffort",
    };
    let has_deadline = spec
        .maybe_int("activeDeadlineSeconds")
        .is_some_and(|s| s >= 0);
    match scope {
        "Terminating" => has_deadline,
        "NotTerminating" => !has_deadline,
        "BestEffort" => is_best_effort(),
        "NotBestEffort" => !is_best_effort(),
        "PriorityClass" => matches_names(term, &[spec.text("priorityClassName")]),
        "CrossNamespacePodAffinity" => {
            let affinity = spec.part("affinity");
            let terms = ["podAffinity", "podAntiAffinity"]
                .into_iter()
                .flat_map(|kind| {
                    let kind = affinity.part(kind);
                    let preferred = kind.items("preferredDuringSchedulingIgnoredDuringExecution");
                    let preferred = preferred.iter().map(|t| t.part("podAffinityTerm"));
                    let required = kind.items("requiredDuringSchedulingIgnoredDuringExecution");
                    required.iter().chain(preferred)
                });
            let mut terms = terms;
            terms.any(|t| {
                !t.items("namespaces").is_empty() || t.field("namespaceSelector").is_some()
            })
        }
        _ => false,
    }
}

/// Returns whether one of the names satisfies a term of a scope selector; empty names are absent.
fn matches_names(term: &Value, names: &[&str]) -> bool {
    let values = term.strings("values");
    let mut given = names.iter().filter(|name| !name.is_empty());
    match term.text("operator") {
        "In" => given.any(|name| values.contains(name)),
        "NotIn" => {
            let mut given = given.peekable();
            given.peek().is_none() || given.any(|name| !values.contains(name))
        }
        "DoesNotExist" => given.next().is_none(),
        _ => given.next().is_some(),
    }
}

/// A quota that counts `more` in addition, or the message that this is too much.
pub fn charged(quota: &Value, more: &Amounts) -> Result<Value, String> {
    let status = quota.part("status");
    let (hard, mut used) = (amounts::list(status, "hard"), amounts::list(status, "used"));
    let mut exceeded = [const { Vec::new() }; 3];
    for (name, amount) in more {
        let (Some(hard), Some(used)) = (hard.get(name), used.get_mut(name)) else {
            continue;
        };
        let before = *used;
        *used += *amount;
        if *used > *hard {
            for (list, shown) in exceeded.iter_mut().zip([*amount, before, *hard]) {
                list.push(format!("{name}={shown}"));
            }
        }
    }
    let [requested, before, limited] = exceeded.map(|list| list.join(","));
    if !requested.is_empty() {
        let name = quota.part("metadata").text("name");
        return Err(format!(
            "exceeded quota: {name}, requested: {requested}, used: {before}, limited: {limited}"
        ));
    }
    let mut quota = quota.clone();
    quota["status"]["used"] = shown(&used);
    Ok(quota)
}

/// Amounts as a list of resources.
pub fn shown(amounts: &Amounts) -> Value {
    let entries = amounts
        .iter()
        .map(|(name, q)| (name.clone(), q.to_string().into()));
    Value::Object(entries.collect::<Map<_, _>>())
}

/// The resources that containers do not state although a quota counts it: `limits.cpu for: a,b; memory for: c`.
pub fn unstated(spec: &Value, counted: &BTreeSet<&str>) -> Option<String> {
    let of_pod = spec.part("resources");
    // With pod-level resources, containers need not state their own.
    if ["requests", "limits"]
        .iter()
        .any(|list| !of_pod.entries(list).is_empty())
    {
        return None;
    }
    let containers = ["containers", "initContainers"];
    let stated: Vec<(&str, Amounts)> = containers
        .iter()
        .flat_map(|list| spec.items(list))
        .map(|container| {
            let own = |list| amounts::list(container.part("resources"), list);
            (
                container.text("name"),
                of_resources(&own("requests"), &own("limits")),
            )
        })
        .collect();
    let missing: Vec<String> = counted
        .iter()
        .filter(|resource| STATED.contains(*resource))
        .filter_map(|resource| {
            let without = stated
                .iter()
                .filter(|(_, own)| !own.contains_key(*resource));
            let names: BTreeSet<&str> = without.map(|(name, _)| *name).collect();
            let names: Vec<&str> = names.into_iter().collect();
            (!names.is_empty()).then(|| format!("{resource} for: {}", names.join(",")))
        })
        .collect();
    (!missing.is_empty()).then(|| missing.join("; "))
}
