//! PUT and PATCH: the replacement of an object, computed from its current version.

use super::{adopt_namespace, complete, is_released, keep_namespace, takes_plain_finalizers};
use crate::registry::api::Api;
use crate::registry::attributes::{Attributes, WebhookOperation, WebhookOptions};
use crate::registry::rbac::{self, RequestAttributes};
use crate::registry::request::{
    Method, UpdateInputs, WriteOptions, WriteResult, namespace_of, uid_conflict,
};
use crate::registry::revise::WRITE_ATTEMPTS_MAX;
use crate::registry::service_addresses::{self, Allocator};
use crate::registry::{conversion, kinds};
use crate::storage::{ObjectVersion, StoreError};
use berth_objects::body::WriteBody;
use berth_objects::catalog::{Conversion, Generation, ServedResource};
use berth_objects::conversion::groups_alpha;
use berth_objects::decode::SentObject;
use berth_objects::field::{ErrorType, FieldError};
use berth_objects::schema::Empties;
use berth_objects::schema::availability::drop_disabled;
use berth_objects::status::ApiError;
use berth_objects::strategy::Subresource;
use berth_objects::validation::{events, later, metadata};
use berth_objects::view::{FieldView, child_mut, meta, meta_mut};
use berth_objects::{apply, decode, groups, kinds as object_kinds};
use serde_json::{Map, Value, json};
use std::cell::Cell;
use std::sync::Arc;

/// The maximum time for computing a write again, in seconds: kube-apiserver's request timeout.
const WRITE_SECONDS_MAX: i64 = 60;

impl UpdateInputs<'_> {
    /// The request as webhooks see it.
    fn attributes(&self) -> Attributes<'_> {
        let kind = match self.by {
            Method::Put => "UpdateOptions",
            Method::Patch | Method::Apply => "PatchOptions",
        };
        Attributes {
            resource: self.resource,
            sub: self.sub,
            namespace: namespace_of(self.resource, self.namespace, self.name),
            name: self.name,
            operation: WebhookOperation::Update,
            options: WebhookOptions::Write(kind, self.options),
            empties: None,
        }
    }
}

