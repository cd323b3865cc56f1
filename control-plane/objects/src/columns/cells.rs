//! Cells that need more than one field, by their names in `facts/resources.txt`.

use super::text::{
    CellFn, NONE, UNKNOWN, UNSET, condition, first_of, flag, human_seconds, items, join, number,
    or, size, strings, text,
};
use super::{components, events, pods};
use crate::object::timestamp;
use crate::view::FieldView;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeSet;

/// A cell by its name.
pub(super) fn find(name: &str) -> Option<CellFn> {
    Some(match name {
        "api-available" => |o, _| {
            let available = condition(o, "Available");
            let shown = available.map(|c| match (text(c, "/status"), text(c, "/reason")) {
                (status @ "True", _) => status.to_owned(),
                (status, reason) => format!("{status} ({reason})"),
            });
            shown.unwrap_or_else(|| "Unknown".to_owned()).into()
        },
        "api-service" => |o, _| match o.pointer("/spec/service") {
            None | Some(Value::Null) => "Local".into(),
            Some(service) => {
                format!("{}/{}", text(service, "/namespace"), text(service, "/name")).into()
            }
        },
        "attach-required" => |o, _| {
            let required = o.part("spec").maybe_flag("attachRequired");
            required.unwrap_or(true).into()
        },
        "claim-capacity" => |o, _| bound(o, text(o, "/status/capacity/storage").to_owned()),
        "claim-modes" => |o, _| bound(o, access_modes(o, "/status/accessModes")),
        "claim-state" => |o, _| claim_state(o).into(),
        "class-name" => |o, _| class_name(o).into(),
        "class-parameters" => |o, _| class_parameters(o).into(),
        "containers" => |o, _| container(o, "/spec/template/spec/containers", "/name"),
        "images" => |o, _| container(o, "/spec/template/spec/containers", "/image"),
        "job-containers" => |o, _| {
            container(
                o,
                "/spec/jobTemplate/spec/template/spec/containers",
                "/name",
            )
        },
        "job-images" => |o, _| {
            container(
                o,
                "/spec/jobTemplate/spec/template/spec/containers",
                "/image",
            )
        },
        "template-containers" => |o, _| container(o, "/template/spec/containers", "/name"),
        "template-images" => |o, _| container(o, "/template/spec/containers", "/image"),
        "controller" => |o, _| controller(o).into(),
        "dangling" => |o, _| {
            let dangling = condition(o, "Dangling");
            dangling.map_or("?", |c| text(c, "/status")).into()
        },
        "csr-condition" => |o, _| csr_condition(o).into(),
        "csr-duration" => |o, _| match o.pointer("/spec/expirationSeconds") {
            Some(Value::Number(seconds)) => human_seconds(seconds.as_i64().unwrap_or(0)).into(),
            _ => NONE.into(),
        },
        "data-size" => |o, _| (size(o, "/data") + size(o, "/binaryData")).into(),
        "endpoints" => |o, _| endpoints(o).into(),
        "external-ip" => |o, _| address(o, "ExternalIP").into(),
        "internal-ip" => |o, _| address(o, "InternalIP").into(),
        "group-policy" => |o, _| {
            let gang = o.pointer("/spec/schedulingPolicy/gang").is_some();
            if gang { "Gang" } else { "Basic" }.into()
        },
        "group-status" => |o, _| group_status(o).into(),
        "groups" => |o, _| subjects(o, "Group").into(),
        "service-accounts" => |o, _| subjects(o, "ServiceAccount").into(),
        "users" => |o, _| subjects(o, "User").into(),
        "hpa-reference" => |o, _| {
            let target = |field| text(o, field);
            let (kind, name) = (
                target("/spec/scaleTargetRef/kind"),
                target("/spec/scaleTargetRef/name"),
            );
            format!("{kind}/{name}").into()
        },
        "hpa-targets" => |o, _| hpa_targets(o).into(),
        "ingress-address" => |o, _| balancers(o).join(",").into(),
        "ingress-hosts" => |o, _| ingress_hosts(o).into(),
        "ingress-ports" => |o, _| {
            let tls = !items(o, "/spec/tls").is_empty();
            if tls { "80, 443" } else { "80" }.into()
        },
        "job-completions" => |o, _| completions(o).into(),
        "job-duration" => |o, now| job_duration(o, now).into(),
        "job-status" => |o, _| job_status(o).into(),
        "kernel" => |o, _| kernel(o).into(),
        "param-kind" => |o, _| param_kind(o).into(),
        "parent-ref" => |o, _| parent_ref(o.part("spec").part("parentRef")).into(),
        "param-ref" => |o, _| param_ref(o).into(),
        "node-roles" => |o, _| node_roles(o).into(),
        "node-status" => |o, _| node_status(o).into(),
        "phase" => |o, _| phase(o).into(),
        "pod-ip" => |o, _| pods::ip(o),
        "pod-ready" => |o, _| pods::ready(o),
        "pod-restarts" => pods::restarts,
        "pod-status" => |o, _| pods::status(o),
        "readiness-gates" => |o, _| pods::readiness_gates(o),
        "quota-limits" => |o, _| quota(o, true).into(),
        "quota-requests" => |o, _| quota(o, false).into(),
        "ready-replicas" => |o, _| {
            let (ready, wanted) = (
                number(o, "/status/readyReplicas"),
                number(o, "/spec/replicas"),
            );
            format!("{ready}/{wanted}").into()
        },
        "role-ref" => {
            |o, _| format!("{}/{}", text(o, "/roleRef/kind"), text(o, "/roleRef/name")).into()
        }
        "service-external" => |o, _| service_external(o).into(),
        "service-ports" => |o, _| service_ports(o).into(),
        "slice-endpoints" => |o, _| slice_endpoints(o).into(),
        "slice-ports" => |o, _| slice_ports(o).into(),
        "suspend" => |o, _| {
            if flag(o, "/spec/suspend") {
                "True"
            } else {
                "False"
            }
            .into()
        },
        "token-requests" => |o, _| {
            let audiences = items(o, "/spec/tokenRequests")
                .iter()
                .map(|t| text(t, "/audience"));
            or(join(audiences), UNSET).into()
        },
        "volume-claim" => |o, _| match text(o, "/spec/claimRef/name") {
            "" => "".into(),
            name => format!("{}/{name}", text(o, "/spec/claimRef/namespace")).into(),
        },
        "volume-modes" => |o, _| access_modes(o, "/spec/accessModes").into(),
        _ => return components::find(name).or_else(|| events::find(name)),
    })
}

