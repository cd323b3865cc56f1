//! Server-side apply: PATCH with a configuration, and the owners of the fields that a write changes.

use super::api::Api;
use super::scale::set_replicas;
use super::write::adopt_namespace;
use crate::registry::request::{Method, UpdateInputs, WriteOptions, WriteResult};
use berth_objects::apply::{ApplyError, Author, Conflict};
use berth_objects::catalog::ServedResource;
use berth_objects::decode::{FieldValidation, SentObject};
use berth_objects::schema::Empties;
use berth_objects::status::{ApiError, Cause};
use berth_objects::view::{meta, meta_mut};
use berth_objects::{apply, decode, kinds, schema};
use serde_json::{Value, json};

/// The number of times that an object is applied again that is created or deleted at the same time.
const APPLY_ATTEMPTS_MAX: usize = 3;

impl Api {
    /// Gives the fields that a write changes to its manager. `old` is the stored object, `None` for a create.
    pub(super) fn track_fields(
        &self,
        resource: &ServedResource,
        old: Option<&Value>,
        new: &mut Value,
        manager: &str,
        part: &str,
    ) {
        let author = Author {
            manager,
            api_version: &resource.api_version(),
            subresource: part,
            now: &self.now_text(),
            reset: resource.reset_fields(part),
        };
        let typed = resource.typed();
        if resource.is_converted() {
            // Fields have the names of the version of the write.
            let mut shown = resource.shown(new);
            let old = old.map_or_else(|| resource.blank_object(), |old| resource.shown(old));
            apply::after_update(typed, &old, &mut shown, &author);
            let managers = meta_mut(&mut shown).remove("managedFields");
            let metadata = meta_mut(new);
            metadata.remove("managedFields");
            metadata.extend(managers.map(|list| ("managedFields".to_owned(), list)));
        } else if let Some(old) = old {
            apply::after_update(typed, old, new, &author);
        } else {
            apply::after_update(typed, &resource.blank_object(), new, &author);
        }
    }

