//! Semantic versions.

use super::{Declaration, FunctionContext};
use crate::error::EvaluationError;
use crate::value::{CelValue, EvalResult};
use semver::Version;
use std::cmp::Ordering;
use std::sync::Arc;

pub(crate) const DECLARATIONS: &[Declaration] = declarations! {
    "semver", "string_to_semver", "string -> kubernetes.Semver" => semver;
    "semver", "string_bool_to_semver", "string, bool -> kubernetes.Semver" => semver;
    "isSemver", "is_semver_string", "string -> bool" => is_semver;
    "isSemver", "is_semver_string_bool", "string, bool -> bool" => is_semver;
    "isGreaterThan", "semver_is_greater_than", ".kubernetes.Semver, kubernetes.Semver -> bool" => |_, args| order(args).map(|order| CelValue::Bool(order.is_gt()));
    "isLessThan", "semver_is_less_than", ".kubernetes.Semver, kubernetes.Semver -> bool" => |_, args| order(args).map(|order| CelValue::Bool(order.is_lt()));
    "compareTo", "semver_compare_to", ".kubernetes.Semver, kubernetes.Semver -> int" => |_, args| order(args).map(|order| CelValue::Int(order as i64));
    "major", "semver_major", ".kubernetes.Semver -> int" => |_, args| part(args, |version| version.major);
    "minor", "semver_minor", ".kubernetes.Semver -> int" => |_, args| part(args, |version| version.minor);
    "patch", "semver_patch", ".kubernetes.Semver -> int" => |_, args| part(args, |version| version.patch);
};

/// Reads a version.
///
/// # Errors
/// The fault of the text.
pub(crate) fn parse(text: &str) -> Result<Version, VersionError> {
    Ok(Version::parse(text)?)
}

/// A text is no version.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VersionError {
    #[error(transparent)]
    Malformed(#[from] semver::Error),
    #[error("short version cannot contain PreRelease/Build meta data")]
    ShortWithSuffix,
}

/// Reads a version that may start with `v`, lack minor and patch version, and have leading zeros.
fn parse_normalized(text: &str) -> Result<Version, VersionError> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text
        .splitn(3, '.')
        .map(|part| {
            if part.len() <= 1 {
                return part.to_owned();
            }
            let trimmed = part.trim_start_matches('0');
            if trimmed.starts_with(|first: char| first.is_ascii_digit()) {
                trimmed.to_owned()
            } else {
                format!("0{trimmed}")
            }
        })
        .collect();
    if parts.len() < 3 {
        if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
            return Err(VersionError::ShortWithSuffix);
        }
        parts.resize(3, "0".to_owned());
    }
    parse(&parts.join("."))
}

fn read(args: &[CelValue]) -> Result<Result<Version, VersionError>, EvaluationError> {
    match args {
        [CelValue::String(text)] | [CelValue::String(text), CelValue::Bool(false)] => {
            Ok(parse(text))
        }
        [CelValue::String(text), CelValue::Bool(true)] => Ok(parse_normalized(text)),
        _ => Err(EvaluationError::no_such_overload()),
    }
}

fn semver(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    let version = read(args)?.map_err(|error| EvaluationError::failed(error.to_string()))?;
    Ok(CelValue::Semver(Arc::new(version)))
}

fn is_semver(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    Ok(CelValue::Bool(read(args)?.is_ok()))
}

fn order(args: &[CelValue]) -> Result<Ordering, EvaluationError> {
    match args {
        [CelValue::Semver(a), CelValue::Semver(b)] => Ok(a.cmp_precedence(b)),
        _ => Err(EvaluationError::no_such_overload()),
    }
}

fn part(args: &[CelValue], part: fn(&Version) -> u64) -> EvalResult {
    match args {
        // Numbers beyond the range of integers wrap around, as upstream.
        [CelValue::Semver(version)] => Ok(CelValue::Int(part(version) as i64)),
        _ => Err(EvaluationError::no_such_overload()),
    }
}
