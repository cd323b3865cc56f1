//! The requests of calls, and the results that the core receives.

use super::*;
use berth_api::Kind;
use berth_client::content::Format;
use berth_framework::CallType;

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
    let body =
        |request: &ApiRequest| serde_json::from_slice::<Value>(&request.body.json()).unwrap();
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
    let patch = status_patch(&pod(), &[condition(true)], None, Time::EPOCH);
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
fn answers_contain_the_new_version() {
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
        let answer = ApiAnswer {
            format: Format::Json,
            bytes: body.as_bytes().into(),
        };
        let notified = version_of(&answer, "u");
        assert_eq!(notified.as_deref(), version, "{situation}");
    }
}

/// D-13: the call ends in all cases.
#[tokio::test]
async fn a_call_that_panics_has_failed() {
    let refused = ApiError::Status {
        code: 403,
        reason: String::new(),
        message: "no".into(),
        retry_after_seconds: None,
    };
    let settled = || false;
    let done = answered(async { Ok(Response::written("7")) }, settled).await;
    assert_eq!(done, Ok(Response::written("7")));
    let refused = answered(async { Err(refused) }, settled).await;
    assert_eq!(refused.map_err(|e| e.kind), Err(CallErrorKind::Refused));
    let broken = answered(async { panic!("a bug") }, settled).await;
    let error = CallError::new(CallErrorKind::Refused, BROKEN_OFF);
    assert_eq!(broken, Err(error));
}

/// D-19, case 228: the condition's own rule for its times.
#[test]
fn the_transition_time_is_written_only_when_the_status_changes() {
    let now = Time::from_secs(0);
    for (changes, time) in [(true, json!("1970-01-01T00:00:00Z")), (false, Value::Null)] {
        let patch = status_patch(&pod(), &[condition(changes)], None, now);
        let entry = &patch["status"]["conditions"][0];
        assert_eq!(entry["lastTransitionTime"], time);
        assert_eq!(entry["observedGeneration"], 2);
        assert_eq!(patch["metadata"]["uid"], "u");
    }
}

#[test]
fn an_empty_nomination_clears_the_field() {
    let patch = status_patch(&pod(), &[], Some(&Str::new("")), Time::EPOCH);
    let status = patch["status"].as_object().unwrap();
    assert_eq!(status.get("nominatedNodeName"), Some(&Value::Null));
    let patch = status_patch(&pod(), &[], Some(&Str::new("n")), Time::EPOCH);
    assert_eq!(patch["status"]["nominatedNodeName"], "n");
}

/// D-19: one patch writes all conditions of a call, also together with a removal.
#[test]
fn a_patch_carries_all_conditions_of_a_call() {
    let mut other = condition(true);
    other.kind = "example.com/Admitted".into();
    let both = [condition(false), other];
    let types = |patch: &Value| {
        let entries = patch["status"]["conditions"].as_array().unwrap();
        let types = entries
            .iter()
            .map(|e| (e["$patch"].clone(), e["type"].clone()));
        types.collect::<Vec<_>>()
    };
    let set = |kind: &str| (Value::Null, json!(kind));
    let patch = status_patch(&pod(), &both, None, Time::EPOCH);
    assert_eq!(
        types(&patch),
        [set("PodScheduled"), set("example.com/Admitted")]
    );
    let patch = status_patch(&pod(), &both[1..], None, Time::EPOCH);
    let patch = removing_condition(patch, None);
    let removed = (json!("delete"), json!("PodScheduled"));
    assert_eq!(types(&patch), [set("example.com/Admitted"), removed]);
}

/// D-27.
#[test]
fn clearing_removes_only_the_condition_of_one_version() {
    let conditions = json!([{"$patch": "delete", "type": "PodScheduled"}]);
    let (n, version) = (Str::new("n"), Str::new("7"));
    for (node, version, metadata, status) in [
        (
            None,
            None,
            json!({"uid": "u"}),
            json!({"conditions": conditions}),
        ),
        (
            Some(&n),
            Some(&version),
            json!({"uid": "u", "resourceVersion": "7"}),
            json!({"conditions": conditions, "nominatedNodeName": "n"}),
        ),
    ] {
        let patch = status_patch(&pod(), &[], node, Time::EPOCH);
        let patch = removing_condition(patch, version);
        assert_eq!(patch, json!({"metadata": metadata, "status": status}));
    }
}

