//! The faults of a configuration: every problem with its path and, if there is one, the remedy.

use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::fmt;

/// The maximum number of listed problems. Further problems are counted.
const ERRORS_MAX: usize = 100;
/// The maximum number of characters of a shown value.
const SHOWN_CHARS_MAX: usize = 80;

/// One problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The field, such as `profiles[1].plugins.score.enabled[0]`; empty for the document as a whole.
    pub path: String,
    /// The fault, in kube-scheduler's words where it has some.
    pub message: String,
    /// The correction.
    pub hint: Option<String>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

/// All problems of a configuration; at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors {
    /// The source of the configuration, such as the name of its file.
    pub source_name: String,
    /// The problems, in the order of the document where they have a position.
    pub errors: Vec<ConfigError>,
    /// The number of further problems.
    pub left_out: usize,
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.errors.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{}: {error}", self.source_name)?;
        }
        if self.left_out > 0 {
            write!(f, "\n{}: and {} more", self.source_name, self.left_out)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// Collects problems.
#[derive(Debug, Default)]
pub(super) struct Problems {
    errors: RefCell<Vec<ConfigError>>,
    left_out: Cell<usize>,
}

impl Problems {
    /// Something is wrong at `path`.
    pub(super) fn add(&self, path: impl Into<String>, message: impl Into<String>) {
        self.push(path.into(), message.into(), None::<String>);
    }

    /// The same, with a remedy.
    pub(super) fn add_with_hint(
        &self,
        path: impl Into<String>,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.push(path.into(), message.into(), Some(hint));
    }

    pub(super) fn push(&self, path: String, message: String, hint: Option<impl Into<String>>) {
        let mut errors = self.errors.borrow_mut();
        if errors.len() >= ERRORS_MAX {
            self.left_out.set(self.left_out.get() + 1);
            return;
        }
        errors.push(ConfigError {
            path,
            message,
            hint: hint.map(Into::into),
        });
    }

    /// The value at `path` cannot be used.
    pub(super) fn invalid(
        &self,
        path: impl Into<String>,
        value: impl Into<Value>,
        why: impl fmt::Display,
    ) {
        let value = show(&value.into());
        self.add(path, format!("Invalid value: {value}: {why}"));
    }

    /// There must be a value at `path`.
    pub(super) fn required(&self, path: impl Into<String>) {
        self.add(path, "Required value");
    }

    /// The value at `path` occurs elsewhere already.
    pub(super) fn duplicate(&self, path: impl Into<String>, value: &str) {
        let value = show(&value.into());
        self.add(path, format!("Duplicate value: {value}"));
    }

    /// Returns whether there is a problem at `path` or, with `below`, anywhere below it.
    pub(super) fn has(&self, path: &str, below: bool) -> bool {
        let errors = self.errors.borrow();
        errors
            .iter()
            .any(|e| e.path == path || (below && e.path.starts_with(path)))
    }

    /// Returns whether this very problem is known.
    pub(super) fn knows(&self, path: &str, message: &str) -> bool {
        let errors = self.errors.borrow();
        errors
            .iter()
            .any(|e| e.path == path && e.message == message)
    }

    /// `value`, unless something is wrong.
    pub(super) fn or<T>(self, source_name: &str, value: T) -> Result<T, ConfigErrors> {
        let errors = self.errors.into_inner();
        if errors.is_empty() {
            return Ok(value);
        }
        Err(ConfigErrors {
            source_name: source_name.to_owned(),
            errors,
            left_out: self.left_out.get(),
        })
    }
}

/// A value as a message shows it: its JSON, cut when it is long.
pub(super) fn show(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        None => text,
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
