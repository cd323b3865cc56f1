//! Validation of Services, in upstream's order.

use super::errors::{Errors, Path, Shown, quote_json};
use super::names;
use super::pod::handlers::validate_port;
use super::pod::spec::validate_ip;
use super::selectors::validate_labels;
use super::service::{NODE_PORT_BASE, NODE_PORT_COUNT, is_external, is_headless};
use super::view::View;
use super::workloads::spec_of;
use serde_json::Value;
use std::collections::HashSet;

/// The longest time that a client may stay with one backend, in seconds.
const AFFINITY_SECONDS_MAX: i64 = 86_400;
const TYPES: &[&str] = &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
const POLICIES: &[&str] = &["Cluster", "Local"];
const FAMILY_POLICIES: &[&str] = &["PreferDualStack", "RequireDualStack", "SingleStack"];
const DISTRIBUTIONS: &[&str] = &["PreferClose", "PreferSameNode", "PreferSameZone"];

/// Errors of a change of addresses.
pub(crate) fn validate_change(errors: &mut Errors, new: &Value, old: &Value) {
    let external_name = |spec: &Value| spec.text("type") == "ExternalName";
    if external_name(new) || external_name(old) || (is_headless(new) && is_headless(old)) {
        return;
    }
    let path = Path::new("spec.clusterIPs");
    let shown = || {
        new.field("clusterIPs")
            .map_or_else(|| Shown("null".to_owned()), Shown::from)
    };
    let (before, after) = (old.strings("clusterIPs"), new.strings("clusterIPs"));
    for (i, (before, after)) in before.iter().zip(&after).enumerate() {
        if before != after {
            errors.invalid(&path.index(i), shown(), "may not change once set");
        }
    }
    if !before.is_empty() && after.is_empty() {
        errors.invalid(
            &path.index(0),
            shown(),
            "primary clusterIP can not be unset",
        );
    }
}

/// Errors of a service.
pub(crate) fn validate(errors: &mut Errors, object: &Value) {
    let path = Path::new("spec");
    let spec = spec_of(object);
    let kind = spec.text("type");
    let ports = spec.items("ports");
    if ports.is_empty() && !is_headless(spec) && kind != "ExternalName" {
        errors.required(&path.child("ports"), "");
    }
    match kind {
        "LoadBalancer" | "NodePort" if is_headless(spec) => errors.invalid(
            &path.child("clusterIPs").index(0),
            "None",
            format!("may not be set to 'None' for {kind} services"),
        ),
        "ExternalName" => {
            for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                if spec.field(field).is_some() {
                    errors.forbidden(
                        &path.child(field),
                        "may not be set for ExternalName services",
                    );
                }
            }
            let name = spec.text("externalName");
            let name = name.strip_suffix('.').unwrap_or(name);
            if name.is_empty() {
                errors.required(&path.child("externalName"), "");
            } else {
                errors.each_invalid(
                    &path.child("externalName"),
                    name,
                    names::dns_subdomain(name),
                );
            }
        }
        _ => {}
    }
    validate_ports(errors, spec, &path.child("ports"));
    validate_labels(errors, spec, "selector", &path.child("selector"));
    validate_session(errors, spec, &path);
    if kind != "ExternalName" {
        validate_addresses(errors, spec, &path);
    }
    for (i, ip) in spec.strings("externalIPs").iter().enumerate() {
        validate_ip(errors, ip, &path.child("externalIPs").index(i));
    }
    if !TYPES.contains(&kind) {
        errors.not_supported(&path.child("type"), kind, TYPES);
    }
    if kind == "ClusterIP" {
        for (i, port) in ports.iter().enumerate() {
            if port.int("nodePort") != 0 {
                errors.forbidden(
                    &path.child("ports").index(i).child("nodePort"),
                    "may not be used when `type` is 'ClusterIP'",
                );
            }
        }
    }
    validate_port_duplicates(errors, ports, &path.child("ports"));
    validate_policies(errors, spec, &path);
}

fn validate_ports(errors: &mut Errors, spec: &Value, path: &Path) {
    let ports = spec.items("ports");
    let mut seen = HashSet::new();
    for (i, port) in ports.iter().enumerate() {
        let path = path.index(i);
        let name = port.text("name");
        if name.is_empty() {
            if ports.len() > 1 {
                errors.required(&path.child("name"), "");
            }
        } else {
            errors.each_invalid(&path.child("name"), name, names::dns_label(name));
            if !seen.insert(name) {
                errors.duplicate(&path.child("name"), name);
            }
        }
        let number = port.int("port");
        for message in names::port_number(number) {
            errors.invalid(&path.child("port"), number, message);
        }
        match port.text("protocol") {
            "" => errors.required(&path.child("protocol"), ""),
            known if PROTOCOLS.contains(&known) => {}
            other => errors.not_supported(&path.child("protocol"), other, PROTOCOLS),
        }
        validate_port(errors, port.field("targetPort"), &path.child("targetPort"));
        if let Some(protocol) = port.maybe_text("appProtocol") {
            errors.each_invalid(
                &path.child("appProtocol"),
                protocol,
                names::qualified_name(protocol),
            );
        }
        let node_port = port.int("nodePort");
        let range = NODE_PORT_BASE..NODE_PORT_BASE + NODE_PORT_COUNT;
        if node_port != 0 && !range.contains(&node_port) {
            errors.invalid(
                &path.child("nodePort"),
                node_port,
                "provided port is not in the valid range. The range of valid ports is 30000-32767",
            );
        }
    }
}