fn container(object: &Value, pointer: &str, field: &str) -> Value {
    join(items(object, pointer).iter().map(|c| text(c, field))).into()
}

/// A cell that only a bound claim has.
fn bound(claim: &Value, cell: String) -> Value {
    if text(claim, "/spec/volumeName").is_empty() {
        ""
    } else {
        &cell
    }
    .into()
}

fn access_modes(object: &Value, pointer: &str) -> String {
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let modes = strings(object, pointer);
    join(
        short
            .iter()
            .filter(|(mode, _)| modes.contains(mode))
            .map(|(_, s)| *s),
    )
}

/// The phase, or that the object is being deleted.
fn phase(object: &Value) -> &str {
    match object.pointer("/metadata/deletionTimestamp") {
        Some(_) => "Terminating",
        None => text(object, "/status/phase"),
    }
}

fn claim_state(claim: &Value) -> String {
    let mut states: Vec<&str> = Vec::new();
    if claim.pointer("/metadata/deletionTimestamp").is_some() {
        states.push("deleted");
    }
    if claim.pointer("/status/allocation").is_some() {
        states.push("allocated");
        if !items(claim, "/status/reservedFor").is_empty() {
            states.push("reserved");
        }
    } else if states.is_empty() {
        states.push("pending");
    }
    states.join(",")
}

