//! Reads `crates/protobuf/facts/kubernetes.txt`: the resources, types and fields that Kubernetes publishes. The head of
//! that file describes its form and how to generate it. `later.txt` beside it has those that later releases have added,
//! `groups.txt` the types of group scheduling.

use super::model::{
    Alternative, ListType, Model, ModelField, ObjectType, Presence, TypeId, ValueShape,
};
use crate::facts::words;
use berth_api::Release;
use rustc_hash::FxHashMap;
use serde_json::Value;

/// The tables. A type that several of them list has the fields of all.
pub(super) const TABLES: [&str; 3] = [
    berth_protobuf::FACTS,
    berth_protobuf::LATER_FACTS,
    berth_protobuf::GROUP_FACTS,
];

/// A resource as Kubernetes publishes it.
#[derive(Debug, Clone)]
pub(crate) struct ResourceFacts {
    /// The type of its objects.
    pub(crate) type_name: &'static str,
    /// The API group, empty for core.
    pub(crate) group: &'static str,
    /// The version, such as `v1`.
    pub(crate) version: &'static str,
    /// The plural name.
    pub(crate) plural: &'static str,
    /// The name of one.
    pub(crate) singular: &'static str,
    /// Whether objects live in a namespace.
    pub(crate) namespaced: bool,
    /// Abbreviations for the command line.
    pub(crate) short_names: Vec<&'static str>,
    /// Groups of resources for the command line, such as `all`.
    pub(crate) categories: Vec<&'static str>,
    /// The verbs, or all eight when none is listed.
    pub(crate) verbs: Option<Vec<&'static str>>,
    /// The subresources.
    pub(crate) subresources: Vec<SubresourceFacts>,
    /// The first release that has the resource.
    pub(crate) since: Release,
}

/// A subresource as Kubernetes publishes it.
#[derive(Debug, Clone)]
pub(crate) struct SubresourceFacts {
    /// The last segment of its path.
    pub(crate) name: &'static str,
    /// The type of its body; only a kind behind a `-` when that is no object.
    pub(crate) type_name: &'static str,
    /// The API group of that type.
    pub(crate) group: &'static str,
    /// The version of that type.
    pub(crate) version: &'static str,
    /// The verbs.
    pub(crate) verbs: Vec<&'static str>,
}

/// The contents of the table.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) model: Model,
    pub(super) resources: Vec<ResourceFacts>,
    /// Lines that could not be read.
    pub(super) faults: Vec<String>,
}

/// A type before the fields of embedded types are known.
struct RawType {
    name: &'static str,
    atomic: bool,
    /// Whether it has the fields `apiVersion` and `kind`.
    object: bool,
    /// The lines of its fields, with the first release that has them.
    lines: Vec<(Release, &'static str)>,
}

/// The lines of the tables, before types refer to each other.
#[derive(Default)]
struct Lines {
    release: Release,
    /// Whether the lines are those of the first table.
    is_first: bool,
    resources: Vec<ResourceFacts>,
    raw: Vec<RawType>,
    by_name: FxHashMap<&'static str, usize>,
    /// The resource or type that the lines below it are about.
    current: Option<Current>,
}

#[derive(Clone, Copy)]
enum Current {
    Resource(usize),
    Type(usize),
}

impl Lines {
    /// Begins a table: its lines are of the oldest release unless a line states another one.
    fn begin(&mut self) {
        self.is_first = self.raw.is_empty();
        self.release = Release::OLDEST;
        self.current = None;
    }

    /// Reads a line; `None` when it has another form.
    fn read(&mut self, line: &'static str) -> Option<()> {
        let mut words = words(line);
        let Some(first) = words.next() else {
            return Some(());
        };
        if !line.starts_with(' ') {
            return match first {
                "release" => {
                    // A release that does not exist is a fault of the table, not of a request.
                    let name = words.next()?;
                    self.release = Release::ALL.into_iter().find(|r| r.as_str() == name)?;
                    Some(())
                }
                "resource" => {
                    let mut resource = resource(words)?;
                    resource.since = self.release;
                    let at = self.place_of(&resource);
                    self.resources.insert(at, resource);
                    self.current = Some(Current::Resource(at));
                    Some(())
                }
                "type" => {
                    let at = self.type_of(words)?;
                    self.current = Some(Current::Type(at));
                    Some(())
                }
                _ => None,
            };
        }
        // A line that begins with a space belongs to the last type or resource.
        match self.current? {
            Current::Resource(at) if first == "sub" => {
                let sub = subresource(words)?;
                self.resources.get_mut(at)?.subresources.push(sub);
            }
            Current::Resource(_) => return None,
            Current::Type(at) => self.raw.get_mut(at)?.lines.push((self.release, line)),
        }
        Some(())
    }

