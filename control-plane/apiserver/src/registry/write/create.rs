//! POST: the creation of an object.

use super::{adopt_namespace, complete, created, keep_namespace, takes_plain_finalizers};
use crate::registry::api::Api;
use crate::registry::attributes::Attributes;
use crate::registry::request::{WriteOptions, WriteResult};
use crate::registry::service_addresses::{self, Allocator};
use crate::registry::{conversion, kinds};
use crate::storage::{ObjectVersion, StoreError};
use berth_objects::body::WriteBody;
use berth_objects::catalog::{Conversion, Generation, ServedResource};
use berth_objects::decode::SentObject;
use berth_objects::schema::availability::drop_disabled;
use berth_objects::status::ApiError;
use berth_objects::validation::{events, later, metadata};
use berth_objects::view::{FieldView, meta, meta_mut};
use berth_objects::{decode, groups, kinds as object_kinds};
use serde_json::Value;
use std::sync::Arc;

/// The maximum number of attempts to generate a free name.
const GENERATE_ATTEMPTS_MAX: usize = 8;

impl Api {
    /// POST: reads an object and creates it.
    ///
    /// # Errors
    /// The fault of the body, the namespace or the object; 409 when it exists.
    pub fn create_from(
        &self,
        resource: &ServedResource,
        namespace: &str,
        body: WriteBody<'_>,
        options: &WriteOptions,
    ) -> Result<WriteResult, ApiError> {
        let (mut sent, faults) = decode::object(resource, body, options.validation)?;
        // The client is warned about unknown fields even if the object is refused.
        faults
            .iter()
            .for_each(|fault| options.requester.warn(fault));
        adopt_namespace(resource, namespace, &mut sent.object)?;
        if resource.is_converted() {
            resource.strategy().default(&mut sent.object);
        } else {
            resource.strategy().default_normal(&mut sent.object);
        }
        let version = self.create_complete(resource, namespace, sent, options)?;
        let warnings = object_kinds::warnings(resource, &version.object(), None);
        Ok(WriteResult { version, warnings })
    }

