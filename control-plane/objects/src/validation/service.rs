//! The rules of Services, with derived addresses and node ports.
//!
//! Addresses and node ports are derived from the UID of the Service. The API server allocates cluster IPs and replaces
//! an address that is taken. Two Services may have the same node port, which has no effect because no traffic is
//! routed.

use super::names;
use super::workloads::spec_of;
use crate::strategy::{KindStrategy, Subresource, keep_other_half};
use crate::view::{
    FieldView, child, copy_field, existing, items_mut, remove, set, set_if_absent, set_if_zero,
};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

/// Suggested addresses are of 10.96.0.0/12, without the first few; the allocator takes one of the server's own range.
const ADDRESS_BASE: u32 = 0x0a60_0000;
/// The bits that all addresses share.
const ADDRESS_BITS: u32 = 12;
const ADDRESS_COUNT: u32 = 1 << (32 - ADDRESS_BITS);
const ADDRESS_RESERVED: u32 = 256;
/// The first of the node ports.
const NODE_PORT_BASE: i64 = 30_000;
/// The number of node ports.
const NODE_PORT_COUNT: i64 = 2_768;
/// The node ports.
pub(super) const NODE_PORTS: RangeInclusive<i64> =
    NODE_PORT_BASE..=NODE_PORT_BASE + NODE_PORT_COUNT - 1;
/// The default session affinity timeout, in seconds.
const AFFINITY_SECONDS: i64 = 10_800;

/// The strategy of Services.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ServiceStrategy;

impl KindStrategy for ServiceStrategy {
    fn prepare_for_create(&self, object: &mut Value, _now: &str) {
        set(object, "status", json!({"loadBalancer": {}}));
        allocate(object);
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value, part: Subresource, _now: &str) {
        keep_other_half(new, old, part);
        if part == Subresource::Main {
            release(new, old);
            keep_allocated(new, old);
            allocate(new);
        }
    }
}

/// Fills in the defaults of a spec that depend on its type.
pub(super) fn default(spec: &mut Value) {
    match spec.text("sessionAffinity") {
        "None" => remove(spec, "sessionAffinityConfig"),
        "ClientIP" => {
            if let Some(client) =
                child(spec, "sessionAffinityConfig").and_then(|c| child(c, "clientIP"))
            {
                set_if_absent(client, "timeoutSeconds", AFFINITY_SECONDS);
            }
        }
        _ => {}
    }
    for port in items_mut(spec, "ports") {
        let number = port.int("port");
        set_if_zero(port, "targetPort", number);
    }
    if is_external(spec) {
        set_if_zero(spec, "externalTrafficPolicy", "Cluster");
    }
    if matches!(spec.text("type"), "ClusterIP" | "NodePort" | "LoadBalancer") {
        set_if_absent(spec, "internalTrafficPolicy", "Cluster");
    }
    if spec.text("type") == "LoadBalancer" {
        set_if_absent(spec, "allocateLoadBalancerNodePorts", true);
    }
    // `clusterIP` is the first of `clusterIPs`.
    let address = spec.text("clusterIP").to_owned();
    if !address.is_empty() {
        set_if_zero(spec, "clusterIPs", json!([address]));
    }
}

/// The address of a load balancer belongs to the balancer itself.
pub(super) fn default_ingress(ingress: &mut Value) {
    if !ingress.text("ip").is_empty() {
        set_if_absent(ingress, "ipMode", "VIP");
    }
}

/// Returns whether a service is headless.
pub(super) fn is_headless(spec: &Value) -> bool {
    spec.strings("clusterIPs") == ["None"]
}

/// Returns whether a service can be reached from outside.
pub(super) fn is_external(spec: &Value) -> bool {
    matches!(spec.text("type"), "LoadBalancer" | "NodePort")
        || (spec.text("type") == "ClusterIP" && !spec.items("externalIPs").is_empty())
}

/// Returns whether the ports of a service may have ports of the nodes.
pub(super) fn needs_node_port(spec: &Value) -> bool {
    matches!(spec.text("type"), "NodePort" | "LoadBalancer")
}

/// Returns whether the health of a service is checked at a port of the nodes.
pub(super) fn needs_health_check(spec: &Value) -> bool {
    spec.text("type") == "LoadBalancer" && spec.text("externalTrafficPolicy") == "Local"
}

fn needs_node_ports(spec: &Value) -> bool {
    match spec.text("type") {
        "NodePort" => true,
        "LoadBalancer" => spec
            .maybe_flag("allocateLoadBalancerNodePorts")
            .unwrap_or(true),
        _ => false,
    }
}

/// FNV-1a of a text and a number, to spread addresses and ports.
fn spread(text: &str, salt: u64) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in text.bytes().chain(salt.to_le_bytes()) {
        hash ^= u64::from(byte);
        hash = hash.wrapping_mul(0x0100_0000_01b3);
    }
    // The low bits of FNV are weak; the high bits are folded in.
    hash ^ (hash >> 32)
}

