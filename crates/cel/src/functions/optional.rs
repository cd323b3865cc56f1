//! Optional values.

use super::{Context, evaluated};
use crate::declarations::Declaration;
use crate::error::EvaluationError;
use crate::value::{Outcome, Value};

pub(super) const DECLARATIONS: &[Declaration] = &[
    ("optional.of", "optional_of", "V -> optional(V)", of),
    (
        "optional.ofNonZeroValue",
        "optional_ofNonZeroValue",
        "V -> optional(V)",
        of_non_zero,
    ),
    ("optional.none", "optional_none", "-> optional(V)", none),
    ("value", "optional_value", ".optional(V) -> V", value),
    (
        "hasValue",
        "optional_hasValue",
        ".optional(V) -> bool",
        has_value,
    ),
    (
        "or",
        "optional_or_optional",
        ".optional(V), optional(V) -> optional(V)",
        evaluated,
    ),
    (
        "orValue",
        "optional_orValue_value",
        ".optional(V), V -> V",
        evaluated,
    ),
    (
        "_?._",
        "select_optional_field",
        "dyn, string -> optional(V)",
        evaluated,
    ),
    (
        "_[?_]",
        "list_optindex_optional_int",
        "list(V), int -> optional(V)",
        evaluated,
    ),
    (
        "_[?_]",
        "optional_list_optindex_optional_int",
        "optional(list(V)), int -> optional(V)",
        evaluated,
    ),
    (
        "_[?_]",
        "map_optindex_optional_value",
        "map(K, V), K -> optional(V)",
        evaluated,
    ),
    (
        "_[?_]",
        "optional_map_optindex_optional_value",
        "optional(map(K, V)), K -> optional(V)",
        evaluated,
    ),
    (
        "_[_]",
        "optional_list_index_int",
        "optional(list(V)), int -> optional(V)",
        evaluated,
    ),
    (
        "_[_]",
        "optional_map_index_value",
        "optional(map(K, V)), K -> optional(V)",
        evaluated,
    ),
    ("first", "list_first", ".list(V) -> optional(V)", first),
    ("last", "list_last", ".list(V) -> optional(V)", last),
    (
        "optional.unwrap",
        "optional_unwrap",
        "list(optional(V)) -> list(V)",
        unwrap,
    ),
    (
        "unwrapOpt",
        "optional_unwrapOpt",
        ".list(optional(V)) -> list(V)",
        unwrap,
    ),
];

fn of(_: &mut Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [value] => Ok(Value::some(value.clone())),
        _ => Err(EvaluationError::no_such_overload()),
    }
}

fn of_non_zero(_: &mut Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [value] if value.is_zero() => Ok(Value::Optional(None)),
        [value] => Ok(Value::some(value.clone())),
        _ => Err(EvaluationError::no_such_overload()),
    }
}

fn none(_: &mut Context<'_>, _: &[Value]) -> Outcome {
    Ok(Value::Optional(None))
}

fn value(_: &mut Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::Optional(Some(value))] => Ok(Value::clone(value)),
        [Value::Optional(None)] => Err(EvaluationError::failed("optional.none() dereference")),
        _ => Err(EvaluationError::no_such_overload()),
    }
}

fn has_value(_: &mut Context<'_>, args: &[Value]) -> Outcome {
    match args {
        [Value::Optional(value)] => Ok(Value::Bool(value.is_some())),
        _ => Err(EvaluationError::no_such_overload()),
    }
}

fn elements(args: &[Value]) -> Result<&[Value], EvaluationError> {
    match args {
        [Value::List(elements)] => Ok(elements),
        _ => Err(EvaluationError::no_such_overload()),
    }
}

fn maybe(value: Option<&Value>) -> Value {
    value.map_or(Value::Optional(None), |value| Value::some(value.clone()))
}

fn first(_: &mut Context<'_>, args: &[Value]) -> Outcome {
    elements(args).map(|elements| maybe(elements.first()))
}

fn last(_: &mut Context<'_>, args: &[Value]) -> Outcome {
    elements(args).map(|elements| maybe(elements.last()))
}

fn unwrap(_: &mut Context<'_>, args: &[Value]) -> Outcome {
    let mut present = Vec::new();
    for element in elements(args)? {
        match element {
            Value::Optional(Some(value)) => present.push(Value::clone(value)),
            Value::Optional(None) => {}
            _ => return Err(EvaluationError::failed("the value is not optional")),
        }
    }
    Ok(Value::list(present))
}
