//! Types and their fields, as the tables of facts state them.
//!
//! There is one [`Model`] of all of Kubernetes' types, and one of each CustomResourceDefinition version. All functions
//! of this crate that decode, default, merge, publish and validate objects read it.

use super::rules::{CodeId, RuleCode, ValueCheck};
use crate::releases::Availability;
pub(crate) use berth_protobuf::facts::{TypeId, ValueShape};
use rustc_hash::FxHashMap;
use serde_json::Value;

/// The handling of a missing or zero value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// The value is kept as the client wrote it.
    AsWritten,
    /// A zero value is left out.
    OmittedWhenZero,
    /// A missing value is written as the zero value.
    AlwaysWritten,
}

/// The relation of the entries of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum ListType {
    /// The list is replaced as a whole.
    #[default]
    Atomic,
    /// Entries are unique scalars.
    Set,
    /// Entries are objects that these fields together identify.
    Map(Vec<Box<str>>),
}

/// The effect of a strategic merge patch on a field.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PatchStrategy {
    /// The list is merged instead of replaced.
    pub(crate) merge: bool,
    /// Clients send `$retainKeys`: of a union, only the named members survive.
    pub(crate) retain_keys: bool,
    /// The object is replaced instead of merged.
    pub(crate) replace: bool,
}

/// One field of an object type.
#[derive(Debug, Clone)]
pub(crate) struct ModelField {
    /// The name in JSON.
    pub(crate) name: Box<str>,
    /// The number in protobuf, which is the order of declaration; 0 for a custom resource.
    pub(crate) number: u8,
    /// The shape of the value.
    pub(crate) shape: ValueShape,
    /// The handling of a missing or zero value.
    pub(crate) presence: Presence,
    /// Whether the field is a pointer in Go: its absence differs from its zero value.
    pub(crate) pointer: bool,
    /// Whether OpenAPI lists it as required.
    pub(crate) required: bool,
    /// The relation of the entries of a list.
    pub(crate) list: ListType,
    /// Whether a map or object is owned as a whole (`Some(true)`) or, against its type, by field (`Some(false)`).
    pub(crate) atomic: Option<bool>,
    /// The effect of a strategic merge patch.
    pub(crate) patch: PatchStrategy,
    /// The field that identifies an entry in a strategic merge patch.
    pub(crate) merge_key: Option<Box<str>>,
    /// The value that a missing field gets.
    pub(crate) default: Option<Value>,
    /// The values that Kubernetes enumerates for the type of the field.
    pub(crate) values: Vec<Box<str>>,
    /// The markers of declarative validation, such as `maxItems=8`.
    pub(crate) markers: Vec<&'static str>,
    /// The releases and the gate of the field.
    pub(crate) availability: Availability,
}

/// A line of a type's validation.
#[derive(Debug, Clone)]
pub(crate) struct ModelRule {
    /// The index of the field that is checked; `None` is the object as a whole.
    pub(crate) field: Option<usize>,
    /// The name under which errors report it.
    pub(crate) shown: &'static str,
    /// The checks, in this order.
    pub(crate) checks: Vec<ValueCheck>,
}

/// An object with known fields.
#[derive(Debug, Clone)]
pub(crate) struct ObjectType {
    /// The name in the tables, such as `core.v1.PodSpec`.
    pub(crate) name: Box<str>,
    /// The fields, sorted by name.
    pub(crate) fields: Vec<ModelField>,
    /// Whether unknown fields are kept (custom resources only).
    pub(crate) open: bool,
    /// Whether objects of this type are owned as a whole.
    pub(crate) atomic: bool,
    /// The validation of objects, in order.
    pub(crate) rules: Vec<ModelRule>,
    /// The functions that fill in defaults that depend on other fields.
    pub(crate) defaults: Vec<CodeId>,
    /// Whether this type or one below it has rules.
    pub(crate) has_rules: bool,
    /// Whether this type or one below it has defaults.
    pub(crate) has_defaults: bool,
    /// Whether this type or one below it has fields that depend on a feature gate.
    pub(crate) has_gates: bool,
}

/// Object types that refer to each other.
#[derive(Debug, Clone, Default)]
pub struct Model {
    pub(super) types: Vec<ObjectType>,
    pub(super) by_name: FxHashMap<Box<str>, TypeId>,
    pub(super) code: Vec<RuleCode>,
}

// === impl Field ===

impl ModelField {
    /// A field with a name and a shape only.
    pub(crate) fn new(name: &str, shape: ValueShape) -> Self {
        Self {
            name: name.into(),
            number: 0,
            shape,
            presence: Presence::AsWritten,
            pointer: false,
            required: false,
            list: ListType::Atomic,
            atomic: None,
            patch: PatchStrategy::default(),
            merge_key: None,
            default: None,
            values: Vec::new(),
            markers: Vec::new(),
            availability: Availability::default(),
        }
    }
}

