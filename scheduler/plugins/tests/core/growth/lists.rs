//! Every list of the kinds that the scheduler follows, from the facts about Kubernetes' types, and objects with a
//! number of items in one of them.

use berth_api::{Kind, Object};
use berth_protobuf::facts::{Facts, FieldFacts, TypeId, ValueShape};
use serde_json::{Map, Value, json};
use std::ops::Range;

/// The name of everything that is looked up by name: objects refer to each other.
pub(super) const NAME: &str = "x";
/// The depth below which the fields of an item are left out.
const DEPTH_MAX: usize = 3;

/// A list or map of a kind.
#[derive(Debug, Clone)]
pub(super) struct List {
    pub(super) kind: Kind,
    /// The fields on the way to it.
    path: Vec<&'static FieldFacts>,
    /// The alternative that the items use, if an item can have several alternatives.
    alternative: Option<&'static str>,
    /// Whether the items are equal, as far as they can be.
    pub(super) are_equal: bool,
}

impl std::fmt::Display for List {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path: Vec<&str> = self.path.iter().map(|field| field.name).collect();
        write!(f, "{:?} {}", self.kind, path.join("."))?;
        if let Some(alternative) = self.alternative {
            write!(f, " ({alternative})")?;
        }
        if self.are_equal {
            f.write_str(", equal items")?;
        }
        Ok(())
    }
}

/// The type of a kind.
fn type_of(kind: Kind) -> TypeId {
    let facts = Facts::get();
    let (group, version, plural) = kind.resource();
    let mut resources = facts.resources.iter();
    let resource = resources
        .find(|known| (known.group, known.version, known.plural) == (group, version, plural))
        .unwrap_or_else(|| panic!("no facts about {kind:?}"));
    facts.find(resource.type_name).expect("its type")
}

/// The fields of a type, including fields of embedded types.
fn fields(of: TypeId) -> Vec<&'static FieldFacts> {
    let own = Facts::get().types[of.0].fields.iter();
    own.flat_map(|field| match field.shape.object() {
        Some(embedded) if field.name == FieldFacts::EMBEDDED => fields(embedded),
        _ => vec![field],
    })
    .collect()
}

/// Every list that the scheduler reads of objects of a kind.
pub(super) fn lists_of(kind: Kind) -> Vec<List> {
    let mut paths = Vec::new();
    walk(type_of(kind), &mut Vec::new(), &mut Vec::new(), &mut paths);
    let mut lists = Vec::new();
    for path in paths {
        let shape = path.last().map(|field| &field.shape);
        let alternatives = shape.and_then(ValueShape::object).map(alternatives);
        let alternatives = alternatives.filter(|all| all.len() > 1).unwrap_or_default();
        let alternatives = alternatives.into_iter().map(Some).chain([None]);
        for alternative in alternatives {
            for are_equal in [false, true] {
                let list = List {
                    kind,
                    path: path.clone(),
                    alternative,
                    are_equal,
                };
                // A list that the scheduler does not read is not decoded.
                let is_read = list.object(1, "a") != list.object(3, "a");
                lists.extend(is_read.then_some(list));
            }
        }
    }
    lists
}

fn walk(
    of: TypeId,
    above: &mut Vec<TypeId>,
    path: &mut Vec<&'static FieldFacts>,
    found: &mut Vec<Vec<&'static FieldFacts>>,
) {
    if above.contains(&of) {
        return;
    }
    above.push(of);
    for field in fields(of) {
        path.push(field);
        if matches!(field.shape, ValueShape::List(_) | ValueShape::Map(_)) {
            found.push(path.clone());
        }
        if let Some(below) = field.shape.object() {
            walk(below, above, path, found);
        }
        path.pop();
    }
    above.pop();
}

/// The alternative fields of an object, at most one of which may be set: pointers to objects.
fn alternatives(of: TypeId) -> Vec<&'static str> {
    let fields = fields(of).into_iter();
    let is_alternative = |field: &&FieldFacts| field.pointer && field.shape.object().is_some();
    fields
        .filter(is_alternative)
        .map(|field| field.name)
        .collect()
}

impl List {
    /// An object of this name with a number of items in the list.
    pub(super) fn object(&self, items: usize, name: &str) -> Object {
        self.object_with(0..items, name)
    }

    /// The same with items of these numbers.
    pub(super) fn object_with(&self, items: Range<usize>, name: &str) -> Object {
        let json = self.json(items, name).to_string();
        let object = self.kind.decode(json.as_bytes());
        object.unwrap_or_else(|error| panic!("{self}: {error}"))
    }

    /// Returns whether both are the same field.
    pub(super) fn is_at_place_of(&self, other: &Self) -> bool {
        let names = |list: &Self| list.path.iter().map(|field| field.name).collect::<Vec<_>>();
        self.kind == other.kind && names(self) == names(other)
    }

