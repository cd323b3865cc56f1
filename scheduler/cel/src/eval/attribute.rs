//! Attributes: a variable or a value, and the fields and elements that are selected from it.

use super::{Evaluator, Result};
use crate::call_cost::SELECT;
use crate::error::EvaluationError;
use crate::number;
use crate::plan_node::{Attribute, PlanNode, Qualifier, Root};
use crate::value::{CelValue, EvalResult};

impl Evaluator<'_> {
    /// The value of an attribute, without the cost of reading it.
    pub(super) fn attribute(&mut self, attribute: &Attribute) -> EvalResult {
        let value = match &attribute.root {
            // The device is not copied for each selection.
            Root::Device => {
                let device = self.device;
                return self.qualified(device, attribute);
            }
            Root::Slot(slot) => self.variable(*slot)?,
            Root::Take(slot) => self.taken(*slot)?,
            Root::Value(node) => self.value(node)?,
            Root::Conditional(parts) => match self.value(&parts[0])? {
                CelValue::Bool(true) => self.branch(&parts[1])?,
                CelValue::Bool(false) => self.branch(&parts[2])?,
                _ => return Err(EvaluationError::no_such_overload()),
            },
        };
        if attribute.qualifiers.is_empty() {
            return reread(value);
        }
        self.qualified(&value, attribute)
    }

    /// A branch of a conditional: reading it costs nothing in itself.
    fn branch(&mut self, node: &PlanNode) -> EvalResult {
        match node {
            PlanNode::Attribute(attribute) => self.attribute(attribute),
            other => reread(self.value(other)?),
        }
    }

    /// The value that the qualifiers select from a value.
    fn qualified(&mut self, root: &CelValue, attribute: &Attribute) -> EvalResult {
        let mut is_optional = false;
        let mut current: Option<CelValue> = None;
        let last = attribute.qualifiers.len();
        // The fields of an optional variable are optional. The first qualifier of a map of variables names the variable.
        let variable = usize::from(matches!(attribute.root, Root::Device));
        for (index, qualifier) in attribute.qualifiers.iter().enumerate() {
            let of = current.as_ref().unwrap_or(root);
            let of = match of {
                CelValue::Optional(None) if index <= variable => return Ok(self.absent(attribute)),
                CelValue::Optional(Some(value)) if index <= variable => {
                    is_optional = true;
                    native(value)?
                }
                other => other.clone(),
            };
            let is_test = attribute.test_only && index + 1 == last;
            is_optional = is_optional || qualifier.optional;
            let presence = is_test || is_optional;
            let found = match self.key(qualifier) {
                Ok(key) => selected(&of, &key, presence),
                Err(error) => Err(error),
            };
            // The selection costs nothing if an optional value is absent.
            let is_paid = match &found {
                Ok(Some(_)) => true,
                Ok(None) => !is_optional,
                Err(error) => error.is_absorbed() && !is_optional,
            };
            if is_paid {
                self.budget.charge(SELECT)?;
            }
            let found = found?;
            if is_test {
                return Ok(CelValue::Bool(found.is_some()));
            }
            match found {
                Some(value) => current = Some(value),
                None => return Ok(self.absent(attribute)),
            }
        }
        let value = current.unwrap_or_else(|| root.clone());
        if is_optional {
            Ok(CelValue::some(value))
        } else {
            Ok(value)
        }
    }

    fn absent(&self, attribute: &Attribute) -> CelValue {
        if attribute.test_only {
            CelValue::Bool(false)
        } else {
            CelValue::Optional(None)
        }
    }

    fn key(&mut self, qualifier: &Qualifier) -> EvalResult {
        match &qualifier.key {
            PlanNode::Const(value) => Ok(value.clone()),
            PlanNode::Attribute(attribute) => self.attribute(attribute),
            other => self.value(other),
        }
    }
}

/// The value of a variable or a branch. Upstream takes the value of an optional out of it and puts it back.
fn reread(value: CelValue) -> EvalResult {
    match value {
        CelValue::Optional(Some(value)) => native(&value).map(CelValue::some),
        other => Ok(other),
    }
}

/// The value of an optional as upstream reads it. It cannot read back most types of Kubernetes, takes types for texts,
/// and optionals for their values.
fn native(value: &CelValue) -> EvalResult {
    match value {
        CelValue::Quantity(_)
        | CelValue::Semver(_)
        | CelValue::Ip(_)
        | CelValue::Cidr(_)
        | CelValue::Url(_) => Err(EvaluationError::failed(format!(
            "unsupported conversion of {} inside of an optional",
            value.type_name()
        ))),
        CelValue::Type(name) => Ok(CelValue::text(name)),
        CelValue::Optional(None) => Ok(CelValue::Null),
        CelValue::Optional(Some(value)) => native(value),
        other => Ok(other.clone()),
    }
}

/// The value that a key selects from a value; nothing if it is missing and that is no error.
fn selected(of: &CelValue, key: &CelValue, presence: bool) -> Result<Option<CelValue>> {
    let found = match of {
        CelValue::Message(message) => message.1.get(key),
        CelValue::Map(map) => map.get(key),
        CelValue::List(elements) => {
            let index = match *key {
                CelValue::Int(index) => usize::try_from(index).ok(),
                CelValue::Uint(index) => usize::try_from(index).ok(),
                // CEL compares numbers across types, so 1.0 is the index 1.
                CelValue::Double(index) => match number::lossless_i64(index) {
                    Some(index) => usize::try_from(index).ok(),
                    None => return Err(EvaluationError::failed("unsupported index value")),
                },
                _ => {
                    return Err(EvaluationError::failed(format!(
                        "unsupported index type '{}' in list",
                        key.type_name()
                    )));
                }
            };
            index.and_then(|index| elements.get(index))
        }
        _ => None,
    };
    if let Some(value) = found {
        return Ok(Some(value.clone()));
    }
    if presence {
        return Ok(None);
    }
    let shown = crate::functions::convert(key).unwrap_or_else(|_| key.type_name().to_owned());
    let fault = match of {
        CelValue::List(_) => "index out of bounds",
        _ => "no such key",
    };
    Err(EvaluationError::failed(format!("{fault}: {shown}")))
}
