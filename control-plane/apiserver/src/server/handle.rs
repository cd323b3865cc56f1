//! One request: its sender, its target, and an answer for every failure.

use super::indent::{self, Indentable};
use super::negotiate::{self, AnswerFormat};
use super::route::{self, Query, Route};
use super::{ServerState, aggregation, nonresource, resources};
use crate::auth::{self, RequestUser};
use crate::encode::MediaFormat;
use crate::registry::BODY_BYTES_MAX;
use crate::registry::{RequestAttributes, rbac};
use crate::storage::Unsettled;
use berth_objects::status::ApiError;
use bytes::Bytes;
use futures_util::FutureExt;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, RETRY_AFTER, WARNING};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use serde_json::Value;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::timeout;

/// A body arrives within this time.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// The bytes of an unwanted body that are read, and for how long.
const DRAIN_BYTES_MAX: usize = 16 * 1024 * 1024;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum number of characters of all warnings of a response, and of each warning if all are longer.
const WARNINGS_CHARS_MAX: usize = 4_096;
const CUT_WARNING_CHARS_MAX: usize = 256;

pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(super) const PROTOBUF: HeaderValue =
    HeaderValue::from_static("application/vnd.kubernetes.protobuf");
pub(super) const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// The body of an answer.
pub type AnswerBody = UnsyncBoxBody<Bytes, Infallible>;

/// The body of a request.
pub(super) enum RequestBody {
    /// From a connection.
    Remote(Incoming),
    /// From this process.
    Local(Full<Bytes>),
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Remote(body) => Pin::new(body).poll_frame(context),
            Self::Local(body) => Pin::new(body)
                .poll_frame(context)
                .map_err(|never| match never {}),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Remote(body) => body.is_end_stream(),
            Self::Local(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Remote(body) => body.size_hint(),
            Self::Local(body) => body.size_hint(),
        }
    }
}

/// A request whose sender is known.
pub(super) struct Received<'a> {
    pub(super) parts: Parts,
    pub(super) body: &'a mut RequestBody,
    pub(super) user: RequestUser,
}

/// Answers a request, also after a panic.
pub(super) async fn handle(
    state: Arc<ServerState>,
    request: Request<RequestBody>,
) -> Result<Response<AnswerBody>, Infallible> {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let (parts, mut body) = request.into_parts();
    let is_indented = negotiate::is_indented(&parts);
    let mut response = guarded(&method, &path, respond(&state, parts, &mut body)).await;
    if is_indented {
        response = indent::indented(response);
    }
    drain(body).await;
    state.limits.count(&method, response.status().as_u16());
    Ok(response)
}

