//! The checks that the tables cannot express for Ingresses, IngressClasses, NetworkPolicies, Endpoints and
//! EndpointSlices.

use super::addresses::{validate_cidr, validate_endpoint, validate_ip};
use super::errors::{ErrorPath, Errors};
use super::names;
use super::owner::Owner;
use crate::enumerations::values;
use crate::view::FieldView;
use serde_json::Value;
use std::collections::HashSet;
use std::net::IpAddr;

const PATH_TYPES: [&str; 3] = values!(networking.v1.HTTPIngressPath.pathType);
const CONTROLLER_BYTES_MAX: usize = 250;
const HINTS_MAX: usize = 8;
const PROTOCOLS: [&str; 3] = values!(core.v1.EndpointPort.protocol);
const SLICE_ENDPOINTS_MAX: usize = 1_000;
const SLICE_ADDRESSES_MAX: usize = 100;
const SLICE_PORTS_MAX: usize = 20_000;
const TOPOLOGY_MAX: usize = 16;
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

pub(crate) fn ingress(e: &mut Errors, _: &Owner, spec: &Value, path: &ErrorPath) {
    if spec.items("rules").is_empty() && spec.field("defaultBackend").is_none() {
        e.invalid(
            path,
            spec.part("rules"),
            "either `defaultBackend` or `rules` must be specified",
        );
    }
}

pub(crate) fn ingress_backend(e: &mut Errors, _: &Owner, backend: &Value, path: &ErrorPath) {
    if !backend.is_null() {
        backend_of(e, backend, path);
    }
}

pub(crate) fn ingress_host(e: &mut Errors, _: &Owner, host: &Value, path: &ErrorPath) {
    let host = host.as_str().unwrap_or("");
    if names::parse_ip(host).is_some() {
        e.invalid(path, host, "must be a DNS name, not an IP address");
    }
    let faults = host_faults(host);
    e.each_invalid(path, host, faults);
}

pub(crate) fn ingress_hosts(e: &mut Errors, _: &Owner, hosts: &Value, path: &ErrorPath) {
    for (i, host) in hosts.as_array().into_iter().flatten().enumerate() {
        let host = host.as_str().unwrap_or("");
        e.each_invalid(&path.index(i), host, host_faults(host));
    }
}

pub(crate) fn ingress_names_one_class(
    e: &mut Errors,
    owner: &Owner,
    ingress: &Value,
    _: &ErrorPath,
) {
    let name = ingress.part("spec").maybe_text("ingressClassName");
    let annotations = ingress.part("metadata").part("annotations");
    let annotation = annotations.maybe_text(CLASS_ANNOTATION);
    if let (Some(name), Some(annotation), None) = (name, annotation, owner.old)
        && name != annotation
    {
        let path = ErrorPath::new("annotations").child(CLASS_ANNOTATION);
        let detail = "must match `ingressClassName` when both are specified";
        e.invalid(&path, annotation, detail);
    }
}

pub(crate) fn policy_type_count(e: &mut Errors, _: &Owner, types: &Value, path: &ErrorPath) {
    if types.as_array().is_some_and(|types| types.len() > 2) {
        e.invalid(path, types, "may not specify more than two policyTypes");
    }
}

/// The faults of a host name; its first label may be `*`.
fn host_faults(host: &str) -> Vec<String> {
    if host.contains('*') {
        return names::wildcard_dns_subdomain(host);
    }
    names::dns_subdomain(host)
}

pub(crate) fn ingress_path(errors: &mut Errors, _: &Owner, rule: &Value, path: &ErrorPath) {
    let Some(kind) = rule.maybe_text("pathType") else {
        errors.required(&path.child("pathType"), "pathType must be specified");
        return;
    };
    let (text, at) = (rule.text("path"), path.child("path"));
    let is_absolute = text.starts_with('/');
    match kind {
        "Exact" | "Prefix" => {
            if !is_absolute {
                errors.invalid(&at, text, "must be an absolute path");
            }
            // These parts could be read as another path.
            for part in ["//", "/./", "/../", "%2f", "%2F"] {
                if text.contains(part) {
                    errors.invalid(&at, text, format!("must not contain '{part}'"));
                }
            }
            for end in ["/..", "/."] {
                if text.ends_with(end) {
                    errors.invalid(&at, text, format!("cannot end with '{end}'"));
                }
            }
        }
        "ImplementationSpecific" => {
            if !text.is_empty() && !is_absolute {
                errors.invalid(&at, text, "must be an absolute path");
            }
        }
        other => errors.not_supported(&path.child("pathType"), other, &PATH_TYPES),
    }
    backend_of(errors, rule.part("backend"), &path.child("backend"));
}

