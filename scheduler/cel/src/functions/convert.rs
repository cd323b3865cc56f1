//! Conversions between types, and the types themselves.

use super::{Declaration, FunctionContext, time};
use crate::error::EvaluationError;
use crate::number;
use crate::value::{CelValue, EvalResult, parse_time};

pub(crate) const DECLARATIONS: &[Declaration] = declarations! {
    "type", "type", "A -> type(A)" => type_of;
    "dyn", "to_dyn", "A -> dyn" => identity;
    "bool", "bool_to_bool", "bool -> bool" => identity;
    "bool", "string_to_bool", "string -> bool" => to_bool;
    "bytes", "bytes_to_bytes", "bytes -> bytes" => identity;
    "bytes", "string_to_bytes", "string -> bytes" => to_bytes;
    "double", "double_to_double", "double -> double" => identity;
    "double", "int64_to_double", "int -> double" => to_double;
    "double", "string_to_double", "string -> double" => to_double;
    "double", "uint64_to_double", "uint -> double" => to_double;
    "duration", "duration_to_duration", "duration -> duration" => identity;
    "duration", "int64_to_duration", "int -> duration" => to_duration;
    "duration", "string_to_duration", "string -> duration" => to_duration;
    "int", "int64_to_int64", "int -> int" => identity;
    "int", "double_to_int64", "double -> int" => to_int;
    "int", "duration_to_int64", "duration -> int" => to_int;
    "int", "string_to_int64", "string -> int" => to_int;
    "int", "timestamp_to_int64", "timestamp -> int" => to_int;
    "int", "uint64_to_int64", "uint -> int" => to_int;
    "string", "string_to_string", "string -> string" => identity;
    "string", "bool_to_string", "bool -> string" => to_string;
    "string", "bytes_to_string", "bytes -> string" => to_string;
    "string", "double_to_string", "double -> string" => to_string;
    "string", "duration_to_string", "duration -> string" => to_string;
    "string", "int64_to_string", "int -> string" => to_string;
    "string", "timestamp_to_string", "timestamp -> string" => to_string;
    "string", "uint64_to_string", "uint -> string" => to_string;
    "timestamp", "timestamp_to_timestamp", "timestamp -> timestamp" => identity;
    "timestamp", "int64_to_timestamp", "int -> timestamp" => to_timestamp;
    "timestamp", "string_to_timestamp", "string -> timestamp" => to_timestamp;
    "uint", "uint64_to_uint64", "uint -> uint" => identity;
    "uint", "double_to_uint64", "double -> uint" => to_uint;
    "uint", "int64_to_uint64", "int -> uint" => to_uint;
    "uint", "string_to_uint64", "string -> uint" => to_uint;
};

/// Returns whether a function is a conversion: calls with a constant are evaluated when an expression is compiled.
pub(crate) fn is_conversion(function: &str) -> bool {
    matches!(
        function,
        "bool"
            | "bytes"
            | "double"
            | "duration"
            | "dyn"
            | "int"
            | "string"
            | "timestamp"
            | "type"
            | "uint"
    )
}

fn failed(from: &CelValue, to: &str) -> EvaluationError {
    EvaluationError::failed(format!(
        "type conversion error from '{}' to '{to}'",
        from.type_name()
    ))
}

fn one(args: &[CelValue]) -> Result<&CelValue, EvaluationError> {
    args.first().ok_or_else(EvaluationError::no_such_overload)
}

fn identity(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    one(args).cloned()
}

fn type_of(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    one(args).map(|value| CelValue::Type(value.type_name()))
}

fn to_bool(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    let value = one(args)?;
    if let CelValue::String(text) = value {
        match &**text {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => return Ok(CelValue::Bool(true)),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => return Ok(CelValue::Bool(false)),
            _ => {}
        }
    }
    Err(failed(value, "bool"))
}

