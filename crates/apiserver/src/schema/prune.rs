//! An object as a typed server keeps it: without the fields its type does not have, without nulls, empty lists
//! and maps and meaningless zero values, quantities and times in their canonical form. What a decode into the
//! type and back would do, but for what [`super::complete`] adds.

use super::complete::zero;
use super::model::{Model, Shape, TypeId};
use super::presence::Presence;
use berth_api::Quantity;
use serde_json::Value;
use std::borrow::Cow;

/// Prunes an object of the type of its kind, in place. Values of another type stay as they are.
pub(super) fn prune(model: &Model, kind: TypeId, object: &mut Value) {
    prune_value(model, &Shape::Object(kind), object);
}

fn prune_value(model: &Model, shape: &Shape, value: &mut Value) {
    match (shape, value) {
        (Shape::Object(id), Value::Object(object)) => {
            let object_type = model.object_type(*id);
            object.retain(|name, value| match object_type.fields.get(name) {
                // Times that are always written print as null, and clients send that back.
                Some(field) if value.is_null() => {
                    field.presence == Presence::AlwaysWritten
                        && matches!(field.shape, Shape::Time | Shape::MicroTime)
                }
                Some(field) => {
                    prune_value(model, &field.shape, value);
                    field.presence != Presence::OmittedWhenZero || !is_zero(value)
                }
                None => false,
            });
        }
        (Shape::List(items), Value::Array(list)) => {
            for value in list {
                zero_for_null(items, value);
                prune_value(model, items, value);
            }
        }
        (Shape::Map(values), Value::Object(map)) => {
            for value in map.values_mut() {
                zero_for_null(values, value);
                prune_value(model, values, value);
            }
        }
        (Shape::Quantity, value) => {
            let canonical = match &*value {
                Value::String(text) => canonical_quantity(text),
                Value::Number(number) => canonical_quantity(&number.to_string()),
                _ => None,
            };
            if let Some(text) = canonical {
                *value = Value::String(text);
            }
        }
        (Shape::Time, Value::String(text)) => replace_time(text, 0),
        (Shape::MicroTime, Value::String(text)) => replace_time(text, 6),
        _ => {}
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => object.is_empty(),
    }
}

/// A null in a list or map is its type's zero value: there it cannot be absent.
fn zero_for_null(shape: &Shape, value: &mut Value) {
    if value.is_null()
        && let Some(zero) = zero(shape)
    {
        *value = zero;
    }
}

/// The canonical text, unless the text is that already or no quantity.
fn canonical_quantity(text: &str) -> Option<String> {
    Quantity::wire_text(text).ok().map(Cow::into_owned)
}

/// Rewrites a time as UTC with so many digits after the second.
fn replace_time(text: &mut String, precision: u8) {
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        let precision = usize::from(precision);
        *text = format!("{time:.precision$}");
    }
}
