//! Lists as sets.

use super::{Declaration, FunctionContext};
use crate::error::EvaluationError;
use crate::value::{CelValue, EvalResult, Steps, contains};

pub(crate) const DECLARATIONS: &[Declaration] = declarations! {
    "sets.contains", "list_sets_contains_list", "list(T), list(T) -> bool" => |cx, args| {
        let (a, b) = lists(args)?;
        has_all(a, b, cx.steps).map(CelValue::Bool)
    };
    "sets.equivalent", "list_sets_equivalent_list", "list(T), list(T) -> bool" => |cx, args| {
        let (a, b) = lists(args)?;
        let equivalent = has_all(a, b, cx.steps)? && has_all(b, a, cx.steps)?;
        Ok(CelValue::Bool(equivalent))
    };
    "sets.intersects", "list_sets_intersects_list", "list(T), list(T) -> bool" => intersects;
};

fn lists(args: &[CelValue]) -> Result<(&[CelValue], &[CelValue]), EvaluationError> {
    match args {
        [CelValue::List(a), CelValue::List(b)] => Ok((a, b)),
        _ => Err(EvaluationError::no_such_overload()),
    }
}

fn has_all(
    list: &[CelValue],
    wanted: &[CelValue],
    steps: &mut Steps,
) -> Result<bool, EvaluationError> {
    for value in wanted {
        if !contains(list, value, steps)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn intersects(cx: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    let (a, b) = lists(args)?;
    for value in a {
        if contains(b, value, cx.steps)? {
            return Ok(CelValue::Bool(true));
        }
    }
    Ok(CelValue::Bool(false))
}
