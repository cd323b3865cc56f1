//! Reads `facts/rules/*.txt`: Kubernetes' checks and defaults, written by hand because Kubernetes does not publish
//! them.
//!
//! A file has blocks `type NAME`. Each line of a block is a field and its checks and defaults, in the order of the
//! errors; a line `*` refers to the object as a whole. The words of a line:
//!
//! - `default=V`: a missing value becomes `V` (JSON, or a bare word for a string);
//! - `required`, `required="detail"`: a missing or zero value is an error, and ends the checks;
//! - `values`, `values=A,B`: one of the values that the types enumerate, or one of these (errors list them in this order);
//! - `format=NAME`: a string in a format of [`crate::validation::names`]; in lists, each entry; `joined=NAME` reports
//!   all faults of a string in one error;
//! - `range=A..B`, `range=A..`: a number; `range=A..B:"text"` with its own text;
//! - `max-items=N`: the maximum number of entries of a list, which are not checked above it; `unique=KEY`: each entry
//!   has another value; `once`: no entry of the list before this one has the value;
//! - `max-bytes=N`: the length of a string;
//! - `immutable`: an update may not change it;
//! - `must="CEL":KIND@FIELD:"text"`: a condition over `self`, `owner` (the object that holds it) and `old` (the value
//!   before an update, `null` when the object is created), `root` (the object as a whole) and `kind` (of that); else an
//!   error of KIND (`invalid`, `required`, `forbidden`, or `invalid-null`, which shows no value) about FIELD of the
//!   value, or about the value itself. `{CEL}` in the text becomes the value of an expression;
//! - `each=…`: the same for each entry of a list;
//! - `if="CEL"`: the words after it count only where the condition is met;
//! - `as=NAME`: errors name the field so;
//! - `@function`: a check, by its path from [`crate::validation`]; the build fails if there is none;
//! - `flat`: the types below are not checked; `below`: they are checked here instead of after the other words.
//!
//! A check of an absent value is skipped, unless the word ends in `!` (`values!`, `format!=…`, `range!=…`, `must!=…`).
//! Types below a field are checked after the words of its line. A line `defaults @function` sets defaults that depend
//! on other fields. `type NAME marked` has the checks of the markers in the table of facts, also for the types below it
//! ([`crate::validation::markers`]); `type NAME like OTHER` has the lines of a preceding type with the same fields.

use super::model::{Model, ModelField, ModelRule, TypeId, ValueShape};
use berth_protobuf::facts::words;
use rustc_hash::FxHashMap;
use serde_json::Value;

/// The files.
pub(super) const FILES: &[&str] = &[
    include_str!("../../facts/rules/meta.txt"),
    include_str!("../../facts/rules/pod.txt"),
    include_str!("../../facts/rules/workloads.txt"),
    include_str!("../../facts/rules/storage.txt"),
    include_str!("../../facts/rules/resource.txt"),
    include_str!("../../facts/rules/admission.txt"),
    include_str!("../../facts/rules/flow_control.txt"),
    include_str!("../../facts/rules/other.txt"),
];

/// The index of a [`RuleCode`] in its [`Model`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CodeId(pub(crate) usize);