/// Gives a service the addresses and ports that it needs and does not have.
fn allocate(object: &mut Value) {
    let uid = object
        .at(&["metadata", "uid"])
        .and_then(Value::as_str)
        .unwrap_or("")
        .to_owned();
    let Some(spec) = existing(object, "spec") else {
        return;
    };
    if spec.text("type") == "ExternalName" {
        for field in ["ipFamilies", "ipFamilyPolicy"] {
            if spec
                .field(field)
                .is_some_and(|v| crate::view::is_zero(Some(v)))
            {
                remove(spec, field);
            }
        }
        return;
    }
    let headless_without_selector =
        spec.text("clusterIP") == "None" && spec.field("selector").is_none();
    if headless_without_selector {
        set_if_absent(spec, "ipFamilyPolicy", "RequireDualStack");
        set_if_zero(spec, "ipFamilies", json!(["IPv4", "IPv6"]));
    } else {
        set_if_absent(spec, "ipFamilyPolicy", "SingleStack");
        let family = match names::parse_ip(spec.text("clusterIP")) {
            Some(ip) if ip.is_ipv6() => "IPv6",
            _ => "IPv4",
        };
        set_if_zero(spec, "ipFamilies", json!([family]));
    }
    if spec.text("clusterIP").is_empty() && spec.items("clusterIPs").is_empty() {
        let free = u64::from(ADDRESS_COUNT - ADDRESS_RESERVED - 1);
        let offset = u32::try_from(spread(&uid, 0) % free).unwrap_or(0);
        let address = Ipv4Addr::from(ADDRESS_BASE + ADDRESS_RESERVED + offset).to_string();
        set(spec, "clusterIP", address.clone());
        set(spec, "clusterIPs", json!([address]));
    }
    if !needs_node_ports(spec) {
        return;
    }
    let mut taken: HashSet<i64> = spec
        .items("ports")
        .iter()
        .map(|p| p.int("nodePort"))
        .collect();
    let start = i64::try_from(spread(&uid, 1) % NODE_PORT_COUNT.unsigned_abs()).unwrap_or(0);
    let mut candidates =
        (0..NODE_PORT_COUNT).map(|i| NODE_PORT_BASE + (start + i) % NODE_PORT_COUNT);
    for port in items_mut(spec, "ports") {
        if port.int("nodePort") == 0
            && let Some(free) = candidates.find(|p| !taken.contains(p))
        {
            taken.insert(free);
            set(port, "nodePort", free);
        }
    }
    if spec.text("type") == "LoadBalancer" && spec.text("externalTrafficPolicy") == "Local" {
        let free = candidates
            .find(|p| !taken.contains(p))
            .unwrap_or(NODE_PORT_BASE);
        set_if_zero(spec, "healthCheckNodePort", free);
    }
}

/// Removes the fields that the new type does not have, unless the client changed them too.
fn release(new: &mut Value, old: &Value) {
    let old = spec_of(old);
    let Some(spec) = existing(new, "spec") else {
        return;
    };
    let has_address = |spec: &Value| spec.text("type") != "ExternalName";
    if has_address(old) && !has_address(spec) {
        // Only values that the client did not touch are dropped with the type.
        if same(spec, old, "clusterIP") && same(spec, old, "clusterIPs") {
            remove(spec, "clusterIP");
            remove(spec, "clusterIPs");
        }
        remove_if_same(spec, old, &["ipFamilies", "ipFamilyPolicy"]);
    }
    let (had, has) = (needs_node_port(old), needs_node_port(spec));
    // New node ports that the client states are kept.
    if had && !has && node_ports(spec).is_subset(&node_ports(old)) {
        for port in items_mut(spec, "ports") {
            remove(port, "nodePort");
        }
    }
    if needs_health_check(old) && !needs_health_check(spec) {
        remove_if_same(spec, old, &["healthCheckNodePort"]);
    }
    if old.text("type") == "LoadBalancer" && spec.text("type") != "LoadBalancer" {
        remove_if_same(
            spec,
            old,
            &["allocateLoadBalancerNodePorts", "loadBalancerClass"],
        );
    }
    if is_external(old) && !is_external(spec) {
        remove_if_same(spec, old, &["externalTrafficPolicy"]);
    }
    if spec.text("type") != "LoadBalancer"
        && let Some(status) = existing(new, "status")
    {
        set(status, "loadBalancer", json!({}));
    }
}

fn same(spec: &Value, old: &Value, field: &str) -> bool {
    spec.field(field) == old.field(field)
}

fn remove_if_same(spec: &mut Value, old: &Value, fields: &[&str]) {
    for field in fields {
        if same(spec, old, field) {
            remove(spec, field);
        }
    }
}

fn node_ports(spec: &Value) -> HashSet<i64> {
    let ports = spec.items("ports").iter().map(|p| p.int("nodePort"));
    ports.filter(|number| *number != 0).collect()
}

