//! JSON patch, RFC 6902: a list of operations on places named by JSON pointers, RFC 6901.
//!
//! As in upstream's library, an index may be negative and counts from the end (`-1` is the last entry). A patch can
//! copy copied values, so the added size is limited, as is the depth of the result.

use super::{JSON_PATCH_OPERATIONS_MAX, PatchError};
use crate::schema::DEPTH_MAX;
use serde_json::{Map, Value};

/// The bytes that `copy` operations may add to the object, in bytes of JSON, roughly.
const COPY_BYTES_MAX: usize = 3 * 1024 * 1024;
/// The start of messages about failed tests.
pub(super) const TESTING: &str = "testing value";
/// The maximum number of values that all operations together visit or shift.
const STEPS_MAX: usize = 20_000_000;

/// Applies the operations in order; the first that fails fails the patch.
pub(super) fn apply(current: Value, patch: Value) -> Result<Value, PatchError> {
    let Value::Array(operations) = patch else {
        return Err(PatchError::Malformed(format!(
            "a JSON patch must be a list of operations, not {}",
            type_name(&patch)
        )));
    };
    if operations.len() > JSON_PATCH_OPERATIONS_MAX {
        return Err(PatchError::TooManyOperations(operations.len()));
    }
    let mut document = PatchDocument {
        root: current,
        copied_bytes: 0,
        steps: 0,
    };
    for (i, operation) in operations.into_iter().enumerate() {
        let Value::Object(operation) = operation else {
            return Err(PatchError::Malformed(format!(
                "operation {i} of the JSON patch must be an object, not {}",
                type_name(&operation)
            )));
        };
        document
            .operate(operation)
            .map_err(|e| PatchError::Unprocessable(format!("operation {i}: {e}")))?;
    }
    Ok(document.root)
}

/// The name of the type of a JSON value, for messages.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

struct PatchDocument {
    root: Value,
    copied_bytes: usize,
    steps: usize,
}

impl PatchDocument {
    /// Counts work, so that a small patch cannot cost minutes.
    fn step(&mut self, steps: usize) -> Result<(), String> {
        self.steps = self.steps.saturating_add(steps);
        if self.steps > STEPS_MAX {
            return Err(format!("the patch takes more than {STEPS_MAX} steps"));
        }
        Ok(())
    }

    /// Refuses a value that would exceed the maximum depth of a document.
    fn check_depth(&mut self, pointer: &Pointer, value: &Value) -> Result<(), String> {
        let mut visited = 0;
        let depth = pointer
            .tokens
            .len()
            .saturating_add(depth(value, &mut visited));
        self.step(visited)?;
        if depth > DEPTH_MAX {
            return Err(format!(
                "the value at {pointer} would be nested deeper than {DEPTH_MAX}"
            ));
        }
        Ok(())
    }

    fn operate(&mut self, mut operation: Map<String, Value>) -> Result<(), String> {
        let op = text(&operation, "op")?.to_owned();
        let path = Pointer::parse(text(&operation, "path")?)?;
        let value = operation.remove("value");
        let from = || Pointer::parse(text(&operation, "from")?);
        match op.as_str() {
            "add" => self.add(&path, value.unwrap_or(Value::Null)),
            "remove" => self.remove(&path).map(drop),
            "replace" => self.replace(&path, value.unwrap_or(Value::Null)),
            "move" => {
                let from = from()?;
                if path.is_inside(&from) {
                    return Err(format!("cannot move {from} into itself"));
                }
                let value = self.remove(&from)?;
                self.add(&path, value)
            }
            "copy" => {
                let value = self.get(&from()?)?.clone();
                self.copied_bytes = self.copied_bytes.saturating_add(size(&value));
                if self.copied_bytes > COPY_BYTES_MAX {
                    return Err(format!("copies add more than {COPY_BYTES_MAX} bytes"));
                }
                self.add(&path, value)
            }
            "test" => self.test(&path, &value.unwrap_or(Value::Null)),
            other => Err(format!("unknown op {other:?}")),
        }
    }

    fn get(&self, pointer: &Pointer) -> Result<&Value, String> {
        let mut at = &self.root;
        for token in &pointer.tokens {
            at = match at {
                Value::Object(object) => object.get(token),
                Value::Array(list) => index(token, list.len()).and_then(|i| list.get(i)),
                _ => None,
            }
            .ok_or_else(|| format!("{pointer} is not there"))?;
        }
        Ok(at)
    }

    /// The object or list that holds the last token's entry, and that token.
    fn parent<'a, 'p>(
        &'a mut self,
        pointer: &'p Pointer,
    ) -> Result<Option<(&'a mut Value, &'p str)>, String> {
        let Some((last, parents)) = pointer.tokens.split_last() else {
            return Ok(None);
        };
        let mut at = &mut self.root;
        for token in parents {
            at = match at {
                Value::Object(object) => object.get_mut(token),
                Value::Array(list) => index(token, list.len()).and_then(|i| list.get_mut(i)),
                _ => None,
            }
            .ok_or_else(|| format!("the parent of {pointer} is not there"))?;
        }
        Ok(Some((at, last)))
    }

