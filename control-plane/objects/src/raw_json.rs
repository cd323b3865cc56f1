//! Fields with JSON that servers keep as bytes (`RawExtension`), such as the parameters of device drivers.
//!
//! Within an object, such a field is the text of its JSON. Clients that read JSON or protobuf get this text, and an
//! immutable field is compared as text: the order of keys, the form of numbers and white space are significant. As in
//! kube-apiserver, a strategic merge patch and server-side apply read the object as a tree and re-encode the field, so
//! they change a text that is in another form. Each entry of
//! `managedFields` has such a text, too.

use crate::body::{Encoding, WriteBody};
use berth_api::RawJson;
use berth_protobuf::envelope::Envelope;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};
use std::borrow::Cow;
use std::fmt;
use std::fmt::Write as _;

const GROUP: &str = "resource.k8s.io";
const KINDS: [&str; 3] = ["DeviceClass", "ResourceClaim", "ResourceClaimTemplate"];

/// The way to a field: names, and `*` for each item of a list.
type TextPath = &'static [&'static str];

/// The fields of all kinds; no kind uses one of these paths for another purpose.
const RAW: [TextPath; 5] = [
    &["spec", "config", "*", "opaque", "parameters"],
    &["spec", "devices", "config", "*", "opaque", "parameters"],
    &[
        "spec",
        "spec",
        "devices",
        "config",
        "*",
        "opaque",
        "parameters",
    ],
    &[
        "status",
        "allocation",
        "devices",
        "config",
        "*",
        "opaque",
        "parameters",
    ],
    &["status", "devices", "*", "data"],
];
const MANAGED: TextPath = &["metadata", "managedFields", "*", "fieldsV1"];

/// Returns whether objects of a kind have such fields, in addition to `managedFields`.
pub fn has(group: &str, kind: &str) -> bool {
    group == GROUP && KINDS.contains(&kind)
}

/// The text of such a field, whether it is kept as text or still a tree.
pub(crate) fn text(field: &Value) -> Cow<'_, str> {
    match field {
        Value::String(text) => Cow::Borrowed(text),
        tree => Cow::Owned(tree.to_string()),
    }
}

/// Returns whether the text of such a field is a JSON object.
pub(crate) fn is_object(text: &str) -> bool {
    serde_json::from_str::<Map<String, Value>>(text).is_ok()
}

/// Calls `each` with the values of all such fields.
fn visit(object: &mut Value, mut each: impl FnMut(&mut Value)) {
    fn walk(value: &mut Value, path: &[&str], each: &mut dyn FnMut(&mut Value)) {
        match (path, value) {
            ([], value) => each(value),
            (["*", rest @ ..], Value::Array(items)) => {
                items.iter_mut().for_each(|item| walk(item, rest, each));
            }
            ([name, rest @ ..], Value::Object(fields)) => {
                if let Some(value) = fields.get_mut(*name) {
                    walk(value, rest, each);
                }
            }
            _ => {}
        }
    }
    for path in RAW {
        walk(object, path, &mut each);
    }
}

/// Calls `each` with the values of such fields of two objects, where both have them.
fn visit_both(from: &Value, to: &mut Value, mut each: impl FnMut(&Value, &mut Value)) {
    fn walk(from: &Value, to: &mut Value, path: &[&str], each: &mut dyn FnMut(&Value, &mut Value)) {
        match (path, from, to) {
            ([], from, to) => each(from, to),
            (["*", rest @ ..], Value::Array(from), Value::Array(to)) => {
                for (from, to) in from.iter().zip(to) {
                    walk(from, to, rest, each);
                }
            }
            ([name, rest @ ..], Value::Object(from), Value::Object(to)) => {
                if let (Some(from), Some(to)) = (from.get(*name), to.get_mut(*name)) {
                    walk(from, to, rest, each);
                }
            }
            _ => {}
        }
    }
    for path in RAW {
        walk(from, to, path, &mut each);
    }
}

/// Writes the texts as JSON, for functions that read the object as a tree.
pub(crate) fn to_json(object: &mut Value) {
    visit(object, |value| {
        if let Some(json) = value
            .as_str()
            .and_then(|text| serde_json::from_str(text).ok())
        {
            *value = json;
        }
    });
}

/// Writes JSON as text, in Go's encoding.
pub fn to_text(object: &mut Value) {
    visit(object, |value| {
        if value.is_object() {
            *value = go_text(value).into();
        }
    });
}

