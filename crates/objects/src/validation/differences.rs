//! The differences between a value that may not change and a new one, for errors.
//!
//! kube-apiserver appends the lines of its internal structures that differ; Berth the fields of the API.

use super::errors::{ErrorPath, Shown};
use serde_json::Value;

/// The number of differences that an error lists.
const DIFFERENCES_MAX: usize = 10;

/// An error text, followed by the fields in which `before` and `after` differ.
pub(crate) fn with_differences(
    text: &str,
    (before, after): (&Value, &Value),
    path: &ErrorPath<'_>,
) -> String {
    let mut differences = Vec::new();
    find_differences(before, after, path, &mut differences);
    if differences.is_empty() {
        text.to_owned()
    } else {
        format!("{text}\n{}", show(&differences))
    }
}

/// A field that differs: its path, what it was, what it would be.
struct FieldDifference<'a> {
    path: ErrorPath<'a>,
    before: Option<Value>,
    after: Option<Value>,
}

fn find_differences<'a>(
    before: &'a Value,
    after: &'a Value,
    path: &ErrorPath<'a>,
    found: &mut Vec<FieldDifference<'a>>,
) {
    if before == after {
        return;
    }
    match (before, after) {
        (Value::Object(b), Value::Object(a)) => {
            let mut names: Vec<&String> = b.keys().chain(a.keys()).collect();
            names.sort_unstable();
            names.dedup();
            for name in names {
                let path = path.child(name);
                match (b.get(name), a.get(name)) {
                    (Some(b), Some(a)) => find_differences(b, a, &path, found),
                    (b, a) => found.push(FieldDifference {
                        path,
                        before: b.cloned(),
                        after: a.cloned(),
                    }),
                }
            }
        }
        // Lists of another length have moved entries: the list differs as a whole.
        (Value::Array(b), Value::Array(a)) if b.len() == a.len() => {
            for (i, (b, a)) in b.iter().zip(a).enumerate() {
                find_differences(b, a, &path.index(i), found);
            }
        }
        _ => found.push(FieldDifference {
            path: path.clone(),
            before: Some(before.clone()),
            after: Some(after.clone()),
        }),
    }
}

fn show(differences: &[FieldDifference<'_>]) -> String {
    let value = |v: &Option<Value>| match v {
        None => "unset".to_owned(),
        Some(v) => {
            let text = Shown::from(v).0;
            match text.char_indices().nth(80) {
                Some((cut, _)) => format!("{} …", text.get(..cut).unwrap_or("")),
                None => text,
            }
        }
    };
    let mut lines: Vec<String> = differences
        .iter()
        .take(DIFFERENCES_MAX)
        .map(|d| format!("  {}: {} -> {}", d.path, value(&d.before), value(&d.after)))
        .collect();
    if differences.len() > DIFFERENCES_MAX {
        lines.push(format!(
            "  and {} more",
            differences.len() - DIFFERENCES_MAX
        ));
    }
    lines.join("\n")
}
