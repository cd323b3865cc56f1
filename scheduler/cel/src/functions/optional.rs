//! Optional values.

use super::{Declaration, FunctionContext, evaluated};
use crate::error::EvaluationError;
use crate::value::{CelValue, EvalResult};

pub(crate) const DECLARATIONS: &[Declaration] = declarations! {
    "optional.of", "optional_of", "V -> optional(V)" => of;
    "optional.ofNonZeroValue", "optional_ofNonZeroValue", "V -> optional(V)" => of_non_zero;
    "optional.none", "optional_none", "-> optional(V)" => none;
    "value", "optional_value", ".optional(V) -> V" => value;
    "hasValue", "optional_hasValue", ".optional(V) -> bool" => has_value;
    "or", "optional_or_optional", ".optional(V), optional(V) -> optional(V)" => evaluated;
    "orValue", "optional_orValue_value", ".optional(V), V -> V" => evaluated;
    "_?._", "select_optional_field", "dyn, string -> optional(V)" => evaluated;
    "_[?_]", "list_optindex_optional_int", "list(V), int -> optional(V)" => evaluated;
    "_[?_]", "optional_list_optindex_optional_int", "optional(list(V)), int -> optional(V)" => evaluated;
    "_[?_]", "map_optindex_optional_value", "map(K, V), K -> optional(V)" => evaluated;
    "_[?_]", "optional_map_optindex_optional_value", "optional(map(K, V)), K -> optional(V)" => evaluated;
    "_[_]", "optional_list_index_int", "optional(list(V)), int -> optional(V)" => evaluated;
    "_[_]", "optional_map_index_value", "optional(map(K, V)), K -> optional(V)" => evaluated;
    "first", "list_first", ".list(V) -> optional(V)" => first;
    "last", "list_last", ".list(V) -> optional(V)" => last;
    "optional.unwrap", "optional_unwrap", "list(optional(V)) -> list(V)" => unwrap;
    "unwrapOpt", "optional_unwrapOpt", ".list(optional(V)) -> list(V)" => unwrap;
};

fn of(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    match args {
        [value] => Ok(CelValue::some(value.clone())),
        _ => Err(EvaluationError::no_such_overload()),
    }
}

fn of_non_zero(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    match args {
        [value] if value.is_zero() => Ok(CelValue::Optional(None)),
        [value] => Ok(CelValue::some(value.clone())),
        _ => Err(EvaluationError::no_such_overload()),
    }
}

fn none(_: &mut FunctionContext<'_>, _: &[CelValue]) -> EvalResult {
    Ok(CelValue::Optional(None))
}

fn value(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    match args {
        [CelValue::Optional(Some(value))] => Ok(CelValue::clone(value)),
        [CelValue::Optional(None)] => Err(EvaluationError::failed("optional.none() dereference")),
        _ => Err(EvaluationError::no_such_overload()),
    }
}

fn has_value(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    match args {
        [CelValue::Optional(value)] => Ok(CelValue::Bool(value.is_some())),
        _ => Err(EvaluationError::no_such_overload()),
    }
}

fn elements(args: &[CelValue]) -> Result<&[CelValue], EvaluationError> {
    match args {
        [CelValue::List(elements)] => Ok(elements),
        _ => Err(EvaluationError::no_such_overload()),
    }
}

fn maybe(value: Option<&CelValue>) -> CelValue {
    value.map_or(CelValue::Optional(None), |value| {
        CelValue::some(value.clone())
    })
}

fn first(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    elements(args).map(|elements| maybe(elements.first()))
}

fn last(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    elements(args).map(|elements| maybe(elements.last()))
}

fn unwrap(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    let mut present = Vec::new();
    for element in elements(args)? {
        match element {
            CelValue::Optional(Some(value)) => present.push(CelValue::clone(value)),
            CelValue::Optional(None) => {}
            _ => return Err(EvaluationError::failed("the value is not optional")),
        }
    }
    Ok(CelValue::list(present))
}