impl Api {
    /// PUT: reads an object and replaces the stored object of that name. Returns whether it was created, which some
    /// kinds allow.
    ///
    /// # Errors
    /// The fault of the body or the object; 404; 409 when it has another version or UID; 403 for a creation that
    /// the sender may not do.
    pub fn update_from(
        &self,
        resource: &ServedResource,
        namespace: &str,
        name: &str,
        sub: Option<&str>,
        body: WriteBody<'_>,
        options: &WriteOptions,
    ) -> Result<(WriteResult, bool), ApiError> {
        let (mut sent, faults) = decode::object(resource, body, options.validation)?;
        let object = &mut sent.object;
        faults
            .iter()
            .for_each(|fault| options.requester.warn(fault));
        adopt_namespace(resource, namespace, object)?;
        let given = meta(object, "name");
        if given.is_empty() {
            meta_mut(object).insert("name".to_owned(), name.into());
        } else if given != name {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({given}) does not match the name on the URL ({name})"
            )));
        }
        if sub == Some("finalize") {
            let version = self.finalize_namespace(resource, name, object, options.dry_run)?;
            let warnings = Vec::new();
            return Ok((WriteResult { version, warnings }, false));
        }
        let creates = resource.creates_on_update && sub.is_none();
        if creates && self.get(resource, namespace, name).is_err() {
            match self.create_by_update(resource, namespace, sent.clone(), options) {
                Err(e) if e.reason == "AlreadyExists" => {}
                created => {
                    let version = created?;
                    let warnings = object_kinds::warnings(resource, &version.object(), None);
                    return Ok((WriteResult { version, warnings }, true));
                }
            }
        }
        let change = UpdateInputs {
            resource,
            namespace,
            name,
            sub: sub.unwrap_or(""),
            options,
            by: Method::Put,
            is_decoded: true,
        };
        Ok((self.replace(&change, sent)?, false))
    }

    /// Creates the object of a PUT, if its sender may create it.
    fn create_by_update(
        &self,
        resource: &ServedResource,
        namespace: &str,
        mut sent: SentObject,
        options: &WriteOptions,
    ) -> Result<Arc<ObjectVersion>, ApiError> {
        let object = &mut sent.object;
        let name = meta(object, "name").to_owned();
        let asked = RequestAttributes {
            verb: "create",
            group: resource.resource.group,
            resource: resource.resource.resource,
            namespace,
            name: &name,
            ..RequestAttributes::default()
        };
        rbac::authorize(self, &options.requester.user, &asked)?;
        let uid = meta(object, "uid");
        if !uid.is_empty() {
            let key = resource.key(namespace, &name);
            return Err(uid_conflict(resource, &key, &name, uid, ""));
        }
        resource.strategy().default(object);
        self.create_complete(resource, namespace, sent, options)
    }

    /// Replaces the current version of an object.
    pub(in super::super) fn replace(
        &self,
        change: &UpdateInputs<'_>,
        sent: SentObject,
    ) -> Result<WriteResult, ApiError> {
        let object = &sent.object;
        if matches!(meta(object, "resourceVersion"), "" | "0") {
            return self.update(change, |_| Ok(sent.clone()));
        }
        // An object with a version is stored at once or not at all: after a concurrent write its UID or version differ,
        // and the rest is not read.
        let identity = json!({"metadata": {
            "uid": meta(object, "uid"),
            "resourceVersion": meta(object, "resourceVersion"),
        }});
        let sent = Cell::new(Some(sent));
        self.update(change, |_| {
            Ok(sent.take().unwrap_or_else(|| identity.clone().into()))
        })
    }

    /// Computes an object from its current version and stores it. `compute` gets the stored object and returns the new
    /// one in the stored form, or for custom resources in the version of the request; a `resourceVersion` in it must
    /// equal the stored one.
    pub(crate) fn update<T: Into<SentObject>>(
        &self,
        change: &UpdateInputs<'_>,
        compute: impl Fn(&Value) -> Result<T, ApiError>,
    ) -> Result<WriteResult, ApiError> {
        let written = |version: Arc<ObjectVersion>, current: &ObjectVersion| {
            let (new, old) = (version.object(), current.object());
            let warnings = match change.sub {
                "" => object_kinds::warnings(change.resource, &new, Some(&old)),
                _ => Vec::new(),
            };
            WriteResult { version, warnings }
        };
        let resource = change.resource;
        let store = resource.store.ok_or_else(ApiError::method_not_allowed)?;
        let key = resource.key(change.namespace, change.name);
        let begun = self.now();
        for _ in 0..WRITE_ATTEMPTS_MAX {
            if self.now().duration_since(begun).as_secs() >= WRITE_SECONDS_MAX {
                break;
            }
            let current = self.get(resource, change.namespace, change.name)?;
            let old = conversion::read_for_write(self, resource, &current)?;
            let sent: SentObject = compute(&old)?.into();
            let new = &sent.object;
            let has_addresses = service_addresses::has_addresses(resource) && change.sub.is_empty();
            let stated = if has_addresses {
                service_addresses::addresses(new)
            } else {
                Vec::new()
            };
            self.check_version(change, new, &current)?;
            let new = self.prepare_update(change, sent, &old)?;
            let mut new = conversion::to_storage(self, resource, new)?;
            let dry_run = change.options.dry_run;
            let taken = if has_addresses {
                Allocator(self).take_all(&mut new, &stated, Some(&old), dry_run)?
            } else {
                service_addresses::Taken::default()
            };
            if apply::differ_in_times_only(&new, &current.object()) {
                return Ok(written(Arc::clone(&current), &current));
            }
            let gone = is_released(&new);
            if change.options.dry_run {
                return Ok(written(ObjectVersion::unstored(new), &current));
            }
            let stored = if gone {
                self.store.delete(store, &key, current.revision(), new)
            } else {
                self.store.replace(store, &key, current.revision(), new)
            };
            if has_addresses {
                match &stored {
                    Ok(_) if gone => Allocator(self).release_unused(&old, None),
                    Ok(version) => Allocator(self).release_unused(&old, Some(&version.object())),
                    Err(_) => Allocator(self).release(taken),
                }
            }
            match stored {
                Ok(version) => return Ok(written(version, &current)),
                Err(StoreError::Modified) => {}
                Err(_) => return Err(ApiError::not_found(resource.subject(change.name))),
            }
        }
        Err(ApiError::deadline_exceeded())
    }

    /// Compares the UID and the version with the stored object.
    fn check_version(
        &self,
        change: &UpdateInputs<'_>,
        new: &Value,
        current: &ObjectVersion,
    ) -> Result<(), ApiError> {
        let subject = change.resource.subject(change.name);
        let old = current.object();
        let (uid, live) = (meta(new, "uid"), meta(&old, "uid"));
        if change.by == Method::Put && !uid.is_empty() && uid != live {
            let key = change.resource.key(change.namespace, change.name);
            return Err(uid_conflict(change.resource, &key, change.name, uid, live));
        }
        let invalid = |subject, value: String, detail: String| {
            let error = FieldError {
                kind: ErrorType::Invalid,
                field: "metadata.resourceVersion".to_owned(),
                value: Some(value),
                detail,
            };
            Err(ApiError::invalid(subject, &[error]))
        };
        let of_kind = change.resource.kind_subject(change.name);
        // Resources such as Leases require the version, so that two writers notice each other.
        match meta(new, "resourceVersion") {
            "" | "0" if change.resource.needs_version => {
                let detail = "must be specified for an update".to_owned();
                invalid(subject, "0".to_owned(), detail)
            }
            "" | "0" => Ok(()),
            version if version == meta(&old, "resourceVersion") => Ok(()),
            version if version.parse::<u64>().is_err() => {
                let detail = format!("strconv.ParseUint: parsing {version:?}: invalid syntax");
                invalid(of_kind, format!("{version:?}"), detail)
            }
            _ => Err(ApiError::modified(subject)),
        }
    }

    fn prepare_update(
        &self,
        change: &UpdateInputs<'_>,
        sent: SentObject,
        old: &Value,
    ) -> Result<Value, ApiError> {
        let SentObject {
            object: mut new,
            empties,
        } = sent;
        let resource = change.resource;
        let rules = resource.stored_as();
        let strategy = resource.strategy();
        if resource.conversion == Some(Conversion::GroupsAlpha) {
            groups_alpha::keep_unshown(&mut new, old);
        }
        if change.is_decoded && !resource.is_converted() {
            strategy.default_normal(&mut new);
        } else {
            strategy.default(&mut new);
        }
        empties.undo_defaults(rules.resource, &mut new);
        if change.by != Method::Apply {
            let manager = change.options.manager.as_str();
            self.track_fields(resource, Some(old), &mut new, manager, change.sub);
        }
        let attributes = Attributes {
            empties: Some(&empties),
            ..change.attributes()
        };
        let mut new = (self.admission).mutate_update(self, &attributes, new, old)?;
        keep_namespace(resource, change.namespace, &mut new)?;
        check_renamed(resource, &new, old)?;
        let managers = meta_mut(&mut new).remove("managedFields");
        {
            let old_meta = old.map("metadata");
            let meta = meta_mut(&mut new);
            for field in ["resourceVersion", "generation", "creationTimestamp"] {
                copy(meta, old_meta, field);
            }
            if change.by == Method::Put || meta.get("uid").is_none_or(|uid| uid == "") {
                copy(meta, old_meta, "uid");
            }
            meta.remove("selfLink");
        }
        metadata::prepare_for_update(&mut new, old);
        strategy.prepare_for_update(&mut new, old, change.half(), &self.now_text());
        drop_disabled(
            resource.api,
            rules.group_version_kind(),
            &mut new,
            Some(old),
        );
        groups::drop_disabled(self.groups, rules, &mut new, Some(old));
        {
            // A strategy may have taken the old object as a whole.
            let old_meta = old.map("metadata");
            let meta = meta_mut(&mut new);
            copy(meta, old_meta, "resourceVersion");
            copy(meta, old_meta, "generation");
            meta.remove("managedFields");
            meta.extend(managers.map(|list| ("managedFields".to_owned(), list)));
        }
        let of_server = kinds::strategy(rules.resource);
        of_server.prepare_for_update(&mut new, old);
        let is_main = change.half() == Subresource::Main;
        bump_generation(rules, &mut new, old, is_main.then_some(&empties));
        let mut errors = of_server.validate_update(self, change, &new, old);
        errors.extend(metadata::validate_update(&new, old));
        if !takes_plain_finalizers(rules) {
            errors.extend(metadata::validate_plain_finalizers(&new));
        }
        if is_main {
            errors.extend(empties.frozen(rules.resource, old));
        }
        let checked = strategy.check_update(&new, old, change.half());
        let requester = &change.options.requester;
        checked.warnings.iter().for_each(|w| requester.warn(w));
        errors.extend(checked.errors);
        errors.extend(later::validate(
            resource.api,
            rules.resource,
            &new,
            Some(old),
        ));
        if resource.conversion == Some(Conversion::Events) {
            errors.extend(events::validate_update(&new, old));
        }
        if !errors.is_empty() {
            empties.restate(&mut errors, &new, |sent| {
                strategy.check_update(sent, old, change.half()).errors
            });
            let subject = resource.kind_subject(change.name);
            return Err(ApiError::invalid(subject, &errors));
        }
        complete(rules, resource.api, &mut new);
        of_server.authorize(self, change, &new, old)?;
        let charges = !change.options.dry_run;
        (self.admission).validate(self, &attributes, &new, Some(old), charges)?;
        attributes.in_time(self)?;
        Ok(new)
    }
}

