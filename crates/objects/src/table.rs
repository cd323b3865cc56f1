//! Tables: objects as the rows that `kubectl get` prints, with upstream's columns and cells.
//!
//! The columns of a resource are listed in `facts/resources.txt`, those of custom resources in their definitions.
//! A resource without columns shows its name and when it was created.

mod cells;
mod components;
mod pods;
pub mod text;

use crate::access::StoredObject;
use crate::apply::fields_to_json;
use crate::catalog::ServedResource;
use crate::custom::JsonPath;
use crate::status::ApiError;
use crate::view::FieldView;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// A column.
#[derive(Debug, Clone)]
pub struct TableColumn {
    name: Box<str>,
    kind: Box<str>,
    format: Box<str>,
    description: Box<str>,
    /// Zero is always shown, anything else only when asked for width.
    priority: i64,
    cell: Cell,
}

/// The source of the value of a cell.
#[derive(Debug, Clone)]
enum Cell {
    /// A field, read through filters.
    Field {
        pointer: Box<str>,
        filters: Vec<CellFilter>,
    },
    /// The age of the object.
    Age,
    /// The values of a path of a custom resource.
    Path(JsonPath),
    /// A function.
    Call(CellFn),
}

/// Computes a cell.
pub(crate) type CellFn = fn(&Value, Timestamp) -> Value;

/// The conversion of the value of a field.
#[derive(Debug, Clone)]
enum CellFilter {
    Age,
    Flag,
    Join,
    Len,
    Number,
    Or(Box<str>),
    Selector,
}

/// The part of an object that a row holds besides the cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Include {
    /// Nothing.
    None,
    /// The metadata of the object.
    #[default]
    Metadata,
    /// The object.
    Object,
}

impl Include {
    /// Reads the query parameter `includeObject`.
    ///
    /// # Errors
    /// 400 for another word than the three known ones.
    pub fn parse(text: &str) -> Result<Self, ApiError> {
        match text {
            "" | "Metadata" => Ok(Self::Metadata),
            "None" => Ok(Self::None),
            "Object" => Ok(Self::Object),
            other => Err(ApiError::bad_request(format!(
                "unrecognized includeObject value: {other:?}"
            ))),
        }
    }
}

impl TableColumn {
    fn new(name: &str, kind: &str, cell: Cell) -> Self {
        Self {
            name: name.into(),
            kind: kind.into(),
            format: "".into(),
            description: "".into(),
            priority: 0,
            cell,
        }
    }

    fn name() -> Self {
        Self {
            format: "name".into(),
            ..Self::new("Name", "string", Cell::field("/metadata/name"))
        }
    }

    /// Reads a column of the table of resources: its name, type and value.
    pub fn parse(mut words: impl Iterator<Item = &'static str>, wide: bool) -> Self {
        let name = words.next().unwrap_or("").trim_matches('"');
        let kind = words.next().unwrap_or("string");
        let value = words.next();
        let mut column = match (name, value) {
            ("Age", None) => Self::new(name, kind, Cell::Age),
            ("Name", None) => Self::name(),
            (_, value) => Self::new(name, kind, Cell::parse(value.unwrap_or(""))),
        };
        if name == "Name" {
            (column.kind, column.format) = ("string".into(), "name".into());
        }
        column.priority = i64::from(wide);
        column
    }

    /// A column of a CustomResourceDefinition.
    pub(crate) fn custom(column: &Value, path: JsonPath) -> Self {
        let text = |field: &str| column.get(field).and_then(Value::as_str).unwrap_or("");
        Self {
            format: text("format").into(),
            description: match text("description") {
                "" => {
                    let path = text("jsonPath");
                    format!("Custom resource definition column (in JSONPath format): {path}").into()
                }
                description => description.into(),
            },
            priority: column.int("priority"),
            ..Self::new(text("name"), text("type"), Cell::Path(path))
        }
    }

    /// The text for the values to which a path leads.
    fn found(&self, path: &JsonPath, object: &Value, now: Timestamp) -> Value {
        let found = path.find(object);
        let Some(first) = found.first() else {
            return Value::Null;
        };
        let plain = |value: &Value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        match &*self.kind {
            "date" => match first.as_str() {
                Some(time) => text::since(time, now).into(),
                None => "<unknown>".into(),
            },
            "integer" => first.as_i64().map_or(Value::Null, Value::from),
            "number" if first.is_number() => Value::clone(first),
            "boolean" => first.as_bool().map_or(Value::Null, Value::from),
            "string" => found
                .into_iter()
                .map(plain)
                .collect::<Vec<_>>()
                .join(" ")
                .into(),
            _ => Value::Null,
        }
    }

    fn generic() -> Vec<Self> {
        let created = Cell::field("/metadata/creationTimestamp");
        vec![Self::name(), Self::new("Created At", "date", created)]
    }

    fn to_value(&self) -> Value {
        json!({
            "name": self.name,
            "type": self.kind,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        })
    }