/// The response of a handler that may fail or even panic: then it is an error, and a line in the log.
async fn guarded(
    method: &Method,
    path: &str,
    handler: impl Future<Output = Result<Response<AnswerBody>, ApiError>>,
) -> Response<AnswerBody> {
    match AssertUnwindSafe(handler).catch_unwind().await {
        Ok(Ok(response)) => response,
        Ok(Err(e)) => failure(&e),
        Err(panic) => {
            let what = panic
                .downcast_ref::<&str>()
                .map(|s| (*s).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_default();
            tracing::error!(%method, path, what, "a request panicked");
            failure(&ApiError::internal(
                "the request failed unexpectedly; see the server's log",
            ))
        }
    }
}

async fn respond(
    state: &Arc<ServerState>,
    parts: Parts,
    body: &mut RequestBody,
) -> Result<Response<AnswerBody>, ApiError> {
    let path = parts.uri.path();
    let api = &state.api;
    let sender =
        state
            .authenticator
            .authenticate(&**api, parts.extensions.get(), &parts.headers, path)?;
    let user = rbac::acting_user(api, sender, auth::impersonated(&parts.headers)?)?;
    let Some(segments) = route::segments(path) else {
        return Ok(not_found());
    };
    let route = route::route(&api.catalog(), &segments);
    let is_watch = Query::parse(parts.uri.query()).is_ok_and(|q| q.flag("watch"));
    let remote = match &route {
        Route::NotFound | Route::Other => aggregation::find_remote(api, &segments),
        _ => None,
    };
    if !auth::is_open(path) {
        let of_remote = remote.as_ref();
        let asked = of_remote
            .and_then(|_| aggregation::asked(&segments, &parts.method, is_watch))
            .unwrap_or_else(|| asked(&route, &parts.method, path, is_watch));
        rbac::authorize(api, &user, &asked)?;
    }
    let received = Received { parts, body, user };
    if let Some(service) = remote {
        return aggregation::forward(state, &service, received).await;
    }
    match route {
        Route::Resource(target) => {
            let answer = resources::serve(state, &target, received).await;
            // Errors too may depend on changes that are not on the disk yet.
            settled(state).await?;
            answer
        }
        Route::Connect(connect) => Err(resources::no_containers(state, &connect, received)),
        Route::UnknownResource => Err(ApiError::no_such_resource()),
        Route::NotFound => Ok(not_found()),
        Route::Other => nonresource::serve(state, &segments, received),
    }
}

/// The attributes of a request.
fn asked<'a>(
    route: &'a Route,
    method: &Method,
    path: &'a str,
    is_watch: bool,
) -> RequestAttributes<'a> {
    let verb = |name: bool| match method.as_str() {
        "GET" | "HEAD" if name => "get",
        "GET" | "HEAD" if is_watch => "watch",
        "GET" | "HEAD" => "list",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" if name => "delete",
        "DELETE" => "deletecollection",
        _ => "",
    };
    match route {
        Route::Resource(target) => RequestAttributes {
            verb: verb(target.name.is_some()),
            group: target.resource.resource.group,
            resource: target.resource.resource.resource,
            sub: target.sub.unwrap_or(""),
            namespace: target.namespace.as_deref().unwrap_or(""),
            name: target.name.as_deref().unwrap_or(""),
            path: "",
        },
        Route::Connect(connect) => RequestAttributes {
            verb: verb(true),
            resource: connect.resource,
            sub: connect.sub,
            namespace: &connect.namespace,
            name: &connect.name,
            ..RequestAttributes::default()
        },
        // Paths without a resource have their own verbs, in lower case.
        _ => RequestAttributes {
            verb: match method.as_str() {
                "POST" => "post",
                "PUT" => "put",
                _ => verb(true),
            },
            path,
            ..RequestAttributes::default()
        },
    }
}

/// Waits until the contents of an answer are on the disk.
///
/// # Errors
/// 500 if the disk has failed, 504 if it does not respond: the outcome of a write is unknown.
async fn settled(state: &ServerState) -> Result<(), ApiError> {
    state.api.store().settle().await.map_err(|e| match e {
        Unsettled::Failed(_) => {
            ApiError::internal(format!("{e}; whether a write was stored is not known"))
        }
        Unsettled::Late => ApiError::timeout(e.to_string()),
    })
}

/// Reads a body.
///
/// # Errors
/// 413 when it is too large, 400 when it does not arrive.
pub(super) async fn read(body: &mut RequestBody) -> Result<Bytes, ApiError> {
    let read = Limited::new(body, BODY_BYTES_MAX).collect();
    match timeout(BODY_TIMEOUT, read).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(e)) if e.is::<http_body_util::LengthLimitError>() => Err(ApiError::too_large(
            format!("Request entity too large: limit is {BODY_BYTES_MAX}"),
        )),
        Ok(Err(e)) => Err(ApiError::bad_request(format!(
            "the body of the request could not be read: {e}"
        ))),
        Err(_) => Err(ApiError::bad_request(
            "the body of the request did not arrive in time",
        )),
    }
}

/// Reads the rest of the body of a request that was refused early. An HTTP/2 stream that is answered before its body is
/// read is reset, and the client may never receive the answer.
async fn drain(mut body: impl Body<Data = Bytes> + Unpin) {
    if body.is_end_stream() {
        return;
    }
    let rest = async {
        let mut left = DRAIN_BYTES_MAX;
        while let Some(Ok(frame)) = body.frame().await {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            match left.checked_sub(bytes) {
                Some(fewer) => left = fewer,
                None => return,
            }
        }
    };
    let _ = timeout(DRAIN_TIMEOUT, rest).await;
}

