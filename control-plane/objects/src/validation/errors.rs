//! Collecting field errors: paths, printed values, and one method per kind of error.
//!
//! Values are printed as in Go, because clients show and compare these texts: strings quoted, numbers and booleans
//! plain, all others as JSON.

use crate::field::{ErrorType, FieldError};
use serde_json::Value;
use std::fmt::Write as _;

/// The maximum length of a path; deeper faults are reported at its last step.
const STEPS_MAX: usize = 20;

/// One step of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FieldStep<'a> {
    Name(&'a str),
    Index(usize),
    Key(&'a str),
}

/// The path of a field, such as `spec.containers[0].image`. It becomes text only when an error prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ErrorPath<'a> {
    steps: [FieldStep<'a>; STEPS_MAX],
    len: usize,
}

impl Default for ErrorPath<'_> {
    fn default() -> Self {
        Self {
            steps: [FieldStep::Index(0); STEPS_MAX],
            len: 0,
        }
    }
}

impl<'a> ErrorPath<'a> {
    /// A path of one or more dotted names.
    pub(crate) fn new(path: &'a str) -> Self {
        match path {
            "" => Self::default(),
            path => Self::default().child(path),
        }
    }

    /// The field `name` of this object, or one further down, with dots between the names.
    pub(crate) fn child<'b>(&self, name: &'b str) -> ErrorPath<'b>
    where
        'a: 'b,
    {
        self.with(FieldStep::Name(name))
    }

    /// An entry of this list.
    pub(crate) fn index(&self, index: usize) -> Self {
        self.with(FieldStep::Index(index))
    }

    /// An entry of this map.
    pub(crate) fn key<'b>(&self, key: &'b str) -> ErrorPath<'b>
    where
        'a: 'b,
    {
        self.with(FieldStep::Key(key))
    }

    /// The path without its last step.
    pub(crate) fn parent(&self) -> Self {
        Self {
            len: self.len.saturating_sub(1),
            ..self.clone()
        }
    }

    /// The name of the last field on the path.
    pub(crate) fn last_name(&self) -> &'a str {
        let steps = self.steps.iter().take(self.len).rev();
        let mut names = steps.filter_map(|step| match step {
            FieldStep::Name(name) => Some(*name),
            FieldStep::Index(_) | FieldStep::Key(_) => None,
        });
        names.next().unwrap_or("")
    }

    fn with<'b>(&self, step: FieldStep<'b>) -> ErrorPath<'b>
    where
        'a: 'b,
    {
        let mut path: ErrorPath<'b> = self.clone();
        if let Some(slot) = path.steps.get_mut(path.len) {
            *slot = step;
            path.len += 1;
        }
        path
    }
}

impl std::fmt::Display for ErrorPath<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Upstream prints the path of the whole object as `<nil>`.
        if self.len == 0 {
            return f.write_str("<nil>");
        }
        for (i, step) in self.steps.iter().take(self.len).enumerate() {
            match step {
                FieldStep::Name(name) if i == 0 => f.write_str(name)?,
                FieldStep::Name(name) => write!(f, ".{name}")?,
                FieldStep::Index(index) => write!(f, "[{index}]")?,
                FieldStep::Key(key) => write!(f, "[{key}]")?,
            }
        }
        Ok(())
    }
}

/// A value as it is printed in an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shown(pub(crate) String);

impl Shown {
    /// The text of an absent pointer or list, and of a value that the error does not state.
    pub(crate) fn null() -> Self {
        Self("null".to_owned())
    }
}

impl From<&str> for Shown {
    fn from(value: &str) -> Self {
        Self(quote(value))
    }
}

impl From<&String> for Shown {
    fn from(value: &String) -> Self {
        Self(quote(value))
    }
}

impl From<i64> for Shown {
    fn from(value: i64) -> Self {
        Self(value.to_string())
    }
}

impl From<bool> for Shown {
    fn from(value: bool) -> Self {
        Self(value.to_string())
    }
}