    fn cell(&self, object: &Value, now: Timestamp) -> Value {
        let (pointer, filters) = match &self.cell {
            Cell::Age => return text::age(object, now).into(),
            Cell::Call(function) => return function(object, now),
            Cell::Path(path) => return self.found(path, object, now),
            Cell::Field { pointer, filters } => (pointer, filters),
        };
        let found = object.pointer(pointer).filter(|v| !v.is_null());
        let mut value = match (found, &*self.kind) {
            (found, "integer") if filters.is_empty() => {
                found.and_then(Value::as_i64).unwrap_or(0).into()
            }
            (found, "boolean") => found.and_then(Value::as_bool).unwrap_or(false).into(),
            (Some(Value::String(text)), _) => text.as_str().into(),
            (Some(other), _) => other.clone(),
            (None, _) => Value::Null,
        };
        for filter in filters {
            value = filter.apply(value, now);
        }
        match value {
            Value::Null => "".into(),
            value => value,
        }
    }
}

impl Cell {
    fn field(pointer: &str) -> Self {
        Self::Field {
            pointer: pointer.into(),
            filters: Vec::new(),
        }
    }

    /// `.path.to.field|filter|filter` or `@function`.
    fn parse(text: &str) -> Self {
        if let Some(name) = text.strip_prefix('@') {
            return cells::find(name).map_or(Self::field(""), Self::Call);
        }
        let mut parts = text.split('|');
        let pointer = parts.next().unwrap_or("").replace('.', "/");
        let filters = parts.filter_map(|word| {
            Some(match word {
                "age" => CellFilter::Age,
                "flag" => CellFilter::Flag,
                "join" => CellFilter::Join,
                "len" => CellFilter::Len,
                "number" => CellFilter::Number,
                "selector" => CellFilter::Selector,
                "none" => CellFilter::Or(text::NONE.into()),
                "unset" => CellFilter::Or(text::UNSET.into()),
                "unknown" => CellFilter::Or(text::UNKNOWN.into()),
                word => CellFilter::Or(word.strip_prefix("or(")?.strip_suffix(')')?.into()),
            })
        });
        Self::Field {
            pointer: pointer.into(),
            filters: filters.collect(),
        }
    }
}

impl CellFilter {
    fn apply(&self, value: Value, now: Timestamp) -> Value {
        match self {
            Self::Age => match value.as_str() {
                Some(time) => text::since(time, now).into(),
                None => Value::Null,
            },
            Self::Flag => value.as_bool().unwrap_or(false).into(),
            Self::Number => value.as_i64().unwrap_or(0).into(),
            Self::Len => match value {
                Value::Array(list) => list.len().into(),
                Value::Object(map) => map.len().into(),
                _ => 0.into(),
            },
            Self::Join => {
                let entries = value.as_array().into_iter().flatten();
                let texts: Vec<&str> = entries.filter_map(Value::as_str).collect();
                texts.join(",").into()
            }
            Self::Selector => text::selector(&value).into(),
            Self::Or(otherwise) => match &value {
                Value::Null => (**otherwise).into(),
                Value::String(text) if text.is_empty() => (**otherwise).into(),
                Value::Number(n) => n.to_string().into(),
                _ => value,
            },
        }
    }
}

/// The columns of a resource.
fn columns_of(resource: &ServedResource) -> std::borrow::Cow<'_, [TableColumn]> {
    if resource.columns.is_empty() {
        TableColumn::generic().into()
    } else {
        resource.columns.as_slice().into()
    }
}

/// A table of these objects. `with_columns` is whether the definitions are in it, which a stream sends only once.
pub fn table(
    resource: &ServedResource,
    objects: impl IntoIterator<Item = StoredObject>,
    list_meta: Map<String, Value>,
    include: Include,
    with_columns: bool,
    now: Timestamp,
) -> Value {
    let columns = columns_of(resource);
    let rows: Vec<Value> = objects
        .into_iter()
        .map(|object| row(resource, &columns, &object, include, now))
        .collect();
    let definitions = if with_columns {
        columns.iter().map(TableColumn::to_value).collect()
    } else {
        Value::Null
    };
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": list_meta,
        "columnDefinitions": definitions,
        "rows": rows,
    })
}

fn cells(columns: &[TableColumn], object: &Value, now: Timestamp) -> Vec<Value> {
    columns.iter().map(|c| c.cell(object, now)).collect()
}

fn row(
    resource: &ServedResource,
    columns: &[TableColumn],
    object: &Value,
    include: Include,
    now: Timestamp,
) -> Value {
    let mut row = Map::new();
    row.insert("cells".to_owned(), cells(columns, object, now).into());
    if resource.kind == "Pod"
        && let Some(condition) = pods::row_condition(object)
    {
        row.insert("conditions".to_owned(), json!([condition]));
    }
    let shown = match include {
        Include::None => Value::Null,
        Include::Metadata => partial_metadata(object),
        Include::Object => {
            let mut shown = resource.shown(object);
            fields_to_json(&mut shown);
            shown
        }
    };
    row.insert("object".to_owned(), shown);
    Value::Object(row)
}

/// The object reduced to its metadata.
pub fn partial_metadata(object: &Value) -> Value {
    let mut partial = json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object.get("metadata").unwrap_or(&Value::Null),
    });
    fields_to_json(&mut partial);
    partial
}

#[cfg(test)]
mod tests;
