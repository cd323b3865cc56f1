//! Tables: objects as the rows that `kubectl get` prints, with upstream's columns and cells.
//!
//! A resource without columns shows its name and its creation time.

use crate::access::StoredObject;
use crate::catalog::ServedResource;
use crate::columns::{TableColumn, pods};
use crate::raw_json::managed_fields_to_json;
use crate::status::ApiError;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// The part of an object in a row, in addition to the cells.
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
            managed_fields_to_json(&mut shown);
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
    managed_fields_to_json(&mut partial);
    partial
}

#[cfg(test)]
mod tests;
