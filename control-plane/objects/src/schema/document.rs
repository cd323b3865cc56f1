//! Bytes to JSON values, with limits: depth, number of values, size after alias expansion. Duplicate fields are
//! reported by their place; the last one counts.

use super::path::SchemaPath;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::options::DuplicateKeyPolicy;
use std::collections::HashSet;
use std::fmt;

/// Objects and lists may be nested so deep.
pub const DEPTH_MAX: usize = 120;
/// The maximum number of values of a document: objects, lists and scalars.
pub const VALUES_MAX: usize = 250_000;
/// The maximum size, in bytes, of all keys and strings of a document with expanded aliases.
pub const TEXT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The maximum number of reported duplicate fields.
const DUPLICATES_MAX: usize = 100;

/// A document.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    /// The value of the document.
    pub value: Value,
    /// The fields that occur in it twice, such as `metadata.labels.app`.
    pub duplicate_fields: Vec<String>,
}

/// The reason why bytes are not a document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Not JSON, or not YAML, or beyond a limit; the text states the fault and the place.
    #[error("{format} parse error: {message}")]
    Malformed {
        /// `json` or `yaml`.
        format: &'static str,
        /// The message of the parser, with the place.
        message: String,
    },
}

/// Parses one JSON document.
///
/// # Errors
/// The bytes are not JSON, hold more than one document or exceed a limit.
pub fn parse_json(bytes: &[u8]) -> Result<Parsed, DecodeError> {
    let mut budget = DocumentBudget::default();
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = DocumentNode {
        budget: &mut budget,
        path: &SchemaPath::Root,
        depth: 0,
    }
    .deserialize(&mut deserializer)
    .and_then(|value| deserializer.end().map(|()| value))
    .map_err(|e| DecodeError::Malformed {
        format: "json",
        message: json_message(&e),
    })?;
    Ok(Parsed {
        value,
        duplicate_fields: budget.duplicates,
    })
}

/// The fields of a JSON document that are unknown, or repeat a field before them, in the order of the document. A
/// repeated unknown field is listed once.
pub fn faults_in_order(bytes: &[u8], unknown: &[String]) -> Vec<FieldFault> {
    let mut budget = DocumentBudget {
        trace: Some(Trace {
            unknown: unknown.iter().cloned().collect(),
            found: Vec::new(),
        }),
        ..DocumentBudget::default()
    };
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let node = DocumentNode {
        budget: &mut budget,
        path: &SchemaPath::Root,
        depth: 0,
    };
    // It has been parsed before.
    let _ = node.deserialize(&mut deserializer);
    budget.trace.map_or_else(Vec::new, |trace| trace.found)
}

/// A field that strict validation rejects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldFault {
    /// The type does not have it.
    Unknown(String),
    /// It is a field before it.
    Duplicate(String),
}

/// The faults of a document.
#[derive(Debug)]
struct Trace {
    unknown: HashSet<String>,
    found: Vec<FieldFault>,
}

impl Trace {
    fn key(&mut self, path: &SchemaPath<'_>, is_repeated: bool) {
        let path = path.to_string();
        let fault = match self.unknown.contains(&path) {
            true => FieldFault::Unknown(path),
            false if is_repeated => FieldFault::Duplicate(path),
            false => return,
        };
        if self.found.len() < DUPLICATES_MAX && !self.found.contains(&fault) {
            self.found.push(fault);
        }
    }
}

/// Parses the first YAML document; as in kube-apiserver, others are not read. JSON is YAML too.
///
/// # Errors
/// The document is not YAML or exceeds a limit.
pub fn parse_yaml(bytes: &[u8]) -> Result<Parsed, DecodeError> {
    let mut budget = DocumentBudget::default();
    let value = with_yaml(bytes, DuplicateKeyPolicy::LastWins, &mut budget);
    let value = value.map_err(|e| DecodeError::Malformed {
        format: "yaml",
        message: e.to_string(),
    })?;
    Ok(Parsed {
        value,
        duplicate_fields: budget.duplicates,
    })
}

/// The line, from 1, of the first field of a YAML document that repeats a field before it.
pub fn first_duplicate_line(bytes: &[u8]) -> Option<u64> {
    let parsed = with_yaml(
        bytes,
        DuplicateKeyPolicy::Error,
        &mut DocumentBudget::default(),
    );
    Some(parsed.err()?.location()?.line())
}

fn with_yaml(
    bytes: &[u8],
    duplicate_keys: DuplicateKeyPolicy,
    budget: &mut DocumentBudget,
) -> Result<Value, serde_saphyr::Error> {
    let options = serde_saphyr::options! {
        duplicate_keys: duplicate_keys,
        with_snippet: false,
        // As kubectl reads manifests: `defaultMode: 0644` is octal.
        legacy_octal_numbers: true,
        budget: serde_saphyr::budget! {
            max_depth: DEPTH_MAX,
            max_nodes: VALUES_MAX,
            max_events: 2 * VALUES_MAX,
            max_aliases: 1_000,
            max_anchors: 1_000,
            max_documents: 1,
            max_recorded_anchor_events: VALUES_MAX,
            max_recorded_anchor_bytes: TEXT_BYTES_MAX,
            max_total_scalar_bytes: TEXT_BYTES_MAX,
            max_merge_keys: 1_000,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: VALUES_MAX,
        },
    };
    let bytes = first_document(bytes);
    serde_saphyr::with_deserializer_from_slice_with_options(bytes, options, |yaml| {
        DocumentNode {
            budget,
            path: &SchemaPath::Root,
            depth: 0,
        }
        .deserialize(yaml)
    })
}

