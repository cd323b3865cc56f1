//! Objects with a list of a given length.

use super::lists::{Place, fields};
use super::samples;
use berth_protobuf::facts::{Facts, FieldFacts, TypeFacts, ValueShape, words};
use serde_json::{Map, Value, json};

/// An object of the kind of a place that is valid without the list.
pub(super) fn base(place: &Place) -> Value {
    let facts = Facts::get();
    let id = facts.find(place.kind.type_name).expect("a known type");
    let mut object = sample(&facts.types[id.0], 0);
    if place.kind.plural == "persistentvolumeclaims" {
        // The name of a template of a StatefulSet.
        object["metadata"] = json!({});
    }
    object["apiVersion"] = place.kind.api_version.into();
    object["kind"] = kind_of(place).into();
    object
}

fn kind_of(place: &Place) -> &'static str {
    place.kind.type_name.rsplit('.').next().unwrap_or_default()
}

/// An object whose list has `count` entries. `rotated` moves its entries: the last becomes the first.
pub(super) fn with_list(place: &Place, count: usize, rotated: bool) -> Value {
    let mut object = base(place);
    put(&mut object, place, count, rotated);
    samples::fit(place, &mut object);
    object
}

/// An object of the kind of a place, with lists of a given length.
pub(super) fn with_lists(kind: &Place, lists: &[(&Place, usize)]) -> Value {
    let mut object = base(kind);
    // A list is created before the lists of its first entry.
    let mut lists = lists.to_vec();
    lists.sort_by_key(|(place, _)| place.fields.len());
    for (place, count) in &lists {
        put(&mut object, place, *count, false);
    }
    for (place, _) in &lists {
        samples::fit(place, &mut object);
    }
    object
}

/// Puts a list of `count` entries into an object.
fn put(object: &mut Value, place: &Place, count: usize, rotated: bool) {
    let mut value = object;
    let facts = Facts::get();
    let mut of = &facts.types[facts.find(place.kind.type_name).expect("a known type").0];
    let last = place.fields.len() - 1;
    for (i, field) in place.fields.iter().enumerate() {
        samples::choose(of, field.name, value);
        if i == last {
            value[field.name] = list(of, field, count, rotated);
            break;
        }
        if value.get(field.name).is_none_or(is_empty) {
            value[field.name] = filled(of, field, 0);
        }
        value = &mut value[field.name];
        value = match (&field.shape, value) {
            (ValueShape::List(_), value) => &mut value[0],
            (ValueShape::Map(_), Value::Object(map)) => map.values_mut().next().expect("an entry"),
            (_, value) => value,
        };
        let id = field.shape.object().expect("an object");
        of = &facts.types[id.0];
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(list) => list.is_empty(),
        Value::Object(_) => false,
        value => value.is_null(),
    }
}

/// A list or a map of `count` entries.
fn list(of: &'static TypeFacts, field: &'static FieldFacts, count: usize, rotated: bool) -> Value {
    let entries: Vec<Value> = match &field.shape {
        ValueShape::List(items) => (0..count).map(|i| value(of, field, items, i)).collect(),
        ValueShape::Map(values) => {
            let entry = |i| (samples::key(of, field, i), value(of, field, values, i));
            let entries: Map<String, Value> = (0..count).map(entry).collect();
            return entries.into();
        }
        _ => (0..count)
            .map(|i| samples::text(of, field, i).into())
            .collect(),
    };
    let mut entries = entries;
    if rotated {
        entries.rotate_right(1);
    }
    entries.into()
}

/// An object of a type: a sample, or its required fields.
fn sample(of: &'static TypeFacts, i: usize) -> Value {
    if let Some(sample) = samples::of_type(of.name, i) {
        return sample;
    }
    let mut object = json!({});
    for field in fields(of) {
        if is_required(field) {
            object[field.name] = filled(of, field, i);
        }
    }
    object
}

fn is_required(field: &FieldFacts) -> bool {
    let stated = words(field.attributes).find(|word| matches!(*word, "req" | "opt"));
    stated.map_or(field.omitted == 0, |word| word == "req")
}

/// A value of a field; lists and maps have one entry.
fn filled(of: &'static TypeFacts, field: &'static FieldFacts, i: usize) -> Value {
    match &field.shape {
        ValueShape::List(items) => vec![value(of, field, items, i)].into(),
        ValueShape::Map(values) => {
            let entry = value(of, field, values, i);
            let mut map = Map::new();
            map.insert(samples::key(of, field, 0), entry);
            map.into()
        }
        shape => value(of, field, shape, i),
    }
}

fn value(
    of: &'static TypeFacts,
    field: &'static FieldFacts,
    shape: &'static ValueShape,
    i: usize,
) -> Value {
    match shape {
        ValueShape::Object(id) => sample(&Facts::get().types[id.0], i),
        ValueShape::List(items) => vec![value(of, field, items, i)].into(),
        ValueShape::Map(values) => json!({samples::key(of, field, 0): value(of, field, values, i)}),
        ValueShape::Bool => false.into(),
        ValueShape::Int32 | ValueShape::Int64 | ValueShape::Float => (i + 1).into(),
        ValueShape::IntOrString => 1.into(),
        ValueShape::Quantity => "1".into(),
        ValueShape::Bytes => "YQ==".into(),
        ValueShape::Time => "2026-01-02T03:04:05Z".into(),
        ValueShape::MicroTime => "2026-01-02T03:04:05.000000Z".into(),
        ValueShape::Duration => "1s".into(),
        ValueShape::Strings => json!([samples::text(of, field, i)]),
        ValueShape::Any | ValueShape::Raw | ValueShape::Fields | ValueShape::SchemaOr(_) => {
            json!({})
        }
        ValueShape::String => samples::text(of, field, i).into(),
    }
}
