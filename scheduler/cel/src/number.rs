//! Comparison of numbers of different types, conversion of numbers, and their texts.

use crate::error::EvaluationError;
use std::cmp::Ordering;

const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;
const TWO_TO_64: f64 = 18_446_744_073_709_551_616.0;

/// Compares as doubles within the range of integers.
pub(crate) fn double_and_int(a: f64, b: i64) -> Option<Ordering> {
    if a < -TWO_TO_63 {
        Some(Ordering::Less)
    } else if a > TWO_TO_63 {
        Some(Ordering::Greater)
    } else {
        a.partial_cmp(&(b as f64))
    }
}

/// Compares as doubles within the range of unsigned integers.
pub(crate) fn double_and_uint(a: f64, b: u64) -> Option<Ordering> {
    if a < 0.0 {
        Some(Ordering::Less)
    } else if a > TWO_TO_64 {
        Some(Ordering::Greater)
    } else {
        a.partial_cmp(&(b as f64))
    }
}

/// The integer that is the same number.
pub(crate) fn lossless_i64(value: f64) -> Option<i64> {
    let converted = to_i64(value).ok()?;
    (converted as f64 == value).then_some(converted)
}

/// The unsigned integer that is the same number.
pub(crate) fn lossless_u64(value: f64) -> Option<u64> {
    let converted = to_u64(value).ok()?;
    (converted as f64 == value).then_some(converted)
}

/// The number without its fraction.
pub(crate) fn to_i64(value: f64) -> Result<i64, EvaluationError> {
    if value.is_nan() || value <= -TWO_TO_63 || value >= TWO_TO_63 {
        return Err(EvaluationError::failed("integer overflow"));
    }
    Ok(value as i64)
}

/// The number without its fraction.
pub(crate) fn to_u64(value: f64) -> Result<u64, EvaluationError> {
    if !(0.0..TWO_TO_64).contains(&value) {
        return Err(EvaluationError::failed("unsigned integer overflow"));
    }
    Ok(value as u64)
}

/// The shortest text of a number that reads back as the same, with an exponent of ten below 1e-4 and from 1e6 on, as Go
/// writes it with `%g`.
pub fn shortest_text(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let text = format!("{value:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return plain_text(value);
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}

/// The shortest text of a number that reads back as the same, without an exponent.
pub(crate) fn plain_text(value: f64) -> String {
    format!("{value}")
}
