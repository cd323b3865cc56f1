//! The errors of expressions and their evaluation.

use crate::ast::TextPosition;
use crate::limits::ERRORS_MAX;
use std::fmt;
use std::sync::Arc;

/// An error in an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// The position; none if it concerns the expression as a whole.
    pub position: Option<TextPosition>,
    /// The message, as the CEL implementation of Kubernetes states it.
    pub message: String,
}

/// The reason why an expression cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// The text is longer than [`crate::EXPRESSION_LENGTH_MAX`].
    #[error("too long: the expression has {0} bytes, at most {max} are allowed", max = crate::EXPRESSION_LENGTH_MAX)]
    TooLong(usize),
    /// The syntax or a type is wrong.
    #[error("compilation failed: {0}")]
    Invalid(Issues),
    /// The value is not a truth value.
    #[error("must evaluate to bool or the unknown type, not {0}")]
    NotBool(String),
    /// The value has another type than it must have: first the latter.
    #[error("must evaluate to {0}, not {1}")]
    OtherType(String, String),
    /// A constant part of the expression cannot be evaluated.
    #[error("program instantiation failed: {0}")]
    Constant(String),
}

/// All errors in an expression, in the order of the text. Displays each with its line of the expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issues {
    issues: Vec<Issue>,
    /// The number of further errors.
    more: usize,
    source: Arc<str>,
}

impl Issues {
    pub(crate) fn new(source: &str, mut issues: Vec<Issue>) -> Self {
        let more = issues.len().saturating_sub(ERRORS_MAX);
        issues.truncate(ERRORS_MAX);
        issues.sort_by_key(|issue| issue.position);
        Self {
            issues,
            more,
            source: Arc::from(source),
        }
    }

    /// The issues.
    pub fn iter(&self) -> impl Iterator<Item = &Issue> {
        self.issues.iter()
    }
}

impl fmt::Display for Issues {
    /// The format of the API server: the message, the line, and a mark under the character. Wide marks are printed
    /// under characters that are not ASCII.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, issue) in self.issues.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            let Some(position) = issue.position else {
                write!(f, "ERROR: <input>:-1:0: {}", issue.message)?;
                continue;
            };
            let (line, column) = (position.line, position.column);
            write!(f, "ERROR: <input>:{line}:{column}: {}", issue.message)?;
            if self.source.is_empty() {
                continue;
            }
            // The position is outside of the text, so there is nothing to mark.
            let Some(text) = self.source.split('\n').nth(line.saturating_sub(1) as usize) else {
                continue;
            };
            let text = text.replace('\t', " ");
            write!(f, "\n | {text}\n | ")?;
            let mut characters = text.chars();
            // Wide characters get a wide mark, so that the marks are aligned.
            for character in characters.by_ref().take(column.saturating_sub(1) as usize) {
                f.write_str(if character.is_ascii() { "." } else { "．" })?;
            }
            let marked = characters.next().unwrap_or(' ');
            f.write_str(if marked.is_ascii() { "^" } else { "＾" })?;
        }
        if self.more > 0 {
            write!(f, "\n{} more errors were truncated", self.more)?;
        }
        Ok(())
    }
}

/// The reason why an expression has no value for a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvaluationError {
    /// A part of the expression has no value: a key that does not exist, an operator without a meaning for the values.
    #[error("{0}")]
    Failed(String),
    /// The evaluation was stopped because its cost exceeds the limit.
    #[error("operation cancelled: actual cost limit exceeded")]
    TooExpensive,
    /// The value is not a truth value.
    #[error("CEL result of type {0} could not be converted to bool")]
    NotBool(String),
    /// The value has no attribute type.
    #[error("CEL result of type {0} could not be converted to a device attribute")]
    NotAttribute(String),
    /// An attribute of the device cannot be read.
    #[error("attribute {0}: {1}")]
    Attribute(String, String),
}

impl EvaluationError {
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }

    pub(crate) fn no_such_overload() -> Self {
        Self::failed("no such overload")
    }

    /// Returns whether `&&` and `||` can ignore the error if their other operand decides.
    pub(crate) fn is_absorbed(&self) -> bool {
        matches!(self, Self::Failed(_))
    }
}
