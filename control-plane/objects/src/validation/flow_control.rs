//! FlowSchemas and PriorityLevelConfigurations: the checks that tables cannot express.

use super::errors::{ErrorPath, Errors};
use super::names;
use super::owner::Owner;
use crate::flow_control::mandatory_flow_spec;
use crate::view::FieldView;
use serde_json::Value;

/// The verbs that rules name.
const VERBS: [&str; 9] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "proxy",
    "update",
    "watch",
];
/// The maximum number of bits of a hash that a hand of queues takes.
const HASH_BITS_MAX: f64 = 60.0;

pub(crate) fn flow_namespaces(e: &mut Errors, _: &Owner, list: &Value, path: &ErrorPath) {
    each_unless_all(list, |i, name| {
        for problem in names::dns_label(name) {
            let detail =
                format!("each member of this list must be '*' or a DNS-1123 label; {problem}");
            e.invalid(&path.index(i), name, detail);
        }
    });
}

pub(crate) fn flow_paths(e: &mut Errors, _: &Owner, list: &Value, path: &ErrorPath) {
    each_unless_all(list, |i, url| {
        if let Some(detail) = path_fault(url) {
            e.invalid(&path.index(i), url, detail);
        }
    });
}

pub(crate) fn flow_verbs(e: &mut Errors, _: &Owner, list: &Value, path: &ErrorPath) {
    each_unless_all(list, |_, verb| {
        if !VERBS.contains(&verb) {
            e.not_supported(path, verb, &VERBS);
        }
    });
}

pub(crate) fn name_or_all(e: &mut Errors, _: &Owner, name: &Value, path: &ErrorPath) {
    let name = name.as_str().unwrap_or("");
    if name != "*" {
        e.each_invalid(path, name, names::dns_subdomain(name));
    }
}

/// Calls `check` for the entries of a list that is not `*`.
fn each_unless_all(list: &Value, mut check: impl FnMut(usize, &str)) {
    let entries = list.as_array().map_or(&[][..], Vec::as_slice);
    if entries.iter().any(|entry| entry == "*") {
        return;
    }
    for (i, entry) in entries.iter().enumerate() {
        check(i, entry.as_str().unwrap_or(""));
    }
}

fn path_fault(path: &str) -> Option<&'static str> {
    let wildcards = path.matches('*').count();
    match path {
        "/" => None,
        "" => Some("must not be empty"),
        _ if !path.starts_with('/') => Some("must start with slash"),
        _ if path.contains(' ') => Some("must not contain white-space"),
        _ if path.contains("//") => Some("must not contain double slash"),
        _ if wildcards > 1 || (wildcards == 1 && !path.ends_with("/*")) => {
            Some("wildcard can only do suffix matching")
        }
        _ => None,
    }
}

pub(crate) fn flow_schema(
    errors: &mut Errors,
    _: &Owner<'_>,
    schema: &Value,
    path: &ErrorPath<'_>,
) {
    let (name, spec) = (schema.part("metadata").text("name"), schema.part("spec"));
    let (at, precedence) = (path.child("spec"), spec.int("matchingPrecedence"));
    if precedence == 1 && name != "exempt" {
        let detail = "only the schema named 'exempt' may have matchingPrecedence 1";
        errors.invalid(&at.child("matchingPrecedence"), precedence, detail);
    }
    if mandatory_flow_spec("FlowSchema", name).is_some_and(|fixed| fixed != *spec) {
        errors.invalid(
            &at,
            spec,
            format!("spec of '{name}' must equal the fixed value"),
        );
    }
}

pub(crate) fn priority_level(
    errors: &mut Errors,
    _: &Owner<'_>,
    level: &Value,
    path: &ErrorPath<'_>,
) {
    let (name, spec) = (level.part("metadata").text("name"), level.part("spec"));
    let (at, kind) = (path.child("spec"), spec.text("type"));
    if (name == "exempt") != (kind == "Exempt") {
        let detail = "must be 'Exempt' if and only if `name` is 'exempt'";
        errors.invalid(&at.child("type"), kind, detail);
    }
    let Some(fixed) = mandatory_flow_spec("PriorityLevelConfiguration", name) else {
        return;
    };
    let (is_kept, but) = match name {
        "exempt" => (kind == "Exempt", " except the 'spec.exempt' field"),
        _ => (fixed == *spec, ""),
    };
    if !is_kept {
        errors.invalid(
            &at,
            spec,
            format!("spec of '{name}'{but} must equal the fixed value"),
        );
    }
}

pub(crate) fn hand_size(
    errors: &mut Errors,
    owner: &Owner<'_>,
    size: &Value,
    path: &ErrorPath<'_>,
) {
    let (size, queues) = (size.as_i64().unwrap_or(0), owner.value.int("queues"));
    if size <= 0 {
        return;
    }
    let real = |number: i64| f64::from(i32::try_from(number).unwrap_or(i32::MAX));
    let bits = (real(queues).log2() * real(size)).ceil();
    if size > queues {
        let detail = format!("should not be greater than queues ({queues})");
        errors.invalid(path, size, detail);
    } else if bits > HASH_BITS_MAX {
        let detail = format!(
            "required entropy bits of deckSize {queues} and handSize {size} should not be greater than {HASH_BITS_MAX}"
        );
        errors.invalid(path, size, detail);
    }
}
