//! ValidatingAdmissionPolicies: rules in CEL that reject requests (`admissionregistration.k8s.io/v1`).
//! MutatingAdmissionPolicies are in `mutation`.
//!
//! A policy takes effect through its bindings. The policies of a request are evaluated before its validating webhooks.
//! The texts of errors equal kube-apiserver's. There is no audit log: audit annotations of policies are written to the
//! log of this process.

mod decision;
mod mutation;

pub(super) use mutation::Mutations;
pub(super) use mutation::any as any_mutating;

use super::matching::Matching;
use crate::admission::RequestObjects;
use crate::registry::attributes::Attributes;
use crate::registry::{Api, ListRequest, show};
use crate::storage::ObjectVersion;
use berth_cel::{Output, Program};
use berth_objects::catalog::{ServedResource, find};
use berth_objects::status::{ApiError, Cause};
use berth_objects::validation::{policies, selectors};
use berth_objects::view::FieldView;
use decision::{PolicyDecision, PolicyInput};
use mutation::Mutation;
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};

/// The kinds of policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Mutating,
    Validating,
}

/// The policies of the cluster with their bindings.
#[derive(Debug, Default)]
pub(super) struct Policies {
    mutating: KnownPolicies,
    validating: KnownPolicies,
}

/// The policies of one sort, kept until one of their objects changes.
#[derive(Debug, Default)]
struct KnownPolicies(Mutex<(Vec<u64>, Arc<Vec<Policy>>)>);

impl Sort {
    fn policies(self) -> &'static str {
        match self {
            Self::Mutating => "mutatingadmissionpolicies",
            Self::Validating => "validatingadmissionpolicies",
        }
    }

    fn bindings(self) -> &'static str {
        match self {
            Self::Mutating => "mutatingadmissionpolicybindings",
            Self::Validating => "validatingadmissionpolicybindings",
        }
    }
}

/// A compiled policy.
#[derive(Debug)]
struct Policy {
    name: String,
    fails_open: bool,
    /// Whether a mutating policy is evaluated again after a later change of the object.
    is_reinvoked: bool,
    matching: Matching,
    /// `apiVersion` and `kind` of the parameters.
    parameters: Option<(String, String)>,
    /// The expressions, or why one is not valid.
    expressions: Result<Expressions, String>,
    bindings: Vec<PolicyBinding>,
}

#[derive(Debug)]
struct Expressions {
    conditions: Vec<Expression>,
    variables: Vec<(String, Program)>,
    validations: Vec<Validation>,
    /// The audit annotations, by their keys.
    annotations: Vec<(String, Expression)>,
    mutations: Vec<Mutation>,
}

#[derive(Debug)]
struct Expression {
    text: String,
    program: Program,
}

#[derive(Debug)]
struct Validation {
    condition: Expression,
    message: String,
    message_program: Option<Program>,
    reason: &'static str,
}

#[derive(Debug)]
struct PolicyBinding {
    name: String,
    matching: Option<Matching>,
    parameter: Value,
    denies: bool,
    warns: bool,
    audits: bool,
}

// === impl Policies ===

impl Policies {
    /// The policies that have bindings.
    fn current(&self, api: &Api, sort: Sort) -> Arc<Vec<Policy>> {
        let (policies, bindings) = (list(api, sort.policies()), list(api, sort.bindings()));
        let all = policies.iter().chain(&bindings);
        let revisions: Vec<u64> = all.map(|v| v.revision()).collect();
        let known = match sort {
            Sort::Mutating => &self.mutating,
            Sort::Validating => &self.validating,
        };
        let mut known = known.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.0 != revisions {
            let bindings: Vec<_> = bindings.iter().map(|v| v.object()).collect();
            let read = |policy: &Arc<ObjectVersion>| Policy::of(&policy.object(), &bindings);
            *known = (revisions, Arc::new(policies.iter().map(read).collect()));
        }
        Arc::clone(&known.1)
    }

