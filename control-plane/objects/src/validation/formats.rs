//! Formats of strings, by their names in the rules.

use super::names;

/// Finds the faults of a string.
pub(crate) type StringFormat = fn(&str) -> Vec<String>;

/// A format by its name in the rules.
pub(super) fn find(name: &str) -> Option<StringFormat> {
    let check: StringFormat = match name {
        "config-key" => names::config_key,
        "dns1035-label" => berth_api::names::dns1035_label,
        "dns-label" | "short-name" => names::dns_label,
        "dns-subdomain" | "long-name" => names::dns_subdomain,
        "env-name" => names::env_var_name,
        "ip" => |ip| match names::parse_ip(ip) {
            Some(_) => Vec::new(),
            None => vec![names::NOT_AN_IP.to_owned()],
        },
        "label-key" | "qualified-name" => names::qualified_name,
        "label-value" => names::label_value,
        "path-segment-name" => |name| names::path_segment(name, false),
        "port-name" => names::port_name,
        _ => return None,
    };
    Some(check)
}
