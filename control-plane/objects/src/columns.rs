//! The columns of tables, and the functions that compute their cells.
//!
//! The columns of a resource are listed in `facts/resources.txt`, the columns of a custom resource in its definition.

mod cells;
mod components;
mod events;
pub(crate) mod pods;
pub mod text;

use self::text::CellFn;
use crate::json_path::JsonPath;
use crate::view::FieldView;
use jiff::Timestamp;
use serde_json::{Value, json};

/// A column.
#[derive(Debug, Clone)]
pub struct TableColumn {
    name: Box<str>,
    kind: Box<str>,
    format: Box<str>,
    description: Box<str>,
    /// Columns with priority zero are always shown, others only in wide output.
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

    /// The column of names.
    pub(crate) fn name() -> Self {
        Self {
            format: "name".into(),
            ..Self::new("Name", "string", Cell::field("/metadata/name"))
        }
    }

    /// The column of ages.
    pub(crate) fn age(kind: &str) -> Self {
        Self::new("Age", kind, Cell::Age)
    }

    /// Reads a column of the table of resources: its name, type and value. `None` when a word of it is unknown.
    pub fn parse(words: impl Iterator<Item = &'static str>, wide: bool) -> Option<Self> {
        let words: Vec<&str> = words.collect();
        let mut column = match words[..] {
            ["Age"] => Self::age("string"),
            ["Age", kind] => Self::age(kind),
            ["Name"] => Self::name(),
            [name, kind, value] => Self::new(name.trim_matches('"'), kind, Cell::parse(value)?),
            _ => return None,
        };
        if &*column.name == "Name" {
            (column.kind, column.format) = ("string".into(), "name".into());
        }
        column.priority = i64::from(wide);
        Some(column)
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

    /// The cell for the first value of a path.
    fn found(&self, path: &JsonPath, object: &Value, now: Timestamp) -> Value {
        let found = path.find(object).and_then(|found| found.into_iter().next());
        let Some(first) = found else {
            return Value::Null;
        };
        match (&*self.kind, first.as_ref()) {
            ("string", value) => text::printed(value).into(),
            ("date", Value::String(time)) => match time.as_str() {
                "" | "null" => text::UNKNOWN.into(),
                time if time.parse::<Timestamp>().is_err() => "<invalid>".into(),
                time => text::since(time, now).into(),
            },
            ("integer", Value::Number(number)) => match (number.as_i64(), number.as_f64()) {
                (Some(whole), _) => whole.into(),
                // The fraction is cut off.
                (None, number) => (number.unwrap_or_default() as i64).into(),
            },
            ("number", number @ Value::Number(_)) => number.clone(),
            ("boolean", flag @ Value::Bool(_)) => flag.clone(),
            _ => Value::Null,
        }
    }

    pub(crate) fn generic() -> Vec<Self> {
        let created = Cell::field("/metadata/creationTimestamp");
        vec![Self::name(), Self::new("Created At", "date", created)]
    }

    pub(crate) fn to_value(&self) -> Value {
        json!({
            "name": self.name,
            "type": self.kind,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        })
    }

    pub(crate) fn cell(&self, object: &Value, now: Timestamp) -> Value {
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
    fn parse(text: &str) -> Option<Self> {
        if let Some(name) = text.strip_prefix('@') {
            return cells::find(name).map(Self::Call);
        }
        let mut parts = text.strip_prefix('.')?.split('|');
        let pointer = format!("/{}", parts.next()?.replace('.', "/"));
        let filters = parts.map(|word| {
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
        Some(Self::Field {
            pointer: pointer.into(),
            filters: filters.collect::<Option<_>>()?,
        })
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
