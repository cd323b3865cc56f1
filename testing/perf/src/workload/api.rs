//! The requests of operations to the API server.

use super::error::RunError;
use berth_client::content::Format;
use berth_client::frames::Frames;
use berth_client::limit::Lane;
use berth_client::request::{ApiRequest, Body};
use berth_client::{ApiError, Transport};
use bytes::Bytes;
use http::Method;
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::sleep;

/// The maximum number of attempts of a request after retryable failures.
const TRIES_MAX: u32 = 5;
/// The pause before the second attempt; it doubles with each attempt.
const PAUSE: Duration = Duration::from_millis(100);
/// Objects a page of a list.
const PAGE: usize = 500;

/// The API server, as the operations see it.
pub(super) struct WorkloadApi {
    transport: Transport,
    kinds: Mutex<HashMap<(String, String), OfferedResource>>,
    writes: AtomicU64,
}

/// A resource that a server offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OfferedResource {
    /// `/api/v1` or `/apis/GROUP/VERSION`.
    root: String,
    plural: String,
    pub(super) namespaced: bool,
}

impl OfferedResource {
    /// A resource without asking the server.
    pub(super) fn of(root: &str, plural: &str, namespaced: bool) -> Self {
        Self {
            root: root.to_owned(),
            plural: plural.to_owned(),
            namespaced,
        }
    }

    /// The path of the collection, of one namespace unless it is empty.
    pub(super) fn collection(&self, namespace: &str) -> String {
        if namespace.is_empty() {
            format!("{}/{}", self.root, self.plural)
        } else {
            format!("{}/namespaces/{namespace}/{}", self.root, self.plural)
        }
    }

    /// The path of an object.
    pub(super) fn object(&self, namespace: &str, name: &str) -> String {
        format!("{}/{name}", self.collection(namespace))
    }
}

/// The fields that are read from a created object.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Created {
    #[serde(default)]
    pub(super) metadata: CreatedMeta,
}

/// The identity of a created object.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct CreatedMeta {
    pub(super) name: String,
    pub(super) uid: String,
}

impl WorkloadApi {
    pub(super) fn new(transport: Transport) -> Self {
        Self {
            transport,
            kinds: Mutex::default(),
            writes: AtomicU64::new(0),
        }
    }

    /// The number of writes that were sent.
    pub(super) fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    /// The resource of a kind, by the server's discovery.
    ///
    /// # Errors
    /// When the server does not serve it.
    pub(super) async fn resource(&self, object: &Value) -> Result<OfferedResource, String> {
        let api_version = object["apiVersion"].as_str().unwrap_or_default();
        let kind = object["kind"].as_str().unwrap_or_default();
        let key = (api_version.to_owned(), kind.to_owned());
        let known = || self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(resource) = known().get(&key) {
            return Ok(resource.clone());
        }
        let root = if api_version.contains('/') {
            format!("/apis/{api_version}")
        } else {
            format!("/api/{api_version}")
        };
        let listed: Value = self
            .transport
            .request(&request(Method::GET, root.clone(), Bytes::new()))
            .await
            .map_err(|e| {
                format!("failed to discover {api_version}: {e}; the API server may not serve it")
            })?;
        let found = listed["resources"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|r| {
                r["kind"] == kind && r["name"].as_str().is_some_and(|name| !name.contains('/'))
            })
            .ok_or_else(|| format!("the API server has no kind {kind} in {api_version}"))?;
        let resource = OfferedResource {
            root,
            plural: found["name"].as_str().unwrap_or_default().to_owned(),
            namespaced: found["namespaced"].as_bool().unwrap_or(false),
        };
        known().insert(key, resource.clone());
        Ok(resource)
    }

    /// Sends a write, with retries after retryable failures.
    ///
    /// # Errors
    /// The last failure.
    pub(super) async fn write(
        &self,
        method: Method,
        path: String,
        body: Bytes,
    ) -> Result<Created, ApiError> {
        let request = request(method, path, body);
        let mut pause = PAUSE;
        for attempt in 1.. {
            self.writes.fetch_add(1, Ordering::Relaxed);
            match self.send(&request).await {
                Err(error) if error.is_retryable() && attempt < TRIES_MAX => {
                    sleep(pause).await;
                    pause *= 2;
                }
                // An earlier attempt of this request succeeded although its answer was lost.
                Err(error) if attempt > 1 && was_done(&request.method, &error) => {
                    return Ok(Created::default());
                }
                answer => return answer,
            }
        }
        unreachable!("the loop returns")
    }