impl From<&Value> for Shown {
    fn from(value: &Value) -> Self {
        match value {
            Value::String(s) => Self::from(s),
            other => {
                let mut out = String::new();
                write_json(&mut out, other);
                Self(out)
            }
        }
    }
}

/// Quotes a string as Go's `%q` does.
pub fn quote(value: &str) -> String {
    let mut out = String::with_capacity(value.len() + 2);
    out.push('"');
    for c in value.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            c if u32::from(c) < 0x20 || c == '\u{7f}' => {
                let _ = write!(out, "\\x{:02x}", u32::from(c));
            }
            c if is_printable(c) => out.push(c),
            c if u32::from(c) > 0xffff => {
                let _ = write!(out, "\\U{:08x}", u32::from(c));
            }
            c => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
        }
    }
    out.push('"');
    out
}

/// Returns whether a character is printable, as in Go's `unicode.IsPrint`: letters, marks, numbers, punctuation and
/// symbols, and the ordinary space.
fn is_printable(c: char) -> bool {
    // Within a text, Rust escapes all but these (marks only at its beginning).
    c.is_ascii() || String::from_iter(['a', c]).escape_debug().count() == 2
}

/// Quotes a string as Go's JSON encoder does: `<`, `>` and `&` are escaped too.
fn quote_json(out: &mut String, value: &str) {
    out.push('"');
    for c in value.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c if u32::from(c) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// A value as Go's JSON encoder prints it.
pub(crate) fn json_text(value: impl Into<Value>) -> String {
    let mut out = String::new();
    write_json(&mut out, &value.into());
    out
}

/// A struct of Go as JSON: its fields, each with its value as JSON, in their order.
pub(crate) fn struct_text(fields: &[(&str, String)]) -> String {
    let fields: Vec<String> = fields
        .iter()
        .map(|(name, value)| format!("\"{name}\":{value}"))
        .collect();
    format!("{{{}}}", fields.join(","))
}

/// A list of values that are JSON already.
pub(crate) fn list_text(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

fn write_json(out: &mut String, value: &Value) {
    match value {
        Value::String(s) => quote_json(out, s),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_json(out, item);
            }
            out.push(']');
        }
        Value::Object(map) => {
            // Go sorts the keys of maps.
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by(|a, b| a.0.cmp(b.0));
            out.push('{');
            for (i, (key, item)) in entries.into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                quote_json(out, key);
                out.push(':');
                write_json(out, item);
            }
            out.push('}');
        }
        plain => {
            let _ = write!(out, "{plain}");
        }
    }
}

/// The limit of the texts of the errors of one object together, in bytes. An error can show a whole list, and each entry of
/// a list can have an error.
const TEXT_BYTES_MAX: usize = 1024 * 1024;

/// Field errors in the order in which they were found.
#[derive(Debug, Default)]
pub(crate) struct Errors {
    found: Vec<FieldError>,
    text_bytes: usize,
    /// The number of errors that are not reported, because the previous ones reach the limit.
    unreported: usize,
}

impl Errors {
    /// No errors yet.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The errors found.
    pub(crate) fn into_vec(mut self) -> Vec<FieldError> {
        if self.unreported > 0 {
            self.found.push(FieldError {
                kind: ErrorType::TooMany,
                field: ErrorPath::default().to_string(),
                value: None,
                detail: format!("{} more errors are not reported", self.unreported),
            });
        }
        self.found
    }

    /// Returns whether further errors are counted only.
    pub(crate) fn is_full(&self) -> bool {
        self.text_bytes >= TEXT_BYTES_MAX
    }

    /// The number of errors that were found so far.
    pub(crate) fn len(&self) -> usize {
        self.found.len() + self.unreported
    }

