//! Operators and functions of the CEL standard library, except conversions and time.

use super::{Declaration, FunctionContext, arithmetic, check_value_size, evaluated, regex};
use crate::error::EvaluationError;
use crate::value::{CelValue, EvalResult, Map, compare, contains};
use std::cmp::Ordering;
use std::sync::Arc;

/// Declares a comparison: of values of one type, and of numbers of different types.
macro_rules! comparison {
    ($operator:literal, $name:literal, $implementation:ident) => {
        declarations! {
            $operator, concat!($name, "_bool"), "bool, bool -> bool" => $implementation;
            $operator, concat!($name, "_int64"), "int, int -> bool" => $implementation;
            $operator, concat!($name, "_int64_double"), "int, double -> bool" => $implementation;
            $operator, concat!($name, "_int64_uint64"), "int, uint -> bool" => $implementation;
            $operator, concat!($name, "_uint64"), "uint, uint -> bool" => $implementation;
            $operator, concat!($name, "_uint64_double"), "uint, double -> bool" => $implementation;
            $operator, concat!($name, "_uint64_int64"), "uint, int -> bool" => $implementation;
            $operator, concat!($name, "_double"), "double, double -> bool" => $implementation;
            $operator, concat!($name, "_double_int64"), "double, int -> bool" => $implementation;
            $operator, concat!($name, "_double_uint64"), "double, uint -> bool" => $implementation;
            $operator, concat!($name, "_string"), "string, string -> bool" => $implementation;
            $operator, concat!($name, "_bytes"), "bytes, bytes -> bool" => $implementation;
            $operator, concat!($name, "_timestamp"), "timestamp, timestamp -> bool" => $implementation;
            $operator, concat!($name, "_duration"), "duration, duration -> bool" => $implementation;
        }
    };
}

pub(crate) const LESS: &[Declaration] = comparison!("_<_", "less", less);
pub(crate) const LESS_EQUALS: &[Declaration] = comparison!("_<=_", "less_equals", less_equals);
pub(crate) const GREATER: &[Declaration] = comparison!("_>_", "greater", greater);
pub(crate) const GREATER_EQUALS: &[Declaration] =
    comparison!("_>=_", "greater_equals", greater_equals);

pub(crate) const DECLARATIONS: &[Declaration] = declarations! {
    "_?_:_", "conditional", "bool, A, A -> A" => evaluated;
    "_&&_", "logical_and", "bool, bool -> bool" => evaluated;
    "_||_", "logical_or", "bool, bool -> bool" => evaluated;
    "_==_", "equals", "A, A -> bool" => evaluated;
    "_!=_", "not_equals", "A, A -> bool" => evaluated;
    "_[_]", "index_list", "list(A), int -> A" => evaluated;
    "_[_]", "index_map", "map(A, B), A -> B" => evaluated;
    "!_", "logical_not", "bool -> bool" => not;
    "@not_strictly_false", "not_strictly_false", "bool -> bool" => evaluated;
    "_+_", "add_bytes", "bytes, bytes -> bytes" => add;
    "_+_", "add_double", "double, double -> double" => add;
    "_+_", "add_duration_duration", "duration, duration -> duration" => add;
    "_+_", "add_duration_timestamp", "duration, timestamp -> timestamp" => add;
    "_+_", "add_timestamp_duration", "timestamp, duration -> timestamp" => add;
    "_+_", "add_int64", "int, int -> int" => add;
    "_+_", "add_list", "list(A), list(A) -> list(A)" => add;
    "_+_", "add_string", "string, string -> string" => add;
    "_+_", "add_uint64", "uint, uint -> uint" => add;
    "_/_", "divide_double", "double, double -> double" => divide;
    "_/_", "divide_int64", "int, int -> int" => divide;
    "_/_", "divide_uint64", "uint, uint -> uint" => divide;
    "_%_", "modulo_int64", "int, int -> int" => modulo;
    "_%_", "modulo_uint64", "uint, uint -> uint" => modulo;
    "_*_", "multiply_double", "double, double -> double" => multiply;
    "_*_", "multiply_int64", "int, int -> int" => multiply;
    "_*_", "multiply_uint64", "uint, uint -> uint" => multiply;
    "-_", "negate_double", "double -> double" => negate;
    "-_", "negate_int64", "int -> int" => negate;
    "_-_", "subtract_double", "double, double -> double" => subtract;
    "_-_", "subtract_duration_duration", "duration, duration -> duration" => subtract;
    "_-_", "subtract_int64", "int, int -> int" => subtract;
    "_-_", "subtract_timestamp_duration", "timestamp, duration -> timestamp" => subtract;
    "_-_", "subtract_timestamp_timestamp", "timestamp, timestamp -> duration" => subtract;
    "_-_", "subtract_uint64", "uint, uint -> uint" => subtract;
    "@in", "in_list", "A, list(A) -> bool" => is_in;
    "@in", "in_map", "A, map(A, B) -> bool" => is_in;
    "size", "size_bytes", "bytes -> int" => size;
    "size", "bytes_size", ".bytes -> int" => size;
    "size", "size_list", "list(A) -> int" => size;
    "size", "list_size", ".list(A) -> int" => size;
    "size", "size_map", "map(A, B) -> int" => size;
    "size", "map_size", ".map(A, B) -> int" => size;
    "size", "size_string", "string -> int" => size;
    "size", "string_size", ".string -> int" => size;
    "contains", "contains_string", ".string, string -> bool" => text_contains;
    "endsWith", "ends_with_string", ".string, string -> bool" => ends_with;
    "startsWith", "starts_with_string", ".string, string -> bool" => starts_with;
    "matches", "matches", "string, string -> bool" => regex::matches;
    "matches", "matches_string", ".string, string -> bool" => regex::matches;
    "cel.@mapInsert", "@mapInsert_map_key_value", "map(K, V), K, V -> map(K, V)" => insert;
    "cel.@mapInsert", "@mapInsert_map_map", "map(K, V), map(K, V) -> map(K, V)" => insert_all;
};