    /// Sends a write once. The answer to a deletion is not read: it can be the object, a list or a status.
    async fn send(&self, request: &ApiRequest) -> Result<Created, ApiError> {
        if request.method == Method::DELETE {
            return self
                .transport
                .execute(request)
                .await
                .map(|()| Created::default());
        }
        self.transport.request(request).await
    }

    /// Creates an object.
    ///
    /// # Errors
    /// As [`WorkloadApi::write`].
    pub(super) async fn create(
        &self,
        resource: &OfferedResource,
        namespace: &str,
        object: &Value,
    ) -> Result<Created, ApiError> {
        let path = format!("{}?fieldValidation=Strict", resource.collection(namespace));
        let body = object.to_string().into();
        self.write(Method::POST, path, body).await
    }

    /// Replaces an object or, with subresources, that part of it.
    ///
    /// # Errors
    /// As [`WorkloadApi::write`].
    pub(super) async fn update(
        &self,
        resource: &OfferedResource,
        namespace: &str,
        object: &Value,
        subresources: &[String],
    ) -> Result<Created, ApiError> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let mut path = resource.object(namespace, name);
        for part in subresources {
            let _ = write!(path, "/{part}");
        }
        path.push_str("?fieldValidation=Strict");
        let body = object.to_string().into();
        self.write(Method::PUT, path, body).await
    }

    /// Deletes an object. It is no failure if the object was deleted already.
    ///
    /// # Errors
    /// As [`WorkloadApi::write`].
    pub(super) async fn delete(&self, path: String) -> Result<(), ApiError> {
        match self.write(Method::DELETE, path, Bytes::new()).await {
            Err(error) if error.is_not_found() => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// Deletes all objects of a collection.
    ///
    /// # Errors
    /// As [`WorkloadApi::write`].
    pub(super) async fn delete_collection(
        &self,
        path: String,
        options: &Value,
    ) -> Result<(), ApiError> {
        let body = options.to_string().into();
        self.write(Method::DELETE, path, body).await.map(drop)
    }

    /// All objects of a collection with its resourceVersion.
    ///
    /// # Errors
    /// The first failure.
    pub(super) async fn list(&self, collection: &str) -> Result<(Vec<Value>, String), ApiError> {
        let mut items = Vec::new();
        let mut token = String::new();
        loop {
            let mut path = format!("{collection}?limit={PAGE}");
            if !token.is_empty() {
                let _ = write!(path, "&continue={token}");
            }
            let mut page: Value = self
                .transport
                .request(&request(Method::GET, path, Bytes::new()))
                .await?;
            if let Value::Array(more) = page["items"].take() {
                items.extend(more);
            }
            match page["metadata"]["continue"].as_str() {
                Some(next) if !next.is_empty() => token = escape(next),
                _ => {
                    let version = page["metadata"]["resourceVersion"].as_str();
                    return Ok((items, version.unwrap_or_default().to_owned()));
                }
            }
        }
    }

    /// The changes of a collection after a version, in the format with the lowest cost for the server and the runner.
    ///
    /// # Errors
    /// When the watch does not start.
    pub(super) async fn watch(&self, collection: &str, version: &str) -> Result<Frames, ApiError> {
        let path =
            format!("{collection}?watch=true&allowWatchBookmarks=true&resourceVersion={version}");
        let watch = ApiRequest {
            answer_in: None,
            without_managed_fields: false,
            ..request(Method::GET, path, Bytes::new())
        };
        self.transport.stream(&watch).await
    }

    /// The answer of the server at a path, as text.
    pub(super) async fn text(&self, path: &str) -> Option<String> {
        let request = request(Method::GET, path.to_owned(), Bytes::new());
        let answer = self.transport.answer(&request).await.ok()?;
        Some(String::from_utf8_lossy(&answer.bytes).into_owned())
    }
}

fn was_done(method: &Method, error: &ApiError) -> bool {
    match *method {
        Method::POST => error.code() == Some(409),
        Method::DELETE => error.is_not_found(),
        _ => false,
    }
}

fn request(method: Method, path: String, body: Bytes) -> ApiRequest {
    ApiRequest {
        lane: if method == Method::GET {
            Lane::Read
        } else {
            Lane::Write
        },
        // Objects that are read are changed and shown as JSON.
        answer_in: (method == Method::GET).then_some(Format::Json),
        without_managed_fields: false,
        method,
        path,
        content_type: "application/json",
        body: Body::Bytes(body),
    }
}

/// Percent-encodes everything but unreserved characters.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

/// A failure of an operation.
pub(super) fn failed(op: usize, opcode: &'static str, message: impl ToString) -> RunError {
    RunError::Operation {
        op,
        opcode,
        message: message.to_string(),
    }
}
