//! The syntax of names, label keys and label values, and the classes of resource names.
//!
//! The checks return the messages of the API, one for each rule that is violated, and none for a valid text. Lengths
//! are in bytes, as everywhere in Kubernetes, although the messages of object names mention "characters".

/// The most bytes of a DNS label (RFC 1123 and RFC 1035).
pub const DNS_LABEL_LEN_MAX: usize = 63;
/// The most bytes of a DNS subdomain (RFC 1123).
pub const DNS_SUBDOMAIN_LEN_MAX: usize = 253;
/// The most bytes of the name part of a label key.
pub const LABEL_KEY_NAME_LEN_MAX: usize = 63;
/// The most bytes of a label's value.
pub const LABEL_VALUE_LEN_MAX: usize = 63;

/// Starts the name of every resource of huge pages, `hugepages-2Mi`.
pub const HUGEPAGES_PREFIX: &str = "hugepages-";
/// Starts the name of every resource of attachable volumes of a kind.
pub const ATTACHABLE_VOLUMES_PREFIX: &str = "attachable-volumes-";
/// The prefix of names by which a quota limits requests; no resource may have such a name.
pub const QUOTA_REQUESTS_PREFIX: &str = "requests.";
/// The prefix of the name of the resource of a device class.
pub const DEVICE_CLASS_PREFIX: &str = "deviceclass.resource.kubernetes.io/";

/// The number of random characters that the API server appends to `generateName`.
pub const GENERATED_END_LEN: usize = 5;

/// The start of a name that is generated from `generateName`, before its random end. The whole name fits into a DNS
/// label.
pub fn generated_start(generate_name: &str) -> &str {
    let len_max = DNS_LABEL_LEN_MAX - GENERATED_END_LEN;
    let mut ends = (0..=len_max.min(generate_name.len())).rev();
    let end = ends.find(|end| generate_name.is_char_boundary(*end));
    &generate_name[..end.unwrap_or(0)]
}

const LABEL_KEY_SYNTAX: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
     with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

/// The faults of `name` as a DNS label (RFC 1123): `my-name`.
pub fn dns1123_label(name: &str) -> Vec<String> {
    let mut problems = longer_than(DNS_LABEL_LEN_MAX, "characters", name);
    if !is_dns_label(name) {
        problems.push(if is_dns_subdomain(name) {
            "must not contain dots".to_owned()
        } else {
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
             and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
                .to_owned()
        });
    }
    problems
}

/// The faults of `name` as a DNS subdomain (RFC 1123): `my-name.example.com`. Most objects' names are one.
pub fn dns1123_subdomain(name: &str) -> Vec<String> {
    subdomain(name, "characters")
}

/// The faults of `name` as a DNS label that starts with a letter (RFC 1035), as a service's name does.
pub fn dns1035_label(name: &str) -> Vec<String> {
    let mut problems = longer_than(DNS_LABEL_LEN_MAX, "characters", name);
    if !is_dns_label(name) || !name.starts_with(|first: char| first.is_ascii_lowercase()) {
        problems.push(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
             validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
                .to_owned(),
        );
    }
    problems
}

