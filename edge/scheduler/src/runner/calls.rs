//! Carries out the core's API calls, and reports their results to it.

mod replace;
#[cfg(test)]
mod tests;

use berth_api::{Duration, ObjectMeta, Str, Time, groups};
use berth_client::content::ApiAnswer;
use berth_client::limit;
use berth_client::request::{ApiRequest, Resource};
use berth_client::{ApiError, Transport, request};
use berth_framework::call::{
    ApiCall, CallError, CallErrorKind, CallResult, ConditionPatch, PodRef, Response,
};
use berth_framework::write::{Action, Lane, Write};
use futures_util::FutureExt;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::panic::AssertUnwindSafe;

/// An API server's message for an object of the same name with another UID.
const OTHER_UID: &str = "Precondition failed: UID in precondition";

/// The result of a call whose task has panicked.
const BROKEN_OFF: &str = "the call broke off for a bug in Berth; the log states where";

/// Carries out one call. The dispatcher decides whether it is repeated.
pub(crate) async fn execute(transport: &Transport, call: &ApiCall, now: Time) -> CallResult {
    answered(send(transport, call, now), || transport.is_settling()).await
}

/// The answer, also after a panic: without an answer the call would be in flight forever. `is_settling` returns whether
/// the API server has just returned.
async fn answered(
    asking: impl Future<Output = Result<Response, ApiError>>,
    is_settling: impl FnOnce() -> bool,
) -> CallResult {
    match AssertUnwindSafe(asking).catch_unwind().await {
        Ok(answer) => answer.map_err(|error| call_error(&error, is_settling())),
        Err(_) => Err(CallError::new(CallErrorKind::Refused, BROKEN_OFF)),
    }
}

/// Carries out one call. Returns the version of the object that the server answered with, if it did.
async fn send(transport: &Transport, call: &ApiCall, now: Time) -> Result<Response, ApiError> {
    match call {
        ApiCall::BindPod { pod, node } => {
            let bind = request::bind_pod(&pod.namespace, &pod.name, &pod.uid, node);
            let answer = transport.answer(&bind).await?;
            Ok(Response {
                resource_version: bound_in(&answer),
                ..Response::default()
            })
        }
        ApiCall::PatchPodStatus {
            pod,
            conditions,
            nominated_node,
        } => {
            let patch = status_patch(pod, conditions, nominated_node.as_ref(), now);
            patch_status(transport, pod, &patch).await
        }
        ApiCall::ClearPreEnqueueStatus {
            pod,
            resource_version,
            conditions,
            nominated_node,
        } => {
            let patch = status_patch(pod, conditions, nominated_node.as_ref(), now);
            let patch = removing_condition(patch, resource_version.as_ref());
            patch_status(transport, pod, &patch).await
        }
        ApiCall::DeletePod { pod, .. } => {
            let patch = status_patch(pod, call.conditions(), None, now);
            // A pod that is not found was already deleted. The core receives that result, and then publishes no event
            // about it.
            patch_status(transport, pod, &patch).await?;
            let delete = request::delete_pod(&pod.namespace, &pod.name, &pod.uid);
            change_pod(transport, &delete, &pod.uid).await
        }
        ApiCall::Write(write) => {
            let answer = match write.raw_fields() {
                Some(raw) => replace::write(transport, write, raw).await?,
                // Plugins read JSON.
                None => in_served_version(transport, write).await?,
            };
            Ok(Response {
                resource_version: version_of(&answer, write.uid()),
                body: answer.bytes.as_ref().into(),
            })
        }
    }
}

/// Carries out a write in the version of the kind that the server has.
async fn in_served_version(transport: &Transport, write: &Write) -> Result<ApiAnswer, ApiError> {
    let mut answer = transport.answer(&write_request(write).for_json()).await;
    for version in write.object().kind.other_versions() {
        // The server has no such object, or not the version.
        if !matches!(&answer, Err(error) if error.code() == Some(404)) {
            break;
        }
        let resource = Resource {
            version,
            ..resource_of(write)
        };
        let request = write_request_to(resource, write).for_json();
        answer = transport.answer(&request).await;
    }
    answer
}

