//! The empty lists and maps of a request.
//!
//! Go decodes `[]` and `{}` to values that differ from nil until they are written to protobuf, which has neither. The
//! normal form of an object does not have them. Error messages, comparisons with `reflect.DeepEqual` and defaults that
//! ask for nil see the difference, so that it is recorded here.

use super::path::SchemaPath;
use crate::view::set;
use serde_json::{Map, Value};

/// The number of recorded places of one object; further ones count as absent.
const EMPTIES_MAX: usize = 1_000;

/// The places of empty lists and maps that the normal form of an object does not have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Empties(Vec<Empty>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Empty {
    /// A JSON pointer.
    pointer: String,
    is_list: bool,
}

impl Empties {
    /// Records a place.
    pub(super) fn add(&mut self, path: &SchemaPath<'_>, is_list: bool) {
        if self.0.len() < EMPTIES_MAX {
            let pointer = path.pointer();
            self.0.push(Empty { pointer, is_list });
        }
    }

    /// Returns whether there are no places.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether a place is at a JSON pointer.
    pub(crate) fn has(&self, pointer: &str) -> bool {
        self.0.iter().any(|empty| empty.pointer == pointer)
    }

    /// Returns whether a place is below a field of the object, or the field itself.
    pub fn has_below(&self, field: &str) -> bool {
        self.0.iter().any(|empty| {
            let mut steps = empty.pointer.split('/').skip(1);
            steps.next() == Some(field)
        })
    }

    /// Writes the lists and maps back into an object, where it has no values.
    pub(crate) fn put_into(&self, object: &mut Value) {
        self.put_where(object, |value| value.is_none_or(Value::is_null));
    }

    /// Replaces the nulls of an object, which Go writes in some fields, by the lists and maps.
    pub fn replace_nulls(&self, object: &mut Value) {
        self.put_where(object, |value| value.is_some_and(Value::is_null));
    }

    fn put_where(&self, object: &mut Value, is_replaced: impl Fn(Option<&Value>) -> bool) {
        for Empty { pointer, is_list } in &self.0 {
            let Some((parent, name)) = pointer.rsplit_once('/') else {
                continue;
            };
            let Some(parent) = object.pointer_mut(parent).filter(|p| p.is_object()) else {
                continue;
            };
            let name = name.replace("~1", "/").replace("~0", "~");
            if is_replaced(parent.get(&name)) {
                let value = if *is_list {
                    Value::Array(Vec::new())
                } else {
                    Value::Object(Map::new())
                };
                set(parent, &name, value);
            }
        }
    }
}
