//! Node selectors: the nodes for a pod, a volume or a device.
//!
//! Terms are alternatives, and within a term everything must match. No terms, and a term without requirements,
//! match nothing. A term may not parse; the effect of that depends on the caller:
//!
//! - [`CompiledNodeSelector::new`] keeps the error in the term and reports it only when no other term matches, as
//!   a pod's required affinity and a volume's affinity are read;
//! - [`CompiledNodeSelector::compile_strict`] refuses the selector at once, as configuration and devices are read.

use crate::selector::{Operator, Requirement, Selector, SelectorError};
use crate::string::null_default;
use crate::{Labels, Str, field_error};
use serde::{Deserialize, Serialize};

/// The only field of a node that terms can match.
pub const NAME_FIELD: &str = "metadata.name";

/// Alternatives of requirements on a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeSelector {
    /// The alternatives.
    #[serde(deserialize_with = "null_default")]
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

/// Requirements on a node's labels and fields. All must be met.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeSelectorTerm {
    /// Requirements on labels.
    #[serde(deserialize_with = "null_default")]
    pub match_expressions: Vec<NodeSelectorRequirement>,
    /// Requirements on fields.
    #[serde(deserialize_with = "null_default")]
    pub match_fields: Vec<NodeSelectorRequirement>,
}

