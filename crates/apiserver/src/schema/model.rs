//! The types of one group version in the form that requests are checked against: fields by name, each with its
//! shape and its rule of the extensions table. Compiled once from the generated JSON schemas.

use super::extensions::{self, FieldRule};
use super::kinds::{COMPONENTS, GroupVersion};
use super::presence::{self, Presence};
use rustc_hash::FxHashMap;
use serde_json::{Map, Value};

/// The index of an object type in its [`Model`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TypeId(usize);

/// What a value may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Any JSON value; nothing below is checked.
    Any,
    /// Any JSON object; nothing below is checked.
    AnyObject,
    /// `true` or `false`.
    Bool,
    /// A whole number of 32 bits.
    Int32,
    /// A whole number of 64 bits.
    Int64,
    /// A number.
    Float,
    /// A string.
    String,
    /// A base64 string.
    Bytes,
    /// An RFC 3339 time, to the second.
    Time,
    /// An RFC 3339 time, to the microsecond.
    MicroTime,
    /// A resource quantity: a string or a number.
    Quantity,
    /// A 32-bit number or a string.
    IntOrString,
    /// An object with known fields.
    Object(TypeId),
    /// A list.
    List(Box<Shape>),
    /// An object with free keys.
    Map(Box<Shape>),
}

/// One field of an object type.
#[derive(Debug)]
pub(crate) struct Field {
    /// What its value may be.
    pub(crate) shape: Shape,
    /// How it is merged; `None` for the defaults.
    pub(crate) rule: Option<&'static FieldRule>,
    /// What becomes of a missing or zero value.
    pub(crate) presence: Presence,
}

/// An object with known fields.
#[derive(Debug)]
pub(crate) struct ObjectType {
    /// The name in OpenAPI, such as `io.k8s.api.core.v1.PodSpec`.
    pub(crate) name: String,
    /// The fields by JSON name.
    pub(crate) fields: FxHashMap<String, Field>,
    /// The fields that must be there.
    pub(crate) required: Vec<String>,
}

impl ObjectType {
    /// The last part of the name, such as `PodSpec`.
    pub(crate) fn short_name(&self) -> &str {
        self.name.rsplit('.').next().unwrap_or(&self.name)
    }

    /// The name as error messages print it, such as `v1.PodSpec`.
    pub(crate) fn go_name(&self) -> &str {
        let mut dots = self.name.rmatch_indices('.');
        match (dots.next(), dots.next()) {
            (Some(_), Some((at, _))) => &self.name[at + 1..],
            _ => &self.name,
        }
    }
}

/// The types of one group version.
#[derive(Debug)]
pub(crate) struct Model {
    types: Vec<ObjectType>,
    kinds: FxHashMap<&'static str, TypeId>,
}

impl Model {
    /// Compiles the types of a group version.
    pub(crate) fn of(group_version: &GroupVersion) -> Self {
        let (definitions, kinds) = group_version.definitions();
        let mut names: Vec<&String> = definitions
            .iter()
            .filter(|(name, schema)| special(name).is_none() && schema.get("properties").is_some())
            .map(|(name, _)| name)
            .collect();
        names.sort();
        let ids: FxHashMap<&str, TypeId> = names
            .iter()
            .enumerate()
            .map(|(i, name)| (name.as_str(), TypeId(i)))
            .collect();
        let types = names
            .iter()
            .map(|name| object_type(name, definitions.get(*name), &ids))
            .collect();
        let kinds = kinds
            .iter()
            .filter_map(|(kind, name)| ids.get(name.as_str()).map(|id| (*kind, *id)))
            .collect();
        Self { types, kinds }
    }

    /// The type of a kind.
    pub(crate) fn kind(&self, kind: &str) -> Option<TypeId> {
        self.kinds.get(kind).copied()
    }

    /// A type by its index, which this model has handed out.
    pub(crate) fn object_type(&self, id: TypeId) -> &ObjectType {
        &self.types[id.0]
    }

    /// Every type.
    #[cfg(test)]
    pub(crate) fn types(&self) -> &[ObjectType] {
        &self.types
    }

