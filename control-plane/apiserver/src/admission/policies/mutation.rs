//! MutatingAdmissionPolicies: expressions in CEL that result in a partial object to merge, or in a JSON patch
//! (KEP-3962).
//!
//! They are evaluated before the mutating webhooks, in the order of their names. The texts of errors equal
//! kube-apiserver's.

use super::decision::{EvaluationFailure, PolicyInput, PolicyRun};
use super::{Expression, Policies, Policy, PolicyBinding, Sort, any_of};
use crate::admission::RequestObjects;
use crate::registry::Api;
use crate::registry::attributes::Attributes;
use berth_cel::{Datum, Output};
use berth_objects::catalog::ServedResource;
use berth_objects::patch;
use berth_objects::raw_json::managed_fields_to_json;
use berth_objects::status::{ApiError, Cause};
use berth_objects::validation::policies::ExpressionScope;
use berth_objects::view::FieldView;
use rustc_hash::FxHashSet;
use serde_json::{Map, Value};

/// A mutation of a policy.
#[derive(Debug)]
pub(super) struct Mutation {
    expression: Expression,
    /// Whether the expression results in a JSON patch instead of an object to merge.
    is_patch: bool,
}

impl Mutation {
    /// Compiles a mutation.
    ///
    /// # Errors
    /// The error in its expression.
    pub(super) fn compile(scope: &ExpressionScope<'_>, stated: &Value) -> Result<Self, String> {
        let is_patch = stated.text("patchType") == "JSONPatch";
        let (field, output) = if is_patch {
            ("jsonPatch", Output::Patches)
        } else {
            ("applyConfiguration", Output::Object)
        };
        let text = stated.part(field).text("expression");
        Ok(Self {
            expression: Expression::compile(scope, text, output)?,
            is_patch,
        })
    }
}

/// The evaluation of a policy: by the places of the policy, the binding and the parameter.
type Invocation = (usize, usize, usize);

/// The policies that were evaluated for a request. As in kube-apiserver, a change repeats all previous policies with
/// the reinvocation policy IfNeeded, once.
#[derive(Debug, Default)]
pub(in crate::admission) struct Mutations {
    called: FxHashSet<Invocation>,
    repeated: FxHashSet<Invocation>,
    last: Option<Value>,
}

/// The reason why a policy does not mutate a request.
enum Refusal {
    /// The policy decides by its `failurePolicy`.
    Policy(String),
    /// The request fails in any case.
    Request(ApiError),
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        Self::Request(error)
    }
}

impl From<String> for Refusal {
    fn from(error: String) -> Self {
        Self::Policy(error)
    }
}

/// Returns whether a mutating policy takes effect.
pub(in crate::admission) fn any(api: &Api) -> bool {
    any_of(api, Sort::Mutating)
}

