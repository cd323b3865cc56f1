//! The evaluation of one policy for one request.

use super::{Expression, Expressions, Policy, Validation};
use crate::admission::RequestObjects;
use crate::admission::webhooks::hook;
use crate::registry::attributes::Attributes;
use crate::registry::{Api, Requester};
use berth_cel::{COST_MAX, Datum, EvaluationError, Program, Variables};
use berth_objects::catalog::{ServedResource, find};
use berth_objects::status::ApiError;
use berth_objects::view::{FieldView, remove};
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// The maximum total cost of the expressions of a policy.
const POLICY_COST_MAX: u64 = 10 * COST_MAX;
/// The maximum total cost of its match conditions.
const CONDITIONS_COST_MAX: u64 = POLICY_COST_MAX / 4;
/// The maximum size, in bytes, of a message that an expression forms.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;
const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// A violation of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PolicyDecision {
    pub(super) message: String,
    pub(super) reason: &'static str,
    /// Whether the request is rejected independently of the actions of the binding.
    pub(super) is_forced: bool,
}

impl PolicyDecision {
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            reason: "Invalid",
            is_forced: false,
        }
    }
}

/// The variables of a request, but for the parameters.
pub(super) struct PolicyInput<'a> {
    api: &'a Api,
    requester: &'a Requester,
    object: Datum,
    old: Datum,
    request: Datum,
    namespace: Datum,
}

impl<'a> PolicyInput<'a> {
    /// The variables of a request for a policy that receives it in the version of `resource`.
    ///
    /// # Errors
    /// 404 when the namespace does not exist; 500 when the conversion webhook of a custom resource fails.
    pub(super) fn new(
        api: &'a Api,
        attributes: &'a Attributes<'_>,
        resource: &ServedResource,
        objects: RequestObjects<'_>,
    ) -> Result<Self, ApiError> {
        let mut request = hook::request(api, attributes, resource, "", objects)?;
        let (object, old) = (
            Datum::json(request.part("object")),
            Datum::json(request.part("oldObject")),
        );
        for field in ["object", "oldObject", "uid"] {
            remove(&mut request, field);
        }
        let namespace = match attributes.namespace {
            "" => Value::Null,
            _ if attributes.is_of_namespace() => Value::Null,
            name => namespace(api, name)?,
        };
        Ok(Self {
            api,
            requester: attributes.options.requester(),
            object,
            old,
            request: Datum::json(&request),
            namespace: Datum::json(&namespace),
        })
    }

    /// The violations of a policy.
    pub(super) fn decide(&self, policy: &Policy, parameter: &Value) -> Vec<PolicyDecision> {
        let failed = |message: String| {
            if policy.fails_open {
                // `failurePolicy: Ignore` drops every error.
                Vec::new()
            } else {
                vec![PolicyDecision::invalid(message)]
            }
        };
        let expressions = match &policy.expressions {
            Ok(expressions) => expressions,
            Err(error) => return failed(error.clone()),
        };
        let run = PolicyRun::of_conditions(self, expressions, parameter);
        match run.conditions() {
            Ok(true) => {}
            Ok(false) => return Vec::new(),
            Err(error) => return failed(error),
        }
        // The conditions have their own budget.
        let run = PolicyRun::of_policy(self, expressions, parameter);
        let mut decisions = Vec::new();
        for validation in &expressions.validations {
            // The request ends, independently of the decisions.
            if self.requester.is_late(self.api.now()) {
                return decisions;
            }
            match run.validation(validation) {
                Ok(decision) => decisions.extend(decision),
                Err(EvaluationFailure::Expression(error)) => decisions.extend(failed(error)),
                Err(EvaluationFailure::Budget) => return failed(OUT_OF_BUDGET.to_owned()),
            }
        }
        // Annotations are evaluated with a new budget, so that validations cannot use it up.
        let run = PolicyRun::of_policy(self, expressions, parameter);
        for (key, expression) in &expressions.annotations {
            match run.text(expression) {
                Ok(Some(value)) if !value.trim().is_empty() => {
                    let annotation = format!("{}/{key}", policy.name);
                    tracing::info!(annotation, value = value.trim(), "audit annotation");
                }
                Ok(_) => {}
                Err(EvaluationFailure::Expression(error)) => {
                    // An annotation that cannot be evaluated denies even if the binding only audits or warns.
                    let forced = failed(error).into_iter().map(|decision| PolicyDecision {
                        is_forced: true,
                        ..decision
                    });
                    decisions.extend(forced);
                }
                Err(EvaluationFailure::Budget) => return failed(OUT_OF_BUDGET.to_owned()),
            }
        }
        decisions
    }
}

