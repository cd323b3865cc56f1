//! Object metadata.

use crate::shared::shareable;
use crate::string::null_default;
use crate::{Labels, Shared, Str, Time};
use serde::{Deserialize, Serialize};

/// The metadata that scheduling reads.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMeta {
    /// The name, unique in its namespace and kind.
    #[serde(deserialize_with = "null_default")]
    pub name: Str,
    /// The namespace; empty for cluster-scoped kinds.
    #[serde(deserialize_with = "null_default")]
    pub namespace: Str,
    /// The identity: another object of the same name has another one.
    #[serde(deserialize_with = "null_default")]
    pub uid: Str,
    /// The version of the object, opaque.
    #[serde(deserialize_with = "null_default")]
    pub resource_version: Str,
    /// Counts changes of the spec.
    pub generation: Option<i64>,
    /// The labels.
    pub labels: Labels,
    /// The annotations that a plugin or extender asked to be kept; empty otherwise.
    pub annotations: Labels,
    /// The steps that must be completed before the object is deleted.
    #[serde(deserialize_with = "null_default")]
    pub finalizers: Shared<Vec<Str>>,
    /// The owners of the object.
    #[serde(deserialize_with = "null_default")]
    pub owner_references: Shared<Vec<OwnerReference>>,
    /// The time at which the object was created.
    pub creation_timestamp: Option<Time>,
    /// Set once the object is being deleted.
    pub deletion_timestamp: Option<Time>,
}

impl ObjectMeta {
    /// The owner that manages the object, if one does.
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.owner_references
            .iter()
            .find(|owner| owner.controller == Some(true))
    }

    /// Returns whether this version of the object is newer than the given resource version. Versions of one object are
    /// increasing numbers; if a server has other versions, any different version counts as newer.
    pub fn is_newer_than(&self, resource_version: &str) -> bool {
        let number = |version: &str| version.parse::<u128>().ok();
        match (number(&self.resource_version), number(resource_version)) {
            (Some(mine), Some(other)) => mine > other,
            _ => *self.resource_version != *resource_version,
        }
    }
}

shareable!(Vec<OwnerReference>, Vec<Str>);

/// A reference to an owner.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    /// Group and version of the owner, such as `apps/v1`.
    pub api_version: Str,
    /// The kind of the owner.
    pub kind: Str,
    /// The name of the owner.
    pub name: Str,
    /// The identity of the owner.
    pub uid: Str,
    /// Whether the owner manages the object.
    pub controller: Option<bool>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        for (mine, other, newer) in [
            ("10", "9", true),
            ("9", "10", false),
            ("9", "9", false),
            ("b", "a", true),
            ("a", "a", false),
            ("1", "", true),
        ] {
            let meta = ObjectMeta {
                resource_version: mine.into(),
                ..ObjectMeta::default()
            };
            assert_eq!(meta.is_newer_than(other), newer, "{mine} after {other}");
        }
    }
}
