//! Validation rules of schemas (`x-kubernetes-validations`): expressions in CEL over `self` and `oldSelf`.
//!
//! The texts of errors equal kube-apiserver's. One difference: kube-apiserver checks the types of the fields when it
//! compiles a rule; in Berth, a rule with wrong types fails when it is evaluated.

use super::correlation::{Counterpart, KeyedItems, Ratchet};
use super::field_path::{FieldPath, FieldStep};
use super::formats;
use crate::enumerations::values;
use crate::field::{ErrorType, FieldError};
use crate::strategy::CheckedUpdate;
use crate::validation::errors::{ErrorPath, Errors, Shown};
use crate::view::FieldView;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use berth_cel::{
    COST_MAX, CompileError, Datum, EvaluationError, Output, Program, Variables, escaped,
};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The maximum total cost of the rules of an object.
const OBJECT_COST_MAX: u64 = 10 * COST_MAX;
/// The maximum size, in bytes, of a message that an expression forms.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;
/// The variables of rules.
const VARIABLES: &[&str] = &["oldSelf", "self"];
const FIELD: &str = "x-kubernetes-validations";
const REASONS: [&str; 4] = values!(apiextensions.v1.ValidationRule.reason);
/// A compiled rule.
#[derive(Debug)]
struct CompiledRule {
    program: Program,
    message: Option<Program>,
    /// The rule as its definition states it.
    stated: Value,
    /// The field of errors, below the field of the rule.
    field: Vec<FieldStep>,
}

/// The rules of a schema and its subschemas. Schemas without rules are omitted.
#[derive(Debug, Clone, Default)]
pub(super) struct Rules {
    own: Arc<Vec<CompiledRule>>,
    properties: BTreeMap<String, Rules>,
    /// The rules of all other fields.
    values: Option<Box<Rules>>,
    items: Option<Box<Rules>>,
}

impl CompiledRule {
    fn compile(schema: &Value, stated: &Value) -> Result<Self, (&'static str, String)> {
        // The value before a change may be absent; the rule then decides about its meaning.
        let optional = if stated.flag("optionalOldSelf") {
            "oldSelf"
        } else {
            ""
        };
        let compile = |text, output| Program::with_optional(text, VARIABLES, optional, output);
        let program = compile(stated.text("rule"), Output::Bool);
        let program = program.map_err(|e| {
            let text = match e {
                CompileError::OtherType(..) => "cel expression must evaluate to a bool".to_owned(),
                other => other.to_string(),
            };
            ("rule", text)
        })?;
        let message = stated.maybe_text("messageExpression").map(|text| {
            compile(text, Output::Text).map_err(|e| {
                let text = match e {
                    CompileError::OtherType(..) => {
                        "messageExpression must evaluate to a string".to_owned()
                    }
                    other => format!("messageExpression {other}"),
                };
                ("messageExpression", text)
            })
        });
        Ok(Self {
            program,
            message: message.transpose()?,
            field: FieldPath::parse(stated.text("fieldPath"), schema, true)
                .map_or_else(|_| Vec::new(), |path| path.steps),
            stated: stated.clone(),
        })
    }

    fn is_optional(&self) -> bool {
        self.stated.flag("optionalOldSelf")
    }

    /// The name of the rule in errors of its evaluation.
    fn name(&self) -> &str {
        match self.stated.text("message").trim() {
            "" => self.stated.text("rule").trim(),
            message => message,
        }
    }
}

// === what a definition may state ===

