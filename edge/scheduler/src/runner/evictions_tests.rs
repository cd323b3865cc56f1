//! Evictions as the API server receives them: the requests and their order, and no second eviction.

use super::calls::execute;
use berth_api::Time;
use berth_client::testing::{Scripted, status};
use berth_framework::ApiCall;
use berth_framework::call::{CallErrorKind, ConditionPatch, PodRef};
use serde_json::json;
use std::time::Duration;
use tokio::time::timeout;

fn eviction() -> ApiCall {
    ApiCall::DeletePod {
        pod: PodRef {
            namespace: "ns".into(),
            name: "victim".into(),
            uid: "u".into(),
        },
        condition: ConditionPatch {
            kind: "DisruptionTarget".into(),
            status: "True".into(),
            reason: "PreemptionByScheduler".into(),
            message: "why".into(),
            observed_generation: None,
            status_changes: true,
        },
    }
}

/// P-17, P-25, case 241: the condition is written to the victim's status, then the victim is deleted, by its UID and
/// with its own grace period. If the condition cannot be written, the victim is not deleted. If either request returns
/// 404, the victim was deleted already.
#[tokio::test]
async fn a_victim_gets_its_condition_before_it_is_deleted() {
    const REPORTED: &str = "PATCH /api/v1/namespaces/ns/pods/victim/status";
    const DELETED: &str = "DELETE /api/v1/namespaces/ns/pods/victim";
    for (name, codes, requests, failure) in [
        ("well", vec![200, 200], vec![REPORTED, DELETED], None),
        (
            "gone",
            vec![404],
            vec![REPORTED],
            Some(CallErrorKind::NotFound),
        ),
        (
            "gone-meanwhile",
            vec![200, 404],
            vec![REPORTED, DELETED],
            Some(CallErrorKind::NotFound),
        ),
        (
            "not-told",
            vec![403],
            vec![REPORTED],
            Some(CallErrorKind::Refused),
        ),
        (
            "not-deleted",
            vec![200, 403],
            vec![REPORTED, DELETED],
            Some(CallErrorKind::Refused),
        ),
    ] {
        let answers = codes.into_iter().map(|code| status(code, "as reported"));
        let mut server = Scripted::start(answers.collect()).await;
        let (client, call) = (server.client(), eviction());
        let answer = execute(&client, &call, Time::EPOCH);
        let answer = timeout(Duration::from_secs(30), answer).await;
        let result = answer.expect("an answer");
        assert_eq!(result.err().map(|e| e.kind), failure, "{name}");
        let mut lines = Vec::new();
        while let Ok(request) = server.asked.try_recv() {
            let (line, body) = (request.line().to_owned(), request.json());
            if line == REPORTED {
                assert_eq!(body["metadata"]["uid"], "u", "{name}");
                let condition = &body["status"]["conditions"][0];
                assert_eq!(condition["type"], "DisruptionTarget", "{name}");
                assert_eq!(condition["reason"], "PreemptionByScheduler", "{name}");
            } else {
                let options = json!({
                    "apiVersion": "v1",
                    "kind": "DeleteOptions",
                    "preconditions": {"uid": "u"},
                });
                assert_eq!(body, options, "{name}: neither a grace period nor more");
            }
            lines.push(line);
        }
        assert_eq!(lines, requests, "{name}");
    }
}
