//! The differences between an immutable value and a new value, for errors.
//!
//! As in kube-apiserver, these are lines of the JSON of internal types. Values that are too different for a comparison by lines
//! are compared by field.

use super::errors::{ErrorPath, Shown};
use super::internal::InternalPart;
use crate::unified_diff::unified_diff;
use serde_json::Value;

/// The number of differences that an error lists.
const DIFFERENCES_MAX: usize = 10;

/// An error text, followed by the differences of `before` and `after`, which are this part of an object.
pub(super) fn with_differences(
    text: &str,
    part: InternalPart,
    before: &Value,
    after: &Value,
    path: &ErrorPath<'_>,
) -> String {
    match unified_diff(&part.lines(before), &part.lines(after)) {
        Some(lines) => format!("{text}\n{lines}"),
        None => by_field(text, before, after, path),
    }
}

/// An error text, followed by the fields that differ between `before` and `after`.
fn by_field(text: &str, before: &Value, after: &Value, path: &ErrorPath<'_>) -> String {
    let mut differences = Vec::new();
    find_differences(before, after, path, &mut differences);
    if differences.is_empty() {
        text.to_owned()
    } else {
        format!("{text}\n{}", show(&differences))
    }
}

/// A field that differs: its path, its old and its new value.
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Recorded from the packages of Kubernetes 1.36.2 that kube-apiserver uses: specs of the v1 API with their
    /// defaults, and the differences of the internal specs.
    #[test]
    fn differences_are_those_of_kubernetes() {
        let cases = include_str!("tests/differences.jsonl").lines();
        let mut count = 0;
        for case in cases {
            let case: Value = serde_json::from_str(case).expect("JSON");
            let kind = case["kind"].as_str().expect("a kind");
            let part = match kind {
                "Pod" => InternalPart::PodSpec,
                "PersistentVolumeClaim" => InternalPart::PersistentVolumeClaimSpec,
                _ => InternalPart::PersistentVolumeSource,
            };
            let (before, after) = (&case["before"], &case["after"]);
            let path = ErrorPath::new("spec");
            let text = with_differences("fixed", part, before, after, &path);
            let expected = format!("fixed\n{}", case["differences"].as_str().expect("a text"));
            let first = text.lines().zip(expected.lines()).find(|(a, b)| a != b);
            assert!(text == expected, "{kind} {count}: {first:?}");
            count += 1;
        }
        assert_eq!(count, 8);
    }

    #[test]
    fn at_most_ten_fields_are_listed() {
        let many: serde_json::Map<String, Value> = (0..30)
            .map(|i| (format!("k{i:02}"), json!("é".repeat(60))))
            .collect();
        let path = ErrorPath::new("spec");
        let (before, after) = (json!({"hostname": "a"}), json!({"nodeSelector": many}));
        let text = by_field("fixed", &before, &after, &path);
        assert_eq!(text.lines().count(), 3, "{text}");
        let after = json!({"hostname": "a", "nodeSelector": many});
        let before = json!({"hostname": "b", "nodeSelector": {"k00": "x"}});
        let text = by_field("fixed", &before, &after, &path);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "  spec.hostname: \"b\" -> \"a\"");
        assert_eq!((lines.len(), lines[11]), (12, "  and 21 more"));
    }
}
