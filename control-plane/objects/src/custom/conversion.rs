//! The conversion of custom resources between the versions of their definition by a webhook, which receives a
//! `ConversionReview`.
//!
//! The webhook is called only for objects of another version than the requested one, for many objects at once. It can
//! change only labels and annotations of the metadata. Messages equal kube-apiserver's.

use super::objects::prune;
use crate::raw_json::managed_fields_to_json;
use crate::validation::errors::{ErrorPath, Errors};
use crate::validation::metadata::validate_annotations;
use crate::validation::selectors::validate_labels;
use crate::view::{FieldView, meta};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

/// One call converts no more objects, and no more bytes unless a single object is larger.
const BATCH_OBJECTS_MAX: usize = 500;
const BATCH_BYTES_MAX: usize = 1024 * 1024;
const GROUP: &str = "apiextensions.k8s.io";
/// The versions of ConversionReview that the API server sends.
pub(super) const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// The conversion webhook of a definition: the requests and the responses of its calls, without I/O.
#[derive(Debug)]
pub struct ConversionWebhook {
    /// The `clientConfig` of the definition.
    pub config: Value,
    review_version: &'static str,
    /// The versions of the definition, such as `example.com/v1`, with their schemas.
    versions: Vec<(String, Value)>,
}

impl ConversionWebhook {
    /// The webhook of a definition; `None` if its versions differ only in their names.
    pub(crate) fn of(definition: &Value) -> Option<Self> {
        let spec = definition.part("spec");
        let conversion = spec.part("conversion");
        if conversion.text("strategy") != "Webhook" {
            return None;
        }
        let webhook = conversion.part("webhook");
        let stated = webhook.strings("conversionReviewVersions");
        let known = |stated: &&str| REVIEW_VERSIONS.into_iter().find(|known| known == stated);
        let versions = spec.items("versions").iter().map(|version| {
            let name = format!("{}/{}", spec.text("group"), version.text("name"));
            let schema = version.part("schema").part("openAPIV3Schema");
            (name, schema.clone())
        });
        Some(Self {
            config: webhook.part("clientConfig").clone(),
            review_version: stated.iter().find_map(known).unwrap_or("v1"),
            versions: versions.collect(),
        })
    }

    /// The authorities of the webhook in PEM; empty for the system's authorities.
    pub fn bundle(&self) -> Vec<u8> {
        let bundle = STANDARD.decode(self.config.text("caBundle"));
        let bundle = bundle.unwrap_or_default();
        if bundle.trim_ascii().is_empty() {
            Vec::new()
        } else {
            bundle
        }
    }

    /// The objects of each call for a conversion to another version. None of them has the requested version yet.
    ///
    /// # Errors
    /// The definition does not have a version.
    pub fn batches(&self, objects: Vec<Value>, wanted: &str) -> Result<Vec<Vec<Value>>, String> {
        for object in &objects {
            self.schema(object.text("apiVersion")).ok_or_else(|| {
                let version = object.text("apiVersion");
                format!("request to convert CR from an invalid group/version: {version}")
            })?;
        }
        self.schema(wanted).ok_or_else(|| {
            format!("request to convert CR to an invalid group/version: {wanted}")
        })?;
        Ok(batches(objects))
    }

    fn schema(&self, version: &str) -> Option<&Value> {
        let known = self.versions.iter().find(|(name, _)| name == version);
        known.map(|(_, schema)| schema)
    }

    /// The body of a call.
    pub fn review(&self, uid: &str, objects: &[Value], wanted: &str) -> Value {
        let sent: Vec<Value> = objects.iter().cloned().map(as_sent).collect();
        json!({
            "kind": "ConversionReview",
            "apiVersion": format!("{GROUP}/{}", self.review_version),
            "request": {"uid": uid, "desiredAPIVersion": wanted, "objects": sent},
            "response": {"uid": "", "convertedObjects": null, "result": {"metadata": {}}},
        })
    }

