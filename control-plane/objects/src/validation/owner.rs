//! The arguments of checks, and the code that the rules name.

use super::errors::{ErrorPath, Errors};
use super::formats::StringFormat;
use super::must::{Must, MustCondition};
use crate::schema::model::Model;
use crate::schema::{CodeId, RuleCode};
use crate::view::FieldView;
use rustc_hash::FxHashMap;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;

/// The object that holds a checked value, and the objects around it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner<'a> {
    /// Its type, such as `core.v1.PodSpec`.
    pub(crate) type_name: &'a str,
    /// The object.
    pub(crate) value: &'a Value,
    /// The value before an update.
    pub(crate) old: Option<&'a Value>,
    /// The object around it.
    pub(crate) parent: Option<&'a Owner<'a>>,
    /// The list that contains it, and its index.
    pub(crate) place: Option<(&'a Siblings<'a>, usize)>,
    /// The entries of its lists by their names.
    pub(crate) named: &'a NamedEntries,
    /// The code of the rules.
    pub(crate) code: &'a Code,
}

/// The indexes of entries by their names.
pub(crate) type EntryIndexes = Rc<FxHashMap<Box<str>, usize>>;

/// The entries of the lists of an object by their names, the first entry of each name. Each list is read once,
/// independently of the number of fields that refer to its entries.
#[derive(Debug, Default)]
pub(crate) struct NamedEntries(RefCell<FxHashMap<&'static str, EntryIndexes>>);

impl NamedEntries {
    /// The kept entries under a key, or else the result of `read`.
    fn get(
        &self,
        key: &'static str,
        read: impl FnOnce() -> FxHashMap<Box<str>, usize>,
    ) -> EntryIndexes {
        let known = self.0.borrow().get(key).cloned();
        known.unwrap_or_else(|| {
            let read = Rc::new(read());
            self.0.borrow_mut().insert(key, Rc::clone(&read));
            read
        })
    }
}

/// The entries of a list, and which of them repeat the values of fields. Fields are compared once for the list.
#[derive(Debug)]
pub(crate) struct Siblings<'a> {
    list: &'a [Value],
    repeats: RefCell<FxHashMap<&'static str, Vec<bool>>>,
    repeated_later: RefCell<FxHashMap<&'static [&'static str], Vec<bool>>>,
}

impl<'a> Siblings<'a> {
    pub(super) fn new(list: &'a [Value]) -> Self {
        Self {
            list,
            repeats: RefCell::default(),
            repeated_later: RefCell::default(),
        }
    }

    fn repeats(&self, index: usize, field: &'static str) -> bool {
        let mut repeats = self.repeats.borrow_mut();
        let of_field = repeats.entry(field).or_insert_with(|| {
            let mut seen = HashSet::with_capacity(self.list.len());
            let texts = self.list.iter().map(|entry| entry.text(field));
            texts.map(|text| !seen.insert(text)).collect()
        });
        of_field.get(index).copied().unwrap_or(false)
    }

    fn repeated_later(&self, index: usize, fields: &'static [&'static str]) -> bool {
        let mut repeats = self.repeated_later.borrow_mut();
        let of_fields = repeats.entry(fields).or_insert_with(|| {
            let mut seen = HashSet::with_capacity(self.list.len());
            let texts = |entry: &'a Value| -> Vec<&'a str> {
                fields.iter().map(|field| entry.text(field)).collect()
            };
            let from_the_end = self.list.iter().rev();
            let mut repeated: Vec<bool> = from_the_end
                .map(|entry| !seen.insert(texts(entry)))
                .collect();
            repeated.reverse();
            repeated
        });
        of_fields.get(index).copied().unwrap_or(false)
    }
}

/// Checks a value; `Null` when it is absent. The owner is the object that holds it, or the value itself on lines `*`.
pub(crate) type CheckFn = for<'a> fn(&mut Errors, &Owner<'a>, &'a Value, &ErrorPath<'a>);

/// A function that fills in defaults.
pub(crate) type DefaultFn = fn(&mut Value);

