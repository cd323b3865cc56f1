//! Fills in the defaults that the tables state.
//!
//! As in Kubernetes, a pointer field gets its default when it is absent, any other field when it is zero. A type's
//! constant defaults are set before the defaults of the types below it; defaults that depend on other fields are last.

use super::owner::Code;
use crate::schema::model::{Model, TypeId, ValueShape};
use crate::view::is_zero;
use serde_json::Value;

/// Fills in the defaults of an object of a type.
pub(crate) fn fill(model: &Model, code: &Code, id: TypeId, object: &mut Value) {
    let object_type = model.object_type(id);
    let Value::Object(map) = &mut *object else {
        return;
    };
    if !object_type.has_defaults {
        return;
    }
    for field in &object_type.fields {
        if let Some(default) = &field.default {
            let missing = match map.get(&*field.name) {
                None | Some(Value::Null) => true,
                // An absent pointer differs from zero; other fields are absent when they are zero.
                value => {
                    !field.pointer
                        && !matches!(field.shape, ValueShape::Object(_))
                        && is_zero(value)
                }
            };
            if missing {
                map.insert(field.name.to_string(), default.clone());
            }
        }
        let below = field.shape.object();
        let below = below.filter(|id| model.object_type(*id).has_defaults);
        if let Some(id) = below
            && let Some(value) = map.get_mut(&*field.name)
        {
            match (&field.shape, value) {
                (ValueShape::Object(_), value) => fill(model, code, id, value),
                (_, Value::Array(list)) => list.iter_mut().for_each(|v| fill(model, code, id, v)),
                (_, Value::Object(map)) => map.values_mut().for_each(|v| fill(model, code, id, v)),
                _ => {}
            }
        }
    }
    for function in &object_type.defaults {
        code.fill(*function, object);
    }
}
