//! Conversions between types, and the types themselves.

use super::{Context, time};
use crate::declarations::Declaration;
use crate::error::EvaluationError;
use crate::number;
use crate::value::{Outcome, Value};

pub(super) const DECLARATIONS: &[Declaration] = &[
    ("type", "type", "A -> type(A)", type_of),
    ("dyn", "to_dyn", "A -> dyn", identity),
    ("bool", "bool_to_bool", "bool -> bool", identity),
    ("bool", "string_to_bool", "string -> bool", to_bool),
    ("bytes", "bytes_to_bytes", "bytes -> bytes", identity),
    ("bytes", "string_to_bytes", "string -> bytes", to_bytes),
    ("double", "double_to_double", "double -> double", identity),
    ("double", "int64_to_double", "int -> double", to_double),
    ("double", "string_to_double", "string -> double", to_double),
    ("double", "uint64_to_double", "uint -> double", to_double),
    (
        "duration",
        "duration_to_duration",
        "duration -> duration",
        identity,
    ),
    (
        "duration",
        "int64_to_duration",
        "int -> duration",
        to_duration,
    ),
    (
        "duration",
        "string_to_duration",
        "string -> duration",
        to_duration,
    ),
    ("int", "int64_to_int64", "int -> int", identity),
    ("int", "double_to_int64", "double -> int", to_int),
    ("int", "duration_to_int64", "duration -> int", to_int),
    ("int", "string_to_int64", "string -> int", to_int),
    ("int", "timestamp_to_int64", "timestamp -> int", to_int),
    ("int", "uint64_to_int64", "uint -> int", to_int),
    ("string", "string_to_string", "string -> string", identity),
    ("string", "bool_to_string", "bool -> string", to_string),
    ("string", "bytes_to_string", "bytes -> string", to_string),
    ("string", "double_to_string", "double -> string", to_string),
    (
        "string",
        "duration_to_string",
        "duration -> string",
        to_string,
    ),
    ("string", "int64_to_string", "int -> string", to_string),
    (
        "string",
        "timestamp_to_string",
        "timestamp -> string",
        to_string,
    ),
    ("string", "uint64_to_string", "uint -> string", to_string),
    (
        "timestamp",
        "timestamp_to_timestamp",
        "timestamp -> timestamp",
        identity,
    ),
    (
        "timestamp",
        "int64_to_timestamp",
        "int -> timestamp",
        to_timestamp,
    ),
    (
        "timestamp",
        "string_to_timestamp",
        "string -> timestamp",
        to_timestamp,
    ),
    ("uint", "uint64_to_uint64", "uint -> uint", identity),
    ("uint", "double_to_uint64", "double -> uint", to_uint),
    ("uint", "int64_to_uint64", "int -> uint", to_uint),
    ("uint", "string_to_uint64", "string -> uint", to_uint),
];

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

fn failed(from: &Value, to: &str) -> EvaluationError {
    EvaluationError::failed(format!(
        "type conversion error from '{}' to '{to}'",
        from.type_name()
    ))
}

fn one(args: &[Value]) -> Result<&Value, EvaluationError> {
    args.first().ok_or_else(EvaluationError::no_such_overload)
}

fn identity(_: &mut Context<'_>, args: &[Value]) -> Outcome {
    one(args).cloned()
}

fn type_of(_: &mut Context<'_>, args: &[Value]) -> Outcome {
    one(args).map(|value| Value::Type(value.type_name()))
}

fn to_bool(_: &mut Context<'_>, args: &[Value]) -> Outcome {
    let value = one(args)?;
    if let Value::String(text) = value {
        match &**text {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => return Ok(Value::Bool(true)),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => return Ok(Value::Bool(false)),
            _ => {}
        }
    }
    Err(failed(value, "bool"))
}

