//! DefaultStorageClass: a claim without a class gets the default class.

use crate::registry::{Api, ListRequest};
use crate::storage::ObjectVersion;
use berth_objects::catalog;
use berth_objects::view::{FieldView, child_mut};
use serde_json::Value;
use std::cmp::Reverse;
use std::sync::Arc;

/// The annotations that mark the default class, with the value `true`.
const IS_DEFAULT: [&str; 2] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];
/// The annotation that replaces the class field of a claim.
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// Sets the class of a claim. An empty name is a choice of no class.
pub(super) fn set_default(api: &Api, claim: &mut Value) {
    let annotations = claim.part("metadata").part("annotations");
    if !annotations.part(BETA_CLASS).is_null()
        || !claim.part("spec").part("storageClassName").is_null()
    {
        return;
    }
    let listed = catalog::find("storage.k8s.io", "storageclasses")
        .and_then(|resource| api.list(resource, &ListRequest::default()).ok());
    let classes = listed.map(|listed| listed.items).unwrap_or_default();
    if let Some(name) = default_of(&classes) {
        child_mut(claim, "spec").insert("storageClassName".to_owned(), name.into());
    }
}

/// The name of the default class: the newest of several, then the first by name.
fn default_of(classes: &[Arc<ObjectVersion>]) -> Option<String> {
    let defaults = classes.iter().filter_map(|class| {
        let class = class.object();
        let metadata = class.part("metadata");
        let annotations = metadata.part("annotations");
        let is_default = IS_DEFAULT
            .iter()
            .any(|name| annotations.text(name) == "true");
        is_default.then(|| {
            let created = metadata.text("creationTimestamp").to_owned();
            (Reverse(created), metadata.text("name").to_owned())
        })
    });
    defaults.min().map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn class(name: &str, created: &str, is_default: &str) -> Arc<ObjectVersion> {
        ObjectVersion::unstored(json!({"metadata": {
            "name": name,
            "creationTimestamp": created,
            "annotations": {IS_DEFAULT[0]: is_default},
        }}))
    }

    #[test]
    fn the_newest_default_class_counts_then_the_first_name() {
        let (old, new) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
        for (classes, expect) in [
            (vec![], None),
            (vec![class("a", new, "false")], None),
            (
                vec![class("a", old, "true"), class("b", new, "true")],
                Some("b"),
            ),
            (
                vec![class("b", new, "true"), class("a", new, "true")],
                Some("a"),
            ),
        ] {
            assert_eq!(default_of(&classes).as_deref(), expect);
        }
    }
}
