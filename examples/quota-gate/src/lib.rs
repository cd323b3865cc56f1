//! The main user story of pod scheduling readiness (KEP-3521) in one program: a mutating admission webhook adds a
//! scheduling gate to every new pod, and a controller removes it when the namespace has room in its quota.
//!
//! The webhook runs in this process, with a certificate that is made at the start. The program works with any cluster
//! whose API server reaches 127.0.0.1 of this machine, such as `berth up`.

// An example at the edge: sockets, and locks of the runtime.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use berth_client::request::{self, PODS, Resource};
use berth_client::{ApiError, ConnectOptions, Transport, connect};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

/// The gate that pods get.
pub const GATE: &str = "quota-gate.example.com/quota";
/// The name of the configuration and of its webhook.
const NAME: &str = "quota-gate.example.com";
/// A review is no larger.
const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The interval at which the controller compares the pods with the quota.
const INTERVAL: Duration = Duration::from_millis(500);

const CONFIGURATIONS: Resource = Resource {
    group: "admissionregistration.k8s.io",
    version: "v1",
    plural: "mutatingwebhookconfigurations",
};

/// A webhook that is registered and serves.
pub struct Gate {
    transport: Transport,
    tasks: Vec<JoinHandle<()>>,
}

/// Starts the webhook and registers it.
///
/// # Errors
/// The kubeconfig, the certificate, the port or the API server cannot be used.
pub async fn start(kubeconfig: &Path) -> Result<Gate, Box<dyn Error>> {
    let transport = connect(&ConnectOptions {
        kubeconfig: Some(kubeconfig.to_owned()),
        ..ConnectOptions::default()
    })
    .await?;
    let own = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()])?;
    let key = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key.into())?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("https://{}/gate", listener.local_addr()?);
    let serving = tokio::spawn(serve(listener, TlsAcceptor::from(Arc::new(config))));
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": NAME},
        "webhooks": [{
            "name": NAME,
            "clientConfig": {"url": url, "caBundle": STANDARD.encode(own.cert.pem())},
            "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
                "operations": ["CREATE"], "scope": "Namespaced",
            }],
            "namespaceSelector": {"matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]},
            ]},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "timeoutSeconds": 5,
        }],
    });
    // One of an earlier run has another certificate.
    let _ = transport
        .execute(&request::delete(CONFIGURATIONS, "", NAME, &json!({})))
        .await;
    transport
        .execute(&request::create(CONFIGURATIONS, "", &configuration))
        .await?;
    let tasks = vec![serving];
    Ok(Gate { transport, tasks })
}

impl Gate {
    /// Starts the controller: it removes gates, as long as fewer than `pods_max` pods of a namespace have none and have
    /// not ended.
    pub fn control(&mut self, pods_max: usize) {
        let transport = self.transport.clone();
        self.tasks.push(tokio::spawn(async move {
            loop {
                if let Err(error) = remove_gates(&transport, pods_max).await {
                    eprintln!("failed to remove gates: {error}; retrying");
                }
                tokio::time::sleep(INTERVAL).await;
            }
        }));
    }

    /// Removes the webhook.
    ///
    /// # Errors
    /// The API server cannot be reached.
    pub async fn end(self) -> Result<(), Box<dyn Error>> {
        for task in &self.tasks {
            task.abort();
        }
        self.transport
            .execute(&request::delete(CONFIGURATIONS, "", NAME, &json!({})))
            .await?;
        Ok(())
    }
}

async fn remove_gates(transport: &Transport, pods_max: usize) -> Result<(), ApiError> {
    let listed: Value = transport
        .request(&request::list(PODS, "", 0, "").for_json())
        .await?;
    let pods = listed["items"].as_array().map_or(&[][..], Vec::as_slice);
    let mut admitted: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in pods
        .iter()
        .filter(|pod| gates(pod).is_empty() && !has_ended(pod))
    {
        *admitted
            .entry(text(&pod["metadata"]["namespace"]))
            .or_default() += 1;
    }
    for pod in pods
        .iter()
        .filter(|pod| gates(pod).iter().any(|gate| gate["name"] == GATE))
    {
        let namespace = text(&pod["metadata"]["namespace"]);
        let admitted = admitted.entry(namespace).or_default();
        if *admitted >= pods_max {
            continue;
        }
        let left: Vec<&Value> = gates(pod)
            .iter()
            .filter(|gate| gate["name"] != GATE)
            .collect();
        let patch = json!({
            "metadata": {"resourceVersion": pod["metadata"]["resourceVersion"]},
            "spec": {"schedulingGates": left},
        });
        let name = text(&pod["metadata"]["name"]);
        let freed = request::merge_patch(PODS, namespace, name, &patch);
        transport.execute(&freed).await?;
        println!("{namespace}/{name} may be scheduled");
        *admitted += 1;
    }
    Ok(())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn gates(pod: &Value) -> &[Value] {
    pod["spec"]["schedulingGates"]
        .as_array()
        .map_or(&[], Vec::as_slice)
}

fn has_ended(pod: &Value) -> bool {
    matches!(text(&pod["status"]["phase"]), "Succeeded" | "Failed")
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor) {
    while let Ok((stream, _)) = listener.accept().await {
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            if let Ok(stream) = acceptor.accept(stream).await {
                let http = hyper::server::conn::http1::Builder::new();
                let _ = http
                    .serve_connection(TokioIo::new(stream), service_fn(respond))
                    .await;
            }
        });
    }
}

async fn respond(
    request: http::Request<Incoming>,
) -> Result<http::Response<Full<Bytes>>, Infallible> {
    let body = Limited::new(request.into_body(), BODY_BYTES_MAX)
        .collect()
        .await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    let answer = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": response(&review["request"]),
    });
    Ok(http::Response::new(Full::from(answer.to_string())))
}

/// The response to a request: the pod is admitted, with the gate.
fn response(request: &Value) -> Value {
    let pod = &request["object"];
    let gate = json!({"name": GATE});
    let operation = if gates(pod).is_empty() {
        json!({"op": "add", "path": "/spec/schedulingGates", "value": [gate]})
    } else {
        json!({"op": "add", "path": "/spec/schedulingGates/-", "value": gate})
    };
    json!({
        "uid": request["uid"],
        "allowed": true,
        "patchType": "JSONPatch",
        "patch": STANDARD.encode(json!([operation]).to_string()),
    })
}
