//! Everything that is no object: health, version, metrics, discovery, OpenAPI.

use super::handle::{AnswerBody, JSON, Received, TEXT, json, not_found, response};
use super::{State, negotiate};
use crate::discovery;
use crate::openapi::{self, Document};
use crate::registry::{self, Catalog};
use crate::status::ApiError;
use crate::table::Include;
use bytes::Bytes;
use http::header::{ACCEPT, ETAG};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The minor version of Kubernetes whose API this is.
const MINOR: &str = "36";
const GIT_VERSION: &str = concat!("v1.36.2+berth-", env!("CARGO_PKG_VERSION"));

pub(super) fn serve(
    state: &State,
    segments: &[String],
    received: Received<'_>,
) -> Result<Response<AnswerBody>, ApiError> {
    let parts = received.parts;
    if parts.method != Method::GET && parts.method != Method::HEAD {
        return Err(ApiError::method_not_allowed());
    }
    let catalog = state.api.catalog();
    let texts: Vec<&str> = segments.iter().map(String::as_str).collect();
    let aggregated = || {
        negotiate::accepted(&parts.headers, Include::Metadata, false)
            .map(|answer| answer.aggregated)
    };
    let found = match texts.as_slice() {
        ["healthz" | "livez" | "readyz", ..] => return Ok(health(state)),
        ["version"] => Some(version()),
        ["metrics"] => return Ok(metrics(state)),
        ["api"] if aggregated()? => return Ok(aggregated_answer(&catalog, true)),
        ["apis"] if aggregated()? => return Ok(aggregated_answer(&catalog, false)),
        ["api"] => Some(discovery::core_versions(&state.address)),
        ["apis"] => Some(discovery::groups(&catalog)),
        ["api", version] => discovery::resources(&catalog, "", version),
        ["apis", group] => discovery::group(&catalog, group),
        ["apis", group, version] => discovery::resources(&catalog, group, version),
        ["openapi", "v3"] => Some(openapi::index(&catalog)),
        ["openapi", "v3", path @ ..] => {
            return Ok(openapi::document(&catalog, &path.join("/"))
                .map_or_else(not_found, |d| document(&d, JSON)));
        }
        ["openapi", "v2"] => return Ok(openapi_v2(&catalog, &parts.headers)),
        [] => Some(paths(&catalog)),
        _ => None,
    };
    Ok(found.map_or_else(not_found, |value| json(200, &value)))
}

fn aggregated_answer(catalog: &Catalog, core: bool) -> Response<AnswerBody> {
    response(
        StatusCode::OK,
        HeaderValue::from_static(discovery::AGGREGATED),
        Bytes::from(discovery::aggregated(catalog, core).to_string()),
    )
}

/// A document. Its hash is in its URL, so that it may be cached for good.
fn document(document: &Document, content_type: HeaderValue) -> Response<AnswerBody> {
    let mut answer = response(StatusCode::OK, content_type, document.body.clone());
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{}\"", document.hash)) {
        answer.headers_mut().insert(ETAG, tag);
    }
    answer
}

/// The document of version 2. kubectl takes it in protobuf only.
fn openapi_v2(catalog: &Catalog, headers: &HeaderMap) -> Response<AnswerBody> {
    const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    let accept = headers.get(ACCEPT).and_then(|v| v.to_str().ok());
    if accept.is_some_and(|a| a.contains("proto-openapi.spec.v2") && a.contains("+protobuf")) {
        let found = openapi::document_v2(catalog, true);
        return document(&found, HeaderValue::from_static(PROTOBUF));
    }
    document(&openapi::document_v2(catalog, false), JSON)
}

fn health(state: &State) -> Response<AnswerBody> {
    if *state.stopping.borrow() {
        let body = Bytes::from_static(b"the server is shutting down");
        return response(StatusCode::INTERNAL_SERVER_ERROR, TEXT, body);
    }
    if let Some(failure) = state.api.store().failure() {
        let body = Bytes::from(failure.to_string());
        return response(StatusCode::INTERNAL_SERVER_ERROR, TEXT, body);
    }
    response(StatusCode::OK, TEXT, Bytes::from_static(b"ok"))
}

fn version() -> Value {
    json!({
        "major": "1",
        "minor": MINOR,
        "gitVersion": GIT_VERSION,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

fn paths(catalog: &Catalog) -> Value {
    let mut paths: Vec<String> = ["/api", "/api/v1", "/apis"].map(str::to_owned).to_vec();
    for (group, version) in catalog.group_versions() {
        if !group.is_empty() {
            paths.push(format!("/apis/{group}"));
            paths.push(format!("/apis/{group}/{version}"));
        }
    }
    paths.extend(
        [
            "/healthz",
            "/livez",
            "/metrics",
            "/openapi/v3",
            "/readyz",
            "/version",
        ]
        .map(str::to_owned),
    );
    json!({"paths": paths})
}

fn metrics(state: &State) -> Response<AnswerBody> {
    response(
        StatusCode::OK,
        HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"),
        Bytes::from(metrics_text(state)),
    )
}

/// The metrics in the text format of Prometheus.
pub(super) fn metrics_text(state: &State) -> String {
    let mut out = String::new();
    state.limits.write_metrics(&mut out);
    // Writing to a string does not fail.
    let _ = writeln!(
        out,
        "# HELP apiserver_storage_objects Stored objects by resource.\n\
         # TYPE apiserver_storage_objects gauge"
    );
    for resource in registry::built_in().resources() {
        let (Some(store), false) = (resource.store, resource.is_converted()) else {
            continue;
        };
        let name = resource.resource.resource;
        let name = match resource.resource.group {
            "" => name.to_owned(),
            group => format!("{name}.{group}"),
        };
        let count = state.api.store().count(store);
        let _ = writeln!(
            out,
            "apiserver_storage_objects{{resource=\"{name}\"}} {count}"
        );
    }
    let _ = writeln!(
        out,
        "# HELP berth_apiserver_revision The newest revision of the store.\n\
         # TYPE berth_apiserver_revision counter\n\
         berth_apiserver_revision {}",
        state.api.revision()
    );
    out
}
