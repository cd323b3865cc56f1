//! The other half of [`super::prune`]: the fields that a typed server writes though nobody gave them a value,
//! such as `status: {}`, the counters of a budget's status or the times of an event.

use super::model::{Model, Shape, TypeId};
use super::presence::Presence;
use serde_json::{Map, Value};

/// Adds to an object what is always written.
pub(super) fn complete(model: &Model, kind: TypeId, object: &mut Value) {
    complete_value(model, &Shape::Object(kind), object);
}

fn complete_value(model: &Model, shape: &Shape, value: &mut Value) {
    match (shape, value) {
        (Shape::Object(id), Value::Object(object)) => {
            for (name, field) in &model.object_type(*id).fields {
                if field.presence == Presence::AlwaysWritten
                    && !object.contains_key(name)
                    && let Some(zero) = zero(&field.shape)
                {
                    object.insert(name.clone(), zero);
                }
                if let Some(value) = object.get_mut(name) {
                    complete_value(model, &field.shape, value);
                }
            }
        }
        (Shape::List(items), Value::Array(list)) => {
            for value in list {
                complete_value(model, items, value);
            }
        }
        (Shape::Map(values), Value::Object(map)) => {
            for value in map.values_mut() {
                complete_value(model, values, value);
            }
        }
        _ => {}
    }
}

/// The zero value of a shape as it is written; `None` where nothing is.
pub(super) fn zero(shape: &Shape) -> Option<Value> {
    match shape {
        Shape::Bool => Some(Value::Bool(false)),
        Shape::Int32 | Shape::Int64 | Shape::Float | Shape::IntOrString => Some(Value::from(0)),
        Shape::String => Some(Value::String(String::new())),
        Shape::Quantity => Some(Value::String("0".to_owned())),
        Shape::Object(_) => Some(Value::Object(Map::new())),
        Shape::Time | Shape::MicroTime => Some(Value::Null),
        Shape::Any | Shape::AnyObject | Shape::Bytes | Shape::List(_) | Shape::Map(_) => None,
    }
}
