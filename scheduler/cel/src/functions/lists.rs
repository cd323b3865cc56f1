//! Lists.

use super::{Declaration, FunctionContext, arithmetic, check_value_size, time};
use crate::error::EvaluationError;
use crate::value::{CelValue, EvalResult, Steps, compare, equal};
use std::cmp::Ordering;

/// Declares a function for lists of every type that has an order.
macro_rules! for_comparable {
    ($name:literal, $before:literal, $after:literal, $result:tt, $implementation:ident) => {
        &[
            ($name, concat!($before, "int", $after, for_comparable!(@id $result "int")), concat!(".list(int) -> ", for_comparable!(@result $result "int")), $implementation),
            ($name, concat!($before, "uint", $after, for_comparable!(@id $result "uint")), concat!(".list(uint) -> ", for_comparable!(@result $result "uint")), $implementation),
            ($name, concat!($before, "double", $after, for_comparable!(@id $result "double")), concat!(".list(double) -> ", for_comparable!(@result $result "double")), $implementation),
            ($name, concat!($before, "bool", $after, for_comparable!(@id $result "bool")), concat!(".list(bool) -> ", for_comparable!(@result $result "bool")), $implementation),
            ($name, concat!($before, "duration", $after, for_comparable!(@id $result "duration")), concat!(".list(duration) -> ", for_comparable!(@result $result "duration")), $implementation),
            ($name, concat!($before, "timestamp", $after, for_comparable!(@id $result "timestamp")), concat!(".list(timestamp) -> ", for_comparable!(@result $result "timestamp")), $implementation),
            ($name, concat!($before, "string", $after, for_comparable!(@id $result "string")), concat!(".list(string) -> ", for_comparable!(@result $result "string")), $implementation),
            ($name, concat!($before, "bytes", $after, for_comparable!(@id $result "bytes")), concat!(".list(bytes) -> ", for_comparable!(@result $result "bytes")), $implementation),
        ]
    };
    (@result same $type:literal) => { $type };
    (@result list $type:literal) => { concat!("list(", $type, ")") };
    (@result $result:literal $type:literal) => { $result };
    (@id same $type:literal) => { concat!("_", $type) };
    (@id $result:tt $type:literal) => { "" };
}

pub(crate) const IS_SORTED: &[Declaration] =
    for_comparable!("isSorted", "list_", "_is_sorted_bool", "bool", is_sorted);
pub(crate) const MIN: &[Declaration] = for_comparable!("min", "list_", "_min", same, min);
pub(crate) const MAX: &[Declaration] = for_comparable!("max", "list_", "_max", same, max);
pub(crate) const SORT: &[Declaration] = for_comparable!("sort", "list_", "_sort", list, sort);

pub(crate) const DECLARATIONS: &[Declaration] = declarations! {
    "sum", "list_int_sum_int", ".list(int) -> int" => |_, args| sum(args, CelValue::Int(0));
    "sum", "list_uint_sum_uint", ".list(uint) -> uint" => |_, args| sum(args, CelValue::Uint(0));
    "sum", "list_double_sum_double", ".list(double) -> double" => |_, args| sum(args, CelValue::Double(0.0));
    "sum", "list_duration_sum_duration", ".list(duration) -> duration" => |_, args| sum(args, CelValue::Duration(0));
    "indexOf", "list_a_index_of_int", ".list(A), A -> int" => index_of;
    "lastIndexOf", "list_a_last_index_of_int", ".list(A), A -> int" => last_index_of;
    "slice", "list_slice", ".list(T), int, int -> list(T)" => slice;
    "flatten", "list_flatten", "!.list(list(T)) -> list(T)" => flatten;
    "flatten", "list_flatten_int", "!.list(dyn), int -> list(dyn)" => flatten;
    "lists.range", "lists_range", "int -> list(int)" => range;
    "reverse", "list_reverse", ".list(T) -> list(T)" => reverse;
    "distinct", "list_distinct", ".list(T) -> list(T)" => distinct;
    "@sortByAssociatedKeys", "list_int_sortByAssociatedKeys", ".list(T), list(int) -> list(T)" => sort_by;
    "@sortByAssociatedKeys", "list_uint_sortByAssociatedKeys", ".list(T), list(uint) -> list(T)" => sort_by;
    "@sortByAssociatedKeys", "list_double_sortByAssociatedKeys", ".list(T), list(double) -> list(T)" => sort_by;
    "@sortByAssociatedKeys", "list_bool_sortByAssociatedKeys", ".list(T), list(bool) -> list(T)" => sort_by;
    "@sortByAssociatedKeys", "list_duration_sortByAssociatedKeys", ".list(T), list(duration) -> list(T)" => sort_by;
    "@sortByAssociatedKeys", "list_timestamp_sortByAssociatedKeys", ".list(T), list(timestamp) -> list(T)" => sort_by;
    "@sortByAssociatedKeys", "list_string_sortByAssociatedKeys", ".list(T), list(string) -> list(T)" => sort_by;
    "@sortByAssociatedKeys", "list_bytes_sortByAssociatedKeys", ".list(T), list(bytes) -> list(T)" => sort_by;
};

fn elements(args: &[CelValue]) -> Result<&[CelValue], EvaluationError> {
    match args {
        [CelValue::List(elements), ..] => Ok(elements),
        _ => Err(EvaluationError::no_such_overload()),
    }
}

fn is_sorted(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    for pair in elements(args)?.windows(2) {
        // Elements without an order are not out of order.
        if compare(&pair[0], &pair[1]).is_ok_and(Ordering::is_gt) {
            return Ok(CelValue::Bool(false));
        }
    }
    Ok(CelValue::Bool(true))
}

