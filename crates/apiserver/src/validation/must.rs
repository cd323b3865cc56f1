//! Conditions that objects must meet, in CEL: what a line of the rules states about several fields at once.

use super::engine::Owner;
use super::errors::{Errors, Path};
use super::view::View;
use berth_cel::{COST_MAX, Datum, Program, Variables};
use serde_json::Value;
use std::sync::Arc;

/// The variables of a condition: the value, the object that holds it, and the value before an update, which is null
/// when the object is created.
const VARIABLES: &[&str] = &["self", "owner", "old"];

/// A condition, and the error about a value that does not meet it.
#[derive(Debug, Clone)]
pub(crate) struct Must {
    condition: Arc<Program>,
    kind: Kind,
    /// Where the error is reported: a field of the value, with dots between the names; empty for the value itself.
    field: &'static str,
    detail: &'static str,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Invalid,
    Required,
    Forbidden,
}

impl Must {
    /// Reads `"CONDITION":KIND@FIELD:"DETAIL"`; `@FIELD` may be left out.
    pub(crate) fn parse(text: &'static str) -> Option<Self> {
        let (condition, rest) = text.strip_prefix('"')?.split_once("\":")?;
        let (kind, detail) = rest.split_once(':')?;
        let (kind, field) = kind.split_once('@').unwrap_or((kind, ""));
        Some(Self {
            condition: Arc::new(Program::condition(condition, VARIABLES).ok()?),
            kind: match kind {
                "invalid" => Kind::Invalid,
                "required" => Kind::Required,
                "forbidden" => Kind::Forbidden,
                _ => return None,
            },
            field,
            detail: detail.strip_prefix('"')?.strip_suffix('"')?,
        })
    }

    /// Checks a value.
    pub(crate) fn check(
        &self,
        errors: &mut Errors,
        owner: &Owner,
        (value, old): (&Value, &Value),
        path: &Path,
    ) {
        let values = [("self", value), ("owner", owner.value), ("old", old)];
        let used = values
            .into_iter()
            .filter(|(name, _)| self.condition.uses(name));
        let variables = Variables::new(used.map(|(name, value)| (name, Datum::json(value))));
        let detail = match self.condition.is_true(&variables, COST_MAX).0 {
            Ok(true) => return,
            Ok(false) => self.detail.to_owned(),
            Err(error) => format!("a rule cannot be evaluated: {error}"),
        };
        let names: Vec<&str> = self
            .field
            .split('.')
            .filter(|name| !name.is_empty())
            .collect();
        let path = match self.field {
            "" => path.clone(),
            field => path.child(field),
        };
        match self.kind {
            Kind::Invalid => {
                errors.invalid(&path, value.at(&names).unwrap_or(&Value::Null), detail);
            }
            Kind::Required => errors.required(&path, detail),
            Kind::Forbidden => errors.forbidden(&path, detail),
        }
    }
}
