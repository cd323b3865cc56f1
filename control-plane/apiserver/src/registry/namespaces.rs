//! The special handling of namespaces: they stay, terminating, until their content was deleted and `finalize` ends it.

use super::api::{Api, seconds_text};
use super::kinds::ServerStrategy;
use super::write::is_released;
use crate::auth::RequestUser;
use crate::storage::ObjectVersion;
use berth_objects::catalog::ServedResource;
use berth_objects::status::ApiError;
use berth_objects::validation::small;
use berth_objects::view::{child_mut, meta, meta_mut};
use serde_json::{Value, json};
use std::sync::Arc;

/// Namespaces.
pub(super) struct Namespaces;

impl ServerStrategy for Namespaces {
    /// Gives a new namespace its label, its finalizer and its phase.
    fn prepare_for_create(&self, object: &mut Value, _: &RequestUser) {
        // The defaults were set before the name was generated.
        small::default_namespace(object);
        let spec = child_mut(object, "spec");
        let finalizers = spec.get("finalizers").and_then(Value::as_array);
        if finalizers.is_none_or(|f| f.iter().all(|f| f != "kubernetes")) {
            let mut all = finalizers.cloned().unwrap_or_default();
            all.push("kubernetes".into());
            spec.insert("finalizers".to_owned(), all.into());
        }
        if let Some(map) = object.as_object_mut() {
            map.insert("status".to_owned(), json!({"phase": "Active"}));
        }
    }

    /// Keeps the finalizers, which only `finalize` may change.
    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        let spec = child_mut(new, "spec");
        match old.pointer("/spec/finalizers") {
            Some(finalizers) => spec.insert("finalizers".to_owned(), finalizers.clone()),
            None => spec.remove("finalizers"),
        };
    }
}

impl Api {
    /// PUT `…/finalize`: replaces the finalizers of the spec, and removes a terminating namespace that has none
    /// left.
    pub(super) fn finalize_namespace(
        &self,
        resource: &ServedResource,
        name: &str,
        object: &Value,
        dry_run: bool,
    ) -> Result<Arc<ObjectVersion>, ApiError> {
        let finalizers = object
            .pointer("/spec/finalizers")
            .cloned()
            .unwrap_or_else(|| json!([]));
        let store = resource.store.ok_or_else(ApiError::method_not_allowed)?;
        self.revise(resource, "", name, |current| {
            // A client may state the version that it has read.
            let given = meta(object, "resourceVersion");
            if !given.is_empty() && given != meta(&current.object(), "resourceVersion") {
                return Err(ApiError::modified(resource.subject(name)));
            }
            let mut new = Value::clone(&current.object());
            let spec = child_mut(&mut new, "spec");
            if finalizers.as_array().is_some_and(Vec::is_empty) {
                spec.remove("finalizers");
            } else {
                spec.insert("finalizers".to_owned(), finalizers.clone());
            }
            if dry_run {
                return Ok(Ok(ObjectVersion::unstored(new)));
            }
            // The last finalizer is removed and the namespace deleted in one write.
            Ok(if is_released(&new) {
                self.store.delete(store, name, current.revision(), new)
            } else {
                self.store.replace(store, name, current.revision(), new)
            })
        })
    }

    /// Marks a namespace for deletion; a namespace without finalizers is removed at once.
    pub(super) fn terminate_namespace(
        &self,
        resource: &ServedResource,
        name: &str,
        dry_run: bool,
    ) -> Result<(Arc<ObjectVersion>, bool), ApiError> {
        // Components of the cluster need these namespaces.
        if matches!(name, "default" | "kube-system" | "kube-public") {
            return Err(ApiError::forbidden(
                resource.subject(name),
                "this namespace may not be deleted",
            ));
        }
        let store = resource.store.ok_or_else(ApiError::method_not_allowed)?;
        self.revise(resource, "", name, |current| {
            if current
                .object()
                .pointer("/metadata/deletionTimestamp")
                .is_some()
            // A second deletion has no effect: the first one determines the time.
            {
                return Ok(Ok((current, false)));
            }
            let mut new = Value::clone(&current.object());
            meta_mut(&mut new).insert(
                "deletionTimestamp".to_owned(),
                seconds_text(self.now()).into(),
            );
            // The namespace controller deletes the content of namespaces with this phase.
            child_mut(&mut new, "status").insert("phase".to_owned(), "Terminating".into());
            let gone = is_released(&new);
            if dry_run {
                return Ok(Ok((ObjectVersion::unstored(new), gone)));
            }
            let written = if gone {
                self.store.delete(store, name, current.revision(), new)
            } else {
                self.store.replace(store, name, current.revision(), new)
            };
            Ok(written.map(|version| (version, gone)))
        })
    }
}
