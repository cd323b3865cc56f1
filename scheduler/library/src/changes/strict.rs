//! Strict decoding of changes, as in the API server: a typing error must not be a change without effect.

use super::DELETE;
use crate::InputError;
use crate::json::{ClusterJson, ObjectKey, is_deferred_quota, shown};
use berth_api::Kind;
use berth_objects::offline;
use berth_objects::offline::UnknownField;
use berth_scheduler::profile::closest;
use serde_json::Value;
use std::fmt::Write as _;

/// The API server's error about a missing image. It is ignored, because the scheduler does not read the image.
const IMAGE: &str = ".image: Required value";

/// A hint at the intended name; empty if no candidate is similar.
pub(crate) fn hint<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    closest(name, candidates).map_or_else(String::new, |near| format!("; did you mean {near:?}?"))
}

/// Checks kind, fields and types of a document.
///
/// # Errors
/// Names each fault with the place.
pub(crate) fn check(place: &str, object: &Value) -> Result<(), InputError> {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if api_version.is_empty() || kind.is_empty() {
        return Err(InputError::object(
            place,
            "apiVersion or kind is missing; give objects as kubectl get -o yaml prints them",
        ));
    }
    let faults: Vec<String> = match offline::check(api_version, kind, object) {
        Some(misfits) => {
            let unknown = misfits.unknown_fields.iter().map(unknown_field);
            unknown.chain(misfits.type_errors).collect()
        }
        // Its spec is checked when it is decoded.
        None if is_deferred_quota(object) => Vec::new(),
        None => return Err(unknown_kind(place, api_version, kind)),
    };
    if !faults.is_empty() {
        let faults = faults.join(", ");
        return Err(InputError::object(place, format!("{kind}: {faults}")));
    }
    let annotations = &object["metadata"]["annotations"];
    match annotations[DELETE].as_str() {
        None | Some("delete") => Ok(()),
        Some(other) => Err(InputError::object(
            place,
            format!("annotation {DELETE}: {other:?} is not known; \"delete\" deletes the object"),
        )),
    }
}

fn unknown_field(field: &UnknownField) -> String {
    let name = field.path.rsplit('.').next().unwrap_or(&field.path);
    let siblings = field.siblings.iter().map(String::as_str);
    let hint = hint(name, siblings);
    format!("unknown field {:?}{hint}", field.path)
}

fn unknown_kind(place: &str, api_version: &str, kind: &str) -> InputError {
    let known = offline::kinds();
    let versions: Vec<&str> = known
        .iter()
        .filter(|(_, name)| *name == kind)
        .map(|(version, _)| version.as_str())
        .collect();
    let hint = if versions.is_empty() {
        let of_version = known.iter().filter(|(version, _)| version == api_version);
        let near = closest(kind, of_version.map(|(_, name)| *name));
        let near = near.or_else(|| closest(kind, known.iter().map(|(_, name)| *name)));
        near.map_or_else(String::new, |near| format!("; did you mean {near:?}?"))
    } else {
        format!("; did you mean apiVersion {}?", versions.join(" or "))
    };
    InputError::object(place, format!("no kind {kind:?} in {api_version}{hint}"))
}

/// A hint at an object of the same kind: with a similar name, or with the same name in another namespace.
pub(crate) fn similar(raw: &ClusterJson, key: &ObjectKey) -> String {
    let of_kind = raw.keys().filter(|known| known.0 == key.0);
    let same_name = of_kind.clone().find(|known| known.2 == key.2);
    if let Some((_, namespace, _)) = same_name {
        return format!("; did you mean the one in namespace {namespace:?}?");
    }
    let in_namespace = of_kind.filter(|known| known.1 == key.1);
    hint(&key.2, in_namespace.map(|known| known.2.as_str()))
}

/// Checks an object that does not exist. Fields that were intended for another object make no valid new one.
///
/// # Errors
/// Names the object that may have been intended, and the missing fields of a new one.
pub(crate) fn check_new(
    raw: &ClusterJson,
    place: &str,
    key: &ObjectKey,
    object: &Value,
) -> Result<(), InputError> {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    if is_deferred_quota(object) {
        return Ok(());
    }
    let mut errors = offline::errors_of_new(text("apiVersion"), text("kind"), object);
    errors.retain(|error| !error.contains(IMAGE));
    if key.0 == Kind::Node {
        let status = &object["status"];
        if !status["allocatable"].is_object() && !status["capacity"].is_object() {
            errors.push("status.allocatable: Required value: a node without it has no room".into());
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    let (kind, name) = (key.0.name(), shown(key));
    let mut text = format!("there is no {kind} {name}{}", similar(raw, key));
    let end = if text.ends_with('?') { " " } else { "; " };
    let _ = write!(text, "{end}A new {kind} is invalid: {}", errors.join(", "));
    Err(InputError::object(place, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn typing_errors_are_named_with_what_was_meant() {
        let pod = |spec: Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec});
        for (object, expected) in [
            (
                pod(json!({"contaienrs": []})),
                "f: Pod: unknown field \"spec.contaienrs\"; did you mean \"containers\"?",
            ),
            (
                pod(json!({"tolerations": [{"keyy": "a"}]})),
                "unknown field \"spec.tolerations[0].keyy\"; did you mean \"key\"?",
            ),
            (
                json!({"apiVersion": "v1", "kind": "Pood"}),
                "f: no kind \"Pood\" in v1; did you mean \"Pod\"?",
            ),
            (
                json!({"apiVersion": "v1", "kind": "Deployment"}),
                "did you mean apiVersion apps/v1?",
            ),
            (json!({"kind": "Pod"}), "apiVersion or kind is missing"),
            (
                json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n",
                    "annotations": {DELETE: "remove"}}}),
                "\"remove\" is not known",
            ),
        ] {
            let error = check("f", &object).expect_err("a fault");
            let error = error.to_string();
            assert!(error.contains(expected), "{error}");
        }
        let fine = pod(json!({"containers": [{"name": "c"}], "nodeName": null}));
        assert!(check("f", &fine).is_ok());
    }

    #[test]
    fn fields_for_an_object_that_does_not_exist_are_no_new_object() {
        let key = |name: &str| (Kind::Node, String::new(), name.to_owned());
        let raw = ClusterJson::from([(key("berth-node-1"), json!({}))]);
        let cordoned = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "berth-nod-1"},
            "spec": {"unschedulable": true}});
        let error = check_new(&raw, "f", &key("berth-nod-1"), &cordoned).expect_err("no node");
        let error = error.to_string();
        let expected = "there is no Node berth-nod-1; did you mean \"berth-node-1\"? A new Node is invalid: \
                        status.allocatable: Required value";
        assert!(error.contains(expected), "{error}");
    }
}