fn class_name(class: &Value) -> String {
    let name = text(class, "/metadata/name");
    let is_default = text(
        class,
        "/metadata/annotations/storageclass.kubernetes.io~1is-default-class",
    );
    if is_default == "true" {
        format!("{name} (default)")
    } else {
        name.to_owned()
    }
}

fn class_parameters(class: &Value) -> String {
    let Some(parameters) = class.pointer("/spec/parameters") else {
        return NONE.to_owned();
    };
    let kind = match text(parameters, "/apiGroup") {
        "" => text(parameters, "/kind").to_owned(),
        group => format!("{}.{group}", text(parameters, "/kind")),
    };
    format!("{kind}/{}", text(parameters, "/name"))
}

fn controller(object: &Value) -> String {
    let owners = items(object, "/metadata/ownerReferences");
    let Some(owner) = owners.iter().find(|o| flag(o, "/controller")) else {
        return NONE.to_owned();
    };
    let kind = text(owner, "/kind").to_lowercase();
    let name = text(owner, "/name");
    match text(owner, "/apiVersion").split_once('/') {
        Some((group, _)) => format!("{kind}.{group}/{name}"),
        None => format!("{kind}/{name}"),
    }
}

/// At most three entries, and how many more there are.
fn shortened(entries: &[String], otherwise: &str) -> String {
    const SHOWN_MAX: usize = 3;
    match entries.get(..SHOWN_MAX) {
        Some(shown) if entries.len() > SHOWN_MAX => {
            let more = entries.len() - SHOWN_MAX;
            format!("{} + {more} more...", shown.join(","))
        }
        _ => or(entries.join(","), otherwise),
    }
}

fn endpoints(object: &Value) -> String {
    let mut shown = Vec::new();
    for subset in items(object, "/subsets") {
        for port in items(subset, "/ports") {
            for address in items(subset, "/addresses") {
                shown.push(format!(
                    "{}:{}",
                    text(address, "/ip"),
                    number(port, "/port")
                ));
            }
        }
    }
    shortened(&shown, NONE)
}

fn slice_endpoints(slice: &Value) -> String {
    let addresses: Vec<String> = items(slice, "/endpoints")
        .iter()
        .flat_map(|e| strings(e, "/addresses"))
        .map(str::to_owned)
        .collect();
    shortened(&addresses, UNSET)
}

fn slice_ports(slice: &Value) -> String {
    let ports: Vec<String> = items(slice, "/ports")
        .iter()
        .map(|p| match p.maybe_int("port") {
            Some(port) => port.to_string(),
            None => "*".to_owned(),
        })
        .collect();
    shortened(&ports, UNSET)
}

fn address<'a>(node: &'a Value, kind: &str) -> &'a str {
    let mut addresses = items(node, "/status/addresses").iter();
    addresses
        .find(|a| text(a, "/type") == kind)
        .map_or(NONE, |a| text(a, "/address"))
}

fn kernel(node: &Value) -> String {
    let kernel = or(
        text(node, "/status/nodeInfo/kernelVersion").to_owned(),
        UNKNOWN,
    );
    match text(node, "/status/nodeInfo/architecture") {
        "" => kernel,
        architecture => format!("{kernel} ({architecture})"),
    }
}

fn node_status(node: &Value) -> String {
    let status = match condition(node, "Ready").map(|c| text(c, "/status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    if flag(node, "/spec/unschedulable") {
        format!("{status},SchedulingDisabled")
    } else {
        status.to_owned()
    }
}

fn node_roles(node: &Value) -> String {
    let labels = node.part("metadata").map("labels");
    let roles: BTreeSet<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.as_str() {
            "kubernetes.io/role" => value.as_str(),
            key => key.strip_prefix("node-role.kubernetes.io/"),
        })
        .filter(|role| !role.is_empty())
        .collect();
    or(join(roles.into_iter()), NONE)
}