/// The sets `fieldsV1` of the entries of an object's `managedFields`.
fn field_sets(object: &mut Value) -> impl Iterator<Item = &mut Value> {
    let metadata = object.get_mut("metadata");
    let list = metadata.and_then(|metadata| metadata.get_mut("managedFields"));
    let list = list.and_then(Value::as_array_mut).into_iter().flatten();
    list.filter_map(|entry| entry.get_mut("fieldsV1"))
}

/// Writes `fieldsV1` of each entry of `managedFields` as text, its stored form: as a tree of maps it takes more memory
/// than the rest of the object.
pub fn managed_fields_to_text(object: &mut Value) {
    for set in field_sets(object).filter(|set| set.is_object()) {
        *set = set.to_string().into();
    }
}

/// Writes `fieldsV1` as JSON again, for clients and for changes of `managedFields` itself.
pub fn managed_fields_to_json(object: &mut Value) {
    for set in field_sets(object) {
        if let Some(json) = set
            .as_str()
            .and_then(|text| serde_json::from_str(text).ok())
        {
            *set = json;
        }
    }
}

/// Keeps the texts of the stored object in one that was changed, where they are the same JSON.
pub fn keep_texts(stored: &Value, changed: &mut Value) {
    visit_both(stored, changed, |stored, changed| {
        let json = stored.as_str().map(serde_json::from_str::<Value>);
        if json.is_some_and(|json| json.ok().as_ref() == Some(changed)) {
            *changed = stored.clone();
        }
    });
}

/// Puts the texts in the body of a request into the object that was read from it. YAML becomes JSON first.
pub(crate) fn keep_body(body: WriteBody<'_>, object: &mut Value) {
    let read: Option<RawObject> = match body.encoding {
        Encoding::Json => serde_json::from_slice(body.bytes).ok(),
        Encoding::Protobuf => Envelope::open(body.bytes)
            .and_then(|envelope| envelope.decode_any_order())
            .ok(),
        Encoding::Yaml => None,
    };
    let Some(RawObject(read)) = read else {
        return;
    };
    visit_both(&read, object, |read, object| {
        if object.is_object() && read.is_string() {
            *object = read.clone();
        }
    });
}

/// JSON in Go's encoding: keys are sorted, and special characters of HTML are escaped.
pub(crate) fn go_text(value: &Value) -> String {
    fn plain(value: &mut Value) {
        const EXACT: f64 = 9_007_199_254_740_992.0;
        match value {
            // A number without a fraction is written without a point.
            Value::Number(number) if number.is_f64() => {
                let float = number.as_f64().unwrap_or_default();
                if float.fract() == 0.0 && float.abs() < EXACT {
                    *value = Value::Number(Number::from(float as i64));
                }
            }
            Value::Array(items) => items.iter_mut().for_each(plain),
            Value::Object(fields) => fields.values_mut().for_each(plain),
            _ => {}
        }
    }
    let mut value = value.clone();
    plain(&mut value);
    let mut text = String::new();
    for character in value.to_string().chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                // Writing to a string cannot fail.
                let _ = write!(text, "\\u{:04x}", u32::from(character));
            }
            other => text.push(other),
        }
    }
    text
}

/// An object whose fields of this sort are texts.
struct RawObject(Value);

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        FieldTexts::in_bodies().deserialize(deserializer).map(Self)
    }
}

// === impl Texts ===

/// The ways from some value on to the fields below it that are texts.
#[derive(Clone, Copy)]
pub struct FieldTexts {
    paths: [TextPath; RAW.len() + 1],
    count: usize,
    /// Whether the JSON is a stored object, whose texts are borrowed.
    is_stored: bool,
}

impl FieldTexts {
    fn none(is_stored: bool) -> Self {
        Self {
            paths: [&[]; RAW.len() + 1],
            count: 0,
            is_stored,
        }
    }

    /// The fields of a stored object.
    pub fn of(group: &str, kind: &str) -> Self {
        let mut texts = Self::none(true);
        texts.push(MANAGED);
        if has(group, kind) {
            RAW.into_iter().for_each(|path| texts.push(path));
        }
        texts
    }

    /// The fields of objects in request bodies.
    fn in_bodies() -> Self {
        let mut texts = Self::none(false);
        RAW.into_iter().for_each(|path| texts.push(path));
        texts
    }

    /// The fields of an object of this version and kind.
    pub fn of_kind(api_version: &str, kind: &str) -> Self {
        let (group, _) = api_version.split_once('/').unwrap_or_default();
        Self::of(group, kind)
    }

    fn push(&mut self, path: TextPath) {
        if let Some(slot) = self.paths.get_mut(self.count) {
            *slot = path;
            self.count += 1;
        }
    }

