//! The type of the objects of a resource, and the fields that a write of one of their parts does not change.

use super::Typed;
use crate::catalog::ServedResource;
use crate::schema::Schemas;
use crate::strategy::status_keeps_metadata;
use serde_json::{Value, json};

/// The fields that a write of the object itself does not change.
const RESET_BY_MAIN: &[&[&str]] = &[&["f:status"]];
/// The fields that a write of the status does not change.
const RESET_BY_STATUS: &[&[&str]] = &[&["f:spec"], &["f:metadata"]];
/// The same for Deployments, whose labels stay.
const RESET_BY_DEPLOYMENT_STATUS: &[&[&str]] = &[&["f:spec"], &["f:metadata", "f:labels"]];
/// The same for kinds whose metadata changes with their status.
const RESET_BY_STATUS_WITH_METADATA: &[&[&str]] = &[&["f:spec"]];

impl ServedResource {
    /// The type of the objects.
    pub fn typed(&self) -> Typed<'_> {
        if let Some(custom) = &self.custom {
            let (model, root) = custom.model();
            return Typed {
                model,
                root: Some(root),
            };
        }
        let schemas = Schemas::get();
        Typed {
            model: schemas.model(),
            root: schemas.find(self.group_version_kind()),
        }
    }

    /// A normalized object of the type without any field set.
    pub fn blank_object(&self) -> Value {
        let mut blank = json!({});
        Schemas::get().normalize(self.group_version_kind(), &mut blank);
        blank
    }

    /// The paths of the fields that a write of a part does not change, one list of names each.
    pub fn reset_fields(&self, part: &str) -> &'static [&'static [&'static str]] {
        match part {
            "" if self.subresource("status").is_some() => RESET_BY_MAIN,
            "status" if self.custom.is_some() => RESET_BY_STATUS,
            "status" if status_keeps_metadata(self.kind) => RESET_BY_STATUS,
            "status" if self.kind == "Deployment" => RESET_BY_DEPLOYMENT_STATUS,
            "status" => RESET_BY_STATUS_WITH_METADATA,
            _ => &[],
        }
    }
}