fn backend_of(errors: &mut Errors, backend: &Value, path: &ErrorPath) {
    let service = match (backend.field("resource"), backend.field("service")) {
        (Some(_), Some(_)) => {
            let detail = "cannot set both resource and service backends";
            errors.invalid(path, "", detail);
            return;
        }
        (Some(resource), None) => {
            reference(errors, resource, &path.child("resource"));
            // A resource backend has no port.
            return;
        }
        (None, Some(service)) => service,
        (None, None) => {
            errors.invalid(path, "", "resource or service backend is required");
            return;
        }
    };
    let at = path.child("service");
    errors.check_name(&at.child("name"), service.text("name"), names::dns_label);
    let port = service.part("port");
    let at = at.child("port");
    match (port.text("name"), port.int("number")) {
        ("", 0) => errors.required(path, "port name or number is required"),
        ("", number) => {
            for fault in names::port_number(number) {
                errors.invalid(&at.child("number"), number, fault);
            }
        }
        (name, 0) => errors.each_invalid(&at.child("name"), name, names::port_name(name)),
        _ => errors.invalid(path, "", "cannot set both port name & port number"),
    }
}

/// A reference to an object in the same namespace.
fn reference(errors: &mut Errors, reference: &Value, path: &ErrorPath) {
    if let Some(group) = reference.maybe_text("apiGroup") {
        errors.each_invalid(&path.child("apiGroup"), group, names::dns_subdomain(group));
    }
    for field in ["kind", "name"] {
        let text = reference.text(field);
        errors.check_name(&path.child(field), text, |text| {
            names::path_segment(text, false)
        });
    }
}

pub(crate) fn ingress_class(errors: &mut Errors, _: &Owner, spec: &Value, path: &ErrorPath) {
    let (controller, at) = (spec.text("controller"), path.child("controller"));
    if controller.len() > CONTROLLER_BYTES_MAX {
        errors.too_long(&at, CONTROLLER_BYTES_MAX);
    }
    super::small::domain_prefixed_path(errors, controller, &at);
    let Some(parameters) = spec.field("parameters") else {
        return;
    };
    let path = path.child("parameters");
    reference(errors, parameters, &path);
    let at = path.child("namespace");
    let namespace = parameters.maybe_text("namespace");
    match (parameters.maybe_text("scope"), namespace) {
        (None, _) => errors.required(&path.child("scope"), ""),
        (Some("Namespace"), None) => {
            errors.required(&at, "`parameters.scope` is set to 'Namespace'");
        }
        (Some("Namespace"), Some(name)) => errors.each_invalid(&at, name, names::dns_label(name)),
        (Some("Cluster"), Some(_)) => {
            errors.forbidden(&at, "`parameters.scope` is set to 'Cluster'");
        }
        (Some("Cluster"), None) => {}
        (Some(other), _) => {
            errors.not_supported(&path.child("scope"), other, &["Cluster", "Namespace"]);
        }
    }
}

pub(crate) fn ip_block(errors: &mut Errors, _: &Owner, block: &Value, path: &ErrorPath) {
    let text = block.text("cidr");
    let at = path.child("cidr");
    if text.is_empty() {
        errors.required(&at, "");
        return;
    }
    validate_cidr(errors, text, &at);
    let Some(whole) = names::parse_cidr(text) else {
        return;
    };
    for (i, except) in block.strings("except").into_iter().enumerate() {
        let at = path.child("except").index(i);
        validate_cidr(errors, except, &at);
        if let Some(part) = names::parse_cidr(except)
            && !is_strict_subset(part, whole)
        {
            errors.invalid(&at, except, "must be a strict subset of `cidr`");
        }
    }
}

/// Returns whether a range is within another, larger one. A range is an address and the number of its fixed bits.
fn is_strict_subset(part: (IpAddr, u8), whole: (IpAddr, u8)) -> bool {
    let (part_bits, whole_bits) = (part.1, whole.1);
    let same = match (part.0, whole.0) {
        (IpAddr::V4(part), IpAddr::V4(whole)) => {
            u64::from(part.to_bits() ^ whole.to_bits()) >> 32_u8.saturating_sub(whole_bits) == 0
        }
        (IpAddr::V6(part), IpAddr::V6(whole)) => {
            let difference = part.to_bits() ^ whole.to_bits();
            whole_bits == 0 || difference >> 128_u8.saturating_sub(whole_bits) == 0
        }
        _ => false,
    };
    same && part_bits > whole_bits
}

