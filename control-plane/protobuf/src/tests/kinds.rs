//! Objects at random: the type of each kind decodes JSON and protobuf alike.

use crate::facts::ValueShape;
use crate::types::{FieldTarget, MessageType, Types};
use crate::{Object, encode};
use berth_api::Kind;
use serde_json::{Map, Value, json};

const SEED: u64 = 0x00b1_7e5e;
const ROUNDS: usize = 60;

/// An object in both forms. In the first, fields that JSON leaves out when they are zero are left out; the message
/// contains them.
struct Forms {
    json: Map<String, Value>,
    message: Map<String, Value>,
}

fn object(message: &MessageType, random: &mut fastrand::Rng, depth: usize) -> Forms {
    let mut forms = Forms {
        json: Map::new(),
        message: Map::new(),
    };
    for (_, target) in message.fields() {
        match target {
            FieldTarget::Embedded(at) => {
                let inner = object(Types::get().at(*at), random, depth + 1);
                forms.json.extend(inner.json);
                forms.message.extend(inner.message);
            }
            // Some of each: absent, zero, and with a value.
            FieldTarget::Field(field) => {
                let choice = random.u8(..6);
                if choice == 0 || depth > 7 {
                    continue;
                }
                let (in_json, in_message) = value(field.shape, random, depth, choice == 1);
                // Protobuf has no empty lists and maps.
                if in_json.as_array().is_some_and(Vec::is_empty)
                    || is_empty_map(field.shape, &in_json)
                {
                    continue;
                }
                if !(choice == 1 && field.omits_zero && is_plain(field.shape)) {
                    forms.json.insert(field.name.to_owned(), in_json);
                }
                forms.message.insert(field.name.to_owned(), in_message);
            }
        }
    }
    forms
}

fn is_empty_map(shape: &ValueShape, value: &Value) -> bool {
    matches!(shape, ValueShape::Map(_)) && value.as_object().is_some_and(Map::is_empty)
}

/// Returns whether JSON leaves out the zero of an optional field.
fn is_plain(shape: &ValueShape) -> bool {
    matches!(
        shape,
        ValueShape::Bool
            | ValueShape::Int32
            | ValueShape::Int64
            | ValueShape::String
            | ValueShape::Bytes
    )
}

fn value(
    shape: &ValueShape,
    random: &mut fastrand::Rng,
    depth: usize,
    is_zero: bool,
) -> (Value, Value) {
    let same = |value: Value| (value.clone(), value);
    let number = if is_zero { 0 } else { random.i32(1..1_000) };
    match shape {
        ValueShape::Bool => same((number != 0).into()),
        ValueShape::Int32 | ValueShape::Int64 => same(number.into()),
        ValueShape::String | ValueShape::Bytes if is_zero => same("".into()),
        ValueShape::String => same(format!("s{number} é").into()),
        ValueShape::Bytes => same("AAEC".into()),
        ValueShape::Quantity => same(json!(format!("{number}m"))),
        ValueShape::IntOrString if random.bool() => same(format!("{number}%").into()),
        ValueShape::IntOrString => same(number.into()),
        ValueShape::Time if is_zero => same(Value::Null),
        ValueShape::Time => same(format!("2026-01-02T03:04:{:02}Z", number % 60).into()),
        ValueShape::MicroTime => same(format!("2026-01-02T03:04:05.{number:06}Z").into()),
        ValueShape::Strings => same(json!(["a", format!("{number}")])),
        ValueShape::Float | ValueShape::SchemaOr(_) | ValueShape::Duration => {
            unreachable!("not in these kinds")
        }
        ValueShape::Any | ValueShape::Raw | ValueShape::Fields => {
            same(json!({"a": [number, null, {"b": 1.5}], "c": "d"}))
        }
        ValueShape::Object(at) => {
            let Forms { json, message } = object(Types::get().at(*at), random, depth + 1);
            (json.into(), message.into())
        }
        ValueShape::List(items) => {
            let entries = (0..random.usize(..3)).map(|_| value(items, random, depth + 1, false));
            let (json, message): (Vec<Value>, Vec<Value>) = entries.unzip();
            (json.into(), message.into())
        }
        ValueShape::Map(values) => {
            let mut forms = (Map::new(), Map::new());
            for _ in 0..random.usize(..3) {
                let key = format!("k{}", random.u8(..));
                let is_zero = random.bool() && is_plain(values);
                let (json, message) = value(values, random, depth + 1, is_zero);
                forms.0.insert(key.clone(), json);
                forms.1.insert(key, message);
            }
            (forms.0.into(), forms.1.into())
        }
    }
}

#[test]
fn both_forms_of_objects_at_random_are_decoded_alike() {
    let mut random = fastrand::Rng::with_seed(SEED);
    for kind in Kind::ALL {
        let (group, version, _) = kind.resource();
        let api_version = match group {
            "" => version.to_owned(),
            group => format!("{group}/{version}"),
        };
        let message = Types::get().of_kind(&api_version, kind.name());
        let message = message.unwrap_or_else(|| panic!("{kind:?} has no message"));
        for round in 0..ROUNDS {
            let forms = object(message, &mut random, 0);
            let json = Value::Object(forms.json);
            let bytes = encode(message, &Value::Object(forms.message));
            let place = format!("seed {SEED}, {kind:?}, round {round}: {json}");
            let expected = kind.decode(json.to_string().as_bytes());
            let expected = expected.unwrap_or_else(|e| panic!("{place}: {e}"));
            let decoded = kind.decode_from(Object::new(message, &bytes));
            assert_eq!(decoded, Ok(expected), "{place}");
        }
    }
}
