//! Failures of requests: each has its own message, and none takes longer than the timeout.

use super::*;
use tokio::net::TcpListener;

/// F-38: any other code than 200 is a failure, with any body.
#[tokio::test]
async fn any_other_code_than_200_is_a_failure() {
    for code in [201, 204, 302, 404, 500] {
        let body = if code == 204 {
            ""
        } else {
            r#"{"NodeNames":["n1"]}"#
        };
        let stated = filtered(Reply::Body(code, body.to_owned())).await;
        let text = format!("failed f with extender at URL <url>/f, code {code}");
        assert_eq!(stated, Err(text));
    }
}

/// F-38.
#[tokio::test]
async fn an_answer_that_makes_no_sense_is_a_failure() {
    for body in [
        "",
        "{",
        "[]",
        "\"text\"",
        r#"{"NodeNames":"n1"}"#,
        r#"{"FailedNodes":[]}"#,
        "{}{}",
    ] {
        let stated = filtered(Reply::Body(200, body.to_owned())).await;
        let error = stated.expect_err(body);
        assert!(
            error.starts_with("failed to understand extender at URL <url>/f: "),
            "{error}"
        );
    }
}

/// F-38.
#[tokio::test]
async fn an_answer_is_not_read_beyond_its_limit() {
    let nodes = names(&["n1"]);
    for (situation, reply) in [
        ("too large", Reply::Body(200, " ".repeat(2000) + "{}")),
        ("endless", Reply::Endless),
    ] {
        let server = Server::start(reply).await;
        let client = client(&server.url).await.with_answer_bytes_max(1000);
        let stated = client.filter("f", &pod(), Nodes::Names(&nodes)).await;
        let error = stated.expect_err(situation).to_string();
        let text = format!("failed to ask extender at URL {}/f: ", server.url);
        assert!(error.starts_with(&text), "{situation}: {error}");
        assert!(
            error.contains("larger than 1000 bytes"),
            "{situation}: {error}"
        );
    }
}

/// F-37.
#[tokio::test]
async fn silence_ends_with_the_time_that_is_given() {
    let server = Server::start(Reply::Silence).await;
    let client = connected(ExtenderOptions {
        url_prefix: server.url.clone(),
        timeout: Duration::from_millis(50),
        ..ExtenderOptions::default()
    })
    .await;
    let stated = client.bind("b", &BINDING).await;
    let text = format!(
        "no answer from extender at URL {}/b within 50 ms",
        server.url
    );
    assert_eq!(stated.map_err(|e| e.to_string()), Err(text));
}

#[tokio::test]
async fn who_cannot_be_reached_has_failed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let without_nodes = format!("http://{}", listener.local_addr().expect("an address"));
    drop(listener);
    let hangs_up = Server::start(Reply::HangUp).await;
    for url in [without_nodes, hangs_up.url] {
        let stated = client(&url).await.bind("b", &BINDING).await;
        let error = stated.expect_err(&url).to_string();
        let text = format!("failed to ask extender at URL {url}/b: ");
        assert!(error.starts_with(&text), "{error}");
        assert!(!error.contains("ServiceError"), "{error}");
    }
}

/// F-37: unusable options are reported when the extender is set up, with their path.
#[tokio::test]
async fn an_extender_that_cannot_be_used_is_refused_at_once() {
    let tls = |tls| ExtenderOptions {
        url_prefix: "https://e".to_owned(),
        tls,
        ..ExtenderOptions::default()
    };
    let at = |url: &str| ExtenderOptions {
        url_prefix: url.to_owned(),
        ..ExtenderOptions::default()
    };
    for (options, notified) in [
        (at(""), "urlPrefix: must begin with http:// or https://"),
        (at("http://a b"), "urlPrefix, tlsConfig: "),
        (
            at("e:1/x"),
            "urlPrefix: must begin with http:// or https://",
        ),
        (
            at("ftp://e"),
            "urlPrefix: must begin with http:// or https://",
        ),
        (
            tls(ExtenderTlsOptions {
                insecure: true,
                ca_data: b"x".to_vec(),
                ..ExtenderTlsOptions::default()
            }),
            "tlsConfig: certificate authorities are of no use with insecure",
        ),
        (
            tls(ExtenderTlsOptions {
                ca_file: "/nowhere/ca.pem".to_owned(),
                ..ExtenderTlsOptions::default()
            }),
            "/nowhere/ca.pem",
        ),
    ] {
        let url = options.url_prefix.clone();
        let error = ExtenderClient::new(options)
            .await
            .err()
            .expect(notified)
            .to_string();
        assert!(
            error.starts_with(&format!("failed to set up extender {url}: ")),
            "{error}"
        );
        assert!(error.contains(notified), "{error}");
    }
}

#[test]
fn a_proxy_of_the_environment_is_not_used() {
    let tls = ExtenderTlsOptions::default();
    let config = super::super::webhook_config("http://extender.example", &tls, false);
    assert!(config.expect("an address").proxy_url.is_none());
}