/// Checks the rules of a schema. `is_correlatable` states whether values have a counterpart in the object before a
/// change.
pub(super) fn check(
    errors: &mut Errors,
    schema: &Value,
    path: &ErrorPath<'_>,
    is_correlatable: bool,
) {
    let has_lines = |text: &str| text.trim().contains(['\n', '\r']);
    for (i, stated) in schema.items(FIELD).iter().enumerate() {
        let at = path.child(FIELD).index(i);
        let is_blank = |field: &str| {
            let text = stated.maybe_text(field).filter(|text| !text.is_empty());
            text.is_some_and(|text| text.trim().is_empty())
        };
        let before = errors.len();
        let (rule, message) = (stated.text("rule"), stated.text("message"));
        if rule.trim().is_empty() {
            errors.required(&at.child("rule"), "rule is not specified");
        } else if is_blank("message") {
            let detail = "must be non-empty if specified";
            errors.invalid(&at.child("message"), message, detail);
        } else if has_lines(message) {
            let detail = "must not contain line breaks";
            errors.invalid(&at.child("message"), message, detail);
        } else if has_lines(rule) && message.trim().is_empty() {
            let detail = "message must be specified if rule contains line breaks";
            errors.required(&at.child("message"), detail);
        }
        if is_blank("messageExpression") {
            let detail = "messageExpression must be non-empty if specified";
            errors.required(&at.child("messageExpression"), detail);
        }
        if let Some(reason) = stated.maybe_text("reason")
            && !REASONS.contains(&reason)
        {
            errors.not_supported(&at.child("reason"), reason, &REASONS);
        }
        let field = stated.text("fieldPath");
        if !field.is_empty() && FieldPath::parse(field, schema, true).is_err() {
            errors.invalid(&at.child("fieldPath"), field, "must be a valid path");
        }
        if errors.len() != before {
            continue;
        }
        match CompiledRule::compile(schema, stated) {
            Err((part, detail)) => errors.invalid(&at.child(part), Shown::from(stated), detail),
            Ok(compiled) => {
                let uses_old = compiled.program.uses("oldSelf");
                if uses_old && !is_correlatable {
                    let detail = format!(
                        "oldSelf cannot be used on the uncorrelatable portion of the schema within {path}"
                    );
                    errors.invalid(&at.child("rule"), rule, detail);
                } else if !uses_old && stated.field("optionalOldSelf").is_some() {
                    let detail = "may not be set if oldSelf is not used in rule";
                    let given = stated.flag("optionalOldSelf");
                    errors.invalid(&at.child("optionalOldSelf"), given, detail);
                }
            }
        }
    }
}

// === the rules of objects ===

impl Rules {
    /// The rules of a schema, which was checked.
    pub(super) fn of(schema: &Value) -> Self {
        let own = schema.items(FIELD).iter();
        let below = |schema: &Value| {
            let rules = schema.is_object().then(|| Self::of(schema));
            rules.filter(|rules| !rules.is_empty()).map(Box::new)
        };
        let properties = schema.entries("properties").into_iter();
        Self {
            own: Arc::new(
                own.filter_map(|stated| CompiledRule::compile(schema, stated).ok())
                    .collect(),
            ),
            properties: properties
                .filter_map(|(name, schema)| Some((name.to_owned(), *below(schema)?)))
                .collect(),
            values: below(schema.part("additionalProperties")),
            items: below(schema.part("items")),
        }
    }

    fn is_empty(&self) -> bool {
        self.own.is_empty()
            && self.properties.is_empty()
            && self.values.is_none()
            && self.items.is_none()
    }

    /// The faults of an object by the rules. `old` is the object before a change, and `faults` are the faults by its
    /// schema. Faults of an unchanged part of the object are warnings, unless a rule compares it with the object before
    /// the change.
    pub(super) fn validate(
        &self,
        schema: &Value,
        object: &Value,
        old: Option<&Value>,
        faults: &[FieldError],
    ) -> CheckedUpdate {
        if self.is_empty() {
            return CheckedUpdate::default();
        }
        // A rule can rely on the structure that the schema states; these faults break it.
        let blocks = |fault: &FieldError| {
            matches!(
                fault.kind,
                ErrorType::NotSupported
                    | ErrorType::Required
                    | ErrorType::TooLong
                    | ErrorType::TooMany
                    | ErrorType::TypeInvalid
            )
        };
        let mut check = RuleCheck {
            errors: Errors::new(),
            warnings: Errors::new(),
            left: Some(OBJECT_COST_MAX),
        };
        if faults.iter().any(blocks) {
            let detail = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
            check
                .errors
                .invalid(&ErrorPath::default(), Shown::null(), detail);
        } else {
            let ratchet = Ratchet::of_object(old.map(|old| Counterpart::new(schema, object, old)));
            let part = RulePart {
                schema,
                value: object,
                old,
                ratchet,
            };
            check.value(self, part, &ErrorPath::default(), true);
        }
        let warnings = check.warnings.into_vec();
        CheckedUpdate {
            errors: check.errors.into_vec(),
            warnings: warnings.iter().map(ToString::to_string).collect(),
        }
    }
}

/// A part of an object.
#[derive(Clone, Copy)]
struct RulePart<'a> {
    schema: &'a Value,
    value: &'a Value,
    /// The part before a change, which transition rules compare with.
    old: Option<&'a Value>,
    ratchet: Ratchet<'a>,
}

