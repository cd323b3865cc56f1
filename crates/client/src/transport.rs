//! Sends requests. Every request has a deadline, every line of a stream a greatest length.

use crate::ApiError;
use crate::election::Fence;
use crate::error::{StatusBody, chain};
use crate::limit::RateLimit;
use crate::observe::{Exchange, Observer, Unobserved};
use crate::reach::Reach;
use crate::request::ApiRequest;
use crate::token::TokenFile;
use bytes::{Bytes, BytesMut};
use http::HeaderValue;
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// How long a single request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest line of a watch: an object of the largest size that the API stores, escaped.
const LINE_BYTES_MAX: usize = 16 << 20;
/// The largest answer: one page of a list.
const ANSWER_BYTES_MAX: usize = 512 << 20;

/// A connection to one cluster. Cloning shares it.
#[derive(Clone)]
pub struct Transport {
    client: kube::Client,
    server: String,
    /// Host and port of the server, for metrics.
    host: Arc<str>,
    user_agent: String,
    token: Option<Arc<TokenFile>>,
    reach: Arc<Reach>,
    limit: RateLimit,
    fence: Option<Fence>,
    is_read_only: bool,
    observer: Arc<dyn Observer>,
}

impl Transport {
    pub(crate) fn new(
        client: kube::Client,
        server: String,
        user_agent: String,
        token: Option<TokenFile>,
    ) -> Self {
        let authority = server.split_once("://").map_or(&*server, |(_, rest)| rest);
        let host = authority.split('/').next().unwrap_or_default().into();
        Self {
            client,
            server,
            host,
            user_agent,
            token: token.map(Arc::new),
            reach: Arc::default(),
            limit: RateLimit::NONE,
            fence: None,
            is_read_only: false,
            observer: Arc::new(Unobserved),
        }
    }