/// A part of the rules that is stated by name or as an expression. Validation has the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RuleCode {
    /// A check, by name.
    Call(&'static str),
    /// A format of strings, by name.
    Format(&'static str),
    /// A condition with the error about a value that does not meet it.
    Must(&'static str),
    /// A condition.
    Condition(&'static str),
    /// A function that fills in defaults, by name.
    Default(&'static str),
}

/// One check of a value.
#[derive(Debug, Clone)]
pub(crate) enum ValueCheck {
    /// The value must be there and not be zero.
    Required(&'static str),
    /// The value is one of these.
    Values {
        /// Whether an absent value is checked.
        always: bool,
        /// The known values, in the order in which errors list them.
        known: Vec<Box<str>>,
    },
    /// The string has this format.
    Format {
        /// Whether an absent value is checked.
        always: bool,
        /// Whether all faults of a string are one error.
        joined: bool,
        /// The function that finds the faults of a string.
        format: CodeId,
    },
    /// The number lies in this range.
    Range {
        /// Whether an absent value is checked.
        always: bool,
        /// The least number.
        min: i64,
        /// The greatest number.
        max: i64,
        /// The text of an error.
        text: Box<str>,
    },
    /// The list has no more entries.
    MaxItems(usize),
    /// The string has no more bytes.
    MaxBytes(usize),
    /// No entry of the owner's list before the owner has the same value of the field.
    Once,
    /// No two entries have the same value of this field.
    Unique(&'static str),
    /// An update does not change the value.
    Immutable,
    /// The value meets a condition.
    Must {
        /// Whether an absent value is checked.
        always: bool,
        /// The condition.
        must: CodeId,
    },
    /// Each entry of a list meets a condition.
    Each(CodeId),
    /// The checks after this one count only where the condition is met.
    If(CodeId),
    /// The value is checked by a function.
    Call(CodeId),
    /// An object of a type, and the objects below it, are checked by the markers of the types.
    Markers(TypeId),
    /// The types below are checked.
    Descend,
}

/// Adds the rules of a file to a model. Returns the lines that could not be read.
pub(super) fn apply(model: &mut Model, text: &'static str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut current: Option<TypeId> = None;
    let mut lines: FxHashMap<&str, Vec<&'static str>> = FxHashMap::default();
    let mut block = "";
    for line in text.lines() {
        let line = line.trim_end();
        if line.is_empty() || line.trim_start().starts_with('#') {
            continue;
        }
        let done = if let Some(name) = line.strip_prefix("type ") {
            let (name, source) = name.split_once(' ').unwrap_or((name, ""));
            block = name;
            current = model.find(name);
            if let (Some(id), Some(other)) = (current, source.strip_prefix("like ")) {
                for line in lines.get(other).into_iter().flatten() {
                    // Lines of fields that this type does not have are left out.
                    let _ = add_line(model, id, line);
                }
            } else if let (Some(id), "marked") = (current, source) {
                let object_type = model.types.get_mut(id.0);
                if let Some(object_type) = object_type {
                    object_type.rules.push(by_markers(id));
                }
            }
            current.map(|_| ())
        } else {
            lines.entry(block).or_default().push(line);
            current.and_then(|id| add_line(model, id, line))
        };
        if done.is_none() {
            faults.push(line.to_owned());
        }
    }
    faults
}

/// The rule of a type that is checked by its markers.
fn by_markers(id: TypeId) -> ModelRule {
    ModelRule {
        field: None,
        shown: "*",
        checks: vec![ValueCheck::Markers(id)],
    }
}

fn unquoted(text: &'static str) -> &'static str {
    text.strip_prefix('"')
        .and_then(|t| t.strip_suffix('"'))
        .unwrap_or(text)
}

fn add_line(model: &mut Model, id: TypeId, line: &'static str) -> Option<()> {
    let mut words = words(line);
    let name = words.next()?;
    if name == "defaults" {
        let function = RuleCode::Default(words.next()?.strip_prefix('@')?);
        let function = add_code(&mut model.code, function);
        model.types.get_mut(id.0)?.defaults.push(function);
        return Some(());
    }
    let object_type = model.types.get_mut(id.0)?;
    let position = match name {
        "*" => None,
        name => Some(object_type.position(name)?),
    };
    let mut rule = ModelRule {
        field: position,
        shown: name,
        checks: Vec::new(),
    };
    let mut descend = position.is_some();
    for word in words {
        if let Some(value) = word.strip_prefix("default=") {
            let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
            let field = object_type.fields.get_mut(position?)?;
            // The default of the types is not repeated.
            if field.default.as_ref() == Some(&value) {
                return None;
            }
            field.default = Some(value);
        } else if let Some(name) = word.strip_prefix("as=") {
            rule.shown = name;
        } else if word == "flat" {
            descend = false;
        } else if word == "below" {
            descend = false;
            rule.checks.push(ValueCheck::Descend);
        } else {
            let field = position.and_then(|i| object_type.fields.get(i));
            rule.checks.push(check(word, field, &mut model.code)?);
        }
    }
    let has_object = position
        .and_then(|i| object_type.fields.get(i))
        .is_some_and(|f| f.shape.object().is_some());
    // Every object below is checked, unless the line states another order.
    if descend && has_object {
        rule.checks.push(ValueCheck::Descend);
    }
    if !rule.checks.is_empty() {
        object_type.rules.push(rule);
    }
    Some(())
}

fn add_code(all: &mut Vec<RuleCode>, code: RuleCode) -> CodeId {
    all.push(code);
    CodeId(all.len() - 1)
}

fn check(
    word: &'static str,
    field: Option<&ModelField>,
    all: &mut Vec<RuleCode>,
) -> Option<ValueCheck> {
    let mut code = |code| add_code(all, code);
    if let Some(name) = word.strip_prefix('@') {
        return Some(ValueCheck::Call(code(RuleCode::Call(name))));
    }
    let (label, value) = word.split_once('=').unwrap_or((word, ""));
    let (label, always) = match label.strip_suffix('!') {
        Some(label) => (label, true),
        None => (label, false),
    };
    Some(match label {
        "required" => ValueCheck::Required(unquoted(value)),
        "values" => ValueCheck::Values {
            always,
            known: values(value, field)?,
        },
        "format" | "joined" => ValueCheck::Format {
            always,
            joined: label == "joined",
            format: code(RuleCode::Format(value)),
        },
        "range" => range(value, always)?,
        "must" => ValueCheck::Must {
            always,
            must: code(RuleCode::Must(value)),
        },
        "each" => ValueCheck::Each(code(RuleCode::Must(value))),
        "if" => ValueCheck::If(code(RuleCode::Condition(value))),
        "max-bytes" => ValueCheck::MaxBytes(value.parse().ok()?),
        "max-items" => ValueCheck::MaxItems(value.parse().ok()?),
        "once" => ValueCheck::Once,
        "unique" => ValueCheck::Unique(value),
        "immutable" => ValueCheck::Immutable,
        _ => return None,
    })
}

/// The values of a list, or the enumeration of the type. A list that equals the enumeration is not repeated.
fn values(list: &'static str, field: Option<&ModelField>) -> Option<Vec<Box<str>>> {
    let known = field.map_or(&[][..], |field| &field.values);
    if list.is_empty() {
        // A list without values would reject all values.
        return (!known.is_empty()).then(|| known.to_vec());
    }
    let listed: Vec<Box<str>> = list.split(',').map(|v| unquoted(v).into()).collect();
    (listed != known).then_some(listed)
}

fn range(text: &'static str, always: bool) -> Option<ValueCheck> {
    let (bounds, own) = match text.split_once(':') {
        Some((bounds, own)) => (bounds, Some(unquoted(own))),
        None => (text, None),
    };
    let (min, max) = bounds.split_once("..")?;
    let min: i64 = min.parse().ok()?;
    let (max, text) = match max {
        "" => (i64::MAX, format!("must be greater than or equal to {min}")),
        max => {
            let max: i64 = max.parse().ok()?;
            (max, format!("must be between {min} and {max}, inclusive"))
        }
    };
    Some(ValueCheck::Range {
        always,
        min,
        max,
        text: own.map_or(text, str::to_owned).into(),
    })
}

/// Notes for each type whether it, or one below it, has rules or defaults.
pub(super) fn close(model: &mut Model) {
    loop {
        let mut changed = false;
        for i in 0..model.types.len() {
            let Some(object_type) = model.types.get(i) else {
                continue;
            };
            let below = |of: fn(&super::model::ObjectType) -> bool, shape: &ValueShape| {
                shape
                    .object()
                    .and_then(|id| model.types.get(id.0))
                    .is_some_and(of)
            };
            let has_rules = object_type.rules.iter().any(|rule| {
                rule.checks
                    .iter()
                    .any(|c| !matches!(c, ValueCheck::Descend))
                    || rule
                        .field
                        .and_then(|i| object_type.fields.get(i))
                        .is_some_and(|f| below(|t| t.has_rules, &f.shape))
            });
            let has_defaults = !object_type.defaults.is_empty()
                || object_type
                    .fields
                    .iter()
                    .any(|f| f.default.is_some() || below(|t| t.has_defaults, &f.shape));
            let has_gates = object_type
                .fields
                .iter()
                .any(|f| f.availability.gate.is_some() || below(|t| t.has_gates, &f.shape));
            let found = (has_rules, has_defaults, has_gates);
            let known = (
                object_type.has_rules,
                object_type.has_defaults,
                object_type.has_gates,
            );
            changed |= found != known;
            if let Some(object_type) = model.types.get_mut(i) {
                (
                    object_type.has_rules,
                    object_type.has_defaults,
                    object_type.has_gates,
                ) = found;
            }
        }
        if !changed {
            return;
        }
    }
}
