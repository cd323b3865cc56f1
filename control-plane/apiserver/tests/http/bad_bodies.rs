//! Bodies that cannot be used: each is answered with a Status, and the server continues.

use super::*;

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// Lists within lists.
fn nested(depth: usize) -> String {
    format!(r#"{{"data": {}{}}}"#, "[".repeat(depth), "]".repeat(depth))
}

/// Each anchor contains the previous anchor ten times.
fn aliases() -> String {
    let mut text = "a0: &a0 [x]\n".to_owned();
    for i in 1..30 {
        let inner = vec![format!("*a{}", i - 1); 10].join(",");
        text += &format!("a{i}: &a{i} [{inner}]\n");
    }
    text
}

fn operations(count: usize) -> String {
    let operation = r#"{"op": "test", "path": "/kind", "value": "ConfigMap"}"#;
    format!("[{}]", vec![operation; count].join(","))
}

#[tokio::test]
async fn bodies_that_cannot_be_used_are_answered_with_a_status() {
    let cluster = Cluster::start().await;
    cluster
        .create(CONFIG_MAPS, &config_map("a", json!({})))
        .await;
    let object = format!("{CONFIG_MAPS}/a");
    let strict = format!("{CONFIG_MAPS}?fieldValidation=Strict");
    let post = |what, content_type, body: &[u8], code| {
        ("POST", CONFIG_MAPS, what, content_type, body.to_vec(), code)
    };
    let patch = |what, content_type, body: &[u8], code| {
        ("PATCH", &*object, what, content_type, body.to_vec(), code)
    };
    let duplicate = br#"{"metadata": {"name": "d"}, "data": {"k": "1"}, "data": {"k": "2"}}"#;
    let large = format!(r#"{{"data": {{"k": "{}"}}}}"#, "x".repeat(4 << 20));
    let cases = [
        post("nothing", JSON, b"", 400),
        post("truncated", JSON, br#"{"metadata": {"name": "b""#, 400),
        post("no object", JSON, b"[]", 400),
        post(
            "something behind it",
            JSON,
            br#"{"metadata": {"name": "b"}} {}"#,
            400,
        ),
        post("not UTF-8", JSON, b"{\"data\": {\"k\": \"\xff\xfe\"}}", 400),
        post("nested deep", JSON, nested(100_000).as_bytes(), 400),
        post(
            "data of another type",
            JSON,
            br#"{"metadata": {"name": "b"}, "data": 5}"#,
            400,
        ),
        post(
            "another kind",
            JSON,
            br#"{"kind": "Secret", "metadata": {"name": "b"}}"#,
            400,
        ),
        post(
            "an invalid name",
            JSON,
            br#"{"metadata": {"name": "B_"}}"#,
            422,
        ),
        post("too large", JSON, large.as_bytes(), 413),
        post("another format", "text/html", b"{}", 415),
        (
            "POST",
            &*strict,
            "a field twice",
            JSON,
            duplicate.to_vec(),
            400,
        ),
        post("truncated", YAML, b"metadata: {name: [", 400),
        // The first document counts; it has no name.
        post("two documents", YAML, b"a: b\n---\nc: d\n", 422),
        post("an alias of itself", YAML, b"a: &a [*a]\n", 400),
        post("too many aliases", YAML, aliases().as_bytes(), 400),
        post("not UTF-8", YAML, b"data: {k: \xff}\n", 400),
        post("nested deep", YAML, "[".repeat(100_000).as_bytes(), 400),
        post("no envelope", PROTOBUF, b"{}", 400),
        post(
            "a truncated envelope",
            PROTOBUF,
            b"k8s\0\x0a\x0f\x0a\x02v1",
            400,
        ),
        post(
            "a length beyond the end",
            PROTOBUF,
            b"k8s\0\x12\xff\xff\xff\xff\x0f",
            400,
        ),
        patch("another format", "text/html", b"{}", 415),
        patch("no list", JSON_PATCH, b"{}", 400),
        patch("truncated", JSON_PATCH, br#"[{"op": "add""#, 400),
        patch(
            "a test that fails",
            JSON_PATCH,
            br#"[{"op": "test", "path": "/kind", "value": "X"}]"#,
            422,
        ),
        patch(
            "too many operations",
            JSON_PATCH,
            operations(10_001).as_bytes(),
            413,
        ),
        patch("truncated", MERGE_PATCH, b"{", 400),
        patch("nested deep", MERGE_PATCH, nested(100_000).as_bytes(), 400),
        patch(
            "not UTF-8",
            MERGE_PATCH,
            b"{\"data\": {\"k\": \"\xff\"}}",
            400,
        ),
        patch("no object", STRATEGIC_PATCH, b"[]", 400),
        patch("too large", STRATEGIC_PATCH, large.as_bytes(), 413),
        patch("too many aliases", APPLY_PATCH, aliases().as_bytes(), 400),
        patch("truncated", APPLY_PATCH, b"{", 400),
    ];
    for (method, path, what, content_type, body, code) in cases {
        // Server-side apply needs a manager.
        let manager = if content_type == APPLY_PATCH {
            "?fieldManager=m"
        } else {
            ""
        };
        let ask = Ask {
            method: method.to_owned(),
            path: format!("{path}{manager}"),
            content_type: content_type.to_owned(),
            body,
            ..Ask::default()
        };
        let reply = cluster.ask(ask).await;
        let place = format!("{content_type}: {what}: {}", reply.text());
        assert_eq!(reply.status, code, "{place}");
        let status = reply.json();
        assert_eq!(text(&status, "/kind"), "Status", "{place}");
        assert_eq!(at(&status, "/code"), &json!(code), "{place}");
        assert_ne!(text(&status, "/message"), "", "{place}");
    }
    assert_eq!(names(&cluster.get(CONFIG_MAPS).await.json()), ["a"]);
}