pub(crate) fn policy_port(errors: &mut Errors, _: &Owner, port: &Value, path: &ErrorPath) {
    let end = port.maybe_int("endPort");
    let end_path = path.child("endPort");
    let at = path.child("port");
    match port.field("port") {
        None => {
            if let Some(end) = end {
                let detail = "may not be specified when `port` is not specified";
                errors.invalid(&end_path, end, detail);
            }
        }
        Some(Value::String(name)) => {
            if let Some(end) = end {
                let detail = "may not be specified when `port` is non-numeric";
                errors.invalid(&end_path, end, detail);
            }
            errors.each_invalid(&at, name, names::port_name(name));
        }
        Some(number) => {
            let number = number.as_i64().unwrap_or(0);
            for fault in names::port_number(number) {
                errors.invalid(&at, number, fault);
            }
            let Some(end) = end else { return };
            // The range ends where it begins, at the earliest.
            if end < number {
                let detail = "must be greater than or equal to `port`";
                errors.invalid(&end_path, number, detail);
            }
            for fault in names::port_number(end) {
                errors.invalid(&end_path, end, fault);
            }
        }
    }
}

/// Endpoints that an update leaves as they were are not checked again.
pub(crate) fn endpoint_subsets(
    errors: &mut Errors,
    owner: &Owner,
    subsets: &Value,
    path: &ErrorPath,
) {
    if owner.old.is_some_and(|old| old.part("subsets") == subsets) {
        return;
    }
    // The API server of a developer is on the loopback interface.
    let metadata = owner.value.part("metadata");
    let is_own = (metadata.text("namespace"), metadata.text("name")) == ("default", "kubernetes");
    for (i, subset) in subsets.as_array().into_iter().flatten().enumerate() {
        let path = path.index(i);
        let lists = ["addresses", "notReadyAddresses"];
        if lists.iter().all(|list| subset.items(list).is_empty()) {
            let detail = "must specify `addresses` or `notReadyAddresses`";
            errors.required(&path, detail);
        }
        for list in lists {
            for (j, address) in subset.items(list).iter().enumerate() {
                endpoint_address(errors, address, is_own, &path.child(list).index(j));
            }
        }
        let ports = subset.items("ports");
        for (j, port) in ports.iter().enumerate() {
            let at = path.child("ports").index(j);
            endpoint_port(errors, port, ports.len() > 1, &at);
        }
    }
}

fn endpoint_address(errors: &mut Errors, address: &Value, is_own: bool, path: &ErrorPath) {
    let (ip, at) = (address.text("ip"), path.child("ip"));
    validate_ip(errors, ip, &at);
    if let Some(host) = address.maybe_text("hostname").filter(|h| !h.is_empty()) {
        errors.each_invalid(&path.child("hostname"), host, names::dns_label(host));
    }
    if let Some(node) = address.maybe_text("nodeName") {
        errors.each_invalid(&path.child("nodeName"), node, names::dns_subdomain(node));
    }
    if !is_own {
        validate_endpoint(errors, ip, &at);
    }
}

fn endpoint_port(errors: &mut Errors, port: &Value, needs_name: bool, path: &ErrorPath) {
    let name = port.text("name");
    let at = path.child("name");
    if !name.is_empty() {
        errors.each_invalid(&at, name, names::dns_label(name));
    } else if needs_name {
        errors.required(&at, "");
    }
    let number = port.int("port");
    for fault in names::port_number(number) {
        errors.invalid(&path.child("port"), number, fault);
    }
    protocol(errors, port.text("protocol"), &path.child("protocol"));
    if let Some(app) = port.maybe_text("appProtocol") {
        errors.each_invalid(&path.child("appProtocol"), app, names::qualified_name(app));
    }
}

fn protocol(errors: &mut Errors, protocol: &str, path: &ErrorPath) {
    if protocol.is_empty() {
        errors.required(path, "");
    } else if !PROTOCOLS.contains(&protocol) {
        errors.not_supported(path, protocol, &PROTOCOLS);
    }
}

pub(crate) fn slice_ports(errors: &mut Errors, _: &Owner, ports: &Value, path: &ErrorPath) {
    let ports = ports.as_array().map_or(&[][..], Vec::as_slice);
    if ports.len() > SLICE_PORTS_MAX {
        errors.check_at_most(path, ports.len(), SLICE_PORTS_MAX);
        return;
    }
    let mut seen = HashSet::new();
    for (i, port) in ports.iter().enumerate() {
        let path = path.index(i);
        let (name, at) = (port.text("name"), path.child("name"));
        if !name.is_empty() {
            errors.each_invalid(&at, name, names::dns_label(name));
        }
        if !seen.insert(name) {
            errors.duplicate(&at, name);
        }
        protocol(errors, port.text("protocol"), &path.child("protocol"));
        if let Some(app) = port.maybe_text("appProtocol") {
            errors.each_invalid(&path.child("appProtocol"), app, names::qualified_name(app));
        }
    }
}

