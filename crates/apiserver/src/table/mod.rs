//! Tables: objects as the rows that `kubectl get` prints, with upstream's columns and cells.
//!
//! `Columns` of a resource are a static list; its cells are a function from an object. A resource without an
//! entry shows its name and when it was created.

mod cluster;
mod pods;
mod storage;
pub(crate) mod text;
mod workloads;

use crate::registry::{Resource, meta};
use crate::status::ApiError;
use crate::storage::Version;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Column {
    name: &'static str,
    kind: &'static str,
    format: &'static str,
    /// Zero is always shown, one only when asked for width.
    priority: u8,
    description: &'static str,
}

/// How a resource is printed.
pub(crate) struct Columns {
    columns: &'static [Column],
    cells: fn(&Value, Timestamp) -> Vec<Value>,
    /// Conditions of the row, such as that a pod has completed.
    conditions: Option<fn(&Value) -> Option<Value>>,
}

/// What stands in a row besides the cells.
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

/// A string column that is always shown.
pub(crate) const fn column(name: &'static str, description: &'static str) -> Column {
    Column {
        name,
        kind: "string",
        format: "",
        priority: 0,
        description,
    }
}

/// A string column that is shown only when asked for width.
pub(crate) const fn wide(name: &'static str, description: &'static str) -> Column {
    Column {
        priority: 1,
        ..column(name, description)
    }
}

/// A column of another type than string.
pub(crate) const fn typed(
    name: &'static str,
    kind: &'static str,
    description: &'static str,
) -> Column {
    Column {
        kind,
        ..column(name, description)
    }
}

/// The column of the object's name.
pub(crate) const NAME: Column = Column {
    format: "name",
    ..column(
        "Name",
        "The name, unique among objects of this kind in a namespace.",
    )
};
/// The column of the object's age.
pub(crate) const AGE: Column = column("Age", "How long ago the object was created.");

const GENERIC: Columns = Columns {
    columns: &[
        NAME,
        Column {
            kind: "date",
            ..column("Created At", "When the object was created.")
        },
    ],
    cells: |object, _| {
        vec![
            meta(object, "name").into(),
            meta(object, "creationTimestamp").into(),
        ]
    },
    conditions: None,
};

fn columns_of(resource: &Resource) -> &'static Columns {
    let (group, name) = (resource.resource.group, resource.resource.resource);
    cluster::columns(group, name)
        .or_else(|| workloads::columns(group, name))
        .or_else(|| storage::columns(group, name))
        .unwrap_or(&GENERIC)
}

/// A table of these objects. `columns` is whether the definitions are in it, which a stream sends only once.
pub(crate) fn table(
    resource: &Resource,
    versions: &[Arc<Version>],
    list_meta: Map<String, Value>,
    include: Include,
    columns: bool,
    now: Timestamp,
) -> Value {
    let printer = columns_of(resource);
    let rows: Vec<Value> = versions
        .iter()
        .map(|version| row(resource, printer, version.object(), include, now))
        .collect();
    let definitions = if columns {
        printer.columns.iter().map(|c| c.to_value()).collect()
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

fn row(
    resource: &Resource,
    printer: &Columns,
    object: &Value,
    include: Include,
    now: Timestamp,
) -> Value {
    let mut row = Map::new();
    row.insert("cells".to_owned(), (printer.cells)(object, now).into());
    if let Some(conditions) = printer.conditions.and_then(|f| f(object)) {
        row.insert("conditions".to_owned(), json!([conditions]));
    }
    let shown = match include {
        Include::None => Value::Null,
        Include::Metadata => partial_metadata(object),
        Include::Object => resource.shown(object),
    };
    row.insert("object".to_owned(), shown);
    Value::Object(row)
}

/// The object reduced to its metadata.
pub(crate) fn partial_metadata(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object.get("metadata").unwrap_or(&Value::Null),
    })
}

impl Column {
    fn to_value(self) -> Value {
        json!({
            "name": self.name,
            "type": self.kind,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        })
    }
}

#[cfg(test)]
mod tests;
