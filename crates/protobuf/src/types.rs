//! The messages of Kubernetes' types: which field has which number, name and shape.
//!
//! They are read from `facts/kubernetes.txt`, the one place with facts about Kubernetes' types. The head of that file
//! describes its form and how it is generated. The embedded API server reads the rest of it. `facts/later.txt` adds the
//! kinds and fields of later releases that scheduling reads, and `facts/groups.txt` the types of group scheduling,
//! which the embedded API server serves.

use rustc_hash::FxHashMap;
use std::sync::OnceLock;

/// The facts about Kubernetes' types.
pub const FACTS: &str = include_str!("../facts/kubernetes.txt");
/// The fields that later releases of Kubernetes have added to these types, in the same form.
pub const LATER_FACTS: &str = include_str!("../facts/later.txt");
/// The types of group scheduling, in the same form.
pub const GROUP_FACTS: &str = include_str!("../facts/groups.txt");

/// The types of the machinery, which belong to every group and version.
const MACHINERY: [&str; 5] = [
    "meta.v1.DeleteOptions",
    "meta.v1.ListMeta",
    "meta.v1.PartialObjectMetadata",
    "meta.v1.PartialObjectMetadataList",
    "meta.v1.Status",
];

/// All messages.
#[derive(Debug)]
pub struct Types {
    messages: Vec<MessageType>,
    by_name: FxHashMap<&'static str, usize>,
    /// By `apiVersion` and `kind`.
    by_kind: FxHashMap<(&'static str, &'static str), usize>,
}

/// The message of a type.
#[derive(Debug)]
pub struct MessageType {
    /// The name without group and version, such as `PodSpec`.
    pub(crate) name: &'static str,
    /// By number.
    fields: Vec<Option<FieldTarget>>,
    /// The numbers of the fields that are not embedded, by their names in JSON.
    by_name: FxHashMap<&'static str, u32>,
    /// Whether fields of embedded messages are members of its objects.
    pub(crate) embeds: bool,
}

/// The target of a field of a message.
#[derive(Debug, Clone)]
pub(crate) enum FieldTarget {
    /// Into a field in JSON.
    Field(ProtobufField),
    /// Into the fields of the message around it: the index of an embedded message.
    Embedded(usize),
}

/// A field.
#[derive(Debug, Clone)]
pub(crate) struct ProtobufField {
    /// The name in JSON.
    pub(crate) name: &'static str,
    pub(crate) shape: FieldShape,
    /// Whether JSON leaves the field out when it is zero. Protobuf has no such rule: the message contains the zero.
    pub(crate) omits_zero: bool,
    /// The effect of a strategic merge patch on the values of a list.
    pub(crate) merge: ListMerge,
}

/// The effect of a strategic merge patch on the values of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListMerge {
    /// They are replaced.
    Replace,
    /// They are a set.
    Set,
    /// They are objects with this key.
    By(&'static str),
}

/// The shapes of a value.
#[derive(Debug, Clone)]
pub(crate) enum FieldShape {
    Bool,
    Int,
    String,
    Bytes,
    Quantity,
    IntOrString,
    Time,
    MicroTime,
    /// A message with a list of strings.
    Strings,
    /// A message with JSON.
    Json,
    /// A message with the bytes of JSON, which servers keep as they are (`RawExtension`); a string holds its text.
    Raw,
    /// A message with the JSON of an object; a string holds its text.
    Fields,
    Double,
    /// The index of a message.
    Message(usize),
    /// A message with a schema or something else, which JSON has in the same place.
    SchemaOr(SchemaOr, Box<FieldShape>),
    List(Box<FieldShape>),
    Map(Box<FieldShape>),
}

/// The values that may replace the schema of a custom resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SchemaOr {
    /// A list of schemas.
    Schemas,
    Bool,
    /// A list of strings.
    Strings,
}

// === impl Types ===

