//! Custom resources: the types of CustomResourceDefinitions, and operations on their objects.
//!
//! A version of a definition becomes a [`CustomType`]: its structural schema, which prunes, defaults and validates
//! objects, and a `Model` of the same schema for server-side apply. `definition` and `schema` check the definitions
//! themselves; [`crate::catalog::definition`] turns them into resources.

mod compiled;
pub mod conversion;
mod correlation;
pub(crate) mod definition;
mod embedded;
mod field_path;
mod formats;
mod model;
mod objects;
mod place;
pub(crate) mod rules;
pub mod scale;
mod schema;
mod uniqueness;
mod values;

pub(crate) use values::ignored_formats;

use self::compiled::CompiledSchema;
use self::conversion::ConversionWebhook;
use self::correlation::Counterpart;
use self::scale::ScalePaths;
use crate::field::FieldError;
use crate::schema::Decoded;
use crate::schema::model::{Model, TypeId};
use crate::strategy::{CheckedUpdate, KindStrategy, Subresource};
use crate::validation::errors::{ErrorPath, Errors};
use crate::view::{FieldView, copy_field, meta_mut, remove};
use serde_json::Value;
use std::sync::Arc;

/// The type of one version of a custom resource.
#[derive(Debug, Clone)]
pub struct CustomType {
    compiled: Arc<CompiledSchema>,
    /// Whether the status is a subresource.
    pub(crate) has_status: bool,
    /// The paths of the replicas and the selector of the subresource `scale`.
    pub scale: Option<ScalePaths>,
    /// The storage version, such as `example.com/v1`.
    pub stored_version: String,
    /// The schema of the storage version, if it is another one.
    pub(crate) stored_schema: Option<Value>,
    /// The webhook that converts objects between the versions; `None` if the versions differ only in their names.
    pub converter: Option<Arc<ConversionWebhook>>,
    /// The warning about each request, for a deprecated version.
    pub deprecated: Option<String>,
}

impl CustomType {
    /// A type of a version of a definition.
    pub(crate) fn new(version: &Value, stored_version: String) -> Self {
        let schema = version.part("schema").part("openAPIV3Schema");
        let subresources = version.part("subresources");
        Self {
            compiled: CompiledSchema::of(schema),
            has_status: subresources.field("status").is_some(),
            scale: ScalePaths::of(subresources),
            stored_version,
            stored_schema: None,
            converter: None,
            deprecated: None,
        }
    }

    /// The faults of a new object.
    fn faults(&self, object: &Value) -> Vec<FieldError> {
        let mut faults = values::faults(
            &self.compiled.schema,
            &self.compiled.patterns,
            object,
            "",
            None,
        );
        if let Some(scale) = &self.scale {
            faults.extend(scale.faults_of_spec(object));
            faults.extend(scale.faults_of_status(object));
        }
        let mut errors = Errors::new();
        let path = ErrorPath::default();
        embedded::check(&mut errors, &self.compiled.schema, object, &path);
        uniqueness::check(&mut errors, &self.compiled.schema, object, &path);
        faults.extend(errors.into_vec());
        let found = self
            .compiled
            .rules
            .validate(&self.compiled.schema, object, None, &faults);
        faults.extend(found.errors);
        faults
    }

    /// The faults of a change of an object. The faults of values that were not changed are accepted; the faults that rules
    /// find in them are warnings.
    fn faults_of_change(&self, object: &Value, old: &Value, part: Subresource) -> CheckedUpdate {
        let before = Counterpart::new(&self.compiled.schema, object, old);
        let mut errors = Errors::new();
        let path = ErrorPath::default();
        let mut faults = if part == Subresource::Status {
            self.faults_of_status(object, &before)
        } else {
            let mut faults = values::faults(
                &self.compiled.schema,
                &self.compiled.patterns,
                object,
                "",
                Some(before),
            );
            let scale = self.scale.iter();
            faults.extend(scale.flat_map(|scale| scale.faults_of_spec(object)));
            // The metadata of embedded objects is checked whether it was changed or not.
            embedded::check(&mut errors, &self.compiled.schema, object, &path);
            faults
        };
        let scale = self.scale.iter();
        faults.extend(scale.flat_map(|scale| scale.faults_of_status(object)));
        faults.extend(errors.into_vec());
        // An object with repeated entries may keep and add others.
        let repeated = |object: &Value| {
            let mut errors = Errors::new();
            uniqueness::check(&mut errors, &self.compiled.schema, object, &path);
            errors.into_vec()
        };
        let new = repeated(object);
        if !new.is_empty() && repeated(old).is_empty() {
            faults.extend(new);
        }
        let CompiledSchema { schema, rules, .. } = &*self.compiled;
        let mut checked = rules.validate(schema, object, Some(old), &faults);
        faults.append(&mut checked.errors);
        checked.errors = faults;
        checked
    }

