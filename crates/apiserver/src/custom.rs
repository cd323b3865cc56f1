//! The types of custom resources.

use serde_json::{Value, json};

/// The type of one version of a custom resource.
#[derive(Debug, Clone)]
pub struct CustomType {
    /// The schema, as its definition states it.
    pub(crate) schema: Value,
}

impl CustomType {
    /// The schema as OpenAPI publishes it.
    pub(crate) fn published(&self, group_version_kind: Value, metadata: &Value) -> Value {
        let mut schema = self.schema.clone();
        schema["properties"]["metadata"] = json!({"allOf": [metadata]});
        schema["x-kubernetes-group-version-kind"] = json!([group_version_kind]);
        schema
    }
}
