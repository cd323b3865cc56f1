//! Sends requests. Every request has a deadline.
//!
//! The futures are boxed: the code of a future that is not is compiled again in each crate that awaits it, with all of the
//! HTTP client.

pub(crate) mod store;

use self::store::ServerStore;
use crate::ApiError;
use crate::connection::{Client, Connection, ReloadReason};
use crate::content::{ApiAnswer, ContentTypes, Format, JSON, JSON_TRIMMED};
use crate::error::{StatusBody, chain};
use crate::fence::Fence;
use crate::frames::Frames;
use crate::http_client::{ConnectionId, HttpBody};
use crate::limit::RateLimit;
use crate::observe::{Exchange, Observer, Unobserved};
use crate::reach::Reach;
use crate::request::ApiRequest;
use crate::token::TokenFile;
use berth_protobuf::envelope::MEDIA_TYPE;
use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use http::HeaderValue;
use http_body_util::{BodyExt, Full};
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceExt};

/// The time that a single request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest answer: one page of a list.
const ANSWER_BYTES_MAX: usize = 512 << 20;
/// The header `Accept` of a request for protobuf: a server that does not have that form answers with JSON.
const PROTOBUF_BEFORE_JSON: &str = "application/vnd.kubernetes.protobuf,application/json";
/// The largest answer that refuses a request.
const REFUSAL_BYTES_MAX: usize = 1 << 20;

/// A connection to one cluster. Cloning shares it.
#[derive(Clone)]
pub struct Transport {
    connection: Arc<Connection>,
    server: String,
    /// Host and port of the server, for metrics.
    host: Arc<str>,
    user_agent: HeaderValue,
    token: Option<Arc<TokenFile>>,
    reach: Arc<Reach>,
    limit: RateLimit,
    fence: Option<Fence>,
    is_read_only: bool,
    observer: Arc<dyn Observer>,
    content: ContentTypes,
    store: Option<Arc<ServerStore>>,
}

impl Transport {
    pub(crate) fn new(
        connection: Connection,
        server: String,
        user_agent: String,
        token: Option<TokenFile>,
    ) -> Self {
        let authority = server.split_once("://").map_or(&*server, |(_, rest)| rest);
        let host = authority.split('/').next().unwrap_or_default().into();
        Self {
            connection: Arc::new(connection),
            server,
            host,
            user_agent: HeaderValue::try_from(user_agent)
                .unwrap_or_else(|_| HeaderValue::from_static("berth")),
            token: token.map(Arc::new),
            reach: Arc::default(),
            limit: RateLimit::NONE,
            fence: None,
            is_read_only: false,
            observer: Arc::new(Unobserved),
            content: ContentTypes::default(),
            store: None,
        }
    }

    /// A connection to a server of this process: `answer` is called for each request.
    pub fn in_process<F, R, B>(answer: F, server: String, user_agent: String) -> Self
    where
        F: Fn(http::Request<Full<Bytes>>) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = http::Response<B>> + Send + 'static,
        B: http_body::Body<Data = Bytes, Error: std::error::Error + Send + Sync> + Send + 'static,
    {
        let service = tower::service_fn(move |request: http::Request<Full<Bytes>>| {
            let answer = answer.clone();
            async move {
                let answer = answer(request).await;
                let boxed = |body: B| HttpBody::Boxed(body.map_err(BoxError::from).boxed_unsync());
                Ok::<_, BoxError>(answer.map(boxed))
            }
        });
        let connection = Connection::fixed(BoxCloneSyncService::new(service));
        Self::new(connection, server, user_agent, None)
    }

    /// The same connection for a command that asks once: outages are not logged, because the command reports its error
    /// and does not retry.
    #[must_use]
    pub fn asking_once(self) -> Self {
        let reach = Arc::new(Reach::silent());
        Self { reach, ..self }
    }

    /// The same connection with a limit on requests a second.
    #[must_use]
    pub fn limited(self, limit: RateLimit) -> Self {
        Self { limit, ..self }
    }

    /// The same connection, which writes only while the fence is open.
    #[must_use]
    pub fn fenced(self, fence: Fence) -> Self {
        let fence = Some(fence);
        Self { fence, ..self }
    }

    /// The same connection, restricted to GET requests.
    #[must_use]
    pub fn read_only(self) -> Self {
        Self {
            is_read_only: true,
            ..self
        }
    }

