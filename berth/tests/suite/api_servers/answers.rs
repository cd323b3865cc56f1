//! Requests and the answers of kube-apiserver 1.36.2, by kind of fault: on a real server the table is verified, on the
//! embedded server its answers.
//!
//! A line of `answers.jsonl` is a request with its code and, for a failure, its message. Lines of one object are in
//! order: the first creates it.

use crate::e2e::Api;
use crate::e2e::server::on_each;
use berth_client::content::JSON;
use berth_client::request::{self, ApiRequest, Body};
use berth_client::{ApiError, Transport};
use serde_json::Value;

const ANSWERS: &str = include_str!("answers.jsonl");

fn request_of(line: &Value) -> ApiRequest {
    let request = line["request"].as_str().expect("a request");
    let (method, path) = request.split_once(' ').expect("method and path");
    let content_type = match line["patch"].as_str() {
        Some("json") => "application/json-patch+json",
        Some("merge") => "application/merge-patch+json",
        Some("strategic") => "application/strategic-merge-patch+json",
        _ => JSON,
    };
    ApiRequest {
        method: method.parse().expect("a method"),
        content_type,
        body: line
            .get("body")
            .map_or(Body::NONE, |body| Body::Bytes(body.to_string().into())),
        ..request::get_path(path)
    }
    .for_json()
}

/// The first line of a message, without objects in it: kube-apiserver prints its internal structures.
fn comparable(message: &str) -> String {
    let first = message.lines().next().unwrap_or_default();
    match (first.find("Invalid value: {"), first.rfind("}: ")) {
        (Some(begin), Some(end)) => format!("{}…{}", &first[..begin], &first[end + 1..]),
        _ => first.to_owned(),
    }
}

/// Code and message; successes have the code 200.
fn answer(api: &Api, request: &ApiRequest) -> (u64, String) {
    let transport: &Transport = &api.transport;
    match api.runtime.block_on(transport.request::<Value>(request)) {
        Ok(_) => (200, String::new()),
        Err(ApiError::Status { code, message, .. }) => (code.into(), comparable(&message)),
        Err(error) => panic!("{}: {error}", request.describe()),
    }
}

#[test]
fn requests_are_answered_as_by_kube_apiserver() {
    on_each("answers", |server| {
        let mut wrong = Vec::new();
        for line in ANSWERS.lines() {
            let line: Value = serde_json::from_str(line).expect("a line of JSON");
            let expected = match line["code"].as_u64().expect("a code") {
                200..300 => (200, String::new()),
                code => (code, comparable(line["message"].as_str().unwrap_or(""))),
            };
            let got = answer(&server.api, &request_of(&line));
            if got != expected {
                wrong.push(format!(
                    "{}: {} {}\n  {got:?}\n  instead of {expected:?}",
                    line["about"], line["request"], line["body"]
                ));
            }
        }
        assert!(wrong.is_empty(), "{}:\n{}", server.name, wrong.join("\n"));
    });
}
