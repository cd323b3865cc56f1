//! Label selectors: decoded, checked, compiled, matched, printed.
//!
//! A [`Selector`] is in a canonical order, so that equal ones compare and hash equal and can key caches. Cloning
//! shares. `selector/parse.rs` reads the text form (`app in (a,b),!c`), `selector/field.rs` field selectors.

mod field;
mod parse;

pub use field::{FieldSelector, FieldTerm};

use crate::string::null_default;
use crate::{Labels, Str, field_error, names};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// The reason why a selector cannot be used; the message is the API's.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(pub(crate) String);

/// A label selector as objects hold it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LabelSelector {
    /// Labels that must be there with these values.
    pub match_labels: Labels,
    /// Further requirements. All must be met.
    #[serde(deserialize_with = "null_default")]
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

/// A requirement of a label selector, not yet checked.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LabelSelectorRequirement {
    /// The label's key.
    #[serde(deserialize_with = "null_default")]
    pub key: Str,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    #[serde(deserialize_with = "null_default")]
    pub operator: Str,
    /// The values of `In` and `NotIn`.
    #[serde(deserialize_with = "null_default")]
    pub values: Vec<Str>,
}

/// The way in which a requirement compares a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operator {
    /// There is a label with one of the values.
    In,
    /// There is no label with any of the values; perhaps there is no label.
    NotIn,
    /// There is a label with the value.
    Equals,
    /// There is no label with the value; perhaps there is no label.
    NotEquals,
    /// There is a label.
    Exists,
    /// There is no label.
    DoesNotExist,
    /// The label's value is a larger integer.
    GreaterThan,
    /// The label's value is a smaller integer.
    LessThan,
}

/// The number of values that are searched one by one.
const FEW: usize = 16;

/// One checked requirement of a [`Selector`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Requirement {
    key: Str,
    operator: Operator,
    /// Sorted, each once. One of them for `Equals`, `NotEquals`, `GreaterThan` and `LessThan`.
    values: Box<[Str]>,
    /// The bound of `GreaterThan` and `LessThan`; 0 for the others.
    bound: i64,
}

impl Requirement {
    /// A requirement, or all its problems. `path` is its path, for the messages; empty at the root.
    pub fn new(
        key: Str,
        operator: Operator,
        mut values: Vec<Str>,
        path: &str,
    ) -> Result<Self, SelectorError> {
        use field_error::{child, invalid, invalid_list};
        let mut problems = Vec::new();
        let wrong = names::label_key(&key);
        if !wrong.is_empty() {
            problems.push(invalid(&child(path, "key"), &key, &wrong.join("; ")));
        }
        let values_path = child(path, "values");
        let mut bound = 0;
        match operator {
            Operator::In | Operator::NotIn if values.is_empty() => problems.push(invalid_list(
                &values_path,
                &values,
                "for 'in', 'notin' operators, values set can't be empty",
            )),
            Operator::Equals | Operator::NotEquals if values.len() != 1 => {
                problems.push(invalid_list(
                    &values_path,
                    &values,
                    "exact-match compatibility requires one single value",
                ));
            }
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                problems.push(invalid_list(
                    &values_path,
                    &values,
                    "values set must be empty for exists and does not exist",
                ));
            }
            Operator::GreaterThan | Operator::LessThan => {
                if values.len() != 1 {
                    problems.push(invalid_list(
                        &values_path,
                        &values,
                        "for 'Gt', 'Lt' operators, exactly one value is required",
                    ));
                }
                for (at, value) in values.iter().enumerate() {
                    match value.parse() {
                        Ok(integer) => bound = integer,
                        Err(_) => problems.push(invalid(
                            &format!("{values_path}[{at}]"),
                            value,
                            "for 'Gt', 'Lt' operators, the value must be an integer",
                        )),
                    }
                }
            }
            _ => {}
        }
        for (at, value) in values.iter().enumerate() {
            let wrong = names::label_value(value);
            if !wrong.is_empty() {
                let path = format!("{values_path}[{at}][{key}]");
                problems.push(invalid(&path, value, &wrong.join("; ")));
            }
        }
        if !problems.is_empty() {
            return Err(SelectorError(field_error::aggregate(&problems)));
        }
        values.sort();
        values.dedup();
        Ok(Self {
            key,
            operator,
            values: values.into(),
            bound,
        })
    }

    /// Requires `key` to have `value`. Nothing is checked.
    fn equals(key: Str, value: Str) -> Self {
        Self {
            key,
            operator: Operator::Equals,
            values: Box::new([value]),
            bound: 0,
        }
    }

    /// The label's key.
    pub fn key(&self) -> &Str {
        &self.key
    }

    /// The way in which the label is compared.
    pub fn operator(&self) -> Operator {
        self.operator
    }

    /// The values with which the label is compared, sorted.
    pub fn values(&self) -> &[Str] {
        &self.values
    }

    /// The single value that the label must have, if only one will do.
    pub fn exact_value(&self) -> Option<&Str> {
        match (self.operator, &self.values[..]) {
            (Operator::Equals | Operator::In, [value]) => Some(value),
            _ => None,
        }
    }

    fn has_value(&self, value: &str) -> bool {
        if self.values.len() > FEW {
            let found = self.values.binary_search_by(|own| own.as_str().cmp(value));
            return found.is_ok();
        }
        self.values.iter().any(|own| own == value)
    }

    /// Returns whether the requirement is met by a label with this value, or by there being no such label.
    pub fn is_met_by(&self, value: Option<&str>) -> bool {
        let among = |value: &str| self.has_value(value);
        match (self.operator, value) {
            (Operator::Equals | Operator::In, value) => value.is_some_and(among),
            (Operator::NotEquals | Operator::NotIn, value) => !value.is_some_and(among),
            (Operator::Exists, value) => value.is_some(),
            (Operator::DoesNotExist, value) => value.is_none(),
            (Operator::GreaterThan, value) => integer(value).is_some_and(|own| own > self.bound),
            (Operator::LessThan, value) => integer(value).is_some_and(|own| own < self.bound),
        }
    }
}

