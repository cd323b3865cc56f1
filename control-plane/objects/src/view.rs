//! Tolerant reading and filling of JSON objects.
//!
//! An absent field, a `null` and a value of the wrong type all read as the zero value, as a decoded Go struct
//! would. Types have been checked against the schema before these rules run.

use serde_json::{Map, Value};

static EMPTY: &[Value] = &[];
static ABSENT: Value = Value::Null;

/// Reading fields of an object.
pub trait FieldView {
    /// The field, unless it is absent or `null`.
    fn field(&self, name: &str) -> Option<&Value>;

    /// The field; `Null` when it is absent.
    fn part(&self, name: &str) -> &Value {
        self.field(name).unwrap_or(&ABSENT)
    }

    /// The field at the end of a chain of names.
    fn at(&self, names: &[&str]) -> Option<&Value> {
        let (first, below) = names.split_first()?;
        let first = self.field(first)?;
        below
            .iter()
            .try_fold(first, |value, name| value.field(name))
    }

    /// A string; empty when absent.
    fn text(&self, name: &str) -> &str {
        self.maybe_text(name).unwrap_or("")
    }

    /// A string, if present.
    fn maybe_text(&self, name: &str) -> Option<&str> {
        self.field(name).and_then(Value::as_str)
    }

    /// An integer; 0 when absent.
    fn int(&self, name: &str) -> i64 {
        self.maybe_int(name).unwrap_or(0)
    }

    /// An integer, if present.
    fn maybe_int(&self, name: &str) -> Option<i64> {
        self.field(name).and_then(Value::as_i64)
    }

    /// A boolean; false when absent.
    fn flag(&self, name: &str) -> bool {
        self.maybe_flag(name).unwrap_or(false)
    }

    /// A boolean, if present.
    fn maybe_flag(&self, name: &str) -> Option<bool> {
        self.field(name).and_then(Value::as_bool)
    }

    /// A list; empty when absent.
    fn items(&self, name: &str) -> &[Value] {
        self.field(name)
            .and_then(Value::as_array)
            .map_or(EMPTY, Vec::as_slice)
    }

    /// A map, if present.
    fn map(&self, name: &str) -> Option<&Map<String, Value>> {
        self.field(name).and_then(Value::as_object)
    }

    /// The entries of a map in key order; none when absent.
    fn entries(&self, name: &str) -> Vec<(&str, &Value)> {
        self.map(name).map_or_else(Vec::new, |map| {
            let mut entries: Vec<_> = map.iter().map(|(k, v)| (k.as_str(), v)).collect();
            entries.sort_by_key(|(k, _)| *k);
            entries
        })
    }

    /// The entries of a map of strings in key order.
    fn labels(&self, name: &str) -> Vec<(&str, &str)> {
        self.entries(name)
            .into_iter()
            .map(|(k, v)| (k, v.as_str().unwrap_or("")))
            .collect()
    }

    /// The strings of a list.
    fn strings(&self, name: &str) -> Vec<&str> {
        self.items(name)
            .iter()
            .map(|v| v.as_str().unwrap_or(""))
            .collect()
    }
}

impl FieldView for Value {
    fn field(&self, name: &str) -> Option<&Value> {
        #[cfg(feature = "count-reads")]
        reads::count(1);
        self.get(name).filter(|v| !v.is_null())
    }
}

impl FieldView for Map<String, Value> {
    fn field(&self, name: &str) -> Option<&Value> {
        #[cfg(feature = "count-reads")]
        reads::count(1);
        self.get(name).filter(|v| !v.is_null())
    }
}

/// The number of fields that the present thread has read through [`FieldView`].
#[cfg(feature = "count-reads")]
pub mod reads {
    use std::cell::Cell;

    thread_local! {
        static READS: Cell<usize> = const { Cell::new(0) };
    }

    /// Adds reads.
    pub(crate) fn count(reads: usize) {
        READS.set(READS.get() + reads);
    }

    /// The number since the last call.
    pub fn take() -> usize {
        READS.take()
    }
}

/// The value at a path of names such as `/spec/nodeName`, with the escapes of a JSON pointer: `~1` is a slash and `~0`
/// a tilde. Unlike a JSON pointer it has no list positions, and reading it allocates only if a name has escapes.
pub fn at_path<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let mut names = path.split('/').skip(1);
    names.try_fold(object, |value, name| {
        if name.contains('~') {
            value.get(name.replace("~1", "/").replace("~0", "~"))
        } else {
            value.get(name)
        }
    })
}

/// The path for [`at_path`] of names that are joined by dots, such as `spec.nodeName`.
pub(crate) fn path_of_names(dotted: &str) -> String {
    let escaped = dotted.replace('~', "~0").replace('/', "~1");
    format!("/{}", escaped.replace('.', "/"))
}

