//! Label and field selectors of lists and watches.

pub mod field;
pub mod label;

use crate::registry::Resource;
use crate::status::ApiError;
use field::FieldSelector;
use label::LabelSelector;
use serde_json::Value;

/// What a list or watch is narrowed to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selectors {
    /// By labels.
    pub labels: LabelSelector,
    /// By fields.
    pub fields: FieldSelector,
}

impl Selectors {
    /// Parses the two query parameters for a resource.
    ///
    /// # Errors
    /// 400 with upstream's words.
    pub fn parse(resource: &Resource, labels: &str, fields: &str) -> Result<Self, ApiError> {
        Ok(Self {
            labels: LabelSelector::parse(labels).map_err(ApiError::bad_request)?,
            fields: FieldSelector::parse(resource, fields).map_err(ApiError::bad_request)?,
        })
    }

    /// Whether every object matches.
    pub fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }

    /// Whether this object matches.
    pub fn matches(&self, object: &Value) -> bool {
        self.fields.matches(object) && self.labels.matches(object.pointer("/metadata/labels"))
    }
}
