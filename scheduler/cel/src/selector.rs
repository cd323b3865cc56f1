//! Selectors: expressions over a device whose value is a truth value.

use crate::check::Checked;
use crate::device::DeviceValue;
use crate::environment::Environment;
use crate::error::{CompileError, EvaluationError, Issue, Issues};
use crate::eval::{EvalBudget, Evaluator, Spent};
use crate::limits::{COST_MAX, STACK_BYTES};
use crate::plan::Plan;
use crate::types::Type;
use crate::value::CelValue;
use crate::{check, cost, parse, plan, validate};
use berth_api::devices::DeviceAttribute;
use std::fmt;
use std::sync::Arc;

/// A compiled expression.
pub struct CelSelector {
    expression: Arc<str>,
    plan: Plan,
    estimated_cost: u64,
}

impl fmt::Debug for CelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Selector").field(&self.expression).finish()
    }
}

impl CelSelector {
    /// Compiles an expression.
    ///
    /// # Errors
    /// The expression is invalid, or its value is not a truth value.
    pub fn compile(expression: &str, environment: Environment) -> Result<Self, CompileError> {
        stacker::grow(STACK_BYTES, || Self::compile_here(expression, environment))
    }

    fn compile_here(expression: &str, environment: Environment) -> Result<Self, CompileError> {
        let (checked, plan) = compile(expression, environment)?;
        match checked.type_of(checked.ast.root.id) {
            Type::Bool | Type::Any => {}
            Type::Dyn if environment.list_attributes => {}
            other => return Err(CompileError::NotBool(other.declared_name())),
        }
        Ok(Self {
            expression: Arc::from(expression),
            plan: plan?,
            estimated_cost: cost::estimate(&checked),
        })
    }

    /// The text of the expression.
    pub fn expression(&self) -> &str {
        &self.expression
    }

    /// The most that an evaluation can cost, in CEL cost units. The API server refuses selectors above [`COST_MAX`].
    pub fn estimated_cost(&self) -> u64 {
        self.estimated_cost
    }

    /// Returns whether a device is selected.
    ///
    /// # Errors
    /// The expression has no value for the device, the value is not a truth value, or the evaluation costs more than
    /// [`COST_MAX`].
    pub fn matches(&self, device: &DeviceValue) -> Result<bool, EvaluationError> {
        self.matches_within(device, COST_MAX).0
    }

    /// Returns whether a device is selected, and the effort of the evaluation, which may cost at most `cost_max`.
    pub fn matches_within(
        &self,
        device: &DeviceValue,
        cost_max: u64,
    ) -> (Result<bool, EvaluationError>, Spent) {
        let (result, spent) = evaluate(&self.plan, device, cost_max);
        let result = match result {
            Ok(CelValue::Bool(value)) => Ok(value),
            Ok(other) => Err(EvaluationError::NotBool(other.type_name().to_owned())),
            Err(error) => Err(error),
        };
        (result, spent)
    }
}

/// The value of an expression for a device, and the effort of the evaluation.
fn evaluate(
    plan: &Plan,
    device: &DeviceValue,
    cost_max: u64,
) -> (Result<CelValue, EvaluationError>, Spent) {
    let device = match &device.value {
        Ok(value) => value,
        Err(error) => return (Err(error.clone()), Spent::default()),
    };
    let mut budget = EvalBudget::new(cost_max);
    let mut evaluator = Evaluator::new(device, plan.slots, &mut budget);
    let result = stacker::maybe_grow(EVALUATION_STACK_BYTES, STACK_BYTES, || {
        evaluator.value(&plan.node)
    });
    (result, budget.spent())
}

/// A compiled expression over a device whose value can be an attribute: a number, a truth value, a text, a semantic
/// version, or a list of one of them (KEP-6080).
pub struct AttributeExpression {
    expression: Arc<str>,
    plan: Plan,
}

impl fmt::Debug for AttributeExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut tuple = f.debug_tuple("AttributeExpression");
        tuple.field(&self.expression).finish()
    }
}

/// Returns whether a value of the type can be the value of an attribute.
fn is_attribute(value: &Type) -> bool {
    match value {
        Type::Int | Type::Bool | Type::String | Type::Any | Type::Dyn => true,
        Type::Object(name) | Type::Opaque(name) => *name == "kubernetes.Semver",
        Type::List(element) => !matches!(**element, Type::List(_)) && is_attribute(element),
        _ => false,
    }
}

