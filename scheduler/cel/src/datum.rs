//! Values that programs read and form: from JSON, and to JSON.

use crate::environment::JSON_PATCH;
use crate::error::EvaluationError;
use crate::value::{CelValue, Map, MapKey, Steps, Time};
use std::sync::Arc;

/// A value for a program.
#[derive(Debug, Clone)]
pub struct Datum(pub(crate) CelValue);

impl Datum {
    /// A value of JSON.
    pub fn json(value: &serde_json::Value) -> Self {
        use serde_json::Value as Json;
        Self(match value {
            Json::Null => CelValue::Null,
            Json::Bool(value) => CelValue::Bool(*value),
            Json::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(value), _) => CelValue::Int(value),
                (None, Some(value)) => CelValue::Uint(value),
                (None, None) => CelValue::Double(number.as_f64().unwrap_or_default()),
            },
            Json::String(text) => CelValue::text(text),
            Json::Array(values) => CelValue::list(values.iter().map(|v| Self::json(v).0).collect()),
            Json::Object(map) => {
                let entries = map
                    .iter()
                    .map(|(key, value)| (key.as_str(), Self::json(value)));
                return Self::map(entries);
            }
        })
    }

    /// A number with a fraction.
    pub fn double(value: f64) -> Self {
        Self(CelValue::Double(value))
    }

    /// A point in time in RFC 3339; the text itself when it is none.
    pub fn timestamp(text: &str) -> Self {
        match text.parse::<jiff::Timestamp>() {
            Ok(time) => {
                let nanoseconds = u32::try_from(time.subsec_nanosecond()).unwrap_or_default();
                Self(CelValue::Timestamp(Time::of_instant(
                    time.as_second(),
                    nanoseconds,
                )))
            }
            Err(_) => Self(CelValue::text(text)),
        }
    }

    /// A duration in nanoseconds.
    pub fn duration(nanoseconds: i64) -> Self {
        Self(CelValue::Duration(nanoseconds))
    }

    /// Bytes.
    pub fn bytes(bytes: &[u8]) -> Self {
        Self(CelValue::Bytes(bytes.into()))
    }

    /// A list.
    pub fn list(elements: impl IntoIterator<Item = Self>) -> Self {
        Self(CelValue::list(elements.into_iter().map(|e| e.0).collect()))
    }

    /// A map.
    pub fn map<'n>(entries: impl IntoIterator<Item = (&'n str, Self)>) -> Self {
        Self::filled(Map::default(), entries)
    }

    /// An object with fields, whose names are escaped.
    pub fn object<'n>(fields: impl IntoIterator<Item = (&'n str, Self)>) -> Self {
        Self::filled(Map::of_fields(), fields)
    }

    fn filled<'n>(mut map: Map, entries: impl IntoIterator<Item = (&'n str, Self)>) -> Self {
        for (key, value) in entries {
            map.insert(MapKey::String(key.into()), value.0);
        }
        Self(CelValue::Map(Arc::new(map)))
    }

    /// The value as JSON, for writing into an object.
    ///
    /// # Errors
    /// A part of it has no form in JSON, or there are too many parts.
    pub fn to_json(&self) -> Result<serde_json::Value, EvaluationError> {
        to_json(&self.0, &mut Steps::new(JSON_PARTS_MAX))
    }

    /// The values of a list.
    pub fn elements(&self) -> Option<Vec<Self>> {
        match &self.0 {
            CelValue::List(elements) => Some(elements.iter().cloned().map(Self).collect()),
            _ => None,
        }
    }

    /// A field of a message.
    pub fn field(&self, name: &str) -> Option<Self> {
        match &self.0 {
            CelValue::Message(message) => message.1.get(&CelValue::text(name)).cloned().map(Self),
            _ => None,
        }
    }

    /// The types of messages below an `Object` that do not fit the fields that they are in.
    pub fn misplaced(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if let CelValue::Message(message) = &self.0
            && &*message.0 != JSON_PATCH
        {
            let mut steps = Steps::new(JSON_PARTS_MAX);
            find_misplaced(&self.0, &message.0, &mut steps, &mut faults);
        }
        faults
    }

    /// An optional value.
    pub fn optional(value: Option<Self>) -> Self {
        Self(CelValue::Optional(value.map(|value| Arc::new(value.0))))
    }
}

/// The largest number of parts of a value that is written into an object.
const JSON_PARTS_MAX: u64 = 1_000_000;

fn to_json(value: &CelValue, steps: &mut Steps) -> Result<serde_json::Value, EvaluationError> {
    use serde_json::Value as Json;
    steps.take(1)?;
    let entries = |map: &Map, steps: &mut Steps| {
        let mut object = serde_json::Map::new();
        for (key, value) in map.iter() {
            let MapKey::String(key) = key else {
                let found = key.value().type_name();
                return Err(EvaluationError::failed(format!(
                    "map key is of type {found}, not string"
                )));
            };
            object.insert(key.to_string(), to_json(value, steps)?);
        }
        Ok(Json::Object(object))
    };
    Ok(match value {
        CelValue::Null => Json::Null,
        CelValue::Bool(value) => (*value).into(),
        CelValue::Int(value) => (*value).into(),
        CelValue::Uint(value) => (*value).into(),
        CelValue::Double(value) => (*value).into(),
        CelValue::String(text) => {
            // Long texts cost steps, because they are copied.
            steps.take(text.len() as u64 / 64)?;
            Json::from(&**text)
        }
        CelValue::List(elements) => {
            let elements = elements.iter().map(|element| to_json(element, steps));
            Json::Array(elements.collect::<Result<_, _>>()?)
        }
        CelValue::Map(map) => entries(map, steps)?,
        CelValue::Message(message) => entries(&message.1, steps)?,
        CelValue::Bytes(_) | CelValue::Duration(_) | CelValue::Timestamp(_) => {
            crate::functions::convert(value)?.into()
        }
        other => {
            let found = other.type_name();
            return Err(EvaluationError::failed(format!(
                "type conversion error from '{found}' to 'google.protobuf.Value'"
            )));
        }
    })
}

fn find_misplaced(value: &CelValue, expected: &str, steps: &mut Steps, faults: &mut Vec<String>) {
    // The walk is bounded by the steps of the evaluation.
    if steps.take(1).is_err() {
        return;
    }
    match value {
        CelValue::Message(message) => {
            let name = &message.0;
            if **name != *expected {
                faults.push(format!(
                    "unexpected type name {name:?}, expected {expected:?}, which matches field name path from root Object type"
                ));
            }
            for (field, value) in message.1.iter() {
                if let MapKey::String(field) = field {
                    find_misplaced(value, &format!("{expected}.{field}"), steps, faults);
                }
            }
        }
        CelValue::List(elements) => {
            for element in elements.iter() {
                find_misplaced(element, expected, steps, faults);
            }
        }
        CelValue::Map(map) => {
            for (_, value) in map.iter() {
                find_misplaced(value, expected, steps, faults);
            }
        }
        _ => {}
    }
}