/// Returns whether this is a zero value in Go: absent, `null`, empty, 0 or false.
pub(crate) fn is_zero(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Bool(b)) => !b,
        Some(Value::Number(n)) => n.as_f64() == Some(0.0),
        Some(Value::String(s)) => s.is_empty(),
        Some(Value::Array(a)) => a.is_empty(),
        Some(Value::Object(o)) => o.is_empty(),
    }
}

/// Sets a field that is absent or `null`.
pub fn set_if_absent(object: &mut Value, name: &str, value: impl Into<Value>) {
    if let Some(map) = object.as_object_mut()
        && map.get(name).is_none_or(Value::is_null)
    {
        map.insert(name.to_owned(), value.into());
    }
}

/// Sets a field that is absent or zero.
pub(crate) fn set_if_zero(object: &mut Value, name: &str, value: impl Into<Value>) {
    if let Some(map) = object.as_object_mut()
        && is_zero(map.get(name))
    {
        map.insert(name.to_owned(), value.into());
    }
}

/// Sets a field.
pub fn set(object: &mut Value, name: &str, value: impl Into<Value>) {
    if let Some(map) = object.as_object_mut() {
        map.insert(name.to_owned(), value.into());
    }
}

/// Copies a field from another object, or removes it if that has none. A comparison is cheaper than a copy, and most
/// fields are equal.
pub fn copy_field(object: &mut Value, from: &Value, name: &str) {
    match from.field(name) {
        value if value == object.get(name) => {}
        Some(value) => set(object, name, value.clone()),
        None => remove(object, name),
    }
}

/// Removes a field.
pub fn remove(object: &mut Value, name: &str) {
    if let Some(map) = object.as_object_mut() {
        map.remove(name);
    }
}

/// The field `name` as an object, created if absent; `None` if it has another type.
pub fn child<'a>(object: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    set_if_absent(object, name, Map::new());
    object.get_mut(name).filter(|v| v.is_object())
}

/// The field `name`, if it is an object.
pub(crate) fn existing<'a>(object: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    object.get_mut(name).filter(|v| v.is_object())
}

/// The entries of a list, for changing them; none when it is absent.
pub fn items_mut<'a>(object: &'a mut Value, name: &str) -> &'a mut [Value] {
    object
        .get_mut(name)
        .and_then(Value::as_array_mut)
        .map_or(&mut [], Vec::as_mut_slice)
}

/// A string in the metadata of an object, empty when it is absent.
pub fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object
        .get("metadata")
        .and_then(|m| m.get(field))
        .and_then(Value::as_str)
        .unwrap_or("")
}

/// The metadata of an object, made when it is absent or no object.
pub fn meta_mut(object: &mut Value) -> &mut Map<String, Value> {
    child_mut(object, "metadata")
}

/// The object at `field`, made when it is absent or no object.
pub fn child_mut<'a>(object: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    if !object.is_object() {
        *object = Map::new().into();
    }
    let slot = &mut object[field];
    if !slot.is_object() {
        *slot = Map::new().into();
    }
    match slot {
        Value::Object(map) => map,
        // It was made an object right above.
        _ => unreachable!("a JSON object"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_missing_reads_as_zero() {
        let v = json!({"a": null, "n": 3, "l": ["x", 1], "m": {"b": "2", "a": "1"}});
        assert_eq!(v.text("a"), "");
        assert_eq!(v.int("n"), 3);
        assert_eq!(v.text("n"), "");
        assert_eq!(v.strings("l"), ["x", ""]);
        assert_eq!(v.labels("m"), [("a", "1"), ("b", "2")]);
        assert!(v.at(&["m", "b", "c"]).is_none());
    }

    #[test]
    fn names_of_a_path_may_have_any_character() {
        let object = json!({"spec": {"a/b": {"c~d": 1, "c": 2}, "~1": 3, "a": {"b": 4}}});
        for (dotted, expected) in [
            ("spec.a/b.c~d", Some(1)),
            ("spec.a/b.c", Some(2)),
            ("spec.~1", Some(3)),
            ("spec.a.b", Some(4)),
            ("spec.a~1b.c", None),
            ("spec./", None),
        ] {
            let found = at_path(&object, &path_of_names(dotted));
            assert_eq!(found.and_then(Value::as_i64), expected, "{dotted}");
        }
    }

    #[test]
    fn defaults_fill_only_what_is_unset() {
        let mut v = json!({"a": null, "b": "", "c": "x"});
        for name in ["a", "b", "c", "d"] {
            set_if_absent(&mut v, name, "new");
        }
        assert_eq!(v, json!({"a": "new", "b": "", "c": "x", "d": "new"}));
        set_if_zero(&mut v, "b", 1);
        assert_eq!(v["b"], 1);
    }
}
