//! ValidatingAdmissionPolicies and their bindings.

use super::errors::{ErrorPath, Errors};
use super::owner::Owner;
use super::{names, webhooks};
use crate::enumerations::values;
use crate::view::FieldView;
use berth_api::names::dns1035_label;
use berth_cel::{CompileError, Output, Program, RESERVED};
use serde_json::Value;
use std::collections::HashSet;

/// A policy has no more audit annotations.
const ANNOTATIONS_MAX: usize = 20;
/// The maximum size, in bytes, of the expression of an audit annotation.
const ANNOTATION_BYTES_MAX: usize = 5 * 1024;
const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
/// The operations that mutating policies can receive.
const MUTATED: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];
const PATCH_TYPES: [&str; 2] = values!(admissionregistration.v1.Mutation.patchType);
const ACTIONS: [&str; 3] = values!(
    admissionregistration
        .v1
        .ValidatingAdmissionPolicyBindingSpec
        .validationActions
);
pub(crate) fn mutated_operations(e: &mut Errors, _: &Owner, matching: &Value, path: &ErrorPath) {
    for rule in matching.items("resourceRules") {
        for operation in rule.strings("operations") {
            if !MUTATED.contains(&operation) {
                let at = path.child("resourceRules");
                e.not_supported(&at.child("operations"), operation, &MUTATED);
            }
        }
    }
}

pub(crate) fn resource_names(e: &mut Errors, _: &Owner, list: &Value, path: &ErrorPath) {
    let mut seen = HashSet::new();
    for (i, name) in list.as_array().into_iter().flatten().enumerate() {
        let (at, name) = (path.index(i), name.as_str().unwrap_or(""));
        e.each_invalid(&at, name, names::path_segment(name, false));
        if !seen.insert(name) {
            e.duplicate(&at, name);
        }
    }
}

pub(crate) fn resource_rules(e: &mut Errors, _: &Owner, constraints: &Value, path: &ErrorPath) {
    if constraints.items("resourceRules").is_empty() {
        e.required(&path.child("resourceRules"), "");
    }
}

/// The scope of expressions of a policy: the variables of the request and previous variables of the policy.
#[derive(Debug)]
pub struct ExpressionScope<'s> {
    has_parameters: bool,
    has_variables: bool,
    declared: Vec<&'s str>,
}

impl<'s> ExpressionScope<'s> {
    /// The scope of the expressions of a policy, with none of its variables.
    pub fn of(spec: &Value) -> Self {
        Self {
            has_parameters: spec.field("paramKind").is_some(),
            has_variables: !spec.items("variables").is_empty(),
            declared: Vec::new(),
        }
    }

    /// Adds a variable of the policy.
    pub fn declare(&mut self, name: &'s str) {
        self.declared.push(name);
    }

    /// Compiles an expression.
    ///
    /// # Errors
    /// The expression is invalid, or its value has another type.
    pub fn compile(&self, text: &str, output: Output) -> Result<Program, CompileError> {
        Program::composed(
            text,
            self.variables(self.has_variables),
            &self.declared,
            output,
        )
    }

    /// Compiles a match condition, which cannot contain variables of the policy.
    fn condition(&self, text: &str) -> Result<Program, CompileError> {
        Program::condition(text, self.variables(false))
    }

    fn variables(&self, composed: bool) -> &'static [&'static str] {
        const ALL: &[&str; 6] = &[
            "variables",
            "object",
            "oldObject",
            "request",
            "namespaceObject",
            "params",
        ];
        match (composed, self.has_parameters, ALL) {
            (true, true, all) => all,
            (true, false, [known @ .., _]) => known,
            (false, true, [_, known @ ..]) => known,
            (false, false, [_, known @ .., _]) => known,
        }
    }
}

/// The detail of an error about an expression.
pub(super) fn detail(error: &CompileError) -> String {
    match error {
        CompileError::OtherType(wanted, found) => {
            format!("must evaluate to {wanted} but got {found}")
        }
        other => other.to_string(),
    }
}

fn check_expression(
    errors: &mut Errors,
    path: &ErrorPath<'_>,
    text: &str,
    compiled: Result<Program, CompileError>,
) {
    if let Err(error) = compiled {
        errors.invalid(path, text, detail(&error));
    }
}