fn integer(value: Option<&str>) -> Option<i64> {
    value?.parse().ok()
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        let values = Joined(&self.values);
        match self.operator {
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::Exists => write!(f, "{key}"),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

/// Prints the elements separated by commas.
struct Joined<'a, T>(&'a [T]);

impl<T: fmt::Display> fmt::Display for Joined<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, item) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            item.fmt(f)?;
        }
        Ok(())
    }
}

/// A compiled label selector.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Selector(RequirementKind);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum RequirementKind {
    Nothing,
    Everything,
    /// At least one, sorted.
    All(Arc<[Requirement]>),
}

impl Selector {
    /// Matches nothing. It is not [empty](Self::is_empty).
    pub const fn nothing() -> Self {
        Self(RequirementKind::Nothing)
    }

    /// Matches whatever there is.
    pub const fn everything() -> Self {
        Self(RequirementKind::Everything)
    }

    /// Matches labels that meet all `requirements`; matches everything if there are none.
    pub fn from_requirements(mut requirements: Vec<Requirement>) -> Self {
        if requirements.is_empty() {
            return Self::everything();
        }
        requirements.sort();
        Self(RequirementKind::All(requirements.into()))
    }

    /// Matches labels that include all of `labels`; matches everything if there are none. The labels are not checked.
    pub fn from_labels(labels: &Labels) -> Self {
        let equals = labels
            .iter()
            .map(|(key, value)| Requirement::equals(key.clone(), value.clone()));
        Self::from_requirements(equals.collect())
    }

    /// Compiles a selector. None matches nothing, one without requirements everything.
    ///
    /// # Errors
    /// The first requirement that breaks a rule.
    pub fn from_label_selector(selector: Option<&LabelSelector>) -> Result<Self, SelectorError> {
        let Some(selector) = selector else {
            return Ok(Self::nothing());
        };
        let mut requirements =
            Vec::with_capacity(selector.match_labels.len() + selector.match_expressions.len());
        for (key, value) in selector.match_labels.iter() {
            let values = vec![value.clone()];
            requirements.push(Requirement::new(key.clone(), Operator::Equals, values, "")?);
        }
        for expression in &selector.match_expressions {
            let operator = match expression.operator.as_str() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => {
                    return Err(SelectorError(format!(
                        "{} is not a valid label selector operator",
                        field_error::quote(other)
                    )));
                }
            };
            let (key, values) = (expression.key.clone(), expression.values.clone());
            requirements.push(Requirement::new(key, operator, values, "")?);
        }
        Ok(Self::from_requirements(requirements))
    }

    /// This selector with more requirements. Nothing stays nothing.
    #[must_use]
    pub fn and(&self, requirements: impl IntoIterator<Item = Requirement>) -> Self {
        match &self.0 {
            RequirementKind::Nothing => Self::nothing(),
            _ => Self::from_requirements(
                self.requirements()
                    .iter()
                    .cloned()
                    .chain(requirements)
                    .collect(),
            ),
        }
    }

    /// Returns whether the selector restricts nothing. False for the selector that matches nothing.
    pub fn is_empty(&self) -> bool {
        matches!(self.0, RequirementKind::Everything)
    }

    /// Returns whether this is the selector that matches nothing. Contradictions (`a,!a`) are not detected.
    pub fn is_nothing(&self) -> bool {
        matches!(self.0, RequirementKind::Nothing)
    }

    /// The requirements, sorted by key; none both for everything and for nothing.
    pub fn requirements(&self) -> &[Requirement] {
        match &self.0 {
            RequirementKind::All(requirements) => requirements,
            RequirementKind::Nothing | RequirementKind::Everything => &[],
        }
    }

    /// A label and its only allowed value, if the selector requires such a label. It can be used as the key of an
    /// index.
    pub fn first_exact(&self) -> Option<(&Str, &Str)> {
        self.requirements()
            .iter()
            .find_map(|requirement| Some((&requirement.key, requirement.exact_value()?)))
    }

    /// The only value that the selector allows for the label `key`, if there is one.
    pub fn exact_value(&self, key: &str) -> Option<&Str> {
        self.requirements()
            .iter()
            .filter(|requirement| requirement.key == key)
            .find_map(Requirement::exact_value)
    }

    /// Returns whether `labels` meet all requirements.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.matches_with(|key| labels.get(key))
    }

    /// Returns whether the labels that `get` looks up meet all requirements.
    pub fn matches_with<'a>(&self, mut get: impl FnMut(&str) -> Option<&'a str>) -> bool {
        match &self.0 {
            RequirementKind::Nothing => false,
            RequirementKind::Everything => true,
            RequirementKind::All(requirements) => requirements
                .iter()
                .all(|requirement| requirement.is_met_by(get(&requirement.key))),
        }
    }
}

/// The text form: `a=b,c in (d,e),!f`. Empty both for everything and for nothing.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Joined(self.requirements()).fmt(f)
    }
}

#[cfg(test)]
mod tests;
