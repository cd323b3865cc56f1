//! The functions in expressions of mutations, other than messages.

use super::{Declaration, FunctionContext};
use crate::error::EvaluationError;
use crate::value::{CelValue, EvalResult};

pub(crate) const DECLARATIONS: &[Declaration] = declarations! {
    "jsonpatch.escapeKey", "string_jsonpatch_escapeKey_string", "string -> string" => escape_key;
};

/// A key as a part of a JSON pointer.
fn escape_key(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    match args {
        [CelValue::String(key)] => Ok(CelValue::text(&key.replace('~', "~0").replace('/', "~1"))),
        _ => Err(EvaluationError::no_such_overload()),
    }
}
