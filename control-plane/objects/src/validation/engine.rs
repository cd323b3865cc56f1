//! Runs the rules of the tables over an object.
//!
//! Errors are in the order of the rules. Changes of immutable fields are reported last, as in upstream's functions for
//! updates.

use super::errors::{ErrorPath, Errors, IS_IMMUTABLE};
use super::markers;
use super::owner::{Code, NamedEntries, Owner, Siblings};
use crate::schema::GroupVersionKind;
use crate::schema::model::{Model, ModelField, ModelRule, TypeId, ValueShape};
use crate::schema::{Schemas, ValueCheck};
use crate::strategy::Subresource;
use crate::view::is_zero;
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::sync::LazyLock;

static ABSENT: Value = Value::Null;

/// Checks an object by the rules of its kind: its status for the status subresource, the rest otherwise.
pub(crate) fn run(
    code: &Code,
    kind: GroupVersionKind<'_>,
    object: &Value,
    old: Option<&Value>,
    subresource: Subresource,
) -> Errors {
    let schemas = Schemas::get();
    let mut run = RuleRun {
        model: schemas.model(),
        code,
        errors: Errors::new(),
        immutable: Errors::new(),
    };
    if let Some(id) = schemas.find(kind) {
        let only_status = subresource == Subresource::Status;
        let around = Around {
            old,
            ..Around::default()
        };
        run.object(id, object, around, &ErrorPath::default(), |name| {
            (name == "status") == only_status
        });
    }
    let mut errors = run.errors;
    errors.extend(run.immutable);
    errors
}

/// Checks a value of a type below an object.
pub(crate) fn run_type<'a>(
    errors: &mut Errors,
    type_name: &str,
    value: &'a Value,
    owner: &'a Owner<'a>,
    path: &ErrorPath<'a>,
) {
    run_below(errors, owner.code, type_name, value, Some(owner), path);
}

/// Checks a value of a type separately, such as a template.
pub(crate) fn run_alone(
    errors: &mut Errors,
    code: &Code,
    type_name: &str,
    value: &Value,
    path: &ErrorPath,
) {
    run_below(errors, code, type_name, value, None, path);
}

fn run_below<'a>(
    errors: &mut Errors,
    code: &'a Code,
    type_name: &str,
    value: &'a Value,
    parent: Option<&'a Owner<'a>>,
    path: &ErrorPath<'a>,
) {
    let model = Schemas::get().model();
    let mut run = RuleRun {
        model,
        code,
        errors: std::mem::take(errors),
        immutable: Errors::new(),
    };
    if let Some(id) = model.find(type_name) {
        let around = Around {
            parent,
            ..Around::default()
        };
        run.object(id, value, around, path, |_| true);
    }
    *errors = run.errors;
}

/// Checks a field of an object by the rules of its type and of the types below it, unless it is absent.
pub(crate) fn run_field<'a>(
    errors: &mut Errors,
    type_name: &str,
    field: &'static str,
    object: &'a Value,
    owner: &'a Owner<'a>,
    path: &ErrorPath<'a>,
) {
    let schemas = Schemas::get();
    let model = schemas.model();
    let found = model
        .find(type_name)
        .and_then(|id| model.object_type(id).field(field));
    if let (Some(value), Some(id)) = (
        object.get(field).filter(|v| !v.is_null()),
        found.and_then(|f| f.shape.object()),
    ) {
        run_type(
            errors,
            &model.object_type(id).name,
            value,
            owner,
            &path.child(field),
        );
    }
}

#[cfg(test)]
thread_local! {
    /// The types of the objects that this thread has visited.
    static VISITED: std::cell::RefCell<HashSet<String>> = std::cell::RefCell::default();
}

/// Records the visit of an object of a type.
#[cfg(test)]
pub(super) fn note_visit(type_name: &str) {
    VISITED.with_borrow_mut(|visited| _ = visited.insert(type_name.to_owned()));
}

/// The types of the objects that this thread has visited since the last call.
#[cfg(test)]
pub(crate) fn take_visited() -> HashSet<String> {
    VISITED.take()
}

/// The surroundings of an object: see [`Owner`].
#[derive(Clone, Copy, Default)]
struct Around<'a> {
    old: Option<&'a Value>,
    parent: Option<&'a Owner<'a>>,
    place: Option<(&'a Siblings<'a>, usize)>,
}

struct RuleRun<'m> {
    model: &'m Model,
    code: &'m Code,
    errors: Errors,
    immutable: Errors,
}