/// Endpoints that an update leaves as they were are not checked again.
pub(crate) fn slice_endpoints(
    errors: &mut Errors,
    owner: &Owner,
    endpoints: &Value,
    path: &ErrorPath,
) {
    if owner
        .old
        .is_some_and(|old| old.part("endpoints") == endpoints)
    {
        return;
    }
    let family = owner.value.text("addressType");
    let endpoints = endpoints.as_array().map_or(&[][..], Vec::as_slice);
    // Entries of a list that is too long are not checked, which bounds the work.
    if endpoints.len() > SLICE_ENDPOINTS_MAX {
        errors.check_at_most(path, endpoints.len(), SLICE_ENDPOINTS_MAX);
        return;
    }
    for (i, endpoint) in endpoints.iter().enumerate() {
        let path = path.index(i);
        let at = path.child("addresses");
        let addresses = endpoint.strings("addresses");
        if addresses.is_empty() {
            errors.required(&at, "must contain at least 1 address");
        }
        errors.check_at_most(&at, addresses.len(), SLICE_ADDRESSES_MAX);
        for (j, address) in addresses.into_iter().enumerate() {
            slice_address(errors, family, address, &at, j);
        }
        if let Some(node) = endpoint.maybe_text("nodeName") {
            errors.each_invalid(&path.child("nodeName"), node, names::dns_subdomain(node));
        }
        let at = path.child("deprecatedTopology");
        let labels = endpoint.labels("deprecatedTopology");
        errors.check_at_most(&at, labels.len(), TOPOLOGY_MAX);
        super::selectors::validate_labels(errors, endpoint, "deprecatedTopology", &at);
        if let Some(host) = endpoint.maybe_text("hostname") {
            errors.each_invalid(&path.child("hostname"), host, names::dns_label(host));
        }
        if let Some(hints) = endpoint.field("hints") {
            slice_hints(errors, hints, &path.child("hints"));
        }
    }
}

fn slice_address(errors: &mut Errors, family: &str, address: &str, path: &ErrorPath, i: usize) {
    let at = path.index(i);
    match family {
        "IPv4" | "IPv6" => {
            if !validate_ip(errors, address, &at) {
                return;
            }
            let is_v4 = names::parse_ip(address).is_some_and(|ip| ip.is_ipv4());
            if is_v4 != (family == "IPv4") {
                errors.invalid(path, address, format!("must be an {family} address"));
            }
            // Unlike in kube-apiserver, an endpoint may be on the loopback interface: the API server itself is, and so
            // are webhooks on the machine of a developer.
            if !names::parse_ip(address).is_some_and(|ip| ip.is_loopback()) {
                validate_endpoint(errors, address, &at);
            }
        }
        "FQDN" => fully_qualified(errors, address, &at),
        _ => {}
    }
}

fn fully_qualified(errors: &mut Errors, name: &str, path: &ErrorPath) {
    if name.is_empty() {
        errors.required(path, "");
        return;
    }
    let name_text = name.strip_suffix('.').unwrap_or(name);
    let faults = names::dns_subdomain(name_text);
    if !faults.is_empty() {
        errors.invalid(path, name_text, faults.join(","));
        return;
    }
    if !name_text.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        errors.invalid(path, name_text, detail);
        return;
    }
    let labels = name_text
        .split('.')
        .map(|label| (label, names::dns_label(label)));
    if let Some((label, faults)) = labels.into_iter().find(|(_, faults)| !faults.is_empty()) {
        errors.invalid(path, label, faults.join(","));
    }
}

fn slice_hints(errors: &mut Errors, hints: &Value, path: &ErrorPath) {
    for (field, format) in [
        ("forZones", names::label_value as fn(&str) -> Vec<String>),
        ("forNodes", names::dns_subdomain),
    ] {
        let (entries, at) = (hints.items(field), path.child(field));
        if entries.len() > HINTS_MAX {
            errors.check_at_most(&at, entries.len(), HINTS_MAX);
            return;
        }
        let mut seen = HashSet::new();
        for (i, entry) in entries.iter().enumerate() {
            let (name, at) = (entry.text("name"), at.index(i).child("name"));
            if !seen.insert(name) {
                errors.duplicate(&at, name);
            }
            errors.each_invalid(&at, name, format(name));
        }
    }
}
