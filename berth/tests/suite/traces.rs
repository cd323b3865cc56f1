//! Traces of a running scheduler, as an OpenTelemetry collector receives them.

use crate::BINARY;
use crate::e2e::{Api, Running, Scratch, eventually};
use berth_client::testing::{Request, answer};
use serde_json::{Value, json};
use std::process::Command;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;

/// The bodies of all requests.
type Bodies = Arc<Mutex<Vec<Value>>>;

/// Serves as a collector on a free port. Returns its address.
fn collector(runtime: &tokio::runtime::Runtime, bodies: Bodies) -> String {
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"));
    let listener = listener.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    runtime.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            while let Some(request) = Request::read(&mut stream).await {
                assert_eq!(request.line(), "POST /v1/traces");
                assert_eq!(request.header("x-tenant"), "blue");
                bodies.lock().expect("no panic").push(request.json());
                if answer(&mut stream, 200, "{}", true).await.is_err() {
                    break;
                }
            }
        }
    });
    url
}

/// The value of an attribute of a span.
fn attribute<'a>(span: &'a Value, key: &str) -> &'a str {
    let mut attributes = span["attributes"].as_array().into_iter().flatten();
    let found = attributes.find(|attribute| attribute["key"] == key);
    found
        .and_then(|attribute| attribute["value"]["stringValue"].as_str())
        .unwrap_or_default()
}

#[test]
fn attempts_are_exported_when_an_endpoint_is_set() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let bodies = Bodies::default();
    let url = collector(&runtime, Arc::clone(&bodies));
    let scratch = Scratch::new("traces");
    let mut command = Command::new(BINARY);
    command
        .args(["up", "--nodes", "1", "--listen", "127.0.0.1:0"])
        .args(["--metrics", "127.0.0.1:0", "--kubeconfig"])
        .arg(scratch.path("kubeconfig"))
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        .env("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=blue")
        .env("OTEL_BSP_SCHEDULE_DELAY", "50");
    let berth = Running::start(&mut command);
    let api = Api::at(scratch.path("kubeconfig"));
    let pod = api.create_pod("p", &json!({}));
    api.bound("p");
    let uid = pod["metadata"]["uid"].as_str().expect("a UID");
    let spans = eventually("the attempt is exported", || {
        let bodies = bodies.lock().expect("no panic");
        let spans = bodies.iter().flat_map(|body| {
            let spans = body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array();
            spans.cloned().unwrap_or_default()
        });
        let of_pod: Vec<Value> = spans
            .filter(|span| span["traceId"] == uid.replace('-', ""))
            .collect();
        (!of_pod.is_empty()).then_some(of_pod)
    });
    let attempt = spans
        .iter()
        .find(|span| span["name"] == "scheduling attempt");
    let attempt = attempt.expect("the span of the attempt");
    assert_eq!(attribute(attempt, "berth.result"), "scheduled");
    assert_eq!(attribute(attempt, "k8s.pod.name"), "p");
    let node = api.pod("p")["spec"]["nodeName"].clone();
    assert_eq!(attribute(attempt, "k8s.node.name"), node);
    for point in ["PreFilter", "Filter", "Bind"] {
        let span = spans.iter().find(|span| span["name"] == point);
        let span = span.unwrap_or_else(|| panic!("no {point} in {spans:?}"));
        assert_eq!(span["parentSpanId"], attempt["spanId"], "{point}");
        assert_eq!(attribute(span, "berth.status"), "Success", "{point}");
    }
    drop(berth);
}

/// An unreachable collector delays nothing, and an invalid variable ends the process at start-up.
#[test]
fn a_missing_collector_is_no_failure_and_a_wrong_variable_is_one() {
    let start = |scratch: &Scratch| {
        let mut command = Command::new(BINARY);
        command
            .args(["up", "--nodes", "1", "--listen", "127.0.0.1:0"])
            .args(["--metrics", "127.0.0.1:0", "--kubeconfig"])
            .arg(scratch.path("kubeconfig"))
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1");
        command
    };
    let scratch = Scratch::new("traces-missing");
    let berth = Running::start(&mut start(&scratch));
    let api = Api::at(scratch.path("kubeconfig"));
    api.create_pod("p", &json!({}));
    api.bound("p");
    drop(berth);
    let mut wrong = start(&scratch);
    wrong.env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    let output = wrong.output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("OTEL_EXPORTER_OTLP_PROTOCOL"), "{text}");
}