impl RuleRun<'_> {
    fn object(
        &mut self,
        id: TypeId,
        value: &Value,
        around: Around<'_>,
        path: &ErrorPath<'_>,
        wanted: impl Fn(&str) -> bool,
    ) {
        let object_type = self.model.object_type(id);
        #[cfg(test)]
        note_visit(&object_type.name);
        // Most types have no rules below them; visiting them would only cost time.
        if !object_type.has_rules {
            return;
        }
        let named = NamedEntries::default();
        let owner = Owner {
            type_name: &object_type.name,
            value,
            old: around.old,
            parent: around.parent,
            place: around.place,
            named: &named,
            code: self.code,
        };
        for rule in &object_type.rules {
            let Some(index) = rule.field else {
                if wanted("*") {
                    self.checks(rule, None, &owner, value, path);
                }
                continue;
            };
            let Some(field) = object_type.fields.get(index).filter(|f| wanted(&f.name)) else {
                continue;
            };
            let value = value.get(&*field.name).unwrap_or(&ABSENT);
            self.checks(rule, Some(field), &owner, value, &path.child(rule.shown));
        }
    }

    fn checks(
        &mut self,
        rule: &ModelRule,
        field: Option<&ModelField>,
        owner: &Owner<'_>,
        value: &Value,
        path: &ErrorPath<'_>,
    ) {
        let absent = match field {
            Some(field) if field.pointer => value.is_null(),
            _ => is_zero(Some(value)),
        };
        let before = match (owner.old, field) {
            (Some(old), Some(field)) => zero_if_absent(field, old.get(&*field.name)),
            (old, _) => old.unwrap_or(&ABSENT),
        };
        let decoded = field.map_or(value, |field| zero_if_absent(field, Some(value)));
        for check in &rule.checks {
            match check {
                ValueCheck::If(condition) => {
                    // A condition that cannot be evaluated hides no error.
                    let condition = self.code.condition(*condition);
                    let is_met = condition.map(|c| c.is_met(owner, decoded, before));
                    if matches!(is_met, Some(Ok(false))) {
                        return;
                    }
                }
                ValueCheck::Required(detail) => {
                    if absent || (value.is_string() && is_zero(Some(value))) {
                        self.errors.required(path, *detail);
                        return;
                    }
                }
                ValueCheck::Values { always, known } => {
                    if *always || !absent {
                        each(value, path, |value, path| {
                            let text = value.as_str().unwrap_or("");
                            if !known.iter().any(|k| **k == *text) {
                                let known: Vec<&str> = known.iter().map(|k| &**k).collect();
                                self.errors.not_supported(path, text, &known);
                            }
                        });
                    }
                }
                ValueCheck::Format {
                    always,
                    joined,
                    format,
                } => {
                    if let Some(format) = self.code.format(*format)
                        && (*always || !absent)
                    {
                        each(value, path, |value, path| {
                            let text = value.as_str().unwrap_or("");
                            let faults = format(text);
                            match joined {
                                true if faults.is_empty() => {}
                                true => self.errors.invalid(path, text, faults.join(",")),
                                false => self.errors.each_invalid(path, text, faults),
                            }
                        });
                    }
                }
                ValueCheck::Range {
                    always,
                    min,
                    max,
                    text,
                } => {
                    let number = value.as_i64().unwrap_or(0);
                    if (*always || !absent) && !(*min..=*max).contains(&number) {
                        self.errors.invalid(path, number, &**text);
                    }
                }
                ValueCheck::MaxItems(max) => {
                    let items = value.as_array().map_or(0, Vec::len);
                    // As in kube-apiserver, the entries of a list that is too long are not checked, which bounds the
                    // work.
                    if items > *max {
                        self.errors.check_at_most(path, items, *max);
                        return;
                    }
                }
                ValueCheck::MaxBytes(max) => {
                    if value.as_str().is_some_and(|text| text.len() > *max) {
                        self.errors.too_long(path, *max);
                    }
                }
                ValueCheck::Once => {
                    if !absent && owner.repeats(rule.shown) {
                        self.errors.duplicate(path, value);
                    }
                }
                ValueCheck::Unique(key) => {
                    let mut seen = HashSet::new();
                    for (i, entry) in value.as_array().into_iter().flatten().enumerate() {
                        let text = entry.get(key).and_then(Value::as_str).unwrap_or("");
                        if !seen.insert(text) {
                            self.errors.duplicate(&path.index(i).child(key), text);
                        }
                    }
                }
                ValueCheck::Immutable => {
                    let name = field.map_or(rule.shown, |f| &*f.name);
                    let before = owner.old.map(|o| o.get(name).unwrap_or(&ABSENT));
                    if before.is_some_and(|before| before != value) {
                        // A field that is not a pointer has its zero value.
                        let zero = field.filter(|_| value.is_null()).and_then(ModelField::zero);
                        let shown = zero.as_ref().unwrap_or(value);
                        self.immutable.invalid(path, shown, IS_IMMUTABLE);
                    }
                }
                ValueCheck::Must { always, must } => {
                    if let Some(must) = self.code.must(*must)
                        && (*always || !absent || field.is_none())
                    {
                        must.check(&mut self.errors, owner, decoded, before, path);
                    }
                }
                ValueCheck::Each(must) => {
                    if let Some(must) = self.code.must(*must) {
                        each(decoded, path, |entry, path| {
                            must.check(&mut self.errors, owner, entry, &ABSENT, path);
                        });
                    }
                }
                ValueCheck::Markers(id) => {
                    // The template of a Job may change, a Job may not.
                    let is_template = owner.outermost().type_name == "batch.v1.CronJob";
                    let old = owner.old.filter(|_| !is_template);
                    markers::validate(self.model, &mut self.errors, *id, value, old, path);
                }
                ValueCheck::Call(function) => {
                    if let Some(function) = self.code.call(*function) {
                        function(&mut self.errors, owner, value, path);
                    }
                }
                ValueCheck::Descend => {
                    if let Some(field) = field {
                        self.descend(&field.shape, &field.name, value, owner, path);
                    }
                }
            }
        }
    }

    fn descend(
        &mut self,
        shape: &ValueShape,
        name: &str,
        value: &Value,
        owner: &Owner<'_>,
        path: &ErrorPath<'_>,
    ) {
        match (shape, value) {
            (ValueShape::Object(id), Value::Object(_)) => {
                let old = owner.old.and_then(|o| o.get(name));
                let around = Around {
                    old,
                    parent: Some(owner),
                    place: None,
                };
                self.object(*id, value, around, path, |_| true);
            }
            (ValueShape::List(items), Value::Array(list)) => {
                if let ValueShape::Object(id) = **items {
                    let siblings = Siblings::new(list);
                    for (i, value) in list.iter().enumerate() {
                        let around = Around {
                            // Entries of a list have no counterpart in the old object.
                            old: None,
                            parent: Some(owner),
                            place: Some((&siblings, i)),
                        };
                        self.object(id, value, around, &path.index(i), |_| true);
                    }
                }
            }
            (ValueShape::Map(values), Value::Object(map)) => {
                if let ValueShape::Object(id) = **values {
                    let around = Around {
                        parent: Some(owner),
                        ..Around::default()
                    };
                    for (key, value) in map {
                        self.object(id, value, around, &path.key(key), |_| true);
                    }
                }
            }
            _ => {}
        }
    }
}

