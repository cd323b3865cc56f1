//! Paths without objects: health, version, metrics, discovery, OpenAPI.

use super::handle::{AnswerBody, JSON, Received, TEXT, json, json_response, not_found, response};
use super::{ServerState, aggregation, negotiate};
use crate::auth::tokens::ServerTokens;
use crate::discovery;
use berth_api::Release;
use berth_objects::catalog::Catalog;
use berth_objects::catalog::OpenApiDocument;
use berth_objects::status::ApiError;
use berth_objects::table::Include;
use berth_objects::{catalog, openapi};
use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, ETAG};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use serde_json::{Value, json};
use std::fmt::Write as _;

pub(super) fn serve(
    state: &ServerState,
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
        [probe @ ("healthz" | "livez" | "readyz"), check @ ..] => {
            return Ok(health(state, probe, check, parts.uri.query().unwrap_or("")));
        }
        ["version"] => return Ok(indented(&version(state.release))),
        ["metrics"] => return Ok(metrics(state)),
        ["api"] if aggregated()? => {
            return Ok(aggregated_answer(&discovery::aggregated(&catalog, true)));
        }
        ["apis"] if aggregated()? => {
            let mut list = discovery::aggregated(&catalog, false);
            aggregation::add_aggregated(state, &mut list);
            return Ok(aggregated_answer(&list));
        }
        ["api"] => Some(discovery::core_versions(&state.address)),
        ["apis"] => {
            let mut list = discovery::groups(&catalog);
            aggregation::add_groups(state, &mut list);
            Some(list)
        }
        ["api", version] => discovery::resources(&catalog, "", version),
        ["apis", group] => aggregation::group(state, group, discovery::group(&catalog, group)),
        ["apis", group, version] => discovery::resources(&catalog, group, version),
        ["openapi", "v3"] => {
            let index = openapi::index(&catalog).to_string();
            return Ok(response(StatusCode::OK, JSON, Bytes::from(index)));
        }
        ["openapi", "v3", path @ ..] => {
            return Ok(openapi::document(&catalog, &path.join("/"))
                .map_or_else(not_found, |d| document(&d, JSON)));
        }
        [".well-known", "openid-configuration"] => {
            return Ok(published(
                JSON,
                &issuer(state.authenticator.tokens(), &state.address),
            ));
        }
        ["openid", "v1", "jwks"] => {
            let content_type = HeaderValue::from_static("application/jwk-set+json");
            let keys = state.authenticator.tokens().key_set();
            return Ok(published(content_type, &keys));
        }
        ["openapi", "v2"] => return Ok(openapi_v2(&catalog, &parts.headers)),
        [] => return Ok(indented(&paths(&catalog))),
        _ => None,
    };
    Ok(found.map_or_else(not_found, |value| json(200, &value)))
}

/// An answer that is indented for every client, as in kube-apiserver.
fn indented(value: &Value) -> Response<AnswerBody> {
    response(StatusCode::OK, JSON, Bytes::from(format!("{value:#}")))
}

fn aggregated_answer(list: &Value) -> Response<AnswerBody> {
    json_response(
        StatusCode::OK,
        HeaderValue::from_static(discovery::AGGREGATED),
        Bytes::from(list.to_string()),
    )
}

/// A document. Its hash is in its URL, so that it may be cached for good.
fn document(document: &OpenApiDocument, content_type: HeaderValue) -> Response<AnswerBody> {
    let mut answer = response(StatusCode::OK, content_type, document.body.clone());
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{}\"", document.hash)) {
        answer.headers_mut().insert(ETAG, tag);
    }
    answer
}

/// The issuer of the tokens of service accounts, for OpenID Connect discovery.
fn issuer(tokens: &ServerTokens, address: &str) -> Value {
    json!({
        "issuer": tokens.issuer(),
        "jwks_uri": format!("https://{address}/openid/v1/jwks"),
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": tokens.algorithms(),
    })
}

