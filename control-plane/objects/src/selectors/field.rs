//! Field selectors: `spec.nodeName=n1,status.phase!=Failed`, over the fields that a kind offers.

use crate::catalog::{Selectable, ServedResource};
use crate::view::at_path;
use berth_api::selector::{self, FieldTerm, SelectorError};
use serde_json::Value;
use std::borrow::Cow;

/// Fields that must equal, or must not equal, a value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSelector {
    terms: Vec<PointerTerm>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct PointerTerm {
    field: Selectable,
    term: FieldTerm,
}

impl FieldSelector {
    /// Parses a selector for a resource; an empty text matches all objects.
    ///
    /// # Errors
    /// The message of upstream about it.
    pub fn parse(resource: &ServedResource, text: &str) -> Result<Self, String> {
        let parsed: selector::FieldSelector =
            text.parse().map_err(|e: SelectorError| e.to_string())?;
        let terms = parsed.terms().iter().map(|term| {
            let field = resource.selectable(&term.field)?;
            let term = term.clone();
            Ok(PointerTerm { field, term })
        });
        Ok(Self {
            terms: terms.collect::<Result<_, String>>()?,
        })
    }

    /// Returns whether every object matches.
    pub fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }

    /// Returns whether this object matches.
    pub fn matches(&self, object: &Value) -> bool {
        self.terms.iter().all(|term| {
            let value = at_path(object, term.field.pointer);
            let fallback = |pointer: &str| at_path(object, pointer);
            let value = value
                .filter(|value| term.field.fallback.is_none() || *value != "")
                .or_else(|| term.field.fallback.and_then(fallback));
            let value = match value {
                Some(Value::String(text)) => Cow::Borrowed(text.as_str()),
                Some(Value::Bool(b)) => Cow::Borrowed(if *b { "true" } else { "false" }),
                Some(Value::Number(n)) => Cow::Owned(n.to_string()),
                _ => Cow::Borrowed(term.field.absent),
            };
            term.term.matches(&value)
        })
    }

    /// The paths of the fields.
    pub(super) fn pointers(&self) -> impl Iterator<Item = &'static str> {
        let fields = self.terms.iter().map(|term| term.field);
        fields.flat_map(|field| std::iter::once(field.pointer).chain(field.fallback))
    }

    /// The value that a field must have, when the selector requires one.
    pub fn required(&self, label: &str) -> Option<&str> {
        self.terms
            .iter()
            .find(|t| !t.term.negated && t.field.label == label)
            .map(|t| t.term.value.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog;
    use serde_json::json;

    fn select(resource: &str, text: &str, object: &Value) -> Result<bool, String> {
        let Some(resource) = catalog::find("", resource) else {
            return Err("no such resource".to_owned());
        };
        FieldSelector::parse(resource, text).map(|s| s.matches(object))
    }

    #[test]
    fn selects_by_the_fields_of_the_kind() {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "d"},
            "spec": {"nodeName": "n1", "hostNetwork": true},
            "status": {"phase": "Running"},
        });
        let cases = [
            ("", true),
            ("spec.nodeName=n1", true),
            ("spec.nodeName==n1,status.phase!=Failed", true),
            ("spec.nodeName!=n1", false),
            ("status.nominatedNodeName=", true),
            ("spec.hostNetwork=true", true),
            ("metadata.name=p,", true),
        ];
        for (text, expect) in cases {
            assert_eq!(select("pods", text, &pod), Ok(expect), "{text}");
        }
        assert_eq!(
            select("nodes", "spec.unschedulable=false", &json!({"spec": {}})),
            Ok(true)
        );
    }

    #[test]
    fn refuses_with_the_words_of_upstream() {
        let cases = [
            (
                "pods",
                "spec.color=red",
                "field label not supported: spec.color",
            ),
            (
                "pods",
                "spec.nodeName",
                "invalid selector: 'spec.nodeName'; can't understand 'spec.nodeName'",
            ),
            (
                "configmaps",
                "data=x",
                "\"data\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
            ),
        ];
        for (resource, text, expect) in cases {
            assert_eq!(
                select(resource, text, &json!({})).err().as_deref(),
                Some(expect),
                "{text}"
            );
        }
    }
}