/// The value of a field as in a decoded Go struct: an absent field that is not a pointer is zero.
fn zero_if_absent<'a>(field: &ModelField, value: Option<&'a Value>) -> &'a Value {
    static EMPTY: Value = Value::String(String::new());
    static FALSE: Value = Value::Bool(false);
    static NOTHING: Value = Value::Array(Vec::new());
    static ZERO: LazyLock<Value> = LazyLock::new(|| 0.into());
    static NO_ENTRIES: LazyLock<Value> = LazyLock::new(|| Map::new().into());
    match (value.filter(|v| !v.is_null()), &field.shape) {
        (Some(value), _) => value,
        (None, _) if field.pointer => &ABSENT,
        (None, ValueShape::String) => &EMPTY,
        (None, ValueShape::Bool) => &FALSE,
        (None, ValueShape::Int32 | ValueShape::Int64) => &ZERO,
        (None, ValueShape::List(_)) => &NOTHING,
        (None, ValueShape::Map(_)) => &NO_ENTRIES,
        (None, _) => &ABSENT,
    }
}

/// Calls `check` for a scalar, or for each entry of a list.
fn each(value: &Value, path: &ErrorPath<'_>, mut check: impl FnMut(&Value, &ErrorPath<'_>)) {
    match value {
        Value::Array(list) => {
            for (i, value) in list.iter().enumerate() {
                check(value, &path.index(i));
            }
        }
        value => check(value, path),
    }
}
