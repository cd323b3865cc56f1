//! The functions that expressions can call, a module for each library.

mod authorizer;
mod convert;
mod format;
mod lists;
mod mutation;
pub(crate) mod named_format;
pub(crate) mod network;
mod optional;
pub(crate) mod quantity;
pub(crate) mod regex;
mod semver;
mod sets;
mod standard;
mod strings;
pub(crate) mod time;
pub(crate) mod url;

pub(crate) use convert::{convert, is_conversion};
pub(crate) use format::{FormatCheck, check_format};
pub(crate) use semver::{VersionError, parse as parse_semver};
pub(crate) use standard::insert_entry;

use crate::declarations::Declaration;
use crate::error::EvaluationError;
use crate::limits::VALUE_SIZE_MAX;
use crate::value::{CelValue, EvalResult, Steps};
use regex::Pattern;

/// The state that an implementation may use beside its arguments.
pub(crate) struct FunctionContext<'c> {
    /// Pays for what the costs of CEL do not cover.
    pub(crate) steps: &'c mut Steps,
    /// The regular expression, if the call has a constant one.
    pub(crate) pattern: Option<&'c Pattern>,
}

/// The implementation of an overload. A target is the first argument.
pub(crate) type Implementation = fn(&mut FunctionContext<'_>, &[CelValue]) -> EvalResult;

/// All overloads.
pub(crate) fn declarations() -> impl Iterator<Item = Declaration> {
    [
        standard::DECLARATIONS,
        standard::LESS,
        standard::LESS_EQUALS,
        standard::GREATER,
        standard::GREATER_EQUALS,
        convert::DECLARATIONS,
        time::DECLARATIONS,
        time::YEAR,
        time::MONTH,
        time::DAY_OF_YEAR,
        time::DAY_OF_MONTH,
        time::DATE,
        time::DAY_OF_WEEK,
        time::HOURS,
        time::MINUTES,
        time::SECONDS,
        time::MILLISECONDS,
        optional::DECLARATIONS,
        strings::DECLARATIONS,
        mutation::DECLARATIONS,
        format::DECLARATIONS,
        lists::DECLARATIONS,
        lists::IS_SORTED,
        lists::MIN,
        lists::MAX,
        lists::SORT,
        sets::DECLARATIONS,
        INCLUDES,
        authorizer::DECLARATIONS,
        regex::DECLARATIONS,
        url::DECLARATIONS,
        quantity::DECLARATIONS,
        semver::DECLARATIONS,
        network::DECLARATIONS,
        named_format::DECLARATIONS,
    ]
    .into_iter()
    .flat_map(|declarations| declarations.iter().copied())
}

/// Values of list attributes.
const INCLUDES: &[Declaration] = &[(
    "includes",
    "dra_includes_dyn_dyn",
    ".dyn, dyn -> bool",
    includes,
)];

/// The most values that `includes` looks at.
const INCLUDED_VALUES_MAX: usize = 48;

/// Returns whether a value is equal to another one, or a list has an equal element.
fn includes(cx: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    let [target, value] = args else {
        return Err(EvaluationError::no_such_overload());
    };
    let elements = match target {
        CelValue::List(elements) => &elements[..],
        other => std::slice::from_ref(other),
    };
    for (index, element) in elements.iter().enumerate() {
        if index >= INCLUDED_VALUES_MAX {
            return Err(EvaluationError::failed(format!(
                "'includes' function cannot be applied to lists longer than {INCLUDED_VALUES_MAX} values"
            )));
        }
        match crate::value::equal(element, value, cx.steps) {
            Ok(true) => return Ok(CelValue::Bool(true)),
            Err(error) if !error.is_absorbed() => return Err(error),
            _ => {}
        }
    }
    Ok(CelValue::Bool(false))
}

/// The implementation of what the evaluator does itself.
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

/// Returns whether a text is a duration.
pub(crate) fn valid_duration(text: &str) -> bool {
    text.parse::<berth_api::GoDuration>().is_ok()
}

/// Returns whether a text is a time.
pub(crate) fn valid_timestamp(text: &str) -> bool {
    matches!(time::parse(text), Some(Ok(_)))
}

/// Returns whether a number of seconds since 1970 is a time.
pub(crate) fn valid_timestamp_of(seconds: i64) -> bool {
    time::from_seconds(seconds).is_ok()
}
