//! The JSONPath expressions of custom resources: `.spec.replicas`, `.status.conditions[?(@.type=="Ready")].status`.
//!
//! Fields, indexes, the wildcard and filters that compare a field with a string or number; what Kubernetes allows
//! beyond that in other places (ranges, unions, descent) is rejected.

use serde_json::Value;

/// Steps of a path are no more.
const STEPS_MAX: usize = 64;

/// A parsed expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JsonPath(Vec<Step>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Field(String),
    Index(usize),
    All,
    /// Entries whose field at the path equals the value.
    Where(JsonPath, String),
}

impl JsonPath {
    /// Parses an expression; `None` when it is none of the supported ones.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = text
            .strip_prefix('{')
            .and_then(|t| t.strip_suffix('}'))
            .unwrap_or(text);
        let mut rest = text.strip_prefix('$').unwrap_or(text);
        let mut steps = Vec::new();
        while !rest.is_empty() && steps.len() < STEPS_MAX {
            if let Some(after) = rest.strip_prefix('.') {
                let (name, after) = field(after)?;
                steps.push(Step::Field(name));
                rest = after;
            } else {
                let inner = rest.strip_prefix('[')?;
                let (step, after) = bracket(inner)?;
                steps.push(step);
                rest = after;
            }
        }
        rest.is_empty().then_some(Self(steps))
    }

    /// The first value that the path leads to.
    pub(crate) fn first<'a>(&self, value: &'a Value) -> Option<&'a Value> {
        find(&self.0, value)
    }
}

/// A name up to the next dot or bracket; a backslash escapes.
fn field(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut chars = text.char_indices();
    while let Some((i, c)) = chars.next() {
        match c {
            '\\' => name.push(chars.next()?.1),
            '.' | '[' => return (!name.is_empty()).then_some((name, text.get(i..)?)),
            c => name.push(c),
        }
    }
    (!name.is_empty()).then_some((name, ""))
}

fn bracket(text: &str) -> Option<(Step, &str)> {
    if let Some(filter) = text.strip_prefix("?(@") {
        let (path, after) = filter.split_once("==")?;
        let (value, after) = after.split_once(")]")?;
        let value = value.trim();
        let value = value
            .strip_prefix(['"', '\''])
            .map_or(value, |v| v.trim_end_matches(['"', '\'']));
        let path = JsonPath::parse(path.trim())?;
        return Some((Step::Where(path, value.to_owned()), after));
    }
    if let Some(quote) = text.chars().next().filter(|c| matches!(c, '\'' | '"')) {
        let (name, after) = text.get(1..)?.split_once(quote)?;
        return Some((Step::Field(name.to_owned()), after.strip_prefix(']')?));
    }
    let (inside, after) = text.split_once(']')?;
    let step = if inside == "*" {
        Step::All
    } else {
        Step::Index(inside.parse().ok()?)
    };
    Some((step, after))
}

fn find<'a>(steps: &[Step], value: &'a Value) -> Option<&'a Value> {
    let Some((step, rest)) = steps.split_first() else {
        return Some(value);
    };
    match step {
        Step::Field(name) => find(rest, value.get(name)?),
        Step::Index(index) => find(rest, value.get(index)?),
        Step::All => entries(value).find_map(|v| find(rest, v)),
        Step::Where(path, wanted) => entries(value)
            .filter(|entry| match path.first(entry) {
                Some(Value::String(text)) => text == wanted,
                Some(other) => format!("{other}") == *wanted,
                None => false,
            })
            .find_map(|v| find(rest, v)),
    }
}

fn entries(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Array(list) => Box::new(list.iter()),
        Value::Object(map) => Box::new(map.values()),
        _ => Box::new(std::iter::empty()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_lead_to_values() {
        let object = json!({
            "metadata": {"labels": {"a.b/c": "x"}},
            "spec": {"replicas": 3, "ports": [{"port": 80}, {"port": 81}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Old", "status": "False"}]},
        });
        let cases = [
            (".spec.replicas", Some(json!(3))),
            ("{.spec.ports[1].port}", Some(json!(81))),
            (".spec.ports[*].port", Some(json!(80))),
            (
                ".status.conditions[?(@.type==\"Old\")].status",
                Some(json!("False")),
            ),
            (
                ".status.conditions[?(@.type=='Ready')].status",
                Some(json!("True")),
            ),
            (r".metadata.labels.a\.b/c", Some(json!("x"))),
            (".metadata.labels['a.b/c']", Some(json!("x"))),
            (".spec.missing.deep", None),
            (".spec.ports[7]", None),
        ];
        for (path, expect) in cases {
            let found = JsonPath::parse(path).and_then(|p| p.first(&object).cloned());
            assert_eq!(found, expect, "{path}");
        }
        for bad in ["spec", ".spec..x", ".a[", ".a[x]", ".", ".a[?(@.b)]"] {
            assert_eq!(JsonPath::parse(bad), None, "{bad}");
        }
    }
}