async fn patch_status(
    transport: &Transport,
    pod: &PodRef,
    patch: &Value,
) -> Result<Response, ApiError> {
    let request = request::patch_pod_status(&pod.namespace, &pod.name, patch);
    change_pod(transport, &request, &pod.uid).await
}

/// Makes a request that is answered with the pod as it is after that. Returns its version.
async fn change_pod(
    transport: &Transport,
    request: &ApiRequest,
    uid: &str,
) -> Result<Response, ApiError> {
    let answer = transport.answer(request).await?;
    Ok(Response {
        resource_version: version_of(&answer, uid),
        ..Response::default()
    })
}

/// The request of a write. The identity and the version that it holds for are preconditions: part of the metadata in a
/// body, and options of a deletion.
fn write_request(write: &Write) -> ApiRequest {
    write_request_to(resource_of(write), write)
}

/// The action in the words of a version: in v1alpha2, the condition of a pod group has another type.
fn action_in(resource: Resource, action: &Action) -> Cow<'_, Action> {
    let Action::StrategicPatch(body) = action else {
        return Cow::Borrowed(action);
    };
    if (resource.group, resource.version) != (groups::API_GROUP, groups::V1ALPHA2) {
        return Cow::Borrowed(action);
    }
    let mut body = body.clone();
    let conditions = body.pointer_mut("/status/conditions");
    let conditions = conditions.and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        if condition["type"] == groups::POD_GROUP_INITIALLY_SCHEDULED {
            condition["type"] = groups::POD_GROUP_SCHEDULED_OF_V1ALPHA2.into();
        }
    }
    Cow::Owned(Action::StrategicPatch(body))
}

fn write_request_to(resource: Resource, write: &Write) -> ApiRequest {
    let object = write.object();
    let (namespace, name) = (&object.namespace, &object.name);
    let mut preconditions = Map::new();
    // The preconditions make the API server reject a write that was based on another version.
    for (field, value) in [
        ("uid", Some(write.uid())),
        ("resourceVersion", write.resource_version()),
    ] {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            preconditions.insert(field.to_owned(), value.as_str().into());
        }
    }
    let with = |body: &Value| with_metadata(body, preconditions.clone());
    let action = action_in(resource, write.action());
    let mut request = match &*action {
        Action::Create(body) => request::create(resource, namespace, body),
        Action::Update(body) => request::update(resource, namespace, name, &with(body)),
        Action::Patch(body) => request::merge_patch(resource, namespace, name, &with(body)),
        Action::StrategicPatch(body) => {
            request::strategic_patch(resource, namespace, name, &with(body))
        }
        Action::Delete => request::delete(resource, namespace, name, &preconditions.into()),
    };
    if !write.subresource().is_empty() {
        let object = resource.object_path(namespace, name);
        request.path = format!("{object}/{}", write.subresource());
    }
    request.lane = lane_of(write);
    request
}

fn resource_of(write: &Write) -> Resource {
    let (group, version, plural) = write.object().kind.resource();
    Resource {
        group,
        version,
        plural,
    }
}

fn lane_of(write: &Write) -> limit::Lane {
    match write.call_type().lane() {
        Lane::Binding => limit::Lane::Binding,
        Lane::Deletion => limit::Lane::Deletion,
        Lane::Write => limit::Lane::Write,
        Lane::Status => limit::Lane::Status,
    }
}

/// The body with these fields in its metadata.
fn with_metadata(body: &Value, fields: Map<String, Value>) -> Value {
    let mut body = body.clone();
    if fields.is_empty() {
        return body;
    }
    if let Some(body) = body.as_object_mut()
        && let Some(metadata) = body
            .entry("metadata")
            .or_insert_with(|| json!({}))
            .as_object_mut()
    {
        metadata.extend(fields);
    }
    body
}

