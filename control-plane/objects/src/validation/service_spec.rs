//! The checks of a Service and of its changes. As in kube-apiserver, errors of the fields that determine addresses are
//! reported alone, before the other checks.

mod addresses;

use self::addresses::{families, kept, related_addresses};
use super::addresses::{validate_cidr, validate_endpoint, validate_ip};
use super::errors::{ErrorPath, Errors, Shown, json_text, struct_text};
use super::names;
use super::owner::Owner;
use super::service::{NODE_PORTS, is_external, is_headless, needs_health_check, needs_node_port};
use super::workloads::spec_of;
use crate::enumerations::values;
use crate::view::FieldView;
use serde_json::Value;
use std::collections::HashSet;

const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";
const TOPOLOGY_HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const NOT_CHANGED: &str = "may not change once set";
const LOAD_BALANCER_ONLY: &str = "may only be used when `type` is 'LoadBalancer'";
const AFFINITY_SECONDS_MAX: i64 = 86_400;
const PROTOCOLS: [&str; 3] = values!(core.v1.ServicePort.protocol);
const TRAFFIC_POLICIES: [&str; 2] = values!(core.v1.ServiceSpec.externalTrafficPolicy);
const TYPES: [&str; 4] = values!(core.v1.ServiceSpec.type);
const DISTRIBUTIONS: [&str; 3] = ["PreferClose", "PreferSameZone", "PreferSameNode"];

pub(crate) fn service(e: &mut Errors, owner: &Owner, service: &Value, _: &ErrorPath) {
    validate(e, service, owner.old)
}

fn validate(errors: &mut Errors, service: &Value, old: Option<&Value>) {
    let (spec, path) = (spec_of(service), ErrorPath::new("spec"));
    let before = old.map(spec_of);
    for check in [related_addresses, families, allocated] {
        check(errors, spec, before, &path);
        // Later checks rely on the families and addresses.
        if !errors.is_empty() {
            return;
        }
    }
    if let Some(before) = before {
        change(errors, spec, before, &path);
    }
    let annotations = service.part("metadata").part("annotations");
    topology_annotations(errors, annotations);
    kind_of_service(errors, spec, &path);
    ports(errors, spec, &path.child("ports"));
    super::selectors::validate_labels(errors, spec, "selector", &path.child("selector"));
    session_affinity(errors, spec, &path);
    related_addresses(errors, spec, before, &path);
    external_ips(errors, spec, before, &path.child("externalIPs"));
    let (kind, at) = (spec.text("type"), path.child("type"));
    if kind.is_empty() {
        errors.required(&at, "");
    } else if !TYPES.contains(&kind) {
        errors.not_supported(&at, kind, &TYPES);
    }
    node_ports(errors, spec, &path.child("ports"));
    let before_annotations = old.map(|old| old.part("metadata").part("annotations"));
    source_ranges(errors, spec, annotations, before_annotations);
    if spec.field("allocateLoadBalancerNodePorts").is_some() && kind != "LoadBalancer" {
        let at = path.child("allocateLoadBalancerNodePorts");
        errors.forbidden(&at, LOAD_BALANCER_ONLY);
    }
    load_balancer_class(errors, spec, &path.child("loadBalancerClass"));
    traffic(errors, spec, &path);
}

/// Node ports that the client asks for are in the range of the cluster. Addresses are allocated by the registry, which
/// knows the ranges.
fn allocated(errors: &mut Errors, spec: &Value, old: Option<&Value>, path: &ErrorPath) {
    if spec.text("type") == "ExternalName" {
        return;
    }
    if !needs_node_port(spec) {
        return;
    }
    let before = old.map_or(&[][..], |old| old.items("ports"));
    let known: HashSet<i64> = before.iter().map(|port| port.int("nodePort")).collect();
    for (i, port) in spec.items("ports").iter().enumerate() {
        let number = port.int("nodePort");
        if number != 0 && !NODE_PORTS.contains(&number) && !known.contains(&number) {
            let detail = format!(
                "provided port is not in the valid range. The range of valid ports is {}-{}",
                NODE_PORTS.start(),
                NODE_PORTS.end()
            );
            let at = path.child("ports").index(i).child("nodePort");
            errors.invalid(&at, number, detail);
            return;
        }
    }
}

