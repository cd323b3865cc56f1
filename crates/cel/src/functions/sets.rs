//! Lists as sets.

use super::Context;
use crate::declarations::Declaration;
use crate::error::EvaluationError;
use crate::value::{Outcome, Steps, Value, contains};

pub(super) const DECLARATIONS: &[Declaration] = &[
    (
        "sets.contains",
        "list_sets_contains_list",
        "list(T), list(T) -> bool",
        |cx, args| {
            let (a, b) = lists(args)?;
            has_all(a, b, cx.steps).map(Value::Bool)
        },
    ),
    (
        "sets.equivalent",
        "list_sets_equivalent_list",
        "list(T), list(T) -> bool",
        |cx, args| {
            let (a, b) = lists(args)?;
            let equivalent = has_all(a, b, cx.steps)? && has_all(b, a, cx.steps)?;
            Ok(Value::Bool(equivalent))
        },
    ),
    (
        "sets.intersects",
        "list_sets_intersects_list",
        "list(T), list(T) -> bool",
        intersects,
    ),
];

fn lists(args: &[Value]) -> Result<(&[Value], &[Value]), EvaluationError> {
    match args {
        [Value::List(a), Value::List(b)] => Ok((a, b)),
        _ => Err(EvaluationError::no_such_overload()),
    }
}

fn has_all(list: &[Value], wanted: &[Value], steps: &mut Steps) -> Result<bool, EvaluationError> {
    for value in wanted {
        if !contains(list, value, steps)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn intersects(cx: &mut Context<'_>, args: &[Value]) -> Outcome {
    let (a, b) = lists(args)?;
    for value in a {
        if contains(b, value, cx.steps)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}
