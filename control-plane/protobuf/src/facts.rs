//! The facts about Kubernetes' types, and their one parser.
//!
//! `facts/kubernetes.txt` has the resources, types and fields that Kubernetes publishes. The head of that file describes
//! its form and how it is generated. `facts/later.txt` adds the kinds and fields of later releases that scheduling reads,
//! and `facts/groups.txt` the types of group scheduling. A type that several of them list has the fields of all.

use rustc_hash::FxHashMap;
use serde_json::{Map, Value};
use std::cmp::Reverse;
use std::sync::OnceLock;

/// The tables.
pub(crate) const TABLES: [&str; 3] = [
    include_str!("../facts/kubernetes.txt"),
    include_str!("../facts/later.txt"),
    include_str!("../facts/groups.txt"),
];

/// The types of the machinery, which belong to every group and version: clients send and receive them, although they
/// are not resources.
pub const MACHINERY: [&str; 5] = [
    "meta.v1.DeleteOptions",
    "meta.v1.ListMeta",
    "meta.v1.PartialObjectMetadata",
    "meta.v1.PartialObjectMetadataList",
    "meta.v1.Status",
];

/// The contents of the tables.
#[derive(Debug, Default)]
pub struct Facts {
    /// Every resource, in the order of discovery.
    pub resources: Vec<ResourceFacts>,
    /// Every type. A [`TypeId`] is an index.
    pub types: Vec<TypeFacts>,
    /// Lines that could not be read; none, as a test ensures.
    pub faults: Vec<String>,
    by_name: FxHashMap<&'static str, TypeId>,
}

/// A resource as Kubernetes publishes it.
#[derive(Debug)]
pub struct ResourceFacts {
    /// The type of its objects.
    pub type_name: &'static str,
    /// Group and version, such as `apps/v1`; the version alone for core.
    pub api_version: &'static str,
    /// The API group, empty for core.
    pub group: &'static str,
    /// The version, such as `v1`.
    pub version: &'static str,
    /// The plural name.
    pub plural: &'static str,
    /// The name of one.
    pub singular: &'static str,
    /// Whether objects are namespaced.
    pub namespaced: bool,
    /// Abbreviations for the command line.
    pub short_names: Vec<&'static str>,
    /// Groups of resources for the command line, such as `all`.
    pub categories: Vec<&'static str>,
    /// The verbs, or all eight when none is listed.
    pub verbs: Option<Vec<&'static str>>,
    /// The subresources.
    pub subresources: Vec<SubresourceFacts>,
    /// The first release that has the resource; `None` if every known release has it.
    pub since: Option<&'static str>,
}

/// A subresource as Kubernetes publishes it.
#[derive(Debug)]
pub struct SubresourceFacts {
    /// The last segment of its path.
    pub name: &'static str,
    /// The type of its body; only a kind with the prefix `-` if that is not an object.
    pub type_name: &'static str,
    /// Group and version of that type.
    pub api_version: &'static str,
    /// The API group of that type.
    pub group: &'static str,
    /// The version of that type.
    pub version: &'static str,
    /// The verbs.
    pub verbs: Vec<&'static str>,
}

/// The index of a type in its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TypeId(pub usize);

/// A type.
#[derive(Debug)]
pub struct TypeFacts {
    /// The name, such as `core.v1.PodSpec`.
    pub name: &'static str,
    /// Whether objects of this type are owned as a whole.
    pub atomic: bool,
    /// Whether it also has the fields `apiVersion` and `kind`.
    pub object: bool,
    /// Its own fields, in the order of the tables.
    pub fields: Vec<FieldFacts>,
    /// The first release that publishes the type. It can also be the storage type of earlier releases, for objects of
    /// an older version of its group.
    since: Option<&'static str>,
}

