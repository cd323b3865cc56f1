//! A structural schema as a [`Model`], for server-side apply.

use crate::schema::Schemas;
use crate::schema::model::{ListType, Model, ModelField, ObjectType, TypeId, ValueShape};
use crate::view::FieldView;
use serde_json::Value;

/// The model of a schema and the type of its objects.
pub(super) fn of(schema: &Value) -> (Model, TypeId) {
    let mut model = Model::default();
    let kubernetes = Schemas::get().model();
    let metadata = kubernetes
        .find("meta.v1.ObjectMeta")
        .map_or(ValueShape::Any, |id| {
            ValueShape::Object(import(&mut model, kubernetes, id))
        });
    let mut fields = fields(&mut model, schema, "");
    for (name, shape) in [
        ("apiVersion", ValueShape::String),
        ("kind", ValueShape::String),
        ("metadata", metadata),
    ] {
        fields.retain(|field| &*field.name != name);
        fields.push(ModelField::new(name, shape));
    }
    let root = object(&mut model, schema, "", fields);
    (model, root)
}

/// Copies a type and all types below it from another model.
fn import(model: &mut Model, from: &Model, id: TypeId) -> TypeId {
    let original = from.object_type(id);
    if let Some(known) = model.find(&original.name) {
        return known;
    }
    let copied = model.add(ObjectType::new(&original.name));
    let mut object_type = original.clone();
    for field in &mut object_type.fields {
        field.shape = import_shape(model, from, &field.shape);
    }
    model.set(copied, object_type);
    copied
}

fn import_shape(model: &mut Model, from: &Model, shape: &ValueShape) -> ValueShape {
    match shape {
        ValueShape::Object(id) => ValueShape::Object(import(model, from, *id)),
        ValueShape::List(items) => ValueShape::List(Box::new(import_shape(model, from, items))),
        ValueShape::Map(values) => ValueShape::Map(Box::new(import_shape(model, from, values))),
        other => other.clone(),
    }
}

fn object(model: &mut Model, schema: &Value, path: &str, mut fields: Vec<ModelField>) -> TypeId {
    fields.sort_by(|a, b| a.name.cmp(&b.name));
    let mut object_type = ObjectType::new(&format!("custom{path}"));
    object_type.fields = fields;
    object_type.open = schema.flag("x-kubernetes-preserve-unknown-fields");
    object_type.atomic = schema.text("x-kubernetes-map-type") == "atomic";
    model.add(object_type)
}

fn fields(model: &mut Model, schema: &Value, path: &str) -> Vec<ModelField> {
    let mut fields = Vec::new();
    for (name, property) in schema.entries("properties") {
        let shape = shape(model, property, &format!("{path}.{name}"));
        let mut field = ModelField::new(name, shape);
        field.default = property.field("default").cloned();
        field.list = match property.text("x-kubernetes-list-type") {
            "set" => ListType::Set,
            "map" => {
                let keys = property.strings("x-kubernetes-list-map-keys");
                ListType::Map(keys.into_iter().map(Box::from).collect())
            }
            _ => ListType::Atomic,
        };
        field.atomic = match property.text("x-kubernetes-map-type") {
            "" => None,
            text => Some(text == "atomic"),
        };
        fields.push(field);
    }
    fields
}

fn shape(model: &mut Model, schema: &Value, path: &str) -> ValueShape {
    if schema.flag("x-kubernetes-int-or-string") {
        return ValueShape::IntOrString;
    }
    let additional = schema.part("additionalProperties");
    match schema.text("type") {
        "object" if schema.field("properties").is_some() => {
            let mut fields = fields(model, schema, path);
            // An embedded object has these fields whether its schema lists them or not.
            if schema.flag("x-kubernetes-embedded-resource") {
                let missing = ["apiVersion", "kind", "metadata"];
                let is_missing = |n: &&str| !fields.iter().any(|f| &*f.name == *n);
                let missing: Vec<&str> = missing.into_iter().filter(is_missing).collect();
                fields.extend(
                    missing
                        .into_iter()
                        .map(|name| ModelField::new(name, ValueShape::Any)),
                );
            }
            ValueShape::Object(object(model, schema, path, fields))
        }
        "object" if additional.is_object() => {
            ValueShape::Map(Box::new(shape(model, additional, &format!("{path}.*"))))
        }
        "array" => {
            let items = shape(model, schema.part("items"), &format!("{path}[]"));
            ValueShape::List(Box::new(items))
        }
        "string" => ValueShape::String,
        "integer" => ValueShape::Int64,
        "number" => ValueShape::Float,
        "boolean" => ValueShape::Bool,
        _ => ValueShape::Any,
    }
}