    /// The same connection, which uses these content types. Without, it is JSON alone.
    #[must_use]
    pub fn speaking(self, content: ContentTypes) -> Self {
        Self { content, ..self }
    }

    /// The same connection. Before a watch continues, it checks that the server has the store of the listed objects;
    /// all clones of this connection share the checks.
    #[must_use]
    pub fn checking_store(self) -> Self {
        let store = Some(Arc::default());
        Self { store, ..self }
    }

    /// The state of the store, if it is checked.
    pub(crate) fn store(&self) -> Option<&ServerStore> {
        self.store.as_deref()
    }

    /// The same connection, which reports its requests.
    #[must_use]
    pub fn observed(self, observer: Arc<dyn Observer>) -> Self {
        Self { observer, ..self }
    }

    /// The address of the server.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Returns whether the server has become reachable so recently that it may not have loaded its roles yet.
    pub fn is_settling(&self) -> bool {
        self.reach.is_settling()
    }

    /// Sends a request and decodes the answer.
    ///
    /// # Errors
    /// The server's refusal, a broken connection, no answer in time, or one that does not decode.
    pub async fn request<T: DeserializeOwned>(&self, request: &ApiRequest) -> Result<T, ApiError> {
        let answer = self.answer(request).await?;
        answer.decode().map_err(|e| (request, e).into())
    }

    /// Sends a request whose answer does not matter beyond success.
    ///
    /// # Errors
    /// As [`Transport::request`].
    pub async fn execute(&self, request: &ApiRequest) -> Result<(), ApiError> {
        self.answer(request).await.map(drop)
    }

