//! The JSON paths of printer columns: fields, indexes, `[*]` and filters such as `[?(@.type=="Ready")]`.

use serde_json::Value;

/// A path has no more steps.
const STEPS_MAX: usize = 64;

/// A parsed path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JsonPath(Vec<PathStep>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum PathStep {
    Field(String),
    Index(i64),
    All,
    /// The entries whose value at a path is, or is not, this text.
    Filter(JsonPath, bool, String),
}

impl JsonPath {
    /// Reads a path such as `.status.conditions[?(@.type=="Ready")].status`; `None` when it is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut rest = text.trim();
        rest = rest
            .strip_prefix('{')
            .and_then(|r| r.strip_suffix('}'))
            .unwrap_or(rest);
        rest = rest.strip_prefix('$').unwrap_or(rest);
        let mut steps = Vec::new();
        while !rest.is_empty() && steps.len() < STEPS_MAX {
            if let Some(after) = rest.strip_prefix('[') {
                let end = closing(after)?;
                steps.push(bracket(after.get(..end)?)?);
                rest = after.get(end + 1..)?;
                continue;
            }
            rest = rest.strip_prefix('.').unwrap_or(rest);
            let (name, after) = field(rest)?;
            steps.push(match name.as_str() {
                "*" => PathStep::All,
                _ => PathStep::Field(name),
            });
            rest = after;
        }
        rest.is_empty().then_some(Self(steps))
    }

    /// The values at the path.
    pub(crate) fn find<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        let mut found = vec![value];
        for step in &self.0 {
            found = found
                .into_iter()
                .flat_map(|value| step.find(value))
                .collect();
        }
        found
    }
}

impl PathStep {
    fn find<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        match (self, value) {
            (Self::Field(name), value) => value.get(name).into_iter().collect(),
            (Self::Index(index), Value::Array(list)) => {
                let length = i64::try_from(list.len()).unwrap_or(i64::MAX);
                let index = if *index < 0 { index + length } else { *index };
                usize::try_from(index)
                    .ok()
                    .and_then(|i| list.get(i))
                    .into_iter()
                    .collect()
            }
            (Self::All, Value::Array(list)) => list.iter().collect(),
            (Self::All, Value::Object(map)) => map.values().collect(),
            (Self::Filter(path, equal, text), Value::Array(list)) => {
                let is = |entry: &&Value| {
                    let has = path.find(entry).into_iter().any(|value| match value {
                        Value::String(found) => found == text,
                        other => *text == format!("{other}"),
                    });
                    has == *equal
                };
                list.iter().filter(is).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// A name and what follows it; `\.` is a dot within the name.
fn field(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut chars = text.char_indices();
    while let Some((i, c)) = chars.next() {
        match c {
            '\\' => name.push(chars.next()?.1),
            '.' | '[' => return (!name.is_empty()).then(|| (name, &text[i..])),
            c => name.push(c),
        }
    }
    (!name.is_empty()).then_some((name, ""))
}

/// The position at which the bracket that is open at the start of a text is closed.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0_usize, None);
    for (i, c) in text.char_indices() {
        match (quote, c) {
            (Some(q), c) if q == c => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(i),
            (None, ']') => depth -= 1,
            _ => {}
        }
    }
    None
}

fn unquoted(text: &str) -> Option<&str> {
    let inner = |q: char| text.strip_prefix(q)?.strip_suffix(q);
    inner('\'').or_else(|| inner('"'))
}

fn bracket(text: &str) -> Option<PathStep> {
    let text = text.trim();
    if text == "*" {
        return Some(PathStep::All);
    }
    if let Some(name) = unquoted(text) {
        return Some(PathStep::Field(name.to_owned()));
    }
    if let Some(filter) = text.strip_prefix("?(").and_then(|t| t.strip_suffix(')')) {
        let (left, equal, right) = match (filter.split_once("=="), filter.split_once("!=")) {
            (Some((left, right)), _) => (left, true, right),
            (None, Some((left, right))) => (left, false, right),
            (None, None) => return None,
        };
        let path = JsonPath::parse(left.trim().strip_prefix('@')?)?;
        let right = right.trim();
        let text = unquoted(right).unwrap_or(right);
        return Some(PathStep::Filter(path, equal, text.to_owned()));
    }
    text.parse().ok().map(PathStep::Index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_find_what_kubectl_prints() {
        let object = json!({
            "metadata": {"labels": {"a.b/c": "x"}},
            "status": {"conditions": [
                {"type": "Ready", "status": "True", "n": 1}, {"type": "Other", "status": "False", "n": 2},
            ]},
        });
        let cases = [
            (".status.conditions[0].type", json!(["Ready"])),
            (".status.conditions[-1].type", json!(["Other"])),
            (".status.conditions[*].status", json!(["True", "False"])),
            (
                ".status.conditions[?(@.type==\"Ready\")].status",
                json!(["True"]),
            ),
            (
                ".status.conditions[?(@.type != 'Ready')].status",
                json!(["False"]),
            ),
            (".status.conditions[?(@.n==2)].type", json!(["Other"])),
            (".metadata.labels['a.b/c']", json!(["x"])),
            (".metadata.labels.a\\.b/c", json!(["x"])),
            ("{.metadata.labels.none}", json!([])),
        ];
        for (path, expect) in cases {
            let parsed = JsonPath::parse(path).unwrap_or_else(|| panic!("{path}"));
            assert_eq!(json!(parsed.find(&object)), expect, "{path}");
        }
        for wrong in [".a[", ".a[b]", "..", ".a[?(b)]", ".a.[?(@.b=="] {
            assert_eq!(JsonPath::parse(wrong), None, "{wrong}");
        }
    }
}
