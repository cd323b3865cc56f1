//! The formats of names, keys, values, ports and addresses, with Kubernetes' own messages.
//!
//! Each function returns one message per broken rule; none means that the value is fine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const QUALIFIED_NAME_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and \
end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

const DNS_LABEL_RULE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
'[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

const DNS_SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
'-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

const DNS_SUBDOMAIN_UNDERSCORE_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
characters, '_', '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used \
for validation is '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')";

const DNS_1035_RULE: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with \
an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";

const LABEL_VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', \
'_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', \
regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// Longest label of a domain name, in bytes.
const LABEL_BYTES_MAX: usize = 63;
/// Longest domain name, in bytes.
const SUBDOMAIN_BYTES_MAX: usize = 253;

fn too_long(bytes_max: usize) -> String {
    format!("must be no more than {bytes_max} bytes")
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

fn is_dns_label_shape(value: &str) -> bool {
    matches_shape(
        value,
        is_lower_alphanumeric,
        |b| is_lower_alphanumeric(b) || b == b'-',
        is_lower_alphanumeric,
    )
}

fn is_dns_subdomain_shape(value: &str) -> bool {
    value.split('.').all(is_dns_label_shape)
}

fn is_name_shape(value: &str) -> bool {
    matches_shape(
        value,
        |b| b.is_ascii_alphanumeric(),
        |b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'),
        |b| b.is_ascii_alphanumeric(),
    )
}

/// A label of a domain name (RFC 1123), such as the name of a container.
pub(crate) fn dns_label(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > LABEL_BYTES_MAX {
        messages.push(too_long(LABEL_BYTES_MAX));
    }
    if !is_dns_label_shape(value) {
        messages.push(if is_dns_subdomain_shape(value) {
            "must not contain dots".to_owned()
        } else {
            DNS_LABEL_RULE.to_owned()
        });
    }
    messages
}

/// A domain name (RFC 1123), such as the name of a pod.
pub(crate) fn dns_subdomain(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > SUBDOMAIN_BYTES_MAX {
        messages.push(too_long(SUBDOMAIN_BYTES_MAX));
    }
    if !is_dns_subdomain_shape(value) {
        messages.push(DNS_SUBDOMAIN_RULE.to_owned());
    }
    messages
}

/// A domain name whose labels may hold underscores, as in DNS search paths.
pub(crate) fn dns_subdomain_with_underscore(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > SUBDOMAIN_BYTES_MAX {
        messages.push(too_long(SUBDOMAIN_BYTES_MAX));
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

/// A label of a domain name (RFC 1035), such as the name of a service.
pub(crate) fn dns_1035_label(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > LABEL_BYTES_MAX {
        messages.push(too_long(LABEL_BYTES_MAX));
    }
    let fits = matches_shape(
        value,
        |b| b.is_ascii_lowercase(),
        |b| is_lower_alphanumeric(b) || b == b'-',
        is_lower_alphanumeric,
    );
    if !fits {
        messages.push(DNS_1035_RULE.to_owned());
    }
    messages
}

/// A part of a URL path, for kinds whose names may be almost anything.
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

/// `[prefix/]name`: keys of labels and annotations, resource names, gates, condition types.
pub(crate) fn qualified_name(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    let mut parts = value.split('/');
    let (first, second, more) = (parts.next().unwrap_or(""), parts.next(), parts.next());
    let name = match (second, more) {
        (None, _) => first,
        (Some(name), None) => {
            if first.is_empty() {
                messages.push("prefix part must be non-empty".to_owned());
            } else {
                messages.extend(
                    dns_subdomain(first)
                        .into_iter()
                        .map(|m| format!("prefix part {m}")),
                );
            }
            name
        }
        (Some(_), Some(_)) => {
            return vec![format!(
                "a valid label key {QUALIFIED_NAME_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        messages.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_BYTES_MAX {
        messages.push(format!("name part {}", too_long(LABEL_BYTES_MAX)));
    }
    if !is_name_shape(name) {
        messages.push(format!("name part {QUALIFIED_NAME_RULE}"));
    }
    messages
}

/// The value of a label.
pub(crate) fn label_value(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > LABEL_BYTES_MAX {
        messages.push(too_long(LABEL_BYTES_MAX));
    }
    if !value.is_empty() && !is_name_shape(value) {
        messages.push(LABEL_VALUE_RULE.to_owned());
    }
    messages
}

/// A key of a config map or secret.
pub(crate) fn config_key(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > SUBDOMAIN_BYTES_MAX {
        messages.push(too_long(SUBDOMAIN_BYTES_MAX));
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

/// A user or group id of Unix.
pub(crate) fn unix_id(value: i64) -> Vec<String> {
    if (0..=0xffff_ffff).contains(&value) {
        return Vec::new();
    }
    vec![inclusive_range(0, 0xffff_ffff)]
}

/// Reads an IP address, leading zeros in IPv4 included, as the API always has.
pub(crate) fn parse_ip(value: &str) -> Option<IpAddr> {
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

/// What is said of something that is no IP address.
pub(crate) const NOT_AN_IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
/// What is said of something that is no CIDR.
pub(crate) const NOT_A_CIDR: &str =
    "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

/// Reads a CIDR such as `10.0.0.0/8`.
pub(crate) fn parse_cidr(value: &str) -> Option<(IpAddr, u8)> {
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
