//! Quantities of the Kubernetes API.

use super::{Declaration, FunctionContext};
use crate::error::EvaluationError;
use crate::value::{CelQuantity, CelValue, EvalResult};
use berth_api::Quantity;
use berth_api::quantity::{ParseQuantityError, QuantityFormat};
use std::cmp::Ordering;

pub(crate) const DECLARATIONS: &[Declaration] = declarations! {
    "quantity", "string_to_quantity", "string -> kubernetes.Quantity" => quantity;
    "isQuantity", "is_quantity_string", "string -> bool" => is_quantity;
    "sign", "quantity_sign", "kubernetes.Quantity -> int" => sign;
    "isGreaterThan", "quantity_is_greater_than", ".kubernetes.Quantity, kubernetes.Quantity -> bool" => |_, args| order(args).map(|order| CelValue::Bool(order.is_gt()));
    "isLessThan", "quantity_is_less_than", ".kubernetes.Quantity, kubernetes.Quantity -> bool" => |_, args| order(args).map(|order| CelValue::Bool(order.is_lt()));
    "compareTo", "quantity_compare_to", ".kubernetes.Quantity, kubernetes.Quantity -> int" => |_, args| order(args).map(|order| CelValue::Int(order as i64));
    "asApproximateFloat", "quantity_get_float", ".kubernetes.Quantity -> double" => as_float;
    "asInteger", "quantity_get_int", ".kubernetes.Quantity -> int" => as_integer;
    "isInteger", "quantity_is_integer", ".kubernetes.Quantity -> bool" => is_integer;
    "add", "quantity_add", ".kubernetes.Quantity, kubernetes.Quantity -> kubernetes.Quantity" => add;
    "add", "quantity_add_int", ".kubernetes.Quantity, int -> kubernetes.Quantity" => add;
    "sub", "quantity_sub", ".kubernetes.Quantity, kubernetes.Quantity -> kubernetes.Quantity" => sub;
    "sub", "quantity_sub_int", ".kubernetes.Quantity, int -> kubernetes.Quantity" => sub;
};

fn parse(args: &[CelValue]) -> Result<Result<CelQuantity, ParseQuantityError>, EvaluationError> {
    match args {
        [CelValue::String(text)] => Ok(CelQuantity::parse(text)),
        _ => Err(EvaluationError::no_such_overload()),
    }
}

fn quantity(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    parse(args)?
        .map(CelValue::Quantity)
        .map_err(|error| EvaluationError::failed(error.to_string()))
}

fn is_quantity(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    Ok(CelValue::Bool(parse(args)?.is_ok()))
}

fn one(args: &[CelValue]) -> Result<CelQuantity, EvaluationError> {
    match args {
        [CelValue::Quantity(amount)] => Ok(*amount),
        _ => Err(EvaluationError::no_such_overload()),
    }
}

fn two(args: &[CelValue]) -> Result<(CelQuantity, CelQuantity), EvaluationError> {
    match args {
        [CelValue::Quantity(a), CelValue::Quantity(b)] => Ok((*a, *b)),
        [CelValue::Quantity(a), CelValue::Int(b)] => {
            let b = Quantity::from_value(*b, QuantityFormat::DecimalExponent);
            Ok((*a, CelQuantity::stored(b)))
        }
        _ => Err(EvaluationError::no_such_overload()),
    }
}

fn sign(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    one(args).map(|amount| CelValue::Int(amount.quantity().sign().into()))
}

fn order(args: &[CelValue]) -> Result<Ordering, EvaluationError> {
    two(args).map(|(a, b)| a.quantity().cmp(&b.quantity()))
}

fn as_float(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    one(args).map(|amount| CelValue::Double(amount.as_f64()))
}

fn is_integer(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    one(args).map(|amount| CelValue::Bool(amount.integer().is_some()))
}

fn as_integer(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    one(args)?
        .integer()
        .map(CelValue::Int)
        .ok_or_else(|| EvaluationError::failed("cannot convert value to integer"))
}

fn add(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    two(args).map(|(a, b)| CelValue::Quantity(a.plus(b)))
}

fn sub(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    two(args).map(|(a, b)| CelValue::Quantity(a.minus(b)))
}
