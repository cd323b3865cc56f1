//! Quantities inside JSON objects: reading them, and writing them as the API stores them.

use super::errors::{ErrorPath, Errors, IS_NEGATIVE};
use crate::view::FieldView;
use berth_api::Quantity;
use serde_json::Value;
use std::collections::BTreeMap;

/// Amounts by resource.
pub type Amounts = BTreeMap<String, Quantity>;

/// The message about an invalid quantity.
const NOT_A_QUANTITY: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
/// The message about a fraction of something that cannot be divided.
const NOT_AN_INTEGER: &str = "must be an integer";

/// Resources that are counted and cannot be divided.
const COUNTED: &[&str] = &[
    "pods",
    "services",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

/// Reads a quantity from a JSON string or number.
pub(crate) fn parse(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.trim().parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    }
}

/// A quantity of a list of resources, if it is present and well formed.
pub(crate) fn get(resources: &Value, list: &str, name: &str) -> Option<Quantity> {
    resources.field(list)?.field(name).and_then(parse)
}

/// The well-formed quantities of a list of resources.
pub fn list(resources: &Value, list: &str) -> Amounts {
    let entries = resources.map(list).into_iter().flatten();
    entries
        .filter_map(|(name, value)| Some((name.clone(), parse(value)?)))
        .collect()
}

/// Errors of the amount of one resource: well formed, not negative, whole where it is counted.
pub(crate) fn validate(
    errors: &mut Errors,
    resource: &str,
    value: &Value,
    path: &ErrorPath,
) -> Option<Quantity> {
    let Some(quantity) = parse(value) else {
        errors.invalid(path, value, NOT_A_QUANTITY);
        return None;
    };
    let shown = quantity.to_string();
    if quantity.sign() < 0 {
        errors.invalid(path, &shown, IS_NEGATIVE);
    }
    if (COUNTED.contains(&resource) || is_extended(resource))
        && !quantity.rounded_to_milli().is_integer()
    {
        errors.invalid(path, &shown, NOT_AN_INTEGER);
    }
    Some(quantity)
}

/// Returns whether this resource is Kubernetes' own: without a domain, or in one of kubernetes.io.
pub(crate) fn is_native(resource: &str) -> bool {
    !resource.contains('/') || resource.contains("kubernetes.io/")
}

/// Returns whether this is an extended resource such as `example.com/gpu`.
pub(crate) fn is_extended(resource: &str) -> bool {
    !is_native(resource)
        && !resource.starts_with("requests.")
        && super::names::qualified_name(&format!("requests.{resource}")).is_empty()
}

/// Returns whether this is a size of huge pages such as `hugepages-2Mi`.
pub(crate) fn is_huge_page(resource: &str) -> bool {
    resource.starts_with("hugepages-")
}

/// Returns whether requests may be lower than limits.
pub(crate) fn is_overcommit_allowed(resource: &str) -> bool {
    is_native(resource) && !is_huge_page(resource)
}

/// Returns whether an amount of huge pages is a whole number of pages.
pub(crate) fn is_whole_huge_pages(resource: &str, quantity: Quantity) -> bool {
    let size: Option<Quantity> = resource
        .strip_prefix("hugepages-")
        .and_then(|size| size.parse().ok());
    match size {
        Some(size) if size.sign() > 0 && size.is_integer() && size.value() > 0 => {
            quantity.value() % size.value() == 0
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn resources_are_classified() {
        assert!(is_extended("example.com/gpu") && !is_overcommit_allowed("example.com/gpu"));
        assert!(!is_extended("requests.example.com/gpu") && !is_extended("cpu"));
        assert!(!is_extended("kubernetes.io/x") && is_native("kubernetes.io/x"));
        assert!(!is_overcommit_allowed("hugepages-2Mi") && is_overcommit_allowed("cpu"));
        let cases = [("4Mi", true), ("0", true), ("3Mi", false)];
        for (amount, whole) in cases {
            let quantity = parse(&json!(amount)).unwrap_or_default();
            assert_eq!(
                is_whole_huge_pages("hugepages-2Mi", quantity),
                whole,
                "{amount}"
            );
        }
        assert!(!is_whole_huge_pages("hugepages-x", Quantity::ZERO));
    }

    #[test]
    fn amounts_are_checked() {
        let cases = [
            ("cpu", json!("100m"), 0),
            ("cpu", json!("-1"), 1),
            ("pods", json!("1500m"), 1),
            ("example.com/gpu", json!("-500m"), 2),
            ("cpu", json!("x"), 1),
        ];
        for (resource, value, count) in cases {
            let mut errors = Errors::new();
            validate(&mut errors, resource, &value, &ErrorPath::new("p"));
            assert_eq!(errors.into_vec().len(), count, "{resource} {value}");
        }
    }
}