    /// The objects of a call in the requested version, from its response.
    ///
    /// # Errors
    /// Why they are not converted.
    pub fn finish(
        &self,
        uid: &str,
        objects: &[Value],
        response: Result<Value, String>,
        wanted: &str,
    ) -> Result<Vec<Value>, String> {
        let first = objects.first().unwrap_or(&Value::Null);
        let kind = format!("{}, Kind={}", first.text("apiVersion"), first.text("kind"));
        let of_webhook = |what: String| format!("conversion webhook for {kind} {what}");
        let converted = response.and_then(|review| self.converted(uid, review));
        let converted = converted.map_err(|e| of_webhook(format!("failed: {e}")))?;
        let (found, expected) = (converted.len(), objects.len());
        if found != expected {
            let what = format!("returned {found} objects, expected {expected}");
            return Err(of_webhook(what));
        }
        // The texts differ for one object and for several, as in kube-apiserver.
        let is_alone = expected == 1;
        let pairs = objects.iter().zip(converted).enumerate();
        let restored = pairs
            .map(|(i, (original, converted))| {
                restored(original, converted, wanted).map_err(|fault| {
                    of_webhook(match (fault, is_alone) {
                        (ConversionFault::Type(e), true) => {
                            format!("returned invalid object at index 0: {e}")
                        }
                        (ConversionFault::Object(e), true) => {
                            format!("returned invalid object: {e}")
                        }
                        (ConversionFault::Metadata(e), true) => {
                            format!("returned invalid metadata: {e}")
                        }
                        (ConversionFault::Type(e) | ConversionFault::Object(e), false) => {
                            format!("returned invalid converted object at index {i}: {e}")
                        }
                        (ConversionFault::Metadata(e), false) => {
                            format!("returned invalid metadata in object at index {i}: {e}")
                        }
                    })
                })
            })
            .collect::<Result<Vec<Value>, String>>();
        let mut restored = restored?;
        if let Some(schema) = self.schema(wanted) {
            for object in &mut restored {
                prune(schema, object, &mut Vec::new());
            }
        }
        Ok(restored)
    }

    /// The objects of a response.
    fn converted(&self, uid: &str, mut review: Value) -> Result<Vec<Value>, String> {
        // Only v1 requires the type of the review and its UID.
        if self.review_version == "v1" {
            let (group, version) = review
                .text("apiVersion")
                .split_once('/')
                .unwrap_or(("", review.text("apiVersion")));
            if (group, version, review.text("kind")) != (GROUP, "v1", "ConversionReview") {
                return Err(format!(
                    "expected webhook response of {GROUP}/v1, Kind=ConversionReview, got {group}/{version}, Kind={}",
                    review.text("kind")
                ));
            }
        }
        let Some(response) = review.field("response") else {
            return Err("no response provided".to_owned());
        };
        let given = response.text("uid");
        if self.review_version == "v1" && given != uid {
            return Err(format!("expected response.uid={uid:?}, got {given:?}"));
        }
        let result = response.part("result");
        match (result.text("status"), result.text("message")) {
            ("Success", _) => {}
            (status, "") => {
                return Err(format!(
                    "response.result.status was '{status}', not 'Success'"
                ));
            }
            (_, message) => return Err(message.to_owned()),
        }
        match review["response"]["convertedObjects"].take() {
            Value::Array(objects) => Ok(objects),
            _ => Ok(Vec::new()),
        }
    }
}

/// An object as webhooks receive it.
fn as_sent(mut object: Value) -> Value {
    managed_fields_to_json(&mut object);
    object
}

/// The objects of single calls.
fn batches(objects: Vec<Value>) -> Vec<Vec<Value>> {
    let mut batches: Vec<Vec<Value>> = Vec::new();
    let mut bytes = 0_usize;
    for object in objects {
        let length = object.to_string().len();
        match batches.last_mut() {
            Some(batch)
                if batch.len() < BATCH_OBJECTS_MAX
                    && bytes.saturating_add(length) <= BATCH_BYTES_MAX =>
            {
                bytes += length;
                batch.push(object);
            }
            _ => {
                bytes = length;
                batches.push(vec![object]);
            }
        }
    }
    batches
}

/// An error in an object that a webhook returned.
#[derive(Debug, PartialEq, Eq)]
enum ConversionFault {
    /// Its version or its kind.
    Type(String),
    /// The object of the answer.
    Object(String),
    Metadata(String),
}

/// A converted object with the metadata of the original, except for labels and annotations.
fn restored(
    original: &Value,
    mut converted: Value,
    wanted: &str,
) -> Result<Value, ConversionFault> {
    let version = converted.text("apiVersion");
    if version != wanted {
        return Err(ConversionFault::Type(format!(
            "invalid groupVersion (expected {wanted}, received {version})"
        )));
    }
    let (kind, expected) = (converted.text("kind"), original.text("kind"));
    if kind != expected {
        return Err(ConversionFault::Type(format!(
            "invalid kind (expected {expected}, received {kind})"
        )));
    }
    for (field, shown) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let (expected, found) = (meta(original, field), meta(&converted, field));
        if expected != found {
            return Err(ConversionFault::Object(format!(
                "must have the same {shown}: {expected} != {found}"
            )));
        }
    }
    let given = match converted.field("metadata") {
        Some(Value::Object(given)) => given.clone(),
        Some(other) => {
            return Err(ConversionFault::Metadata(format!(
                "invalid metadata of type {} in converted object",
                go_type(other)
            )));
        }
        None => {
            let missing = "missing metadata in converted object";
            return Err(ConversionFault::Metadata(missing.to_owned()));
        }
    };
    let mut metadata = original.map("metadata").cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        let new = texts(&given, field).map_err(ConversionFault::Metadata)?;
        match new {
            None => metadata.remove(field),
            Some(new) => {
                if metadata.get(field).and_then(Value::as_object) != Some(&new) {
                    check_texts(field, &new).map_err(ConversionFault::Metadata)?;
                }
                metadata.insert(field.to_owned(), new.into())
            }
        };
    }
    converted["metadata"] = metadata.into();
    Ok(converted)
}