    /// Checks a request by the policies.
    ///
    /// # Errors
    /// The first refusal of a policy.
    pub(super) fn check(
        &self,
        api: &Api,
        attributes: &Attributes<'_>,
        objects: RequestObjects<'_>,
    ) -> Result<(), ApiError> {
        // Policies do not decide about themselves and about webhooks.
        if !any(api) || attributes.resource.resource.group == "admissionregistration.k8s.io" {
            return Ok(());
        }
        let mut denied = None;
        for policy in self.current(api, Sort::Validating).iter() {
            // Each policy has its own budget, and the number of policies is not limited: the deadline of the request ends
            // them.
            let decisions = policy.decide(api, attributes, objects)?;
            attributes.in_time(api)?;
            for (binding, decision) in decisions {
                act(attributes, policy, binding, decision, &mut denied);
            }
        }
        match denied {
            None => Ok(()),
            Some((message, reason)) => Err(refusal(attributes, objects.new, message, reason)),
        }
    }
}

fn list(api: &Api, plural: &str) -> Vec<Arc<ObjectVersion>> {
    let resource = find("admissionregistration.k8s.io", plural);
    let listed = resource.and_then(|r| api.list(r, &ListRequest::default()).ok());
    listed.map(|l| l.items).unwrap_or_default()
}

/// Returns whether a policy takes effect.
pub(super) fn any(api: &Api) -> bool {
    any_of(api, Sort::Validating)
}

fn any_of(api: &Api, sort: Sort) -> bool {
    let resource = find("admissionregistration.k8s.io", sort.bindings());
    let store = resource.and_then(|r| r.store);
    store.is_some_and(|store| api.store().count(store) > 0)
}

