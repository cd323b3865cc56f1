//! Requests and responses over real connections, to an extender with configured responses.

mod failures;
mod objects;
mod questions;
mod server;
mod tls;

use super::raw::ObjectJson;
use super::*;
use berth_api::Str;
use serde_json::{Value, json};
use server::{Reply, Server};
use wire::ExtenderBindingArgs;

const BINDING: ExtenderBindingArgs<'_> = ExtenderBindingArgs {
    pod_name: "p",
    pod_namespace: "ns",
    pod_uid: "u",
    node: "n1",
};

/// An extender at an address, without TLS.
async fn client(url: &str) -> ExtenderClient {
    connected(ExtenderOptions {
        url_prefix: url.to_owned(),
        timeout: Duration::from_secs(20),
        user_agent: "berth-test".to_owned(),
        ..ExtenderOptions::default()
    })
    .await
}

async fn connected(options: ExtenderOptions) -> ExtenderClient {
    let client = ExtenderClient::new(options).await;
    client.unwrap_or_else(|e| panic!("{e}"))
}

fn raw(object: &Value) -> ObjectJson {
    ObjectJson::from(serde_json::value::to_raw_value(object).expect("JSON"))
}

fn pod() -> ObjectJson {
    raw(&json!({"metadata": {"name": "p", "uid": "u"}, "spec": {"whatever": [1]}}))
}

fn names(names: &[&str]) -> Vec<Str> {
    names.iter().map(|name| Str::from(*name)).collect()
}

/// The answer to the client that filters two nodes by name.
async fn filtered(reply: Reply) -> Result<FilterAnswer, String> {
    let server = Server::start(reply).await;
    let client = client(&server.url).await;
    let nodes = names(&["n1", "n2"]);
    let answer = client.filter("f", &pod(), Nodes::Names(&nodes)).await;
    answer.map_err(|e| e.to_string().replace(&server.url, "<url>"))
}
