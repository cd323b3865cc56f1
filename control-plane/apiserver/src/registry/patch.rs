//! PATCH: a change of the current object, computed again after a concurrent write.

use super::api::Api;
use super::scale;
use crate::registry::request::{Method, UpdateInputs, WriteOptions, WriteResult};
use berth_objects::catalog::ServedResource;
use berth_objects::decode::{FieldValidation, SentObject};
use berth_objects::field::{ErrorType, FieldError};
use berth_objects::patch::{PatchError, PatchType};
use berth_objects::schema::GroupVersionKind;
use berth_objects::schema::{Decoded, Schemas};
use berth_objects::status::{ApiError, StatusSubject};
use berth_objects::view::meta;
use berth_objects::{decode, patch, raw_json};
use serde_json::Value;

/// The part of a patched object that the error about it contains.
const SHOWN_CHARS_MAX: usize = 4_096;
/// A patch that does not contain this leaves the managers of fields to the server.
const MANAGED_FIELDS: &[u8] = b"managedFields";

/// The body of a patch.
#[derive(Debug, Clone, Copy)]
pub struct RequestPatch<'a> {
    /// The type, as the content type of the request names it.
    pub patch_type: PatchType,
    /// The patch.
    pub bytes: &'a [u8],
}

impl Api {
    /// Applies a patch to an object, its status or its scale.
    ///
    /// # Errors
    /// 404; 400, 413 and 422 for the patch; 409 and 422 for the patched object.
    pub fn patch(
        &self,
        resource: &ServedResource,
        namespace: &str,
        name: &str,
        sub: Option<&str>,
        patch: RequestPatch<'_>,
        options: &WriteOptions,
    ) -> Result<WriteResult, ApiError> {
        let change = UpdateInputs {
            resource,
            namespace,
            name,
            sub: sub.unwrap_or(""),
            options,
            by: Method::Patch,
            is_decoded: sub != Some("scale"),
        };
        // The client is warned about unknown fields even if the object is refused.
        let note = |faults: Vec<String>| {
            if options.validation == FieldValidation::Warn {
                faults
                    .iter()
                    .for_each(|fault| options.requester.warn(fault));
            }
        };
        self.update(&change, |stored| match sub {
            Some("scale") => {
                let kind = GroupVersionKind::new("autoscaling", "v1", "Scale");
                let before = scale::to_patch(resource, stored)?;
                let decode = |after: &mut Value| Schemas::get().normalize(kind, after);
                let (after, faults) = patched(kind, before, patch, options, decode)?;
                note(faults);
                scale::put(resource, stored, &after.object).map(SentObject::from)
            }
            _ => {
                let kind = resource.group_version_kind();
                let mut before = resource.shown(stored);
                if patch
                    .bytes
                    .windows(MANAGED_FIELDS.len())
                    .any(|w| w == MANAGED_FIELDS)
                {
                    raw_json::managed_fields_to_json(&mut before);
                }
                let decode = |after: &mut Value| resource.decode(after);
                let identity = ObjectIdentity::of(&before);
                let (mut after, faults) = patched(kind, before, patch, options, decode)?;
                note(faults);
                identity.check(&after.object)?;
                // These patches keep the text of unchanged parts; others write the whole object again.
                let is_textual = matches!(patch.patch_type, PatchType::Json | PatchType::Merge);
                if resource.has_raw_json() && is_textual {
                    raw_json::keep_texts(stored, &mut after.object);
                }
                Ok(resource.stored_as_sent(after))
            }
        })
    }
}

fn patched(
    kind: GroupVersionKind<'_>,
    before: Value,
    patch: RequestPatch<'_>,
    options: &WriteOptions,
    decode: impl Fn(&mut Value) -> Decoded,
) -> Result<(SentObject, Vec<String>), ApiError> {
    let patched = patch::apply_reporting(patch.patch_type, kind, before, patch.bytes)
        .map_err(|e| patch_error(&e))?;
    let mut object = patched.object;
    let decoded = decode(&mut object);
    if let Some(first) = decoded.type_errors.first() {
        return Err(bad_outcome(&object, first));
    }
    let faults = decode::strict_faults(&decoded.unknown_fields, &patched.duplicate_fields);
    if !faults.is_empty() && options.validation == FieldValidation::Strict {
        let text = format!("strict decoding error: {}", faults.join(", "));
        return Err(bad_outcome(&object, &text));
    }
    let empties = decoded.empties;
    Ok((SentObject { object, empties }, faults))
}

/// 422 for a patch whose result is not an object of the kind.
fn bad_outcome(object: &Value, detail: &str) -> ApiError {
    let mut object = object.clone();
    raw_json::managed_fields_to_json(&mut object);
    let shown: String = object.to_string().chars().take(SHOWN_CHARS_MAX).collect();
    let error = FieldError {
        kind: ErrorType::Invalid,
        field: "patch".to_owned(),
        value: Some(format!("{shown:?}")),
        detail: detail.to_owned(),
    };
    let nothing = StatusSubject {
        group: "",
        resource: "",
        name: "",
    };
    ApiError::invalid(nothing, &[error])
}

fn patch_error(error: &PatchError) -> ApiError {
    match error {
        PatchError::Malformed(_) => ApiError::bad_request(error.status_message()),
        PatchError::Unprocessable(_) => ApiError::unprocessable(),
        PatchError::TooManyOperations(_) => ApiError::too_large(error.status_message()),
    }
}

/// The identity of an object, which a patch must not change.
struct ObjectIdentity {
    api_version: Option<Value>,
    kind: Option<Value>,
    name: String,
    namespace: String,
}

impl ObjectIdentity {
    fn of(object: &Value) -> Self {
        Self {
            api_version: object.get("apiVersion").cloned(),
            kind: object.get("kind").cloned(),
            name: meta(object, "name").to_owned(),
            namespace: meta(object, "namespace").to_owned(),
        }
    }

    /// # Errors
    /// 400 when this is another object.
    fn check(&self, after: &Value) -> Result<(), ApiError> {
        for (field, before) in [("apiVersion", &self.api_version), ("kind", &self.kind)] {
            if before.as_ref() != after.get(field) {
                return Err(ApiError::bad_request(format!(
                    "the patch changes {field}, which cannot be changed"
                )));
            }
        }
        let (before_name, after_name) = (&self.name, meta(after, "name"));
        if before_name != after_name {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({after_name}) does not match the name on the URL ({before_name})"
            )));
        }
        if self.namespace != meta(after, "namespace") {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        Ok(())
    }
}