/// Applies the validation actions of a binding to a violation.
fn act(
    attributes: &Attributes<'_>,
    policy: &Policy,
    binding: Option<&PolicyBinding>,
    decision: PolicyDecision,
    denied: &mut Option<(String, &'static str)>,
) {
    let name = &policy.name;
    let Some(binding) = binding else {
        let message = format!(
            "ValidatingAdmissionPolicy '{name}' denied request: {}",
            decision.message
        );
        denied.get_or_insert((message, decision.reason));
        return;
    };
    let by = format!(
        "ValidatingAdmissionPolicy '{name}' with binding '{}'",
        binding.name
    );
    let message = &decision.message;
    if binding.audits {
        tracing::info!("validation failed for {by}: {message}");
    }
    if binding.warns {
        let warning = format!("Validation failed for {by}: {message}");
        attributes.options.requester().warn(&warning);
    }
    // The first denial decides the answer; later ones are still logged or returned as warnings.
    if binding.denies || decision.is_forced {
        denied.get_or_insert((format!("{by} denied request: {message}"), decision.reason));
    }
}

fn refusal(
    attributes: &Attributes<'_>,
    object: Option<&Value>,
    message: String,
    reason: &'static str,
) -> ApiError {
    let name = name_of(attributes, object);
    let mut error = ApiError::forbidden(attributes.resource.subject(&name), &message);
    error.reason = reason;
    error.code = match reason {
        "Forbidden" => 403,
        "RequestEntityTooLarge" => 413,
        _ => 422,
    };
    error.with_cause(Cause {
        reason: "",
        message,
        field: String::new(),
    })
}

/// The object of a request as refusals name it.
fn name_of(attributes: &Attributes<'_>, object: Option<&Value>) -> String {
    let metadata = object.map_or(&Value::Null, |object| object.part("metadata"));
    let names = [
        attributes.name,
        metadata.text("name"),
        metadata.text("generateName"),
        "Unknown",
    ];
    let name = names.into_iter().find(|name| !name.is_empty());
    name.unwrap_or_default().to_owned()
}

// === impl Policy ===

impl Policy {
    fn of(policy: &Value, bindings: &[Arc<Value>]) -> Self {
        let spec = policy.part("spec");
        let name = policy.part("metadata").text("name");
        let constraints = spec.part("matchConstraints");
        let parameters = spec.field("paramKind");
        let bindings = bindings
            .iter()
            .map(|b| (b.part("metadata"), b.part("spec")));
        Self {
            name: name.to_owned(),
            fails_open: spec.text("failurePolicy") == "Ignore",
            is_reinvoked: spec.text("reinvocationPolicy") == "IfNeeded",
            matching: Matching::new(constraints, constraints.items("resourceRules")),
            parameters: parameters
                .map(|p| (p.text("apiVersion").to_owned(), p.text("kind").to_owned())),
            expressions: Expressions::of(spec),
            bindings: bindings
                .filter(|(_, spec)| spec.text("policyName") == name)
                .map(|(metadata, spec)| PolicyBinding::of(metadata.text("name"), spec))
                .collect(),
        }
    }

    fn mutations(&self) -> &[Mutation] {
        self.expressions.as_ref().map_or(&[], |e| &e.mutations)
    }

    /// The decisions of the bindings of the policy about a request; without a binding, the fault of the policy.
    ///
    /// # Errors
    /// 404 when the namespace of the request does not exist.
    fn decide(
        &self,
        api: &Api,
        attributes: &Attributes<'_>,
        objects: RequestObjects<'_>,
    ) -> Result<Vec<(Option<&PolicyBinding>, PolicyDecision)>, ApiError> {
        let mut found = Vec::new();
        if self.bindings.is_empty() {
            return Ok(found);
        }
        let resource = match self.matching.resource(api, attributes, objects) {
            Ok(Some(resource)) => resource,
            Ok(None) => return Ok(found),
            Err(error) => {
                let decision = self.misconfigured("policy", &error.message);
                found.extend(decision.map(|decision| (None, decision)));
                return Ok(found);
            }
        };
        // The variables are expensive for large objects; they are made when a parameter needs them.
        let mut input = None;
        for binding in &self.bindings {
            let parameters = match self.parameters(api, attributes, objects, binding) {
                Ok(parameters) => parameters,
                Err(error) => {
                    let decision = self.misconfigured("binding", &error);
                    found.extend(decision.map(|decision| (Some(binding), decision)));
                    continue;
                }
            };
            for parameter in &parameters {
                attributes.in_time(api)?;
                let input = match &mut input {
                    Some(input) => input,
                    None => input.insert(PolicyInput::new(api, attributes, &resource, objects)?),
                };
                let decisions = input.decide(self, parameter);
                found.extend(
                    decisions
                        .into_iter()
                        .map(|decision| (Some(binding), decision)),
                );
            }
        }
        Ok(found)
    }

    /// The refusal of a request that cannot be checked; `None` when it is admitted then.
    fn misconfigured(&self, what: &str, error: &str) -> Option<PolicyDecision> {
        (!self.fails_open).then(|| PolicyDecision {
            is_forced: true,
            ..PolicyDecision::invalid(format!("failed to configure {what}: {error}"))
        })
    }

    /// The parameters of a binding for a request: a single null if it has no parameters, empty if the binding does not
    /// match the request.
    fn parameters(
        &self,
        api: &Api,
        attributes: &Attributes<'_>,
        objects: RequestObjects<'_>,
        binding: &PolicyBinding,
    ) -> Result<Vec<Value>, String> {
        if let Some(matching) = &binding.matching {
            let matched = matching.resource(api, attributes, objects);
            if matched.map_err(|e| e.message)?.is_none() {
                return Ok(Vec::new());
            }
        }
        let reference = &binding.parameter;
        // A policy without `paramKind`, or a binding without `paramRef`, is evaluated once, with null.
        let Some((api_version, kind)) = self.parameters.as_ref().filter(|_| !reference.is_null())
        else {
            return Ok(vec![Value::Null]);
        };
        let catalog = api.catalog();
        let mut all = catalog.resources().iter();
        let is_kind = |r: &&Arc<ServedResource>| r.kind == kind && r.api_version() == *api_version;
        let Some(resource) = all.find(is_kind) else {
            return Err(format!(
                "paramKind kind `{api_version}, Kind={kind}` not known"
            ));
        };
        let namespace = parameter_namespace(resource, reference, attributes.namespace)?;
        let found = find_parameters(api, resource, namespace, reference);
        let found = found.map_err(|e| e.message)?;
        if found.is_empty() && reference.text("parameterNotFoundAction") == "Deny" {
            let error = "no params found for policy binding with `Deny` parameterNotFoundAction";
            return Err(error.to_owned());
        }
        Ok(found)
    }
}

fn parameter_namespace<'a>(
    resource: &ServedResource,
    reference: &'a Value,
    requested: &'a str,
) -> Result<&'a str, String> {
    match (resource.namespaced, reference.text("namespace")) {
        (false, "") => Ok(""),
        (false, _) => {
            Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned())
        }
        (true, "") if requested.is_empty() => Err(
            "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                .to_owned(),
        ),
        (true, "") => Ok(requested),
        (true, namespace) => Ok(namespace),
    }
}

