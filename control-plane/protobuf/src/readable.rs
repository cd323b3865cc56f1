//! Partly malformed messages: the readable parts.

use crate::decode::{DEPTH_MAX, Object};
use crate::facts::ValueShape;
use crate::types::{FieldTarget, MessageType, Types};
use crate::wire::{Reader, Wire};
use berth_api::UnreadField;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

impl Object<'_> {
    /// The JSON of the readable parts, and the unreadable fields.
    pub fn readable(self) -> (Value, Vec<UnreadField>) {
        let mut unread = Vec::new();
        let object = readable(self.message(), self.bytes(), "", 0, &mut unread);
        (Value::Object(object), unread)
    }
}

/// Reads each field alone, and of a message that is malformed its fields.
fn readable(
    message: &'static MessageType,
    bytes: &[u8],
    path: &str,
    depth: u8,
    unread: &mut Vec<UnreadField>,
) -> Map<String, Value> {
    // The values of a repeated field are read together.
    let mut fields: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    let mut reader = Reader::new(bytes);
    loop {
        let before = reader.rest();
        match reader.next_field() {
            Ok(Some((number, _))) => {
                let length = before.len() - reader.rest().len();
                let field = before.get(..length).unwrap_or_default();
                fields.entry(number).or_default().extend_from_slice(field);
            }
            Ok(None) => break,
            Err(error) => {
                unread.push(UnreadField {
                    path: path.to_owned(),
                    reason: error.to_string(),
                });
                break;
            }
        }
    }
    let mut object = Map::new();
    for (number, field) in fields {
        let error = match Value::deserialize(Object::new(message, &field)) {
            Ok(Value::Object(members)) => {
                object.extend(members);
                continue;
            }
            Ok(_) => continue,
            Err(error) => error,
        };
        let Some(FieldTarget::Field(target)) = message.field(number) else {
            unread.push(UnreadField {
                path: path.to_owned(),
                reason: error.to_string(),
            });
            continue;
        };
        let path = match path {
            "" => target.name.to_owned(),
            path => format!("{path}.{}", target.name),
        };
        match (target.shape, Reader::new(&field).next_field()) {
            (ValueShape::Object(at), Ok(Some((_, Wire::Bytes(inner))))) if depth < DEPTH_MAX => {
                let inner = readable(Types::get().at(*at), inner, &path, depth + 1, unread);
                object.insert(target.name.to_owned(), Value::Object(inner));
            }
            _ => {
                let reason = error.to_string();
                unread.push(UnreadField { path, reason });
            }
        }
    }
    object
}
