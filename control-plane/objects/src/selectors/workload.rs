//! Label selectors of workloads (`metav1.LabelSelector`), matched against the labels of JSON objects.

use berth_api::Labels;
use berth_api::selector::{self, LabelSelector};
use serde::Deserialize;
use serde_json::{Map, Value};

/// A parsed label selector. An empty selector matches all objects, an invalid selector none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerSelector(selector::Selector);

impl ControllerSelector {
    /// Reads a `LabelSelector`. As upstream, an absent selector matches nothing.
    pub fn parse(selector: &Value) -> Self {
        let compiled = Option::<LabelSelector>::deserialize(selector)
            .ok()
            .and_then(|s| selector::Selector::from_label_selector(s.as_ref()).ok());
        Self(compiled.unwrap_or_else(selector::Selector::nothing))
    }

    /// The selector for exactly these labels.
    pub fn of_labels(labels: &Value) -> Self {
        let labels = Labels::deserialize(labels).unwrap_or_default();
        Self(selector::Selector::from_labels(&labels))
    }

    /// Returns whether it matches every object, which no workload may ask for.
    pub fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether it matches these labels.
    pub fn matches(&self, labels: Option<&Map<String, Value>>) -> bool {
        self.0.matches_with(|key| labels?.get(key)?.as_str())
    }
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
            let got = ControllerSelector::parse(selector).matches(labels.as_object());
            assert_eq!(got, expected, "{situation}");
        }
        assert!(ControllerSelector::parse(&json!({})).is_everything());
        assert!(!ControllerSelector::parse(&app).is_everything());
    }
}
