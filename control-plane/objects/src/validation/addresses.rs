//! Addresses, address ranges and host names, with the rules that kube-apiserver 1.36 has for fields that once allowed
//! more (`StrictIPCIDRValidation`).

use super::errors::{ErrorPath, Errors};
use super::names;
use super::owner::Owner;
use serde_json::Value;
use std::net::{IpAddr, Ipv6Addr};

pub(crate) fn host_name_text(e: &mut Errors, _: &Owner, name: &Value, path: &ErrorPath) {
    host_name(e, name.as_str().unwrap_or(""), path)
}

pub(crate) fn ip(e: &mut Errors, _: &Owner, ip: &Value, path: &ErrorPath) {
    validate_ip(e, ip.as_str().unwrap_or(""), path);
}

/// Errors of an address. Returns whether it has none.
pub(crate) fn validate_ip(errors: &mut Errors, text: &str, path: &ErrorPath) -> bool {
    let before = errors.len();
    if names::parse_ip(text).is_none() {
        errors.invalid(path, text, names::NOT_AN_IP);
    } else if text.parse::<IpAddr>().is_err() {
        errors.invalid(path, text, "must not have leading 0s");
    } else if is_mapped(text) {
        errors.invalid(path, text, "must not be an IPv4-mapped IPv6 address");
    }
    errors.len() == before
}

fn is_mapped(text: &str) -> bool {
    let v6 = text.parse::<Ipv6Addr>();
    v6.is_ok_and(|ip| ip.to_ipv4_mapped().is_some())
}

/// Errors of a range of addresses.
pub(crate) fn validate_cidr(errors: &mut Errors, text: &str, path: &ErrorPath) {
    let Some((_, bits)) = names::parse_cidr(text) else {
        errors.invalid(path, text, names::NOT_A_CIDR);
        return;
    };
    let (address, length) = text.split_once('/').unwrap_or((text, ""));
    let strict = address.parse::<IpAddr>().ok();
    let Some(address) = strict.filter(|_| length == bits.to_string()) else {
        let detail = "must not have leading 0s in IP or prefix length";
        errors.invalid(path, text, detail);
        return;
    };
    let has_more_bits = match address {
        IpAddr::V4(ip) => ip.to_bits().checked_shl(bits.into()).unwrap_or(0) != 0,
        IpAddr::V6(ip) => ip.to_bits().checked_shl(bits.into()).unwrap_or(0) != 0,
    };
    if is_mapped(&address.to_string()) {
        errors.invalid(path, text, "must not have an IPv4-mapped IPv6 address");
    } else if has_more_bits {
        let detail = "must not have bits set beyond the prefix length";
        errors.invalid(path, text, detail);
    }
}

/// Errors of the address of an endpoint, which must not be a special address.
pub(crate) fn validate_endpoint(errors: &mut Errors, text: &str, path: &ErrorPath) {
    let Some(ip) = names::parse_ip(text) else {
        errors.invalid(path, text, "must be a valid IP address");
        return;
    };
    if ip.is_unspecified() {
        errors.invalid(path, text, format!("may not be unspecified ({text})"));
    }
    if ip.is_loopback() {
        let detail = "may not be in the loopback range (127.0.0.0/8, ::1/128)";
        errors.invalid(path, text, detail);
    }
    let (unicast, multicast) = match ip {
        IpAddr::V4(ip) => (ip.is_link_local(), ip.octets().starts_with(&[224, 0, 0])),
        IpAddr::V6(ip) => (
            ip.is_unicast_link_local(),
            ip.segments().first() == Some(&0xff02),
        ),
    };
    if unicast {
        let detail = "may not be in the link-local range (169.254.0.0/16, fe80::/10)";
        errors.invalid(path, text, detail);
    }
    if multicast {
        let detail = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)";
        errors.invalid(path, text, detail);
    }
}

/// Errors of a host name, which must not be an address.
pub(super) fn host_name(errors: &mut Errors, name: &str, path: &ErrorPath) {
    errors.each_invalid(path, name, names::dns_subdomain(name));
    if names::parse_ip(name).is_some() {
        errors.invalid(path, name, "must be a DNS name, not an IP address");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str, check: impl Fn(&mut Errors, &str, &ErrorPath)) -> Vec<String> {
        let mut errors = Errors::new();
        check(&mut errors, text, &ErrorPath::new("f"));
        errors.into_vec().into_iter().map(|e| e.detail).collect()
    }

    #[test]
    fn addresses_and_ranges_are_strict() {
        let ip = |text| faults(text, |e, t, p| _ = validate_ip(e, t, p));
        for good in ["10.9.8.7", "2001:db8::1", "::"] {
            assert_eq!(ip(good), [""; 0], "{good}");
        }
        assert_eq!(ip("1.2.3"), [names::NOT_AN_IP]);
        assert_eq!(ip("010.1.1.1"), ["must not have leading 0s"]);
        assert_eq!(
            ip("::ffff:1.2.3.4"),
            ["must not be an IPv4-mapped IPv6 address"]
        );
        let cidr = |text| faults(text, validate_cidr);
        for good in [
            "10.0.0.0/8",
            "0.0.0.0/0",
            "2001:db8::/64",
            "1.2.3.4/32",
            "::/0",
        ] {
            assert_eq!(cidr(good), [""; 0], "{good}");
        }
        assert_eq!(cidr("10.0.0.0"), [names::NOT_A_CIDR]);
        assert_eq!(
            cidr("10.0.0.0/08"),
            ["must not have leading 0s in IP or prefix length"]
        );
        assert_eq!(
            cidr("10.0.0.1/8"),
            ["must not have bits set beyond the prefix length"]
        );
        assert_eq!(
            cidr("::ffff:10.0.0.0/104"),
            ["must not have an IPv4-mapped IPv6 address"]
        );
    }

    #[test]
    fn endpoints_have_no_special_addresses() {
        let cases = [
            ("10.1.1.1", ""),
            ("0.0.0.0", "may not be unspecified (0.0.0.0)"),
            (
                "::1",
                "may not be in the loopback range (127.0.0.0/8, ::1/128)",
            ),
            (
                "169.254.1.1",
                "may not be in the link-local range (169.254.0.0/16, fe80::/10)",
            ),
            (
                "224.0.0.1",
                "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)",
            ),
        ];
        for (text, fault) in cases {
            let found = faults(text, validate_endpoint).join("; ");
            assert_eq!(found, fault, "{text}");
        }
    }
}
