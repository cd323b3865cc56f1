//! The API over HTTPS, as a client sees it.

// Tests of the edge open files and sockets.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod api_services;
mod apply;
mod autoscalers;
mod bad_bodies;
mod binding;
mod certificates;
mod components;
mod conversion;
mod custom;
mod deletion;
mod device_versions;
mod documents;
mod durability;
mod empties;
mod every_kind;
mod eviction;
mod flow_control;
mod groups;
mod in_process;
mod limits;
mod lists;
mod mutating_policies;
mod parts;
mod patches;
mod policies;
mod raw_json;
mod readiness;
mod releases;
mod schemas;
mod server;
mod service_cidrs;
mod signing_requests;
mod upserts;
mod users;
mod watch_guarantees;
mod watches;
mod webhooks;
mod writes;

use berth_apiserver::testing::{Ask, Loopback, Reply};
use berth_apiserver::{RunningServer, Server, ServerOptions};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::timeout;

/// The longest wait for a condition. Only a failing test waits as long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server and a client of it.
struct Cluster {
    server: RunningServer,
    client: Loopback,
}

impl Cluster {
    async fn start() -> Self {
        Self::with(ServerOptions::default()).await
    }

    async fn with(options: ServerOptions) -> Self {
        let server = match Server::start(options).await {
            Ok(server) => server,
            Err(e) => panic!("{e}"),
        };
        let client = match Loopback::new(&server) {
            Ok(client) => client,
            Err(e) => panic!("{e}"),
        };
        Self { server, client }
    }

    async fn ask(&self, ask: Ask) -> Reply {
        match self.client.ask(&ask).await {
            Ok(reply) => reply,
            Err(e) => panic!("{} {}: {e}", ask.method, ask.path),
        }
    }

    async fn get(&self, path: &str) -> Reply {
        self.ask(Ask {
            path: path.to_owned(),
            ..Ask::default()
        })
        .await
    }

    /// Waits until a line of the server's metrics is `line`.
    async fn reaches(&self, line: &str) {
        let metrics = self.server.metrics();
        let reached = async {
            while !metrics.text().lines().any(|l| l == line) {
                tokio::task::yield_now().await;
            }
        };
        if timeout(PATIENCE, reached).await.is_err() {
            panic!("{line}: not after {PATIENCE:?}:\n{}", metrics.text());
        }
    }

    async fn send(&self, method: &str, path: &str, body: &Value) -> Reply {
        self.send_as(method, path, "application/json", body).await
    }

    async fn send_as(&self, method: &str, path: &str, content_type: &str, body: &Value) -> Reply {
        let body = match body {
            Value::Null => Vec::new(),
            Value::String(text) => text.clone().into_bytes(),
            body => body.to_string().into_bytes(),
        };
        self.ask(Ask {
            method: method.to_owned(),
            path: path.to_owned(),
            content_type: content_type.to_owned(),
            body,
            ..Ask::default()
        })
        .await
    }

    async fn post(&self, path: &str, body: &Value) -> Reply {
        self.send("POST", path, body).await
    }

    async fn merge(&self, path: &str, body: &Value) -> Reply {
        self.send_as("PATCH", path, "application/merge-patch+json", body)
            .await
    }

    async fn delete(&self, path: &str, options: &Value) -> Reply {
        self.send("DELETE", path, options).await
    }

    /// Creates an object that must be accepted, and returns it.
    async fn create(&self, path: &str, object: &Value) -> Value {
        let reply = self.post(path, object).await;
        assert_eq!(reply.status, 201, "{path}: {}", reply.text());
        reply.json()
    }
}

const PODS: &str = "/api/v1/namespaces/default/pods";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "registry.example/a:1"}]},
    })
}

fn config_map(name: &str, labels: Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": labels},
        "data": {"a": "b"},
    })
}

fn deployment(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "registry.example/a:1"}]},
            },
        },
    })
}

fn at<'a>(value: &'a Value, pointer: &str) -> &'a Value {
    value.pointer(pointer).unwrap_or(&Value::Null)
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    at(value, pointer).as_str().unwrap_or("")
}

fn names(list: &Value) -> Vec<String> {
    at(list, "/items")
        .as_array()
        .into_iter()
        .flatten()
        .map(|item| text(item, "/metadata/name").to_owned())
        .collect()
}