impl Mutations {
    /// Evaluates the policies for the object of a request; in the second round, only policies to repeat. Returns
    /// whether the object changed.
    ///
    /// # Errors
    /// The refusal of a policy; 404 if the namespace does not exist; 500 if the resulting object is not of its kind.
    pub(in crate::admission) fn run(
        &mut self,
        api: &Api,
        policies: &Policies,
        attributes: &Attributes<'_>,
        object: &mut Value,
        old: Option<&Value>,
        is_repeated: bool,
    ) -> Result<bool, ApiError> {
        if !any(api) || attributes.resource.resource.group == "admissionregistration.k8s.io" {
            return Ok(false);
        }
        if is_repeated && self.last.as_ref() != Some(object) {
            self.repeated.extend(self.called.drain());
        }
        let (mut refused, mut is_mutated) = (Vec::new(), false);
        let policies = policies.current(api, Sort::Mutating);
        for (i, policy) in policies.iter().enumerate() {
            attributes.in_time(api)?;
            let mut refuse = |binding: Option<&PolicyBinding>, reason, message: String| {
                if !policy.fails_open {
                    refused.push((refusal_text(policy, binding, &message), reason));
                }
            };
            let objects = RequestObjects::new(Some(&*object), old);
            let resource = match policy.matching.resource(api, attributes, objects) {
                Ok(Some(resource)) => resource,
                Ok(None) => continue,
                Err(error) => {
                    let message = format!("failed to configure policy: {}", error.message);
                    refuse(None, "Forbidden", message);
                    continue;
                }
            };
            for (j, binding) in policy.bindings.iter().enumerate() {
                let objects = RequestObjects::new(Some(&*object), old);
                let parameters = match policy.parameters(api, attributes, objects, binding) {
                    Ok(parameters) => parameters,
                    Err(error) => {
                        let message = format!("failed to configure binding: {error}");
                        refuse(Some(binding), "Forbidden", message);
                        continue;
                    }
                };
                for (k, parameter) in parameters.iter().enumerate() {
                    let invocation = (i, j, k);
                    if is_repeated && !self.repeated.contains(&invocation) {
                        continue;
                    }
                    let request = PolicyRequest {
                        api,
                        attributes,
                        resource: &resource,
                        old,
                        policy,
                        parameter,
                    };
                    match request.applies(object) {
                        Ok(true) => {}
                        Ok(false) => continue,
                        Err(Refusal::Request(error)) => return Err(error),
                        Err(Refusal::Policy(error)) => {
                            refuse(Some(binding), "Invalid", error);
                            continue;
                        }
                    }
                    for mutation in policy.mutations() {
                        attributes.in_time(api)?;
                        match request.mutate(mutation, object) {
                            Ok(mutated) => {
                                is_mutated = true;
                                if mutated != *object {
                                    self.repeated.extend(self.called.drain());
                                    *object = mutated;
                                }
                            }
                            Err(Refusal::Request(error)) => return Err(error),
                            Err(Refusal::Policy(error)) => refuse(Some(binding), "Invalid", error),
                        }
                    }
                    if policy.is_reinvoked {
                        self.called.insert(invocation);
                    }
                }
            }
        }
        if is_mutated {
            self.repeated.extend(self.called.drain());
        }
        self.last = Some(object.clone());
        match refused.first() {
            None => Ok(is_mutated),
            Some(_) => Err(denied(attributes, object, refused)),
        }
    }
}

fn refusal_text(policy: &Policy, binding: Option<&PolicyBinding>, message: &str) -> String {
    let name = &policy.name;
    match binding {
        Some(binding) => format!(
            "policy '{name}' with binding '{}' denied request: {message}",
            binding.name
        ),
        None => format!("policy {name:?} denied request: {message}"),
    }
}

/// 403 with the message and the reason of the first refusal.
fn denied(
    attributes: &Attributes<'_>,
    object: &Value,
    refused: Vec<(String, &'static str)>,
) -> ApiError {
    let name = super::name_of(attributes, Some(object));
    let mut error = ApiError::forbidden(attributes.resource.subject(&name), "");
    if let Some((message, reason)) = refused.first() {
        error.message.clone_from(message);
        error.reason = reason;
    }
    for (message, _) in refused {
        error = error.with_cause(Cause {
            reason: "",
            message,
            field: String::new(),
        });
    }
    error
}

/// A request as one policy receives it.
struct PolicyRequest<'r> {
    api: &'r Api,
    attributes: &'r Attributes<'r>,
    resource: &'r ServedResource,
    old: Option<&'r Value>,
    policy: &'r Policy,
    parameter: &'r Value,
}