/// Addresses and families are immutable; a second one may be added or removed.
fn change(errors: &mut Errors, spec: &Value, old: &Value, path: &ErrorPath) {
    let is_external_name = |spec: &Value| spec.text("type") == "ExternalName";
    if !is_external_name(spec) && !is_external_name(old) {
        if !(is_headless(spec) && is_headless(old)) {
            kept(errors, spec, old, "clusterIPs", "clusterIP", path);
        }
        if !is_headless(spec) && !is_headless(old) {
            kept(errors, spec, old, "ipFamilies", "ipFamily", path);
        }
    }
    let is_balanced = |spec: &Value| spec.text("type") == "LoadBalancer";
    let at = path.child("loadBalancerClass");
    let class = spec.field("loadBalancerClass");
    if is_balanced(spec) && is_balanced(old) && class != old.field("loadBalancerClass") {
        errors.invalid(
            &at,
            class.map_or_else(Shown::null, Shown::from),
            NOT_CHANGED,
        );
    }
    load_balancer_class(errors, spec, &at);
    let port = |spec: &Value| spec.int("healthCheckNodePort");
    if needs_health_check(spec) && needs_health_check(old) && port(spec) != port(old) {
        let at = path.child("healthCheckNodePort");
        errors.forbidden(&at, "field is immutable");
    }
}

fn topology_annotations(errors: &mut Errors, annotations: &Value) {
    let mode = annotations.maybe_text(TOPOLOGY_MODE);
    let hints = annotations.maybe_text(TOPOLOGY_HINTS);
    if let (Some(mode), Some(hints)) = (mode, hints)
        && mode != hints
    {
        let at = ErrorPath::new("metadata.annotations").key(TOPOLOGY_MODE);
        let detail = format!("must match annotations[{TOPOLOGY_HINTS}] when both are specified");
        errors.invalid(&at, mode, detail);
    }
}

fn kind_of_service(errors: &mut Errors, spec: &Value, path: &ErrorPath) {
    let kind = spec.text("type");
    if spec.items("ports").is_empty() && !is_headless(spec) && kind != "ExternalName" {
        errors.required(&path.child("ports"), "");
    }
    match kind {
        "LoadBalancer" | "NodePort" if is_headless(spec) => {
            let at = path.child("clusterIPs").index(0);
            let detail = format!("may not be set to 'None' for {kind} services");
            errors.invalid(&at, "None", detail);
        }
        "ExternalName" => {
            for field in ["clusterIPs", "ipFamilies"] {
                if !spec.items(field).is_empty() {
                    let detail = "may not be set for ExternalName services";
                    errors.forbidden(&path.child(field), detail);
                }
            }
            if spec.field("ipFamilyPolicy").is_some() {
                let detail = "may not be set for ExternalName services";
                errors.forbidden(&path.child("ipFamilyPolicy"), detail);
            }
            let name = spec.text("externalName");
            let name = name.strip_suffix('.').unwrap_or(name);
            errors.check_name(&path.child("externalName"), name, names::dns_subdomain);
        }
        _ => {}
    }
}

fn ports(errors: &mut Errors, spec: &Value, path: &ErrorPath) {
    let ports = spec.items("ports");
    let mut known = HashSet::new();
    for (i, port) in ports.iter().enumerate() {
        let path = path.index(i);
        let (name, at) = (port.text("name"), path.child("name"));
        if !name.is_empty() {
            errors.each_invalid(&at, name, names::dns_label(name));
            if !known.insert(name) {
                errors.duplicate(&at, name);
            }
        // With several ports, a name is the only way to choose one.
        } else if ports.len() > 1 {
            errors.required(&at, "");
        }
        let number = port.int("port");
        for fault in names::port_number(number) {
            errors.invalid(&path.child("port"), number, fault);
        }
        let (protocol, at) = (port.text("protocol"), path.child("protocol"));
        if protocol.is_empty() {
            errors.required(&at, "");
        } else if !PROTOCOLS.contains(&protocol) {
            errors.not_supported(&at, protocol, &PROTOCOLS);
        }
        let at = path.child("targetPort");
        match port.part("targetPort") {
            Value::String(name) => errors.each_invalid(&at, name, names::port_name(name)),
            number => {
                let number = number.as_i64().unwrap_or(0);
                for fault in names::port_number(number) {
                    errors.invalid(&at, number, fault);
                }
            }
        }
        if let Some(app) = port.maybe_text("appProtocol") {
            errors.each_invalid(&path.child("appProtocol"), app, names::qualified_name(app));
        }
    }
}