/// The version of the object in an answer; `None` if the answer contains no object or another one, as servers may
/// return.
fn version_of(answer: &ApiAnswer, uid: &str) -> Option<Str> {
    #[derive(Deserialize)]
    struct Written {
        metadata: ObjectMeta,
    }
    let meta = answer.decode::<Written>().ok()?.metadata;
    let is_it = uid.is_empty() || meta.uid == uid;
    (is_it && !meta.resource_version.is_empty()).then_some(meta.resource_version)
}

/// The version of the pod that a binding made, from the `Status` that answers it. Servers before Kubernetes 1.38 do not
/// return it.
fn bound_in(answer: &ApiAnswer) -> Option<Str> {
    #[derive(Deserialize)]
    struct Status {
        #[serde(default)]
        metadata: ObjectMeta,
    }
    let meta = answer.decode::<Status>().ok()?.metadata;
    (!meta.resource_version.is_empty()).then_some(meta.resource_version)
}

/// A strategic merge patch: conditions are merged by type, other fields of the status are kept. The UID makes the
/// server refuse a newer pod of the same name.
fn status_patch(
    pod: &PodRef,
    conditions: &[ConditionPatch],
    nominated_node: Option<&Str>,
    now: Time,
) -> Value {
    let mut status = json!({});
    let entries = conditions.iter().map(|condition| {
        let mut entry = json!({
            "type": condition.kind,
            "status": condition.status,
            "reason": condition.reason,
            "message": condition.message,
            "lastProbeTime": null,
        });
        // The time stays if the status of the condition does not change, as in Kubernetes.
        if condition.status_changes {
            entry["lastTransitionTime"] = now.rfc3339().into();
        }
        if let Some(generation) = condition.observed_generation {
            entry["observedGeneration"] = generation.into();
        }
        entry
    });
    let entries: Vec<Value> = entries.collect();
    if !entries.is_empty() {
        status["conditions"] = entries.into();
    }
    if let Some(node) = nominated_node {
        // Null removes the field from the stored status.
        status["nominatedNodeName"] = if node.is_empty() {
            Value::Null
        } else {
            node.as_str().into()
        };
    }
    json!({"metadata": {"uid": pod.uid}, "status": status})
}

/// The patch, with the removal of the PodScheduled condition. A strategic merge patch cannot compare the reason, so the
/// patch is for the version of the pod that has the condition: the API server answers 409 for a later version.
fn removing_condition(mut patch: Value, resource_version: Option<&Str>) -> Value {
    let removed = json!({"$patch": "delete", "type": "PodScheduled"});
    match patch["status"]["conditions"].as_array_mut() {
        Some(entries) => entries.push(removed),
        None => patch["status"]["conditions"] = json!([removed]),
    }
    if let Some(version) = resource_version {
        patch["metadata"]["resourceVersion"] = version.as_str().into();
    }
    patch
}

/// The error as the core understands it. A server that `is_settling` may not have loaded its roles yet.
fn call_error(error: &ApiError, is_settling: bool) -> CallError {
    let kind = match error {
        ApiError::Timeout { .. } => CallErrorKind::Timeout,
        ApiError::Transport(_) | ApiError::NotLeading => CallErrorKind::Unavailable,
        ApiError::Decode { .. } | ApiError::ReadOnly { .. } => CallErrorKind::Refused,
        // Another object has the name now: the object of the call was deleted.
        ApiError::Status {
            code: 409, message, ..
        } if message.contains(OTHER_UID) => CallErrorKind::NotFound,
        ApiError::Status { code, .. } => match code {
            403 if is_settling => CallErrorKind::Unavailable,
            404 => CallErrorKind::NotFound,
            409 => CallErrorKind::Conflict,
            504 => CallErrorKind::Timeout,
            429 | 500 | 502 | 503 => CallErrorKind::Unavailable,
            _ => CallErrorKind::Refused,
        },
    };
    let retry_after = match error {
        ApiError::Status {
            retry_after_seconds,
            ..
        } => retry_after_seconds.map(Duration::from_secs),
        _ => None,
    };
    CallError {
        retry_after,
        ..CallError::new(kind, error.to_string())
    }
}