fn csr_condition(request: &Value) -> String {
    let has = |kind| condition(request, kind).is_some();
    let mut shown = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (_, true) => "Approved",
        _ => "Pending",
    }
    .to_owned();
    if has("Failed") {
        shown += ",Failed";
    }
    if !text(request, "/status/certificate").is_empty() {
        shown += ",Issued";
    }
    shown
}

fn param_kind(policy: &Value) -> String {
    let field = |name| text(policy, name);
    match policy.pointer("/spec/paramKind") {
        None | Some(Value::Null) => UNSET.to_owned(),
        Some(_) => format!(
            "{}/{}",
            field("/spec/paramKind/apiVersion"),
            field("/spec/paramKind/kind")
        ),
    }
}

/// The object of an IPAddress.
fn parent_ref(parent: &Value) -> String {
    if parent.is_null() {
        return "<none>".to_owned();
    }
    let mut parts = vec![match parent.text("group") {
        "" => parent.text("resource").to_owned(),
        group => format!("{}.{group}", parent.text("resource")),
    }];
    let (namespace, name) = (parent.text("namespace"), parent.text("name"));
    parts.extend((!namespace.is_empty()).then(|| namespace.to_owned()));
    parts.push(name.to_owned());
    parts.join("/").to_lowercase()
}

fn param_ref(binding: &Value) -> String {
    let selector = binding.pointer("/spec/paramRef/selector");
    let namespace = text(binding, "/spec/paramRef/namespace");
    match (text(binding, "/spec/paramRef/name"), selector) {
        ("", None | Some(Value::Null)) => UNSET.to_owned(),
        ("", Some(selector)) => selector.to_string(),
        (name, _) if namespace.is_empty() => format!("*/{name}"),
        (name, _) => format!("{namespace}/{name}"),
    }
}

fn group_status(group: &Value) -> String {
    if let Some(target) = condition(group, "DisruptionTarget") {
        return text(target, "/reason").to_owned();
    }
    let scheduled = format!("{}InitiallyScheduled", text(group, "/kind"));
    match condition(group, &scheduled).map(|c| text(c, "/status")) {
        None => "Pending",
        Some("True") => "Scheduled",
        Some(_) => "Unschedulable",
    }
    .to_owned()
}

fn subjects(binding: &Value, kind: &str) -> String {
    let names: Vec<String> = items(binding, "/subjects")
        .iter()
        .filter(|s| text(s, "/kind") == kind)
        .map(|s| match text(s, "/namespace") {
            namespace if kind == "ServiceAccount" => format!("{namespace}/{}", text(s, "/name")),
            _ => text(s, "/name").to_owned(),
        })
        .collect();
    names.join(", ")
}

fn hpa_targets(hpa: &Value) -> String {
    const SHOWN_MAX: usize = 2;
    let metrics = items(hpa, "/spec/metrics");
    let current = items(hpa, "/status/currentMetrics");
    let shown: Vec<String> = metrics
        .iter()
        .take(SHOWN_MAX)
        .enumerate()
        .map(|(i, metric)| {
            let source = match text(metric, "/type") {
                "ContainerResource" => "containerResource",
                "Resource" => "resource",
                "Pods" => "pods",
                "Object" => "object",
                _ => "external",
            };
            // The status lists metrics in the order of the spec.
            let now = current.get(i).and_then(|m| m.get(source)?.get("current"));
            let target = metric
                .get(source)
                .and_then(|m| m.get("target"))
                .unwrap_or(&Value::Null);
            let name = text(metric, &format!("/{source}/name"));
            let prefix = if name.is_empty() {
                String::new()
            } else {
                format!("{name}: ")
            };
            if let Some(percent) = target.maybe_int("averageUtilization") {
                let now = now.and_then(|n| n.get("averageUtilization")?.as_i64());
                let now = now.map_or(UNKNOWN.to_owned(), |n| format!("{n}%"));
                return format!("{prefix}{now}/{percent}%");
            }
            let field = if target.get("averageValue").is_some() {
                "/averageValue"
            } else {
                "/value"
            };
            let now = or(now.map_or("", |n| text(n, field)).to_owned(), UNKNOWN);
            format!("{prefix}{now}/{}", text(target, field))
        })
        .collect();
    match metrics.len().checked_sub(SHOWN_MAX) {
        Some(more) if more > 0 => format!("{} + {more} more...", shown.join(", ")),
        _ => or(shown.join(", "), NONE),
    }
}