/// The scope of the expressions of a policy. Checks the match conditions, and the variables that the scope declares.
fn checked_scope<'s>(
    errors: &mut Errors,
    spec: &'s Value,
    path: &ErrorPath<'_>,
) -> ExpressionScope<'s> {
    let mut scope = ExpressionScope::of(spec);
    let conditions = spec.part("matchConditions");
    let at = path.child("matchConditions");
    webhooks::check_conditions(errors, conditions, &at, |text| scope.condition(text));
    let at = path.child("variables");
    // A variable may use previously declared variables.
    for (i, stated) in spec.items("variables").iter().enumerate() {
        variable(errors, &scope, stated, &at.index(i));
        scope.declare(stated.text("name"));
    }
    scope
}

pub(crate) fn expressions(
    errors: &mut Errors,
    owner: &Owner<'_>,
    spec: &Value,
    path: &ErrorPath<'_>,
) {
    let scope = checked_scope(errors, spec, path);
    let (validations, annotations) = (spec.items("validations"), spec.items("auditAnnotations"));
    // A policy without both would have no effect.
    if validations.is_empty() && annotations.is_empty() {
        for field in ["validations", "auditAnnotations"] {
            let detail = "validations or auditAnnotations must contain at least one item";
            errors.required(&path.child(field), detail);
        }
    }
    let at = path.child("validations");
    for (i, stated) in validations.iter().enumerate() {
        validation(errors, &scope, stated, &at.index(i));
    }
    let at = path.child("auditAnnotations");
    if annotations.len() > ANNOTATIONS_MAX {
        let detail = format!("must not have more than {ANNOTATIONS_MAX} auditAnnotations");
        errors.invalid(&at, spec.part("auditAnnotations"), detail);
    }
    let policy = owner.parent.map_or(&Value::Null, |policy| policy.value);
    let name = policy.part("metadata").text("name");
    let mut keys = HashSet::new();
    for (i, stated) in annotations.iter().enumerate() {
        annotation(errors, &scope, name, stated, &at.index(i));
        let key = stated.text("key");
        if !keys.insert(key) {
            errors.duplicate(&at.index(i).child("key"), key);
        }
    }
}

pub(crate) fn mutation_expressions(
    errors: &mut Errors,
    _: &Owner<'_>,
    spec: &Value,
    path: &ErrorPath<'_>,
) {
    let scope = checked_scope(errors, spec, path);
    let (mutations, at) = (spec.items("mutations"), path.child("mutations"));
    if mutations.is_empty() {
        errors.required(&at, "mutations must contain at least one item");
    }
    for (i, stated) in mutations.iter().enumerate() {
        mutation(errors, &scope, stated, &at.index(i));
    }
}

fn mutation(
    errors: &mut Errors,
    scope: &ExpressionScope<'_>,
    mutation: &Value,
    path: &ErrorPath<'_>,
) {
    let kind = mutation.text("patchType");
    let (own, other, output) = match kind {
        "" => return errors.required(&path.child("patchType"), ""),
        "JSONPatch" => ("jsonPatch", "applyConfiguration", Output::Patches),
        "ApplyConfiguration" => ("applyConfiguration", "jsonPatch", Output::Object),
        _ => return errors.not_supported(&path.child("patchType"), kind, &PATCH_TYPES),
    };
    match mutation.field(own) {
        None => {
            let detail = format!("must be specified when patchType is {kind}");
            errors.required(&path.child(own), detail);
        }
        Some(stated) => {
            let text = stated.text("expression").trim();
            let at = path.child(own);
            let at = at.child("expression");
            match text {
                "" => errors.required(&at, ""),
                text => check_expression(errors, &at, text, scope.compile(text, output)),
            }
        }
    }
    if mutation.field(other).is_some() {
        let shown = format!("{{{other}}}");
        let detail = format!("must not be specified when patchType is {kind}");
        errors.invalid(&path.child(other), &shown, detail);
    }
}

fn variable(
    errors: &mut Errors,
    scope: &ExpressionScope<'_>,
    variable: &Value,
    path: &ErrorPath<'_>,
) {
    let (name, expression) = (variable.text("name"), variable.text("expression"));
    if name.trim().is_empty() {
        errors.required(&path.child("name"), "name is not specified");
    } else if !is_identifier(name) {
        errors.invalid(&path.child("name"), name, "must be a valid CEL identifier");
    }
    let at = path.child("expression");
    if expression.trim().is_empty() {
        errors.required(&at, "expression is not specified");
    } else {
        check_expression(
            errors,
            &at,
            expression,
            scope.compile(expression, Output::Any),
        );
    }
}

fn is_identifier(name: &str) -> bool {
    let is_word = |c: char| c == '_' || c.is_ascii_alphanumeric();
    name.chars().all(is_word)
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && !RESERVED.contains(&name)
}

