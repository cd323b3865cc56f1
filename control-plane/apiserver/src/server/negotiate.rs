//! The media types of requests and answers, and their parameters.

use super::route::Query;
use crate::encode::{AnswerShape, MediaFormat, ObjectView, drops_managed_fields};
use berth_objects::body::Encoding;
use berth_objects::status::ApiError;
use berth_objects::table::Include;
use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::request::Parts;

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct AnswerFormat {
    pub(super) format: MediaFormat,
    pub(super) view: ObjectView,
    /// Whether the client accepts aggregated discovery.
    pub(super) aggregated: bool,
    /// Whether `metadata.managedFields` is omitted.
    pub(super) drops_managed_fields: bool,
}

impl AnswerFormat {
    /// The encoding of objects.
    pub(super) fn shape(&self) -> AnswerShape {
        AnswerShape {
            format: self.format,
            view: self.view,
            drops_managed_fields: self.drops_managed_fields,
        }
    }
}

/// A media type of a header, in lower case, and its parameters.
struct MediaType<'a> {
    name: String,
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> MediaType<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let name = parts.next().unwrap_or("").to_ascii_lowercase();
        let parameters = parts.filter_map(|p| p.split_once('=')).collect();
        Self { name, parameters }
    }

    fn parameter(&self, name: &str) -> &'a str {
        self.parameters
            .iter()
            .find(|(key, _)| *key == name)
            .map_or("", |(_, value)| value)
    }
}

/// The clauses of `Accept`.
fn accept(headers: &HeaderMap) -> String {
    let values = headers.get_all(ACCEPT).iter();
    let texts: Vec<&str> = values.filter_map(|value| value.to_str().ok()).collect();
    texts.join(",")
}

/// The beginnings of the `User-Agent` of browsers and command-line tools that people use.
const AGENTS_OF_PEOPLE: [&str; 3] = ["curl", "Wget", "Mozilla/5.0"];

/// Returns whether JSON is indented: as the parameter `pretty` of the query or of the media type requests it. Without
/// the former it is indented for browsers, curl and wget, too.
pub(super) fn is_indented(parts: &Parts) -> bool {
    let accept = accept(&parts.headers);
    let clauses = accept.split(',').map(MediaType::parse);
    let mut chosen =
        clauses.filter(|media| clause_answer(media, Include::default(), true).is_some());
    if chosen.next().is_some_and(|m| m.parameter("pretty") == "1") {
        return true;
    }
    let query = Query::parse(parts.uri.query()).ok();
    match query.as_ref().map_or("", |query| query.get("pretty")) {
        "" => {
            let agent = agent(&parts.headers);
            AGENTS_OF_PEOPLE
                .iter()
                .any(|known| agent.starts_with(known))
        }
        text => matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True"),
    }
}

/// Chooses the first clause of `Accept` that can be satisfied. No `Accept` is JSON. `protobuf` is whether the kind has
/// a protobuf form.
///
/// # Errors
/// 406 when there is none.
pub(super) fn accepted(
    headers: &HeaderMap,
    include: Include,
    protobuf: bool,
) -> Result<AnswerFormat, ApiError> {
    let accept = accept(headers);
    if accept.trim().is_empty() {
        return Ok(AnswerFormat::default());
    }
    accept
        .split(',')
        .find_map(|clause| clause_answer(&MediaType::parse(clause), include, protobuf))
        .ok_or_else(ApiError::not_acceptable)
}

fn clause_answer(media: &MediaType<'_>, include: Include, protobuf: bool) -> Option<AnswerFormat> {
    let format = match media.name.as_str() {
        "application/json" | "application/*" | "*/*" => MediaFormat::Json,
        "application/vnd.kubernetes.protobuf" if protobuf => MediaFormat::Protobuf,
        "application/yaml" => MediaFormat::Yaml,
        _ => return None,
    };
    let (view, aggregated) = match media.parameter("as") {
        "" => (ObjectView::Object, false),
        "APIGroupDiscoveryList" => {
            let known =
                media.parameter("g") == "apidiscovery.k8s.io" && media.parameter("v") == "v2";
            // An unknown version of aggregated discovery is not replaced by another version.
            (ObjectView::Object, known.then_some(true)?)
        }
        kind => {
            if media.parameter("g") != "meta.k8s.io" || media.parameter("v") != "v1" {
                return None;
            }
            match kind {
                // Tables cannot be encoded in protobuf.
                "Table" if format != MediaFormat::Protobuf => (ObjectView::Table(include), false),
                "PartialObjectMetadata" | "PartialObjectMetadataList" => {
                    (ObjectView::Metadata, false)
                }
                _ => return None,
            }
        }
    };
    Some(AnswerFormat {
        format,
        view,
        aggregated,
        drops_managed_fields: drops_managed_fields(media.parameter("drop")),
    })
}

/// The media type of a body, in lower case and without parameters; empty if absent.
pub(super) fn content_type(headers: &HeaderMap) -> String {
    headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .map_or_else(String::new, |text| MediaType::parse(text).name)
}

/// The `User-Agent`; empty if absent.
pub(super) fn agent(headers: &HeaderMap) -> String {
    let text = headers.get(USER_AGENT).and_then(|v| v.to_str().ok());
    text.unwrap_or("").to_owned()
}

/// The encoding of a request body of this media type.
///
/// # Errors
/// 415 for one that is not read here.
pub(super) fn encoding(content_type: &str) -> Result<Encoding, ApiError> {
    match content_type {
        "" | "application/json" => Ok(Encoding::Json),
        "application/yaml" | "application/x-yaml" | "text/yaml" => Ok(Encoding::Yaml),
        "application/vnd.kubernetes.protobuf" => Ok(Encoding::Protobuf),
        _ => Err(ApiError::unsupported_media_type()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn answer(accept: &'static str) -> Option<AnswerFormat> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        accepted(&headers, Include::Metadata, true).ok()
    }

    #[test]
    fn the_first_clause_that_can_be_satisfied_wins() {
        let json = AnswerFormat::default();
        let table = AnswerFormat {
            view: ObjectView::Table(Include::Metadata),
            ..json
        };
        let aggregated = AnswerFormat {
            aggregated: true,
            ..json
        };
        let cases = [
            ("application/json", Some(json)),
            (
                "application/vnd.kubernetes.protobuf, */*",
                Some(AnswerFormat {
                    format: MediaFormat::Protobuf,
                    ..json
                }),
            ),
            (
                "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io, application/json",
                Some(json),
            ),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
                Some(table),
            ),
            (
                "application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
                Some(json),
            ),
            (
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
                Some(aggregated),
            ),
            (
                "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json",
                Some(json),
            ),
            (
                "application/yaml",
                Some(AnswerFormat {
                    format: MediaFormat::Yaml,
                    ..json
                }),
            ),
            (
                "application/vnd.kubernetes.protobuf;drop=metadata.managedFields, application/json",
                Some(AnswerFormat {
                    format: MediaFormat::Protobuf,
                    drops_managed_fields: true,
                    ..json
                }),
            ),
            ("application/json;drop=spec.unknown", Some(json)),
            ("text/html", None),
        ];
        for (accept, expect) in cases {
            assert_eq!(answer(accept), expect, "{accept}");
        }
    }
}
