//! The functions of expressions of mutations besides their messages.

use super::Context;
use crate::declarations::Declaration;
use crate::error::EvaluationError;
use crate::value::{Outcome, Value};

pub(super) const DECLARATIONS: &[Declaration] = &[(
    "jsonpatch.escapeKey",
    "string_jsonpatch_escapeKey_string",
    "string -> string",
    escape_key,
)];

/// A key as a part of a JSON pointer.
fn escape_key(_: &mut Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::String(key)] => Ok(Value::text(&key.replace('~', "~0").replace('/', "~1"))),
        _ => Err(EvaluationError::no_such_overload()),
    }
}