    /// Returns whether none was found so far.
    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty() && self.unreported == 0
    }

    /// Adds the errors of a part.
    pub(crate) fn extend(&mut self, other: Self) {
        self.unreported += other.unreported;
        if self.is_full() {
            self.unreported += other.found.len();
        } else {
            self.text_bytes += other.text_bytes;
            self.found.extend(other.found);
        }
    }

    /// Adds errors that another check found.
    pub(crate) fn add(&mut self, errors: Vec<FieldError>) {
        for error in errors {
            self.push_error(error);
        }
    }

    /// The value is missing.
    pub(crate) fn required(&mut self, path: &ErrorPath, detail: impl Into<String>) {
        self.push(ErrorType::Required, path, None, detail.into());
    }

    /// The value is malformed or out of range.
    pub(crate) fn invalid(
        &mut self,
        path: &ErrorPath,
        value: impl Into<Shown>,
        detail: impl Into<String>,
    ) {
        let shown = self.shown(value);
        self.push(ErrorType::Invalid, path, shown, detail.into());
    }

    /// The value is invalid, and too large to be shown.
    pub(crate) fn invalid_unshown(&mut self, path: &ErrorPath, detail: impl Into<String>) {
        self.push(ErrorType::Invalid, path, None, detail.into());
    }

    /// One `Invalid` error for each of `messages`.
    pub(crate) fn each_invalid(&mut self, path: &ErrorPath, value: &str, messages: Vec<String>) {
        for message in messages {
            self.invalid(path, value, message);
        }
    }

    /// The value is not a supported value.
    pub(crate) fn not_supported(&mut self, path: &ErrorPath, value: &str, known: &[&str]) {
        let known: Vec<String> = known.iter().map(|v| quote(v)).collect();
        let detail = if known.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", known.join(", "))
        };
        self.push(
            ErrorType::NotSupported,
            path,
            Some(Shown::from(value)),
            detail,
        );
    }

    /// The value, which is not a string, is not a supported value.
    pub(crate) fn not_supported_plain(
        &mut self,
        path: &ErrorPath,
        value: impl Into<Shown>,
        known: &[&str],
    ) {
        let known: Vec<String> = known.iter().map(|v| quote(v)).collect();
        let detail = format!("supported values: {}", known.join(", "));
        let shown = self.shown(value);
        self.push(ErrorType::NotSupported, path, shown, detail);
    }

    /// The list contains the value already.
    pub(crate) fn duplicate(&mut self, path: &ErrorPath, value: impl Into<Shown>) {
        self.duplicate_because(path, value, "");
    }

    /// The list contains the value already; `detail` states why that is invalid.
    pub(crate) fn duplicate_because(
        &mut self,
        path: &ErrorPath,
        value: impl Into<Shown>,
        detail: impl Into<String>,
    ) {
        let shown = self.shown(value);
        self.push(ErrorType::Duplicate, path, shown, detail.into());
    }

    /// The value may not be given here.
    pub(crate) fn forbidden(&mut self, path: &ErrorPath, detail: impl Into<String>) {
        self.push(ErrorType::Forbidden, path, None, detail.into());
    }

    /// The value has more than `bytes_max` bytes.
    pub(crate) fn too_long(&mut self, path: &ErrorPath, bytes_max: usize) {
        let unit = if bytes_max == 1 { "byte" } else { "bytes" };
        let detail = format!("may not be more than {bytes_max} {unit}");
        self.push(ErrorType::TooLong, path, None, detail);
    }

    /// A required name that `check` accepts.
    pub(crate) fn check_name(
        &mut self,
        path: &ErrorPath,
        name: &str,
        check: impl FnOnce(&str) -> Vec<String>,
    ) {
        if name.is_empty() {
            self.required(path, "");
        } else {
            self.each_invalid(path, name, check(name));
        }
    }

    /// The list may have no more than `items_max` entries.
    pub(crate) fn check_at_most(&mut self, path: &ErrorPath, items: usize, items_max: usize) {
        if items <= items_max {
            return;
        }
        let unit = if items_max == 1 { "item" } else { "items" };
        let detail = format!("must have at most {items_max} {unit}");
        let shown = Shown(items.to_string());
        self.push(ErrorType::TooMany, path, Some(shown), detail);
    }

    /// The error about a reference to an absent object.
    pub(crate) fn not_found(
        &mut self,
        path: &ErrorPath,
        value: impl Into<Shown>,
        detail: impl Into<String>,
    ) {
        let shown = self.shown(value);
        self.push(ErrorType::NotFound, path, shown, detail.into());
    }

    /// An error unless `value` is zero or more.
    pub(crate) fn nonnegative(&mut self, path: &ErrorPath, value: i64) {
        if value < 0 {
            self.invalid(path, value, IS_NEGATIVE);
        }
    }

    /// The text of a value, unless the error is not reported.
    fn shown(&self, value: impl Into<Shown>) -> Option<Shown> {
        (!self.is_full()).then(|| value.into())
    }

    fn push(&mut self, kind: ErrorType, path: &ErrorPath, value: Option<Shown>, detail: String) {
        // Most errors of a full list are never written.
        if self.is_full() {
            self.unreported += 1;
            return;
        }
        self.push_error(FieldError {
            kind,
            field: path.to_string(),
            value: value.map(|v| v.0),
            detail,
        });
    }

    fn push_error(&mut self, error: FieldError) {
        if self.is_full() {
            self.unreported += 1;
            return;
        }
        let shown = error.value.as_ref().map_or(0, String::len);
        self.text_bytes += error.field.len() + shown + error.detail.len();
        self.found.push(error);
    }
}