fn not(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    match args {
        [CelValue::Bool(value)] => Ok(CelValue::Bool(!value)),
        _ => Err(EvaluationError::no_such_overload()),
    }
}

fn two(args: &[CelValue]) -> Result<(&CelValue, &CelValue), EvaluationError> {
    match args {
        [a, b] => Ok((a, b)),
        _ => Err(EvaluationError::no_such_overload()),
    }
}

fn add(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    match two(args)? {
        (CelValue::String(a), CelValue::String(b)) => {
            check_value_size(a.len() + b.len())?;
            Ok(CelValue::text(&format!("{a}{b}")))
        }
        (CelValue::Bytes(a), CelValue::Bytes(b)) => {
            check_value_size(a.len() + b.len())?;
            Ok(CelValue::Bytes(a.iter().chain(b.iter()).copied().collect()))
        }
        (CelValue::List(a), CelValue::List(b)) => {
            check_value_size(a.len() + b.len())?;
            Ok(CelValue::list(a.iter().chain(b.iter()).cloned().collect()))
        }
        (a @ (CelValue::Duration(_) | CelValue::Timestamp(_)), b) => super::time::add(a, b),
        (a, b) => arithmetic::add(a, b),
    }
}

fn subtract(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    match two(args)? {
        (a @ (CelValue::Duration(_) | CelValue::Timestamp(_)), b) => super::time::subtract(a, b),
        (a, b) => arithmetic::subtract(a, b),
    }
}

fn multiply(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    let (a, b) = two(args)?;
    arithmetic::multiply(a, b)
}

fn divide(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    let (a, b) = two(args)?;
    arithmetic::divide(a, b)
}

fn modulo(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    let (a, b) = two(args)?;
    arithmetic::modulo(a, b)
}

fn negate(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    match args {
        [CelValue::Duration(nanos)] => {
            let negated = nanos.checked_neg().map(CelValue::Duration);
            negated.ok_or_else(|| EvaluationError::failed("integer overflow"))
        }
        [value] => arithmetic::negate(value),
        _ => Err(EvaluationError::no_such_overload()),
    }
}

fn ordered(args: &[CelValue], holds: fn(Ordering) -> bool) -> EvalResult {
    let (a, b) = two(args)?;
    compare(a, b).map(|order| CelValue::Bool(holds(order)))
}

fn less(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    ordered(args, Ordering::is_lt)
}

fn less_equals(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    ordered(args, Ordering::is_le)
}

fn greater(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    ordered(args, Ordering::is_gt)
}

fn greater_equals(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    ordered(args, Ordering::is_ge)
}

fn is_in(cx: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    match two(args)? {
        (value, CelValue::List(elements)) => {
            contains(elements, value, cx.steps).map(CelValue::Bool)
        }
        (key, CelValue::Map(map)) => Ok(CelValue::Bool(map.contains(key))),
        _ => Err(EvaluationError::no_such_overload()),
    }
}

fn size(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    match args {
        [
            value @ (CelValue::String(_)
            | CelValue::Bytes(_)
            | CelValue::List(_)
            | CelValue::Map(_)),
        ] => Ok(CelValue::Int(
            i64::try_from(value.size()).unwrap_or(i64::MAX),
        )),
        // Addresses have a size too, which no type allows to ask for.
        _ => Err(EvaluationError::no_such_overload()),
    }
}

fn texts(args: &[CelValue]) -> Result<(&str, &str), EvaluationError> {
    match args {
        [CelValue::String(a), CelValue::String(b)] => Ok((a, b)),
        _ => Err(EvaluationError::no_such_overload()),
    }
}

fn text_contains(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    let (text, part) = texts(args)?;
    Ok(CelValue::Bool(text.contains(part)))
}

fn starts_with(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    let (text, part) = texts(args)?;
    Ok(CelValue::Bool(text.starts_with(part)))
}

fn ends_with(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    let (text, part) = texts(args)?;
    Ok(CelValue::Bool(text.ends_with(part)))
}

/// Adds an entry to a map whose key must be new.
pub(crate) fn insert_entry(
    map: &mut Map,
    key: &CelValue,
    value: CelValue,
) -> Result<(), EvaluationError> {
    if map.contains(key) {
        return Err(EvaluationError::failed(
            "insert failed: the key already exists",
        ));
    }
    let key = crate::value::MapKey::new(key)
        .ok_or_else(|| EvaluationError::failed("unsupported key type"))?;
    map.insert(key, value);
    check_value_size(map.len())
}

fn insert(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    let [CelValue::Map(map), key, value] = args else {
        return Err(EvaluationError::no_such_overload());
    };
    let mut map = Map::clone(map);
    insert_entry(&mut map, key, value.clone())?;
    Ok(CelValue::Map(Arc::new(map)))
}

fn insert_all(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    let [CelValue::Map(map), CelValue::Map(more)] = args else {
        return Err(EvaluationError::no_such_overload());
    };
    let mut map = Map::clone(map);
    for (key, value) in more.iter() {
        insert_entry(&mut map, &key.value(), value.clone())?;
    }
    Ok(CelValue::Map(Arc::new(map)))
}