fn to_bytes(_: &mut Context<'_>, args: &[Value]) -> Outcome {
    match one(args)? {
        Value::String(text) => Ok(Value::Bytes(text.as_bytes().into())),
        other => Err(failed(other, "bytes")),
    }
}

fn to_double(_: &mut Context<'_>, args: &[Value]) -> Outcome {
    match one(args)? {
        Value::Int(value) => Ok(Value::Double(*value as f64)),
        Value::Uint(value) => Ok(Value::Double(*value as f64)),
        value @ Value::String(text) => match text.parse::<f64>() {
            // A number that is too large is not infinite.
            Ok(parsed) if parsed.is_infinite() && !text.to_ascii_lowercase().contains("inf") => {
                Err(failed(value, "double"))
            }
            Ok(parsed) => Ok(Value::Double(parsed)),
            Err(_) => Err(failed(value, "double")),
        },
        other => Err(failed(other, "double")),
    }
}

fn to_duration(_: &mut Context<'_>, args: &[Value]) -> Outcome {
    let value = one(args)?;
    match value {
        Value::String(text) => match text.parse::<berth_api::GoDuration>() {
            Ok(parsed) => Ok(Value::Duration(parsed.as_nanos())),
            Err(_) => Err(failed(value, "google.protobuf.Duration")),
        },
        _ => Err(failed(value, "google.protobuf.Duration")),
    }
}

fn to_int(_: &mut Context<'_>, args: &[Value]) -> Outcome {
    match one(args)? {
        Value::Double(value) => number::to_i64(*value).map(Value::Int),
        Value::Duration(nanos) => Ok(Value::Int(*nanos)),
        Value::Timestamp(time) => Ok(Value::Int(time.seconds())),
        Value::Uint(value) => i64::try_from(*value)
            .map(Value::Int)
            .map_err(|_| EvaluationError::failed("integer overflow")),
        value @ Value::String(text) => text
            .parse::<i64>()
            .map(Value::Int)
            .map_err(|_| failed(value, "int")),
        other => Err(failed(other, "int")),
    }
}

fn to_uint(_: &mut Context<'_>, args: &[Value]) -> Outcome {
    match one(args)? {
        Value::Double(value) => number::to_u64(*value).map(Value::Uint),
        Value::Int(value) => u64::try_from(*value)
            .map(Value::Uint)
            .map_err(|_| EvaluationError::failed("unsigned integer overflow")),
        value @ Value::String(text) => match text.parse::<u64>() {
            Ok(parsed) if !text.starts_with('+') => Ok(Value::Uint(parsed)),
            _ => Err(failed(value, "uint")),
        },
        other => Err(failed(other, "uint")),
    }
}

fn to_string(_: &mut Context<'_>, args: &[Value]) -> Outcome {
    convert(one(args)?).map(|text| Value::text(&text))
}

/// The value as a text.
///
/// # Errors
/// The value has no text.
pub(crate) fn convert(value: &Value) -> Result<String, EvaluationError> {
    Ok(match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) => number::shortest_text(*value),
        Value::String(text) => text.to_string(),
        Value::Bytes(bytes) => std::str::from_utf8(bytes)
            .map_err(|_| {
                EvaluationError::failed("invalid UTF-8 in bytes, cannot convert to string")
            })?
            .to_owned(),
        Value::Duration(nanos) => {
            format!("{}s", number::plain_text(time::seconds_of(*nanos)))
        }
        Value::Timestamp(time) => time.text()?,
        Value::Type(name) => (*name).to_owned(),
        other => return Err(failed(other, "string")),
    })
}

fn to_timestamp(_: &mut Context<'_>, args: &[Value]) -> Outcome {
    match one(args)? {
        Value::Int(seconds) => time::from_seconds(*seconds),
        value @ Value::String(text) => match time::parse(text) {
            Some(time) => time,
            None => Err(failed(value, "google.protobuf.Timestamp")),
        },
        other => Err(failed(other, "google.protobuf.Timestamp")),
    }
}
