//! Carries out the core's API calls, and tells it how they went.

use berth_api::storage::{BOUND_BY_CONTROLLER_ANNOTATION, SELECTED_NODE_ANNOTATION};
use berth_api::{Duration, ObjectMeta, Str, Time};
use berth_client::request::{ApiRequest, Resource};
use berth_client::{ApiError, Transport, request};
use berth_framework::call::{
    ApiCall, CallAnswer, CallError, CallErrorKind, ConditionPatch, PodRef,
};
use berth_framework::storage::{StorageChange, StorageWrite};
use futures_util::FutureExt;
use serde::Deserialize;
use serde_json::{Value, json};
use std::panic::AssertUnwindSafe;

/// In the words of API servers: the object of that name is not the one that was meant.
const OTHER_UID: &str = "Precondition failed: UID in precondition";

/// What is told of a call whose task has panicked.
const BROKEN_OFF: &str = "the call broke off for a bug in Berth; the log tells where";

/// Carries out one call. Whether it is worth a retry is for the dispatcher to say.
pub(crate) async fn execute(transport: &Transport, call: &ApiCall, now: Time) -> CallAnswer {
    answered(send(transport, call, now)).await
}

/// The answer, even when asking for it broke off: without one the call would be on its way for ever.
async fn answered(asking: impl Future<Output = Result<Option<Str>, ApiError>>) -> CallAnswer {
    match AssertUnwindSafe(asking).catch_unwind().await {
        Ok(Ok(resource_version)) => CallAnswer {
            result: Ok(()),
            resource_version,
        },
        Ok(Err(error)) => Err(told(&error)).into(),
        Err(_) => Err(CallError::new(CallErrorKind::Refused, BROKEN_OFF)).into(),
    }
}

/// Carries out one call. Returns the version of the object that the server answered with, if it did.
async fn send(transport: &Transport, call: &ApiCall, now: Time) -> Result<Option<Str>, ApiError> {
    match call {
        ApiCall::BindPod { pod, node } => {
            let bind = request::bind_pod(&pod.namespace, &pod.name, &pod.uid, node);
            // The answer says that it is done, and nothing of the pod.
            transport.execute(&bind).await?;
            Ok(None)
        }
        ApiCall::PatchPodStatus {
            pod,
            condition,
            nominated_node,
        } => {
            let patch = status_patch(pod, condition.as_ref(), nominated_node.as_ref(), now);
            patch_status(transport, pod, &patch).await
        }
        ApiCall::ClearPreEnqueueStatus {
            pod,
            nominated_node,
        } => {
            let patch = clear_patch(pod, nominated_node.as_ref(), now);
            patch_status(transport, pod, &patch).await
        }
        ApiCall::DeletePod { pod, condition } => {
            let patch = status_patch(pod, Some(condition), None, now);
            // One that is not found is gone already; the core is told, as nothing is to be said of it then.
            patch_status(transport, pod, &patch).await?;
            let delete = request::delete_pod(&pod.namespace, &pod.name, &pod.uid);
            write(transport, &delete, &pod.uid).await
        }
        ApiCall::UpdateStorage(update) => {
            let (group, version, plural) = update.object.kind.resource();
            let resource = Resource {
                group,
                version,
                plural,
            };
            let (namespace, name) = (&update.object.namespace, &update.object.name);
            let patch = storage_patch(update);
            let request = request::merge_patch(resource, namespace, name, &patch);
            write(transport, &request, &update.uid).await
        }
    }
}

async fn patch_status(
    transport: &Transport,
    pod: &PodRef,
    patch: &Value,
) -> Result<Option<Str>, ApiError> {
    let request = request::patch_pod_status(&pod.namespace, &pod.name, patch);
    write(transport, &request, &pod.uid).await
}

/// Makes a request that is answered with the object as it is after that. Returns its version.
async fn write(
    transport: &Transport,
    request: &ApiRequest,
    uid: &str,
) -> Result<Option<Str>, ApiError> {
    let body = transport.request_bytes(request).await?;
    Ok(version_of(&body, uid))
}