/// A field of a type.
#[derive(Debug)]
pub struct FieldFacts {
    /// The name in JSON; [`FieldFacts::EMBEDDED`] if the fields of its type are inlined.
    pub name: &'static str,
    /// The number in protobuf, if it is known.
    pub number: Option<u8>,
    /// The shape of the value.
    pub shape: ValueShape,
    /// Whether it is a pointer in Go: its absence differs from its zero value.
    pub pointer: bool,
    /// The number of `?` after the name: with one it is left out when it is zero, with two even as an empty struct.
    pub omitted: usize,
    /// The words after the type.
    pub attributes: &'static str,
    /// The first release that has the field; `None` if the field is as old as its type.
    pub since: Option<&'static str>,
}

/// The shapes of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueShape {
    /// Any JSON value; its members are not checked.
    Any,
    /// Any JSON object (`RawExtension`). In protobuf it is a message with the bytes of JSON.
    Raw,
    /// The fields of a managed fields entry: any JSON object.
    Fields,
    /// `true` or `false`.
    Bool,
    /// A whole number of 32 bits.
    Int32,
    /// A whole number of 64 bits.
    Int64,
    /// A number.
    Float,
    /// A string.
    String,
    /// A base64 string.
    Bytes,
    /// An RFC 3339 time, to the second.
    Time,
    /// An RFC 3339 time, to the microsecond.
    MicroTime,
    /// A duration such as `1m30s`.
    Duration,
    /// A resource quantity: a string or a number.
    Quantity,
    /// A 32-bit number or a string.
    IntOrString,
    /// A list of strings that is a separate message in protobuf.
    Strings,
    /// A JSON schema, or one of the alternatives that the field allows. Any JSON value; protobuf distinguishes them.
    SchemaOr(Alternative),
    /// An object with known fields.
    Object(TypeId),
    /// A list.
    List(Box<ValueShape>),
    /// An object with free keys.
    Map(Box<ValueShape>),
}

/// The values that some fields allow instead of a JSON schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alternative {
    /// A list of schemas.
    Array,
    /// `true` or `false`.
    Bool,
    /// A list of strings.
    Strings,
}

/// The words of a line of a table; a value in double quotes may hold spaces.
pub fn words(line: &'static str) -> impl Iterator<Item = &'static str> + Clone {
    let mut rest = line;
    std::iter::from_fn(move || {
        let (word, after) = split_word(rest)?;
        rest = after;
        Some(word)
    })
}

/// The first word of a line, and the rest.
fn split_word(line: &'static str) -> Option<(&'static str, &'static str)> {
    let line = line.trim();
    let mut quoted = false;
    let mut ends = line.char_indices().filter(|(_, c)| {
        quoted ^= *c == '"';
        *c == ' ' && !quoted
    });
    let end = ends.next().map_or(line.len(), |(at, _)| at);
    (!line.is_empty()).then(|| line.split_at(end))
}

// === impl Facts ===

impl Facts {
    /// The facts of this process.
    pub fn get() -> &'static Self {
        static FACTS: OnceLock<Facts> = OnceLock::new();
        FACTS.get_or_init(Self::read)
    }

    /// A type by its name, such as `core.v1.PodSpec`.
    pub fn find(&self, name: &str) -> Option<TypeId> {
        self.by_name.get(name).copied()
    }

    fn read() -> Self {
        let mut reader = FactsReader::default();
        for (i, table) in TABLES.into_iter().enumerate() {
            (reader.is_first, reader.since, reader.current) = (i == 0, None, None);
            for line in table.lines().filter(|line| !line.starts_with('#')) {
                if reader.line(line).is_none() {
                    reader.facts.faults.push(line.to_owned());
                }
            }
        }
        // All types are known before the first field is read, because they refer to each other.
        let FactsReader {
            mut facts, lines, ..
        } = reader;
        for (at, since, line) in lines {
            // A new type does not depend on the release itself: the fields that refer to it do.
            let is_new = facts.types.get(at).is_some_and(|of| of.since == since);
            let since = since.filter(|_| !is_new);
            match (facts.field(since, line), facts.types.get_mut(at)) {
                (Some(field), Some(of)) => of.fields.push(field),
                _ => facts.faults.push(line.to_owned()),
            }
        }
        facts
    }

    /// A field from its line.
    fn field(&self, since: Option<&'static str>, line: &'static str) -> Option<FieldFacts> {
        let (name, rest) = split_word(line)?;
        let (number, rest) = split_word(rest)?;
        let (shape, attributes) = split_word(rest)?;
        let bare = name.trim_end_matches('?');
        Some(FieldFacts {
            name: bare,
            number: match number {
                "-" => None,
                number => Some(number.parse().ok()?),
            },
            shape: self.shape(shape.trim_start_matches('*'))?,
            pointer: shape.starts_with('*'),
            omitted: name.len() - bare.len(),
            attributes,
            since,
        })
    }

    fn shape(&self, text: &str) -> Option<ValueShape> {
        if let Some(items) = text.strip_prefix("[]") {
            return Some(ValueShape::List(Box::new(self.shape(items)?)));
        }
        if let Some(values) = text.strip_prefix("map[string]") {
            return Some(ValueShape::Map(Box::new(self.shape(values)?)));
        }
        Some(match text {
            "string" => ValueShape::String,
            "bool" => ValueShape::Bool,
            "int32" => ValueShape::Int32,
            "int64" => ValueShape::Int64,
            "double" => ValueShape::Float,
            "bytes" => ValueShape::Bytes,
            "time" => ValueShape::Time,
            "microtime" => ValueShape::MicroTime,
            "duration" => ValueShape::Duration,
            "quantity" => ValueShape::Quantity,
            "intorstring" => ValueShape::IntOrString,
            "strings" => ValueShape::Strings,
            "fields" => ValueShape::Fields,
            "raw" => ValueShape::Raw,
            "json" => ValueShape::Any,
            "schemaorarray" => ValueShape::SchemaOr(Alternative::Array),
            "schemaorbool" => ValueShape::SchemaOr(Alternative::Bool),
            "schemaorstrings" => ValueShape::SchemaOr(Alternative::Strings),
            name => ValueShape::Object(self.find(name)?),
        })
    }
}