fn to_bytes(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    match one(args)? {
        CelValue::String(text) => Ok(CelValue::Bytes(text.as_bytes().into())),
        other => Err(failed(other, "bytes")),
    }
}

fn to_double(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    match one(args)? {
        CelValue::Int(value) => Ok(CelValue::Double(*value as f64)),
        CelValue::Uint(value) => Ok(CelValue::Double(*value as f64)),
        value @ CelValue::String(text) => match text.parse::<f64>() {
            // A number that is too large is not infinite.
            Ok(parsed) if parsed.is_infinite() && !text.to_ascii_lowercase().contains("inf") => {
                Err(failed(value, "double"))
            }
            Ok(parsed) => Ok(CelValue::Double(parsed)),
            Err(_) => Err(failed(value, "double")),
        },
        other => Err(failed(other, "double")),
    }
}

fn to_duration(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    let value = one(args)?;
    match value {
        CelValue::String(text) => match text.parse::<berth_api::GoDuration>() {
            Ok(parsed) => Ok(CelValue::Duration(parsed.as_nanos())),
            Err(_) => Err(failed(value, "google.protobuf.Duration")),
        },
        _ => Err(failed(value, "google.protobuf.Duration")),
    }
}

fn to_int(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    match one(args)? {
        CelValue::Double(value) => number::to_i64(*value).map(CelValue::Int),
        CelValue::Duration(nanos) => Ok(CelValue::Int(*nanos)),
        CelValue::Timestamp(time) => Ok(CelValue::Int(time.seconds())),
        CelValue::Uint(value) => i64::try_from(*value)
            .map(CelValue::Int)
            .map_err(|_| EvaluationError::failed("integer overflow")),
        value @ CelValue::String(text) => text
            .parse::<i64>()
            .map(CelValue::Int)
            .map_err(|_| failed(value, "int")),
        other => Err(failed(other, "int")),
    }
}

fn to_uint(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    match one(args)? {
        CelValue::Double(value) => number::to_u64(*value).map(CelValue::Uint),
        CelValue::Int(value) => u64::try_from(*value)
            .map(CelValue::Uint)
            .map_err(|_| EvaluationError::failed("unsigned integer overflow")),
        value @ CelValue::String(text) => match text.parse::<u64>() {
            Ok(parsed) if !text.starts_with('+') => Ok(CelValue::Uint(parsed)),
            _ => Err(failed(value, "uint")),
        },
        other => Err(failed(other, "uint")),
    }
}

fn to_string(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    convert(one(args)?).map(|text| CelValue::text(&text))
}

/// The value as a text.
///
/// # Errors
/// The value has no text.
pub(crate) fn convert(value: &CelValue) -> Result<String, EvaluationError> {
    Ok(match value {
        CelValue::Null => "null".to_owned(),
        CelValue::Bool(value) => value.to_string(),
        CelValue::Int(value) => value.to_string(),
        CelValue::Uint(value) => value.to_string(),
        CelValue::Double(value) => number::shortest_text(*value),
        CelValue::String(text) => text.to_string(),
        CelValue::Bytes(bytes) => std::str::from_utf8(bytes)
            .map_err(|_| {
                EvaluationError::failed("invalid UTF-8 in bytes, cannot convert to string")
            })?
            .to_owned(),
        CelValue::Duration(nanos) => {
            format!("{}s", number::plain_text(time::seconds_of(*nanos)))
        }
        CelValue::Timestamp(time) => time.text()?,
        CelValue::Type(name) => (*name).to_owned(),
        other => return Err(failed(other, "string")),
    })
}

fn to_timestamp(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    match one(args)? {
        CelValue::Int(seconds) => time::from_seconds(*seconds),
        value @ CelValue::String(text) => match parse_time(text) {
            Some(time) => time.map(CelValue::Timestamp),
            None => Err(failed(value, "google.protobuf.Timestamp")),
        },
        other => Err(failed(other, "google.protobuf.Timestamp")),
    }
}