impl AttributeExpression {
    /// Compiles an expression.
    ///
    /// # Errors
    /// The expression is invalid, or its value cannot be an attribute.
    pub fn compile(expression: &str, environment: Environment) -> Result<Self, CompileError> {
        stacker::grow(STACK_BYTES, || {
            let (checked, plan) = compile(expression, environment)?;
            let type_of = checked.type_of(checked.ast.root.id);
            if !is_attribute(type_of) {
                return Err(CompileError::OtherType(
                    "int, bool, string, semver or a list of them".to_owned(),
                    type_of.declared_name(),
                ));
            }
            Ok(Self {
                expression: Arc::from(expression),
                plan: plan?,
            })
        })
    }

    /// The value for a device, and the effort of the evaluation, which may cost at most `cost_max`.
    pub fn evaluate_within(
        &self,
        device: &DeviceValue,
        cost_max: u64,
    ) -> (Result<DeviceAttribute, EvaluationError>, Spent) {
        let (result, spent) = evaluate(&self.plan, device, cost_max);
        (result.and_then(|value| attribute(&value)), spent)
    }
}

/// Converts a value to an attribute.
fn attribute(value: &CelValue) -> Result<DeviceAttribute, EvaluationError> {
    let other = || EvaluationError::NotAttribute(value.type_name().to_owned());
    Ok(match value {
        CelValue::Int(value) => DeviceAttribute::Int(*value),
        CelValue::Bool(value) => DeviceAttribute::Bool(*value),
        CelValue::String(text) => DeviceAttribute::String(text.as_ref().into()),
        CelValue::Semver(version) => DeviceAttribute::Version(version.to_string().into()),
        CelValue::List(values) => {
            let values = values.iter().map(attribute);
            list(values.collect::<Result<_, _>>()?).ok_or_else(other)?
        }
        _ => return Err(other()),
    })
}

/// Values of one type as a list.
fn list(values: Vec<DeviceAttribute>) -> Option<DeviceAttribute> {
    use DeviceAttribute as A;
    fn all<T>(
        values: Vec<DeviceAttribute>,
        of: impl Fn(DeviceAttribute) -> Option<T>,
    ) -> Option<Vec<T>> {
        values.into_iter().map(of).collect()
    }
    match values.first() {
        // An empty list has no type, so any type is used.
        None => Some(A::Strings(Vec::new())),
        Some(A::Int(_)) => all(values, |v| match v {
            A::Int(value) => Some(value),
            _ => None,
        })
        .map(A::Ints),
        Some(A::Bool(_)) => all(values, |v| match v {
            A::Bool(value) => Some(value),
            _ => None,
        })
        .map(A::Bools),
        Some(A::String(_)) => all(values, |v| match v {
            A::String(value) => Some(value),
            _ => None,
        })
        .map(A::Strings),
        Some(A::Version(_)) => all(values, |v| match v {
            A::Version(value) => Some(value),
            _ => None,
        })
        .map(A::Versions),
        Some(_) => None,
    }
}

/// Reads and checks an expression, then plans its evaluation.
pub(crate) fn compile(
    expression: &str,
    environment: Environment,
) -> Result<(Checked, Result<Plan, CompileError>), CompileError> {
    let invalid = |issues| CompileError::Invalid(Issues::new(expression, issues));
    let ast = parse::parse(expression)?;
    if let Err(message) = parse::check_size(&ast) {
        let issue = Issue {
            position: None,
            message: message.to_owned(),
        };
        return Err(invalid(vec![issue]));
    }
    let checked = check::check(ast, environment).map_err(invalid)?;
    validate::validate(&checked).map_err(invalid)?;
    let plan = plan::plan(&checked);
    Ok((checked, plan))
}

/// The stack that the evaluation of the deepest expression needs.
pub(crate) const EVALUATION_STACK_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use berth_api::devices::Device;

    /// A list that a function forms takes time that its cost does not cover.
    #[test]
    fn the_work_of_an_evaluation_covers_formed_values() {
        let environment = Environment::default();
        let device = DeviceValue::new("d.example.com", &Device::default(), environment);
        let spent = |expression: &str| {
            let selector = CelSelector::compile(expression, environment).expect(expression);
            let (result, spent) = selector.matches_within(&device, COST_MAX);
            assert_eq!(result, Ok(true), "{expression}");
            spent
        };
        let text = "a".repeat(100);
        let split = spent(&format!("'{text}'.split('a').size() == 101"));
        assert!(split.work >= split.cost + 101, "{split:?}");
        let plain = spent("1 == 1");
        assert_eq!(plain.work, plain.cost);
    }
}
