//! The HTTPS server of the tests of webhooks.

use crate::PATIENCE;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

type Responder = Box<dyn Fn(&Value) -> (u16, Vec<u8>) + Send + Sync>;

/// An HTTPS server whose paths answer as the test specifies, and the reviews that it has received.
pub(crate) struct Webhook {
    pub(crate) url: String,
    pub(crate) port: u16,
    pub(crate) ca: String,
    paths: Arc<Mutex<HashMap<String, Responder>>>,
    reviews: Arc<Mutex<Vec<Value>>>,
    held: Arc<Held>,
}

/// The reviews at `/held`, which are answered when the gate is closed for good.
struct Held {
    arrived: AtomicUsize,
    gate: Semaphore,
}

impl Webhook {
    pub(crate) async fn start() -> Self {
        // A certificate that is its own authority, as many webhooks have one.
        let names = vec!["127.0.0.1".to_owned(), "gates.default.svc".to_owned()];
        let own = rcgen::generate_simple_self_signed(names).expect("a certificate");
        let key = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions of TLS")
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key.into())
            .expect("a key that fits");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let webhook = Self {
            url: format!("https://127.0.0.1:{port}"),
            port,
            ca: STANDARD.encode(own.cert.pem()),
            paths: Arc::default(),
            reviews: Arc::default(),
            held: Arc::new(Held {
                arrived: AtomicUsize::new(0),
                gate: Semaphore::new(0),
            }),
        };
        let (paths, reviews) = (Arc::clone(&webhook.paths), Arc::clone(&webhook.reviews));
        let held = Arc::clone(&webhook.held);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, paths) = (acceptor.clone(), Arc::clone(&paths));
                let (reviews, held) = (Arc::clone(&reviews), Arc::clone(&held));
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let service =
                        service_fn(move |request: http::Request<hyper::body::Incoming>| {
                            let (paths, reviews) = (Arc::clone(&paths), Arc::clone(&reviews));
                            let held = Arc::clone(&held);
                            async move {
                                let path = request.uri().path().to_owned();
                                let body = request.into_body().collect().await;
                                let body = body.map(|b| b.to_bytes()).unwrap_or_default();
                                let review: Value =
                                    serde_json::from_slice(&body).unwrap_or_default();
                                if path == "/silent" {
                                    std::future::pending::<()>().await;
                                }
                                if path == "/held" {
                                    held.arrived.fetch_add(1, Ordering::Relaxed);
                                    let _ = held.gate.acquire().await;
                                }
                                let (code, body) = {
                                    let paths = paths.lock().expect("no panic");
                                    paths.get(&path).map_or((404, Vec::new()), |f| f(&review))
                                };
                                reviews.lock().expect("no panic").push(review);
                                let mut response = http::Response::builder().status(code);
                                if code == 307 {
                                    response = response.header("location", body.as_slice());
                                }
                                Ok::<_, Infallible>(
                                    response.body(Full::new(Bytes::from(body))).expect("valid"),
                                )
                            }
                        });
                    let http = hyper::server::conn::http1::Builder::new();
                    let _ = http.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        webhook
    }

    /// Answers reviews at a path with this response and the UID of the review.
    pub(crate) fn answer(
        &self,
        path: &str,
        response: impl Fn(&Value) -> Value + Send + Sync + 'static,
    ) {
        self.respond(path, move |review| {
            let mut response = response(review);
            response["uid"] = review["request"]["uid"].clone();
            let answer = json!({
                "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response,
            });
            (200, answer.to_string().into_bytes())
        });
    }

    /// Waits until this number of reviews has arrived at `/held`, and answers them and all others there.
    pub(crate) async fn release(&self, arrived: usize) {
        let waits = async {
            while self.held.arrived.load(Ordering::Relaxed) < arrived {
                tokio::task::yield_now().await;
            }
        };
        assert!(timeout(PATIENCE, waits).await.is_ok(), "{arrived} reviews");
        self.held.gate.close();
    }

    /// Answers with this code and body; a body with the code 307 is the location of the redirect.
    pub(crate) fn respond(
        &self,
        path: &str,
        responder: impl Fn(&Value) -> (u16, Vec<u8>) + Send + Sync + 'static,
    ) {
        let mut paths = self.paths.lock().expect("no panic");
        paths.insert(path.to_owned(), Box::new(responder));
    }

    /// Removes and returns the requests of the reviews.
    pub(crate) fn take_requests(&self) -> Vec<Value> {
        let mut reviews = self.reviews.lock().expect("no panic");
        std::mem::take(&mut *reviews)
            .into_iter()
            .map(|r| r["request"].clone())
            .collect()
    }

    /// A webhook for the creation of config maps.
    pub(crate) fn hook(&self, path: &str, more: Value) -> Value {
        let mut hook = json!({
            "name": "a.example.com",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "clientConfig": {"url": format!("{}{path}", self.url), "caBundle": self.ca},
            "rules": [rule("", "configmaps", "CREATE")],
        });
        for (field, value) in more.as_object().into_iter().flatten() {
            hook[field] = value.clone();
        }
        hook
    }
}

pub(crate) fn rule(group: &str, resource: &str, operation: &str) -> Value {
    json!({
        "apiGroups": [group], "apiVersions": ["v1"], "resources": [resource], "operations": [operation],
    })
}

/// A response that patches.
pub(crate) fn patch(operations: Value) -> Value {
    json!({
        "allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(operations.to_string()),
    })
}