fn ingress_hosts(ingress: &Value) -> String {
    let hosts: Vec<String> = items(ingress, "/spec/rules")
        .iter()
        .map(|r| text(r, "/host").to_owned())
        .filter(|h| !h.is_empty())
        .collect();
    shortened(&hosts, "*")
}

/// The addresses of load balancers.
fn balancers(object: &Value) -> Vec<&str> {
    let ingress = items(object, "/status/loadBalancer/ingress").iter();
    ingress
        .map(|i| first_of(i, &["/ip", "/hostname"]))
        .collect()
}

fn completions(job: &Value) -> String {
    let succeeded = number(job, "/status/succeeded");
    if let Some(wanted) = job.part("spec").maybe_int("completions") {
        return format!("{succeeded}/{wanted}");
    }
    match number(job, "/spec/parallelism") {
        parallelism if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        _ => format!("{succeeded}/1"),
    }
}

fn job_duration(job: &Value, now: Timestamp) -> String {
    let time = |pointer| timestamp(text(job, pointer));
    let Some(start) = time("/status/startTime") else {
        return String::new();
    };
    let end = time("/status/completionTime").unwrap_or(now);
    human_seconds(end.duration_since(start).as_secs())
}

fn job_status(job: &Value) -> &'static str {
    let has = |kind| condition(job, kind).is_some_and(|c| text(c, "/status") == "True");
    let is_deleted = job.pointer("/metadata/deletionTimestamp").is_some();
    let ended = ["Complete", "Failed"].into_iter().find(|kind| has(kind));
    let deleted = is_deleted.then_some("Terminating");
    let going = ["Suspended", "FailureTarget", "SuccessCriteriaMet"]
        .into_iter()
        .find(|kind| has(kind));
    ended.or(deleted).or(going).unwrap_or("Running")
}

fn quota(quota: &Value, limits: bool) -> String {
    let hard = quota.part("status").map("hard");
    let shown: Vec<String> = hard
        .into_iter()
        .flatten()
        .filter(|(resource, _)| resource.starts_with("limits.") == limits)
        .map(|(resource, hard)| {
            let used = quota
                .pointer("/status/used")
                .and_then(|u| u.get(resource)?.as_str());
            format!(
                "{resource}: {}/{}",
                used.unwrap_or("0"),
                hard.as_str().unwrap_or("")
            )
        })
        .collect();
    shown.join(", ")
}

fn service_external(service: &Value) -> String {
    let mut ips = strings(service, "/spec/externalIPs");
    match text(service, "/spec/type") {
        "ExternalName" => or(text(service, "/spec/externalName").to_owned(), NONE),
        "LoadBalancer" => {
            ips.splice(0..0, balancers(service));
            or(ips.join(","), "<pending>")
        }
        _ => or(ips.join(","), NONE),
    }
}

fn service_ports(service: &Value) -> String {
    let ports: Vec<String> = items(service, "/spec/ports")
        .iter()
        .map(|p| {
            let (port, protocol) = (number(p, "/port"), text(p, "/protocol"));
            match number(p, "/nodePort") {
                0 => format!("{port}/{protocol}"),
                node_port => format!("{port}:{node_port}/{protocol}"),
            }
        })
        .collect();
    or(ports.join(","), NONE)
}
