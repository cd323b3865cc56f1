//! Conditions in CEL: rules about several fields at once.

use super::errors::{ErrorPath, Errors, Shown};
use super::owner::Owner;
use berth_cel::{COST_MAX, Datum, EvaluationError, Program, Variables};
use serde_json::Value;
use std::sync::Arc;

/// The variables of a condition: the value, the object that holds it, the value before an update (null when the object
/// is created), the object as a whole, and the kind of that.
const VARIABLES: &[&str] = &["self", "owner", "old", "root", "kind"];

/// A condition.
#[derive(Debug, Clone)]
pub(crate) struct MustCondition(Arc<Program>);

impl MustCondition {
    /// Reads a condition in double quotes.
    pub(crate) fn parse(text: &'static str) -> Option<Self> {
        let condition = text.strip_prefix('"')?.strip_suffix('"')?;
        let program = Program::condition(condition, VARIABLES).ok()?;
        Some(Self(Arc::new(program)))
    }

    /// Returns whether a value meets the condition.
    pub(crate) fn is_met(
        &self,
        owner: &Owner,
        value: &Value,
        old: &Value,
    ) -> Result<bool, EvaluationError> {
        let variables = variables(&self.0, owner, value, old);
        self.0.is_true(&variables, COST_MAX).0
    }
}

/// The variables that a program uses.
fn variables(program: &Program, owner: &Owner, value: &Value, old: &Value) -> Variables {
    let outermost = owner.outermost();
    let kind = outermost.type_name.rsplit('.').next().unwrap_or("");
    let kind = Value::from(kind);
    let values = [value, owner.value, old, outermost.value, &kind];
    let used = VARIABLES.iter().zip(values);
    let used = used.filter(|(name, _)| program.uses(name));
    Variables::new(used.map(|(name, value)| (*name, Datum::json(value))))
}

/// A condition, and the error about a value that does not meet it.
#[derive(Debug, Clone)]
pub(crate) struct Must {
    condition: MustCondition,
    kind: CheckKind,
    /// The path of the error: a field of the value, such as `ports[0].name`; empty for the value itself.
    field: &'static str,
    detail: &'static str,
    /// Forms the detail, where that has expressions.
    form: Option<Arc<Program>>,
}

#[derive(Debug, Clone, Copy)]
enum CheckKind {
    Invalid,
    InvalidNull,
    Required,
    Forbidden,
}

impl Must {
    /// Reads `"CONDITION":KIND@FIELD:"DETAIL"`; `@FIELD` may be left out.
    pub(crate) fn parse(text: &'static str) -> Option<Self> {
        let (condition, rest) = text.split_at_checked(text.find("\":")? + 1)?;
        let (kind, detail) = rest.strip_prefix(':')?.split_once(':')?;
        let (kind, field) = kind.split_once('@').unwrap_or((kind, ""));
        let detail = detail.strip_prefix('"')?.strip_suffix('"')?;
        let form = if detail.contains('{') {
            let opened = detail.replace('{', "\" + string(");
            let text = format!("\"{}\"", opened.replace('}', ") + \""));
            Some(Arc::new(Program::text(&text, VARIABLES).ok()?))
        } else {
            None
        };
        Some(Self {
            condition: MustCondition::parse(condition)?,
            kind: match kind {
                "invalid" => CheckKind::Invalid,
                "invalid-null" => CheckKind::InvalidNull,
                "required" => CheckKind::Required,
                "forbidden" => CheckKind::Forbidden,
                _ => return None,
            },
            field,
            detail,
            form,
        })
    }

    /// Checks a value.
    pub(crate) fn check(
        &self,
        errors: &mut Errors,
        owner: &Owner,
        value: &Value,
        old: &Value,
        path: &ErrorPath,
    ) {
        let detail = match self.condition.is_met(owner, value, old) {
            Ok(true) => return,
            Ok(false) => self.detail(owner, value, old),
            Err(error) => format!("a rule cannot be evaluated: {error}"),
        };
        let (path, shown) = match self.field {
            "" => (path.clone(), Some(value)),
            field => {
                let pointer = field.replace(['.', '['], "/").replace(']', "");
                (path.child(field), value.pointer(&format!("/{pointer}")))
            }
        };
        match self.kind {
            CheckKind::Invalid => {
                let shown = shown.map_or_else(Shown::null, Shown::from);
                errors.invalid(&path, shown, detail);
            }
            CheckKind::InvalidNull => errors.invalid(&path, Shown::null(), detail),
            CheckKind::Required => errors.required(&path, detail),
            CheckKind::Forbidden => errors.forbidden(&path, detail),
        }
    }

    fn detail(&self, owner: &Owner, value: &Value, old: &Value) -> String {
        let formed = self.form.as_ref().and_then(|form| {
            let variables = variables(form, owner, value, old);
            form.form(&variables, COST_MAX).0.ok().flatten()
        });
        formed.unwrap_or_else(|| self.detail.to_owned())
    }
}