    /// The place of a resource in the order in which discovery lists them. The first table has that order; a resource
    /// of another table follows those of its group that have its version or a newer one.
    fn place_of(&self, resource: &ResourceFacts) -> usize {
        if self.is_first {
            return self.resources.len();
        }
        let rank = |r: &ResourceFacts| (version_rank(r.version), r.plural);
        let before = self
            .resources
            .iter()
            .rposition(|r| r.group == resource.group && rank(r) <= rank(resource));
        let of_group = || {
            self.resources
                .iter()
                .position(|r| r.group == resource.group)
        };
        match before {
            Some(at) => at + 1,
            None => of_group().unwrap_or(self.resources.len()),
        }
    }

    /// The type of a line, added unless it is known.
    fn type_of(&mut self, mut words: impl Iterator<Item = &'static str>) -> Option<usize> {
        let name = words.next()?;
        if let Some(known) = self.by_name.get(name) {
            return Some(*known);
        }
        let marks: Vec<&str> = words.collect();
        let at = self.raw.len();
        self.raw.push(RawType {
            name,
            atomic: marks.contains(&"atomic"),
            object: marks.contains(&"object"),
            lines: Vec::new(),
        });
        self.by_name.insert(name, at);
        Some(at)
    }
}

/// The order of versions: general availability first, then beta, then alpha, and the newest first.
fn version_rank(version: &str) -> (u8, std::cmp::Reverse<u32>, std::cmp::Reverse<u32>) {
    let number = |text: &str| std::cmp::Reverse(text.parse().unwrap_or(0));
    let version = version.trim_start_matches('v');
    for (stage, word) in [(1, "beta"), (2, "alpha")] {
        if let Some((major, minor)) = version.split_once(word) {
            return (stage, number(major), number(minor));
        }
    }
    (0, number(version), number(""))
}

/// Reads tables.
pub(super) fn parse(texts: &[&'static str]) -> Table {
    let mut table = Table::default();
    let mut lines = Lines::default();
    for text in texts {
        lines.begin();
        for line in text.lines().filter(|l| !l.starts_with('#')) {
            if lines.read(line).is_none() {
                table.faults.push(line.to_owned());
            }
        }
    }
    let Lines {
        resources,
        raw,
        by_name,
        ..
    } = lines;
    table.resources = resources;
    // All types are known before the first is built, because they refer to each other.
    for raw in &raw {
        table.model.add(ObjectType::new(raw.name));
    }
    for (i, own) in raw.iter().enumerate() {
        let mut builder = FieldBuilder {
            raw: &raw,
            by_name: &by_name,
            fields: Vec::new(),
            faults: &mut table.faults,
        };
        builder.lines(own);
        if own.object {
            builder.fields.extend(["apiVersion", "kind"].map(|name| {
                let mut field = ModelField::new(name, ValueShape::String);
                field.presence = Presence::OmittedWhenZero;
                field
            }));
        }
        let fields = builder.fields;
        let mut object_type = ObjectType::new(own.name);
        object_type.atomic = own.atomic;
        object_type.fields = fields;
        // Sorted fields are found by a binary search, and errors have a stable order.
        object_type.fields.sort_by(|a, b| a.name.cmp(&b.name));
        table.model.set(TypeId(i), object_type);
    }
    table
}

fn group_version(text: &'static str) -> (&'static str, &'static str) {
    text.split_once('/').unwrap_or(("", text))
}

fn resource(mut words: impl Iterator<Item = &'static str>) -> Option<ResourceFacts> {
    let type_name = words.next()?;
    let (group, version) = group_version(words.next()?);
    let mut resource = ResourceFacts {
        type_name,
        group,
        version,
        plural: words.next()?,
        singular: words.next()?,
        namespaced: words.next()? == "namespaced",
        short_names: Vec::new(),
        categories: Vec::new(),
        verbs: None,
        subresources: Vec::new(),
        since: Release::OLDEST,
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
    let (group, version) = group_version(words.next()?);
    Some(SubresourceFacts {
        name,
        type_name,
        group,
        version,
        verbs: words.next()?.split(',').collect(),
    })
}

/// Collects the fields of a type, those of embedded types included.
struct FieldBuilder<'a> {
    raw: &'a [RawType],
    by_name: &'a FxHashMap<&'static str, usize>,
    fields: Vec<ModelField>,
    faults: &'a mut Vec<String>,
}

impl FieldBuilder<'_> {
    fn lines(&mut self, from: &RawType) {
        for (since, line) in &from.lines {
            if self.line(*since, line).is_none() {
                self.faults.push(format!("{}: {line}", from.name));
            }
        }
    }

    fn line(&mut self, since: Release, line: &'static str) -> Option<()> {
        let mut words = words(line);
        let name = words.next()?;
        // Zero where the number in protobuf is not known.
        let number = match words.next()? {
            "-" => 0,
            number => number.parse().ok()?,
        };
        let type_text = words.next()?;
        if name == "^" {
            let raw = self.raw;
            self.lines(raw.get(*self.by_name.get(type_text)?)?);
            return Some(());
        }
        let bare = name.trim_end_matches('?');
        let omitted = name.len() - bare.len();
        let pointer = type_text.starts_with('*');
        let shape = self.shape(type_text.trim_start_matches('*'))?;
        let mut field = ModelField::new(bare, shape);
        field.availability.since = since;
        field.number = number;
        field.pointer = pointer;
        field.required = omitted == 0;
        field.presence = presence(&field.shape, pointer, omitted);
        for word in words {
            attribute(&mut field, word)?;
        }
        self.fields.push(field);
        Some(())
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
            name => ValueShape::Object(TypeId(*self.by_name.get(name)?)),
        })
    }
}