fn validation(
    errors: &mut Errors,
    scope: &ExpressionScope<'_>,
    validation: &Value,
    path: &ErrorPath<'_>,
) {
    let (expression, at) = (validation.text("expression"), path.child("expression"));
    if expression.trim().is_empty() {
        errors.required(&at, "expression is not specified");
    } else {
        check_expression(
            errors,
            &at,
            expression,
            scope.compile(expression, Output::Bool),
        );
    }
    let (formed, at) = (
        validation.text("messageExpression"),
        path.child("messageExpression"),
    );
    // An absent message expression is not an error.
    if !formed.is_empty() && formed.trim().is_empty() {
        errors.invalid(&at, formed, "must be non-empty if specified");
    } else if !formed.is_empty() {
        check_expression(errors, &at, formed, scope.compile(formed, Output::Text));
    }
    let (message, at) = (validation.text("message"), path.child("message"));
    if !message.is_empty() && message.trim().is_empty() {
        errors.invalid(&at, message, "must be non-empty if specified");
    } else if message.trim().contains(['\n', '\r']) {
        errors.invalid(&at, message, "must not contain line breaks");
    }
    if let Some(reason) = validation.maybe_text("reason")
        && !REASONS.contains(&reason)
    {
        errors.not_supported(&path.child("reason"), reason, &REASONS);
    }
}

fn annotation(
    errors: &mut Errors,
    scope: &ExpressionScope<'_>,
    policy: &str,
    annotation: &Value,
    path: &ErrorPath<'_>,
) {
    let (key, at) = (annotation.text("key"), path.child("key"));
    if policy.is_empty() {
        errors.invalid(&at, key, "requires metadata.name be non-empty");
    } else {
        // The key of the annotation in the audit log has the name of the policy.
        let name = format!("{policy}/{key}");
        errors.each_invalid(&at, &name, names::qualified_name(&name));
    }
    let (expression, at) = (
        annotation.text("valueExpression"),
        path.child("valueExpression"),
    );
    let trimmed = expression.trim();
    if trimmed.is_empty() {
        errors.required(&at, "valueExpression is not specified");
    } else if trimmed.len() > ANNOTATION_BYTES_MAX {
        let detail = format!("must not exceed {ANNOTATION_BYTES_MAX} bytes in length");
        errors.required(&at, detail);
    } else {
        check_expression(
            errors,
            &at,
            expression,
            scope.compile(trimmed, Output::TextOrNull),
        );
    }
}

pub(crate) fn param_kind(errors: &mut Errors, _: &Owner<'_>, kind: &Value, path: &ErrorPath<'_>) {
    if kind.is_null() {
        return;
    }
    let (api_version, at) = (kind.text("apiVersion"), path.child("apiVersion"));
    // The core group has no name before the slash.
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    if api_version.is_empty() {
        errors.required(&at, "");
    } else if version.contains('/') {
        let detail = format!("unexpected GroupVersion string: {api_version}");
        errors.invalid(&at, api_version, detail);
    } else {
        let problems = names::dns_subdomain(group);
        if !group.is_empty() && !problems.is_empty() {
            errors.invalid(&at, group, problems.join(","));
        }
        let problems = dns1035_label(version);
        if version.is_empty() {
            errors.invalid(&at, api_version, "version must be specified");
        } else if !problems.is_empty() {
            errors.invalid(&at, version, problems.join(","));
        }
    }
    let (kind, at) = (kind.text("kind"), path.child("kind"));
    let problems = dns1035_label(&kind.to_lowercase());
    if kind.is_empty() {
        errors.required(&at, "");
    } else if !problems.is_empty() {
        let problems = problems.join(",");
        let detail = format!("may have mixed case, but should otherwise match: {problems}");
        errors.invalid(&at, kind, detail);
    }
}

pub(crate) fn validation_actions(
    errors: &mut Errors,
    _: &Owner<'_>,
    list: &Value,
    path: &ErrorPath<'_>,
) {
    let mut seen = HashSet::new();
    for (i, action) in list.as_array().into_iter().flatten().enumerate() {
        let (at, action) = (path.index(i), action.as_str().unwrap_or(""));
        if !ACTIONS.contains(&action) {
            errors.not_supported(&at, action, &ACTIONS);
        }
        if !seen.insert(action) {
            errors.duplicate(&at, action);
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
        errors.invalid(path, list, detail);
    }
    if seen.is_empty() {
        errors.required(path, "at least one validation action is required");
    }
}