/// The faults of `key` as a label key, also called qualified name: `app` or `example.com/app`.
pub fn label_key(key: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let name = match key.split_once('/') {
        None => key,
        Some((_, name)) if name.contains('/') => {
            // With several slashes the prefix is ambiguous, so only the syntax is reported.
            return vec![format!(
                "a valid label key {LABEL_KEY_SYNTAX} with an optional DNS subdomain prefix and '/' \
                 (e.g. 'example.com/MyName')"
            )];
        }
        Some(("", name)) => {
            problems.push("prefix part must be non-empty".to_owned());
            name
        }
        Some((prefix, name)) => {
            let in_prefix = subdomain(prefix, "bytes");
            problems.extend(
                in_prefix
                    .iter()
                    .map(|problem| format!("prefix part {problem}")),
            );
            name
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else {
        let too_long = longer_than(LABEL_KEY_NAME_LEN_MAX, "bytes", name);
        problems.extend(
            too_long
                .iter()
                .map(|problem| format!("name part {problem}")),
        );
    }
    if !is_label_name(name) {
        problems.push(format!("name part {LABEL_KEY_SYNTAX}"));
    }
    problems
}

/// The faults of `value` as a label's value. The empty text is one.
pub fn label_value(value: &str) -> Vec<String> {
    let mut problems = longer_than(LABEL_VALUE_LEN_MAX, "bytes", value);
    if !value.is_empty() && !is_label_name(value) {
        problems.push(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
             must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', \
             regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
                .to_owned(),
        );
    }
    problems
}

/// The faults of `key` as the key of an annotation: a label key, in any case.
pub fn annotation_key(key: &str) -> Vec<String> {
    label_key(&key.to_lowercase())
}

/// Returns whether `text` is an integer in canonical decimal form: no leading zeros, no `+`, no `-0`.
pub fn is_decimal_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    match digits.as_bytes() {
        [b'0'] => digits.len() == text.len(),
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

fn longer_than(len_max: usize, unit: &str, text: &str) -> Vec<String> {
    if text.len() > len_max {
        vec![format!("must be no more than {len_max} {unit}")]
    } else {
        Vec::new()
    }
}

fn subdomain(name: &str, unit: &str) -> Vec<String> {
    let mut problems = longer_than(DNS_SUBDOMAIN_LEN_MAX, unit, name);
    if !is_dns_subdomain(name) {
        problems.push(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
             must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                .to_owned(),
        );
    }
    problems
}

fn is_dns_label(text: &str) -> bool {
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    is_enclosed(text, alphanumeric, |byte| {
        alphanumeric(byte) || *byte == b'-'
    })
}

fn is_dns_subdomain(text: &str) -> bool {
    text.split('.').all(is_dns_label)
}

fn is_label_name(text: &str) -> bool {
    is_enclosed(text, u8::is_ascii_alphanumeric, |byte| {
        byte.is_ascii_alphanumeric() || b"-_.".contains(byte)
    })
}

/// Returns whether `text` starts and ends with bytes that `outer` accepts, with bytes that `inner` accepts in between.
fn is_enclosed(text: &str, outer: impl Fn(&u8) -> bool, inner: impl Fn(&u8) -> bool) -> bool {
    match text.as_bytes() {
        [] => false,
        [only] => outer(only),
        [first, between @ .., last] => outer(first) && outer(last) && between.iter().all(inner),
    }
}

// --- classes of resource names -------------------------------------------------------------------------

/// Returns whether the resource is Kubernetes' own: its name has no domain, or one of `kubernetes.io`.
pub fn is_native_resource(name: &str) -> bool {
    !name.contains('/') || is_prefixed_native_resource(name)
}

/// Returns whether the resource belongs to Kubernetes by its name: it contains `kubernetes.io/`.
pub fn is_prefixed_native_resource(name: &str) -> bool {
    name.contains("kubernetes.io/")
}

/// Returns whether the resource is an extended one: `example.com/gpu`.
pub fn is_extended_resource_name(name: &str) -> bool {
    !is_native_resource(name)
        && !name.starts_with(QUOTA_REQUESTS_PREFIX)
        && label_key(&format!("{QUOTA_REQUESTS_PREFIX}{name}")).is_empty()
}

/// Returns whether the resource is huge pages of some size.
pub fn is_hugepages(name: &str) -> bool {
    name.starts_with(HUGEPAGES_PREFIX)
}

/// Returns whether the resource is attachable volumes of some kind.
pub fn is_attachable_volumes(name: &str) -> bool {
    name.starts_with(ATTACHABLE_VOLUMES_PREFIX)
}

/// Returns whether scheduling tracks the resource as a scalar. CPU, memory, ephemeral storage and pods are tracked
/// separately; all other resources are ignored.
pub fn is_scalar_resource_name(name: &str) -> bool {
    is_hugepages(name)
        || is_attachable_volumes(name)
        || is_prefixed_native_resource(name)
        || is_extended_resource_name(name)
}

/// Returns whether devices may back the resource: an extended resource, or a resource that names a device class.
pub fn is_dra_extended_resource_name(name: &str) -> bool {
    name.starts_with(DEVICE_CLASS_PREFIX) || is_extended_resource_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NAME_PART: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

    #[test]
    fn label_keys() {
        let prefix = format!("prefix part {SUBDOMAIN}");
        let long = "a".repeat(64);
        let long_domain = format!("{}/a", "a".repeat(254));
        for (key, problems) in [
            ("app", vec![]),
            ("A_b.c-1", vec![]),
            ("example.com/app", vec![]),
            ("", vec!["name part must be non-empty", NAME_PART]),
            (
                "example.com/",
                vec!["name part must be non-empty", NAME_PART],
            ),
            ("/app", vec!["prefix part must be non-empty"]),
            ("-app", vec![NAME_PART]),
            ("app ", vec![NAME_PART]),
            ("äpp", vec![NAME_PART]),
            ("Example.com/app", vec![&prefix]),
            ("example..com/app", vec![&prefix]),
            (&long, vec!["name part must be no more than 63 bytes"]),
            (
                &long_domain,
                vec!["prefix part must be no more than 253 bytes"],
            ),
            (
                "a/b/c",
                vec![
                    "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                ],
            ),
        ] {
            assert_eq!(label_key(key), problems, "{key:?}");
        }
        assert!(annotation_key("Example.COM/App").is_empty());
    }

    #[test]
    fn label_values() {
        let syntax = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
        let long = format!("{}-", "a".repeat(63));
        for (value, problems) in [
            ("", vec![]),
            ("1", vec![]),
            ("a_b", vec![]),
            ("-5", vec![syntax]),
            ("a b", vec![syntax]),
            ("a/b", vec![syntax]),
            (&long, vec!["must be no more than 63 bytes", syntax]),
        ] {
            assert_eq!(label_value(value), problems, "{value:?}");
        }
    }

    #[test]
    fn dns_names() {
        let label = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
        for (name, problems) in [
            ("web-1", vec![]),
            ("1web", vec![]),
            ("web.1", vec!["must not contain dots"]),
            ("web..1", vec![label]),
            ("Web", vec![label]),
            ("web-", vec![label]),
            ("", vec![label]),
        ] {
            assert_eq!(dns1123_label(name), problems, "{name:?}");
        }
        let long = "a".repeat(254);
        for (name, problems) in [
            ("web-1.example", vec![]),
            ("web_1", vec![SUBDOMAIN]),
            ("web.", vec![SUBDOMAIN]),
            (&long, vec!["must be no more than 253 characters"]),
        ] {
            assert_eq!(dns1123_subdomain(name), problems, "{name:?}");
        }
        assert!(dns1035_label("web-1").is_empty());
        for name in ["1web", "", "web.a", "web-"] {
            assert_eq!(
                dns1035_label(name),
                [
                    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
                ],
                "{name:?}"
            );
        }
    }

    #[test]
    fn decimal_integers() {
        for (text, expected) in [
            ("0", true),
            ("7", true),
            ("-7", true),
            ("100", true),
            ("", false),
            ("-", false),
            ("-0", false),
            ("007", false),
            ("+7", false),
            ("7a", false),
            ("٣", false),
        ] {
            assert_eq!(is_decimal_integer(text), expected, "{text:?}");
        }
    }

    /// Name, extended, scalar, for devices.
    #[test]
    fn resource_names_have_classes() {
        for (name, extended, scalar, devices) in [
            ("cpu", false, false, false),
            ("pods", false, false, false),
            ("unknown", false, false, false),
            ("example.com/gpu", true, true, true),
            ("requests.example.com/gpu", false, false, false),
            ("example.com/", false, false, false),
            // Capitals are not for domains.
            ("Example.com/gpu", false, false, false),
            ("a/b/c", false, false, false),
            ("hugepages-2Mi", false, true, false),
            ("attachable-volumes-csi-x", false, true, false),
            ("kubernetes.io/batch", false, true, false),
            ("deviceclass.resource.kubernetes.io/gpu", false, true, true),
        ] {
            assert_eq!(is_extended_resource_name(name), extended, "{name} extended");
            assert_eq!(is_scalar_resource_name(name), scalar, "{name} scalar");
            assert_eq!(
                is_dra_extended_resource_name(name),
                devices,
                "{name} devices"
            );
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = (dns1123_label(&text), dns1123_subdomain(&text), dns1035_label(&text));
            let _ = (annotation_key(&text), label_value(&text), is_decimal_integer(&text));
            let _ = is_dra_extended_resource_name(&text);
        }

        #[test]
        fn keys_by_the_rule_are_valid(key in "([a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?\\.){0,3}[a-z0-9]/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?") {
            prop_assert_eq!(label_key(&key), Vec::<String>::new());
        }
    }
}
