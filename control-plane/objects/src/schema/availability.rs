//! The fields that a release does not have, and fields whose gate is off.

use super::model::{Model, TypeId, ValueShape};
use super::path::SchemaPath;
use super::{GroupVersionKind, Schemas};
use crate::releases::{ApiRelease, Availability};
use rustc_hash::FxHashSet;
use serde_json::Value;

impl ApiRelease {
    /// The fields of an object that the release does not have, in the object's order.
    pub fn foreign_fields(self, model: &Model, root: TypeId, object: &Value) -> Vec<String> {
        let mut found = Vec::new();
        if self.is_single() {
            let mut note = |path: &SchemaPath<'_>, availability: Availability, _: TypeField| {
                if !availability.is_in(self) {
                    found.push(path.to_string());
                }
            };
            visit(
                model,
                &ValueShape::Object(root),
                object,
                &SchemaPath::Root,
                &mut note,
            );
        }
        found
    }
}

/// A field of a type: the type and the place of the field in it.
type TypeField = (TypeId, usize);

/// Calls `found` for each field of an object, outer fields first.
fn visit(
    model: &Model,
    shape: &ValueShape,
    value: &Value,
    path: &SchemaPath<'_>,
    found: &mut dyn FnMut(&SchemaPath<'_>, Availability, TypeField),
) {
    match (shape, value) {
        (ValueShape::Object(id), Value::Object(object)) => {
            let object_type = model.object_type(*id);
            for (name, value) in object {
                // Unknown fields are reported by the decoder.
                let Some(at) = object_type.position(name) else {
                    continue;
                };
                let field = &object_type.fields[at];
                let path = SchemaPath::Field(path, name);
                found(&path, field.availability, (*id, at));
                visit(model, &field.shape, value, &path, found);
            }
        }
        (ValueShape::List(items), Value::Array(list)) => {
            for (i, value) in list.iter().enumerate() {
                visit(model, items, value, &SchemaPath::Index(path, i), found);
            }
        }
        (ValueShape::Map(values), Value::Object(map)) => {
            for (key, value) in map {
                visit(model, values, value, &SchemaPath::Key(path, key), found);
            }
        }
        _ => {}
    }
}

/// Drops the fields of a new object whose gates are off. A field that the stored object has somewhere is kept, so that
/// objects can be changed after a gate was switched off.
pub fn drop_disabled(
    api: ApiRelease,
    kind: GroupVersionKind<'_>,
    new: &mut Value,
    old: Option<&Value>,
) {
    let schemas = Schemas::get();
    let Some(root) = schemas.find(kind) else {
        return;
    };
    let model = schemas.model();
    if api == ApiRelease::EVERY || !model.object_type(root).has_gates {
        return;
    }
    let shape = ValueShape::Object(root);
    // Few objects have such a field.
    if !has_disabled(api, model, &shape, new) {
        return;
    }
    let mut used = FxHashSet::default();
    if let Some(old) = old {
        let mut note = |_: &SchemaPath<'_>, availability: Availability, place: TypeField| {
            if !availability.is_enabled(api) {
                used.insert(place);
            }
        };
        visit(model, &shape, old, &SchemaPath::Root, &mut note);
    }
    drop_below(api, model, &shape, new, &used);
}

/// Returns whether a value has a field whose gate is off.
fn has_disabled(api: ApiRelease, model: &Model, shape: &ValueShape, value: &Value) -> bool {
    match (shape, value) {
        (ValueShape::Object(id), Value::Object(object)) => {
            let object_type = model.object_type(*id);
            // Most types have no gated field below them; they are not visited.
            object_type.has_gates
                && object.iter().any(|(name, value)| {
                    object_type.field(name).is_some_and(|field| {
                        !field.availability.is_enabled(api)
                            || has_disabled(api, model, &field.shape, value)
                    })
                })
        }
        (ValueShape::List(items), Value::Array(list)) => {
            let mut list = list.iter();
            list.any(|value| has_disabled(api, model, items, value))
        }
        (ValueShape::Map(values), Value::Object(map)) => {
            let mut values_of = map.values();
            values_of.any(|value| has_disabled(api, model, values, value))
        }
        _ => false,
    }
}

fn drop_below(
    api: ApiRelease,
    model: &Model,
    shape: &ValueShape,
    value: &mut Value,
    used: &FxHashSet<TypeField>,
) {
    match (shape, value) {
        (ValueShape::Object(id), Value::Object(object)) => {
            let object_type = model.object_type(*id);
            // Most types have no gated field below them; they are not visited.
            if !object_type.has_gates {
                return;
            }
            object.retain(|name, value| {
                let Some(at) = object_type.position(name) else {
                    return true;
                };
                let field = &object_type.fields[at];
                // A field that the stored object uses already is kept, or an update would lose data.
                if !field.availability.is_enabled(api) && !used.contains(&(*id, at)) {
                    return false;
                }
                drop_below(api, model, &field.shape, value, used);
                true
            });
        }
        (ValueShape::List(items), Value::Array(list)) => {
            for value in list {
                drop_below(api, model, items, value, used);
            }
        }
        (ValueShape::Map(values), Value::Object(map)) => {
            for value in map.values_mut() {
                drop_below(api, model, values, value, used);
            }
        }
        _ => {}
    }
}