// === impl ValueShape ===

impl ValueShape {
    /// The object type of the value, or of the entries of a list or map.
    pub fn object(&self) -> Option<TypeId> {
        match self {
            Self::Object(id) => Some(*id),
            Self::List(inner) | Self::Map(inner) => inner.object(),
            _ => None,
        }
    }

    /// The zero value as it is written; `None` where none is.
    pub fn zero(&self) -> Option<Value> {
        match self {
            Self::Bool => Some(Value::Bool(false)),
            Self::Int32 | Self::Int64 | Self::Float | Self::IntOrString => Some(Value::from(0)),
            Self::String | Self::Bytes => Some(Value::String(String::new())),
            Self::Quantity => Some(Value::String("0".to_owned())),
            Self::Duration => Some(Value::String("0s".to_owned())),
            Self::Object(_) => Some(Value::Object(Map::new())),
            Self::Time | Self::MicroTime | Self::List(_) | Self::Map(_) => Some(Value::Null),
            Self::Any | Self::Raw | Self::Fields | Self::Strings | Self::SchemaOr(_) => None,
        }
    }
}

// === impl FieldFacts ===

impl FieldFacts {
    /// The name of a field whose type is embedded.
    pub const EMBEDDED: &str = "^";
}

/// Reads the lines of the tables, and collects the lines of fields.
#[derive(Default)]
struct FactsReader {
    facts: Facts,
    /// The lines of fields, with the index of the type and the first release that has the field.
    lines: Vec<(usize, Option<&'static str>, &'static str)>,
    /// Whether the lines belong to the first table.
    is_first: bool,
    /// The release of the lines, if they do not apply to all known releases.
    since: Option<&'static str>,
    /// The resource or type that the lines below it are about.
    current: Option<Current>,
}

#[derive(Clone, Copy)]
enum Current {
    Resource(usize),
    Type(usize),
}

