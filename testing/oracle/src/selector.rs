//! Label selectors. A malformed selector matches nothing.

use berth_api::{LabelSelector, Labels, Str};

/// Returns whether a label selector matches labels: an absent one matches nothing, an empty one everything.
pub fn selects(selector: Option<&LabelSelector>, labels: &Labels) -> bool {
    selector.is_some_and(|selector| {
        let mut equal = selector.match_labels.iter();
        let mut expressions = selector.match_expressions.iter();
        equal.all(|(key, value)| labels.get(key) == Some(value))
            && expressions
                .all(|e| is_met(&e.operator, labels.get(&e.key), &e.values).unwrap_or(false))
    })
}

/// Returns whether a label with this value, or its absence, satisfies a requirement of either kind of selector. None if
/// the requirement is malformed.
pub(crate) fn is_met(operator: &str, value: Option<&str>, values: &[Str]) -> Option<bool> {
    let is_listed = value.is_some_and(|value| values.iter().any(|listed| listed == value));
    match (operator, values) {
        ("In", [_, ..]) => Some(is_listed),
        ("NotIn", [_, ..]) => Some(!is_listed),
        ("Exists", []) => Some(value.is_some()),
        ("DoesNotExist", []) => Some(value.is_none()),
        _ => None,
    }
}