/// D-29: the requests of writes as servers get them. The identity and version that a write holds for are its
/// preconditions.
#[test]
fn writes_have_preconditions() {
    static CLAIM: CallType = CallType::new("claim", Kind::ResourceClaim);
    static NODE: CallType = CallType::new("node", Kind::Node);
    let meta = ObjectMeta {
        uid: "u".into(),
        resource_version: "7".into(),
        ..ObjectMeta::default()
    };
    let body = || json!({"metadata": {"labels": {"a": "b"}}, "spec": {"x": 1}});
    let with = |more: Value| {
        let mut body = body();
        body["metadata"]["uid"] = more["uid"].clone();
        if !more["resourceVersion"].is_null() {
            body["metadata"]["resourceVersion"] = more["resourceVersion"].clone();
        }
        body
    };
    let claims = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims";
    let options = |preconditions: Value| json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions});
    for (write, described, content_type, expected) in [
        (
            Write::patch(&NODE, "", "n", body()),
            "PATCH /api/v1/nodes/n".to_owned(),
            "application/merge-patch+json",
            body(),
        ),
        (
            Write::patch(&CLAIM, "ns", "c", body())
                .of_version(&meta)
                .to_subresource("status"),
            format!("PATCH {claims}/c/status"),
            "application/merge-patch+json",
            with(json!({"uid": "u", "resourceVersion": "7"})),
        ),
        (
            Write::new(&CLAIM, "ns", "c", Action::StrategicPatch(body())).of(&meta),
            format!("PATCH {claims}/c"),
            "application/strategic-merge-patch+json",
            with(json!({"uid": "u"})),
        ),
        (
            Write::new(&CLAIM, "ns", "", Action::Create(body())),
            format!("POST {claims}"),
            "application/json",
            body(),
        ),
        (
            Write::new(&CLAIM, "ns", "c", Action::Update(body())).of_version(&meta),
            format!("PUT {claims}/c"),
            "application/json",
            with(json!({"uid": "u", "resourceVersion": "7"})),
        ),
        (
            Write::new(&CLAIM, "ns", "c", Action::Delete).of_version(&meta),
            format!("DELETE {claims}/c"),
            "application/json",
            options(json!({"uid": "u", "resourceVersion": "7"})),
        ),
        (
            Write::new(&CLAIM, "ns", "c", Action::Delete),
            format!("DELETE {claims}/c"),
            "application/json",
            options(json!({})),
        ),
    ] {
        let request = write_request(&write);
        assert_eq!(request.describe(), described);
        assert_eq!(request.content_type, content_type, "{described}");
        let sent: Value = serde_json::from_slice(&request.body.json()).unwrap();
        assert_eq!(sent, expected, "{described}");
    }
}

/// G-34: the condition of a pod group is written in the words of the version that the server has.
#[test]
fn conditions_of_groups_have_the_name_of_their_version() {
    static GROUP: CallType = CallType::new("group", Kind::PodGroup);
    let body = json!({"status": {"conditions": [{"type": "PodGroupInitiallyScheduled", "status": "True"}]}});
    let write =
        Write::new(&GROUP, "ns", "g", Action::StrategicPatch(body)).to_subresource("status");
    for (version, expected) in [
        ("v1beta1", "PodGroupInitiallyScheduled"),
        ("v1alpha2", "PodGroupScheduled"),
    ] {
        let resource = Resource {
            version,
            ..resource_of(&write)
        };
        let request = write_request_to(resource, &write);
        let sent: Value = serde_json::from_slice(&request.body.json()).expect("JSON");
        assert_eq!(
            sent["status"]["conditions"][0]["type"], expected,
            "{version}"
        );
    }
}

/// D-19, case 164: the failures that are retried.
#[test]
fn errors_state_whether_a_retry_can_succeed() {
    let statement = |code, message: &str, retry_after_seconds| ApiError::Status {
        code,
        reason: String::new(),
        message: message.into(),
        retry_after_seconds,
    };
    let status = |code| statement(code, "m", None);
    let another = "Operation cannot be fulfilled on pods \"p\": StorageError: invalid object, Code: 4, \
                   AdditionalErrorMsg: Precondition failed: UID in precondition: a, UID in object meta: b";
    let other_version = "Precondition failed: ResourceVersion in precondition: 1, ResourceVersion in object \
                         meta: 2";
    for (error, kind) in [
        (status(404), CallErrorKind::NotFound),
        (status(409), CallErrorKind::Conflict),
        (statement(409, another, None), CallErrorKind::NotFound),
        (statement(409, other_version, None), CallErrorKind::Conflict),
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
        assert_eq!(call_error(&error, false).kind, kind, "{error:?}");
    }
    let early = call_error(&status(403), true);
    assert_eq!(early.kind, CallErrorKind::Unavailable, "roles may come yet");
    for (asked, seconds) in [(None, None), (Some(7), Some(Duration::from_secs(7)))] {
        let busy = call_error(&statement(429, "too many requests", asked), false);
        assert_eq!(busy.retry_after, seconds, "Retry-After {asked:?}");
    }
}