struct RuleCheck {
    errors: Errors,
    /// The faults of parts that were not changed.
    warnings: Errors,
    /// The cost that further rules may have; `None` when no further ones are evaluated.
    left: Option<u64>,
}

impl RuleCheck {
    fn value(&mut self, rules: &Rules, part: RulePart<'_>, path: &ErrorPath<'_>, is_root: bool) {
        if part.value.is_null() {
            return;
        }
        if !rules.own.is_empty() {
            self.own(&rules.own, part, path, is_root);
        }
        let schema = part.schema;
        match part.value {
            Value::Object(map) => {
                for (name, value) in map {
                    let own = rules.properties.get(name);
                    let (below, schema) = match own {
                        Some(rules) => (Some(rules), schema.part("properties").part(name)),
                        None => (rules.values.as_deref(), schema.part("additionalProperties")),
                    };
                    if let Some(below) = below {
                        let part = RulePart {
                            schema,
                            value,
                            old: part.old.and_then(|old| old.get(name)),
                            ratchet: part.ratchet.field(name),
                        };
                        let at = match own {
                            Some(_) => path.child(name),
                            None => path.key(name),
                        };
                        self.value(below, part, &at, false);
                    }
                }
            }
            Value::Array(list) => {
                let Some(below) = rules.items.as_deref() else {
                    return;
                };
                let before = part.old.and_then(Value::as_array);
                let before = before.and_then(|before| KeyedItems::of(schema, before));
                let entries = part.ratchet.entries();
                for (i, value) in list.iter().enumerate() {
                    let counterpart = entries.as_ref().and_then(|entries| entries.at(i));
                    let part = RulePart {
                        schema: schema.part("items"),
                        value,
                        old: before.as_ref().and_then(|before| before.get(value)),
                        ratchet: part.ratchet.below(counterpart),
                    };
                    self.value(below, part, &path.index(i), false);
                }
            }
            _ => {}
        }
    }

    /// Evaluates the rules of one schema.
    fn own(
        &mut self,
        rules: &[CompiledRule],
        part: RulePart<'_>,
        path: &ErrorPath<'_>,
        is_root: bool,
    ) {
        let RulePart {
            schema, value, old, ..
        } = part;
        let kind = schema.text("type");
        let this = datum(schema, value, is_root);
        let before = old.map(|old| datum(schema, old, is_root));
        let variables = |before: Option<Datum>| {
            let before = before.map(|before| ("oldSelf", before));
            Variables::new([("self", this.clone())].into_iter().chain(before))
        };
        let plain = variables(before.clone());
        let optional = variables(Some(Datum::optional(before)));
        for rule in rules {
            let uses_old = rule.program.uses("oldSelf");
            if uses_old && old.is_none() && !rule.is_optional() {
                continue;
            }
            let Some(left) = self.left else { return };
            let variables = if rule.is_optional() {
                &optional
            } else {
                &plain
            };
            let (result, cost) = rule.program.is_true(variables, left.min(COST_MAX));
            let name = rule.name();
            let failed = match result {
                Ok(true) => None,
                Ok(false) => Some(None),
                Err(EvaluationError::TooExpensive) if cost > left => {
                    self.left = None;
                    let detail = "validation failed due to running out of cost budget, no further validation rules will be run";
                    self.errors.invalid(path, kind, detail);
                    return;
                }
                Err(error @ EvaluationError::TooExpensive) => {
                    self.left = None;
                    let detail = format!(
                        "'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {name}"
                    );
                    self.errors.invalid(path, kind, detail);
                    return;
                }
                Err(error) => {
                    let text = error.to_string();
                    Some(Some(if text.starts_with("no such overload") {
                        format!(
                            "'{text}': call arguments did not match a supported operator, function or macro signature for rule: {name}"
                        )
                    } else {
                        format!("{text} evaluating rule: {name}")
                    }))
                }
            };
            self.left = Some(left.saturating_sub(cost));
            match failed {
                None => {}
                Some(Some(detail)) => self.errors.invalid(path, kind, detail),
                Some(None) => {
                    let detail = self.message(rule, &plain);
                    let at = rule
                        .field
                        .iter()
                        .fold(path.clone(), |at, step| step.below(&at));
                    // An invalid value from before may stay so.
                    let errors = if !uses_old && part.ratchet.is_equal() {
                        &mut self.warnings
                    } else {
                        &mut self.errors
                    };
                    add_fault(errors, rule.stated.text("reason"), &at, kind, value, detail);
                }
            }
        }
    }