    /// Creates a decoded object in its stored form.
    ///
    /// # Errors
    /// As [`Api::create_from`], but for the body.
    pub fn create(
        &self,
        resource: &ServedResource,
        namespace: &str,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<Arc<ObjectVersion>, ApiError> {
        adopt_namespace(resource, namespace, &mut object)?;
        resource.strategy().default(&mut object);
        self.create_complete(resource, namespace, object.into(), options)
    }

    /// Creates an object that has its namespace and its defaults.
    pub(super) fn create_complete(
        &self,
        resource: &ServedResource,
        namespace: &str,
        mut sent: SentObject,
        options: &WriteOptions,
    ) -> Result<Arc<ObjectVersion>, ApiError> {
        let object = &mut sent.object;
        meta_mut(object).remove("uid");
        self.track_fields(resource, None, object, &options.manager, "");
        self.store_new(resource, namespace, sent, options)
    }

    /// Creates an object that has its namespace, its defaults and its field managers.
    pub(in super::super) fn store_new(
        &self,
        resource: &ServedResource,
        namespace: &str,
        sent: SentObject,
        options: &WriteOptions,
    ) -> Result<Arc<ObjectVersion>, ApiError> {
        let SentObject {
            mut object,
            empties,
        } = sent;
        let store = resource.store.ok_or_else(ApiError::method_not_allowed)?;
        let name = meta(&object, "name").to_owned();
        let attributes = Attributes {
            empties: Some(&empties),
            ..created(resource, namespace, &name, options)
        };
        object = self.admission.mutate_create(self, &attributes, object)?;
        keep_namespace(resource, namespace, &mut object)?;
        let stated = if service_addresses::has_addresses(resource) {
            Some(service_addresses::addresses(&object))
        } else {
            None
        };
        let add = |mut object: Value| {
            let key = resource.key(namespace, meta(&object, "name"));
            let taken = match &stated {
                Some(stated) => {
                    Allocator(self).take_all(&mut object, stated, None, options.dry_run)?
                }
                None => service_addresses::Taken::default(),
            };
            let added = if !options.dry_run {
                self.store.create(store, &key, object)
            } else if self.store.get(store, &key).is_none() {
                Ok(ObjectVersion::unstored(object))
            } else {
                Err(StoreError::Exists)
            };
            if added.is_err() {
                Allocator(self).release(taken);
            }
            Ok::<_, ApiError>(added)
        };
        let prepare = |object: Value| {
            let sent = SentObject {
                object,
                empties: empties.clone(),
            };
            self.prepare_create(resource, namespace, sent, options)
        };
        let Some(base) = self.fill_in_metadata(&mut object) else {
            let name = meta(&object, "name").to_owned();
            let object = prepare(object)?;
            let object = conversion::to_storage(self, resource, object)?;
            let added = add(object)?;
            return added.map_err(|_| ApiError::already_exists(resource.subject(&name)));
        };
        let taken = |name: &str| ApiError::generated_name_taken(resource.subject(name));
        let key_of = |name: &str| resource.key(namespace, name);
        let name = free_name(self, store, &base, key_of).map_err(|name| taken(&name))?;
        // The name is set first: other fields may be derived from it.
        meta_mut(&mut object).insert("name".to_owned(), name.clone().into());
        let object = prepare(object)?;
        let object = conversion::to_storage(self, resource, object)?;
        // Another object can have been created with this name since. Then the client tries again.
        let added = add(object)?;
        added.map_err(|_| taken(&name))
    }

    /// An object with its name, as it is going to be stored.
    fn prepare_create(
        &self,
        resource: &ServedResource,
        namespace: &str,
        sent: SentObject,
        options: &WriteOptions,
    ) -> Result<Value, ApiError> {
        let SentObject {
            mut object,
            empties,
        } = sent;
        let rules = resource.stored_as();
        let strategy = resource.strategy();
        empties.undo_defaults(rules.resource, &mut object);
        groups::drop_disabled(self.groups, rules, &mut object, None);
        strategy.prepare_for_create(&mut object, &self.now_text());
        drop_disabled(resource.api, rules.group_version_kind(), &mut object, None);
        let of_server = kinds::strategy(rules.resource);
        of_server.prepare_for_create(&mut object, &options.requester.user);
        match rules.generation {
            Generation::Unset => meta_mut(&mut object).remove("generation"),
            _ => meta_mut(&mut object).insert("generation".to_owned(), 1.into()),
        };
        let mut errors = of_server.validate(self, &object);
        errors.extend(metadata::validate_create(
            &object,
            resource.namespaced,
            rules.names,
        ));
        if !takes_plain_finalizers(rules) {
            errors.extend(metadata::validate_plain_finalizers(&object));
        }
        errors.extend(strategy.validate(&object));
        errors.extend(later::validate(resource.api, rules.resource, &object, None));
        if resource.conversion == Some(Conversion::Events) {
            errors.extend(events::validate_create(&object));
        }
        if !errors.is_empty() {
            empties.restate(&mut errors, &object, |sent| strategy.validate(sent));
            let subject = resource.kind_subject(meta(&object, "name"));
            return Err(ApiError::invalid(subject, &errors));
        }
        complete(rules, resource.api, &mut object);
        // A name that is taken costs no quota.
        let is_taken = || self.get(resource, namespace, meta(&object, "name")).is_ok();
        let charges = !options.dry_run && !is_taken();
        let attributes = Attributes {
            empties: Some(&empties),
            ..created(resource, namespace, meta(&object, "name"), options)
        };
        let admission = &self.admission;
        admission.validate(self, &attributes, &object, None, charges)?;
        attributes.in_time(self)?;
        Ok(object)
    }

    /// Sets the metadata that the server determines. Returns the base of a generated name.
    fn fill_in_metadata(&self, object: &mut Value) -> Option<String> {
        let (uid, now) = (self.new_uid(), self.now_text());
        let meta = meta_mut(object);
        for field in [
            "resourceVersion",
            "selfLink",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
        ] {
            meta.remove(field);
        }
        meta.insert("uid".to_owned(), uid.into());
        meta.insert("creationTimestamp".to_owned(), now.into());
        let is_empty = |field: &str| {
            meta.get(field)
                .and_then(Value::as_str)
                .is_none_or(str::is_empty)
        };
        if !is_empty("name") || is_empty("generateName") {
            return None;
        }
        meta.maybe_text("generateName").map(str::to_owned)
    }
}

/// A name that begins with `base` and that no object in the store has. `key_of` returns the key of a name.
///
/// # Errors
/// The last name that was tried, if several in a row are taken.
fn free_name(
    api: &Api,
    store: usize,
    base: &str,
    key_of: impl Fn(&str) -> String,
) -> Result<String, String> {
    let mut name = String::new();
    for _ in 0..GENERATE_ATTEMPTS_MAX {
        name = api.new_name(base);
        if api.store.get(store, &key_of(&name)).is_none() {
            return Ok(name);
        }
    }
    Err(name)
}