    /// The fields below a member of an object, or with `*` below the items of a list.
    pub fn below(&self, name: &str) -> Self {
        let mut below = Self::none(self.is_stored);
        for path in self.paths.iter().take(self.count) {
            if let [first, rest @ ..] = path
                && *first == name
            {
                below.push(rest);
            }
        }
        below
    }

    fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns whether the value is such a text itself.
    fn is_text(&self) -> bool {
        let mut paths = self.paths.iter().take(self.count);
        paths.any(|path| path.is_empty())
    }
}

impl<'de> DeserializeSeed<'de> for FieldTexts {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        if self.is_empty() {
            return Deserialize::deserialize(deserializer);
        }
        if self.is_text() {
            let text = |json: &str| match json {
                text if text.starts_with('{') => text.into(),
                other => serde_json::from_str(other).unwrap_or_default(),
            };
            return if self.is_stored {
                <&RawValue>::deserialize(deserializer).map(|json| text(json.get()))
            } else {
                RawJson::deserialize(deserializer).map(|json| text(json.as_str()))
            };
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for FieldTexts {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a part of an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(self.below(&key))?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        let below = self.below("*");
        while let Some(item) = items.next_element_seed(below)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }
}

/// A part of an object that is written with its texts as the JSON that they are.
pub struct WrittenText<'a>(pub &'a Value, pub FieldTexts);

impl Serialize for WrittenText<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(value, texts) = self;
        match value {
            value if texts.is_empty() => value.serialize(serializer),
            Value::String(text) if texts.is_text() => {
                let json: Option<&RawValue> = serde_json::from_str(text).ok();
                json.serialize(serializer)
            }
            Value::Object(map) => {
                let mut out = serializer.serialize_map(Some(map.len()))?;
                for (key, value) in map {
                    out.serialize_entry(key, &WrittenText(value, texts.below(key)))?;
                }
                out.end()
            }
            Value::Array(list) => {
                let below = texts.below("*");
                serializer.collect_seq(list.iter().map(|item| WrittenText(item, below)))
            }
            value => value.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TEXT: &str = r#"{"kind": "X", "apiVersion":"example.com/v1", "a":1.0, "b":"x<y"}"#;

    fn claim(parameters: &Value) -> Value {
        let config = json!([{"opaque": {"driver": "d", "parameters": parameters}}]);
        json!({
            "spec": {"devices": {"config": config, "requests": [{"name": "parameters"}]}},
            "status": {
                "allocation": {"devices": {"config": config}},
                "devices": [{"data": parameters}, {"driver": "d"}],
            },
        })
    }

    #[test]
    fn texts_are_kept_where_they_are_json() {
        let text = Value::from(TEXT);
        let mut object = claim(&text);
        to_json(&mut object);
        let json: Value = serde_json::from_str(TEXT).expect("JSON");
        assert_eq!(object, claim(&json));
        let mut changed = object.clone();
        changed["status"]["devices"][0]["data"] = json!({"other": true});
        keep_texts(&claim(&text), &mut changed);
        let mut expected = claim(&text);
        expected["status"]["devices"][0]["data"] = json!({"other": true});
        assert_eq!(changed, expected);
        to_text(&mut changed);
        assert_eq!(changed["status"]["devices"][0]["data"], r#"{"other":true}"#);
        // As Go writes it.
        to_text(&mut object);
        let written = r#"{"a":1,"apiVersion":"example.com/v1","b":"x\u003cy","kind":"X"}"#;
        assert_eq!(object, claim(&written.into()));
    }

    #[test]
    fn bodies_contain_the_bytes() {
        let json = claim(&json!("@")).to_string().replace("\"@\"", TEXT);
        let mut read: Value = serde_json::from_str(&json).expect("JSON");
        let body = WriteBody {
            bytes: json.as_bytes(),
            encoding: Encoding::Json,
        };
        keep_body(body, &mut read);
        assert_eq!(read, claim(&TEXT.into()));
        let mut typed = claim(&TEXT.into());
        typed["apiVersion"] = "resource.k8s.io/v1".into();
        typed["kind"] = "ResourceClaim".into();
        let bytes = berth_protobuf::encode_body(&typed).expect("a message");
        let mut read = claim(&serde_json::from_str(TEXT).expect("JSON"));
        let body = WriteBody {
            bytes: &bytes,
            encoding: Encoding::Protobuf,
        };
        keep_body(body, &mut read);
        assert_eq!(read, claim(&TEXT.into()));
    }
}
