//! Requests that are sent on to an aggregated server, in the name of their sender.

use super::ServerState;
use crate::auth::RequestUser;
use crate::registry::endpoints::endpoints;
use crate::server::handle::{self, AnswerBody, Received, TEXT};
use crate::webhook_client::{ServerAddress, connect};
use berth_objects::status::ApiError;
use berth_objects::view::{FieldView, meta};
use bytes::Bytes;
use futures_util::StreamExt;
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, HeaderName, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, BodyStream, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use serde_json::Value;
use std::convert::Infallible;
use std::time::Duration;
use tokio::time::timeout;

/// A server accepts a connection, and begins to answer, within this time.
const CONNECT_MAX: Duration = Duration::from_secs(30);
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// The maximum size of a list of resources.
const DISCOVERY_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The sender of the requests of this server.
const AGGREGATOR: &str = "system:kube-aggregator";

/// Sends a request on, and its answer back.
///
/// # Errors
/// The fault of the body of the request.
pub(in crate::server) async fn forward(
    state: &ServerState,
    service: &Value,
    received: Received<'_>,
) -> Result<Response<AnswerBody>, ApiError> {
    if !is_available(service) {
        return Ok(unavailable("service unavailable"));
    }
    let target = state.aggregation.target(service);
    let endpoint = match target
        .endpoint(&|namespace, name, port| endpoints(&state.api, namespace, name, port))
    {
        Ok(endpoint) => endpoint,
        Err(error) => {
            let name = meta(service, "name");
            tracing::debug!(name, error, "failed to find the server of an APIService");
            return Ok(unavailable("service unavailable"));
        }
    };
    let body = handle::read(received.body).await?;
    let path = received.parts.uri.path_and_query();
    let path = path.map_or("/", |path| path.as_str());
    let mut headers = received.parts.headers;
    identify(&mut headers, &received.user);
    let sent = send(&endpoint, &received.parts.method, path, headers, body).await;
    Ok(match sent {
        Ok(response) => streamed(state, response),
        Err(error) => unavailable(&format!("error trying to reach service: {error}")),
    })
}

/// A request of this server itself: the code and the body of the answer.
///
/// # Errors
/// The reason for the missing answer.
pub(super) async fn get(endpoint: &ServerAddress, path: &str) -> Result<(u16, Bytes), String> {
    let mut headers = HeaderMap::new();
    let user = RequestUser {
        name: AGGREGATOR.to_owned(),
        groups: vec!["system:masters".to_owned()],
        ..RequestUser::default()
    };
    identify(&mut headers, &user);
    let response = send(endpoint, &Method::GET, path, headers, Bytes::new()).await?;
    let code = response.status().as_u16();
    let body = Limited::new(response.into_body(), DISCOVERY_BYTES_MAX);
    let body = body.collect().await.map_err(|e| e.to_string())?;
    Ok((code, body.to_bytes()))
}

fn is_available(service: &Value) -> bool {
    let mut conditions = service.part("status").items("conditions").iter();
    conditions.any(|c| c.text("type") == "Available" && c.text("status") == "True")
}

/// 503 with a text, as kube-aggregator answers.
fn unavailable(text: &str) -> Response<AnswerBody> {
    let body = Bytes::from(format!("{text}\n"));
    handle::response(StatusCode::SERVICE_UNAVAILABLE, TEXT, body)
}

/// Replaces the credentials of a request by the name of its sender.
fn identify(headers: &mut HeaderMap, user: &RequestUser) {
    // A client could otherwise name another sender in these headers, which the server trusts.
    let is_secret = |name: &str| {
        name.starts_with("x-remote-")
            || name.starts_with("impersonate-")
            || [
                AUTHORIZATION,
                CONNECTION,
                CONTENT_LENGTH,
                HOST,
                TRANSFER_ENCODING,
                UPGRADE,
            ]
            .iter()
            .any(|dropped| dropped == name)
    };
    let names: Vec<HeaderName> = headers.keys().cloned().collect();
    for name in names.iter().filter(|name| is_secret(name.as_str())) {
        headers.remove(name);
    }
    let mut add = |name: &str, value: &str| {
        let name = HeaderName::from_bytes(name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(value)) {
            headers.append(name, value);
        }
    };
    add("x-remote-user", &user.name);
    if !user.uid.is_empty() {
        add("x-remote-uid", &user.uid);
    }
    for group in &user.groups {
        add("x-remote-group", group);
    }
    for (key, values) in &user.extra {
        for value in values {
            add(&format!("x-remote-extra-{}", escaped(key)), value);
        }
    }
}

/// A key of an extra field in the name of a header.
fn escaped(key: &str) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let mut text = String::new();
    for byte in key.as_bytes() {
        if is_plain(byte) {
            text.push(char::from(*byte))
        } else {
            text.push_str(&format!("%{byte:02x}"))
        }
    }
    text
}

async fn send(
    endpoint: &ServerAddress,
    method: &Method,
    path: &str,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response<Incoming>, String> {
    let connected = timeout(CONNECT_MAX, connect::<Full<Bytes>>(endpoint)).await;
    let mut sender = connected.map_err(|_| "dial tcp: i/o timeout".to_owned())??;
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = method.clone();
    *request.uri_mut() = path.parse().map_err(|e| format!("{e}"))?;
    *request.headers_mut() = headers;
    let host = HeaderValue::from_str(&endpoint.authority()).map_err(|e| e.to_string())?;
    request.headers_mut().insert(HOST, host);
    match timeout(ANSWER_MAX, sender.send_request(request)).await {
        Ok(answer) => answer.map_err(|e| e.to_string()),
        Err(_) => Err("timeout awaiting response headers".to_owned()),
    }
}

/// The answer of another server, until it or this server ends.
fn streamed(state: &ServerState, response: Response<Incoming>) -> Response<AnswerBody> {
    let (mut parts, body) = response.into_parts();
    for name in [CONNECTION, TRANSFER_ENCODING, UPGRADE] {
        parts.headers.remove(name);
    }
    let mut stopping = state.stopping.clone();
    let frames = BodyStream::new(body)
        .take_while(|frame| std::future::ready(frame.is_ok()))
        .filter_map(|frame| {
            let data = frame.ok().and_then(|frame| frame.into_data().ok());
            std::future::ready(data)
        })
        .map(|data| Ok::<_, Infallible>(Frame::data(data)))
        .take_until(async move { crate::stopping::stopped(&mut stopping).await });
    Response::from_parts(parts, StreamBody::new(frames).boxed_unsync())
}
