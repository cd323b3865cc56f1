//! The rules of Services, with addresses and node ports out of thin air.
//!
//! Nothing here routes traffic, so there is no allocator that would know what is taken: a service gets an address
//! derived from its UID. Two services may share one by chance, which has no effect.

use super::checks;
use super::engine::Owner;
use super::errors::{Errors, Path, Shown, json_text, struct_text};
use super::names;
use super::pod::spec::validate_ip;
use super::view::{
    View, child, copy_field, existing, items_mut, remove, set, set_if_absent, set_if_zero,
};
use super::workloads::spec_of;
use crate::strategy::{Strategy, Subresource, keep_other_half};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::net::Ipv4Addr;

/// Addresses come from 10.96.0.0/12; the first few are left for well-known services.
const ADDRESS_BASE: u32 = 0x0a60_0000;
const ADDRESS_COUNT: u32 = 1 << 20;
const ADDRESS_RESERVED: u32 = 256;
/// The first of the node ports, 30000 to 32767.
const NODE_PORT_BASE: i64 = 30_000;
/// How many node ports there are.
const NODE_PORT_COUNT: i64 = 2_768;
/// How long a client stays with one backend, in seconds, unless the service says otherwise.
const AFFINITY_SECONDS: i64 = 10_800;

/// The strategy of Services.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ServiceStrategy;

impl Strategy for ServiceStrategy {
    fn prepare_for_create(&self, object: &mut Value, _now: &str) {
        set(object, "status", json!({"loadBalancer": {}}));
        allocate(object);
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value, part: Subresource, _now: &str) {
        keep_other_half(new, old, part);
        if part == Subresource::Main {
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

checks! {
    "addresses-kept" => addresses_kept,
    "external-name" => |e, _, name, path| {
        let name = name.as_str().unwrap_or("");
        e.check_name(path, name.strip_suffix('.').unwrap_or(name), names::dns_subdomain);
    },
    "ip-families" => |e, _, families, path| {
        let mut seen = HashSet::new();
        for (i, family) in families.as_array().into_iter().flatten().enumerate() {
            let (at, text) = (path.index(i), family.as_str().unwrap_or(""));
            if !matches!(text, "IPv4" | "IPv6") {
                e.not_supported(&at, text, &["IPv4", "IPv6"]);
            }
            if !seen.insert(text) {
                e.duplicate(&at, text);
            }
        }
    },
    "service-addresses" => addresses,
    "service-ports" => ports,
}

fn addresses_kept(errors: &mut Errors, owner: &Owner, new: &Value, path: &Path) {
    let Some(old) = owner.old else {
        return;
    };
    let external_name = |spec: &Value| spec.text("type") == "ExternalName";
    if external_name(new) || external_name(old) || (is_headless(new) && is_headless(old)) {
        return;
    }
    let path = path.child("clusterIPs");
    let shown = new.part("clusterIPs");
    let (before, after) = (old.strings("clusterIPs"), new.strings("clusterIPs"));
    for (i, (before, after)) in before.iter().zip(&after).enumerate() {
        if before != after {
            errors.invalid(&path.index(i), shown, "may not change once set");
        }
    }
    if !before.is_empty() && after.is_empty() {
        errors.invalid(&path.index(0), shown, "primary clusterIP can not be unset");
    }
}

fn ports(errors: &mut Errors, _: &Owner, spec: &Value, path: &Path) {
    let ports = spec.items("ports");
    let path = path.child("ports");
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

fn addresses(errors: &mut Errors, _: &Owner, addresses: &Value, path: &Path) {
    let list = addresses.as_array().map_or(&[][..], Vec::as_slice);
    for (i, address) in list.iter().enumerate() {
        let text = address.as_str().unwrap_or("");
        if i > 0 || text != "None" {
            validate_ip(errors, text, &path.index(i));
        } else if list.len() > 1 {
            errors.invalid(path, addresses, "'None' must be the first and only value");
        }
    }
}

/// Whether a service has no address of its own.
fn is_headless(spec: &Value) -> bool {
    spec.strings("clusterIPs") == ["None"]
}

/// Whether a service can be reached from outside.
fn is_external(spec: &Value) -> bool {
    matches!(spec.text("type"), "LoadBalancer" | "NodePort")
        || (spec.text("type") == "ClusterIP" && !spec.items("externalIPs").is_empty())
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
    // The low bits of FNV alone are weak; fold the high ones in.
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
                .is_some_and(|v| super::view::is_zero(Some(v)))
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

/// What was allocated stays when a client leaves it out.
fn keep_allocated(new: &mut Value, old: &Value) {
    let old = spec_of(old);
    let Some(spec) = existing(new, "spec") else {
        return;
    };
    if old.text("type") == "ExternalName" || spec.text("type") == "ExternalName" {
        if spec.text("type") == "ExternalName" && old.text("type") != "ExternalName" {
            for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                if spec.field(field) == old.field(field) {
                    remove(spec, field);
                }
            }
        }
        return;
    }
    if spec.text("clusterIP").is_empty() && spec.items("clusterIPs").is_empty() {
        copy_field(spec, old, "clusterIP");
        copy_field(spec, old, "clusterIPs");
    }
    for field in ["ipFamilies", "ipFamilyPolicy"] {
        if spec.field(field).is_none() {
            copy_field(spec, old, field);
        }
    }
    if needs_node_ports(spec) && needs_node_ports(old) {
        let used: HashSet<i64> = spec
            .items("ports")
            .iter()
            .map(|p| p.int("nodePort"))
            .collect();
        for port in items_mut(spec, "ports") {
            if port.int("nodePort") != 0 {
                continue;
            }
            let before = old.items("ports").iter().find(|p| {
                p.int("port") == port.int("port") && p.text("protocol") == port.text("protocol")
            });
            if let Some(number) = before.map(|p| p.int("nodePort"))
                && number != 0
                && !used.contains(&number)
            {
                set(port, "nodePort", number);
            }
        }
    } else if !needs_node_ports(spec) {
        // Ports of the nodes go with the type that needed them.
        for (port, before) in items_mut(spec, "ports").iter_mut().zip(old.items("ports")) {
            if port.field("nodePort") == before.field("nodePort") {
                remove(port, "nodePort");
            }
        }
    }
    if !is_external(spec)
        && is_external(old)
        && spec.field("externalTrafficPolicy") == old.field("externalTrafficPolicy")
    {
        remove(spec, "externalTrafficPolicy");
    }
    if old.text("type") == "LoadBalancer" && spec.text("type") != "LoadBalancer" {
        for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            if spec.field(field) == old.field(field) {
                remove(spec, field);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::gr;
    use crate::validation::strategy;

    fn rules() -> &'static dyn Strategy {
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