/// The version of the object in an answer; `None` when it tells of nothing or of something else, as servers may.
fn version_of(body: &[u8], uid: &str) -> Option<Str> {
    #[derive(Deserialize)]
    struct Written {
        metadata: ObjectMeta,
    }
    let meta = serde_json::from_slice::<Written>(body).ok()?.metadata;
    (meta.uid == uid && !meta.resource_version.is_empty()).then_some(meta.resource_version)
}

/// A JSON merge patch that holds for the version that was decided upon, and for no other object of that name.
fn storage_patch(write: &StorageWrite) -> Value {
    let mut patch = json!({
        "metadata": {"uid": write.uid, "resourceVersion": write.resource_version},
    });
    match &write.change {
        StorageChange::GiveTo {
            claim,
            by_controller,
        } => {
            patch["spec"] = json!({"claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": claim.namespace,
                "name": claim.name,
                "uid": claim.uid,
            }});
            if *by_controller {
                patch["metadata"]["annotations"] = json!({BOUND_BY_CONTROLLER_ANNOTATION: "yes"});
            }
        }
        StorageChange::SelectNode(node) => {
            patch["metadata"]["annotations"] = json!({SELECTED_NODE_ANNOTATION: node});
        }
    }
    patch
}

/// A strategic merge patch: conditions are merged by type, everything else of the status stays. The UID makes the
/// server refuse a pod of the same name that came later.
fn status_patch(
    pod: &PodRef,
    condition: Option<&ConditionPatch>,
    nominated_node: Option<&Str>,
    now: Time,
) -> Value {
    let mut status = json!({});
    if let Some(condition) = condition {
        let mut entry = json!({
            "type": condition.kind,
            "status": condition.status,
            "reason": condition.reason,
            "message": condition.message,
            "lastProbeTime": null,
        });
        if condition.status_changes {
            entry["lastTransitionTime"] = now.rfc3339().into();
        }
        if let Some(generation) = condition.observed_generation {
            entry["observedGeneration"] = generation.into();
        }
        status["conditions"] = json!([entry]);
    }
    if let Some(node) = nominated_node {
        status["nominatedNodeName"] = if node.is_empty() {
            Value::Null
        } else {
            node.as_str().into()
        };
    }
    json!({"metadata": {"uid": pod.uid}, "status": status})
}

/// A strategic merge patch that removes the PodScheduled condition.
fn clear_patch(pod: &PodRef, nominated_node: Option<&Str>, now: Time) -> Value {
    let mut patch = status_patch(pod, None, nominated_node, now);
    patch["status"]["conditions"] = json!([{"$patch": "delete", "type": "PodScheduled"}]);
    patch
}