fn sum(args: &[CelValue], zero: CelValue) -> EvalResult {
    elements(args)?
        .iter()
        .try_fold(zero, |sum, element| match &sum {
            CelValue::Duration(_) => time::add(&sum, element),
            _ => arithmetic::add(&sum, element),
        })
}

fn best(args: &[CelValue], name: &str, replaces: Ordering) -> EvalResult {
    let mut found: Option<&CelValue> = None;
    for element in elements(args)? {
        match found {
            Some(best) if compare(best, element).ok() != Some(replaces) => {}
            _ => found = Some(element),
        }
    }
    found
        .cloned()
        .ok_or_else(|| EvaluationError::failed(format!("{name} called on empty list")))
}

fn min(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    best(args, "min", Ordering::Greater)
}

fn max(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    best(args, "max", Ordering::Less)
}

/// Returns whether values are equal; values that cannot be compared are not.
fn is_equal(a: &CelValue, b: &CelValue, steps: &mut Steps) -> Result<bool, EvaluationError> {
    match equal(a, b, steps) {
        Err(error) if error.is_absorbed() => Ok(false),
        result => result,
    }
}

fn find<'v>(
    mut elements: impl Iterator<Item = (usize, &'v CelValue)>,
    value: &CelValue,
    steps: &mut Steps,
) -> EvalResult {
    let found = loop {
        match elements.next() {
            None => break None,
            Some((index, element)) if is_equal(element, value, steps)? => break Some(index),
            Some(_) => {}
        }
    };
    let index = found.map_or(-1, |index| i64::try_from(index).unwrap_or(i64::MAX));
    Ok(CelValue::Int(index))
}

fn index_of(cx: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    let [_, value] = args else {
        return Err(EvaluationError::no_such_overload());
    };
    find(elements(args)?.iter().enumerate(), value, cx.steps)
}

fn last_index_of(cx: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    let [_, value] = args else {
        return Err(EvaluationError::no_such_overload());
    };
    find(elements(args)?.iter().enumerate().rev(), value, cx.steps)
}

fn slice(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    let [
        CelValue::List(elements),
        CelValue::Int(start),
        CelValue::Int(end),
    ] = args
    else {
        return Err(EvaluationError::no_such_overload());
    };
    let problem = |problem: String| {
        EvaluationError::failed(format!("cannot slice({start}, {end}), {problem}"))
    };
    let (Ok(from), Ok(to)) = (usize::try_from(*start), usize::try_from(*end)) else {
        return Err(problem("negative indexes not supported".to_owned()));
    };
    if from > to {
        let why = "start index must be less than or equal to end index";
        return Err(problem(why.to_owned()));
    }
    let part = elements.get(from..to);
    let part = part.ok_or_else(|| problem(format!("list is length {}", elements.len())))?;
    Ok(CelValue::list(part.to_vec()))
}

fn flatten(cx: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    fn flatten(
        elements: &[CelValue],
        depth: i64,
        flat: &mut Vec<CelValue>,
        steps: &mut Steps,
    ) -> Result<(), EvaluationError> {
        for element in elements {
            steps.take(1)?;
            match element {
                CelValue::List(inner) if depth > 0 => flatten(inner, depth - 1, flat, steps)?,
                other => flat.push(other.clone()),
            }
        }
        check_value_size(flat.len())
    }
    let depth = match args {
        [_, CelValue::Int(depth)] => *depth,
        [_] => 1,
        _ => return Err(EvaluationError::no_such_overload()),
    };
    if depth < 0 {
        return Err(EvaluationError::failed("level must be non-negative"));
    }
    let mut flat = Vec::new();
    flatten(elements(args)?, depth, &mut flat, cx.steps)?;
    Ok(CelValue::list(flat))
}

fn range(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    let [CelValue::Int(end)] = args else {
        return Err(EvaluationError::no_such_overload());
    };
    check_value_size(usize::try_from(*end).unwrap_or(0))?;
    Ok(CelValue::list((0..*end).map(CelValue::Int).collect()))
}

fn reverse(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    Ok(CelValue::list(
        elements(args)?.iter().rev().cloned().collect(),
    ))
}

fn distinct(cx: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    let mut distinct: Vec<CelValue> = Vec::new();
    for element in elements(args)? {
        let mut known = false;
        for other in &distinct {
            if is_equal(element, other, cx.steps)? {
                known = true;
                break;
            }
        }
        if !known {
            distinct.push(element.clone());
        }
    }
    Ok(CelValue::list(distinct))
}

fn sort(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    let elements = elements(args)?;
    sorted(elements, elements)
}

fn sort_by(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    let [CelValue::List(elements), CelValue::List(keys)] = args else {
        return Err(EvaluationError::no_such_overload());
    };
    sorted(elements, keys)
}

/// The elements in the order of their keys. Elements with equal keys keep their order.
fn sorted(elements: &[CelValue], keys: &[CelValue]) -> EvalResult {
    if elements.len() != keys.len() {
        return Err(EvaluationError::failed(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, \
             but got {} and {} elements respectively",
            elements.len(),
            keys.len()
        )));
    }
    if let [first, rest @ ..] = keys {
        let comparable = compare(first, first).is_ok() || matches!(first, CelValue::Double(_));
        if !comparable {
            return Err(EvaluationError::failed("list elements must be comparable"));
        }
        if rest.iter().any(|key| key.type_name() != first.type_name()) {
            return Err(EvaluationError::failed(
                "list elements must have the same type",
            ));
        }
    }
    let mut order: Vec<usize> = (0..keys.len()).collect();
    order.sort_by(|a, b| compare(&keys[*a], &keys[*b]).unwrap_or(Ordering::Equal));
    let sorted = order.into_iter().map(|index| elements[index].clone());
    Ok(CelValue::list(sorted.collect()))
}
