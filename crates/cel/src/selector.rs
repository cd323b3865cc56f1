//! Selectors: expressions over a device whose value is a truth value.

use crate::check::Checked;
use crate::device::DeviceValue;
use crate::environment::Environment;
use crate::error::{CompileError, EvaluationError, Issue, Issues};
use crate::eval::{Budget, Evaluator};
use crate::limits::{COST_MAX, STACK_BYTES};
use crate::plan::Plan;
use crate::types::Type;
use crate::value::Value;
use crate::{check, cost, parse, plan, validate};
use std::fmt;
use std::sync::Arc;

/// A compiled expression.
pub struct Selector {
    expression: Arc<str>,
    plan: Plan,
    estimated_cost: u64,
}

impl fmt::Debug for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Selector").field(&self.expression).finish()
    }
}

impl Selector {
    /// Compiles an expression.
    ///
    /// # Errors
    /// The expression is wrong, or its value is not a truth value.
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

    /// Whether a device is selected.
    ///
    /// # Errors
    /// The expression has no value for the device, the value is not a truth value, or the evaluation costs more than
    /// [`COST_MAX`].
    pub fn matches(&self, device: &DeviceValue) -> Result<bool, EvaluationError> {
        self.matches_within(device, COST_MAX).0
    }

    /// Whether a device is selected, and what finding out cost. The evaluation may cost at most `cost_max`.
    pub fn matches_within(
        &self,
        device: &DeviceValue,
        cost_max: u64,
    ) -> (Result<bool, EvaluationError>, u64) {
        let device = match &device.value {
            Ok(value) => value,
            Err(error) => return (Err(error.clone()), 0),
        };
        let mut budget = Budget::new(cost_max);
        let mut evaluator = Evaluator::new(device, self.plan.slots, &mut budget);
        let result = stacker::maybe_grow(EVALUATION_STACK_BYTES, STACK_BYTES, || {
            evaluator.value(&self.plan.node)
        });
        let result = match result {
            Ok(Value::Bool(value)) => Ok(value),
            Ok(other) => Err(EvaluationError::NotBool(other.type_name().to_owned())),
            Err(error) => Err(error),
        };
        (result, budget.cost())
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