impl FactsReader {
    /// Reads a line; `None` when it has another form.
    fn line(&mut self, line: &'static str) -> Option<()> {
        let mut words = words(line);
        let Some(first) = words.next() else {
            return Some(());
        };
        // A line that begins with a space belongs to the last type or resource.
        if line.starts_with(' ') {
            match self.current? {
                Current::Resource(at) if first == "sub" => {
                    let sub = subresource(words)?;
                    let resource = self.facts.resources.get_mut(at)?;
                    resource.subresources.push(sub);
                }
                Current::Resource(_) => return None,
                Current::Type(at) => self.lines.push((at, self.since, line)),
            }
            return Some(());
        }
        match first {
            "release" => self.since = Some(words.next()?),
            "resource" => {
                let resource = resource(self.since, words)?;
                let at = self.place_of(&resource);
                self.facts.resources.insert(at, resource);
                self.current = Some(Current::Resource(at));
            }
            "type" => {
                let at = self.type_of(words)?;
                self.current = Some(Current::Type(at));
            }
            _ => return None,
        }
        Some(())
    }

    /// The position of a resource in the order of discovery. The first table has that order; a resource of another
    /// table follows the resources of its group with the same or a newer version.
    fn place_of(&self, resource: &ResourceFacts) -> usize {
        let known = &self.facts.resources;
        if self.is_first {
            return known.len();
        }
        let rank = |r: &ResourceFacts| (version_rank(r.version), r.plural);
        let is_of_group = |r: &ResourceFacts| r.group == resource.group;
        let before = known
            .iter()
            .rposition(|r| is_of_group(r) && rank(r) <= rank(resource));
        match before {
            Some(at) => at + 1,
            None => known.iter().position(is_of_group).unwrap_or(known.len()),
        }
    }

    /// The type of a line, added unless it is known.
    fn type_of(&mut self, mut words: impl Iterator<Item = &'static str>) -> Option<usize> {
        let name = words.next()?;
        if let Some(known) = self.facts.find(name) {
            return Some(known.0);
        }
        let marks: Vec<&str> = words.collect();
        let at = self.facts.types.len();
        self.facts.types.push(TypeFacts {
            name,
            atomic: marks.contains(&"atomic"),
            object: marks.contains(&"object"),
            fields: Vec::new(),
            since: self.since,
        });
        self.facts.by_name.insert(name, TypeId(at));
        Some(at)
    }
}

/// The order of versions: general availability first, then beta, then alpha, and the newest first.
fn version_rank(version: &str) -> (u8, Reverse<u32>, Reverse<u32>) {
    let number = |text: &str| Reverse(text.parse().unwrap_or(0));
    let version = version.trim_start_matches('v');
    for (stage, word) in [(1, "beta"), (2, "alpha")] {
        if let Some((major, minor)) = version.split_once(word) {
            return (stage, number(major), number(minor));
        }
    }
    (0, number(version), number(""))
}

fn group_version(text: &'static str) -> (&'static str, &'static str) {
    text.split_once('/').unwrap_or(("", text))
}

fn resource(
    since: Option<&'static str>,
    mut words: impl Iterator<Item = &'static str>,
) -> Option<ResourceFacts> {
    let type_name = words.next()?;
    let api_version = words.next()?;
    let (group, version) = group_version(api_version);
    let mut resource = ResourceFacts {
        type_name,
        api_version,
        group,
        version,
        plural: words.next()?,
        singular: words.next()?,
        namespaced: words.next()? == "namespaced",
        short_names: Vec::new(),
        categories: Vec::new(),
        verbs: None,
        subresources: Vec::new(),
        since,
    };
    for word in words {
        let (label, list) = word.split_once('=')?;
        let list: Vec<&str> = list.split(',').collect();
        match label {
            "short" => resource.short_names = list,
            "categories" => resource.categories = list,
            "verbs" => resource.verbs = Some(list),
            _ => return None,
        }
    }
    Some(resource)
}

fn subresource(mut words: impl Iterator<Item = &'static str>) -> Option<SubresourceFacts> {
    let name = words.next()?;
    let type_name = words.next()?;
    let api_version = words.next()?;
    let (group, version) = group_version(api_version);
    Some(SubresourceFacts {
        name,
        type_name,
        api_version,
        group,
        version,
        verbs: words.next()?.split(',').collect(),
    })
}
