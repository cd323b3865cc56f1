//! Namespaces: their labels select pods for affinity terms.

use crate::ObjectMeta;
use serde::{Deserialize, Serialize};

/// A namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Namespace {
    /// Name and labels.
    pub metadata: ObjectMeta,
}
