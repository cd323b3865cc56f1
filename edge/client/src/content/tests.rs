//! The requested and sent formats; either is understood.

mod every_field;

use super::*;
use crate::request::{self, ApiRequest, EVENTS, PODS};
use crate::testing::{Scripted, status};
use berth_protobuf::envelope::Envelope;
use serde_json::{Value, json};

const PROTOBUF: &str = MEDIA_TYPE;

fn bind() -> ApiRequest {
    request::bind_pod(&"ns".into(), &"p".into(), &"u".into(), &"n".into())
}

fn event() -> ApiRequest {
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e", "namespace": "ns"},
        "eventTime": "2026-01-02T03:04:05.000006Z", "reason": "Scheduled", "note": "n",
        "regarding": {"kind": "Pod", "name": "p"},
    });
    request::create(EVENTS, "ns", &event)
}

fn custom() -> ApiRequest {
    let foo = json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "f"}});
    request::create(PODS, "ns", &foo)
}

fn patch() -> ApiRequest {
    request::patch_pod_status(&"ns".into(), &"p".into(), &json!({"status": {}}))
}

/// `clientConnection.contentType` and `acceptContentTypes`: the headers, and the type of the body of each request.
#[tokio::test]
async fn content_types_are_honoured() {
    const JSON_PATCH: &str = "application/strategic-merge-patch+json";
    let any = "application/vnd.kubernetes.protobuf, */*";
    for (content_type, accept, request, expected_accept, expected_type) in [
        (PROTOBUF, "", bind(), any, PROTOBUF),
        (PROTOBUF, "", event(), any, PROTOBUF),
        (PROTOBUF, "", custom(), any, JSON),
        (PROTOBUF, "", patch(), any, JSON_PATCH),
        (PROTOBUF, "", request::get(PODS, "ns", "p"), any, ""),
        (PROTOBUF, "", bind().for_json(), JSON, PROTOBUF),
        (PROTOBUF, JSON, bind(), JSON, PROTOBUF),
        (JSON, "", bind(), "application/json, */*", JSON),
        (JSON, PROTOBUF, bind(), PROTOBUF, JSON),
        (
            PROTOBUF,
            "",
            request::get(PODS, "ns", "p").without_managed_fields(),
            "application/vnd.kubernetes.protobuf;drop=metadata.managedFields, */*;drop=metadata.managedFields, \
             application/vnd.kubernetes.protobuf, */*",
            "",
        ),
        (
            PROTOBUF,
            JSON,
            request::get(PODS, "ns", "p").without_managed_fields(),
            "application/json;drop=metadata.managedFields, application/json",
            "",
        ),
        (
            PROTOBUF,
            "",
            request::get(PODS, "ns", "p")
                .without_managed_fields()
                .for_json(),
            "application/json;drop=metadata.managedFields, application/json",
            "",
        ),
    ] {
        let mut server = Scripted::start(vec![(200, json!({}))]).await;
        let content = ContentTypes::new(content_type, accept).expect("a header");
        let client = server.client().speaking(content);
        let place = format!("{content_type:?} {accept:?} {}", request.describe());
        client.execute(&request).await.expect("an answer");
        let asked = server.asked.recv().await.expect("a request");
        assert_eq!(asked.header("accept"), expected_accept, "{place}");
        assert_eq!(asked.header("content-type"), expected_type, "{place}");
        let body: Value = match expected_type {
            PROTOBUF => Envelope::open(&asked.body)
                .and_then(|e| e.decode())
                .expect("protobuf"),
            _ => asked.json(),
        };
        let expected: Value = serde_json::from_slice(&request.body.json()).unwrap_or_default();
        assert_eq!(body, expected, "{place}");
    }
}

#[tokio::test]
async fn either_format_of_an_answer_is_understood() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "uid": "u"}});
    for format in [Format::Json, Format::Protobuf] {
        let answers = vec![(200, pod.clone()), status(409, "of another UID")];
        let server = Scripted::speaking(format, answers).await;
        let content = ContentTypes::new(PROTOBUF, "").expect("a header");
        let client = server.client().speaking(content);
        let read: Result<Value, _> = client.request(&request::get(PODS, "ns", "p")).await;
        assert_eq!(read.expect("a pod"), pod, "{format:?}");
        let error = client.execute(&bind()).await.expect_err("a conflict");
        assert_eq!(error.code(), Some(409), "{format:?}");
        assert_eq!(error.to_string(), "of another UID", "{format:?}");
    }
}

/// A server that does not take protobuf for a kind gets JSON.
#[tokio::test]
async fn a_body_that_is_not_supported_is_sent_again_as_json() {
    let answers = vec![status(415, "unsupported media type"), (201, json!({}))];
    let mut server = Scripted::start(answers).await;
    let content = ContentTypes::new(PROTOBUF, "").expect("a header");
    let client = server.client().speaking(content);
    client.execute(&bind()).await.expect("an answer");
    for expected in [PROTOBUF, JSON] {
        let asked = server.asked.recv().await.expect("a request");
        assert_eq!(asked.header("content-type"), expected);
    }
}

#[test]
fn a_header_cannot_contain_a_line_end() {
    assert!(ContentTypes::new(PROTOBUF, "a\r\nb: c").is_err());
}