/// The labels or annotations that a webhook returns.
fn texts(metadata: &Map<String, Value>, field: &str) -> Result<Option<Map<String, Value>>, String> {
    let map = match metadata.get(field) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Object(map)) => map,
        Some(other) => {
            let found = go_type(other);
            return Err(format!(
                "invalid metadata.{field} of type {found} in converted object"
            ));
        }
    };
    match map.iter().find(|(_, value)| !value.is_string()) {
        None => Ok(Some(map.clone())),
        Some((key, value)) => Err(format!(
            "metadata.{field}[{key}] must be a string, but is {} in converted object",
            go_type(value)
        )),
    }
}

fn check_texts(field: &str, texts: &Map<String, Value>) -> Result<(), String> {
    let mut errors = Errors::new();
    let holder = json!({ field: texts });
    let path = ErrorPath::new("metadata");
    match field {
        "labels" => validate_labels(&mut errors, &holder, field, &path.child(field)),
        _ => validate_annotations(&mut errors, &holder, &path.child("annotation")),
    }
    let errors: Vec<String> = errors.into_vec().iter().map(ToString::to_string).collect();
    match errors.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        several => Err(format!("[{}]", several.join(", "))),
    }
}

/// The type of a value of JSON in Go.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(version: &str, metadata: Value) -> Value {
        json!({"apiVersion": version, "kind": "Widget", "metadata": metadata})
    }

    #[test]
    fn a_webhook_changes_labels_and_annotations_and_no_other_metadata() {
        let original = object(
            "e.com/v1",
            json!({"name": "a", "uid": "u", "generation": 3, "labels": {"x": "1"}, "annotations": {"y": "1"}}),
        );
        let returned = object(
            "e.com/v2",
            json!({"name": "a", "uid": "u", "generation": 9, "finalizers": ["f"], "labels": {"x": "2"}}),
        );
        assert_eq!(
            restored(&original, returned, "e.com/v2"),
            Ok(object(
                "e.com/v2",
                json!({"name": "a", "uid": "u", "generation": 3, "labels": {"x": "2"}})
            ))
        );
    }

    #[test]
    fn invalid_objects_are_refused_with_the_texts_of_kubernetes() {
        let original = object("e.com/v1", json!({"name": "a", "uid": "u"}));
        let named = |metadata| object("e.com/v2", metadata);
        let invalid_label = "metadata.labels: Invalid value: \"a b\": ";
        for (returned, fault, text) in [
            (
                object("e.com/v1", json!({"name": "a", "uid": "u"})),
                "type",
                "invalid groupVersion (expected e.com/v2, received e.com/v1)",
            ),
            (
                json!({"apiVersion": "e.com/v2", "kind": "Gadget"}),
                "type",
                "invalid kind (expected Widget, received Gadget)",
            ),
            (
                named(json!({"name": "b", "uid": "u"})),
                "object",
                "must have the same name: a != b",
            ),
            (
                named(json!({"name": "a", "uid": "v"})),
                "object",
                "must have the same UID: u != v",
            ),
            (
                named(json!({"name": "a", "uid": "u", "labels": {"x": 1}})),
                "metadata",
                "metadata.labels[x] must be a string, but is int64 in converted object",
            ),
            (
                named(json!({"name": "a", "uid": "u", "annotations": []})),
                "metadata",
                "invalid metadata.annotations of type []interface {} in converted object",
            ),
            (
                named(json!({"name": "a", "uid": "u", "labels": {"x": "a b"}})),
                "metadata",
                invalid_label,
            ),
        ] {
            let found = restored(&original, returned.clone(), "e.com/v2").err();
            let found = match found {
                Some(ConversionFault::Type(text)) => ("type", text),
                Some(ConversionFault::Object(text)) => ("object", text),
                Some(ConversionFault::Metadata(text)) => ("metadata", text),
                None => ("", String::new()),
            };
            assert_eq!(found.0, fault, "{returned}");
            assert!(found.1.starts_with(text), "{}", found.1);
        }
    }

    #[test]
    fn a_call_converts_a_bounded_number_of_objects_and_bytes() {
        let small = || object("e.com/v1", json!({"name": "a"}));
        let large = || object("e.com/v1", json!({"name": "x".repeat(BATCH_BYTES_MAX)}));
        let sizes =
            |objects: Vec<Value>| -> Vec<usize> { batches(objects).iter().map(Vec::len).collect() };
        let many = std::iter::repeat_with(small).take(BATCH_OBJECTS_MAX + 1);
        assert_eq!(sizes(many.collect()), [BATCH_OBJECTS_MAX, 1]);
        assert_eq!(sizes(vec![small(), large(), small(), small()]), [1, 1, 2]);
        assert!(sizes(Vec::new()).is_empty());
    }
}