/// An answer that caches may keep for an hour.
fn published(content_type: HeaderValue, value: &Value) -> Response<AnswerBody> {
    let mut answer = response(StatusCode::OK, content_type, Bytes::from(value.to_string()));
    let caching = HeaderValue::from_static("public, max-age=3600");
    answer.headers_mut().insert(CACHE_CONTROL, caching);
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

/// The health checks of the server, each with its fault, if any.
fn health_checks(state: &ServerState) -> [(&'static str, Option<String>); 3] {
    let stopping = *state.stopping.borrow();
    let failure = state.api.store().failure().map(|f| f.to_string());
    [
        ("ping", None),
        ("storage", failure),
        (
            "shutdown",
            stopping.then(|| "the server is shutting down".to_owned()),
        ),
    ]
}

/// `/healthz`, `/livez` and `/readyz`, as a whole or one check alone; `verbose` lists the checks, `exclude` leaves one
/// out.
fn health(state: &ServerState, probe: &str, check: &[&str], query: &str) -> Response<AnswerBody> {
    let checks = health_checks(state);
    let parameters = || {
        query
            .split('&')
            .map(|p| p.split_once('=').unwrap_or((p, "")))
    };
    let is_excluded = |name: &str| parameters().any(|p| p == ("exclude", name));
    if let [name] = check {
        return match checks.into_iter().find(|(known, _)| known == name) {
            None => not_found(),
            Some((_, None)) => response(StatusCode::OK, TEXT, Bytes::from_static(b"ok")),
            Some((_, Some(failure))) => {
                let body = Bytes::from(format!("internal server error: {failure}\n"));
                response(StatusCode::INTERNAL_SERVER_ERROR, TEXT, body)
            }
        };
    }
    let mut text = String::new();
    let mut failed = false;
    for (name, failure) in checks {
        let _ = match failure {
            // An excluded check counts as passed, also when it fails.
            _ if is_excluded(name) => writeln!(text, "[+]{name} excluded: ok"),
            None => writeln!(text, "[+]{name} ok"),
            Some(failure) => {
                let line = writeln!(text, "[-]{name} failed: {failure}");
                failed = true;
                line
            }
        };
    }
    if failed {
        let _ = write!(text, "{probe} check failed");
        return response(StatusCode::INTERNAL_SERVER_ERROR, TEXT, Bytes::from(text));
    }
    if !parameters().any(|(name, _)| name == "verbose") {
        return response(StatusCode::OK, TEXT, Bytes::from_static(b"ok"));
    }
    let _ = writeln!(text, "{probe} check passed");
    response(StatusCode::OK, TEXT, Bytes::from(text))
}

/// The patch level of the release with recorded answers; other releases are compared with their first patch level.
fn patch(release: Release) -> u32 {
    match release {
        Release::V1_36 => 2,
        Release::V1_37 | Release::V1_38 => 0,
    }
}

fn version(release: Release) -> Value {
    let build = env!("CARGO_PKG_VERSION");
    json!({
        "major": "1",
        "minor": release.minor().to_string(),
        "gitVersion": format!("v{release}.{}+berth-{build}", patch(release)),
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
            "/.well-known/openid-configuration",
            "/healthz",
            "/livez",
            "/metrics",
            "/openapi/v3",
            "/openid/v1/jwks",
            "/readyz",
            "/version",
        ]
        .map(str::to_owned),
    );
    json!({"paths": paths})
}

fn metrics(state: &ServerState) -> Response<AnswerBody> {
    response(
        StatusCode::OK,
        HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"),
        Bytes::from(metrics_text(state)),
    )
}

/// The metrics in the text format of Prometheus.
pub(super) fn metrics_text(state: &ServerState) -> String {
    let mut out = String::new();
    state.limits.write_metrics(&mut out);
    // Writing to a string does not fail.
    let _ = writeln!(
        out,
        "# HELP apiserver_storage_objects Stored objects by resource.\n\
         # TYPE apiserver_storage_objects gauge"
    );
    for resource in catalog::built_in().resources() {
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