/// Go leaves out what is `omitempty` and zero; but a struct is never zero unless it is `omitzero` (two marks).
fn presence(shape: &ValueShape, pointer: bool, omitted: usize) -> Presence {
    let is_struct = matches!(
        shape,
        ValueShape::Object(_)
            | ValueShape::Time
            | ValueShape::MicroTime
            | ValueShape::Duration
            | ValueShape::Quantity
            | ValueShape::IntOrString
    );
    match (shape, pointer, omitted) {
        (_, true, 1..)
        | (
            ValueShape::Any | ValueShape::Raw | ValueShape::Fields | ValueShape::SchemaOr(_),
            _,
            _,
        ) => Presence::AsWritten,
        (_, _, 2..) => Presence::AsWritten,
        _ if is_struct => Presence::AlwaysWritten,
        (_, _, 0) => Presence::AlwaysWritten,
        _ => Presence::OmittedWhenZero,
    }
}

fn attribute(field: &mut ModelField, word: &'static str) -> Option<()> {
    if let Some(marker) = word.strip_prefix('!') {
        field.markers.push(marker);
        return Some(());
    }
    let Some((label, value)) = word.split_once('=') else {
        field.required = match word {
            "req" => true,
            "opt" => false,
            _ => return None,
        };
        return Some(());
    };
    match label {
        "list" => {
            field.list = match value.strip_prefix("map(").and_then(|v| v.strip_suffix(')')) {
                Some(keys) => ListType::Map(keys.split(',').map(Box::from).collect()),
                // An unknown word is a fault of the table, so that a misspelling is not ignored.
                None if value == "set" => ListType::Set,
                None => return None,
            };
        }
        "map" => field.atomic = Some(value == "atomic"),
        "patch" => {
            for strategy in value.split(',') {
                match strategy {
                    "merge" => field.patch.merge = true,
                    "retainKeys" => field.patch.retain_keys = true,
                    "replace" => field.patch.replace = true,
                    _ => return None,
                }
            }
        }
        "key" => field.merge_key = Some(value.into()),
        "default" => field.default = serde_json::from_str::<Value>(value).ok(),
        "enum" => {
            field.values = value.trim_matches('"').split(',').map(Box::from).collect();
        }
        _ => return None,
    }
    Some(())
}
