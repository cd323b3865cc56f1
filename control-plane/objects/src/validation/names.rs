//! The formats of names, keys, values, ports and addresses, with Kubernetes' own messages.
//!
//! Each function returns one message per violated rule; an empty list means that the value is valid. Functions that the
//! scheduler also uses are in `berth_api::names`.

use berth_api::names::DNS_SUBDOMAIN_LEN_MAX;
pub(crate) use berth_api::names::{
    dns1035_label as dns_1035_label, dns1123_label as dns_label,
    dns1123_subdomain as dns_subdomain, label_key as qualified_name, label_value,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const DNS_SUBDOMAIN_UNDERSCORE_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
characters, '_', '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used \
for validation is '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')";
const WILDCARD_RULE: &str = r"a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// Lengths are counted in bytes, although the API calls them characters.
fn too_long(bytes_max: usize) -> String {
    format!("must be no more than {bytes_max} characters")
}

/// "must be between … and …, inclusive".
pub(crate) fn inclusive_range(low: i64, high: i64) -> String {
    format!("must be between {low} and {high}, inclusive")
}

fn is_lower_alphanumeric(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

/// `first (middle* last)?`: the shape that all these names share.
fn matches_shape(
    value: &str,
    first: impl Fn(u8) -> bool,
    middle: impl Fn(u8) -> bool,
    last: impl Fn(u8) -> bool,
) -> bool {
    match value.as_bytes() {
        [] => false,
        [only] => first(*only),
        [head, inner @ .., tail] => first(*head) && inner.iter().all(|b| middle(*b)) && last(*tail),
    }
}

/// A domain name whose labels may hold underscores, as in DNS search paths.
pub(crate) fn dns_subdomain_with_underscore(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > DNS_SUBDOMAIN_LEN_MAX {
        messages.push(too_long(DNS_SUBDOMAIN_LEN_MAX));
    }
    let fits = value.split('.').all(|label| {
        matches_shape(
            label.strip_prefix('_').unwrap_or(label),
            is_lower_alphanumeric,
            |b| is_lower_alphanumeric(b) || matches!(b, b'-' | b'_'),
            is_lower_alphanumeric,
        )
    });
    if !fits {
        messages.push(DNS_SUBDOMAIN_UNDERSCORE_RULE.to_owned());
    }
    messages
}

/// A domain name whose first label is `*`.
pub(crate) fn wildcard_dns_subdomain(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > DNS_SUBDOMAIN_LEN_MAX {
        messages.push(too_long(DNS_SUBDOMAIN_LEN_MAX));
    }
    let fits = value.strip_prefix("*.").is_some_and(|rest| {
        rest.split('.').all(|label| {
            let inner = |b| is_lower_alphanumeric(b) || b == b'-';
            matches_shape(label, is_lower_alphanumeric, inner, is_lower_alphanumeric)
        })
    });
    if !fits {
        messages.push(WILDCARD_RULE.to_owned());
    }
    messages
}

/// A segment of a URL path, for kinds with few restrictions on names.
pub(crate) fn path_segment(value: &str, prefix: bool) -> Vec<String> {
    if !prefix && matches!(value, "." | "..") {
        return vec![format!("may not be '{value}'")];
    }
    ["/", "%"]
        .iter()
        .filter(|illegal| value.contains(**illegal))
        .map(|illegal| format!("may not contain '{illegal}'"))
        .collect()
}

/// A key of a config map or secret.
pub(crate) fn config_key(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > DNS_SUBDOMAIN_LEN_MAX {
        messages.push(too_long(DNS_SUBDOMAIN_LEN_MAX));
    }
    let fits = !value.is_empty()
        && value
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    if !fits {
        messages.push(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
             'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
                .to_owned(),
        );
    }
    match value {
        "." => messages.push("must not be '.'".to_owned()),
        ".." => messages.push("must not be '..'".to_owned()),
        v if v.starts_with("..") => messages.push("must not start with '..'".to_owned()),
        _ => {}
    }
    messages
}

/// The name of an environment variable.
pub(crate) fn env_var_name(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if value.is_empty() {
        messages.push("environment variable name must be non-empty".to_owned());
    }
    if value
        .chars()
        .any(|c| !(c.is_ascii_graphic() || c == ' ') || c == '=')
    {
        messages.push(
            "a valid environment variable name must consist only of printable ASCII characters other than '='"
                .to_owned(),
        );
    }
    messages
}

/// The name of an HTTP header.
pub(crate) fn http_header_name(value: &str) -> Vec<String> {
    let fits = !value.is_empty()
        && value
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if fits {
        return Vec::new();
    }
    vec![
        "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for \
         validation is '[-A-Za-z0-9]+')"
            .to_owned(),
    ]
}

/// The name of a port.
pub(crate) fn port_name(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > 15 {
        messages.push(too_long(15));
    }
    let in_set = |b: u8| is_lower_alphanumeric(b) || b == b'-';
    if value.is_empty() || !value.bytes().all(in_set) {
        messages.push(
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned(),
        );
    }
    if !value.bytes().any(|b| b.is_ascii_lowercase()) {
        messages.push("must contain at least one letter (a-z)".to_owned());
    }
    if value.contains("--") {
        messages.push("must not contain consecutive hyphens".to_owned());
    }
    if value.starts_with('-') || value.ends_with('-') {
        messages.push("must not begin or end with a hyphen".to_owned());
    }
    messages
}

/// A port number, 1 to 65535.
pub(crate) fn port_number(value: i64) -> Vec<String> {
    if (1..=65535).contains(&value) {
        return Vec::new();
    }
    vec![inclusive_range(1, 65535)]
}

/// A percentage such as `25%`.
pub(crate) fn percent(value: &str) -> Vec<String> {
    let fits = value
        .strip_suffix('%')
        .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    if fits {
        return Vec::new();
    }
    vec![
        "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used \
         for validation is '[0-9]+%')"
            .to_owned(),
    ]
}

/// Reads an IP address, leading zeros in IPv4 included, as the API always has.
pub fn parse_ip(value: &str) -> Option<IpAddr> {
    if let Ok(v6) = value.parse::<Ipv6Addr>() {
        return Some(IpAddr::V6(v6));
    }
    let mut octets = [0_u8; 4];
    let mut parts = value.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        let fits = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !fits {
            return None;
        }
        *octet = part
            .trim_start_matches('0')
            .parse()
            .or_else(|e| {
                if part.bytes().all(|b| b == b'0') {
                    Ok(0)
                } else {
                    Err(e)
                }
            })
            .ok()?;
    }
    parts
        .next()
        .is_none()
        .then(|| IpAddr::V4(Ipv4Addr::from(octets)))
}

/// The message about an invalid IP address.
pub(crate) const NOT_AN_IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
/// The message about an invalid CIDR.
pub(crate) const NOT_A_CIDR: &str =
    "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

/// Reads a CIDR such as `10.0.0.0/8`.
pub fn parse_cidr(value: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = value.split_once('/')?;
    let address = parse_ip(address)?;
    let fits = !bits.is_empty() && bits.len() <= 3 && bits.bytes().all(|b| b.is_ascii_digit());
    let bits: u8 = if fits {
        bits.parse().ok()?
    } else {
        return None;
    };
    let bits_max = if address.is_ipv4() { 32 } else { 128 };
    (bits <= bits_max).then_some((address, bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_accept_what_kubernetes_accepts() {
        type Rule = fn(&str) -> Vec<String>;
        let cases: &[(&str, Rule, &[&str], &[&str])] = &[
            (
                "label",
                dns_label,
                &["a", "a-1", "0"],
                &["", "A", "-a", "a-", "a.b", "a_b"],
            ),
            (
                "subdomain",
                dns_subdomain,
                &["a", "a.b-c.d"],
                &["", "a..b", ".a", "A.b"],
            ),
            ("1035", dns_1035_label, &["a", "a1"], &["1a", "", "a."]),
            (
                "qualified",
                qualified_name,
                &["a", "A_b.c", "example.com/foo"],
                &[
                    "",
                    "/a",
                    "a/",
                    "a/b/c",
                    "UPPER.example/x",
                    "bad name!",
                    ".foo",
                ],
            ),
            (
                "value",
                label_value,
                &["", "a", "A_b.1"],
                &["-a", "a b", "é"],
            ),
            ("env", env_var_name, &["A", "1", "a b"], &["", "a=b", "ä"]),
            (
                "key",
                config_key,
                &["a.b", "-"],
                &["", ".", "..", "..a", "a/b"],
            ),
            (
                "port",
                port_name,
                &["http", "a-1"],
                &["", "1", "a--b", "-a", "HTTP", "sixteen-letters-x"],
            ),
            (
                "percent",
                percent,
                &["0%", "25%"],
                &["", "%", "25", "-1%", "2.5%"],
            ),
            (
                "underscore",
                dns_subdomain_with_underscore,
                &["_a.b", "a_b"],
                &["", "_", "a.", "-a"],
            ),
        ];
        for (name, rule, good, bad) in cases {
            for value in *good {
                assert!(rule(value).is_empty(), "{name}: {value:?} is fine");
            }
            for value in *bad {
                assert!(!rule(value).is_empty(), "{name}: {value:?} is not");
            }
        }
    }

    #[test]
    fn an_empty_qualified_name_breaks_two_rules() {
        assert_eq!(qualified_name("").len(), 2);
        assert_eq!(
            qualified_name("").first().map(String::as_str),
            Some("name part must be non-empty")
        );
        let long = "a".repeat(64);
        assert_eq!(
            qualified_name(&long),
            ["name part must be no more than 63 bytes"]
        );
        assert_eq!(dns_label("a.b"), ["must not contain dots"]);
    }

    #[test]
    fn what_is_too_long_is_counted_in_the_words_of_each_rule() {
        type Rule = fn(&str) -> Vec<String>;
        let cases: [(Rule, usize, &str); 6] = [
            (dns_label, 63, "characters"),
            (dns_subdomain, 253, "characters"),
            (dns_1035_label, 63, "characters"),
            (config_key, 253, "characters"),
            (port_name, 15, "characters"),
            (label_value, 63, "bytes"),
        ];
        for (rule, max, unit) in cases {
            assert_eq!(rule(&"a".repeat(max)), [""; 0], "{max} {unit}");
            let message = format!("must be no more than {max} {unit}");
            assert_eq!(rule(&"a".repeat(max + 1)), [message]);
        }
    }

    #[test]
    fn addresses_are_read_leniently() {
        for good in ["10.0.0.1", "010.000.0.1", "::1", "::ffff:1.2.3.4"] {
            assert!(parse_ip(good).is_some(), "{good}");
        }
        for bad in ["", "1.2.3", "1.2.3.4.5", "256.0.0.1", "1.2.3.a", "1..2.3"] {
            assert!(parse_ip(bad).is_none(), "{bad}");
        }
        assert!(parse_cidr("10.0.0.0/8").is_some());
        assert!(parse_cidr("fd00::/48").is_some());
        for bad in ["10.0.0.0", "10.0.0.0/33", "10.0.0.0/", "x/8", "10.0.0.0/+8"] {
            assert!(parse_cidr(bad).is_none(), "{bad}");
        }
    }
}