    /// Sends a request and returns the answer.
    ///
    /// # Errors
    /// As [`Transport::request`], but for decoding.
    pub fn answer<'a>(
        &'a self,
        request: &'a ApiRequest,
    ) -> BoxFuture<'a, Result<ApiAnswer, ApiError>> {
        Box::pin(async { self.exchanged(request).await.map(|(answer, _)| answer) })
    }

    /// Sends a request and returns the answer and its connection; `None` without HTTP/2.
    ///
    /// # Errors
    /// As [`Transport::answer`].
    pub(crate) fn answer_over<'a>(
        &'a self,
        request: &'a ApiRequest,
    ) -> BoxFuture<'a, Result<(ApiAnswer, Option<ConnectionId>), ApiError>> {
        Box::pin(self.exchanged(request))
    }

    async fn exchanged(
        &self,
        request: &ApiRequest,
    ) -> Result<(ApiAnswer, Option<ConnectionId>), ApiError> {
        let body = self.encode(request);
        let length_sent = body.bytes.len();
        let exchange = async {
            trace_body(request, "Request Body", &body.bytes);
            let response = self.send(request, &body).await?;
            let format = Format::of(response.headers());
            let connection = connection_of(&response);
            let bytes = collect(response.into_body(), ANSWER_BYTES_MAX).await?;
            trace_body(request, "Response Body", &bytes);
            Ok((ApiAnswer::new(format, bytes), connection))
        };
        let length = |(answer, _): &(ApiAnswer, _)| Some(answer.bytes.len());
        self.exchange(request, length_sent, exchange, false, length)
            .await
    }

    /// Sends a request that is answered by a stream of events.
    ///
    /// # Errors
    /// The server's refusal, a broken connection, or no answer in time.
    pub fn stream<'a>(
        &'a self,
        request: &'a ApiRequest,
    ) -> BoxFuture<'a, Result<Frames, ApiError>> {
        Box::pin(async move {
            let body = self.encode(request);
            let sent = self.send(request, &body);
            let response = self
                .exchange(request, body.bytes.len(), sent, true, |_| None)
                .await?;
            let format = Format::of(response.headers());
            let connection = connection_of(&response);
            Ok(Frames::new(response.into_body(), format, connection))
        })
    }

    /// The body of a request in the preferred format.
    fn encode(&self, request: &ApiRequest) -> EncodedBody {
        let protobuf = match self.content.body {
            Format::Protobuf => request.protobuf(),
            Format::Json => None,
        };
        match protobuf {
            Some(bytes) => EncodedBody {
                content_type: MEDIA_TYPE,
                bytes: bytes.into(),
            },
            None => EncodedBody {
                content_type: request.content_type,
                bytes: request.body.json(),
            },
        }
    }

    /// Performs an exchange when its turn comes: it has a deadline, its end is reported, and an unreachable server is
    /// logged.
    async fn exchange<T>(
        &self,
        request: &ApiRequest,
        request_bytes: usize,
        exchange: impl Future<Output = Result<T, ApiError>>,
        is_watch: bool,
        response_bytes: impl FnOnce(&T) -> Option<usize>,
    ) -> Result<T, ApiError> {
        let method = request.method.as_str();
        if self.is_read_only && request.method != http::Method::GET {
            return Err(ApiError::ReadOnly {
                request: request.describe(),
            });
        }
        let fence = self.fence.as_ref();
        let fence = fence.filter(|_| request.method != http::Method::GET);
        let waited = match fence {
            _ if self.limit.admits_at_once() => Duration::ZERO,
            None => self.limit.admit(request.lane).await,
            // A process that stops does not wait for its turn.
            Some(fence) => tokio::select! {
                waited = self.limit.admit(request.lane) => waited,
                () = fence.ended() => return Err(ApiError::NotLeading),
            },
        };
        self.observer.waited(method, &self.host, waited);
        // The wait may have outlasted the lease.
        if fence.is_some_and(|fence| !fence.is_open()) {
            return Err(ApiError::NotLeading);
        }
        let began = Instant::now();
        let result = timeout(REQUEST_TIMEOUT, exchange)
            .await
            .unwrap_or(Err(ApiError::Timeout {
                seconds: REQUEST_TIMEOUT.as_secs(),
            }));
        let took = began.elapsed();
        let code = match &result {
            Ok(_) => Some(200),
            Err(error) => error.code(),
        };
        tracing::trace!(
            verb = method,
            url = %format_args!("{}{}", self.server, request.path),
            status = code,
            milliseconds = took.as_millis(),
            "Response"
        );
        self.observer.ended(&Exchange {
            method,
            host: &self.host,
            code,
            took,
            is_watch,
            request_bytes,
            response_bytes: result.as_ref().ok().and_then(response_bytes),
        });
        self.reach.note(&self.server, &result);
        result
    }

    /// Sends a request. If its credentials are rejected and new credentials are available, sends it once more.
    async fn send(
        &self,
        request: &ApiRequest,
        body: &EncodedBody,
    ) -> Result<http::Response<HttpBody>, ApiError> {
        let client = self.connection.client().await;
        let now = std::time::Instant::now;
        let token = self.token.as_ref().map(|token| token.header(now()));
        let answer = self.send_as(request, body, &client, token.clone()).await;
        let reason = match &answer {
            Err(error) if error.code() == Some(401) => ReloadReason::Rejected,
            Err(ApiError::Transport(_)) => ReloadReason::Failed,
            _ => return answer,
        };
        let renewed = match (&answer, &self.token) {
            (Err(error), Some(token)) => token.renewed(error, now()),
            _ => None,
        };
        let replacement = self.connection.replacement(&client, reason).await;
        // A request on a connection that failed may have been carried out. The caller repeats it.
        if reason == ReloadReason::Failed || (renewed.is_none() && replacement.is_none()) {
            return answer;
        }
        let client = replacement.unwrap_or(client);
        self.send_as(request, body, &client, renewed.or(token))
            .await
    }

    /// Sends a request in the preferred format, and once more as JSON when the server does not take that.
    async fn send_as(
        &self,
        request: &ApiRequest,
        body: &EncodedBody,
        client: &Client,
        authorization: Option<HeaderValue>,
    ) -> Result<http::Response<HttpBody>, ApiError> {
        let answer = self
            .send_body(request, client, body, authorization.clone())
            .await;
        match &answer {
            Err(error) if error.code() == Some(415) && body.content_type == MEDIA_TYPE => {
                let json = EncodedBody {
                    content_type: JSON,
                    bytes: request.body.json(),
                };
                self.send_body(request, client, &json, authorization).await
            }
            _ => answer,
        }
    }

    async fn send_body(
        &self,
        request: &ApiRequest,
        client: &Client,
        body: &EncodedBody,
        authorization: Option<HeaderValue>,
    ) -> Result<http::Response<HttpBody>, ApiError> {
        let accept = match (request.answer_in, request.without_managed_fields) {
            // A request can name the format of its answer; otherwise the format of the client is used.
            (Some(Format::Json), true) => HeaderValue::from_static(JSON_TRIMMED),
            (Some(Format::Json), false) => HeaderValue::from_static(JSON),
            (Some(Format::Protobuf), _) => HeaderValue::from_static(PROTOBUF_BEFORE_JSON),
            (None, true) => self.content.accept_trimmed.clone(),
            (None, false) => self.content.accept.clone(),
        };
        let mut builder = http::Request::builder()
            .method(request.method.clone())
            .uri(&request.path)
            .header(http::header::ACCEPT, accept)
            .header(http::header::USER_AGENT, self.user_agent.clone());
        if let Some(value) = authorization {
            builder = builder.header(http::header::AUTHORIZATION, value);
        }
        if !body.bytes.is_empty() {
            builder = builder.header(
                http::header::CONTENT_TYPE,
                HeaderValue::from_static(body.content_type),
            );
        }
        let built = builder
            .body(Full::new(body.bytes.clone()))
            // The body is shared, so a retry does not copy it.
            .map_err(|e| ApiError::Transport(format!("malformed request: {e}")))?;
        let mut service = client.service.clone();
        let failed = |e: BoxError| ApiError::Transport(chain(&*e));
        let service = service.ready().await.map_err(failed)?;
        let response = service.call(built).await.map_err(failed)?;
        if response.status().is_success() {
            Ok(response)
        } else {
            Err(refusal(response).await)
        }
    }
}