    pub(super) fn json(&self, items: Range<usize>, name: &str) -> Value {
        let mut object = self.place(type_of(self.kind), false, &self.path, items);
        let meta = &mut object["metadata"];
        meta["name"] = json!(name);
        meta["namespace"] = json!("default");
        meta["uid"] = json!(format!("uid-{name}"));
        if self.kind == Kind::Pod {
            let spec = &mut object["spec"];
            if spec["containers"].is_null() {
                spec["containers"] = json!([{"name": "main"}]);
            }
            spec["schedulerName"] = json!("default-scheduler");
        }
        object
    }

    /// An object of a type with the list at the end of the path. On the way, items of lists have values in their other
    /// fields, and other objects have none.
    fn place(
        &self,
        of: TypeId,
        is_item: bool,
        path: &[&'static FieldFacts],
        items: Range<usize>,
    ) -> Value {
        let Some((field, rest)) = path.split_first() else {
            return self.sample_object(of, 0, 0, None);
        };
        let mut object = if is_item {
            self.sample_object(of, 0, DEPTH_MAX, None)
        } else {
            json!({})
        };
        let numbers = if rest.is_empty() { items.clone() } else { 0..1 };
        let is_list = matches!(field.shape, ValueShape::List(_) | ValueShape::Map(_));
        let value = |item: &ValueShape, index: usize| match (item.object(), rest.is_empty()) {
            (Some(below), false) => self.place(below, is_list, rest, items.clone()),
            (Some(below), true) => self.sample_object(below, index, 0, self.alternative),
            (None, _) => self.sample(item, field.name, "", index, 0),
        };
        object[field.name] = match &field.shape {
            ValueShape::List(item) => numbers.map(|index| value(item, index)).collect(),
            ValueShape::Map(item) => {
                let entries = numbers.map(|index| (key(item, index), value(item, index)));
                Value::Object(entries.collect())
            }
            shape => value(shape, 0),
        };
        object
    }

    /// An object with values in all of its fields, but only one of its alternative fields.
    fn sample_object(
        &self,
        of: TypeId,
        index: usize,
        depth: usize,
        alternative: Option<&str>,
    ) -> Value {
        let mut object = Map::new();
        let one_of = alternatives(of);
        for field in fields(of) {
            let is_left_out = one_of.contains(&field.name) && alternative != Some(field.name);
            let is_deep = depth >= DEPTH_MAX && field.shape.object().is_some();
            if !is_left_out && !is_deep {
                let value = self.sample(&field.shape, field.name, field.attributes, index, depth);
                object.insert(field.name.to_owned(), value);
            }
        }
        Value::Object(object)
    }

    fn sample(
        &self,
        shape: &ValueShape,
        field: &str,
        attributes: &str,
        index: usize,
        depth: usize,
    ) -> Value {
        match shape {
            ValueShape::Bool => json!(false),
            ValueShape::Int32 | ValueShape::Int64 | ValueShape::IntOrString
                if field.ends_with("ort") && !self.are_equal =>
            {
                json!(index + 1)
            }
            ValueShape::Int32 | ValueShape::Int64 | ValueShape::IntOrString => json!(1),
            ValueShape::Float => json!(1.0),
            ValueShape::String => json!(self.text(field, attributes, index)),
            ValueShape::Quantity => json!("1"),
            ValueShape::Time | ValueShape::MicroTime => json!("2026-01-01T00:00:00Z"),
            ValueShape::Duration => json!("1s"),
            ValueShape::Object(of) => self.sample_object(*of, index, depth + 1, None),
            ValueShape::List(item) => {
                Value::Array(vec![self.sample(item, field, attributes, index, depth + 1)])
            }
            ValueShape::Map(item) => {
                let value = self.sample(item, field, attributes, index, depth + 1);
                Value::Object([(key(item, index), value)].into_iter().collect())
            }
            _ => Value::Null,
        }
    }

    /// A text for a field: one that the field allows, or one of its own for each index.
    fn text(&self, field: &str, attributes: &str, index: usize) -> String {
        let mut words = attributes.split(' ');
        let allowed = words.find_map(|word| word.strip_prefix("enum="));
        let allowed: Vec<&str> = allowed.into_iter().flat_map(|all| all.split(',')).collect();
        // A node selector's operator has no list of values in the facts.
        let operators = ["In", "Equal", "Exists"];
        if field == "operator" {
            let known = operators.iter().find(|name| allowed.contains(name));
            return known.unwrap_or(&operators[0]).to_string();
        }
        match allowed.first() {
            Some(first) => (*first).to_owned(),
            None if self.are_equal => field.to_owned(),
            None => format!("{field}-{index}"),
        }
    }
}

/// The key of an entry.
fn key(of: &ValueShape, index: usize) -> String {
    match of {
        ValueShape::Quantity => format!("example.com/r-{index}"),
        _ => format!("key-{index}"),
    }
}