fn session_affinity(errors: &mut Errors, spec: &Value, path: &ErrorPath) {
    let (affinity, at) = (spec.text("sessionAffinity"), path.child("sessionAffinity"));
    let config = spec.field("sessionAffinityConfig");
    let config_path = path.child("sessionAffinityConfig");
    match affinity {
        "" => errors.required(&at, ""),
        "ClientIP" => affinity_config(errors, config, &config_path),
        "None" => {
            if config.is_some() {
                let detail = "must not be set when session affinity is None";
                errors.forbidden(&config_path, detail);
            }
        }
        other => errors.not_supported(&at, other, &values!(core.v1.ServiceSpec.sessionAffinity)),
    }
}

fn affinity_config(errors: &mut Errors, config: Option<&Value>, path: &ErrorPath) {
    let Some(config) = config else {
        errors.required(path, "when session affinity type is ClientIP");
        return;
    };
    let Some(client) = config.field("clientIP") else {
        let detail = "when session affinity type is ClientIP";
        errors.required(&path.child("clientIP"), detail);
        return;
    };
    let at = path.child("clientIP").child("timeoutSeconds");
    match client.maybe_int("timeoutSeconds") {
        None => errors.required(&at, "when session affinity type is ClientIP"),
        Some(seconds) if !(1..=AFFINITY_SECONDS_MAX).contains(&seconds) => {
            let detail = format!("must be greater than 0 and less than {AFFINITY_SECONDS_MAX}");
            errors.invalid(&at, seconds, detail);
        }
        Some(_) => {}
    }
}

fn external_ips(errors: &mut Errors, spec: &Value, old: Option<&Value>, path: &ErrorPath) {
    let known = old.map_or_else(Vec::new, |old| old.strings("externalIPs"));
    for (i, ip) in spec.strings("externalIPs").into_iter().enumerate() {
        let at = path.index(i);
        if known.contains(&ip) || validate_ip(errors, ip, &at) {
            validate_endpoint(errors, ip, &at);
        }
    }
}

fn node_ports(errors: &mut Errors, spec: &Value, path: &ErrorPath) {
    let ports = spec.items("ports");
    if spec.text("type") == "ClusterIP" {
        for (i, _) in ports
            .iter()
            .enumerate()
            .filter(|(_, p)| p.int("nodePort") != 0)
        {
            let at = path.index(i).child("nodePort");
            errors.forbidden(&at, "may not be used when `type` is 'ClusterIP'");
        }
    }
    let mut node_ports = HashSet::new();
    for (i, port) in ports.iter().enumerate() {
        let number = port.int("nodePort");
        if number != 0 && !node_ports.insert((port.text("protocol"), number)) {
            errors.duplicate(&path.index(i).child("nodePort"), number);
        }
    }
    // The protocol and the port identify an entry, not its name.
    let mut own = HashSet::new();
    for (i, port) in ports.iter().enumerate() {
        let (protocol, number) = (port.text("protocol"), port.int("port"));
        if !own.insert((protocol, number)) {
            let shown = struct_text(&[
                ("Name", json_text("")),
                ("Protocol", json_text(protocol)),
                ("AppProtocol", json_text(())),
                ("Port", json_text(number)),
                ("TargetPort", json_text(0)),
                ("NodePort", json_text(0)),
            ]);
            errors.duplicate(&path.index(i), Shown(shown));
        }
    }
}

/// The ranges are a field or, from before there was one, an annotation.
fn source_ranges(errors: &mut Errors, spec: &Value, annotations: &Value, before: Option<&Value>) {
    let is_balanced = spec.text("type") == "LoadBalancer";
    let ranges = spec.strings("loadBalancerSourceRanges");
    if !ranges.is_empty() {
        // Upstream names the field so.
        let path = ErrorPath::new("spec.LoadBalancerSourceRanges");
        if !is_balanced {
            errors.forbidden(&path, LOAD_BALANCER_ONLY);
        }
        for (i, range) in ranges.into_iter().enumerate() {
            validate_cidr(errors, range.trim(), &path.index(i));
        }
        return;
    }
    let Some(text) = annotations.maybe_text(SOURCE_RANGES) else {
        return;
    };
    let path = ErrorPath::new("metadata.annotations").key(SOURCE_RANGES);
    if !is_balanced {
        errors.forbidden(&path, LOAD_BALANCER_ONLY);
    }
    let same = before.is_some_and(|before| before.maybe_text(SOURCE_RANGES) == Some(text));
    if !same && !text.trim().is_empty() {
        for range in text.trim().split(',') {
            validate_cidr(errors, range.trim(), &path);
        }
    }
}