/// A namespace as expressions see it.
fn namespace(api: &Api, name: &str) -> Result<Value, ApiError> {
    let namespaces = find("", "namespaces").ok_or_else(ApiError::no_such_resource)?;
    let mut namespace = Value::clone(&*api.get(namespaces, "", name)?.object());
    if let Some(metadata) = namespace.get_mut("metadata") {
        for field in ["managedFields", "ownerReferences"] {
            remove(metadata, field);
        }
    }
    Ok(namespace)
}

/// The reason why an expression has no value.
pub(super) enum EvaluationFailure {
    Expression(String),
    /// The policy costs too much.
    Budget,
}

/// The evaluation of expressions within one budget. Variables are evaluated when an expression contains them, once.
pub(super) struct PolicyRun<'r> {
    expressions: &'r Expressions,
    variables: Vec<(&'static str, Datum)>,
    composed: RefCell<BTreeMap<&'r str, Result<Datum, String>>>,
    left: Cell<u64>,
}

impl<'r> PolicyRun<'r> {
    /// The evaluation of match conditions.
    pub(super) fn of_conditions(
        input: &PolicyInput<'_>,
        expressions: &'r Expressions,
        parameter: &Value,
    ) -> Self {
        Self::new(input, expressions, parameter, CONDITIONS_COST_MAX)
    }

    /// The evaluation of the expressions of a policy.
    pub(super) fn of_policy(
        input: &PolicyInput<'_>,
        expressions: &'r Expressions,
        parameter: &Value,
    ) -> Self {
        Self::new(input, expressions, parameter, POLICY_COST_MAX)
    }

    fn new(
        input: &PolicyInput<'_>,
        expressions: &'r Expressions,
        parameter: &Value,
        budget: u64,
    ) -> Self {
        Self {
            expressions,
            variables: vec![
                ("object", input.object.clone()),
                ("oldObject", input.old.clone()),
                ("request", input.request.clone()),
                ("namespaceObject", input.namespace.clone()),
                ("params", Datum::json(parameter)),
            ],
            composed: RefCell::default(),
            left: Cell::new(budget),
        }
    }

