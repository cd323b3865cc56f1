//! Label selectors of workloads (`metav1.LabelSelector`), matched against the labels of JSON objects.

use super::object::items;
use serde_json::{Map, Value};

/// A parsed label selector. An empty one matches everything, one that cannot be read matches nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Selector(Option<Vec<Requirement>>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    DoesNotExist(String),
}

impl Selector {
    /// Reads a `LabelSelector`. As upstream, an absent selector matches nothing.
    pub(crate) fn parse(selector: &Value) -> Self {
        Self(parse(selector))
    }

    /// The selector that wants exactly these labels.
    pub(crate) fn of_labels(labels: &Value) -> Self {
        let Some(labels) = labels.as_object() else {
            return Self(Some(Vec::new()));
        };
        Self(Some(labels.iter().filter_map(equality).collect()))
    }

    /// Whether it matches every object, which no workload may ask for.
    pub(crate) fn is_everything(&self) -> bool {
        self.0.as_ref().is_some_and(Vec::is_empty)
    }

    /// Whether it matches these labels.
    pub(crate) fn matches(&self, labels: Option<&Map<String, Value>>) -> bool {
        let value = |key: &str| labels.and_then(|l| l.get(key)).and_then(Value::as_str);
        let Some(requirements) = &self.0 else {
            return false;
        };
        requirements.iter().all(|r| match r {
            Requirement::In(key, values) => {
                value(key).is_some_and(|v| values.iter().any(|w| w == v))
            }
            Requirement::NotIn(key, values) => {
                value(key).is_none_or(|v| values.iter().all(|w| w != v))
            }
            Requirement::Exists(key) => value(key).is_some(),
            Requirement::DoesNotExist(key) => value(key).is_none(),
        })
    }
}

fn equality((key, value): (&String, &Value)) -> Option<Requirement> {
    Some(Requirement::In(
        key.clone(),
        vec![value.as_str()?.to_owned()],
    ))
}

fn parse(selector: &Value) -> Option<Vec<Requirement>> {
    let selector = selector.as_object()?;
    let mut requirements = Vec::new();
    if let Some(labels) = selector.get("matchLabels").and_then(Value::as_object) {
        for entry in labels {
            requirements.push(equality(entry)?);
        }
    }
    for expression in selector.get("matchExpressions").map_or(&[][..], items) {
        let key = expression["key"].as_str()?.to_owned();
        let values = || -> Vec<String> {
            items(&expression["values"])
                .iter()
                .filter_map(|v| v.as_str().map(str::to_owned))
                .collect()
        };
        requirements.push(match expression["operator"].as_str()? {
            "In" => Requirement::In(key, values()),
            "NotIn" => Requirement::NotIn(key, values()),
            "Exists" => Requirement::Exists(key),
            "DoesNotExist" => Requirement::DoesNotExist(key),
            _ => return None,
        });
    }
    Some(requirements)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors_match_as_upstream() {
        let app = json!({"matchLabels": {"app": "web"}});
        let expressions = json!({"matchExpressions": [
            {"key": "app", "operator": "In", "values": ["web", "api"]},
            {"key": "tier", "operator": "NotIn", "values": ["test"]},
            {"key": "x", "operator": "DoesNotExist"}]});
        let exists = json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]});
        let odd = json!({"matchExpressions": [{"key": "app", "operator": "Gt", "values": ["1"]}]});
        for (situation, selector, labels, expected) in [
            ("equal label", &app, json!({"app": "web", "b": "c"}), true),
            ("other value", &app, json!({"app": "api"}), false),
            ("no labels", &app, Value::Null, false),
            (
                "one of the values",
                &expressions,
                json!({"app": "api"}),
                true,
            ),
            (
                "an excluded value",
                &expressions,
                json!({"app": "api", "tier": "test"}),
                false,
            ),
            (
                "a label that must be absent",
                &expressions,
                json!({"app": "api", "x": ""}),
                false,
            ),
            ("the label exists", &exists, json!({"app": ""}), true),
            ("an empty selector", &json!({}), json!({"app": "web"}), true),
            (
                "an absent selector",
                &Value::Null,
                json!({"app": "web"}),
                false,
            ),
            ("an unknown operator", &odd, json!({"app": "2"}), false),
        ] {
            let got = Selector::parse(selector).matches(labels.as_object());
            assert_eq!(got, expected, "{situation}");
        }
        assert!(Selector::parse(&json!({})).is_everything());
        assert!(!Selector::parse(&app).is_everything());
    }
}