    /// A connection to a server of this process: `answer` is called for each request.
    pub fn in_process<F, R, B>(answer: F, server: String, user_agent: String) -> Self
    where
        F: Fn(http::Request<Full<Bytes>>) -> R + Clone + Send + 'static,
        R: Future<Output = http::Response<B>> + Send + 'static,
        B: http_body::Body<Data = Bytes, Error: std::error::Error + Send + Sync> + Send + 'static,
    {
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let answer = answer.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await?;
                let request = http::Request::from_parts(parts, Full::new(body));
                Ok::<_, kube::Error>(answer(request).await)
            }
        });
        Self::new(
            kube::Client::new(service, "default"),
            server,
            user_agent,
            None,
        )
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

    /// The same connection, which sends nothing but GET requests.
    #[must_use]
    pub fn read_only(self) -> Self {
        Self {
            is_read_only: true,
            ..self
        }
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

    /// Whether the server has become reachable so recently that it may not have loaded its roles yet.
    pub fn is_settling(&self) -> bool {
        self.reach.is_settling()
    }

    /// Sends a request and decodes the answer.
    ///
    /// # Errors
    /// The server's refusal, a broken connection, no answer in time, or one that does not decode.
    pub async fn request<T: DeserializeOwned>(&self, request: &ApiRequest) -> Result<T, ApiError> {
        let body = self.request_bytes(request).await?;
        serde_json::from_slice(&body).map_err(|e| ApiError::Decode {
            request: request.describe(),
            reason: e.to_string(),
        })
    }

    /// Sends a request whose answer does not matter beyond success.
    ///
    /// # Errors
    /// As [`Transport::request`].
    pub async fn execute(&self, request: &ApiRequest) -> Result<(), ApiError> {
        self.request_bytes(request).await.map(drop)
    }

    /// Sends a request and returns the whole answer.
    ///
    /// # Errors
    /// As [`Transport::request`], but for decoding.
    pub async fn request_bytes(&self, request: &ApiRequest) -> Result<Bytes, ApiError> {
        let exchange = async {
            let response = self.send(request).await?;
            collect(response.into_body(), ANSWER_BYTES_MAX).await
        };
        self.exchange(request, exchange, false, |body: &Bytes| Some(body.len()))
            .await
    }

    /// Sends a request whose answer is a stream of lines.
    ///
    /// # Errors
    /// The server's refusal, a broken connection, or no answer in time.
    pub async fn stream(&self, request: &ApiRequest) -> Result<Lines, ApiError> {
        let response = self
            .exchange(request, self.send(request), true, |_| None)
            .await?;
        Ok(Lines {
            body: response.into_body(),
            buffer: BytesMut::new(),
            searched: 0,
            ended: false,
        })
    }

    /// Carries out an exchange when its turn comes: it has a deadline, its end is reported, and when nothing gets through
    /// the log says so.
    async fn exchange<T>(
        &self,
        request: &ApiRequest,
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
        let waited = self.limit.admit(request.lane).await;
        self.observer.waited(method, &self.host, waited);
        // The wait may have outlasted the lease.
        let writes = request.method != http::Method::GET;
        if writes && self.fence.as_ref().is_some_and(|fence| !fence.is_open()) {
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
            url = request.path,
            code,
            milliseconds = took.as_millis(),
            "request to the API server"
        );
        self.observer.ended(&Exchange {
            method,
            host: &self.host,
            code,
            took,
            is_watch,
            request_bytes: request.body.len(),
            response_bytes: result.as_ref().ok().and_then(response_bytes),
        });
        self.reach.note(&self.server, &result);
        result
    }

    /// Sends a request, and once more when its token is rejected and the file holds another one by now.
    async fn send(&self, request: &ApiRequest) -> Result<http::Response<Body>, ApiError> {
        let Some(token) = &self.token else {
            return self.send_as(request, None).await;
        };
        let first = token.header(std::time::Instant::now());
        let answer = self.send_as(request, Some(first)).await;
        let Err(error) = &answer else { return answer };
        match token.renewed(error, std::time::Instant::now()) {
            Some(renewed) => self.send_as(request, Some(renewed)).await,
            None => answer,
        }
    }

    async fn send_as(
        &self,
        request: &ApiRequest,
        authorization: Option<HeaderValue>,
    ) -> Result<http::Response<Body>, ApiError> {
        let mut builder = http::Request::builder()
            .method(request.method.clone())
            .uri(&request.path)
            .header(http::header::ACCEPT, "application/json")
            .header(http::header::USER_AGENT, &self.user_agent);
        if let Some(value) = authorization {
            builder = builder.header(http::header::AUTHORIZATION, value);
        }
        if !request.body.is_empty() {
            builder = builder.header(http::header::CONTENT_TYPE, request.content_type);
        }
        let built = builder
            .body(Body::from(request.body.clone()))
            .map_err(|e| ApiError::Transport(format!("malformed request: {e}")))?;
        let response = self
            .client
            .send(built)
            .await
            .map_err(|e| ApiError::Transport(chain(&e)))?;
        let code = response.status();
        if code.is_success() {
            return Ok(response);
        }
        let retry_after = response
            .headers()
            .get(http::header::RETRY_AFTER)
            .and_then(|v| v.to_str().ok()?.parse().ok());
        let body = collect(response.into_body(), 1 << 20)
            .await
            .unwrap_or_default();
        let status: StatusBody = serde_json::from_slice(&body).unwrap_or_else(|_| StatusBody {
            message: String::from_utf8_lossy(&body).trim().to_owned(),
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
        Err(error)
    }
}

pub(crate) async fn collect(mut body: Body, bytes_max: usize) -> Result<Bytes, ApiError> {
    let mut collected = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| ApiError::Transport(chain(&e)))?;
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

/// The lines of a streamed answer.
pub struct Lines {
    body: Body,
    buffer: BytesMut,
    /// How much of `buffer` holds no line end.
    searched: usize,
    ended: bool,
}

impl Lines {
    /// The next line that is not empty, without its end; `None` when the stream has ended.
    ///
    /// # Errors
    /// A broken connection, or a line that is too long.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        loop {
            if let Some(at) = self.buffer[self.searched..]
                .iter()
                .position(|b| *b == b'\n')
            {
                let line = self.buffer.split_to(self.searched + at + 1);
                self.searched = 0;
                let line = line.freeze();
                let line = line.slice(..line.len() - 1);
                if !line.is_empty() {
                    return Ok(Some(line));
                }
                continue;
            }
            self.searched = self.buffer.len();
            if self.searched > LINE_BYTES_MAX {
                return Err(ApiError::Transport(format!(
                    "a line of the stream is longer than {LINE_BYTES_MAX} bytes"
                )));
            }
            if self.ended {
                let rest = self.buffer.split().freeze();
                self.searched = 0;
                return Ok((!rest.is_empty()).then_some(rest));
            }
            match self.body.frame().await {
                None => self.ended = true,
                Some(frame) => {
                    let frame = frame.map_err(|e| ApiError::Transport(chain(&e)))?;
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
            }
        }
    }
}
