//! The change from client-side apply to server-side apply by `kubectl`.
//!
//! `kubectl apply` stores the configuration in an annotation. When the manager `kubectl` uses server-side apply, it
//! also owns the fields of that annotation, and the annotation is updated, so that both ways of applying can alternate.
//! Other managers are not affected.

use super::fields::FieldSet;
use super::{Author, Typed};
use crate::validation::errors::json_text;
use crate::validation::metadata::ANNOTATIONS_BYTES_MAX;
use crate::view::{FieldView, meta_mut};
use serde_json::{Map, Value};

const MANAGER: &str = "kubectl";
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Returns whether the author continues `kubectl apply`. A `Scale` has no annotations.
fn continues(author: &Author<'_>) -> bool {
    author.manager == MANAGER && author.subresource != "scale"
}

fn annotation(object: &Value) -> Option<&str> {
    let text = object.at(&["metadata", "annotations", ANNOTATION])?;
    text.as_str().filter(|text| !text.is_empty())
}

/// The fields that client-side apply set and that have the same values in the live object. `None` when the author does
/// not continue it, or the annotation is not a configuration of the version of the request.
pub(super) fn unchanged_fields(
    typed: Typed<'_>,
    live: &Value,
    author: &Author<'_>,
) -> Option<FieldSet> {
    if !continues(author) {
        return None;
    }
    let config: Value = serde_json::from_str(annotation(live)?).ok()?;
    if config.text("apiVersion") != author.api_version || config.text("kind").is_empty() {
        return None;
    }
    let mut set = typed.field_set(&config).ok()?;
    let found = typed.compare(&config, live);
    for different in [found.modified, found.added, found.removed] {
        set.subtract(&different);
    }
    Some(set)
}

/// Stores the applied configuration in the annotation, if the object has the annotation. `config` is the configuration
/// as the client sent it.
pub fn renew_last_applied(object: &mut Value, config: &Value, author: &Author<'_>) {
    if !continues(author) || annotation(object).is_none() {
        return;
    }
    let mut config = config.clone();
    let annotations = config.pointer_mut("/metadata/annotations");
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        annotations.remove(ANNOTATION);
    }
    let annotations = meta_mut(object).get_mut("annotations");
    let Some(annotations) = annotations.and_then(Value::as_object_mut) else {
        return;
    };
    // kubectl ends the text with a line break.
    annotations.insert(ANNOTATION.to_owned(), (json_text(config) + "\n").into());
    if bytes(annotations) > ANNOTATIONS_BYTES_MAX {
        annotations.remove(ANNOTATION);
    }
}

fn bytes(annotations: &Map<String, Value>) -> usize {
    let texts = annotations.iter();
    texts
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum()
}