/// The error as the core understands it.
fn told(error: &ApiError) -> CallError {
    let kind = match error {
        ApiError::Timeout { .. } => CallErrorKind::Timeout,
        ApiError::Transport(_) | ApiError::NotLeading => CallErrorKind::Unavailable,
        ApiError::Decode { .. } => CallErrorKind::Refused,
        // Whoever has the name now is another one: what the call is about is gone.
        ApiError::Status {
            code: 409, message, ..
        } if message.contains(OTHER_UID) => CallErrorKind::NotFound,
        ApiError::Status { code, .. } => match code {
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

#[cfg(test)]
mod tests {
    use super::*;
    use berth_api::Kind;

    fn pod() -> PodRef {
        PodRef {
            namespace: "ns".into(),
            name: "p".into(),
            uid: "u".into(),
        }
    }

    fn condition(status_changes: bool) -> ConditionPatch {
        ConditionPatch {
            kind: "PodScheduled".into(),
            status: "False".into(),
            reason: "Unschedulable".into(),
            message: "0/1 nodes are available".into(),
            observed_generation: Some(2),
            status_changes,
        }
    }

    /// D-19: the requests as servers get them.
    #[test]
    fn pods_are_bound_and_patched_through_subresources() {
        let PodRef {
            namespace,
            name,
            uid,
        } = &pod();
        let body = |request: &ApiRequest| serde_json::from_slice::<Value>(&request.body).unwrap();
        let bind = request::bind_pod(namespace, name, uid, &"n1".into());
        assert_eq!(bind.describe(), "POST /api/v1/namespaces/ns/pods/p/binding");
        assert_eq!(
            body(&bind),
            json!({
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"namespace": "ns", "name": "p", "uid": "u"},
                "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
            })
        );
        let patch = status_patch(&pod(), Some(&condition(true)), None, Time::EPOCH);
        let patch = request::patch_pod_status(namespace, name, &patch);
        assert_eq!(
            patch.describe(),
            "PATCH /api/v1/namespaces/ns/pods/p/status"
        );
        assert_eq!(patch.content_type, "application/strategic-merge-patch+json");
        let status = &body(&patch)["status"];
        assert_eq!(
            *status,
            json!({"conditions": [{
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "0/1 nodes are available",
                "observedGeneration": 2,
                "lastProbeTime": null,
                "lastTransitionTime": "1970-01-01T00:00:00Z",
            }]})
        );
    }

    /// D-17: from the answer is known which update will show the write.
    #[test]
    fn answers_tell_the_version_that_was_made() {
        let pod = r#"{"kind":"Pod","metadata":{"name":"p","uid":"u","resourceVersion":"42"},"spec":{"x":[1]}}"#;
        let status = r#"{"kind":"Status","metadata":{},"status":"Success","code":200}"#;
        for (situation, body, version) in [
            ("the pod", pod, Some("42")),
            ("a status", status, None),
            ("nothing", "", None),
            (
                "another pod",
                r#"{"metadata":{"uid":"v","resourceVersion":"43"}}"#,
                None,
            ),
            ("no version", r#"{"metadata":{"uid":"u"}}"#, None),
            ("nonsense", r#"{"metadata":[]}"#, None),
        ] {
            let told = version_of(body.as_bytes(), "u");
            assert_eq!(told.as_deref(), version, "{situation}");
        }
    }

    /// D-13: whatever happens, the call has an end.
    #[tokio::test]
    async fn a_call_that_breaks_off_has_failed() {
        let refused = ApiError::Status {
            code: 403,
            reason: String::new(),
            message: "no".into(),
            retry_after_seconds: None,
        };
        let done = answered(async { Ok(Some("7".into())) }).await;
        assert_eq!(done, CallAnswer::written("7"));
        let refused = answered(async { Err(refused) }).await;
        assert_eq!(
            refused.result.map_err(|e| e.kind),
            Err(CallErrorKind::Refused)
        );
        let broken = answered(async { panic!("a bug") }).await;
        let error = CallError::new(CallErrorKind::Refused, BROKEN_OFF);
        assert_eq!(broken, CallAnswer::from(Err(error)));
    }

    /// D-19, case 228: the condition's own rule for its times.
    #[test]
    fn the_transition_time_is_written_only_when_the_status_changes() {
        let now = Time::from_secs(0);
        for (changes, time) in [(true, json!("1970-01-01T00:00:00Z")), (false, Value::Null)] {
            let patch = status_patch(&pod(), Some(&condition(changes)), None, now);
            let entry = &patch["status"]["conditions"][0];
            assert_eq!(entry["lastTransitionTime"], time);
            assert_eq!(entry["observedGeneration"], 2);
            assert_eq!(patch["metadata"]["uid"], "u");
        }
    }

    #[test]
    fn an_empty_nomination_clears_the_field() {
        let patch = status_patch(&pod(), None, Some(&Str::new("")), Time::EPOCH);
        let status = patch["status"].as_object().unwrap();
        assert_eq!(status.get("nominatedNodeName"), Some(&Value::Null));
        let patch = status_patch(&pod(), None, Some(&Str::new("n")), Time::EPOCH);
        assert_eq!(patch["status"]["nominatedNodeName"], "n");
    }

    /// D-27.
    #[test]
    fn clearing_removes_the_condition_and_nothing_else() {
        let conditions = json!([{"$patch": "delete", "type": "PodScheduled"}]);
        for (node, status) in [
            (None, json!({"conditions": conditions})),
            (
                Some(Str::new("n")),
                json!({"conditions": conditions, "nominatedNodeName": "n"}),
            ),
        ] {
            let patch = clear_patch(&pod(), node.as_ref(), Time::EPOCH);
            assert_eq!(patch, json!({"metadata": {"uid": "u"}, "status": status}));
        }
    }

    /// Whole objects are never written: what Berth does not know of a volume or claim stays as it is.
    #[test]
    fn volumes_and_claims_are_written_in_the_version_that_was_decided_upon() {
        let object = |kind: Kind, spec: &str| {
            let json = format!(
                r#"{{"metadata":{{"name":"x","namespace":"ns","uid":"u","resourceVersion":"7"}},"spec":{spec}}}"#
            );
            kind.decode(json.as_bytes()).unwrap()
        };
        let claim = object(Kind::PersistentVolumeClaim, "{}");
        let claim = claim.as_persistent_volume_claim().unwrap();
        let claim_ref = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "ns", "name": "x", "uid": "u",
        });
        let give = |spec: &str| {
            let volume = object(Kind::PersistentVolume, spec);
            StorageWrite::give(volume.as_persistent_volume().unwrap(), claim).unwrap()
        };
        for (write, expected) in [
            (
                StorageWrite::select_node(claim, &"n1".into()).unwrap(),
                json!({"metadata": {
                    "uid": "u",
                    "resourceVersion": "7",
                    "annotations": {"volume.kubernetes.io/selected-node": "n1"},
                }}),
            ),
            (
                give("{}"),
                json!({
                    "metadata": {
                        "uid": "u",
                        "resourceVersion": "7",
                        "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"},
                    },
                    "spec": {"claimRef": claim_ref},
                }),
            ),
            (
                give(r#"{"claimRef":{"namespace":"ns","name":"x"}}"#),
                json!({
                    "metadata": {"uid": "u", "resourceVersion": "7"},
                    "spec": {"claimRef": claim_ref},
                }),
            ),
        ] {
            assert_eq!(storage_patch(&write), expected);
        }
    }

    /// D-19, case 164: what counts as a failure that passes.
    #[test]
    fn errors_say_whether_a_retry_is_worth_it() {
        let says = |code, message: &str, retry_after_seconds| ApiError::Status {
            code,
            reason: String::new(),
            message: message.into(),
            retry_after_seconds,
        };
        let status = |code| says(code, "m", None);
        let another = "Operation cannot be fulfilled on pods \"p\": StorageError: invalid object, Code: 4, \
                       AdditionalErrorMsg: Precondition failed: UID in precondition: a, UID in object meta: b";
        let other_version = "Precondition failed: ResourceVersion in precondition: 1, ResourceVersion in object \
                             meta: 2";
        for (error, kind) in [
            (status(404), CallErrorKind::NotFound),
            (status(409), CallErrorKind::Conflict),
            (says(409, another, None), CallErrorKind::NotFound),
            (says(409, other_version, None), CallErrorKind::Conflict),
            (status(422), CallErrorKind::Refused),
            (status(429), CallErrorKind::Unavailable),
            (status(500), CallErrorKind::Unavailable),
            (status(502), CallErrorKind::Unavailable),
            (status(503), CallErrorKind::Unavailable),
            (status(403), CallErrorKind::Refused),
            (status(504), CallErrorKind::Timeout),
            (
                ApiError::Transport("reset".into()),
                CallErrorKind::Unavailable,
            ),
        ] {
            assert_eq!(told(&error).kind, kind, "{error:?}");
        }
        for (asked, seconds) in [(None, None), (Some(7), Some(Duration::from_secs(7)))] {
            let busy = told(&says(429, "too many requests", asked));
            assert_eq!(busy.retry_after, seconds, "Retry-After {asked:?}");
        }
    }
}