/// The text up to the end of the first document. Markers are at the start of a line, where no scalar can have them.
fn first_document(bytes: &[u8]) -> &[u8] {
    let is_marker = |line: &[u8], marker: &[u8]| {
        let rest = line.strip_prefix(marker);
        rest.is_some_and(|rest| rest.first().is_none_or(u8::is_ascii_whitespace))
    };
    let mut has_begun = false;
    let mut end = 0;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let (starts, ends) = (is_marker(line, b"---"), is_marker(line, b"..."));
        if has_begun && (starts || ends) {
            return bytes.get(..end).unwrap_or(bytes);
        }
        let content = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        let content = content.trim_ascii();
        let is_content =
            !(content.is_empty() || content.starts_with(b"#") || line.starts_with(b"%"));
        has_begun |= starts || is_content;
        end += line.len();
    }
    bytes
}

/// A message in the words of clients where there are such words.
fn json_message(error: &serde_json::Error) -> String {
    if error.is_eof() {
        "unexpected end of JSON input".to_owned()
    } else {
        error.to_string()
    }
}

/// The use of the limits of a document, and its faults.
#[derive(Default)]
struct DocumentBudget {
    values: usize,
    text_bytes: usize,
    duplicates: Vec<String>,
    trace: Option<Trace>,
}

impl DocumentBudget {
    fn value<E: Error>(&mut self) -> Result<(), E> {
        self.values += 1;
        if self.values > VALUES_MAX {
            return Err(E::custom(format_args!(
                "the document holds more than {VALUES_MAX} values"
            )));
        }
        Ok(())
    }

    fn text<E: Error>(&mut self, bytes: usize) -> Result<(), E> {
        self.text_bytes = self.text_bytes.saturating_add(bytes);
        if self.text_bytes > TEXT_BYTES_MAX {
            return Err(E::custom(format_args!(
                "the document holds more than {TEXT_BYTES_MAX} bytes of text"
            )));
        }
        Ok(())
    }

    fn duplicate(&mut self, path: &SchemaPath<'_>) {
        if self.duplicates.len() < DUPLICATES_MAX {
            let path = path.to_string();
            if !self.duplicates.contains(&path) {
                self.duplicates.push(path);
            }
        }
    }
}

/// One value of the document.
struct DocumentNode<'b, 'p> {
    budget: &'b mut DocumentBudget,
    path: &'p SchemaPath<'p>,
    depth: usize,
}

impl DocumentNode<'_, '_> {
    fn deeper<E: Error>(&self) -> Result<usize, E> {
        if self.depth >= DEPTH_MAX {
            return Err(E::custom(format_args!(
                "objects and lists are nested deeper than {DEPTH_MAX}"
            )));
        }
        Ok(self.depth + 1)
    }
}

impl<'de> DeserializeSeed<'de> for DocumentNode<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.budget.value()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for DocumentNode<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("a number must be finite"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.budget.text(value.len())?;
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        self.budget.text(value.len())?;
        Ok(Value::String(value))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let depth = self.deeper()?;
        let mut list = Vec::new();
        while let Some(value) = items.next_element_seed(DocumentNode {
            budget: &mut *self.budget,
            path: &SchemaPath::Index(self.path, list.len()),
            depth,
        })? {
            list.push(value);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let depth = self.deeper()?;
        let mut map = Map::new();
        while let Some(YamlKey(key)) = entries.next_key::<YamlKey>()? {
            self.budget.text(key.len())?;
            let path = SchemaPath::Key(self.path, &key);
            if let Some(trace) = &mut self.budget.trace {
                trace.key(&path, map.contains_key(&key));
            }
            let value = entries.next_value_seed(DocumentNode {
                budget: &mut *self.budget,
                path: &path,
                depth,
            })?;
            if map.contains_key(&key) {
                self.budget.duplicate(&path);
            }
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

/// The key of an entry. YAML also knows numbers and booleans as keys; in JSON they are their texts.
struct YamlKey(String);

impl<'de> Deserialize<'de> for YamlKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KeyVisitor)
    }
}

struct KeyVisitor;

impl Visitor<'_> for KeyVisitor {
    type Value = YamlKey;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<YamlKey, E> {
        Ok(YamlKey(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<YamlKey, E> {
        Ok(YamlKey(value))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<YamlKey, E> {
        Ok(YamlKey(value.to_string()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<YamlKey, E> {
        Ok(YamlKey(value.to_string()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<YamlKey, E> {
        Ok(YamlKey(value.to_string()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<YamlKey, E> {
        Ok(YamlKey(value.to_string()))
    }
}