impl Types {
    /// The types of this process.
    pub fn get() -> &'static Self {
        static TYPES: OnceLock<Types> = OnceLock::new();
        TYPES.get_or_init(|| Self::read(&[FACTS, LATER_FACTS, GROUP_FACTS]))
    }

    /// The message of a kind. `None` when the kind has none, as custom resources.
    pub fn of_kind(&self, api_version: &str, kind: &str) -> Option<&MessageType> {
        // Options name the group and version of the object that they are for.
        let api_version = match kind {
            "DeleteOptions" => "v1",
            _ => api_version,
        };
        let at = self.by_kind.get(&(api_version, kind))?;
        self.messages.get(*at)
    }

    /// The message of a type by its name in the facts, such as `core.v1.PodSpec`.
    pub fn of_type(&self, name: &str) -> Option<&MessageType> {
        self.messages.get(*self.by_name.get(name)?)
    }

    /// A message by its index, which a shape or target contains.
    pub(crate) fn at(&self, index: usize) -> &MessageType {
        &self.messages[index]
    }

    fn read(facts: &[&'static str]) -> Self {
        let lines = || {
            let lines = facts.iter().flat_map(|facts| facts.lines());
            lines.filter(|line| !line.starts_with('#'))
        };
        let mut types = Self {
            messages: Vec::new(),
            by_name: FxHashMap::default(),
            by_kind: FxHashMap::default(),
        };
        for line in lines() {
            if let Some(rest) = line.strip_prefix("type ") {
                let name = rest.split(' ').next().unwrap_or(rest);
                if !types.by_name.contains_key(name) {
                    types.add(name, short(name));
                }
            }
        }
        let mut current = None;
        for line in lines() {
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                // The numbers of fields are those of every release.
                Some("release") if !line.starts_with(' ') => {}
                Some("resource") if !line.starts_with(' ') => {
                    current = None;
                    if let (Some(name), Some(version)) = (words.next(), words.next()) {
                        types.add_kind(name, version);
                    }
                }
                Some("sub") if current.is_none() => {
                    if let (_, Some(name), Some(version)) =
                        (words.next(), words.next(), words.next())
                    {
                        types.add_kind(name, version);
                    }
                }
                Some("type") if !line.starts_with(' ') => {
                    current = words
                        .next()
                        .and_then(|name| types.by_name.get(name).copied());
                }
                Some(name) => {
                    if let Some(current) = current
                        && let Some((number, target)) = types.field(name, words)
                    {
                        types.messages[current].set(number, target);
                    }
                }
                None => {}
            }
        }
        for name in MACHINERY {
            if let Some(at) = types.by_name.get(name) {
                for version in ["v1", "meta.k8s.io/v1"] {
                    types.by_kind.insert((version, short(name)), *at);
                }
            }
        }
        types
    }

    fn add(&mut self, full: &'static str, name: &'static str) -> usize {
        let at = self.messages.len();
        self.messages.push(MessageType {
            name,
            fields: Vec::new(),
            by_name: FxHashMap::default(),
            embeds: false,
        });
        self.by_name.insert(full, at);
        at
    }

    fn add_kind(&mut self, type_name: &'static str, api_version: &'static str) {
        if let Some(at) = self.by_name.get(type_name) {
            self.by_kind.insert((api_version, short(type_name)), *at);
        }
    }

    /// A field from the words of its line: name, number and type.
    fn field(
        &self,
        name: &'static str,
        mut words: impl Iterator<Item = &'static str>,
    ) -> Option<(usize, FieldTarget)> {
        let number: u8 = words.next()?.parse().ok()?;
        let text = words.next()?;
        if name == "^" {
            let target = FieldTarget::Embedded(*self.by_name.get(text)?);
            return Some((number.into(), target));
        }
        let shape = self.shape(text.trim_start_matches('*'))?;
        let (mut key, mut is_merged) = (None, false);
        for word in words {
            match word.split_once('=') {
                Some(("patch", strategy)) => {
                    is_merged = strategy.split(',').any(|word| word == "merge");
                }
                Some(("key", name)) => key = Some(name),
                _ => {}
            }
        }
        let field = ProtobufField {
            name: name.trim_end_matches('?'),
            shape,
            omits_zero: name.ends_with('?') && !text.starts_with('*'),
            merge: match (is_merged, key) {
                (true, Some(key)) => ListMerge::By(key),
                (true, None) => ListMerge::Set,
                (false, _) => ListMerge::Replace,
            },
        };
        Some((number.into(), FieldTarget::Field(field)))
    }

    fn schema_or(&self, other: SchemaOr) -> Option<FieldShape> {
        let schema = self.shape("apiextensions.v1.JSONSchemaProps")?;
        Some(FieldShape::SchemaOr(other, Box::new(schema)))
    }

    fn shape(&self, text: &str) -> Option<FieldShape> {
        if let Some(items) = text.strip_prefix("[]") {
            return Some(FieldShape::List(Box::new(self.shape(items)?)));
        }
        if let Some(values) = text.strip_prefix("map[string]") {
            return Some(FieldShape::Map(Box::new(self.shape(values)?)));
        }
        Some(match text {
            "string" => FieldShape::String,
            "bool" => FieldShape::Bool,
            "int32" | "int64" => FieldShape::Int,
            "bytes" => FieldShape::Bytes,
            "time" => FieldShape::Time,
            "microtime" => FieldShape::MicroTime,
            "quantity" => FieldShape::Quantity,
            "intorstring" => FieldShape::IntOrString,
            "strings" => FieldShape::Strings,
            "fields" => FieldShape::Fields,
            "raw" => FieldShape::Raw,
            "json" => FieldShape::Json,
            "double" => FieldShape::Double,
            "schemaorarray" => self.schema_or(SchemaOr::Schemas)?,
            "schemaorbool" => self.schema_or(SchemaOr::Bool)?,
            "schemaorstrings" => self.schema_or(SchemaOr::Strings)?,
            name => FieldShape::Message(*self.by_name.get(name)?),
        })
    }
}

/// The last part of a type's name.
fn short(name: &'static str) -> &'static str {
    name.rsplit('.').next().unwrap_or(name)
}

// === impl MessageType ===

impl MessageType {
    /// The name without group and version, such as `PodSpec`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    fn set(&mut self, number: usize, target: FieldTarget) {
        if self.fields.len() <= number {
            self.fields.resize(number + 1, None);
        }
        match (&target, u32::try_from(number)) {
            (FieldTarget::Field(field), Ok(number)) => _ = self.by_name.insert(field.name, number),
            _ => self.embeds = true,
        }
        self.fields[number] = Some(target);
    }

    /// The field of a number.
    pub(crate) fn field(&self, number: u32) -> Option<&FieldTarget> {
        self.fields.get(usize::try_from(number).ok()?)?.as_ref()
    }

    /// The field of a name in JSON, with its number.
    pub(crate) fn named(&self, name: &str) -> Option<(u32, &ProtobufField)> {
        let number = *self.by_name.get(name)?;
        match self.field(number)? {
            FieldTarget::Field(field) => Some((number, field)),
            FieldTarget::Embedded(_) => None,
        }
    }

    /// All fields, by number.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (u32, &FieldTarget)> {
        let numbered = (0..).zip(&self.fields);
        numbered.filter_map(|(number, target)| Some((number, target.as_ref()?)))
    }
}
