use super::*;
use crate::testing::{Scripted, status};
use serde_json::json;

fn options(url: &str) -> CollectorOptions {
    CollectorOptions {
        url: url.to_owned(),
        headers: vec![("x-tenant".to_owned(), "blue".to_owned())],
        certificate: None,
        client_certificate: None,
        client_key: None,
        timeout: Duration::from_secs(60),
        user_agent: "berth-test".to_owned(),
    }
}

#[tokio::test]
async fn traces_are_posted_to_the_address() {
    for (path, line) in [
        ("/v1/traces", "POST /v1/traces"),
        ("/custom", "POST /custom"),
        ("", "POST /"),
    ] {
        let mut server = Scripted::start(vec![(200, json!({}))]).await;
        let options = options(&format!("{}{path}", server.url()));
        let collector = Collector::new(&options).await.expect("a collector");
        let sent = collector
            .send(Bytes::from_static(b"{\"a\":1}"), false)
            .await;
        assert!(sent.is_ok(), "{path}: {sent:?}");
        let asked = server.asked.recv().await.expect("a request");
        assert_eq!(asked.line(), line);
        assert_eq!(asked.header("content-type"), "application/json");
        assert_eq!(asked.header("x-tenant"), "blue");
        assert_eq!(asked.header("content-encoding"), "");
        assert_eq!(asked.json(), json!({"a": 1}));
    }
}

#[tokio::test]
async fn refusals_report_whether_a_later_try_may_succeed() {
    for (code, is_retryable) in [
        (400, false),
        (401, false),
        (429, true),
        (500, false),
        (502, true),
        (503, true),
    ] {
        let server = Scripted::start(vec![status(code, "no")]).await;
        let collector = Collector::new(&options(server.url()))
            .await
            .expect("a collector");
        let error = collector.send(Bytes::new(), true).await;
        let error = error.expect_err("it is refused");
        assert_eq!(error.is_retryable, is_retryable, "{code}");
        assert!(error.reason.contains(&code.to_string()), "{error}");
    }
}

#[tokio::test]
async fn what_cannot_be_used_is_refused_at_once() {
    for (url, reason) in [
        ("localhost:4317", "begins with http"),
        ("ftp://x", "begins with http"),
        ("http://[", "not an address"),
    ] {
        let error = Collector::new(&options(url)).await.err().expect("an error");
        let text = error.to_string();
        assert!(text.contains(url) && text.contains(reason), "{text}");
    }
    let mut with_file = options("https://collector.example:4318/v1/traces");
    with_file.certificate = Some("/nowhere/ca.crt".into());
    let error = Collector::new(&with_file).await.err().expect("an error");
    assert!(error.to_string().contains("/nowhere/ca.crt"), "{error}");
    let mut with_header = options("http://localhost:4318");
    with_header.headers = vec![("a b".to_owned(), "c".to_owned())];
    let error = Collector::new(&with_header).await.err().expect("an error");
    assert!(error.to_string().contains("header a b"), "{error}");
}