fn validate_port_duplicates(errors: &mut Errors, ports: &[Value], path: &Path) {
    let mut node_ports = HashSet::new();
    for (i, port) in ports.iter().enumerate() {
        let number = port.int("nodePort");
        if number != 0 && !node_ports.insert((port.text("protocol"), number)) {
            errors.duplicate(&path.index(i).child("nodePort"), number);
        }
    }
    let mut own = HashSet::new();
    for (i, port) in ports.iter().enumerate() {
        let (protocol, number) = (port.text("protocol"), port.int("port"));
        if !own.insert((protocol, number)) {
            let mut shown = String::from("{\"Name\":\"\",\"Protocol\":");
            quote_json(&mut shown, protocol);
            shown.push_str(&format!(
                ",\"AppProtocol\":null,\"Port\":{number},\"TargetPort\":0,\"NodePort\":0}}"
            ));
            errors.duplicate(&path.index(i), Shown(shown));
        }
    }
}

fn validate_session(errors: &mut Errors, spec: &Value, path: &Path) {
    let at = path.child("sessionAffinity");
    match spec.text("sessionAffinity") {
        "" => errors.required(&at, ""),
        "None" => {}
        "ClientIP" => {
            let seconds = spec
                .at(&["sessionAffinityConfig", "clientIP", "timeoutSeconds"])
                .and_then(Value::as_i64)
                .unwrap_or(0);
            if !(1..=AFFINITY_SECONDS_MAX).contains(&seconds) {
                errors.invalid(
                    &path
                        .child("sessionAffinityConfig")
                        .child("clientIP")
                        .child("timeoutSeconds"),
                    seconds,
                    format!("must be greater than 0 and less than {AFFINITY_SECONDS_MAX}"),
                );
            }
        }
        other => errors.not_supported(&at, other, &["ClientIP", "None"]),
    }
}

fn validate_addresses(errors: &mut Errors, spec: &Value, path: &Path) {
    let at = path.child("clusterIPs");
    let addresses = spec.strings("clusterIPs");
    let shown = || {
        spec.field("clusterIPs")
            .map_or_else(|| Shown("null".to_owned()), Shown::from)
    };
    match (spec.text("clusterIP"), addresses.first()) {
        ("", Some(_)) => {
            errors.invalid(
                &at,
                shown(),
                "must be empty when `clusterIP` is not specified",
            );
        }
        ("", None) => {}
        (_, None) => errors.required(&at, ""),
        (address, Some(first)) if address != *first => {
            errors.invalid(&at, shown(), "first value must match `clusterIP`");
        }
        _ => {}
    }
    let mut seen = HashSet::new();
    for (i, family) in spec.strings("ipFamilies").iter().enumerate() {
        let at = path.child("ipFamilies").index(i);
        if !matches!(*family, "IPv4" | "IPv6") {
            errors.not_supported(&at, family, &["IPv4", "IPv6"]);
        }
        if !seen.insert(*family) {
            errors.duplicate(&at, *family);
        }
    }
    if let Some(policy) = spec.maybe_text("ipFamilyPolicy")
        && !FAMILY_POLICIES.contains(&policy)
    {
        errors.not_supported(&path.child("ipFamilyPolicy"), policy, FAMILY_POLICIES);
    }
    for (i, address) in addresses.iter().enumerate() {
        if i == 0 && *address == "None" {
            if addresses.len() > 1 {
                errors.invalid(&at, shown(), "'None' must be the first and only value");
            }
        } else {
            validate_ip(errors, address, &at.index(i));
        }
    }
    if addresses.len() > 2 {
        errors.invalid(&at, shown(), "may only hold up to 2 values");
    }
}

fn validate_policies(errors: &mut Errors, spec: &Value, path: &Path) {
    let kind = spec.text("type");
    if spec.field("allocateLoadBalancerNodePorts").is_some() && kind != "LoadBalancer" {
        errors.forbidden(
            &path.child("allocateLoadBalancerNodePorts"),
            "may only be used when `type` is 'LoadBalancer'",
        );
    }
    let at = path.child("externalTrafficPolicy");
    match (is_external(spec), spec.text("externalTrafficPolicy")) {
        (false, "") => {}
        (false, policy) => errors.invalid(
            &at,
            policy,
            "may only be set for externally-accessible services",
        ),
        (true, "") => errors.required(&at, ""),
        (true, policy) if POLICIES.contains(&policy) => {}
        (true, other) => errors.not_supported(&at, other, POLICIES),
    }
    if let Some(policy) = spec.maybe_text("internalTrafficPolicy")
        && !POLICIES.contains(&policy)
    {
        errors.not_supported(&path.child("internalTrafficPolicy"), policy, POLICIES);
    }
    if let Some(distribution) = spec.maybe_text("trafficDistribution")
        && !DISTRIBUTIONS.contains(&distribution)
    {
        errors.not_supported(
            &path.child("trafficDistribution"),
            distribution,
            DISTRIBUTIONS,
        );
    }
}