impl<'a> Owner<'a> {
    /// The object as a whole.
    pub(crate) fn outermost(&self) -> &Owner<'a> {
        self.parent.map_or(self, Owner::outermost)
    }

    /// Returns whether an entry before this one in its list has the same text in a field.
    pub(crate) fn repeats(&self, field: &'static str) -> bool {
        self.place
            .is_some_and(|(siblings, index)| siblings.repeats(index, field))
    }

    /// Returns whether an entry after this one in its list has the same texts in some fields.
    pub(crate) fn repeated_later(&self, fields: &'static [&'static str]) -> bool {
        self.place
            .is_some_and(|(siblings, index)| siblings.repeated_later(index, fields))
    }

    /// The nearest object of a type, this one included.
    pub(crate) fn enclosing(&self, type_name: &str) -> Option<&'a Value> {
        self.enclosing_owner(type_name).map(|owner| owner.value)
    }

    /// As [`Owner::enclosing`], with the objects around it.
    pub(crate) fn enclosing_owner(&self, type_name: &str) -> Option<Owner<'a>> {
        let mut next = Some(self);
        while let Some(owner) = next {
            if owner.type_name == type_name {
                return Some(*owner);
            }
            next = owner.parent;
        }
        None
    }

    /// The entries of a list of the object by their names.
    pub(crate) fn entries_by_name(&self, list: &'static str) -> EntryIndexes {
        self.named.get(list, || {
            let mut found = FxHashMap::default();
            for (i, entry) in self.value.items(list).iter().enumerate() {
                found.entry(entry.text("name").into()).or_insert(i);
            }
            found
        })
    }

    /// Entries of a list of the object that a check has found, by their names, under a key that no list has. `read`
    /// finds them when no check has.
    pub(crate) fn kept_entries(
        &self,
        key: &'static str,
        read: impl FnOnce() -> FxHashMap<Box<str>, usize>,
    ) -> EntryIndexes {
        self.named.get(key, read)
    }
}

/// A part of the code that the rules name or state.
#[derive(Debug)]
pub(crate) enum CodePart {
    /// A check.
    Call(CheckFn),
    /// A format of strings.
    Format(StringFormat),
    /// A condition with its error.
    Must(Must),
    /// A condition.
    Condition(MustCondition),
    /// A function that fills in defaults.
    Default(DefaultFn),
}

/// The code that the rules of a model name or state.
#[derive(Debug)]
pub(crate) struct Code(Vec<Option<CodePart>>);

impl Code {
    /// The code of a model; `find` returns each part.
    pub(crate) fn of(model: &Model, find: impl Fn(RuleCode) -> Option<CodePart>) -> Self {
        Self(model.code().iter().map(|code| find(*code)).collect())
    }

    /// The parts that were not found; none, as a test ensures.
    #[cfg(test)]
    pub(crate) fn missing(&self, model: &Model) -> Vec<RuleCode> {
        let parts = model.code().iter().zip(&self.0);
        let missing = parts.filter(|(_, part)| part.is_none());
        missing.map(|(code, _)| *code).collect()
    }

    fn part(&self, id: CodeId) -> Option<&CodePart> {
        self.0.get(id.0)?.as_ref()
    }

    /// A check.
    pub(super) fn call(&self, id: CodeId) -> Option<CheckFn> {
        match self.part(id)? {
            CodePart::Call(check) => Some(*check),
            _ => None,
        }
    }

    /// A format of strings.
    pub(super) fn format(&self, id: CodeId) -> Option<StringFormat> {
        match self.part(id)? {
            CodePart::Format(format) => Some(*format),
            _ => None,
        }
    }

    /// A condition with its error.
    pub(super) fn must(&self, id: CodeId) -> Option<&Must> {
        match self.part(id)? {
            CodePart::Must(must) => Some(must),
            _ => None,
        }
    }

    /// A condition.
    pub(super) fn condition(&self, id: CodeId) -> Option<&MustCondition> {
        match self.part(id)? {
            CodePart::Condition(condition) => Some(condition),
            _ => None,
        }
    }

    /// Fills in defaults.
    pub(super) fn fill(&self, id: CodeId, object: &mut Value) {
        if let Some(CodePart::Default(fill)) = self.part(id) {
            fill(object);
        }
    }
}