/// An object that admission has changed has the name that it had.
fn check_renamed(resource: &ServedResource, new: &Value, old: &Value) -> Result<(), ApiError> {
    let name = meta(new, "name");
    if name == meta(old, "name") {
        return Ok(());
    }
    let error = FieldError {
        kind: ErrorType::Invalid,
        field: "metadata.name".to_owned(),
        value: Some(format!("{name:?}")),
        detail: "field is immutable".to_owned(),
    };
    Err(ApiError::invalid(resource.kind_subject(name), &[error]))
}

fn copy(to: &mut Map<String, Value>, from: Option<&Map<String, Value>>, field: &str) {
    match from.and_then(|m| m.get(field)) {
        Some(value) => to.insert(field.to_owned(), value.clone()),
        None => to.remove(field),
    };
}

/// Increments the generation after a relevant change. Writes of the status never have a changed spec. `empties` are the
/// empty lists and maps that were sent with the spec.
fn bump_generation(
    resource: &ServedResource,
    new: &mut Value,
    old: &Value,
    empties: Option<&Empties>,
) {
    let has_empties = resource.counts_empties
        && empties.is_some_and(|e| e.has_below("spec") || e.has_below("webhooks"));
    let changed = has_empties
        || match resource.generation {
            Generation::Unset | Generation::One => false,
            Generation::Spec => new.get("spec") != old.get("spec"),
            Generation::Content | Generation::ContentAndStatus => {
                let content = |object: &Value| {
                    let mut object = object.clone();
                    if let Some(map) = object.as_object_mut() {
                        map.remove("metadata");
                        if resource.generation == Generation::Content {
                            map.remove("status");
                        }
                    }
                    object
                };
                content(new) != content(old)
            }
            Generation::SpecAndAnnotations => {
                new.get("spec") != old.get("spec")
                    || new.pointer("/metadata/annotations") != old.pointer("/metadata/annotations")
            }
        };
    if changed {
        let generation = old.part("metadata").int("generation");
        child_mut(new, "metadata")
            .insert("generation".to_owned(), generation.saturating_add(1).into());
    }
}
