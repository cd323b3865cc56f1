//! Regular expressions, in the syntax of RE2 as Go reads it. They run in time linear in the text.

mod syntax;
mod unicode;

use super::{Declaration, FunctionContext};
use crate::error::EvaluationError;
use crate::limits::{REGEX_NESTING_MAX, REGEX_SIZE_MAX};
use crate::value::{CelValue, EvalResult};
use regex::bytes::{Regex, RegexBuilder};
use std::sync::Arc;
pub use syntax::RegexError;

pub(crate) const DECLARATIONS: &[Declaration] = declarations! {
    "find", "string_find_string", ".string, string -> string" => find;
    "findAll", "string_find_all_string", ".string, string -> list(string)" => find_all;
    "findAll", "string_find_all_string_int", ".string, string, int -> list(string)" => find_all;
};

/// The steps for compiling a regular expression, in addition to the cost of its size.
const COMPILATION_STEPS: u64 = 10_000;

/// A compiled regular expression, in the syntax of RE2 as Go reads it.
#[derive(Debug, Clone)]
pub struct Pattern {
    regex: Arc<Regex>,
    /// About how many states it has.
    size: u64,
}

impl Pattern {
    /// Compiles a regular expression.
    ///
    /// # Errors
    /// The fault, as Go reports it.
    pub fn new(pattern: &str) -> Result<Self, RegexError> {
        let translated = syntax::translate(pattern)?;
        let regex = RegexBuilder::new(&translated.pattern)
            .nest_limit(REGEX_NESTING_MAX)
            .size_limit(REGEX_SIZE_MAX)
            .dfa_size_limit(REGEX_SIZE_MAX)
            .build()
            .map_err(|_| syntax::error("expression too large", pattern))?;
        Ok(Self {
            regex: Arc::new(regex),
            size: translated.size,
        })
    }

    /// Returns whether a part of a text matches.
    pub fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text.as_bytes())
    }

    /// The number of steps that a search through a text takes.
    fn steps(&self, text: &str) -> u64 {
        (text.len() as u64 + 1).saturating_mul(self.size / 64 + 1) / 16
    }
}

/// The text and the regular expression of a call.
fn search<'a>(
    cx: &mut FunctionContext<'_>,
    args: &'a [CelValue],
) -> Result<(&'a str, Pattern), EvaluationError> {
    let (Some(CelValue::String(text)), Some(CelValue::String(pattern))) =
        (args.first(), args.get(1))
    else {
        return Err(EvaluationError::no_such_overload());
    };
    let pattern = match cx.pattern {
        Some(known) => known.clone(),
        None => {
            cx.steps.take(COMPILATION_STEPS)?;
            let compiled = Pattern::new(pattern);
            let compiled = compiled.map_err(|error| EvaluationError::failed(error.to_string()))?;
            cx.steps.take(compiled.size)?;
            compiled
        }
    };
    cx.steps.take(pattern.steps(text))?;
    Ok((text, pattern))
}

pub(super) fn matches(cx: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    let (text, pattern) = search(cx, args)?;
    Ok(CelValue::Bool(pattern.is_match(text)))
}

fn part(bytes: &[u8]) -> CelValue {
    CelValue::text(&String::from_utf8_lossy(bytes))
}

fn find(cx: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    let (text, pattern) = search(cx, args)?;
    let found = pattern.regex.find(text.as_bytes());
    Ok(found.map_or_else(|| CelValue::text(""), |found| part(found.as_bytes())))
}

fn find_all(cx: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    let limit = match args {
        [_, _] => usize::MAX,
        [_, _, CelValue::Int(limit)] => usize::try_from(*limit).unwrap_or(usize::MAX),
        _ => return Err(EvaluationError::no_such_overload()),
    };
    let (text, pattern) = search(cx, args)?;
    let mut found = Vec::new();
    let mut last_end = None;
    for one in pattern.regex.find_iter(text.as_bytes()) {
        if found.len() == limit {
            break;
        }
        // Nothing is found right after a match.
        if one.is_empty() && (last_end == Some(one.end()) || !text.is_char_boundary(one.end())) {
            continue;
        }
        last_end = Some(one.end());
        cx.steps.take(1)?;
        found.push(part(one.as_bytes()));
    }
    Ok(CelValue::list(found))
}