    /// The Go name of a shape as decoding errors print it.
    pub(crate) fn go_type(&self, shape: &Shape) -> String {
        match shape {
            Shape::Any | Shape::AnyObject => "interface {}".to_owned(),
            Shape::Bool => "bool".to_owned(),
            Shape::Int32 => "int32".to_owned(),
            Shape::Int64 => "int64".to_owned(),
            Shape::Float => "float64".to_owned(),
            Shape::String => "string".to_owned(),
            Shape::Bytes => "[]uint8".to_owned(),
            Shape::Time => "v1.Time".to_owned(),
            Shape::MicroTime => "v1.MicroTime".to_owned(),
            Shape::Quantity => "resource.Quantity".to_owned(),
            Shape::IntOrString => "intstr.IntOrString".to_owned(),
            Shape::Object(id) => self.object_type(*id).go_name().to_owned(),
            Shape::List(items) => format!("[]{}", self.go_type(items)),
            Shape::Map(values) => format!("map[string]{}", self.go_type(values)),
        }
    }
}

/// The types with a form of their own in JSON.
fn special(name: &str) -> Option<Shape> {
    let rest = name.strip_prefix("io.k8s.apimachinery.pkg.")?;
    match rest {
        "api.resource.Quantity" => Some(Shape::Quantity),
        "apis.meta.v1.FieldsV1" => Some(Shape::AnyObject),
        "apis.meta.v1.MicroTime" => Some(Shape::MicroTime),
        "apis.meta.v1.Time" => Some(Shape::Time),
        "runtime.RawExtension" => Some(Shape::Any),
        "util.intstr.IntOrString" => Some(Shape::IntOrString),
        _ => None,
    }
}

fn object_type(name: &str, schema: Option<&Value>, ids: &FxHashMap<&str, TypeId>) -> ObjectType {
    let required: Vec<String> = schema
        .and_then(|s| s.get("required"))
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        // The generated types always have metadata; the API does not ask for it.
        .filter(|field| *field != "metadata")
        .map(str::to_owned)
        .collect();
    let properties = schema
        .and_then(|s| s.get("properties"))
        .and_then(Value::as_object);
    let fields = properties
        .into_iter()
        .flatten()
        .map(|(field, schema)| {
            let shape = schema
                .as_object()
                .map_or(Shape::Any, |schema| shape(schema, ids));
            let is_required = required.iter().any(|r| r == field);
            let field_type = Field {
                presence: match &shape {
                    Shape::Bool | Shape::Int32 | Shape::Int64 | Shape::Float | Shape::String => {
                        presence::of_scalar(name, field, is_required)
                    }
                    Shape::List(_) | Shape::Map(_) => presence::of_collection(is_required),
                    Shape::Object(_) | Shape::Time | Shape::MicroTime | Shape::Quantity => {
                        presence::of_struct(name, field)
                    }
                    Shape::Any | Shape::AnyObject | Shape::Bytes | Shape::IntOrString => {
                        Presence::AsWritten
                    }
                },
                rule: extensions::field_rule(name, field),
                shape,
            };
            (field.clone(), field_type)
        })
        .collect();
    ObjectType {
        name: name.to_owned(),
        fields,
        required,
    }
}

fn shape(schema: &Map<String, Value>, ids: &FxHashMap<&str, TypeId>) -> Shape {
    let text = |key: &str| schema.get(key).and_then(Value::as_str);
    let nested = |key: &str| {
        schema
            .get(key)
            .and_then(Value::as_object)
            .map(|schema| shape(schema, ids))
    };
    if let Some(name) = text("$ref").and_then(|r| r.strip_prefix(COMPONENTS)) {
        return special(name)
            .or_else(|| ids.get(name).map(|id| Shape::Object(*id)))
            .unwrap_or(Shape::Any);
    }
    match (text("type"), text("format")) {
        (Some("boolean"), _) => Shape::Bool,
        (Some("integer"), Some("int32")) => Shape::Int32,
        (Some("integer"), _) => Shape::Int64,
        (Some("number"), _) => Shape::Float,
        (Some("string"), Some("byte")) => Shape::Bytes,
        (Some("string"), _) => Shape::String,
        (Some("array"), _) => Shape::List(Box::new(nested("items").unwrap_or(Shape::Any))),
        (Some("object"), _) => match nested("additionalProperties") {
            Some(values) => Shape::Map(Box::new(values)),
            None => Shape::AnyObject,
        },
        _ => Shape::Any,
    }
}