    fn message(&mut self, rule: &CompiledRule, variables: &Variables) -> String {
        let left = self.left.unwrap_or_default();
        if let Some(program) = &rule.message {
            let (result, cost) = program.form(variables, left.min(COST_MAX));
            self.left = Some(left.saturating_sub(cost));
            let text = result.ok().flatten().unwrap_or_default();
            let text = text.trim();
            let is_line = !text.is_empty() && !text.contains(['\n', '\r']);
            if is_line && text.len() <= MESSAGE_BYTES_MAX {
                return text.to_owned();
            }
        }
        match rule.stated.text("message").trim() {
            "" => format!("failed rule: {}", rule.stated.text("rule").trim()),
            message => message.to_owned(),
        }
    }
}

/// Adds the fault of a rule, with the reason that the rule states.
fn add_fault(
    errors: &mut Errors,
    reason: &str,
    path: &ErrorPath<'_>,
    kind: &str,
    value: &Value,
    detail: String,
) {
    let is_shown = !matches!(kind, "object" | "array");
    match reason {
        "FieldValueForbidden" => errors.forbidden(path, detail),
        "FieldValueRequired" => errors.required(path, detail),
        "FieldValueDuplicate" => errors.duplicate(path, Shown::from(value)),
        _ if is_shown => errors.invalid(path, Shown::from(value), detail),
        _ => errors.invalid_unshown(path, detail),
    }
}

/// A value as rules see it.
fn datum(schema: &Value, value: &Value, is_root: bool) -> Datum {
    let text = value.as_str().unwrap_or_default();
    match (schema.text("type"), value) {
        ("object", Value::Object(map)) => object(schema, map, is_root),
        ("array", Value::Array(list)) => {
            let items = schema.part("items");
            Datum::list(list.iter().map(|value| datum(items, value, false)))
        }
        ("number", Value::Number(number)) => Datum::double(number.as_f64().unwrap_or_default()),
        ("string", Value::String(_)) => match schema.text("format") {
            "date-time" => Datum::timestamp(text),
            "date" => Datum::timestamp(&format!("{text}T00:00:00Z")),
            "duration" => {
                let duration = formats::duration(text).map(Datum::duration);
                duration.unwrap_or_else(|| Datum::json(value))
            }
            "byte" => match STANDARD.decode(text) {
                Ok(bytes) => Datum::bytes(&bytes),
                Err(_) => Datum::json(value),
            },
            _ => Datum::json(value),
        },
        _ => Datum::json(value),
    }
}

fn object(schema: &Value, map: &Map<String, Value>, is_root: bool) -> Datum {
    let is_whole = is_root || schema.flag("x-kubernetes-embedded-resource");
    let properties = schema.field("properties").and_then(Value::as_object);
    if !is_whole && properties.is_none() {
        let values = schema.part("additionalProperties");
        let entries = map.iter();
        return Datum::map(entries.map(|(key, value)| (key.as_str(), datum(values, value, false))));
    }
    let mut fields: Vec<(String, Datum)> = Vec::new();
    for (name, value) in map {
        let own = properties.and_then(|properties| properties.get(name));
        match (name.as_str(), own, escaped(name)) {
            ("apiVersion" | "kind", _, _) if is_whole => {
                fields.push((name.clone(), Datum::json(value)));
            }
            ("metadata", _, _) if is_whole && !states_metadata(schema) => {
                let known = ["generateName", "name"].into_iter();
                let known = known.filter_map(|name| Some((name, Datum::json(value.get(name)?))));
                fields.push((name.clone(), Datum::map(known)));
            }
            (_, Some(own), Some(escaped)) => fields.push((escaped, datum(own, value, false))),
            _ => {}
        }
    }
    let fields = fields
        .iter()
        .map(|(name, datum)| (name.as_str(), datum.clone()));
    Datum::object(fields)
}

/// Returns whether the schema of an object states the type and the name of objects. Its rules then see all of the
/// metadata that it states.
fn states_metadata(schema: &Value) -> bool {
    let properties = schema.part("properties");
    let metadata = properties.part("metadata");
    let names = metadata.part("properties");
    let is_text = |of: &Value, field: &str| of.part(field).text("type") == "string";
    metadata.text("type") == "object"
        && ["kind", "apiVersion"]
            .iter()
            .all(|field| is_text(properties, field))
        && ["name", "generateName"]
            .iter()
            .all(|field| is_text(names, field))
}

#[cfg(test)]
mod tests;