/// An allocated value is kept if the client omits it.
fn keep_allocated(new: &mut Value, old: &Value) {
    let old = spec_of(old);
    let Some(spec) = existing(new, "spec") else {
        return;
    };
    if old.text("type") != "ExternalName" && spec.text("type") != "ExternalName" {
        keep_addresses(spec, old);
    }
    if needs_node_port(old) && needs_node_port(spec) {
        let before = node_ports(old);
        let used: HashSet<i64> = before.intersection(&node_ports(spec)).copied().collect();
        let by_name: HashMap<&str, i64> = old
            .items("ports")
            .iter()
            .map(|port| (port.text("name"), port.int("nodePort")))
            .collect();
        for port in items_mut(spec, "ports") {
            let number = by_name.get(port.text("name")).copied().unwrap_or(0);
            if port.int("nodePort") == 0 && number != 0 && !used.contains(&number) {
                set(port, "nodePort", number);
            }
        }
    }
    if needs_health_check(old) && needs_health_check(spec) {
        let port = old.int("healthCheckNodePort");
        set_if_zero(spec, "healthCheckNodePort", port);
    }
}

fn keep_addresses(spec: &mut Value, old: &Value) {
    if spec.text("clusterIP").is_empty() {
        copy_field(spec, old, "clusterIP");
    }
    if spec.items("clusterIPs").is_empty() {
        copy_field(spec, old, "clusterIPs");
    }
    // A client that knows only `clusterIP` changes only that field.
    if !same(spec, old, "clusterIP") && same(spec, old, "clusterIPs") {
        let address = spec.text("clusterIP").to_owned();
        set(spec, "clusterIPs", json!([address]));
    }
    for field in ["ipFamilies", "ipFamilyPolicy"] {
        if spec.field(field).is_none() {
            copy_field(spec, old, field);
        }
    }
    if spec.text("ipFamilyPolicy") == "SingleStack" {
        for field in ["clusterIPs", "ipFamilies"] {
            if same(spec, old, field)
                && let Some(list) = spec.get_mut(field).and_then(Value::as_array_mut)
            {
                list.truncate(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::gr;
    use crate::kinds::strategy;

    fn rules() -> &'static dyn KindStrategy {
        strategy(gr("", "services"))
    }

    fn service(spec: Value) -> Value {
        let mut object = json!({"metadata": {"name": "s", "uid": "u-1"}, "spec": spec});
        rules().default(&mut object);
        rules().prepare_for_create(&mut object, "");
        object
    }

    #[test]
    fn a_service_gets_an_address_and_defaults() {
        let object = service(json!({"selector": {"a": "b"}, "ports": [{"port": 80}]}));
        assert_eq!(rules().validate(&object), []);
        let spec = &object["spec"];
        assert!(spec.text("clusterIP").starts_with("10."), "{spec}");
        assert_eq!(spec["clusterIPs"], json!([spec["clusterIP"]]));
        assert_eq!(
            spec["ports"],
            json!([{"port": 80, "protocol": "TCP", "targetPort": 80}])
        );
        assert_eq!(spec["ipFamilyPolicy"], "SingleStack");
        assert_eq!(object["status"], json!({"loadBalancer": {}}));

        let object = service(
            json!({"type": "NodePort", "ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]}),
        );
        assert_eq!(rules().validate(&object), []);
        assert_ne!(
            object["spec"]["ports"][0]["nodePort"],
            object["spec"]["ports"][1]["nodePort"]
        );

        let object = service(json!({"clusterIP": "None", "selector": {"a": "b"}}));
        assert_eq!(rules().validate(&object), []);
        assert_eq!(object["spec"]["clusterIPs"], json!(["None"]));
    }

    #[test]
    fn the_address_stays() {
        let old = service(json!({"ports": [{"port": 80}], "selector": {"a": "b"}}));
        let mut new = json!({"metadata": {"name": "s", "uid": "u-1"},
            "spec": {"ports": [{"port": 8080}], "selector": {"a": "b"}}});
        rules().default(&mut new);
        rules().prepare_for_update(&mut new, &old, Subresource::Main, "");
        assert_eq!(rules().validate_update(&new, &old, Subresource::Main), []);
        assert_eq!(new["spec"]["clusterIP"], old["spec"]["clusterIP"]);
        new["spec"]["clusterIP"] = json!("10.1.1.1");
        new["spec"]["clusterIPs"] = json!(["10.1.1.1"]);
        let errors = rules().validate_update(&new, &old, Subresource::Main);
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].detail, "may not change once set");
    }

    #[test]
    fn what_a_service_may_not_be() {
        let cases = [
            (json!({}), "spec.ports: Required value"),
            (
                json!({"type": "Ideal", "ports": [{"port": 80}]}),
                "spec.type: Unsupported value: \"Ideal\"",
            ),
            (
                json!({"ports": [{"port": 80}, {"port": 81, "name": "a"}]}),
                "spec.ports[0].name: Required value",
            ),
            (
                json!({"ports": [{"port": 80, "nodePort": 30000}]}),
                "spec.ports[0].nodePort: Forbidden",
            ),
            (
                json!({"type": "ExternalName"}),
                "spec.externalName: Required value",
            ),
            (
                json!({"ports": [{"port": 0}]}),
                "spec.ports[0].port: Invalid value: 0",
            ),
        ];
        for (spec, expected) in cases {
            let errors = rules().validate(&service(spec.clone()));
            assert!(
                errors.iter().any(|e| e.to_string().starts_with(expected)),
                "{spec}: {errors:?}"
            );
        }
    }
}
