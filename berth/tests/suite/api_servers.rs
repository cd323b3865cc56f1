//! The integration suite: the same assertions on every API server, see [`e2e::server`]. Each test starts its own
//! server.
//!
//! ```text
//! KUBEBUILDER_ASSETS=/path/to/envtest cargo test -p kube-berth --test suite api_servers::
//! KUBEBUILDER_ASSETS=/path/to/envtest cargo test -p kube-berth --test suite api_servers:: -- --ignored --nocapture
//! ```

mod answers;
mod claims;
mod credentials;
mod decisions;
mod failover;
mod faults;
mod limits;
mod outages;
mod permissions;
mod profiles;
mod quotas;

use crate::BINARY;
use crate::e2e::server::Server;
use crate::e2e::{Api, Running, eventually, free_port};
use berth_client::request::{self, ApiRequest, Body, PODS};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// The terms of an election that does not take long.
const SHORT_TERMS: [&str; 3] = [
    "--leader-elect-lease-duration=4s",
    "--leader-elect-renew-deadline=3s",
    "--leader-elect-retry-period=1s",
];

/// A scheduler with these flags, whose pages need no authorization.
fn scheduler(kubeconfig: &Path, args: &[&str]) -> Running {
    scheduler_with_pages(kubeconfig, "/*", args)
}

/// A scheduler with these flags. The listed paths need no authorization.
fn scheduler_with_pages(kubeconfig: &Path, open_paths: &str, args: &[&str]) -> Running {
    let mut command = Command::new(BINARY);
    command
        .args(["scheduler", "--bind-address=127.0.0.1", "--secure-port"])
        .arg(free_port())
        .args(["--authorization-always-allow-paths", open_paths])
        .arg("--authentication-kubeconfig")
        .arg(kubeconfig)
        .arg("--authorization-kubeconfig")
        .arg(kubeconfig)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(args);
    Running::start(&mut command)
}

/// Waits until a scheduler has listed the cluster.
fn ready(scheduler: &Running) {
    eventually("the scheduler is ready", || {
        scheduler.http_get("/readyz").ends_with("ok").then_some(())
    });
}

/// A configuration with limits on requests, for `--config`.
fn config(server: &Server, qps: u32, burst: u32) -> String {
    let text = format!(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
         clientConnection: {{qps: {qps}, burst: {burst}}}\n"
    );
    let path = server.scratch.file(&format!("qps-{qps}.yaml"), &text);
    format!("--config={}", path.display())
}

/// A pod with one container that requests this much CPU, and further fields of its spec.
fn pod(name: &str, cpu: &str, more: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{
            "name": "c", "image": "registry.example/c:1", "resources": {"requests": {"cpu": cpu}},
        }]},
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        pod["spec"][field] = value.clone();
    }
    pod
}

/// Creates `pod`.
fn create_pod(api: &Api, name: &str, cpu: &str, more: &Value) {
    let pod = pod(name, cpu, more);
    api.send(&request::create(PODS, "default", &pod));
}

/// Creates pods `PREFIX-1`, `PREFIX-2` and so on that request this much CPU.
fn create_pods(api: &Api, prefix: &str, pods: usize, cpu: &str) {
    let create = (1..=pods).map(|i| {
        let pod = pod(&format!("{prefix}-{i}"), cpu, &json!({}));
        request::create(PODS, "default", &pod)
    });
    api.send_all(create.collect());
}

fn deletion_at_once(name: &str) -> ApiRequest {
    let mut delete = request::delete(PODS, "default", name, &json!({}));
    delete.path.push_str("?gracePeriodSeconds=0");
    delete.body = Body::NONE;
    delete
}