/// A response of these bytes.
pub(super) fn response(
    status: StatusCode,
    content_type: HeaderValue,
    body: Bytes,
) -> Response<AnswerBody> {
    let mut response = Response::new(Full::new(body).boxed_unsync());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// A response of JSON about objects or discovery, which is indented for clients that people read.
pub(super) fn json_response(
    status: StatusCode,
    content_type: HeaderValue,
    json: Bytes,
) -> Response<AnswerBody> {
    let mut response = response(status, content_type, json);
    response.extensions_mut().insert(Indentable);
    response
}

/// A response of JSON or protobuf bytes in the format that the client asked for.
pub(super) fn formatted(
    code: u16,
    answer: AnswerFormat,
    json: Bytes,
    warnings: &[String],
) -> Response<AnswerBody> {
    let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = match answer.format {
        MediaFormat::Json => json_response(status, JSON, json),
        MediaFormat::Protobuf => response(status, PROTOBUF, json),
        MediaFormat::Yaml => match to_yaml(&json) {
            Some(yaml) => response(status, HeaderValue::from_static("application/yaml"), yaml),
            None => json_response(status, JSON, json),
        },
    };
    warn(&mut response, warnings);
    response
}

fn to_yaml(json: &[u8]) -> Option<Bytes> {
    let value: Value = serde_json::from_slice(json).ok()?;
    let yaml = serde_saphyr::to_string(&value).ok()?;
    Some(Bytes::from(yaml))
}

/// A response of a JSON value.
pub(super) fn json(code: u16, value: &Value) -> Response<AnswerBody> {
    let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    json_response(status, JSON, Bytes::from(value.to_string()))
}

/// The response to a failed request.
pub(super) fn failure(error: &ApiError) -> Response<AnswerBody> {
    let mut response = json(error.code, &error.to_status());
    let seconds = error.details.as_ref().map_or(0, |d| d.retry_after_seconds);
    if seconds > 0 {
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if error.code == 401 {
        response.headers_mut().insert(
            HeaderName::from_static("www-authenticate"),
            HeaderValue::from_static("Bearer"),
        );
    }
    response
}

/// The response for an unknown path.
pub(super) fn not_found() -> Response<AnswerBody> {
    response(
        StatusCode::NOT_FOUND,
        TEXT,
        Bytes::from_static(b"404 page not found\n"),
    )
}

/// Adds `Warning` headers: `299 - "text"`. If the texts exceed kube-apiserver's total limit, each is truncated.
pub(super) fn warn(response: &mut Response<AnswerBody>, warnings: &[String]) {
    let length = |warning: &String| warning.chars().count();
    let is_cut = warnings.iter().map(length).sum::<usize>() > WARNINGS_CHARS_MAX;
    let item_max = if is_cut {
        CUT_WARNING_CHARS_MAX
    } else {
        WARNINGS_CHARS_MAX
    };
    let mut written = 0;
    for warning in warnings {
        // A header has no line breaks; kube-apiserver omits such warnings.
        if warning.contains(char::is_control) {
            continue;
        }
        if written >= WARNINGS_CHARS_MAX {
            break;
        }
        written += length(warning).min(item_max);
        let mut text = String::from("299 - \"");
        for c in warning.chars().take(item_max) {
            if matches!(c, '"' | '\\') {
                text.push('\\');
            }
            text.push(c);
        }
        text.push('"');
        if let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) {
            response.headers_mut().append(WARNING, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{StreamExt, stream};
    use http_body_util::StreamBody;

    #[tokio::test(start_paused = true)]
    async fn an_unread_body_is_drained_within_limits() {
        // (frames of a MiB each, the rest of the body, the number of frames that are read)
        let silence = || stream::pending().left_stream();
        let end = || stream::empty().right_stream();
        let cases = [
            (0, end(), 0),
            (3, end(), 3),
            (1_000, end(), 17),
            (3, silence(), 3),
        ];
        for (frames, rest, expect) in cases {
            let mut taken = 0;
            let counted = stream::iter(0..frames).inspect(|_| taken += 1).map(|_| {
                let mebibyte = Bytes::from(vec![0; 1024 * 1024]);
                Ok::<_, Infallible>(Frame::data(mebibyte))
            });
            let begun = tokio::time::Instant::now();
            drain(StreamBody::new(counted.chain(rest))).await;
            assert!(begun.elapsed() <= DRAIN_TIMEOUT, "{frames}");
            assert_eq!(taken, expect, "{frames}");
        }
    }

    #[tokio::test]
    async fn a_panic_is_an_answer() {
        let handler = async {
            if Method::GET.is_safe() {
                panic!("out of luck");
            }
            Ok(not_found())
        };
        let response = guarded(&Method::GET, "/x", handler).await;
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let body = response.into_body().collect().await.map(|b| b.to_bytes());
        let status: Value = serde_json::from_slice(&body.unwrap_or_default()).unwrap_or_default();
        assert_eq!(status["reason"], "InternalError");
    }
}
