//! Namespaces: their labels select pods for affinity terms.

use crate::ObjectMeta;
use serde::Deserialize;

/// A namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Namespace {
    /// Name and labels.
    pub metadata: ObjectMeta,
}