fn load_balancer_class(errors: &mut Errors, spec: &Value, path: &ErrorPath) {
    let Some(class) = spec.maybe_text("loadBalancerClass") else {
        return;
    };
    if spec.text("type") == "LoadBalancer" {
        errors.each_invalid(path, class, names::qualified_name(class));
    } else {
        errors.forbidden(path, LOAD_BALANCER_ONLY);
    }
}

fn traffic(errors: &mut Errors, spec: &Value, path: &ErrorPath) {
    let (policy, at) = (
        spec.text("externalTrafficPolicy"),
        path.child("externalTrafficPolicy"),
    );
    match policy {
        "" if is_external(spec) => errors.required(&at, ""),
        "" => {}
        _ if !is_external(spec) => {
            let detail = "may only be set for externally-accessible services";
            errors.invalid(&at, policy, detail);
        }
        "Cluster" | "Local" => {}
        other => errors.not_supported(&at, other, &TRAFFIC_POLICIES),
    }
    let (port, at) = (
        spec.int("healthCheckNodePort"),
        path.child("healthCheckNodePort"),
    );
    // Only load balancers with local traffic have the health check.
    if !needs_health_check(spec) {
        if port != 0 {
            let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            errors.invalid(&at, port, detail);
        }
    } else if port == 0 {
        errors.required(&at, "");
    } else {
        for fault in names::port_number(port) {
            errors.invalid(&at, port, fault);
        }
    }
    let at = path.child("internalTrafficPolicy");
    match spec.maybe_text("internalTrafficPolicy") {
        None if matches!(spec.text("type"), "NodePort" | "LoadBalancer" | "ClusterIP") => {
            errors.required(&at, "");
        }
        None | Some("Cluster" | "Local") => {}
        Some(other) => errors.not_supported(&at, other, &TRAFFIC_POLICIES),
    }
    if let Some(distribution) = spec.maybe_text("trafficDistribution")
        && !DISTRIBUTIONS.contains(&distribution)
    {
        let at = path.child("trafficDistribution");
        errors.not_supported(&at, distribution, &DISTRIBUTIONS);
    }
}

/// The addresses of a load balancer.
pub(crate) fn load_balancer_status(
    errors: &mut Errors,
    owner: &Owner,
    status: &Value,
    path: &ErrorPath,
) {
    let spec = spec_of(owner.value);
    let path = path.child("loadBalancer").child("ingress");
    let entries = |status: &Value| status.part("loadBalancer").items("ingress").to_vec();
    let given = entries(status);
    if spec.text("type") != "LoadBalancer" && !given.is_empty() {
        let detail = "may only be used when `spec.type` is 'LoadBalancer'";
        errors.forbidden(&path, detail);
        return;
    }
    let before = owner.old.map(|old| entries(old.part("status")));
    let before = before.unwrap_or_default();
    let before: HashSet<&str> = before.iter().map(|old| old.text("ip")).collect();
    for (i, ingress) in given.iter().enumerate() {
        let path = path.index(i);
        let ip = ingress.text("ip");
        // An address that is listed already may be of an older form.
        if !ip.is_empty() && !before.contains(ip) {
            validate_ip(errors, ip, &path.child("ip"));
        }
        let at = path.child("ipMode");
        match (ingress.maybe_text("ipMode"), ip.is_empty()) {
            (None, false) => errors.required(&at, "must be specified when `ip` is set"),
            (Some(_), true) => {
                errors.forbidden(&at, "may not be specified when `ip` is not set");
            }
            (Some(mode), false) if !matches!(mode, "Proxy" | "VIP") => {
                errors.not_supported(&at, mode, &["Proxy", "VIP"]);
            }
            _ => {}
        }
        if let Some(name) = ingress.maybe_text("hostname").filter(|n| !n.is_empty()) {
            super::addresses::host_name(errors, name, &path.child("hostname"));
        }
    }
}
