//! The messages of Kubernetes' types: which field has which number, name and shape.
//!
//! They are read from the [`Facts`] about Kubernetes' types.

use crate::facts::{Facts, FieldFacts, MACHINERY, TypeId, ValueShape, words};
use rustc_hash::FxHashMap;
use std::sync::OnceLock;

/// All messages.
#[derive(Debug)]
pub struct Types {
    /// In the order of the facts.
    messages: Vec<MessageType>,
    /// By `apiVersion` and `kind`.
    by_kind: FxHashMap<(&'static str, &'static str), TypeId>,
    /// The shape of a JSON schema.
    schema: ValueShape,
}

/// The message of a type.
#[derive(Debug)]
pub struct MessageType {
    /// The name without group and version, such as `PodSpec`.
    pub(crate) name: &'static str,
    /// By number.
    fields: Vec<Option<FieldTarget>>,
    /// The numbers of the fields that are not embedded, by their names in JSON.
    by_name: FxHashMap<&'static str, u32>,
    /// Whether fields of embedded messages are members of its objects.
    pub(crate) embeds: bool,
}

/// The target of a field of a message.
#[derive(Debug, Clone)]
pub(crate) enum FieldTarget {
    /// Into a field in JSON.
    Field(ProtobufField),
    /// Into the fields of the message around it: the index of an embedded message.
    Embedded(TypeId),
}

/// A field.
#[derive(Debug, Clone)]
pub(crate) struct ProtobufField {
    /// The name in JSON.
    pub(crate) name: &'static str,
    pub(crate) shape: &'static ValueShape,
    /// Whether JSON omits the field when it is zero. Protobuf has no such rule: the message contains the zero.
    pub(crate) omits_zero: bool,
    /// The effect of a strategic merge patch on the values of a list.
    pub(crate) merge: ListMerge,
}

/// The effect of a strategic merge patch on the values of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListMerge {
    /// They are replaced.
    Replace,
    /// They are a set.
    Set,
    /// They are objects with this key.
    By(&'static str),
}

// === impl Types ===

impl Types {
    /// The types of this process.
    pub fn get() -> &'static Self {
        static TYPES: OnceLock<Types> = OnceLock::new();
        TYPES.get_or_init(|| Self::of(Facts::get()))
    }

    /// The message of a kind. `None` when the kind has none, as custom resources.
    pub fn of_kind(&self, api_version: &str, kind: &str) -> Option<&MessageType> {
        // Options name the group and version of the object that they are for.
        let api_version = match kind {
            "DeleteOptions" => "v1",
            _ => api_version,
        };
        self.by_kind
            .get(&(api_version, kind))
            .map(|id| self.at(*id))
    }

    /// The message of a type by its name in the facts, such as `core.v1.PodSpec`.
    pub fn of_type(&self, name: &str) -> Option<&MessageType> {
        Facts::get().find(name).map(|id| self.at(id))
    }

    /// A message by its index, which a shape or target contains.
    pub(crate) fn at(&self, id: TypeId) -> &MessageType {
        &self.messages[id.0]
    }

    /// The shape of a JSON schema.
    pub(crate) fn schema(&self) -> &ValueShape {
        &self.schema
    }

    fn of(facts: &'static Facts) -> Self {
        let messages = facts.types.iter().map(|of| {
            let mut message = MessageType::new(short(of.name));
            for field in &of.fields {
                message.add(field);
            }
            message
        });
        let mut types = Self {
            messages: messages.collect(),
            by_kind: FxHashMap::default(),
            schema: facts
                .find("apiextensions.v1.JSONSchemaProps")
                .map_or(ValueShape::Any, ValueShape::Object),
        };
        let mut add = |api_version, type_name| {
            if let Some(id) = facts.find(type_name) {
                types.by_kind.insert((api_version, short(type_name)), id);
            }
        };
        for resource in &facts.resources {
            add(resource.api_version, resource.type_name);
            for sub in &resource.subresources {
                add(sub.api_version, sub.type_name);
            }
        }
        for name in MACHINERY {
            add("v1", name);
            add("meta.k8s.io/v1", name);
        }
        types
    }
}

/// The last part of a type's name.
fn short(name: &'static str) -> &'static str {
    name.rsplit('.').next().unwrap_or(name)
}

// === impl ProtobufField ===

impl ProtobufField {
    fn of(facts: &'static FieldFacts) -> Self {
        let (mut key, mut is_merged) = (None, false);
        for word in words(facts.attributes) {
            match word.split_once('=') {
                Some(("patch", strategy)) => {
                    is_merged = strategy.split(',').any(|word| word == "merge");
                }
                Some(("key", name)) => key = Some(name),
                _ => {}
            }
        }
        Self {
            name: facts.name,
            shape: &facts.shape,
            omits_zero: facts.omitted > 0 && !facts.pointer,
            merge: match (is_merged, key) {
                (true, Some(key)) => ListMerge::By(key),
                (true, None) => ListMerge::Set,
                (false, _) => ListMerge::Replace,
            },
        }
    }
}

// === impl MessageType ===

impl MessageType {
    /// The name without group and version, such as `PodSpec`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    fn new(name: &'static str) -> Self {
        Self {
            name,
            fields: Vec::new(),
            by_name: FxHashMap::default(),
            embeds: false,
        }
    }

    /// Adds a field. One that has no number is read from JSON only. No field of the tables has a duration, and
    /// durations have no message.
    fn add(&mut self, facts: &'static FieldFacts) {
        let Some(number) = facts.number.filter(|_| facts.shape != ValueShape::Duration) else {
            return;
        };
        let at = usize::from(number);
        if self.fields.len() <= at {
            self.fields.resize(at + 1, None);
        }
        self.fields[at] = Some(match facts.shape {
            ValueShape::Object(id) if facts.name == FieldFacts::EMBEDDED => {
                self.embeds = true;
                FieldTarget::Embedded(id)
            }
            _ => {
                self.by_name.insert(facts.name, number.into());
                FieldTarget::Field(ProtobufField::of(facts))
            }
        });
    }

    /// The field of a number.
    pub(crate) fn field(&self, number: u32) -> Option<&FieldTarget> {
        self.fields.get(usize::try_from(number).ok()?)?.as_ref()
    }

    /// The field of a name in JSON, with its number.
    pub(crate) fn named(&self, name: &str) -> Option<(u32, &ProtobufField)> {
        let number = *self.by_name.get(name)?;
        match self.field(number)? {
            FieldTarget::Field(field) => Some((number, field)),
            FieldTarget::Embedded(_) => None,
        }
    }

    /// All fields, by number.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (u32, &FieldTarget)> {
        let numbered = (0..).zip(&self.fields);
        numbered.filter_map(|(number, target)| Some((number, target.as_ref()?)))
    }
}
