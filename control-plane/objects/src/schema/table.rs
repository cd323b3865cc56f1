//! The model of the types in the tables of facts ([`berth_protobuf::facts`]).

use super::model::{ListType, Model, ModelField, ObjectType, Presence};
use crate::releases::release_of;
use berth_protobuf::facts::{Facts, FieldFacts, TypeFacts, ValueShape, words};
use serde_json::Value;

/// The model, and the lines that could not be read.
pub(super) fn read(facts: &'static Facts) -> (Model, Vec<String>) {
    let mut model = Model::default();
    let mut faults = facts.faults.clone();
    for of in &facts.types {
        let mut object_type = ObjectType::new(of.name);
        object_type.atomic = of.atomic;
        add_fields(facts, of, &mut object_type.fields, &mut faults);
        if of.object {
            object_type
                .fields
                .extend(["apiVersion", "kind"].map(|name| {
                    let mut field = ModelField::new(name, ValueShape::String);
                    field.presence = Presence::OmittedWhenZero;
                    field
                }));
        }
        // Sorted fields are found by a binary search, and errors have a stable order.
        object_type.fields.sort_by(|a, b| a.name.cmp(&b.name));
        model.add(object_type);
    }
    for resource in &facts.resources {
        // A release that does not exist is a fault of the table, not of a request.
        if release_of(resource.since).is_none() {
            faults.push(format!("{}: {:?}", resource.type_name, resource.since));
        }
    }
    (model, faults)
}

/// Adds the fields of a type, including embedded types.
fn add_fields(
    facts: &'static Facts,
    of: &'static TypeFacts,
    fields: &mut Vec<ModelField>,
    faults: &mut Vec<String>,
) {
    for field in &of.fields {
        match field.shape {
            ValueShape::Object(id) if field.name == FieldFacts::EMBEDDED => {
                add_fields(facts, &facts.types[id.0], fields, faults);
            }
            _ => match model_field(field) {
                Some(field) => fields.push(field),
                None => faults.push(format!("{}: {}", of.name, field.name)),
            },
        }
    }
}

fn model_field(facts: &'static FieldFacts) -> Option<ModelField> {
    let mut field = ModelField::new(facts.name, facts.shape.clone());
    field.availability.since = release_of(facts.since)?;
    // Zero if the protobuf number is unknown.
    field.number = facts.number.unwrap_or(0);
    field.pointer = facts.pointer;
    field.required = facts.omitted == 0;
    field.presence = presence(&field.shape, facts.pointer, facts.omitted);
    for word in words(facts.attributes) {
        attribute(&mut field, word)?;
    }
    Some(field)
}

/// Go omits zero values with `omitempty`; but a struct is never omitted unless it has `omitzero` (two marks).
fn presence(shape: &ValueShape, pointer: bool, omitted: usize) -> Presence {
    let is_struct = matches!(
        shape,
        ValueShape::Object(_)
            | ValueShape::Time
            | ValueShape::MicroTime
            | ValueShape::Duration
            | ValueShape::Quantity
            | ValueShape::IntOrString
    );
    match (shape, pointer, omitted) {
        (_, true, 1..)
        | (
            ValueShape::Any | ValueShape::Raw | ValueShape::Fields | ValueShape::SchemaOr(_),
            _,
            _,
        ) => Presence::AsWritten,
        (_, _, 2..) => Presence::AsWritten,
        _ if is_struct => Presence::AlwaysWritten,
        (_, _, 0) => Presence::AlwaysWritten,
        _ => Presence::OmittedWhenZero,
    }
}

fn attribute(field: &mut ModelField, word: &'static str) -> Option<()> {
    if let Some(marker) = word.strip_prefix('!') {
        field.markers.push(marker);
        return Some(());
    }
    let Some((label, value)) = word.split_once('=') else {
        field.required = match word {
            "req" => true,
            "opt" => false,
            _ => return None,
        };
        return Some(());
    };
    match label {
        "list" => {
            field.list = match value.strip_prefix("map(").and_then(|v| v.strip_suffix(')')) {
                Some(keys) => ListType::Map(keys.split(',').map(Box::from).collect()),
                // An unknown word is a fault of the table, so that a misspelling is not ignored.
                None if value == "set" => ListType::Set,
                None => return None,
            };
        }
        "map" => field.atomic = Some(value == "atomic"),
        "patch" => {
            for strategy in value.split(',') {
                match strategy {
                    "merge" => field.patch.merge = true,
                    "retainKeys" => field.patch.retain_keys = true,
                    "replace" => field.patch.replace = true,
                    _ => return None,
                }
            }
        }
        "key" => field.merge_key = Some(value.into()),
        "default" => field.default = serde_json::from_str::<Value>(value).ok(),
        "enum" => {
            field.values = value.trim_matches('"').split(',').map(Box::from).collect();
        }
        _ => return None,
    }
    Some(())
}