impl PolicyRequest<'_> {
    fn input(&self, object: &Value) -> Result<PolicyInput<'_>, ApiError> {
        let objects = RequestObjects::new(Some(object), self.old);
        PolicyInput::new(self.api, self.attributes, self.resource, objects)
    }

    /// Returns whether the match conditions are true.
    fn applies(&self, object: &Value) -> Result<bool, Refusal> {
        let expressions = self.policy.expressions.as_ref().map_err(String::clone)?;
        let input = self.input(object)?;
        Ok(PolicyRun::of_conditions(&input, expressions, self.parameter).conditions()?)
    }

    /// The object after a mutation.
    fn mutate(&self, mutation: &Mutation, object: &Value) -> Result<Value, Refusal> {
        let expressions = self.policy.expressions.as_ref().map_err(String::clone)?;
        let input = self.input(object)?;
        let run = PolicyRun::of_policy(&input, expressions, self.parameter);
        let formed = run
            .value(&mutation.expression)
            .map_err(EvaluationFailure::text)?;
        let mut shown = self
            .attributes
            .shown_as_sent(self.api, self.resource, object)?;
        let changed = if mutation.is_patch {
            patched(&shown, &formed)?
        } else {
            Some(self.merged(&shown, &formed)?)
        };
        let Some(mut changed) = changed else {
            return Ok(object.clone());
        };
        self.check_fields(&changed)?;
        managed_fields_to_json(&mut changed);
        managed_fields_to_json(&mut shown);
        let accepted = self
            .attributes
            .accept(self.api, self.resource, object, &shown, changed)?;
        Ok(accepted.unwrap_or_else(|| object.clone()))
    }

    /// An object, merged with the result of an expression.
    fn merged(&self, shown: &Value, formed: &Datum) -> Result<Value, String> {
        check_types(formed)?;
        let mut config = formed.to_json().map_err(|e| e.to_string())?;
        config["apiVersion"] = shown.part("apiVersion").clone();
        config["kind"] = shown.part("kind").clone();
        let typed = self.resource.typed();
        let failed = |what: String| format!("error applying patch: {what}");
        typed.field_set(&config).map_err(|fault| {
            failed(format!(
                "failed to convert patch object to typed object: {fault}"
            ))
        })?;
        let atomics = typed.atomics(&config);
        if !atomics.is_empty() {
            let paths = atomics.join(", ");
            return Err(failed(format!(
                "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {paths}"
            )));
        }
        Ok(typed.merge(shown, &config))
    }

    /// A mutated object has only fields of its kind.
    fn check_fields(&self, changed: &Value) -> Result<(), ApiError> {
        if self.resource.custom.is_some() {
            return Ok(());
        }
        let decoded = self.resource.decode(&mut changed.clone());
        match decoded.unknown_fields.as_slice() {
            [] => Ok(()),
            fields => {
                let faults = fields.iter().map(|f| format!("unknown field {f:?}"));
                let faults: Vec<String> = faults.collect();
                Err(ApiError::internal(format!(
                    "strict decoding error: {}",
                    faults.join(", ")
                )))
            }
        }
    }
}

fn check_types(formed: &Datum) -> Result<(), String> {
    match formed.misplaced().as_slice() {
        [] => Ok(()),
        faults => Err(format!("type mismatch: {}", faults.join("\n"))),
    }
}

/// An object after the JSON patch that an expression has formed; `None` when a test of the patch fails.
fn patched(shown: &Value, formed: &Datum) -> Result<Option<Value>, String> {
    let mut operations = Vec::new();
    for patch in formed.elements().unwrap_or_default() {
        let mut operation = Map::new();
        for name in ["op", "path", "from", "value"] {
            let Some(field) = patch.field(name) else {
                continue;
            };
            if name == "value" {
                check_types(&field)?;
            }
            let value = field.to_json().map_err(|e| {
                format!("JSONPath valueExpression evaluated to a type that could not marshal to JSON: {e}")
            })?;
            if name != "from" || value != "" {
                operation.insert(name.to_owned(), value);
            }
        }
        operations.push(Value::Object(operation));
    }
    match patch::apply_json(shown.clone(), Value::Array(operations)) {
        Ok(changed) => Ok(Some(changed)),
        Err(error) if error.is_failed_test() => Ok(None),
        Err(error) => Err(format!("JSON Patch: {error}")),
    }
}