    fn add(&mut self, pointer: &Pointer, value: Value) -> Result<(), String> {
        self.check_depth(pointer, &value)?;
        match self.parent(pointer)? {
            None => self.root = value,
            Some((Value::Object(object), key)) => {
                object.insert(key.to_owned(), value);
            }
            Some((Value::Array(list), "-")) => list.push(value),
            Some((Value::Array(list), token)) => {
                // One past the last entry is a place to add to.
                let at = index(token, list.len() + 1)
                    .ok_or_else(|| format!("{pointer} is out of bounds"))?;
                let shifted = list.len() - at;
                list.insert(at, value);
                self.step(shifted / 16)?;
            }
            Some(_) => return Err(format!("{pointer} is neither in an object nor in a list")),
        }
        Ok(())
    }

    fn remove(&mut self, pointer: &Pointer) -> Result<Value, String> {
        match self.parent(pointer)? {
            None => return Err("the whole object cannot be removed".to_owned()),
            Some((Value::Object(object), key)) => object.remove(key),
            Some((Value::Array(list), token)) => match index(token, list.len()) {
                Some(at) => {
                    let shifted = list.len() - at;
                    let value = list.remove(at);
                    self.step(shifted / 16)?;
                    Some(value)
                }
                None => None,
            },
            Some(_) => None,
        }
        .ok_or_else(|| format!("{pointer} is not there"))
    }

    fn replace(&mut self, pointer: &Pointer, value: Value) -> Result<(), String> {
        self.check_depth(pointer, &value)?;
        let place = match self.parent(pointer)? {
            None => {
                self.root = value;
                return Ok(());
            }
            Some((Value::Object(object), key)) => object.get_mut(key),
            Some((Value::Array(list), token)) => {
                index(token, list.len()).and_then(|at| list.get_mut(at))
            }
            Some(_) => None,
        };
        *place.ok_or_else(|| format!("{pointer} is not there"))? = value;
        Ok(())
    }

    fn test(&self, pointer: &Pointer, value: &Value) -> Result<(), String> {
        let found = match self.get(pointer) {
            Ok(found) => found,
            // An absent value is null.
            Err(_) if value.is_null() => return Ok(()),
            Err(e) => return Err(format!("{TESTING} failed: {e}")),
        };
        if same(found, value) {
            Ok(())
        } else {
            Err(format!("{TESTING} {pointer} failed"))
        }
    }
}

/// A member of an operation that must be a string.
fn text<'a>(operation: &'a Map<String, Value>, member: &str) -> Result<&'a str, String> {
    match operation.get(member) {
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(format!(
            "{member} must be a string, not {}",
            type_name(other)
        )),
        None => Err(format!("{member} is missing")),
    }
}

/// Returns whether two values are equal; numbers by their value.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        (a, b) => a == b,
    }
}

/// The position that a token names in a list of `len` places.
fn index(token: &str, len: usize) -> Option<usize> {
    let at = if let Some(back) = token.strip_prefix('-') {
        len.checked_sub(number(back)?)?
    } else {
        number(token)?
    };
    (at < len).then_some(at)
}

/// Digits without a sign or leading zeros.
fn number(digits: &str) -> Option<usize> {
    if digits.is_empty()
        || !digits.bytes().all(|b| b.is_ascii_digit())
        || (digits.len() > 1 && digits.starts_with('0'))
    {
        return None;
    }
    digits.parse().ok()
}

/// The depth of an object or list. Values here are never deeper than twice `DEPTH_MAX`.
fn depth(value: &Value, visited: &mut usize) -> usize {
    *visited += 1;
    match value {
        Value::Array(list) => 1 + list.iter().map(|v| depth(v, visited)).max().unwrap_or(0),
        Value::Object(object) => {
            1 + object
                .values()
                .map(|v| depth(v, visited))
                .max()
                .unwrap_or(0)
        }
        _ => 0,
    }
}

/// Roughly the bytes of a value as JSON.
fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(list) => 2 + list.iter().map(|v| 1 + size(v)).sum::<usize>(),
        Value::Object(object) => {
            2 + object
                .iter()
                .map(|(key, v)| key.len() + 4 + size(v))
                .sum::<usize>()
        }
    }
}

/// A JSON pointer.
struct Pointer {
    text: String,
    tokens: Vec<String>,
}

impl Pointer {
    fn parse(text: &str) -> Result<Self, String> {
        let tokens = match text.strip_prefix('/') {
            Some(rest) => rest
                .split('/')
                .map(|token| token.replace("~1", "/").replace("~0", "~"))
                .collect(),
            None if text.is_empty() => Vec::new(),
            None => return Err(format!("path {text:?} must begin with a slash")),
        };
        Ok(Self {
            text: text.to_owned(),
            tokens,
        })
    }

    /// Returns whether this place is strictly inside the other one.
    fn is_inside(&self, other: &Self) -> bool {
        self.tokens.len() > other.tokens.len() && self.tokens.starts_with(&other.tokens)
    }
}

impl std::fmt::Display for Pointer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.text.is_empty() {
            "the object itself"
        } else {
            &self.text
        })
    }
}
