//! Evictions as an API server sees them: which requests, in which order, and when there is no second one.

use super::calls::execute;
use berth_api::Time;
use berth_client::{ConnectOptions, Transport, connect};
use berth_framework::ApiCall;
use berth_framework::call::{CallErrorKind, ConditionPatch, PodRef};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// A request: its method and path, and its body.
type Asked = (String, Value);

/// Answers one request after the other with these codes.
async fn serve(listener: TcpListener, codes: Vec<u16>, asked: mpsc::Sender<Asked>) {
    for code in codes {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.expect("a request"));
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            let is_length = name.eq_ignore_ascii_case("content-length");
            is_length.then(|| value.trim().parse().ok())?
        });
        let mut body = vec![0; length.unwrap_or(0)];
        stream.read_exact(&mut body).await.expect("a body");
        let line = head.lines().next().unwrap_or_default();
        let line = line.trim_end_matches(" HTTP/1.1").to_owned();
        let body = serde_json::from_slice(&body).unwrap_or_default();
        asked.send((line, body)).await.expect("a test that listens");
        let answer = json!({"kind": "Status", "code": code, "message": "as told"}).to_string();
        let answer = format!(
            "HTTP/1.1 {code} x\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{answer}",
            answer.len()
        );
        stream
            .write_all(answer.as_bytes())
            .await
            .expect("a client that listens");
    }
}

/// A client of the server at this address.
async fn client(server: &str, name: &str) -> Transport {
    let kubeconfig =
        std::env::temp_dir().join(format!("berth-evictions-{}-{name}", std::process::id()));
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "c", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
    });
    std::fs::write(&kubeconfig, config.to_string()).expect("a temporary file");
    let options = ConnectOptions {
        kubeconfig: Some(kubeconfig.clone()),
        ..ConnectOptions::default()
    };
    let transport = connect(&options).await.expect("a client");
    let _ = std::fs::remove_file(&kubeconfig);
    transport
}

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

/// P-17, P-25, case 241: the pod is told why it goes, then it is deleted, by its UID and with the grace that it asked
/// for. One that was not told is not deleted; one that is not found either time is gone.
#[tokio::test]
async fn a_victim_is_told_and_then_deleted() {
    const TOLD: &str = "PATCH /api/v1/namespaces/ns/pods/victim/status";
    const DELETED: &str = "DELETE /api/v1/namespaces/ns/pods/victim";
    for (name, codes, requests, failure) in [
        ("well", vec![200, 200], vec![TOLD, DELETED], None),
        ("gone", vec![404], vec![TOLD], Some(CallErrorKind::NotFound)),
        (
            "gone-meanwhile",
            vec![200, 404],
            vec![TOLD, DELETED],
            Some(CallErrorKind::NotFound),
        ),
        (
            "not-told",
            vec![403],
            vec![TOLD],
            Some(CallErrorKind::Refused),
        ),
        (
            "not-deleted",
            vec![200, 403],
            vec![TOLD, DELETED],
            Some(CallErrorKind::Refused),
        ),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let server = format!("http://{}", listener.local_addr().expect("an address"));
        let (asked, mut heard) = mpsc::channel(8);
        let served = tokio::spawn(serve(listener, codes, asked));
        let transport = client(&server, name).await;
        let call = eviction();
        let answer = execute(&transport, &call, Time::EPOCH);
        let answer = timeout(Duration::from_secs(30), answer).await;
        let result = answer.expect("an answer").result;
        assert_eq!(result.err().map(|e| e.kind), failure, "{name}");
        served.abort();
        let mut lines = Vec::new();
        while let Ok((line, body)) = heard.try_recv() {
            if line == TOLD {
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
