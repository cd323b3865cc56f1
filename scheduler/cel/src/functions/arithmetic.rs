//! Arithmetic on numbers, with overflow as an error.

use crate::error::EvaluationError;
use crate::value::{CelValue, EvalResult};

fn int(value: Option<i64>) -> EvalResult {
    value
        .map(CelValue::Int)
        .ok_or_else(|| EvaluationError::failed("integer overflow"))
}

fn uint(value: Option<u64>) -> EvalResult {
    value
        .map(CelValue::Uint)
        .ok_or_else(|| EvaluationError::failed("unsigned integer overflow"))
}

pub(super) fn add(a: &CelValue, b: &CelValue) -> EvalResult {
    match (a, b) {
        (CelValue::Int(a), CelValue::Int(b)) => int(a.checked_add(*b)),
        (CelValue::Uint(a), CelValue::Uint(b)) => uint(a.checked_add(*b)),
        (CelValue::Double(a), CelValue::Double(b)) => Ok(CelValue::Double(a + b)),
        _ => Err(EvaluationError::no_such_overload()),
    }
}

pub(super) fn subtract(a: &CelValue, b: &CelValue) -> EvalResult {
    match (a, b) {
        (CelValue::Int(a), CelValue::Int(b)) => int(a.checked_sub(*b)),
        (CelValue::Uint(a), CelValue::Uint(b)) => uint(a.checked_sub(*b)),
        (CelValue::Double(a), CelValue::Double(b)) => Ok(CelValue::Double(a - b)),
        _ => Err(EvaluationError::no_such_overload()),
    }
}

pub(super) fn multiply(a: &CelValue, b: &CelValue) -> EvalResult {
    match (a, b) {
        (CelValue::Int(a), CelValue::Int(b)) => int(a.checked_mul(*b)),
        (CelValue::Uint(a), CelValue::Uint(b)) => uint(a.checked_mul(*b)),
        (CelValue::Double(a), CelValue::Double(b)) => Ok(CelValue::Double(a * b)),
        _ => Err(EvaluationError::no_such_overload()),
    }
}

pub(super) fn divide(a: &CelValue, b: &CelValue) -> EvalResult {
    match (a, b) {
        (CelValue::Int(_), CelValue::Int(0)) | (CelValue::Uint(_), CelValue::Uint(0)) => {
            Err(EvaluationError::failed("division by zero"))
        }
        (CelValue::Int(a), CelValue::Int(b)) => int(a.checked_div(*b)),
        (CelValue::Uint(a), CelValue::Uint(b)) => uint(a.checked_div(*b)),
        (CelValue::Double(a), CelValue::Double(b)) => Ok(CelValue::Double(a / b)),
        _ => Err(EvaluationError::no_such_overload()),
    }
}

pub(super) fn modulo(a: &CelValue, b: &CelValue) -> EvalResult {
    match (a, b) {
        (CelValue::Int(_), CelValue::Int(0)) | (CelValue::Uint(_), CelValue::Uint(0)) => {
            Err(EvaluationError::failed("modulus by zero"))
        }
        (CelValue::Int(a), CelValue::Int(b)) => int(a.checked_rem(*b)),
        (CelValue::Uint(a), CelValue::Uint(b)) => uint(a.checked_rem(*b)),
        _ => Err(EvaluationError::no_such_overload()),
    }
}

pub(super) fn negate(value: &CelValue) -> EvalResult {
    match value {
        CelValue::Int(value) => int(value.checked_neg()),
        CelValue::Double(value) => Ok(CelValue::Double(-value)),
        _ => Err(EvaluationError::no_such_overload()),
    }
}