impl ModelField {
    /// Returns whether the field has a marker without a value, such as `unionMember`.
    pub(crate) fn is_marked(&self, marker: &str) -> bool {
        self.markers.contains(&marker)
    }

    /// The value of a marker, such as `maxItems`.
    pub(crate) fn marker(&self, name: &str) -> Option<&'static str> {
        let values = self.markers.iter().filter_map(|m| m.split_once('='));
        values.filter(|(n, _)| *n == name).map(|(_, v)| v).next()
    }

    /// The value that is written for an absent field that is always written; `None` if the field is omitted.
    pub(crate) fn zero(&self) -> Option<Value> {
        if self.pointer {
            Some(Value::Null)
        } else {
            self.shape.zero()
        }
    }
}

// === impl PatchStrategy ===

impl PatchStrategy {
    /// The strategies as `x-kubernetes-patch-strategy` spells them; `None` when there is none.
    pub(crate) fn text(self) -> Option<&'static str> {
        match (self.merge, self.retain_keys, self.replace) {
            (true, true, _) => Some("merge,retainKeys"),
            (true, false, _) => Some("merge"),
            (false, true, _) => Some("retainKeys"),
            (false, false, true) => Some("replace"),
            (false, false, false) => None,
        }
    }
}

// === impl ObjectType ===

impl ObjectType {
    /// A type without fields.
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            fields: Vec::new(),
            open: false,
            atomic: false,
            rules: Vec::new(),
            defaults: Vec::new(),
            has_rules: false,
            has_defaults: false,
            has_gates: false,
        }
    }

    /// A field by its name in JSON.
    pub(crate) fn field(&self, name: &str) -> Option<&ModelField> {
        self.position(name).and_then(|i| self.fields.get(i))
    }

    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.fields
            .binary_search_by(|field| (*field.name).cmp(name))
            .ok()
    }

    /// The last part of the name, such as `PodSpec`.
    pub(crate) fn short_name(&self) -> &str {
        self.name.rsplit('.').next().unwrap_or(&self.name)
    }

    /// The name as error messages print it, such as `v1.PodSpec`.
    pub(crate) fn go_name(&self) -> &str {
        self.name
            .split_once('.')
            .map_or(&*self.name, |(_, rest)| rest)
    }
}

// === impl Model ===

impl Model {
    /// The code that the rules name or state.
    pub(crate) fn code(&self) -> &[RuleCode] {
        &self.code
    }

    /// A type by its name, such as `core.v1.PodSpec`.
    pub(crate) fn find(&self, name: &str) -> Option<TypeId> {
        self.by_name.get(name).copied()
    }

    /// A type by its index, which this model has handed out.
    pub(crate) fn object_type(&self, id: TypeId) -> &ObjectType {
        &self.types[id.0]
    }

    /// Every type, in the order of the tables.
    pub(crate) fn object_types(&self) -> &[ObjectType] {
        &self.types
    }

    /// Adds a type and returns its index.
    pub(crate) fn add(&mut self, object_type: ObjectType) -> TypeId {
        let id = TypeId(self.types.len());
        self.by_name.insert(object_type.name.clone(), id);
        self.types.push(object_type);
        id
    }

    /// A field of a type that this model has, to change it.
    pub(super) fn field_mut(&mut self, type_name: &str, name: &str) -> Option<&mut ModelField> {
        let id = self.find(type_name)?;
        let object_type = self.types.get_mut(id.0)?;
        let at = object_type.position(name)?;
        object_type.fields.get_mut(at)
    }

    /// Replaces a type that was added.
    pub(crate) fn set(&mut self, id: TypeId, object_type: ObjectType) {
        if let Some(slot) = self.types.get_mut(id.0) {
            *slot = object_type;
        }
    }

    /// The Go name of a shape as decoding errors print it.
    pub(crate) fn go_type(&self, shape: &ValueShape) -> String {
        let name = match shape {
            ValueShape::Any | ValueShape::Raw | ValueShape::Fields | ValueShape::SchemaOr(_) => {
                "interface {}"
            }
            ValueShape::Bool => "bool",
            ValueShape::Int32 => "int32",
            ValueShape::Int64 => "int64",
            ValueShape::Float => "float64",
            ValueShape::String => "string",
            ValueShape::Bytes => "[]uint8",
            ValueShape::Time => "v1.Time",
            ValueShape::MicroTime => "v1.MicroTime",
            ValueShape::Duration => "v1.Duration",
            ValueShape::Quantity => "resource.Quantity",
            ValueShape::IntOrString => "intstr.IntOrString",
            ValueShape::Strings => "[]string",
            ValueShape::Object(id) => self.object_type(*id).go_name(),
            ValueShape::List(items) => return format!("[]{}", self.go_type(items)),
            ValueShape::Map(values) => return format!("map[string]{}", self.go_type(values)),
        };
        name.to_owned()
    }
}