/// A requirement on a label or field, not yet checked.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeSelectorRequirement {
    /// The key of the label, or the path of the field.
    #[serde(deserialize_with = "null_default")]
    pub key: Str,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`.
    #[serde(deserialize_with = "null_default")]
    pub operator: Str,
    /// The values that the label or field is compared with.
    #[serde(deserialize_with = "null_default")]
    pub values: Vec<Str>,
}

/// A preferred term with its weight.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PreferredSchedulingTerm {
    /// The weight of a node that matches, 1 to 100.
    #[serde(deserialize_with = "null_default")]
    pub weight: i32,
    /// The term.
    #[serde(deserialize_with = "null_default")]
    pub preference: NodeSelectorTerm,
}

impl NodeSelectorTerm {
    /// Returns whether there is no requirement, so that nothing matches.
    pub fn is_empty(&self) -> bool {
        self.match_expressions.is_empty() && self.match_fields.is_empty()
    }

    /// The names to which fields restrict the term, sorted; none when they do not.
    fn node_names(&self) -> Option<Vec<Str>> {
        let mut names: Option<Vec<Str>> = None;
        for requirement in &self.match_fields {
            if requirement.key == NAME_FIELD && requirement.operator == "In" {
                match &mut names {
                    None => names = Some(requirement.values.clone()),
                    Some(names) => names.retain(|name| requirement.values.contains(name)),
                }
            }
        }
        names
    }
}

impl NodeSelector {
    /// The names of the only nodes that can match, sorted, each once. None when some alternative does not name
    /// nodes, or when there is no alternative. Empty when the alternatives contradict themselves.
    pub fn node_names(&self) -> Option<Vec<Str>> {
        if self.node_selector_terms.is_empty() {
            return None;
        }
        let mut names = Vec::new();
        for term in &self.node_selector_terms {
            names.extend(term.node_names()?);
        }
        names.sort();
        names.dedup();
        Some(names)
    }
}

/// The reason why a node selector cannot be parsed; the message is the API's.
pub type ParseError = SelectorError;

/// A node selector ready for matching.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CompiledNodeSelector(Vec<CompiledTerm>);

/// A term ready for matching. Empty terms are never compiled.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct CompiledTerm {
    labels: Selector,
    fields: Vec<FieldRequirement>,
    /// The faults of the term, one message each; such a term matches nothing.
    problems: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct FieldRequirement {
    key: Str,
    negated: bool,
    value: Str,
}

impl CompiledNodeSelector {
    /// Compiles a selector whose errors matter only if no term matches.
    pub fn new(selector: &NodeSelector) -> Self {
        Self::compile(selector, "")
    }

    /// Compiles a selector in which every term must parse. `path` is its path, for the messages;
    /// empty at the root.
    ///
    /// # Errors
    /// All problems of all terms.
    pub fn compile_strict(selector: &NodeSelector, path: &str) -> Result<Self, ParseError> {
        let compiled = Self::compile(selector, path);
        let problems: Vec<String> = compiled.problems().cloned().collect();
        fail_if_any(&problems)?;
        Ok(compiled)
    }

    fn compile(selector: &NodeSelector, path: &str) -> Self {
        let path = field_error::child(path, "nodeSelectorTerms");
        let terms = selector.node_selector_terms.iter().enumerate();
        Self(
            terms
                .filter(|(_, term)| !term.is_empty())
                .map(|(at, term)| CompiledTerm::new(term, &format!("{path}[{at}]")))
                .collect(),
        )
    }

    fn problems(&self) -> impl Iterator<Item = &String> {
        self.0.iter().flat_map(|term| &term.problems)
    }

    /// Returns whether a node of this name with these labels matches some term.
    ///
    /// # Errors
    /// No term matches, and some terms cannot be parsed.
    pub fn matches(&self, labels: &Labels, name: &str) -> Result<bool, ParseError> {
        if self.0.iter().any(|term| term.matches(labels, name)) {
            return Ok(true);
        }
        if self.problems().next().is_some() {
            let problems: Vec<String> = self.problems().cloned().collect();
            fail_if_any(&problems)?;
        }
        Ok(false)
    }
}

impl CompiledTerm {
    fn new(term: &NodeSelectorTerm, path: &str) -> Self {
        let mut compiled = Self {
            labels: Selector::everything(),
            fields: Vec::with_capacity(term.match_fields.len()),
            problems: Vec::new(),
        };
        let mut requirements = Vec::with_capacity(term.match_expressions.len());
        for (at, expression) in term.match_expressions.iter().enumerate() {
            match compile_label(expression, &format!("{path}.matchExpressions[{at}]")) {
                Ok(requirement) => requirements.push(requirement),
                Err(problem) => compiled.problems.push(problem),
            }
        }
        compiled.labels = Selector::from_requirements(requirements);
        for (at, field) in term.match_fields.iter().enumerate() {
            match compile_field(field, &format!("{path}.matchFields[{at}]")) {
                Ok(requirement) => compiled.fields.push(requirement),
                Err(problem) => compiled.problems.push(problem),
            }
        }
        compiled
    }

    fn matches(&self, labels: &Labels, name: &str) -> bool {
        self.problems.is_empty() && self.labels.matches(labels) && self.fields_match(name)
    }

    fn fields_match(&self, name: &str) -> bool {
        // A node without a name has no fields; in that case field requirements are ignored.
        name.is_empty()
            || self.fields.iter().all(|field| {
                let value = if field.key == NAME_FIELD { name } else { "" };
                (field.value == value) != field.negated
            })
    }
}

fn compile_label(expression: &NodeSelectorRequirement, path: &str) -> Result<Requirement, String> {
    let operator = match expression.operator.as_str() {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        "Gt" => Operator::GreaterThan,
        "Lt" => Operator::LessThan,
        other => {
            return Err(field_error::unsupported(
                &field_error::child(path, "operator"),
                other,
                &["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"],
            ));
        }
    };
    let (key, values) = (expression.key.clone(), expression.values.clone());
    Requirement::new(key, operator, values, path).map_err(|error| error.0)
}

fn compile_field(field: &NodeSelectorRequirement, path: &str) -> Result<FieldRequirement, String> {
    let negated = match field.operator.as_str() {
        "In" => false,
        "NotIn" => true,
        other => {
            return Err(field_error::unsupported(
                &field_error::child(path, "operator"),
                other,
                &["In", "NotIn"],
            ));
        }
    };
    let [value] = &field.values[..] else {
        return Err(field_error::invalid_list(
            &field_error::child(path, "values"),
            &field.values,
            "must have one element",
        ));
    };
    Ok(FieldRequirement {
        key: field.key.clone(),
        negated,
        value: value.clone(),
    })
}

fn fail_if_any(problems: &[String]) -> Result<(), ParseError> {
    if problems.is_empty() {
        Ok(())
    } else {
        Err(SelectorError(field_error::aggregate(problems)))
    }
}

/// Preferred terms ready for scoring.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct CompiledPreferredTerms(Vec<(i64, CompiledTerm)>);

impl CompiledPreferredTerms {
    /// Compiles terms. Terms of weight 0 and terms without requirements are omitted without being parsed. `path` is the
    /// path of the list in messages; empty at the root.
    ///
    /// # Errors
    /// All problems of the other terms.
    pub fn new(terms: &[PreferredSchedulingTerm], path: &str) -> Result<Self, ParseError> {
        let compiled: Vec<(i64, CompiledTerm)> = terms
            .iter()
            .enumerate()
            .filter(|(_, term)| term.weight != 0 && !term.preference.is_empty())
            .map(|(at, term)| {
                let compiled = CompiledTerm::new(&term.preference, &format!("{path}[{at}]"));
                (i64::from(term.weight), compiled)
            })
            .collect();
        let problems: Vec<String> = compiled
            .iter()
            .flat_map(|(_, term)| term.problems.clone())
            .collect();
        fail_if_any(&problems)?;
        Ok(Self(compiled))
    }

    /// Returns whether no term has a weight.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The sum of the weights of the terms that a node of this name with these labels matches.
    pub fn score(&self, labels: &Labels, name: &str) -> i64 {
        self.0
            .iter()
            .filter(|(_, term)| term.matches(labels, name))
            .map(|(weight, _)| weight)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn selector(json: &str) -> NodeSelector {
        serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"))
    }

    /// A selector of the given terms.
    fn terms(terms: &str) -> NodeSelector {
        selector(&format!(r#"{{"nodeSelectorTerms":[{terms}]}}"#))
    }

    const ZONE_A: &str =
        r#"{"matchExpressions":[{"key":"zone","operator":"In","values":["a","b"]}]}"#;
    const BAD: &str = r#"{"matchExpressions":[{"key":"zone","operator":"In"}]}"#;

    fn node() -> Labels {
        Labels::from_pairs([("zone", "a"), ("cpus", "8"), ("kind", "fast")])
    }

    /// PL-20.
    #[test]
    fn terms_match_a_node() {
        let expression = |json: &str| format!(r#"{{"matchExpressions":[{json}]}}"#);
        let field = |json: &str| format!(r#"{{"matchFields":[{json}]}}"#);
        for (case, expected) in [
            // Nothing matches without terms or requirements.
            (String::new(), false),
            ("{}".to_owned(), false),
            (
                r#"{"matchExpressions":[],"matchFields":null}"#.to_owned(),
                false,
            ),
            (format!("{{}},{ZONE_A}"), true),
            // Operators.
            (ZONE_A.to_owned(), true),
            (
                expression(r#"{"key":"rack","operator":"In","values":["1"]}"#),
                false,
            ),
            (
                expression(r#"{"key":"zone","operator":"NotIn","values":["a"]}"#),
                false,
            ),
            (
                expression(r#"{"key":"rack","operator":"NotIn","values":["1"]}"#),
                true,
            ),
            (expression(r#"{"key":"zone","operator":"Exists"}"#), true),
            (expression(r#"{"key":"rack","operator":"Exists"}"#), false),
            (
                expression(r#"{"key":"rack","operator":"DoesNotExist"}"#),
                true,
            ),
            (
                expression(r#"{"key":"cpus","operator":"Gt","values":["7"]}"#),
                true,
            ),
            (
                expression(r#"{"key":"cpus","operator":"Gt","values":["8"]}"#),
                false,
            ),
            (
                expression(r#"{"key":"cpus","operator":"Lt","values":["9"]}"#),
                true,
            ),
            (
                expression(r#"{"key":"kind","operator":"Gt","values":["1"]}"#),
                false,
            ),
            (
                expression(r#"{"key":"rack","operator":"Lt","values":["1"]}"#),
                false,
            ),
            // All of a term, any of the terms.
            (
                expression(
                    r#"{"key":"zone","operator":"Exists"},{"key":"rack","operator":"Exists"}"#,
                ),
                false,
            ),
            (
                format!(
                    "{},{ZONE_A}",
                    expression(r#"{"key":"rack","operator":"Exists"}"#)
                ),
                true,
            ),
            // Fields.
            (
                field(r#"{"key":"metadata.name","operator":"In","values":["n1"]}"#),
                true,
            ),
            (
                field(r#"{"key":"metadata.name","operator":"In","values":["n2"]}"#),
                false,
            ),
            (
                field(r#"{"key":"metadata.name","operator":"NotIn","values":["n2"]}"#),
                true,
            ),
            (
                field(r#"{"key":"metadata.uid","operator":"In","values":["n1"]}"#),
                false,
            ),
            (
                r#"{"matchExpressions":[{"key":"rack","operator":"Exists"}],
                    "matchFields":[{"key":"metadata.name","operator":"In","values":["n1"]}]}"#
                    .to_owned(),
                false,
            ),
        ] {
            let selector = terms(&case);
            let lazy = CompiledNodeSelector::new(&selector);
            assert_eq!(lazy.matches(&node(), "n1"), Ok(expected), "{case}");
            let strict = CompiledNodeSelector::compile_strict(&selector, "");
            assert_eq!(strict, Ok(lazy), "{case}");
        }
    }

    /// PL-21: errors are lazy.
    #[test]
    fn an_error_matters_only_when_no_other_term_matches() {
        let message = "nodeSelectorTerms[0].matchExpressions[0].values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty";
        let either = terms(&format!("{BAD},{ZONE_A}"));
        let lazy = CompiledNodeSelector::new(&either);
        assert_eq!(lazy.matches(&node(), "n1"), Ok(true));
        assert_eq!(
            lazy.matches(&Labels::default(), "n1")
                .unwrap_err()
                .to_string(),
            message
        );
        let strict = CompiledNodeSelector::compile_strict(&either, "spec").unwrap_err();
        assert_eq!(strict.to_string(), format!("spec.{message}"));
    }

    #[test]
    fn bad_terms_are_refused_with_upstreams_words() {
        for (case, message) in [
            (
                r#"{"matchExpressions":[{"key":"a","operator":"Like"}]}"#,
                r#"nodeSelectorTerms[0].matchExpressions[0].operator: Unsupported value: "Like": supported values: "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt""#,
            ),
            (
                r#"{"matchFields":[{"key":"metadata.name","operator":"Exists"}]}"#,
                r#"nodeSelectorTerms[0].matchFields[0].operator: Unsupported value: "Exists": supported values: "In", "NotIn""#,
            ),
            (
                r#"{"matchFields":[{"key":"metadata.name","operator":"In","values":["a","b"]}]}"#,
                r#"nodeSelectorTerms[0].matchFields[0].values: Invalid value: ["a","b"]: must have one element"#,
            ),
            (
                r#"{},{"matchExpressions":[{"key":"a","operator":"Gt","values":["x"]}]},
                    {"matchFields":[{"key":"metadata.name","operator":"NotIn"}]}"#,
                r#"[nodeSelectorTerms[1].matchExpressions[0].values[0]: Invalid value: "x": for 'Gt', 'Lt' operators, the value must be an integer, nodeSelectorTerms[2].matchFields[0].values: Invalid value: null: must have one element]"#,
            ),
        ] {
            let selector = terms(case);
            let strict = CompiledNodeSelector::compile_strict(&selector, "").unwrap_err();
            assert_eq!(strict.to_string(), message, "{case}");
            let lazy = CompiledNodeSelector::new(&selector).matches(&node(), "n1");
            assert_eq!(lazy.unwrap_err().to_string(), message, "{case}");
        }
        // A negative integer is an integer but no label value.
        let negative =
            terms(r#"{"matchExpressions":[{"key":"a","operator":"Gt","values":["-5"]}]}"#);
        assert!(CompiledNodeSelector::compile_strict(&negative, "").is_err());
    }

    #[test]
    fn preferred_terms_add_up() {
        let preferred = |json: &str| {
            let terms: Vec<PreferredSchedulingTerm> = serde_json::from_str(json).unwrap();
            CompiledPreferredTerms::new(&terms, "preferred")
        };
        let json = format!(
            r#"[{{"weight":5,"preference":{ZONE_A}}},
                {{"weight":3,"preference":{{"matchExpressions":[{{"key":"cpus","operator":"Exists"}}]}}}},
                {{"weight":7,"preference":{{"matchExpressions":[{{"key":"rack","operator":"Exists"}}]}}}},
                {{"weight":0,"preference":{BAD}}},
                {{"weight":9,"preference":{{}}}}]"#
        );
        let terms = preferred(&json).unwrap();
        assert_eq!(terms.score(&node(), "n1"), 8);
        assert_eq!(terms.score(&Labels::default(), "n1"), 0);
        assert!(
            preferred(r#"[{"weight":9,"preference":{}}]"#)
                .unwrap()
                .is_empty()
        );
        let error = preferred(&format!(r#"[{{"weight":1,"preference":{BAD}}}]"#)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "preferred[0].matchExpressions[0].values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"
        );
    }

    #[test]
    fn names_narrow_the_nodes() {
        let by_name = |names: &[&str]| {
            let fields: Vec<String> = names
                .iter()
                .map(|name| {
                    format!(r#"{{"key":"metadata.name","operator":"In","values":["{name}"]}}"#)
                })
                .collect();
            format!(r#"{{"matchFields":[{}]}}"#, fields.join(","))
        };
        for (case, names) in [
            (String::new(), None),
            (ZONE_A.to_owned(), None),
            (by_name(&["n1"]), Some(vec!["n1"])),
            (
                format!("{},{}", by_name(&["n2"]), by_name(&["n1"])),
                Some(vec!["n1", "n2"]),
            ),
            (format!("{},{ZONE_A}", by_name(&["n1"])), None),
            (by_name(&["n1", "n2"]), Some(vec![])),
            (
                format!("{},{}", by_name(&["n1", "n2"]), by_name(&["n3"])),
                Some(vec!["n3"]),
            ),
        ] {
            let found = terms(&case).node_names();
            let found = found
                .as_ref()
                .map(|names| names.iter().map(Str::as_str).collect::<Vec<_>>());
            assert_eq!(found, names, "{case}");
        }
    }

    proptest! {
        #[test]
        fn no_selector_panics(
            key in "\\PC*",
            operator in "In|NotIn|Exists|DoesNotExist|Gt|Lt|\\PC*",
            values: Vec<String>,
            name in "\\PC*",
        ) {
            let requirement = NodeSelectorRequirement {
                key: key.into(),
                operator: operator.into(),
                values: values.into_iter().map(Str::from).collect(),
            };
            let selector = NodeSelector {
                node_selector_terms: vec![NodeSelectorTerm {
                    match_expressions: vec![requirement.clone()],
                    match_fields: vec![requirement],
                }],
            };
            let lazy = CompiledNodeSelector::new(&selector).matches(&Labels::default(), &name);
            let strict = CompiledNodeSelector::compile_strict(&selector, "");
            prop_assert_eq!(lazy.is_err(), strict.is_err());
            let _ = selector.node_names();
        }
    }
}