    /// The faults of a status by its schema. The schema describes the status alone, so messages name the fields below
    /// it.
    fn faults_of_status(&self, object: &Value, before: &Counterpart<'_>) -> Vec<FieldError> {
        let schema = self.compiled.schema.part("properties").part("status");
        let before = before.field("status");
        object.get("status").map_or_else(Vec::new, |status| {
            values::faults(schema, &self.compiled.patterns, status, "status", before)
        })
    }

    /// The model that server-side apply reads.
    pub(crate) fn model(&self) -> (&Model, TypeId) {
        (&self.compiled.model, self.compiled.root)
    }

    /// The schema, as its definition states it.
    pub(crate) fn schema(&self) -> &Value {
        &self.compiled.schema
    }

    /// Drops the fields that the schema does not have, and brings the metadata into its normal form.
    pub(crate) fn decode(&self, object: &mut Value) -> Decoded {
        let mut decoded = Decoded::default();
        objects::normalize_numbers(object);
        let mut metadata = Value::Object(std::mem::take(meta_mut(object)));
        let (unknown, type_errors) = embedded::normalize_metadata(&mut metadata);
        decoded.unknown_fields = unknown;
        decoded.type_errors = type_errors;
        // Fields of the metadata first, then other fields by their paths.
        let mut pruned = Vec::new();
        objects::prune(&self.compiled.schema, object, &mut pruned);
        pruned.sort();
        decoded.unknown_fields.append(&mut pruned);
        embedded::normalize(&self.compiled.schema, object, &mut decoded);
        object["metadata"] = metadata;
        decoded
    }

    /// Drops the fields that the storage version does not have.
    pub fn prune_for_storage(&self, object: &mut Value) {
        if let Some(schema) = &self.stored_schema {
            objects::prune(schema, object, &mut Vec::new());
            objects::drop_nulls(schema, object);
        }
    }

    /// An object in this version, with the defaults of its schema and, because it was read from storage, of the storage
    /// version.
    pub(crate) fn shown(&self, object: &Value, api_version: &str) -> Value {
        let mut shown = object.clone();
        if let Some(schema) = self
            .stored_schema
            .as_ref()
            .filter(|_| self.converter.is_none())
        {
            objects::fill_defaults(schema, &mut shown);
        }
        // The schema may have lost fields since the object was stored.
        objects::prune(&self.compiled.schema, &mut shown, &mut Vec::new());
        objects::drop_nulls(&self.compiled.schema, &mut shown);
        objects::fill_defaults(&self.compiled.schema, &mut shown);
        shown["apiVersion"] = api_version.into();
        shown
    }
}

impl KindStrategy for CustomType {
    fn default(&self, object: &mut Value) {
        objects::drop_nulls(&self.compiled.schema, object);
        objects::fill_defaults(&self.compiled.schema, object);
    }

    fn prepare_for_create(&self, object: &mut Value, _now: &str) {
        if self.has_status {
            remove(object, "status");
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        self.faults(object)
    }

    fn validate_update(&self, new: &Value, old: &Value, part: Subresource) -> Vec<FieldError> {
        self.check_update(new, old, part).errors
    }

    fn check_update(&self, new: &Value, old: &Value, part: Subresource) -> CheckedUpdate {
        self.faults_of_change(new, old, part)
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value, part: Subresource, _now: &str) {
        match part {
            Subresource::Status => {
                let mut object = old.clone();
                copy_field(&mut object, new, "status");
                *new = object;
            }
            _ if self.has_status => copy_field(new, old, "status"),
            _ => {}
        }
    }
}
