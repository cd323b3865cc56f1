//! An object as a typed server keeps it: without the fields its type does not have, without nulls and empty
//! lists and maps, quantities and times in their canonical form. What a decode into the type and back would do.

use super::model::{Model, Shape, TypeId};
use berth_api::Quantity;
use serde_json::{Map, Value};
use std::borrow::Cow;

/// Prunes an object of the type of its kind, in place. Values of another type stay as they are.
pub(super) fn prune(model: &Model, kind: TypeId, object: &mut Value) {
    prune_value(model, &Shape::Object(kind), object);
}

fn prune_value(model: &Model, shape: &Shape, value: &mut Value) {
    match (shape, value) {
        (Shape::Object(id), Value::Object(object)) => {
            let object_type = model.object_type(*id);
            let nulls_stay = prints_null_times(object_type.short_name());
            object.retain(|name, value| match object_type.fields.get(name) {
                Some(field) if value.is_null() => {
                    nulls_stay && matches!(field.shape, Shape::Time | Shape::MicroTime)
                }
                Some(field) => {
                    prune_value(model, &field.shape, value);
                    let is_optional = !object_type.required.iter().any(|r| r == name);
                    !(is_optional && is_empty(&field.shape, value))
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

/// An empty list or map is as good as none, unless it is required.
fn is_empty(shape: &Shape, value: &Value) -> bool {
    match (shape, value) {
        (Shape::List(_), Value::Array(list)) => list.is_empty(),
        (Shape::Map(_), Value::Object(map)) => map.is_empty(),
        _ => false,
    }
}

/// Types whose times are not optional: unset, they print as null, and clients send that back.
fn prints_null_times(short_name: &str) -> bool {
    short_name.ends_with("Condition")
        || matches!(
            short_name,
            "ContainerStateRunning" | "ContainerStateTerminated" | "Event" | "EventSeries"
        )
}

/// A null in a list or map is its type's zero value: there it cannot be absent.
fn zero_for_null(shape: &Shape, value: &mut Value) {
    if !value.is_null() {
        return;
    }
    *value = match shape {
        Shape::Bool => Value::Bool(false),
        Shape::Int32 | Shape::Int64 | Shape::Float | Shape::IntOrString => Value::from(0),
        Shape::String => Value::String(String::new()),
        Shape::Quantity => Value::String("0".to_owned()),
        Shape::Object(_) => Value::Object(Map::new()),
        Shape::Any
        | Shape::AnyObject
        | Shape::Bytes
        | Shape::Time
        | Shape::MicroTime
        | Shape::List(_)
        | Shape::Map(_) => return,
    };
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
