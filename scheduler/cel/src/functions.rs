//! The functions that expressions can call, a module for each library.

/// A table of overloads: function, overload, signature => implementation.
macro_rules! declarations {
    ($($function:expr, $overload:expr, $signature:expr => $implementation:expr;)*) => {
        &[$(($function, $overload, $signature, $implementation)),*]
    };
}

pub(crate) mod arithmetic;
pub(crate) mod authorizer;
pub(crate) mod convert;
pub(crate) mod format;
pub(crate) mod includes;
pub(crate) mod lists;
pub(crate) mod mutation;
pub(crate) mod named_format;
pub(crate) mod network;
pub(crate) mod optional;
pub(crate) mod quantity;
pub(crate) mod regex;
pub(crate) mod semver;
pub(crate) mod sets;
pub(crate) mod standard;
pub(crate) mod strings;
pub(crate) mod time;
pub(crate) mod url;

pub(crate) use convert::{convert, is_conversion};
pub(crate) use format::{FormatCheck, check_format};
pub(crate) use semver::{VersionError, parse as parse_semver};
pub(crate) use standard::insert_entry;
pub(crate) use time::{valid_duration, valid_timestamp, valid_timestamp_of};

use crate::error::EvaluationError;
use crate::limits::VALUE_SIZE_MAX;
use crate::value::{CelValue, EvalResult, Steps};
use regex::Pattern;

/// The state that an implementation may use in addition to its arguments.
pub(crate) struct FunctionContext<'c> {
    /// The budget for work that the costs of CEL do not cover.
    pub(crate) steps: &'c mut Steps,
    /// The regular expression, if the call has a constant one.
    pub(crate) pattern: Option<&'c Pattern>,
}

/// The implementation of an overload. A target is the first argument.
pub(crate) type Implementation = fn(&mut FunctionContext<'_>, &[CelValue]) -> EvalResult;

/// The declaration of a function in a module: name, overload, signature, implementation.
pub(crate) type Declaration = (&'static str, &'static str, &'static str, Implementation);

/// The implementation of functions that the evaluator handles itself.
fn evaluated(_: &mut FunctionContext<'_>, _: &[CelValue]) -> EvalResult {
    Err(EvaluationError::no_such_overload())
}

/// Refuses values that are too large.
fn check_value_size(size: usize) -> Result<(), EvaluationError> {
    if size > VALUE_SIZE_MAX {
        return Err(EvaluationError::TooExpensive);
    }
    Ok(())
}