    /// PATCH with a configuration: creates the object or merges the configuration into it. Returns whether the object
    /// was created.
    ///
    /// # Errors
    /// 400 and 500 for the configuration, 409 for conflicts with other managers, and the errors of a create or
    /// update.
    pub fn apply(
        &self,
        resource: &ServedResource,
        namespace: &str,
        name: &str,
        sub: Option<&str>,
        config: &[u8],
        options: &WriteOptions,
    ) -> Result<(WriteResult, bool), ApiError> {
        let (config, mut warnings) = read_config(resource, sub, config, options)?;
        let config = match sub {
            Some("scale") => scale_config(resource, &config),
            _ => config,
        };
        let subject = meta(&config, "namespace").to_owned();
        let given = config.clone();
        let config = addressed(resource, namespace, name, config)?;
        if let Some(field) = foreign_field(resource, &config) {
            let fault = format!(".{field}: field not declared in schema");
            return Err(apply_error(
                resource,
                &subject,
                name,
                ApplyError::Type(fault),
            ));
        }
        let blank = resource.blank_object();
        let change = UpdateInputs {
            resource,
            namespace,
            name,
            sub: sub.unwrap_or(""),
            options,
            by: Method::Apply,
            is_decoded: false,
        };
        let merge = |live: &Value| {
            let author = Author {
                manager: &options.manager,
                api_version: &resource.api_version(),
                subresource: sub.unwrap_or(""),
                now: &self.now_text(),
                reset: resource.reset_fields(sub.unwrap_or("")),
            };
            let live = resource.shown(live);
            let (typed, force) = (resource.typed(), options.force);
            let mut merged = apply::apply(typed, &live, &blank, &config, &author, force)
                .map_err(|e| apply_error(resource, &subject, name, e))?;
            apply::renew_last_applied(&mut merged, &given, &author);
            let empties = match resource.custom {
                Some(_) => Empties::default(),
                None => resource.decode(&mut merged).empties,
            };
            let object = merged;
            Ok(resource.stored_as_sent(SentObject { object, empties }))
        };
        let mut last = ApiError::modified(resource.subject(name));
        for _ in 0..APPLY_ATTEMPTS_MAX {
            let result = if self.get(resource, namespace, name).is_ok() || sub.is_some() {
                let written = self.update(&change, merge);
                written.map(|written| (written, false))
            } else {
                let uid = meta(&config, "uid");
                if !uid.is_empty() {
                    let detail = format!(
                        "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                    );
                    return Err(ApiError::conflict(resource.subject(name), &detail));
                }
                let mut sent = merge(&json!({}))?;
                resource.strategy().default(&mut sent.object);
                let version = self.store_new(resource, namespace, sent, options);
                version.map(|version| {
                    let warnings = kinds::warnings(resource, &version.object(), None);
                    (WriteResult { version, warnings }, true)
                })
            };
            match result {
                Ok((mut written, created)) => {
                    warnings.append(&mut written.warnings);
                    let written = WriteResult {
                        warnings,
                        ..written
                    };
                    return Ok((written, created));
                }
                Err(e) if matches!(e.reason, "AlreadyExists" | "NotFound") && sub.is_none() => {
                    last = e;
                }
                Err(e) => return Err(e),
            }
        }
        Err(last)
    }
}

/// The first field that the release of the server does not have.
fn foreign_field(resource: &ServedResource, config: &Value) -> Option<String> {
    let typed = resource.typed();
    let fields = resource
        .api
        .foreign_fields(typed.model, typed.root?, config);
    fields.into_iter().next()
}

/// Reads a configuration and checks its own type and name.
fn read_config(
    resource: &ServedResource,
    sub: Option<&str>,
    config: &[u8],
    options: &WriteOptions,
) -> Result<(Value, Vec<String>), ApiError> {
    let parsed = schema::parse_yaml(config)
        .map_err(|e| ApiError::bad_request(format!("error decoding YAML: {e}")))?;
    let faults = decode::strict_faults(&[], &parsed.duplicate_fields);
    if options.validation == FieldValidation::Strict
        && let Some(first) = parsed.duplicate_fields.first()
    {
        let line = schema::first_duplicate_line(config).unwrap_or_default();
        let key = first.rsplit('.').next().unwrap_or(first);
        return Err(ApiError::bad_request(format!(
            "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  line {line}: key {key:?} already set in map"
        )));
    }
    let config = match parsed.value {
        Value::Null => json!({}),
        config => config,
    };
    let found = match &config {
        Value::Object(_) | Value::Null => None,
        Value::Array(_) => Some("array"),
        Value::String(_) => Some("string"),
        Value::Number(_) => Some("number"),
        Value::Bool(_) => Some("bool"),
    };
    if let Some(found) = found {
        return Err(ApiError::bad_request(format!(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
        )));
    }
    let managed = config.pointer("/metadata/managedFields");
    if managed.is_some_and(|m| !m.is_null()) {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    let text = |field: &str| config.get(field).and_then(Value::as_str).unwrap_or("");
    let expected = match sub {
        Some("scale") => ("autoscaling/v1".to_owned(), "Scale"),
        _ => (resource.api_version(), resource.kind),
    };
    if (text("apiVersion"), text("kind")) != (expected.0.as_str(), expected.1) {
        let (group, version) = text("apiVersion")
            .split_once('/')
            .unwrap_or(("", text("apiVersion")));
        return Err(ApiError::bad_request(format!(
            "invalid object type: {group}/{version}, Kind={}",
            text("kind")
        )));
    }
    let warnings = match options.validation {
        FieldValidation::Warn => faults,
        _ => Vec::new(),
    };
    Ok((config, warnings))
}

/// The configuration with the name and namespace of the URL.
fn addressed(
    resource: &ServedResource,
    namespace: &str,
    name: &str,
    mut config: Value,
) -> Result<Value, ApiError> {
    let given = meta(&config, "name");
    if !given.is_empty() && given != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    adopt_namespace(resource, namespace, &mut config)?;
    meta_mut(&mut config).insert("name".to_owned(), name.into());
    Ok(config)
}

/// The configuration that a `Scale` contains of the object that it scales.
fn scale_config(resource: &ServedResource, scale: &Value) -> Value {
    let mut config = json!({
        "apiVersion": resource.api_version(),
        "kind": resource.kind,
        "metadata": scale.get("metadata").cloned().unwrap_or_default(),
    });
    if let Some(replicas) = scale.pointer("/spec/replicas") {
        set_replicas(resource, &mut config, replicas.clone());
    }
    config
}

fn apply_error(
    resource: &ServedResource,
    namespace: &str,
    name: &str,
    error: ApplyError,
) -> ApiError {
    match error {
        ApplyError::Type(fault) => ApiError::internal_plain(format!(
            "failed to create typed patch object ({namespace}/{name}; {}, Kind={}): {fault}",
            resource.api_version(),
            resource.kind
        )),
        ApplyError::Conflicts(conflicts) => {
            let causes = conflicts.iter().map(|Conflict { owner, field }| Cause {
                reason: "FieldManagerConflict",
                message: format!("conflict with {owner}"),
                field: field.clone(),
            });
            ApiError::apply_conflict(apply::conflict_message(&conflicts), causes.collect())
        }
    }
}

/// The default name of a manager, from the `User-Agent` of the client.
pub(crate) fn manager_of_agent(agent: &str) -> String {
    let name = agent.split('/').next().unwrap_or("");
    match name {
        "" => "unknown".to_owned(),
        name => name
            .chars()
            .take(crate::registry::request::MANAGER_BYTES_MAX)
            .collect(),
    }
}