    /// Returns whether all match conditions are true. One that is false decides before one without a value.
    pub(super) fn conditions(&self) -> Result<bool, String> {
        let mut failed = Vec::new();
        for condition in &self.expressions.conditions {
            match self.is_true(condition) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(EvaluationFailure::Expression(error)) => failed.push(error),
                Err(EvaluationFailure::Budget) => return Err(OUT_OF_BUDGET.to_owned()),
            }
        }
        match &failed[..] {
            [] => Ok(true),
            [error] => Err(error.clone()),
            errors => Err(format!("[{}]", errors.join(", "))),
        }
    }

    fn validation(
        &self,
        validation: &Validation,
    ) -> Result<Option<PolicyDecision>, EvaluationFailure> {
        if self.is_true(&validation.condition)? {
            return Ok(None);
        }
        let formed = match &validation.message_program {
            Some(program) => self.message(program)?,
            None => String::new(),
        };
        let message = match (formed, validation.message.as_str()) {
            (formed, _) if !formed.is_empty() => formed,
            (_, "") => format!("failed expression: {}", validation.condition.text.trim()),
            (_, stated) => stated.to_owned(),
        };
        Ok(Some(PolicyDecision {
            reason: validation.reason,
            ..PolicyDecision::invalid(message)
        }))
    }

    /// The message that an expression forms; empty when it cannot be used.
    fn message(&self, program: &Program) -> Result<String, EvaluationFailure> {
        let run = |variables: &Variables, cost_max| program.form(variables, cost_max);
        match self.evaluate(program, run) {
            Ok(formed) => {
                let formed = formed.unwrap_or_default().trim().to_owned();
                let is_usable = formed.len() <= MESSAGE_BYTES_MAX && !formed.contains('\n');
                Ok(if is_usable { formed } else { String::new() })
            }
            Err(EvaluationFailure::Budget) => Err(EvaluationFailure::Expression(format!(
                "failed messageExpression: {OUT_OF_BUDGET}"
            ))),
            Err(EvaluationFailure::Expression(error)) => {
                tracing::debug!("failed to form the message of a policy: {error}");
                Ok(String::new())
            }
        }
    }

    fn is_true(&self, expression: &Expression) -> Result<bool, EvaluationFailure> {
        let program = &expression.program;
        let run = |variables: &Variables, cost_max| match program.is_true(variables, cost_max) {
            // A value of another type counts as false.
            (Err(EvaluationError::NotBool(_)), cost) => (Ok(false), cost),
            other => other,
        };
        self.evaluate(program, run).map_err(|e| e.of(expression))
    }

    /// The value of an expression.
    pub(super) fn value(&self, expression: &Expression) -> Result<Datum, EvaluationFailure> {
        let program = &expression.program;
        let run = |variables: &Variables, cost_max| program.value(variables, cost_max);
        self.evaluate(program, run).map_err(|e| e.of(expression))
    }

    fn text(&self, expression: &Expression) -> Result<Option<String>, EvaluationFailure> {
        let program = &expression.program;
        let run = |variables: &Variables, cost_max| program.form(variables, cost_max);
        self.evaluate(program, run).map_err(|e| e.of(expression))
    }

    /// Evaluates a program with the variables that it contains.
    fn evaluate<T>(
        &self,
        program: &Program,
        run: impl FnOnce(&Variables, u64) -> (Result<T, EvaluationError>, u64),
    ) -> Result<T, EvaluationFailure> {
        let mut values: BTreeMap<&str, Datum> = BTreeMap::new();
        let mut broken = None;
        for name in program.composed_fields() {
            let found = self
                .expressions
                .variables
                .iter()
                .find(|(known, _)| known == name);
            let Some((name, program)) = found else {
                continue;
            };
            match self.variable(name, program)? {
                Ok(value) => {
                    values.insert(name, value);
                }
                // A variable without a value fails the expression only if the expression reads it.
                Err(error) => broken = broken.or(Some((name, error))),
            }
        }
        let used = self.variables.iter().filter(|(name, _)| program.uses(name));
        let used = used.map(|(name, value)| (*name, value.clone()));
        let composed = ("variables", Datum::map(values));
        let variables = Variables::new(used.chain([composed]));
        let left = self.left.get();
        let (result, cost) = run(&variables, left.min(COST_MAX));
        let Some(rest) = left.checked_sub(cost) else {
            return Err(EvaluationFailure::Budget);
        };
        self.left.set(rest);
        result.map_err(|error| {
            let error = error.to_string();
            EvaluationFailure::Expression(match broken {
                // The missing key is the failed variable; the error of the variable is more useful.
                Some((name, why)) if error == format!("no such key: {name}") => {
                    format!("composited variable {name:?} fails to evaluate: {why}")
                }
                _ => error,
            })
        })
    }

    /// The value of a variable of the policy, or why it has none.
    fn variable(
        &self,
        name: &'r str,
        program: &Program,
    ) -> Result<Result<Datum, String>, EvaluationFailure> {
        if let Some(known) = self.composed.borrow().get(name) {
            return Ok(known.clone());
        }
        let run = |variables: &Variables, cost_max| program.value(variables, cost_max);
        let value = match self.evaluate(program, run) {
            Ok(value) => Ok(value),
            Err(EvaluationFailure::Expression(error)) => Err(error),
            Err(EvaluationFailure::Budget) => return Err(EvaluationFailure::Budget),
        };
        self.composed.borrow_mut().insert(name, value.clone());
        Ok(value)
    }
}

impl EvaluationFailure {
    /// The failure as the refusal of a request states it.
    pub(super) fn text(self) -> String {
        match self {
            Self::Expression(error) => error,
            Self::Budget => OUT_OF_BUDGET.to_owned(),
        }
    }

    fn of(self, expression: &Expression) -> Self {
        match self {
            Self::Expression(error) => Self::Expression(format!(
                "expression '{}' resulted in error: {error}",
                expression.text
            )),
            Self::Budget => Self::Budget,
        }
    }
}