/// The message about a number below zero.
pub(crate) const IS_NEGATIVE: &str = "must be greater than or equal to 0";
/// The message about a change of a field that may not change.
pub(crate) const IS_IMMUTABLE: &str = "field is immutable";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_printed_as_go_prints_them() {
        let cases = [
            (json!("a\"b\n\u{1}é"), r#""a\"b\n\x01é""#),
            (json!(3), "3"),
            (json!(true), "true"),
            (json!(null), "null"),
            (json!([]), "[]"),
            (json!({}), "{}"),
            (
                json!({"b": "<x>", "a": [1, null]}),
                r#"{"a":[1,null],"b":"\u003cx\u003e"}"#,
            ),
        ];
        for (value, printed) in cases {
            assert_eq!(Shown::from(&value).0, printed);
        }
    }

    #[test]
    fn errors_beyond_the_limit_of_their_texts_are_counted() {
        let mut errors = Errors::new();
        let long = "x".repeat(TEXT_BYTES_MAX / 4);
        let path = ErrorPath::new("spec");
        for _ in 0..1_000 {
            errors.invalid(&path, long.as_str(), "too long");
        }
        assert!(errors.is_full());
        assert_eq!(errors.len(), 1_000);
        let mut others = Errors::new();
        others.required(&path, "");
        errors.extend(others);
        let found = errors.into_vec();
        assert_eq!(found.len(), 5);
        assert_eq!(
            found[4].to_string(),
            "<nil>: Too many: 997 more errors are not reported"
        );
    }

    #[test]
    fn errors_carry_path_type_and_detail() {
        let mut errors = Errors::new();
        let path = ErrorPath::new("spec")
            .child("ports")
            .index(1)
            .key("k")
            .child("name");
        errors.not_supported(&path, "x", &["a", "b"]);
        errors.check_at_most(&path, 3, 1);
        errors.check_at_most(&path, 1, 1);
        errors.required(&ErrorPath::new(""), "");
        let printed: Vec<String> = errors.into_vec().iter().map(ToString::to_string).collect();
        assert_eq!(
            printed,
            [
                r#"spec.ports[1][k].name: Unsupported value: "x": supported values: "a", "b""#,
                "spec.ports[1][k].name: Too many: 3: must have at most 1 item",
                "<nil>: Required value",
            ]
        );
    }
}