/// The connection of an answer; `None` without HTTP/2.
fn connection_of(response: &http::Response<HttpBody>) -> Option<ConnectionId> {
    response.extensions().get().copied()
}

/// Logs a body. Reviews of tokens contain credentials.
fn trace_body(request: &ApiRequest, what: &'static str, body: &[u8]) {
    if !body.is_empty() && !request.path.contains("/tokenreviews") {
        tracing::trace!(v = 8, body, "{what}");
    }
}

/// A body as it is sent.
struct EncodedBody {
    content_type: &'static str,
    bytes: Bytes,
}

/// The error that an answer is.
async fn refusal(response: http::Response<HttpBody>) -> ApiError {
    let code = response.status();
    let header = response.headers().get(http::header::RETRY_AFTER);
    let retry_after = header.and_then(|v| v.to_str().ok()?.parse().ok());
    let format = Format::of(response.headers());
    let bytes = collect(response.into_body(), REFUSAL_BYTES_MAX)
        .await
        .unwrap_or_default();
    let answer = ApiAnswer::new(format, bytes);
    let status = answer.decode().unwrap_or_else(|_| StatusBody {
        message: String::from_utf8_lossy(&answer.bytes).trim().to_owned(),
        ..StatusBody::default()
    });
    let mut error = status.into_error(code.as_u16());
    if let ApiError::Status {
        retry_after_seconds: seconds @ None,
        ..
    } = &mut error
    {
        *seconds = retry_after;
    }
    error
}

pub(crate) async fn collect(mut body: HttpBody, bytes_max: usize) -> Result<Bytes, ApiError> {
    let mut collected = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| ApiError::Transport(chain(&*e)))?;
        if let Ok(data) = frame.into_data() {
            if collected.len() + data.len() > bytes_max {
                return Err(ApiError::Transport(format!(
                    "the answer is larger than {bytes_max} bytes"
                )));
            }
            collected.extend_from_slice(&data);
        }
    }
    Ok(collected.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::tests::{lines, log};
    use crate::request::{self, Resource};

    /// No secret of a user is logged, at any level.
    #[tokio::test]
    async fn bodies_with_tokens_are_not_logged() {
        let answer = |request: http::Request<Full<Bytes>>| async {
            http::Response::new(request.into_body())
        };
        let transport = Transport::in_process(answer, "https://server".into(), "test".into());
        for (plural, is_logged) in [("tokenreviews", false), ("subjectaccessreviews", true)] {
            let resource = Resource {
                group: "authorization.k8s.io",
                version: "v1",
                plural,
            };
            let review = serde_json::json!({"spec": {"token": "secret"}});
            let (text, guard) = log(tracing::Level::TRACE);
            let sent = transport
                .execute(&request::create(resource, "", &review))
                .await;
            drop(guard);
            assert!(sent.is_ok(), "{sent:?}");
            let lines = lines(&text);
            let bodies = lines.iter().filter(|line| line.contains("Body")).count();
            assert_eq!(bodies, if is_logged { 2 } else { 0 }, "{lines:?}");
            assert!(
                lines.iter().any(|line| line.contains("Response")),
                "{lines:?}"
            );
        }
    }
}