fn find_parameters(
    api: &Api,
    resource: &ServedResource,
    namespace: &str,
    reference: &Value,
) -> Result<Vec<Value>, ApiError> {
    let found = match reference.text("name") {
        "" => {
            let request = ListRequest {
                namespace: resource.namespaced.then_some(namespace),
                ..ListRequest::default()
            };
            let listed = api.list(resource, &request).map(|l| l.items);
            let selector = reference.part("selector");
            let mut items = listed.unwrap_or_default();
            items.retain(|v| selectors::matches(selector, v.object().part("metadata")));
            items
        }
        name => api.get(resource, namespace, name).into_iter().collect(),
    };
    let shown = |version: Arc<ObjectVersion>| {
        let mut object = show(api, resource, &version.object())?;
        object["apiVersion"] = resource.api_version().into();
        object["kind"] = resource.kind.into();
        Ok(object)
    };
    found.into_iter().map(shown).collect()
}

// === impl Expressions ===

impl Expressions {
    /// Compiles the expressions of a policy.
    ///
    /// # Errors
    /// The fault of the first invalid expression.
    fn of(spec: &Value) -> Result<Self, String> {
        let mut scope = policies::ExpressionScope::of(spec);
        let conditions = spec.items("matchConditions").iter();
        let conditions = conditions
            .map(|c| Expression::compile(&scope, c.text("expression"), Output::Bool))
            .collect::<Result<_, _>>()?;
        let mut variables = Vec::new();
        for variable in spec.items("variables") {
            let compiled = Expression::compile(&scope, variable.text("expression"), Output::Any)?;
            variables.push((variable.text("name").to_owned(), compiled.program));
            // A variable sees only the variables before it.
            scope.declare(variable.text("name"));
        }
        let validations = spec.items("validations").iter();
        let annotations = spec.items("auditAnnotations").iter();
        Ok(Self {
            conditions,
            variables,
            validations: validations
                .map(|stated| Validation::compile(&scope, stated))
                .collect::<Result<_, _>>()?,
            annotations: annotations
                .map(|stated| {
                    let text = stated.text("valueExpression");
                    let compiled = Expression::compile(&scope, text, Output::TextOrNull)?;
                    Ok((stated.text("key").to_owned(), compiled))
                })
                .collect::<Result<_, String>>()?,
            mutations: spec
                .items("mutations")
                .iter()
                .map(|stated| Mutation::compile(&scope, stated))
                .collect::<Result<_, _>>()?,
        })
    }
}

impl Expression {
    fn compile(
        scope: &policies::ExpressionScope<'_>,
        text: &str,
        output: Output,
    ) -> Result<Self, String> {
        let program = scope.compile(text, output);
        Ok(Self {
            text: text.to_owned(),
            program: program.map_err(|e| format!("compilation error: {e}"))?,
        })
    }
}

impl Validation {
    fn compile(scope: &policies::ExpressionScope<'_>, stated: &Value) -> Result<Self, String> {
        let message = stated.text("messageExpression");
        let message = (!message.is_empty())
            .then(|| Expression::compile(scope, message, Output::Text))
            .transpose()?;
        Ok(Self {
            condition: Expression::compile(scope, stated.text("expression"), Output::Bool)?,
            message: stated.text("message").trim().to_owned(),
            message_program: message.map(|message| message.program),
            reason: match stated.text("reason") {
                "Forbidden" => "Forbidden",
                "RequestEntityTooLarge" => "RequestEntityTooLarge",
                _ => "Invalid",
            },
        })
    }
}

impl PolicyBinding {
    fn of(name: &str, spec: &Value) -> Self {
        let actions = spec.strings("validationActions");
        Self {
            name: name.to_owned(),
            matching: spec.field("matchResources").map(Matching::of_binding),
            parameter: spec.part("paramRef").clone(),
            denies: actions.contains(&"Deny"),
            warns: actions.contains(&"Warn"),
            audits: actions.contains(&"Audit"),
        }
    }
}
